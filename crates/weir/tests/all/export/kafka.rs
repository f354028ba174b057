//! Export to Kafka: the mock cluster of librdkafka, in a process of its own, and a consumer of the same library.

use super::tcp_export::{Collector, lines};
use crate::interop::goflow2::read_messages;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testbed::kafka::{KafkaCluster, KafkaMessage, ProtoValue, proto_fields, proto_message, read_topic, serve_cluster};
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{
    Pcap, SavedCapture, capture_files, command, failure, ledger_of, number, read_flows, request_and_response, success,
    text_of, weir,
};

/// The test that is the process of a cluster, when it is started as one.
pub(super) const PROCESS: &str = "export::kafka::a_cluster_is_served_in_a_process_of_its_own";
/// Partitions of a topic that a client asks for first.
pub(super) const PARTITIONS: i32 = 4;
/// Fields of goflow2 that are named otherwise in JSON.
const NAMES: [(&str, &str); 20] = [
    ("src_addr", "src_ip"),
    ("dst_addr", "dst_ip"),
    ("bytes", "fwd_bytes"),
    ("packets", "fwd_packets"),
    ("src_as", "src_as"),
    ("dst_as", "dst_as"),
    ("in_if", "interface"),
    ("proto", "protocol_number"),
    ("src_port", "src_port"),
    ("dst_port", "dst_port"),
    ("ip_tos", "fwd_tos"),
    ("ip_ttl", "fwd_ttl_min"),
    ("tcp_flags", "fwd_tcp_flags_number"),
    ("src_mac", "src_mac"),
    ("dst_mac", "dst_mac"),
    ("vlan_id", "fwd_vlan_id"),
    ("icmp_type", "fwd_icmp_type"),
    ("icmp_code", "fwd_icmp_code"),
    ("time_flow_start_ns", "start_time"),
    ("time_flow_end_ns", "end_time"),
];
pub(super) const OPTIONS: [&str; 6] = [
    "--idle",
    "100ms",
    "--status",
    "json",
    "--timing",
    "sink_reconnect=20ms,sink_reconnect_max=50ms,sink_tick=20ms,sink_retry=20ms",
];
pub(super) const UNREACHABLE: &str = "collector cannot be reached";
pub(super) const AGAIN: &str = "connected to the collector again";

fn schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/weir-flow.proto")
}

pub(super) fn capture(flows: u16) -> SavedCapture {
    Pcap::of(&(0..flows).flat_map(request_and_response).collect::<Vec<_>>()).saved()
}

pub(super) fn exported(ledger: &Value) -> u64 {
    number(&ledger["sinks"][0]["exported"]["flows"])
}

pub(super) fn lost(ledger: &Value, reason: &str) -> u64 {
    number(&ledger["sinks"][0]["lost"][reason]["flows"])
}

/// The fields of a message by name. Octets are hexadecimal, texts are texts.
fn decoded(message: &KafkaMessage, schema: &[(u64, String, String)]) -> BTreeMap<String, String> {
    let names: BTreeMap<u64, (&str, &str)> =
        schema.iter().map(|(number, kind, name)| (*number, (kind.as_str(), name.as_str()))).collect();
    let mut fields = BTreeMap::new();
    for (number, value) in proto_message(&message.value) {
        let (kind, name) = names[&number];
        let value = match (kind, value) {
            ("uint32" | "uint64", ProtoValue::Number(number)) => number.to_string(),
            // mpls_label, packed: one label.
            ("uint32", ProtoValue::Octets(packed)) => {
                packed.iter().rev().fold(0_u64, |number, octet| number << 7 | u64::from(octet & 0x7f)).to_string()
            }
            ("double", ProtoValue::Double(number)) => number.to_string(),
            ("bytes", ProtoValue::Octets(octets)) => format!("{octets:?}"),
            ("string", ProtoValue::Octets(octets)) => String::from_utf8(octets).unwrap(),
            other => panic!("{name}: {other:?}"),
        };
        assert!(fields.insert(name.to_owned(), value).is_none(), "{name} is there once");
    }
    fields
}

