//! Where a thread at work is asked, and answers between two bursts.
//!
//! A thread looks at its desk after every burst: one load of memory that nobody writes meanwhile. Only if there is a question it
//! takes the lock.

use crate::account::Account;
use crate::settings::Settings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Errors that are kept to be told; what comes on top is counted.
const ERRORS: usize = 20;

/// A thread's desk.
#[derive(Default)]
pub(crate) struct Desk {
    /// Counts questions.
    asked: AtomicU64,
    told: Mutex<Told>,
    answered: Condvar,
}

/// What lies on it.
#[derive(Default)]
pub(crate) struct Told {
    /// The question that was answered last.
    pub number: u64,
    pub report: Report,
    /// What is to be taken over.
    change: Option<Settings>,
    /// The thread has come to its end.
    pub ended: bool,
}

/// What a thread says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub account: Account,
    /// Processor time that it took, ns.
    pub busy_ns: u64,
    /// What went wrong since it was told last, the first of it.
    pub errors: Vec<String>,
    /// More that went wrong.
    pub more_errors: u64,
}

impl Desk {
    /// Asks, and gives the question's number.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks to take over settings.
    pub fn order(&self, settings: &Settings) -> u64 {
        self.lock().change = Some(settings.clone());
        self.ask()
    }

    /// Waits for the answer to a question until some time.
    pub fn wait(&self, number: u64, deadline: Instant) -> MutexGuard<'_, Told> {
        let mut told = self.lock();
        while told.number < number && !told.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            told = self.answered.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        told
    }

    /// The number of the last question, if it was not answered yet. `answered` is that of the one before.
    #[inline]
    pub fn question(&self, answered: &mut u64) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        (asked != std::mem::replace(answered, asked)).then_some(asked)
    }

    /// Answers a question, after what is to be taken over was.
    pub fn answer(&self, number: u64, answer: impl FnOnce(Option<Settings>) -> (Account, Vec<String>)) {
        let mut told = self.lock();
        let change = told.change.take();
        let (account, errors) = answer(change);
        told.report.account = account;
        told.report.busy_ns = busy_ns();
        told.report.errors.extend(errors);
        told.number = number;
        self.answered.notify_all();
    }

    /// Notes what went wrong.
    pub fn say(&self, error: String) {
        let report = &mut self.lock().report;
        if report.errors.len() < ERRORS {
            report.errors.push(error);
        } else {
            report.more_errors += 1;
        }
    }

    /// The thread comes to its end.
    pub fn end(&self, account: Account) {
        let mut told = self.lock();
        told.report.account = account;
        told.report.busy_ns = busy_ns();
        told.ended = true;
        self.answered.notify_all();
    }

    /// What is told is whole after every line that could panic.
    pub fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// What was said, errors once.
    pub fn take(&mut self) -> Report {
        let report = self.report.clone();
        self.report.errors.clear();
        self.report.more_errors = 0;
        report
    }
}

/// Processor time of this thread, ns.
pub(crate) fn busy_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
