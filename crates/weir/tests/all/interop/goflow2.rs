//! goflow2: `goflow2/main.go` hands datagrams to it. The test builds this program if Go is installed
//! and `scripts/bootstrap test` could fetch the modules.

use super::export::{
    COMMON, Case, Export, IPFIX_BASIC, IPFIX_FULL, IPFIX_LIST, IPFIX_TWO_WAY, NETFLOW5, NETFLOW9_BASIC, NETFLOW9_FULL,
    Row, number, receive, row, write_capture,
};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use testbed::command;
use testbed::kafka::KafkaMessage;

const NAMES: &str = "src:src_addr dst:dst_addr src_port:src_port dst_port:dst_port protocol:proto packets:packets \
    bytes:bytes start_ns:time_flow_start_ns end_ns:time_flow_end_ns tcp_flags:tcp_flags tos:ip_tos ttl_min:ip_ttl \
    vlan:vlan_id mpls:mpls_label icmp_type:icmp_type icmp_code:icmp_code interface:in_if src_mac:src_mac \
    dst_mac:dst_mac sampling:sampling_rate";
const BASIC: [&str; 8] = ["ttl_min", "vlan", "icmp_type", "icmp_code", "interface", "src_mac", "dst_mac", "sampling"];

/// The program, or why it could not be built.
static PROGRAM: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goflow2-reader");
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/interop/goflow2"));
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    // Only the installed toolchain and modules that were fetched before.
    let output = go.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly").output();
    match output {
        Err(error) => Err(format!("go: {error}")),
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_missing = ["GOPROXY=off", "requires go >=", "invalid go version"].iter().any(|e| errors.contains(e));
            assert!(is_missing, "{errors}");
            Err(errors)
        }
    }
});

/// The program. Prints that the test is skipped if it could not be built.
fn program() -> Option<&'static Path> {
    let reason = match &*PROGRAM {
        Ok(program) => return Some(program),
        Err(reason) => reason,
    };
    eprintln!("SKIPPED: goflow2 is not built (needs Go 1.23 and its modules; make test fetches them): {reason}");
    None
}

fn decode(datagrams: &[Vec<u8>], program: &Path) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("export.pcap");
    write_capture(datagrams, 2055, &capture);
    let output = Command::new(program).arg(&capture).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decoded = |line: &[u8]| {
        let record: Value = serde_json::from_slice(line).expect("a line is an object");
        let mut row = row(&record, NAMES);
        for (ms, ns) in [("start_ms", "start_ns"), ("end_ms", "end_ns")] {
            row.insert(ms, (number(&row, ns) / 1_000_000).to_string());
        }
        row.insert("mpls", record["mpls_label"][0].as_u64().unwrap_or(0).to_string());
        for absent in row.values_mut().filter(|value| ["", "00:00:00:00:00:00"].contains(&value.as_str())) {
            *absent = "0".to_owned();
        }
        row
    };
    output.stdout.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()).map(decoded).collect()
}

/// What goflow2's type has of each message of Kafka; `None` if the program could not be built.
pub fn read_messages(messages: &[KafkaMessage]) -> Option<Vec<Value>> {
    let program = program()?;
    let file = tempfile::NamedTempFile::new().unwrap();
    let octets: Vec<u8> = messages.iter().flat_map(|message| message.value.clone()).collect();
    std::fs::write(file.path(), octets).unwrap();
    let output = Command::new(program).arg("messages").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|&octet| octet == b'\n').filter(|line| !line.is_empty());
    Some(lines.map(|line| serde_json::from_slice(line).unwrap()).collect())
}

fn compare(case: Case, more: &[&'static str], differences: &[(&'static str, &str)]) {
    if let Some(program) = program() {
        let export = Export::of(case);
        export.compare("goflow2", &decode(&export.datagrams, program), &[&COMMON[..], more].concat(), differences);
    }
}

#[test]
fn goflow2_decodes_every_netflow5_record() {
    compare(NETFLOW5, &["interface"], &[("icmp_type", "it leaves type and code in the destination port")]);
}

#[test]
fn goflow2_decodes_every_netflow9_record() {
    compare(NETFLOW9_BASIC, &BASIC, &[]);
    compare(NETFLOW9_FULL, &[&BASIC[..], &["mpls"]].concat(), &[]);
}

#[test]
fn goflow2_decodes_every_unidirectional_ipfix_record() {
    compare(IPFIX_BASIC, &BASIC, &[]);
    compare(IPFIX_FULL, &[&BASIC[..], &["mpls", "start_ns", "end_ns"]].concat(), &[]);
    compare(IPFIX_LIST, &["interface", "sampling"], &[]);
}

#[test]
fn goflow2_decodes_every_record_of_its_profile() {
    let ipfix = Case { sink: "ipfix+udp?template=goflow2", uniflow: true };
    compare(ipfix, &[&BASIC[..], &["mpls", "start_ns", "end_ns"]].concat(), &[]);
    let netflow9 = Case { sink: "netflow9+udp?template=goflow2", uniflow: true };
    compare(netflow9, &[&BASIC[..], &["mpls"]].concat(), &[]);
}

#[test]
fn goflow2_decodes_the_forward_direction_of_every_bidirectional_ipfix_record() {
    let dropped = "it ignores the elements of the reverse direction";
    compare(IPFIX_TWO_WAY, &BASIC, &[("rev_packets", dropped), ("rev_bytes", dropped)]);
}

#[test]
fn goflow2_reads_the_sampling_rate_of_every_record() {
    let Some(program) = program() else { return };
    for sink in ["netflow5+udp", "netflow9+udp", "ipfix+udp", "ipfix+udp?template=goflow2"] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = format!("://{}?rate=500&", socket.local_addr().unwrap());
        let (scheme, settings) = sink.split_once('?').unwrap_or((sink, ""));
        let sink = [scheme, &address, settings].concat();
        let mut probe = command();
        probe.args(["probe", "-q", "--sample", "4", "-i", "synth:mix,flows=50,packets=5k,seed=3", "-o"]);
        let (output, datagrams) = receive(&socket, || probe.arg(sink.trim_end_matches('&')).output().unwrap());
        assert!(output.status.success() || scheme == "netflow5+udp", "{output:?}");
        let rows = decode(&datagrams, program);
        assert!(!rows.is_empty() && rows.iter().all(|row| row["sampling"] == "4"), "{sink}: {:?}", rows.first());
    }
}
