//! `weir read`: exit codes, the table, the ledger, and every way in which input and output can be bad.

mod common;
use common::{
    Pcap, SMALL_BYTES, SMALL_PACKETS, START, arp, ipv4, parts, small, udp, weir, weir_nobody_reads, weir_with_input,
};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `weir read FILE --stats` and gives the exit code, standard error and the ledger.
fn ledger_of(capture: &Path, more: &[&str]) -> (i32, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("read")
        .arg(capture)
        .args(["-o", "table:/dev/null", "--stats"])
        .arg(&stats)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (code, out, err) = parts(&output);
    assert_eq!(out, "");
    let ledger: Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    (code, err, ledger)
}

fn saved(pcap: &Pcap) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = pcap.save(folder.path(), "test.pcap");
    (folder, path)
}

fn read(path: &Path) -> (i32, String, String) {
    parts(&weir(["read".as_ref(), path.as_os_str()]))
}

#[test]
fn a_small_capture_is_a_table_and_a_summary() {
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
fn quiet_leaves_the_table_alone() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-q".as_ref()]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 5, "{out}");
}

#[test]
fn the_table_shows_the_top_and_says_how_many_it_does_not() {
    let (_folder, path) = saved(&small());
    let (_, out, _) = parts(&weir(["read".as_ref(), path.as_os_str(), "--top".as_ref(), "1".as_ref()]));
    assert!(out.contains("tcp") && out.contains("1 of 3 flows (--top 0 for all)") && !out.contains(":53 "), "{out}");
    let (_, all, _) = parts(&weir(["read".as_ref(), path.as_os_str(), "--top".as_ref(), "0".as_ref()]));
    assert!(all.contains("3 flows, by"), "{all}");
}

#[test]
fn the_ledger_has_the_keys_of_its_definition_and_balances() {
    let (_folder, path) = saved(&small().frame(START + 2, 0, &arp()));
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 packet (arp 1): The frame carries no IP packet"), "{err}");
    for side in ["packets", "bytes"] {
        for key in ["received", "dropped_card", "dropped_kernel", "dropped_ring", "refused", "filtered", "metered"] {
            assert!(!ledger[side][key].is_null(), "{side}.{key}: {ledger}");
        }
    }
    for key in ["created", "exported", "spooled", "lost", "live"] {
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
fn the_ledger_on_standard_output_takes_the_place_of_the_table() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "--stats".as_ref(), "-".as_ref()]));
    assert_eq!(code, 0);
    let ledger: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(ledger["flows"]["exported"], 3);
    assert!(err.contains("12 received"), "{err}");
}

#[test]
fn verbose_prints_the_ledger_in_words_on_standard_error() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-v".as_ref()]));
    assert_eq!(code, 0);
    assert!(err.contains("= metered") && err.contains("the ledger balances"), "{err}");
    assert!(!out.contains("ledger"), "{out}");
}

#[test]
fn frames_without_ip_are_flows_with_layer2() {
    let (_folder, path) = saved(&Pcap::new().frame(START, 0, &arp()));
    let (code, out, _) = parts(&weir(["read".as_ref(), path.as_os_str(), "--layer2".as_ref()]));
    assert_eq!(code, 0);
    assert!(out.contains("arp") && out.contains("02:00:00:00:00:01 → ff:ff:ff:ff:ff:ff"), "{out}");
}

#[test]
fn input_that_cannot_be_read_at_all_is_exit_code_1_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pcap");
    std::fs::write(&empty, b"").unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, b"this is no capture\n").unwrap();
    let short = folder.path().join("short.pcap");
    std::fs::write(&short, &Pcap::new().0[..23]).unwrap();
    let gzipped_text = folder.path().join("text.gz");
    std::fs::write(&gzipped_text, gzip(b"this is no capture\n")).unwrap();
    for path in [&empty, &text, &short, &gzipped_text, &folder.path().into(), &folder.path().join("missing.pcap")] {
        let (code, out, err) = read(path);
        assert_eq!((code, out.as_str()), (1, ""), "{}: {err}", path.display());
        assert!(err.starts_with("weir: ") && err.contains(path.to_str().unwrap()), "{err}");
    }
}

