//! Files of packet records: what `weir read` meters from them is what it meters from the capture that they were
//! made of, and damage is counted or refused.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testbed::{
    Pcap, START, assert_usage_errors, capture_files, captures, command, failure, metered, small, success, text_of, udp,
    weir, weir_with_input,
};

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 136;

fn written(capture: &Path, options: &[&str], folder: &TempDir) -> PathBuf {
    let path = folder.path().join("capture.packets");
    let output = format!("packets:{}", path.display());
    let arguments = ["read", capture.to_str().unwrap(), "-o", &output, "--overwrite"];
    let (code, out, err) = text_of(&command().args(arguments).args(options).output().unwrap());
    // Some captures are damaged.
    assert!(matches!(code, 0 | 2) && out.is_empty(), "{err}");
    path
}

/// Records, sorted, and the ledger without the name of the sink.
fn content(source: &str, options: &[&str]) -> (Vec<String>, Value) {
    let arguments = [&["read", "-i", source, "--dpi", "off"], options].concat();
    let (_, _, records, mut ledger) = metered(&arguments);
    let mut records: Vec<String> = records.iter().map(Value::to_string).collect();
    records.sort();
    ledger["sinks"][0]["sink"] = Value::Null;
    (records, ledger)
}

/// The captures that ship with Weir, and those of the folder `WEIR_CAPTURES`, if it is set.
fn all_captures() -> Vec<PathBuf> {
    let mut all = capture_files();
    if let Some(folder) = std::env::var_os("WEIR_CAPTURES") {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.extend(
            entries.filter(|path| path.to_str().is_some_and(|name| name.contains(".pcap") || name.contains(".cap"))),
        );
    }
    all
}

#[test]
fn records_and_ledger_are_those_of_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let of_reading: [&[&str]; 4] = [
        &[],
        &["--layer2", "--mac-addresses"],
        &["--key", "vlan", "--interface-names", "--fields", "all"],
        &["--flows", "64", "--full", "evict-oldest-idle", "--idle", "1s"],
    ];
    let mut flows = 0;
    for capture in all_captures() {
        for of_writing in [&[][..], &["--decap"]] {
            let packets = format!("packets:{}", written(&capture, of_writing, &folder).display());
            for options in of_reading {
                let options = [of_writing, options].concat();
                let expected = content(capture.to_str().unwrap(), &options);
                assert_eq!(content(&packets, &options), expected, "{} {options:?}", capture.display());
                flows += expected.0.len();
            }
        }
    }
    assert!(flows > 1000, "{flows}");
}

#[test]
fn generated_traffic_gives_the_same_as_packet_records_and_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    for spec in ["mix,flows=200,packets=20k,snap=60", "lossy,flows=50,packets=10k", "velan,flows=100,packets=5k"] {
        let path = folder.path().join("synth.packets");
        let packets = format!("packets:{}", path.display());
        assert_eq!(success(["synth", spec, "-q", "--overwrite", "-o", &packets]), "");
        assert_eq!(content(&packets, &[]), content(&format!("synth:{spec}"), &[]), "{spec}");
        assert!((fs::metadata(&path).unwrap().len() as usize - HEADER_BYTES).is_multiple_of(RECORD_BYTES));
    }
}

#[test]
fn the_tcp_report_is_that_of_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captures().join("loss.pcapng");
    let packets = format!("packets:{}", written(&capture, &[], &folder).display());
    let report = |source: &str| {
        let out = success(["tcp", source, "--engine", "cpu"]);
        let (_, rest) = out.split_once('\n').unwrap();
        rest.replace(source, "FILE").to_owned()
    };
    assert_eq!(report(&packets), report(capture.to_str().unwrap()));
}

#[test]
fn captures_and_packet_records_are_merged_and_pipes_and_compressed_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captures().join("web.pcap");
    let path = written(&capture, &[], &folder);
    let packets = format!("packets:{}", path.display());
    let expected = success(["read", &packets, "-o", "csv:-", "-q"]);
    let (code, out, _) = weir_with_input(["read", "packets:-", "-o", "csv:-", "-q"], &fs::read(&path).unwrap());
    assert_eq!((code, sorted(&out)), (0, sorted(&expected)));

    let compressed = folder.path().join("capture.gz");
    let mut encoder =
        flate2::write::GzEncoder::new(fs::File::create(&compressed).unwrap(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &fs::read(&path).unwrap()).unwrap();
    encoder.finish().unwrap();
    let out = success(["read", &format!("packets:{}", compressed.display()), "-o", "csv:-", "-q"]);
    assert_eq!(sorted(&out), sorted(&expected));

    let other = captures().join("ssh.pcap");
    let of_captures = content(other.to_str().unwrap(), &["-i", capture.to_str().unwrap()]);
    assert_eq!(content(other.to_str().unwrap(), &["-i", &packets]), of_captures);
    let out = success(["read", &packets]);
    assert!(out.contains("payload    none in files of packet records: their flows have no applications"), "{out}");
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_filter_and_the_names_of_interfaces_are_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captures().join("interfaces.pcapng");
    let packets = format!("packets:{}", written(&capture, &["-f", "tcp"], &folder).display());
    let options = ["--interface-names"];
    let (records, ledger) = content(&packets, &options);
    let (expected, of_capture) = content(capture.to_str().unwrap(), &["--interface-names", "-f", "tcp"]);
    assert_eq!(records, expected);
    assert_eq!(ledger["packets"]["metered"], of_capture["packets"]["metered"]);
}

