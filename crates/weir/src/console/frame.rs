//! A text that is refreshed in place: the table of live traffic on a terminal.
//!
//! A frame is written whole over the one before it, line by line, so that nothing flickers. The terminal keeps its
//! screen and its mode: what was above stays, and a signal leaves nothing behind that has to be restored. Lines of
//! standard error come above the frame. No write waits for a terminal that takes nothing (Ctrl-S, a slow connection):
//! frames are then left out.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};

/// Size of a terminal that does not say it.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// A line longer than the terminal must not go on in the next one.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const ERASE_REST_OF_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// What the terminal shows.
static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

/// The terminal, and the frame on it.
struct Shown {
    terminal: File,
    text: String,
    /// Columns of the longest line, and lines. 0 without a frame.
    columns: usize,
    lines: usize,
    /// Octets that the terminal has not taken yet.
    waiting: Vec<u8>,
}

/// The terminal at standard output, for frames.
pub struct Terminal(());

impl Drop for Terminal {
    /// The frame is gone, and what follows is in its place.
    fn drop(&mut self) {
        if let Some(mut shown) = lock().take() {
            let mut text = std::mem::take(&mut shown.waiting);
            text.extend((shown.rewind() + ERASE_BELOW).into_bytes());
            let mut output = io::stdout().lock();
            let _ = output.write_all(&text).and_then(|()| output.flush());
        }
    }
}

impl Terminal {
    /// `None` if the terminal understands no escape sequences, or cannot be opened once more.
    pub fn open() -> Option<Self> {
        if std::env::var_os("TERM").is_none_or(|name| name == "dumb") {
            return None;
        }
        // Another open file: that of standard output, which other programs share, goes on waiting.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let terminal = File::options().write(true).custom_flags(flags).open("/proc/self/fd/1").ok()?;
        let shown = Shown { terminal, text: String::new(), columns: 0, lines: 0, waiting: Vec::new() };
        *lock() = Some(shown);
        Some(Self(()))
    }

    /// Columns and rows.
    pub fn size() -> (usize, usize) {
        let size = terminal_size::terminal_size_of(io::stdout()).map(|(width, height)| (width.0, height.0));
        let (columns, rows) = size.filter(|&(columns, rows)| columns > 0 && rows > 0).unwrap_or(USUAL_SIZE);
        (columns.into(), rows.into())
    }

    /// Writes a frame over the one before it. `width` is that of its longest line without styles.
    pub fn draw(&self, text: String, width: usize) {
        let mut shown = lock();
        let Some(shown) = &mut *shown else { return };
        // The terminal has the frame before first.
        if !shown.send(&[]) {
            return;
        }
        let frame = shown.rewind() + &drawn(&text);
        (shown.columns, shown.lines, shown.text) = (width, text.lines().count(), text);
        shown.send(frame.as_bytes());
    }
}

impl Shown {
    /// Takes the cursor to the first line of the frame, and erases from there on. If the terminal has become narrower
    /// than the frame, nothing says where its lines are: it stays, and the next one is below.
    fn rewind(&mut self) -> String {
        let (columns, rows) = Terminal::size();
        let lines = std::mem::take(&mut self.lines);
        if lines == 0 || self.columns > columns {
            return String::new();
        }
        format!("\r\x1b[{}A", lines.min(rows.saturating_sub(1)).max(1))
    }

    /// Sends octets behind those that wait. Returns whether the terminal has taken all.
    fn send(&mut self, octets: &[u8]) -> bool {
        self.waiting.extend(octets);
        while !self.waiting.is_empty() {
            match self.terminal.write(&self.waiting) {
                Ok(taken @ 1..) => drop(self.waiting.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // The terminal is gone.
                _ => self.waiting.clear(),
            }
        }
        true
    }
}

/// The lines of a frame, each over what was there before.
fn drawn(text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("{line}{ERASE_REST_OF_LINE}\n")).collect();
    format!("{NO_WRAP}{lines}{WRAP}{ERASE_BELOW}")
}

/// Lets `write` write lines to the terminal above the frame.
pub fn suspend(write: impl FnOnce()) {
    let mut shown = lock();
    let Some(shown) = shown.as_mut().filter(|shown| shown.lines > 0) else { return write() };
    let lines = shown.lines;
    let erase = shown.rewind() + ERASE_BELOW;
    shown.send(erase.as_bytes());
    write();
    shown.lines = lines;
    let frame = drawn(&shown.text);
    shown.send(frame.as_bytes());
}

fn lock() -> std::sync::MutexGuard<'static, Option<Shown>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