/// A value of JSON as [`decoded`] has it; `None` for null.
fn expected(kind: &str, value: &Value) -> Option<String> {
    Some(match (kind, value) {
        (_, Value::Null) => return None,
        ("bytes", Value::String(address)) => match address.parse().unwrap() {
            IpAddr::V4(address) => format!("{:?}", address.octets()),
            IpAddr::V6(address) => format!("{:?}", address.octets()),
        },
        ("uint64", Value::String(text)) if text.ends_with('Z') => {
            let time: jiff::Timestamp = text.parse().unwrap();
            time.as_nanosecond().to_string()
        }
        ("uint64", Value::String(mac)) => u64::from_str_radix(&mac.replace(':', ""), 16).unwrap().to_string(),
        ("double", number) => number.as_f64().unwrap().to_string(),
        (_, Value::String(text)) => text.clone(),
        (_, number) => number.to_string(),
    })
}

fn compare(message: &BTreeMap<String, String>, line: &Value, schema: &[(u64, String, String)]) {
    for (number, kind, name) in schema {
        let found = message.get(name).cloned();
        if *number >= 1000 && name != "biflow_direction" {
            let value = line.get(name).or_else(|| line.get(format!("fwd_{name}")));
            assert_eq!(found, expected(kind, value.unwrap_or_else(|| panic!("JSON has no {name}"))), "{name}: {line}");
        } else if let Some((_, of_json)) = NAMES.iter().find(|(of_goflow2, _)| of_goflow2 == name) {
            let value = expected(kind, &line[of_json]).filter(|value| value != "0");
            assert_eq!(found, value, "{name}: {line}");
        }
    }
    let mpls = line["fwd_mpls_label"].as_u64().map(|label| label.to_string());
    assert_eq!(message.get("mpls_label"), mpls.as_ref());
    let ethertype = line["ethertype"].as_u64().unwrap();
    let of_ip = match line["src_ip"].as_str() {
        Some(address) if address.contains(':') => 0x86dd,
        Some(_) => 0x0800,
        None => ethertype,
    };
    assert_eq!(
        message.get("etype").cloned().unwrap_or_default(),
        if of_ip == 0 { String::new() } else { of_ip.to_string() }
    );
    assert_eq!(message["sampling_rate"], "1");
    assert_eq!(message["observation_domain_id"], "77");
}

/// Compares the numbers that goflow2 has of a message.
fn compare_goflow2(read: &Value, own: &BTreeMap<String, String>) {
    let numbers = "sampling_rate sequence_num bytes packets src_port dst_port proto in_if ip_tos ip_ttl tcp_flags \
        src_mac dst_mac vlan_id icmp_type icmp_code etype time_flow_start_ns time_flow_end_ns time_received_ns \
        observation_domain_id";
    for name in numbers.split_whitespace() {
        assert_eq!(read.get(name).map(Value::to_string), own.get(name).cloned(), "{name}: {read}");
    }
    assert_eq!(read["mpls_label"][0].as_u64().map(|label| label.to_string()), own.get("mpls_label").cloned());
    assert_eq!(read.get("src_addr").is_some(), own.contains_key("src_addr"));
}

/// The common arguments of two runs over all captures.
fn of_captures(more: &[&str]) -> Vec<String> {
    let options = ["read", "-q", "--layer2", "--mac-addresses", "--decap", "--dpi", "light", "--domain", "77"];
    let mut arguments: Vec<String> = options.iter().chain(more).map(|&option| option.into()).collect();
    arguments.extend(capture_files().iter().map(|file| file.to_str().unwrap().to_owned()));
    arguments
}

