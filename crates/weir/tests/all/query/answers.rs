//! What queries answer, compared with `weir read` of the same flows.

use super::{ask, has_engine, more, stored_captures, stored_losses, values};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use testbed::{Pcap, arguments, captures, datagram, failure, ledger_of, number, success, tcp, weir};

/// The rows of a view of `weir read`.
fn view(store: &Path, options: &[&str]) -> Vec<Value> {
    let rows = success(arguments!["read", "-q", store, "-o", "json:-"].into_iter().chain(more(options)));
    rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted<T: std::fmt::Debug>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

#[test]
fn sums_are_those_of_the_ledger() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for store in [stored_captures(folder.path()), stored_losses(folder.path())] {
        let (_, _, ledger) = ledger_of(arguments!["read", "-q", store]);
        let sql =
            "select sum(fwd_packets + rev_packets) as packets, sum(fwd_l2_bytes + rev_l2_bytes) as octets from flows";
        let [packets, octets] = &values(&ask(&[sql], &store), ["packets", "octets"])[0];
        let metered = ["packets", "bytes"].map(|what| number(&ledger[what]["metered"]));
        assert_eq!([number(packets), number(octets)], metered);
    }
}

#[test]
fn ready_questions_answer_as_views_do() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let by_server = ["--where", "tcp and not tcp_failure = no_answer", "--by", "dst_ip,dst_port", "--top", "0"];
    for store in [stored_captures(folder.path()), stored_losses(folder.path())] {
        let ask = |question: &str| ask(&[question, "--top", "0"], &store);
        let talkers = ["host", "flows", "sent_packets", "received_packets", "sent_bytes", "received_bytes", "bytes"];
        let expected = view(&store, &["--by", "host", "--top", "0"]);
        assert_eq!(sorted(values(&ask("top-talkers"), talkers)), sorted(values(&expected, talkers)));
        let names = ["protocol", "application", "flows", "packets", "bytes"];
        let expected = view(&store, &["--by", "application", "--top", "0"]);
        assert_eq!(
            sorted(values(&ask("applications"), [names[1], names[2], names[3], names[4]])),
            sorted(values(&expected, [names[1], names[2], names[3], names[4]]))
        );
        let quality = values(&ask("tcp-quality"), ["server", "port", "flows", "segments", "retransmitted"]);
        let expected = view(&store, &by_server);
        let expected = values(&expected, ["dst_ip", "dst_port", "flows", "segments", "retransmitted"]);
        assert_eq!(sorted(quality), sorted(expected));
        let scanners = values(&ask("scanners"), ["host", "hosts", "ports", "flows"]);
        let expected = view(&store, &["--by", "src_ip", "--count", "hosts,ports", "--top", "0"]);
        assert_eq!(sorted(scanners), sorted(values(&expected, ["src_ip", "hosts", "ports", "flows"])));
    }
}

#[test]
fn responses_and_failures_are_those_of_records() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let slow = ask(&["slow-servers", "--top", "0"], &store);
    let tcp: u64 = slow.iter().filter(|row| row["protocol"] == "tcp").map(|row| number(&row["answers"])).sum();
    let answers = "select sum(rev_tcp_response_count) as n from flows";
    assert!(tcp > 20 && tcp == number(&ask(&[answers], &store)[0]["n"]));
    let failed = ask(&["failed", "--top", "0"], &store);
    let failed: BTreeSet<_> = failed.iter().map(|row| (row["how"].as_str().unwrap(), number(&row["port"]))).collect();
    assert!(failed.contains(&("refused", 81)) && failed.contains(&("no answer", 80)), "{failed:?}");
    let names = values(&ask(&["dns-failures"], &store), ["name", "nxdomain"]);
    assert_eq!(names, [[json!("not-there.example"), json!(2)]]);
    // A host whose flows are one direction or the other.
    let peers = ask(&["host", "2001:DB8:0::1", "--top", "0"], &store);
    let flows: u64 = peers.iter().map(|row| number(&row["flows"])).sum();
    let host = view(&store, &["--by", "host", "--where", "host 2001:db8::1", "--top", "0"]);
    let host = host.iter().find(|row| row["host"] == "2001:db8::1").unwrap();
    assert_eq!(flows, number(&host["flows"]));
    let sent: u64 = peers.iter().map(|row| number(&row["sent_bytes"])).sum();
    assert_eq!(sent, number(&host["sent_bytes"]));
}

