//! The memory of one flow: three cache lines, of which a packet touches two.
//!
//! ```text
//! head    key, state, times by the clock, what both directions have in a few bits
//! side 0  counts and statistics of what the low endpoint sent
//! side 1  the same of the high endpoint
//! ```
//! A side holds what nearly every flow needs, exactly, in 64 octets. What does not fit (jumbograms, 2^28 packets in one
//! record, times that lie hours apart) is refused here and kept in a full [`Direction`] elsewhere (`wide.rs`).

use crate::key::{Extra, Key, Side};
use crate::{Approximate, Direction, FlowRecord};
use bytemuck::Zeroable;
use std::mem::offset_of;
use weir_packet::{Network, Packet};

/// A flow.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(crate) struct Place {
    pub head: Head,
    pub sides: [Narrow; 2],
}

/// Who the flow is and how it stands.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Head {
    /// As in [`Key`].
    pub addresses: [u64; 4],
    /// As in [`Key`], which leaves 16 bits from bit 8 on: [`Bits`]. 0 in a place that is free.
    rest_and_bits: u64,
    /// The clock at the record's first packet; while waiting, at the first packet of the record before.
    pub began_ns: u64,
    /// The clock at the flow's last packet; while closing, at its end; while waiting, the active deadline.
    pub touched_ns: u64,
    /// Per side: TCP control bits of all packets; for ICMP its type and code (it has no control bits).
    pub control: [u16; 2],
    /// Per side: smallest TTL, and from bit 8 on the largest.
    pub ttl: [u16; 2],
}

/// What a place waits for, and yes-or-no facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(transparent)]
pub(crate) struct Bits(pub u16);

const TCP: u8 = 6;

/// Where [`Bits`] stand in their word.
const BITS: u32 = 8;

impl Bits {
    /// A place of which every packet needs more than [`Narrow`] does.
    pub const ODD: u16 = Self::CLOSING | Self::WAITING | Self::LABELLED | Self::WIDE;
    /// Ended by FIN or RST; takes what comes late.
    pub const CLOSING: u16 = 1;
    /// Between two records of one flow, after the active timeout.
    pub const WAITING: u16 = 1 << 1;
    /// The side that began; shift of one bit.
    pub const INITIATOR: u32 = 2;
    /// Whether the initiator is settled: a SYN was seen, or this is not the flow's first record.
    pub const SETTLED: u16 = 1 << 3;
    /// FIN seen in this flow; shift of one bit per side.
    pub const FINS: u32 = 4;
    /// Packets seen in this flow; shift of one bit per side.
    pub const SEEN: u32 = 6;
    /// The record has an entry in the annex of labels, or in the one of tunnels too.
    pub const LABELLED: u16 = 1 << 8;
    pub const TUNNELLED: u16 = 1 << 9;
    /// One side or both are wide.
    pub const WIDE: u16 = 1 << 10;
    /// [`crate::Approximate`] without its lowest bit (overflow records are elsewhere) and those from the seventh on; shift of five bits.
    pub const APPROXIMATE: u32 = 11;

    /// What belongs to the flow and not to one of its records.
    pub const OF_THE_FLOW: u16 = 1 << Self::INITIATOR | 3 << Self::FINS | 3 << Self::SEEN;

    #[inline(always)]
    pub fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    pub fn approximate(self) -> u16 {
        (self.0 >> Self::APPROXIMATE) * 2
    }

    /// Adds bits of [`crate::Approximate`].
    #[inline(always)]
    pub fn approximate_too(&mut self, approximate: u16) {
        self.0 |= (approximate / 2) << Self::APPROXIMATE;
    }
}

impl Head {
    /// A flow that begins.
    pub fn new(key: &Key, side: usize, clock_ns: u64) -> Self {
        Self {
            addresses: key.addresses,
            rest_and_bits: key.rest | (side as u64) << (BITS + Bits::INITIATOR),
            began_ns: clock_ns,
            touched_ns: clock_ns,
            control: [0; 2],
            ttl: [0; 2],
        }
    }