#[test]
fn messages_have_the_values_of_json() {
    let Some(cluster) = KafkaCluster::start(PROCESS) else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = format!("json:{}?fields=all", folder.path().join("flows.json").display());
    success(of_captures(&["--uniflow", "-o", &json]));
    let lines = read_flows(&folder.path().join("flows.json"));
    let sink = cluster.sink("flows", "");
    let (code, err, ledger) = ledger_of(of_captures(&["-o", &sink]));
    assert_eq!(code, 0, "{err}");
    let mut messages = cluster.messages("flows", PARTITIONS);
    let schema = proto_fields(&schema());
    let sequence = |message: &KafkaMessage| {
        decoded(message, &schema).get("sequence_num").map_or(0, |number| number.parse().unwrap())
    };
    messages.sort_by_cached_key(|message| sequence(message) as u64);
    assert_eq!((messages.len(), lines.len()), (lines.len(), messages.len()));
    let of_sink = |name: &str| number(&ledger["sinks"][0][name]);
    let octets: usize = messages.iter().map(|message| message.value.len()).sum();
    assert_eq!([of_sink("messages"), of_sink("wire_records")], [lines.len() as u64; 2]);
    assert_eq!(of_sink("octets"), octets as u64);
    if let Some(read) = read_messages(&messages) {
        let decoded = messages.iter().map(|message| decoded(message, &schema));
        assert_eq!(read.len(), lines.len());
        read.iter().zip(decoded).for_each(|(read, own)| compare_goflow2(read, &own));
    }
    let mut names = BTreeSet::new();
    let mut keys: BTreeMap<String, (&[u8], i32)> = BTreeMap::new();
    for (message, line) in messages.iter().zip(&lines) {
        let fields = decoded(message, &schema);
        compare(&fields, line, &schema);
        if let Some(id) = fields.get("community_id") {
            let key = (message.key.as_slice(), message.partition);
            assert_eq!(*keys.entry(id.clone()).or_insert(key), key, "one key and partition for both directions");
        }
        names.extend(fields.into_keys());
    }
    assert!(names.len() > 60 && names.contains("tcp_handshake_rtt_ns") && names.contains("sni"), "{names:?}");
    let partitions: BTreeSet<i32> = messages.iter().map(|message| message.partition).collect();
    assert_eq!(partitions.len(), PARTITIONS as usize);
    let batches: BTreeSet<&str> = messages.iter().map(|message| message.batch.rsplit_once('-').unwrap().0).collect();
    assert_eq!(
        (batches.len(), messages[0].batch.rsplit_once('-').unwrap().1),
        (1, "0"),
        "the run, and the first batch"
    );
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    assert!(messages.iter().all(|message| message.probe == host), "{:?}", messages[0]);
}

#[test]
fn json_and_selected_fields_are_those_of_files() {
    let Some(mut cluster) = KafkaCluster::start(PROCESS) else { return };
    ["json", "uniflow", "selected"].iter().for_each(|topic| cluster.create(topic, 1));
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let json = format!("json:{}?fields=all", flows.display());
    let web = testbed::captures().join("web.pcap");
    for (topic, more) in [("json", &[][..]), ("uniflow", &["--uniflow"])] {
        let _ = fs::remove_file(&flows);
        // Other options of librdkafka, and two sinks at a time.
        let sink = cluster.sink(topic, "?format=json&fields=all&linger.ms=1&compression.type=lz4");
        success([&["read", "-q", web.to_str().unwrap(), "-o", &sink, "-o", &json][..], more].concat());
        let messages = cluster.messages(topic, 1);
        let lines: Vec<u8> =
            messages.into_iter().flat_map(|message| [message.value, b"\n".to_vec()].concat()).collect();
        assert_eq!(String::from_utf8(lines).unwrap(), fs::read_to_string(&flows).unwrap());
    }
    let sink = cluster.sink("selected", "?fields=rev_tcp_rtt_count,end_reason&where=tcp");
    success(["read", "-q", web.to_str().unwrap(), "-o", &sink]);
    let schema = proto_fields(&schema());
    let fields = decoded(&cluster.messages("selected", 1)[0], &schema);
    let numbers: BTreeMap<&str, u64> = schema.iter().map(|(number, _, name)| (name.as_str(), *number)).collect();
    let own: Vec<&String> = fields.keys().filter(|name| numbers[name.as_str()] >= 1000).collect();
    assert_eq!(own, ["biflow_direction", "end_reason", "tcp_rtt_count"]);
    assert_eq!(fields["proto"], "6");
}

