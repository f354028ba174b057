//! The packets of a flow (`/packets`) and its segments (`/explain`), from captures and folders of a recorder.
//!
//! In: the query of a request. Out: a question, which the program answers on a thread of its own: captures may be large,
//! and neither the thread of the server nor those that meter wait for them. There is one question at a time, of both
//! kinds together, and it ends in time with what was found until then.

use crate::parameters::{self, InvalidQuery};
use crate::stored::{Abandon, QUESTION_TIME, REPLY_TIME, start_thread};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};
use weir_probe::CpuAffinity;

/// Segments of an answer, unless a request names another number, and at most.
const DEFAULT_SEGMENTS: usize = 1000;
const MAX_SEGMENTS: usize = 10_000;

/// The parameters of a question for packets.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PacketQuery {
    /// The flow, as --flow of weir packets: its Community ID, or addresses, ports and protocol (`/tcp`, `/udp`, `/sctp`)
    #[param(required = true, example = "192.0.2.1:38702-192.0.2.2:80/tcp")]
    flow: Option<String>,
    /// Only packets of this time or later, as --from of weir packets: 2026-11-20T12:00:00.5, -2h (before now); UTC without a
    /// zone. Default: all
    #[param(example = "-1h")]
    from: Option<String>,
    /// Only packets of this time or earlier. Default: all
    #[param(example = "2026-11-20T12:00")]
    to: Option<String>,
}

/// The parameters of a question for segments.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SegmentQuery {
    /// The flow of TCP: its Community ID, or addresses and ports
    #[param(required = true, example = "192.0.2.1:38702-192.0.2.2:80/tcp")]
    flow: Option<String>,
    /// A time within the connection, if there are several between these addresses and ports: start_time of the flow
    #[param(example = "2020-11-20T12:00")]
    at: Option<String>,
    /// How many segments, up to 10000; the others are counted. Default: 1000
    #[param(value_type = Option<usize>)]
    top: Option<String>,
}

/// The segments of a TCP connection.
#[derive(Serialize, ToSchema)]
pub struct Segments {
    /// What weir tcp --explain prints: a line for each segment, up to `top`, then the sums of all that were read.
    pub text: String,
    /// Segments of the connection that were read.
    pub segments: u64,
    /// How many of them have no line.
    pub left_out: u64,
    /// Copies of packets in other folders of a recorder, which do not count.
    pub copies: u64,
    /// All reasons why not all packets of the connection were read, joined by semicolons; null if they were.
    pub incomplete: Option<String>,
}

/// When to stop reading.
#[derive(Clone)]
pub struct TimeLimit {
    deadline: Instant,
    is_abandoned: Arc<AtomicBool>,
}

impl TimeLimit {
    fn new() -> Self {
        Self { deadline: Instant::now() + QUESTION_TIME, is_abandoned: Arc::default() }
    }

