//! The meter alone, to count its instructions: packets of many flows in random order, made as they
//! are needed.
//!
//! usage: meter_packets [FLOWS] [PACKETS] [PROTOCOL], for instance under
//! `valgrind --tool=callgrind --toggle-collect='*meter*Meter*process*'`

use std::time::{Duration, Instant};
use weir_flow::{Config, Meter};
use weir_packet::{Flags, Packet, ipv4_mapped};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let (flows, packets) = (arguments.next().unwrap_or(131_072), arguments.next().unwrap_or(8_000_000));
    let protocol = arguments.next().unwrap_or(17) as u8;
    let flags = if protocol == 6 { Flags(Flags::PORTS | Flags::TCP) } else { Flags(Flags::PORTS) };
    let mut meter = Meter::new(Config { flows: flows.next_power_of_two(), secret: Some(1), ..Config::default() });
    let (mut burst, mut out) = (Vec::with_capacity(64), Vec::new());
    let (mut random, mut first, mut later) = (1_u64, Duration::ZERO, Duration::ZERO);
    for number in 0..packets {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Every flow once at first, so that later packets are in the steady state.
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
            protocol,
            ttl: 64,
            control: if protocol == 6 { Packet::ACK } else { 0 },
            sequence: 1,
            acknowledgment: 1,
            window: 100,
            flags,
            ..Packet::default()
        });
        if burst.len() == 64 {
            let start = Instant::now();
            meter.process(&burst, &mut out);
            *if number < flows { &mut first } else { &mut later } += start.elapsed();
            burst.clear();
        }
    }
    meter.process(&burst, &mut out);
    let live = meter.open_records();
    let ending = Instant::now();
    while meter.drain_up_to(512, &mut out) {
        out.clear();
    }
    let ending = ending.elapsed();
    let per = |time: Duration, count: u32| time.as_nanos() as f64 / f64::from(count);
    println!(
        "{flows} flows, {packets} packets: {:.1} ns per packet of a known flow, {:.1} ns for the first packet of a flow, \
         {:.1} ns to end one; {} records with {} packets; longest chain {}",
        per(later, packets - flows),
        per(first, flows),
        per(ending, flows),
        live.flows,
        live.packets,
        meter.longest_chain(),
    );
}
