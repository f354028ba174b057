//! Questions and answers of a flow, counted after its application is known: DNS, mDNS and LLMNR over UDP
//! and TCP, and HTTP/1.
//!
//! An answer belongs to the open question with its id (DNS), or to the oldest open request (HTTP). The
//! time of a question is that of the packet in which it ends; that of a retransmitted DNS question is
//! the first one. Memory is bounded: see [`MAX_OPEN`].

use crate::message_stream::{Event, MessageStream, Method, dns_event};
use crate::{Application, Findings, Note, Payload};

/// Open questions of a flow that are known. Of more, the oldest is forgotten: it counts as unanswered,
/// and [`Note::Limit`] says so.
pub(crate) const MAX_OPEN: usize = 16;

/// The messages of a flow in one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Of HTTP; else of DNS.
    pub is_http: bool,
    /// Questions of DNS, requests of HTTP.
    pub requests: u32,
    /// Answers of DNS, responses of HTTP.
    pub answers: u32,
    /// DNS: answers with NXDOMAIN, SERVFAIL, REFUSED. HTTP: responses 1xx to 5xx.
    pub codes: [u32; 5],
    /// DNS: questions without an answer.
    pub unanswered: u32,
    /// Answers whose time is known.
    pub timed: u32,
    /// Sum of these times, ns.
    pub response_sum_ns: u64,
    /// The longest of them, ns.
    pub response_max_ns: u64,
}

/// A question without an answer so far.
#[derive(Clone, Copy, Debug)]
struct Open {
    time_ns: u64,
    id: u16,
    endpoint: u8,
    method: Method,
}

/// What is counted of a flow.
#[derive(Debug)]
pub(crate) struct Transactions {
    is_http: bool,
    /// Questions are expected to be answered in this flow.
    has_unanswered: bool,
    streams: [MessageStream; 2],
    exchanges: Exchanges,
    /// How often inspection had been suspended at the start.
    suspensions: u32,
}

#[derive(Debug, Default)]
struct Exchanges {
    counts: MessageCounts,
    open: Vec<Open>,
    /// Open questions were forgotten.
    is_limited: bool,
}

impl Transactions {
    /// Memory that one takes at most, octets.
    pub const MAX_OCTETS: usize = size_of::<Self>() + MAX_OPEN * size_of::<Open>();

    /// Begins to count, if the messages of the application can be counted. A flow of one direction has no answers
    /// to its questions.
    pub fn new(application: Application, suspensions: u32, two_way: bool) -> Option<Self> {
        use Application::{Dns, Http, Llmnr, Mdns};
        matches!(application, Dns | Mdns | Llmnr | Http).then(|| Self {
            is_http: application == Http,
            has_unanswered: application == Dns && two_way,
            streams: Default::default(),
            exchanges: Exchanges::default(),
            suspensions,
        })
    }

    /// Notes the sequence number of the first octet of an endpoint, if its SYN was captured.
    pub fn begin_stream(&mut self, endpoint: usize, sequence: Option<u32>) {
        self.streams[endpoint].begin(sequence);
    }

    /// Whether octets before those of a packet are missing so far.
    pub fn is_before(&self, payload: &Payload<'_>) -> bool {
        payload.tcp.is_some_and(|(sequence, _)| self.streams[payload.endpoint & 1].is_before(sequence))
    }

    /// Reads octets of a TCP connection that came before. Those that were read are skipped.
    pub fn read_stream(&mut self, endpoint: usize, sequence: u32, octets: &[u8], time_ns: u64) {
        self.read_segment(endpoint, sequence, octets, octets.len() as u32, time_ns);
    }

    /// Reads the payload of a packet.
    pub fn read(&mut self, payload: &Payload<'_>) {
        match payload.tcp {
            Some((sequence, _)) => {
                self.read_segment(payload.endpoint & 1, sequence, payload.octets, payload.wire_octets, payload.time_ns);
            }
            None if self.is_http => {}
            None => {
                if let Some(event) = dns_event(payload.octets) {
                    self.exchanges.enter(payload.endpoint & 1, payload.time_ns, event);
                }
            }
        }
    }

