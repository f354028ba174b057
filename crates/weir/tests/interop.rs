//! Collectors of others receive what the binary sends over loopback: nfcapd, nfacctd and tshark
//! decode every flow with the values of the JSON output.
//!
//! Tests of a collector that is not installed are skipped; `make test` installs all of them.

mod common;
use common::{Background, Nfcapd, capture_files, command, free_port, is_installed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A flow record of a collector or of Weir: field names and values as text.
type Row = BTreeMap<&'static str, String>;

/// Receive queue in bytes and drops of the UDP socket bound to a port of loopback.
fn socket(port: u16) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/udp").expect("Linux has this file");
    let line = table.lines().find(|line| line.contains(&format!("0100007F:{port:04X} ")))?;
    let columns: Vec<&str> = line.split_whitespace().collect();
    let (_, waiting) = columns[4].split_once(':')?;
    Some((u64::from_str_radix(waiting, 16).ok()?, columns.last()?.parse().ok()?))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the binary on every capture with a sink on `port`, and returns its records as JSON.
fn send_all(sink: &str, port: u16, folder: &Path, options: &[&str]) -> Vec<Value> {
    wait_until("the collector listens", || socket(port).is_some());
    let captures = capture_files();
    let each = captures.iter().zip(1u32..).map(|(capture, domain)| send(capture, domain, sink, port, folder, options));
    each.flatten().collect()
}

fn send(capture: &Path, domain: u32, sink: &str, port: u16, folder: &Path, options: &[&str]) -> Vec<Value> {
    let json = folder.join("own.json");
    let own = format!("json:{}", json.display());
    let (scheme, settings) = sink.split_once('?').unwrap_or((sink, ""));
    let sink = format!("{scheme}://127.0.0.1:{port}?{settings}");
    let domain = domain.to_string();
    let fixed = ["read", capture.to_str().unwrap(), "-q", "--overwrite", "--domain", &domain, "-o", &own, "-o", &sink];
    let output = command().args(fixed).args(options).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
    wait_until("the collector has received everything", || socket(port).is_some_and(|(waiting, _)| waiting == 0));
    assert_eq!(socket(port).map(|(_, drops)| drops), Some(0), "datagrams dropped by the kernel");
    let text = std::fs::read_to_string(json).expect("weir wrote JSON");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// Milliseconds since 1970 of `2026-11-20T12:00:00.123456789Z`. nfdump leaves out the Z.
fn milliseconds(text: &Value) -> String {
    let time: jiff::Timestamp = format!("{}Z", text.as_str().unwrap().trim_end_matches('Z')).parse().unwrap();
    time.as_millisecond().to_string()
}

/// Fields of a record as text. `names` has pairs `OURS:THEIRS`; an absent field is 0.
fn row(record: &Value, names: &'static str) -> Row {
    let text = |value: &Value| match value {
        Value::Null => "0".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let field = |pair: &'static str| {
        let (ours, theirs) = pair.split_once(':').expect("a pair of names");
        (ours, text(&record[theirs]))
    };
    names.split(' ').map(field).collect()
}

/// One-way records of Weir with the collectors' field names.
fn own(records: &[Value]) -> Vec<Row> {
    let own = |record: &Value| {
        let mut row = row(
            record,
            "src:src_ip dst:dst_ip src_port:src_port dst_port:dst_port protocol:protocol packets:packets bytes:bytes \
             tcp_flags:tcp_flags tos:tos vlan:vlan_id icmp_type:icmp_type icmp_code:icmp_code rev_packets:rev_packets \
             rev_bytes:rev_bytes syn:tcp_syn_count fin:tcp_fin_count rst:tcp_rst_count \
             retransmitted:tcp_retransmitted_packets out_of_order:tcp_out_of_order",
        );
        row.insert("start_ms", milliseconds(&record["start"]));
        row.insert("end_ms", milliseconds(&record["end"]));
        let reason = ["", "idle", "active", "end", "forced", "resources"];
        let number = reason.iter().position(|&word| record["end_reason"] == word).unwrap();
        row.insert("end_reason", number.to_string());
        row
    };
    records.iter().filter(|record| !record["src_ip"].is_null()).map(own).collect()
}

/// Asserts that both lists hold the same records in these fields.
fn assert_same(what: &str, fields: &[&'static str], own: &[Row], theirs: &[Row]) {
    let only = |rows: &[Row]| -> Vec<Vec<String>> {
        let pick = |row: &Row| fields.iter().map(|&f| format!("{f}={}", row.get(f).map_or("", |v| v))).collect();
        let mut picked: Vec<Vec<String>> = rows.iter().map(pick).collect();
        picked.sort();
        picked
    };
    let (own, theirs) = (only(own), only(theirs));
    let missing: Vec<_> = own.iter().filter(|row| !theirs.contains(row)).take(3).collect();
    let extra: Vec<_> = theirs.iter().filter(|row| !own.contains(row)).take(3).collect();
    assert!(
        own == theirs,
        "{what}: {} ours, {} theirs\nonly ours: {missing:#?}\nonly theirs: {extra:#?}",
        own.len(),
        theirs.len()
    );
}

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
        row.insert("start_ms", milliseconds(&record["first"]));
        row.insert("end_ms", milliseconds(&record["last"]));
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
             tcp_flags:tcp_flags tos:tos vlan:vlan start_ms:timestamp_start end_ms:timestamp_end",
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

/// Fields that every collector knows in every format.
const COMMON: [&str; 11] =
    ["src", "dst", "src_port", "dst_port", "protocol", "packets", "bytes", "start_ms", "end_ms", "tcp_flags", "tos"];

fn is_ipv4(row: &Row) -> bool {
    row["src"].parse::<std::net::Ipv4Addr>().is_ok()
}

fn compare_with_nfcapd(sink: &str, options: &[&str], more: &[&'static str], selected: fn(&Row) -> bool) {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let collector = Nfcapd::start(port);
    let own: Vec<Row> = own(&send_all(sink, port, folder.path(), options)).into_iter().filter(selected).collect();
    let theirs = nfdump(&collector.dump(&["-o", "json"]));
    assert_same(&format!("{sink} to nfcapd"), &[&COMMON[..], more].concat(), &own, &theirs);
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

/// `times`: whether to compare timestamps, which nfacctd rounds to seconds for NetFlow v5 and v9.
/// With NetFlow v5 it reads ports only for TCP and UDP.
fn compare_with_nfacctd(sink: &str, times: bool, more: &[&'static str], selected: fn(&Row) -> bool) {
    if !is_installed("nfacctd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let written = folder.path().join("nfacctd.json");
    let settings = folder.path().join("nfacctd.conf");
    let aggregate = "src_host,dst_host,src_port,dst_port,proto,tos,tcpflags,vlan,timestamp_start,timestamp_end";
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
    let own: Vec<Row> =
        own(&send_all(sink, port, folder.path(), &["--uniflow"])).into_iter().filter(selected).collect();
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

/// Writes the received datagrams to a capture that tshark can read (link type raw IP).
fn record(socket: &UdpSocket, sending: impl FnOnce() -> Vec<Value> + Send, to: &Path) -> Vec<Value> {
    let port = socket.local_addr().unwrap().port();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0, 0]);
    let (done, is_done) = std::sync::mpsc::channel();
    let own = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let own = sending();
            done.send(()).unwrap();
            own
        });
        let mut datagram = [0; 65_536];
        let mut ended = false;
        loop {
            match socket.recv(&mut datagram) {
                Ok(length) => {
                    let udp = (8 + length) as u16;
                    let ip = (20 + udp).to_be_bytes();
                    bytes.extend([0; 8]);
                    bytes.extend(u32::from(20 + udp).to_le_bytes().repeat(2));
                    bytes.extend([0x45, 0, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
                    bytes.extend([port.to_be_bytes(), port.to_be_bytes(), udp.to_be_bytes(), [0, 0]].concat());
                    bytes.extend(&datagram[..length]);
                }
                Err(_) if ended => break,
                Err(_) => ended = is_done.try_recv().is_ok(),
            }
        }
        sender.join().unwrap()
    });
    std::fs::write(to, bytes).unwrap();
    own
}

/// By default tshark reads templates of up to 60 fields; those of records with TCP anomalies have
/// more.
const TEMPLATES_OF_ANY_SIZE: [&str; 2] = ["-o", "cflow.max_template_fields:0"];

/// The records in tshark's verbose text: each `Flow N` or `pdu N` block with an address.
fn tshark(capture: &Path, port: u16, options: &[&str]) -> Vec<Row> {
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
            // The value is: month day, year time UTC.
            "StartTime" if times.contains("(nanoseconds)") => {
                ("start_time", value.split(' ').nth(3).unwrap().to_owned())
            }
            "EndTime" if times.contains("(nanoseconds)") => ("end_time", value.split(' ').nth(3).unwrap().to_owned()),
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

fn compare_with_tshark(sink: &str, more: &[&'static str], selected: fn(&Row) -> bool) {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let capture = folder.path().join("export.pcap");
    let records = record(&socket, || send_all(sink, port, folder.path(), &["--uniflow"]), &capture);
    let mut rows = own(&records);
    for (row, record) in rows.iter_mut().zip(records.iter().filter(|record| !record["src_ip"].is_null())) {
        for (field, name) in [("start_time", "start"), ("end_time", "end")] {
            row.insert(field, record[name].as_str().unwrap()[11..29].to_owned());
        }
    }
    rows.retain(selected);
    let fields: Vec<_> =
        COMMON.into_iter().filter(|field| !field.ends_with("_ms")).chain(more.iter().copied()).collect();
    let mut theirs = tshark(&capture, port, &TEMPLATES_OF_ANY_SIZE);
    // NetFlow v5 has the ICMP type and code in the destination port.
    for row in rows.iter_mut().chain(&mut theirs).filter(|row| ["1", "58"].contains(&row["protocol"].as_str())) {
        row.insert("src_port", String::new());
        row.insert("dst_port", String::new());
    }
    assert_same(&format!("{sink} to tshark"), &fields, &rows, &theirs);
}

#[test]
fn tshark_decodes_every_netflow5_record() {
    compare_with_tshark("netflow5+udp", &[], is_ipv4);
}

#[test]
fn tshark_decodes_every_netflow9_record() {
    for sink in ["netflow9+udp", "netflow9+udp?template=full"] {
        compare_with_tshark(sink, &["vlan", "end_reason"], |_| true);
    }
}

#[test]
fn tshark_decodes_every_basic_ipfix_record() {
    compare_with_tshark("ipfix+udp", &["vlan", "end_reason"], |_| true);
}

#[test]
fn tshark_decodes_every_unidirectional_ipfix_record_to_the_nanosecond() {
    let tcp = ["syn", "fin", "rst", "retransmitted", "out_of_order"];
    compare_with_tshark(
        "ipfix+udp?template=full",
        &[&["vlan", "end_reason", "start_time", "end_time"][..], &tcp].concat(),
        |_| true,
    );
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
    let records = record(&socket, || send(clean, 1, "ipfix+udp?template=full", port, folder.path(), &[]), &capture);
    let two_way = |record: &&Value| record["protocol"] == 6 && record["rev_packets"].as_u64() > Some(0);
    assert!(records.iter().filter(two_way).count() > 50, "{} records", records.len());
    assert!(records.iter().all(|record| record["tcp_degraded"].is_null()));
    let theirs = tshark(&capture, port, &[]);
    let fields = ["src", "dst", "src_port", "dst_port", "protocol", "end_reason"];
    assert_same("ipfix+udp to tshark with default settings", &fields, &own(&records), &theirs);
}
