//! nDPI beside our own inspection (`--dpi full`): it sees the first packets of each flow too.
//!
//! In: packets with their payload, from which it makes packets with plain headers, as nDPI wants
//! whole ones. Out: facts of the findings of a record. A flow has nDPI's state until nDPI has
//! decided, or the flow may not be inspected any longer; the number of such flows has a limit.

use crate::mapped_array::MappedArray;
use bytemuck::Zeroable;
use std::io;
use std::sync::Arc;
use weir_dpi::{Fact, Findings};
use weir_ndpi::{Classification, Flow, Library};
use weir_packet::{Flags, Network, Packet};

/// Memory of a module of nDPI 4.2 (11 MB were measured), and of what it allocates for a flow (on
/// average 400 octets).
const MODULE_OCTETS: usize = 16 << 20;
const ALLOCATED_OCTETS: usize = 4 << 10;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// What is known of the flow in a slot.
#[derive(Clone, Copy, Debug, Default, Zeroable)]
#[repr(C)]
struct State {
    classification: Classification,
    /// [`FRESH`], [`DECIDED`], or the number of a session plus [`FIRST_SESSION`].
    session: u64,
}

const FRESH: u64 = 0;
const DECIDED: u64 = 1;
const FIRST_SESSION: u64 = 2;

#[derive(Debug)]
pub(crate) struct SecondOpinion {
    library: Library,
    states: MappedArray<State>,
    /// The slot and nDPI's state of undecided flows.
    sessions: Vec<Option<(u32, Flow)>>,
    free: Vec<u32>,
    max_sessions: usize,
    /// The session that is given up next, if all are in use.
    oldest: usize,
    /// The packet that nDPI is shown.
    packet: Vec<u8>,
}

impl SecondOpinion {
    pub fn new(slots: usize, max_sessions: usize) -> io::Result<Self> {
        Ok(Self {
            library: Library::open().map_err(io::Error::other)?,
            states: MappedArray::with_huge_pages(slots)?,
            sessions: Vec::new(),
            free: Vec::new(),
            max_sessions: max_sessions.max(1),
            oldest: 0,
            packet: Vec::new(),
        })
    }

    pub fn memory_bytes_for(slots: usize, max_sessions: usize) -> usize {
        MODULE_OCTETS + slots * size_of::<State>() + max_sessions * (Library::flow_octets() + ALLOCATED_OCTETS)
    }

    /// Shows a packet of TCP or UDP to nDPI. Returns whether later packets of the flow are of use.
    pub fn inspect(&mut self, slot: u32, packet: &Packet, payload: &[u8], is_last: bool) -> bool {
        let session = match self.states.get(slot as usize).map(|state| state.session) {
            None | Some(DECIDED) => return false,
            Some(FRESH) => match self.begin(slot) {
                Some(session) => session,
                None => return !is_last,
            },
            Some(session) => (session - FIRST_SESSION) as usize,
        };
        let Some(Some((_, flow))) = self.sessions.get_mut(session) else { return false };
        write_packet(packet, payload, &mut self.packet);
        let is_decided = self.library.inspect(flow, &self.packet, packet.time_ns);
        if is_decided || is_last {
            self.end(session);
        }
        !(is_decided || is_last)
    }

    /// The findings with what is known of the flow in a slot.
    pub fn added_to(&mut self, findings: Option<Arc<Findings>>, slot: u32, personal: bool) -> Option<Arc<Findings>> {
        if let Some(state) = self.states.get(slot as usize)
            && state.session >= FIRST_SESSION
        {
            self.end((state.session - FIRST_SESSION) as usize);
        }
        let classification =
            self.states.get(slot as usize).map_or_else(Classification::default, |state| state.classification);
        if classification == Classification::default() {
            return findings;
        }
        let names = self.library.names(&classification);
        let mut all = findings.as_deref().cloned().unwrap_or_else(|| Findings::new(personal));
        for (fact, name) in [
            (Fact::NdpiProtocol, names.protocol.as_str()),
            (Fact::NdpiCategory, &names.category),
            (Fact::NdpiConfidence, names.confidence),
        ] {
            if !name.is_empty() {
                all.set_text(fact, name.as_bytes());
            }
        }
        if !names.risks.is_empty() {
            all.set_list(Fact::NdpiRisks, names.risks.iter().map(|name| name.as_bytes()));
        }
        Some(all.into())
    }

    /// Forgets the flow in a slot.
    pub fn end_flow(&mut self, slot: u32) {
        if let Some(state) = self.states.get_mut(slot as usize) {
            let session = std::mem::take(state).session;
            if session >= FIRST_SESSION {
                self.release((session - FIRST_SESSION) as usize);
            }
        }
    }

    /// A session for the flow in a slot; `None` if memory is missing.
    fn begin(&mut self, slot: u32) -> Option<usize> {
        let flow = self.library.new_flow().ok()?;
        if self.free.is_empty() {
            if self.sessions.len() < self.max_sessions {
                self.free.push(self.sessions.len() as u32);
                self.sessions.push(None);
            } else {
                self.end(self.oldest);
                self.oldest = (self.oldest + 1) % self.sessions.len();
            }
        }
        let session = self.free.pop()? as usize;
        self.sessions[session] = Some((slot, flow));
        self.states[slot as usize].session = session as u64 + FIRST_SESSION;
        Some(session)
    }

    /// Ends a session: what is known now stays.
    fn end(&mut self, session: usize) {
        if let Some((slot, flow)) = self.release(session) {
            let classification = self.library.classify(flow);
            self.states[slot as usize] = State { classification, session: DECIDED };
        }
    }

    fn release(&mut self, session: usize) -> Option<(u32, Flow)> {
        let ended = self.sessions.get_mut(session)?.take()?;
        self.free.push(session as u32);
        Some(ended)
    }
}

/// Writes the packet with an IP header without options, and a TCP or UDP header. Checksums are 0.
fn write_packet(packet: &Packet, payload: &[u8], into: &mut Vec<u8>) {
    let is_tcp = packet.flags.has(Flags::TCP);
    let header = if is_tcp { 20 } else { 8 };
    let ip_header = if packet.network == Network::Ipv4 { IPV4_HEADER } else { IPV6_HEADER };
    let payload = &payload[..payload.len().min(usize::from(u16::MAX) - header - ip_header)];
    let length = (header + payload.len()) as u16;
    into.clear();
    if packet.network == Network::Ipv4 {
        into.extend([0x45, packet.tos]);
        into.extend((length + IPV4_HEADER as u16).to_be_bytes());
        into.extend([0, 0, 0x40, 0, packet.ttl, packet.protocol, 0, 0]);
        into.extend(&packet.source[12..]);
        into.extend(&packet.destination[12..]);
    } else {
        into.extend([0x60, 0, 0, 0]);
        into.extend(length.to_be_bytes());
        into.extend([packet.protocol, packet.ttl]);
        into.extend(packet.source);
        into.extend(packet.destination);
    }
    into.extend(packet.source_port.to_be_bytes());
    into.extend(packet.destination_port.to_be_bytes());
    if is_tcp {
        into.extend(packet.sequence.to_be_bytes());
        into.extend(packet.acknowledgment.to_be_bytes());
        into.extend([0x50, packet.control as u8]);
        into.extend(packet.window.to_be_bytes());
        into.extend([0; 4]);
    } else {
        into.extend(length.to_be_bytes());
        into.extend([0; 2]);
    }
    into.extend(payload);
}
