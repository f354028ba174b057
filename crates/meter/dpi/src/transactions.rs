//! Questions and answers of a flow, counted after its application is known: DNS, mDNS and LLMNR over UDP
//! and TCP, and HTTP/1.
//!
//! An answer belongs to the open question with its id (DNS), or to the oldest open request (HTTP). The
//! time of a question is that of the packet in which it ends; that of a retransmitted DNS question is
//! the first one. Memory is bounded: see [`MAX_OPEN`].

use crate::message_stream::{Event, MessageStream, Method, Receiver, TEXT_OCTETS, Text, dns_event};
use crate::transaction_log::{Outcome, Parties, TransactionLog, TransactionRecorder};
use crate::{Application, Confidence, Findings, Note, Payload};

/// Open questions of a flow that are known. Of more, the oldest is forgotten: whether it is answered is
/// not known. It is counted, and [`Note::Limit`] says so.
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
    /// DNS: answers with NXDOMAIN, SERVFAIL, REFUSED, another error. HTTP: responses 1xx to 5xx.
    pub codes: [u32; 5],
    /// DNS: questions without an answer.
    pub unanswered: u32,
    /// DNS: questions that were forgotten, because too many were open.
    pub forgotten: u32,
    /// Answers whose time is known.
    pub timed: u32,
    /// Sum of these times, ns.
    pub response_sum_ns: u64,
    /// The longest of them, ns.
    pub response_max_ns: u64,
}

impl MessageCounts {
    /// Counts an answer.
    pub(crate) fn count_answer(&mut self, code: u16) {
        add_one(&mut self.answers);
        let place = match self.is_http {
            true => usize::from(code / 100).checked_sub(1),
            false => match code {
                0 => None,
                3 => Some(0),
                2 => Some(1),
                5 => Some(2),
                _ => Some(3),
            },
        };
        if let Some(count) = place.and_then(|place| self.codes.get_mut(place)) {
            add_one(count);
        }
    }

    /// Counts the time of an answer, if it is known.
    pub(crate) fn count_time(&mut self, response_ns: Option<u64>) {
        if let Some(response_ns) = response_ns {
            add_one(&mut self.timed);
            self.response_sum_ns = self.response_sum_ns.saturating_add(response_ns);
            self.response_max_ns = self.response_max_ns.max(response_ns);
        }
    }
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
    /// With records of transactions: that of each open question.
    recorder: Option<Box<TransactionRecorder>>,
}

/// What takes the messages of a packet.
struct Messages<'a> {
    exchanges: &'a mut Exchanges,
    log: Option<&'a mut TransactionLog>,
    endpoint: usize,
    time_ns: u64,
}

impl Transactions {
    /// Memory that one takes at most, octets.
    pub const MAX_OCTETS: usize = size_of::<Self>() + MAX_OPEN * size_of::<Open>();
    /// More that it takes with records of transactions, beside those of the log.
    pub const MAX_RECORDER_OCTETS: usize =
        TransactionRecorder::MAX_OCTETS + MAX_OPEN * TransactionRecorder::OPEN_OCTETS + 2 * TEXT_OCTETS;

