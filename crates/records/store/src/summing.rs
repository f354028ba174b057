//! Reads stored flows on several threads, each a row group at a time: sums of rows without records, or records.

use crate::column_group::{ColumnPlan, sum_up};
use crate::reading::guarded;
use crate::row_group::RowGroup;
use crate::selection::Selection;
use crate::source::{FlowReader, Group};
use parking_lot::{Condvar, Mutex};
use parquet::errors::Result;
use parquet::file::reader::FileReader;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use weir_fields::{Bounds, Column, Restored, RowSums};
use weir_flow::FlowRecord;

/// How stored flows are summed up.
pub struct Summing<'a> {
    /// Threads that read.
    pub threads: usize,
    /// Columns in which null means the same as 0.
    pub zeros: &'a [&'static Column],
    /// Ends the reading.
    pub stop: &'a AtomicBool,
}

/// What the threads take row groups from.
struct Queue<'a> {
    reader: &'a mut FlowReader,
    /// Row groups that were taken.
    taken: usize,
    /// Row groups whose sums were used.
    used: usize,
    has_ended: bool,
}

/// Lets all threads end when one does, also by a panic.
struct End<'a, 'b>(&'a Mutex<Queue<'b>>, &'a Condvar);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.1.notify_all();
    }
}

/// What was made of a row group, and the rows that are not selected; `None` if it cannot be read in this way.
type Summed<S> = Option<(S, u64)>;

/// How records are read.
pub struct Collecting<'a> {
    /// Threads that read.
    pub threads: usize,
    /// Ends the reading.
    pub stop: &'a AtomicBool,
    /// The last row group first.
    pub is_backwards: bool,
    /// Of a row group with these bounds, all records are selected, and none is wanted.
    pub is_counted_only: &'a (dyn Fn(&dyn Bounds) -> bool + Sync),
    /// Fields of which it depends whether a selected record is wanted.
    pub fields: &'a [&'static Column],
    /// Whether a record with these fields is wanted. Of the others, not all fields are read.
    pub is_wanted: Arc<dyn Fn(&FlowRecord) -> bool + Send + Sync>,
}

impl FlowReader {
    /// Sums up the selected rows of all files: those of a row group each in new sums, which `use_sums` gets in the order
    /// of the files, with the octets of the files that are read. Returns whether this is done. Otherwise the rest has to
    /// be read as records, from the beginning: a file cannot be read, or has rows that cannot be summed up.
    pub fn sum_up<S: RowSums>(
        &mut self,
        summing: &Summing<'_>,
        new: impl Fn() -> S + Sync,
        use_sums: impl FnMut(S, u64),
    ) -> bool {
        let (columns, deciding) = self.columns();
        let (columns, deciding) = (columns.to_vec(), deciding.to_vec());
        let plan = ColumnPlan { columns: &columns, deciding: &deciding, zeros: summing.zeros };
        let sum = |group: &Group, _| {
            let mut sums = new();
            let others = sum_up(&plan, &group.reader, group.at, &mut sums)?;
            Ok((sums, others))
        };
        self.for_each_group((summing.threads, summing.stop), false, &sum, use_sums)
    }

    /// Collects the selected records of all files: those of a row group each in a new collection, which gets the number
    /// of the row group in the sequence of reading. `add` gets the records that are wanted, in the order of the file.
    /// Returns how many are selected; `None` if that is not possible: a file is damaged, and has to be read from the
    /// beginning.
    pub fn collect<C: Send>(
        &mut self,
        collecting: &Collecting<'_>,
        new: impl Fn(usize) -> C + Sync,
        add: impl Fn(&mut C, &[FlowRecord]) + Sync,
        mut use_collection: impl FnMut(C),
    ) -> Option<u64> {
        let (restored, selection) = self.plan();
        let selection = self.wanted(selection, collecting);
        let collect = |group: &Group, number| {
            let mut collection = new(number);
            if (collecting.is_counted_only)(&group.bounds()) {
                return Ok(((collection, group.rows()), 0));
            }
            let others = read_group(group, (&restored, &selection), |records| add(&mut collection, records))?;
            Ok(((collection, group.rows().saturating_sub(others)), others))
        };
        let mut selected = 0;
        let use_collection = |(collection, of_group), _| {
            selected += of_group;
            use_collection(collection);
        };
        let how = (collecting.threads, collecting.stop);
        let is_done = self.for_each_group(how, collecting.is_backwards, &collect, use_collection);
        is_done.then_some(selected)
    }

