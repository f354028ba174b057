//! Collectors of others decode what the binary sends over UDP: every record with the values of the
//! JSON output. This file has nfdump, nfacctd and tshark, the modules have the others.
//!
//! Tests of a collector that is not installed are skipped; `make test` installs all of them, except
//! Go for goflow2.

mod applications;
mod export;
pub mod goflow2;
mod ipfixdump;
mod netflow_parser;
mod nfdump_source;
mod own_elements;
mod own_reader;
mod python_netflow;
mod rotated_files;

use export::{
    COMMON, Case, Export, IPFIX_BASIC, IPFIX_FULL, IPFIX_TWO_WAY, NETFLOW5, NETFLOW9_BASIC, NETFLOW9_FULL, PROFILES,
    Row, assert_same, is_ipv4, milliseconds, receive, row, rows_of_ip, send_all, send_to_test, wait_until,
    write_capture,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use testbed::{Background, Nfcapd, command, free_port, is_installed, permit_all_users, read_ledger};

/// Parses the JSON output of nfdump.
fn nfdump(text: &str) -> Vec<Row> {
    let list = format!("[{}]", text.trim().trim_start_matches('[').trim_end_matches(']').trim().trim_end_matches(','));
    let records: Vec<Value> = serde_json::from_str(&list).unwrap_or_else(|error| panic!("{error}: {text}"));
    let nfdump = |record: &Value| {
        let address = |four: &str, six: &str| {
            let found = record.get(four).or_else(|| record.get(six)).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        // One letter per control bit, highest first; a dot if the bit is clear.
        let letters = record["tcp_flags"].as_str().unwrap_or_default();
        let flags = letters.chars().fold(0u16, |bits, letter| bits << 1 | u16::from(letter != '.'));
        let mut row = row(
            record,
            "src_port:src_port dst_port:dst_port protocol:proto packets:in_packets bytes:in_bytes tos:src_tos \
             vlan:src_vlan icmp_type:icmp_type icmp_code:icmp_code rev_packets:out_packets rev_bytes:out_bytes",
        );
        row.insert("src", address("src4_addr", "src6_addr"));
        row.insert("dst", address("dst4_addr", "dst6_addr"));
        row.insert("tcp_flags", flags.to_string());
        // Label, traffic class, and bottom-of-stack bit.
        let label = record["mpls_1"].as_str().and_then(|text| text.split('-').next());
        row.insert("mpls", label.unwrap_or("0").to_owned());
        row.insert("start_ms", milliseconds(record["first"].as_str().unwrap()));
        row.insert("end_ms", milliseconds(record["last"].as_str().unwrap()));
        row
    };
    records.iter().map(nfdump).collect()
}

/// Reads a JSON file of nfacctd.
fn nfacctd(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let nfacctd = |line: &str| {
        // The last line may be incomplete.
        let record: Value = serde_json::from_str(line).ok()?;
        let mut row = row(
            &record,
            "src:ip_src dst:ip_dst src_port:port_src dst_port:port_dst protocol:ip_proto packets:packets bytes:bytes \
             tcp_flags:tcp_flags tos:tos vlan:vlan start_ms:timestamp_start end_ms:timestamp_end mpls:mpls_label_top",
        );
        for time in ["start_ms", "end_ms"] {
            // Seconds since 1970 with a fraction.
            let (seconds, fraction) = row[time].split_once('.').unwrap_or((&row[time], "0"));
            let milliseconds = &format!("{fraction:0<3}")[..3];
            let milliseconds = seconds.parse::<u64>().unwrap() * 1000 + milliseconds.parse::<u64>().unwrap();
            row.insert(time, milliseconds.to_string());
        }
        Some(row)
    };
    text.lines().filter_map(nfacctd).collect()
}

fn compare_with_nfcapd(sink: &str, options: &[&str], more: &[&'static str], selected: impl Fn(&Row) -> bool) {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut collector = Nfcapd::start(port);
    let mut own = rows_of_ip(&send_all(sink, port, folder.path(), options));
    own.retain(selected);
    let theirs = nfdump(&collector.dump(&["-o", "json"]));
    assert_same(&format!("{sink} to nfcapd"), &[&COMMON[..], more].concat(), &own, &theirs);
    let summary = collector.dump(&["-I"]);
    // nfcapd 1.7.1 does not count the options records of IPFIX in sequence numbers (docs/outputs.md).
    let is_ipfix = sink.starts_with("ipfix");
    assert!(is_ipfix || summary.lines().any(|line| line == "Sequence failures: 0"), "{sink} to nfcapd: {summary}");
}

#[test]
fn nfdump_decodes_every_netflow5_record() {
    compare_with_nfcapd("netflow5+udp", &["--uniflow"], &["icmp_type", "icmp_code"], is_ipv4);
}

#[test]
fn nfdump_decodes_every_netflow9_record() {
    for sink in ["netflow9+udp", "netflow9+udp?template=full"] {
        compare_with_nfcapd(sink, &["--uniflow"], &["icmp_type", "icmp_code", "vlan"], |_| true);
    }
}

#[test]
fn nfdump_decodes_every_unidirectional_ipfix_record() {
    for sink in ["ipfix+udp", "ipfix+udp?template=full"] {
        compare_with_nfcapd(sink, &["--uniflow"], &["icmp_type", "icmp_code", "vlan"], |_| true);
    }
}

#[test]
fn nfdump_decodes_every_record_of_its_profile() {
    for sink in ["ipfix+udp?template=nfdump", "netflow9+udp?template=nfdump"] {
        compare_with_nfcapd(sink, &["--uniflow"], &["icmp_type", "icmp_code", "vlan", "mpls"], |_| true);
    }
}

#[test]
fn nfdump_decodes_both_directions_of_every_bidirectional_ipfix_record() {
    let fields = ["icmp_type", "icmp_code", "vlan", "rev_packets", "rev_bytes"];
    compare_with_nfcapd("ipfix+udp?template=full", &[], &fields, |_| true);
}

/// Adds up rows that differ only in their counters, as nfacctd does.
fn summed(rows: Vec<Row>) -> Vec<Row> {
    let mut sums: BTreeMap<Row, (u64, u64)> = BTreeMap::new();
    for mut row in rows {
        let counters = ["packets", "bytes"].map(|field| row.remove(field).unwrap().parse::<u64>().unwrap());
        let sum = sums.entry(row).or_default();
        *sum = (sum.0 + counters[0], sum.1 + counters[1]);
    }
    let with = |(mut row, (packets, bytes)): (Row, (u64, u64))| {
        row.insert("packets", packets.to_string());
        row.insert("bytes", bytes.to_string());
        row
    };
    sums.into_iter().map(with).collect()
}

/// `times`: whether to compare timestamps, which nfacctd rounds to seconds if records have the
/// SysUptime of NetFlow v5 and v9.
/// With NetFlow v5 it reads ports only for TCP and UDP.
fn compare_with_nfacctd(sink: &str, times: bool, more: &[&'static str], selected: impl Fn(&Row) -> bool) {
    if !is_installed("nfacctd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let written = folder.path().join("nfacctd.json");
    let settings = folder.path().join("nfacctd.conf");
    let aggregate =
        "src_host,dst_host,src_port,dst_port,proto,tos,tcpflags,vlan,mpls_label_top,timestamp_start,timestamp_end";
    std::fs::write(
        &settings,
        format!(
            "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nnfacctd_disable_checks: true\n\
             plugins: print[a]\naggregate[a]: {aggregate}\nprint_output[a]: json\nprint_output_file[a]: {}\n\
             print_refresh_time[a]: 3600\ntimestamps_since_epoch: true\ntimestamps_secs: false\nprint_num_protos[a]: true\n\
             plugin_pipe_size: 67108864\nplugin_buffer_size: 65536\nnfacctd_pipe_size: 4000000\n",
            written.display()
        ),
    )
    .unwrap();
    let mut collector = Background::start(Command::new("nfacctd").arg("-f").arg(&settings));
    let mut own = rows_of_ip(&send_all(sink, port, folder.path(), &["--uniflow"]));
    own.retain(selected);
    // Its writing process exits later: the file is complete when it has all packets.
    collector.stop(libc::SIGINT);
    let known = COMMON.into_iter().filter(|field| times || !field.ends_with("_ms"));
    let fields: Vec<_> = known.chain(more.iter().copied()).collect();
    let only = |rows: Vec<Row>| {
        let pick = |mut row: Row| {
            // Depending on the format, nfacctd prints the ICMP type and code as ports.
            let without_ports: &[&str] = if sink.starts_with("netflow5") { &["1", "132"] } else { &["1", "58"] };
            if without_ports.contains(&row["protocol"].as_str()) {
                row.insert("src_port", String::new());
                row.insert("dst_port", String::new());
            }
            row.retain(|field, _| fields.contains(field));
            row
        };
        summed(rows.into_iter().map(pick).collect())
    };
    let own = only(own);
    let packets = |rows: &[Row]| rows.iter().map(|row| row["packets"].parse::<u64>().unwrap()).sum::<u64>();
    wait_until("nfacctd has written its records", || packets(&nfacctd(&written)) >= packets(&own));
    assert_same(&format!("{sink} to nfacctd"), &fields, &own, &only(nfacctd(&written)));
}

#[test]
fn nfacctd_decodes_every_netflow5_record() {
    compare_with_nfacctd("netflow5+udp", false, &[], is_ipv4);
}

#[test]
fn nfacctd_decodes_every_netflow9_record() {
    for sink in ["netflow9+udp", "netflow9+udp?template=full"] {
        compare_with_nfacctd(sink, false, &["vlan"], |_| true);
    }
}

#[test]
fn nfacctd_decodes_every_unidirectional_ipfix_record() {
    for sink in ["ipfix+udp", "ipfix+udp?template=full"] {
        compare_with_nfacctd(sink, true, &["vlan"], |_| true);
    }
}

#[test]
fn nfacctd_decodes_every_record_of_its_profile() {
    for sink in ["ipfix+udp?template=pmacct", "netflow9+udp?template=pmacct"] {
        compare_with_nfacctd(sink, true, &["vlan", "mpls"], |_| true);
    }
}

/// Port of the collector in captures for tshark.
const PORT: u16 = 2055;

/// By default tshark reads templates of up to 60 fields; those of records with TCP anomalies have
/// more.
const TEMPLATES_OF_ANY_SIZE: [&str; 2] = ["-o", "cflow.max_template_fields:0"];

/// The time of `Jan  1, 2026 00:00:00.124999999 UTC`. tshark 4.0 shows a fraction that units of
/// 2^-32 s express exactly, here 0.125 s, 1 ns too early.
fn to_the_nanosecond(value: &str) -> String {
    let time = value.split_whitespace().nth(3).expect("month, day, year, time");
    let (seconds, fraction) = time.split_once('.').expect("a fraction");
    let ns = fraction.parse::<u32>().expect("digits");
    let is_exact = (ns + 1) % 5u32.pow(9) == 0;
    format!("{seconds}.{:09}", if is_exact { ns + 1 } else { ns })
}

/// tshark's verbose text.
fn tshark_text(capture: &Path, port: u16, options: &[&str]) -> String {
    let output = Command::new("tshark")
        .args(["-n", "-V", "-O", "cflow"])
        .args(options)
        .args(["-d", &format!("udp.port=={port},cflow"), "-r"])
        .arg(capture)
        .env("TZ", "UTC")
        .output()
        .expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Malformed"), "tshark reports a malformed packet");
    text
}

/// The records in tshark's verbose text: each `Flow N` or `pdu N` block with an address.
fn tshark(capture: &Path, port: u16, options: &[&str]) -> Vec<Row> {
    let text = tshark_text(capture, port, options);
    let mut rows: Vec<Row> = Vec::new();
    let (mut times, mut inside) = ("", false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("Flow ") && line.split(' ').nth(1).is_some_and(|number| number.parse::<u32>().is_ok())
            || line.starts_with("pdu ")
        {
            rows.push(Row::new());
            inside = true;
            continue;
        }
        if line.starts_with("FlowSet") || line.starts_with("Frame ") || line.starts_with("Set ") {
            inside = false;
        }
        let (true, Some(row)) = (inside, rows.last_mut()) else { continue };
        if line.starts_with("[Duration") {
            times = line;
            continue;
        }
        let Some((name, value)) = line.split_once(": ") else { continue };
        let in_brackets = || value.rsplit_once('(').map_or("", |(_, number)| number.trim_end_matches(')')).to_owned();
        let hex = || u64::from_str_radix(value.split([',', ' ']).next().unwrap().trim_start_matches("0x"), 16);
        let field = match name {
            "SrcAddr" => ("src", value.to_owned()),
            "DstAddr" => ("dst", value.to_owned()),
            "SrcPort" => ("src_port", value.to_owned()),
            "DstPort" => ("dst_port", value.to_owned()),
            "Protocol" => ("protocol", in_brackets()),
            "Packets" => ("packets", value.to_owned()),
            "Octets" => ("bytes", value.to_owned()),
            "IP ToS" => ("tos", hex().unwrap().to_string()),
            "TCP Flags" => ("tcp_flags", hex().unwrap().to_string()),
            "Flow End Reason" => ("end_reason", in_brackets()),
            "Vlan Id" => ("vlan", value.to_owned()),
            "Total TCP syn" => ("syn", value.to_owned()),
            "Total TCP fin" => ("fin", value.to_owned()),
            "Total TCP rst" => ("rst", value.to_owned()),
            "Number of retransmitted TCP flow packets (src->dst)" => ("retransmitted", value.to_owned()),
            // tshark 4.0 names ntop's element 111 with the opposite direction.
            "Number of out of order TCP flow packets (dst->src)" => ("out_of_order", value.to_owned()),
            "StartTime" if times.contains("(nanoseconds)") => ("start_time", to_the_nanosecond(value)),
            "EndTime" if times.contains("(nanoseconds)") => ("end_time", to_the_nanosecond(value)),
            _ => continue,
        };
        row.entry(field.0).or_insert(field.1);
    }
    rows.retain(|row| row.contains_key("src"));
    for row in &mut rows {
        for field in ["src_port", "dst_port", "tcp_flags", "vlan", "rst", "retransmitted", "out_of_order"] {
            row.entry(field).or_insert_with(|| "0".to_owned());
        }
        // Values of fields that are omitted: docs/fields.md.
        let control: u64 = row["tcp_flags"].parse().expect("digits");
        for (field, bit) in [("fin", 0), ("syn", 1)] {
            row.entry(field).or_insert_with(|| (control >> bit & 1).to_string());
        }
    }
    rows
}

/// Writes an export to a capture and reads it with tshark.
fn tshark_of(export: &Export, options: &[&str]) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("export.pcap");
    write_capture(&export.datagrams, PORT, &capture);
    tshark(&capture, PORT, options)
}

fn compare_with_tshark(case: Case, more: &[&'static str]) {
    if !is_installed("tshark") {
        return;
    }
    let export = Export::of(case);
    let mut own: Vec<Row> = export.own.iter().filter(|row| row["src"] != "0").cloned().collect();
    let fields: Vec<_> =
        COMMON.into_iter().filter(|field| !field.ends_with("_ms")).chain(more.iter().copied()).collect();
    let mut theirs = tshark_of(&export, &TEMPLATES_OF_ANY_SIZE);
    // NetFlow v5 has the ICMP type and code in the destination port.
    for row in own.iter_mut().chain(&mut theirs).filter(|row| ["1", "58"].contains(&row["protocol"].as_str())) {
        row.insert("src_port", String::new());
        row.insert("dst_port", String::new());
    }
    assert_same(&format!("{case:?} to tshark"), &fields, &own, &theirs);
}

#[test]
fn tshark_decodes_every_netflow5_record() {
    compare_with_tshark(NETFLOW5, &[]);
}

#[test]
fn tshark_decodes_every_netflow9_record() {
    for case in [NETFLOW9_BASIC, NETFLOW9_FULL] {
        compare_with_tshark(case, &["vlan", "end_reason"]);
    }
}

#[test]
fn tshark_decodes_every_basic_ipfix_record() {
    compare_with_tshark(IPFIX_BASIC, &["vlan", "end_reason"]);
}

/// [`Export`] compares the sums of octets with the ledger.
#[test]
fn tshark_decodes_every_record_of_every_profile() {
    for sink in PROFILES {
        compare_with_tshark(Case { sink, uniflow: true }, &["vlan"]);
    }
}

#[test]
fn tshark_decodes_every_unidirectional_ipfix_record_to_the_nanosecond() {
    let tcp = ["syn", "fin", "rst", "retransmitted", "out_of_order"];
    compare_with_tshark(IPFIX_FULL, &[&["vlan", "end_reason", "start_time", "end_time"][..], &tcp].concat());
}

#[test]
fn a_list_of_elements_is_an_option_or_a_line_of_the_configuration_file() {
    if !is_installed("tshark") {
        return;
    }
    let list = "fields=sourceIPv4Address,sourceIPv6Address,layer2OctetDeltaCount,tcpHandshakeRoundTrip";
    for template in ["basic", "full"] {
        for with_config in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let [capture, stats, config] =
                ["export.pcap", "stats.json", "probe.toml"].map(|name| folder.path().join(name));
            permit_all_users(folder.path());
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let sink = format!("ipfix+udp://{address}?template={template}&{list}");
            let input = "synth:mix,flows=50,packets=5k,seed=3";
            let mut weir = command();
            if with_config {
                std::fs::write(&config, format!("input = [\"{input}\"]\noutput = [\"{sink}\"]\n")).unwrap();
                weir.arg("probe").arg("--config").arg(&config);
            } else {
                weir.args(["read", input, "-o", &sink]);
            }
            let sending = || weir.args(["-q", "--stats"]).arg(&stats).output().unwrap();
            let (output, datagrams) = receive(&socket, sending);
            assert!(output.status.success(), "{output:?}");
            write_capture(&datagrams, PORT, &capture);
            let text = tshark_text(&capture, PORT, &[]);
            let counts = text.lines().filter_map(|line| line.trim().strip_prefix("Layer2 Octet Delta Count: "));
            let octets: u64 = counts.map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
            let ledger = read_ledger(&stats);
            assert_eq!(octets, ledger["bytes"]["metered"].as_u64().unwrap(), "{sink}");
            assert_eq!(octets, ledger["sinks"][0]["exported"]["bytes"].as_u64().unwrap(), "{sink}");
            assert_eq!(text.contains("layer2OctetDeltaCount [Reverse]"), template == "full", "{text}");
            assert!(text.contains("Information Element Name: tcpHandshakeRoundTrip"));
            assert!(!text.lines().any(|line| line.trim().starts_with("Octets: ")), "{text}");
        }
    }
}

/// tshark does not check the sequence numbers of NetFlow v5.
#[test]
fn tshark_finds_no_gap_in_sequence_numbers() {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("export.pcap");
    for case in [NETFLOW9_BASIC, NETFLOW9_FULL, IPFIX_BASIC, IPFIX_FULL, IPFIX_TWO_WAY] {
        let datagrams = &Export::of(case).datagrams;
        // A missing datagram shows that it would find a gap. The last input has the most datagrams.
        for (missing, gaps) in [(None, 0), (Some(datagrams.len() - 10), 1)] {
            let seen = datagrams.iter().enumerate().filter(|&(at, _)| Some(at) != missing);
            write_capture(&seen.map(|(_, datagram)| datagram.clone()).collect::<Vec<_>>(), PORT, &capture);
            let mut tshark = Command::new("tshark");
            tshark.args(TEMPLATES_OF_ANY_SIZE).args([
                "-n",
                "-d",
                &format!("udp.port=={PORT},cflow"),
                "-Y",
                "cflow.unexpected_sequence_number",
                "-r",
            ]);
            let output = tshark.arg(&capture).output().unwrap();
            let reported = String::from_utf8(output.stdout).unwrap();
            assert_eq!(reported.lines().count(), gaps, "{case:?}: {reported}");
        }
    }
}

#[test]
fn tshark_with_default_settings_decodes_bidirectional_ipfix_records_without_anomalies() {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let capture = folder.path().join("export.pcap");
    let clean = Path::new("synth:mix,flows=50,packets=4k,ipv6=50%,rst=20%,seed=3");
    let sending = || send_to_test(clean, 1, "ipfix+udp?template=full", port, folder.path(), &[]).records;
    let (records, datagrams) = receive(&socket, sending);
    let two_way = |record: &&Value| record["protocol"] == "tcp" && record["rev_packets"].as_u64() > Some(0);
    assert!(records.iter().filter(two_way).count() > 50, "{} records", records.len());
    assert!(records.iter().all(|record| record["fwd_tcp_degraded"].is_null() && record["rev_tcp_degraded"].is_null()));
    write_capture(&datagrams, PORT, &capture);
    let theirs = tshark(&capture, PORT, &[]);
    let fields = ["src", "dst", "src_port", "dst_port", "protocol", "end_reason"];
    assert_same("ipfix+udp to tshark with default settings", &fields, &rows_of_ip(&records), &theirs);
}