/// A question of DNS for an address of a name, or its answer with this code.
fn dns(name: &[u8], code: Option<u8>) -> Vec<u8> {
    let flags = code.map_or(0x0100, |code| 0x8180 | u16::from(code));
    let header = [u16::from(name[1]), flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], name, b"\x07example\0\0\x01\0\x01"].concat()
}

#[test]
fn scans_are_one_row_and_no_name_has_the_failures_of_others() {
    if !has_engine() {
        return;
    }
    const SYN: u8 = 2;
    const RST: u8 = 4;
    let mut frames: Vec<_> = (1..=25).map(|host| tcp(([10, 0, 0, 9], 4000), ([10, 0, 1, host], 445), SYN, 0)).collect();
    for client in 1..=3 {
        let (client, server) = (([10, 0, 0, client], 4000), ([10, 0, 2, 1], 81));
        frames.extend([tcp(client, server, SYN, 0), tcp(server, client, RST, 0)]);
    }
    let server = ([10, 0, 0, 53], 53);
    for (port, name, code) in [(4000, b"\x01a", 0), (4000, b"\x01b", 3), (4000, b"\x01c", 2), (4001, b"\x01d", 5)] {
        let client = ([10, 0, 0, 7], port);
        frames.extend([datagram(client, server, &dns(name, None)), datagram(server, client, &dns(name, Some(code)))]);
    }
    let capture = Pcap::of(&frames).saved();
    let capture = Path::new(capture.name());
    let failed =
        values(&ask(&["failed"], capture), ["scanner", "server", "port", "how", "attempts", "servers", "clients"]);
    assert_eq!(
        failed,
        [
            [json!("10.0.0.9"), Value::Null, json!(445), json!("no answer"), json!(25), json!(25), json!(1)],
            [Value::Null, json!("10.0.2.1"), json!(81), json!("refused"), json!(3), json!(1), json!(3)],
        ]
    );
    let columns = ["name", "server", "queries", "nxdomain", "servfail", "refused", "unanswered"];
    let names = values(&ask(&["dns-failures"], capture), columns);
    assert_eq!(
        names,
        [
            [json!("d.example"), Value::Null, json!(1), json!(0), json!(0), json!(1), json!(0)],
            [Value::Null, json!("10.0.0.53"), json!(3), json!(1), json!(1), json!(0), json!(0)],
        ]
    );
}

#[test]
fn fields_that_are_not_stored_are_computed_where_a_query_names_them() {
    if !has_engine() {
        return;
    }
    const FIELDS: &str =
        "server_ip,client_ip,service_port,packets,bytes,l2_bytes,rtt,response,retransmitted,tcp_failure";
    let names: Vec<&str> = FIELDS.split(',').collect();
    let folder = tempfile::tempdir().unwrap();
    for store in [stored_captures(folder.path()), stored_losses(folder.path())] {
        let of_fields = |rows: Vec<Value>| -> Vec<Vec<Value>> {
            sorted(rows.iter().map(|row| names.iter().map(|name| row[*name].clone()).collect()).collect())
        };
        let asked = of_fields(ask(&[&format!("select {FIELDS} from flows")], &store));
        let expected = of_fields(view(&store, &["--fields", FIELDS, "--top", "0"]));
        assert!(expected.len() > 50, "{}", expected.len());
        for (row, of_read) in asked.iter().zip(&expected) {
            assert_eq!(row, of_read, "{FIELDS}");
        }
        assert_eq!(asked.len(), expected.len());
        let by_server = "select server_ip, service_port, count(*) as flows from flows group by all";
        let by_server = values(&ask(&[by_server], &store), ["server_ip", "service_port", "flows"]);
        let expected = view(&store, &["--by", "server_ip,service_port", "--top", "0"]);
        let expected = values(&expected, ["server_ip", "service_port", "flows"]);
        assert_eq!(sorted(by_server), sorted(expected));
    }
    // The start of a connection is not in the capture, and the server sends first.
    let (server, client) = (([10, 0, 0, 2], 80), ([10, 0, 0, 1], 40_000));
    let capture = Pcap::of(&[tcp(server, client, 16, 10), tcp(client, server, 16, 10)]).saved();
    let ends = "select client_ip, server_ip, service_port, src_ip from flows";
    let ends = values(&ask(&[ends], Path::new(capture.name())), ["client_ip", "server_ip", "service_port", "src_ip"]);
    assert_eq!(ends, [[json!("10.0.0.1"), json!("10.0.0.2"), json!(80), json!("10.0.0.2")]]);
    let store = folder.path().join("flows");
    // A name that the query gives is its own.
    let own =
        "select dst_port as service_port, count(*) as packets from flows group by service_port having packets > 1";
    assert!(!ask(&[own], &store).is_empty());
    // Files may lack columns, or have those of the fields.
    let files = [("a.csv", "basic"), ("b.json", "all"), ("c.parquet", "src_ip,dst_ip,server_ip,bytes,start_time")];
    for (name, fields) in files {
        let file = folder.path().join(name);
        success(arguments!["read", "-q", captures().join("web.pcap"), "--fields", fields, "-o", file]);
        let sql = "select server_ip, count(*) as flows, sum(bytes) as bytes from flows group by all";
        let asked = sorted(values(&ask(&[sql], &file), ["server_ip", "flows", "bytes"]));
        let expected = view(&captures().join("web.pcap"), &["--by", "server_ip", "--top", "0"]);
        assert_eq!(asked, sorted(values(&expected, ["server_ip", "flows", "bytes"])), "{name}");
    }
}

