//! Packets of flows, for tables of keys.

use std::collections::HashSet;
use weir_bench::error::Error;
use weir_bench::meter::decode;
use weir_capture::Source;
use weir_flow::KeyOptions;
use weir_packet::{Packet, ipv4_mapped};
use weir_trafficgen::Random;

/// The key of a flow, without VLANs, interfaces and tunnels.
pub const KEY: KeyOptions = KeyOptions { vlan: false, interface: false, tunnel: false, unidirectional: false };

/// A packet of a numbered flow between random addresses.
pub fn numbered(number: u64) -> Packet {
    let mut random = Random::new(number);
    let [source, destination] =
        [random.below(1 << 32), random.below(1 << 32)].map(|address| (address as u32).to_be_bytes());
    Packet {
        source: ipv4_mapped(source),
        destination: ipv4_mapped(destination),
        source_port: number as u16,
        destination_port: 443,
        protocol: 17,
        ip_bytes: 46,
        frame_bytes: 60,
        ttl: 64,
        ..Packet::default()
    }
}

/// Packets of flows in random order.
pub fn shuffled(keys: &[Packet], packets: usize) -> Vec<Packet> {
    let mut random = Random::new(1);
    (0..packets).map(|_| keys[random.below(keys.len() as u64) as usize]).collect()
}

/// The first packet of each flow of a source.
pub fn distinct(source: &mut dyn Source) -> Result<Vec<Packet>, Error> {
    let mut known = HashSet::new();
    let mut packets = Vec::new();
    while let Some(burst) = source.burst()? {
        for frame in &burst {
            let mut packet = Packet::default();
            if !decode(frame, &mut packet) {
                continue;
            }
            let mut ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
            ends.sort_unstable();
            if known.insert((ends, packet.protocol)) {
                packets.push(packet);
            }
        }
    }
    Ok(packets)
}

/// How many hashes fall into each bucket. The highest bits select it, as in the meter.
pub fn counts(hashes: &[u64], buckets: usize) -> Vec<u32> {
    let mut counts = vec![0; buckets];
    hashes.iter().for_each(|&hash| counts[bucket_of(hash, buckets)] += 1);
    counts
}

/// The bucket of a hash.
#[inline(always)]
pub fn bucket_of(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}
