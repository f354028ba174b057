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

use crate::learned::Learned;
use crate::readers::Candidates;
use crate::reassembly::{Segment, Stream};
use crate::{
    Application, Confidence, DATAGRAM_READERS, Datagram, Fact, Findings, Note, STREAM_READERS, Streams, Verdict, dns,
    dtls, ports, quic, sip,
};
use bytemuck::Zeroable;
use std::sync::Arc;
use weir_ledger::InspectionCounters;

/// Limits of inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectionSettings {
    /// Inspection of a flow ends when one direction of a record has this many packets.
    pub packets: u32,
    /// Octets of each direction of a TCP connection that are inspected.
    pub octets: u32,
    /// Flows that can be undecided at the same time.
    pub sessions: u32,
    /// Memory for the payload of undecided flows, octets.
    pub session_octets: u64,
    /// Memory for the findings of decided flows, octets.
    pub findings_octets: u64,
    /// Names of addresses, learned from DNS, that are known at the same time.
    pub names: u32,
    /// Personal fields are kept: see [`crate::Fact::is_personal`].
    pub personal: bool,
    /// The application of a flow whose payload matches no reader is guessed from its ports.
    pub ports: bool,
}

impl InspectionSettings {
    /// Largest number of octets of a direction that can be set.
    pub const MAX_OCTETS: u32 = 64 << 10;

    /// The same with limits of memory that suit this number of flows: a small cache has a small inspector.
    #[must_use]
    pub fn within(self, flows: u32) -> Self {
        const OCTETS_PER_FLOW: u64 = 64;
        const LEAST_OCTETS: u64 = 1 << 20;
        // More than a quarter of the flows are undecided, or have names to learn, in small caches only.
        const LEAST_ENTRIES: u32 = 1024;
        let entries = (flows / 4).max(LEAST_ENTRIES).min(flows);
        let octets = (OCTETS_PER_FLOW * u64::from(flows)).max(LEAST_OCTETS);
        Self {
            sessions: self.sessions.min(entries),
            names: self.names.min(entries),
            session_octets: self.session_octets.min(octets),
            findings_octets: self.findings_octets.min(octets),
            ..self
        }
    }

    /// Guesses the application from the ports, if that is asked for and it is not known.
    fn guess(&self, is_tcp: bool, ports: [u16; 2], findings: &mut Findings) {
        if self.ports
            && findings.application().is_none()
            && let Some(application) = ports::application(is_tcp, ports)
        {
            findings.recognise(application, Confidence::Port);
        }
    }
}

impl Default for InspectionSettings {
    fn default() -> Self {
        Self {
            packets: 16,
            octets: 8 << 10,
            sessions: 1 << 15,
            session_octets: 64 << 20,
            findings_octets: 64 << 20,
            names: 1 << 15,
            personal: false,
            ports: false,
        }
    }
}

/// What the caller keeps per flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(C)]
pub struct FlowInspection {
    /// 0: fresh. [`DONE`]: nothing was found. [`LIMITED`]. Otherwise the number of an entry, plus 3.
    state: u32,
    /// Per endpoint: the sequence number after its SYN.
    expected: [u32; 2],
    /// 0: not known. Otherwise the endpoint that opened the connection, plus 1; and [`ANSWERED`],
    /// [`SEVERAL_SYNS`].
    client: u8,
    /// Endpoints whose payload is not inspected any more, a bit each.
    silent: u8,
    /// Packets with payload that matched no reader. 0: none, or a session counts them.
    told_nothing: u16,
}

/// The SYN of the client was acknowledged.
const ANSWERED: u8 = 4;
/// The client sent SYNs that differ, and none was acknowledged yet.
const SEVERAL_SYNS: u8 = 8;
/// Octets that a SYN carries at most (RFC 7413).
const MAX_SYN_OCTETS: u32 = 0xffff;