    /// Whether this is the flow of a key (what else was asked for is elsewhere), and nothing of it is odd.
    #[inline(always)]
    pub fn is_ordinary(&self, key: &Key) -> bool {
        self.equals(key, !(0xffff << BITS) | (Bits::ODD as u64) << BITS)
    }

    /// Whether this is the flow of a key (what else was asked for is elsewhere).
    pub fn is(&self, key: &Key) -> bool {
        self.equals(key, !(0xffff << BITS))
    }

    #[inline(always)]
    fn equals(&self, key: &Key, mask: u64) -> bool {
        // Word by word: as one vector, which is what compilers make of two arrays, it took a third longer in the meter.
        let [a, b, c, d] = self.addresses;
        let [e, f, g, h] = key.addresses;
        (self.rest_and_bits ^ key.rest) & mask == 0 && b == f && d == h && a == e && c == g
    }

    /// The key, but for what else was asked for.
    pub fn key(&self, extra: Extra) -> Key {
        Key { addresses: self.addresses, rest: self.rest_and_bits & !(0xffff << BITS), extra }
    }

    pub fn is_free(&self) -> bool {
        self.rest_and_bits == 0
    }

    /// Forgets the flow.
    pub fn free(&mut self) {
        self.rest_and_bits = 0;
    }

    /// Address and port of one side.
    pub fn endpoint(&self, side: usize) -> ([u8; 16], u16) {
        let address = [self.addresses[2 * side], self.addresses[2 * side + 1]];
        (bytemuck::must_cast(address), (self.rest_and_bits >> (32 + 16 * side)) as u16)
    }

    pub fn protocol(&self) -> u8 {
        self.rest_and_bits as u8
    }

    pub fn network(&self) -> Network {
        let number = (self.rest_and_bits >> 24) as u8;
        [Network::Ipv6, Network::Layer2].into_iter().find(|&network| network as u8 == number).unwrap_or(Network::Ipv4)
    }

    #[inline(always)]
    pub fn bits(&self) -> Bits {
        Bits((self.rest_and_bits >> BITS) as u16)
    }

    #[inline(always)]
    pub fn set_bits(&mut self, bits: Bits) {
        self.rest_and_bits = self.rest_and_bits & !(0xffff << BITS) | u64::from(bits.0) << BITS;
    }

    /// Writes who the flow is and how exact the record. The side that is its source: the one that began.
    #[inline(always)]
    pub fn introduce(&self, flow: &mut FlowRecord) -> Side {
        let initiator = Side::from(self.bits().has(1 << Bits::INITIATOR));
        (flow.source, flow.source_port) = self.endpoint(initiator);
        (flow.destination, flow.destination_port) = self.endpoint(1 - initiator);
        flow.protocol = self.protocol();
        flow.network = self.network();
        flow.approximate = Approximate(self.bits().approximate());
        initiator
    }

    /// Writes what it has of one side into a record: TTL and control bits.
    #[inline(always)]
    pub fn describe(&self, side: Side, direction: &mut Direction) {
        [direction.ttl_min, direction.ttl_max] = self.ttl[side].to_le_bytes();
        if self.protocol() == TCP {
            direction.tcp_flags = self.control[side] & Packet::CONTROL;
        } else {
            direction.icmp = self.control[side].to_ne_bytes();
        }
    }

    /// Packets came from both sides, or one in TCP with ACK.
    pub fn answered(&self) -> bool {
        let acknowledged = self.protocol() == TCP && (self.control[0] | self.control[1]) & Packet::ACK != 0;
        self.bits().0 >> Bits::SEEN & 3 == 3 || acknowledged
    }

    /// Adds bits.
    #[inline(always)]
    pub fn mark(&mut self, bits: u16) {
        self.rest_and_bits |= u64::from(bits) << BITS;
    }

