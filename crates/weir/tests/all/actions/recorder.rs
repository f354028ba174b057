//! `weir packets`: the packets that it finds are those that tshark selects from the original capture.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::{
    Pcap, START, arguments, assert_usage_errors, capture_files, captures, captures_of_applications, failure, gunzip,
    is_installed, metered, small, success, tcp, udp, unzstd, weir, weir_with_input,
};
use weir_egress::{InterfaceReport, PacketOutput, WhenFull};
use weir_recorder::{FolderSettings, RecorderOutput};

/// Octets, time in ns, length on the wire and link type.
type Frame = (Vec<u8>, u64, u32, u16);

fn frames_of(path: &Path) -> Vec<Frame> {
    let mut source = weir_capture::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        frames.extend(burst.iter().map(|f| (f.bytes.to_vec(), f.time_ns, f.wire_bytes, f.link_type)));
    }
    frames
}

/// Records a capture into a folder, in small files.
fn record(capture: &Path, folder: &Path) {
    let settings = FolderSettings::parse(&format!("folder:{}?size=1MiB&total=1GiB", folder.display())).unwrap();
    let mut output = RecorderOutput::open(&settings, 1, &WhenFull::Drop, None).unwrap().remove(0);
    let mut source = weir_capture::open(capture).unwrap();
    output.describe(&InterfaceReport { number: 1, name: "eth7".into(), received: None });
    while let Some(burst) = source.burst().unwrap() {
        output.send(&burst);
        while output.counters().waiting.octets > 1 << 20 {
            std::thread::yield_now();
        }
    }
    output.finish();
    assert!(output.counters().dropped.is_empty());
}

/// Runs `weir packets`: its log, and the frames that it wrote.
fn packets(arguments: &[&str], input: &Path) -> (String, Vec<Frame>) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcapng");
    let (code, out, err) = weir(["packets"].iter().chain(arguments).map(std::ffi::OsStr::new).chain([
        input.as_os_str(),
        "-o".as_ref(),
        output.as_os_str(),
    ]));
    assert_eq!((code, out.as_str()), (0, ""), "{arguments:?} {input:?}: {err}");
    (err, frames_of(&output))
}

/// A display filter of tshark for the flow of a record, by addresses and ports.
fn display_filter(flow: &Value) -> Option<String> {
    let text = |name: &str| flow[name].as_str().unwrap_or_default().to_owned();
    let (source, destination) = (text("src_ip"), text("dst_ip"));
    let ip = if source.contains(':') { "ipv6" } else { "ip" };
    let protocol = match flow["protocol_number"].as_u64()? {
        6 => "tcp",
        17 => "udp",
        132 => "sctp",
        _ => return None,
    };
    let side = |from: &str, from_port: &Value, to: &str, to_port: &Value| {
        format!(
            "({ip}.src == {from} and {ip}.dst == {to} and {protocol}.srcport == {from_port} and {protocol}.dstport == {to_port})"
        )
    };
    let (from, to) = (&flow["src_port"], &flow["dst_port"]);
    // The capture has no ports, or the packets are fragments without their first one.
    if from == 0 {
        return None;
    }
    // Errors of ICMP quote headers.
    Some(format!(
        "not icmp and not icmpv6 and ({} or {})",
        side(&source, from, &destination, to),
        side(&destination, to, &source, from)
    ))
}