/// The threads of librdkafka are in the sandbox, as the main thread is.
fn assert_restricted(probe: &Running) {
    let threads = fs::read_dir(format!("/proc/{}/task", probe.process.0.id())).unwrap();
    let statuses = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let of_library: Vec<String> = statuses.filter(|status| status.starts_with("Name:\trdk:")).collect();
    let expected = format!("Seccomp:\t{}\n", probe.status("Seccomp:"));
    assert!(of_library.len() > 1 && of_library.iter().all(|status| status.contains(&expected)), "{of_library:?}");
}

#[test]
fn a_cluster_is_served_in_a_process_of_its_own() {
    serve_cluster();
}

/// A cluster in a network namespace of its own, whose brokers can return. A client that tries the port of a broker must
/// not get this port for its own end: the broker could not listen there again, and librdkafka ends the process then.
pub(super) fn cluster_that_returns() -> Option<KafkaCluster> {
    if !network() {
        return None;
    }
    ip("link set lo up");
    let cluster = KafkaCluster::start(PROCESS)?;
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 30000").unwrap();
    Some(cluster)
}

#[test]
fn brokers_that_come_back_get_what_has_waited() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let (sink, json) = (cluster.sink("flows", "?linger.ms=0"), format!("json:{}", flows.display()));
    let sinks = ["-o", sink.as_str(), "-o", &json];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    send_requests(&mut sender, 0..50);
    let delivered = |number: u64| until("records are delivered", || exported(&probe.ledger()) == number);
    delivered(50);
    assert_restricted(&probe);
    cluster.set_down(true);
    send_requests(&mut sender, 50..100);
    until("the other sink has them", || read_flows(&flows).len() == 100);
    probe.wait_for(UNREACHABLE);
    until("they wait", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) == 50);
    cluster.set_down(false);
    probe.wait_for(AGAIN);
    send_requests(&mut sender, 100..150);
    delivered(150);
    let times = [UNREACHABLE, AGAIN].map(|event| probe.times(event));
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(times, [1, 1], "{err}");
    assert_eq!((exported(&ledger), number(&ledger["sinks"][0]["wire_records"])), (150, 300), "{err}");
    assert_eq!(cluster.messages("flows", PARTITIONS).len(), 300, "each once");
}

#[test]
fn while_no_broker_is_there_another_sink_gets_the_records() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let (collector, address) = Collector::tcp("127.0.0.1:0");
    let sink = format!("failover:{},json+tcp://{address}", cluster.sink("flows", "?linger.ms=0"));
    let timing = format!("{},sink_failover=100ms", OPTIONS[5]);
    let options = [&["-o", sink.as_str()], &OPTIONS[..5], &[timing.as_str()]].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..50);
    until("records are delivered", || exported(&probe.ledger()) == 50);
    cluster.set_down(true);
    send_requests(&mut sender, 50..100);
    probe.wait_for("a sink takes no records, they go to another one");
    send_requests(&mut sender, 100..150);
    until("the other sink has them", || lines(&collector.sessions().concat()).len() >= 50);
    cluster.set_down(false);
    probe.wait_for("a sink takes records again, they go there");
    until("all are delivered", || exported(&probe.ledger()) == 150);
    let (err, _, _) = probe.stop(0);
    let others = lines(&collector.stop().concat()).len();
    assert_eq!(cluster.messages("flows", PARTITIONS).len(), 2 * (150 - others), "{err}");
}

