//! Capacity planning: the cores, memory, PCIe bandwidth and export volume that a link needs, and
//! whether a machine has them. Each figure is a constant of this file or part of the demand.

use crate::capacity::{Capacity, Link, pipelines};
use crate::checks;
use crate::cpu::NumaNode;
use crate::cpu_layout::{self, CpuLayout};
use crate::ethernet::line_rate;
use crate::finding::{Finding, MACHINE, Severity};
use crate::machine::Machine;
use crate::nic::Nic;
use crate::pcie::bus_octets;
use crate::units::{bits, count, gib, mega};
use serde::Serialize;

/// Bytes of the flow cache per flow (docs/performance.md).
const FLOW_BYTES: u64 = 256;
/// Additional bytes per flow with MAC addresses.
const MAC_BYTES: u64 = 25;
/// Additional bytes per TCP flow.
const TCP_BYTES: u64 = 448;
/// Additional bytes per direction of a TCP flow with anomalies.
const TCP_ANOMALY_BYTES: u64 = 1488;
/// Assumption: one flow in this number has a direction with anomalies.
const FLOWS_PER_ANOMALY: u64 = 10;
/// Bytes of a packet buffer, and buffers per receive queue.
const BUFFER_BYTES: u64 = 2048;
const BUFFERS_PER_QUEUE: u64 = 4096;
/// Bytes of a flow record, with its share of headers and templates: as IPFIX with basic templates (a
/// record per direction) and with full templates, over UDP or in a file, and as CSV with the basic
/// fields. Measured with `synth:mix`; a test of the binary measures them again.
const IPFIX_BASIC_RECORD_BYTES: f64 = 160.0;
const IPFIX_FULL_RECORD_BYTES: f64 = 300.0;
const CSV_RECORD_BYTES: f64 = 200.0;
/// Concurrent flows per record and second: the internet mix of docs/performance.md has 300 k flows
/// and 30 k new flows per second.
const FLOWS_PER_RECORD_RATE: f64 = 10.0;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// The traffic to meter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Link speed, of all ports together.
    pub link_bits_per_second: u64,
    /// Ports, each with a part of the link: a break-out cable has several.
    pub ports: u32,
    /// Average frame size with FCS.
    pub frame_octets: u32,
    /// Packet rate; `None` for line rate.
    pub packets_per_second: Option<f64>,
    /// Concurrent flows.
    pub flows: u64,
    /// Whether records have the MAC addresses of IP flows.
    pub mac_addresses: bool,
    /// What records of transactions take in each pipeline, octets; 0 without them.
    pub transaction_bytes: u64,
    /// Exported records per second; `None` for a tenth of the flows.
    pub records_per_second: Option<f64>,
    /// Packet rate that a core receives and meters, in Mpps.
    pub mpps_per_core: f64,
}

/// Memory of all pipelines together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Flow caches.
    pub flow_bytes: u64,
    /// TCP analysis, if all flows are TCP.
    pub tcp_bytes: u64,
    /// TCP anomalies, if one flow in ten has a direction with anomalies.
    pub tcp_anomaly_bytes: u64,
    /// Packet buffers: 4096 of 2 KiB per receive queue.
    pub buffer_bytes: u64,
    /// Records of transactions, at most.
    pub transaction_bytes: u64,
    /// Sum.
    pub total_bytes: u64,
}

/// Export volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Export {
    /// Exported records.
    pub records_per_second: f64,
    /// Bit rate as IPFIX over UDP with basic templates.
    pub ipfix_bits_per_second: f64,
    /// The same with full templates.
    pub ipfix_full_bits_per_second: f64,
    /// Volume of IPFIX files, which have full templates.
    pub ipfix_bytes_per_day: f64,
    /// Volume as CSV.
    pub csv_bytes_per_day: f64,
}

