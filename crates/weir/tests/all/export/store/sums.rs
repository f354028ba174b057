//! Views of a store that is their only source are summed up from its columns. The answers are those of records, which
//! two outputs get.

use super::source::{Changed, copy_with, split_groups};
use super::{files, sink};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use testbed::{arguments, captures, success, weir};

/// What the log says if no records were made.
const SUMMED: &str = "summed up from columns";

/// A view of some files: the text, the ledger of the packets and of the sink, and what the summary says.
struct Answer {
    text: String,
    ledger: Value,
    summary: String,
    is_summed: bool,
}

fn answer(sources: &[PathBuf], options: &[&str], format: &str, is_alone: bool) -> Option<Answer> {
    let folder = tempfile::tempdir().unwrap();
    let [view, other, stats] = ["view", "other", "stats"].map(|name| folder.path().join(name));
    let sink = |path: &Path| format!("{format}:{}", path.display());
    let mut read: Vec<OsString> = ["read", "--log-level", "debug", "-o", &sink(&view)].map(Into::into).into();
    if !is_alone {
        read.extend(["-o", &sink(&other)].map(Into::into));
    }
    read.extend(["--stats".into(), stats.clone().into_os_string()]);
    read.extend(sources.iter().map(|path| path.clone().into_os_string()));
    read.extend(options.iter().map(Into::into));
    let (code, _, err) = weir(&read);
    if code == 1 && err.contains("not known of the stored flows") {
        return None;
    }
    assert!(matches!(code, 0 | 2), "{options:?}: {err}");
    let mut ledger: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    // One sink, whose name has a folder.
    let sinks = ledger["sinks"].as_array_mut().unwrap();
    sinks.truncate(1);
    sinks[0].as_object_mut().unwrap().remove("sink");
    let facts = ["packets ", "bytes ", "flows ", "span ", "mean rate ", "protocols ", "tcp "];
    let summary = err.lines().filter(|line| facts.iter().any(|fact| line.starts_with(fact)));
    Some(Answer {
        text: fs::read_to_string(&view).unwrap(),
        ledger,
        summary: summary.collect::<Vec<_>>().join("\n"),
        is_summed: err.contains(SUMMED),
    })
}

/// Compares a view with that of records. Returns its number of lines; 0 if the files do not have its fields.
fn compare(sources: &[PathBuf], options: &[&str], format: &str, is_summed: bool) -> usize {
    let [summed, records] = [true, false].map(|is_alone| answer(sources, options, format, is_alone));
    let case = format!("{sources:?} {options:?} {format}");
    assert_eq!(summed.is_some(), records.is_some(), "{case}");
    let Some((summed, records)) = summed.zip(records) else { return 0 };
    assert!(!records.is_summed, "{case}");
    assert_eq!(summed.is_summed, is_summed, "{case}");
    assert_eq!(summed.text, records.text, "{case}");
    assert_eq!(summed.ledger, records.ledger, "{case}");
    assert_eq!(summed.summary, records.summary, "{case}");
    assert!(summed.summary.contains("packets "), "{case}: {}", summed.summary);
    summed.text.lines().count()
}

/// Sums that are asked for.
const DNS: &str = "dns_queries,dns_answers,dns_nxdomain,dns_servfail,dns_refused,dns_other_errors,dns_unanswered,\
                   dns_forgotten,dns_response_mean_ns,dns_response_max_ns";
const HTTP: &str = "http_requests,http_errors,http_4xx,http_5xx,http_response_mean_ns,http_response_max_ns";
const LOSSES: &str = "retransmitted_unseen,client_retransmitted_unseen,client_retransmitted_seen,\
                      server_retransmitted_unseen,server_retransmitted_seen";
const TIMES: &str = "client_rtt_count,client_rtt_mean_ns,client_rtt_max_ns,server_rtt_count,server_rtt_mean_ns,\
                     server_rtt_max_ns,server_time_mean_ns";
const FAILURES: &str = "failed,no_answer,refused,half_open,reset_by_client,reset_by_server,reset_by_both";

