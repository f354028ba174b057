//! A probe or a view of our own: a child that serves HTTP on loopback, and what it logs.

use crate::error::{Error, TopError};
use crate::signals::{ENDS_WITH_STDIN, kill};
use parking_lot::Mutex;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;
use weir_control::ProbeUrl;
use weir_ledger::Timing;

/// Longest line that is read, octets.
const MAX_LINE: u64 = 64 << 10;

/// A child. It ends when this is dropped.
pub struct Child {
    process: Process,
    log: Arc<Mutex<Log>>,
    /// A signal while it ends kills it.
    stop: Arc<AtomicBool>,
    what: &'static str,
    timing: Timing,
}

/// What it has said so far.
#[derive(Default)]
struct Log {
    url: Option<ProbeUrl>,
    /// The last warning or error.
    note: String,
    has_ended: bool,
}

impl Child {
    /// `weir probe` on a source.
    pub fn probe(source: &str, names: bool, stop: &Arc<AtomicBool>, timing: Timing) -> Result<(ProbeUrl, Self), Error> {
        let options = ["probe", "-i", source, "--listen", "127.0.0.1:0", "-q", "--log-level", "info"];
        let options = [&options[..], names_option(names)].concat();
        Self::start("weir probe", &options, stop, timing)
    }

    /// `weir view` of a store or of a capture.
    pub fn view(path: &str, names: bool, stop: &Arc<AtomicBool>, timing: Timing) -> Result<(ProbeUrl, Self), Error> {
        // A path that begins with a hyphen is no option.
        let options = [&["view", "--listen", "127.0.0.1:0"], names_option(names), &["--", path]].concat();
        Self::start("weir view", &options, stop, timing)
    }

    /// Starts it, and waits until it serves.
    fn start(
        what: &'static str,
        options: &[&str],
        stop: &Arc<AtomicBool>,
        timing: Timing,
    ) -> Result<(ProbeUrl, Self), Error> {
        let program = std::env::current_exe().map_err(TopError::Start)?;
        let mut command = Command::new(program);
        // Before the options of a path.
        command.args(["--log-format", "json"]).args(options).env(ENDS_WITH_STDIN, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(TopError::Start)?;
        let (out, err) = (process.stdout.take(), process.stderr.take());
        let log = Arc::new(Mutex::new(Log::default()));
        let child = Self { process, log: log.clone(), stop: stop.clone(), what, timing };
        let (of_out, of_err) = (log.clone(), log);
        thread::Builder::new()
            .name("weir-child-out".into())
            .spawn(move || out.into_iter().for_each(|out| lines(out, |line| of_out.lock().read_result(line))))
            .map_err(Error::Thread)?;
        thread::Builder::new()
            .name("weir-child-log".into())
            .spawn(move || {
                err.into_iter().for_each(|err| lines(err, |line| of_err.lock().read_log(line)));
                of_err.lock().has_ended = true;
            })
            .map_err(Error::Thread)?;
        child.wait_until_served()
    }

    fn wait_until_served(mut self) -> Result<(ProbeUrl, Self), Error> {
        loop {
            let url = self.log.lock().url.clone();
            if let Some(url) = url {
                return Ok((url, self));
            }
            if let Some(reason) = self.has_ended() {
                return Err(TopError::Child(reason).into());
            }
            if self.stop.load(Relaxed) {
                return Err(TopError::Child("ended by a signal before there was anything to show".into()).into());
            }
            thread::sleep(self.timing.top_check);
        }
    }

    /// Why it has ended, if it has.
    pub fn has_ended(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok().flatten()?;
        // The last lines may be on their way.
        let end = Instant::now() + self.timing.top_child_end;
        while !self.log.lock().has_ended && Instant::now() < end {
            thread::sleep(self.timing.top_check);
        }
        let note = self.log.lock().note.clone();
        Some(if note.is_empty() { ended(self.what, status) } else { note })
    }

    /// The last warning, or that it has ended.
    pub fn note(&mut self) -> String {
        let ended = self.process.try_wait().ok().flatten().map(|status| ended(self.what, status));
        let log = self.log.lock();
        match ended {
            Some(ended) if log.note.is_empty() => ended,
            Some(ended) => format!("{ended}: {}", log.note),
            None => log.note.clone(),
        }
    }
}

fn names_option(names: bool) -> &'static [&'static str] {
    if names { &["--names"] } else { &[] }
}

fn ended(what: &str, status: ExitStatus) -> String {
    format!("{what} has ended ({status})")
}

impl Drop for Child {
    /// Ends it as its parent: closes its standard input, sends it SIGTERM, waits, and kills it if it takes long.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let end = Instant::now() + self.timing.top_child_end;
        let has_ended = |process: &mut Process| !matches!(process.try_wait(), Ok(None));
        if has_ended(&mut self.process) {
            return;
        }
        kill(self.process.id());
        while !has_ended(&mut self.process) {
            if Instant::now() >= end || self.stop.load(Relaxed) && std::thread::panicking() {
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            thread::sleep(self.timing.top_check);
        }
    }
}

/// Reads lines to the end; of longer ones only the begin.
fn lines(input: impl Read, mut each: impl FnMut(&str)) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => each(String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

impl Log {
    /// A line of standard output: where a view serves.
    fn read_result(&mut self, line: &str) {
        if let Some(url) = line.strip_prefix("page: ").and_then(|url| url.parse().ok()) {
            self.url.get_or_insert(url);
        }
    }

    /// A line of the log: where a probe serves, warnings and errors.
    fn read_log(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            if !line.is_empty() {
                self.note = line.into();
            }
            return;
        };
        let message = event["message"].as_str().unwrap_or_default();
        if message == "HTTP interface is ready"
            && let Some(url) = event["address"].as_str().and_then(|address| format!("http://{address}").parse().ok())
        {
            self.url.get_or_insert(url);
        }
        if matches!(event["level"].as_str(), Some("WARN" | "ERROR")) {
            self.note = note(message, &event);
        }
    }
}

/// A message with its further values, as a line of the log as text has them.
fn note(message: &str, event: &Value) -> String {
    let fields = event.as_object().into_iter().flatten();
    let others = fields.filter(|(name, value)| {
        !["timestamp", "level", "message"].contains(&name.as_str()) && (value.is_string() || value.is_number())
    });
    let mut others: Vec<(&str, String)> = others
        .map(|(name, value)| (name.as_str(), value.as_str().map_or_else(|| value.to_string(), String::from)))
        .collect();
    if let ("command failed", [("error", reason)]) = (message, others.as_slice()) {
        return reason.clone();
    }
    let error = others.iter().position(|(name, _)| *name == "error").map(|at| others.remove(at).1);
    let others = others.into_iter().map(|(name, value)| format!(" {name}={value}"));
    format!("{message}{}{}", others.collect::<String>(), error.map(|error| format!(": {error}")).unwrap_or_default())
}
