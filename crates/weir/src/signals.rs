//! Signals that end a run, those that request something of it, and one that must not end it.

use crate::error::Error;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use tracing::{debug, error};
use weir_ledger::Timing;

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail like one to a full disk. By default
/// the signal would end the program, and its records would be lost without being counted.
pub fn survive_file_size_limit() -> Result<(), Error> {
    // With any handler the write returns an error.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(drop).map_err(Error::Signals)
}

/// The signals that end a run. The first one sets a flag. While inputs and outputs are being opened, when nothing can
/// be lost yet, a second one ends the program at once.
pub struct StopSignal {
    flag: Arc<AtomicBool>,
    signals: Signals,
    /// The handlers that end the program.
    opening: Vec<SigId>,
    /// Whether further signals end the program.
    ends: bool,
}

impl StopSignal {
    /// SIGINT and SIGTERM, and SIGHUP as the end of the terminal, unless it is ignored (`nohup`).
    pub fn register() -> Result<Self, Error> {
        Self::of(with_hangup(), true)
    }

    /// The same, but no further signal ends the program: it removes what it has made.
    pub fn register_without_end() -> Result<Self, Error> {
        Self::of(with_hangup(), false)
    }

    /// SIGINT and SIGTERM.
    pub fn register_without_hangup() -> Result<Self, Error> {
        Self::of(vec![SIGINT, SIGTERM], true)
    }

    fn of(stopping: Vec<i32>, ends: bool) -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        let mut opening = Vec::new();
        for &signal in &stopping {
            if ends {
                let end = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.clone());
                opening.push(end.map_err(Error::Signals)?);
            }
            signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
        }
        let signals = Signals::new(stopping).map_err(Error::Signals)?;
        Ok(Self { flag, signals, opening, ends })
    }

    /// The flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Waits for a signal that was not asked for before: that by which the flag is set.
    pub fn wait(&mut self) -> Option<i32> {
        self.signals.forever().next()
    }

    /// From now on a second signal ends the program only if it comes after a warning. Starts the thread that gives
    /// it; it has the privileges of the caller. Call it when the flow cache has its memory: each thread takes address
    /// space for its allocator. Where the system permits no further thread, a second signal still ends the program at
    /// once.
    pub fn start_thread(self) -> Arc<AtomicBool> {
        self.start(Timing::default().same_signal, None)
    }

    /// The same, but a second signal calls this function, which discards records that outputs have not accepted. A
    /// third one ends the program.
    pub fn start_thread_with(self, timing: &Timing, discard: impl Fn() + Send + 'static) -> Arc<AtomicBool> {
        self.start(timing.same_signal, Some(Box::new(discard)))
    }

    fn start(self, pause: Duration, discard: Option<Box<dyn Fn() + Send>>) -> Arc<AtomicBool> {
        const STACK_BYTES: usize = 64 << 10;
        let Self { flag, mut signals, opening, ends } = self;
        let wait = move || {
            opening.into_iter().for_each(|handler| {
                signal_hook::low_level::unregister(handler);
            });
            signals.forever().next();
            if let Some(discard) = discard {
                next(
                    &mut signals,
                    pause,
                    "another signal loses the records that outputs have not accepted by then; a spool keeps them",
                );
                discard();
            }
            if !ends {
                return;
            }
            let signal =
                next(&mut signals, pause, "another signal ends the program at once, and loses what is not written");
            signal_hook::low_level::exit(128 + signal.unwrap_or_default());
        };
        let thread = thread::Builder::new().name("weir-signals".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(wait) {
            debug!(%error, "a second signal ends the program at once: no thread measures the time");
        }
        flag
    }
}

/// If the program has not ended some time after a signal, says what the next one does, and waits for that. Signals
/// before the warning count as the last one.
fn next(signals: &mut Signals, pause: Duration, warning: &str) -> Option<i32> {
    thread::sleep(pause);
    // What is lost then is worth a line at each log level.
    error!("{warning}");
    signals.pending().for_each(drop);
    signals.forever().next()
}

/// SIGINT, SIGTERM and, unless it is ignored (`nohup`), SIGHUP.
fn with_hangup() -> Vec<i32> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether the parent of this process has set a signal to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The variable by which `weir top` asks its child to end with its standard input.
pub const ENDS_WITH_STDIN: &str = "WEIR_ENDS_WITH_STDIN";

/// Ends this process, as SIGTERM does, when its standard input ends, if its parent asks for that: it ends with the
/// parent, however that ends. The thread is the first of the process, outside of every sandbox, and reads nothing else.
pub fn end_with_parent() {
    if std::env::var_os(ENDS_WITH_STDIN).is_none() {
        return;
    }
    let wait = || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = signal_hook::low_level::raise(SIGTERM);
    };
    if let Err(error) = thread::Builder::new().name("weir-parent".into()).spawn(wait) {
        debug!(%error, "the end of the parent is not noticed: no thread waits for it");
    }
}

/// Sends SIGTERM to a child that has not been waited for.
pub fn kill(child: u32) {
    let child = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw);
    // It may have ended.
    let _ = child.map(|child| rustix::process::kill_process(child, rustix::process::Signal::TERM));
}

/// A flag that SIGINT, SIGTERM and SIGHUP set. No signal ends the program: that is up to the caller.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
    }
    Ok(flag)
}

/// A flag that a signal sets.
pub fn signal_flag(signal: i32) -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
    Ok(flag)
}
