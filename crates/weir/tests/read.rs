//! `weir read`: exit codes, table, summary, ledger, and damaged or unusual input and output.

mod common;
use common::{
    Pcap, SMALL_BYTES, SMALL_PACKETS, START, arguments, arp, command, ipv4, packets, read_flows, read_ledger, signal,
    small, text_of, udp, weir, weir_with_closed_output, weir_with_input,
};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `weir read FILE --stats`: exit code, standard error and ledger.
fn ledger_of(capture: &Path, options: &[&str]) -> (i32, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let fixed = arguments!["read", capture, "-o", "table:/dev/null", "--stats", stats];
    let (code, out, err) = weir(fixed.into_iter().chain(options.iter().map(AsRef::as_ref)));
    assert_eq!(out, "");
    (code, err, read_ledger(&stats))
}

/// Writes a capture to a folder of its own.
fn saved(pcap: &Pcap) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = pcap.save(folder.path(), "test.pcap");
    (folder, path)
}

fn read(path: &Path) -> (i32, String, String) {
    weir(arguments!["read", path])
}

#[test]
fn the_table_and_summary_of_a_small_capture_are_complete() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = read(&path);
    assert_eq!((code, err.as_str()), (0, ""));
    let expected = "\
2026-11-20 UTC duration proto              source → destination      pkts→ ←pkts bytes→ ←bytes flags end
  12:00:00.003   30.4ms tcp      192.0.2.10:40000 → 198.51.100.20:80     5     3   300B  1520B SAPF  end
  12:00:00.000   2.00ms udp      192.0.2.10:50000 → 192.0.2.53:53        1     1    58B   120B       forced
  12:00:01.000   10.0ms icmp 8/0       192.0.2.10 → 198.51.100.20        1     1    28B    28B       forced
3 flows, by IP bytes of both directions; k, M and G are decimal

packets    12 received, 12 metered
bytes      2054 in IP packets, 2222 on the wire
flows      3
span       2026-11-20 12:00:00.000 to 12:00:01.010 UTC (1.01s)
mean rate  17.6 kbit/s on the wire, 11.9 packets/s
protocols  tcp 86.9 %, udp 9.3 %, icmp 3.8 % of the bytes on the wire
";
    assert_eq!(out, expected, "\n{out}");
}

#[test]
fn quiet_prints_only_the_table() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = weir(arguments!["read", path, "-q"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 5, "{out}");
}

#[test]
fn the_table_shows_the_top_flows_and_the_number_of_all_flows() {
    let (_folder, path) = saved(&small());
    let (_, out, _) = weir(arguments!["read", path, "--top", "1"]);
    assert!(out.contains("tcp") && out.contains("1 of 3 flows (--top 0 for all)") && !out.contains(":53 "), "{out}");
    let (_, all, _) = weir(arguments!["read", path, "--top", "0"]);
    assert!(all.contains("3 flows, by"), "{all}");
}

#[test]
fn the_ledger_has_every_key_and_balances() {
    let (_folder, path) = saved(&small().frame(START + 2, 0, &arp()));
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 packet (arp: 1): The frame carries no IP packet"), "{err}");
    for side in ["packets", "bytes"] {
        for key in ["received", "dropped_nic", "dropped_kernel", "dropped_ring", "refused", "filtered", "metered"] {
            assert!(!ledger[side][key].is_null(), "{side}.{key}: {ledger}");
        }
    }
    for key in ["created", "exported", "lost", "live"] {
        assert!(!ledger["flows"][key].is_null(), "flows.{key}: {ledger}");
    }
    assert_eq!(ledger["packets"]["received"], SMALL_PACKETS + 1);
    assert_eq!(ledger["packets"]["metered"], SMALL_PACKETS);
    assert_eq!(ledger["packets"]["refused"]["non_ip"], 1);
    assert_eq!(ledger["bytes"]["metered"], SMALL_BYTES);
    assert_eq!(ledger["bytes"]["received"], SMALL_BYTES + 60);
    assert_eq!(ledger["flows"]["created"], 3);
    assert_eq!(ledger["flows"]["exported"], 3);
    assert_eq!(ledger["flows"]["live"], 0);
}

#[test]
fn the_ledger_on_standard_output_replaces_the_table() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = weir(arguments!["read", path, "--stats", "-"]);
    assert_eq!(code, 0);
    let ledger: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(ledger["flows"]["exported"], 3);
    assert!(err.contains("12 received"), "{err}");
}