    /// Notes TTL and control bits, of the first packet of a direction or of a later one.
    #[inline(always)]
    pub fn note(&mut self, side: usize, begins: bool, packet: &Packet) {
        let ttl = u16::from(packet.ttl) * 0x101;
        if begins {
            self.control[side] = packet.control | u16::from_ne_bytes(packet.icmp());
            self.ttl[side] = ttl;
            return;
        }
        self.control[side] |= packet.control;
        // Mostly all packets of a direction have come the same way.
        if self.ttl[side] != ttl {
            let [least, most] = self.ttl[side].to_le_bytes();
            self.ttl[side] = u16::from_le_bytes([least.min(packet.ttl), most.max(packet.ttl)]);
        }
    }
}

impl Place {
    /// Enters a packet into the record, or changes nothing and says that it does not fit into [`Narrow`].
    #[inline(always)]
    pub fn add<const FIELDS: u8>(&mut self, side: usize, packet: &Packet) -> bool {
        match self.usual_step(side, packet) {
            Some(gap) => {
                self.add_usual::<FIELDS>(side, gap, packet);
                true
            }
            None => self.add_odd(side, packet),
        }
    }

    /// As [`Narrow::usual_step`].
    #[inline(always)]
    pub fn usual_step(&self, side: usize, packet: &Packet) -> Option<u64> {
        self.sides[side].usual_step(packet)
    }

    /// Enters a packet that comes so much later than the latest one.
    #[inline(always)]
    pub fn add_usual<const FIELDS: u8>(&mut self, side: usize, gap: u64, packet: &Packet) {
        // The statistics come last: they need all registers.
        if FIELDS & crate::HEADERS != 0 {
            self.head.note(side, false, packet);
        }
        self.sides[side].enter::<FIELDS>(gap, packet);
    }

    #[inline(never)]
    fn add_odd(&mut self, side: usize, packet: &Packet) -> bool {
        let narrow = &mut self.sides[side];
        let begins = narrow.packets() == 0;
        let fits = if begins { narrow.begin(packet) } else { narrow.enter_odd(packet) };
        if fits {
            self.head.mark(1 << (Bits::SEEN + side as u32));
            self.head.note(side, begins, packet);
        }
        fits
    }
}

/// Counts and statistics of one direction of one record.
///
/// Gaps (`docs/metering.md` section 6) add up to the time between the earliest and the latest packet, so that their
/// sum needs no room, and the sum of their squares less than 88 bits.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Narrow {
    /// Earliest packet, ns since 1970 UTC.
    first_ns: u64,
    /// From there to the latest, ns: 48 bits, of which 44 are used at a check; below, the largest IP packet, octets.
    span_and_size_max: u64,
    /// IP octets: 48 bits; below, the smallest IP packet.
    bytes_and_size_min: u64,
    /// Sum of squared sizes, octets².
    size_squares: u64,
    /// Octets of frames beyond those of IP packets (negative if lengths lie): 36 bits; below, packets: 28 bits.
    overhead_and_packets: u64,
    /// Sum of squared gaps, ns²: the low 64 bits.
    gap_squares: u64,
    /// Shortest gap, ns: 48 bits, all ones before there is one; below, bits 64 to 79 of the sum of squares.
    gap_min_and_squares: u64,
    /// Longest gap: 48 bits; below, bits 80 to 87 of the sum of squares, and the first packet's type of service.
    gap_max_and_more: u64,
}

const SPAN_BITS: u32 = 44;
const PACKET_BITS: u32 = 28;
const PACKETS: u64 = (1 << PACKET_BITS) - 1;
/// The sum of squared gaps above its low 64 bits has 24 bits.
const SQUARES_ABOVE: u64 = 1 << 24;
/// Every so many packets it is checked that the counters hold as many more: the span so many gaps of less than 2^32 ns,
/// the sum of their squares as many of less than 2^64 ns².
const CHECKED: u64 = 1 << 15;
/// Most octets beyond IP packets in as many packets as are entered unchecked.
const OVERHEAD_MOST: i128 = (1 << 35) - ((CHECKED as i128) << 16);

