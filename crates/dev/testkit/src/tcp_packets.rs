//! Random packets of a TCP connection: mostly plausible, with every kind of anomaly.

use crate::input::{Input, pick};
use proptest::prelude::*;
use weir_packet::{Flags, Network, Packet};

/// How to make the next packet.
#[derive(Clone, Debug)]
pub struct Step {
    side: usize,
    from: From,
    offset: i64,
    payload: u32,
    control: u16,
    acknowledges: Acknowledges,
    window: u16,
    identification: u32,
    checksum: u8,
    ttl: u8,
    /// Time since the packet before, ns.
    pub after_ns: i64,
    kind: u8,
    /// Distance of a late duplicate to its original, packets.
    distance: usize,
    fast: bool,
    next_record: bool,
}

/// What the sequence number is relative to.
#[derive(Clone, Copy, Debug)]
enum From {
    Next,
    Base,
    Last,
}

#[derive(Clone, Copy, Debug)]
enum Acknowledges {
    All,
    Less(u32),
    Any(u32),
}

/// Control bits, mostly those of data.
fn control_bits() -> impl Strategy<Value = u16> {
    prop_oneof![
        30 => Just(Packet::ACK),
        3 => Just(Packet::ACK | 8),
        2 => Just(Packet::SYN),
        2 => Just(Packet::SYN | Packet::ACK),
        3 => Just(Packet::FIN | Packet::ACK),
        1 => Just(Packet::RST),
        1 => Just(Packet::RST | Packet::ACK),
        1 => Just(0),
        1 => 0..64_u16,
    ]
}

/// Time after the previous segment, ns.
fn time_after() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0..200_000_i64,
        3 => 0..6_000_000_i64,
        1 => 0..3_000_000_000_i64,
        1 => -2_000_000..0_i64,
        1 => prop::sample::select(vec![1 << 34, 1 << 44, -(1 << 44), (1 << 44) - (1 << 20)]),
    ]
}

/// Returns any step.
pub fn step() -> impl Strategy<Value = Step> {
    let near = prop_oneof![6 => Just(0_i64), 4 => -5..6_i64, 2 => -60..60_i64, 1 => 0..5000_i64];
    let edge = prop::sample::select(vec![
        1 << 30,
        (1 << 30) - 1,
        (1 << 30) + 1,
        -(1 << 30),
        1 << 31,
        1 << 29,
        -(1 << 29),
        1 << 28,
        3 << 28,
        -(3 << 28),
    ]);
    let offset = prop_oneof![40 => near, 1 => edge];
    let payload = prop_oneof![
        10 => 0..4_u32,
        10 => 1..40_u32,
        1 => prop::sample::select(vec![1 << 16, (1 << 16) + 1, (1 << 16) + 2, 1 << 30, (1 << 30) - 1, u32::MAX, 1 << 29]),
    ];
    let acknowledges = prop_oneof![
        12 => Just(Acknowledges::All),
        6 => (0..50_u32).prop_map(Acknowledges::Less),
        1 => prop::sample::select(vec![0, 1 << 28, (1 << 28) - 1, 1 << 30, 1 << 31, u32::MAX, 3 << 28]).prop_map(Acknowledges::Any),
    ];
    let window = prop::sample::select(vec![0_u16, 100, 100, 100, 200, 200]);
    let distance = prop_oneof![2 => 1..6_usize, 2 => 1..81_usize, 1 => 63..67_usize];
    let from = prop_oneof![8 => Just(From::Next), 2 => Just(From::Base), 3 => Just(From::Last)];
    (
        (0..2_usize, from, offset, payload, control_bits(), acknowledges, window),
        (
            0..3_u32,
            0..2_u8,
            prop::sample::select(vec![64, 64, 64, 63]),
            time_after(),
            0..30_u8,
            any::<bool>(),
            0..60_u8,
            distance,
        ),
    )
        .prop_map(|((side, from, offset, payload, control, acknowledges, window), more)| {
            let (identification, checksum, ttl, after_ns, kind, fast, record, distance) = more;
            let next_record = record == 0;
            Step {
                side,
                from,
                offset,
                payload,
                control,
                acknowledges,
                window,
                identification,
                checksum,
                ttl,
                after_ns,
                kind,
                distance,
                fast,
                next_record,
            }
        })
}

