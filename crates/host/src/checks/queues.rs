//! Queues, rings, how flows are spread over them, and what joins packets before they are seen.

use super::{SMALLEST_FRAME, USUAL_FRAME, is_fast};
use crate::card::{Card, JOINING};
use crate::ethernet::line_rate;
use crate::ethtool::{Known, Rss};
use crate::figures::default_mpps_per_core;
use crate::finding::{Finding, Severity, Step};
use crate::machine::Machine;
use crate::numbers::count;
use crate::toeplitz::{SYMMETRIC_PATTERN, Toeplitz};

/// What to know before the number of queues or descriptors changes.
pub const LINK_GOES_DOWN: &str = "Many cards drop the link for a second or two when this changes.";
/// A ring that holds less time than this overflows when its core is busy elsewhere for a moment: microseconds.
const RING_US: f64 = 1000.0;

pub fn check(machine: &Machine, card: &Card) -> Vec<Finding> {
    let mut findings = vec![queues(machine, card), ring(card)];
    if queues_of(card) > 1 {
        match &card.rss {
            Known::Is(rss) => findings.extend([symmetry(card, rss), table(card, rss)]),
            Known::No { not_known } => {
                findings.push(Finding::unknown("rss", &card.name, format!("key and table of its queues: {not_known}")));
            }
        }
        findings.push(hashed(card));
    }
    findings.push(joining(card));
    findings
}

fn queues_of(card: &Card) -> u32 {
    card.channels.ok().map_or(card.queues, |channels| channels.current)
}

/// The command that sets the number of receive queues.
pub fn set_queues(card: &str, combined: bool, queues: u32) -> String {
    format!("ethtool -L {card} {} {queues}", if combined { "combined" } else { "rx" })
}

fn queues(machine: &Machine, card: &Card) -> Finding {
    let (name, now) = (&card.name, queues_of(card));
    if now == 0 {
        return Finding::unknown("queues", name, "receive queues");
    }
    let Some(speed) = card.speed_bits() else {
        return Finding::fine("queues", name, count(now as usize, "receive queue"));
    };
    let cores = machine.cores(machine.node_of(card).map(|node| node.id)).len();
    let per_core = default_mpps_per_core() * 1e6;
    let (usual, floods) = (line_rate(speed, USUAL_FRAME), line_rate(speed, SMALLEST_FRAME));
    let cores_for = |rate: f64| (rate / per_core).ceil() as usize;
    let needed = cores_for(usual);
    let most = card.channels.ok().map(|channels| channels.maximum as usize);
    let combined = card.channels.ok().is_none_or(|channels| channels.combined);
    let more = |queues: usize| set_queues(name, combined, queues as u32);
    // One core is the system's and the exporters'.
    let useful = cores_for(floods).min(cores.saturating_sub(1)).min(most.unwrap_or(usize::MAX));
    if (now as usize) < needed {
        let what = format!("{}, {needed} are needed", count(now as usize, "receive queue"));
        let why = format!(
            "A queue is served by one core, which does about {:.1} M packets/s; at full rate {:.1} M of {USUAL_FRAME} octets come.",
            per_core / 1e6,
            usual / 1e6
        );
        let finding = Finding::bad(Severity::Wrong, "queues", name, what, why);
        return match most {
            Some(most) if most < needed => {
                let all = format!("The card has no more than {most}: another card, or two.");
                finding.by_hand(&[], &all)
            }
            _ => finding.by_hand(&[more(needed.max(useful))], LINK_GOES_DOWN),
        };
    }
    if (now as usize) < useful && most.is_some() {
        let what = format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core"));
        let why = format!(
            "Enough for usual traffic. A flood of {SMALLEST_FRAME}-octet packets ({:.1} M packets/s) would find {} without work.",
            floods / 1e6,
            count(useful - now as usize, "core")
        );
        return Finding::bad(Severity::Better, "queues", name, what, why).by_hand(&[more(useful)], LINK_GOES_DOWN);
    }
    if cores > 0 && now as usize > cores {
        let what = format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core"));
        let why = "Some cores of the card's node serve several queues, and threads take turns there.".into();
        return Finding::bad(Severity::Better, "queues", name, what, why)
            .by_hand(&[more(cores.max(2) - 1)], LINK_GOES_DOWN);
    }
    Finding::fine("queues", name, format!("{} for {}", count(now as usize, "receive queue"), count(cores, "core")))
}

fn ring(card: &Card) -> Finding {
    let name = &card.name;
    let ring = match &card.ring {
        Known::Is(ring) => *ring,
        Known::No { not_known } => return Finding::unknown("ring", name, format!("size of its rings: {not_known}")),
    };
    let what = format!("{} descriptors a queue, {} at most", ring.current, ring.maximum);
    if ring.current >= ring.maximum {
        return Finding::fine("ring", name, what);
    }
    let steps = vec![Step::run(&format!("ethtool -G {name} rx {}", ring.maximum))];
    let Some(speed) = card.speed_bits() else {
        let why = "While a core is busy elsewhere, packets wait in the ring; the card drops what does not fit.".into();
        return Finding::bad(Severity::Better, "ring", name, what, why).fixed_by(steps, LINK_GOES_DOWN);
    };
    let rate = line_rate(speed, USUAL_FRAME) / f64::from(queues_of(card).max(1));
    let holds_us = f64::from(ring.current) / rate * 1e6;
    let why = format!(
        "At full rate ({USUAL_FRAME} octets a frame) they hold {holds_us:.0} µs of traffic. If a core is busy elsewhere for longer, \
         the card drops packets."
    );
    let severity = if is_fast(card) && holds_us < RING_US { Severity::Wrong } else { Severity::Better };
    Finding::bad(severity, "ring", name, what, why).fixed_by(steps, LINK_GOES_DOWN)
}

