//! The log: `tracing` events on standard error, as text or as JSON.
//!
//! Text lines are for people: `weir: warning: MESSAGE: ERROR FIELD=VALUE ...`; those of `weir
//! probe` begin with the time (UTC) instead of the program's name. JSON lines have the fields
//! `timestamp`, `level`, `message` and those of the event. Nothing is logged before `init`.

use super::style;
use crate::arguments::{LogFormat, Logging};
use serde_json::{Value, json};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, error};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

static IS_JSON: AtomicBool = AtomicBool::new(false);
static ANY_LEVEL: AtomicBool = AtomicBool::new(false);

/// Text before each line of the text format.
#[derive(Clone, Copy)]
pub enum Prefix {
    /// `weir:`, for commands that end after their work.
    Program,
    /// Date and time in UTC, for commands that run for long.
    Time,
}

/// Starts the log. Later calls have no effect. `quiet` lowers the default level to warnings.
pub fn init(logging: Logging, quiet: bool, prefix: Prefix) {
    let builder = tracing_subscriber::fmt().with_max_level(logging.level(quiet));
    let started = match logging.log_format {
        LogFormat::Text => builder.with_writer(|| Stderr::Text).event_format(TextFormat(prefix)).try_init(),
        LogFormat::Json => {
            builder.with_writer(|| Stderr::Json).json().flatten_event(true).with_target(false).try_init()
        }
    };
    if started.is_ok() {
        let is_json = logging.log_format == LogFormat::Json;
        // The default hook writes text, and waits until standard error is read.
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            if is_json {
                error!(thread, error = panic.to_string(), "panic");
            } else {
                let backtrace = Backtrace::capture();
                let is_captured = backtrace.status() == BacktraceStatus::Captured;
                let backtrace = if is_captured { format!("{backtrace}\n") } else { String::new() };
                super::eprint(&format!("thread '{thread}' {panic}\n{backtrace}"));
            }
            // The process may end now.
            super::stderr::flush(&mut || Some(Instant::now()));
        }));
        IS_JSON.store(logging.log_format == LogFormat::Json, Ordering::Relaxed);
    }
}

/// Whether events are JSON. Then text for people other than the log stays off standard error.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Lets [`json_event`] print also if the log is text, and text for people stay off. With
/// `any_level`, it prints at any log level.
pub fn use_json_events(any_level: bool) {
    IS_JSON.store(true, Ordering::Relaxed);
    ANY_LEVEL.store(any_level, Ordering::Relaxed);
}

/// Logs a JSON event with nested fields, which `tracing` events cannot have.
pub fn json_event(level: Level, message: &str, fields: &Value) {
    if level <= LevelFilter::current() || ANY_LEVEL.load(Ordering::Relaxed) {
        json_line(level, message, fields);
    }
}

/// Prints such an event at any log level.
pub fn json_line(level: Level, message: &str, fields: &Value) {
    super::eprint_json(&json_text(level, message, fields));
}

fn json_text(level: Level, message: &str, fields: &Value) -> String {
    let timestamp = timestamp();
    let fields = fields.to_string();
    let fields = fields.trim_start_matches('{');
    format!("{{\"timestamp\":\"{timestamp}\",\"level\":\"{level}\",\"message\":\"{message}\",{fields}\n")
}

fn timestamp() -> String {
    let mut timestamp = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    timestamp
}

/// The line that stands for lines that were lost.
pub fn lost_lines(lines: usize) -> String {
    const REASON: &str = "standard error was not read";
    if is_json() {
        return json_text(Level::WARN, "lines lost", &json!({ "lines": lines, "reason": REASON }));
    }
    format!("{} warning: {lines} lines are lost: {REASON}\n", timestamp())
}

/// Standard error. Each write is a whole line.
enum Stderr {
    Text,
    Json,
}

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match self {
            Self::Text => super::eprint_styled(&text, style::log),
            Self::Json => super::eprint_json(&text),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct TextFormat(Prefix);

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match self.0 {
            Prefix::Program => write!(writer, "weir:")?,
            Prefix::Time => SystemTime.format_time(&mut writer)?,
        }
        match *event.metadata().level() {
            Level::ERROR => write!(writer, " error: ")?,
            Level::WARN => write!(writer, " warning: ")?,
            Level::INFO => write!(writer, " ")?,
            _ => write!(writer, " debug: ")?,
        }
        let mut parts = Parts::default();
        event.record(&mut parts);
        let Parts { message, error, fields } = parts;
        let colon = if error.is_empty() { "" } else { ": " };
        let line = format!("{message}{colon}{error}{fields}");
        writeln!(writer, "{}", line.replace('\n', "\\n"))
    }
}

/// Message, field `error` and other fields of an event.
#[derive(Default)]
struct Parts {
    message: String,
    error: String,
    /// ` NAME=VALUE` each.
    fields: String,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.error, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let needs_quotes = value.is_empty() || value.contains([' ', '"', '=']);
        let _ = match field.name() {
            "message" | "error" => return self.record_debug(field, &format_args!("{value}")),
            name if needs_quotes => write!(self.fields, " {name}={value:?}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::stderr;
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// The process that the test below starts.
    #[test]
    #[ignore = "another test starts it"]
    fn panicking_process() {
        init(Logging { log_level: None, log_format: LogFormat::Text }, false, Prefix::Time);
        stderr::use_queue(lost_lines);
        stderr::start_thread();
        assert!(std::thread::spawn(|| panic!("a bug")).join().is_err());
        println!("the thread has ended");
        std::process::exit(0);
    }

    #[test]
    fn a_panic_does_not_wait_until_standard_error_is_read() {
        let (unread, mut full) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::NONBLOCK).unwrap();
        while full.write(&[b'x'; 4096]).is_ok() {}
        rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "console::log::tests::panicking_process", "--ignored", "--nocapture"]);
        let mut child = command.stdout(Stdio::piped()).stderr(full).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                child.kill().unwrap();
                panic!("the process waits for the reader of its standard error");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let out = io::read_to_string(child.stdout.take().unwrap()).unwrap();
        assert!(out.contains("the thread has ended"), "{out}");
        drop(unread);
    }
}
