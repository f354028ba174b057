//! `weir bypass`: follows the EVE file of Suricata, and adds overrides for its flows to a probe.
//!
//! ```text
//! lines of the file -> events that are selected -> POST /overrides -> posted, refused or undelivered
//!                                              \-> queue of ICMP -> the same, on a thread of its own
//! ```
//! The probe has to search for a flow of ICMP, which may take seconds: other flows do not wait for that.
//! Of many such events the newest are posted. While the probe is away, nothing is read: the file keeps
//! what comes.

use crate::arguments::{Bypass, BypassAction, EveEvent};
use crate::console::print;
use crate::error::{BypassError, Error};
use crate::eve::{self, Line};
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::signals::StopSignal;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use weir_control::{Method, RemoteProbe};
use weir_ledger::Timing;

/// Time between two looks at a file without new lines, and at the signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two attempts to reach the probe: it doubles from the first to the second.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Longest line, octets.
const MAX_LINE: usize = 1 << 20;
/// Octets at the beginning of a file that show whether it was truncated and written again. Those of an
/// EVE file have the time of its first event.
const START: usize = 128;
/// Empty files of rotations that are watched.
const MAX_NEXT: usize = 16;
/// Lines and refusals that are named in the log; further ones are only counted.
const NAMED: u64 = 5;
/// Events of ICMP that wait, beside the one that the probe searches for.
const MAX_ICMP: usize = 16;

/// What became of the lines.
#[derive(Default)]
struct Counters {
    lines: u64,
    other: u64,
    broken: u64,
}

/// What became of the events that were selected, and what the threads tell each other.
#[derive(Default)]
struct Outcome {
    posted: AtomicU64,
    refused: AtomicU64,
    undelivered: AtomicU64,
    repeated: AtomicU64,
    dropped: AtomicU64,
    /// The probe refuses everything from now on.
    has_failed: AtomicBool,
    /// The probe cannot be reached.
    is_away: AtomicBool,
}

impl Outcome {
    fn text(&self, Counters { lines, other, broken }: &Counters) -> String {
        let line = |name: &str, count: u64| format!("{name:<44} {count:>12}\n");
        line("lines", *lines)
            + &line("- broken, or a flow without addresses", *broken)
            + &line("- other events", *other)
            + &line("- ICMP: an event of the same flow waited", self.repeated.load(Relaxed))
            + &line("- ICMP: dropped for newer events", self.dropped.load(Relaxed))
            + &line("- refused by the probe", self.refused.load(Relaxed))
            + &line("- not delivered before the end", self.undelivered.load(Relaxed))
            + &line("= overrides posted", self.posted.load(Relaxed))
    }

    fn has_problems(&self, counters: &Counters) -> bool {
        let problems = [&self.refused, &self.undelivered, &self.dropped];
        counters.broken > 0 || self.has_failed.load(Relaxed) || problems.iter().any(|counter| counter.load(Relaxed) > 0)
    }
}

