//! Answers questions of the HTTP interface (`/stored`), from the files of stores or from the last flows in memory.
//!
//! Input: the finished files of stores; flows in the flow cache and those that the sink has not written are not in them.
//! Output: flows, or sums, as `weir read` writes them as JSON. It runs on a thread of its own, and looks between batches
//! and row groups whether its time is over. Sums are computed from columns on all cores that this thread may use where
//! that is possible, and otherwise from records.
//!
//! Groups in intervals are summed up in one pass if all of their rows fit into memory. Otherwise a first pass finds the
//! largest groups, and a second one their intervals: the memory is that of the groups, and then that of the rows of the
//! answer.

use crate::question_checks::Known;
use crate::stored_reader::select;
use crate::stored_sums;
use crate::stored_times::{self, NEWEST_FLOWS};
use crate::table::LargestFlows;
use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_control::{AskStore, FlowSource, FlowsThen, StoredAnswer, StoredError, StoredQuestion, Wanted};
use weir_export::{ViewFormat, append_json_record};
use weir_fields::{Bounds, Column, Field, columns, field};
use weir_flow::FlowRecord;
use weir_query::{CountField, GroupField, Metric, RecordOrder, View, ViewSettings};
use weir_store::{Collecting, Damage, FlowReader, RowForm};

/// Flows that are read before the time is looked at.
const BATCH: usize = 1024;
/// More flows of an answer are not collected on several threads, each of which has as many.
const MAX_COLLECTED: usize = 2000;
/// Problems that an answer names one by one.
const MAX_PROBLEMS: usize = 100;
/// Rows of groups in intervals: more than a valid question may have, also with flows that end after its time.
pub const MAX_ROWS: usize = 200_000;

/// What answers the questions of a server.
pub fn ask_store() -> AskStore {
    AskStore { answer: Arc::new(answer), times: stored_times::finder(0..=u64::MAX, NEWEST_FLOWS) }
}

/// Answers a question.
///
/// # Errors
/// The store cannot be read, its flows do not have a field of the question, or there are too many intervals.
pub fn answer(source: &FlowSource, question: &StoredQuestion) -> Result<StoredAnswer, StoredError> {
    question.check_intervals(|| stored_times::times(source, &(0..=u64::MAX), 0).map(|of| of.starts_ns))?;
    match &question.wanted {
        Wanted::Flows { order, columns, offset } => flows(source, question, *order, columns, *offset),
        Wanted::Sums(settings) => sums(source, question, settings),
    }
}

