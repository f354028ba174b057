//! The self-test of a device: before its first use it must give the results of the CPU for some
//! thousand fixed packets.

use crate::device::{Device, DeviceError};
use crate::key::HashKey;
use crate::shard::Shard;
use crate::table::ConnectionRecord;
use weir_packet::{Flags, Network, Packet, ipv4_mapped};

const PACKETS: usize = 4096;
const BATCH_SIZE: usize = 1500;

/// Compares the results of a device with those of the CPU.
pub(crate) fn run(device: Box<dyn Device>) -> Result<(), DeviceError> {
    let key = HashKey([0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db]);
    let packets = packets();
    let expected = process(Shard::on_cpu(key, BATCH_SIZE), &packets)?;
    let found = process(Shard::on_device(device, key, BATCH_SIZE)?, &packets)?;
    if found == expected {
        Ok(())
    } else {
        Err(DeviceError::Unusable("the GPU and the CPU give different results in the self-test".into()))
    }
}

fn process(mut shard: Shard, packets: &[Packet]) -> Result<Vec<ConnectionRecord>, DeviceError> {
    let mut done = Vec::new();
    packets.iter().for_each(|packet| shard.enter(packet, &mut done));
    shard.finish(&mut done);
    done.sort_by_key(|record| (record.endpoints, record.first_ns, record.last_ns));
    shard.failure.map_or(Ok(done), Err)
}

/// Segments of every class, many connections, and several connections between the same endpoints.
pub(crate) fn packets() -> Vec<Packet> {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut next = [[0_u32; 2]; 64];
    let mut last_syn = [[0_u32; 2]; 64];
    let mut acknowledged = [[0_u32; 2]; 64];
    let mut packet_of = |number: usize| {
        // The distribution is uneven: some connections have many packets in a batch.
        let connection = below(64).min(below(64)).min(below(64)) as usize;
        let side = below(2) as usize;
        let payload_bytes = match below(6) {
            0 | 1 => 0,
            2 => 1,
            _ => below(1400) as u32,
        };
        let control = control_bits(below(40));
        let back = match below(16) {
            0 | 1 => below(5000) as u32,
            2 => 1,
            _ => 0,
        };
        let ahead = if below(10) == 0 { below(3000) as u32 } else { 0 };
        let mut sequence = next[connection][side].wrapping_sub(back).wrapping_add(ahead);
        if control & Packet::SYN != 0 {
            if below(3) == 0 {
                sequence = last_syn[connection][side];
            }
            last_syn[connection][side] = sequence;
        }
        let end = sequence.wrapping_add(payload_bytes).wrapping_add(u32::from(control & 3 != 0));
        if (end.wrapping_sub(next[connection][side]) as i32) > 0 {
            next[connection][side] = end;
        }
        if below(3) > 0 {
            acknowledged[connection][side] = next[connection][1 - side];
        }
        let ends = [(1, 40_000 + connection as u16), (2, 443)];
        let (network, address) = addresses(connection);
        let ((source, source_port), (destination, destination_port)) = (ends[side], ends[1 - side]);
        Packet {
            source: address(source),
            destination: address(destination),
            source_port,
            destination_port,
            network,
            time_ns: (1 << 60) + number as u64 * 50_000 + below(100_000),
            protocol: 6,
            ttl: 64 - below(20).saturating_sub(18) as u8,
            control,
            flags: Flags(Flags::PORTS | if below(200) == 0 { 0 } else { Flags::TCP }),
            sequence,
            acknowledgment: acknowledged[connection][side],
            payload_bytes,
            identification: below(3) as u32,
            window: below(4) as u16 * 500,
            ..Packet::default()
        }
    };
    let mut packets: Vec<Packet> = (0..PACKETS).map(&mut packet_of).collect();
    // Duplicates, some with another TTL.
    for at in (10..PACKETS).step_by(37) {
        packets[at] = Packet { ttl: packets[at].ttl, time_ns: packets[at].time_ns, ..packets[at - 1 - at % 5] };
    }
    packets.extend(holes());
    packets.extend(duplicates());
    packets
}

/// Control bits of a segment: of one in ten others than those of data.
fn control_bits(choice: u64) -> u16 {
    match choice {
        0 => Packet::SYN,
        1 => Packet::SYN | Packet::ACK,
        2 => Packet::FIN | Packet::ACK,
        3 => Packet::RST,
        _ => Packet::ACK,
    }
}

/// The network of a connection, and the addresses of its hosts.
fn addresses(connection: usize) -> (Network, fn(u8) -> [u8; 16]) {
    match connection % 4 {
        0 => (Network::Ipv6, |host| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]),
        _ => (Network::Ipv4, |host| ipv4_mapped([192, 0, 2, host])),
    }
}

/// A segment between two hosts of 192.0.2.0/24, without payload.
fn segment([source, destination]: [u8; 2], after_ns: u64) -> Packet {
    Packet {
        source: ipv4_mapped([192, 0, 2, source]),
        destination: ipv4_mapped([192, 0, 2, destination]),
        time_ns: (1 << 60) + after_ns,
        protocol: 6,
        control: Packet::ACK,
        flags: Flags(Flags::PORTS | Flags::TCP),
        window: 500,
        ..Packet::default()
    }
}

/// A connection with more holes than are recorded. They are filled just before, at and just after
/// the reordering limit.
fn holes() -> impl Iterator<Item = Packet> {
    const REORDERING_NS: u64 = 3_000_000;
    let segment = |sequence: u64, after_ns: u64| Packet {
        sequence: sequence as u32,
        payload_bytes: 1000,
        ..segment([3, 4], after_ns)
    };
    let every_second = (0..40).map(move |number| segment(2000 * number, 10_000 * number));
    let opened_ns = |number: u64| 10_000 * (number + 1);
    let between =
        (0..39).map(move |number| segment(2000 * number + 1000, opened_ns(number) + REORDERING_NS - 1 + number % 3));
    every_second.chain(between)
}

/// Connections with a duplicate, and another one behind a number of segments, or behind a segment
/// that clears the history.
fn duplicates() -> impl Iterator<Item = Packet> {
    let connection = |(number, (between, clears)): (u16, (u32, u32))| {
        let segment = move |at: u32, sequence: u32| Packet {
            source_port: 40_000 + number,
            sequence,
            payload_bytes: 10,
            identification: at + 1,
            ..segment([5, 6], u64::from(at) * 1000)
        };
        let duplicate = |original: Packet, ttl: u8| Packet { time_ns: original.time_ns + 500_000, ttl, ..original };
        let (first, original) = (segment(0, 0), segment(1, 10));
        let mut packets = vec![first, duplicate(first, 1), original];
        packets.extend((0..between).map(|at| segment(2 + at, 20 + 10 * at)));
        let next = segment(2 + between, 20 + 10 * between);
        let far = |at: u32| Packet { sequence: next.sequence + (1 << 31) + 10 * at, ..segment(3 + between + at, 0) };
        match clears {
            1 => packets.push(Packet { acknowledgment: 1 << 28, ..next }),
            2 => packets.push(Packet { control: Packet::SYN, ..next }),
            3 => packets.extend([far(0), far(1)]),
            4 => packets.push(Packet { flags: Flags(next.flags.0 | Flags::FRAGMENT_FIRST), ..next }),
            _ => {}
        }
        packets.push(duplicate(original, 0));
        packets
    };
    let all = [3, 4, 5, 62, 63, 64, 65].map(|between| (between, 0)).into_iter().chain((1..5).map(|clears| (9, clears)));
    (0..).zip(all).flat_map(connection)
}