    /// Whether the time is over, or no client waits for the answer.
    pub fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// A question for the packets of a flow.
pub struct PacketQuestion {
    /// The flow as the client names it.
    pub flow: String,
    /// Times of the packets, ns since 1970 UTC.
    pub times_ns: RangeInclusive<u64>,
    /// When to stop reading.
    pub limit: TimeLimit,
}

/// A question for the segments of a connection.
pub struct SegmentQuestion {
    /// The flow as the client names it.
    pub flow: String,
    /// A time within the connection, ns since 1970 UTC.
    pub at_ns: Option<u64>,
    /// Segments that have a line.
    pub most: usize,
    /// When to stop reading.
    pub limit: TimeLimit,
}

/// The packets of a flow.
pub struct FoundPackets {
    /// A pcapng file.
    pub capture: Vec<u8>,
    /// How many there are in the file.
    pub packets: u64,
    /// Their captured octets.
    pub octets: u64,
    /// Copies of packets in other folders of a recorder, which are not in the file.
    pub copies: u64,
    /// All reasons why the file does not have all that there are.
    pub incomplete: Option<String>,
}

/// Why a question has no answer.
#[derive(Debug)]
pub enum PacketError {
    /// A parameter is invalid.
    Question(String),
    /// No packet of the flow was found.
    Missing(String),
    /// There are no packets to search, or they cannot be read.
    Source(String),
    /// Another question is being answered.
    Busy,
    /// It takes too long, or failed.
    Unavailable(&'static str),
}

/// Finds the packets of a flow.
pub type FindPackets = dyn Fn(&PacketQuestion) -> Result<FoundPackets, PacketError> + Send + Sync;
/// Lists the segments of a connection.
pub type ListSegments = dyn Fn(&SegmentQuestion) -> Result<Segments, PacketError> + Send + Sync;

/// What answers questions for packets and segments, on a thread of its own; or why nothing does.
#[derive(Clone)]
pub struct AskPackets {
    /// Finds packets.
    pub find: Result<Arc<FindPackets>, String>,
    /// Lists segments.
    pub explain: Result<Arc<ListSegments>, String>,
}

impl Default for AskPackets {
    fn default() -> Self {
        let none = || "no packets are kept".to_owned();
        Self { find: Err(none()), explain: Err(none()) }
    }
}

fn named(flow: Option<String>) -> Result<String, InvalidQuery> {
    // `+` in the query of a URL stands for a space, which a Community ID does not have.
    let flow = flow.map(|flow| if flow.starts_with("1:") { flow.replace(' ', "+") } else { flow });
    flow.filter(|flow| !flow.is_empty()).ok_or(InvalidQuery::NoFlow)
}

impl PacketQuery {
    /// Checks it, but for the name of the flow.
    pub fn question(self) -> Result<PacketQuestion, InvalidQuery> {
        let flow = named(self.flow)?;
        let from_ns = self.from.as_deref().map_or(Ok(0), parameters::time).map_err(InvalidQuery::From)?;
        let to_ns = self.to.as_deref().map_or(Ok(u64::MAX), parameters::time).map_err(InvalidQuery::To)?;
        if from_ns > to_ns {
            return Err(InvalidQuery::FromAfterTo);
        }
        Ok(PacketQuestion { flow, times_ns: from_ns..=to_ns, limit: TimeLimit::new() })
    }
}

impl SegmentQuery {
    /// Checks it, but for the name of the flow.
    pub fn question(self) -> Result<SegmentQuestion, InvalidQuery> {
        let flow = named(self.flow)?;
        let at_ns = self.at.as_deref().map(parameters::time).transpose().map_err(InvalidQuery::At)?;
        let most = self.top.as_deref().map_or(Ok(DEFAULT_SEGMENTS), str::parse).ok();
        let most = most.filter(|most| *most <= MAX_SEGMENTS).ok_or(InvalidQuery::Segments(MAX_SEGMENTS))?;
        Ok(SegmentQuestion { flow, at_ns, most, limit: TimeLimit::new() })
    }
}

/// Asks for packets and segments, one question at a time.
pub struct Packets {
    ask: AskPackets,
    affinity: CpuAffinity,
    place: Arc<Semaphore>,
}

impl Packets {
    /// Questions are answered on a thread with this affinity.
    pub fn new(ask: AskPackets, affinity: CpuAffinity) -> Self {
        Self { ask, affinity, place: Arc::new(Semaphore::new(1)) }
    }

    /// Why there are no packets, and why there are no segments.
    pub fn missing(&self) -> [Option<String>; 2] {
        [self.ask.find.as_ref().err().cloned(), self.ask.explain.as_ref().err().cloned()]
    }

    /// Finds packets.
    pub async fn find(&self, question: PacketQuestion) -> Result<FoundPackets, PacketError> {
        let find = self.ask.find.clone().map_err(PacketError::Source)?;
        self.answer(question.limit.clone(), move || find(&question)).await
    }

    /// Lists segments.
    pub async fn explain(&self, question: SegmentQuestion) -> Result<Segments, PacketError> {
        let explain = self.ask.explain.clone().map_err(PacketError::Source)?;
        self.answer(question.limit.clone(), move || explain(&question)).await
    }

    async fn answer<T: Send + 'static>(
        &self,
        limit: TimeLimit,
        work: impl FnOnce() -> Result<T, PacketError> + Send + 'static,
    ) -> Result<T, PacketError> {
        let place = self.place.clone().try_acquire_owned().map_err(|_| PacketError::Busy)?;
        let _abandon = Abandon(limit.is_abandoned);
        let end = (limit.deadline + REPLY_TIME).into();
        let answer = start_thread("weir-packets", &self.affinity, place, work);
        match timeout_at(end, answer.map_err(|_| PacketError::Unavailable("no thread can be started"))?).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(PacketError::Unavailable("the question could not be answered; the log has the reason")),
            Err(_) => Err(PacketError::Unavailable("the captures could not be opened in time")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(flow: &str) -> PacketQuery {
        PacketQuery { flow: Some(flow.into()), ..PacketQuery::default() }
    }

    #[test]
    fn a_flow_is_needed_and_a_community_id_may_have_lost_its_plus() {
        assert!(matches!(PacketQuery::default().question(), Err(InvalidQuery::NoFlow)));
        assert!(matches!(query("").question(), Err(InvalidQuery::NoFlow)));
        assert_eq!(query("1:a b=").question().ok().unwrap().flow, "1:a+b=");
        assert_eq!(query("192.0.2.1:1 → 192.0.2.2:2").question().ok().unwrap().flow, "192.0.2.1:1 → 192.0.2.2:2");
        let many = SegmentQuery { flow: Some("x".into()), top: Some("10001".into()), at: None };
        assert!(matches!(many.question(), Err(InvalidQuery::Segments(MAX_SEGMENTS))));
    }

    #[test]
    fn without_packets_the_reason_is_the_answer() {
        let packets = Packets::new(AskPackets::default(), CpuAffinity::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(packets.find(query("x").question().ok().unwrap()));
        assert!(matches!(answer, Err(PacketError::Source(reason)) if packets.missing()[0].as_ref() == Some(&reason)));
    }
}