/// The frames that tshark selects, as it writes them.
fn tshark(capture: &Path, filter: &str) -> Vec<Frame> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("tshark.pcapng");
    let run = Command::new("tshark")
        .args(["-n", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-Y", filter, "-r"])
        .arg(capture)
        .arg("-w")
        .arg(&output)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    frames_of(&output)
}

#[test]
fn a_flow_has_the_packets_that_tshark_selects_with_and_without_an_index() {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let synth = |name: &str, spec: &str| {
        let path = folder.path().join(name);
        success(arguments!["synth", spec, "-q", "-o", path]);
        path
    };
    let mut captures = vec![
        synth("apps.pcap", "apps,flows=200,packets=6k"),
        synth("lossy.pcap", "lossy,flows=100,packets=6k,duplicate=2%"),
    ];
    // With tunnels, tshark also finds the flows inside.
    let is_tunnel = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["4in6", "6in4", "geneve", "gre", "gtpu", "ipip", "vxlan"].iter().any(|tunnel| name.starts_with(tunnel))
    };
    captures.extend(capture_files().into_iter().filter(|path| !is_tunnel(path)));
    captures.extend(captures_of_applications().into_iter().step_by(6));
    let mut compared = 0;
    for capture in captures {
        let (_, _, flows, _) = metered(&["read", capture.to_str().unwrap(), "-q"]);
        let mut ids = BTreeSet::new();
        let recording = folder.path().join("recording");
        record(&capture, &recording);
        let flows = flows.iter().filter(|flow| ids.insert(flow["community_id"].to_string()));
        let flows: Vec<&Value> = flows.filter(|flow| !flow["approximate"].to_string().contains("fragments")).collect();
        for flow in flows.iter().step_by(1 + flows.len() / 2) {
            let Some(filter) = display_filter(flow) else { continue };
            let id = flow["community_id"].as_str().unwrap();
            let expected = tshark(&capture, &filter);
            assert!(!expected.is_empty(), "{capture:?}: {filter}");
            if flow["protocol"] == 6 || flow["protocol"] == 17 {
                let protocol = if flow["protocol"] == 6 { "tcp" } else { "udp" };
                let end = |side: &str| {
                    let (ip, port) = (flow[format!("{side}_ip")].as_str().unwrap(), &flow[format!("{side}_port")]);
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                };
                let as_printed = format!("{} → {}/{protocol}", end("src"), end("dst"));
                let by_id = packets(&["--flow", id], &capture).1;
                assert_eq!(packets(&["--flow", &as_printed], &capture).1, by_id, "{as_printed}");
            }
            for input in [&capture, &recording] {
                let (_, found) = packets(&["--flow", id], input);
                // Later fragments have no ports for tshark.
                let later: Vec<_> = found.iter().filter(|frame| !expected.contains(frame)).collect();
                assert!(are_later_fragments(&later), "{input:?}: {id}");
                let found: Vec<Frame> = found.iter().filter(|frame| expected.contains(frame)).cloned().collect();
                assert_eq!(found.len(), expected.len(), "{input:?}: {id}");
                assert!(found == expected, "{input:?}: {id}");
                compared += 1;
            }
        }
        fs::remove_dir_all(recording).unwrap();
    }
    assert!(compared > 80, "{compared}");
}

/// Whether all frames are later fragments of IPv4 over Ethernet.
fn are_later_fragments(frames: &[&Frame]) -> bool {
    frames.iter().all(|(octets, ..)| octets[12..14] == [8, 0] && (octets[20] & 0x1f != 0 || octets[21] != 0))
}

#[test]
fn expressions_select_the_packets_of_their_records() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("apps.pcap");
    success(arguments!["synth", "apps,flows=300,packets=12k,seed=5", "-q", "-o", capture]);
    let recording = folder.path().join("recording");
    record(&capture, &recording);
    for (expression, passes) in [
        ("port 443", 1),
        ("udp", 1),
        ("not tcp and not udp", 1),
        ("any", 1),
        ("src port > 1024", 2),
        ("application = dns", 2),
        ("port 443 and bytes > 2k", 2),
        ("not bytes > 2k", 2),
        ("end_reason = end", 2),
    ] {
        let (_, _, flows, _) = metered(&["read", capture.to_str().unwrap(), "-q", "--where", expression]);
        let records: u64 = flows.iter().map(testbed::packets).sum();
        let mut all = Vec::new();
        for input in [&capture, &recording] {
            let (err, found) = packets(&["--where", expression], input);
            assert_eq!(found.len() as u64, records, "{expression}, {input:?}: {err}");
            assert!(err.contains(&format!("passes={passes}")), "{expression}: {err}");
            all.push(found);
        }
        assert!(all[0] == all[1], "{expression}");
        assert_eq!(all[0].is_empty(), expression == "not tcp and not udp", "{expression}");
    }
}