    /// Begins to count, if the messages of the application can be counted. A flow of one direction has no answers
    /// to its questions. With a log, records its transactions; `payload` is one of its packets.
    pub fn new(
        (application, confidence): (Application, Confidence),
        suspensions: u32,
        two_way: bool,
        payload: &Payload<'_>,
        log: Option<&TransactionLog>,
    ) -> Option<Self> {
        use Application::{Dns, Http, Llmnr, Mdns};
        if !matches!(application, Dns | Mdns | Llmnr | Http) {
            return None;
        }
        let recorder = log.map(|log| {
            let is_one_way = !two_way || application != Http && application != Dns && payload.tcp.is_none();
            let parties = parties_of(payload, log.is_ipv6);
            Box::new(TransactionRecorder::new(parties, (application, confidence), is_one_way))
        });
        Some(Self {
            is_http: application == Http,
            has_unanswered: application == Dns && two_way,
            streams: Default::default(),
            exchanges: Exchanges {
                counts: MessageCounts { is_http: application == Http, ..MessageCounts::default() },
                recorder,
                ..Exchanges::default()
            },
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
    pub fn read_stream(
        &mut self,
        endpoint: usize,
        sequence: u32,
        octets: &[u8],
        time_ns: u64,
        log: Option<&mut TransactionLog>,
    ) {
        self.read_segment(endpoint, sequence, octets, octets.len() as u32, time_ns, log);
    }

    /// Reads the payload of a packet.
    pub fn read(&mut self, payload: &Payload<'_>, log: Option<&mut TransactionLog>) {
        let Payload { octets, wire_octets, time_ns, .. } = *payload;
        let endpoint = payload.endpoint & 1;
        match payload.tcp {
            Some((sequence, _)) => self.read_segment(endpoint, sequence, octets, wire_octets, time_ns, log),
            None if self.is_http => {}
            None => {
                if let Some(event) = dns_event(octets) {
                    let mut messages = Messages { exchanges: &mut self.exchanges, log, endpoint, time_ns };
                    messages.enter(event);
                    if messages.takes_texts() && matches!(event, Event::Question(_)) {
                        messages.text(Text::Question(octets));
                    }
                }
            }
        }
    }

    fn read_segment(
        &mut self,
        endpoint: usize,
        sequence: u32,
        octets: &[u8],
        wire_octets: u32,
        time_ns: u64,
        log: Option<&mut TransactionLog>,
    ) {
        let (stream, exchanges) = (&mut self.streams[endpoint], &mut self.exchanges);
        stream.read(!self.is_http, sequence, octets, wire_octets, Messages { exchanges, log, endpoint, time_ns });
        if stream.has_switched() {
            self.streams[1 - endpoint].end();
        }
    }

    /// Ends the transactions of a flow that ends: open questions have no answer.
    pub fn end(&mut self, log: Option<&mut TransactionLog>) {
        let has_gap = self.streams.iter().any(MessageStream::has_missed);
        if let (Some(recorder), Some(log)) = (&mut self.exchanges.recorder, log) {
            for Open { time_ns, endpoint, .. } in self.exchanges.open.drain(..) {
                let endpoint = endpoint.into();
                recorder.end(0, Outcome { endpoint, end_ns: time_ns, has_gap, ..Outcome::default() }, log);
            }
        }
    }

    /// Whether lines of a segment were not read since the last call, because it has too many.
    pub fn take_work_limited(&mut self) -> bool {
        self.streams.iter_mut().fold(false, |is_limited, stream| is_limited | stream.take_work_limited())
    }

    /// Adds the counts of the record so far to findings. `suspensions`: how often inspection has been
    /// suspended. `goes_on`: open questions may be answered in the next record.
    pub fn add_to(&self, findings: &mut Findings, suspensions: u32, goes_on: bool) {
        let mut counts = self.exchanges.counts;
        let open = if goes_on { 0 } else { self.exchanges.open.len() as u32 };
        if self.has_unanswered {
            counts.unanswered = open;
        } else {
            counts.forgotten = 0;
        }
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
        self.exchanges.counts = MessageCounts { is_http: self.is_http, ..MessageCounts::default() };
    }
}

/// The endpoints of the flow of a packet, endpoint 0 first.
fn parties_of(payload: &Payload<'_>, is_ipv6: bool) -> Parties {
    let Payload { addresses, ports, endpoint, tcp, .. } = *payload;
    let mut parties = Parties { addresses: addresses.map(|address| *address), ports, is_tcp: tcp.is_some(), is_ipv6 };
    if endpoint & 1 == 1 {
        parties.addresses.reverse();
        parties.ports.reverse();
    }
    parties
}

impl Receiver for Messages<'_> {
    fn enter(&mut self, event: Event) -> Method {
        let Self { exchanges, endpoint, time_ns, log } = self;
        exchanges.enter(*endpoint, *time_ns, event, log.as_deref_mut())
    }

    fn takes_texts(&self) -> bool {
        self.log.is_some()
    }

    fn text(&mut self, text: Text<'_>) {
        let Self { exchanges, endpoint, time_ns, log } = self;
        let id = if let Text::Question([high, low, ..]) = text { u16::from_be_bytes([*high, *low]) } else { 0 };
        let at = exchanges.open.iter().rposition(|open| open.id == id && usize::from(open.endpoint) == *endpoint);
        if let (Some(recorder), Some(log)) = (&mut exchanges.recorder, log) {
            let outcome = Outcome { endpoint: *endpoint, end_ns: *time_ns, ..Outcome::default() };
            recorder.add_text(at, outcome, text, log);
        }
    }
}

impl Exchanges {
    fn enter(&mut self, endpoint: usize, time_ns: u64, event: Event, log: Option<&mut TransactionLog>) -> Method {
        match event {
            Event::Question(id) => {
                add_one(&mut self.counts.requests);
                let is_again = self.open.iter().any(|open| open.id == id && usize::from(open.endpoint) == endpoint);
                if !is_again {
                    self.ask(Open { time_ns, id, endpoint: endpoint as u8, method: Method::Other }, log);
                }
            }
            Event::Answer(id, code) => {
                self.counts.count_answer(code.into());
                let is_own = |open: &Open| open.id == id && usize::from(open.endpoint) != endpoint;
                self.answer(time_ns, code.into(), is_own, log);
            }
            Event::Request(method) => {
                add_one(&mut self.counts.requests);
                self.ask(Open { time_ns, id: 0, endpoint: endpoint as u8, method }, log);
            }
            Event::RequestEnd => {
                if let Some(last) = self.open.iter_mut().rfind(|open| usize::from(open.endpoint) == endpoint) {
                    last.time_ns = time_ns;
                }
            }
            Event::Response(status) => {
                self.counts.count_answer(status);
                let is_own = |open: &Open| usize::from(open.endpoint) != endpoint;
                // An interim response answers nothing yet (RFC 9110 section 15.2).
                if matches!(status, 100 | 102..200) {
                    return self.open.iter().find(|open| is_own(open)).map_or(Method::Other, |open| open.method);
                }
                return self.answer(time_ns, status, is_own, log);
            }
        }
        Method::Other
    }

    fn ask(&mut self, question: Open, mut log: Option<&mut TransactionLog>) {
        if self.open.len() == MAX_OPEN {
            let Open { time_ns, endpoint, .. } = self.open.remove(0);
            add_one(&mut self.counts.forgotten);
            self.is_limited = true;
            if let (Some(recorder), Some(log)) = (&mut self.recorder, log.as_deref_mut()) {
                let endpoint = endpoint.into();
                let outcome = Outcome { endpoint, end_ns: time_ns, is_forgotten: true, ..Outcome::default() };
                recorder.end(0, outcome, log);
            }
        }
        self.open.push(question);
        if let (Some(recorder), Some(log)) = (&mut self.recorder, log) {
            recorder.ask(question.time_ns, log);
        }
    }

    /// Closes the oldest question that an answer belongs to.
    fn answer(
        &mut self,
        time_ns: u64,
        code: u16,
        is_own: impl Fn(&Open) -> bool,
        log: Option<&mut TransactionLog>,
    ) -> Method {
        let Some(at) = self.open.iter().position(is_own) else { return Method::Other };
        let Open { time_ns: end_ns, endpoint, method, .. } = self.open.remove(at);
        self.counts.count_time(time_ns.checked_sub(end_ns));
        if let (Some(recorder), Some(log)) = (&mut self.recorder, log) {
            let endpoint = endpoint.into();
            recorder.end(at, Outcome { endpoint, end_ns, answer: Some((time_ns, code)), ..Outcome::default() }, log);
        }
        method
    }
}

/// Counts up to the largest number: a sender of tiny messages makes no count begin again.
fn add_one(count: &mut u32) {
    *count = count.saturating_add(1);
}
