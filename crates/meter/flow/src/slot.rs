//! A slot of the flow cache: three cache lines, of which an ordinary packet touches two.
//!
//! ```text
//! state        flow key, flags, clock times, TTL and control bits of both directions
//! counters[0]  counters of the packets that the low endpoint sent
//! counters[1]  counters of the packets that the high endpoint sent
//! ```
//! Which endpoint is low is fixed per key and otherwise arbitrary ([`crate::key`]).

use crate::compact_counters::CompactCounters;
use crate::key::{Endpoint, Key, KeyExtension};
use crate::{Approximate, Direction, FlowRecord, FlowTuple};
use bytemuck::Zeroable;
use weir_packet::{Network, Packet};

pub(crate) const TCP: u8 = 6;

#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(crate) struct FlowSlot {
    pub state: FlowKeyState,
    pub counters: [CompactCounters; 2],
}

#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct FlowKeyState {
    /// The addresses, as in [`Key`].
    pub addresses: [u64; 4],
    /// As in [`Key`], with [`SlotFlags`] in bits 8 to 23, and [`INSPECTED`]. 0 in a free slot.
    ports_protocol_flags: u64,
    /// Clock time of the record's first packet; between two records, of the previous one's.
    pub record_began_ns: u64,
    /// Clock time at which the idle timeout starts: that of the last packet; for a closing
    /// connection that of its end; between two records the active timeout of the previous one.
    pub idle_since_ns: u64,
    /// Per endpoint: TCP control bits of all packets; of ICMP, which has none, type and code.
    pub control: [u16; 2],
    /// Per endpoint: the smallest TTL and, from bit 8 on, the largest.
    pub ttl: [u16; 2],
}

const _: () = assert!(size_of::<FlowSlot>() == 3 * 64);

/// State of a flow and its record in single bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(transparent)]
pub(crate) struct SlotFlags(pub u16);

const FLAGS_SHIFT: u32 = 8;
const FLAGS_MASK: u64 = 0xffff << FLAGS_SHIFT;
/// No packet of the flow has to be inspected any more. It is the highest bit of the octet that holds
/// the network.
const INSPECTED: u64 = 1 << 31;
/// Bits that are not of the key.
const STATE_MASK: u64 = FLAGS_MASK | INSPECTED;

impl SlotFlags {
    /// The TCP connection ended by FIN or RST; late packets still belong to the record.
    pub const CLOSING: u16 = 1;
    /// The flow is between two records, after an active timeout.
    pub const BETWEEN_RECORDS: u16 = 1 << 1;
    /// Position of the bit for the endpoint that is the initiator.
    pub const INITIATOR_SHIFT: u32 = 2;
    /// The initiator is final: a SYN was seen, or this is not the flow's first record.
    pub const INITIATOR_FINAL: u16 = 1 << 3;
    /// Position of two bits, one per endpoint: a FIN was seen in this flow.
    pub const FIN_SHIFT: u32 = 4;
    /// Position of two bits, one per endpoint: a packet was seen in this flow.
    pub const SEEN_SHIFT: u32 = 6;
    /// The encapsulation table has an entry of the record.
    pub const ENCAPSULATED: u16 = 1 << 8;
    /// The encapsulation table has tunnels of the record.
    pub const TUNNELLED: u16 = 1 << 9;
    /// At least one direction has full counters.
    pub const FULL_COUNTERS: u16 = 1 << 10;
    /// Position of bits 1 to 5 of [`Approximate`]; a slot does not keep the others.
    const APPROXIMATE_SHIFT: u32 = 11;

    /// Flags of a flow whose packets need more than [`CompactCounters`] and take the slow path.
    pub const SLOW_PATH: u16 = Self::CLOSING | Self::BETWEEN_RECORDS | Self::ENCAPSULATED | Self::FULL_COUNTERS;
    /// Flags that stay when the next record of the flow starts.
    const OF_FLOW: u16 = 1 << Self::INITIATOR_SHIFT | 3 << Self::FIN_SHIFT | 3 << Self::SEEN_SHIFT;

    /// Whether any of these flags is set.
    #[inline(always)]
    pub fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    /// Whether the slot has a record that is neither ended nor closing.
    pub fn has_unfinished_record(self) -> bool {
        !self.has(Self::CLOSING | Self::BETWEEN_RECORDS)
    }