#[test]
fn times_limit_what_is_read_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("mix.pcap");
    success(arguments!["synth", "mix,flows=500,packets=20k", "-q", "-o", capture]);
    let recording = folder.path().join("recording");
    record(&capture, &recording);
    let all = frames_of(&capture);
    let (from, to) = (all[9_000].1, all[9_999].1);
    let text = |ns: u64| {
        let second = jiff::Timestamp::from_nanosecond(ns.into()).unwrap();
        second.to_string()
    };
    let expected: Vec<Frame> = all.iter().filter(|frame| (from..=to).contains(&frame.1)).cloned().collect();
    for input in [&capture, &recording] {
        let stats = folder.path().join("stats.json");
        let range = ["--from", &text(from), "--to", &text(to), "--overwrite", "--stats", stats.to_str().unwrap()];
        let (err, found) = packets(&range, input);
        assert!(found == expected && err.contains("packets written packets=1000"), "{err}");
        let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
        let [read, octets] = ["octets_read", "octets"].map(|name| stats[name].as_u64().unwrap());
        assert_eq!(stats["packets"], 1000);
        let indexed = stats["indexed_files"].as_u64().unwrap() > 0;
        assert!(if indexed { read * 4 < octets } else { read == octets }, "{stats}");
    }
    let (err, found) = packets(&["--flow", "1:LQU9qZlK+B5F3KDmev6m5PMibrg="], &recording);
    assert!(found.is_empty() && err.contains("no packet was found"), "{err}");
}

#[test]
fn outputs_are_pcapng_or_pcap_and_inputs_pipes_and_several_files() {
    let capture = small().saved();
    let tuple = "192.0.2.10:40000-198.51.100.20:80/tcp";
    let base = ["packets", capture.name(), "--flow", tuple];
    let expected: Vec<Frame> = frames_of(&capture.path)[2..10].to_vec();
    for name in ["out.pcapng", "out.pcap", "out.pcap.gz", "out.pcapng.zst"] {
        let output = capture.beside(name);
        let (code, _, err) = weir(base.iter().map(std::ffi::OsStr::new).chain(arguments!["-o", output]));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("packets written packets=8 octets=1932"), "{err}");
        assert!(frames_of(&output) == expected, "{name}");
        let octets = fs::read(&output).unwrap();
        let plain = match name.rsplit_once('.').unwrap().1 {
            "gz" => gunzip(&octets),
            "zst" => unzstd(&octets),
            _ => octets,
        };
        let magic = if name.contains("pcapng") { [0x0a, 0x0d, 0x0d, 0x0a] } else { [0x4d, 0x3c, 0xb2, 0xa1] };
        assert_eq!(plain[..4], magic, "{name}");
        // A file that is not empty is refused.
        let err = failure(1, base.iter().map(std::ffi::OsStr::new).chain(arguments!["-o", output]));
        assert!(err.contains("not empty"), "{err}");
    }
    let output = capture.beside("piped.pcapng");
    let (code, out, err) = weir_with_input(arguments!["packets", "-", "--where", "udp", "-o", output], &small().0);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert_eq!(frames_of(&output).len(), 2);
    let (code, _, err) = weir_with_input(["packets", "-", "--where", "bytes > 1", "-o", "-"], &small().0);
    assert!(code == 1 && err.contains("reads the packets more than once, which is impossible with -"), "{err}");
    // Two files in order of time, and standard output.
    let other = Pcap::new().frame(START, 1_000, &udp(([192, 0, 2, 10], 50_000), ([192, 0, 2, 53], 53), 9)).saved();
    let output = capture.beside("merged.pcapng");
    success(arguments!["packets", capture, other, "--where", "port 53", "-q", "-o", output]);
    let times: Vec<u64> = frames_of(&output).iter().map(|frame| frame.1 % 1_000_000_000).collect();
    assert_eq!(times, [0, 1_000_000, 2_000_000]);
}