impl Step {
    /// Cuts a step from the input of a fuzz target.
    pub fn cut(input: &mut Input<'_>) -> Self {
        let [what, payload, control, time, value, other, kind, fields] = input.octets();
        const USUAL: [u16; 5] =
            [Packet::ACK, Packet::ACK, Packet::SYN, Packet::SYN | Packet::ACK, Packet::FIN | Packet::ACK];
        let near = i64::from(i8::from_le_bytes([value]));
        let after_ns = i64::from(time >> 4);
        Self {
            side: usize::from(what & 1),
            from: pick(&[From::Next, From::Next, From::Base, From::Last], what >> 1 & 3),
            // Far: a multiple of a quarter of the sequence space, give or take.
            offset: if what & 0xf8 == 0xf8 { (near << 28) + i64::from(payload % 3) - 1 } else { near / 4 },
            payload: if payload == 0xff { 1 << (other % 32) } else { u32::from(payload) % 40 },
            control: match control {
                0xc0.. => (control & 0x3f).into(),
                0..0xc0 => pick(&USUAL, control),
            },
            acknowledges: match other >> 6 {
                0 | 1 => Acknowledges::All,
                2 => Acknowledges::Less(u32::from(other & 0x3f)),
                _ => Acknowledges::Any(u32::from(other & 0x3f) << 26),
            },
            window: pick(&[0, 100, 100, 200], fields),
            identification: u32::from(fields >> 2) % 3,
            checksum: fields >> 4 & 1,
            ttl: 64 - (fields >> 5 & 1),
            after_ns: match time & 15 {
                0..=7 => after_ns * 10_000,
                8 | 9 => after_ns * 400_000,
                10 | 11 => after_ns * 200_000_000,
                12 => -after_ns * 100_000,
                13 => after_ns << 31,
                14 => after_ns << 44,
                _ => -(after_ns << 44),
            },
            kind: kind % 30,
            distance: usize::from(what >> 3) * 3 + 1,
            fast: fields & 0x40 == 0,
            next_record: fields & 0x80 != 0 && kind >= 0xf0,
        }
    }

    /// The step, but in most cases with a small payload of side 0 behind a small gap.
    fn with_gap(&self) -> Self {
        if self.kind < 2 {
            return self.clone();
        }
        let beyond = if matches!(self.from, From::Next) { 9 } else { 0 };
        Self {
            side: if self.kind < 18 { 0 } else { self.side },
            offset: self.offset % 8 + beyond,
            payload: self.payload % 8,
            control: Packet::ACK,
            acknowledges: Acknowledges::All,
            ..self.clone()
        }
    }
}

/// A packet of a connection.
#[derive(Clone, Copy, Debug)]
pub struct TcpPacket {
    /// The side that sent it, 0 or 1.
    pub side: usize,
    /// The packet, without endpoints.
    pub packet: Packet,
    /// Whether to try the fast path first.
    pub fast: bool,
    /// Whether another record starts before it.
    pub next_record: bool,
}

/// Makes the packets of a connection; `base` are the first sequence numbers.
pub fn packets(base: [u32; 2], steps: &[Step]) -> Vec<TcpPacket> {
    let mut next = base;
    let mut earlier: [Vec<Packet>; 2] = Default::default();
    let mut time_ns = 1_u64 << 50;
    let network = if base[0].is_multiple_of(5) { Network::Ipv6 } else { Network::Ipv4 };
    // Some connections have many gaps, and therefore many holes if their positions do not restart.
    let has_gaps = base[1].is_multiple_of(4);
    // Some are so fast that many segments lie within the time limit of duplicates.
    let is_fast = base[0].is_multiple_of(3);
    let mut all = Vec::new();
    for step in steps {
        time_ns = time_ns.saturating_add_signed(if is_fast { step.after_ns % 100_000 } else { step.after_ns });
        let step = if has_gaps { step.with_gap() } else { step.clone() };
        let side = step.side;
        let from = match step.from {
            From::Next => next[side],
            From::Base => base[side],
            From::Last => earlier[side].last().map_or(base[side], |last| last.sequence),
        };
        let sequence = from.wrapping_add(step.offset as u32);
        let acknowledgment = match step.acknowledges {
            Acknowledges::All => next[1 - side],
            Acknowledges::Less(by) => next[1 - side].wrapping_sub(by),
            Acknowledges::Any(offset) => next[1 - side].wrapping_add(offset),
        };
        let mut packet = Packet {
            time_ns,
            network,
            protocol: 6,
            flags: Flags(match step.kind {
                29 => 0,
                28 if step.distance == 1 => Flags::TCP | Flags::PORTS | Flags::FRAGMENT_FIRST,
                _ => Flags::TCP | Flags::PORTS,
            }),
            sequence,
            acknowledgment,
            payload_bytes: step.payload,
            control: step.control | if step.control & 2 != 0 { u16::from(step.kind % 15) << 12 } else { 0 },
            window: step.window,
            identification: step.identification | if step.control & 2 != 0 { u32::from(step.kind) << 16 } else { 0 },
            icmp_or_checksum: [0, step.checksum],
            ttl: step.ttl,
            ..Packet::default()
        };
        // A duplicate of the last packet or an earlier one.
        let distance = match step.kind {
            20..=22 => 1,
            23..=25 => step.distance,
            _ => 0,
        };
        if let Some(&original) = earlier[side].iter().rev().nth(distance.max(1) - 1)
            && distance > 0
        {
            packet = Packet { time_ns, ttl: step.ttl, ..original };
        }
        earlier[side].push(packet);
        if step.offset.abs() < 6000 && step.payload < 1 << 20 {
            let end =
                packet.sequence.wrapping_add(packet.payload_bytes).wrapping_add(u32::from(packet.control & 3 != 0));
            if (end.wrapping_sub(next[side]) as i32) > 0 {
                next[side] = end;
            }
        }
        all.push(TcpPacket { side, packet, fast: step.fast, next_record: step.next_record });
    }
    all
}
