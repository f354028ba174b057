//! The cost of packet inspection: the pipeline with and without it, and beside flows that it never
//! decides.

use crate::ceiling::{Decoded, Null};
use crate::conditions::resident_memory_bytes;
use crate::error::{CountMismatch, Error};
use crate::frames::{Chunk, Frames};
use crate::load::{config, warm_up};
use crate::measure::{Bench, Fact, Group, Run, Work};
use crate::meter::{Fused, decode};
use crate::report::{DECODED, NULL, Table};
use weir_dpi::{FlowInspection, InspectionSettings, Inspector, Payload};
use weir_flow::Config;
use weir_packet::Packet;
use weir_text::units::number;

const OFF: &str = "dpi off";
const LIGHT: &str = "dpi light";
const FULL: &str = "dpi full";
const IDLE_TIMEOUT_NS: u64 = 10_000_000_000;
/// Until flows have ended for two seconds.
const WARM_UP_NS: u64 = IDLE_TIMEOUT_NS + 2_000_000_000;
/// Memory of a flow with TCP analysis and inspection, bytes.
const FLOW_BYTES: usize = 800;
/// Packets of the load between two timed parts of it.
const CHUNK: u64 = 4096;

/// Flows of applications, at 10 k, 300 k and 2 M concurrent ones, and of each application alone; flows
/// that stay undecided; and flows of applications beside these.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "synth:apps, whole frames from memory, a tenth of the conversations new every second, idle timeout 10 s. \
                Undecided: synth:apps,undecided=100%. Beside a flood: 4096 packets of undecided flows, which are not \
                timed, between 4096 of the load";
    let mut table = Table::new("dpi", "Packet inspection", "load", load);
    table.logarithmic = false;
    table.against = vec![DECODED, OFF, LIGHT];
    // First, while the memory that other cases have freed does not hide what this one takes.
    table.notes.push(octets_of_undecided_flow(bench)?);
    let counts = [(10_000, 1_500_000), (300_000, 1_500_000), (2_000_000, 600_000)];
    for (flows, packets) in if bench.quick { &[(300, 20_000)][..] } else { &counts } {
        applications(bench, &mut table, [&format!("{flows} flows"), ""], *flows, *packets)?;
    }
    for kind in ["tls12", "tls13", "quic", "http", "dns", "ssh", "unknown"] {
        let (flows, packets) = (bench.size(10_000, 300), bench.size(500_000, 20_000));
        applications(
            bench,
            &mut table,
            [&format!("{flows} flows, all {kind}"), &format!(",{kind}=1")],
            flows,
            packets,
        )?;
    }
    undecided(bench, &mut table)?;
    flood(bench, &mut table)?;
    Ok(table)
}

/// The pipeline without and with inspection.
fn pipelines(config: Config) -> Result<[Fused; 2], Error> {
    let inspection = Some(InspectionSettings::default());
    Ok([Fused::new(Config { inspection: None, ..config })?, Fused::new(Config { inspection, ..config })?])
}

/// The pipeline with nDPI too, if it is built in.
fn with_ndpi(config: Config) -> Result<Option<Fused>, Error> {
    let inspection = Some(InspectionSettings::default());
    let full = weir_flow::ndpi_version().map(|_| Fused::new(Config { inspection, second_opinion: true, ..config }));
    full.transpose()
}

