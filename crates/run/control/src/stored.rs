//! Stored flows: the parameters of a question to what a probe or a view has stored, and its answer.
//!
//! In: the query of a request. Out: a [`StoredQuestion`], which the program answers on a thread of its own: reading
//! files takes time, and neither the thread of the server nor those that meter wait for it. There is one question at a
//! time, and it ends in time.

use crate::intervals;
use crate::parameters::{self, InvalidQuery};
use crate::recent::RecentFlows;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_fields::Column;
use weir_probe::CpuAffinity;
use weir_query::{Expression, Order, RecordOrder, ViewSettings};

/// Time after which the answer has what was read.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(10);
/// Time beyond that in which files are opened, or a batch of flows or a burst of packets is read.
pub(crate) const REPLY_TIME: Duration = Duration::from_secs(2);
/// From when a probe reads flows, unless a request says it. A view reads all.
const FROM_OF_PROBE: &str = "-1h";
/// Flows that are passed over and shown.
const MAX_PASSED: usize = 100_000;
const NO_TRANSACTIONS: &str = "no transactions are stored: start the probe with --transactions parquet:FOLDER, or weir \
                               view with such a folder";
const NO_FLOWS: &str = "the probe keeps no flows that have ended: start it with -o parquet:FOLDER, or without \
                        --listen-records 0";

/// The parameters of a question.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only flows that match this expression, as --where (weir help expressions)
    r#where: Option<String>,
    /// Only flows that start at this time or later, as --from of weir read: 2026-11-20T12:00, 2026-11-20, 12:00 (today),
    /// -2h (before now); UTC without a zone. Default: -1h of a probe, all of weir view
    from: Option<String>,
    /// Only flows that start at this time or earlier. Default: all
    to: Option<String>,
    /// Sums of flows by these fields in place of flows, as --by: up to 4, joined by commas
    by: Option<String>,
    /// Sums of flows in intervals of this length, as --every: 10s, 1m, 1h; at least 1ms, and at most 2000 intervals. With
    /// by: of the largest groups of the whole time in each interval, and of all others together
    every: Option<String>,
    /// Numbers of different values in each group, as --count: hosts, ports or any field, up to 4, joined by commas. With by,
    /// and without every
    count: Option<String>,
    /// More sums of each group or interval, as --sum: dns_failed, http_errors, failed and others (weir help views), up to
    /// 16, joined by commas. With by or every
    sum: Option<String>,
    /// Numbers of groups and intervals, joined by commas: flows, packets, bytes and others, as --by writes them. The others
    /// are null, and columns that only they need are not read. Default: all
    numbers: Option<String>,
    /// The number by which flows or groups are sorted, the largest first; NUMBER:asc for the smallest first. Default: the
    /// newest flows, the newest last; groups by bytes
    sort: Option<String>,
    /// How many flows or groups, up to 1000; with 0 only how many there are, and their sums. Default: 20
    #[param(value_type = Option<usize>)]
    top: Option<String>,
    /// How many flows are passed over before these; offset and top are up to 100000 together. Without by and every.
    /// Default: 0
    #[param(value_type = Option<usize>)]
    offset: Option<String>,
    /// Fields of each flow, as --fields (weir help fields); without by and every only. Default: basic
    fields: Option<String>,
    /// flows, or transactions: the questions of DNS and requests of HTTP/1 that --transactions parquet:FOLDER stores, each
    /// a record. Default: flows
    records: Option<String>,
    /// Which of the stores of a probe, from 1, in the order of its sinks. Default: 1
    #[param(value_type = Option<usize>)]
    store: Option<String>,
}

/// Stored flows, or sums of them.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the answer, whose text is written by the encoders of records and views")]
pub struct StoredFlows {
    /// Where they are from: `store`, or `memory` if the probe has no store.
    source: &'static str,
    /// The flows, each as the sink of JSON writes it. Without by and every only.
    #[schema(value_type = Option<Vec<Object>>)]
    flows: Option<Vec<()>>,
    /// The groups and intervals, each as weir read --by and --every write it as JSON. With by or every only.
    #[schema(value_type = Option<Vec<Object>>)]
    groups: Option<Vec<()>>,
    /// How many flows match.
    matching: u64,
    /// How many flows were read: those of this time.
    read: u64,
    /// Whether all of this time were read.
    complete: bool,
    /// What is wrong with files.
    problems: Vec<String>,
}

