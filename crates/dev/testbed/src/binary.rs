//! Runs of the binary `weir`, and what they need: its path, exit codes, signals, programs beside it.

use crate::namespace::until;
use crate::{JsonOutput, read_ledger};
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Command line arguments of different string types, as an array of `&OsStr`.
#[macro_export]
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { [$(std::ffi::OsStr::new(&$argument)),*] };
}

/// The content of all members of a gzip file.
pub fn gunzip(octets: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(octets), &mut content).unwrap();
    content
}

/// The content of all frames of a Zstandard file.
pub fn unzstd(mut octets: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while !octets.is_empty() {
        let mut frame = ruzstd::decoding::StreamingDecoder::new(&mut octets).unwrap();
        std::io::Read::read_to_end(&mut frame, &mut content).unwrap();
    }
    content
}

/// Path of the binary. Cargo builds it before the tests of the crate `weir`, two folders above them.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("weir")
}

/// The binary, without standard input.
pub fn command() -> Command {
    let mut command = Command::new(binary());
    command.stdin(Stdio::null());
    command
}

/// A command for which the kernel refuses some system calls: each with the family of a socket, or with any arguments.
pub fn refused(calls: &[(i64, Option<i32>)], errno: i32) -> Command {
    let rule = |family: i32| {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family as u64).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    let mut rules = BTreeMap::<i64, Vec<SeccompRule>>::new();
    for (call, family) in calls {
        rules.entry(*call).or_default().extend(family.map(rule));
    }
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), architecture);
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    let mut command = command();
    let restrict = move || seccompiler::apply_filter(&program).map_err(io::Error::other);
    // SAFETY: between fork and exec, it only makes two system calls.
    unsafe { command.pre_exec(restrict) };
    command
}

/// Runs the binary: exit code, standard output and standard error.
pub fn weir<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> (i32, String, String) {
    text_of(&command().args(arguments).output().unwrap())
}

/// Runs the binary, which succeeds and logs nothing: standard output.
pub fn success<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> String {
    let (code, out, err) = weir(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// Runs the binary, which fails with this exit code and prints no result: standard error.
pub fn failure<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(expected: i32, arguments: I) -> String {
    let (code, out, err) = weir(arguments);
    assert_eq!((code, out.as_str()), (expected, ""), "{err}");
    err
}

/// Runs the binary with each of these arguments: exit code 1, and an error with the reason.
pub fn assert_usage_errors(cases: &[(&[&str], &str)]) {
    for (arguments, reason) in cases {
        let err = failure(1, *arguments);
        assert!(err.contains(reason), "{arguments:?}: {err}");
    }
}

/// Runs a command with `--stats`: exit code, standard error, and the ledger, which balances.
pub fn ledger_of<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> (i32, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let output = command().args(arguments).arg("--stats").arg(&stats).output().unwrap();
    let (code, _, err) = text_of(&output);
    assert!(stats.exists(), "{code}: {err}");
    (code, err, read_ledger(&stats))
}

/// Runs `weir read` or `weir probe` with a JSON sink: exit code, standard error, records, ledger.
pub fn metered(arguments: &[&str]) -> (i32, String, Vec<Value>, Value) {
    let output = JsonOutput::new();
    let (code, err, ledger) = ledger_of(arguments.iter().chain(&["-o", &output.sink]));
    (code, err, output.flows(), ledger)
}

/// Runs the binary with standard input: exit code, standard output and standard error.
pub fn weir_with_input<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
    arguments: I,
    input: &[u8],
) -> (i32, String, String) {
    let mut command = command();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    text_of(&child.wait_with_output().unwrap())
}

/// Runs the binary with a closed standard output: exit code and standard error.
pub fn weir_with_closed_output(arguments: &[&str]) -> (i32, String) {
    let mut child = command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    (code, err)
}

/// Exit code, standard output and standard error of a run that did not panic.
pub fn text_of(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().unwrap_or_else(|| panic!("ended by a signal: {err}")), out, err)
}

/// Sends a signal to a child process.
pub fn signal(child: &Child, signal: i32) {
    // SAFETY: the test started the process and has not waited for it yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Waits until a child process handles SIGINT.
pub fn wait_for_handler_of_sigint(child: &Child) {
    // Bit 1 is SIGINT.
    let has_handler = |status: String| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        caught.is_some_and(|caught| u64::from_str_radix(caught, 16).unwrap() & 2 != 0)
    };
    until("it handles SIGINT", || {
        has_handler(std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap())
    });
}

/// Waits until a process that is still running does nothing in its first thread, at many looks one after the
/// other: it waits for room in an output, and looks now and then whether there is some.
pub fn until_it_sleeps(child: &mut Child) {
    const LOOKS: u32 = 20;
    let sleeps = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_futex].map(|number| number.to_string());
    let call = format!("/proc/{}/syscall", child.id());
    let mut looks = 0;
    until("the process sleeps", || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        let text = std::fs::read_to_string(&call).unwrap();
        let sleeps = sleeps.iter().any(|call| text.split(' ').next() == Some(call));
        looks = if sleeps { looks + 1 } else { 0 };
        looks >= LOOKS
    });
}

/// Waits until a child process has opened its inputs and outputs: from then on two signals at once are one.
pub fn wait_for_thread_of_signals(child: &Child) {
    crate::namespace::until("the thread that waits for signals waits", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        // `PID (NAME) STATE ...`
        let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        tasks.flatten().any(|task| stat(task).contains(" (weir-signals) S "))
    });
}

pub fn is_root() -> bool {
    // SAFETY: the call takes no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Whether a program is on `PATH`. Prints that the test is skipped if not.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: {program} is not installed (make test installs it)");
    }
    found
}

/// Gives every user access to a file or folder: `weir probe` drops to user nobody.
pub fn permit_all_users(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// A process in the background. It is killed on drop.
pub struct Background(pub Child);

impl Background {
    /// Starts a command without input and output.
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Sends a signal and waits for the exit.
    pub fn stop(&mut self, number: i32) {
        signal(&self.0, number);
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
