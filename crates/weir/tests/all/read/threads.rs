//! `weir read --threads`: the output does not depend on the number of threads, and changes of a file
//! that is read end no process.

use flate2::{Compression, write::GzEncoder};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use testbed::{Pcap, START, arguments, assert_usage_errors, capture_files, command, small, text_of, udp, unzstd, weir};

const THREADS: [&str; 4] = ["1", "2", "3", "8"];

/// Everything that a run prints and writes. Without IPFIX: its files have records of counters, whose
/// number depends on the time that a run takes.
fn outputs<S: AsRef<OsStr>>(threads: &str, arguments: &[S], input: Option<&Path>) -> Vec<(&'static str, Vec<u8>)> {
    const FILES: [&str; 4] = ["flows.json", "flows.csv", "table", "ledger"];
    let folder = tempfile::tempdir().unwrap();
    let mut command = command();
    command.current_dir(folder.path()).args(["read", "--threads", threads, "--stats", "ledger"]).args(arguments);
    command.args(["-o", "json:flows.json", "-o", "csv:flows.csv", "-o", "table:table"]);
    if let Some(path) = input {
        command.stdin(Stdio::from(File::open(path).unwrap()));
    }
    let output = command.output().unwrap();
    let (code, out, err) = text_of(&output);
    let mut outputs = vec![("exit code", code.to_string().into()), ("output", out.into()), ("log", err.into())];
    for name in FILES {
        outputs.push((name, fs::read(folder.path().join(name)).unwrap_or_default()));
    }
    outputs
}

fn assert_same_outputs<S: AsRef<OsStr>>(arguments: &[S], input: Option<&Path>) {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.as_ref().display().to_string()).collect();
    let expected = outputs(THREADS[0], arguments, input);
    for threads in &THREADS[1..] {
        for ((name, found), (_, expected)) in outputs(threads, arguments, input).iter().zip(&expected) {
            let [found_text, expected_text] = [found, expected].map(|content| String::from_utf8_lossy(content));
            assert!(found == expected, "{threads} threads, {shown:?}: {name}\n{found_text}\n{expected_text}");
        }
    }
}

