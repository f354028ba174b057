//! The meter alone, for counting its instructions: packets of many UDP flows in random order, made as they are needed.
//!
//! usage: absorb [FLOWS] [PACKETS], under `valgrind --tool=callgrind --toggle-collect='*Meter*absorb*'` for instance.

use std::time::Instant;
use weir_flow::{Config, Meter};
use weir_packet::{Flags, Packet, ipv4_mapped};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let (flows, packets) = (arguments.next().unwrap_or(131_072), arguments.next().unwrap_or(8_000_000));
    let mut meter = Meter::new(Config { flows: flows.next_power_of_two(), secret: Some(1), ..Config::default() });
    let (mut burst, mut out) = (Vec::with_capacity(64), Vec::new());
    let (mut random, mut opening, mut absorbing) = (1_u64, std::time::Duration::ZERO, std::time::Duration::ZERO);
    for number in 0..packets {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Every flow once at first, so that what is counted later is the steady state.
        let flow = if number < flows { number } else { (((random >> 32) * u64::from(flows)) >> 32) as u32 };
        let ends = [(ipv4_mapped(flow.to_be_bytes()), 4000), (ipv4_mapped([10, 0, 0, 1]), 53)];
        let [(source, source_port), (destination, destination_port)] =
            if random & 1 == 0 { ends } else { [ends[1], ends[0]] };
        burst.push(Packet {
            source,
            destination,
            source_port,
            destination_port,
            time_ns: 1_700_000_000_000_000_000 + u64::from(number) * 67,
            ip_bytes: 46,
            frame_bytes: 60,
            protocol: 17,
            ttl: 64,
            flags: Flags(Flags::PORTS),
            ..Packet::default()
        });
        if burst.len() == 64 {
            let start = Instant::now();
            meter.process(&burst, &mut out);
            *if number < flows { &mut opening } else { &mut absorbing } += start.elapsed();
            burst.clear();
        }
    }
    meter.process(&burst, &mut out);
    let live = meter.live();
    let ending = Instant::now();
    while meter.drain_up_to(512, &mut out) {
        out.clear();
    }
    let ending = ending.elapsed();
    println!(
        "{flows} flows, {packets} packets, {:?}: {:.1} ns per packet once all are known, {:.1} ns for the first of a flow, {:.1} \
         ns to end one; {} records with {} packets; longest search {}",
        meter.instructions(),
        absorbing.as_nanos() as f64 / f64::from(packets - flows),
        opening.as_nanos() as f64 / f64::from(flows),
        ending.as_nanos() as f64 / f64::from(flows),
        live.flows,
        live.packets,
        meter.longest_chain(),
    );
}