/// Views, each with an order or a limit.
const VIEWS: [&[&str]; 28] = [
    &["--by", "src_ip", "--groups", "1000000"],
    &["--by", "host", "--groups", "1000000"],
    &["--by", "host", "--groups", "7", "--top", "3"],
    &["--by", "dst_ip/16,protocol", "--sort", "retransmission", "--groups", "1000000"],
    &["--by", "src_ip/28/40,dst_port", "--sort", "flows:asc", "--groups", "1000000"],
    &["--by", "server_ip,service_port", "--sort", "response", "--groups", "1000000"],
    &["--by", "client_ip", "--sort", "rtt_max_ns", "--groups", "5"],
    &["--by", "application", "--sort", "application:asc", "--groups", "1000000"],
    &["--by", "port", "--top", "0", "--groups", "1000000"],
    &["--by", "protocol_number,ip_version,interface,end_reason", "--groups", "1000000"],
    &["--by", "src_port,end_reason", "--sort", "first_time", "--groups", "100"],
    &["--by", "interface", "--sort", "duration", "--groups", "1000000"],
    &["--by", "server_ip,service_port", "--sum", DNS, "--sort", "dns_failed", "--groups", "1000000"],
    &["--by", "host", "--sum", HTTP, "--sort", "http_response_mean_ns:asc", "--groups", "20"],
    &["--by", "application,dst_port", "--sort", "nxdomain", "--groups", "1000000"],
    &["--by", "server_ip", "--sum", LOSSES, "--sort", "server_retransmitted_unseen", "--groups", "1000000"],
    &["--by", "client_ip/24", "--sum", TIMES, "--sort", "server_rtt_mean_ns", "--groups", "1000000"],
    &["--every", "5ms", "--by", "protocol", "--sum", FAILURES, "--sort", "failed", "--groups", "30"],
    &["--by", "host,server_ip,protocol", "--groups", "1000000"],
    &["--by", "port,client_ip/24,service_port", "--groups", "9"],
    &["--by", "client_ip,server_ip,application", "--groups", "1000000"],
    &["--by", "host/16,port,end_reason", "--sort", "flows", "--groups", "1000000"],
    &["--by", "dns_name", "--groups", "1000000"],
    &["--by", "application,http_host", "--groups", "1000000"],
    &["--every", "10ms", "--groups", "1000000"],
    &["--every", "1s", "--by", "host", "--top", "4", "--groups", "1000000"],
    &["--every", "1ms", "--by", "dst_ip,application", "--groups", "40"],
    &["--every", "2ms", "--by", "protocol", "--groups", "1000000"],
];

const CONDITIONS: [&[&str]; 18] = [
    &[],
    &["--where", "dst_port = 443 or udp"],
    &["--where", "src net 198.18.0.0/16 and not port 80"],
    &["--where", "host 198.18.0.0"],
    &["--where", "bytes > 3k and packets < 40"],
    &["--where", "application and not dst port 53"],
    &["--where", "ip6"],
    &["--where", "not tcp and end_reason != idle"],
    &["--where", "server_ip = 10.0.0.1 or service_port in 1-1023"],
    &["--where", "port = 1 and port = 2"],
    &["--where", "retransmitted > 0"],
    &["--where", "not retransmitted > 0"],
    &["--where", "duration > 1ms and fwd_tcp_out_of_order = 0"],
    &["--where", "response or rtt < 3ms"],
    &["--where", "src flags S and not src flags R and rev_packets > 0"],
    &["--where", "dns_nxdomain >= 0 or http_status"],
    &["--where", "dns_rcode = NXDOMAIN or sni ends-with e"],
    &["--where", "approximate or fwd_tcp_degraded or bps > 1M"],
];