#[test]
fn interfaces_keep_their_names_and_link_types() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcapng");
    let input = captures().join("interfaces.pcapng");
    success(arguments!["packets", input, "--where", "any", "-q", "-o", output]);
    let names = |path: &Path| {
        let mut source = weir_capture::open(path).unwrap();
        let mut interfaces = Vec::new();
        while let Some(burst) = source.burst().unwrap() {
            interfaces.extend(burst.iter().map(|frame| frame.interface));
        }
        let names = source.interfaces();
        let name = |number: &u32| names.iter().find(|(known, _)| known == number).map(|(_, name)| name.clone());
        interfaces.iter().map(name).collect::<Vec<_>>()
    };
    let found = names(&output);
    assert!(found.len() > 2 && found.iter().collect::<BTreeSet<_>>().len() > 1, "{found:?}");
    assert_eq!(found, names(&input));
    // So do those of a recording.
    let rules = recording_rules(folder.path(), "");
    success(arguments!["read", input, "-q", "-o", "csv:/dev/null", "--rules", rules]);
    let recorded = fs::read_dir(folder.path().join("packets")).unwrap().map(|entry| entry.unwrap().path());
    let recorded = recorded.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).min().unwrap();
    assert_eq!(found, names(&recorded));
    if is_installed("capinfos") {
        let run = Command::new("capinfos").arg(&output).output().unwrap();
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
    }
    // A pcap file has one link type.
    let folder = tempfile::tempdir().unwrap();
    let cooked = captures().join("cooked-v1.pcap");
    let web = captures().join("web.pcap");
    let output = folder.path().join("out.pcap");
    let err = failure(2, arguments!["packets", cooked, web, "--where", "any", "-q", "-o", output]);
    assert!(err.contains("link type") && err.contains(".pcapng"), "{err}");
}

#[test]
fn damage_is_told_and_what_is_readable_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("mix.pcap");
    success(arguments!["synth", "mix,flows=50,packets=3k", "-q", "-o", capture]);
    let recording = folder.path().join("recording");
    record(&capture, &recording);
    let mut files: Vec<PathBuf> = fs::read_dir(&recording).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let index = files.iter().find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap();
    let octets = fs::read(index).unwrap();
    fs::write(index, &octets[..octets.len() - 1]).unwrap();
    let (err, found) = packets(&["--where", "any"], &recording);
    assert!(err.contains("the index is cut or damaged"), "{err}");
    assert_eq!(found.len(), 3000);
    let last = files.iter().rfind(|path| path.extension().is_some_and(|end| end == "pcapng")).unwrap();
    let octets = fs::read(last).unwrap();
    fs::write(last, &octets[..octets.len() - 200]).unwrap();
    let output = folder.path().join("out.pcapng");
    let err = failure(2, arguments!["packets", recording, "--where", "any", "-o", output]);
    assert!(err.contains("shorter than its index") && err.contains("damaged input"), "{err}");
    assert!(frames_of(&output).len() > 2990);
    let err = failure(2, arguments!["packets", capture, "--where", "any", "-o", "/dev/full"]);
    assert!(err.contains("No space left"), "{err}");
}