#[test]
fn verbose_prints_the_ledger_as_text_on_standard_error() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = weir(arguments!["read", path, "-v"]);
    assert_eq!(code, 0);
    assert!(err.contains("= metered") && err.contains("the ledger balances"), "{err}");
    assert!(!out.contains("ledger"), "{out}");
}

#[test]
fn layer2_meters_frames_without_ip() {
    let (_folder, path) = saved(&Pcap::new().frame(START, 0, &arp()));
    let (code, out, _) = weir(arguments!["read", path, "--layer2"]);
    assert_eq!(code, 0);
    assert!(out.contains("arp") && out.contains("02:00:00:00:00:01 → ff:ff:ff:ff:ff:ff"), "{out}");
}

#[test]
fn unreadable_input_has_exit_code_1_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pcap");
    std::fs::write(&empty, b"").unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, b"not a capture\n").unwrap();
    let short = folder.path().join("short.pcap");
    std::fs::write(&short, &Pcap::new().0[..23]).unwrap();
    let gzipped_text = folder.path().join("text.gz");
    std::fs::write(&gzipped_text, gzip(b"not a capture\n")).unwrap();
    for path in [&empty, &text, &short, &gzipped_text, &folder.path().into(), &folder.path().join("missing.pcap")] {
        let (code, out, err) = read(path);
        assert_eq!((code, out.as_str()), (1, ""), "{}: {err}", path.display());
        assert!(err.starts_with("weir: ") && err.contains(path.to_str().unwrap()), "{err}");
    }
}

#[test]
fn a_file_without_read_permission_has_exit_code_1() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = saved(&small());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_ok() {
        eprintln!("SKIPPED: this user can read every file");
        return;
    }
    let (code, _, err) = read(&path);
    assert_eq!(code, 1);
    assert!(err.contains("Permission denied"), "{err}");
}

#[test]
fn a_missing_input_is_reported_before_any_output_is_opened() {
    let (folder, path) = saved(&small());
    let records = folder.path().join("records.txt");
    let (code, out, err) = weir(arguments![
        "read",
        path,
        folder.path().join("missing.pcap"),
        "-o",
        format!("table:{}", records.display()),
    ]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("missing.pcap") && !records.exists(), "{err}");
}

#[test]
fn an_empty_capture_has_exit_code_0() {
    let (_folder, path) = saved(&Pcap::new());
    let (code, out, err) = read(&path);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "packets    0 received, 0 metered\n", ""));
}

#[test]
fn a_truncated_capture_is_metered_up_to_the_damage_with_exit_code_2() {
    let whole = small().0;
    let last = 14 + 28;
    // In the last frame, and in the header before it.
    for cut in [whole.len() - 1, whole.len() - last, whole.len() - last - 1, whole.len() - last - 15] {
        let (_folder, path) = saved(&Pcap(whole[..cut].to_vec()));
        let (code, err, ledger) = ledger_of(&path, &[]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("{}: at byte ", path.display())), "{err}");
        assert!(err.contains("11 packets before it were read"), "{err}");
        assert_eq!(ledger["packets"]["metered"], SMALL_PACKETS - 1);
    }
}

#[test]
fn an_impossible_record_length_is_reported_with_its_offset() {
    let mut pcap = small();
    let offset = pcap.0.len();
    for word in [START, 0, 0xffff_fff0, 60] {
        pcap.0.extend(word.to_le_bytes());
    }
    pcap.0.extend([0; 100]);
    let (_folder, path) = saved(&pcap);
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&format!("at byte {offset}")), "{err}");
    assert_eq!(ledger["packets"]["metered"], SMALL_PACKETS);
}

#[test]
fn packets_without_captured_octets_are_refused_and_counted() {
    let (_folder, path) = saved(&small().frame(START + 2, 0, &[]).record(START + 2, 1, &[], 60));
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(ledger["packets"]["received"], SMALL_PACKETS + 2);
    assert_eq!(ledger["packets"]["refused"]["link_truncated"], 2);
    assert_eq!(ledger["bytes"]["refused"]["link_truncated"], 60);
    assert!(err.contains("- refused, link_truncated"), "{err}");
}

#[test]
fn packets_refused_for_their_snap_length_count_with_their_wire_length() {
    for snap in [0_u32, 1] {
        let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 100);
        let pcap = Pcap::with_snap_length(snap).record(START, 0, &frame[..snap as usize], frame.len() as u32);
        let (_folder, path) = saved(&pcap);
        let (code, err, ledger) = ledger_of(&path, &[]);
        assert_eq!(code, 2, "{err}");
        assert_eq!(ledger["bytes"]["refused"]["link_truncated"], frame.len());
    }
}