pub fn run(arguments: &Bypass) -> Result<RunStatus, Error> {
    if arguments.to.is_https() != arguments.ca.is_some() {
        return Err(BypassError::Certificates.into());
    }
    if arguments.more > 0 && arguments.action != BypassAction::Shunt {
        return Err(BypassError::More.into());
    }
    if !arguments.signature.is_empty() && arguments.on.iter().all(|on| *on == EveEvent::Bypassed) {
        return Err(BypassError::Signature.into());
    }
    let stop_signal = StopSignal::register()?;
    let stop = stop_signal.flag();
    let mut follower = Follower::open(&arguments.eve, arguments.from_start)?;
    let remote = |error| BypassError::Remote { error };
    let limit = Timing::default().http_answer;
    let connect =
        || RemoteProbe::new(arguments.to.clone(), Some(&arguments.token_file), arguments.ca.as_deref(), limit);
    let (mut probe, probe_of_icmp) = (connect().map_err(remote)?, connect().map_err(remote)?);
    if !arguments.hardening.no_sandbox {
        Sandbox::enter(&[], &[], &[&arguments.eve], Restrictions::Client { port: arguments.to.port() });
    }
    stop_signal.start_thread();
    // A flow that has no override: the answer shows whether the probe has rules and accepts the token.
    let none = "/overrides?src_ip=0.0.0.0&dst_ip=0.0.0.0&protocol=255";
    match probe.request(Method::DELETE, none, "", &stop) {
        Ok(answer) if [401, 403, 409].contains(&answer.status.as_u16()) => {
            return Err(BypassError::Refused { probe: arguments.to.to_string(), reason: answer.error() }.into());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(BypassError::Refused { probe: arguments.to.to_string(), reason: error.to_string() }.into());
        }
        Err(_) if stop.load(Relaxed) => {}
        Err(error) => warn!(probe = %arguments.to, error = %error, "the probe cannot be reached yet"),
    }
    info!(file = %arguments.eve.display(), probe = %arguments.to, "following");
    let outcome = Arc::<Outcome>::default();
    let poster = |probe| Poster { probe, url: arguments.to.to_string(), stop: stop.clone(), outcome: outcome.clone() };
    let icmp = IcmpQueue::start(poster(probe_of_icmp))?;
    let mut bypass = Running { arguments, poster: poster(probe), icmp, counters: Counters::default() };
    let mut status = RunStatus::Success;
    while !bypass.poster.is_over() {
        if outcome.is_away.load(Relaxed) {
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        match follower.read(|line| bypass.add(line)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                error!(error = %Error::file(&arguments.eve, error), "the rest is not read");
                status = RunStatus::Problems;
                break;
            }
        }
    }
    bypass.icmp.finish();
    let counters = bypass.counters;
    status = status.and(RunStatus::from_problems(outcome.has_problems(&counters)));
    if !arguments.quiet {
        status = status.and(print(outcome.text(&counters).as_bytes()));
    }
    Ok(status)
}

struct Running<'a> {
    arguments: &'a Bypass,
    poster: Poster,
    icmp: IcmpQueue,
    counters: Counters,
}

impl Running<'_> {
    /// Does what a line asks for; `None` is a line that was cut.
    fn add(&mut self, line: Option<&[u8]>) {
        let counters = &mut self.counters;
        counters.lines += 1;
        match eve::read(line, self.arguments) {
            Line::Broken(reason) => self.note_broken(reason),
            Line::Other => counters.other += 1,
            Line::Selected { body, is_icmp } => {
                let event = Event { line: self.counters.lines, body };
                if is_icmp { self.icmp.add(event) } else { self.poster.post(&event) }
            }
        }
    }

    fn note_broken(&mut self, reason: &str) {
        self.counters.broken += 1;
        if self.counters.broken <= NAMED {
            warn!(line = self.counters.lines, reason, "a line is left out");
        }
    }
}

/// An event that was selected.
struct Event {
    /// The number of its line.
    line: u64,
    /// The body of the request.
    body: String,
}

/// Posts overrides, one after the other.
struct Poster {
    probe: RemoteProbe,
    url: String,
    stop: Arc<AtomicBool>,
    outcome: Arc<Outcome>,
}

impl Poster {
    fn is_over(&self) -> bool {
        self.outcome.has_failed.load(Relaxed) || self.stop.load(Relaxed)
    }

