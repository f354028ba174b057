//! The inspector: shows the first payload of each flow to the readers, and keeps what they find.
//!
//! ```text
//! packet -> state of its flow -> reassembly (TCP) -> readers that are still possible -> Findings
//!
//! first payload of a flow: its first octet -> readers that are possible -> they read it in the packet
//! ```
//! | state of a flow | what it takes |
//! |---|---|
//! | fresh, or nothing was found so far | 16 octets |
//! | undecided, or fields may follow | a session: the readers that are left, the octets so far |
//! | decided | its findings, which are shared with its records |
//!
//! Memory is bounded: by the number of sessions, the octets that a session keeps, and the octets of
//! all findings. If all sessions are in use, the one that was begun longest ago is evicted.

mod flow;
mod payload;
mod session;
mod session_order;
mod settings;

use crate::learned::Learned;
use crate::readers::{ALL_STREAM_READERS, Candidates};
use crate::transaction_log::TransactionLog;
use crate::transactions::Transactions;
use crate::{Application, Confidence, Fact, Findings, Note, Transaction, dns, sip};
pub use flow::FlowInspection;
use flow::FlowState;
pub use payload::Payload;
use session::Session;
use session_order::{NONE, SessionOrder};
pub use settings::InspectionSettings;
use std::sync::Arc;
use weir_ledger::{InspectionCounters, TransactionCounters};

/// The session that sees the first payload of every flow. If the flow stays undecided, another one
/// takes its place.
const FIRST_SESSION: u32 = 0;
/// Memory of findings beside their extracted fields: the reference counts, the structure, and the allocator's.
const FINDINGS_OCTETS: u64 = 128;
/// Memory that an idle session keeps at most in each of its lists.
const KEPT_OCTETS: usize = 2048;
/// Sessions that are evicted for one packet at most, if their memory is used up.
const MAX_EVICTED: u32 = 8;

#[derive(Debug)]
enum Entry {
    /// The next free entry.
    Free(u32),
    /// The session of the flow.
    Undecided(u32),
    Decided(Arc<Findings>),
    /// The messages of the flow are counted.
    Counted(Box<Counted>),
    Nothing,
}

/// A decided flow whose messages are counted.
#[derive(Debug)]
struct Counted {
    findings: Arc<Findings>,
    transactions: Box<Transactions>,
}

/// Inspects the payload of flows.
#[derive(Debug)]
pub struct Inspector {
    settings: InspectionSettings,
    candidates: &'static Candidates,
    entries: Vec<Entry>,
    free_entry: u32,
    sessions: Vec<Session>,
    free_sessions: Vec<u32>,
    /// Open sessions: the oldest one is evicted next, if all are in use.
    open_sessions: SessionOrder,
    findings_octets: u64,
    session_octets: u64,
    /// Findings without extracted fields, which all flows share.
    without_facts: Vec<Arc<Findings>>,
    learned: Learned,
    /// Flows whose messages are counted.
    counted: u32,
    /// Records of transactions, if there are any.
    log: Option<Box<TransactionLog>>,
    /// Flows that begin now have no fingerprints.
    without_fingerprints: bool,
    /// How often inspection was suspended.
    suspensions: u32,
    counters: InspectionCounters,
}

impl Inspector {
    /// An inspector for this number of flows.
    pub fn new(settings: InspectionSettings, flows: usize) -> Self {
        let settings = InspectionSettings {
            octets: settings.octets.clamp(1, InspectionSettings::MAX_OCTETS),
            sessions: settings.sessions.clamp(1, NONE - 2),
            ..settings
        };
        // The system provides pages when they are first touched.
        let mut sessions = Vec::with_capacity(settings.sessions as usize + 1);
        sessions.push(Session::new(settings.personal));
        Self {
            settings,
            candidates: Candidates::get(),
            entries: Vec::with_capacity(flows),
            free_entry: NONE,
            free_sessions: Vec::with_capacity(sessions.capacity()),
            sessions,
            open_sessions: SessionOrder::new(settings.sessions),
            findings_octets: 0,
            session_octets: 0,
            without_facts: Vec::new(),
            learned: Learned::new(settings.names),
            counted: 0,
            log: (settings.transaction_octets > 0)
                .then(|| Box::new(TransactionLog::new(settings.transaction_octets, settings.personal))),
            without_fingerprints: false,
            suspensions: 0,
            counters: InspectionCounters::default(),
        }
    }