#[test]
fn what_others_put_into_a_folder_does_not_stop_a_search_or_the_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("mix.pcap");
    success(arguments!["synth", "mix,flows=50,packets=3k", "-q", "-o", capture]);
    let recording = folder.path().join("recording");
    record(&capture, &recording);
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&recording).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let first = names().remove(0);
    // A pipe, an index of a pipe, and an index of 4 GiB that is a hole.
    let fifo = recording.join("weir_00000_20261120120000.pcapng");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::write(recording.join("weir_00000_20261120120000.pcapng.idx"), "weirIDX1").unwrap();
    fs::File::create(format!("{}.idx", first.display())).unwrap().set_len(4 << 30).unwrap();
    let (err, found) = packets(&["--where", "any"], &recording);
    assert!(err.contains("the index does not belong to this file") && found.len() == 3000, "{err}");
    // A number that is too high for another one after it.
    let last = recording.join(format!("weir_{}_20261120120000.pcapng", u64::MAX));
    fs::copy(&first, &last).unwrap();
    let before = names().len();
    record(&capture, &recording);
    let new: Vec<_> = names().into_iter().filter(|path| path.to_str().unwrap().contains("weir_00000_")).collect();
    assert_eq!(new.len(), 2, "only the pipe and its index have number 0: {new:?}");
    assert!(names().len() > before && last.exists());
}

#[test]
fn usage_errors_name_what_to_write() {
    let capture = Pcap::of(&[tcp(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), 2, 0)]).saved();
    let (file, empty) = (capture.name(), tempfile::tempdir().unwrap());
    let empty = empty.path().to_str().unwrap();
    let recording = capture.beside("recording");
    record(&capture.path, &recording);
    let recorded = fs::read_dir(&recording).unwrap().map(|entry| entry.unwrap().path());
    let recorded = recorded.into_iter().find(|path| path.extension().is_some_and(|end| end == "pcapng")).unwrap();
    assert_usage_errors(&[
        (&["packets", file, "-o", "x.pcapng"], "--flow"),
        (&["packets", "--where", "tcp", "-o", "x.pcapng"], "FOLDER|FILE"),
        (&["packets", file, "--where", "tcp"], "--output"),
        (&["packets", file, "--flow", "1:abc", "-o", "x.pcapng"], "write a Community ID"),
        (&["packets", file, "--where", "byts > 1", "-o", "x.pcapng"], "did you mean bytes?"),
        (&["packets", file, "--from", "yesterday", "-o", "x.pcapng"], "write for example 2026-11-20T12:00:00Z"),
        (&["packets", "/nonexistent", "--where", "tcp", "-o", "x.pcapng"], "is the name right?"),
        (&["packets", empty, "--where", "tcp", "-o", "x.pcapng"], "no capture files of a recorder in this folder"),
        (&["packets", "/etc/passwd", "--where", "tcp", "-o", "x.pcapng"], "text"),
        (&["packets", file, "--where", "tcp", "--overwrite", "-o", file], "is also the input"),
        (
            &[
                "packets",
                recording.to_str().unwrap(),
                "--where",
                "tcp",
                "--overwrite",
                "-o",
                recorded.to_str().unwrap(),
            ],
            "is also the input",
        ),
        (&["packets", file, "--where", "tcp", "-o", "/nonexistent/x.pcapng"], "does its directory exist?"),
    ]);
}

/// A rules file that records everything into the folder `packets` beside it.
fn recording_rules(folder: &Path, settings: &str) -> PathBuf {
    let rules = folder.join("rules.toml");
    let output = format!("folder:{}?{settings}", folder.join("packets").display());
    fs::write(&rules, format!("[recorder]\noutputs = [\"{output}\"]\n")).unwrap();
    rules
}

