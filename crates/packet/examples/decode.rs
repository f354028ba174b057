//! Measures the decoder alone: frames of one kind are decoded repeatedly from a burst in the cache.
//!
//! usage: decode [KIND] [FRAMES]     KIND: udp4, tcp4, vlan, udp6, tcp6, arp; default: each of them
//!
//! To count instructions, run `valgrind --tool=callgrind` with two values of FRAMES and take the
//! difference.

use std::hint::black_box;
use std::time::Instant;
use weir_packet::{DecodeOptions, Packet, decode};

/// Frames in a burst.
const BURST: usize = 64;
const KINDS: [&str; 6] = ["udp4", "tcp4", "vlan", "udp6", "tcp6", "arp"];

/// The shortest Ethernet frame of a kind, without FCS.
fn frame(kind: &str) -> Vec<u8> {
    let (link, ipv6, tcp): (&[u8], _, _) = match kind {
        "tcp4" => (&[8, 0], false, true),
        "vlan" => (&[0x81, 0, 0, 7, 8, 0], false, false),
        "udp6" => (&[0x86, 0xdd], true, false),
        "tcp6" => (&[0x86, 0xdd], true, true),
        "arp" => (&[8, 6], false, false),
        _ => (&[8, 0], false, false),
    };
    let (protocol, transport_bytes) = if tcp { (6, 32) } else { (17, 18) };
    let ip = if ipv6 {
        let fixed = [0x60, 0, 0, 0, 0, transport_bytes, protocol, 64];
        [&fixed[..], &[0xfd; 16], &[0xfc; 16]].concat()
    } else {
        let fixed = [0x45, 0, 0, 20 + transport_bytes, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        [&fixed[..], &[10, 0, 0, 1, 10, 0, 0, 2]].concat()
    };
    let transport = [&[0x30, 0x39, 0, 53, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0][..], &[0; 16]].concat();
    let mut frame = [&[2; 12], link, &ip, &transport[..transport_bytes.into()]].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only = std::env::args().nth(1);
    let frames: usize = std::env::args().nth(2).map_or(Ok(10_000_000), |frames| frames.parse())?;
    for kind in KINDS.into_iter().filter(|kind| only.as_ref().is_none_or(|only| only == kind)) {
        let burst: Vec<Vec<u8>> = (0..BURST).map(|_| frame(kind)).collect();
        let mut packets = vec![Packet::default(); BURST];
        let began = Instant::now();
        let mut with_anomalies = 0;
        for _ in 0..frames / BURST {
            for (bytes, packet) in black_box(&burst).iter().zip(&mut packets) {
                let decoded = decode(1, bytes, bytes.len() as u32, DecodeOptions::default(), packet);
                with_anomalies += usize::from(decoded.is_ok_and(|anomalies| !anomalies.is_empty()));
            }
            black_box(&mut packets);
        }
        println!(
            "{kind}: {:.2} ns, {with_anomalies} with anomalies",
            began.elapsed().as_nanos() as f64 / frames as f64
        );
    }
    Ok(())
}
