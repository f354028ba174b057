//! Transactions as records: each question of DNS and each request of HTTP/1 with the answer to it.
//!
//! ```text
//! Transactions of a flow: its messages -> TransactionRecorder: open questions -> TransactionLog: closed ones -> meter
//! ```
//! What is recorded follows what is counted (`transactions.rs`): a question that was counted is in one
//! record, with those that repeat it. Memory is bounded: all inspected flows together have as many open and
//! closed questions as the log has room for. More are left out, and counted.

use crate::message_stream::Text;
use crate::{Application, Confidence, Fact, Findings, MessageCounts, Note, dns, http1};
use weir_ledger::TransactionCounters;

/// Memory that a question takes at most: its extracted fields (method, host and path with their lengths), and
/// where they are kept.
const QUESTION_OCTETS: u64 = 1024;

/// The endpoints of a transaction, the one that asked first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// Addresses; of IPv4 the mapped ones.
    pub addresses: [[u8; 16]; 2],
    /// Ports.
    pub ports: [u16; 2],
    /// TCP; else UDP.
    pub is_tcp: bool,
    /// IPv6; else IPv4.
    pub is_ipv6: bool,
}

impl Parties {
    /// With the endpoint first that asked.
    fn asked_by(mut self, endpoint: usize) -> Self {
        if endpoint == 1 {
            self.addresses.reverse();
            self.ports.reverse();
        }
        self
    }
}

/// A question of DNS or a request of HTTP/1, with its answer if there was one.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Who asked, and whom.
    pub parties: Parties,
    /// When it was first asked: DNS the packet, HTTP the line of the request, ns since 1970 UTC.
    pub time_ns: u64,
    /// When the question ended: HTTP the end of the request.
    pub end_ns: u64,
    /// When it was answered.
    pub answer_ns: Option<u64>,
    /// What question and answer say. The counts are those of this transaction.
    pub findings: Findings,
}

/// A question that is open.
#[derive(Debug)]
pub(crate) struct Question {
    time_ns: u64,
    findings: Findings,
    /// How often it was sent.
    sent: u32,
    /// HTTP: the head of the request has not ended.
    reads_head: bool,
}

/// The transactions of a flow: what is recorded of each question that is open.
#[derive(Debug)]
pub(crate) struct TransactionRecorder {
    /// Endpoint 0 first.
    parties: Parties,
    application: Application,
    confidence: Confidence,
    /// Answers are other flows: a question is closed at once.
    is_one_way: bool,
    /// Of each open question of the flow, in their order. `None`: it was left out, or is closed already.
    questions: Vec<Option<Box<Question>>>,
    /// The host of a request, until the next line shows that it is whole.
    host: Vec<u8>,
}

/// What became of a question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// The endpoint that asked.
    pub endpoint: usize,
    /// When the question ended, ns.
    pub end_ns: u64,
    /// Time and code of its answer.
    pub answer: Option<(u64, u16)>,
    /// It was forgotten, because too many questions were open.
    pub is_forgotten: bool,
    /// Octets of the flow are missing.
    pub has_gap: bool,
}

/// Closed transactions of all flows, and the memory of all transactions.
#[derive(Debug)]
pub(crate) struct TransactionLog {
    closed: Vec<Transaction>,
    /// Questions that there is memory for.
    room: u64,
    personal: bool,
    /// The current packet is one of IPv6.
    pub is_ipv6: bool,
    pub counters: TransactionCounters,
}

impl TransactionLog {
    /// A log with this much memory, octets. `personal`: paths are recorded.
    pub fn new(octets: u64, personal: bool) -> Self {
        let counters = TransactionCounters::default();
        Self { closed: Vec::new(), room: octets / QUESTION_OCTETS, personal, is_ipv6: false, counters }
    }

    /// Begins a transaction; `None` if there is no memory for it.
    fn begin(&mut self, time_ns: u64, reads_head: bool) -> Option<Box<Question>> {
        self.counters.begun += 1;
        if self.counters.open >= self.room {
            self.counters.left_out += 1;
            return None;
        }
        self.counters.open += 1;
        Some(Box::new(Question { time_ns, findings: Findings::new(self.personal), sent: 1, reads_head }))
    }

    /// Takes the closed transactions. They count as open until then.
    pub fn take(&mut self) -> std::vec::Drain<'_, Transaction> {
        self.counters.open -= self.closed.len() as u64;
        self.closed.drain(..)
    }
}

impl TransactionRecorder {
    /// Memory that one takes at most beside its questions, octets.
    pub const MAX_OCTETS: usize = size_of::<Self>() + crate::message_stream::TEXT_OCTETS;
    /// More for each question that may be open.
    pub const OPEN_OCTETS: usize = size_of::<Option<Box<Question>>>();