    /// The flags of the flow without those of its last record.
    pub fn of_flow(self) -> Self {
        Self(self.0 & Self::OF_FLOW | Self::INITIATOR_FINAL)
    }

    pub fn approximate(self) -> u16 {
        (self.0 >> Self::APPROXIMATE_SHIFT) * 2
    }

    #[inline(always)]
    pub fn add_approximate(&mut self, approximate: u16) {
        self.0 |= (approximate / 2) << Self::APPROXIMATE_SHIFT;
    }
}

impl FlowKeyState {
    /// State of a flow whose first packet comes from `endpoint` now.
    pub fn new(key: &Key, endpoint: Endpoint, now_ns: u64) -> Self {
        Self {
            addresses: key.addresses,
            ports_protocol_flags: key.ports_and_protocol
                | (endpoint as u64) << (FLAGS_SHIFT + SlotFlags::INITIATOR_SHIFT),
            record_began_ns: now_ns,
            idle_since_ns: now_ns,
            control: [0; 2],
            ttl: [0; 2],
        }
    }

    /// As [`FlowKeyState::matches`]; also false if packets of the flow take the slow path.
    #[inline(always)]
    pub fn matches_fast(&self, key: &Key) -> bool {
        self.matches_under(key, !STATE_MASK | (SlotFlags::SLOW_PATH as u64) << FLAGS_SHIFT)
    }

    /// Whether the flow has this key. Does not compare the extension.
    pub fn matches(&self, key: &Key) -> bool {
        self.matches_under(key, !STATE_MASK)
    }

    #[inline(always)]
    fn matches_under(&self, key: &Key, mask: u64) -> bool {
        // Word by word: a comparison of arrays as vectors made the meter a third slower.
        let [a, b, c, d] = self.addresses;
        let [e, f, g, h] = key.addresses;
        (self.ports_protocol_flags ^ key.ports_and_protocol) & mask == 0 && b == f && d == h && a == e && c == g
    }

    pub fn key(&self, extension: KeyExtension) -> Key {
        let ports_and_protocol = self.ports_protocol_flags & !STATE_MASK;
        Key { addresses: self.addresses, ports_and_protocol, extension }
    }

    pub fn is_free(&self) -> bool {
        self.ports_protocol_flags == 0
    }

    pub fn set_free(&mut self) {
        self.ports_protocol_flags = 0;
    }

    pub fn address_and_port(&self, endpoint: Endpoint) -> ([u8; 16], u16) {
        let address = [self.addresses[2 * endpoint], self.addresses[2 * endpoint + 1]];
        (bytemuck::must_cast(address), (self.ports_protocol_flags >> (32 + 16 * endpoint)) as u16)
    }

    #[inline(never)]
    pub fn tuple(&self) -> FlowTuple {
        FlowTuple::new([self.address_and_port(0), self.address_and_port(1)], self.protocol(), self.network())
    }

    pub fn protocol(&self) -> u8 {
        self.ports_protocol_flags as u8
    }

    pub fn is_tcp(&self) -> bool {
        self.protocol() == TCP
    }

    pub fn network(&self) -> Network {
        let number = ((self.ports_protocol_flags & !STATE_MASK) >> 24) as u8;
        [Network::Ipv6, Network::Layer2].into_iter().find(|&network| network as u8 == number).unwrap_or(Network::Ipv4)
    }

    /// Whether packets of the flow have to be inspected.
    #[inline(always)]
    pub fn needs_inspection(&self) -> bool {
        self.ports_protocol_flags & INSPECTED == 0
    }

    pub fn end_inspection(&mut self) {
        self.ports_protocol_flags |= INSPECTED;
    }

    #[inline(always)]
    pub fn flags(&self) -> SlotFlags {
        SlotFlags((self.ports_protocol_flags >> FLAGS_SHIFT) as u16)
    }

    #[inline(always)]
    pub fn set_flags(&mut self, flags: SlotFlags) {
        self.ports_protocol_flags = self.ports_protocol_flags & !FLAGS_MASK | u64::from(flags.0) << FLAGS_SHIFT;
    }

    #[inline(always)]
    pub fn add_flags(&mut self, flags: u16) {
        self.ports_protocol_flags |= u64::from(flags) << FLAGS_SHIFT;
    }