/// The word of a packet that holds its lengths, and its bits that are set if one of them is 65 536 or more.
const LENGTHS: usize = offset_of!(Packet, ip_bytes) / 8;
const GIANT: u64 = 0xffff_0000_ffff_0000;
const _: () =
    assert!(offset_of!(Packet, ip_bytes) == 8 * LENGTHS && offset_of!(Packet, frame_bytes) == 8 * LENGTHS + 4);

impl Narrow {
    /// No packets.
    pub const NONE: Self = Self {
        first_ns: 0,
        span_and_size_max: 0,
        bytes_and_size_min: 0,
        size_squares: 0,
        overhead_and_packets: 0,
        gap_squares: 0,
        gap_min_and_squares: 0,
        gap_max_and_more: 0,
    };

    #[inline(always)]
    pub fn packets(&self) -> u64 {
        self.overhead_and_packets & PACKETS
    }

    /// Whether it takes such a packet as the first one: no giant.
    pub fn begins_with(packet: &Packet) -> bool {
        packet.ip_bytes >> 16 == 0
    }

    /// Enters the first packet, or changes nothing and says that it does not fit.
    #[inline(always)]
    fn begin(&mut self, packet: &Packet) -> bool {
        if !Self::begins_with(packet) {
            return false;
        }
        let size = u64::from(packet.ip_bytes);
        *self = Self {
            first_ns: packet.time_ns,
            span_and_size_max: size,
            bytes_and_size_min: size << 16 | size,
            size_squares: size * size,
            overhead_and_packets: overhead(packet) << PACKET_BITS | 1,
            gap_squares: 0,
            gap_min_and_squares: !0xffff,
            gap_max_and_more: packet.tos.into(),
        };
        true
    }

    /// How much later than the latest one a packet is, ns, if it is one that [`Narrow::enter`] takes: neither the first packet
    /// nor one at which the counters are checked, none that is older than the latest one or more than 4 s younger, no giant.
    #[inline(always)]
    fn usual_step(&self, packet: &Packet) -> Option<u64> {
        let latest = self.first_ns + (self.span_and_size_max >> 16);
        let gap = packet.time_ns.checked_sub(latest)?;
        let checked = self.overhead_and_packets.is_multiple_of(CHECKED);
        let usual = !checked && gap >> 32 == 0 && packet.words()[LENGTHS] & GIANT == 0;
        usual.then_some(gap)
    }

    /// Enters another packet. `FIELDS` as in [`crate::Meter`].
    #[inline(always)]
    fn enter<const FIELDS: u8>(&mut self, gap: u64, packet: &Packet) {
        let size = u64::from(packet.ip_bytes);
        // What lies below a field in its word stays as it is.
        self.overhead_and_packets = self.overhead_and_packets.wrapping_add((overhead(packet) << PACKET_BITS) + 1);
        self.span_and_size_max += gap << 16;
        self.bytes_and_size_min += size << 16;
        if FIELDS & crate::SIZES != 0 {
            self.size_squares += size * size;
            // Seldom a new extreme, so that a branch takes less than to put both words together.
            if (size as u16) < self.bytes_and_size_min as u16 || size as u16 > self.span_and_size_max as u16 {
                self.note_size(size);
            }
        }
        if FIELDS & crate::GAPS != 0 {
            let (min, max) = (self.gap_min_and_squares, self.gap_max_and_more);
            self.gap_min_and_squares = min.min(gap << 16 | min & 0xffff);
            self.gap_max_and_more = max.max(gap << 16 | max & 0xffff);
            let (squares, carry) = self.gap_squares.overflowing_add(gap * gap);
            self.gap_squares = squares;
            if carry {
                self.carry();
            }
        }
    }

