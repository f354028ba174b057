//! The ladder of overload (docs/overload.md) through the binary: what is given up is told, counted, and comes back.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{parts, udp, weir};
use live::{Probe, flows};
use network::{BOUND, LEFT, Sender, network, until, until_within};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn packets(flow: &Value) -> u64 {
    number(&flow["packets"]) + number(&flow["rev_packets"])
}

fn has(flow: &Value, word: &str) -> bool {
    flow["approximate"].as_str().is_some_and(|words| words.split(' ').any(|it| it == word))
}

/// Runs a load to its end: the ledger, which balances, and the flows.
fn run(load: &str, more: &[&str]) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (output, ledger) = (folder.path().join("flows.json"), folder.path().join("ledger.json"));
    let sink = format!("json:{}", output.display());
    let arguments = ["probe", "-i", load, "-o", &sink, "--stats", ledger.to_str().unwrap(), "-q"];
    let (code, _, told) = parts(&weir(arguments.iter().chain(more)));
    assert_eq!((code, told.as_str()), (0, ""), "{more:?}");
    let ledger: Value = serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    let flows = flows(&output);
    assert_eq!(flows.iter().map(packets).sum::<u64>(), number(&ledger["packets"]["metered"]));
    (ledger, flows)
}

#[test]
fn one_packet_in_so_many_is_metered_and_every_record_says_so() {
    for layout in ["fused", "split"] {
        let (ledger, flows) = run("synth:velan,flows=20,packets=80k,seed=3", &["--sample", "8", "--layout", layout]);
        let line = &ledger["packets"];
        assert_eq!([&line["received"], &line["sampled_out"], &line["metered"]], [80_000, 70_000, 10_000], "{ledger}");
        assert_eq!(number(&ledger["overload"]["sampled_flows"]), flows.len() as u64);
        assert!(
            flows.iter().all(|flow| flow["sampling_min"] == 8 && flow["sampling_max"] == 8 && has(flow, "sampled"))
        );
        // What a collector would say: 4000 packets each in truth, of which 500 are expected, give or take 21.
        assert_eq!(flows.len(), 20);
        for flow in &flows {
            assert!((8 * packets(flow)).abs_diff(4000) < 8 * 150, "{flow}");
        }
    }
}

#[test]
fn connections_of_which_packets_are_left_out_are_not_judged() {
    let (ledger, flows) = run("synth:mix,flows=200,packets=20k", &["--sample", "2"]);
    let of_tcp: Vec<_> = flows.iter().filter(|flow| flow["protocol"] == 6).collect();
    assert!(of_tcp.len() > 50);
    assert!(of_tcp.iter().all(|flow| has(flow, "unanalysed") && flow.get("tcp_missing_bytes").is_none()));
    assert_eq!(number(&ledger["overload"]["unanalysed_flows"]), of_tcp.len() as u64);
}

#[test]
fn every_level_can_be_stayed_on_and_no_packet_goes_astray() {
    let load = "synth:mix,flows=3000,packets=60k";
    for (level, population) in [(0_u64, 1), (1, 1), (2, 1), (3, 2), (6, 16), (12, 1024)] {
        let (ledger, flows) = run(load, &["--overload", &level.to_string()]);
        let line = &ledger["packets"];
        let metered = number(&line["metered"]);
        // The last of the groups may have come in part.
        assert!(metered == 60_000 / population || metered == 60_000 / population + 1, "{ledger}");
        assert_eq!(number(&ledger["overload"]["level"]), level);
        let is_tcp = |flow: &&Value| flow["protocol"] == 6 && !has(flow, "overflow");
        assert!(flows.iter().filter(is_tcp).all(|flow| has(flow, "unanalysed") == (level > 0)), "level {level}");
        assert!(flows.iter().all(|flow| has(flow, "sampled") == (level > 2)), "level {level}");
        let sums = flows.iter().filter(|flow| has(flow, "overflow")).collect::<Vec<_>>();
        assert_eq!(sums.is_empty(), level < 2, "level {level}");
        assert!(sums.iter().all(|flow| has(flow, "aggregated")));
        let in_sums: u64 = sums.iter().map(|flow| packets(flow)).sum();
        assert_eq!(number(&ledger["noted"]["aggregated"]), in_sums, "{ledger}");
    }
}

#[test]
fn netflow_5_tells_the_rate_in_the_header_of_each_datagram() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(network::BOUND)).unwrap();
    let sink = format!("netflow5+udp://{}", collector.local_addr().unwrap());
    let arguments = ["probe", "-i", "synth:velan,flows=20,packets=8k", "--sample", "100", "-o", &sink, "-q"];
    let (code, _, told) = parts(&weir(arguments));
    assert_eq!((code, told.as_str()), (0, ""));
    let mut buffer = [0; 2000];
    let octets = collector.recv(&mut buffer).unwrap();
    assert!(octets > 24);
    assert_eq!(u16::from_be_bytes([buffer[22], buffer[23]]), 2 << 14 | 100);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (option, value) in [("--overload", "13"), ("--overload", "more"), ("--sample", "0"), ("--sample", "16384")] {
        let (code, _, told) = parts(&weir(["probe", "-i", "synth:mix", option, value]));
        assert_eq!(code, 1, "{option} {value}");
        assert!(told.contains(option), "{told}");
    }
}

