//! `weir read`: exit codes, table, summary, ledger, and damaged or unusual input and output.

use serde_json::{Value, json};
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testbed::namespace::until;
use testbed::{
    Pcap, SMALL_BYTES, SMALL_PACKETS, START, SavedCapture, arguments, arp, command, failure, ledger_of, metered,
    packets, read_flows, read_ledger, signal, small, success, text_of, udp, wait_for_thread_of_signals, weir,
    weir_with_input,
};

/// Runs `weir read FILE --stats`: exit code, standard error and ledger.
fn read_ledger_of(capture: &SavedCapture, options: &[&str]) -> (i32, String, Value) {
    ledger_of([&["read", capture.name(), "-o", "table:/dev/null"], options].concat())
}

#[test]
fn the_table_and_summary_of_a_small_capture_are_complete() {
    let out = success(arguments!["read", small().saved()]);
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
fn options_select_what_is_printed() {
    let capture = small().saved();
    for (options, lines, on_output, on_error) in [
        (&["-q"][..], 5, "3 flows, by", ""),
        (&["--top", "1"], 10, "1 of 3 flows (--top 0 for all)", ""),
        (&["--top", "0"], 12, "3 flows, by", ""),
        (&["-v"], 12, "3 flows, by", "= metered"),
        (&["-v"], 12, "3 flows, by", "the ledger balances"),
        // The summary moves to standard error if records are on standard output.
        (&["-o", "json:-"], 3, "{", "12 received"),
    ] {
        let (code, out, err) = weir([&["read", capture.name()], options].concat());
        assert_eq!((code, out.lines().count()), (0, lines), "{options:?}: {out}");
        assert!(out.contains(on_output) && !out.contains("ledger"), "{options:?}: {out}");
        assert!(err.contains(on_error) && err.is_empty() == on_error.is_empty(), "{options:?}: {err}");
    }
    let (code, ledger, err) = weir(arguments!["read", capture, "--stats", "-"]);
    assert!(code == 0 && err.contains("12 received"), "{err}");
    assert_eq!(serde_json::from_str::<Value>(&ledger).unwrap()["flows"]["exported"], 3);
    let largest = success(arguments!["read", capture, "--top", "1"]);
    assert!(largest.contains("tcp") && !largest.contains(":53 "), "{largest}");
}

#[test]
fn the_ledger_has_every_key_and_balances() {
    let capture = small().frame(START + 2, 0, &arp()).saved();
    let (code, err, ledger) = read_ledger_of(&capture, &[]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 packet (arp: 1): The frame carries no IP packet"), "{err}");
    for side in ["packets", "bytes"] {
        for key in ["received", "dropped_nic", "dropped_kernel", "dropped_queue", "refused", "filtered", "metered"] {
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
    assert_eq!(["created", "exported", "live"].map(|key| &ledger["flows"][key]), [3, 3, 0]);
}

#[test]
fn layer2_meters_frames_without_ip() {
    let out = success(arguments!["read", Pcap::new().frame(START, 0, &arp()).saved(), "--layer2"]);
    assert!(out.contains("arp") && out.contains("02:00:00:00:00:01 → ff:ff:ff:ff:ff:ff"), "{out}");
}

#[test]
fn unreadable_input_has_exit_code_1_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for path in [
        write("empty.pcap", b""),
        write("notes.txt", b"not a capture\n"),
        write("short.pcap", &Pcap::new().0[..23]),
        write("text.gz", &gzip(b"not a capture\n")),
        folder.path().into(),
        folder.path().join("missing.pcap"),
    ] {
        let err = failure(1, arguments!["read", path]);
        assert!(err.starts_with("weir: ") && err.contains(path.to_str().unwrap()), "{err}");
    }
}

#[test]
fn a_file_without_read_permission_has_exit_code_1() {
    use std::os::unix::fs::PermissionsExt;
    let capture = small().saved();
    std::fs::set_permissions(&capture.path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&capture.path).is_ok() {
        eprintln!("SKIPPED: this user can read every file");
        return;
    }
    let err = failure(1, arguments!["read", capture]);
    assert!(err.contains("Permission denied (os error 13); ls -l shows who may use it"), "{err}");
}

#[test]
fn a_missing_input_is_reported_before_any_output_is_opened() {
    let capture = small().saved();
    let records = capture.beside("records.txt");
    let sink = format!("table:{}", records.display());
    let err = failure(1, arguments!["read", capture, capture.beside("missing.pcap"), "-o", sink]);
    assert!(err.contains("missing.pcap") && !records.exists(), "{err}");
}

#[test]
fn an_empty_capture_has_exit_code_0() {
    assert_eq!(success(arguments!["read", Pcap::new().saved()]), "no flows\npackets    0 received, 0 metered\n");
}

#[test]
fn a_truncated_capture_is_metered_up_to_the_damage_with_exit_code_2() {
    let whole = small().0;
    let last = 14 + 28;
    // In the last frame, and in the header before it.
    for cut in [whole.len() - 1, whole.len() - last, whole.len() - last - 1, whole.len() - last - 15] {
        let capture = Pcap(whole[..cut].to_vec()).saved();
        let (code, err, ledger) = read_ledger_of(&capture, &[]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("{}: at byte ", capture.name())), "{err}");
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
    let (code, err, ledger) = read_ledger_of(&pcap.saved(), &[]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&format!("at byte {offset}")), "{err}");
    assert_eq!(ledger["packets"]["metered"], SMALL_PACKETS);
}

#[test]
fn malformed_packets_are_traffic_and_counted_with_their_reason() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 100);
    let wire_bytes = frame.len() as u32;
    let mut malformed = frame.clone();
    malformed[14] = 0x55;
    let snapped = |snap| Pcap::with_snap_length(snap).record(START, 0, &frame[..snap as usize], wire_bytes);
    let went_back = Pcap::new().frame(START, 0, &frame).frame(0, 0, &frame).frame(u32::MAX, 999_999, &frame);
    for (capture, counters) in [
        (
            // Without captured octets.
            small().frame(START + 2, 0, &[]).record(START + 2, 1, &[], 60),
            &[
                ("/packets/received", SMALL_PACKETS + 2),
                ("/packets/refused/link_truncated", 2),
                ("/bytes/refused/link_truncated", 60),
            ][..],
        ),
        // A packet that is cut by the snap length counts with its length on the wire.
        (snapped(0), &[("/bytes/refused/link_truncated", wire_bytes.into())]),
        (snapped(1), &[("/bytes/refused/link_truncated", wire_bytes.into())]),
        (snapped(42), &[("/bytes/metered", wire_bytes.into())]),
        (small().frame(START + 2, 0, &malformed), &[("/packets/refused/ip_version", 1)]),
        (small().frame(START + 2, 0, &arp()), &[("/packets/refused/non_ip", 1)]),
        (went_back.frame(START, u32::MAX, &frame), &[("/packets/metered", 4), ("/anomalies/clock_went_back", 2)]),
    ] {
        let capture = capture.saved();
        let (code, err, ledger) = read_ledger_of(&capture, &["-v"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(testbed::weir(["read", capture.name(), "-q", "-o", "json:/dev/null"]), (0, "".into(), "".into()));
        for (pointer, count) in counters {
            assert_eq!(ledger.pointer(pointer), Some(&json!(count)), "{pointer}: {ledger}");
            let refused = pointer.strip_prefix("/packets/refused/");
            assert!(refused.is_none_or(|reason| err.contains(&format!("- refused, {reason}"))), "{err}");
        }
    }
}

#[test]
fn a_packet_cut_by_the_snap_length_is_metered_by_its_headers() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 1000);
    let out = success(arguments!["read", Pcap::new().record(START, 0, &frame[..42], frame.len() as u32).saved()]);
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2") && out.contains(" 1028B "), "{out}");
}

