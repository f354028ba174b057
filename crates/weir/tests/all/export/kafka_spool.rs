//! Records that wait on disk for Kafka (`spool=`).

use super::kafka::{AGAIN, OPTIONS, PARTITIONS, PROCESS, UNREACHABLE, capture, cluster_that_returns, exported, lost};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;
use testbed::kafka::{KafkaCluster, KafkaMessage, read_topic};
use testbed::namespace::{LEFT, RIGHT, Sender, until};
use testbed::running::{Running, send_requests};
use testbed::{command, failure, ledger_of, number, read_flows, text_of};

/// Short times of `weir read`.
const TIMES: [&str; 2] = ["--timing", "sink_connect=1s,sink_outage=200ms,sink_reconnect=20ms,sink_reconnect_max=50ms"];

fn read(capture: &str, sink: &str) -> (i32, String, Value) {
    ledger_of([&["read", capture, "-o", sink][..], &TIMES].concat())
}

fn spooled(ledger: &Value) -> u64 {
    number(&ledger["sinks"][0]["spooled"]["flows"])
}

/// Delivered, spooled and found records of earlier runs.
fn earlier(ledger: &Value) -> [u64; 3] {
    ["delivered", "spooled", "found"].map(|name| number(&ledger["sinks"][0]["earlier"][name]["flows"]))
}

fn earlier_lost(ledger: &Value, reason: &str) -> u64 {
    number(&ledger["sinks"][0]["earlier"]["lost"][reason]["flows"])
}

/// How often each message is there.
fn copies(messages: &[KafkaMessage]) -> BTreeMap<&[u8], usize> {
    let mut copies = BTreeMap::new();
    messages.iter().for_each(|message| *copies.entry(message.value.as_slice()).or_default() += 1);
    copies
}

fn settings(folder: &Path, more: &str) -> String {
    format!("?format=json&linger.ms=0&spool={}{more}", folder.display())
}

#[test]
fn the_next_run_delivers_what_has_waited() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("spool");
    let sink = cluster.sink("flows", &settings(&folder, "&limit=20MiB"));
    let (first, second) = (capture(700), capture(30));
    cluster.set_down(true);
    for run in 0..2 {
        let (code, err, ledger) = read(first.name(), &sink);
        assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 0, 700), "{err} {ledger}");
        assert_eq!(earlier(&ledger), [0, 700 * run, 700 * run], "{err}");
        assert!(err.contains("records wait in the spool for the next run"), "{err}");
    }
    cluster.set_down(false);
    let (code, err, ledger) = read(second.name(), &sink);
    assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 30, 0), "{err} {ledger}");
    assert_eq!(earlier(&ledger), [1400, 0, 1400], "{err}");
    assert!(err.contains("the spool is empty again"), "{err}");
    assert_eq!(number(&ledger["sinks"][0]["messages"]), 1430);
    let messages = cluster.messages("flows", PARTITIONS);
    let copies = copies(&messages);
    assert_eq!((messages.len(), copies.len()), (1430, 700), "each run once");
    assert!(copies.values().all(|&copies| copies == 2 || copies == 3));
    let runs: BTreeMap<&str, usize> = messages.iter().fold(BTreeMap::new(), |mut runs, message| {
        *runs.entry(message.batch.rsplit_once('-').unwrap().0).or_default() += 1;
        runs
    });
    let mut runs: Vec<usize> = runs.into_values().collect();
    runs.sort_unstable();
    assert_eq!(runs, [30, 700, 700], "messages keep the header of their run");
    assert!(fs::read_dir(&folder).unwrap().all(|entry| !entry.unwrap().path().to_string_lossy().ends_with(".seg")));
}