/// A question and its answer between two hosts.
fn talk(number: u16) -> [Vec<u8>; 2] {
    let [high, low] = number.to_be_bytes();
    let (client, server) = (([10, 0, high, low], 1024 + number % 5000), ([10, 1, 0, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

#[test]
fn overload_climbs_level_by_level_and_what_comes_when_it_is_over_is_exact() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let probe = Probe::start("af_packet:right,block=64k,blocks=2", &["-o", &sink]);
    let mut sender = Sender::new(LEFT);
    let mut talk_of = |number| talk(number).iter().for_each(|frame| sender.send(frame));
    let mut sent = 0;
    talk_of(1);
    // Each time it cannot read for a while, much is lost: a level a time.
    for (level, says) in
        [(1, "no TCP analysis"), (2, "small new flows are aggregated"), (3, "one packet in 2 is metered")]
    {
        probe.signal(libc::SIGSTOP);
        (1000..1500).for_each(&mut talk_of);
        probe.signal(libc::SIGCONT);
        sent += 1000;
        let change = format!("overload level raised pipeline=af_packet:right@0 level={level} ");
        until("it climbs", || probe.told().lines().any(|line| line.contains(&change) && line.contains(says)));
    }
    until("the line tells", || {
        probe.told().lines().any(|line| line.contains("packets/s") && line.contains("| level 3 since"))
    });
    // One that it knows.
    for part in 0..100 {
        (0..10).for_each(|_| talk_of(1));
        // Slowly, so that it is not lost: not that it must not be.
        std::thread::sleep(std::time::Duration::from_millis(if part % 5 == 0 { 20 } else { 1 }));
    }
    // Five quiet seconds for each level, and longer if it had to climb again.
    until_within(10 * BOUND, "it comes down again", || {
        probe.told().lines().any(|line| {
            line.contains("overload level lowered") && line.contains("level=0") && line.contains("full detail")
        })
    });
    talk_of(2);
    let (_, told, ledger) = probe.end();
    let line = &ledger["packets"];
    assert_eq!(number(&line["received"]), 2 + sent + 2000 + 2, "{ledger}");
    assert!(number(&line["dropped_kernel"]) > 1000, "{ledger}");
    assert!(number(&line["sampled_out"]) >= 900, "half of 2000, or more: {ledger}");
    let overload = &ledger["overload"];
    let highest = number(&overload["highest"]);
    assert!(highest >= 3 && overload["level"] == 0 && number(&overload["steps"]) >= 2 * highest, "{told}");

    let flows = flows(&output);
    let of_host = |host: u64| flows.iter().find(|flow| flow["src_ip"] == format!("10.0.0.{host}")).unwrap();
    let through = of_host(1);
    assert!(has(through, "sampled"), "{through}");
    assert_eq!(
        [number(&through["sampling_min"]), number(&through["sampling_max"])],
        [1, 1 << (highest - 2)],
        "{through}"
    );
    let (least, most) = (packets(through), (packets(through) << (highest - 2)) + number(&through["queue_lost"]));
    assert!(least <= 2002 && 2002 <= most + 100, "its 2002 packets lie between {least} and {most}");
    let after = of_host(2);
    assert_eq!(packets(after), 2);
    assert_eq!([&after["approximate"], &after["sampling_max"]], [&Value::Null; 2], "{after}");
    assert_eq!(after["queue_lost"], 0);
}

#[test]
fn who_asks_for_all_packets_or_their_loss_gets_that() {
    if !network() {
        return;
    }
    let probe = Probe::start("af_packet:right,block=4k,blocks=2", &["--overload", "lose"]);
    let mut sender = Sender::new(LEFT);
    for _ in 0..3 {
        let dropped = || probe.told().lines().filter(|line| !line.contains(" 0 kernel")).count();
        let before = dropped();
        probe.signal(libc::SIGSTOP);
        (0..1000).flat_map(talk).for_each(|frame| sender.send(&frame));
        probe.signal(libc::SIGCONT);
        until("it tells of losses", || dropped() > before);
    }
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 2);
    assert_eq!([&ledger["packets"]["received"], &ledger["packets"]["sampled_out"]], [6000, 0], "{ledger}");
    assert_eq!([&ledger["overload"]["steps"], &ledger["overload"]["level"]], [0, 0], "{ledger}");
    assert!(!told.contains("level"), "{told}");
}