/// Flows of applications, with further settings of their traffic.
fn applications(
    bench: &mut Bench<'_>,
    table: &mut Table,
    [row, settings]: [&str; 2],
    flows: usize,
    packets: usize,
) -> Result<(), Error> {
    // UDP flows stay until they are idle.
    let config = Config { idle_timeout_ns: IDLE_TIMEOUT_NS, ..config(2 * flows) };
    if !bench.fits(2 * config.flows as usize * FLOW_BYTES + 1600 * packets, row, table) {
        return Ok(());
    }
    (bench.say)(&format!("dpi: {row}: warming up until flows end as fast as they begin"));
    let mut frames = Frames::continuing(&format!("apps,flows={flows}{settings}"), packets)?;
    let [mut off, mut light] = pipelines(config)?;
    let mut full = with_ndpi(config)?;
    let mut cases: Vec<&mut dyn Work<Frames>> = vec![&mut off, &mut light];
    cases.extend(full.as_mut().map(|full| full as _));
    warm_up(bench, &mut frames, WARM_UP_NS, &mut cases)?;
    let mut group =
        Group::new(row, 0.0).case(NULL, Null).case(DECODED, Decoded::new(flows)?).case(OFF, off).case(LIGHT, light);
    if let Some(full) = full {
        group = group.case(FULL, full);
    }
    group.measure(bench, table, &mut frames, Frames::next_round)?;
    add_costs(table, row, frames.wire_bytes as f64 / frames.packets as f64);
    Ok(())
}

/// Adds to the figures of a row what inspection costs per flow, and what that means for other traffic.
fn add_costs(table: &mut Table, row: &str, octets: f64) {
    /// Octets of an Ethernet frame on the line that are not in the capture: FCS, preamble, gap.
    const LINE_OCTETS: f64 = 24.0;
    let packets_per_second = 100e9 / 8.0 / (octets + LINE_OCTETS);
    for figure in table.figures.iter_mut().filter(|figure| figure.row == row) {
        let ns = 1e3 / figure.mpps.median;
        let (of_off, inspected) = (figure.of.get(OFF), figure.facts.get("inspected/1000 packets").copied());
        let mut add = |name: &str, value: f64| _ = figure.facts.insert(name.to_owned(), value);
        add("cores at 100 Gbit/s", packets_per_second * ns / 1e9);
        if let (Some(of_off), Some(inspected)) = (of_off, inspected) {
            let (packets, off_ns) = (1e3 / inspected, ns * of_off.median);
            let flow_ns = packets * (ns - off_ns);
            add("packets per inspected flow", packets);
            add("inspected flows/s of run time", 1e9 / ns / packets);
            add("ns per inspected flow", flow_ns);
            add("packets per inspected flow for 95 %", flow_ns / (off_ns * (1.0 / 0.95 - 1.0)));
        }
    }
}

/// Specification of flows that stay undecided.
fn undecided_load(bench: &Bench<'_>) -> String {
    let flows = bench.size(50_000, 500);
    format!("apps,flows={flows},new={},ramp=100ms,undecided=100%", 10 * flows)
}

fn undecided(bench: &mut Bench<'_>, table: &mut Table) -> Result<(), Error> {
    // Twice as many records as begin in the idle timeout.
    let config = Config { idle_timeout_ns: 1_000_000_000, ..config(bench.size(1_000_000, 20_000)) };
    let row = "undecided flows only";
    let packets = bench.size(1_500_000, 20_000);
    if !bench.fits(2 * config.flows as usize * FLOW_BYTES + 1600 * packets, row, table) {
        return Ok(());
    }
    let mut frames = Frames::continuing(&undecided_load(bench), packets)?;
    let [off, light] = pipelines(config)?;
    let group = Group::new(row, 0.0).case(NULL, Null).case(OFF, off).case(LIGHT, light);
    group.measure(bench, table, &mut frames, Frames::next_round)
}