const FRESH: u32 = 0;
const DONE: u32 = 1;
/// The limit of packets was reached, and there was no payload yet.
const LIMITED: u32 = 2;
const FIRST_ENTRY: u32 = 3;
/// The session that sees the first payload of every flow. If the flow stays undecided, another one
/// takes its place.
const FIRST_SESSION: u32 = 0;
/// No session.
const NONE: u32 = u32::MAX;
/// Both endpoints of a flow.
const BOTH: u8 = 3;
/// Datagrams after which inspection of a flow ends if none of them matched, or is of its protocol.
const UNKNOWN_DATAGRAMS: u32 = 2;
/// The reader of DTLS among those of datagrams. Here it has a state.
const DTLS_READER: usize = 0;
/// Memory of findings beside their extracted fields: the reference counts, the structure, and the allocator's.
const FINDINGS_OCTETS: u64 = 128;
/// Memory that an idle session keeps at most in each of its lists.
const KEPT_OCTETS: usize = 2048;
/// Sessions that are evicted for one packet at most, if their memory is used up.
const MAX_GIVEN_UP: u32 = 8;

impl FlowInspection {
    /// Notes the SYN of an endpoint; `answered`: it acknowledges what the other one has sent up to here.
    #[inline]
    pub fn note_syn(&mut self, endpoint: usize, sequence: u32, answered: Option<u32>) {
        let (endpoint, other) = (endpoint & 1, 1 - (endpoint & 1));
        // 0 stands for no SYN: one connection in 2^32 is taken as if its SYN had not been captured.
        let expected = sequence.wrapping_add(1);
        let known = self.expected(endpoint);
        match answered {
            Some(acknowledgment) => {
                // A SYN may have carried octets, and some programs acknowledge one octet less. Of several
                // SYNs, only the acknowledgment shows which one counts.
                let answers = |expected: u32| match self.client & SEVERAL_SYNS {
                    0 => acknowledgment.wrapping_add(1).wrapping_sub(expected) <= MAX_SYN_OCTETS,
                    _ => acknowledgment == expected,
                };
                if self.expected(other).is_some_and(|expected| !answers(expected)) {
                    self.expected[other] = acknowledgment;
                }
                self.expected[endpoint] = expected;
                self.client = (other as u8 + 1) | ANSWERED;
            }
            // The other end does not accept it in a connection (RFC 9293 section 3.10.7.4).
            None if self.client & ANSWERED != 0 && known.is_some() => {}
            None => {
                self.expected[endpoint] = expected;
                if self.client & ANSWERED == 0 {
                    let is_another = known.is_some_and(|known| known != expected);
                    let several = if is_another { SEVERAL_SYNS } else { self.client & SEVERAL_SYNS };
                    self.client = (endpoint as u8 + 1) | several;
                }
            }
        }
    }

    /// The endpoint that opened the connection, if that is known.
    fn client(&self) -> Option<usize> {
        usize::from(self.client & !(ANSWERED | SEVERAL_SYNS)).checked_sub(1)
    }

    /// Whether nothing of the flow was inspected.
    pub fn is_fresh(&self) -> bool {
        self.state == FRESH
    }

    fn expected(&self, endpoint: usize) -> Option<u32> {
        Some(self.expected[endpoint & 1]).filter(|expected| *expected != 0)
    }

    fn is_silent(&self, endpoint: usize) -> bool {
        self.silent & 1 << (endpoint & 1) != 0
    }

    /// Notes that this number of packets with payload did not match, this one included.
    /// `both`: both sides of a connection sent some. Returns whether later packets may match.
    fn note_nothing_told(&mut self, packets: u32, payload: &Payload<'_>, both: bool) -> bool {
        self.told_nothing = packets.clamp(1, u16::MAX.into()) as u16;
        self.silent |= match payload.tcp {
            Some(_) if both => BOTH,
            Some(_) => 1 << (payload.endpoint & 1),
            None if packets >= UNKNOWN_DATAGRAMS => BOTH,
            None => 0,
        };
        self.awaits_more(payload)
    }

    /// Whether packets after this one may match, of a flow whose packets so far did not match.
    fn awaits_more(&mut self, payload: &Payload<'_>) -> bool {
        let is_over = payload.is_last || self.silent == BOTH;
        if is_over {
            self.told_nothing = 0;
        }
        if self.state < FIRST_ENTRY {
            self.state = if is_over { DONE } else { FRESH };
        }
        !is_over
    }
}

