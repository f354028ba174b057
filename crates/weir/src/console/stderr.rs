//! Standard error of a running probe: a bounded queue, and a thread that writes.
//!
//! A pipe that no program reads and a terminal that was stopped with Ctrl-S block each thread that
//! writes to them. Here only the writing thread is blocked, and no other thread waits for it. Lines
//! that do not fit into the queue are lost and counted; the next line that is written has their
//! number. The order stays. Commands that end by themselves do not use the queue: they wait for their
//! reader, as other tools do.

use super::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Text that may wait. A longer one waits alone.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Octets that a pipe with space takes without blocking (`PIPE_BUF`, pipe(7)).
const CHUNK_BYTES: usize = 4096;
/// At the end, the thread gets this time after any deadline: what waits was perhaps logged just now.
const MIN_FLUSH_TIME: Duration = Duration::from_millis(500);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

static QUEUE: Mutex<Queue> = Mutex::new(Queue::new());
static CHANGED: Condvar = Condvar::new();

/// Who writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The thread that logs, and it waits.
    Caller,
    /// The thread that logs, but only what is accepted at once.
    ReadyCaller,
    Thread,
}

#[derive(Debug)]
struct Queue {
    writer: Writer,
    waiting: Vec<u8>,
    /// Lines after those that wait.
    lost_lines: usize,
    notice: fn(usize) -> String,
    /// The thread has text that is not written yet.
    is_writing: bool,
}

/// From now on, no thread waits until standard error is read. `notice` is the line that stands for
/// this number of lost lines. To be called before the start of the thread, which inherits the
/// restrictions of its starter.
pub fn use_queue(notice: fn(usize) -> String) {
    let mut queue = lock();
    (queue.writer, queue.notice) = (Writer::ReadyCaller, notice);
}

/// Starts the thread. Without it, for example at the limit of `ulimit -u`, what waits is written
/// together with later text.
pub fn start_thread() {
    if std::thread::Builder::new().name("weir-log".into()).spawn(run).is_ok() {
        lock().writer = Writer::Thread;
        CHANGED.notify_all();
    }
}

/// Adds text to the queue. Returns false if it is not in use: then the caller has to write.
pub fn enqueue(text: &str) -> bool {
    let mut queue = lock();
    if queue.writer == Writer::Caller {
        return false;
    }
    queue.push(text);
    match queue.writer {
        Writer::Thread => CHANGED.notify_all(),
        _ => queue.write_while_ready(),
    }
    true
}

/// Waits until everything is written, at most until the deadline.
pub fn flush(deadline: Deadline<'_>) {
    let earliest = Instant::now() + MIN_FLUSH_TIME;
    let mut queue = lock();
    loop {
        if queue.writer != Writer::Thread {
            queue.write_while_ready();
        }
        let mut is_over = || deadline().is_some_and(|deadline| Instant::now() >= deadline.max(earliest));
        if !(queue.is_writing || queue.has_text()) || is_over() {
            return;
        }
        queue = CHANGED.wait_timeout(queue, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The thread.
fn run() {
    let mut queue = lock();
    loop {
        while queue.has_text() {
            let text = queue.take();
            queue.is_writing = true;
            drop(queue);
            write(&text);
            queue = lock();
            queue.is_writing = false;
        }
        CHANGED.notify_all();
        queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures are ignored: the exit code has the result.
fn write(text: &[u8]) {
    let _ = io::stderr().write_all(text);
}

impl Queue {
    const fn new() -> Self {
        Self {
            writer: Writer::Caller,
            waiting: Vec::new(),
            lost_lines: 0,
            notice: |_| String::new(),
            is_writing: false,
        }
    }

    fn has_text(&self) -> bool {
        !self.waiting.is_empty() || self.lost_lines > 0
    }

    fn push(&mut self, text: &str) {
        let is_full = !self.waiting.is_empty() && self.waiting.len() + text.len() > MAX_WAITING_BYTES;
        if is_full || self.lost_lines > 0 {
            self.lost_lines += text.lines().count();
        } else {
            self.waiting.extend_from_slice(text.as_bytes());
        }
    }

    /// What waits; and when that is written, how many lines were lost after it.
    fn take(&mut self) -> Vec<u8> {
        if self.waiting.is_empty() && self.lost_lines > 0 {
            return (self.notice)(mem::take(&mut self.lost_lines)).into_bytes();
        }
        mem::take(&mut self.waiting)
    }

    fn write_while_ready(&mut self) {
        while self.has_text() && is_ready() {
            let mut text = self.take();
            self.waiting = text.split_off(text.len().min(CHUNK_BYTES));
            write(&text);
        }
    }
}

/// Whether standard error accepts text at once, or has failed.
fn is_ready() -> bool {
    let stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_counted_and_the_order_stays() {
        let mut queue = Queue { notice: |lines| format!("{lines} lost\n"), ..Queue::new() };
        let long = "x".repeat(MAX_WAITING_BYTES) + "\n";
        queue.push(&long);
        queue.push("lost\nlost\n");
        assert_eq!(queue.take(), long.as_bytes());
        // Nothing passes the lines that were lost.
        queue.push("lost\n");
        assert_eq!(queue.take(), b"3 lost\n");
        queue.push("a\n");
        queue.push("b\n");
        assert_eq!((queue.take(), queue.has_text()), (b"a\nb\n".to_vec(), false));
    }
}
