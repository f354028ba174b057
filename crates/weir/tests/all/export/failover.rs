//! Sinks that stand in for each other: `failover:SINK,SINK`.

use super::certificates::{Authority, silent};
use super::tcp_export::{AGAIN, Collector, OPTIONS, capture, exported, free_address, lines, wait_for_file};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::TcpListener;
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{assert_usage_errors, is_installed, ledger_of, number, success};

const LEFT_FOR: &str = "a sink takes no records, they go to another one";
const BACK: &str = "a sink takes records again, they go there";

/// What the sinks of the first output have sent, in their order.
fn of_members(ledger: &Value) -> Vec<u64> {
    let members = ledger["sinks"][0]["members"].as_array().unwrap();
    members.iter().map(|member| number(&member["exported"]["flows"])).collect()
}

/// The clients of records, which differ.
fn clients(records: &[Value]) -> BTreeSet<String> {
    let clients: BTreeSet<_> = records.iter().map(|record| record["src_ip"].as_str().unwrap().to_owned()).collect();
    assert_eq!(clients.len(), records.len(), "a record is there twice");
    clients
}

#[test]
fn a_read_sends_everything_to_the_sink_that_is_there() {
    let (capture, away) = (capture(900), free_address());
    for scheme in ["json+tcp", "syslog+tcp", "ipfix+tcp"] {
        let (collector, address) = Collector::tcp("127.0.0.1:0");
        let sink = format!("failover:{scheme}://{away},json+tcp://{address}");
        let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
        assert_eq!((code, of_members(&ledger)), (0, vec![0, 900]), "{err}");
        assert_eq!((exported(&ledger), err.matches(LEFT_FOR).count()), (900, 1), "{err}");
        assert_eq!(clients(&lines(&collector.stop().concat())).len(), 900);
        let members = ledger["sinks"][0]["members"].as_array().unwrap();
        assert_eq!([0, 1].map(|at| members[at]["is_active"].as_bool().unwrap()), [false, true]);
    }
}

#[test]
fn a_spool_of_the_last_sink_keeps_what_no_sink_takes() {
    let (many, one, folder) = (capture(20_000), capture(1), tempfile::tempdir().unwrap());
    let [first, second] = [free_address(), free_address()];
    let spool = folder.path().join("spool");
    let of_spool = format!("json+tcp://{second}?spool={}", spool.display());
    let sink = format!("failover:json+tcp://{first}?buffer=64KiB,{of_spool}");
    let (code, err, ledger) =
        ledger_of(["read", many.name(), "-o", &sink, "--timing", "sink_failover=200ms,sink_outage=2s"]);
    assert_eq!((code, number(&ledger["sinks"][0]["spooled"]["flows"])), (0, 20_000), "{err} {ledger:#}");
    let (collector, _) = Collector::tcp(&second);
    let (code, err, _) = ledger_of(["read", one.name(), "-o", &of_spool]);
    assert_eq!((code, lines(&collector.stop().concat()).len()), (0, 20_001), "{err}");
}

#[test]
fn what_a_collector_does_not_read_goes_to_the_other_one() {
    if !is_installed("openssl") {
        return eprintln!("SKIPPED: openssl is not installed");
    }
    let (authority, capture) = (Authority::new(), capture(30_000));
    authority.sign("server", "IP:127.0.0.1");
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
    let (_deaf_tls, tls_address) = silent(authority.server("server", None));
    for first in [
        format!("json+tcp://{}?fields=all", deaf.local_addr().unwrap()),
        format!("json+tls://{tls_address}?fields=all&ca={}", authority.path("ca.pem")),
    ] {
        let (collector, address) = Collector::tcp("127.0.0.1:0");
        let sink = format!("failover:{first},json+tcp://{address}");
        let (code, err, ledger) =
            ledger_of(["read", capture.name(), "-o", &sink, "--timing", "sink_failover=200ms,sink_close=10ms"]);
        let sent = of_members(&ledger);
        assert_eq!((code, exported(&ledger)), (0, 30_000), "{err} {ledger:#}");
        assert!(sent[0] > 0 && sent[1] > 0 && err.contains(LEFT_FOR), "{err}");
        let has = || collector.sessions().iter().flatten().filter(|octet| **octet == b'\n').count() as u64;
        until("the collector has read everything", || has() >= sent[1]);
        // What the system took for the first one cannot be taken back. All else is there, once.
        assert_eq!(clients(&lines(&collector.stop().concat())).len() as u64, sent[1]);
    }
}