#[test]
fn refused_messages_are_counted_with_their_flows() {
    let Some(mut cluster) = KafkaCluster::start(PROCESS) else { return };
    cluster.create("flows", 1);
    const TOO_LARGE: i32 = 10;
    const NOT_LEADER: i32 = 6;
    let capture = capture(300);
    // What is retried is delivered once; what is refused is lost.
    cluster.refuse(&[NOT_LEADER, NOT_LEADER]);
    let sink = cluster.sink("flows", "");
    let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
    assert_eq!((code, exported(&ledger)), (0, 300), "{err}");
    assert_eq!(cluster.messages("flows", 1).len(), 600);
    cluster.refuse(&[TOO_LARGE]);
    let sink = cluster.sink("flows", "?enable.idempotence=false&batch.num.messages=100&linger.ms=1000");
    let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
    assert_eq!((code, exported(&ledger), lost(&ledger, "collector_refused")), (2, 250, 50), "{err}\n{ledger}");
    assert!(err.matches("Kafka refuses records, they are lost").count() == 1 && err.contains("too large"), "{err}");
    assert_eq!(cluster.messages("flows", 1).len(), 600 + 500);
    // The topic does not exist.
    cluster.refuse_topic("other", 3);
    let sink = cluster.sink("other", "");
    let err = failure(1, ["read", capture.name(), "-o", &sink, "--timing", "sink_connect=5s"]);
    assert!(err.contains("the topic \"other\" cannot be used: Broker: Unknown topic or partition"), "{err}");
}

#[test]
fn records_beyond_the_buffer_are_lost_and_counted() {
    let Some(mut cluster) = cluster_that_returns() else { return };
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    cluster.set_down(true);
    let (sink, json) = (cluster.sink("flows", "?buffer=64KiB"), format!("json:{}", flows.display()));
    let sinks = ["-o", sink.as_str(), "-o", &json];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    probe.wait_for(UNREACHABLE);
    send_requests(&mut sender, 0..500);
    until("the other sink has them", || read_flows(&flows).len() == 500);
    until("some are lost, and the others wait", || {
        let ledger = probe.ledger();
        let waiting = number(&ledger["sinks"][0]["waiting"]["flows"]);
        waiting > 0 && waiting + lost(&ledger, "buffer_full") == 500 && waiting < 250
    });
    cluster.set_down(false);
    probe.wait_for(AGAIN);
    let (err, _, ledger) = probe.stop(2);
    let lost = lost(&ledger, "buffer_full");
    assert_eq!(exported(&ledger) + lost, 500, "{err}");
    assert_eq!(cluster.messages("flows", PARTITIONS).len() as u64, 2 * (500 - lost));
}

#[test]
fn brokers_that_do_not_return_end_the_run_with_exact_counts() {
    let Some(mut cluster) = KafkaCluster::start(PROCESS) else { return };
    cluster.set_down(true);
    let (capture, sink) = (capture(200), cluster.sink("flows", ""));
    let (code, err, ledger) = ledger_of(["probe", "-i", capture.name(), "-o", &sink, "--timing", "sink_outage=200ms"]);
    assert_eq!((code, lost(&ledger, "collector_unreachable")), (2, 200), "{err}\n{ledger}");
    assert!(err.contains("records were not delivered in time"), "{err}");
}

