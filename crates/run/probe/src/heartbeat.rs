//! Heartbeats: whether each thread of a probe advances, and which threads have panicked.
//!
//! A thread counts the turns of its loop in a cache line of its own: a store per burst or batch. It
//! notes when it waits for something outside of the probe, such as data in a pipe or a sink. The
//! main thread reads these notes. A thread is stuck if it neither advances nor waits.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

thread_local! {
    /// That of this thread; `None` if the thread belongs to no probe.
    static OWN: RefCell<Option<Arc<Heartbeat>>> = const { RefCell::new(None) };
}

/// What a thread notes about itself.
#[derive(Default)]
#[repr(align(128))]
pub struct Heartbeat {
    /// Turns of its loop.
    turns: AtomicU64,
    is_waiting: AtomicBool,
    has_ended: AtomicBool,
    /// The message of its first panic.
    panic: OnceLock<String>,
}

/// A panic of a thread of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPanic {
    /// The name of the thread.
    pub thread: String,
    /// The message of the panic.
    pub message: String,
}

/// The heartbeat of a thread, as the main thread sees it.
pub(crate) struct Pulse {
    pub name: String,
    pub heartbeat: Arc<Heartbeat>,
    /// Turns at the last check that found another number, or that the thread waits.
    turns: u64,
    /// Time of that check.
    advanced: Instant,
    is_panic_taken: bool,
}

impl Pulse {
    /// The pulse of a thread with this name, which calls [`Heartbeat::adopt`].
    pub fn new(name: String) -> Self {
        Self::of(name, Arc::default())
    }

    /// That of a thread which has adopted the heartbeat.
    pub fn of(name: String, heartbeat: Arc<Heartbeat>) -> Self {
        Self { name, heartbeat, turns: 0, advanced: Instant::now(), is_panic_taken: false }
    }

    /// Whether the thread has not advanced for this time, as far as calls of this function noticed,
    /// and does not wait.
    pub fn is_stuck(&mut self, time: Duration) -> bool {
        let Heartbeat { turns, is_waiting, has_ended, .. } = &*self.heartbeat;
        let turns = turns.load(Ordering::Relaxed);
        let is_idle = is_waiting.load(Ordering::Relaxed) || has_ended.load(Ordering::Relaxed);
        if is_idle || turns != self.turns {
            (self.turns, self.advanced) = (turns, Instant::now());
        }
        self.advanced.elapsed() >= time
    }

    pub fn is_waiting(&self) -> bool {
        self.heartbeat.is_waiting.load(Ordering::Relaxed)
    }

    pub fn has_panicked(&self) -> bool {
        self.heartbeat.panic.get().is_some()
    }

    /// The panic of the thread, once.
    pub fn take_panic(&mut self) -> Option<ThreadPanic> {
        let message = self.heartbeat.panic.get().filter(|_| !self.is_panic_taken)?.clone();
        self.is_panic_taken = true;
        Some(ThreadPanic { thread: self.name.clone(), message })
    }
}

impl Heartbeat {
    /// Makes this the heartbeat of the calling thread until the end of `run`.
    pub fn adopt(self: Arc<Self>, run: impl FnOnce()) {
        OWN.set(Some(self.clone()));
        run();
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Counts a turn of the calling thread.
#[inline]
pub fn beat() {
    OWN.with_borrow(|own| {
        if let Some(Heartbeat { turns, .. }) = own.as_deref() {
            // Only this thread writes it, so no atomic addition is needed.
            turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
}

/// Calls a function that may wait for long for something outside of the probe. The calling thread
/// is not stuck meanwhile.
pub fn while_waiting<T>(wait: impl FnOnce() -> T) -> T {
    let set =
        |waits| OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.is_waiting.swap(waits, Ordering::Relaxed)));
    let before = set(true);
    let result = wait();
    set(before);
    result
}

/// Calls a function. If it panics, notes this for the calling thread and returns `None`. The caller
/// continues with what the function has changed, only to end in order.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    let note = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        OWN.with_borrow(|own| own.as_ref().map(|own| own.panic.set(text.into())));
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(note).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_thread_is_stuck_while_it_neither_advances_nor_waits_nor_has_ended() {
        let mut pulse = Pulse::new("test".into());
        let heartbeat = pulse.heartbeat.clone();
        let (step, steps) = channel::<()>();
        let (done, dones) = channel::<()>();
        let thread = thread::spawn(move || {
            heartbeat.adopt(|| {
                beat();
                done.send(()).unwrap();
                steps.recv().unwrap();
                while_waiting(|| {
                    done.send(()).unwrap();
                    steps.recv().unwrap();
                });
                done.send(()).unwrap();
                steps.recv().unwrap();
                assert!(catch_panic(|| panic!("{} is odd", 5)).is_none());
            });
        });
        let long_ago = |pulse: &mut Pulse| pulse.advanced = Instant::now() - Duration::from_secs(10);
        let is_stuck = |pulse: &mut Pulse| {
            long_ago(pulse);
            pulse.is_stuck(Duration::from_secs(5))
        };
        dones.recv().unwrap();
        assert!(!is_stuck(&mut pulse), "it has advanced");
        assert!(is_stuck(&mut pulse));
        step.send(()).unwrap();
        dones.recv().unwrap();
        assert!(!is_stuck(&mut pulse), "it waits");
        step.send(()).unwrap();
        dones.recv().unwrap();
        assert!(is_stuck(&mut pulse), "it has waited");
        assert!(!pulse.has_panicked());
        step.send(()).unwrap();
        thread.join().unwrap();
        assert!(!is_stuck(&mut pulse), "it has ended");
        let panic = ThreadPanic { thread: "test".into(), message: "5 is odd".into() };
        assert_eq!([pulse.take_panic(), pulse.take_panic()], [Some(panic), None]);
    }
}
