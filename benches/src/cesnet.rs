//! CESNET's Table I: twelve combinations of packet size and flow count.

use weir_bench::ceiling::{Decoded, Null, Roofline};
use weir_bench::error::Error;
use weir_bench::frames::Frames;
use weir_bench::load::{DecodedPackets, WithFacts, config, own_frames};
use weir_bench::measure::{Bench, Group, Run};
use weir_bench::meter::{Fused, Metering, decode};
use weir_bench::report::{DECODED, NULL, ROOFLINE, Table};
use weir_packet::Packet;
use weir_trafficgen::CESNET_RATES;

/// Flow counts of the table.
const FLOWS: [usize; 3] = [128, 16_384, 131_072];

/// CESNET's Table I (Velan and Pus, 2015): twelve combinations of packet size and flow count.
/// Frames are whole, trimmed to 64 octets, or decoded before (their Unified Header).
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load =
        "CESNET's loads: UDP over IPv4, one direction, random order, from memory. Parsed: the decoder is not timed";
    let mut table = Table::new("table1", "Packet sizes and flow counts of CESNET's Table I", "octets x flows", load);
    table.logarithmic = false;
    for ((size, packets_per_second, _), flows) in
        CESNET_RATES.into_iter().flat_map(|row| FLOWS.map(|flows| (row, flows)))
    {
        let size = size as usize;
        let specification = format!("velan,size={size},flows={flows}");
        let packets = bench.size(4_000_000, 20_000);
        if !bench.fits(packets * (size + 12 + 76 + 128), &format!("{size} x {flows}"), &mut table) {
            continue;
        }
        let mut whole = Frames::new(&specification, packets)?;
        let trimmed = Frames::new(&format!("{specification},snap=60"), packets)?;
        let decoded = |frame| {
            let mut packet = Packet::default();
            decode(&frame, &mut packet).then_some(packet)
        };
        let parsed = DecodedPackets { packets: whole.iter().filter_map(decoded).collect(), span_ns: whole.span_ns };
        let config = config(flows);
        // The number of CESNET's 10 Gbit/s ports that a core would serve.
        let ports = |_: &Frames, run: &mut Run| {
            let pps = run.packets as f64 / run.seconds;
            run.facts = vec![("10G ports", pps / packets_per_second as f64)];
        };
        let group = Group::new(format!("{size} x {flows}"), 0.0)
            .case(NULL, Null)
            .case(ROOFLINE, Roofline::new(flows)?)
            .case(DECODED, Decoded::new(flows)?)
            .case("weir, whole", WithFacts(Fused::new(config)?, ports))
            .case("weir, trimmed", WithFacts(own_frames(trimmed, Fused::new(config)?), ports))
            .case("weir, parsed", WithFacts(parsed.case(Metering::new(config)?), ports));
        group.measure(bench, &mut table, &mut whole, Frames::next_round)?;
    }
    Ok(table)
}