#[test]
fn options_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [bad, none] = ["bad", "none"].map(|name| folder.path().join(name));
    fs::write(&bad, "# comment\nsasl.password = s3cret\nno.such.option=s3cret\n").unwrap();
    let permit = |mode| fs::set_permissions(&bad, fs::Permissions::from_mode(mode)).unwrap();
    let capture = capture(1);
    let read = |settings: &str| failure(1, ["read", capture.name(), "-o", &format!("kafka://127.0.0.1:1/t{settings}")]);
    let err = failure(1, ["read", capture.name(), "-o", "kafka://h/t?sasl.password=s3cret"]);
    assert!(err.contains("kafka://h/t: sasl.password is a secret") && !err.contains("s3cret"), "{err}");
    assert!(read(&format!("?options={}", none.display())).contains("none: No such file"));
    permit(0o640);
    let err = read(&format!("?options={}", bad.display()));
    assert!(err.contains("bad: other users may read this file with a password; chmod 600 it"), "{err}");
    permit(0o600);
    // Without the library, the sentence that says how to install it.
    fs::write(folder.path().join("librdkafka.so.1"), "no library").unwrap();
    let sink = ["read", capture.name(), "-o", "kafka://127.0.0.1:1/t"];
    let output = command().args(sink).env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let (code, _, err) = text_of(&output);
    assert!(code == 1 && err.contains("librdkafka is not installed; install the package librdkafka1 (Debian"), "{err}");
    if KafkaCluster::start(PROCESS).is_none() {
        return;
    }
    let err = read(&format!("?options={}", bad.display()));
    assert!(err.contains("no.such.option: No such configuration property") && !err.contains("s3cret"), "{err}");
    let err = read("?compression.level=s3cret");
    assert!(err.contains("compression.level: Invalid value for configuration property"), "{err}");
    let err = read("");
    assert!(err.contains("Connection refused") && err.contains("is a broker of Kafka there"), "{err}");
    let (code, _, err) = weir(["read", capture.name(), "-o", "kafka://no-such-host.invalid/t"]);
    assert!(code == 1 && err.contains("no-such-host.invalid"), "{err}");
}

/// `scripts/test-kafka` starts the broker.
#[test]
fn a_real_broker_has_each_message_once() {
    let Some(brokers) = std::env::var_os("WEIR_KAFKA") else {
        return eprintln!("SKIPPED: no broker of Kafka (scripts/test-kafka starts one)");
    };
    let brokers = brokers.into_string().unwrap();
    let topic = format!("flows-{}", std::process::id());
    let sink = format!("kafka://{brokers}/{topic}");
    let source = "synth:mix,flows=20k,packets=200k,seed=5";
    let (code, err, ledger) = ledger_of(["read", source, "-o", &sink]);
    assert_eq!(code, 0, "{err}");
    let messages = read_topic(&brokers, &topic, PARTITIONS);
    let of_sink = |name: &str| number(&ledger["sinks"][0][name]);
    let octets: usize = messages.iter().map(|message| message.value.len()).sum();
    let counted = [messages.len() as u64, messages.len() as u64, octets as u64];
    assert_eq!(["messages", "wire_records", "octets"].map(of_sink), counted, "{err}");
    let schema = proto_fields(&schema());
    let own: Vec<_> = messages.iter().map(|message| decoded(message, &schema)).collect();
    let sum = |name: &str| own.iter().filter_map(|fields| fields.get(name)?.parse::<u64>().ok()).sum::<u64>();
    let exported = &ledger["sinks"][0]["exported"];
    assert_eq!((sum("packets"), sum("l2_bytes")), (number(&exported["packets"]), number(&exported["bytes"])));
    let sequence: BTreeSet<&str> =
        own.iter().map(|fields| fields.get("sequence_num").map_or("0", String::as_str)).collect();
    assert_eq!(sequence.len(), messages.len());
    let goflow2 = read_messages(&messages);
    if let Some(read) = &goflow2 {
        assert_eq!(read.len(), messages.len());
        read.iter().zip(&own).for_each(|(read, own)| compare_goflow2(read, own));
    }
    let flows = number(&exported["flows"]);
    let read = goflow2.map_or("goflow2 not built".into(), |read| format!("goflow2 read {}", read.len()));
    println!("ledger: {flows} flows exported, {} messages, {octets} octets; {read}", of_sink("messages"));
}
