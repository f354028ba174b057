//! How much machine a link needs, and whether this one has it. Arithmetic, from figures that are named.

use crate::checks;
use crate::cpu_layout::{self, CpuLayout};
use crate::ethernet::line_rate;
use crate::finding::{Finding, Severity};
use crate::lists::count;
use crate::machine::Machine;
use crate::pcie::bus_octets;
use crate::units::{bits, gib, mega};
use serde::Serialize;

/// Octets of the table per flow (docs/performance.md).
const FLOW: u64 = 256;
/// Octets more per TCP flow.
const TCP: u64 = 256;
/// Octets more per direction in which TCP is in trouble.
const TROUBLE: u64 = 1488;
/// Directions in trouble are assumed to be one of so many flows: 10 %.
const FLOWS_PER_TROUBLE: u64 = 10;
/// Octets of the buffer behind each descriptor, and descriptors of a queue.
const BUFFER: u64 = 2048;
const DESCRIPTORS: u64 = 4096;
/// Octets of a record, measured with `synth:mix`: IPFIX, with its share of headers, and CSV.
const IPFIX_RECORD: f64 = 350.0;
const CSV_RECORD: f64 = 560.0;
/// Flows per record and second: the internet mix of docs/performance.md has 300 k flows and 30 k new ones a second.
const FLOWS_PER_RECORD: f64 = 10.0;
const SECONDS_OF_A_DAY: f64 = 86_400.0;

/// What is to be metered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Bits a second.
    pub link_bits_per_second: u64,
    /// Octets of a frame with FCS, on average.
    pub frame_octets: u32,
    /// Packets a second; `None`: as many as the link carries.
    pub packets_per_second: Option<f64>,
    /// Flows at a time.
    pub flows: u64,
    /// Records a second; `None`: a tenth of the flows.
    pub records_per_second: Option<f64>,
    /// Million packets a second that a core takes from a NIC and meters.
    pub mpps_per_core: f64,
}

/// Memory, octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The tables.
    pub flow_bytes: u64,
    /// TCP analysis, if every flow is TCP.
    pub tcp_bytes: u64,
    /// Directions in trouble, if one flow of ten has one.
    pub tcp_anomaly_bytes: u64,
    /// Buffers of received packets: 4096 of 2 KiB a queue.
    pub buffer_bytes: u64,
    /// All of these.
    pub total_bytes: u64,
}

/// What leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Export {
    /// Records a second.
    pub records_per_second: f64,
    /// As IPFIX, bits a second.
    pub ipfix_bits_per_second: f64,
    /// As IPFIX, octets a day.
    pub ipfix_bytes_per_day: f64,
    /// As CSV, octets a day.
    pub csv_bytes_per_day: f64,
}

/// What is needed, and how it lies on a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What was asked for.
    pub demand: Demand,
    /// Packets a second that are planned for.
    pub packets_per_second: f64,
    /// Frames of this size that the link carries a second.
    pub line_rate_packets_per_second: f64,
    /// Pipelines that are needed.
    pub needed_pipelines: usize,
    /// Pipelines that are planned: one for each queue that the NIC has, if these are more and there are cores for them.
    pub pipelines: usize,
    /// Memory, all pipelines together.
    pub memory: Memory,
    /// Pages of 2 MiB that hold it.
    pub huge_pages_2_mib: u64,
    /// Bits a second on the bus of the NIC, with what stands around the data.
    pub bus_bits_per_second: f64,
    /// What leaves.
    pub export: Export,
    /// The NIC that it is planned for.
    pub nic: Option<String>,
    /// Cores of the node.
    pub cores: usize,
    /// Which processor does what.
    pub layout: CpuLayout,
    /// What does not fit, what is not known, and what was looked at and fits.
    pub findings: Vec<Finding>,
}