/// The payload of a packet, and what the inspector needs of its headers.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The octets, as far as they were captured.
    pub octets: &'a [u8],
    /// Their number on the wire.
    pub wire_octets: u32,
    /// Which endpoint of the flow sent it, 0 or 1.
    pub endpoint: usize,
    /// Port of the sender, of the receiver.
    pub ports: [u16; 2],
    /// Address of the sender, of the receiver; of IPv4 the mapped one.
    pub addresses: [&'a [u8; 16]; 2],
    /// Time of the packet, ns since 1970 UTC.
    pub time_ns: u64,
    /// Of TCP: the sequence number of the first octet, and whether a FIN follows the last one.
    /// `None` for UDP.
    pub tcp: Option<(u32, bool)>,
    /// No later packet of the flow will be inspected: the limit of packets is reached.
    pub is_last: bool,
}

/// A flow for which readers are left.
#[derive(Debug, Default)]
struct Session {
    /// The entry of the flow.
    entry: u32,
    is_tcp: bool,
    ports: [u16; 2],
    /// Packets with payload that were shown to the readers.
    packets: u32,
    is_recognised: bool,
    /// Datagrams of a recognised flow that are not of its protocol.
    strays: u32,
    /// The endpoint that sent payload first.
    first: usize,
    /// Readers that have not said no, one bit each.
    candidates: u32,
    streams: [Stream; 2],
    findings: Findings,
    /// Of the reader of QUIC, made for the first flow that it reads.
    quic: Option<Box<quic::State>>,
    /// Of the reader of DTLS, made for messages in fragments.
    dtls: Option<Box<dtls::State>>,
}

/// Sessions in the order in which they were begun.
#[derive(Debug)]
struct Order {
    /// Per session: the next older and the next newer one, or [`NONE`].
    neighbours: Vec<[u32; 2]>,
    oldest: u32,
    newest: u32,
}

impl Order {
    fn new(sessions: u32) -> Self {
        Self { neighbours: Vec::with_capacity(sessions as usize + 1), oldest: NONE, newest: NONE }
    }

    /// Adds a session, which is not in it.
    fn push(&mut self, index: u32) {
        let at = index as usize;
        if at >= self.neighbours.len() {
            self.neighbours.resize(at + 1, [NONE; 2]);
        }
        self.neighbours[at] = [self.newest, NONE];
        match self.neighbours.get_mut(self.newest as usize) {
            Some([_, newer]) => *newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }

    /// Removes a session, which is in it.
    fn remove(&mut self, index: u32) {
        let [older, newer] = self.neighbours[index as usize];
        match self.neighbours.get_mut(older as usize) {
            Some([_, of_older]) => *of_older = newer,
            None => self.oldest = newer,
        }
        match self.neighbours.get_mut(newer as usize) {
            Some([of_newer, _]) => *of_newer = older,
            None => self.newest = older,
        }
    }

    /// The session that was begun after this one, or [`NONE`].
    fn newer(&self, index: u32) -> u32 {
        self.neighbours[index as usize][1]
    }
}

#[derive(Debug)]
enum Entry {
    /// The next free entry.
    Free(u32),
    /// The session of the flow.
    Undecided(u32),
    Decided(Arc<Findings>),
    Nothing,
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
    open_sessions: Order,
    findings_octets: u64,
    session_octets: u64,
    /// Findings without extracted fields, which all flows share.
    without_facts: Vec<Arc<Findings>>,
    learned: Learned,
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
            open_sessions: Order::new(settings.sessions),
            findings_octets: 0,
            session_octets: 0,
            without_facts: Vec::new(),
            learned: Learned::new(settings.names),
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
        let tables = size_of::<Candidates>() as u64 + shared + Learned::memory_octets_for(settings.names);
        (flows * size_of::<Entry>()) as u64 + sessions + session_octets + settings.findings_octets + tables
    }