/// What is asked of a store.
#[derive(Clone)]
pub struct StoredQuestion {
    /// When the flows start, ns since 1970 UTC.
    pub starts_ns: RangeInclusive<u64>,
    /// Which of them.
    pub expression: Option<Expression>,
    /// What of them.
    pub wanted: Wanted,
    /// How many flows or groups.
    pub top: usize,
    deadline: Instant,
    is_abandoned: Arc<AtomicBool>,
    /// Of which records.
    pub(crate) records: Records,
    /// Which store, from 0.
    store: usize,
}

/// Of which records a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Flows,
    Transactions,
}

/// What of the flows is asked.
#[derive(Clone)]
pub enum Wanted {
    /// The first ones by an order; the newest ones without it.
    Flows {
        /// The order.
        order: Option<RecordOrder>,
        /// The fields.
        columns: Vec<&'static Column>,
        /// Flows that are passed over.
        offset: usize,
    },
    /// Sums of groups, of intervals, or of the largest groups in each interval.
    Sums(ViewSettings),
}

/// Where flows are stored.
#[derive(Clone)]
pub enum FlowSource {
    /// Folders of stores, and Parquet files.
    Files(Vec<PathBuf>),
    /// The last ones that have ended.
    Memory(Arc<RecentFlows>),
}

/// What a store answers.
pub struct StoredAnswer {
    /// JSON objects of flows or groups, each with a line break behind it.
    pub rows: Vec<u8>,
    /// How many flows match.
    pub matching: u64,
    /// How many flows were read.
    pub read: u64,
    /// Whether all were read.
    pub is_complete: bool,
    /// What is wrong with files.
    pub problems: Vec<String>,
}

/// Why a store does not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// A parameter does not fit what is stored.
    #[error("{0}")]
    Question(String),
    /// The store cannot be read at all.
    #[error("{0}")]
    Store(String),
}

/// Answers a question.
pub type AnswerQuestion = dyn Fn(&FlowSource, &StoredQuestion) -> Result<StoredAnswer, StoredError> + Send + Sync;

/// When flows start, ns since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTimes {
    /// The first and the last start.
    pub starts_ns: RangeInclusive<u64>,
    /// From when on the newest flows start, as many as a view shows first; `None` if there are no more.
    pub newest_from_ns: Option<u64>,
}

/// When flows start; `None` if there are none.
pub type FindTimes = dyn Fn(&FlowSource) -> Option<FlowTimes> + Send + Sync;

/// What answers, on threads of its own.
#[derive(Clone)]
pub struct AskStore {
    /// Answers questions.
    pub answer: Arc<AnswerQuestion>,
    /// Finds the times of all flows.
    pub times: Arc<FindTimes>,
}

impl StoredQuestion {
    /// That of these parameters, of all times unless they say it. It ends when `stop` is set.
    ///
    /// # Errors
    /// A parameter is invalid: the sentence.
    pub fn without_limit(parameters: &BTreeMap<String, String>, stop: Arc<AtomicBool>) -> Result<Self, String> {
        /// Longer than any question takes.
        const DAYS: Duration = Duration::from_secs(100 * 86_400);
        let query: Query = serde_json::from_value(serde_json::json!(parameters)).map_err(|error| error.to_string())?;
        // As of a view: of all times, unless one is said.
        let question = query.question(true).map_err(|error| error.to_string())?;
        Ok(Self { deadline: Instant::now() + DAYS, is_abandoned: stop, ..question })
    }

    /// Whether to stop reading: the time is over, or no client waits for the answer.
    pub fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// The same with half of the time that is left.
    pub fn halved(&self) -> Self {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Self { deadline: self.deadline - left / 2, ..self.clone() }
    }