    /// Posts an override, again and again while the probe is away.
    fn post(&mut self, event: &Event) {
        let mut pause = RETRY[0];
        let outcome = self.outcome.clone();
        loop {
            if self.is_over() {
                outcome.undelivered.fetch_add(1, Relaxed);
                return;
            }
            let reason = match self.probe.request(Method::POST, "/overrides", &event.body, &self.stop) {
                Ok(answer) => {
                    outcome.is_away.store(false, Relaxed);
                    match answer.status.as_u16() {
                        200 | 201 => {
                            outcome.posted.fetch_add(1, Relaxed);
                            if pause > RETRY[0] {
                                info!("the probe accepts overrides again");
                            }
                            return;
                        }
                        401 | 403 | 409 => {
                            error!(error = answer.error(), "the probe refuses overrides");
                            outcome.has_failed.store(true, Relaxed);
                            continue;
                        }
                        503 => answer.error(),
                        _ => {
                            if outcome.refused.fetch_add(1, Relaxed) < NAMED {
                                warn!(line = event.line, reason = answer.error(), "an override is refused");
                            }
                            return;
                        }
                    }
                }
                Err(_) if self.is_over() => continue,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    error!(probe = self.url, error = %error, "the probe cannot be talked to");
                    outcome.has_failed.store(true, Relaxed);
                    continue;
                }
                Err(error) => {
                    // A search that does not end is no reason to read nothing more.
                    outcome.is_away.store(error.kind() != io::ErrorKind::TimedOut, Relaxed);
                    error.to_string()
                }
            };
            if pause == RETRY[0] {
                warn!(reason, "the probe is away; trying again");
            }
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.is_over() {
                thread::sleep(POLL_INTERVAL);
            }
            pause = RETRY[1].min(pause * 2);
        }
    }
}

/// Events of ICMP, and the thread that posts them, the newest first.
struct IcmpQueue {
    waiting: Arc<Waiting>,
    outcome: Arc<Outcome>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Waiting {
    /// The newest is the last one; and whether no more come.
    events: Mutex<(VecDeque<Event>, bool)>,
    changed: Condvar,
}

impl Waiting {
    /// Waits for an event. `None` at the end.
    fn take(&self) -> Option<Event> {
        let mut events = self.events.lock();
        loop {
            let (waiting, is_over) = &mut *events;
            match waiting.pop_back() {
                None if !*is_over => self.changed.wait(&mut events),
                event => return event,
            }
        }
    }
}

impl IcmpQueue {
    fn start(mut poster: Poster) -> Result<Self, Error> {
        let (waiting, outcome) = (Arc::<Waiting>::default(), poster.outcome.clone());
        let of_thread = waiting.clone();
        let run = move || {
            while let Some(event) = of_thread.take() {
                poster.post(&event);
            }
        };
        let thread = thread::Builder::new().name("weir-icmp".into()).spawn(run).map_err(Error::Thread)?;
        Ok(Self { waiting, outcome, thread })
    }

    fn add(&self, event: Event) {
        let (waiting, _) = &mut *self.waiting.events.lock();
        if let Some(at) = waiting.iter().position(|other| other.body == event.body) {
            waiting.remove(at);
            self.outcome.repeated.fetch_add(1, Relaxed);
        } else if waiting.len() >= MAX_ICMP {
            waiting.pop_front();
            if self.outcome.dropped.fetch_add(1, Relaxed) == 0 {
                warn!("the probe searches for flows of ICMP too slowly, older events are dropped");
            }
        }
        waiting.push_back(event);
        self.waiting.changed.notify_one();
    }

    /// Waits until all events are posted.
    fn finish(self) {
        self.waiting.events.lock().1 = true;
        self.waiting.changed.notify_one();
        // A panic is in the log.
        let _ = self.thread.join();
    }
}

/// Opens a file for reading. A pipe does not wait for its writer.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}

/// Reads the lines of a file that grows, is rotated and truncated; or of a pipe, to its end.
struct Follower {
    /// `None` for pipes.
    path: Option<PathBuf>,
    file: File,
    /// How the file begins.
    start: Vec<u8>,
    /// After rotations: the new files. Until one has content, the old one is read.
    next: VecDeque<File>,
    /// The first of these has content.
    has_next: bool,
    /// The beginning of a line that has not ended.
    begun: Vec<u8>,
    /// The line that has begun is too long.
    is_too_long: bool,
    buffer: Box<[u8]>,
}

impl Follower {
    fn open(path: &Path, from_start: bool) -> Result<Self, Error> {
        let failed = |error| Error::file(path, error);
        let mut file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?)
        } else {
            open(path).map_err(failed)?
        };
        let kind = file.metadata().map_err(failed)?.file_type();
        let is_pipe = path == Path::new("-") || kind.is_fifo() || kind.is_char_device() || kind.is_socket();
        if !(is_pipe || from_start) {
            file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        let path = (!is_pipe).then(|| path.to_owned());
        let buffer = vec![0; 1 << 16].into();
        Ok(Self {
            path,
            file,
            start: Vec::new(),
            next: VecDeque::new(),
            has_next: false,
            begun: Vec::new(),
            is_too_long: false,
            buffer,
        })
    }