    /// `parties`: endpoint 0 first. `is_one_way`: the answers to its questions are in other flows.
    pub fn new(parties: Parties, (application, confidence): (Application, Confidence), is_one_way: bool) -> Self {
        Self { parties, application, confidence, is_one_way, questions: Vec::new(), host: Vec::new() }
    }

    /// Begins the transaction of a question, which is the last one of the list of those that are open.
    pub fn ask(&mut self, time_ns: u64, log: &mut TransactionLog) {
        // That of another flow begins with its text.
        let question = if self.is_one_way { None } else { log.begin(time_ns, self.application == Application::Http) };
        self.questions.push(question);
    }

    /// Ends that of the question with a number in the list.
    pub fn end(&mut self, at: usize, outcome: Outcome, log: &mut TransactionLog) {
        if let Some(question) = self.questions.remove(at) {
            self.close(*question, outcome, log);
        }
    }

    /// Takes the text of the question with a number in the list; `None` if that is not open any more.
    pub fn add_text(&mut self, at: Option<usize>, outcome: Outcome, text: Text<'_>, log: &mut TransactionLog) {
        if let Text::Question(octets) = text {
            return self.add_question(at, outcome, octets, log);
        }
        let Some(question) = at.and_then(|at| self.questions.get_mut(at)?.as_deref_mut()) else { return };
        if !question.reads_head {
            return;
        }
        match text {
            Text::RequestLine(line, is_whole) => http1::find_request(line, is_whole, &mut question.findings),
            Text::FieldLine(line, is_whole) => {
                let host = std::mem::take(&mut self.host);
                let is_continuation = line.first().is_some_and(|first| b" \t".contains(first));
                if !host.is_empty() && !is_continuation {
                    question.findings.set_text(Fact::HttpHost, &host);
                }
                question.reads_head = !line.is_empty();
                match http1::host_of(line).filter(|_| !is_continuation) {
                    Some(_) if !is_whole => question.findings.note(Note::Cut),
                    Some(host) => self.host = host.into(),
                    None => {}
                }
            }
            Text::Question(_) => {}
        }
    }

    /// Takes a message of DNS: a new question, or one that repeats the one with its id.
    fn add_question(&mut self, at: Option<usize>, outcome: Outcome, octets: &[u8], log: &mut TransactionLog) {
        let mut findings = Findings::new(log.personal);
        dns::find_first_question(octets, &mut findings);
        if self.is_one_way {
            if let Some(mut question) = log.begin(outcome.end_ns, false) {
                question.findings = findings;
                self.close(*question, outcome, log);
            }
            return;
        }
        let Some(place) = at.and_then(|at| self.questions.get_mut(at)) else { return };
        let Some(question) = place else { return };
        if question.findings.is_clear() {
            question.findings = findings;
        } else if question.findings.facts == findings.facts {
            question.sent = question.sent.saturating_add(1);
        } else if let Some(mut other) = log.begin(outcome.end_ns, false) {
            // Its answer, if there is one, is that of the other question with this id.
            other.findings = findings;
            if let Some(former) = place.replace(other) {
                self.close(*former, outcome, log);
            }
        }
    }

    fn close(&self, question: Question, outcome: Outcome, log: &mut TransactionLog) {
        let Question { time_ns, mut findings, sent, .. } = question;
        let Outcome { endpoint, end_ns, answer, is_forgotten, has_gap } = outcome;
        let is_http = self.application == Application::Http;
        let has_text = findings.has(if is_http { Fact::HttpMethod } else { Fact::DnsType });
        findings.recognise(self.application, self.confidence);
        if has_gap || !has_text {
            findings.note(Note::Gap);
        }
        if is_forgotten {
            findings.note(Note::Limit);
        }
        let mut counts = MessageCounts { is_http, requests: sent, ..MessageCounts::default() };
        if let Some((answer_ns, code)) = answer {
            let response_ns = answer_ns.checked_sub(end_ns);
            counts.count_answer(code);
            counts.count_time(response_ns);
            findings.set_number(if is_http { Fact::HttpStatus } else { Fact::DnsRcode }, code.into());
            if let Some(response_ns) = response_ns.filter(|_| !is_http) {
                findings.set_number(Fact::DnsResponseNs, response_ns);
            }
        } else {
            let is_expected = self.application == Application::Dns && !self.is_one_way;
            *if is_forgotten { &mut counts.forgotten } else { &mut counts.unanswered } = u32::from(is_expected);
        }
        findings.set_messages(counts);
        let (parties, answer_ns) = (self.parties.asked_by(endpoint), answer.map(|(answer_ns, _)| answer_ns));
        log.closed.push(Transaction { parties, time_ns, end_ns, answer_ns, findings });
    }
}
