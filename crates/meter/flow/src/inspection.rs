//! Inspection of the flows in the cache: the state of each slot, and the inspector.

use crate::config::Config;
use crate::key::Endpoint;
use crate::mapped_array::MappedArray;
use crate::second_opinion::SecondOpinion;
use crate::slot::TCP;
use crate::{Direction, FlowRecord};
use std::io;
use std::sync::Arc;
use weir_dpi::{Findings, FlowInspection, InspectionSettings, Inspector, Parties, Payload, Transaction};
use weir_ledger::{InspectionCounters, TransactionCounters};
use weir_packet::{Flags, Network, Packet};

const UDP: u8 = 17;

/// Where a meter finds the payload of the packets of a burst.
pub trait Payloads {
    /// Whether there is any payload.
    const AVAILABLE: bool;

    /// The captured payload of the packet with this index in the burst, and its octets on the wire.
    fn payload(&self, index: usize, packet: &Packet) -> (&[u8], u32);
}

/// No payload: packets that were decoded elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct NoPayloads;

impl Payloads for NoPayloads {
    const AVAILABLE: bool = false;

    fn payload(&self, _: usize, _: &Packet) -> (&[u8], u32) {
        (&[], 0)
    }
}

/// The inspector, if there is one, with the state of each slot.
#[derive(Debug)]
pub(crate) struct Inspection {
    /// Per slot; empty without an inspector.
    pub flows: MappedArray<FlowInspection>,
    inspector: Option<Inspector>,
    /// nDPI, if it inspects too.
    second: Option<SecondOpinion>,
    /// Packets of a direction and record that are inspected; 0 if none are.
    pub packets: u64,
}

impl Inspection {
    pub fn new(config: &Config, slots: usize) -> io::Result<Self> {
        let two_way = !config.key.unidirectional;
        let settings = config.inspection.map(|settings| InspectionSettings { two_way, ..settings });
        let sessions = settings.filter(|_| config.second_opinion).map(|settings| settings.sessions as usize);
        let inspector = settings.map(|settings| Inspector::new(settings, slots));
        Ok(Self {
            flows: MappedArray::with_huge_pages(if inspector.is_some() { slots } else { 0 })?,
            packets: inspector.as_ref().map_or(0, |inspector| inspector.settings().packets.into()),
            inspector,
            second: sessions.map(|sessions| SecondOpinion::new(slots, sessions)).transpose()?,
        })
    }

    pub fn memory_bytes_for(config: &Config, slots: usize) -> usize {
        let Some(settings) = config.inspection else { return 0 };
        let own = slots * size_of::<FlowInspection>() + Inspector::memory_octets_for(&settings, slots) as usize;
        let sessions = settings.sessions as usize;
        own + if config.second_opinion { SecondOpinion::memory_bytes_for(slots, sessions) } else { 0 }
    }

    /// Suspends or resumes it. Flows that begin while it is suspended are not inspected later.
    pub fn set_active(&mut self, active: bool) {
        self.packets = match &mut self.inspector {
            Some(inspector) if active => inspector.settings().packets.into(),
            Some(inspector) => {
                inspector.suspend();
                0
            }
            None => 0,
        };
    }

    /// Whether flows that are first inspected from now on have fingerprints.
    pub fn set_fingerprints(&mut self, fingerprints: bool) {
        if let Some(inspector) = &mut self.inspector {
            inspector.set_fingerprints(fingerprints);
        }
    }

    pub fn counters(&self) -> InspectionCounters {
        self.inspector.as_ref().map_or_else(InspectionCounters::default, |inspector| *inspector.counters())
    }