    /// The settings, within their limits.
    pub fn settings(&self) -> &InspectionSettings {
        &self.settings
    }

    /// The counters.
    pub fn counters(&self) -> &InspectionCounters {
        &self.counters
    }

    /// Memory that an inspector takes at most, octets.
    pub fn memory_octets_for(settings: &InspectionSettings, flows: usize) -> u64 {
        // The session of the current packet may exceed the limit.
        let session_octets = settings.session_octets + 4 * u64::from(InspectionSettings::MAX_OCTETS);
        let sessions = (u64::from(settings.sessions) + 1) * (size_of::<Session>() + size_of::<[u32; 3]>()) as u64;
        let shared = (Application::ALL.len() * Confidence::ALL.len() * 16) as u64 * FINDINGS_OCTETS;
        let recorder_octets = if settings.transaction_octets > 0 { Transactions::MAX_RECORDER_OCTETS } else { 0 };
        let counted = (size_of::<Counted>() + Transactions::MAX_OCTETS + recorder_octets) as u64;
        let counted = counted * u64::from(settings.transactions) + settings.transaction_octets;
        let tables = counted + size_of::<Candidates>() as u64 + shared + Learned::memory_octets_for(settings.names);
        (flows * size_of::<Entry>()) as u64 + sessions + session_octets + settings.findings_octets + tables
    }

    /// Inspects the payload of a packet. Returns whether later packets of the flow are of use.
    pub fn inspect(&mut self, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        match flow.state() {
            FlowState::Done => false,
            FlowState::Limited => self.note_limit(flow, payload),
            FlowState::Fresh if flow.unmatched == 0 && payload.is_empty(flow) && !payload.is_cut(flow) => {
                if !payload.is_last {
                    return true;
                }
                flow.set_state(FlowState::Limited);
                self.note_limit(flow, payload)
            }
            FlowState::Fresh => self.inspect_first(flow, payload),
            FlowState::Entry(number) => match self.entries.get(number as usize) {
                Some(&Entry::Undecided(session)) => self.inspect_next(session, flow, payload),
                Some(Entry::Decided(_)) if flow.unmatched > 0 => self.inspect_first(flow, payload),
                Some(Entry::Counted(_)) => self.count(number, payload),
                _ => false,
            },
        }
    }

    /// Notes that packets will not be inspected for some time.
    pub fn suspend(&mut self) {
        self.suspensions = self.suspensions.wrapping_add(1);
    }

    /// Whether flows that are first inspected from now on have fingerprints.
    pub fn set_fingerprints(&mut self, fingerprints: bool) {
        self.without_fingerprints = !fingerprints;
    }

    /// Whether nothing more will be found about a flow but counts of its messages.
    pub fn is_decided(&self, flow: &FlowInspection) -> bool {
        let FlowState::Entry(number) = flow.state() else { return false };
        matches!(self.entries.get(number as usize), Some(Entry::Counted(_)))
    }

    /// Counts the messages in a packet of a decided flow.
    fn count(&mut self, entry: u32, payload: &Payload<'_>) -> bool {
        if let Some(Entry::Counted(counted)) = self.entries.get_mut(entry as usize) {
            counted.transactions.read(payload, self.log.as_deref_mut());
            self.counters.work_limited += u64::from(counted.transactions.take_work_limited());
        }
        true
    }

    /// Counts the messages in a packet that the readers have seen, if the application is known. The streams of
    /// the session have octets that came out of order. `is_open`: the session will have those that come late.
    fn count_in_session(&mut self, session: u32, flow: &mut FlowInspection, payload: &Payload<'_>, is_open: bool) {
        let index = session as usize;
        if self.sessions[index].transactions.is_none() {
            self.sessions[index].transactions = self.begin_transactions(index, flow, payload);
        }
        let Session { transactions: Some(transactions), streams, first, .. } = &mut self.sessions[index] else {
            return;
        };
        for endpoint in [*first & 1, 1 - (*first & 1)] {
            if let Some(sequence) = streams[endpoint].start() {
                let (octets, log) = (streams[endpoint].contiguous(), self.log.as_deref_mut());
                transactions.read_stream(endpoint, sequence, octets, payload.time_ns, log);
            }
        }
        if !(is_open && transactions.is_before(payload)) {
            transactions.read(payload, self.log.as_deref_mut());
        }
    }

