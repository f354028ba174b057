//! Runs the test programs of the workspace, several side by side: most tests wait, so that one program alone leaves
//! cores idle.

use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, num::NonZero, thread};

/// A test program that runs longer is ended.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Time between two looks at a program.
const CHECK: Duration = Duration::from_millis(20);

/// A test program.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    /// Its folder: cargo runs it there, too.
    package: PathBuf,
    octets: u64,
}

/// Builds the tests that these arguments of `cargo test` select, and runs them. Tests in a module `alone` run
/// afterwards, one at a time. Returns whether all have passed.
pub fn run(arguments: &[String]) -> bool {
    let Some(mut programs) = build(arguments) else { return false };
    // The largest has the most tests.
    programs.sort_by_key(|program| std::cmp::Reverse(program.octets));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (3 * cores).to_string();
    let beside = run_all(&programs, cores, &["--test-threads", &threads, "--skip", "alone::"]);
    let alone = run_all(&programs, 1, &["--test-threads", "1", "alone::"]);
    beside && alone
}

fn build(arguments: &[String]) -> Option<Vec<Program>> {
    let mut cargo = Command::new("cargo");
    cargo.arg("test").args(arguments).args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo can be started");
    let messages = output.stdout.split(|octet| *octet == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let program = |message: Value| {
        let is_test = message["profile"]["test"] == true;
        let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
        let package = PathBuf::from(message["manifest_path"].as_str()?).parent()?.into();
        let octets = fs::metadata(&path).map_or(0, |file| file.len());
        Some(Program { path, package, octets })
    };
    output.status.success().then(|| messages.filter_map(program).collect())
}

/// Runs all programs, up to a number of them side by side. The output of each is printed when it ends.
fn run_all(programs: &[Program], side_by_side: usize, arguments: &[&str]) -> bool {
    let waiting: Mutex<VecDeque<&Program>> = Mutex::new(programs.iter().collect());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut all_passed = true;
        while let Some(program) = next() {
            let (passed, output) =
                run_one(program, arguments).unwrap_or_else(|error| (false, error.to_string().into()));
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "     Running {} in {}", program.path.display(), program.package.display());
            let _ = out.write_all(&output).and_then(|()| out.flush());
            all_passed &= passed;
        }
        all_passed
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..side_by_side).map(|_| scope.spawn(work)).collect();
        threads.into_iter().all(|thread| thread.join().unwrap_or(false))
    })
}

/// Whether the tests of a program have passed, and what it has printed.
fn run_one(program: &Program, arguments: &[&str]) -> io::Result<(bool, Vec<u8>)> {
    let log = program.path.with_extension("log");
    let file = File::create(&log)?;
    let mut command = Command::new(&program.path);
    command.args(arguments).current_dir(&program.package).env("CARGO_MANIFEST_DIR", &program.package);
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill()?;
        }
        thread::sleep(CHECK);
    };
    let mut output = fs::read(&log)?;
    if !status.success() {
        writeln!(output, "{}: {status}", program.path.display())?;
    }
    Ok((status.success(), output))
}