#[test]
fn a_packet_cut_by_the_snap_length_is_metered_by_its_headers() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 1000);
    let (_folder, path) = saved(&Pcap::new().record(START, 0, &frame[..42], frame.len() as u32));
    let (code, out, err) = read(&path);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2") && out.contains(" 1028B "), "{out}");
}

#[test]
fn timestamps_that_go_back_by_years_are_metered_and_counted() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 10);
    let pcap = Pcap::new().frame(START, 0, &frame).frame(0, 0, &frame).frame(u32::MAX, 999_999, &frame).frame(
        START,
        u32::MAX,
        &frame,
    );
    let (_folder, path) = saved(&pcap);
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(ledger["packets"]["metered"], 4);
    assert_eq!(ledger["noted"]["clock_went_back"], 2);
    let (code, out, _) = read(&path);
    assert_eq!(code, 0);
    assert!(out.contains("1970-01-01 00:00:00.000"), "{out}");
}

#[test]
fn malformed_packets_have_exit_code_2_and_frames_without_ip_do_not() {
    let mut malformed = ipv4(17, [192, 0, 2, 1], [192, 0, 2, 2], &[0; 8]);
    malformed[14] = 0x55;
    let (_folder, path) = saved(&small().frame(START + 2, 0, &malformed));
    let (code, _, ledger) = ledger_of(&path, &[]);
    assert_eq!((code, &ledger["packets"]["refused"]["ip_version"]), (2, &Value::from(1)));
    let (_folder, path) = saved(&small().frame(START + 2, 0, &arp()));
    assert_eq!(ledger_of(&path, &[]).0, 0);
}

#[test]
fn standard_input_and_gzip_give_the_same_output() {
    let (_folder, path) = saved(&small());
    let (_, from_file, _) = read(&path);
    assert_eq!(weir_with_input(["read", "-"], &small().0), (0, from_file.clone(), String::new()));
    assert_eq!(weir_with_input(["read", "-i", "-"], &gzip(&small().0)), (0, from_file.clone(), String::new()));
    let folder = tempfile::tempdir().unwrap();
    let gzipped = folder.path().join("small.pcap.gz");
    std::fs::write(&gzipped, gzip(&small().0)).unwrap();
    assert_eq!(read(&gzipped), (0, from_file, String::new()));
}

#[test]
fn a_truncated_gzip_file_is_metered_up_to_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap.gz");
    let mut pcap = Pcap::new();
    for n in 0..2000 {
        // Pseudorandom ports do not compress well.
        pcap =
            pcap.frame(START, n, &udp(([192, 0, 2, 1], (n * 7919) as u16), ([192, 0, 2, 2], (n * 104_729) as u16), 10));
    }
    let whole = gzip(&pcap.0);
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 2, "{err}");
    let metered = ledger["packets"]["metered"].as_u64().unwrap();
    assert!(metered > 0 && metered < 2000, "{metered}");
    assert!(err.contains(&format!("{metered} packets before it were read")), "{err}");
}

#[test]
fn several_files_are_merged_in_time_order() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));
    let requests = Pcap::new().frame(START, 0, &udp(a, b, 1)).frame(START + 100, 0, &udp(a, b, 1));
    let responses = Pcap::new().frame(START + 50, 0, &udp(b, a, 2)).frame(START + 150, 0, &udp(b, a, 2));
    let (requests, responses) = (requests.save(folder.path(), "q.pcap"), responses.save(folder.path(), "a.pcap"));
    let (code, out, err) = weir(arguments!["read", responses, requests]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2     2     2"), "the first sender is the client: {out}");
}

#[test]
fn the_other_files_are_read_if_one_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let whole = small().save(folder.path(), "whole.pcap");
    let mut cut = small();
    cut.0.truncate(cut.0.len() - 1);
    let cut = cut.save(folder.path(), "cut.pcap");
    let (code, err, ledger) = ledger_of(&cut, &["-i", whole.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("cut.pcap: at byte") && err.contains("11 packets before it"), "{err}");
    assert_eq!(ledger["packets"]["received"], 2 * SMALL_PACKETS - 1);
}

