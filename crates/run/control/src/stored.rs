//! Stored flows: the parameters of a question to a store of the probe, and its answer.
//!
//! In: the query of a request. Out: a [`StoredQuestion`], which the probe answers on a thread of its own: reading files
//! takes time, and neither the thread of the server nor those that meter wait for it. There is one question at a time,
//! and it ends in time.

use crate::flows::{self, InvalidQuery};
use serde::Deserialize;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_fields::Column;
use weir_probe::CpuAffinity;
use weir_query::{Expression, GroupField, Order, RecordOrder, View, ViewSettings};
use weir_text::zone::Zone;

/// Time after which the answer has what was read.
const QUESTION_TIME: Duration = Duration::from_secs(10);
/// Time beyond that in which files are opened, or a batch of flows is read.
const REPLY_TIME: Duration = Duration::from_secs(2);
/// From when flows are read, unless a request says it.
const DEFAULT_FROM: &str = "-1h";
/// Groups in memory, and fields of each: at most about 130 MB.
const MAX_GROUPS: usize = 100_000;
const MAX_GROUP_FIELDS: usize = 4;

/// The parameters of a question.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only flows that match this expression, as --where (weir help expressions)
    r#where: Option<String>,
    /// Only flows that start at this time or later, as --from of weir read: 2026-11-20T12:00, 2026-11-20, 12:00 (today),
    /// -2h (before now); UTC without a zone. Default: -1h
    from: Option<String>,
    /// Only flows that start at this time or earlier. Default: all
    to: Option<String>,
    /// Sums of flows by these fields in place of flows, as --by: up to 4, joined by commas
    by: Option<String>,
    /// The number by which flows or groups are sorted, the largest first; NUMBER:asc for the smallest first. Default: the
    /// newest flows, the newest last; groups by bytes
    sort: Option<String>,
    /// How many flows or groups, up to 1000. Default: 20
    #[param(value_type = Option<usize>)]
    top: Option<String>,
    /// Fields of each flow, as --fields (weir help fields); without by only. Default: basic
    fields: Option<String>,
    /// Which of the stores of the probe, from 1, in the order of its sinks. Default: 1
    #[param(value_type = Option<usize>)]
    store: Option<String>,
}

/// Stored flows, or sums of them.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the answer, whose text is written by the encoders of records and views")]
pub struct StoredFlows {
    /// The flows, each as the sink of JSON writes it. Without by only.
    #[schema(value_type = Option<Vec<Object>>)]
    flows: Option<Vec<()>>,
    /// The groups, each as weir read --by writes it as JSON. With by only.
    #[schema(value_type = Option<Vec<Object>>)]
    groups: Option<Vec<()>>,
    /// How many flows match.
    matching: u64,
    /// How many flows were read: those of this time.
    read: u64,
    /// Whether all files of this time were read, to their ends.
    complete: bool,
    /// What is wrong with files.
    problems: Vec<String>,
}

/// What is asked of a store.
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
    /// Which store, from 0.
    store: usize,
}

/// What of the flows is asked.
pub enum Wanted {
    /// The first ones by an order; the newest ones without it.
    Flows {
        /// The order.
        order: Option<RecordOrder>,
        /// The fields.
        columns: Vec<&'static Column>,
    },
    /// Sums of groups.
    Groups(ViewSettings),
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
    /// A parameter names a field that the stored flows do not have.
    #[error("{0}")]
    Question(String),
    /// The store cannot be read at all.
    #[error("{0}")]
    Store(String),
}

/// Answers a question from the store in a folder. Called on a thread of its own.
pub type AskStore = Arc<dyn Fn(&Path, &StoredQuestion) -> Result<StoredAnswer, StoredError> + Send + Sync>;

