//! Checks of receive queues, receive rings, RSS and offloads of a NIC.

use crate::ethernet::{AVERAGE_FRAME, SMALLEST_FRAME, line_rate};
use crate::ethtool::{Reading, RssConfig};
use crate::finding::{Finding, Severity, Step};
use crate::machine::Machine;
use crate::nic::{MERGING_OFFLOADS, Nic};
use crate::toeplitz::{SYMMETRIC_PATTERN, is_symmetric, values_log2};
use crate::units::{count, default_mpps_per_core};

/// Note for changes of the number of queues or descriptors.
pub const LINK_GOES_DOWN: &str = "Many NICs take the link down for a second or two to change this.";
/// A ring overflows while its core is busy with other work unless it holds this time, µs.
const MIN_RING_US: f64 = 1000.0;

pub fn check(machine: &Machine, nic: &Nic) -> Vec<Finding> {
    let mut findings = vec![queues(machine, nic), ring(nic)];
    if nic.receive_queues() > 1 {
        match &nic.rss {
            Reading::Value(rss) => findings.extend([rss_key(nic, rss), indirection_table(nic, rss)]),
            Reading::Unavailable { reason } => {
                let summary = format!("RSS hash key and indirection table: {reason}");
                findings.push(Finding::unknown("rss-key", &nic.name, summary));
            }
        }
        findings.push(hash_fields(nic));
    }
    findings.push(offloads(nic));
    findings
}

/// The command that sets the number of receive queues.
pub fn queues_command(nic: &str, combined: bool, queues: u32) -> String {
    format!("ethtool -L {nic} {} {queues}", if combined { "combined" } else { "rx" })
}

fn queues(machine: &Machine, nic: &Nic) -> Finding {
    let (name, current) = (&nic.name, nic.receive_queues() as usize);
    if current == 0 {
        return Finding::unknown("queues", name, "number of receive queues");
    }
    let current_text = count(current, "receive queue");
    let Some(speed) = nic.speed_bits_per_second() else {
        return Finding::ok("queues", name, current_text);
    };
    let cores = machine.cores(machine.node_of(nic).map(|node| node.id)).len();
    let per_core = default_mpps_per_core() * 1e6;
    let (average_rate, flood_rate) = (line_rate(speed, AVERAGE_FRAME), line_rate(speed, SMALLEST_FRAME));
    let cores_for = |rate: f64| (rate / per_core).ceil() as usize;
    let needed = cores_for(average_rate);
    let maximum = nic.channels.ok().map(|channels| channels.maximum as usize);
    let combined = nic.channels.ok().is_none_or(|channels| channels.combined);
    let command = |queues: usize| [queues_command(name, combined, queues as u32)];
    // One core is left to the system and the exporters.
    let useful = cores_for(flood_rate).min(cores.saturating_sub(1)).min(maximum.unwrap_or(usize::MAX));
    if current < needed {
        let impact = format!(
            "One core serves one queue and processes about {:.1} M packets/s. At line rate, {:.1} M packets/s of \
             {AVERAGE_FRAME} octets arrive.",
            per_core / 1e6,
            average_rate / 1e6
        );
        let summary = format!("{current_text}; {needed} are needed");
        let finding = Finding::new(Severity::Critical, "queues", name, summary, impact);
        return match maximum {
            Some(maximum) if maximum < needed => {
                let note = format!("The NIC has at most {}. Use another NIC, or two.", count(maximum, "queue"));
                finding.with_commands(&[], &note)
            }
            _ => finding.with_commands(&command(needed.max(useful)), LINK_GOES_DOWN),
        };
    }
    let summary = format!("{current_text} for {}", count(cores, "core"));
    if current < useful && maximum.is_some() {
        let impact = format!(
            "Enough for average traffic. In a flood of {SMALLEST_FRAME}-octet packets ({:.1} M packets/s), {} would be idle.",
            flood_rate / 1e6,
            count(useful - current, "core")
        );
        return Finding::new(Severity::Warning, "queues", name, summary, impact)
            .with_commands(&command(useful), LINK_GOES_DOWN);
    }
    if cores > 0 && current > cores {
        let impact = "Some cores of the NUMA node serve several queues, whose threads have to take turns.";
        return Finding::new(Severity::Warning, "queues", name, summary, impact)
            .with_commands(&command(cores.max(2) - 1), LINK_GOES_DOWN);
    }
    Finding::ok("queues", name, summary)
}

