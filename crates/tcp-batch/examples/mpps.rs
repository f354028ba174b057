//! Measures the packets per second of the engine, with packets made in memory beforehand.
//!
//! usage: mpps [auto|cpu|gpu] [PACKETS] [CONNECTIONS] [BATCH_SIZE]

use std::time::Instant;
use weir_packet::{Flags, Packet, ipv4_mapped};
use weir_tcp_batch::{Backend, Engine, EngineOptions};

/// In the first round connections start and memory is new.
const ROUNDS: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next().as_deref() {
        None | Some("auto") => Backend::Auto,
        Some("cpu") => Backend::Cpu,
        Some("gpu") => Backend::Gpu,
        Some(other) => return Err(format!("{other}: auto, cpu or gpu").into()),
    };
    let mut number = |otherwise: usize| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let (packets, connections) = (number(1_000_000)?, number(100_000)?);
    let options =
        EngineOptions { backend, batch_size: number(EngineOptions::default().batch_size)?, ..EngineOptions::default() };

    let packets_of_all = load(ROUNDS * packets, connections);
    let mut engine = Engine::open(options)?;
    let fallback = engine.counters().fallback.map_or(String::new(), |fallback| format!(" ({fallback})"));
    println!("{}{fallback}", engine.name());
    for (round, load) in packets_of_all.chunks(packets).enumerate() {
        let mut done = Vec::new();
        let begin = Instant::now();
        engine.enter(load, &mut done);
        let seconds = begin.elapsed().as_secs_f64();
        println!("round {round}: {:.1} Mpps, {} connections done", packets as f64 / seconds / 1e6, done.len());
    }
    let mut done = Vec::new();
    let begin = Instant::now();
    let counters = engine.finish(&mut done);
    println!("finish: {:.1} ms, {} connections, {counters:?}", begin.elapsed().as_secs_f64() * 1e3, done.len());
    Ok(())
}

/// Segments of 1000 octets and acknowledgments of connections in random order; one segment of 50 is
/// retransmitted.
fn load(packets: usize, connections: usize) -> Vec<Packet> {
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut sent = vec![[0_u32; 2]; connections];
    let packet = |number: usize| {
        let connection = below(connections);
        let side = usize::from(below(3) == 0);
        let payload_bytes = if side == 0 { 1000 } else { 0 };
        let client = ipv4_mapped((0x0a00_0000_u32 + connection as u32 / 16).to_be_bytes());
        let ends = [(client, 40_000 + connection as u16 % 16), (ipv4_mapped([192, 0, 2, 1]), 443)];
        let ((source, source_port), (destination, destination_port)) = (ends[side], ends[1 - side]);
        let repeated = if payload_bytes > 0 && below(50) == 0 { 1000 } else { 0 };
        let sequence = sent[connection][side].wrapping_sub(repeated);
        sent[connection][side] = sequence.wrapping_add(payload_bytes);
        Packet {
            source,
            destination,
            source_port,
            destination_port,
            time_ns: (1 << 60) + number as u64 * 100,
            protocol: 6,
            ttl: 64,
            control: Packet::ACK,
            flags: Flags(Flags::PORTS | Flags::TCP),
            sequence,
            acknowledgment: sent[connection][1 - side],
            payload_bytes,
            identification: number as u32 & 0xffff,
            window: 500,
            ..Packet::default()
        }
    };
    (0..packets).map(packet).collect()
}