#[test]
fn a_time_line_has_each_flow_once() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let steps = ask(&["timeline", "--every", "10s"], &store);
    let total = |name: &str| steps.iter().map(|row| number(&row[name])).sum::<u64>();
    let flows = ask(&["select count(*) as flows, sum(fwd_bytes + rev_bytes) as bytes from flows"], &store);
    assert_eq!([total("flows"), total("bytes")], [number(&flows[0]["flows"]), number(&flows[0]["bytes"])]);
    assert!(steps.len() > 2 && steps[0]["time"] == "2026-11-21T02:51:10.000000Z", "{:?}", steps[0]);
}

#[test]
fn times_select_flows_to_the_nanosecond() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let times: Vec<String> = view(&store, &["--fields", "start_time", "--sort", "start_time:asc", "--top", "0"])
        .iter()
        .map(|row| row["start_time"].as_str().unwrap().to_owned())
        .collect();
    let count = "select count(*) as n from flows";
    for at in [0, times.len() / 2, times.len() - 1] {
        for range in [["--from", &times[at]], ["--to", &times[at]]] {
            let expected = view(&store, &[range[0], range[1], "--fields", "start_time"]).len() as u64;
            assert_eq!(number(&ask(&[count, range[0], range[1]], &store)[0]["n"]), expected, "{range:?}");
        }
    }
    // Hosts that begin with the second half.
    let new = ask(&["new-hosts", "--top", "0", "--from", &times[times.len() / 2]], &store);
    let of = |options: &[&str]| {
        let rows = view(&store, &[&["--by", "host", "--top", "0", "--where", "packets > 0"], options].concat());
        let sending = rows.into_iter().filter(|row| number(&row["sent_packets"]) > 0);
        sending.map(|row| row["host"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let (from, before) = (of(&["--from", &times[times.len() / 2]]), of(&["--to", &times[times.len() / 2 - 1]]));
    let new: BTreeSet<String> = new.iter().map(|row| row["host"].as_str().unwrap().to_owned()).collect();
    assert_eq!(new, from.difference(&before).cloned().collect());
}

#[test]
fn no_flows_have_the_same_columns() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let none = ["--from", "2000-01-01", "--to", "2000-01-02"];
    let columns = |options: &[&str]| {
        values(&ask(&[&["describe flows"], options].concat(), &store), ["column_name", "column_type"])
    };
    assert_eq!(columns(&[]), columns(&none));
    let questions = success(["query"]);
    let questions: Vec<&str> = questions.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(questions.len(), 11);
    for question in questions {
        let address = (question == "host").then_some("192.0.2.1");
        let all: Vec<&str> = [question].into_iter().chain(address).chain(none).collect();
        assert_eq!(ask(&all, &store), Vec::<Value>::new(), "{question}");
    }
}

#[test]
fn files_are_tables_and_inputs() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let web = captures().join("web.pcap");
    for name in ["web.parquet", "web.csv", "web.json", "web.ipfix"] {
        success(arguments!["read", "-q", web, "-o", folder.path().join(name)]);
    }
    let count = |sql: &str, inputs: &[&Path]| {
        let inputs = inputs.iter().flat_map(|input| [OsStr::new("-i"), input.as_os_str()]);
        let out = success(arguments!["query", sql, "--format", "csv"].into_iter().chain(inputs));
        out.lines().nth(1).unwrap().to_owned()
    };
    let sum = "select count(*), sum(fwd_bytes + rev_bytes)::bigint from";
    let expected = count(&format!("{sum} '{}'", web.display()), &[]);
    assert!(expected.starts_with("8,"), "{expected}");
    for name in ["web.parquet", "web.csv", "web.json", "web.ipfix"] {
        let path = folder.path().join(name);
        assert_eq!(count(&format!("{sum} '{}'", path.display()), &[]), expected, "{name}");
        assert_eq!(count(&format!("{sum} flows"), &[&path]), expected, "{name}");
    }
    let store = stored_captures(folder.path());
    assert_eq!(count(&format!("{sum} \"flows\""), &[&web]), expected);
    let all = count("select count(*) from flows", &[&store]);
    let both = count("select count(*) from flows", &[&store, &web]);
    assert_eq!(both.parse::<u64>().unwrap(), all.parse::<u64>().unwrap() + 8);
    assert_eq!(count(&format!("select count(*) from '{}'", store.display()), &[]), all);
    // A damaged capture: what was read of it is there, and the exit code says so.
    let cut = folder.path().join("cut.pcap");
    let octets = std::fs::read(&web).unwrap();
    std::fs::write(&cut, &octets[..octets.len() - 10]).unwrap();
    let (code, out, err) = weir(arguments!["query", "select count(*) as n from flows", "-i", cut]);
    assert!(code == 2 && out.contains('8') && err.contains("cut.pcap"), "{out}{err}");
}