    /// Inspects the payload of a packet. Returns whether later packets of the flow are of use.
    pub fn inspect(&mut self, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        match flow.state {
            DONE => false,
            LIMITED => self.note_limit(flow, payload),
            FRESH if flow.told_nothing == 0 && payload.is_empty(flow) && !payload.is_cut(flow) => {
                if !payload.is_last {
                    return true;
                }
                flow.state = LIMITED;
                self.note_limit(flow, payload)
            }
            FRESH => self.inspect_first(flow, payload),
            number => match self.entries.get((number - FIRST_ENTRY) as usize) {
                Some(&Entry::Undecided(session)) => self.inspect_next(session, flow, payload),
                Some(Entry::Decided(_)) if flow.told_nothing > 0 => self.inspect_first(flow, payload),
                _ => false,
            },
        }
    }

    /// Inspects the first payload of a flow, or a later one if those before did not match. The flow takes
    /// an entry if it is decided, a session too if it is not, and neither if no reader is left.
    fn inspect_first(&mut self, flow: &mut FlowInspection, payload: &Payload<'_>) -> bool {
        let told_nothing = std::mem::take(&mut flow.told_nothing);
        let is_cut = payload.is_cut(flow);
        if payload.is_empty(flow) && !is_cut || flow.is_silent(payload.endpoint) {
            flow.told_nothing = told_nothing.saturating_add(u16::from(!payload.octets.is_empty()));
            return flow.awaits_more(payload);
        }
        let known = self.take_known(flow);
        let session = &mut self.sessions[FIRST_SESSION as usize];
        session.candidates = match payload.tcp {
            // The first octet of the stream is still to come.
            Some(_) if !payload.is_in_order(flow) => u32::MAX >> (u32::BITS as usize - STREAM_READERS.len()),
            Some(_) => payload.octets.first().map_or(0, |first| self.candidates.of_stream(*first)),
            None => payload.octets.first().map_or(0, |first| self.candidates.of_datagram(*first)),
        };
        let [client, server] = match flow.client() {
            Some(client) if client != payload.endpoint & 1 => [payload.addresses[1], payload.addresses[0]],
            _ => payload.addresses,
        };
        let name = match told_nothing {
            0 => self.learned.name(client, server, payload.time_ns),
            _ => None,
        };
        let is_medium =
            payload.is_rtp() && self.learned.expects_media(payload.addresses, payload.ports, payload.time_ns);
        if told_nothing == 0 {
            self.counters.flows += 1;
        }
        let has_facts = known.is_some() || name.is_some();
        if session.candidates == 0 && !has_facts && !is_medium && !is_cut && !self.settings.ports {
            return flow.note_nothing_told(u32::from(told_nothing) + 1, payload, false);
        }
        (session.is_tcp, session.ports, session.first) = (payload.tcp.is_some(), payload.ports, payload.endpoint & 1);
        session.packets = told_nothing.into();
        let before = session.octets();
        if flow.is_silent(1 - session.first) {
            session.streams[1 - session.first].end();
        }
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
        let is_open = session.candidates != 0 && session.inspect(payload, flow, self.settings.octets);
        let is_clean = session.findings.is_clear() && session.octets() == before && flow.silent == 0;
        if is_clean && !is_open && !is_medium && !self.settings.ports {
            // As usual for payload of no known protocol.
            return flow.note_nothing_told(u32::from(told_nothing) + 1, payload, false);
        }
        if is_medium && !is_open && session.findings.application().is_none() {
            session.findings.recognise(Application::Rtp, Confidence::Announced);
        }
        session.count_packet(payload, &mut self.counters);
        self.session_octets += session.octets() - before;
        self.learn(FIRST_SESSION, payload);
        if is_open {
            let index = self.free_session();
            self.sessions.swap(FIRST_SESSION as usize, index as usize);
            let entry = self.allocate(Entry::Undecided(index));
            self.sessions[index as usize].entry = entry;
            self.open_sessions.push(index);
            flow.state = entry + FIRST_ENTRY;
            self.bound_session_octets(index);
            return true;
        }
        let Session { packets, findings, .. } = &self.sessions[FIRST_SESSION as usize];
        let (packets, is_recognised) = (*packets, findings.application().is_some());
        flow.state = match self.take_findings(FIRST_SESSION) {
            Some(findings) => self.allocate(Entry::Decided(findings)) + FIRST_ENTRY,
            None => DONE,
        };
        self.close_session(FIRST_SESSION);
        !is_recognised && flow.note_nothing_told(packets.max(u32::from(told_nothing) + 1), payload, false)
    }