#[test]
fn a_packet_of_1970_is_shown_with_its_date() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 10);
    let out = success(arguments!["read", Pcap::new().frame(0, 0, &frame).frame(START, 0, &frame).saved()]);
    assert!(out.contains("1970-01-01 00:00:00.000"), "{out}");
}

#[test]
fn standard_input_and_gzip_give_the_same_output() {
    let from_file = success(arguments!["read", small().saved()]);
    assert_eq!(weir_with_input(["read", "-"], &small().0), (0, from_file.clone(), String::new()));
    assert_eq!(weir_with_input(["read", "-i", "-"], &gzip(&small().0)), (0, from_file.clone(), String::new()));
    assert_eq!(success(arguments!["read", Pcap(gzip(&small().0)).saved()]), from_file);
}

#[test]
fn a_truncated_gzip_file_is_metered_up_to_the_damage() {
    // Pseudorandom ports do not compress well.
    let frame = |n: u32| udp(([192, 0, 2, 1], (n * 7919) as u16), ([192, 0, 2, 2], (n * 104_729) as u16), 10);
    let whole = gzip(&Pcap::of(&(0..2000).map(frame).collect::<Vec<_>>()).0);
    let (code, err, ledger) = read_ledger_of(&Pcap(whole[..whole.len() / 2].to_vec()).saved(), &[]);
    assert_eq!(code, 2, "{err}");
    let metered = ledger["packets"]["metered"].as_u64().unwrap();
    assert!(metered > 0 && metered < 2000, "{metered}");
    assert!(err.contains(&format!("{metered} packets before it were read")), "{err}");
}