#[test]
fn rules_record_what_weir_reads_and_its_packets_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("apps.pcap");
    success(arguments!["synth", "apps,flows=100,packets=8k", "-q", "-o", capture]);
    let rules = recording_rules(folder.path(), "size=1MiB&total=1GiB");
    let stats = folder.path().join("stats.json");
    let (code, _, err) = weir(arguments![
        "read",
        capture,
        "-q",
        "-o",
        "csv:/dev/null",
        "--rules",
        rules,
        "--stats",
        stats,
        "-f",
        "ip or ip6"
    ]);
    assert_eq!((code, err.as_str()), (0, ""));
    let ledger = testbed::read_ledger(&stats);
    let output = &ledger["actions"]["outputs"][0];
    assert_eq!(output["sent"]["packets"], 8000, "{output:#}");
    let files = fs::read_dir(folder.path().join("packets")).unwrap().count() / 2;
    assert!(
        files > 1 && output["recorder"]["files"] == files && output["recorder"]["is_stopped"] == false,
        "{output:#}"
    );
    let recording = folder.path().join("packets");
    let (_, found) = packets(&["--where", "any"], &recording);
    assert!(found == frames_of(&capture));
    // Other users cannot read packets.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&recording) & !0o750, 0);
    for entry in fs::read_dir(&recording).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()) & !0o640, 0);
    }
    let first = fs::read(fs::read_dir(&recording).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert!(first.windows(9).any(|window| window == b"ip or ip6"));
    // Settings are checked with the rules file.
    let rules = recording_rules(folder.path(), "size=1X");
    let err = failure(1, arguments!["rules", "check", rules]);
    assert!(err.contains("size=1X is not a size; write for example size=1GiB"), "{err}");
}

#[test]
fn a_killed_probe_leaves_a_readable_recording() {
    let folder = tempfile::tempdir().unwrap();
    testbed::permit_all_users(folder.path());
    let rules = recording_rules(folder.path(), "size=4MiB&total=1GiB");
    let capture = folder.path().join("mix.pcap");
    success(arguments!["synth", "mix,flows=100,packets=10k", "-q", "-o", capture]);
    let octets = fs::read(&capture).unwrap();
    let mut probe = testbed::command();
    probe.args(arguments!["probe", "-i", "-", "-q", "-o", "csv:/dev/null", "--flows", "10k", "--rules", rules]);
    let mut probe = probe.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    let recording = folder.path().join("packets");
    let recorded = || {
        let files = fs::read_dir(&recording).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).collect();
        files.sort();
        files
    };
    let octets_of = |files: &[PathBuf]| -> u64 { files.iter().map(|file| fs::metadata(file).unwrap().len()).sum() };
    let all = frames_of(&capture);
    // A part after the other, because a recorder that is behind drops packets. Of the last packet, the end is missing.
    const PARTS: usize = 20;
    let (mut sent, mut blocks) = (24, 0);
    input.write_all(&octets[..sent]).unwrap();
    for frames in all[..all.len() - 1].chunks(all.len().div_ceil(PARTS)) {
        let packets: usize = frames.iter().map(|(packet, ..)| 16 + packet.len()).sum();
        input.write_all(&octets[sent..sent + packets]).unwrap();
        sent += packets;
        // An enhanced packet block has 32 octets beside its packet.
        blocks += frames.iter().map(|(packet, ..)| 32 + packet.len().next_multiple_of(4) as u64).sum::<u64>();
        testbed::namespace::until("all packets are recorded", || {
            assert_eq!(probe.try_wait().unwrap(), None);
            octets_of(&recorded()) > blocks
        });
    }
    input.write_all(&octets[sent..octets.len() - 1]).unwrap();
    probe.kill().unwrap();
    probe.wait().unwrap();
    let mut frames = Vec::new();
    for file in recorded() {
        frames.extend(frames_of(&file));
        let stats = success(arguments!["read", file, "-q", "-o", "table:/dev/null", "--stats", "-"]);
        assert!(stats.contains("\"balanced\": true"), "{stats}");
    }
    assert!(frames.len() + 1 == all.len() && all.starts_with(&frames), "{}", frames.len());
    let (_, found) = packets(&["--where", "any"], &recording);
    assert!(found == frames);
    if is_installed("tshark") {
        assert!(tshark(recorded().last().unwrap(), "frame").len() > 10);
    }
}

