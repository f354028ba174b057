//! Standard output and standard error. No other module of the binary writes to them, except sinks
//! that the user directs to standard output.
//!
//! Standard output carries the results that the user asked for and nothing else. If its reader
//! stops early (`weir read ... | head`), that is no error. Standard error carries the log (`log`),
//! the progress line (`progress`), the status of `weir probe`, and error messages. Invariant:
//! control characters in names, for example of files, never reach the terminal.

pub mod log;
pub mod progress;

use crate::error::advice;
use crate::run_status::RunStatus;
use std::io::{self, BufWriter, Write};
use tracing::error;

/// Writes `text` to standard output. A closed pipe is not an error.
pub fn print(text: &[u8]) -> RunStatus {
    print_with(|output| output.write_all(text))
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

/// Writes text for people to standard error. Failures are ignored: the exit code has the result.
pub fn eprint(text: &str) {
    let text = printable(text);
    progress::suspend(|| {
        let _ = io::stderr().write_all(text.as_bytes());
    });
}

/// Replaces control characters other than line feeds.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}

/// Width of the terminal at standard output; `None` if it is not a terminal.
pub fn terminal_columns() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}