#[test]
fn a_probe_delivers_each_record_once_when_brokers_are_back() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let (flows, spool) = (folder.path().join("flows.json"), folder.path().join("spool"));
    let sink = cluster.sink("flows", &settings(&spool, "&buffer=64KiB"));
    let json = format!("json:{}", flows.display());
    let sinks = ["-o", sink.as_str(), "-o", &json];
    let start = || Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    cluster.set_down(true);
    let probe = start();
    send_requests(&mut sender, 0..500);
    until("all have ended", || read_flows(&flows).len() == 500);
    until("some are on disk", || spooled(&probe.ledger()) > 0);
    probe.wait_for(UNREACHABLE);
    cluster.set_down(false);
    probe.wait_for(AGAIN);
    until("all are delivered", || exported(&probe.ledger()) == 500);
    probe.wait_for("the spool is empty again");
    cluster.set_down(true);
    send_requests(&mut sender, 500..1500);
    until("all have ended", || read_flows(&flows).len() == 1500);
    until("some are on disk", || spooled(&probe.ledger()) > 0);
    let (err, _, ledger) = probe.stop(0);
    let [delivered, left] = [exported(&ledger), spooled(&ledger)];
    assert_eq!((delivered, left), (500, 1000), "{err} {ledger}");
    // The next run sends them without new records.
    let probe = start();
    cluster.set_down(false);
    until("the rest is delivered", || earlier(&probe.ledger()) == [1000, 0, 1000]);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((exported(&ledger), spooled(&ledger)), (0, 0), "{err} {ledger}");
    let messages = cluster.messages("flows", PARTITIONS);
    assert_eq!((messages.len(), copies(&messages).len()), (1500, 1500), "each once");
}

#[test]
fn brokers_that_hang_at_the_end_leave_the_rest_to_the_spool() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let parent = tempfile::tempdir().unwrap();
    let sink = cluster.sink("flows", &settings(&parent.path().join("spool"), ""));
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&["-o", sink.as_str()], &OPTIONS[..]].concat());
    send_requests(&mut sender, 0..50);
    until("records are delivered", || exported(&probe.ledger()) == 50);
    cluster.set_hanging(true);
    send_requests(&mut sender, 50..150);
    until("all have ended", || number(&probe.ledger()["flows"]["created"]) == 150);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((exported(&ledger), spooled(&ledger)), (50, 100), "{err} {ledger}");
    assert!(err.contains("records wait in the spool for the next run"), "{err}");
    cluster.set_hanging(false);
    let (code, err, ledger) = read(capture(30).name(), &sink);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 30, [100, 0, 100]), "{err} {ledger}");
    // A broker may have got what it did not confirm.
    let messages = cluster.messages("flows", PARTITIONS);
    let copies = copies(&messages);
    assert_eq!(copies.len(), 180, "{copies:?}");
    assert!(copies.values().all(|&copies| copies <= 2));
}

#[test]
fn sinks_of_a_list_keep_their_shares_in_their_spools() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let parent = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| cluster.sink(name, &settings(&parent.path().join(name), "")));
    let (many, one) = (capture(400), capture(1));
    cluster.set_down(true);
    let (code, err, ledger) = read(many.name(), &format!("balance:{first},{second}"));
    let shares = [0, 1].map(|at| number(&ledger["sinks"][at]["spooled"]["flows"]));
    assert!(code == 0 && shares.iter().sum::<u64>() == 400 && !shares.contains(&0), "{err} {ledger:#}");
    // The last sink keeps what none takes.
    let away = "json+tcp://127.0.0.1:9?buffer=64KiB";
    let timing = format!("{},sink_failover=100ms", TIMES[1]);
    let both = format!("failover:{away},{second}");
    let (code, err, ledger) = ledger_of(["read", many.name(), "-o", &both, "--timing", &timing]);
    assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 0, 400), "{err} {ledger:#}");
    cluster.set_down(false);
    let mut delivered = BTreeMap::new();
    for (topic, sink) in [("first", &first), ("second", &second)] {
        let (code, err, ledger) = read(one.name(), sink);
        assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 1, 0), "{err}");
        let messages = cluster.messages(topic, PARTITIONS);
        for (message, number) in copies(&messages) {
            *delivered.entry(message.to_vec()).or_default() += number;
        }
    }
    let copies: BTreeSet<usize> = delivered.into_values().collect();
    assert_eq!(copies, BTreeSet::from([2, 4]), "each flow by either list; the one flow of the last runs also by those");
}

