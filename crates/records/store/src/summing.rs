//! Sums up the rows of stored flows on several threads, each a row group at a time, without records.

use crate::column_group::{ColumnPlan, sum_up};
use crate::reading::{Reader, guarded};
use crate::source::FlowReader;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use weir_fields::{Column, RowSums};

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

/// A row group of a file.
type Group = (Arc<Reader>, usize);

/// The sums of a row group, and the rows that are not selected; `None` if it cannot be summed up.
type Summed<S> = Option<(S, u64)>;

impl FlowReader {
    /// Sums up the selected rows of all files: those of a row group each in new sums, which `use_sums` gets in the order
    /// of the files, with the octets of the files that are read. Returns whether this is done. Otherwise the rest has to
    /// be read as records, from the beginning: a file cannot be read, or has rows that cannot be summed up.
    pub fn sum_up<S: RowSums>(
        &mut self,
        summing: &Summing<'_>,
        new: impl Fn() -> S + Sync,
        mut use_sums: impl FnMut(S, u64),
    ) -> bool {
        let start = self.start();
        let (columns, deciding) = self.columns();
        let (columns, deciding) = (columns.to_vec(), deciding.to_vec());
        let plan = ColumnPlan { columns: &columns, deciding: &deciding, zeros: summing.zeros };
        let queue = Mutex::new(Queue { reader: &mut *self, taken: 0, used: 0, has_ended: false });
        let is_used = Condvar::new();
        // A row group may take longer than those behind it.
        let most_waiting = 2 * summing.threads;
        let (send, receive) = sync_channel::<(usize, Summed<S>)>(most_waiting);
        let (is_whole, others) = thread::scope(|scope| {
            for _ in 0..summing.threads {
                let (send, new, queue, is_used, plan) = (send.clone(), &new, &queue, &is_used, &plan);
                scope.spawn(move || work(plan, queue, is_used, most_waiting, summing.stop, new, &send));
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

/// Sums up row groups until there are no more.
fn work<S: RowSums>(
    plan: &ColumnPlan<'_>,
    queue: &Mutex<Queue<'_>>,
    is_used: &Condvar,
    most_waiting: usize,
    stop: &AtomicBool,
    new: &impl Fn() -> S,
    send: &SyncSender<(usize, Summed<S>)>,
) {
    let _end = End(queue, is_used);
    while !stop.load(Ordering::Relaxed) {
        let Some((at, group)) = take(queue, is_used, most_waiting) else { return };
        let sum = |(reader, group): Group| {
            let mut sums = new();
            let others = guarded(|| sum_up(plan, &reader, group, &mut sums)).ok()?;
            Some((sums, others))
        };
        if send.send((at, group.and_then(sum))).is_err() {
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