impl StoredQuestion {
    /// Whether to stop reading: the time is over, or no client waits for the answer.
    pub fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

impl Query {
    /// Compiles it.
    pub fn question(self) -> Result<StoredQuestion, InvalidQuery> {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        // An offset may begin with a plus, which stands for a space in the query of a URL.
        let with_plus = |text: &str| text.rsplit_once(' ').map(|(time, offset)| format!("{time}+{offset}"));
        let time = |text: &str| {
            Zone::UTC.parse_relative(text, now_ns).or_else(|error| {
                let again = with_plus(text).and_then(|text| Zone::UTC.parse_relative(&text, now_ns).ok());
                again.ok_or(error)
            })
        };
        let from_ns = time(self.from.as_deref().unwrap_or(DEFAULT_FROM)).map_err(InvalidQuery::From)?;
        let to_ns = self.to.as_deref().map_or(Ok(u64::MAX), time).map_err(InvalidQuery::To)?;
        if from_ns > to_ns {
            return Err(InvalidQuery::FromAfterTo);
        }
        let order: Option<Order> = self.sort.as_deref().map(str::parse).transpose()?;
        let wanted = match (self.by.as_deref(), self.fields.as_deref()) {
            (None, fields) => Wanted::Flows {
                order: order.as_ref().map(RecordOrder::new).transpose()?,
                columns: flows::columns(fields)?,
            },
            (Some(_), Some(_)) => return Err(InvalidQuery::FieldsOfGroups),
            (Some(by), None) => Wanted::Groups(groups(by, order)?),
        };
        let store =
            self.store.map_or(Ok(1), |store| store.parse::<usize>()).ok().and_then(|store| store.checked_sub(1));
        Ok(StoredQuestion {
            starts_ns: from_ns..=to_ns,
            expression: flows::expression(self.r#where.as_deref())?,
            wanted,
            top: flows::limit(self.top.as_deref())?,
            deadline: Instant::now() + QUESTION_TIME,
            is_abandoned: Arc::default(),
            store: store.ok_or(InvalidQuery::Store)?,
        })
    }
}

/// The view of groups.
fn groups(by: &str, order: Option<Order>) -> Result<ViewSettings, InvalidQuery> {
    let names = by.split(',');
    if names.clone().count() > MAX_GROUP_FIELDS {
        return Err(InvalidQuery::TooManyGroupFields(MAX_GROUP_FIELDS));
    }
    let fields = names.map(|name| name.parse::<GroupField>()).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = View::repeated_column(&fields, &[]) {
        return Err(InvalidQuery::ColumnTwice(name));
    }
    let (counts, unknown) = (Vec::new(), Vec::new());
    let settings = ViewSettings { fields, counts, every_ns: None, order, groups: MAX_GROUPS, unknown };
    View::new(settings.clone())?;
    Ok(settings)
}

/// Asks the stores of the probe, one question at a time.
pub struct Stores {
    ask: AskStore,
    affinity: CpuAffinity,
    place: Arc<Semaphore>,
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
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stores {
    /// Questions are answered on a thread with this affinity.
    pub fn new(ask: AskStore, affinity: CpuAffinity) -> Self {
        Self { ask, affinity, place: Arc::new(Semaphore::new(1)) }
    }

    /// The answer as JSON, from one of these stores.
    pub async fn answer(&self, stores: &[PathBuf], question: StoredQuestion) -> Result<Vec<u8>, NoAnswer> {
        if stores.is_empty() {
            return Err(NoAnswer::Conflict("the probe stores no flows: start it with -o parquet:FOLDER".into()));
        }
        let path = stores
            .get(question.store)
            .cloned()
            .ok_or_else(|| NoAnswer::Invalid(format!("store: the probe has {}, use a number from 1", stores.len())))?;
        let place = self.place.clone().try_acquire_owned().map_err(|_| NoAnswer::Busy)?;
        let _abandon = Abandon(question.is_abandoned.clone());
        let (end, name) = ((question.deadline + REPLY_TIME).into(), name(&question.wanted));
        let answer =
            self.start(path, question, place).map_err(|_| NoAnswer::Unavailable("no thread can be started"))?;
        match timeout_at(end, answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer.json(name)),
            Ok(Ok(Err(StoredError::Question(error)))) => Err(NoAnswer::Invalid(error)),
            Ok(Ok(Err(StoredError::Store(error)))) => Err(NoAnswer::Conflict(error)),
            Ok(Err(_)) => Err(NoAnswer::Unavailable("the question could not be answered; the log has the reason")),
            Err(_) => Err(NoAnswer::Unavailable("the files could not be opened in time; ask for a shorter time")),
        }
    }

