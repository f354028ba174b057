//! The outputs of `weir read`: files, pipes and standard output, compressed or not, and their errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use testbed::{arguments, command, failure, ledger_of, small, success, text_of, weir, weir_with_closed_output};

#[test]
fn records_lost_to_a_full_disk_are_counted_and_reported_once() {
    let capture = small().saved();
    for sink in ["table:/dev/full", "csv:/dev/full", "json:/dev/full", "ipfix:/dev/full"] {
        let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", sink]);
        assert_eq!((code, err.matches("No space left").count()), (2, 1), "{sink}: {err}");
        assert_eq!(ledger["flows"]["lost"]["write_failed"], 3, "{sink}: {ledger}");
        assert_eq!(ledger["flows"]["exported"], 0);
    }
}

#[test]
fn records_beyond_the_limit_of_file_sizes_are_counted() {
    let capture = small().saved();
    for format in ["table", "csv", "json", "ipfix"] {
        let sink = format!("{format}:{}", capture.beside("out").display());
        let script = "ulimit -f 0; exec \"$0\" read \"$1\" -v -o \"$2\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_weir")]).arg(&capture).arg(&sink);
        let (code, _, err) = text_of(&command.output().unwrap());
        assert_eq!((code, err.matches("File too large").count()), (2, 1), "{sink}: {err}");
        assert!(err.contains("ulimit -f") && err.contains("lost       3 flows"), "{sink}: {err}");
    }
}

#[test]
fn a_full_disk_at_standard_output_has_exit_code_2() {
    let capture = small().saved();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&[][..], &["-o", "csv:-"], &["-o", "json:-"], &["--stats", "-"]] {
        let (code, _, err) =
            text_of(&command().arg("read").arg(&capture).args(arguments).stdout(full()).output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains("No space left") && err.contains("free some space"), "{arguments:?}: {err}");
    }
}

#[test]
fn help_on_a_full_disk_has_exit_code_2() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["--help"][..], &["read", "-h"], &["-V"], &[]] {
        let (code, _, err) = text_of(&command().args(arguments).stdout(full()).output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains("cannot write to standard output: No space left"), "{arguments:?}: {err}");
    }
}

#[test]
fn a_compressed_file_without_records_decompresses_to_nothing() {
    let decompress = [("gz", testbed::gunzip as fn(&[u8]) -> Vec<u8>), ("zst", testbed::unzstd)];
    for (format, (ending, decompress)) in
        ["json", "ipfix", "csv"].into_iter().flat_map(|format| decompress.map(|of| (format, of)))
    {
        let capture = small().saved();
        let path = capture.beside("flows");
        let sink = format!("{format}:{}.{ending}", path.display());
        let path = path.with_extension(ending);
        let content = || decompress(&std::fs::read(&path).unwrap());
        let whole = {
            success(["read", capture.name(), "-q", "-o", &sink]);
            content()
        };
        let header = if format == "csv" { whole.iter().position(|&octet| octet == b'\n').unwrap() + 1 } else { 0 };
        // `weir probe` continues the file.
        for command in ["read", "probe", "probe"] {
            let overwrite = if command == "read" { &["--overwrite"][..] } else { &[] };
            success([&[command, "-i", capture.name(), "-q", "--where", "port 1", "-o", &sink], overwrite].concat());
            assert_eq!(content(), whole[..header], "{command} {sink}");
            let octets = std::fs::metadata(&path).unwrap().len();
            assert!(octets > 0 && (format == "csv" || octets < 30), "{command} {sink}: {octets}");
        }
        success(["probe", "-i", capture.name(), "-q", "-o", &sink]);
        let continued = content();
        let is_same = if format == "ipfix" { continued.len() == whole.len() } else { continued == whole };
        assert!(is_same, "{sink}: {} and {} octets", continued.len(), whole.len());
        let stdout = ["read", capture.name(), "-q", "--where", "port 1", "-o", &format!("{format}:-.{ending}")];
        let out = command().args(stdout).output().unwrap().stdout;
        assert!(!out.is_empty() && decompress(&out) == whole[..header], "{sink}: {out:?}");
    }
    // Another format takes the place of an empty frame.
    let capture = small().saved();
    let path = capture.beside("flows.gz");
    let sink = |format: &str| format!("{format}:{}", path.display());
    success(["read", capture.name(), "-q", "--where", "port 1", "-o", &sink("json")]);
    success(["probe", "-i", capture.name(), "-q", "-o", &sink("csv")]);
    assert!(testbed::gunzip(&std::fs::read(&path).unwrap()).starts_with(b"start_time,"));
}