#[test]
fn a_probe_changes_to_the_other_collector_and_back() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let (first, address) = Collector::tcp("127.0.0.1:0");
    let (second, other) = Collector::tcp("127.0.0.1:0");
    let sink = format!("failover:json+tcp://{address},json+tcp://{other}");
    let json = format!("json:{}", flows.display());
    let timing = format!("{},sink_failover=100ms", OPTIONS[5]);
    let options = [&["-o", sink.as_str(), "-o", &json], &OPTIONS[..5], &[timing.as_str()]].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..50);
    until("the first one has them", || first.sessions().first().is_some_and(|session| lines(session).len() == 50));
    let mut received = first.stop();
    send_requests(&mut sender, 50..100);
    probe.wait_for(LEFT_FOR);
    until("the other one has them", || lines(&second.sessions().concat()).len() == 50);
    let (first, _) = Collector::tcp(&address);
    probe.wait_for(BACK);
    send_requests(&mut sender, 100..150);
    until("the first one has them", || lines(&first.sessions().concat()).len() == 50);
    wait_for_file(&flows, 150);
    let times = [LEFT_FOR, BACK, AGAIN].map(|event| probe.times(event));
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((times, of_members(&ledger)), ([1, 1, 1], vec![100, 50]), "{err}");
    received.extend(first.stop());
    received.extend(second.stop());
    assert_eq!(clients(&lines(&received.concat())).len(), 150);
    assert_eq!(number(&ledger["sinks"][0]["members"][0]["takeovers"]), 1);
}

#[test]
fn records_wait_while_no_sink_takes_them() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let [first, second] = [free_address(), free_address()];
    let sink = format!("failover:json+tcp://{first}?buffer=64KiB,json+tcp://{second}?buffer=64KiB");
    let json = format!("json:{}", flows.display());
    let timing = format!("{},sink_failover=100ms", OPTIONS[5]);
    let options = [&["-o", sink.as_str(), "-o", &json], &OPTIONS[..5], &[timing.as_str()]].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    // More than the buffer of a sink.
    send_requests(&mut sender, 0..500);
    wait_for_file(&flows, 500);
    let (collector, _) = Collector::tcp(&second);
    probe.wait_for(LEFT_FOR);
    until("all are there", || lines(&collector.sessions().concat()).len() == 500);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(of_members(&ledger), [0, 500], "{err}");
    assert_eq!(lines(&collector.stop().concat()), testbed::read_flows(&flows), "in their order");
}

#[test]
fn lists_of_sinks_that_cannot_stand_in_are_refused() {
    let refused = |sink: &'static str| ["read", "no.pcap", "-o", sink];
    assert_usage_errors(&[
        (
            &refused("failover:json+tcp://h:1"),
            "failover:json+tcp://h:1: this is not a list of sinks; write failover:SINK",
        ),
        (&refused("failover:json+tcp://h:1,json+tcp://h:1"), "failover: json+tcp://h:1 is there twice"),
        (
            &refused("failover:json+tcp://h:1,json+tcp://H:1?retry=5s"),
            "failover: json+tcp://H:1?retry=5s is there twice",
        ),
        (&refused("failover:ipfix+udp://h,json+tcp://h:1"), "ipfix+udp://h can only be the last sink, because"),
        (&refused("failover:json:a,json+tcp://h:1"), "failover: json:a can only be the last sink"),
        (&refused("failover:json+tcp://h:1,table:a"), "failover: table:a cannot be one of its sinks"),
        (&refused("failover:json+tcp://h:1,balance:json:a,json:b"), "balance:json:a cannot be one of its sinks"),
        (&refused("balance:json:a,failover:json+tcp://h:1,json:b"), "failover:json+tcp://h:1 cannot be one of its"),
        (&refused("failover:json+tcp://h:1,json:b?where=tcp"), "failover: json:b: where= is not for one of its sinks"),
    ]);
    let view = ["read", "no.pcap", "-o", "failover:json+tcp://h:1,json:b", "--by", "host"];
    assert_usage_errors(&[(&view, "json:b: with --by or --every it has a view of the whole run")]);
    let sink = "failover:json+tcp://127.0.0.1:9,ipfix+udp://127.0.0.1:9";
    let out = success(["probe", "--check", "-i", "synth:velan", "-o", sink]);
    assert!(out.contains("failover   1: gets the records\n"), "{out}");
    assert!(out.contains("failover   2: gets them if those before it take none\n"), "{out}");
}