    /// The same among flows of these times that match.
    pub fn among(&self, starts_ns: &RangeInclusive<u64>, condition: Option<&Expression>) -> Self {
        let starts_ns = *self.starts_ns.start().max(starts_ns.start())..=*self.starts_ns.end().min(starts_ns.end());
        let expression = match (condition, &self.expression) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other.as_ref()).cloned(),
        };
        Self { starts_ns, expression, ..self.clone() }
    }

    /// Checks the number of intervals. `starts_ns` is called if that depends on the first and last start of the flows.
    ///
    /// # Errors
    /// There are too many, or too many rows.
    pub fn check_intervals(&self, starts_ns: impl FnOnce() -> Option<RangeInclusive<u64>>) -> Result<(), StoredError> {
        let Wanted::Sums(ViewSettings { every_ns: Some(every_ns), fields, .. }) = &self.wanted else { return Ok(()) };
        let groups = if fields.is_empty() { 0 } else { self.top + 1 };
        intervals::check(&self.starts_ns, *every_ns, groups, starts_ns).map_err(StoredError::Question)
    }
}

impl Query {
    /// Compiles it, for a probe or for a view.
    pub fn question(self, is_view: bool) -> Result<StoredQuestion, InvalidQuery> {
        let from = self.from.as_deref().or((!is_view).then_some(FROM_OF_PROBE));
        let from_ns = from.map_or(Ok(0), parameters::time).map_err(InvalidQuery::From)?;
        let to_ns = self.to.as_deref().map_or(Ok(u64::MAX), parameters::time).map_err(InvalidQuery::To)?;
        if from_ns > to_ns {
            return Err(InvalidQuery::FromAfterTo);
        }
        let top = parameters::limit(self.top.as_deref())?;
        let store = self.store.as_deref().map_or(Ok(1), str::parse::<usize>).ok();
        let store = store.and_then(|store| store.checked_sub(1)).ok_or(InvalidQuery::Store)?;
        Ok(StoredQuestion {
            starts_ns: from_ns..=to_ns,
            expression: parameters::expression(self.r#where.as_deref())?,
            wanted: self.wanted(top)?,
            top,
            deadline: Instant::now() + QUESTION_TIME,
            is_abandoned: Arc::default(),
            records: match self.records.as_deref() {
                None | Some("flows") => Records::Flows,
                Some("transactions") => Records::Transactions,
                Some(_) => return Err(InvalidQuery::Records),
            },
            store,
        })
    }

    fn wanted(&self, top: usize) -> Result<Wanted, InvalidQuery> {
        let order: Option<Order> = self.sort.as_deref().map(str::parse).transpose()?;
        let every_ns = self.every.as_deref().map(intervals::length).transpose()?;
        if self.by.is_some() || every_ns.is_some() {
            if self.fields.is_some() {
                return Err(InvalidQuery::FieldsOfGroups);
            }
            if self.offset.is_some() {
                return Err(InvalidQuery::OffsetOfGroups);
            }
            let [by, count, sum] = [&self.by, &self.count, &self.sum].map(Option::as_deref);
            let settings = parameters::sums(by, every_ns, count, sum, order)?;
            let numbers = self.numbers.as_deref();
            let settings = numbers.map_or(Ok(settings.clone()), |of| parameters::with_numbers(settings, of))?;
            return Ok(Wanted::Sums(settings));
        }
        if self.sum.is_some() {
            return Err(InvalidQuery::SumOfFlows);
        }
        if self.numbers.is_some() {
            return Err(InvalidQuery::NumbersOfFlows);
        }
        if self.count.is_some() {
            return Err(InvalidQuery::CountOfFlows);
        }
        let offset = self.offset.as_deref().map_or(Ok(0), str::parse).ok().filter(|offset| *offset <= MAX_PASSED - top);
        Ok(Wanted::Flows {
            order: order.as_ref().map(RecordOrder::new).transpose()?,
            columns: parameters::columns(self.fields.as_deref())?,
            offset: offset.ok_or(InvalidQuery::Offset(MAX_PASSED))?,
        })
    }
}

/// Asks what is stored, one question at a time.
pub struct Stores {
    ask: AskStore,
    affinity: CpuAffinity,
    place: Arc<Semaphore>,
    /// Of one who asks for the times of the flows.
    place_of_times: Arc<Semaphore>,
}

/// Why a question has no answer.
pub enum NoAnswer {
    /// The probe has no store, or it cannot be read.
    Conflict(String),
    /// A parameter is invalid.
    Invalid(String),
    /// Another question is being answered.
    Busy,
    /// It takes too long, or failed.
    Unavailable(&'static str),
}

/// Ends a question when no client waits for its answer any more.
pub(crate) struct Abandon(pub Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stores {
    /// Questions are answered on a thread with this affinity.
    pub fn new(ask: AskStore, affinity: CpuAffinity) -> Self {
        let [place, place_of_times] = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        Self { ask, affinity, place, place_of_times }
    }

    /// The answer as JSON.
    pub async fn answer(&self, source: FlowSource, question: StoredQuestion) -> Result<Vec<u8>, NoAnswer> {
        let place = self.place.clone().try_acquire_owned().map_err(|_| NoAnswer::Busy)?;
        let _abandon = Abandon(question.is_abandoned.clone());
        let end = (question.deadline + REPLY_TIME).into();
        let names = [source.name(), question.wanted.name()];
        let answer = self.ask.answer.clone();
        let answer = self.start(place, move || answer(&source, &question));
        match timeout_at(end, answer.map_err(|_| NoAnswer::Unavailable("no thread can be started"))?).await {
            Ok(Ok(Ok(answer))) => Ok(answer.json(names)),
            Ok(Ok(Err(StoredError::Question(error)))) => Err(NoAnswer::Invalid(error)),
            Ok(Ok(Err(StoredError::Store(error)))) => Err(NoAnswer::Conflict(error)),
            Ok(Err(_)) => Err(NoAnswer::Unavailable("the question could not be answered; the log has the reason")),
            Err(_) => Err(NoAnswer::Unavailable("the files could not be opened in time; ask for a shorter time")),
        }
    }

    /// When the flows start; `None` also if that is not known in time.
    pub async fn times(&self, source: FlowSource) -> Option<FlowTimes> {
        let end = (Instant::now() + REPLY_TIME).into();
        let place = timeout_at(end, self.place_of_times.clone().acquire_owned()).await.ok()?.ok()?;
        let times = self.ask.times.clone();
        let times = self.start(place, move || times(&source)).ok()?;
        timeout_at(end, times).await.ok()?.ok()?
    }

    /// Does something on a thread, which holds the place.
    fn start<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>> {
        start_thread("weir-stored", &self.affinity, place, work)
    }
}

/// Does something on a thread with this name, which holds the place.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    affinity: &CpuAffinity,
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (reply, answer) = oneshot::channel();
    let affinity = affinity.clone();
    std::thread::Builder::new().name(name.into()).spawn(move || {
        affinity.apply();
        let answer = work();
        // Before the client can ask again.
        drop(place);
        // The client may have gone.
        let _ = reply.send(answer);
    })?;
    Ok(answer)
}

impl StoredQuestion {
    /// What is asked, of all that there is by number: that of a view, or those of a probe.
    ///
    /// # Errors
    /// The probe keeps no flows, or there are fewer stores.
    pub(crate) fn source_among(&self, mut sources: Vec<FlowSource>, is_view: bool) -> Result<FlowSource, NoAnswer> {
        if sources.is_empty() {
            let error = if self.records == Records::Transactions { NO_TRANSACTIONS } else { NO_FLOWS };
            return Err(NoAnswer::Conflict(error.into()));
        }
        if self.store < sources.len() {
            return Ok(sources.swap_remove(self.store));
        }
        let error = match sources.as_slice() {
            [_] if is_view => "weir view answers from all that it shows together; leave store out".into(),
            [FlowSource::Memory(_)] => "the probe has no store, and answers from its memory; leave store out".into(),
            [_] => "the probe has 1 store; leave store out".into(),
            all => format!("the probe has {number} stores; use a number from 1 to {number}", number = all.len()),
        };
        Err(NoAnswer::Invalid(format!("store: {error}")))
    }
}

impl Wanted {
    /// The name of the rows.
    fn name(&self) -> &'static str {
        match self {
            Self::Flows { .. } => "flows",
            Self::Sums(_) => "groups",
        }
    }
}

impl FlowSource {
    /// Its name in answers.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Files(_) => "store",
            Self::Memory(_) => "memory",
        }
    }
}