#[test]
fn an_unreadable_file_is_exit_code_1() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = saved(&small());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_ok() {
        eprintln!("skipped: this user may read everything");
        return;
    }
    let (code, _, err) = read(&path);
    assert_eq!(code, 1);
    assert!(err.contains("Permission denied"), "{err}");
}

#[test]
fn one_input_that_cannot_be_opened_stops_before_anything_is_metered() {
    let (folder, path) = saved(&small());
    let records = folder.path().join("records.txt");
    let (code, out, err) = parts(&weir([
        "read".as_ref(),
        path.as_os_str(),
        folder.path().join("missing.pcap").as_os_str(),
        "-o".as_ref(),
        format!("table:{}", records.display()).as_ref(),
    ]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("missing.pcap") && !records.exists(), "{err}");
}

#[test]
fn a_capture_without_packets_is_done() {
    let (_folder, path) = saved(&Pcap::new());
    let (code, out, err) = read(&path);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "packets    0 received, 0 metered\n", ""));
}

#[test]
fn a_capture_cut_in_a_record_is_metered_up_to_there_with_exit_code_2() {
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
fn an_absurd_length_is_damage_with_its_place() {
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
fn packets_without_octets_are_refused_and_counted() {
    let (_folder, path) = saved(&small().frame(START + 2, 0, &[]).record(START + 2, 1, &[], 60));
    let (code, err, ledger) = ledger_of(&path, &[]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(ledger["packets"]["received"], SMALL_PACKETS + 2);
    assert_eq!(ledger["packets"]["refused"]["link_truncated"], 2);
    assert_eq!(ledger["bytes"]["refused"]["link_truncated"], 60);
    assert!(err.contains("- refused, link_truncated"), "a loss prints the ledger: {err}");
}

#[test]
fn snap_lengths_of_0_and_1_refuse_every_packet_by_its_wire_length() {
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
fn a_snapped_packet_is_metered_by_its_headers() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 1000);
    let (_folder, path) = saved(&Pcap::new().record(START, 0, &frame[..42], frame.len() as u32));
    let (code, out, err) = read(&path);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2") && out.contains(" 1028B "), "{out}");
}

#[test]
fn timestamps_that_jump_years_are_metered_and_noted() {
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
fn a_malformed_packet_is_exit_code_2_and_frames_without_ip_are_not() {
    let mut malformed = ipv4(17, [192, 0, 2, 1], [192, 0, 2, 2], &[0; 8]);
    malformed[14] = 0x55;
    let (_folder, path) = saved(&small().frame(START + 2, 0, &malformed));
    let (code, _, ledger) = ledger_of(&path, &[]);
    assert_eq!((code, &ledger["packets"]["refused"]["ip_version"]), (2, &Value::from(1)));
    let (_folder, path) = saved(&small().frame(START + 2, 0, &arp()));
    assert_eq!(ledger_of(&path, &[]).0, 0);
}

#[test]
fn standard_input_and_gzip_are_the_same_capture() {
    let (_folder, path) = saved(&small());
    let (_, from_file, _) = read(&path);
    assert_eq!(parts(&weir_with_input(["read", "-"], &small().0)), (0, from_file.clone(), String::new()));
    assert_eq!(parts(&weir_with_input(["read", "-i", "-"], &gzip(&small().0))), (0, from_file.clone(), String::new()));
    let folder = tempfile::tempdir().unwrap();
    let gzipped = folder.path().join("small.pcap.gz");
    std::fs::write(&gzipped, gzip(&small().0)).unwrap();
    assert_eq!(read(&gzipped), (0, from_file, String::new()));
}

#[test]
fn a_gzip_file_that_was_cut_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap.gz");
    let mut pcap = Pcap::new();
    for n in 0..2000 {
        // Ports that do not compress to nothing.
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
fn several_files_are_one_stream_in_time_order() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));
    // The answers lie in one file, the questions in the other.
    let questions = Pcap::new().frame(START, 0, &udp(a, b, 1)).frame(START + 100, 0, &udp(a, b, 1));
    let answers = Pcap::new().frame(START + 50, 0, &udp(b, a, 2)).frame(START + 150, 0, &udp(b, a, 2));
    let (questions, answers) = (questions.save(folder.path(), "q.pcap"), answers.save(folder.path(), "a.pcap"));
    let (code, out, err) = parts(&weir(["read".as_ref(), answers.as_os_str(), questions.as_os_str()]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2     2     2"), "one flow, whoever comes first asks: {out}");
}

#[test]
fn damage_in_one_of_several_files_does_not_stop_the_others() {
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
fn a_full_disk_loses_every_record_and_says_so_once() {
    let (folder, path) = saved(&small());
    for sink in ["table:/dev/full", "csv:/dev/full", "json:/dev/full", "ipfix:/dev/full"] {
        let stats = folder.path().join("ledger.json");
        let (code, out, err) = parts(&weir([
            "read".as_ref(),
            path.as_os_str(),
            "-o".as_ref(),
            sink.as_ref(),
            "--stats".as_ref(),
            stats.as_os_str(),
        ]));
        assert_eq!((code, out.as_str()), (2, ""), "{sink}: {err}");
        assert_eq!(err.matches("No space left").count(), 1, "{err}");
        let ledger: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        assert_eq!(ledger["flows"]["lost"]["write_failed"], 3, "{sink}: {ledger}");
        assert_eq!(ledger["flows"]["exported"], 0);
        assert_eq!(ledger["balanced"], true);
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_exit_code_2() {
    let (_folder, path) = saved(&small());
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&[][..], &["-o", "csv:-"], &["-o", "json:-"], &["--stats", "-"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("read")
            .arg(&path)
            .args(arguments)
            .stdout(full())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let (code, _, err) = parts(&output);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains("No space left"), "{arguments:?}: {err}");
    }
}

#[test]
fn a_sink_that_fails_does_not_stop_the_others() {
    let (folder, path) = saved(&small());
    let good = folder.path().join("good.txt");
    let good_sink = format!("table:{}", good.display());
    let (code, _, err) = parts(&weir([
        "read".as_ref(),
        path.as_os_str(),
        "-o".as_ref(),
        "table:/dev/full".as_ref(),
        "-o".as_ref(),
        good_sink.as_ref(),
    ]));
    assert_eq!(code, 2);
    assert!(err.contains("lost       3 flows for table:/dev/full"), "{err}");
    assert!(std::fs::read_to_string(good).unwrap().contains("3 flows"));
}

#[test]
fn a_sink_that_cannot_be_opened_is_exit_code_1() {
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
        let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-o".as_ref(), sink.as_ref()]));
        assert_eq!((code, out.as_str()), (1, ""), "{sink}: {err}");
        assert!(err.contains(&sink) || err.contains(nowhere.to_str().unwrap()), "{sink}: {err}");
    }
    let (code, _, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "--stats".as_ref(), nowhere.as_os_str()]));
    assert_eq!(code, 1, "{err}");
}

#[test]
fn an_output_never_writes_over_an_input() {
    let (folder, path) = saved(&small());
    let before = std::fs::read(&path).unwrap();
    let link = folder.path().join("link.pcap");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for output in [format!("table:{}", path.display()), format!("csv:{}", link.display())] {
        let (code, _, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-o".as_ref(), output.as_ref()]));
        assert_eq!(code, 1);
        assert!(err.contains("would overwrite it"), "{err}");
    }
    let (code, _, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "--stats".as_ref(), path.as_os_str()]));
    assert_eq!(code, 1, "{err}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn two_outputs_never_share_a_file() {
    let (folder, path) = saved(&small());
    let output = format!("table:{}", folder.path().join("new").display());
    let stats = folder.path().join(".").join("new");
    let (code, _, err) = parts(&weir([
        "read".as_ref(),
        path.as_os_str(),
        "-o".as_ref(),
        output.as_ref(),
        "--stats".as_ref(),
        stats.as_os_str(),
    ]));
    assert_eq!(code, 1);
    assert!(err.contains("mixed") && !stats.exists(), "{err}");
}

#[test]
fn a_closed_standard_output_ends_quietly() {
    let mut pcap = Pcap::new();
    for n in 0..30_000_u32 {
        let [_, _, high, low] = n.to_be_bytes();
        pcap = pcap.frame(START, n, &udp(([10, 0, high, low], 1), ([192, 0, 2, 2], 2), 10));
    }
    let (_folder, path) = saved(&pcap);
    for arguments in [&[][..], &["--top", "0"], &["-o", "csv:-"], &["-o", "json:-"], &["--stats", "-", "-q"]] {
        let all = [&["read", path.to_str().unwrap()], arguments].concat();
        let (code, _, err) = parts(&weir_nobody_reads(&all));
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn the_summary_tells_of_tcp_that_was_not_read() {
    // Headers of 20 octets behind IPv6 end at octet 74.
    for (snap, told) in [("60", true), ("96", false)] {
        let load = format!("synth:lossy,flows=20,packets=3k,ipv6=100%,snap={snap}");
        let (code, out, _) = parts(&weir(["read", "-i", &load, "--top", "0"]));
        let line = out.lines().find(|line| line.starts_with("tcp "));
        let unread = line.is_some_and(|line| line.contains("3000 packets without a whole TCP header, not analysed"));
        assert_eq!((code, unread), (0, told), "{line:?}");
    }
}

#[test]
fn a_table_that_is_too_small_is_accounted_for_under_every_policy() {
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
fn key_options_and_timeouts_reach_the_meter() {
    let (a, b) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));
    let pcap = Pcap::new()
        .frame(START, 0, &udp(a, b, 1))
        .frame(START + 1, 0, &udp(b, a, 1))
        .frame(START + 61, 0, &udp(a, b, 1))
        .frame(START + 121, 0, &udp(a, b, 1));
    let (_folder, path) = saved(&pcap);
    let created = |more: &[&str]| ledger_of(&path, more).2["flows"]["created"].as_u64().unwrap();
    assert_eq!(created(&[]), 1);
    assert_eq!(created(&["--uniflow-key"]), 2);
    assert_eq!(created(&["--idle", "60s"]), 3);
    assert_eq!(created(&["--idle", "1m", "--uniflow-key"]), 4);
    assert_eq!(created(&["--active", "100"]), 2);
}

#[test]
fn records_reach_files_in_every_format() {
    let (folder, path) = saved(&small());
    let (csv, json, ipfix) = (folder.path().join("f.csv"), folder.path().join("f.json"), folder.path().join("f.ipfix"));
    let (code, out, err) = parts(&weir([
        "read".to_string(),
        path.display().to_string(),
        "-o".into(),
        format!("csv:{}", csv.display()),
        "-o".into(),
        format!("json:{}", json.display()),
        "-o".into(),
        format!("ipfix:{}", ipfix.display()),
        "-v".into(),
    ]));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("12 received, 12 metered") && err.contains("the ledger balances"), "{err}");
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 4);
    let objects: Vec<Value> =
        std::fs::read_to_string(json).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    let packets: u64 =
        objects.iter().map(|flow| flow["packets"].as_u64().unwrap() + flow["rev_packets"].as_u64().unwrap()).sum();
    assert_eq!(packets, SMALL_PACKETS);
    assert!(std::fs::read(ipfix).unwrap().starts_with(&[0, 10]));
}

#[test]
fn records_on_standard_output_leave_the_summary_to_standard_error() {
    let (_folder, path) = saved(&small());
    let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-o".as_ref(), "json:-".as_ref()]));
    assert_eq!(code, 0);
    assert!(out.lines().all(|line| line.starts_with('{')) && out.lines().count() == 3, "{out}");
    assert!(err.contains("12 received"), "{err}");
}

#[test]
fn one_way_records_on_request() {
    let (_folder, path) = saved(&small());
    let lines = |more: &[&str]| {
        let mut arguments = vec!["read", path.to_str().unwrap(), "-q", "-o", "json:-"];
        arguments.extend(more);
        parts(&weir(arguments)).1.lines().count()
    };
    assert_eq!(lines(&[]), 3);
    assert_eq!(lines(&["--uniflow"]), 6);
}

#[test]
fn what_a_format_cannot_carry_is_lost_with_its_reason() {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64];
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    let (_folder, path) = saved(&small().frame(START + 2, 0, &frame));
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sink = format!("netflow5+udp://{}", collector.local_addr().unwrap());
    let (code, _, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-o".as_ref(), sink.as_ref()]));
    assert_eq!(code, 2);
    assert!(err.contains("1 flow for netflow5") && err.contains("NetFlow v5 supports IPv4 only"), "{err}");
}

#[test]
fn an_interrupt_drains_the_table_and_says_that_input_is_missing() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["read", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let frame = Pcap(Vec::new()).frame(START, 0, &udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 100)).0;
    let mut input = child.stdin.take().unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    // It looks for the signal while packets come; the pipe breaks when it has ended.
    let writer = std::thread::spawn(move || while input.write_all(&frame.repeat(1000)).is_ok() {});
    std::thread::sleep(std::time::Duration::from_millis(500));
    let killed = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(killed.success());
    let (code, out, err) = parts(&child.wait_with_output().unwrap());
    writer.join().unwrap();
    assert_eq!(code, 2);
    assert!(err.contains("interrupted"), "{err}");
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2") && out.contains("received"), "{out}");
}

