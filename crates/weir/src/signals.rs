//! Signals that end a run, those that request something of it, and one that must not end it.

use crate::error::Error;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tracing::debug;

/// A further signal within this time counts as the first one: `timeout`, shells and supervisors signal a process
/// and its group at once.
const SAME_SIGNAL_TIME: Duration = Duration::from_secs(2);

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail like one to a full disk. By default
/// the signal would end the program, and its records would be lost without being counted.
pub fn survive_file_size_limit() -> Result<(), Error> {
    // With any handler the write returns an error.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(drop).map_err(Error::Signals)
}

/// SIGINT and SIGTERM. The first one sets a flag. While inputs and outputs are being opened, when nothing can be lost
/// yet, a second one ends the program at once.
pub struct StopSignal {
    flag: Arc<AtomicBool>,
    signals: Signals,
    /// The handlers that end the program.
    opening: Vec<SigId>,
}

impl StopSignal {
    pub fn register() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        let mut opening = Vec::new();
        for signal in [SIGINT, SIGTERM] {
            let end = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.clone());
            opening.push(end.map_err(Error::Signals)?);
            signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
        }
        let signals = Signals::new([SIGINT, SIGTERM]).map_err(Error::Signals)?;
        Ok(Self { flag, signals, opening })
    }

    /// The flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// From now on a further signal ends the program only if it comes more than [`SAME_SIGNAL_TIME`] after the first
    /// one. Starts the thread that measures this time; it has the privileges of the caller. Call it when the flow
    /// cache has its memory: each thread takes address space for its allocator. Where the system permits no further
    /// thread, a second signal still ends the program at once.
    pub fn start_thread(self) -> Arc<AtomicBool> {
        // Set: a second signal has no other effect.
        self.start_thread_with(Arc::new(AtomicBool::new(true)))
    }

    /// The same, but a second signal only sets this flag, and a third one ends the program.
    pub fn start_thread_with(self, second: Arc<AtomicBool>) -> Arc<AtomicBool> {
        const STACK_BYTES: usize = 64 << 10;
        let Self { flag, mut signals, opening } = self;
        let wait = move || {
            let mut last: Option<Instant> = None;
            for signal in signals.forever() {
                let is_same = last.is_none_or(|last| last.elapsed() <= SAME_SIGNAL_TIME);
                last.get_or_insert_with(Instant::now);
                if !is_same {
                    if second.swap(true, Ordering::Relaxed) {
                        signal_hook::low_level::exit(128 + signal);
                    }
                    last = Some(Instant::now());
                }
            }
        };
        match thread::Builder::new().name("weir-signals".into()).stack_size(STACK_BYTES).spawn(wait) {
            Ok(_) => opening.into_iter().for_each(|handler| {
                signal_hook::low_level::unregister(handler);
            }),
            Err(error) => debug!(%error, "a second signal ends the program at once: no thread measures the time"),
        }
        flag
    }
}

/// A flag that a signal sets.
pub fn signal_flag(signal: i32) -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
    Ok(flag)
}