#[test]
fn a_damaged_gzip_file_is_metered_up_to_the_damage_also_from_a_pipe() {
    let frame = |n: u16| udp(([192, 0, 2, 1], n), ([192, 0, 2, 2], 1), 10);
    // Two thirds of the compressed data, then a block of a type that does not exist.
    let mut file = gzip_in_blocks(&Pcap::of(&(0..2000).map(frame).collect::<Vec<_>>()).0);
    let damage = file.len() * 2 / 3 / BLOCK_BYTES * BLOCK_BYTES + GZIP_HEADER_BYTES;
    file[damage] = 7;
    let expected = (damage - GZIP_HEADER_BYTES) / BLOCK_BYTES * (BLOCK_BYTES - 5) - 24;
    let expected = expected / (16 + frame(0).len());
    let damaged = Pcap(file.clone()).saved();
    let (code, err, ledger) = read_ledger_of(&damaged, &[]);
    assert_eq!((code, ledger["packets"]["metered"].as_u64()), (2, Some(expected as u64)), "{err}");
    assert!(err.contains(&format!("{expected} packets before it were read")), "{err}");
    let (from_file, from_pipe) = (weir(["read", damaged.name()]), weir_with_input(["read", "-"], &file));
    assert_eq!((from_file.0, from_file.1), (from_pipe.0, from_pipe.1));
    let place = err[err.find("at byte").unwrap()..].lines().next().unwrap();
    assert!(from_pipe.2.contains(place), "{place}: {}", from_pipe.2);
}

const GZIP_HEADER_BYTES: usize = 10;
/// A stored block of deflate: 5 bytes and its content.
const BLOCK_BYTES: usize = 5 + 1000;

/// A gzip file of stored blocks, without its end.
fn gzip_in_blocks(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0];
    for content in bytes.chunks_exact(BLOCK_BYTES - 5) {
        let length = (content.len() as u16).to_le_bytes();
        file.extend([&[0][..], &length, &length.map(|byte| !byte), content].concat());
    }
    file
}

/// A Zstandard frame of a raw block and these blocks, without its end. `window` is 2 to this power.
fn zstd_in_blocks(window: u8, content: &[u8], blocks: &[u8]) -> Vec<u8> {
    let raw = (content.len() as u32 * 8).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3], &raw[..3], content, blocks].concat()
}

#[test]
fn a_damaged_zstd_file_is_metered_up_to_the_damage_also_from_a_pipe() {
    // The third block has a type that does not exist.
    let file = zstd_in_blocks(21, &small().0, &[6, 0, 0]);
    let (code, err, ledger) = read_ledger_of(&Pcap(file.clone()).saved(), &[]);
    assert_eq!((code, &ledger["packets"]["metered"]), (2, &json!(SMALL_PACKETS)), "{err}");
    assert!(err.contains("the zstd stream is damaged") && err.contains("12 packets before it were read"), "{err}");
    let (from_file, from_pipe) =
        (weir(["read", Pcap(file.clone()).saved().name()]), weir_with_input(["read", "-"], &file));
    assert_eq!((from_file.0, from_file.1), (from_pipe.0, from_pipe.1));
}

#[test]
fn several_files_are_merged_in_time_order() {
    let (a, b) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));
    let requests = Pcap::new().frame(START, 0, &udp(a, b, 1)).frame(START + 100, 0, &udp(a, b, 1));
    let responses = Pcap::new().frame(START + 50, 0, &udp(b, a, 2)).frame(START + 150, 0, &udp(b, a, 2));
    let out = success(arguments!["read", responses.saved(), requests.saved()]);
    assert!(out.contains("192.0.2.1:1 → 192.0.2.2:2     2     2"), "the first sender is the client: {out}");
}