#[test]
fn a_file_cut_anywhere_is_refused_or_gives_the_packets_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let octets = fs::read(written(small().saved().name().as_ref(), &[], &folder)).unwrap();
    let cut = folder.path().join("cut.packets");
    let source = format!("packets:{}", cut.display());
    for length in (0..octets.len()).filter(|length| *length < 200 || length.is_multiple_of(17)) {
        fs::write(&cut, &octets[..length]).unwrap();
        if length < HEADER_BYTES {
            let err = failure(1, ["read", &source]);
            assert!(err.contains("file of packet records"), "{length}: {err}");
            continue;
        }
        let (code, err, _, ledger) = metered(&["read", &source]);
        let whole = (length - HEADER_BYTES) / RECORD_BYTES;
        assert_eq!((code, &ledger["packets"]["received"]), (2, &whole.into()), "{length}: {err}");
        let is_between = (length - HEADER_BYTES).is_multiple_of(RECORD_BYTES);
        assert!(err.contains(if is_between { "without an end record" } else { "is cut in a packet record" }), "{err}");
    }
}

#[test]
fn a_file_with_any_octet_changed_is_refused_counted_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let frames = [udp(([10, 0, 0, 1], 5), ([10, 0, 0, 2], 53), 20), testbed::arp()];
    let saved = Pcap::of(&frames).saved();
    let octets = fs::read(written(saved.name().as_ref(), &[], &folder)).unwrap();
    let damaged = folder.path().join("damaged.packets");
    let source = format!("packets:{}", damaged.display());
    let mut refused = 0;
    for at in 0..octets.len() {
        let mut changed = octets.clone();
        changed[at] ^= 0x81;
        fs::write(&damaged, &changed).unwrap();
        let (code, out, err) = weir(["read", &source, "-o", "json:/dev/null", "--overwrite"]);
        assert_eq!(out, "", "{err}");
        match code {
            1 => assert!(at < HEADER_BYTES && err.contains("file of packet records"), "{at}: {err}"),
            2 => refused += 1,
            _ => assert!(code == 0 && at >= HEADER_BYTES, "{at}: {err}"),
        }
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn what_packet_records_do_not_have_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let saved = small().saved();
    let (capture, rules) = (saved.name(), folder.path().join("rules.toml"));
    fs::write(&rules, "[egress.one]\noutputs = [\"pcap:/dev/null\"]\n").unwrap();
    let outside = written(capture.as_ref(), &[], &folder);
    let packets = format!("packets:{}", outside.display());
    let inside = folder.path().join("inside.packets");
    fs::copy(&outside, &inside).unwrap();
    let mut octets = fs::read(&outside).unwrap();
    let changed = |at: usize, value: u8| {
        let mut changed = octets.clone();
        changed[at] = value;
        let path = folder.path().join(format!("changed-{at}"));
        fs::write(&path, changed).unwrap();
        format!("packets:{}", path.display())
    };
    let (version, flags) = (changed(12, 2), changed(16, 1));
    octets[8..12].reverse();
    let order = folder.path().join("order");
    fs::write(&order, &octets).unwrap();
    let order = format!("packets:{}", order.display());
    let outside_name = outside.to_str().unwrap();
    let rules = rules.to_str().unwrap();
    assert_usage_errors(&[
        (&["read", &packets, "-f", "tcp"], "leave out --filter"),
        (&["read", &packets, "--rules", rules], "leave out --rules"),
        (&["read", &packets, "--dpi", "light"], "leave out --dpi"),
        (&["tcp", &packets, "-f", "tcp"], "leave out --filter"),
        (&["read", &packets, "--decap"], "decoded without --decap"),
        (&["read", &flags], "decoded with --decap"),
        (&["read", &version], "of version 2"),
        (&["read", &order], "big-endian"),
        (&["read", outside_name], "read it as packets:FILE"),
        (&["read", &format!("packets:{capture}")], "is no file of packet records"),
        (&["read", "packets:"], "is empty"),
        (&["read", capture, "-o", "packets:"], "needs the name of a file"),
        (&["read", capture, "-o", &packets], "not empty"),
        (&["read", &packets, "-o", &packets, "--overwrite"], "is also the input"),
        (&["read", capture, "-o", "packets:/dev/null", "-o", "json:-"], "leave out the other -o"),
        (&["read", capture, "-o", "packets:/dev/null", "--by", "host"], "leave out --by"),
    ]);
}

#[test]
fn losses_in_the_end_record_are_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(Pcap::new().frame(START, 0, &testbed::arp()).saved().name().as_ref(), &[], &folder);
    let mut octets = fs::read(&path).unwrap();
    let end = octets.len() - RECORD_BYTES;
    (octets[end + 16], octets[end + 24], octets[end + 32]) = (3, 4, 5);
    fs::write(&path, octets).unwrap();
    let (code, _, _, ledger) = metered(&["read", &format!("packets:{}", path.display())]);
    let packets = &ledger["packets"];
    let dropped = ["dropped_nic", "dropped_kernel", "dropped_queue", "received"].map(|key| packets[key].as_u64());
    assert_eq!((code, dropped), (2, [Some(3), Some(4), Some(5), Some(13)]));
}