#[test]
fn functions_have_the_values_of_fields() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all");
    let files = testbed::capture_files();
    success(
        arguments!["read", "-q", "-o", format!("parquet:{}?fields=all", all.display())]
            .into_iter()
            .chain(files.iter().map(|file| file.as_os_str())),
    );
    let differ = "select count(community_id) as ids, count(*) filter (community_id is distinct from \
         community_id(src_ip, coalesce(fwd_icmp_type, src_port), dst_ip, coalesce(fwd_icmp_code, dst_port), protocol)) \
         as different from flows where src_ip is not null";
    let rows = values(&ask(&[differ], &all), ["ids", "different"]);
    assert!(number(&rows[0][0]) > 100 && rows[0][1] == 0, "{rows:?}");
    let cases = [
        ("in_net('10.1.2.3', '10.0.0.0/8')", json!(true)),
        ("in_net('11.1.2.3', '10.0.0.0/8')", json!(false)),
        ("in_net('2001:db8::1', '2001:db8::/32')", json!(true)),
        ("in_net('2001:db9::1', '2001:db8::/32')", json!(false)),
        ("in_net('::1', '0.0.0.0/0')", json!(false)),
        ("in_net('255.2.3.4', '0.0.0.0/0')", json!(true)),
        ("in_net('7fff::', '8000::/1')", json!(false)),
        ("in_net('::ffff:1.2.3.4', '::ffff:1.2.0.0/112')", json!(true)),
        ("in_net('1.2.3.4', '1.2.3.4')", json!(true)),
        ("in_net('garbage', '0.0.0.0/0')", Value::Null),
        ("in_net('10.1.2.3.4', '10.0.0.0/8')", Value::Null),
        ("in_net(null, '1.2.3.4/8')", Value::Null),
        ("protocol_name(6)", json!("tcp")),
        ("protocol_name(201)", json!("201")),
        ("protocol_number('udp')", json!(17)),
        ("port_name(443, 'tcp')", json!("https")),
        ("port_name(1, 'tcp')", Value::Null),
    ];
    let list: Vec<String> = cases.iter().enumerate().map(|(at, (sql, _))| format!("{sql} as c{at}")).collect();
    let row = &ask(&[&format!("select {}", list.join(", "))], &all)[0];
    for (at, (sql, expected)) in cases.iter().enumerate() {
        assert_eq!(&row[format!("c{at}")], expected, "{sql}");
    }
    for net in ["1.2.3.4/33", "10.0.0.0/255.0.0.0", "10.0.0/8", "x/0", "zz::/0", "10.0.0.0/8/9", "10.0.0.0/"] {
        let err = failure(1, ["query", &format!("select in_net('10.0.0.1', '{net}')")]);
        assert!(err.contains(&format!("in_net: {net} is no network")), "{err}");
    }
}