#[test]
fn a_failed_sink_does_not_stop_the_others() {
    let capture = small().saved();
    let good = capture.beside("good.txt");
    let good_sink = format!("table:{}", good.display());
    let err = failure(2, ["read", capture.name(), "-o", "table:/dev/full", "-o", &good_sink]);
    assert!(err.contains("lost       3 flows for table:/dev/full"), "{err}");
    assert!(std::fs::read_to_string(good).unwrap().contains("3 flows"));
}

#[test]
fn a_sink_that_cannot_be_opened_has_exit_code_1() {
    let capture = small().saved();
    let nowhere = capture.beside("no/such/folder/x");
    let nowhere = nowhere.to_str().unwrap();
    let (table, csv) = (format!("table:{nowhere}"), format!("csv:{nowhere}"));
    for (option, value) in [
        ("-o", "nonsense"),
        ("-o", "nonsense:x"),
        ("-o", "table:"),
        ("-o", "ipfix+udp://"),
        ("-o", "netflow5+udp://host:port"),
        ("-o", &table),
        ("-o", &csv),
        ("--stats", nowhere),
    ] {
        let err = failure(1, ["read", capture.name(), option, value]);
        assert!(err.contains(value) || err.contains(nowhere), "{value}: {err}");
    }
}

#[test]
fn a_file_that_is_not_empty_is_replaced_only_with_overwrite() {
    let capture = small().saved();
    let (used, empty) = (capture.beside("used"), capture.beside("empty"));
    std::fs::write(&empty, "").unwrap();
    for scheme in ["table", "csv", "json", "ipfix"] {
        std::fs::write(&used, "notes").unwrap();
        let sink = format!("{scheme}:{}", used.display());
        let err = failure(1, ["read", capture.name(), "-o", &sink]);
        assert!(err.contains("exists and is not empty; name another file, or replace its content with"), "{err}");
        assert_eq!(std::fs::read(&used).unwrap(), b"notes", "{scheme}");
        success(["read", capture.name(), "-q", "--overwrite", "-o", &sink]);
        let written = std::fs::read(&used).unwrap();
        assert!(written.len() > 300 && !written.starts_with(b"notes"), "{scheme}");
    }
    let used = used.to_str().unwrap();
    let err = failure(1, ["read", capture.name(), "--stats", used]);
    assert!(err.contains("not empty"), "{err}");
    success(["read", capture.name(), "-q", "--overwrite", "-o", "json:/dev/null", "--stats", used]);
    testbed::read_ledger(used.as_ref());
    success(["read", capture.name(), "-q", "-o", &format!("json:{}", empty.display())]);
}

#[test]
fn no_command_replaces_a_report_without_overwrite() {
    let capture = small().saved();
    let (used, plots) = (capture.beside("used"), capture.beside("plots"));
    let plot = plots.join("sizes.svg");
    fs::create_dir(&plots).unwrap();
    let [used, plots] = [&used, &plots].map(|path| path.to_str().unwrap());
    let tcp = ["tcp", capture.name(), "-q"];
    let synth = ["synth", "lossy,flows=10,packets=100", "-q", "-o"];
    let commands = [
        [&tcp[..], &["--html", used]].concat(),
        [&tcp[..], &["--csv", used]].concat(),
        [&tcp[..], &["--json", used]].concat(),
        [&tcp[..], &["--stats", used]].concat(),
        [&tcp[..], &["--svg", plots]].concat(),
        [&synth[..], &[used]].concat(),
        [&synth[..], &["/dev/null", "--truth", used]].concat(),
        vec!["bench", "flows", "--quick", "--rounds", "1", "--json", used],
        vec!["bench", "live", "--json", used],
        vec!["plan", "--link", "1G", "--svg", used],
        vec!["doctor", "--record", used],
    ];
    for command in commands {
        for path in [used.as_ref(), &*plot] {
            fs::write(path, "notes").unwrap();
        }
        let err = failure(1, &command);
        assert!(err.contains("exists and is not empty; name another file, or replace its content with"), "{err}");
        for path in [used.as_ref(), &*plot] {
            assert_eq!(fs::read(path).unwrap(), b"notes", "{command:?}");
        }
        if command[0] == "bench" {
            continue;
        }
        // A plan may not fit this machine.
        let (code, _, err) = weir([&command[..], &["--overwrite"]].concat());
        assert!(code == 0 || (code == 2 && command[0] == "plan"), "{command:?}: {err}");
        let written = fs::read(if command.contains(&"--svg") && command[0] == "tcp" { &plot } else { Path::new(used) });
        assert!(!written.unwrap().starts_with(b"notes"), "{command:?}");
    }
}