#[test]
fn the_other_files_are_read_if_one_is_damaged() {
    let mut cut = small();
    cut.0.truncate(cut.0.len() - 1);
    let cut = cut.saved();
    let (code, err, ledger) = read_ledger_of(&cut, &["-i", small().saved().name()]);
    assert_eq!(code, 2);
    assert!(err.contains(&format!("{}: at byte", cut.name())) && err.contains("11 packets before it"), "{err}");
    assert_eq!(ledger["packets"]["received"], 2 * SMALL_PACKETS - 1);
}

#[test]
fn the_summary_counts_packets_without_a_whole_tcp_header() {
    // A TCP header of 20 octets over IPv6 ends at octet 74.
    for (snap, truncated) in [("60", true), ("96", false)] {
        let load = format!("synth:lossy,flows=20,packets=3k,ipv6=100%,snap={snap}");
        let out = success(["read", "-i", &load, "--top", "0"]);
        let line = out.lines().find(|line| line.starts_with("tcp "));
        let unread = line.is_some_and(|line| line.contains("3000 packets without a whole TCP header, not analysed"));
        assert_eq!(unread, truncated, "{line:?}");
    }
}

#[test]
fn the_ledger_accounts_for_a_full_flow_cache_under_every_policy() {
    let frames: Vec<_> = (0..100).map(|n| udp(([10, 0, 0, n], 1), ([192, 0, 2, 2], 2), 10)).collect();
    let capture = Pcap::of(&frames).saved();
    for (policy, expected, dropped, counter) in [
        ("overflow", 0, 0, "/anomalies/overflow"),
        ("evict-oldest-idle", 0, 0, "/anomalies/flow_evicted"),
        ("drop", 2, 90, "/packets/dropped_cache_full"),
    ] {
        let (code, err, ledger) = read_ledger_of(&capture, &["--flows", "10", "--full", policy]);
        assert_eq!(code, expected, "{policy}: {err}");
        let packets = &ledger["packets"];
        assert_eq!((&packets["metered"], &packets["dropped_cache_full"]), (&json!(100 - dropped), &json!(dropped)));
        assert_eq!(ledger.pointer(counter), Some(&json!(90)), "{ledger}");
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
    let capture = pcap.saved();
    for (options, created) in [
        (&[][..], 1),
        (&["--uniflow-key"], 2),
        (&["--idle", "60s"], 3),
        (&["--idle", "1m", "--uniflow-key"], 4),
        (&["--active", "100"], 2),
    ] {
        assert_eq!(read_ledger_of(&capture, options).2["flows"]["created"], created, "{options:?}");
    }
}

#[test]
fn records_are_written_in_every_format() {
    let capture = small().saved();
    let [csv, json, ipfix] = ["f.csv", "f.json", "f.ipfix"].map(|name| capture.beside(name));
    let sinks = [("csv", &csv), ("json", &json), ("ipfix", &ipfix)];
    let sinks = sinks.map(|(format, path)| format!("{format}:{}", path.display()));
    let (code, out, err) = weir(["read", capture.name(), "-v", "-o", &sinks[0], "-o", &sinks[1], "-o", &sinks[2]]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("12 received, 12 metered") && err.contains("the ledger balances"), "{err}");
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 4);
    let flows = read_flows(&json);
    assert_eq!((flows.len(), flows.iter().map(packets).sum::<u64>()), (3, SMALL_PACKETS));
    assert!(std::fs::read(ipfix).unwrap().starts_with(&[0, 10]));
}

#[test]
fn uniflow_writes_one_record_per_direction() {
    let capture = small().saved();
    for (options, records) in [(&[][..], 3), (&["--uniflow"], 6)] {
        let out = success([&["read", capture.name(), "-q", "-o", "json:-"], options].concat());
        assert_eq!(out.lines().count(), records, "{options:?}");
    }
}