#[test]
fn records_lost_to_a_full_disk_are_counted_and_reported_once() {
    let (folder, path) = saved(&small());
    for sink in ["table:/dev/full", "csv:/dev/full", "json:/dev/full", "ipfix:/dev/full"] {
        let stats = folder.path().join("ledger.json");
        let (code, out, err) = weir(arguments!["read", path, "-o", sink, "--stats", stats,]);
        assert_eq!((code, out.as_str()), (2, ""), "{sink}: {err}");
        assert_eq!(err.matches("No space left").count(), 1, "{err}");
        let ledger = read_ledger(&stats);
        assert_eq!(ledger["flows"]["lost"]["write_failed"], 3, "{sink}: {ledger}");
        assert_eq!(ledger["flows"]["exported"], 0);
    }
}

#[test]
fn a_full_disk_at_standard_output_has_exit_code_2() {
    let (_folder, path) = saved(&small());
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&[][..], &["-o", "csv:-"], &["-o", "json:-"], &["--stats", "-"]] {
        let (code, _, err) =
            text_of(&command().arg("read").arg(&path).args(arguments).stdout(full()).output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains("No space left") && err.contains("free some space"), "{arguments:?}: {err}");
    }
}

#[test]
fn a_failed_sink_does_not_stop_the_others() {
    let (folder, path) = saved(&small());
    let good = folder.path().join("good.txt");
    let good_sink = format!("table:{}", good.display());
    let (code, _, err) = weir(arguments!["read", path, "-o", "table:/dev/full", "-o", good_sink,]);
    assert_eq!(code, 2);
    assert!(err.contains("lost       3 flows for table:/dev/full"), "{err}");
    assert!(std::fs::read_to_string(good).unwrap().contains("3 flows"));
}

#[test]
fn a_sink_that_cannot_be_opened_has_exit_code_1() {
    let (folder, path) = saved(&small());
    let nowhere = folder.path().join("no/such/folder/x");
    for sink in [
        "nonsense".to_string(),
        "nonsense:x".into(),
        "table:".into(),
        "ipfix+udp://".into(),
        "netflow5+udp://host:port".into(),
        format!("table:{}", nowhere.display()),
        format!("csv:{}", nowhere.display()),
    ] {
        let (code, out, err) = weir(arguments!["read", path, "-o", sink]);
        assert_eq!((code, out.as_str()), (1, ""), "{sink}: {err}");
        assert!(err.contains(&sink) || err.contains(nowhere.to_str().unwrap()), "{sink}: {err}");
    }
    let (code, _, err) = weir(arguments!["read", path, "--stats", nowhere]);
    assert_eq!(code, 1, "{err}");
}