    fn read_segment(&mut self, endpoint: usize, sequence: u32, octets: &[u8], wire_octets: u32, time_ns: u64) {
        let (stream, exchanges) = (&mut self.streams[endpoint], &mut self.exchanges);
        stream.read(!self.is_http, sequence, octets, wire_octets, |event| exchanges.enter(endpoint, time_ns, event));
        if stream.has_switched() {
            self.streams[1 - endpoint].end();
        }
    }

    /// Whether lines of a segment were not read since the last call, because it has too many.
    pub fn take_work_limited(&mut self) -> bool {
        self.streams.iter_mut().fold(false, |is_limited, stream| is_limited | stream.take_work_limited())
    }

    /// Adds the counts of the record so far to findings. `suspensions`: how often inspection has been
    /// suspended. `goes_on`: open questions may be answered in the next record.
    pub fn add_to(&self, findings: &mut Findings, suspensions: u32, goes_on: bool) {
        let mut counts = MessageCounts { is_http: self.is_http, ..self.exchanges.counts };
        let open = if goes_on { 0 } else { self.exchanges.open.len() as u32 };
        counts.unanswered = if self.has_unanswered { counts.unanswered + open } else { 0 };
        if self.suspensions != suspensions || self.streams.iter().any(MessageStream::has_missed) {
            findings.note(Note::Gap);
        }
        if self.exchanges.is_limited {
            findings.note(Note::Limit);
        }
        findings.set_messages(counts);
    }

    /// Begins another record of the flow. Open questions are those of the next one.
    pub fn begin_record(&mut self) {
        self.exchanges.counts = MessageCounts::default();
    }
}

impl Exchanges {
    fn enter(&mut self, endpoint: usize, time_ns: u64, event: Event) -> Method {
        match event {
            Event::Question(id) => {
                add_one(&mut self.counts.requests);
                let is_again = self.open.iter().any(|open| open.id == id && usize::from(open.endpoint) == endpoint);
                if !is_again {
                    self.ask(Open { time_ns, id, endpoint: endpoint as u8, method: Method::Other });
                }
            }
            Event::Answer(id, code) => {
                add_one(&mut self.counts.answers);
                if let Some(place) = [3, 2, 5].iter().position(|&known| known == code) {
                    add_one(&mut self.counts.codes[place]);
                }
                self.answer(time_ns, |open| open.id == id && usize::from(open.endpoint) != endpoint);
            }
            Event::Request(method) => {
                add_one(&mut self.counts.requests);
                self.ask(Open { time_ns, id: 0, endpoint: endpoint as u8, method });
            }
            Event::RequestEnd => {
                if let Some(last) = self.open.iter_mut().rfind(|open| usize::from(open.endpoint) == endpoint) {
                    last.time_ns = time_ns;
                }
            }
            Event::Response(status) => {
                add_one(&mut self.counts.answers);
                if let Some(count) = self.counts.codes.get_mut((usize::from(status) / 100).wrapping_sub(1)) {
                    add_one(count);
                }
                let is_own = |open: &Open| usize::from(open.endpoint) != endpoint;
                // An interim response answers nothing yet (RFC 9110 section 15.2).
                if matches!(status, 100 | 102..200) {
                    return self.open.iter().find(|open| is_own(open)).map_or(Method::Other, |open| open.method);
                }
                return self.answer(time_ns, is_own);
            }
        }
        Method::Other
    }

    fn ask(&mut self, question: Open) {
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
            add_one(&mut self.counts.unanswered);
            self.is_limited = true;
        }
        self.open.push(question);
    }

    /// Closes the oldest question that an answer belongs to.
    fn answer(&mut self, time_ns: u64, is_own: impl Fn(&Open) -> bool) -> Method {
        let Some(at) = self.open.iter().position(is_own) else { return Method::Other };
        let question = self.open.remove(at);
        if let Some(response_ns) = time_ns.checked_sub(question.time_ns) {
            add_one(&mut self.counts.timed);
            self.counts.response_sum_ns = self.counts.response_sum_ns.saturating_add(response_ns);
            self.counts.response_max_ns = self.counts.response_max_ns.max(response_ns);
        }
        question.method
    }
}

/// Counts up to the largest number: a sender of tiny messages makes no count begin again.
fn add_one(count: &mut u32) {
    *count = count.saturating_add(1);
}
