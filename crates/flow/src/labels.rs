//! What packets were inside of: VLAN tags, MPLS labels, tunnels; and interfaces other than the usual one.
//!
//! Most records have nothing of it and most packets of such a record have nothing of it either: these touch none of
//! this memory, and the system gives it none. The first packet of a direction is kept, later ones are compared with it.

use crate::key::tunnel_id;
use crate::memory::Memory;
use crate::place::Bits;
use crate::{Approximate, Direction, PageKind};
use bytemuck::Zeroable;
use std::io;
use std::mem::offset_of;
use weir_packet::{NO_LABEL, NO_VLAN, Packet, TunnelType};

/// Labels and tunnels of all places.
#[derive(Debug)]
pub(crate) struct Annex {
    labels: Memory<Labels>,
    tunnels: Memory<[Tunnel; 2]>,
    /// The interface of the first packet of all.
    usual: u32,
    /// The word of label and interface of a packet without a label from that interface.
    usual_word: u64,
}

#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
struct Labels {
    sides: [Label; 2],
    /// Of the record's first packet.
    interface: u32,
}

/// What the packets of one record were inside of, on its way to another place.
#[derive(Debug)]
pub(crate) struct Inside {
    labels: Labels,
    tunnels: Option<[Tunnel; 2]>,
}

/// As in [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
#[repr(C)]
struct Label {
    vlan: u16,
    inner_vlan: u16,
    mpls: u32,
}

/// As in [`Packet`]; all zero without a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
#[repr(C)]
struct Tunnel {
    /// Number of the [`TunnelType`].
    kind: u8,
    has_id: u8,
    unused: u16,
    id: u32,
    outer: [[u8; 16]; 2],
}

impl Label {
    const NONE: Self = Self { vlan: NO_VLAN, inner_vlan: NO_VLAN, mpls: NO_LABEL };

    #[inline(always)]
    fn describe(self, direction: &mut Direction) {
        (direction.vlan, direction.inner_vlan, direction.mpls_label) = (self.vlan, self.inner_vlan, self.mpls);
    }
}

impl Tunnel {
    #[inline(always)]
    fn describe(self, direction: &mut Direction) {
        direction.tunnel_type = TYPES[usize::from(self.kind)];
        direction.tunnel_id = (self.has_id != 0).then_some(self.id);
        [direction.outer_source, direction.outer_destination] = self.outer;
    }
}

impl Inside {
    /// The interface of the record's first packet.
    pub fn interface(&self) -> u32 {
        self.labels.interface
    }

    /// Puts what one side's first packet was inside of into its record.
    pub fn describe(&self, side: usize, direction: &mut Direction) {
        self.labels.sides[side].describe(direction);
        if let Some(tunnels) = self.tunnels {
            tunnels[side].describe(direction);
        }
    }
}

/// The word of a packet that holds its label and its interface.
const LABEL_AND_INTERFACE: usize = offset_of!(Packet, mpls_label) / 8;
const _: () =
    assert!(offset_of!(Packet, mpls_label) % 8 == 0 && offset_of!(Packet, interface) == LABEL_AND_INTERFACE * 8 + 4);

const TYPES: [TunnelType; 9] = [
    TunnelType::None,
    TunnelType::Gre,
    TunnelType::Ipip,
    TunnelType::SixInFour,
    TunnelType::FourInSix,
    TunnelType::SixInSix,
    TunnelType::Vxlan,
    TunnelType::Geneve,
    TunnelType::Gtpu,
];

impl Annex {
    pub fn new(flows: usize) -> io::Result<Self> {
        // Touched only where there is something: large pages would be mostly empty.
        Ok(Self {
            labels: Memory::new(flows, PageKind::Small)?,
            tunnels: Memory::new(flows, PageKind::Small)?,
            usual: 0,
            usual_word: 0,
        })
    }

    /// Octets that as many take as [`Annex::octets`] says, of labels and of tunnels.
    pub fn octets_for(flows: usize) -> [usize; 2] {
        [flows * size_of::<Labels>(), flows * size_of::<[Tunnel; 2]>()]
    }

    /// Octets taken, if every flow has labels and tunnels; nearly none if none has.
    pub fn octets(&self) -> [usize; 2] {
        [self.labels.octets(), self.tunnels.octets()]
    }

    pub fn set_usual_interface(&mut self, interface: u32) {
        self.usual = interface;
        self.usual_word = Packet { mpls_label: NO_LABEL, interface, ..Packet::default() }.words()[LABEL_AND_INTERFACE];
    }