    /// Whether both endpoints sent packets, or one sent a TCP acknowledgment.
    pub fn is_answered(&self) -> bool {
        let acknowledged = self.is_tcp() && (self.control[0] | self.control[1]) & Packet::ACK != 0;
        self.flags().0 >> SlotFlags::SEEN_SHIFT & 3 == 3 || acknowledged
    }

    /// Adds TTL and control bits of a packet. `first`: its direction had none in this record.
    #[inline(always)]
    pub fn add_headers(&mut self, endpoint: Endpoint, first: bool, packet: &Packet) {
        let ttl = u16::from(packet.ttl) * 0x101;
        if first {
            self.control[endpoint] = packet.control | u16::from_ne_bytes(packet.icmp());
            self.ttl[endpoint] = ttl;
            return;
        }
        self.control[endpoint] |= packet.control;
        // Mostly equal: the packets of a direction mostly take the same route.
        if self.ttl[endpoint] != ttl {
            let [min, max] = self.ttl[endpoint].to_le_bytes();
            self.ttl[endpoint] = u16::from_le_bytes([min.min(packet.ttl), max.max(packet.ttl)]);
        }
    }

    /// Writes key and approximation of a record. Returns its initiator, which is the source.
    #[inline(always)]
    pub fn write_key(&self, record: &mut FlowRecord) -> Endpoint {
        let initiator = Endpoint::from(self.flags().has(1 << SlotFlags::INITIATOR_SHIFT));
        (record.source, record.source_port) = self.address_and_port(initiator);
        (record.destination, record.destination_port) = self.address_and_port(1 - initiator);
        record.protocol = self.protocol();
        record.network = self.network();
        record.approximate = Approximate(self.flags().approximate());
        initiator
    }

    #[inline(always)]
    pub fn write_headers(&self, endpoint: Endpoint, direction: &mut Direction) {
        [direction.ttl_min, direction.ttl_max] = self.ttl[endpoint].to_le_bytes();
        if self.is_tcp() {
            direction.tcp_flags = self.control[endpoint] & Packet::CONTROL;
        } else {
            direction.icmp = self.control[endpoint].to_ne_bytes();
        }
    }
}

impl FlowSlot {
    pub const STATE_LINE: usize = 0;

    /// Cache line of the counters of the packets that `endpoint` sent.
    #[inline(always)]
    pub fn counters_line(endpoint: Endpoint) -> usize {
        1 + endpoint
    }

    /// A flow whose first packet comes from `endpoint` now. The caller counts that packet.
    pub fn new(key: &Key, endpoint: Endpoint, now_ns: u64) -> Self {
        Self { state: FlowKeyState::new(key, endpoint, now_ns), counters: Zeroable::zeroed() }
    }

    pub fn start_next_record(&mut self, now_ns: u64) {
        self.state.set_flags(self.state.flags().of_flow());
        self.state.record_began_ns = now_ns;
        self.state.control = [0; 2];
        self.counters = Zeroable::zeroed();
    }

    /// Counts a packet. Returns false and changes nothing if it needs full counters.
    #[inline(always)]
    pub fn add(&mut self, endpoint: Endpoint, packet: &Packet) -> bool {
        match self.counters[endpoint].fast_iat_ns(packet) {
            Some(iat_ns) => {
                self.add_fast(endpoint, iat_ns, packet);
                true
            }
            None => self.add_slow(endpoint, packet),
        }
    }

    /// Counts a packet with an inter-arrival time of `iat_ns`:
    /// [`CompactCounters::fast_iat_ns`].
    #[inline(always)]
    pub fn add_fast(&mut self, endpoint: Endpoint, iat_ns: u64, packet: &Packet) {
        // The counters come last: they need all registers.
        self.state.add_headers(endpoint, false, packet);
        self.counters[endpoint].add_fast(iat_ns, packet);
    }

    #[inline(never)]
    fn add_slow(&mut self, endpoint: Endpoint, packet: &Packet) -> bool {
        let counters = &mut self.counters[endpoint];
        let first = counters.packets() == 0;
        let fits = if first { counters.start(packet) } else { counters.add_slow(packet) };
        if fits {
            self.state.add_flags(1 << (SlotFlags::SEEN_SHIFT + endpoint as u32));
            self.state.add_headers(endpoint, first, packet);
        }
        fits
    }
}