impl StoredAnswer {
    /// With the name of the source, and that of the rows.
    fn json(&self, [source, name]: [&str; 2]) -> Vec<u8> {
        let Self { rows, matching, read, is_complete, problems } = self;
        let problems = serde_json::json!(problems);
        let mut out = format!(
            "{{\"source\":\"{source}\",\"matching\":{matching},\"read\":{read},\"complete\":{is_complete},\
             \"problems\":{problems},\"{name}\":"
        )
        .into_bytes();
        parameters::append_rows(rows, &mut out);
        out.extend(b"}\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use tokio::runtime::Builder;

    fn question() -> StoredQuestion {
        Query::default().question(false).unwrap()
    }

    fn files(name: &str) -> FlowSource {
        FlowSource::Files(vec![name.into()])
    }

    fn stores(
        answer: impl Fn(&FlowSource, &StoredQuestion) -> Result<StoredAnswer, StoredError> + Send + Sync + 'static,
    ) -> Stores {
        let ask = AskStore {
            answer: Arc::new(answer),
            times: Arc::new(|_| Some(FlowTimes { starts_ns: 7..=9, newest_from_ns: None })),
        };
        Stores::new(ask, CpuAffinity::default())
    }

    fn empty(is_complete: bool) -> StoredAnswer {
        StoredAnswer { rows: Vec::new(), matching: 0, read: 0, is_complete, problems: Vec::new() }
    }

    #[test]
    fn one_question_is_answered_at_a_time_and_ends_when_no_client_waits() {
        let (begun, ended) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let barriers = (begun.clone(), ended.clone());
        // Reads until it is over.
        let stores = stores(move |source, question| {
            if matches!(source, FlowSource::Files(paths) if paths[0] == *"slow") {
                barriers.0.wait();
                while !question.is_over() {
                    std::thread::yield_now();
                }
                barriers.1.wait();
            }
            Ok(empty(!question.is_over()))
        });
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut slow = Box::pin(stores.answer(files("slow"), question()));
            // A poll starts its thread.
            assert!(timeout_at(tokio::time::Instant::now(), &mut slow).await.is_err());
            begun.wait();
            assert!(matches!(stores.answer(files("other"), question()).await, Err(NoAnswer::Busy)));
            drop(slow);
            ended.wait();
            let mut last = Err(NoAnswer::Busy);
            while matches!(last, Err(NoAnswer::Busy)) {
                last = stores.answer(files("other"), question()).await;
            }
            let text = String::from_utf8(last.ok().unwrap()).unwrap();
            assert_eq!(
                text,
                "{\"source\":\"store\",\"matching\":0,\"read\":0,\"complete\":true,\"problems\":[],\"flows\":[\n]}\n"
            );
            assert_eq!(stores.times(files("other")).await.unwrap().starts_ns, 7..=9);
        });
    }