    /// Takes what is known of a flow whose packets did not match so far.
    fn take_known(&mut self, flow: &mut FlowInspection) -> Option<Arc<Findings>> {
        let entry = std::mem::replace(&mut flow.state, DONE).checked_sub(FIRST_ENTRY)?;
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
            flow.state = self.allocate(Entry::Decided(findings)) + FIRST_ENTRY;
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
            session.first = payload.endpoint & 1;
        }
        let first = session.first;
        // It could be the first: a datagram, or the first payload of the second side of a connection.
        let is_one_side = !has_start(session, 1 - first);
        let begins_anew = payload.tcp.is_none() || (is_one_side && payload.endpoint & 1 != first);
        let is_open = session.inspect(payload, flow, self.settings.octets);
        if session.first != first {
            flow.silent |= 1 << first;
            session.streams[first].end();
        }
        session.count_packet(payload, &mut self.counters);
        self.session_octets += session.octets() - before;
        self.learn(index, payload);
        self.bound_session_octets(index);
        if is_open {
            return true;
        }
        let Session { packets, findings, .. } = &self.sessions[index as usize];
        let (packets, is_recognised) = (*packets, findings.application().is_some());
        self.end_session(index);
        if matches!(self.entries.get((flow.state - FIRST_ENTRY) as usize), Some(Entry::Nothing)) {
            self.free(flow.state - FIRST_ENTRY);
            flow.state = DONE;
        }
        if is_recognised || payload.is_last {
            return false;
        }
        if !begins_anew {
            return flow.note_nothing_told(packets, payload, !is_one_side);
        }
        // The packets before this one did not match. It may, alone.
        flow.silent |= u8::from(payload.tcp.is_some()) << first;
        flow.told_nothing = packets.saturating_sub(1).clamp(1, u16::MAX.into()) as u16;
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
        match self.entries.get(flow.state.wrapping_sub(FIRST_ENTRY) as usize)? {
            Entry::Decided(findings) => Some(Arc::clone(findings)),
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
                (!findings.is_empty()).then(|| Arc::new(findings))
            }
            Entry::Nothing | Entry::Free(_) => None,
        }
    }

    /// Forgets a flow.
    pub fn end_flow(&mut self, flow: &mut FlowInspection) {
        let state = std::mem::take(flow).state;
        if state < FIRST_ENTRY {
            return;
        }
        let entry = state - FIRST_ENTRY;
        match self.entries.get(entry as usize) {
            Some(&Entry::Undecided(session)) => {
                self.counters.recognised += u64::from(self.sessions[session as usize].findings.application().is_some());
                self.release_session(session);
            }
            Some(Entry::Decided(findings)) => self.findings_octets -= memory_of(findings),
            _ => {}
        }
        self.free(entry);
    }

    /// An idle session. If there is none, the oldest flow is evicted.
    fn free_session(&mut self) -> u32 {
        self.free_sessions.pop().unwrap_or_else(|| {
            if self.sessions.len() as u32 <= self.settings.sessions {
                self.sessions.push(Session::new(self.settings.personal));
                return self.sessions.len() as u32 - 1;
            }
            self.give_up(self.open_sessions.oldest);
            self.free_sessions.pop().expect("a session was given up")
        })
    }

    /// Gives sessions up until the memory of the others is within its limit.
    #[inline]
    fn bound_session_octets(&mut self, except: u32) {
        if self.session_octets > self.settings.session_octets {
            self.give_up_oldest(except);
        }
    }

    #[cold]
    fn give_up_oldest(&mut self, except: u32) {
        let mut index = self.open_sessions.oldest;
        for _ in 0..MAX_GIVEN_UP {
            if self.session_octets <= self.settings.session_octets || index == NONE {
                break;
            }
            let next = self.open_sessions.newer(index);
            if index != except {
                self.give_up(index);
            }
            index = next;
        }
    }

    /// Evicts an open session.
    fn give_up(&mut self, index: u32) {
        self.counters.given_up += 1;
        self.sessions[index as usize].findings.note(Note::Limit);
        self.end_session(index);
    }

    /// Replaces the session of a flow by what it found.
    fn end_session(&mut self, index: u32) {
        let found = self.take_findings(index);
        if let Some(place) = self.entries.get_mut(self.sessions[index as usize].entry as usize) {
            *place = found.map_or(Entry::Nothing, Entry::Decided);
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

    fn take_findings(&mut self, index: u32) -> Option<Arc<Findings>> {
        let Session { findings, is_tcp, ports, .. } = &mut self.sessions[index as usize];
        self.counters.recognised += u64::from(findings.application().is_some());
        self.settings.guess(*is_tcp, *ports, findings);
        let octets = memory_of(findings);
        if octets > 0 && self.findings_octets + octets > self.settings.findings_octets {
            self.counters.facts_left_out += 1;
            findings.clear_facts();
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

/// Memory of the findings of a flow; 0 if they have no extracted fields and are shared.
fn memory_of(findings: &Findings) -> u64 {
    match findings.octets_of_facts() as u64 {
        0 => 0,
        octets => octets + FINDINGS_OCTETS,
    }
}

impl<'a> Payload<'a> {
    /// What the readers of UDP get to see. `first`: the endpoint that sent payload first.
    fn datagram(&self, first: usize) -> Datagram<'a> {
        let [source_port, destination_port] = self.ports;
        Datagram {
            payload: self.octets,
            wire_octets: self.wire_octets,
            from_first: self.endpoint & 1 == first,
            source_port,
            destination_port,
            time_ns: self.time_ns,
        }
    }

    /// Whether it begins with the first octet of its side of a TCP connection, as far as that is known.
    fn is_in_order(&self, flow: &FlowInspection) -> bool {
        let expected = flow.expected(self.endpoint);
        self.tcp.is_some_and(|(sequence, _)| expected.is_none_or(|expected| expected == sequence))
    }

    /// Whether the readers can read it in the packet if it is the first payload of its side.
    fn begins_stream(&self, flow: &FlowInspection) -> bool {
        self.is_in_order(flow) && !self.is_empty(flow)
    }

    /// As a segment of a stream of TCP.
    fn segment(&self) -> Segment<'a> {
        let (sequence, fin) = self.tcp.unwrap_or_default();
        Segment { sequence, octets: self.octets, wire_octets: self.wire_octets, fin }
    }

    /// Whether it has the form of RTP (RFC 3550 section 5.1), and not of RTCP (RFC 5761 section 4).
    fn is_rtp(&self) -> bool {
        let is_rtp = |kind: u8| !(64..=95).contains(&(kind & 0x7f));
        self.tcp.is_none()
            && matches!(self.octets, [0x80..=0xbf, kind, _, _, _, _, _, _, _, _, _, _, ..] if is_rtp(*kind))
    }

    /// Whether it is not yet a payload of the flow.
    fn is_empty(&self, flow: &FlowInspection) -> bool {
        self.octets.is_empty() || self.is_keep_alive(flow)
    }

    /// Whether octets of it were not captured. Nor are there any behind the limit of packets.
    fn is_cut(&self, flow: &FlowInspection) -> bool {
        let is_beyond_limit = self.is_last && self.octets.is_empty();
        self.octets.len() < self.wire_octets as usize && !is_beyond_limit && !self.is_keep_alive(flow)
    }

    /// An octet before the first one is probably a keep-alive: the capture began later than the
    /// connection, and the octet before the next one came again.
    fn is_keep_alive(&self, flow: &FlowInspection) -> bool {
        self.wire_octets == 1 && self.tcp.is_some() && flow.expected(self.endpoint).is_none()
    }
}

impl Session {
    fn new(personal: bool) -> Self {
        Self { findings: Findings::new(personal), ..Self::default() }
    }

    /// Memory of its lists.
    fn octets(&self) -> u64 {
        let streams: usize = self.streams.iter().map(Stream::capacity).sum();
        let quic = self.quic.as_ref().map_or(0, |state| size_of_val(&**state));
        let dtls = self.dtls.as_ref().map_or(0, |state| size_of_val(&**state));
        (streams + self.findings.capacity() + quic + dtls) as u64
    }

    /// Forgets the flow, and keeps at most this much memory in each list.
    fn close(&mut self, kept_octets: usize) {
        (self.is_recognised, self.packets, self.strays) = (false, 0, 0);
        self.streams.iter_mut().for_each(|stream| stream.clear(kept_octets));
        self.findings.clear(kept_octets);
        match &mut self.quic {
            Some(state) if kept_octets > 0 => state.clear(),
            state => *state = None,
        }
        self.dtls = None;
    }

    /// Counts a packet that was shown to the readers, and the flow if it was the one that decided.
    fn count_packet(&mut self, payload: &Payload<'_>, counters: &mut InspectionCounters) {
        self.packets += u32::from(!payload.octets.is_empty());
        if !self.is_recognised && self.findings.application().is_some() {
            self.is_recognised = true;
            let last = counters.recognised_by_packet.len() - 1;
            counters.recognised_by_packet[last.min(self.packets.saturating_sub(1) as usize)] += 1;
        }
    }

    /// Shows a packet to the readers. Returns whether more packets are of use. `limit` is the number
    /// of octets of a stream that are kept.
    fn inspect(&mut self, payload: &Payload<'_>, flow: &FlowInspection, limit: u32) -> bool {
        let endpoint = payload.endpoint & 1;
        match payload.tcp {
            Some(_) if flow.is_silent(endpoint) => {}
            Some(_) if self.streams[endpoint].is_new() && payload.begins_stream(flow) => {
                self.read_in_place(payload, flow, limit);
                if self.candidates != 0 {
                    self.streams[endpoint].add(&payload.segment(), flow.expected(endpoint), limit, &mut self.findings);
                }
            }
            Some((_, fin)) => {
                let stream = &mut self.streams[endpoint];
                let known = stream.contiguous().len();
                stream.add(&payload.segment(), flow.expected(endpoint), limit, &mut self.findings);
                if stream.contiguous().len() > known || fin {
                    // Readers borrow the octets and change the findings.
                    let taken = std::mem::take(&mut self.streams);
                    let (first, second) = (&taken[self.first & 1], &taken[1 - (self.first & 1)]);
                    let ended = [first.has_ended(limit), second.has_ended(limit)];
                    let limited = [first.is_limited(limit), second.is_limited(limit)];
                    let (first, second) = (first.contiguous(), second.contiguous());
                    let streams = Streams { first, second, ended, limited, ..Streams::default() };
                    self.read_streams(streams, payload, flow);
                    self.streams = taken;
                }
            }
            None if payload.octets.is_empty() => {
                if payload.is_cut(flow) {
                    self.findings.note(Note::Gap);
                }
            }
            None => {
                let datagram = payload.datagram(self.first);
                let (mut state, mut dtls) = (self.quic.take(), self.dtls.take());
                let (is_recognised, mut is_stray) = (self.findings.application().is_some(), false);
                self.read(|reader, findings| {
                    let verdict = match DATAGRAM_READERS.get(reader) {
                        Some(_) if reader == DTLS_READER => dtls::read(&mut dtls, &datagram, findings),
                        Some(read) => read(&datagram, findings),
                        None => quic::read(state.get_or_insert_default(), &datagram, findings),
                    };
                    is_stray = is_recognised && verdict == Verdict::No;
                    if is_stray { Verdict::More } else { verdict }
                });
                (self.quic, self.dtls) = (state, dtls);
                self.strays += u32::from(is_stray);
                if self.strays >= UNKNOWN_DATAGRAMS {
                    self.candidates = 0;
                }
                if payload.is_cut(flow) {
                    self.findings.note(Note::Gap);
                }
            }
        }
        self.needs_more(payload)
    }

    /// Shows the first payload of a side to the readers that are left. They read it in the packet: it is
    /// copied only if more octets are needed.
    fn read_in_place(&mut self, payload: &Payload<'_>, flow: &FlowInspection, limit: u32) {
        let octets = &payload.octets[..payload.octets.len().min(limit as usize)];
        let is_cut = payload.is_cut(flow);
        if is_cut {
            self.findings.note(Note::Gap);
        }
        let fin = payload.tcp.is_some_and(|(_, fin)| fin);
        let is_limited = octets.len() == limit as usize;
        let here = (octets, fin || is_cut || is_limited, is_limited);
        let other = std::mem::take(&mut self.streams[1 - (payload.endpoint & 1)]);
        let there = (other.contiguous(), other.has_ended(limit), other.is_limited(limit));
        let [first, second] = if payload.endpoint & 1 == self.first { [here, there] } else { [there, here] };
        let (ended, limited) = ([first.1, second.1], [first.2, second.2]);
        let streams = Streams { first: first.0, second: second.0, ended, limited, ..Streams::default() };
        self.read_streams(streams, payload, flow);
        self.streams[1 - (payload.endpoint & 1)] = other;
        if payload.endpoint & 1 != self.first && self.candidates != 0 && self.findings.application().is_none() {
            self.read_alone(here, payload, flow);
        }
    }

    /// Asks the readers about the first payload of the second side alone. If it proves a protocol, that
    /// side is the first one from now on.
    fn read_alone(
        &mut self,
        (octets, ended, limited): (&[u8], bool, bool),
        payload: &Payload<'_>,
        flow: &FlowInspection,
    ) {
        let known = (self.candidates, self.first);
        self.candidates = octets.first().map_or(0, |first| Candidates::get().of_stream(*first));
        self.first = payload.endpoint & 1;
        let (ended, limited) = ([ended, true], [limited, false]);
        self.read_streams(Streams { first: octets, ended, limited, ..Streams::default() }, payload, flow);
        if self.findings.application().is_none() {
            (self.candidates, self.first) = known;
        }
    }

    /// Whether octets are missing before others.
    fn has_gap(&self) -> bool {
        self.streams.iter().any(Stream::has_gap)
            || self.quic.as_ref().is_some_and(|state| state.has_gap())
            || self.dtls.as_ref().is_some_and(|state| state.has_gap())
    }

    /// Whether packets after this one are of use.
    fn needs_more(&mut self, payload: &Payload<'_>) -> bool {
        if payload.is_last && self.candidates != 0 {
            self.findings.note(Note::Limit);
            if self.has_gap() {
                self.findings.note(Note::Gap);
            }
            return false;
        }
        self.candidates != 0
    }

    /// Asks the readers of TCP that are left, which also get to know ports and client.
    fn read_streams(&mut self, streams: Streams<'_>, payload: &Payload<'_>, flow: &FlowInspection) {
        let [source, destination] = payload.ports;
        let streams = Streams {
            ports: if payload.endpoint & 1 == self.first { [source, destination] } else { [destination, source] },
            first_is_client: flow.client().map(|client| client == self.first),
            ..streams
        };
        self.read(|reader, findings| STREAM_READERS[reader](&streams, findings));
        if streams.ended == [true; 2] && self.candidates != 0 {
            self.candidates = 0;
            if streams.limited.contains(&true) {
                self.findings.note(Note::Limit);
            }
        }
    }

    /// Asks each reader that is left.
    fn read(&mut self, mut read: impl FnMut(usize, &mut Findings) -> Verdict) {
        let mut left = self.candidates;
        while left != 0 {
            let reader = left.trailing_zeros();
            left &= left - 1;
            match read(reader as usize, &mut self.findings) {
                Verdict::No => self.candidates &= !(1 << reader),
                Verdict::More => {}
                Verdict::Recognised => {
                    self.candidates = 1 << reader;
                    return;
                }
                Verdict::Complete => {
                    self.candidates = 0;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