    /// Inspects a packet of a flow: the one with this number in its direction and record. Returns
    /// whether later packets of the flow have to be inspected.
    pub fn inspect<'a>(
        &mut self,
        slot: u32,
        endpoint: Endpoint,
        packet: &Packet,
        number: u64,
        payload: impl FnOnce() -> (&'a [u8], u32),
    ) -> bool {
        let (Some(inspector), Some(flow)) = (&mut self.inspector, self.flows.get_mut(slot as usize)) else {
            return false;
        };
        let is_last = number >= self.packets;
        // The first fragment of a UDP datagram has the start of the payload. Other fragments are not inspected.
        let is_fragment = packet.flags.has(Flags::FRAGMENT_FIRST);
        if packet.flags.has(Flags::FRAGMENT_LATER) || is_fragment && packet.protocol != UDP {
            return true;
        }
        let (syn, fin) = (packet.control & Packet::SYN, packet.control & Packet::FIN);
        let tcp = match packet.protocol {
            TCP if packet.flags.has(Flags::TCP) => {
                if syn != 0 {
                    let answers = packet.control & Packet::ACK != 0;
                    flow.note_syn(endpoint, packet.sequence, answers.then_some(packet.acknowledgment));
                }
                Some((packet.sequence.wrapping_add(u32::from(syn != 0)), fin != 0))
            }
            // Its header was not captured.
            TCP => return !is_last,
            UDP => None,
            _ => return false,
        };
        // Text that explains a reset is no part of the stream (RFC 1122 section 4.2.2.12).
        let is_reset = packet.protocol == TCP && packet.control & Packet::RST != 0;
        let wire_octets = if is_reset { 0 } else { packet.payload_bytes };
        if wire_octets == 0 && flow.is_counted() {
            return true;
        }
        if wire_octets == 0 && !is_last && fin == 0 && self.second.is_none() {
            return true;
        }
        let is_unread = number > self.packets && !flow.is_counted() || is_reset;
        let (octets, wire_octets) = if is_unread { (&[][..], wire_octets) } else { payload() };
        let wire_octets = if is_fragment { wire_octets.max(octets.len() as u32 + 1) } else { wire_octets };
        let second = self.second.as_mut().is_some_and(|second| second.inspect(slot, packet, octets, is_last));
        if wire_octets == 0 && !is_last && fin == 0 {
            return true;
        }
        // Inspection was suspended while the packets before this one came.
        if number > self.packets && flow.is_fresh() {
            return second;
        }
        let payload = Payload {
            octets,
            wire_octets,
            endpoint,
            ports: [packet.source_port, packet.destination_port],
            addresses: [&packet.source, &packet.destination],
            time_ns: packet.time_ns,
            tcp,
            is_last,
        };
        inspector.set_ipv6(packet.network == Network::Ipv6);
        inspector.inspect(flow, &payload) || second
    }

    /// Appends a record of each transaction that has ended since the last call.
    pub fn take_transactions(&mut self, out: &mut Vec<FlowRecord>) {
        if let Some(inspector) = &mut self.inspector {
            out.extend(inspector.take_transactions().map(record_of));
        }
    }

    pub fn transaction_counters(&self) -> Option<TransactionCounters> {
        self.inspector.as_ref().and_then(Inspector::transaction_counters)
    }

    /// Whether nothing more will be found about a flow but counts of its messages.
    pub fn is_decided(&self, slot: u32) -> bool {
        let (Some(inspector), Some(flow)) = (&self.inspector, self.flows.get(slot as usize)) else { return true };
        inspector.is_decided(flow)
    }

    /// What is known of the flow in a slot when a record of it ends; `goes_on`: another one follows, which
    /// begins to count messages from 0 on.
    pub fn findings_of_record(&mut self, slot: u32, goes_on: bool) -> Option<Arc<Findings>> {
        let flow = self.flows.get(slot as usize)?;
        let inspector = self.inspector.as_mut()?;
        let findings = inspector.findings_of_record(flow, goes_on);
        if goes_on && flow.is_counted() {
            inspector.begin_record(flow);
        }
        match &mut self.second {
            Some(second) => second.added_to(findings, slot, inspector.settings().personal),
            None => findings,
        }
    }

    /// What is known of the flow in a slot.
    pub fn findings(&mut self, slot: u32) -> Option<Arc<Findings>> {
        self.findings_of_record(slot, false)
    }

    /// What is known so far of a flow whose inspection goes on.
    pub fn findings_so_far(&mut self, slot: u32) -> Option<Arc<Findings>> {
        self.inspector.as_mut()?.findings(self.flows.get(slot as usize)?)
    }

    pub fn end_flow(&mut self, slot: u32) {
        if let (Some(inspector), Some(flow)) = (&mut self.inspector, self.flows.get_mut(slot as usize)) {
            inspector.end_flow(flow);
        }
        self.second.iter_mut().for_each(|second| second.end_flow(slot));
    }
}

/// The record of a transaction: as of a flow whose only packets are the question and its answer.
fn record_of(transaction: Transaction) -> FlowRecord {
    let Transaction { parties, time_ns, end_ns, answer_ns, findings } = transaction;
    let Parties { addresses: [source, destination], ports: [source_port, destination_port], .. } = parties;
    let forward = Direction { packets: 1, first_ns: time_ns, last_ns: end_ns, ..Direction::default() };
    let answer = |answer_ns| Direction { packets: 1, first_ns: answer_ns, last_ns: answer_ns, ..Direction::default() };
    FlowRecord {
        source,
        destination,
        source_port,
        destination_port,
        protocol: if parties.is_tcp { TCP } else { UDP },
        network: if parties.is_ipv6 { Network::Ipv6 } else { Network::Ipv4 },
        forward,
        reverse: answer_ns.map_or_else(Direction::default, answer),
        findings: Some(Arc::new(findings)),
        ..FlowRecord::NONE
    }
}