#[test]
fn an_output_cannot_overwrite_an_input() {
    let (folder, path) = saved(&small());
    let before = std::fs::read(&path).unwrap();
    let link = folder.path().join("link.pcap");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for output in [format!("table:{}", path.display()), format!("csv:{}", link.display())] {
        let (code, _, err) = weir(arguments!["read", path, "-o", output]);
        assert_eq!(code, 1);
        assert!(err.contains("would overwrite it"), "{err}");
    }
    let (code, _, err) = weir(arguments!["read", path, "--stats", path]);
    assert_eq!(code, 1, "{err}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn two_outputs_cannot_share_a_file() {
    let (folder, path) = saved(&small());
    let output = format!("table:{}", folder.path().join("new").display());
    let stats = folder.path().join(".").join("new");
    let (code, _, err) = weir(arguments!["read", path, "-o", output, "--stats", stats,]);
    assert_eq!(code, 1);
    assert!(err.contains("mixed") && !stats.exists(), "{err}");
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let mut pcap = Pcap::new();
    for n in 0..30_000_u32 {
        let [_, _, high, low] = n.to_be_bytes();
        pcap = pcap.frame(START, n, &udp(([10, 0, high, low], 1), ([192, 0, 2, 2], 2), 10));
    }
    let (_folder, path) = saved(&pcap);
    for arguments in [&[][..], &["--top", "0"], &["-o", "csv:-"], &["-o", "json:-"], &["--stats", "-", "-q"]] {
        let all = [&["read", path.to_str().unwrap()], arguments].concat();
        let (code, err) = weir_with_closed_output(&all);
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn the_summary_counts_packets_without_a_whole_tcp_header() {
    // A TCP header of 20 octets over IPv6 ends at octet 74.
    for (snap, truncated) in [("60", true), ("96", false)] {
        let load = format!("synth:lossy,flows=20,packets=3k,ipv6=100%,snap={snap}");
        let (code, out, _) = weir(["read", "-i", &load, "--top", "0"]);
        let line = out.lines().find(|line| line.starts_with("tcp "));
        let unread = line.is_some_and(|line| line.contains("3000 packets without a whole TCP header, not analysed"));
        assert_eq!((code, unread), (0, truncated), "{line:?}");
    }
}

#[test]
fn the_ledger_accounts_for_a_full_flow_table_under_every_policy() {
    let mut pcap = Pcap::new();
    for n in 0..100_u8 {
        pcap = pcap.frame(START, u32::from(n), &udp(([10, 0, 0, n], 1), ([192, 0, 2, 2], 2), 10));
    }
    let (_folder, path) = saved(&pcap);
    for (policy, expected) in [("overflow", 0), ("evict-oldest-idle", 0), ("drop", 2)] {
        let (code, err, ledger) = ledger_of(&path, &["--flows", "10", "--full", policy]);
        assert_eq!(code, expected, "{policy}: {err}");
        let packets = &ledger["packets"];
        let dropped = packets["dropped_table_full"].as_u64().unwrap();
        assert_eq!(packets["metered"].as_u64().unwrap() + dropped, 100, "{policy}");
        assert_eq!(dropped, if policy == "drop" { 90 } else { 0 }, "{policy}");
    }
}

#[test]
fn key_options_and_timeouts_apply() {
    let (a, b) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));
    let pcap = Pcap::new()
        .frame(START, 0, &udp(a, b, 1))
        .frame(START + 1, 0, &udp(b, a, 1))
        .frame(START + 61, 0, &udp(a, b, 1))
        .frame(START + 121, 0, &udp(a, b, 1));
    let (_folder, path) = saved(&pcap);
    let created = |options: &[&str]| ledger_of(&path, options).2["flows"]["created"].as_u64().unwrap();
    assert_eq!(created(&[]), 1);
    assert_eq!(created(&["--uniflow-key"]), 2);
    assert_eq!(created(&["--idle", "60s"]), 3);
    assert_eq!(created(&["--idle", "1m", "--uniflow-key"]), 4);
    assert_eq!(created(&["--active", "100"]), 2);
}

#[test]
fn records_are_written_in_every_format() {
    let (folder, path) = saved(&small());
    let (csv, json, ipfix) = (folder.path().join("f.csv"), folder.path().join("f.json"), folder.path().join("f.ipfix"));
    let (code, out, err) = weir(arguments![
        "read",
        path,
        "-o",
        format!("csv:{}", csv.display()),
        "-o",
        format!("json:{}", json.display()),
        "-o",
        format!("ipfix:{}", ipfix.display()),
        "-v",
    ]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("12 received, 12 metered") && err.contains("the ledger balances"), "{err}");
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 4);
    let flows = read_flows(&json);
    assert_eq!((flows.len(), flows.iter().map(packets).sum::<u64>()), (3, SMALL_PACKETS));
    assert!(std::fs::read(ipfix).unwrap().starts_with(&[0, 10]));
}

#[test]
fn with_records_on_standard_output_the_summary_is_on_standard_error() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = weir(arguments!["read", path, "-o", "json:-"]);
    assert_eq!(code, 0);
    assert!(out.lines().all(|line| line.starts_with('{')) && out.lines().count() == 3, "{out}");
    assert!(err.contains("12 received"), "{err}");
}

#[test]
fn uniflow_writes_one_record_per_direction() {
    let (_folder, path) = saved(&small());
    let lines = |options: &[&str]| {
        weir([&["read", path.to_str().unwrap(), "-q", "-o", "json:-"], options].concat()).1.lines().count()
    };
    assert_eq!(lines(&[]), 3);
    assert_eq!(lines(&["--uniflow"]), 6);
}

#[test]
fn flows_that_a_format_cannot_carry_are_counted_with_the_reason() {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64];
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    let (_folder, path) = saved(&small().frame(START + 2, 0, &frame));
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sink = format!("netflow5+udp://{}", collector.local_addr().unwrap());
    let (code, _, err) = weir(arguments!["read", path, "-o", sink]);
    assert_eq!(code, 2);
    assert!(err.contains("1 flow for netflow5") && err.contains("NetFlow v5 supports IPv4 only"), "{err}");
}

#[test]
fn an_interrupt_exports_all_flows_and_warns_of_unread_input() {
    let mut child = command()
        .args(["read", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let frame = Pcap(Vec::new()).frame(START, 0, &udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 100)).0;
    let mut input = child.stdin.take().unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    // Writing fails when weir has exited.
    let writer = std::thread::spawn(move || while input.write_all(&frame.repeat(1000)).is_ok() {});
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&child, libc::SIGINT);
    let (code, out, err) = text_of(&child.wait_with_output().unwrap());
    writer.join().unwrap();
    assert_eq!(code, 2);
    assert!(err.contains("interrupted"), "{err}");
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2") && out.contains("received"), "{out}");
}