#[test]
fn messages_that_are_refused_are_lost_also_those_of_earlier_runs() {
    const TOO_LARGE: i32 = 10;
    let Some(mut cluster) = cluster_that_returns() else { return };
    cluster.create("flows", 1);
    let parent = tempfile::tempdir().unwrap();
    let more = "&enable.idempotence=false&batch.num.messages=100";
    let sink =
        cluster.sink("flows", &settings(&parent.path().join("spool"), more).replace("linger.ms=0", "linger.ms=1000"));
    let capture = capture(300);
    cluster.set_down(true);
    let (code, err, ledger) = read(capture.name(), &sink);
    assert_eq!((code, spooled(&ledger)), (0, 300), "{err}");
    cluster.set_down(false);
    cluster.refuse(&[TOO_LARGE]);
    let (code, err, ledger) = read(capture.name(), &sink);
    assert_eq!((earlier(&ledger), earlier_lost(&ledger, "collector_refused")), ([200, 0, 300], 100), "{err} {ledger}");
    assert_eq!((code, exported(&ledger), spooled(&ledger)), (2, 300, 0), "{err}");
    assert!(err.contains("Kafka refuses records, they are lost"), "{err}");
    assert_eq!(cluster.messages("flows", 1).len(), 500);
    // The client itself refuses what is larger than its own limit.
    let small = format!("{sink}&message.max.bytes=1000&fields=all");
    let (code, err, ledger) = read(capture.name(), &small);
    assert_eq!((code, lost(&ledger, "collector_refused")), (2, 300), "{err} {ledger}");
}

#[test]
fn a_full_spool_loses_the_oldest_and_counts_them() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let parent = tempfile::tempdir().unwrap();
    let sink = cluster.sink("flows", &settings(&parent.path().join("spool"), "&buffer=64KiB&limit=1MiB"));
    let capture = capture(10_000);
    cluster.set_down(true);
    let (code, err, ledger) = read(capture.name(), &sink);
    let (left, full) = (spooled(&ledger), lost(&ledger, "spool_full"));
    assert_eq!((code, left + full), (2, 10_000), "{err} {ledger}");
    assert!(left > 500 && full > 500 && err.matches("the spool is full").count() == 1, "{err}");
    cluster.set_down(false);
    let larger = sink.replace("limit=1MiB", "limit=20MiB");
    let (code, err, ledger) = read(capture.name(), &larger);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 10_000, [left, 0, left]), "{err}");
    assert_eq!(cluster.messages("flows", PARTITIONS).len() as u64, 10_000 + left);
}

#[test]
fn spools_of_others_are_refused() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("spool");
    let capture = capture(3);
    let sink = cluster.sink("flows", &settings(&folder, ""));
    cluster.set_down(true);
    assert_eq!(read(capture.name(), &sink).0, 0);
    let others = [
        cluster.sink("others", &settings(&folder, "")),
        cluster.sink("flows", &settings(&folder, "").replace("json", "protobuf")),
    ];
    for other in &others {
        let err = failure(1, ["read", capture.name(), "-o", other]);
        let collector = format!("kafka://{}/flows?format=json", cluster.brokers());
        assert!(err.contains(&format!("the spool belongs to the sink {collector}, not to kafka://")), "{err}");
        let output = command().args(["probe", "--check", "-i", capture.name(), "-o", other]).output().unwrap();
        let (code, _, err) = text_of(&output);
        assert!(code == 1 && err.contains("the spool belongs to the sink"), "{err}");
    }
    let _sender = Sender::new(LEFT);
    let options = ["-o", sink.as_str(), "--user", "root"];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&options, &OPTIONS[..]].concat());
    let err = failure(1, ["read", capture.name(), "-o", &sink]);
    assert!(err.contains("the spool is in use by the process"), "{err}");
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(earlier(&ledger), [0, 3, 3], "{err}");
}