/// Stores of several kinds in a folder.
fn stores(folder: &Path) -> Vec<Vec<PathBuf>> {
    const LOSSY: &str = "synth:lossy,flows=90,packets=9k,ipv6=40%,seed=4";
    const APPLICATIONS: &str = "synth:apps,flows=150,packets=9k,seed=3";
    let stored = |name: &str, settings: &str, options: &[&str]| {
        let path = folder.join(name);
        let to =
            if name.ends_with("parquet") { format!("{}{settings}", path.display()) } else { sink(&path, settings) };
        let (code, _, err) = weir(["read", "-q", "-o", &to].iter().chain(options));
        assert!(matches!(code, 0 | 2), "{err}");
        path
    };
    let lossy = stored("lossy", "", &["-i", LOSSY]);
    let all = stored("all.parquet", "?fields=all", &["--dpi-fields", "-i", APPLICATIONS]);
    let few = stored("few.parquet", "?fields=basic,application,rtt", &["-i", LOSSY]);
    let one_way = stored("one-way.parquet", "", &["--uniflow", "-i", LOSSY]);
    let ping = captures().join("ping.pcap.zst");
    let layer2 = stored("layer2.parquet", "", &["--layer2", ping.to_str().unwrap()]);
    let web = captures().join("web.pcap");
    let sorted = stored("sorted", "", &[web.to_str().unwrap()]);
    success(arguments!["store", "-q", sorted, "--compact"]);
    let small = folder.join("small.parquet");
    split_groups(&all, &small, 7);
    let nulls = folder.join("nulls.parquet");
    let null = |changed: &mut Changed| {
        if let Changed::Integers(values, present) = changed {
            let mut row = 0..;
            let is_kept: Vec<bool> = values.iter().map(|_| row.next().is_some_and(|row| row % 3 > 0)).collect();
            let mut kept = is_kept.iter();
            values.retain(|_| *kept.next().unwrap());
            let mut kept = is_kept.iter();
            present.iter_mut().filter(|level| **level > 0).for_each(|level| *level = i16::from(*kept.next().unwrap()));
        }
    };
    copy_with(&files(&lossy)[0], &nulls, "fwd_tcp_handshake_rtt_ns", null);
    vec![
        vec![lossy.clone()],
        vec![all.clone()],
        vec![few.clone()],
        vec![one_way.clone()],
        vec![layer2.clone()],
        vec![sorted.clone()],
        vec![small.clone()],
        vec![nulls.clone()],
        vec![lossy, small, layer2, sorted],
        vec![few, nulls, one_way],
    ]
}

#[test]
fn sums_of_columns_are_those_of_records() {
    let folder = tempfile::tempdir().unwrap();
    let (mut lines, mut views) = (0, 0);
    for (at, sources) in stores(folder.path()).iter().enumerate() {
        for (of, view) in VIEWS.iter().enumerate() {
            // Each store has each view, and each condition with some of them.
            let condition = CONDITIONS[(5 * at + of) % CONDITIONS.len()];
            let format = ["csv", "table", "json"][(at + of) % 3];
            let found = compare(sources, &[view, condition].concat(), format, true);
            (lines, views) = (lines + found, views + usize::from(found > 0));
        }
    }
    assert!(lines > 1000 && views > 120, "{lines} lines of {views} views");
}

#[test]
fn the_time_of_start_and_conditions_select_the_rows_of_which_sums_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path());
    for condition in CONDITIONS {
        let times = ["--from", "2026-01-01T00:00:00.05", "--to", "2026-01-01T00:00:01", "--by", "src_ip"];
        for sources in [&stores[0], &stores[6]] {
            compare(sources, &[&times, condition].concat(), "csv", true);
        }
    }
}

#[test]
fn what_columns_do_not_have_alone_is_read_as_records() {
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path());
    for options in [&["--by", "src_ip", "--count", "hosts"][..], &["--by", "sni"], &["--by", "flags"]] {
        compare(&stores[0], options, "csv", false);
    }
}

#[test]
fn a_damaged_row_group_is_read_as_records_up_to_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path());
    let whole = &stores[6][0];
    for (column, value) in [("fwd_packets", -1), ("end_time", 0), ("rev_l2_bytes", -7), ("src_port", 65_536)] {
        let damaged = folder.path().join(format!("{column}.parquet"));
        let mut groups = 0;
        copy_with(whole, &damaged, column, |changed| {
            groups += 1;
            if let (Changed::Integers(values, _), 4) = (changed, groups) {
                values.iter_mut().for_each(|number| *number = value);
            }
        });
        compare(&[damaged.clone(), whole.clone()], &["--by", "src_ip"], "csv", false);
        let selected = ["--by", "src_ip", "--where", "bytes > 0"];
        compare(&[damaged], &selected, "csv", false);
    }
}