    /// Begins to count the messages of a flow whose application has just been recognised.
    fn begin_transactions(
        &mut self,
        session: usize,
        flow: &mut FlowInspection,
        payload: &Payload<'_>,
    ) -> Option<Box<Transactions>> {
        let (application, confidence) = self.sessions[session].findings.application()?;
        if self.settings.transactions == 0 || confidence > Confidence::Pattern || flow.is_counted() {
            return None;
        }
        let (two_way, log) = (self.settings.two_way, self.log.as_deref());
        let recognised = (application, confidence);
        let mut transactions = Transactions::new(recognised, self.suspensions, two_way, payload, log)?;
        flow.set_counted();
        if self.counted >= self.settings.transactions {
            self.counters.transactions_left_out += 1;
            return None;
        }
        [0, 1].into_iter().for_each(|endpoint| transactions.begin_stream(endpoint, flow.expected(endpoint)));
        self.counted += 1;
        Some(Box::new(transactions))
    }

    /// Inspects the first payload of a flow, or a later one if those before did not match. The flow takes
    /// an entry if it is decided, a session too if it is not, and neither if no reader is left.
    fn inspect_first(&mut self, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        let unmatched = std::mem::take(&mut flow.unmatched);
        let is_cut = payload.is_cut(flow);
        if payload.is_empty(flow) && !is_cut || flow.is_silent(payload.endpoint) {
            flow.unmatched = unmatched.saturating_add(u16::from(!payload.octets.is_empty()));
            return flow.needs_more(payload);
        }
        let known = self.take_known(flow);
        let candidates = self.candidates_of(flow, payload);
        let name = if unmatched == 0 { learned_name(&self.learned, flow, payload) } else { None };
        let is_medium =
            payload.is_rtp() && self.learned.expects_media(payload.addresses, payload.ports, payload.time_ns);
        self.counters.flows += u64::from(unmatched == 0);
        let packets = u32::from(unmatched) + 1;
        let has_facts = known.is_some() || name.is_some();
        if candidates == 0 && !has_facts && !is_medium && !is_cut && !self.settings.ports {
            return flow.note_no_match(packets, payload, false);
        }
        let session = &mut self.sessions[FIRST_SESSION as usize];
        let before = session.octets();
        session.begin(flow, payload, candidates, unmatched);
        session.findings.set_without_fingerprints(self.without_fingerprints);
        if let Some(known) = known {
            session.findings.restore_facts(&known);
        }
        if let Some(name) = name {
            // It is a text already.
            session.findings.set_octets(Fact::LearnedName, name.as_bytes());
        }
        if is_cut {
            session.findings.note(Note::Gap);
        }
        let is_open = candidates != 0 && session.inspect(payload, flow, self.settings.octets);
        let is_clean = session.findings.is_clear() && session.octets() == before && flow.silent == 0;
        if is_clean && !is_open && !is_medium && !self.settings.ports {
            // As usual for payload of no known protocol.
            return flow.note_no_match(packets, payload, false);
        }
        if is_medium && !is_open && session.findings.application().is_none() {
            session.findings.recognise(Application::Rtp, Confidence::Announced);
        }
        session.count_packet(payload, &mut self.counters);
        self.session_octets += session.octets() - before;
        self.learn(FIRST_SESSION, payload);
        self.count_in_session(FIRST_SESSION, flow, payload, is_open);
        self.counters.work_limited += u64::from(self.sessions[FIRST_SESSION as usize].take_work_limited());
        if is_open {
            self.open_session(flow);
            return true;
        }
        let session = &self.sessions[FIRST_SESSION as usize];
        let (shown, is_recognised) = (session.packets, session.findings.application().is_some());
        let entry = self.take_entry(FIRST_SESSION);
        let is_counted = matches!(entry, Entry::Counted(_));
        flow.set_state(match entry {
            Entry::Nothing => FlowState::Done,
            entry => FlowState::Entry(self.allocate(entry)),
        });
        self.close_session(FIRST_SESSION);
        is_counted || !is_recognised && flow.note_no_match(shown.max(packets), payload, false)
    }

    /// The readers that may recognise the first payload of a flow, a bit each.
    fn candidates_of(&self, flow: &FlowInspection, payload: &Payload<'_>) -> u32 {
        let first = payload.octets.first();
        match payload.tcp {
            // The first octet of the stream is still to come.
            Some(_) if !payload.is_in_order(flow) => ALL_STREAM_READERS,
            Some(_) => first.map_or(0, |first| self.candidates.of_stream(*first)),
            None => first.map_or(0, |first| self.candidates.of_datagram(*first)),
        }
    }