    /// Answers a question on a thread, which holds the place.
    fn start(
        &self,
        path: PathBuf,
        question: StoredQuestion,
        place: OwnedSemaphorePermit,
    ) -> io::Result<oneshot::Receiver<Result<StoredAnswer, StoredError>>> {
        let (reply, answer) = oneshot::channel();
        let (ask, affinity) = (self.ask.clone(), self.affinity.clone());
        std::thread::Builder::new().name("weir-stored".into()).spawn(move || {
            affinity.apply();
            let answer = ask(&path, &question);
            // Before the client can ask again.
            drop(place);
            // The client may have gone.
            let _ = reply.send(answer);
        })?;
        Ok(answer)
    }
}

/// The name of the rows.
fn name(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Flows { .. } => "flows",
        Wanted::Groups(_) => "groups",
    }
}

impl StoredAnswer {
    fn json(&self, name: &str) -> Vec<u8> {
        let Self { rows, matching, read, is_complete, problems } = self;
        let problems = serde_json::json!(problems);
        let head =
            format!("{{\"matching\":{matching},\"read\":{read},\"complete\":{is_complete},\"problems\":{problems},");
        let mut out = head.into_bytes();
        out.extend(format!("\"{name}\":[\n").as_bytes());
        // No row has a line break.
        for (number, row) in rows.split_inclusive(|octet| *octet == b'\n').enumerate() {
            out.extend((number > 0).then_some(b','));
            out.extend(row);
        }
        out.extend(b"]}\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use tokio::runtime::Builder;

    fn question() -> StoredQuestion {
        let none = || None;
        let query = Query {
            r#where: none(),
            from: none(),
            to: none(),
            by: none(),
            sort: none(),
            top: none(),
            fields: none(),
            store: none(),
        };
        query.question().unwrap()
    }

    fn empty(is_complete: bool) -> StoredAnswer {
        StoredAnswer { rows: Vec::new(), matching: 0, read: 0, is_complete, problems: Vec::new() }
    }

    #[test]
    fn one_question_is_answered_at_a_time_and_ends_when_no_client_waits() {
        let (begun, ended) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let barriers = (begun.clone(), ended.clone());
        // Reads until it is over.
        let ask: AskStore = Arc::new(move |path, question| {
            if path == Path::new("slow") {
                barriers.0.wait();
                while !question.is_over() {
                    std::thread::yield_now();
                }
                barriers.1.wait();
            }
            Ok(empty(!question.is_over()))
        });
        let stores = Stores::new(ask, CpuAffinity::default());
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let [slow, other] = ["slow", "other"].map(|name| [PathBuf::from(name)]);
            let mut slow = Box::pin(stores.answer(&slow, question()));
            // A poll starts its thread.
            assert!(timeout_at(tokio::time::Instant::now(), &mut slow).await.is_err());
            begun.wait();
            assert!(matches!(stores.answer(&other, question()).await, Err(NoAnswer::Busy)));
            drop(slow);
            ended.wait();
            let mut last = Err(NoAnswer::Busy);
            while matches!(last, Err(NoAnswer::Busy)) {
                last = stores.answer(&other, question()).await;
            }
            let text = String::from_utf8(last.ok().unwrap()).unwrap();
            assert_eq!(text, "{\"matching\":0,\"read\":0,\"complete\":true,\"problems\":[],\"flows\":[\n]}\n");
        });
    }

    #[test]
    fn a_question_that_fails_is_answered_and_leaves_its_place() {
        let ask: AskStore = Arc::new(|_, _| panic!("planted"));
        let stores = Stores::new(ask, CpuAffinity::default());
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        for _ in 0..2 {
            let answer = runtime.block_on(stores.answer(&["store".into()], question()));
            assert!(matches!(answer, Err(NoAnswer::Unavailable(_) | NoAnswer::Busy)));
        }
    }
}
