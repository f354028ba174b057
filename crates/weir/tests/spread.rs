//! `weir probe --layout spread`: several threads meter what all queues bring, and flows move to those that have less to do.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, parts, udp, weir};
use live::{Probe, flows, without_times};
use network::{LEFT, Sender, network};

const MICE: u32 = 100_000;
const METERS: u64 = 4;

fn mouse(number: u32) -> [Vec<u8>; 2] {
    let [_, a, b, c] = number.to_be_bytes();
    let (client, server) = (([10, a, b, c], 1024 + (number % 5000) as u16), ([192, 0, 2, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

fn elephant() -> [Vec<u8>; 2] {
    let (client, server) = (([172, 16, 0, 1], 40_000), ([192, 0, 2, 2], 443));
    [udp(client, server, 1000), udp(server, client, 60)]
}

/// A fifth of the packets are an elephant's; every mouse sends one and gets one.
fn round(mut send: impl FnMut(Vec<u8>)) {
    for number in 0..MICE {
        mouse(number).into_iter().for_each(&mut send);
        if number.is_multiple_of(4) {
            elephant().into_iter().for_each(&mut send);
        }
    }
}

/// By how much the busiest meter had more than its share, line by line, in percent.
fn imbalances(told: &str) -> Vec<f64> {
    let of = |line: &str| line.split_once("busiest meter ")?.1.split_once(" %")?.0.parse().ok();
    told.lines().filter_map(of).collect()
}

fn moved(told: &str) -> u64 {
    let of = |line: &str| line.split_once("above its share, ")?.1.split_once(" buckets")?.0.parse().ok();
    told.lines().filter_map(of).next_back().unwrap_or(0)
}

#[test]
fn an_elephant_among_mice_is_balanced_and_no_flow_is_split() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("flows.json");
    let sink = format!("json:{}", output.display());
    let meters = METERS.to_string();
    let probe = Probe::start(
        "af_packet:right,queues=2",
        &["-o", &sink, "--layout", "spread", "--meters", &meters, "--flows", "200k"],
    );
    let mut sender = Sender::new(LEFT);
    let mut rounds = 0;
    // A machine that is slow sends less in a second. One round is 250 000 packets.
    while rounds < 2 || (rounds < 8 && imbalances(&probe.told()).last().is_none_or(|&percent| percent >= 10.0)) {
        round(|frame| sender.send(&frame));
        rounds += 1;
    }
    let (code, told, ledger) = probe.end();
    assert_eq!(code, 0, "{told}");
    let imbalances = imbalances(&told);
    assert!(imbalances.last().is_some_and(|&percent| percent < 10.0), "it became even: {imbalances:?}");
    // A meter has 128 parts at first; the one with the elephant has to give most of them away. (A line may come when that is done.)
    assert!(moved(&told) >= 64, "it was uneven: {told}");
    eprintln!("{rounds} rounds of 250 000 packets; percent above a share, line by line: {imbalances:?}");
    assert_eq!(ledger["packets"]["metered"], rounds * 250_000, "{ledger}");

    let (capture, expected) = (folder.path().join("same.pcap"), folder.path().join("expected.json"));
    let mut pcap = Pcap::new();
    for _ in 0..rounds {
        round(|frame| pcap = std::mem::replace(&mut pcap, Pcap(Vec::new())).frame(START, 0, &frame));
    }
    pcap.save(folder.path(), "same.pcap");
    let (code, _, told) = parts(&weir([
        "read",
        capture.to_str().unwrap(),
        "--flows",
        "200k",
        "-o",
        &format!("json:{}", expected.display()),
    ]));
    assert_eq!(code, 0, "{told}");
    let (flows, expected) = (without_times(&flows(&output)), without_times(&self::flows(&expected)));
    assert_eq!(flows.len(), 1 + MICE as usize);
    assert!(flows == expected, "the flows are those of a single pipeline");
}