/// Starts `weir read - -o json:PATH` and gives its standard input.
fn reading_a_pipe(json: &Path, more: &[&str]) -> (std::process::Child, std::process::ChildStdin) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["read", "-", "-o", &format!("json:{}", json.display())])
        .args(more)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

fn one_packet(at: u32, source_port: u16) -> Vec<u8> {
    Pcap(Vec::new()).frame(at, 0, &udp(([192, 0, 2, 1], source_port), ([192, 0, 2, 2], 2), 100)).0
}

#[test]
fn records_of_a_slow_pipe_leave_while_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("slow.json");
    let (mut child, mut input) = reading_a_pipe(&json, &["--idle", "1s"]);
    input.write_all(&Pcap::new().0).unwrap();
    let mut second = 0;
    // Each packet ends the flow of the one before; records are at most a second behind.
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
fn an_interrupt_ends_a_pipe_that_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("silent.json");
    let (child, mut input) = reading_a_pipe(&json, &[]);
    input.write_all(&[Pcap::new().0, one_packet(START, 1)].concat()).unwrap();
    // The output is made when it listens for signals and has read what the pipe held.
    while !json.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 1);
    drop(input);
}

#[test]
fn what_a_full_table_does_is_said() {
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

/// The system refuses memory, of the large pieces or the small ones.
#[cfg(target_os = "linux")]
#[test]
fn a_table_for_which_there_is_no_memory_is_refused_with_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "small.pcap");
    for kilobytes in (60_000..180_000).step_by(10_000) {
        let script = format!("ulimit -v {kilobytes}; exec \"$0\" read \"$1\" --flows 100k");
        let weir = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).arg(&capture).output().unwrap();
        let (code, out, err) = parts(&weir);
        assert_eq!((code, out.as_str()), (1, ""), "{kilobytes}: {err}");
        let reason = "weir: --flows 100000: a flow cache of this size with TCP analysis needs up to 176 MB, \
                      which is not available; choose fewer flows\n";
        assert_eq!(err, reason, "{kilobytes}");
    }
}

#[test]
fn a_name_cannot_drive_the_terminal() {
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
        let output = weir(arguments);
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(!told.is_empty() && !told.chars().any(|letter| letter.is_control() && letter != '\n'), "{told:?}");
        assert!(told.contains(".pcap") || told.contains("option'"), "{told:?}");
    }
}