#[test]
fn flows_that_a_format_cannot_carry_are_counted_with_the_reason() {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64];
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sink = format!("netflow5+udp://{}", collector.local_addr().unwrap());
    let err = failure(2, arguments!["read", small().frame(START + 2, 0, &frame).saved(), "-o", sink]);
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
    let written = Arc::new(AtomicUsize::new(0));
    let of_writer = written.clone();
    let writer = std::thread::spawn(move || {
        let frames = frame.repeat(1000);
        while input.write_all(&frames).is_ok() {
            of_writer.fetch_add(frames.len(), Ordering::Relaxed);
        }
    });
    // The pipe holds less. So weir reads, and handles signals.
    until("weir has read packets", || written.load(Ordering::Relaxed) > 4 << 20);
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
    until("there is a record", || {
        input.write_all(&one_packet(START + 2 * second, second as u16)).unwrap();
        second += 1;
        std::fs::metadata(&json).is_ok_and(|file| file.len() > 0)
    });
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
    until("the output exists", || json.exists());
    signal(&child, libc::SIGINT);
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 1);
    drop(input);
}

/// GNU timeout sends SIGTERM to its child and then to the group of both; so do shells and supervisors.
#[test]
fn two_signals_at_once_lose_no_record() {
    let second = [(libc::SIGTERM, 0), (libc::SIGINT, 500), (libc::SIGHUP, 5_000), (libc::SIGTERM, 50_000)];
    for (second, pause_us) in second {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("flows.json");
        let stats = folder.path().join("ledger.json");
        let (child, mut input) = read_pipe(&json, &["--stats", stats.to_str().unwrap()]);
        input.write_all(&[Pcap::new().0, one_packet(START, 1)].concat()).unwrap();
        wait_for_thread_of_signals(&child);
        signal(&child, libc::SIGTERM);
        std::thread::sleep(std::time::Duration::from_micros(pause_us));
        // It may have ended already.
        // SAFETY: the test has not waited for the process yet.
        unsafe { libc::kill(child.id() as i32, second) };
        let (code, _, err) = text_of(&child.wait_with_output().unwrap());
        assert_eq!(code, 2, "{pause_us}: {err}");
        assert!(err.contains("interrupted"), "{pause_us}: {err}");
        assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 1, "{pause_us}");
        assert_eq!(read_ledger(&stats)["packets"]["metered"], 1, "{pause_us}");
        drop(input);
    }
}

/// `nohup` and some supervisors let a program ignore the end of its terminal.
#[test]
fn a_hangup_that_is_ignored_does_not_end_a_read() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" read - -o json:/dev/null --stats -", env!("CARGO_BIN_EXE_weir")]);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[Pcap::new().0, one_packet(START, 1)].concat()).unwrap();
    wait_for_thread_of_signals(&child);
    signal(&child, libc::SIGHUP);
    input.write_all(&one_packet(START, 2)).unwrap();
    drop(input);
    let (code, out, err) = text_of(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"metered\": 2"), "{out}");
}

/// The main thread waits for the blocked output, and the other one has all records so far.
#[test]
fn a_second_signal_gives_up_only_what_a_blocked_output_has_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let [pipe, json, stats, log, capture] =
        ["pipe", "flows.json", "stats.json", "log", "flows.pcap"].map(|name| folder.path().join(name));
    success(arguments!["synth", "velan,flows=20k,packets=40k", "-q", "-o", capture]);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _reader = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let outputs = [&pipe, &json].map(|path| format!("json:{}", path.display()));
    let mut child = command()
        .args(arguments!["read", capture, "-o", outputs[0], "-o", outputs[1], "--stats", stats])
        .args(["--timing", "same_signal=50ms"])
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let is_logged = |text: &str| until(text, || std::fs::read_to_string(&log).unwrap().contains(text));
    wait_for_thread_of_signals(&child);
    until("an output has records", || std::fs::metadata(&json).is_ok_and(|file| file.len() > 0));
    signal(&child, libc::SIGTERM);
    is_logged("another signal loses the records that outputs have not accepted by then");
    // The other output has accepted all that it was given.
    until_settled(&json);
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    is_logged("the ledger balances");
    let ledger = read_ledger(&stats);
    let flows = |sink: &Value, key: &str| sink[key]["flows"].as_u64().unwrap_or(0);
    let created = ledger["flows"]["created"].as_u64().unwrap();
    for sink in [0, 1].map(|sink| &ledger["sinks"][sink]) {
        assert_eq!(flows(sink, "exported") + flows(&sink["lost"], "drain_timeout"), created, "{ledger:#}");
    }
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count() as u64, created);
    assert_eq!(flows(&ledger["sinks"][1], "exported"), created);
    assert!(flows(&ledger["sinks"][0]["lost"], "drain_timeout") > 0, "{ledger:#}");
}