    /// Gives a flow the first session, in place of which an idle one comes.
    fn open_session(&mut self, flow: &mut FlowInspection) {
        let index = self.free_session();
        self.sessions.swap(FIRST_SESSION as usize, index as usize);
        let entry = self.allocate(Entry::Undecided(index));
        self.sessions[index as usize].entry = entry;
        self.open_sessions.push(index);
        flow.set_state(FlowState::Entry(entry));
        self.bound_session_octets(index);
    }

    /// Takes what is known of a flow whose packets did not match so far.
    fn take_known(&mut self, flow: &mut FlowInspection) -> Option<Arc<Findings>> {
        let state = flow.state();
        flow.set_state(FlowState::Done);
        let FlowState::Entry(entry) = state else { return None };
        let Some(Entry::Decided(findings)) = self.entries.get(entry as usize) else { return None };
        let findings = Arc::clone(findings);
        self.findings_octets -= memory_of(&findings);
        self.free(entry);
        Some(findings)
    }

    /// Notes that payload was not inspected because of the limit of packets, when the first one comes.
    fn note_limit(&mut self, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        if payload.wire_octets == 0 || payload.is_keep_alive(flow) {
            return true;
        }
        let session = &mut self.sessions[FIRST_SESSION as usize];
        (session.is_tcp, session.ports) = (payload.tcp.is_some(), payload.ports);
        session.findings.note(Note::Limit);
        if let Some(findings) = self.take_findings(FIRST_SESSION) {
            flow.set_state(FlowState::Entry(self.allocate(Entry::Decided(findings))));
        }
        self.close_session(FIRST_SESSION);
        false
    }

    /// Inspects a later packet of an undecided flow.
    fn inspect_next(&mut self, index: u32, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        let session = &mut self.sessions[index as usize];
        let before = session.octets();
        let has_start = |session: &Session, side: usize| !session.streams[side].contiguous().is_empty();
        if payload.begins_stream(flow) && !flow.is_silent(payload.endpoint) && !has_start(session, session.first) {
            // The start of the side that came first is still to come.
            session.set_first(payload.endpoint);
        }
        let first = session.first;
        // It could be the first: a datagram, or the first payload of the second side of a connection.
        let is_one_side = !has_start(session, 1 - first);
        let may_restart = payload.tcp.is_none() || (is_one_side && payload.endpoint & 1 != first);
        let is_open = session.inspect(payload, flow, self.settings.octets);
        if session.first != first {
            flow.silent |= 1 << first;
            session.end_stream(first);
        }
        session.count_packet(payload, &mut self.counters);
        self.session_octets += session.octets() - before;
        self.learn(index, payload);
        self.count_in_session(index, flow, payload, is_open);
        self.counters.work_limited += u64::from(self.sessions[index as usize].take_work_limited());
        self.bound_session_octets(index);
        if is_open {
            return true;
        }
        let Session { packets, findings, transactions, .. } = &self.sessions[index as usize];
        let (packets, is_recognised) = (*packets, findings.application().is_some());
        let is_counted = transactions.is_some();
        self.end_session(index);
        if let FlowState::Entry(entry) = flow.state()
            && matches!(self.entries.get(entry as usize), Some(Entry::Nothing))
        {
            self.free(entry);
            flow.set_state(FlowState::Done);
        }
        if is_recognised || payload.is_last {
            return is_counted;
        }
        if !may_restart {
            return flow.note_no_match(packets, payload, !is_one_side);
        }
        // The packets before this one did not match. It may, alone.
        flow.silent |= u8::from(payload.tcp.is_some()) << first;
        flow.unmatched = packets.saturating_sub(1).clamp(1, u16::MAX.into()) as u16;
        self.inspect_first(flow, payload)
    }

    /// Learns what a datagram of DNS or SIP announces about later flows.
    fn learn(&mut self, session: u32, payload: &Payload<'_>) {
        let Session { findings, first, .. } = &self.sessions[session as usize];
        match findings.application() {
            Some((Application::Dns, _)) if payload.tcp.is_none() => {
                if let Some(names) = dns::learned(&payload.datagram(*first), findings) {
                    self.learned.add_names(payload.addresses[1], &names, payload.time_ns);
                }
            }
            Some((Application::Sip, _)) if payload.tcp.is_none() => {
                self.learned.add_media(&sip::media(payload.octets), payload.time_ns);
            }
            _ => {}
        }
    }

