//! `weir probe --layout spread`: metering threads share the packets of all queues, and the
//! rebalancer moves flows from busy to idle threads without splitting one.

use testbed::running::{Running, flows_of_file, statuses, wire, without_times};
use testbed::udp;

const SMALL_FLOWS: u32 = 20_000;
/// Packets of a round: two of each small flow, and two of the large one for every fourth.
const ROUND_PACKETS: u64 = SMALL_FLOWS as u64 * 5 / 2;
const METERS: u64 = 4;

/// A request and its response of a small flow.
fn small_flow(number: u32) -> [Vec<u8>; 2] {
    let [_, a, b, c] = number.to_be_bytes();
    let (client, server) = (([10, a, b, c], 1024 + (number % 5000) as u16), ([192, 0, 2, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

/// Two packets of the one large flow.
fn large_flow() -> [Vec<u8>; 2] {
    let (client, server) = (([172, 16, 0, 1], 40_000), ([192, 0, 2, 2], 443));
    [udp(client, server, 1000), udp(server, client, 60)]
}

/// One request and response of every small flow. A fifth of all packets are of the large flow.
fn round(mut send: impl FnMut(Vec<u8>)) {
    for number in 0..SMALL_FLOWS {
        small_flow(number).into_iter().for_each(&mut send);
        if number.is_multiple_of(4) {
            large_flow().into_iter().for_each(&mut send);
        }
    }
}

/// A figure of the only pipeline in each status.
fn figures(err: &str, name: &str) -> Vec<f64> {
    statuses(err).iter().filter_map(|status| status["pipelines"][0][name].as_f64()).collect()
}

/// Excess of the busiest meter over the mean in each status, in percent.
fn imbalances_percent(err: &str) -> Vec<f64> {
    figures(err, "busiest_meter_above_share_percent")
}

/// Buckets that the rebalancer has moved, from the last status.
fn moved_buckets(err: &str) -> f64 {
    figures(err, "moved_buckets").last().copied().unwrap_or(0.0)
}

#[test]
fn the_load_of_one_large_flow_is_balanced_and_no_flow_is_split() {
    let Some(mut sender) = wire() else { return };
    let meters = METERS.to_string();
    let options = ["--layout", "spread", "--meters", &meters, "--flows", "200k", "--status", "json"];
    let probe = Running::probe("af_packet:right,queues=2", &options);
    let mut rounds = 0;
    // A slow machine sends fewer packets per second.
    while rounds < 2
        || (rounds < 40 && imbalances_percent(&probe.stderr()).last().is_none_or(|&percent| percent >= 10.0))
    {
        round(|frame| sender.send(&frame));
        rounds += 1;
    }
    let (err, flows, ledger) = probe.stop(0);
    let imbalances = imbalances_percent(&err);
    assert!(imbalances.last().is_some_and(|&percent| percent < 10.0), "not balanced: {imbalances:?}");
    // Each meter starts with 128 buckets; the one with the large flow gives most of them away.
    assert!(moved_buckets(&err) >= 64.0, "{err}");
    eprintln!("{rounds} rounds of {ROUND_PACKETS} packets; percent above the mean per line: {imbalances:?}");
    assert_eq!(ledger["packets"]["metered"], rounds * ROUND_PACKETS, "{ledger}");

    let mut frames = Vec::new();
    (0..rounds).for_each(|_| round(|frame| frames.push(frame)));
    let (flows, expected) = (without_times(&flows), flows_of_file(&frames, &["--flows", "200k"]));
    assert_eq!(flows.len(), 1 + SMALL_FLOWS as usize);
    assert!(flows == expected, "the flow records differ from those of one pipeline");
}