/// What a demand needs, and how a machine fulfils it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The demand.
    pub demand: Demand,
    /// Packet rate of the plan.
    pub packets_per_second: f64,
    /// Line rate for the frame size.
    pub line_rate_packets_per_second: f64,
    /// Pipelines that the packet rate needs.
    pub needed_pipelines: usize,
    /// Planned pipelines: one per receive queue if the NIC uses more queues than needed and there
    /// are enough cores.
    pub pipelines: usize,
    /// Memory of all pipelines together.
    pub memory: Memory,
    /// Huge pages of 2 MiB for this memory.
    pub huge_pages_2_mib: u64,
    /// Bit rate on the PCIe link of the NIC, with all overhead.
    pub bus_bits_per_second: f64,
    /// Export volume.
    pub export: Export,
    /// By packet size, cores, descriptors, trimming and GPU.
    pub capacity: Capacity,
    /// The NIC of the plan.
    pub nic: Option<String>,
    /// Cores of its NUMA node.
    pub cores: usize,
    /// The CPU of each stage.
    pub layout: CpuLayout,
    /// What is sufficient, insufficient or unknown.
    pub findings: Vec<Finding>,
}

/// Makes a plan for a NIC of a machine; `None` chooses the fastest NIC, or without NICs the NUMA
/// node with the most CPUs.
pub fn plan(machine: &Machine, demand: &Demand, nic: Option<&str>) -> Plan {
    let nic = match nic {
        Some(name) => machine.nics.iter().find(|nic| nic.name == name),
        // Reversed, so that the first of equally fast NICs is chosen.
        None => machine.nics.iter().rev().filter(|nic| nic.physical).max_by_key(|nic| nic.speed_mbps),
    };
    let largest = || machine.nodes.iter().rev().max_by_key(|node| node.cpus.len());
    let node = nic.and_then(|nic| machine.node_of(nic)).or_else(largest);
    let cores = machine.cores(node.map(|node| node.id));

    let line_rate = line_rate(demand.link_bits_per_second, demand.frame_octets);
    let packets_per_second = demand.packets_per_second.unwrap_or(line_rate);
    let core_rate = demand.mpps_per_core * 1e6;
    let needed = pipelines(packets_per_second, core_rate, demand.ports);
    // All ports are assumed to have as many queues as this one.
    let queues = nic.map_or(0, |nic| nic.receive_queues() as usize) * demand.ports as usize;
    let enough_cores = queues <= cpu_layout::max_fused_pipelines(cores.len());
    let pipelines = if enough_cores { needed.max(queues) } else { needed };
    let link =
        Link { bits_per_second: demand.link_bits_per_second, ports: demand.ports, slot: nic.and_then(|nic| nic.link) };
    let memory = memory(demand, pipelines as u64);
    let bus_bits_per_second = packets_per_second * f64::from(bus_octets(demand.frame_octets)) * 8.0;
    let records_per_second = demand.records_per_second.unwrap_or(demand.flows as f64 / FLOWS_PER_RECORD_RATE);
    let mut plan = Plan {
        demand: demand.clone(),
        packets_per_second,
        line_rate_packets_per_second: line_rate,
        needed_pipelines: needed,
        pipelines,
        memory,
        huge_pages_2_mib: memory.total_bytes.div_ceil(2 << 20),
        bus_bits_per_second,
        export: export(records_per_second),
        capacity: Capacity::new(link, packets_per_second, demand.frame_octets, core_rate, pipelines),
        nic: nic.map(|nic| nic.name.clone()),
        cores: cores.len(),
        layout: CpuLayout::new(machine, node.map(|node| node.id), pipelines),
        findings: vec![],
    };
    let mut findings = Vec::new();
    findings.extend(check_rate(&plan));
    findings.push(check_cores(&plan, &cores));
    findings.push(check_memory(&plan, node));
    findings.push(check_huge_pages(&plan, node));
    match nic {
        Some(nic) => {
            findings.push(checks::pcie_capacity(nic, bus_bits_per_second, demand.frame_octets));
            findings.push(check_queues(&plan, nic));
            findings.push(check_speed(&plan, nic));
            if nic.node.is_none() && machine.nodes.len() > 1 {
                let summary = "NUMA node of the NIC: the firmware does not report it";
                findings.push(Finding::unknown("node", &nic.name, summary));
            }
        }
        None => {
            let summary = "PCIe link, receive queues and NUMA node of the NIC: there is no NIC";
            findings.push(Finding::unknown("nic", MACHINE, summary));
        }
    }
    plan.findings = findings;
    plan
}