    /// What is known of a flow.
    pub fn findings(&mut self, flow: &FlowInspection) -> Option<Arc<Findings>> {
        self.findings_of_record(flow, false)
    }

    /// What is known of a flow when a record of it ends. `goes_on`: another record follows.
    pub fn findings_of_record(&mut self, flow: &FlowInspection, goes_on: bool) -> Option<Arc<Findings>> {
        let FlowState::Entry(entry) = flow.state() else { return None };
        match self.entries.get(entry as usize)? {
            Entry::Decided(findings) => Some(Arc::clone(findings)),
            Entry::Counted(counted) => {
                let mut findings = Findings::clone(&counted.findings);
                counted.transactions.add_to(&mut findings, self.suspensions, goes_on);
                Some(Arc::new(findings))
            }
            &Entry::Undecided(session) => {
                let session = &self.sessions[session as usize];
                let mut findings = session.findings.clone();
                if session.has_gap() {
                    findings.note(Note::Gap);
                }
                if session.streams.iter().any(|stream| stream.is_limited(self.settings.octets)) {
                    findings.note(Note::Limit);
                }
                self.settings.guess(session.is_tcp, session.ports, &mut findings);
                if let Some(transactions) = &session.transactions {
                    transactions.add_to(&mut findings, self.suspensions, goes_on);
                }
                (!findings.is_empty()).then(|| Arc::new(findings))
            }
            Entry::Nothing | Entry::Free(_) => None,
        }
    }

    /// Begins another record of a flow: messages are counted from 0 on.
    pub fn begin_record(&mut self, flow: &FlowInspection) {
        let FlowState::Entry(entry) = flow.state() else { return };
        match self.entries.get_mut(entry as usize) {
            Some(Entry::Counted(counted)) => counted.transactions.begin_record(),
            Some(&mut Entry::Undecided(session)) => {
                self.sessions[session as usize].transactions.iter_mut().for_each(|open| open.begin_record());
            }
            _ => {}
        }
    }

    /// Forgets a flow. Its open transactions end.
    pub fn end_flow(&mut self, flow: &mut FlowInspection) {
        let FlowState::Entry(entry) = std::mem::take(flow).state() else { return };
        match self.entries.get_mut(entry as usize) {
            Some(&mut Entry::Undecided(session)) => {
                let Session { findings, transactions, .. } = &mut self.sessions[session as usize];
                self.counters.recognised += u64::from(findings.application().is_some());
                if let Some(mut transactions) = transactions.take() {
                    self.counted -= 1;
                    transactions.end(self.log.as_deref_mut());
                }
                self.release_session(session);
            }
            Some(Entry::Decided(findings)) => self.findings_octets -= memory_of(findings),
            Some(Entry::Counted(counted)) => {
                self.counted -= 1;
                self.findings_octets -= memory_of(&counted.findings);
                counted.transactions.end(self.log.as_deref_mut());
            }
            _ => {}
        }
        self.free(entry);
    }

    /// Notes whether the next packet is one of IPv6, for the records of transactions.
    #[inline]
    pub fn set_ipv6(&mut self, is_ipv6: bool) {
        if let Some(log) = &mut self.log {
            log.is_ipv6 = is_ipv6;
        }
    }

    /// Takes the transactions that have ended since the last call.
    pub fn take_transactions(&mut self) -> impl Iterator<Item = Transaction> {
        self.log.iter_mut().flat_map(|log| log.take())
    }

    /// Transactions that were begun, are open and were left out; `None` if none are recorded.
    pub fn transaction_counters(&self) -> Option<TransactionCounters> {
        self.log.as_ref().map(|log| log.counters.clone())
    }

    /// An idle session. If there is none, the oldest flow is evicted.
    fn free_session(&mut self) -> u32 {
        self.free_sessions.pop().unwrap_or_else(|| {
            if self.sessions.len() as u32 <= self.settings.sessions {
                self.sessions.push(Session::new(self.settings.personal));
                return self.sessions.len() as u32 - 1;
            }
            self.evict(self.open_sessions.oldest);
            self.free_sessions.pop().expect("a session was evicted")
        })
    }

    /// Evicts sessions until the memory of the others is within its limit.
    #[inline]
    fn bound_session_octets(&mut self, except: u32) {
        if self.session_octets > self.settings.session_octets {
            self.evict_oldest(except);
        }
    }

