//! A run: a process of `weir` that writes an Arrow stream.
//!
//! Input: a command line. Output: record batches, then the ledger. Invariants: a run that is given up is killed and
//! reaped; in another process than the one that started it, after a fork, it cannot be read and ends nothing.

use crate::interpreter::{CLOSED, Error, Watch, warn};
use crate::messages::Messages;
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// Signals are handled as often, also if they do not interrupt the system call that waits.
const SIGNAL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Between two looks at a process that has written all, and so ends soon. Kernels before 5.3 have no event for the end of
/// one process.
const END_INTERVAL: Duration = Duration::from_millis(1);
/// Octets of the pipe: several messages of some columns.
const PIPE_BYTES: usize = 1 << 20;
/// The exit code of a run that finished, but has not read all packets or delivered all records.
const INCOMPLETE: i32 = 2;

/// What a run is started with.
pub struct CommandLine {
    /// The program, and its arguments.
    pub words: Vec<String>,
    /// Whether it reads standard input.
    pub reads_input: bool,
    /// Called with the rows so far, and whether these are all.
    pub progress: Option<Py<PyAny>>,
    /// Whether no run may start or wait: one that starts can be ended by nothing else.
    pub is_refused: Arc<AtomicBool>,
}

/// A process of `weir`, and its stream.
pub struct Run {
    owner: u32,
    process: Arc<Mutex<Process>>,
    is_closed: AtomicBool,
    watch: Arc<Watch>,
    schema: SchemaRef,
    /// `None` at its end.
    stream: Mutex<Option<Stream>>,
    ledger: Mutex<Option<String>>,
}

struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

struct Stream {
    reader: StreamReader<Output>,
    messages: Messages,
    ledger: NamedTempFile,
}

/// Standard output of the process. Signals are handled while nothing comes.
struct Output {
    pipe: ChildStdout,
    process: Arc<Mutex<Process>>,
    watch: Arc<Watch>,
}

impl Run {
    /// Starts a process, and reads the columns of its flows.
    ///
    /// # Errors
    /// It cannot be started, or it refuses its options or inputs.
    pub fn start(line: &CommandLine, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let watch = Arc::new(Watch::new(progress, line.is_refused.clone()));
        let messages = Messages::new().map_err(|error| not_started("standard error", &error))?;
        let ledger = tempfile::Builder::new().prefix("weir-ledger-").tempfile();
        let ledger = ledger.map_err(|error| not_started("the file of the ledger", &error))?;
        let (mut child, pipe) = spawn(line, &messages, &ledger)?;
        // The pipe of 64 KiB works, too; it only costs more switches between the processes.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
        let _ = child.stdin.take();
        let process = Arc::new(Mutex::new(Process { child, status: None }));
        let output = Output { pipe, process: process.clone(), watch: watch.clone() };
        let mut messages = messages;
        let reader = match StreamReader::try_new(output, None) {
            Ok(reader) => reader,
            Err(error) => {
                if let Some(raised) = watch.take_raised() {
                    lock(&process).kill();
                    return Err(raised);
                }
                let status = wait(&process, &watch)?;
                watch.show(true);
                return Err(failure(status, messages.next(true).or(Some(error.to_string()))));
            }
        };
        let schema = reader.schema();
        let stream = Mutex::new(Some(Stream { reader, messages, ledger }));
        let (owner, is_closed) = (std::process::id(), AtomicBool::new(false));
        Ok(Self { owner, process, is_closed, watch, schema, stream, ledger: Mutex::new(None) })
    }

    /// The columns of its batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Whether this process has started it, not one that was forked.
    pub fn is_own(&self) -> bool {
        self.owner == std::process::id()
    }

    /// Waits for the next batch; `None` at the end. To be called without the interpreter's lock.
    ///
    /// # Errors
    /// The run has failed, or a signal has raised an exception. The run is at its end then.
    pub fn next_batch(&self) -> PyResult<Option<RecordBatch>> {
        if !self.is_own() {
            let sentence =
                "these flows belong to the process that asked for them, before a fork; ask again in this one";
            return Err(Error::new_err(sentence));
        }
        let mut stream = lock(&self.stream);
        let Some(open) = &mut *stream else { return Ok(None) };
        let result = self.read(open);
        if !matches!(result, Ok(Some(_))) {
            self.watch.show(true);
            lock(&self.process).kill();
            *stream = None;
        }
        result
    }