fn ring(nic: &Nic) -> Finding {
    let name = &nic.name;
    let ring = match &nic.ring {
        Reading::Value(ring) => *ring,
        Reading::Unavailable { reason } => {
            return Finding::unknown("ring", name, format!("size of its receive rings: {reason}"));
        }
    };
    let summary = format!("receive rings have {} of at most {} descriptors", ring.current, ring.maximum);
    if ring.current >= ring.maximum {
        return Finding::ok("ring", name, summary);
    }
    let (severity, impact) = match nic.speed_bits_per_second() {
        Some(speed) => {
            let frames_per_second = line_rate(speed, AVERAGE_FRAME) / f64::from(nic.receive_queues().max(1));
            let held_us = f64::from(ring.current) / frames_per_second * 1e6;
            let impact = format!(
                "At line rate ({AVERAGE_FRAME} octets per frame) a ring holds {held_us:.0} µs of traffic. If a core is busy \
                 for longer, the NIC drops packets."
            );
            let is_critical = nic.is_fast() && held_us < MIN_RING_US;
            (if is_critical { Severity::Critical } else { Severity::Warning }, impact)
        }
        None => {
            let impact = "Packets wait in the ring while a core is busy. The NIC drops packets that do not fit.";
            (Severity::Warning, impact.into())
        }
    };
    Finding::new(severity, "ring", name, summary, impact)
        .with_steps(vec![Step::run(&format!("ethtool -G {name} rx {}", ring.maximum))], LINK_GOES_DOWN)
}

fn rss_key(nic: &Nic, rss: &RssConfig) -> Finding {
    let name = &nic.name;
    if rss.symmetric_input {
        return Finding::ok("rss-key", name, "both directions of a flow reach the same queue (symmetric-xor)");
    }
    if let Some(function) = rss.function.as_deref().filter(|function| *function != "toeplitz") {
        let summary =
            format!("whether both directions of a flow reach the same queue: the RSS hash is {function}, not toeplitz");
        return Finding::unknown("rss-key", name, summary);
    }
    if rss.key.is_empty() {
        return Finding::unknown("rss-key", name, "RSS hash key: the NIC does not report it");
    }
    let octets = SYMMETRIC_PATTERN.iter().cycle().take(rss.key.len());
    let symmetric: Vec<String> = octets.map(|octet| format!("{octet:02x}")).collect();
    let command = format!("ethtool -X {name} hkey {}", symmetric.join(":"));
    let note = format!("If NIC and kernel support it, use instead: ethtool -X {name} xfrm symmetric-xor");
    if !is_symmetric(&rss.key) {
        let summary = "the two directions of a flow reach different queues: the RSS hash key is not symmetric";
        let impact = "Two pipelines each see one direction of the flow, and each exports a record. A key that repeats after \
                      2 octets sends both directions to the same queue.";
        return Finding::new(Severity::Critical, "rss-key", name, summary, impact).with_commands(&[command], &note);
    }
    let values = 1_u64 << values_log2(&rss.key);
    if values < 8 * u64::from(nic.receive_queues()) {
        let summary = format!("the RSS hash key yields only {}", count(values as usize, "hash value"));
        let impact = "Most queues get no packets, and one gets most of them.";
        return Finding::new(Severity::Critical, "rss-key", name, summary, impact).with_commands(&[command], &note);
    }
    Finding::ok("rss-key", name, "both directions of a flow reach the same queue (symmetric RSS hash key)")
}

