//! Queues, rings, how flows are spread over them, and what joins packets before they are seen.

use super::{SMALLEST_FRAME, USUAL_FRAME, is_fast};
use crate::ethernet::line_rate;
use crate::ethtool::{Reading, RssConfig};
use crate::finding::{Finding, Severity, Step};
use crate::lists::count;
use crate::machine::Machine;
use crate::nic::{JOINING, Nic};
use crate::toeplitz::{SYMMETRIC_PATTERN, Toeplitz};
use crate::units::default_mpps_per_core;

/// What to know before the number of queues or descriptors changes.
pub const LINK_GOES_DOWN: &str = "Many NICs drop the link for a second or two when this changes.";
/// A ring that holds less time than this overflows when its core is busy elsewhere for a moment: microseconds.
const RING_US: f64 = 1000.0;

pub fn check(machine: &Machine, nic: &Nic) -> Vec<Finding> {
    let mut findings = vec![queues(machine, nic), ring(nic)];
    if queues_of(nic) > 1 {
        match &nic.rss {
            Reading::Value(rss) => findings.extend([symmetry(nic, rss), table(nic, rss)]),
            Reading::Unavailable { reason } => {
                findings.push(Finding::unknown("rss", &nic.name, format!("key and table of its queues: {reason}")));
            }
        }
        findings.push(hashed(nic));
    }
    findings.push(joining(nic));
    findings
}

fn queues_of(nic: &Nic) -> u32 {
    nic.channels.ok().map_or(nic.queues, |channels| channels.current)
}

/// The command that sets the number of receive queues.
pub fn set_queues(nic: &str, combined: bool, queues: u32) -> String {
    format!("ethtool -L {nic} {} {queues}", if combined { "combined" } else { "rx" })
}