fn memory(demand: &Demand, pipelines: u64) -> Memory {
    let bytes_per_flow = FLOW_BYTES + if demand.mac_addresses { MAC_BYTES } else { 0 };
    let [flow_bytes, tcp_bytes, all_anomalies] =
        [bytes_per_flow, TCP_BYTES, TCP_ANOMALY_BYTES].map(|bytes| demand.flows.saturating_mul(bytes));
    let tcp_anomaly_bytes = all_anomalies / FLOWS_PER_ANOMALY;
    let buffer_bytes = pipelines * BUFFERS_PER_QUEUE * BUFFER_BYTES;
    let transaction_bytes = pipelines.saturating_mul(demand.transaction_bytes);
    let others = [tcp_bytes, tcp_anomaly_bytes, buffer_bytes, transaction_bytes];
    let total_bytes = others.into_iter().fold(flow_bytes, u64::saturating_add);
    Memory { flow_bytes, tcp_bytes, tcp_anomaly_bytes, buffer_bytes, transaction_bytes, total_bytes }
}

fn export(records_per_second: f64) -> Export {
    Export {
        records_per_second,
        ipfix_bits_per_second: records_per_second * IPFIX_BASIC_RECORD_BYTES * 8.0,
        ipfix_full_bits_per_second: records_per_second * IPFIX_FULL_RECORD_BYTES * 8.0,
        ipfix_bytes_per_day: records_per_second * IPFIX_FULL_RECORD_BYTES * SECONDS_PER_DAY,
        csv_bytes_per_day: records_per_second * CSV_RECORD_BYTES * SECONDS_PER_DAY,
    }
}

fn check_rate(plan: &Plan) -> Option<Finding> {
    let (planned, line_rate) = (plan.packets_per_second, plan.line_rate_packets_per_second);
    (planned > line_rate * 1.000_001).then(|| {
        let summary = format!("{} are demanded, the link carries {}", mega(planned), mega(line_rate));
        let impact =
            "The frames, with their preambles and gaps, do not fit on the link. The plan uses the demanded rate.";
        Finding::new(Severity::Warning, "rate", "demand", summary, impact)
    })
}

fn check_cores(plan: &Plan, cores: &[Vec<u32>]) -> Finding {
    let (pipelines, maximum) = (plan.pipelines, cpu_layout::max_fused_pipelines(cores.len()));
    let node = plan.layout.node.map_or_else(|| "the machine".into(), |node| format!("NUMA node {node}"));
    let cores_text = count(cores.len(), "core");
    if cores.is_empty() {
        return Finding::unknown("cores", MACHINE, "cores: the kernel lists none");
    }
    if pipelines <= maximum {
        let unused = cores.len() - plan.used_cores(cores);
        return Finding::ok("cores", MACHINE, format!("{node} has {cores_text}, of which {unused} stay unused"));
    }
    let rate = maximum as f64 * plan.demand.mpps_per_core * 1e6;
    let summary = format!("{} and a core for export are needed; {node} has {cores_text}", count(pipelines, "pipeline"));
    let impact = format!(
        "There are cores for {} with {}; of {}, {} are lost. Use more or faster cores on this node (weir bench measures \
         them), a second NIC on another node, or sampling.",
        count(maximum, "pipeline"),
        mega(rate),
        mega(plan.packets_per_second),
        mega(plan.packets_per_second - rate),
    );
    Finding::new(Severity::Critical, "cores", MACHINE, summary, impact)
}