    /// Returns the lines that have come, or waits a little. Returns false at the end of a pipe.
    fn read(&mut self, mut add: impl FnMut(Option<&[u8]>)) -> io::Result<bool> {
        match self.path.clone() {
            None => {
                let wait = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.as_nanos() as _ };
                match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&wait)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(true),
                    polled => polled?,
                };
            }
            Some(path) if self.was_truncated()? => {
                warn!(file = %path.display(), "the file was truncated, reading it from its beginning");
                self.file.seek(SeekFrom::Start(0))?;
                self.end_line(&mut add, false);
            }
            Some(_) => {}
        }
        let length = match self.file.read(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            length => length?,
        };
        if length > 0 {
            self.split(length, add);
        } else if self.path.is_none() {
            self.end_line(&mut add, true);
            return Ok(false);
        } else if std::mem::take(&mut self.has_next)
            && let Some(next) = self.next.pop_front()
        {
            (self.file, self.start) = (next, Vec::new());
            self.end_line(&mut add, false);
        } else if !self.look_for_next()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(true)
    }

    /// Whether the file has become shorter, or begins with something else.
    fn was_truncated(&mut self) -> io::Result<bool> {
        let mut start = [0; START];
        let length = self.file.read_at(&mut start, 0)?;
        let before = std::mem::replace(&mut self.start, start[..length].to_vec());
        Ok(!self.start.starts_with(&before) || self.file.metadata()?.len() < self.file.stream_position()?)
    }

    /// Looks whether there is another file of the name, and whether it has content: then nothing more
    /// is written to the old one, of which the rest is read.
    fn look_for_next(&mut self) -> io::Result<bool> {
        // Of several, the writer has begun with the first that has content.
        for at in 0..self.next.len() {
            if self.next[at].metadata()?.len() > 0 {
                self.next.drain(..at);
                self.has_next = true;
                return Ok(true);
            }
        }
        // An empty one may be rotated away, too, before the writer opens another.
        let present = self.next.back().unwrap_or(&self.file).metadata()?;
        let path = self.path.as_deref();
        // Between two files of a rotation there may be none.
        let next = path.and_then(|path| open(path).ok()).and_then(|file| Some((file.metadata().ok()?, file)));
        if let Some((next, file)) = next
            && (next.dev(), next.ino()) != (present.dev(), present.ino())
        {
            info!(file = %path.unwrap_or(Path::new("")).display(), "the file was rotated");
            self.next.push_back(file);
            if self.next.len() > MAX_NEXT {
                self.next.pop_front();
            }
        }
        Ok(false)
    }

    fn split(&mut self, length: usize, mut add: impl FnMut(Option<&[u8]>)) {
        let octets = std::mem::take(&mut self.buffer);
        for part in octets[..length].split_inclusive(|&octet| octet == b'\n') {
            let (text, has_ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.is_too_long |= self.begun.len() + text.len() > MAX_LINE;
            if !self.is_too_long {
                self.begun.extend_from_slice(text);
            }
            if has_ended {
                self.end_line(&mut add, true);
            }
        }
        self.buffer = octets;
    }

    /// Returns the line that has begun, unless it is empty; one that was cut is broken.
    fn end_line(&mut self, add: &mut impl FnMut(Option<&[u8]>), is_whole: bool) {
        let is_too_long = std::mem::take(&mut self.is_too_long);
        if !self.begun.trim_ascii().is_empty() || is_too_long {
            add((is_whole && !is_too_long).then_some(&self.begun));
        }
        self.begun.clear();
    }
}