/// Waits until the first thread of a process waits for something.
fn until_it_waits(child: &std::process::Child) {
    let stat = format!("/proc/{}/stat", child.id());
    until("it waits", || std::fs::read_to_string(&stat).unwrap().contains(") S "));
}

/// Waits until a file has not grown for two seconds: nothing says that an output has accepted all.
fn until_settled(path: &std::path::Path) {
    let mut last = (0, std::time::Instant::now());
    until("the file does not grow", || {
        let octets = std::fs::metadata(path).unwrap().len();
        if octets != last.0 {
            last = (octets, std::time::Instant::now());
        }
        last.1.elapsed() > std::time::Duration::from_secs(2)
    });
}

/// Octets in a pipe that were not read.
fn octets_in(pipe: &std::process::ChildStdin) -> i32 {
    let mut octets = 0;
    // SAFETY: the call writes one number, which lives across it.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut octets) }, 0);
    octets
}

#[test]
fn the_wait_for_a_writer_of_a_pipe_ends_with_a_writer_or_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let name = pipe.to_str().unwrap();
    // Weir opens the pipe after it handles signals.
    let start = |arguments: &[&str]| {
        let child = command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let descriptors = format!("/proc/{}/fd", child.id());
        let is_pipe = |link: std::fs::DirEntry| std::fs::read_link(link.path()).is_ok_and(|target| target == pipe);
        until(&format!("{arguments:?}: the pipe is open"), || {
            std::fs::read_dir(&descriptors).unwrap().flatten().any(is_pipe)
        });
        child
    };
    for arguments in [&["read", name][..], &["tcp", name], &["probe", "-i", name, "-o", "json:/dev/null"]] {
        let child = start(arguments);
        signal(&child, libc::SIGTERM);
        let (code, _, err) = text_of(&child.wait_with_output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains("interrupted"), "{arguments:?}: {err}");
    }
    let child = start(&["read", name]);
    until_it_waits(&child);
    std::fs::write(&pipe, &small().0).unwrap();
    let (code, out, err) = text_of(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("12 received, 12 metered"), "{out}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_before_or_within_the_first_packet_is_no_damage() {
    let half_a_packet = [Pcap::new().0, one_packet(START, 1)[..40].to_vec()].concat();
    let commands: [&[&str]; 3] = [&["read", "-"], &["tcp", "-"], &["probe", "-i", "-"]];
    for (command_line, bytes) in commands.iter().flat_map(|command| [(command, &[][..]), (command, &half_a_packet)]) {
        let mut command = command();
        command.args(*command_line).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(bytes).unwrap();
        testbed::wait_for_handler_of_sigint(&child);
        until("it has read all", || octets_in(&input) == 0);
        until_it_waits(&child);
        signal(&child, libc::SIGINT);
        let (code, _, err) = text_of(&child.wait_with_output().unwrap());
        assert_eq!(code, 2, "{command_line:?}: {err}");
        assert!(err.contains("interrupted: the rest of the input was not read"), "{command_line:?}: {err}");
        for wrong in ["empty", "cut", "damaged", "failed"] {
            assert!(!err.contains(wrong), "{command_line:?}: {err}");
        }
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
fn a_flow_cache_that_does_not_fit_into_memory_is_refused_with_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "small.pcap");
    // The program itself and its libraries take more than 60 MB in a build for tests.
    for kilobytes in (90_000..180_000).step_by(10_000) {
        let script = format!("ulimit -v {kilobytes}; exec \"$0\" read \"$1\" --flows 100k --dpi off");
        let weir = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).arg(&capture).output().unwrap();
        let (code, out, err) = text_of(&weir);
        assert_eq!((code, out.as_str()), (1, ""), "{kilobytes}: {err}");
        let reason = "weir: --flows 100000: the flow cache can grow to 199 MB, and everything else to ";
        assert!(
            err.starts_with(reason) && err.contains("(ulimit -v is ") && err.lines().count() == 1,
            "{kilobytes}: {err}"
        );
    }
}

/// An Ethernet frame with UDP over IPv6 from host `host`. If `jumbo` is a length, a jumbo payload
/// option states it.
fn udp_over_ipv6(host: u16, payload_length: u16, jumbo: Option<u32>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend(payload_length.to_be_bytes());
    frame.extend([if jumbo.is_some() { 0 } else { 17 }, 64]);
    frame.extend([&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &host.to_be_bytes()].concat());
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]);
    if let Some(length) = jumbo {
        frame.extend([&[17, 0, 0xc2, 4][..], &length.to_be_bytes()].concat());
    }
    frame.extend([0, 5, 0, 6, 0, 0, 0, 0]);
    frame
}

