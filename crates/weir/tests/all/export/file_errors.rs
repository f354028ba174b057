//! Output files that cannot be written for a while: a full disk, a limit of file sizes, a defect.

use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use testbed::namespace::until;
use testbed::running::events;
use testbed::{
    Pcap, START, command, is_root, ledger_of, number, permit_all_users, read_ledger, request_and_response, signal,
    small, text_of,
};

const FAILS: &str = "file cannot be written, trying again, its records are lost until then";
const WORKS: &str = "file can be written again";
const LOST: &str = "records are lost";
const EXPORTED: &str = "records are exported";
const FORMATS: [&str; 3] = ["json", "csv", "ipfix"];

fn file_size_limit(bytes: u64) -> libc::rlimit {
    libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY }
}

/// Limits the size of files that a command writes.
pub(super) fn limit_file_size(command: &mut Command, bytes: u64) {
    let limit = file_size_limit(bytes);
    // SAFETY: the call reads one limit.
    let set = move || match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec, it only makes this call.
    unsafe { command.pre_exec(set) };
}

/// A probe that meters a pipe and has one file.
pub(super) struct Probe {
    child: Child,
    input: ChildStdin,
    flows: u32,
    log: Arc<Mutex<String>>,
}

impl Probe {
    pub(super) fn start(sink: &str, stats: &Path, limit_bytes: u64) -> Self {
        Self::start_in(command(), sink, stats, limit_bytes)
    }