fn queues(machine: &Machine, nic: &Nic) -> Finding {
    let (name, now) = (&nic.name, queues_of(nic));
    if now == 0 {
        return Finding::unknown("queues", name, "receive queues");
    }
    let Some(speed) = nic.speed_bits() else {
        return Finding::fine("queues", name, count(now as usize, "receive queue"));
    };
    let cores = machine.cores(machine.node_of(nic).map(|node| node.id)).len();
    let per_core = default_mpps_per_core() * 1e6;
    let (usual, floods) = (line_rate(speed, USUAL_FRAME), line_rate(speed, SMALLEST_FRAME));
    let cores_for = |rate: f64| (rate / per_core).ceil() as usize;
    let needed = cores_for(usual);
    let most = nic.channels.ok().map(|channels| channels.maximum as usize);
    let combined = nic.channels.ok().is_none_or(|channels| channels.combined);
    let more = |queues: usize| set_queues(name, combined, queues as u32);
    // One core is the system's and the exporters'.
    let useful = cores_for(floods).min(cores.saturating_sub(1)).min(most.unwrap_or(usize::MAX));
    if (now as usize) < needed {
        let summary = format!("{}, {needed} are needed", count(now as usize, "receive queue"));
        let impact = format!(
            "A queue is served by one core, which does about {:.1} M packets/s; at full rate {:.1} M of {USUAL_FRAME} octets come.",
            per_core / 1e6,
            usual / 1e6
        );
        let finding = Finding::bad(Severity::Critical, "queues", name, summary, impact);
        return match most {
            Some(most) if most < needed => {
                let all = format!("The NIC has no more than {most}: another NIC, or two.");
                finding.by_hand(&[], &all)
            }
            _ => finding.by_hand(&[more(needed.max(useful))], LINK_GOES_DOWN),
        };
    }
    if (now as usize) < useful && most.is_some() {
        let summary = format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core"));
        let impact = format!(
            "Enough for usual traffic. A flood of {SMALLEST_FRAME}-octet packets ({:.1} M packets/s) would find {} without work.",
            floods / 1e6,
            count(useful - now as usize, "core")
        );
        return Finding::bad(Severity::Warning, "queues", name, summary, impact)
            .by_hand(&[more(useful)], LINK_GOES_DOWN);
    }
    if cores > 0 && now as usize > cores {
        let summary = format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core"));
        let impact = "Some cores of the NIC's node serve several queues, and threads take turns there.".into();
        return Finding::bad(Severity::Warning, "queues", name, summary, impact)
            .by_hand(&[more(cores.max(2) - 1)], LINK_GOES_DOWN);
    }
    Finding::fine("queues", name, format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core")))
}

fn ring(nic: &Nic) -> Finding {
    let name = &nic.name;
    let ring = match &nic.ring {
        Reading::Value(ring) => *ring,
        Reading::Unavailable { reason } => {
            return Finding::unknown("ring", name, format!("size of its rings: {reason}"));
        }
    };
    let summary = format!("{} descriptors a queue, {} at most", ring.current, ring.maximum);
    if ring.current >= ring.maximum {
        return Finding::fine("ring", name, summary);
    }
    let steps = vec![Step::run(&format!("ethtool -G {name} rx {}", ring.maximum))];
    let Some(speed) = nic.speed_bits() else {
        let impact =
            "While a core is busy elsewhere, packets wait in the ring; the NIC drops what does not fit.".into();
        return Finding::bad(Severity::Warning, "ring", name, summary, impact).fixed_by(steps, LINK_GOES_DOWN);
    };
    let rate = line_rate(speed, USUAL_FRAME) / f64::from(queues_of(nic).max(1));
    let holds_us = f64::from(ring.current) / rate * 1e6;
    let impact = format!(
        "At full rate ({USUAL_FRAME} octets a frame) they hold {holds_us:.0} µs of traffic. If a core is busy elsewhere for longer, \
         the NIC drops packets."
    );
    let severity = if is_fast(nic) && holds_us < RING_US { Severity::Critical } else { Severity::Warning };
    Finding::bad(severity, "ring", name, summary, impact).fixed_by(steps, LINK_GOES_DOWN)
}

fn symmetry(nic: &Nic, rss: &RssConfig) -> Finding {
    let name = &nic.name;
    if rss.symmetric_input {
        return Finding::fine("rss", name, "both directions of a flow reach one queue (symmetric-xor)");
    }
    if let Some(function) = rss.function.as_deref().filter(|function| *function != "toeplitz") {
        let summary =
            format!("whether both directions of a flow reach one queue: the hash is {function}, not toeplitz");
        return Finding::unknown("rss", name, summary);
    }
    if rss.key.is_empty() {
        return Finding::unknown("rss", name, "the key of its queues: the NIC does not say");
    }
    let key = Toeplitz::new(&rss.key);
    let octets = SYMMETRIC_PATTERN.iter().cycle().take(rss.key.len());
    let symmetric: Vec<String> = octets.map(|octet| format!("{octet:02x}")).collect();
    let command = format!("ethtool -X {name} hkey {}", symmetric.join(":"));
    let note = format!("Or, if NIC and kernel know it: ethtool -X {name} xfrm symmetric-xor");
    if !key.is_symmetric() {
        let summary = "the directions of a flow reach different queues: the RSS key is not symmetric".into();
        let impact = "Two pipelines each see half of the flow and write a record of it. A key that repeats after 2 octets sends both \
                   to one queue.";
        return Finding::bad(Severity::Critical, "rss", name, summary, impact.into()).by_hand(&[command], &note);
    }
    let bits = key.values_log2();
    if 1_u64 << bits < 8 * u64::from(queues_of(nic)) {
        let summary = format!("the RSS key tells only {} of flows apart", count(1 << bits, "kind"));
        let impact = "Most queues stay empty, and one has all the work.".into();
        return Finding::bad(Severity::Critical, "rss", name, summary, impact).by_hand(&[command], &note);
    }
    Finding::fine("rss", name, "both directions of a flow reach one queue (symmetric key)")
}

fn table(nic: &Nic, rss: &RssConfig) -> Finding {
    let (name, queues) = (&nic.name, queues_of(nic));
    if rss.table.is_empty() {
        return Finding::unknown("table", name, "the table of its queues: the NIC does not say");
    }
    let shares: Vec<usize> = (0..queues).map(|queue| rss.table.iter().filter(|&&of| of == queue).count()).collect();
    let (least, most) = (shares.iter().min().copied().unwrap_or(0), shares.iter().max().copied().unwrap_or(0));
    let entries = rss.table.len();
    if most - least <= 1 && entries >= queues as usize {
        return Finding::fine("table", name, format!("{entries} entries, {least} to {most} for each queue"));
    }
    let command = [format!("ethtool -X {name} equal {queues}")];
    let idle = shares.iter().filter(|&&share| share == 0).count();
    let (severity, summary, impact) = if idle > 0 {
        let summary =
            format!("{idle} of {queues} receive queues get no packets: the indirection table does not name them");
        (Severity::Critical, summary, "Their cores idle while others drop packets.")
    } else {
        let summary = format!("the indirection table gives queues {least} to {most} of {entries} entries");
        (Severity::Warning, summary, "The queue with the most drops packets while others have room.")
    };
    Finding::bad(severity, "table", name, summary, impact.into())
        .by_hand(&command, "Flows that are under way change their queue.")
}

fn hashed(nic: &Nic) -> Finding {
    let name = &nic.name;
    let (Some(tcp), Some(udp)) = (nic.hashes_tcp_ports.ok(), nic.hashes_udp_ports.ok()) else {
        let reason = [&nic.hashes_tcp_ports, &nic.hashes_udp_ports].into_iter().find_map(|known| match known {
            Reading::Unavailable { reason } => Some(reason.as_str()),
            Reading::Value(_) => None,
        });
        return Finding::unknown("hashed", name, format!("what it hashes: {}", reason.unwrap_or("no answer")));
    };
    if !tcp {
        let summary = "queues are chosen by addresses only, also for TCP".into();
        let impact = "All flows between two hosts (a proxy, a NAT, a tunnel) land on one queue, whose core drops while others idle.";
        return Finding::bad(Severity::Warning, "hashed", name, summary, impact.into())
            .by_hand(&[format!("ethtool -N {name} rx-flow-hash tcp4 sdfn")], "The same for tcp6.");
    }
    if *udp {
        let summary = "queues are chosen by ports, also for UDP".into();
        let impact = "Only the first fragment of a datagram has ports: the others land on another queue, and are not found to belong \
                   to its flow.";
        return Finding::bad(Severity::Warning, "hashed", name, summary, impact.into()).by_hand(
            &[format!("ethtool -N {name} rx-flow-hash udp4 sd")],
            "The same for udp6. It spreads UDP between two hosts over fewer queues: leave it where fragments are rare.",
        );
    }
    Finding::fine("hashed", name, "TCP is spread by ports, UDP by addresses, so fragments stay together")
}

fn joining(nic: &Nic) -> Finding {
    let name = &nic.name;
    let on = match &nic.joining {
        Reading::Value(on) => on,
        Reading::Unavailable { reason } => return Finding::unknown("joining", name, format!("its offloads: {reason}")),
    };
    if on.is_empty() {
        return Finding::fine("joining", name, "no offload joins packets");
    }
    let switches: Vec<&str> =
        JOINING.iter().filter(|(feature, _)| on.iter().any(|on| on == feature)).map(|(_, switch)| *switch).collect();
    let shown: Vec<&str> = switches
        .iter()
        .map(|switch| match *switch {
            "gro" => "GRO",
            "lro" => "LRO",
            other => other,
        })
        .collect();
    let verb = if shown.len() == 1 { "joins" } else { "join" };
    let summary = format!("{} {verb} packets before they are counted", and(&shown));
    let off: Vec<String> = switches.iter().map(|switch| format!("{switch} off")).collect();
    let impact = "Several packets become one of up to 64 KiB: counts, sizes, gaps and retransmissions of flows are wrong, and long ones \
               are cut. (DPDK and AF_XDP with the NIC's driver do not see it.)";
    Finding::bad(Severity::Critical, "joining", name, summary, impact.into())
        .fixed_by(vec![Step::run(&format!("ethtool -K {name} {}", off.join(" ")))], "")
}

/// Names in a row: `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