#[test]
fn a_cluster_without_the_topic_ends_the_start() {
    let Some(mut cluster) = KafkaCluster::start(PROCESS) else { return };
    let parent = tempfile::tempdir().unwrap();
    cluster.refuse_topic("flows", 3);
    let sink = cluster.sink("flows", &settings(&parent.path().join("spool"), ""));
    let err = failure(1, ["read", capture(1).name(), "-o", &sink, "--timing", "sink_connect=5s"]);
    assert!(err.contains("the topic \"flows\" cannot be used"), "{err}");
}

#[test]
fn transactions_deliver_what_has_waited_and_what_follows() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let (flows, spool) = (folder.path().join("flows.json"), folder.path().join("spool"));
    let sink = cluster.sink("flows", &settings(&spool, "&buffer=64KiB&transactional.id=weir"));
    let json = format!("json:{}", flows.display());
    cluster.set_down(true);
    let (code, err, ledger) = read(capture(2000).name(), &sink);
    assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 0, 2000), "{err} {ledger}");
    // The spool belongs to the user of the first run.
    let sinks = ["-o", sink.as_str(), "-o", &json, "--user", "root"];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    probe.wait_for(UNREACHABLE);
    send_requests(&mut sender, 0..500);
    until("all have ended", || read_flows(&flows).len() == 500);
    cluster.set_down(false);
    probe.wait_for(AGAIN);
    until("all are delivered", || exported(&probe.ledger()) == 500);
    send_requests(&mut sender, 500..600);
    until("all have ended", || read_flows(&flows).len() == 600);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((exported(&ledger), spooled(&ledger), earlier(&ledger)), (600, 0, [2000, 0, 2000]), "{err} {ledger}");
    assert_eq!(number(&ledger["sinks"][0]["messages"]), 2600, "{err}");
    assert_eq!(cluster.messages("flows", PARTITIONS).len(), 2600, "each once");
}

#[test]
fn what_is_refused_in_a_transaction_is_lost_and_the_rest_is_sent_again() {
    const TOO_LARGE: i32 = 10;
    let Some(mut cluster) = KafkaCluster::start(PROCESS) else { return };
    cluster.create("flows", 1);
    let parent = tempfile::tempdir().unwrap();
    let more = "&transactional.id=weir&batch.num.messages=100";
    let sink = cluster.sink("flows", &settings(&parent.path().join("spool"), more));
    cluster.refuse(&[TOO_LARGE]);
    let (code, err, ledger) = read(capture(300).name(), &sink);
    let refused = lost(&ledger, "collector_refused");
    assert_eq!((code, exported(&ledger) + refused, spooled(&ledger)), (2, 300, 0), "{err} {ledger}");
    assert!((1..=100).contains(&refused), "{err}");
    assert_eq!(number(&ledger["sinks"][0]["messages"]), exported(&ledger));
    let (code, err, ledger) = read(capture(300).name(), &sink);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 300, [0, 0, 0]), "{err} {ledger}");
}

/// Key and header `weir.batch` of the records in whole entries of a spool.
fn records_on_disk(folder: &Path) -> BTreeSet<(Vec<u8>, String)> {
    const HEADER: usize = 100;
    let mut records = BTreeSet::new();
    let length = |octets: &[u8]| u32::from_be_bytes(octets[..4].try_into().unwrap()) as usize;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_none_or(|ending| ending != "seg") {
            continue;
        }
        let octets = fs::read(entry.path()).unwrap();
        let mut rest = &octets[..];
        while rest.len() >= HEADER && rest[..4] == *b"WsE\x01" && rest.len() >= HEADER + length(&rest[8..]) {
            let end = HEADER + length(&rest[8..]);
            let mut flows = &rest[HEADER..end];
            while !flows.is_empty() {
                let (flow, others) = flows[4..].split_at(length(flows));
                let batch = &flow[25..][..flow[24].into()];
                records.insert((flow[16..24].to_vec(), String::from_utf8(batch.to_vec()).unwrap()));
                flows = others;
            }
            rest = &rest[end..];
        }
    }
    records
}