/// The flows of a question.
fn flows(
    source: &FlowSource,
    question: &StoredQuestion,
    order: Option<RecordOrder>,
    columns: &[&'static Column],
    offset: usize,
) -> Result<StoredAnswer, StoredError> {
    let opened = Opened::new(source, question)?;
    let stored = opened.known().stored_columns(order.as_ref(), columns)?;
    let by = order.unwrap_or_else(RecordOrder::newest);
    let needed = stored.iter().copied().chain(fields_of([by.name()])).collect();
    let (first, read) = opened.first_flows(question, needed, by, offset + question.top);
    let mut shown: Vec<FlowRecord> = first.into_flows().skip(offset).take(question.top).collect();
    if order.is_none() {
        shown.reverse();
    }
    let mut rows = Vec::new();
    for flow in &shown {
        append_json_record(&stored, flow, &mut rows);
        rows.push(b'\n');
    }
    Ok(read.answer(rows))
}

/// The sums of a question.
fn sums(source: &FlowSource, question: &StoredQuestion, settings: &ViewSettings) -> Result<StoredAnswer, StoredError> {
    let opened = Opened::new(source, question)?;
    let (has_groups, every_ns) = (!settings.fields.is_empty(), settings.every_ns);
    let first = ViewSettings { every_ns: every_ns.filter(|_| !has_groups), ..settings.clone() };
    let first = opened.known().checked_sums(first)?;
    let whole = || View::new(first.clone()).expect("these settings are checked");
    let (view, read) = match every_ns.filter(|_| has_groups) {
        None => opened.sum_up(question, &whole),
        Some(every_ns) => match opened.sum_up_pairs(question, &first, every_ns) {
            Some(summed) => summed,
            None => {
                let (groups, first) = Opened::new(source, question)?.sum_up(&question.halved(), &whole);
                let few = || groups.of_first_groups(question.top, every_ns, MAX_ROWS);
                let (view, read) = Opened::new(source, question)?.sum_up(question, &few);
                (view, Read { is_cut: read.is_cut || first.is_cut, ..read })
            }
        },
    };
    // All intervals of a time line.
    let most = if has_groups { question.top } else { usize::MAX };
    let mut rows = Vec::new();
    view.append_rows(ViewFormat::Json, most, &mut rows);
    Ok(read.answer(rows))
}

/// The columns of fields.
pub fn fields_of(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static Column> {
    names.into_iter().filter_map(field).flat_map(Field::columns).collect()
}

/// Flows that can be read, once.
pub enum Opened {
    Files(Box<FlowReader>, Vec<Damage>, RowForm),
    Memory(FlowsThen),
}

/// What was read.
#[derive(Clone)]
pub struct Read {
    /// Flows that match.
    pub matching: u64,
    others: u64,
    is_cut: bool,
    problems: Problems,
}

impl Opened {
    /// Opens what has the fields of the expression.
    pub fn new(source: &FlowSource, question: &StoredQuestion) -> Result<Self, StoredError> {
        let opened = match source {
            FlowSource::Memory(recent) => Self::Memory(recent.now()),
            FlowSource::Files(paths) => {
                let found = FlowReader::open(paths, Some(question.starts_ns.clone()));
                let found = found.map_err(|error| StoredError::Store(format!("the store cannot be read: {error}")))?;
                Self::Files(Box::new(found.reader), found.damaged, found.form)
            }
        };
        opened.known().check_condition(question.expression.as_ref())?;
        Ok(opened)
    }

    /// The fields that flows have. In memory, they have all that they were metered with.
    pub fn known(&self) -> Known {
        match self {
            Self::Files(reader, _, form) => Known::new(reader.known().to_vec(), form.is_transactions),
            Self::Memory(_) => Known::new(columns().iter().collect(), false),
        }
    }

    /// Calls a function with each flow of the question, which has these fields.
    pub fn read(
        self,
        question: &StoredQuestion,
        fields: Vec<&'static Column>,
        use_flow: &mut dyn FnMut(&FlowRecord),
    ) -> Read {
        match self {
            Self::Files(mut reader, damaged, _) => {
                prepare(&mut reader, question, fields);
                read_records(&mut reader, damaged, question, use_flow)
            }
            Self::Memory(flows) => {
                let mut read = Read { matching: 0, others: 0, is_cut: false, problems: Problems::default() };
                for (number, flow) in flows.iter().enumerate() {
                    if number.is_multiple_of(BATCH) && question.is_over() {
                        read.is_cut = true;
                        break;
                    }
                    let is_of_time = question.starts_ns.contains(&flow.start_ns());
                    if is_of_time && question.expression.as_ref().is_none_or(|expression| expression.matches(flow)) {
                        read.matching += 1;
                        use_flow(flow);
                    } else {
                        read.others += 1;
                    }
                }
                read
            }
        }
    }

    /// The first flows of the question by an order, which have these fields, and what was read.
    fn first_flows(
        self,
        question: &StoredQuestion,
        fields: Vec<&'static Column>,
        by: RecordOrder,
        most: usize,
    ) -> (LargestFlows, Read) {
        // A limit of 0 is none.
        let mut first = LargestFlows::in_order(most.max(1), by);
        let (mut reader, damaged) = match self {
            Self::Files(reader, damaged, _) => (reader, damaged),
            Self::Memory(_) => {
                let mut number = 0;
                let read = self.read(question, fields, &mut |flow| {
                    first.insert(flow, number);
                    number += 1;
                });
                return (first, read);
            }
        };
        prepare(&mut reader, question, fields);
        let stop = AtomicBool::new(question.is_over());
        if most <= MAX_COLLECTED
            && let Some((first, matching)) = collect_first(&mut reader, question, by, most, &stop)
        {
            let (others, is_cut) = (reader.others, stop.load(Ordering::Relaxed));
            return (first, Read { matching, others, is_cut, problems: Problems::of(damaged) });
        }
        let mut number = 0;
        let read = read_records(&mut reader, damaged, question, &mut |flow| {
            first.insert(flow, number);
            number += 1;
        });
        (first, read)
    }

    /// Sums up groups in intervals in one pass; `None` if they have more rows than fit into memory, or need records.
    fn sum_up_pairs(self, question: &StoredQuestion, groups: &ViewSettings, every_ns: u64) -> Option<(View, Read)> {
        let settings = ViewSettings { every_ns: Some(every_ns), groups: MAX_ROWS, ..groups.clone() };
        let empty = || View::new(settings.clone()).expect("these settings are checked");
        let Self::Files(mut reader, damaged, _) = self else { return None };
        prepare_sums(&mut reader, question, &settings);
        let stop = AtomicBool::new(question.is_over());
        let (condition, starts_ns) = (question.expression.as_ref(), times_of(question));
        let (pairs, _) = stored_sums::sum_up_columns(&mut reader, condition, starts_ns, &empty, &stop, |view, _| {
            stop.store(question.is_over() || view.others().is_some(), Ordering::Relaxed);
        })?;
        if pairs.others().is_some() {
            return None;
        }
        let mut view = pairs.without_intervals().of_first_groups(question.top, every_ns, MAX_ROWS);
        let (matching, is_cut) = (pairs.total().flows, stop.load(Ordering::Relaxed));
        view.merge(&pairs);
        Some((view, Read { matching, others: reader.others, is_cut, problems: Problems::of(damaged) }))
    }

    /// Sums up the flows of the question in a view, which is empty.
    pub fn sum_up(self, question: &StoredQuestion, view: &dyn Fn() -> View) -> (View, Read) {
        let mut all = view();
        let (mut reader, damaged) = match self {
            Self::Files(reader, damaged, _) => (reader, damaged),
            Self::Memory(_) => {
                let read = self.read(question, Vec::new(), &mut |flow| all.add(slice::from_ref(flow)));
                return (all, read);
            }
        };
        prepare_sums(&mut reader, question, all.settings());
        let stop = AtomicBool::new(question.is_over());
        let (condition, starts_ns) = (question.expression.as_ref(), times_of(question));
        let summed = stored_sums::sum_up_columns(&mut reader, condition, starts_ns, view, &stop, |_, _| {
            stop.store(question.is_over(), Ordering::Relaxed);
        });
        if let Some((view, _)) = summed {
            let (matching, others) = (view.total().flows, reader.others);
            let problems = Problems::of(damaged);
            return (view, Read { matching, others, is_cut: stop.load(Ordering::Relaxed), problems });
        }
        let read = read_records(&mut reader, damaged, question, &mut |flow| all.add(slice::from_ref(flow)));
        (all, read)
    }
}

/// The first selected flows by an order, and how many are selected, on the cores that this thread may use. Of the flows
/// that cannot be among the first, only what decides about that is read, and of row groups that have no others, nothing.
/// `None` if a file is damaged: the reader is at the beginning then.
fn collect_first(
    reader: &mut FlowReader,
    question: &StoredQuestion,
    by: RecordOrder,
    most: usize,
    stop: &AtomicBool,
) -> Option<(LargestFlows, u64)> {
    let order_fields = fields_of([by.name()]);
    // The least number of a flow that may be among the first. With 0, flows without a number are, too.
    let least = Arc::new(AtomicU64::new(if most == 0 { u64::MAX } else { 0 }));
    let may_be_first = |rank: (bool, u64), least: &AtomicU64| match least.load(Ordering::Relaxed) {
        0 => true,
        least => rank >= (true, least),
    };
    let is_counted_only = |bounds: &dyn Bounds| {
        let is_last = most == 0 || by.first_rank(bounds).is_some_and(|rank| !may_be_first(rank, &least));
        is_last && question.expression.is_none() && {
            let starts = bounds.numbers(weir_fields::start_time());
            let is_inside = |of: &u64| question.starts_ns.contains(of);
            starts.is_some_and(|starts| is_inside(starts.start()) && is_inside(starts.end()))
        }
    };
    let of_rows = least.clone();
    let is_wanted = Arc::new(move |flow: &FlowRecord| may_be_first(by.rank(flow), &of_rows));
    let is_backwards = by.name() == weir_fields::start_time().name && !by.is_ascending();
    let collecting = Collecting {
        threads: stored_sums::threads(),
        stop,
        is_backwards,
        is_counted_only: &is_counted_only,
        fields: &order_fields,
        is_wanted,
    };
    let empty = || LargestFlows::in_order(most.max(1), by);
    let new = |group: usize| {
        let group = group as u64 & u64::from(u32::MAX);
        let group = if is_backwards { u64::from(u32::MAX) - group } else { group };
        (empty(), group << u32::BITS)
    };
    let add = |(first, number): &mut (LargestFlows, u64), flows: &[FlowRecord]| {
        for flow in flows {
            first.insert(flow, *number);
            *number += 1;
        }
        if let Some((true, rank)) = first.least_rank() {
            least.fetch_max(rank, Ordering::Relaxed);
        }
    };
    let mut all = empty();
    let selected = reader.collect(&collecting, new, add, |(first, _)| {
        all.merge(first);
        stop.store(question.is_over(), Ordering::Relaxed);
    })?;
    Some((all, selected))
}

/// The times in which flows of the question start; `None` for all.
fn times_of(question: &StoredQuestion) -> Option<RangeInclusive<u64>> {
    Some(&question.starts_ns).filter(|of| **of != (0..=u64::MAX)).cloned()
}

/// Selects the flows of the question, with what this view sums up.
fn prepare_sums(reader: &mut FlowReader, question: &StoredQuestion, settings: &ViewSettings) {
    let counted = settings.counts.iter().flat_map(|count| CountField::names_in(count, &settings.fields));
    let names: Vec<_> = settings.fields.iter().map(GroupField::name).chain(counted).collect();
    let of_groups = fields_of(names);
    prepare(reader, question, settings.summed_columns().into_iter().chain(of_groups.iter().copied()).collect());
    if settings.unknown.contains(&Metric::L2Bytes) {
        reader.leave_out_frames(&of_groups);
    }
}

/// Selects the flows of the question, with these fields.
fn prepare(reader: &mut FlowReader, question: &StoredQuestion, mut fields: Vec<&'static Column>) {
    select(reader, times_of(question), question.expression.as_ref());
    fields.extend(fields_of(question.expression.iter().flat_map(|expression| expression.fields())));
    reader.keep_only(&fields);
}

/// Reads the records of files until their end, or until the time is over.
fn read_records(
    reader: &mut FlowReader,
    damaged: Vec<Damage>,
    question: &StoredQuestion,
    use_flow: &mut dyn FnMut(&FlowRecord),
) -> Read {
    let mut read = Read { matching: 0, others: 0, is_cut: false, problems: Problems::of(damaged) };
    let mut records = Vec::with_capacity(BATCH);
    read.is_cut = loop {
        if question.is_over() {
            break true;
        }
        records.clear();
        match reader.read(&mut records, BATCH) {
            Ok(true) => {}
            Ok(false) => break false,
            Err(damage) => read.problems.add(damage),
        }
        records.iter().for_each(&mut *use_flow);
        read.matching += records.len() as u64;
    };
    read.others = reader.others;
    read
}

impl Read {
    /// The same for a condition that this number of the flows match.
    pub fn of(&self, matching: u64) -> Self {
        Self { matching, others: self.matching + self.others - matching, ..self.clone() }
    }

    /// The answer with these rows.
    pub fn answer(self, rows: Vec<u8>) -> StoredAnswer {
        let Self { matching, others, is_cut, problems } = self;
        let is_complete = !is_cut && problems.count == 0;
        StoredAnswer { rows, matching, read: matching + others, is_complete, problems: problems.texts() }
    }
}

/// What is wrong with files.
#[derive(Clone, Default)]
struct Problems {
    first: Vec<String>,
    count: usize,
}

impl Problems {
    fn of(damaged: Vec<Damage>) -> Self {
        let mut problems = Self::default();
        damaged.into_iter().for_each(|damage| problems.add(damage));
        problems
    }

    fn add(&mut self, Damage { path, error }: Damage) {
        self.count += 1;
        if self.first.len() < MAX_PROBLEMS {
            self.first.push(format!("{}: {error}", path.display()));
        }
    }

    fn texts(self) -> Vec<String> {
        let others = self.count - self.first.len();
        let others = (others > 0).then(|| format!("{others} more files cannot be read to their ends"));
        self.first.into_iter().chain(others).collect()
    }
}