fn check_memory(plan: &Plan, node: Option<&NumaNode>) -> Finding {
    let total = plan.memory.total_bytes;
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_bytes?))) else {
        return Finding::unknown("memory", MACHINE, "free memory of the NUMA node");
    };
    // The kernel does not count free reserved huge pages as free memory.
    let free = free.saturating_add(node.free_huge_page_bytes().unwrap_or(0));
    let summary = format!("memory: {} needed, {} free on NUMA node {}", gib(total), gib(free), node.id);
    if total <= free {
        return Finding::ok("memory", MACHINE, summary);
    }
    let impact = "The flow cache would be on another node, behind the interconnect between sockets, or could not be \
                  allocated. Plan for fewer flows (--flows), use shorter timeouts, or add memory to this node.";
    Finding::new(Severity::Critical, "memory", MACHINE, summary, impact)
}

fn check_huge_pages(plan: &Plan, node: Option<&NumaNode>) -> Finding {
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_huge_page_bytes()?))) else {
        return Finding::unknown("huge-pages", MACHINE, "reserved huge pages of the NUMA node");
    };
    let reserved = if free == 0 { "none".into() } else { gib(free) };
    let summary = format!(
        "huge pages: {} of 2 MiB needed, {reserved} reserved and free on NUMA node {}",
        plan.huge_pages_2_mib, node.id
    );
    if free >= plan.memory.total_bytes {
        return Finding::ok("huge-pages", MACHINE, summary);
    }
    let impact = "Without them the flow cache uses transparent huge pages, at no measured cost while the system has some. A \
                  DPDK source requires reserved pages.";
    let missing = (plan.memory.total_bytes - free).div_ceil(2 << 20);
    Finding::new(Severity::Warning, "huge-pages", MACHINE, summary, impact)
        .with_commands(&[checks::reserve_command(node, missing)], "This takes memory from all other programs.")
}

fn check_queues(plan: &Plan, nic: &Nic) -> Finding {
    let needed = plan.pipelines / plan.demand.ports as usize;
    let (current, name) = (nic.receive_queues() as usize, &nic.name);
    let channels = nic.channels.ok();
    if current == 0 {
        return Finding::unknown("queues", name, "number of receive queues");
    }
    let summary = format!("{} needed, the NIC uses {current}", count(needed, "receive queue"));
    let combined = channels.is_none_or(|channels| channels.combined);
    let command = [checks::queues_command(name, combined, needed as u32)];
    if current < needed {
        let impact = "Each pipeline reads a queue of its own, so some cores would be idle.";
        return match channels.map(|channels| channels.maximum).filter(|maximum| (*maximum as usize) < needed) {
            Some(maximum) => {
                let impact = format!("{impact} Use a second NIC, or one with more queues.");
                Finding::new(Severity::Critical, "queues", name, format!("{summary}, at most {maximum}"), impact)
            }
            None => Finding::new(Severity::Critical, "queues", name, summary, impact)
                .with_commands(&command, checks::LINK_GOES_DOWN),
        };
    }
    if current > needed {
        let impact = "The NIC distributes packets over all its queues. Each queue needs a pipeline, and there are too few \
                      cores for that.";
        return Finding::new(Severity::Warning, "queues", name, summary, impact)
            .with_commands(&command, checks::LINK_GOES_DOWN);
    }
    Finding::ok("queues", name, summary)
}

fn check_speed(plan: &Plan, nic: &Nic) -> Finding {
    let Some(speed) = nic.speed_bits_per_second() else {
        return Finding::unknown("speed", &nic.name, "speed of the port (is the cable plugged in?)");
    };
    let link = plan.demand.link_bits_per_second / u64::from(plan.demand.ports);
    let summary = format!("the port has {}, the planned link {}", bits(speed as f64), bits(link as f64));
    if speed >= link {
        return Finding::ok("speed", &nic.name, summary);
    }
    let impact = "Traffic above the port speed does not arrive.";
    Finding::new(Severity::Critical, "speed", &nic.name, summary, impact)
}

impl Plan {
    /// Whether the machine is sufficient, as far as known.
    pub fn fits(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Critical)
    }

    /// Number of cores that the layout uses.
    fn used_cores(&self, cores: &[Vec<u32>]) -> usize {
        let is_used = |cpu: u32| self.layout.pipelines.iter().any(|p| [p.capture, p.meter, p.export].contains(&cpu));
        cores.iter().filter(|core| core.iter().any(|&cpu| is_used(cpu))).count()
    }
}