/// `scripts/test-kafka` starts the broker, and names the number of kills.
#[test]
fn a_real_broker_has_each_record_of_the_spool_once_after_kills() {
    let Some(brokers) = std::env::var_os("WEIR_KAFKA") else {
        return eprintln!("SKIPPED: no broker of Kafka (scripts/test-kafka starts one)");
    };
    let brokers = brokers.into_string().unwrap();
    let kills: u64 = std::env::var("KAFKA_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let (topic, parent) = (format!("kills-{}", std::process::id()), tempfile::tempdir().unwrap());
    let (folder, log) = (parent.path().join("spool"), parent.path().join("log"));
    let more = format!("&buffer=64KiB&transactional.id={topic}");
    let sink = format!("kafka://{brokers}/{topic}{}", settings(&folder, &more));
    let capture = capture(1500);
    let mut on_disk = BTreeSet::new();
    for kill in 0..kills {
        let mut process = command();
        let errors = File::options().append(true).create(true).open(&log).unwrap();
        process.args(["read", capture.name(), "-o", &sink]).stderr(errors);
        let before = on_disk.len();
        let mut process = process.spawn().unwrap();
        until("it writes, or has ended", || {
            on_disk.extend(records_on_disk(&folder));
            on_disk.len() > before || process.try_wait().unwrap().is_some()
        });
        // Numbers without a pattern (Knuth's multiplier), up to 3 s.
        std::thread::sleep(Duration::from_micros(((kill * 2_654_435_761) >> 7) % 3_000_000));
        let _ = process.kill();
        process.wait().unwrap();
        on_disk.extend(records_on_disk(&folder));
    }
    let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
    assert_eq!((exported(&ledger), spooled(&ledger)), (1500, 0), "{code} {err} {ledger}");
    let [delivered, spooled, found] = earlier(&ledger);
    assert_eq!((delivered + earlier_lost(&ledger, "spool_damaged"), spooled), (found, 0), "{err}");
    let mut times: BTreeMap<(Vec<u8>, String), usize> = BTreeMap::new();
    let messages = read_topic(&brokers, &topic, PARTITIONS);
    messages.iter().for_each(|message| *times.entry((message.key.clone(), message.batch.clone())).or_default() += 1);
    let twice = times.values().filter(|&&times| times > 1).count();
    let missing = on_disk.iter().filter(|record| !times.contains_key(record)).count();
    let log = fs::read_to_string(&log).unwrap_or_default();
    let known = log.matches("are in the topic already").count();
    println!(
        "{kills} kills: {} records seen in the spool, {missing} of them missing, {} messages, {twice} records twice; \
         {known} runs found batches that were in the topic already",
        on_disk.len(),
        messages.len()
    );
    assert_eq!((missing, twice), (0, 0), "{log}");
}

#[test]
fn a_real_broker_gets_all_records_behind_a_spool_that_was_restored_from_a_copy() {
    let Ok(broker) = std::env::var("WEIR_KAFKA") else {
        return eprintln!("SKIPPED: no broker of Kafka (scripts/test-kafka starts one)");
    };
    let parent = tempfile::tempdir().unwrap();
    let [folder, copy] = ["spool", "copy"].map(|name| parent.path().join(name));
    let topic = format!("weir-restored-{}", std::process::id());
    let sink = format!("kafka://{broker}/{topic}{}", settings(&folder, "&transactional.id=restored"));
    let capture = capture(300);
    let delivers = |records: usize| {
        let (code, err, ledger) = read(capture.name(), &sink);
        assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 300, 0), "{err} {ledger}");
        assert_eq!(read_topic(&broker, &topic, PARTITIONS).len(), records, "{err}");
        err
    };
    delivers(300);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    delivers(600);
    delivers(900);
    fs::remove_dir_all(&folder).unwrap();
    fs::rename(&copy, &folder).unwrap();
    let err = delivers(1200);
    assert!(err.contains("the spool was restored from a copy"), "{err}");
    let err = delivers(1500);
    assert!(!err.contains("restored"), "{err}");
}