#[test]
fn a_folder_that_is_made_again_needs_a_restart_as_the_log_says_once() {
    let folder = tempfile::tempdir().unwrap();
    testbed::permit_all_users(folder.path());
    let rules = recording_rules(folder.path(), "size=4MiB&total=1GiB");
    let (capture, stats) = (folder.path().join("mix.pcap"), folder.path().join("stats.json"));
    success(arguments!["synth", "mix,flows=100,packets=2k", "-q", "-o", capture]);
    let octets = fs::read(&capture).unwrap();
    let mut probe = testbed::command();
    probe.args(arguments!["probe", "-i", "-", "-o", "csv:/dev/null", "--rules", rules, "--stats", stats]);
    probe.args(["--flows", "10k", "--timing", "recorder_retry=1ns"]);
    let mut probe = probe.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    let mut lines = BufReader::new(probe.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (first, rest) = octets.split_at(octets.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    input.write_all(first).unwrap();
    let recording = folder.path().join("packets");
    let is_recorded = || {
        let files = fs::read_dir(&recording).into_iter().flatten().map(|entry| entry.unwrap());
        files.map(|entry| entry.metadata().unwrap().len()).sum::<u64>() > 100_000
    };
    testbed::namespace::until("packets are recorded", is_recorded);
    fs::remove_dir_all(&recording).unwrap();
    input.write_all(second).unwrap();
    let mut log = Vec::new();
    let mut until_line = |word: &str| log.extend(lines.by_ref().find(|line| line.contains(word)));
    until_line("recording stopped");
    fs::create_dir(&recording).unwrap();
    testbed::permit_all_users(&recording);
    input.write_all(third).unwrap();
    drop(input);
    until_line("restart the probe");
    assert!(log.len() == 2 && log[0].contains("No such file"), "{log:?}");
    log.extend(lines.filter(|line| line.contains("recording stopped")));
    // The folder may come between the attempt and the question which folder it is: a reason of its own.
    let reasons: BTreeSet<&str> = log.iter().map(|line| line.split_once("recording stopped").unwrap().1).collect();
    assert!(reasons.len() == log.len() && log.len() <= 3, "{log:?}");
    probe.wait().unwrap();
    let ledger = testbed::read_ledger(&stats);
    let output = &ledger["actions"]["outputs"][0];
    let (sent, failed) = (&output["sent"]["packets"], &output["dropped"]["write_failed"]["packets"]);
    assert_eq!(sent.as_u64().zip(failed.as_u64()).map(|(sent, failed)| sent + failed), Some(2000), "{output:#}");
    assert!(failed.as_u64() > Some(1000) && output["recorder"]["is_stopped"] == true, "{output:#}");
    assert_eq!(fs::read_dir(&recording).unwrap().count(), 0);
}

#[test]
fn a_signal_ends_a_search_in_a_silent_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("found.pcapng");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut search = testbed::command();
        search.args(arguments!["packets", "-", "--where", "tcp", "--overwrite", "-o", output]);
        let mut search = search.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = search.stdin.take().unwrap();
        let frame = tcp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 2, 0);
        input.write_all(&Pcap::new().frame(START, 0, &frame).0).unwrap();
        testbed::wait_for_thread_of_signals(&search);
        testbed::signal(&search, signal);
        let (code, _, err) = testbed::text_of(&search.wait_with_output().unwrap());
        assert!(code == 2 && err.contains("interrupted"), "{err}");
        drop(input);
    }
}

#[test]
fn a_refused_output_leaves_no_empty_file_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let [new, full] = ["new.pcapng", "full"].map(|name| folder.path().join(name));
    fs::write(&full, "notes").unwrap();
    failure(1, arguments!["packets", small().saved(), "--where", "tcp", "-o", new, "--stats", full]);
    failure(1, arguments!["synth", "mix,packets=1k", "-o", new, "--truth", full]);
    assert!(!new.exists());
    assert_eq!(fs::read_to_string(&full).unwrap(), "notes");
}