#[test]
fn an_output_is_private_and_no_symbolic_link() {
    let capture = small().saved();
    let [link, file] = ["link", "file"].map(|name| capture.beside(name));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for command in ["read", "probe"] {
        for scheme in ["table", "csv", "json", "ipfix"] {
            let sink = |path: &Path| format!("{scheme}:{}", path.display());
            // A link to nothing, then one to a file.
            for _ in 0..2 {
                let err = failure(1, [command, "-i", capture.name(), "-o", &sink(&link)]);
                assert!(err.contains("this is a symbolic link; name the file itself"), "{err}");
                assert!(!std::fs::read(&file).is_ok_and(|octets| !octets.is_empty()));
                std::fs::write(&file, "").unwrap();
            }
            std::fs::remove_file(&file).unwrap();
            success([command, "-i", capture.name(), "-q", "-o", &sink(&file)]);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{command} {scheme}");
            std::fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn an_output_cannot_overwrite_an_input() {
    let capture = small().saved();
    let link = capture.beside("link.pcap");
    std::os::unix::fs::symlink(&capture.path, &link).unwrap();
    let (table, csv) = (format!("table:{}", capture.name()), format!("csv:{}", link.display()));
    for (option, output) in [("-o", table.as_str()), ("-o", &csv), ("--stats", capture.name())] {
        let err = failure(1, ["read", capture.name(), option, output]);
        assert!(err.contains("would overwrite it"), "{err}");
    }
    assert_eq!(std::fs::read(&capture.path).unwrap(), small().0);
}

#[test]
fn two_outputs_cannot_share_a_file() {
    let capture = small().saved();
    let output = format!("table:{}", capture.beside("new").display());
    let stats = capture.beside("./new");
    let err = failure(1, arguments!["read", capture, "-o", output, "--stats", stats]);
    assert!(err.contains("mixed") && !stats.exists(), "{err}");
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let read = ["read", "synth:velan,flows=30k,packets=30k"];
    let probe = ["probe", "-i", read[1]];
    let tcp = ["tcp", "synth:lossy,flows=100,packets=5k,seed=5"];
    for (command, options) in [
        (&read[..], &[][..]),
        (&read, &["--top", "0"]),
        (&read, &["-o", "csv:-"]),
        (&read, &["-o", "json:-"]),
        (&read, &["--stats", "-", "-q"]),
        (&probe, &[]),
        (&probe, &["-o", "json:-"]),
        (&probe, &["--check"]),
        (&tcp, &["--top", "0"]),
        (&tcp, &["--json", "-"]),
        (&tcp, &["--explain", "#1"]),
        (&["--help"], &[]),
        (&["fields"], &[]),
        (&["completions", "bash"], &[]),
        (&["man"], &[]),
    ] {
        let (code, err) = weir_with_closed_output(&[command, options].concat());
        // The status of `weir probe` is on standard error.
        let is_quiet = err.lines().all(|line| command[0] == "probe" && line.contains("packets/s"));
        assert!(code == 0 && is_quiet, "{command:?} {options:?}: {code}: {err}");
    }
}

#[test]
fn the_ending_of_a_file_name_selects_its_format() {
    let capture = small().saved();
    for (plain, name) in [("json", "x.json"), ("json", "x.ndjson"), ("csv", "x.csv"), ("ipfix", "x.ipfix")] {
        let [named, with_scheme] = [name, &format!("{plain}.plain")].map(|name| capture.beside(name));
        let sinks = [named.display().to_string(), format!("{plain}:{}", with_scheme.display())];
        let arguments = ["read", capture.name(), "-q", "--overwrite", "-o", &sinks[0], "-o", &sinks[1]];
        assert_eq!(testbed::weir(arguments), (0, String::new(), String::new()));
        let [named, with_scheme] = [&named, &with_scheme].map(|path| std::fs::read(path).unwrap());
        assert!(!named.is_empty() && named.len() == with_scheme.len(), "{name}");
    }
}

#[test]
fn compressed_outputs_have_the_content_of_plain_ones_and_are_continued_after_a_cut() {
    let capture = small().saved();
    testbed::permit_all_users(capture.folder.path());
    for (format, ending) in [("json", "gz"), ("csv", "gz"), ("ipfix", "gz"), ("json", "zst"), ("csv", "zst")] {
        let names = [format!("plain.{format}"), format!("flows.{format}.{ending}")];
        let [plain, path] = names.map(|name| capture.beside(&name));
        let [plain_name, name] = [&plain, &path].map(|path| path.to_str().unwrap());
        let content = || match ending {
            "gz" => testbed::gunzip(&std::fs::read(&path).unwrap()),
            _ => testbed::unzstd(&std::fs::read(&path).unwrap()),
        };
        let arguments = ["read", capture.name(), "-q", "--overwrite", "-o", plain_name, "-o", name];
        assert_eq!(testbed::weir(arguments), (0, String::new(), String::new()));
        let whole = content();
        // Messages of IPFIX have a time of export.
        assert_eq!(whole.len(), std::fs::read(&plain).unwrap().len(), "{format}.{ending}");
        assert!(format == "ipfix" || whole == std::fs::read(&plain).unwrap(), "{format}.{ending}");
        // The probe removes the frame that is not whole, and appends.
        let probe = ["probe", "-i", capture.name(), "-q", "-o", name];
        testbed::permit_all_users(&path);
        assert_eq!(testbed::weir(probe), (0, String::new(), String::new()));
        let twice = content();
        assert!(twice.starts_with(&whole) && twice.len() > whole.len(), "{format}.{ending}");
        let octets = std::fs::read(&path).unwrap();
        std::fs::write(&path, &octets[..octets.len() - 3]).unwrap();
        let (code, _, err) = testbed::weir(probe);
        assert!(code == 0 && err.contains("removed the incomplete last record"), "{err}");
        let again = content();
        assert!(again.starts_with(&whole), "{format}.{ending}");
        // The last frame is the only one of the second run, except with IPFIX.
        assert!(format == "ipfix" || again.len() == twice.len(), "{format}.{ending}");
        // A plain file of that name is not continued.
        std::fs::copy(&plain, &path).unwrap();
        let (code, _, err) = testbed::weir(probe);
        assert!(code == 1 && err.contains("the file exists and has another format"), "{err}");
    }
}

#[test]
fn standard_output_can_be_compressed() {
    let capture = small().saved();
    let read = |sink: &str| {
        let mut command = command();
        command.current_dir(capture.folder.path()).args(["read", "-q", "test.pcap", "-o", sink]);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        output.stdout
    };
    let decompress = [("gz", testbed::gunzip as fn(&[u8]) -> Vec<u8>), ("zst", testbed::unzstd)];
    for (scheme, (ending, decompress)) in [("csv", decompress[0]), ("json", decompress[1])] {
        let compressed = read(&format!("{scheme}:-.{ending}"));
        assert_eq!(decompress(&compressed), read(&format!("{scheme}:-")), "{scheme}");
    }
    assert!(testbed::gunzip(&read("ipfix:-.gz")).len() > 100);
    assert_eq!(std::fs::read_dir(capture.folder.path()).unwrap().count(), 1, "only the capture");
    success(["probe", "--check", "-i", "synth:mix", "-o", "json:-.zst"]);
}

#[test]
fn a_pipe_whose_reader_leaves_before_the_run_begins_does_not_stop_the_run() {
    let capture = small().saved();
    let pipes = ["first", "second"].map(|name| capture.beside(name));
    for pipe in &pipes {
        let path = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with 0 and lives across the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }
    let sinks = pipes.each_ref().map(|pipe| format!("json:{}", pipe.display()));
    let mut child = command().args(["read", "-q", capture.name(), "-o", &sinks[0], "-o", &sinks[1]]).spawn().unwrap();
    drop(std::fs::File::open(&pipes[0]).unwrap());
    let second = std::fs::File::open(&pipes[1]).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > end {
            child.kill().unwrap();
            panic!("waits for another reader of the first pipe");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::io::read_to_string(second).unwrap().lines().count(), 3);
}

#[test]
fn file_names_that_mean_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (sink, reason) in [
        ("csv:127.0.0.1:8O80", "use ipfix+udp://HOST:PORT for a collector, or csv:./127.0.0.1:8O80 for a file"),
        ("ipfix:collector.example:4739", "this is an address; "),
        ("table:[::1]:80", "or table:./[::1]:80 for a file"),
        ("json:-.bz2", "this is not standard output: use - for it, and -.gz or -.zst compressed"),
        ("csv:-.GZ", "this is not standard output: "),
        ("csv:-.gz.zst", "this is not standard output: "),
        ("csv:/dev/stdout.gz", "there is no such device; standard output is -, and compressed -.gz or -.zst"),
        ("csv:flows.csv.xz", "files are compressed with gzip (.gz) or Zstandard (.zst), not .xz"),
        ("csv:flows.csv.gz.zst", "a file is compressed once"),
        (
            "a:b.csv",
            "there is no sink a:; use table:PATH, json:PATH, csv:PATH, ipfix:PATH, parquet:FOLDER, arrow:PATH or json+unix:PATH, or ./a:b.csv for a file",
        ),
    ] {
        let output = command().current_dir(&folder).args(["read", "synth:mix,packets=9", "-o", sink]).output().unwrap();
        let (code, _, err) = text_of(&output);
        assert!(code == 1 && err.contains(reason), "{sink}: {err}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let names = ["csv:./127.0.0.1:80", "./a:b.csv", "csv:./-.csv", "csv:flows-12:30.csv"];
    for sink in names {
        let output =
            command().current_dir(&folder).args(["read", "synth:mix,packets=9", "-q", "-o", sink]).output().unwrap();
        assert_eq!(text_of(&output), (0, String::new(), String::new()), "{sink}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), names.len());
}

#[test]
fn a_collector_that_would_get_each_record_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    for (one, other) in [
        ("ipfix+tcp://127.0.0.1:9", "ipfix+tcp://127.0.0.1:9"),
        ("ipfix+udp://127.0.0.1", "ipfix+udp://127.0.0.1:4739?mtu=1400"),
        ("balance:json+tcp://127.0.0.1:9,json+tcp://127.0.0.1:8", "json+tcp://127.0.0.1:9?retry=5s"),
        ("failover:json+tcp://127.0.0.1:9,json+tcp://127.0.0.1:8", "json+tcp://127.0.0.1:8"),
        ("json+unix:/tmp/a?where=tcp", "json+unix:/tmp/./a?where=tcp"),
        ("clickhouse+http://127.0.0.1/a.b", "clickhouse+http://127.0.0.1:8123/a.b?user=c"),
    ] {
        let expected = "the collector would get each record twice; name it once, or give each a where= or fields= of";
        let err = failure(1, ["read", "no.pcap", "-o", one, "-o", other]);
        assert!(err.contains(expected), "{err}");
        std::fs::write(&file, format!("input = [\"synth:mix\"]\noutput = [\"{one}\", \"{other}\"]\n")).unwrap();
        let err = failure(1, ["probe", "--check", "--config", file.to_str().unwrap()]);
        assert!(err.contains(expected), "{err}");
    }
    for (one, other) in [
        ("ipfix+udp://127.0.0.1:9", "ipfix+udp://127.0.0.1:9?where=tcp"),
        ("json+tcp://127.0.0.1:9?fields=basic", "json+tcp://127.0.0.1:9?fields=tcp"),
        ("ipfix+udp://127.0.0.1:9", "ipfix+udp://127.0.0.1:9?template=full"),
        (
            "balance:ipfix+udp://127.0.0.1:9,ipfix+udp://127.0.0.1:8",
            "balance:ipfix+udp://127.0.0.1:7,ipfix+udp://127.0.0.1:9",
        ),
    ] {
        success(["probe", "--check", "-i", "synth:mix", "-o", one, "-o", other]);
    }
}
