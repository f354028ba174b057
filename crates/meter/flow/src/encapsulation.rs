//! Encapsulation of the records in the cache: VLAN tags, MPLS labels, tunnels and interface, and on
//! request MAC addresses.
//!
//! The table holds the values of a direction's first packet and compares later packets with them.
//! Records whose packets have none of them and came in on the default interface have no entry:
//! they touch none of this memory. If MAC addresses are requested, every record has an entry.

use crate::key::tunnel_id;
use crate::mapped_array::MappedArray;
use crate::slot::SlotFlags;
use crate::{Approximate, Direction};
use bytemuck::Zeroable;
use std::io;
use std::mem::offset_of;
use weir_packet::{NO_LABEL, NO_VLAN, Packet, TunnelType};

#[derive(Debug)]
pub(crate) struct EncapsulationTable {
    links: MappedArray<LinkEntry>,
    tunnels: MappedArray<[Tunnel; 2]>,
    /// Empty unless MAC addresses are requested.
    macs: MappedArray<MacEntry>,
    /// The interface of the meter's first packet.
    pub default_interface: u32,
    /// Word of label and interface of a packet from that interface without a label. No packet has
    /// it if MAC addresses are requested.
    default_word: u64,
}

#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
struct LinkEntry {
    endpoints: [LinkTags; 2],
    interface: u32,
}

/// The encapsulation of a record on its way to another meter.
#[derive(Debug)]
pub(crate) struct Encapsulation {
    link: LinkEntry,
    tunnels: Option<[Tunnel; 2]>,
    macs: Option<MacEntry>,
}

/// As in [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
#[repr(C)]
struct LinkTags {
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

/// Per endpoint the source and the destination address, 0 if there is none.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
struct MacEntry {
    endpoints: [[[u8; 6]; 2]; 2],
    /// Whether later packets of a direction had others. [`SlotFlags`] has no free bit.
    mixed: u8,
}

impl LinkTags {
    const NONE: Self = Self { vlan: NO_VLAN, inner_vlan: NO_VLAN, mpls: NO_LABEL };

    #[inline(always)]
    fn write_to(self, direction: &mut Direction) {
        (direction.vlan, direction.inner_vlan, direction.mpls_label) = (self.vlan, self.inner_vlan, self.mpls);
    }
}

impl Tunnel {
    #[inline(always)]
    fn write_to(self, direction: &mut Direction) {
        direction.tunnel_type = TunnelType::ALL[usize::from(self.kind)];
        direction.tunnel_id = (self.has_id != 0).then_some(self.id);
        [direction.outer_source, direction.outer_destination] = self.outer;
    }
}

impl Encapsulation {
    pub fn interface(&self) -> u32 {
        self.link.interface
    }

    /// Writes the encapsulation of the packets that `endpoint` sent. Returns bits of
    /// [`Approximate`] that the flags of the slot do not hold.
    pub fn write_to(&self, endpoint: usize, direction: &mut Direction) -> u16 {
        self.link.endpoints[endpoint].write_to(direction);
        if let Some(tunnels) = self.tunnels {
            tunnels[endpoint].write_to(direction);
        }
        let Some(macs) = self.macs else { return 0 };
        [direction.source_mac, direction.destination_mac] = macs.endpoints[endpoint];
        if macs.mixed != 0 { Approximate::MIXED_MAC } else { 0 }
    }
}

/// The word of a packet that holds its MPLS label and its interface.
const LABEL_AND_INTERFACE: usize = offset_of!(Packet, mpls_label) / 8;
const _: () =
    assert!(offset_of!(Packet, mpls_label) % 8 == 0 && offset_of!(Packet, interface) == LABEL_AND_INTERFACE * 8 + 4);

impl EncapsulationTable {
    pub fn new(flows: usize, mac_addresses: bool) -> io::Result<Self> {
        // Few entries are touched: huge pages would be mostly empty.
        Ok(Self {
            links: MappedArray::with_small_pages(flows)?,
            tunnels: MappedArray::with_small_pages(flows)?,
            macs: MappedArray::with_small_pages(if mac_addresses { flows } else { 0 })?,
            default_interface: 0,
            default_word: 0,
        })
    }

    pub fn memory_bytes_for(flows: usize, mac_addresses: bool) -> [usize; 2] {
        let macs = if mac_addresses { size_of::<MacEntry>() } else { 0 };
        [flows * (size_of::<LinkEntry>() + macs), flows * size_of::<[Tunnel; 2]>()]
    }

    pub fn memory_bytes(&self) -> [usize; 2] {
        [self.links.memory_bytes() + self.macs.memory_bytes(), self.tunnels.memory_bytes()]
    }

    pub fn set_default_interface(&mut self, interface: u32) {
        self.default_interface = interface;
        // A label has 20 bits.
        let mpls_label = if self.macs.is_empty() { NO_LABEL } else { NO_LABEL - 1 };
        self.default_word = Packet { mpls_label, interface, ..Packet::default() }.words()[LABEL_AND_INTERFACE];
    }

