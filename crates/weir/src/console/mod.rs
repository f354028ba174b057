//! Standard output and standard error. No other module of the binary writes to them, except sinks
//! that the user directs to standard output.
//!
//! Standard output carries the results that the user asked for and nothing else. If its reader
//! stops early (`weir read ... | head`), that is no error. On a terminal, `frame` refreshes a table in place. Standard
//! error carries the log (`log`), the progress line (`progress`), the status of `weir probe`, and error messages. Invariant:
//! control characters in names, for example of files, never reach the terminal. What `weir probe`
//! writes here stops neither metering nor the end of the run (`stderr`, `write_until`).

pub mod frame;
pub mod log;
pub mod progress;
pub mod stderr;
pub mod style;

use crate::error::advice;
use crate::run_status::RunStatus;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use style::{Rule, StyledLines};
use tracing::error;

/// Returns the time until which a run waits for those who read its outputs, once there is one. To be
/// called again and again: a signal sets it.
pub type Deadline<'a> = &'a mut dyn FnMut() -> Option<Instant>;

/// Writes `text` to standard output. A closed pipe is not an error.
pub fn print(text: &[u8]) -> RunStatus {
    print_with(|output| output.write_all(text))
}

/// Writes a text to standard output, with the styles of `rule` on a terminal.
pub fn print_styled(text: &str, rule: Rule) -> RunStatus {
    print_styled_with(rule, |output| output.write_all(text.as_bytes()))
}

/// As [`print_with`], with the styles of `rule` on a terminal.
pub fn print_styled_with(rule: Rule, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> RunStatus {
    if !style::is_on(&io::stdout()) {
        return print_with(write);
    }
    print_with(|output| {
        let mut lines = StyledLines::new(output, rule);
        write(&mut lines).and_then(|()| lines.flush())
    })
}

/// Lets `write` write to a buffered standard output. A closed pipe is not an error.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> RunStatus {
    let mut output = BufWriter::new(io::stdout().lock());
    match write(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            log_output_error(&error);
            RunStatus::Problems
        }
        _ => RunStatus::Success,
    }
}

/// Logs that standard output cannot be written, and what the user can do.
pub fn log_output_error(error: &io::Error) {
    error!("cannot write to standard output: {error}{}", advice(error));
}

/// Lets `write` write on a thread of its own, and waits for it until the deadline. `None` if it has
/// not ended by then: the thread is abandoned, because nothing can interrupt it.
pub fn write_until<T, W>(deadline: Deadline<'_>, write: W) -> Option<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    const CHECK_INTERVAL: Duration = Duration::from_millis(20);
    let (sender, task) = mpsc::channel::<W>();
    let (done, result) = mpsc::channel();
    let run = move || drop(task.recv().map(|write| done.send(write())));
    if std::thread::Builder::new().name("weir-output".into()).spawn(run).is_err() {
        // For example at the limit of `ulimit -u`.
        return Some(write());
    }
    let _ = sender.send(write);
    loop {
        match result.recv_timeout(CHECK_INTERVAL) {
            Err(RecvTimeoutError::Timeout) if deadline().is_none_or(|deadline| Instant::now() < deadline) => {}
            result => return result.ok(),
        }
    }
}

/// Writes text for people to standard error. Failures are ignored: the exit code has the result. Of
/// a running probe, the text is queued.
pub fn eprint(text: &str) {
    write_error(&printable(text));
}

/// As [`eprint`], for lines of JSON: characters that act on a terminal have escapes of JSON.
pub fn eprint_json(text: &str) {
    write_error(&printable_json(text));
}

/// As [`eprint`], with the styles of `rule` on a terminal.
pub fn eprint_styled(text: &str, rule: Rule) {
    let text = printable(text);
    write_error(&if style::is_on(&io::stderr()) { style::styled(&text, rule) } else { text });
}

fn write_error(text: &str) {
    if !stderr::enqueue(text) {
        let write = || {
            let _ = io::stderr().write_all(text.as_bytes());
        };
        progress::suspend(|| if io::stderr().is_terminal() { frame::suspend(write) } else { write() });
    }
}

/// Text of lines without characters that act on a terminal: they are written `\xNN`, as in all outputs.
pub fn printable(text: &str) -> String {
    text.split('\n').map(weir_dpi::printable).collect::<Vec<_>>().join("\n")
}

/// The same of lines of JSON: `\\u202e`. Only strings have such characters.
fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && weir_dpi::is_unprintable(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown += &format!("\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Width of the terminal at standard output, or `COLUMNS` if it is not a terminal; `None` without limit.
pub fn terminal_columns() -> Option<usize> {
    columns_of(io::stdout())
}

/// Width of the terminal at standard error, as [`terminal_columns`].
pub fn error_columns() -> Option<usize> {
    columns_of(io::stderr())
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns > 0);
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0)).or_else(columns)
}

/// A message whose lines begin with `prefix`. Those that do not fit the terminal at standard error are
/// broken between words.
pub fn wrapped_error(prefix: &str, message: &str) -> String {
    let columns = error_columns();
    let wrap = |line: &str| {
        // A line that begins with a blank has an example, or shows a place in an expression.
        let is_long = columns.is_some_and(|columns| prefix.len() + line.chars().count() > columns);
        let is_prose = !line.starts_with(' ') || line.trim_start().starts_with("[possible values");
        if is_long && is_prose { weir_text::paragraph(prefix, line, columns) } else { format!("{prefix}{line}\n") }
    };
    message.lines().map(wrap).collect()
}