/// Plans for a NIC of a machine; without one, for its fastest, or for the node with the most cores.
pub fn plan(machine: &Machine, demand: &Demand, nic: Option<&str>) -> Plan {
    let nic = match nic {
        Some(name) => machine.nics.iter().find(|nic| nic.name == name),
        None => {
            // Of equal ones the first.
            let physical = machine.nics.iter().rev().filter(|nic| nic.physical);
            physical.max_by_key(|nic| nic.speed_mbps)
        }
    };
    let largest = || machine.nodes.iter().rev().max_by_key(|node| node.cpus.len());
    let node = nic.and_then(|nic| machine.node_of(nic)).or_else(largest);
    let cores = machine.cores(node.map(|node| node.id));

    let line_rate = line_rate(demand.link_bits_per_second, demand.frame_octets);
    let packets_per_second = demand.packets_per_second.unwrap_or(line_rate);
    let needed = (packets_per_second / (demand.mpps_per_core * 1e6)).ceil().clamp(1.0, 1e6) as usize;
    let queues = nic.map_or(0, queues_of);
    let pipelines = if queues <= cpu_layout::most_fused(cores.len()) { needed.max(queues) } else { needed };
    let memory = memory(demand.flows, pipelines as u64);
    let bus_bits = packets_per_second * f64::from(bus_octets(demand.frame_octets)) * 8.0;
    let export = export(demand.records_per_second.unwrap_or(demand.flows as f64 / FLOWS_PER_RECORD));
    let layout = CpuLayout::of(machine, node.map(|node| node.id), pipelines);
    let mut plan = Plan {
        demand: demand.clone(),
        packets_per_second,
        line_rate_packets_per_second: line_rate,
        needed_pipelines: needed,
        pipelines,
        memory,
        huge_pages_2_mib: memory.total_bytes.div_ceil(2 << 20),
        bus_bits_per_second: bus_bits,
        export,
        nic: nic.map(|nic| nic.name.clone()),
        cores: cores.len(),
        layout,
        findings: vec![],
    };
    let mut findings = Vec::new();
    if packets_per_second > line_rate * 1.000_001 {
        findings.push(Finding::bad(
            Severity::Warning,
            "rate",
            "demand",
            format!("{} are asked for, the link carries {}", mega(packets_per_second), mega(line_rate)),
            "So many frames of this size do not fit on the link with their preambles and gaps. Planned for all the same.".into(),
        ));
    }
    findings.extend(fits_cores(&plan, &cores));
    findings.push(fits_memory(&plan, node));
    findings.push(fits_pages(&plan, node));
    match nic {
        Some(nic) => {
            findings.push(checks::fits_bus(nic, bus_bits, demand.frame_octets));
            findings.push(fits_queues(&plan, nic));
            findings.push(fits_speed(&plan, nic));
            if nic.node.is_none() && machine.nodes.len() > 1 {
                findings.push(Finding::unknown("node", &nic.name, "the NIC's node: the firmware does not say"));
            }
        }
        None => findings.push(Finding::unknown("NIC", "machine", "bus, queues and node of the NIC: there is no NIC")),
    }
    plan.findings = findings;
    plan
}

fn memory(flows: u64, pipelines: u64) -> Memory {
    let of = |octets: u64| flows.saturating_mul(octets);
    let (flows, tcp, trouble) = (of(FLOW), of(TCP), of(TROUBLE) / FLOWS_PER_TROUBLE);
    let buffers = pipelines * DESCRIPTORS * BUFFER;
    let total = [tcp, trouble, buffers].into_iter().fold(flows, u64::saturating_add);
    Memory { flow_bytes: flows, tcp_bytes: tcp, tcp_anomaly_bytes: trouble, buffer_bytes: buffers, total_bytes: total }
}

fn export(records_per_second: f64) -> Export {
    let ipfix = records_per_second * IPFIX_RECORD;
    Export {
        records_per_second,
        ipfix_bits_per_second: ipfix * 8.0,
        ipfix_bytes_per_day: ipfix * SECONDS_OF_A_DAY,
        csv_bytes_per_day: records_per_second * CSV_RECORD * SECONDS_OF_A_DAY,
    }
}

fn fits_cores(plan: &Plan, cores: &[Vec<u32>]) -> Option<Finding> {
    let (wanted, most) = (plan.pipelines, cpu_layout::most_fused(cores.len()));
    let node = plan.layout.node.map_or_else(|| "the machine".into(), |node| format!("node {node}"));
    if cores.is_empty() {
        return Some(Finding::unknown("cores", "machine", "cores: the system does not name any"));
    }
    if wanted <= most {
        let left = cores.len() - plan.used_cores(cores);
        let summary = format!("{node} has {}: {left} left", count(cores.len(), "core"));
        return Some(Finding::fine("cores", "machine", summary));
    }
    let rate = most as f64 * plan.demand.mpps_per_core * 1e6;
    Some(Finding::bad(
        Severity::Critical,
        "cores",
        "machine",
        format!(
            "{} wanted, and one core for export; {node} has {}",
            count(wanted, "pipeline"),
            count(cores.len(), "core")
        ),
        format!(
            "There is room for {}, {}: of {}, {} are lost. More cores on this node, faster ones (weir bench tells how fast \
             they are), a second NIC on another node, or sampling.",
            count(most, "pipeline"),
            mega(rate),
            mega(plan.packets_per_second),
            mega(plan.packets_per_second - rate),
        ),
    ))
}