fn flood(bench: &mut Bench<'_>, table: &mut Table) -> Result<(), Error> {
    let flows = bench.size(50_000, 300);
    let packets = bench.size(1_000_000, 20_000);
    let row = format!("{flows} flows, beside a flood");
    // The flows of the flood stay until they are idle.
    let config = Config { idle_timeout_ns: IDLE_TIMEOUT_NS, ..config(bench.size(1_500_000, 20_000)) };
    if !bench.fits(4 * config.flows as usize * FLOW_BYTES + 3 * 1600 * packets, &row, table) {
        return Ok(());
    }
    (bench.say)(&format!("dpi: {row}: warming up until flows end as fast as they begin"));
    let mut frames = Frames::continuing(&format!("apps,flows={flows},seed=2"), packets)?;
    let [mut off, mut light] = pipelines(config)?;
    let beside = |fused| Ok::<_, Error>(Beside { fused, flood: Frames::continuing(&undecided_load(bench), packets)? });
    let [flooded_off, flooded_light] = pipelines(config)?;
    let (mut flooded_off, mut flooded_light) = (beside(flooded_off)?, beside(flooded_light)?);
    warm_up(bench, &mut frames, WARM_UP_NS, &mut [&mut off, &mut light, &mut flooded_off, &mut flooded_light])?;
    let group = Group::new(row, 0.0)
        .case(OFF, off)
        .case(LIGHT, light)
        .case("dpi off, flood", flooded_off)
        .case("dpi light, flood", flooded_light);
    group.measure(bench, table, &mut frames, Frames::next_round)
}

/// A pipeline that gets packets of a flood between those of the load. Only the load is timed.
struct Beside {
    fused: Fused,
    flood: Frames,
}

impl Work<Frames> for Beside {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let (mut load, mut flood) = (frames.iter(), self.flood.iter());
        let (mut seconds, mut done, mut read) = (0.0, 0, [0; 2]);
        while done < frames.packets {
            let time_ns = Some(frames.time_ns(done));
            self.fused.process(Chunk { frames: &mut flood, packets: CHUNK, time_ns, read: &mut read })?;
            let chunk = Chunk { frames: &mut load, packets: CHUNK, time_ns: None, read: &mut read };
            seconds += self.fused.process(chunk)?;
            done += CHUNK;
        }
        self.flood.next_round()?;
        self.fused.add_given(read);
        self.fused.finish_round(frames, seconds)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        Box::new(self.fused).finish()
    }
}

/// Measures the memory of flows that stay undecided, in an inspector of its own, until it is full.
fn octets_of_undecided_flow(bench: &mut Bench<'_>) -> Result<String, Error> {
    const FLOWS: usize = 1 << 20;
    let settings = InspectionSettings::default();
    let frames = Frames::new(&undecided_load(bench), bench.size(400_000, 4_000))?;
    // A value that is not zero, so that the system provides the memory now.
    let mut seen = FlowInspection::default();
    seen.note_syn(0, 0, None);
    let mut flows = vec![seen; FLOWS];
    flows.fill(FlowInspection::default());
    let mut inspector = Inspector::new(settings, FLOWS);
    let before = resident_memory_bytes();
    for frame in frames.iter() {
        let mut packet = Packet::default();
        if !decode(&frame, &mut packet) {
            continue;
        }
        let (octets, wire_octets) = weir_packet::payload(frame.link_type, frame.bytes, &packet, Default::default());
        let [.., a, b, c, d] = packet.source;
        let number = u32::from_be_bytes([a, b, c, d]).wrapping_mul(0x9e37_79b1) ^ u32::from(packet.source_port) << 5;
        let payload = Payload {
            octets,
            wire_octets,
            endpoint: 0,
            ports: [packet.source_port, packet.destination_port],
            addresses: [&packet.source, &packet.destination],
            time_ns: packet.time_ns,
            tcp: Some((packet.sequence, false)),
            is_last: false,
        };
        inspector.inspect(&mut flows[number as usize % FLOWS], &payload);
    }
    let octets = resident_memory_bytes().saturating_sub(before) as f64;
    let counters = *inspector.counters();
    let open = (counters.flows - counters.evicted) as f64;
    let most = Inspector::memory_octets_for(&settings, FLOWS);
    Ok(format!(
        "{} undecided flows: {} were evicted, {} octets for each of the others; an inspector for {FLOWS} flows takes at \
         most {} octets",
        number(counters.flows as f64),
        number(counters.evicted as f64),
        number((octets / open).round()),
        number(most as f64),
    ))
}