fn symmetry(card: &Card, rss: &Rss) -> Finding {
    let name = &card.name;
    if rss.symmetric_input {
        return Finding::fine("rss", name, "both directions of a flow reach one queue (symmetric-xor)");
    }
    if let Some(function) = rss.function.as_deref().filter(|function| *function != "toeplitz") {
        let what = format!("whether both directions of a flow reach one queue: the hash is {function}, not toeplitz");
        return Finding::unknown("rss", name, what);
    }
    if rss.key.is_empty() {
        return Finding::unknown("rss", name, "the key of its queues: the card does not say");
    }
    let key = Toeplitz::new(&rss.key);
    let octets = SYMMETRIC_PATTERN.iter().cycle().take(rss.key.len());
    let symmetric: Vec<String> = octets.map(|octet| format!("{octet:02x}")).collect();
    let command = format!("ethtool -X {name} hkey {}", symmetric.join(":"));
    let note = format!("Or, if card and kernel know it: ethtool -X {name} xfrm symmetric-xor");
    if !key.is_symmetric() {
        let what = "the directions of a flow reach different queues: the RSS key is not symmetric".into();
        let why = "Two pipelines each see half of the flow and write a record of it. A key that repeats after 2 octets sends both \
                   to one queue.";
        return Finding::bad(Severity::Wrong, "rss", name, what, why.into()).by_hand(&[command], &note);
    }
    let bits = key.values_log2();
    if 1_u64 << bits < 8 * u64::from(queues_of(card)) {
        let what = format!("the RSS key tells only {} of flows apart", count(1 << bits, "kind"));
        let why = "Most queues stay empty, and one has all the work.".into();
        return Finding::bad(Severity::Wrong, "rss", name, what, why).by_hand(&[command], &note);
    }
    Finding::fine("rss", name, "both directions of a flow reach one queue (symmetric key)")
}

fn table(card: &Card, rss: &Rss) -> Finding {
    let (name, queues) = (&card.name, queues_of(card));
    if rss.table.is_empty() {
        return Finding::unknown("table", name, "the table of its queues: the card does not say");
    }
    let shares: Vec<usize> = (0..queues).map(|queue| rss.table.iter().filter(|&&of| of == queue).count()).collect();
    let (least, most) = (shares.iter().min().copied().unwrap_or(0), shares.iter().max().copied().unwrap_or(0));
    let entries = rss.table.len();
    if most - least <= 1 && entries >= queues as usize {
        return Finding::fine("table", name, format!("{entries} entries, {least} to {most} for each queue"));
    }
    let command = [format!("ethtool -X {name} equal {queues}")];
    let idle = shares.iter().filter(|&&share| share == 0).count();
    let (severity, what, why) = if idle > 0 {
        let what =
            format!("{idle} of {queues} receive queues get no packets: the indirection table does not name them");
        (Severity::Wrong, what, "Their cores idle while others drop packets.")
    } else {
        let what = format!("the indirection table gives queues {least} to {most} of {entries} entries");
        (Severity::Better, what, "The queue with the most drops packets while others have room.")
    };
    Finding::bad(severity, "table", name, what, why.into())
        .by_hand(&command, "Flows that are under way change their queue.")
}

fn hashed(card: &Card) -> Finding {
    let name = &card.name;
    let (Some(tcp), Some(udp)) = (card.hashes_tcp_ports.ok(), card.hashes_udp_ports.ok()) else {
        let not_known = [&card.hashes_tcp_ports, &card.hashes_udp_ports].into_iter().find_map(|known| match known {
            Known::No { not_known } => Some(not_known.as_str()),
            Known::Is(_) => None,
        });
        return Finding::unknown("hashed", name, format!("what it hashes: {}", not_known.unwrap_or("no answer")));
    };
    if !tcp {
        let what = "queues are chosen by addresses only, also for TCP".into();
        let why = "All flows between two hosts (a proxy, a NAT, a tunnel) land on one queue, whose core drops while others idle.";
        return Finding::bad(Severity::Better, "hashed", name, what, why.into())
            .by_hand(&[format!("ethtool -N {name} rx-flow-hash tcp4 sdfn")], "The same for tcp6.");
    }
    if *udp {
        let what = "queues are chosen by ports, also for UDP".into();
        let why = "Only the first fragment of a datagram has ports: the others land on another queue, and are not found to belong \
                   to its flow.";
        return Finding::bad(Severity::Better, "hashed", name, what, why.into()).by_hand(
            &[format!("ethtool -N {name} rx-flow-hash udp4 sd")],
            "The same for udp6. It spreads UDP between two hosts over fewer queues: leave it where fragments are rare.",
        );
    }
    Finding::fine("hashed", name, "TCP is spread by ports, UDP by addresses, so fragments stay together")
}

fn joining(card: &Card) -> Finding {
    let name = &card.name;
    let on = match &card.joining {
        Known::Is(on) => on,
        Known::No { not_known } => return Finding::unknown("joining", name, format!("its offloads: {not_known}")),
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
    let what = format!("{} {verb} packets before they are counted", and(&shown));
    let off: Vec<String> = switches.iter().map(|switch| format!("{switch} off")).collect();
    let why = "Several packets become one of up to 64 KiB: counts, sizes, gaps and retransmissions of flows are wrong, and long ones \
               are cut. (DPDK and AF_XDP with the card's driver do not see it.)";
    Finding::bad(Severity::Wrong, "joining", name, what, why.into())
        .fixed_by(vec![Step::run(&format!("ethtool -K {name} {}", off.join(" ")))], "")
}

/// Names in a row: `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