    fn read(&self, stream: &mut Stream) -> PyResult<Option<RecordBatch>> {
        let next = stream.reader.next();
        if let Some(Ok(batch)) = next {
            self.watch.count(batch.num_rows());
            return match (stream.messages.next(false), self.watch.take_raised()) {
                (_, Some(raised)) => Err(raised),
                (Some(text), None) => warn(&text).map(|()| Some(batch)),
                (None, None) => Ok(Some(batch)),
            };
        }
        if let Some(raised) = self.watch.take_raised() {
            return Err(raised);
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new_err(CLOSED));
        }
        let status = wait(&self.process, &self.watch)?;
        let messages = stream.messages.next(true);
        let is_complete = status.is_some_and(|status| status.success());
        if !is_complete && status.and_then(|status| status.code()) != Some(INCOMPLETE) {
            return Err(failure(status, messages));
        }
        if let Some(Err(error)) = next {
            return Err(Error::new_err(format!("the stream of weir cannot be read: {error}")));
        }
        *lock(&self.ledger) = stream.read_ledger();
        match messages {
            Some(text) => warn(&text).map(|()| None),
            None if !is_complete && stream.messages.is_empty() => {
                warn("not all packets or flows are in it").map(|()| None)
            }
            None => Ok(None),
        }
    }

    /// The ledger as JSON, once all batches were read.
    pub fn ledger(&self) -> Option<String> {
        lock(&self.ledger).clone()
    }

    /// Asks the program to end, as Ctrl-C on its terminal does: the rows so far are still to be read.
    pub fn stop(&self) {
        let process = lock(&self.process);
        if self.is_own() && process.status.is_none() {
            // The only error is that it has ended.
            let _ = kill_process(process.pid(), Signal::INT);
        }
    }

    /// Ends the process at once. No further rows can be read.
    pub fn close(&self) {
        if self.is_own() {
            self.is_closed.store(true, Ordering::Relaxed);
            lock(&self.process).kill();
            self.watch.show(true);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_own() {
            self.close();
        } else if let Some(stream) = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner) {
            stream.ledger.disable_cleanup(true);
        }
    }
}

impl Stream {
    fn read_ledger(&mut self) -> Option<String> {
        let mut text = String::new();
        let file = self.ledger.as_file_mut();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        (!text.is_empty()).then_some(text)
    }
}

impl Process {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it has ended, if it has.
    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Ends it, and reaps it.
    fn kill(&mut self) {
        if self.status.is_none() {
            // Both fail only if another part of this Python process has reaped it.
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }
}

impl Read for Output {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&SIGNAL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.pipe.read(out),
                Err(error) => return Err(error.into()),
            }
            if !self.watch.look() {
                return Err(io::Error::other("a signal has raised an exception"));
            }
            // A process that another thread forked may hold the other end of the pipe open.
            let has_ended = !matches!(lock(&self.process).poll(), Ok(None));
            if has_ended && poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&Timespec::default()))? == 0 {
                return Ok(0);
            }
        }
    }
}

fn spawn(line: &CommandLine, messages: &Messages, ledger: &NamedTempFile) -> PyResult<(Child, ChildStdout)> {
    let [program, verb, arguments @ ..] = &line.words[..] else { return Err(Error::new_err("no command of weir")) };
    let mut command = Command::new(program);
    command.arg(verb).arg("--stats").arg(ledger.path()).args(arguments);
    command.stdin(if line.reads_input { Stdio::inherit() } else { Stdio::null() }).stdout(Stdio::piped());
    command.stderr(messages.standard_error().map_err(|error| not_started("standard error", &error))?);
    let mut child = command.spawn().map_err(|error| not_started(program, &error))?;
    let pipe = child.stdout.take().ok_or_else(|| Error::new_err("weir has no standard output"))?;
    Ok((child, pipe))
}

/// Waits for the end of a process that has closed its standard output; `None` if another part of this Python process has
/// reaped it.
fn wait(process: &Mutex<Process>, watch: &Watch) -> PyResult<Option<ExitStatus>> {
    loop {
        match lock(process).poll() {
            Ok(None) => {}
            Ok(status) => return Ok(status),
            Err(_) => return Ok(None),
        }
        if !watch.look() {
            let raised = watch.take_raised();
            return Err(raised.unwrap_or_else(|| Error::new_err("a signal has raised an exception")));
        }
        std::thread::sleep(END_INTERVAL);
    }
}

fn not_started(what: &str, error: &io::Error) -> PyErr {
    // ENOEXEC: a program of another architecture.
    let reason = match error.raw_os_error() {
        Some(8) => "it is a program for another architecture than this machine's".to_owned(),
        _ => error.to_string(),
    };
    Error::new_err(format!("weir cannot be started: {what}: {reason}"))
}

fn failure(status: Option<ExitStatus>, messages: Option<String>) -> PyErr {
    let text = match status {
        None => {
            "how weir has ended is not known: another part of this process has waited for all of its children".into()
        }
        Some(status) => match (messages, status.signal()) {
            (Some(text), None) => text,
            (None, None) => format!("weir has ended with code {}", status.code().unwrap_or_default()),
            (text, Some(signal)) => {
                format!("weir was ended by signal {signal}{}", text.map(|text| format!(": {text}")).unwrap_or_default())
            }
        },
    };
    Error::new_err(text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