#[test]
fn damaged_and_special_files_of_a_store_are_told() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let hour = store.join("date=2026-11-21/hour=02");
    let flows = view(&store, &["--fields", "start_time", "--top", "0"]).len();
    let count = |store: &Path| {
        let (code, out, err) =
            weir(arguments!["query", "select count(*) as n from flows", "-i", store, "--format", "csv"]);
        (code, out.lines().nth(1).unwrap_or_default().to_owned(), err)
    };
    std::fs::write(hour.join("flows-20261121T000000.000000Z.parquet"), b"PAR1").unwrap();
    let (code, rows, err) = count(&store);
    assert!(
        code == 2 && rows == flows.to_string() && err.matches("cannot be read").count() == 1,
        "{code} {rows} {err}"
    );
    // Directions, and other fields.
    let other = folder.path().join("uniflow");
    for options in [&["--uniflow"][..], &["--fields", "basic,dns_name"]] {
        let web = captures().join("web.pcap");
        let sink = format!("parquet:{}", other.display());
        success(arguments!["read", "-q", web, "-o", sink].into_iter().chain(more(options)));
    }
    let (code, _, err) = count(&other);
    assert!(code == 0 && err.contains("--uniflow") && err.contains("different fields"), "{err}");
    // Also of IPFIX and nfdump, and of what is copied.
    let file = folder.path().join("uniflow.ipfix");
    success(arguments!["read", "-q", captures().join("web.pcap"), "--uniflow", "-o", file]);
    let copy = folder.path().join("copy");
    success(arguments!["read", "-q", file, "-o", format!("parquet:{}", copy.display())]);
    let nfdump = captures().join("../nfdump/web-lz4.nfcapd");
    for input in [file, copy, nfdump] {
        let (code, rows, err) = count(&input);
        assert!(code == 0 && rows == "12" && err.contains("--uniflow"), "{rows} {err}");
    }
    // The folders around a file are no columns.
    let odd = folder.path().join("src_ip=6.6.6.6");
    std::fs::create_dir(&odd).unwrap();
    std::fs::rename(&store, odd.join("flows")).unwrap();
    success(arguments!["read", "-q", captures().join("web.pcap"), "-o", odd.join("w.csv")]);
    for input in [odd.join("flows"), odd.join("w.csv")] {
        let sql = "select count(*) as n from flows where src_ip = '6.6.6.6'";
        let out = weir(arguments!["query", "-q", sql, "-i", input, "--format", "csv"]).1;
        assert_eq!(out, "n\n0\n", "{input:?}");
    }
    let dates = weir(arguments![
        "query",
        "-q",
        "select distinct date, hour from flows",
        "-i",
        odd.join("flows"),
        "--format",
        "csv"
    ])
    .1;
    assert_eq!(dates, "date,hour\n2026-11-21,2\n");
}

#[test]
fn times_select_flows_of_text_files() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let flows = view(&captures().join("web.pcap"), &[]);
    let expected = flows.iter().filter(|row| row["start_time"].as_str() >= Some("2026-11-21T02:51:17.93")).count();
    assert!((1..flows.len()).contains(&expected));
    for name in ["web.json", "web.csv"] {
        let file = folder.path().join(name);
        success(arguments!["read", "-q", captures().join("web.pcap"), "-o", file]);
        let sql = "select count(*) as n from flows";
        let range = ["--from", "2026-11-21T02:51:17.93Z", "--to", "2026-11-21T03:00:00Z"];
        let (code, out, err) =
            weir(arguments!["query", sql, "-i", file, "--format", "csv"].into_iter().chain(more(&range)));
        assert!(code == 0 && out == format!("n\n{expected}\n"), "{name}: {out}{err}");
    }
}