    /// A smallest or largest packet.
    #[inline(never)]
    fn note_size(&mut self, size: u64) {
        let (min, max) = (self.bytes_and_size_min & 0xffff, self.span_and_size_max & 0xffff);
        self.bytes_and_size_min = self.bytes_and_size_min & !0xffff | min.min(size);
        self.span_and_size_max = self.span_and_size_max & !0xffff | max.max(size);
    }

    /// The same for a packet that is out of the ordinary, by way of the full record.
    #[cold]
    #[inline(never)]
    fn enter_odd(&mut self, packet: &Packet) -> bool {
        let mut wide = self.direction();
        crate::record::enter(&mut wide, packet);
        Self::of(&wide).map(|narrow| *self = narrow).is_some()
    }

    /// One more in the sum of squared gaps above its low 64 bits.
    #[cold]
    #[inline(never)]
    fn carry(&mut self) {
        let high = self.squares_above() + 1;
        self.gap_min_and_squares = self.gap_min_and_squares & !0xffff | high & 0xffff;
        self.gap_max_and_more = self.gap_max_and_more & !0xff00 | high >> 16 << 8;
    }

    fn squares_above(&self) -> u64 {
        self.gap_min_and_squares & 0xffff | (self.gap_max_and_more >> 8 & 0xff) << 16
    }

    /// A direction in this form, if its statistics fit and would after [`CHECKED`] more packets.
    fn of(wide: &Direction) -> Option<Self> {
        let span = wide.last_ns - wide.first_ns;
        let overhead = i128::from(wide.frame_bytes) - i128::from(wide.bytes);
        let fits = span >> SPAN_BITS == 0
            && wide.size_max >> 16 == 0
            && wide.packets + CHECKED <= PACKETS
            && wide.iat_squares >> 64 <= (SQUARES_ABOVE - CHECKED).into()
            && (-OVERHEAD_MOST..OVERHEAD_MOST).contains(&overhead);
        let above = (wide.iat_squares >> 64) as u64;
        let gap_min = if wide.packets < 2 { !0xffff } else { wide.iat_min_ns << 16 };
        fits.then(|| Self {
            first_ns: wide.first_ns,
            span_and_size_max: span << 16 | u64::from(wide.size_max),
            bytes_and_size_min: wide.bytes << 16 | u64::from(wide.size_min),
            size_squares: wide.size_squares as u64,
            overhead_and_packets: (overhead as u64) << PACKET_BITS | wide.packets,
            gap_squares: wide.iat_squares as u64,
            gap_min_and_squares: gap_min | above & 0xffff,
            gap_max_and_more: wide.iat_max_ns << 16 | above >> 16 << 8 | u64::from(wide.tos),
        })
    }

    /// The same in full.
    pub fn direction(&self) -> Direction {
        let mut direction = Direction::NONE;
        if self.packets() > 0 {
            self.describe(&mut direction);
        }
        direction
    }

    /// Writes the statistics and the type of service; what else there is of a direction is kept elsewhere.
    #[inline(always)]
    pub fn describe(&self, direction: &mut Direction) {
        let packets = self.packets();
        let bytes = self.bytes_and_size_min >> 16;
        let overhead = self.overhead_and_packets as i64 >> PACKET_BITS;
        direction.packets = packets;
        direction.bytes = bytes;
        direction.frame_bytes = bytes.wrapping_add_signed(overhead);
        direction.first_ns = self.first_ns;
        direction.last_ns = self.first_ns + (self.span_and_size_max >> 16);
        direction.size_min = (self.bytes_and_size_min & 0xffff) as u32;
        direction.size_max = (self.span_and_size_max & 0xffff) as u32;
        direction.size_squares = self.size_squares.into();
        direction.iat_min_ns = if packets < 2 { 0 } else { self.gap_min_and_squares >> 16 };
        direction.iat_max_ns = self.gap_max_and_more >> 16;
        direction.iat_squares = u128::from(self.squares_above()) << 64 | u128::from(self.gap_squares);
        direction.tos = self.gap_max_and_more as u8;
    }
}

