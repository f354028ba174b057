//! The outputs of the rules: packets that are forwarded, cut to what rules keep of them, and what outputs
//! know about interfaces.

use arrayvec::ArrayVec;
use weir_capture::{Frame, MAX_BURST_FRAMES};
use weir_egress::{Egress, InterfaceReport, ReceivedPackets};
use weir_ledger::ActionCounters;
use weir_packet::{DecodeOptions, Packet, header_octets};
use weir_rules::{Action, Slice};

pub(crate) struct PacketOutputs {
    pub egresses: Vec<Egress>,
    pub decode: DecodeOptions,
    /// What is added to packet times to give the time of the system's clock, which was set since the
    /// source was opened.
    pub clock_offset_ns: i64,
    pub interfaces: FrameInterfaces,
}

impl PacketOutputs {
    pub fn new(egresses: Vec<Egress>) -> Self {
        Self { egresses, decode: DecodeOptions::default(), clock_offset_ns: 0, interfaces: FrameInterfaces::default() }
    }

    /// Describes new interfaces, whose names `names` has. `received` are the packets of the interfaces,
    /// which are recorded if there is only one.
    pub fn describe_interfaces(&mut self, names: &[(u32, String)], received: Option<ReceivedPackets>) {
        let received = received.filter(|_| names.len() == 1);
        let described = std::mem::replace(&mut self.interfaces.described, self.interfaces.seen.len());
        let first = if received.is_some() { 0 } else { described };
        for &number in &self.interfaces.seen[first..] {
            let name = names.iter().find(|(of, _)| *of == number).map_or_else(String::new, |(_, name)| name.clone());
            let report = InterfaceReport { number, name, received };
            self.egresses.iter_mut().for_each(|egress| egress.describe(&report));
        }
    }

    /// An empty batch.
    pub(super) fn batch<'a>(&self) -> Batch<'a> {
        Batch {
            packets: ArrayVec::new(),
            egresses: ArrayVec::new(),
            decode: self.decode,
            clock_offset_ns: self.clock_offset_ns,
        }
    }
}

/// Interfaces of the frames, for the outputs that record them.
#[derive(Default)]
pub(crate) struct FrameInterfaces {
    last: Option<u32>,
    seen: Vec<u32>,
    /// How many of `seen` are described.
    described: usize,
}

impl FrameInterfaces {
    #[inline]
    pub fn note(&mut self, interface: u32) {
        if self.last != Some(interface) {
            self.add(interface);
        }
    }

    #[cold]
    fn add(&mut self, interface: u32) {
        self.last = Some(interface);
        if !self.seen.contains(&interface) {
            self.seen.push(interface);
        }
    }

    /// Whether one is not described yet.
    pub fn has_new(&self) -> bool {
        self.described < self.seen.len()
    }
}

/// Packets that are forwarded, in their order, and the egresses of each.
pub(super) struct Batch<'a> {
    packets: ArrayVec<(Frame<'a>, Option<&'a Packet>), MAX_BURST_FRAMES>,
    egresses: ArrayVec<u32, MAX_BURST_FRAMES>,
    decode: DecodeOptions,
    clock_offset_ns: i64,
}

impl<'a> Batch<'a> {
    /// Adds a packet, which has this number in its flow, from 1.
    pub fn add(
        &mut self,
        (mut frame, packet): (Frame<'a>, Option<&'a Packet>),
        action: &Action,
        number: u32,
        counters: &mut ActionCounters,
    ) {
        let slice = if number > action.slice_after { action.slice } else { Slice::Whole };
        let headers = |packet| header_octets(frame.link_type, frame.bytes, packet, self.decode);
        let kept = match (slice, packet) {
            (Slice::Octets(octets), _) => octets as usize,
            (Slice::Network, Some(packet)) => headers(packet)[0],
            (Slice::Transport, Some(packet)) => headers(packet)[1],
            (Slice::Whole, _) | (_, None) => frame.bytes.len(),
        };
        if kept < frame.bytes.len() {
            frame.bytes = &frame.bytes[..kept];
            counters.cut += 1;
        }
        frame.time_ns = frame.time_ns.saturating_add_signed(self.clock_offset_ns);
        self.packets.push((frame, packet));
        self.egresses.push(action.egresses);
    }

    pub fn send(&self, egresses: &mut [Egress]) {
        let all = self.egresses.iter().fold(0, |all, of| all | of);
        let are_same = self.egresses.iter().all(|&of| of == all);
        for (index, egress) in egresses.iter_mut().enumerate().filter(|(index, _)| all >> index & 1 == 1) {
            if are_same {
                egress.send(&self.packets);
                continue;
            }
            let of_egress = self.packets.iter().zip(&self.egresses).filter(|(_, of)| *of >> index & 1 == 1);
            let packets: ArrayVec<_, MAX_BURST_FRAMES> = of_egress.map(|(packet, _)| *packet).collect();
            egress.send(&packets);
        }
    }
}