    /// Whether a packet has no tags, labels or tunnel and came in on the default interface. False if
    /// MAC addresses are requested.
    #[inline(always)]
    pub fn is_default(&self, packet: &Packet) -> bool {
        packet.vlan == NO_VLAN
            && packet.tunnel_type == TunnelType::None
            && packet.words()[LABEL_AND_INTERFACE] == self.default_word
    }

    /// Stores the encapsulation of the first packet of a record (`opens_record`) or direction
    /// (`opens_direction`), else compares. Returns bits of [`Approximate`] for what differs, except
    /// MAC addresses: [`Self::write_to`].
    pub fn add(
        &mut self,
        slot: usize,
        endpoint: usize,
        flags: &mut SlotFlags,
        opens_record: bool,
        opens_direction: bool,
        packet: &Packet,
    ) -> u16 {
        let link = &mut self.links[slot];
        if !flags.has(SlotFlags::ENCAPSULATED) {
            flags.0 |= SlotFlags::ENCAPSULATED;
            *link = LinkEntry { endpoints: [LinkTags::NONE; 2], interface: self.default_interface };
            if let Some(macs) = self.macs.get_mut(slot) {
                *macs = Zeroable::zeroed();
            }
        }
        if opens_record {
            link.interface = packet.interface;
        }
        let mut approximate = 0;
        if link.interface != packet.interface {
            approximate |= Approximate::MIXED_INTERFACE;
        }
        let tags = LinkTags { vlan: packet.vlan, inner_vlan: packet.inner_vlan, mpls: packet.mpls_label };
        let first = &mut link.endpoints[endpoint];
        if opens_direction {
            *first = tags;
        }
        if (first.vlan, first.inner_vlan) != (tags.vlan, tags.inner_vlan) {
            approximate |= Approximate::MIXED_VLAN;
        }
        if first.mpls != tags.mpls {
            approximate |= Approximate::MIXED_MPLS;
        }
        if let Some(MacEntry { endpoints, mixed }) = self.macs.get_mut(slot) {
            if opens_direction {
                endpoints[endpoint] = packet.mac_addresses();
            }
            *mixed |= u8::from(endpoints[endpoint] != packet.mac_addresses());
        }
        if packet.tunnel_type != TunnelType::None || flags.has(SlotFlags::TUNNELLED) {
            approximate |= self.add_tunnel(slot, endpoint, flags, opens_direction, packet);
        }
        approximate
    }

    fn add_tunnel(
        &mut self,
        slot: usize,
        endpoint: usize,
        flags: &mut SlotFlags,
        opens_direction: bool,
        packet: &Packet,
    ) -> u16 {
        let tunnels = &mut self.tunnels[slot];
        if !flags.has(SlotFlags::TUNNELLED) {
            flags.0 |= SlotFlags::TUNNELLED;
            *tunnels = Zeroable::zeroed();
        }
        let id = tunnel_id(packet);
        let tunnel = Tunnel {
            kind: packet.tunnel_type as u8,
            has_id: id.is_some().into(),
            unused: 0,
            id: id.unwrap_or(0),
            outer: packet.outer_addresses(),
        };
        if opens_direction {
            tunnels[endpoint] = tunnel;
        }
        if tunnels[endpoint] == tunnel { 0 } else { Approximate::MIXED_TUNNEL }
    }

    /// As [`Encapsulation::write_to`].
    pub fn write_to(&self, slot: usize, endpoint: usize, flags: SlotFlags, direction: &mut Direction) -> u16 {
        self.copy(slot, flags).map_or(0, |encapsulation| encapsulation.write_to(endpoint, direction))
    }

    pub fn copy(&self, slot: usize, flags: SlotFlags) -> Option<Encapsulation> {
        flags.has(SlotFlags::ENCAPSULATED).then(|| Encapsulation {
            link: self.links[slot],
            tunnels: flags.has(SlotFlags::TUNNELLED).then(|| self.tunnels[slot]),
            macs: self.macs.get(slot).copied(),
        })
    }

    /// Stores the entry of a migrated record. `interface` was the default in the meter it left.
    pub fn insert(&mut self, slot: usize, flags: &mut SlotFlags, encapsulation: Option<Encapsulation>, interface: u32) {
        if let Some(Encapsulation { link, tunnels, macs }) = encapsulation {
            self.links[slot] = link;
            if let (Some(entry), Some(macs)) = (self.macs.get_mut(slot), macs) {
                *entry = macs;
            }
            if let Some(tunnels) = tunnels {
                self.tunnels[slot] = tunnels;
            }
        } else if interface != self.default_interface {
            flags.0 |= SlotFlags::ENCAPSULATED;
            self.links[slot] = LinkEntry { endpoints: [LinkTags::NONE; 2], interface };
        }
    }

    pub fn interface(&self, slot: usize, flags: SlotFlags) -> u32 {
        if flags.has(SlotFlags::ENCAPSULATED) { self.links[slot].interface } else { self.default_interface }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_types_have_the_index_of_their_number() {
        assert!(TunnelType::ALL.iter().enumerate().all(|(number, &kind)| kind as usize == number));
    }
}