/// Octets of the frame that are not of the IP packet, negative (wrapping) if the IP header claims more than there was.
#[inline(always)]
fn overhead(packet: &Packet) -> u64 {
    u64::from(packet.frame_bytes).wrapping_sub(packet.ip_bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is next to happen to a direction: a step of time, a size, octets of the frame beyond it.
    fn step() -> impl Strategy<Value = (i64, u32, i64)> {
        let time = prop_oneof![
            8 => 0..2_000_000_000_i64,
            2 => -3_000_000_000_i64..10_000_000_000,
            1 => -1_000_000..1_000_000_i64,
            1 => prop::sample::select(vec![1 << 32, (1 << 32) - 1, 1 << 43, 1 << 44, -(1 << 44), 1 << 50]),
            1 => prop::sample::select(vec![i64::MIN, i64::MAX]),
        ];
        let size = prop_oneof![8 => 20..1500_u32, 1 => 65_530..65_540_u32, 1 => any::<u32>()];
        let beyond = prop_oneof![8 => 14..60_i64, 1 => -70_000..70_000_i64, 1 => 0..1_i64 << 32];
        (time, size, beyond)
    }

    proptest! {
        /// Whatever is entered as long as it fits is what the full record says, and what is refused changes nothing.
        #[test]
        fn it_is_the_full_record_as_long_as_it_fits(steps in prop::collection::vec(step(), 1..60)) {
            let (mut place, mut wide, mut time_ns) = (Place::zeroed(), Direction::default(), 1_u64 << 60);
            for (time, size, beyond) in steps {
                time_ns = time_ns.saturating_add_signed(time);
                let frame_bytes = (i64::from(size) + beyond).clamp(0, i64::from(u32::MAX)) as u32;
                let packet = Packet { time_ns, ip_bytes: size, frame_bytes, tos: size as u8, ..Packet::default() };
                let before = place.sides[1].direction();
                let fits = place.add::<{ crate::ALL }>(1, &packet);
                let narrow = &place.sides[1];
                if fits {
                    crate::record::enter(&mut wide, &packet);
                    prop_assert_eq!(narrow.direction(), Direction { ttl_min: 0, ttl_max: 0, ..wide });
                } else {
                    prop_assert_eq!(narrow.direction(), before);
                    let mut refused = wide;
                    crate::record::enter(&mut refused, &packet);
                    prop_assert!(Narrow::of(&refused).is_none());
                }
            }
        }
    }

    #[test]
    fn a_time_that_comes_around_is_not_a_short_gap() {
        for first_ns in [u64::MAX, u64::MAX - 5, u64::MAX - (1 << 32)] {
            let (mut place, mut wide) = (Place::zeroed(), Direction::default());
            // At the end of time, and again at its beginning: that lies before all others.
            for time_ns in [first_ns, first_ns, u64::MAX, first_ns + (u64::MAX - first_ns) / 2, 3] {
                let packet = Packet { time_ns, ..Packet::default() };
                if !place.add::<{ crate::ALL }>(0, &packet) {
                    break;
                }
                crate::record::enter(&mut wide, &packet);
            }
            assert_eq!((wide.packets, wide.last_ns), (4, u64::MAX));
            assert_eq!(place.sides[0].direction(), wide, "{first_ns}");
        }
    }

    #[test]
    fn long_gaps_are_refused_before_they_overflow() {
        let (mut place, mut wide) = (Place::zeroed(), Direction::default());
        // The longest ones that are entered without a look at the counters, and as many as there are before the next look.
        for time_ns in (7..).step_by((1 << 32) - 1).take(2 * CHECKED as usize) {
            let packet = Packet { time_ns, ip_bytes: 65_535, frame_bytes: 65_535, ..Packet::default() };
            if !place.add::<{ crate::ALL }>(0, &packet) {
                break;
            }
            crate::record::enter(&mut wide, &packet);
        }
        assert_eq!(wide.packets, CHECKED);
        assert_eq!(place.sides[0].direction(), wide);
    }

    #[test]
    fn the_sum_of_squares_of_gaps_is_refused_before_it_overflows() {
        let room = (1_u128 << 88) - (u128::from(CHECKED - 1) << 64);
        for (squares, fits) in [(room - 1, true), (room, false)] {
            let wide = Direction { packets: 3, iat_squares: squares, ..Direction::default() };
            let narrow = Narrow::of(&wide);
            assert_eq!(narrow.map(|narrow| narrow.direction().iat_squares), fits.then_some(squares));
        }
    }

    #[test]
    fn counters_are_refused_before_they_overflow() {
        let mut place = Place::zeroed();
        let packet = Packet { ip_bytes: 65_535, frame_bytes: 0, ..Packet::default() };
        let mut entered = 0_u64;
        while place.add::<{ crate::ALL }>(1, &packet) {
            entered += 1;
        }
        let direction = place.sides[1].direction();
        assert_eq!((direction.packets, direction.bytes, direction.frame_bytes), (entered, entered * 65_535, 0));
        assert_eq!(direction.size_squares, u128::from(entered) * 65_535 * 65_535);
        // 32 GiB of octets that frames had less than their IP headers said.
        assert!((1 << 34..1_u64 << 35).contains(&(entered * 65_535)), "{entered}");
    }

    /// Enters the same step again and again up to the next check, beside the full record.
    fn both(mut wide: Direction, packet: Packet, step_ns: u64) {
        let mut place = Place { sides: [Narrow::of(&wide).unwrap(), Narrow::NONE], ..Place::zeroed() };
        for number in 1..CHECKED {
            let packet = Packet { time_ns: wide.last_ns + step_ns, ..packet };
            assert!(place.usual_step(0, &packet).is_some() && place.add::<{ crate::ALL }>(0, &packet), "{number}");
            crate::record::enter(&mut wide, &packet);
        }
        assert_eq!(place.sides[0].direction(), Direction { ttl_min: 0, ttl_max: 0, ..wide });
    }

    #[test]
    fn what_fits_has_room_up_to_the_next_check() {
        let start = Direction {
            packets: CHECKED + 1,
            size_max: 1,
            bytes: CHECKED + 1,
            frame_bytes: CHECKED + 1,
            ..Direction::default()
        };
        let usual = Packet { ip_bytes: 1, frame_bytes: 1, ..Packet::default() };
        // The longest span.
        both(Direction { last_ns: (1 << SPAN_BITS) - 1, ..start }, usual, (1 << 32) - 1);
        // Most packets.
        let most = (PACKETS + 1) - 2 * CHECKED + 1;
        both(Direction { packets: most, bytes: most, frame_bytes: most, ..start }, usual, 0);
        let more = Direction { packets: PACKETS + 1 - CHECKED, ..start };
        assert!(Narrow::of(&more).is_none());
        // Most octets of frames, and fewest.
        let edge = OVERHEAD_MOST as u64 - 1;
        both(
            Direction { frame_bytes: start.bytes + edge, ..start },
            Packet { ip_bytes: 0, frame_bytes: 65_535, ..usual },
            0,
        );
        both(Direction { bytes: start.bytes + edge, ..start }, Packet { ip_bytes: 65_535, frame_bytes: 0, ..usual }, 0);
    }

    #[test]
    fn a_giant_frame_is_no_usual_step() {
        let (mut place, mut wide) = (Place::zeroed(), Direction::default());
        let packet = Packet { ip_bytes: 40, frame_bytes: u32::MAX, ..Packet::default() };
        while place.add::<{ crate::ALL }>(0, &packet) {
            crate::record::enter(&mut wide, &packet);
            assert_eq!(place.sides[0].direction().frame_bytes, wide.frame_bytes);
        }
        assert!(wide.packets >= 7);
    }
}