fn indirection_table(nic: &Nic, rss: &RssConfig) -> Finding {
    let (name, queues) = (&nic.name, nic.receive_queues());
    if rss.table.is_empty() {
        return Finding::unknown("rss-table", name, "RSS indirection table: the NIC does not report it");
    }
    let shares: Vec<usize> = (0..queues).map(|queue| rss.table.iter().filter(|&&of| of == queue).count()).collect();
    let (least, most) = (shares.iter().min().copied().unwrap_or(0), shares.iter().max().copied().unwrap_or(0));
    let entries = rss.table.len();
    let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
    if most - least <= 1 && entries >= queues as usize {
        let summary = format!("RSS indirection table: {entries} entries, {range} per queue");
        return Finding::ok("rss-table", name, summary);
    }
    let unused = shares.iter().filter(|&&share| share == 0).count();
    let (severity, summary, impact) = if unused > 0 {
        let summary = format!(
            "{unused} of {queues} receive queues get no packets: the RSS indirection table does not contain them"
        );
        (Severity::Critical, summary, "Their cores are idle while others drop packets.")
    } else {
        let summary = format!("the RSS indirection table is uneven: {range} of {entries} entries per queue");
        (Severity::Warning, summary, "The queue with the most entries drops packets while others have free capacity.")
    };
    Finding::new(severity, "rss-table", name, summary, impact)
        .with_commands(&[format!("ethtool -X {name} equal {queues}")], "Active flows change their queue.")
}

fn hash_fields(nic: &Nic) -> Finding {
    let name = &nic.name;
    let (tcp, udp) = match (&nic.hashes_tcp_ports, &nic.hashes_udp_ports) {
        (Reading::Value(tcp), Reading::Value(udp)) => (*tcp, *udp),
        (Reading::Unavailable { reason }, _) | (_, Reading::Unavailable { reason }) => {
            return Finding::unknown("rss-fields", name, format!("RSS hash fields: {reason}"));
        }
    };
    if !tcp {
        let impact = "All flows between two hosts (a proxy, a NAT gateway, a tunnel) reach one queue, whose core drops \
                      packets while others are idle.";
        let summary = "RSS hashes only addresses, also for TCP";
        return Finding::new(Severity::Warning, "rss-fields", name, summary, impact)
            .with_commands(&[format!("ethtool -N {name} rx-flow-hash tcp4 sdfn")], "Do the same for tcp6.");
    }
    if udp {
        let impact = "Only the first fragment of a datagram has ports. The other fragments reach another queue, where their \
                      flow is unknown.";
        let summary = "RSS hashes ports, also for UDP";
        return Finding::new(Severity::Warning, "rss-fields", name, summary, impact).with_commands(
            &[format!("ethtool -N {name} rx-flow-hash udp4 sd")],
            "Do the same for udp6. UDP between two hosts then uses fewer queues; keep the ports if fragments are rare.",
        );
    }
    Finding::ok("rss-fields", name, "RSS hashes the ports of TCP and not of UDP, so that fragments stay together")
}

fn offloads(nic: &Nic) -> Finding {
    let name = &nic.name;
    let active = match &nic.merging_offloads {
        Reading::Value(active) => active,
        Reading::Unavailable { reason } => {
            return Finding::unknown("offloads", name, format!("receive offloads: {reason}"));
        }
    };
    if active.is_empty() {
        return Finding::ok("offloads", name, "no offload merges packets");
    }
    let is_active = |feature: &str| active.iter().any(|active| active == feature);
    let switches: Vec<&str> =
        MERGING_OFFLOADS.iter().filter(|(feature, _)| is_active(feature)).map(|(_, switch)| *switch).collect();
    let display_name = |switch: &&str| match *switch {
        "gro" | "lro" => switch.to_uppercase(),
        other => other.to_owned(),
    };
    let names: Vec<String> = switches.iter().map(display_name).collect();
    let verb = if names.len() == 1 { "merges" } else { "merge" };
    let summary = format!("{} {verb} packets before they are counted", enumeration(&names));
    let off: Vec<String> = switches.iter().map(|switch| format!("{switch} off")).collect();
    let impact = "Several packets become one of up to 64 KiB: packet counts, sizes, interarrival times and retransmissions \
                  are wrong, and long packets are truncated. (DPDK and AF_XDP in driver mode receive packets before they are \
                  merged.)";
    Finding::new(Severity::Critical, "offloads", name, summary, impact)
        .with_steps(vec![Step::run(&format!("ethtool -K {name} {}", off.join(" ")))], "")
}

/// Joins names: `a, b and c`.
fn enumeration(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
