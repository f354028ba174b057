//! Rotated output files: names, times, sizes, files of killed runs, and files that another program
//! moves or removes.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use testbed::namespace::until;
use testbed::running::Running;
use testbed::{
    Pcap, START, arguments, assert_usage_errors, command, gunzip, is_root, ledger_of, number, permit_all_users,
    request_and_response, text_of, unzstd, weir,
};

const FORMATS: [&str; 5] = ["csv", "json", "ipfix", "csv.gz", "ipfix.zst"];

/// Names of the files of a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// Flows of a file, which a reader understands without the other files.
fn flows(path: &Path) -> u64 {
    let (mut octets, mut path) = (fs::read(path).unwrap(), path.to_path_buf());
    let decompress = [("gz", gunzip as fn(&[u8]) -> Vec<u8>), ("zst", unzstd)];
    if let Some((_, decompress)) = decompress.iter().find(|(ending, _)| path.extension().unwrap() == *ending) {
        (octets, path) = (decompress(&octets), path.with_extension(""));
    }
    match path.extension().unwrap().to_str().unwrap() {
        "ipfix" => {
            let mut decoder = testbed::decode::Decoder::new();
            let records = decoder.file(&octets).len() as u64;
            assert_eq!(decoder.messages[0].sequence, 0, "{}", path.display());
            records
        }
        "json" => String::from_utf8(octets).unwrap().lines().map(|line| drop(json(line))).count() as u64,
        _ => {
            let text = String::from_utf8(octets).unwrap();
            let (header, rows) = text.split_once('\n').unwrap();
            assert!(header.starts_with("start_time,end_time,") && text.ends_with('\n'), "{text}");
            let columns = header.split(',').count();
            rows.lines().inspect(|row| assert_eq!(row.split(',').count(), columns, "{row}")).count() as u64
        }
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Flows of all files of a folder, none of which has a temporary name.
fn all_flows(folder: &Path) -> u64 {
    let names = names(folder);
    assert!(names.iter().all(|name| !name.ends_with(".part")), "{names:?}");
    names.iter().map(|name| flows(&folder.join(name))).sum()
}

/// A folder in which the user `nobody` may create files.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    folder
}

fn sink(folder: &Path, format: &str, name: &str, rotate: &str) -> String {
    format!("{}/{name}.{format}?rotate={rotate}", folder.display())
}

#[test]
fn a_capture_is_rotated_by_the_times_of_its_records() {
    let minute = |capture: Pcap, at: u32| {
        request_and_response(at as u16).iter().fold(capture, |capture, frame| capture.frame(START + 60 * at, 0, frame))
    };
    // Idle flows end when the next packet is 2 minutes later.
    let capture = [0, 2, 4, 6, 16, 18].into_iter().fold(Pcap::new(), minute).saved();
    for format in FORMATS {
        let folder = folder();
        let sink = sink(folder.path(), format, "f-%Y%m%d-%H%M", "5m");
        let expected =
            |ending: &str| ["1200", "1205", "1215"].map(|time| format!("f-20261120-{time}{ending}.{format}"));
        let (code, err, ledger) = ledger_of(arguments!["read", capture, "-q", "-o", sink]);
        assert_eq!((code, err.as_str()), (0, ""), "{format}");
        let found = || names(folder.path()).into_iter().map(|name| (name.clone(), flows(&folder.path().join(name))));
        let first = expected("");
        assert_eq!(found().collect::<Vec<_>>(), first.clone().into_iter().zip([3, 1, 2]).collect::<Vec<_>>());
        assert_eq!(number(&ledger["sinks"][0]["exported"]["flows"]), 6, "{ledger}");
        // Files that exist stay as they are.
        let before = fs::read(folder.path().join(&first[0])).unwrap();
        for _ in 0..2 {
            assert_eq!(weir(arguments!["read", capture, "-q", "-o", sink]).0, 0);
        }
        assert_eq!(fs::read(folder.path().join(&first[0])).unwrap(), before);
        let mut all: Vec<_> = ["", "-1", "-2"].iter().flat_map(|number| expected(number)).collect();
        all.sort();
        assert_eq!(names(folder.path()), all);
        assert_eq!(all_flows(folder.path()), 18);
    }
}

#[test]
fn files_end_at_a_size() {
    for format in FORMATS {
        let folder = folder();
        let sink = sink(folder.path(), format, "%S", "64KiB");
        let (code, err, ledger) =
            ledger_of(["read", "-i", "synth:mix,flows=10k,packets=100k", "-q", "--idle", "1s", "-o", &sink]);
        assert_eq!((code, err.as_str()), (0, ""), "{format}");
        let exported = number(&ledger["sinks"][0]["exported"]["flows"]);
        assert_eq!((all_flows(folder.path()), number(&ledger["flows"]["created"])), (exported, exported), "{format}");
        let sizes: Vec<_> =
            names(folder.path()).iter().map(|name| fs::metadata(folder.path().join(name)).unwrap().len()).collect();
        let large = sizes.iter().filter(|&&size| size >= 64 << 10).count();
        assert!(sizes.len() >= 3 && large + 1 >= sizes.len(), "{format}: {sizes:?}");
        assert!(sizes.iter().all(|&size| size < 192 << 10), "{format}: {sizes:?}");
        assert_eq!(number(&ledger["sinks"][0]["octets"]), sizes.iter().sum::<u64>(), "{format}");
    }
}

/// A probe that reads a capture from a pipe, with JSON to standard output besides.
struct Probe {
    running: Running,
    pipe: ChildStdin,
    flows: u32,
}

impl Probe {
    fn start(sinks: &[String]) -> Self {
        let mut command = command();
        command.stdin(Stdio::piped());
        let mut arguments = vec!["probe", "-i", "-", "--flows", "10k", "--interval", "200ms", "--idle", "1s"];
        arguments.extend(["--log-level", "debug", "--timing", "sink_retry=50ms,sink_tick=50ms"]);
        sinks.iter().for_each(|sink| arguments.extend(["-o", sink]));
        let mut running = Running::start_in(command, &arguments);
        let mut pipe = running.process.0.stdin.take().unwrap();
        pipe.write_all(&Pcap::new().0).unwrap();
        until("the sinks are open", || running.times("sink opened") == sinks.len());
        Self { running, pipe, flows: 0 }
    }

    /// Sends flows, which end those of 10 s of capture time before.
    fn send(&mut self, count: u32) {
        for flow in self.flows..self.flows + count {
            let frames = request_and_response(flow as u16);
            let add = |pcap: Pcap, frame: &Vec<u8>| pcap.frame(START + flow / 10, 0, frame);
            self.pipe.write_all(&frames.iter().fold(Pcap(Vec::new()), add).0).unwrap();
        }
        self.flows += count;
    }

    fn send_until(&mut self, what: &str, mut holds: impl FnMut(&Running) -> bool) {
        until(what, || {
            self.send(10);
            holds(&self.running)
        });
    }

    /// Ends the input: standard error and the ledger.
    fn end(self, expected: i32) -> (String, Value) {
        drop(self.pipe);
        let (code, err, _, ledger) = self.running.wait();
        assert_eq!(code, expected, "{err}");
        (err, ledger)
    }
}

fn exported(ledger: &Value, sink: usize) -> u64 {
    number(&ledger["sinks"][sink]["exported"]["flows"])
}

#[test]
fn a_probe_is_rotated_by_the_systems_clock_also_without_records() {
    let folders = FORMATS.map(|_| folder());
    let sinks: Vec<_> = FORMATS
        .iter()
        .zip(&folders)
        .map(|(format, folder)| sink(folder.path(), format, "f-%Y%m%d-%H%M%S", "1s"))
        .collect();
    let mut probe = Probe::start(&sinks);
    let ended =
        |folder: &tempfile::TempDir| names(folder.path()).iter().filter(|name| !name.ends_with(".part")).count();
    probe.send_until("two files have ended", |_| folders.iter().all(|folder| ended(folder) >= 2));
    // No flow comes: the last file ends, and empty ones do not stay.
    until("the files with the last records have ended, and the next ones are empty", || {
        folders.iter().all(|folder| {
            let mut unfinished = names(folder.path()).into_iter().filter(|name| name.ends_with(".part"));
            let part = unfinished.next().and_then(|name| fs::metadata(folder.path().join(name)).ok());
            part.is_some_and(|part| part.len() == 0) && unfinished.next().is_none()
        })
    });
    for folder in &folders {
        let names = names(folder.path());
        let file = fs::metadata(folder.path().join(&names[0])).unwrap();
        assert_eq!(file.permissions().mode() & 0o137, 0, "{names:?}");
        assert!(!is_root() || file.uid() == 65534);
    }
    let all = u64::from(probe.flows);
    let (err, ledger) = probe.end(0);
    for (number, folder) in folders.iter().enumerate() {
        assert_eq!((all_flows(folder.path()), exported(&ledger, number)), (all, all), "{err}");
    }
}

#[test]
fn the_files_of_a_killed_probe_are_ended_by_the_next_one() {
    for format in FORMATS {
        let folder = folder();
        let sinks = [sink(folder.path(), format, "f-%Y%m%d", "1d")];
        let mut probe = Probe::start(&sinks);
        let part = folder.path().join(&names(folder.path())[0]);
        assert!(part.to_str().unwrap().ends_with(".part"));
        probe.send_until("records are written", |_| fs::metadata(&part).unwrap().len() > 10_000);
        probe.running.process.stop(libc::SIGKILL);
        let whole = fs::read(&part).unwrap();
        fs::File::options().append(true).open(&part).unwrap().write_all(&whole[..30]).unwrap();
        // A file of another program with such a name.
        fs::write(folder.path().join(format!("f-20200101.{format}.part")), "other content").unwrap();
        let mut next = Probe::start(&sinks);
        next.running.wait_for("ended the file of an earlier run");
        let err = next.running.stderr();
        assert!(err.contains("cannot be ended, so it is left as it is"), "{err}");
        let file = part.with_extension("");
        let ended = fs::read(&file).unwrap();
        // The signal may end the process in the middle of a write.
        assert!(whole.starts_with(&ended) && flows(&file) > 0, "{} of {} octets: {err}", ended.len(), whole.len());
        let name = |number| file.to_str().unwrap().replace(&format!(".{format}"), &format!("{number}.{format}"));
        // A third one does not touch what the second one writes.
        let third = Probe::start(&sinks);
        let part = name("-1") + ".part";
        next.send_until("records are written", |_| fs::metadata(&part).unwrap().len() > 10_000);
        third.end(0);
        let (err, ledger) = next.end(0);
        fs::remove_file(folder.path().join(format!("f-20200101.{format}.part"))).unwrap();
        assert_eq!(flows(Path::new(&name("-1"))), exported(&ledger, 0), "{err}");
        assert_eq!(names(folder.path()).len(), 2, "{err}");
    }
}

#[test]
fn a_file_that_was_moved_is_opened_again_by_its_name_after_a_signal() {
    let folder = folder();
    let paths = FORMATS.map(|format| folder.path().join(format!("flows.{format}")));
    let sinks: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut probe = Probe::start(&sinks);
    probe.send_until("records are written", |_| paths.iter().all(|path| fs::metadata(path).unwrap().len() > 10_000));
    // Without a moved file, nothing happens.
    probe.running.signal(libc::SIGHUP);
    probe.running.wait_for("files that were moved are opened again");
    let old: Vec<PathBuf> =
        paths.iter().map(|path| path.with_file_name(format!("old-{}", path.file_name().unwrap().display()))).collect();
    paths.iter().zip(&old).for_each(|(path, old)| fs::rename(path, old).unwrap());
    probe.running.signal(libc::SIGHUP);
    probe.send_until("new files have records", |_| {
        paths.iter().all(|path| fs::metadata(path).is_ok_and(|file| file.len() > 10_000))
    });
    let moved = "file was moved, its name is a new file now";
    until("the log says so of each", || probe.running.times(moved) == FORMATS.len());
    let all = u64::from(probe.flows);
    let (err, ledger) = probe.end(0);
    for number in 0..FORMATS.len() {
        assert!(flows(&old[number]) > 0, "{err}");
        assert_eq!((flows(&old[number]) + flows(&paths[number]), exported(&ledger, number)), (all, all), "{err}");
    }
}

#[test]
fn a_file_that_was_removed_is_created_again_with_a_warning() {
    let folder = folder();
    let paths = FORMATS.map(|format| folder.path().join(format!("flows.{format}")));
    let sinks: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut probe = Probe::start(&sinks);
    probe.send_until("records are written", |_| paths.iter().all(|path| fs::metadata(path).unwrap().len() > 10_000));
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    probe.send_until("new files have records", |_| {
        paths.iter().all(|path| fs::metadata(path).is_ok_and(|file| file.len() > 10_000))
    });
    let removed = "another program has removed the file with its records";
    until("the log says so of each", || probe.running.times(removed) >= FORMATS.len());
    let (err, _) = probe.end(0);
    assert_eq!(err.matches(removed).count(), FORMATS.len(), "{err}");
    paths.iter().for_each(|path| assert!(flows(path) > 0, "{}: {err}", path.display()));
}

#[test]
fn records_in_a_folder_that_vanishes_are_lost_and_counted() {
    let (gone, good) = (folder(), folder());
    // The file with records does not end by itself during the test.
    let sinks = [(&gone, "f-%Y%m%d", "1d"), (&good, "f-%Y%m%d-%H%M%S", "1s")]
        .map(|(folder, name, time)| sink(folder.path(), "csv", name, time));
    let mut probe = Probe::start(&sinks);
    let part = gone.path().join(&names(gone.path())[0]);
    probe.send_until("the file has records", |_| fs::metadata(&part).unwrap().len() > 0);
    fs::remove_dir_all(gone.path()).unwrap();
    probe.send_until("the log says so", |probe| {
        probe.times("another program has removed the file and its records") > 0
            && probe.times("file cannot be written, trying again") > 0
    });
    let all = u64::from(probe.flows);
    let (err, ledger) = probe.end(2);
    let lost = number(&ledger["sinks"][0]["lost"]["write_failed"]["flows"]);
    assert!(err.contains("No such file or directory") && lost > 0, "{err}");
    assert_eq!((exported(&ledger, 0) + lost, exported(&ledger, 1)), (all, all), "{err}");
    assert_eq!(all_flows(good.path()), all, "{err}");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = command();
    command.args(["read", "-i", "synth:mix,packets=9", "-q", "-o", &sink(folder.path(), "csv", "f-%Y%m%d-%H", "1h")]);
    if is_root() {
        command.uid(65534).gid(65534);
    } else {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: the user `nobody` cannot execute the binary: {error}"),
    };
    let (code, _, err) = text_of(&output);
    assert_eq!((code, err.contains("Permission denied")), (1, true), "{err}");
}

#[test]
fn invalid_rotations_are_refused_with_a_sentence() {
    let rotate =
        "rotate must be a time from 1s, such as 5m, 1h or 1d, or a size from 64KiB, such as 100MB or 1GiB, not";
    for command in ["read", "probe"] {
        let refused = |sink: &str, reason: &str| {
            assert_usage_errors(&[(&[command, "-i", "synth:mix,packets=9", "-q", "-o", sink], reason)]);
        };
        refused("csv:flows.csv?rotate=5m", "all files would have this name; rotate= needs the time in it");
        refused("csv:100%%.csv?rotate=1GiB", "all files would have this name");
        refused("csv:f-%H.csv", "%H in the name is the time of a rotated file; add for example ?rotate=1h");
        refused("json:f-%Q.json?rotate=5m", "%Q is not a time; use %Y, %m, %d, %H, %M, %S or %j");
        for value in ["0", "0s", "5", "soon", "1KiB", ""] {
            refused(&format!("ipfix:f-%H.ipfix?rotate={value}"), &format!("{rotate} {value:?}"));
        }
        refused("csv:%Y/f-%H.csv?rotate=5m", "the folder of rotated files cannot change");
        for (name, rotate, needed) in [
            ("flows-%M%S", "1h", "%Y%m%d-%H"),
            ("flows-%H", "1h", "%Y%m%d-%H"),
            ("flows-%H", "1d", "%Y%m%d"),
            ("flows-%Y%m%d-%H", "5m&rotate=1GiB", "%Y%m%d-%H%M"),
        ] {
            let reason =
                format!("files of different times would have this name; with this rotate= it needs {needed}, ");
            refused(&format!("csv:{name}.csv?rotate={rotate}"), &reason);
        }
        refused("csv:-?rotate=5m", "standard output cannot be rotated");
        refused("csv:/nonexistent/f-%Y%j-%H%M.csv?rotate=5m", "No such file or directory");
        refused("csv:f-%H.csv?rotate=5m&color=red", "\"color=red\" is not a setting of a file");
        refused("table:f-%H.txt?rotate=5m", "a table or a view is written once, at the end; remove rotate=");
    }
}