    /// The selection, with what of it is wanted.
    fn wanted(&self, selection: Option<Arc<Selection>>, collecting: &Collecting<'_>) -> Selection {
        let mut columns = self.columns_for(collecting.fields);
        columns.extend(selection.iter().flat_map(|selection| &selection.columns));
        let is_wanted = collecting.is_wanted.clone();
        Selection {
            columns,
            matches: Box::new(move |flow| selection.as_ref().is_none_or(|selection| (selection.matches)(flow))),
            is_wanted: Some(Box::new(move |flow| is_wanted(flow))),
            may_match: Box::new(|_| true),
        }
    }

    /// Reads all row groups on some threads, forwards or backwards, and uses what was made of them in this order. Returns
    /// whether all could be read; otherwise the reader is at the beginning.
    fn for_each_group<S: Send>(
        &mut self,
        (threads, stop): (usize, &AtomicBool),
        is_backwards: bool,
        read: &(impl Fn(&Group, usize) -> Result<(S, u64)> + Sync),
        mut use_sums: impl FnMut(S, u64),
    ) -> bool {
        let start = self.start();
        if is_backwards {
            self.turn_back();
        }
        let queue = Mutex::new(Queue { reader: &mut *self, taken: 0, used: 0, has_ended: false });
        let is_used = Condvar::new();
        // A row group may take longer than those behind it.
        let most_waiting = 2 * threads;
        let (send, receive) = sync_channel::<(usize, Summed<S>)>(most_waiting);
        let (is_whole, others) = thread::scope(|scope| {
            for _ in 0..threads {
                let (send, queue, is_used) = (send.clone(), &queue, &is_used);
                scope.spawn(move || work(queue, is_used, most_waiting, stop, read, &send));
            }
            drop(send);
            let _end = End(&queue, &is_used);
            // It is dropped here: threads that wait for room in it end.
            let receive = receive;
            collect(&receive, &queue, &is_used, &mut use_sums)
        });
        self.others += others;
        if !is_whole {
            self.restart(start);
        }
        is_whole
    }
}

/// Reads the records of a row group that are wanted. Returns how many are not selected.
fn read_group(
    group: &Group,
    (restored, selection): (&Restored, &Selection),
    mut use_records: impl FnMut(&[FlowRecord]),
) -> Result<u64> {
    /// Records that are read together.
    const BATCH: usize = 1024;
    let mut rows = RowGroup::open(&*group.reader.get_row_group(group.at)?, restored, Some(selection))?;
    let (mut records, mut others) = (Vec::with_capacity(BATCH), 0);
    while !rows.is_read() {
        records.clear();
        others += rows.read(Some(selection), &mut records, BATCH)? as u64;
        use_records(&records);
    }
    Ok(others)
}

/// Reads row groups until there are no more.
fn work<S>(
    queue: &Mutex<Queue<'_>>,
    is_used: &Condvar,
    most_waiting: usize,
    stop: &AtomicBool,
    read: &impl Fn(&Group, usize) -> Result<(S, u64)>,
    send: &SyncSender<(usize, Summed<S>)>,
) {
    let _end = End(queue, is_used);
    while !stop.load(Ordering::Relaxed) {
        let Some((at, group)) = take(queue, is_used, most_waiting) else { return };
        let summed = group.and_then(|group| guarded(|| read(&group, at)).ok());
        if send.send((at, summed)).is_err() {
            return;
        }
    }
}

/// Takes the next row group and its number; none within if a file cannot be opened.
fn take(queue: &Mutex<Queue<'_>>, is_used: &Condvar, most_waiting: usize) -> Option<(usize, Option<Group>)> {
    let mut queue = queue.lock();
    while !queue.has_ended && queue.taken >= queue.used + most_waiting {
        is_used.wait(&mut queue);
    }
    if queue.has_ended {
        return None;
    }
    let group = match guarded(|| Ok(queue.reader.next_group())) {
        Ok(Ok(Some(group))) => Some(group),
        Ok(Ok(None)) => {
            queue.has_ended = true;
            return None;
        }
        Ok(Err(_)) | Err(_) => None,
    };
    queue.taken += 1;
    Some((queue.taken - 1, group))
}

/// Uses the sums of row groups in their order. Returns whether all could be summed up, and the number of rows that are
/// not selected.
fn collect<S>(
    receive: &Receiver<(usize, Summed<S>)>,
    queue: &Mutex<Queue<'_>>,
    is_used: &Condvar,
    use_sums: &mut impl FnMut(S, u64),
) -> (bool, u64) {
    let (mut waiting, mut next, mut others) = (BTreeMap::new(), 0, 0);
    for (at, summed) in receive {
        let Some(summed) = summed else { return (false, 0) };
        waiting.insert(at, summed);
        while let Some((sums, other_rows)) = waiting.remove(&next) {
            let done_octets = queue.lock().reader.done_octets;
            use_sums(sums, done_octets);
            others += other_rows;
            next += 1;
            queue.lock().used = next;
            is_used.notify_all();
        }
    }
    (true, others)
}