    #[test]
    fn a_store_that_does_not_exist_is_refused_with_what_there_is() {
        let ask = |store: &str, number: usize, is_view| {
            let query = Query { store: Some(store.into()), ..Query::default() };
            let sources = (0..number).map(|_| files("store")).collect();
            match query.question(is_view).unwrap().source_among(sources, is_view) {
                Err(NoAnswer::Invalid(error)) => error,
                Err(NoAnswer::Conflict(_)) => "none".into(),
                _ => "found".into(),
            }
        };
        for (store, number, is_view, expected) in [
            ("1", 1, true, "found"),
            ("2", 1, true, "store: weir view answers from all that it shows together; leave store out"),
            ("2", 1, false, "store: the probe has 1 store; leave store out"),
            ("4", 3, false, "store: the probe has 3 stores; use a number from 1 to 3"),
            ("3", 3, false, "found"),
            ("1", 0, false, "none"),
        ] {
            assert_eq!(ask(store, number, is_view), expected);
        }
        assert_eq!(*Query::default().question(true).unwrap().starts_ns.start(), 0);
    }

    #[test]
    fn a_question_that_fails_is_answered_and_leaves_its_place() {
        let stores = stores(|_, _| panic!("planted"));
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        for _ in 0..2 {
            let answer = runtime.block_on(stores.answer(files("store"), question()));
            assert!(matches!(answer, Err(NoAnswer::Unavailable(_) | NoAnswer::Busy)));
        }
    }
}