    /// Starts it through a command that ends with its name.
    fn start_in(mut command: Command, sink: &str, stats: &Path, limit_bytes: u64) -> Self {
        command.args(["probe", "-i", "-", "--idle", "1s", "--quiet", "--log-level", "info", "-o", sink]);
        // What fails is tried again soon, and logged again after the test.
        command.args(["--timing", "sink_retry=50ms,sink_log=1h", "--status", "json"]);
        if is_root() {
            // The system permits to change the limits of processes of the same user.
            command.args(["--user", "root"]);
        }
        command.arg("--stats").arg(stats).stdin(Stdio::piped()).stderr(Stdio::piped());
        limit_file_size(&mut command, limit_bytes);
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&Pcap::new().0).unwrap();
        let (mut stderr, log) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let text = log.clone();
        thread::spawn(move || {
            let mut part = [0; 1000];
            while let Ok(count @ 1..) = stderr.read(&mut part) {
                text.lock().unwrap().push_str(std::str::from_utf8(&part[..count]).unwrap());
            }
        });
        Self { child, input, flows: 0, log }
    }

    /// Sends packets of new flows, 100 of them per second of capture time.
    pub(super) fn feed(&mut self, flows: u32) {
        for _ in 0..flows {
            let (seconds, part) = (self.flows / 100, self.flows % 100);
            let [request, response] = request_and_response(self.flows as u16);
            let frames = Pcap(Vec::new()).frame(START + seconds, 10_000 * part, &request);
            let frames = frames.frame(START + seconds, 10_000 * part + 1, &response);
            self.input.write_all(&frames.0).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
            self.flows += 1;
        }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Sends packets until the log has a text.
    pub(super) fn feed_until(&mut self, text: &str) {
        until(text, || {
            self.feed(20);
            self.log().contains(text)
        });
    }

    /// Sends packets until the file has more lost or exported records than these: their number.
    fn feed_until_more(&mut self, what: &str, than: u64) -> u64 {
        let mut number = 0;
        until(what, || {
            self.feed(20);
            number = self.count_of(what);
            number > than
        });
        number
    }

    /// Records of the file that were lost or exported so far, by its ledger.
    fn count_of(&self, what: &str) -> u64 {
        let ledgers = || events(&self.log(), "ledger");
        let before = ledgers().len();
        signal(&self.child, libc::SIGUSR1);
        until("the ledger is printed", || ledgers().len() > before);
        let sink = &ledgers().pop().unwrap()["ledger"]["sinks"][0];
        number(&if what == LOST { &sink["lost"]["write_failed"] } else { &sink["exported"] }["flows"])
    }

    pub(super) fn set_file_size_limit(&self, bytes: u64) {
        let limit = file_size_limit(bytes);
        // SAFETY: the call reads one limit.
        let result = unsafe {
            libc::prlimit(self.child.id() as i32, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    /// Ends the input: the number of flows, exit code and log.
    pub(super) fn finish(mut self) -> (u64, Option<i32>, String) {
        drop(self.input);
        let code = self.child.wait().unwrap().code();
        let log = self.log.lock().unwrap().clone();
        (u64::from(self.flows), code, log)
    }
}

/// Records in a file, which has only whole ones. A reader of an IPFIX file misses none, counted from
/// its first message.
fn whole_records(format: &str, path: &Path) -> u64 {
    let mut octets = fs::read(path).unwrap();
    if path.extension().is_some_and(|ending| ending == "gz") {
        octets = testbed::gunzip(&octets);
    }
    if format == "ipfix" {
        let mut decoder = testbed::decode::Decoder::new();
        let records = decoder.file(&octets).len() as u64;
        let mut sequence = decoder.messages[0].sequence;
        for message in &decoder.messages {
            assert_eq!(message.sequence, sequence);
            sequence += message.data_records;
        }
        return records;
    }
    let text = String::from_utf8(octets).unwrap();
    assert!(text.ends_with('\n'));
    let mut lines = text.lines();
    if format == "json" {
        return lines.inspect(|line| drop(serde_json::from_str::<Value>(line).unwrap())).count() as u64;
    }
    let header = lines.next().unwrap();
    assert!(header.starts_with("start_time,end_time,"), "{header}");
    let columns = header.split(',').count();
    lines.inspect(|line| assert!(line.starts_with("20") && line.split(',').count() == columns, "{line}")).count() as u64
}

/// Every flow is exported or lost, and the log says so once: the number of exported flows.
fn assert_accounted(stats: &Path, (flows, code, log): (u64, Option<i32>, String)) -> u64 {
    let ledger = read_ledger(stats);
    let sink = &ledger["sinks"][0];
    let (exported, lost) = (number(&sink["exported"]["flows"]), number(&sink["lost"]["write_failed"]["flows"]));
    assert_eq!((code, exported + lost), (Some(2), flows), "{log}: {ledger}");
    assert!(lost > 0 && exported > 0, "{ledger}");
    let messages = [FAILS, WORKS].map(|message| log.matches(message).count());
    assert_eq!((messages, log.contains("sink failed")), ([1, 1], false), "{log}");
    exported
}

#[test]
fn a_file_that_reaches_the_limit_of_file_sizes_is_continued_when_the_limit_is_raised() {
    // With the smaller limit, not even the header or the first template fits.
    for limit in [10, 30_000] {
        thread::scope(|scope| {
            for format in FORMATS {
                scope.spawn(move || {
                    let folder = tempfile::tempdir().unwrap();
                    let [path, stats] = ["flows", "ledger"].map(|name| folder.path().join(name));
                    let mut probe = Probe::start(&format!("{format}:{}", path.display()), &stats, limit);
                    probe.feed_until(FAILS);
                    assert!(whole_records_or_none(format, &path) <= limit / 100);
                    probe.set_file_size_limit(1 << 30);
                    probe.feed_until(WORKS);
                    probe.feed(300);
                    // The second time shortly after is not logged.
                    let lost = probe.count_of(LOST);
                    probe.set_file_size_limit(10);
                    probe.feed_until_more(LOST, lost);
                    probe.set_file_size_limit(1 << 30);
                    let exported = probe.count_of(EXPORTED);
                    probe.feed_until_more(EXPORTED, exported);
                    assert_eq!(assert_accounted(&stats, probe.finish()), whole_records(format, &path), "{format}");
                });
            }
        });
    }
}

fn whole_records_or_none(format: &str, path: &Path) -> u64 {
    if fs::metadata(path).unwrap().len() == 0 { 0 } else { whole_records(format, path) }
}

/// A command that runs Weir. Its second to fourth write to a file fail. Prints the reason and returns
/// `None` where that is not possible.
fn failing_writes(path: &Path, error: &str) -> Option<Command> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-o", "/dev/null", "-e", "trace=write,writev,pwrite64", "-P"]);
    strace.arg(path).arg("-e").arg(format!("inject=write,writev,pwrite64:error={error}:when=2..4"));
    let mut probing = Command::new("strace");
    match probing.args(["-f", "-o", "/dev/null", "true"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(_) => {
            eprintln!("SKIPPED: tracing a process is not permitted here");
            return None;
        }
        Err(_) => {
            eprintln!("SKIPPED: there is no strace (make test installs it)");
            return None;
        }
    }
    strace.arg(env!("CARGO_BIN_EXE_weir"));
    Some(strace)
}

#[test]
fn a_file_is_continued_after_input_and_output_errors_and_an_exhausted_quota() {
    for (error, message) in [("EIO", "Input/output error"), ("EDQUOT", "Disk quota exceeded")] {
        thread::scope(|scope| {
            for (format, name) in FORMATS.map(|format| (format, "flows")).into_iter().chain([("csv", "flows.gz")]) {
                scope.spawn(move || {
                    let folder = tempfile::tempdir().unwrap();
                    let [path, stats] = [name, "ledger"].map(|name| folder.path().join(name));
                    fs::write(&path, "").unwrap();
                    let Some(strace) = failing_writes(&path, error) else { return };
                    let mut probe = Probe::start_in(strace, &format!("{format}:{}", path.display()), &stats, 1 << 30);
                    probe.feed_until(FAILS);
                    assert!(probe.log().contains(message), "{}", probe.log());
                    probe.feed_until(WORKS);
                    probe.feed(300);
                    assert_eq!(assert_accounted(&stats, probe.finish()), whole_records(format, &path), "{format}");
                });
            }
        });
    }
}

/// Mounts a file system of this size that only this thread and its processes see. Prints the reason
/// and returns false where that is not permitted.
pub fn mount_small_disk(path: &Path, kilobytes: u32) -> bool {
    let target = CString::new(path.to_str().unwrap()).unwrap();
    let size = CString::new(format!("size={kilobytes}k,mode=0777")).unwrap();
    // SAFETY: the strings end with 0 and live across the calls. The first call concerns this thread
    // alone, the others the mounts that only it sees.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(c"".as_ptr(), c"/".as_ptr(), c"".as_ptr(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null())
                == 0
            && libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast()) == 0
    };
    if !mounted {
        eprintln!("SKIPPED: no mount namespace with a tmpfs: {}", io::Error::last_os_error());
    }
    mounted
}

#[test]
fn a_file_on_a_full_disk_is_continued_when_there_is_space() {
    for format in FORMATS {
        let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if !mount_small_disk(disk.path(), 1024) {
            return;
        }
        let (stats, path, filler) =
            (folder.path().join("ledger"), disk.path().join("flows"), disk.path().join("filler"));
        fs::write(&filler, vec![0; 960 << 10]).unwrap();
        let mut probe = Probe::start(&format!("{format}:{}", path.display()), &stats, 1 << 30);
        probe.feed_until(FAILS);
        assert!(probe.log().contains("No space left on device"), "{}", probe.log());
        fs::remove_file(&filler).unwrap();
        probe.feed_until(WORKS);
        assert_eq!(assert_accounted(&stats, probe.finish()), whole_records(format, &path), "{format}");
    }
}

#[test]
fn a_capture_whose_records_fill_the_disk_leaves_whole_records() {
    for (format, name) in FORMATS.map(|format| (format, "flows")).into_iter().chain([("csv", "flows.gz")]) {
        let disk = tempfile::tempdir().unwrap();
        if !mount_small_disk(disk.path(), 256) {
            return;
        }
        let path = disk.path().join(name);
        let sink = format!("{format}:{}", path.display());
        let (code, err, ledger) = ledger_of(["read", "synth:velan,flows=20k,packets=20k", "-q", "-o", &sink]);
        assert_eq!((code, err.matches("No space left").count()), (2, 1), "{err}");
        let sink = &ledger["sinks"][0];
        let (exported, lost) = (number(&sink["exported"]["flows"]), number(&sink["lost"]["write_failed"]["flows"]));
        assert!(exported > 0 && lost > 0 && ledger["balanced"] == true, "{ledger}");
        assert_eq!(whole_records(format, &path), exported, "{format}:{name}");
    }
}

#[test]
fn a_disk_that_fills_while_files_are_rotated_loses_no_record_that_was_written() {
    for format in FORMATS {
        let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if !mount_small_disk(disk.path(), 1024) {
            return;
        }
        let (stats, filler) = (folder.path().join("ledger"), disk.path().join("filler"));
        fs::write(&filler, vec![0; 900 << 10]).unwrap();
        let sink = format!("{format}:{}/f-%Y%m%d-%H%M%S.{format}?rotate=1s", disk.path().display());
        let mut probe = Probe::start(&sink, &stats, 1 << 30);
        probe.feed_until(FAILS);
        assert!(probe.log().contains("No space left on device"), "{}", probe.log());
        fs::remove_file(&filler).unwrap();
        probe.feed_until(WORKS);
        let exported = assert_accounted(&stats, probe.finish());
        let files = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.inspect(|path| assert!(path.extension().unwrap() == format, "{path:?}")).collect();
        assert_eq!(files.iter().map(|path| whole_records(format, path)).sum::<u64>(), exported, "{files:?}");
    }
}

#[test]
fn a_file_that_was_emptied_because_the_disk_was_full_begins_as_a_new_one() {
    for format in FORMATS {
        let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if !mount_small_disk(disk.path(), 256) {
            return;
        }
        let (stats, path) = (folder.path().join("ledger"), disk.path().join("flows"));
        let mut probe = Probe::start(&format!("{format}:{}", path.display()), &stats, 1 << 30);
        probe.feed_until(FAILS);
        fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        probe.feed_until(WORKS);
        // Some records of before are gone.
        assert!(assert_accounted(&stats, probe.finish()) > whole_records(format, &path), "{format}");
    }
}

#[test]
fn a_view_that_does_not_fit_ends_with_a_whole_row() {
    let folder = tempfile::tempdir().unwrap();
    for (name, has_rows) in [("view.csv", true), ("view.json", true), ("view.csv.gz", false)] {
        let [whole, path] = ["whole", "cut"].map(|folder_name| {
            let folder = folder.path().join(folder_name);
            let _ = fs::create_dir(&folder);
            folder.join(name)
        });
        let run = |path: &Path, limit| {
            let mut command = command();
            command.args([
                "read",
                "synth:velan,flows=2k,packets=20k",
                "-q",
                "--by",
                "src_ip,src_port,dst_ip,dst_port",
                "-o",
            ]);
            limit_file_size(command.arg(path), limit);
            text_of(&command.output().unwrap())
        };
        assert_eq!(run(&whole, 1 << 30).0, 0, "{name}");
        let (code, _, err) = run(&path, 20_001);
        let [whole, cut] = [whole, path].map(|path| fs::read(path).unwrap());
        assert!(code == 2 && err.contains("File too large") && err.contains("lost, write_failed"), "{name}: {err}");
        assert!(cut.is_empty() || cut.ends_with(b"\n") && whole.starts_with(&cut), "{name}: {} octets", cut.len());
        assert_eq!(cut.len() > 19_000, has_rows, "{name}: {} octets", cut.len());
    }
}

#[test]
fn a_table_or_ledger_that_does_not_fit_is_not_written_in_part() {
    let capture = small().saved();
    let [table, stats] = ["table", "ledger"].map(|name| capture.beside(name));
    permit_all_users(capture.folder.path());
    let run = |limit| {
        let mut command = command();
        command.args(["probe", "-q", "-i", capture.name(), "-o", &format!("table:{}", table.display())]);
        limit_file_size(command.arg("--stats").arg(&stats), limit);
        text_of(&command.output().unwrap())
    };
    let (code, _, err) = run(1 << 20);
    assert_eq!((code, err.as_str()), (0, ""));
    read_ledger(&stats);
    let before = fs::read_to_string(&table).unwrap();
    let (code, _, err) = run(before.len() as u64 + 50);
    assert_eq!(code, 2, "{err}");
    assert_eq!(fs::read_to_string(&table).unwrap(), before);
    assert_eq!(fs::metadata(&stats).unwrap().len(), 0);
    // The ledger is printed instead.
    for text in ["cannot write the ledger", "File too large", "lost, write_failed", "the ledger balances"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}