    #[cold]
    fn evict_oldest(&mut self, except: u32) {
        let mut index = self.open_sessions.oldest;
        for _ in 0..MAX_EVICTED {
            if self.session_octets <= self.settings.session_octets || index == NONE {
                break;
            }
            let next = self.open_sessions.newer(index);
            if index != except {
                self.evict(index);
            }
            index = next;
        }
    }

    /// Evicts an open session.
    fn evict(&mut self, index: u32) {
        self.counters.evicted += 1;
        self.sessions[index as usize].findings.note(Note::Limit);
        self.end_session(index);
    }

    /// Replaces the session of a flow by what it found.
    fn end_session(&mut self, index: u32) {
        let entry = self.take_entry(index);
        if let Some(place) = self.entries.get_mut(self.sessions[index as usize].entry as usize) {
            *place = entry;
        }
        self.release_session(index);
    }

    fn release_session(&mut self, index: u32) {
        self.open_sessions.remove(index);
        self.close_session(index);
        self.free_sessions.push(index);
    }

    /// Makes a session idle. Idle sessions together keep at most half of the memory of sessions, so
    /// that open ones have the other half.
    fn close_session(&mut self, index: u32) {
        let kept = if self.session_octets > self.settings.session_octets / 2 { 0 } else { KEPT_OCTETS };
        let session = &mut self.sessions[index as usize];
        let before = session.octets();
        session.close(kept);
        self.session_octets -= before - session.octets();
    }

    /// What is kept of a flow whose session ends.
    fn take_entry(&mut self, session: u32) -> Entry {
        let transactions = self.sessions[session as usize].transactions.take();
        match (self.take_findings(session), transactions) {
            (Some(findings), Some(transactions)) => Entry::Counted(Box::new(Counted { findings, transactions })),
            (Some(findings), None) => Entry::Decided(findings),
            (None, transactions) => {
                if let Some(mut transactions) = transactions {
                    self.counted -= 1;
                    transactions.end(self.log.as_deref_mut());
                }
                Entry::Nothing
            }
        }
    }

    fn take_findings(&mut self, index: u32) -> Option<Arc<Findings>> {
        let Session { findings, is_tcp, ports, .. } = &mut self.sessions[index as usize];
        self.counters.recognised += u64::from(findings.application().is_some());
        self.settings.guess(*is_tcp, *ports, findings);
        let octets = memory_of(findings);
        if octets > 0 && self.findings_octets + octets > self.settings.findings_octets {
            self.counters.facts_left_out += 1;
            findings.facts.clear();
            findings.note(Note::Limit);
        } else if octets > 0 {
            self.findings_octets += octets;
            return Some(Arc::new(findings.clone()));
        }
        if findings.is_empty() {
            return None;
        }
        let (application, notes) = (findings.application(), findings.notes());
        let same = |known: &&Arc<Findings>| known.application() == application && known.notes() == notes;
        Some(self.without_facts.iter().find(same).map(Arc::clone).unwrap_or_else(|| {
            let shared = Arc::new(self.sessions[index as usize].findings.clone());
            self.without_facts.push(Arc::clone(&shared));
            shared
        }))
    }

    fn allocate(&mut self, entry: Entry) -> u32 {
        let Some(place) = self.entries.get_mut(self.free_entry as usize) else {
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        };
        let number = self.free_entry;
        if let Entry::Free(next) = std::mem::replace(place, entry) {
            self.free_entry = next;
        }
        number
    }

    fn free(&mut self, entry: u32) {
        if let Some(place) = self.entries.get_mut(entry as usize) {
            *place = Entry::Free(std::mem::replace(&mut self.free_entry, entry));
        }
    }
}

/// The name under which the client of a flow has looked up the server.
fn learned_name<'a>(learned: &'a Learned, flow: &FlowInspection, payload: &Payload<'_>) -> Option<&'a str> {
    let [client, server] = match flow.client() {
        Some(client) if client != payload.endpoint & 1 => [payload.addresses[1], payload.addresses[0]],
        _ => payload.addresses,
    };
    learned.name(client, server, payload.time_ns)
}

/// Memory of the findings of a flow; 0 if they have no extracted fields and are shared.
fn memory_of(findings: &Findings) -> u64 {
    match findings.facts.len() as u64 {
        0 => 0,
        octets => octets + FINDINGS_OCTETS,
    }
}

#[cfg(test)]
mod tests;