fn fits_memory(plan: &Plan, node: Option<&crate::cpu::NumaNode>) -> Finding {
    let total = plan.memory.total_bytes;
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_bytes?))) else {
        return Finding::unknown("memory", "machine", "free memory of the node");
    };
    // What is reserved as pages is not free, and at hand all the same.
    let free = free.saturating_add(node.free_huge_page_bytes().unwrap_or(0));
    let summary = format!("{} are needed on node {}, {} are free", gib(total), node.id, gib(free));
    if total <= free {
        return Finding::fine("memory", "machine", summary);
    }
    let impact = "The table would lie on another node, behind the link between sockets, or nowhere. Fewer flows (--flows), \
               shorter timeouts, or more memory on this node.";
    Finding::bad(Severity::Critical, "memory", "machine", summary, impact.into())
}

fn fits_pages(plan: &Plan, node: Option<&crate::cpu::NumaNode>) -> Finding {
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_huge_page_bytes()?))) else {
        return Finding::unknown("pages", "machine", "reserved huge pages of the node");
    };
    let summary = format!(
        "{} of 2 MiB hold it, {} reserved and free on node {}",
        count(plan.huge_pages_2_mib as usize, "page"),
        if free == 0 { "none are".into() } else { format!("{} are", gib(free)) },
        node.id
    );
    if free >= plan.memory.total_bytes {
        return Finding::fine("pages", "machine", summary);
    }
    let impact = "Without them the table lies in transparent huge pages, which costs nothing that was measured, as long as the \
               system finds some; a DPDK source has to have reserved ones.";
    let reserved = node.huge_pages.iter().find(|pages| pages.size_bytes == 2 << 20).map_or(0, |pages| pages.total);
    let wanted = reserved.saturating_add((plan.memory.total_bytes - free).div_ceil(2 << 20));
    Finding::bad(Severity::Warning, "pages", "machine", summary, impact.into())
        .by_hand(&[checks::reserve(node.id, wanted)], "It takes memory from all other programs.")
}

/// Receive queues that a NIC has now.
fn queues_of(nic: &crate::Nic) -> usize {
    nic.channels.ok().map_or(nic.queues, |channels| channels.current) as usize
}

fn fits_queues(plan: &Plan, nic: &crate::Nic) -> Finding {
    let (wanted, name) = (plan.pipelines, &nic.name);
    let channels = nic.channels.ok();
    let now = queues_of(nic);
    if now == 0 {
        return Finding::unknown("queues", name, "receive queues");
    }
    let summary = format!("{} wanted, {now} there", count(wanted, "receive queue"));
    let command = checks::set_queues(name, channels.is_none_or(|channels| channels.combined), wanted as u32);
    if now < wanted {
        let idle = "Each pipeline reads a queue of its own, so not all cores would have work.";
        return match channels.map(|channels| channels.maximum).filter(|most| (*most as usize) < wanted) {
            Some(most) => {
                let impact = format!("{idle} A second NIC, or one with more queues.");
                Finding::bad(Severity::Critical, "queues", name, format!("{summary}, {most} at most"), impact)
            }
            None => Finding::bad(Severity::Critical, "queues", name, summary, idle.into())
                .by_hand(&[command], checks::LINK_GOES_DOWN),
        };
    }
    if now > wanted {
        let impact =
            "The NIC spreads packets over all its queues; each needs a pipeline, and there are not so many cores.";
        return Finding::bad(Severity::Warning, "queues", name, summary, impact.into())
            .by_hand(&[command], checks::LINK_GOES_DOWN);
    }
    Finding::fine("queues", name, summary)
}

fn fits_speed(plan: &Plan, nic: &crate::Nic) -> Finding {
    let Some(speed) = nic.speed_bits() else {
        return Finding::unknown("speed", &nic.name, "speed of the port (is the cable in?)");
    };
    let summary =
        format!("the port has {}, the link {}", bits(speed as f64), bits(plan.demand.link_bits_per_second as f64));
    if speed >= plan.demand.link_bits_per_second {
        return Finding::fine("speed", &nic.name, summary);
    }
    let impact = "What the link has more does not come in here.";
    Finding::bad(Severity::Critical, "speed", &nic.name, summary, impact.into())
}

impl Plan {
    /// Whether nothing of it does not fit.
    pub fn fits(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Critical)
    }

    /// Cores that have something to do.
    fn used_cores(&self, cores: &[Vec<u32>]) -> usize {
        let works = |cpu: u32| self.layout.pipelines.iter().any(|p| [p.capture, p.meter, p.export].contains(&cpu));
        cores.iter().filter(|core| core.iter().any(|&cpu| works(cpu))).count()
    }
}