#[test]
fn false_lengths_do_not_take_the_full_counters_of_jumbograms() {
    for (payload_length, jumbo) in [(0, Some(100_000)), (0, Some(u32::MAX)), (u16::MAX, None)] {
        let mut frames = (0..4096).fold(Pcap::new(), |pcap, host| {
            pcap.frame(START, host.into(), &udp_over_ipv6(host, payload_length, jumbo))
        });
        let jumbogram = udp_over_ipv6(5000, 0, Some(70_000));
        for packet in 0..100 {
            frames = frames.record(START + 1, packet, &jumbogram, 14 + 40 + 70_000);
        }
        let (code, err, flows, ledger) = metered(&["read", frames.saved().name()]);
        assert_eq!((code, ledger["flows"]["created"].as_u64()), (0, Some(4097)), "{err}");
        let jumbograms: Vec<_> = flows.iter().filter(|flow| flow["src_ip"] == "2001:db8::1:1388").collect();
        assert_eq!(jumbograms.len(), 1);
        assert_eq!((&jumbograms[0]["packets"], &jumbograms[0]["bytes"]), (&json!(100), &json!(100 * 70_040)));
        // The others have the lengths of their frames.
        let bytes = udp_over_ipv6(0, 0, jumbo).len() - 14;
        assert!(flows.iter().filter(|flow| flow["bytes"] == bytes).count() == 4096, "{}", flows[0]);
        assert_eq!(ledger["anomalies"]["length_beyond_frame"], 4096, "{ledger}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn compressed_captures_with_huge_records_do_not_exhaust_memory() {
    // A record of 256 MiB, whose bytes are zero: as a file 64 kB.
    let small = small().0;
    let claim = [1 << 28, 1 << 28].map(u32::to_le_bytes).concat();
    let start = gzip(&[&small[..], &START.to_le_bytes(), &[0; 4], &claim].concat());
    let bomb = Pcap([start, gzip(&[0; 1 << 20]).repeat(256)].concat());
    let folder = tempfile::tempdir().unwrap();
    let bombs: Vec<_> = (0..8).map(|number| bomb.save(folder.path(), &format!("{number}.gz"))).collect();
    let script = "ulimit -v 1000000; exec \"$0\" read -v --flows 1k \"$@\"";
    let weir = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_weir")]).args(&bombs).output().unwrap();
    let (code, _, err) = text_of(&weir);
    assert_eq!((code, err.matches("the record claims 268435456 captured bytes").count()), (2, 8), "{err}");
    assert_eq!(err.matches("12 packets before it were read").count(), 8, "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn zstd_files_with_long_windows_do_not_exhaust_memory() {
    // 1100 blocks of 128 KiB of the same byte: the window, 128 MiB, is full.
    let block = |_| [&(2_u32 + (128 << 10 << 3)).to_le_bytes()[..3], &[0]].concat();
    let blocks: Vec<u8> = (0..1100).flat_map(block).collect();
    let bomb = Pcap(zstd_in_blocks(27, &small().0, &blocks));
    let folder = tempfile::tempdir().unwrap();
    let bombs: Vec<_> = (0..8).map(|number| bomb.save(folder.path(), &format!("{number}.zst"))).collect();
    let script = "ulimit -v 2000000; exec \"$0\" read -v --flows 1k \"$@\"";
    let weir = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_weir")]).args(&bombs).output().unwrap();
    let (code, _, err) = text_of(&weir);
    assert!(code == 1 && err.contains("4.zst") && err.contains("read fewer at once"), "{code} {err}");
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

#[test]
fn summary_and_ledger_say_that_flows_were_written_as_basic_records() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    // A record of one octet could not be told from padding.
    let sink = format!("ipfix+udp://{}?fields=protocolIdentifier", collector.local_addr().unwrap());
    let (code, _, text) = weir(["read", small().saved().name(), "-o", &sink, "-v"]);
    let sentence = format!("3 flows for {sink}: written as basic records: the sink has no template for their elements");
    assert!(code == 0 && text.contains(&sentence), "{text}");
    let row = text.lines().find(|line| line.contains("of the exported, basic_template"));
    assert_eq!(row.map(|row| row.split_whitespace().last()), Some(Some("3")), "{text}");
}