/// The capture as it is after decompression.
fn plain(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    match path.extension().and_then(OsStr::to_str) {
        Some("gz") => testbed::gunzip(&bytes),
        Some("zst") => unzstd(&bytes),
        _ => bytes,
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn any_number_of_threads_gives_the_output_of_one_for_every_capture() {
    let folder = tempfile::tempdir().unwrap();
    for (number, path) in capture_files().iter().enumerate() {
        assert_same_outputs(&[path], None);
        let (mut bytes, changed) = (plain(path), folder.path().join("changed"));
        let ends = [bytes.len() / 2, bytes.len().saturating_sub(5)];
        // Cut, damaged, or compressed and cut.
        match number % 4 {
            0 => bytes.truncate(ends[0]),
            1 => bytes.truncate(ends[1]),
            2 => bytes[ends[0]..].iter_mut().step_by(997).for_each(|byte| *byte ^= 0x55),
            _ => {
                bytes = gzip(&bytes);
                bytes.truncate(bytes.len() * 3 / 4);
            }
        }
        fs::write(&changed, &bytes).unwrap();
        assert_same_outputs(&[&changed], None);
    }
}

#[test]
fn any_number_of_threads_gives_the_output_of_one_with_every_input_and_option() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<OsString> = capture_files().into_iter().map(OsString::from).collect();
    let generated = folder.path().join("generated.pcap");
    let synth = ["synth", "mix,flows=2000,packets=40k,seed=5", "-o", generated.to_str().unwrap()];
    assert_eq!(weir(synth).0, 0);
    let compressed = folder.path().join("generated.pcap.gz");
    fs::write(&compressed, gzip(&fs::read(&generated).unwrap())).unwrap();
    let cut = folder.path().join("cut.gz");
    let octets = fs::read(&compressed).unwrap();
    fs::write(&cut, &octets[..octets.len() / 2]).unwrap();
    let [generated, compressed, cut] = [generated, compressed, cut].map(OsString::from);
    let inputs: [(&[OsString], Option<&OsString>); 7] = [
        (&all, None),
        (std::slice::from_ref(&generated), None),
        (&[generated.clone(), compressed.clone(), cut.clone()], None),
        (&["-".into()], Some(&generated)),
        (&["-".into(), compressed.clone()], Some(&generated)),
        (&["-".into()], Some(&cut)),
        (&["-i".into(), "synth:mix,flows=500,packets=20k,seed=2".into()], None),
    ];
    let options: [&[&str]; 6] = [
        &["--dpi", "light"],
        &["--dpi", "off"],
        &["-f", "tcp or port 53"],
        &["--where", "bytes > 1000"],
        &["--layer2", "--mac-addresses", "--key", "vlan", "--interface-names", "--fields", "all"],
        &["--decap", "--uniflow"],
    ];
    for (files, input) in inputs {
        for options in options {
            let files = files.iter().map(|file| file.as_os_str());
            let arguments: Vec<&OsStr> = files.chain(options.iter().map(OsStr::new)).collect();
            assert_same_outputs(&arguments, input.map(Path::new));
        }
    }
    for view in [&["--by", "host"][..], &["--by", "src_ip/24,service_port", "--sort", "flows"], &["--every", "10ms"]] {
        let runs =
            THREADS.map(|threads| weir([&["read", generated.to_str().unwrap(), "--threads", threads], view].concat()));
        assert!(runs.iter().all(|run| *run == runs[0] && run.0 == 0), "{runs:?}");
    }
}

/// TCP flows beyond the first 4096 take slots apart from others, and a thread provides their memory.
#[test]
fn any_number_of_threads_gives_the_output_of_one_with_many_flows() {
    let generated = ["-i", "synth:mix,flows=20000,packets=100k,seed=3"];
    assert_same_outputs(&generated, None);
    let few_slots = ["--flows", "6000"];
    assert_same_outputs(&[&generated[..], &few_slots].concat(), None);
}

#[test]
fn zero_threads_are_refused_and_more_than_cores_are_accepted() {
    let capture = small().saved();
    let reason = "invalid value '0' for '--threads <N>'";
    assert_usage_errors(&[(&["read", capture.name(), "--threads", "0"], reason)]);
    let (code, out, err) = weir(arguments!["read", capture, "--threads", "1000"]);
    assert!((code, err.as_str()) == (0, "") && out.contains("12 received"), "{out}");
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_is_reported_and_ends_no_process() {
    let frames: Vec<Vec<u8>> = (0..20_000).map(|n: u16| udp(([10, 0, 0, 1], n), ([10, 0, 0, 2], 9), 400)).collect();
    let first = Pcap::new().frame(START - 1, 0, &frames[0]);
    for threads in THREADS {
        for left in [1_000_001, 4096 * 100, 4096] {
            let capture = Pcap::of(&frames).saved();
            let mut command = command();
            command.args(["read", capture.name(), "-", "--threads", threads, "-o", "csv:/dev/null"]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            // The two inputs are merged, so no packet of the file is read before one of the pipe.
            input.write_all(&first.0[..24]).unwrap();
            let maps = format!("/proc/{}/maps", child.id());
            while !fs::read_to_string(&maps).unwrap().contains(capture.name()) {
                std::thread::yield_now();
            }
            File::options().write(true).open(&capture.path).unwrap().set_len(left).unwrap();
            input.write_all(&first.0[24..]).unwrap();
            drop(input);
            let (code, out, err) = text_of(&child.wait_with_output().unwrap());
            assert!(code == 2 && err.contains("truncated while it was read"), "{threads}, {left}: {err}{out}");
            // The first burst may have been read before.
            let text = format!("{out}{err}");
            let received = text.split(" received").next().and_then(|before| before.split_whitespace().last());
            let received: u64 = received.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"));
            let whole = left / (16 + frames[0].len() as u64);
            assert!((1 + whole..=1 + whole.max(64)).contains(&received), "{threads}, {left}: {text}");
        }
    }
}

#[test]
fn packet_records_with_link_types_that_are_not_decoded_are_read_by_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [known, unknown, packets] = ["known.pcap", "unknown.pcap", "all.packets"].map(path);
    // More than the thread of the caller reads itself.
    testbed::success(["synth", "mix,packets=3k", "-q", "-o", &known]);
    let mut bytes = fs::read(&known).unwrap();
    bytes[20] = 147;
    fs::write(&unknown, bytes).unwrap();
    for inputs in [&[&unknown][..], &[&known, &unknown]] {
        let _ = fs::remove_file(&packets);
        let output = format!("packets:{packets}");
        let arguments: Vec<&str> = inputs.iter().map(|input| input.as_str()).collect();
        let (code, _, err) = weir([&["read", "-q", "-o", &output], &arguments[..]].concat());
        assert_eq!(code, 0, "{err}");
        let input = format!("packets:{packets}");
        assert_same_outputs(&[&input], None);
        let ledger = outputs("2", &[&input], None).pop().unwrap().1;
        let ledger: serde_json::Value = serde_json::from_slice(&ledger).unwrap();
        assert_eq!(ledger["packets"]["refused"]["link_type"], 3000, "{ledger}");
    }
}