/// Starts `weir read - -o json:PATH`: the process and its standard input.
fn read_pipe(json: &Path, options: &[&str]) -> (std::process::Child, std::process::ChildStdin) {
    let mut child = command()
        .args(["read", "-", "-o", &format!("json:{}", json.display())])
        .args(options)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

fn one_packet(seconds: u32, source_port: u16) -> Vec<u8> {
    Pcap(Vec::new()).frame(seconds, 0, &udp(([192, 0, 2, 1], source_port), ([192, 0, 2, 2], 2), 100)).0
}

#[test]
fn records_of_a_slow_pipe_are_exported_while_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("slow.json");
    let (mut child, mut input) = read_pipe(&json, &["--idle", "1s"]);
    input.write_all(&Pcap::new().0).unwrap();
    let mut second = 0;
    // Each packet ends the flow before it. Records are written at least once a second.
    while std::fs::metadata(&json).map_or(0, |file| file.len()) == 0 {
        input.write_all(&one_packet(START + 2 * second, second as u16)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        second += 1;
        assert!(second < 600, "no record in a minute");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), second as usize);
}

#[test]
fn an_interrupt_ends_a_read_of_a_silent_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("silent.json");
    let (child, mut input) = read_pipe(&json, &[]);
    input.write_all(&[Pcap::new().0, one_packet(START, 1)].concat()).unwrap();
    // weir creates the output after it handles signals and has read the packet.
    while !json.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    signal(&child, libc::SIGINT);
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 1);
    drop(input);
}

#[test]
fn the_ledger_counts_the_effects_of_a_full_flow_table() {
    let mut pcap = Pcap::new();
    for port in 1..=9 {
        pcap = pcap.frame(START, 0, &udp(([192, 0, 2, 1], port), ([192, 0, 2, 2], 53), 100));
    }
    let (_folder, path) = saved(&pcap);
    for (policy, key, count) in [("overflow", "overflow", 7), ("evict-oldest-idle", "flow_evicted", 7)] {
        let (code, _, ledger) = ledger_of(&path, &["--flows", "2", "--full", policy]);
        assert_eq!((code, &ledger["noted"][key]), (0, &Value::from(count)), "{ledger}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Limits of the address space that let large or small allocations fail.
#[cfg(target_os = "linux")]
#[test]
fn a_flow_table_that_does_not_fit_into_memory_is_refused_with_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "small.pcap");
    for kilobytes in (60_000..180_000).step_by(10_000) {
        let script = format!("ulimit -v {kilobytes}; exec \"$0\" read \"$1\" --flows 100k");
        let weir = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).arg(&capture).output().unwrap();
        let (code, out, err) = text_of(&weir);
        assert_eq!((code, out.as_str()), (1, ""), "{kilobytes}: {err}");
        let reason = "weir: --flows 100000: a flow cache of this size with TCP analysis needs up to 176 MB, \
                      which is not available; choose fewer flows\n";
        assert_eq!(err, reason, "{kilobytes}");
    }
}

#[test]
fn control_characters_of_names_are_not_printed() {
    const NAME: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\r.pcap";
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join(NAME);
    let capture = small();
    let cut = Pcap(capture.0[..capture.0.len() - 5].to_vec()).save(folder.path(), NAME);
    let (cut, missing) = (cut.to_str().unwrap(), format!("{}.gone", name.display()));
    let json = format!("json:{}/flows.json", missing);
    let good = capture.save(folder.path(), "good.pcap");
    let good = good.to_str().unwrap();
    let sink = format!("json:{}.json", name.display());
    let explained = format!("--explain={NAME}");
    for arguments in [
        &["read", cut][..],
        &["read", &missing],
        &["read", good, "-o", &json],
        &["read", good, "-v", "-o", &sink],
        &["read", good, NAME, "--no-such\u{1b}[31moption"],
        &["tcp", cut],
        &["tcp", &missing],
        &["tcp", good, &explained],
        &["tcp", good, "--csv", &missing, "--json", &missing],
        &["tcp", good, "--sort", NAME],
        &["synth", "velan,packets=10", "-o", &format!("{missing}/x")],
    ] {
        let (_, out, err) = weir(arguments);
        let text = out + &err;
        assert!(!text.is_empty() && !text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
        assert!(text.contains(".pcap") || text.contains("option'"), "{text:?}");
    }
}