    /// Whether there is nothing to be kept of a packet.
    #[inline(always)]
    pub fn is_plain(&self, packet: &Packet) -> bool {
        packet.vlan == NO_VLAN
            && packet.tunnel_type == TunnelType::None
            && packet.words()[LABEL_AND_INTERFACE] == self.usual_word
    }

    /// Keeps what a packet was inside of if it is the first of its record (`opens`) or direction (`begins`), else
    /// compares. The bits of [`Approximate`] for what differs.
    pub fn enter(
        &mut self,
        at: usize,
        side: usize,
        bits: &mut Bits,
        opens: bool,
        begins: bool,
        packet: &Packet,
    ) -> u16 {
        let labels = &mut self.labels[at];
        if !bits.has(Bits::LABELLED) {
            bits.0 |= Bits::LABELLED;
            *labels = Labels { sides: [Label::NONE; 2], interface: self.usual };
        }
        if opens {
            labels.interface = packet.interface;
        }
        let mut approximate = 0;
        if labels.interface != packet.interface {
            approximate |= Approximate::MIXED_INTERFACE;
        }
        let label = Label { vlan: packet.vlan, inner_vlan: packet.inner_vlan, mpls: packet.mpls_label };
        let first = &mut labels.sides[side];
        if begins {
            *first = label;
        }
        if (first.vlan, first.inner_vlan) != (label.vlan, label.inner_vlan) {
            approximate |= Approximate::MIXED_VLAN;
        }
        if first.mpls != label.mpls {
            approximate |= Approximate::MIXED_MPLS;
        }
        if packet.tunnel_type != TunnelType::None || bits.has(Bits::TUNNELLED) {
            approximate |= self.enter_tunnel(at, side, bits, begins, packet);
        }
        approximate
    }

    fn enter_tunnel(&mut self, at: usize, side: usize, bits: &mut Bits, begins: bool, packet: &Packet) -> u16 {
        let tunnels = &mut self.tunnels[at];
        if !bits.has(Bits::TUNNELLED) {
            bits.0 |= Bits::TUNNELLED;
            *tunnels = Zeroable::zeroed();
        }
        let id = tunnel_id(packet);
        let tunnel = Tunnel {
            kind: packet.tunnel_type as u8,
            has_id: id.is_some().into(),
            unused: 0,
            id: id.unwrap_or(0),
            outer: [packet.outer_source, packet.outer_destination],
        };
        if begins {
            tunnels[side] = tunnel;
        }
        if tunnels[side] == tunnel { 0 } else { Approximate::MIXED_TUNNEL }
    }

    /// Puts what one side's first packet was inside of into its record.
    pub fn describe(&self, at: usize, side: usize, bits: Bits, direction: &mut Direction) {
        if bits.has(Bits::LABELLED) {
            self.labels[at].sides[side].describe(direction);
        }
        if bits.has(Bits::TUNNELLED) {
            self.tunnels[at][side].describe(direction);
        }
    }

    /// What is kept of the record in a place, if anything.
    pub fn copy(&self, at: usize, bits: Bits) -> Option<Inside> {
        bits.has(Bits::LABELLED)
            .then(|| Inside { labels: self.labels[at], tunnels: bits.has(Bits::TUNNELLED).then(|| self.tunnels[at]) })
    }

    /// Keeps the same of a record that comes into a place, from where `interface` was the usual one.
    pub fn put(&mut self, at: usize, bits: &mut Bits, inside: Option<Inside>, interface: u32) {
        if let Some(Inside { labels, tunnels }) = inside {
            self.labels[at] = labels;
            if let Some(tunnels) = tunnels {
                self.tunnels[at] = tunnels;
            }
        } else if interface != self.usual {
            bits.0 |= Bits::LABELLED;
            self.labels[at] = Labels { sides: [Label::NONE; 2], interface };
        }
    }

    /// The interface of records of which nothing is kept.
    pub fn usual_interface(&self) -> u32 {
        self.usual
    }

    /// The interface of the record's first packet.
    pub fn interface(&self, at: usize, bits: Bits) -> u32 {
        if bits.has(Bits::LABELLED) { self.labels[at].interface } else { self.usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_stand_at_their_numbers() {
        assert!(TYPES.iter().enumerate().all(|(number, &kind)| kind as usize == number));
    }
}
