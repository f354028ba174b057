//! The mailbox through which the probe controls a running worker thread: it requests reports and
//! changes settings, and searches among flows.
//!
//! A worker checks its mailbox after every burst, which costs one load of memory that is not
//! written meanwhile. It takes the lock only for a new request.

use crate::account::Account;
use crate::flow_search::RunningSearch;
use crate::settings::Settings;
use crate::thread::cpu_time_ns;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weir_capture::FilterError;

/// Errors that are kept until the next report; further ones are only counted.
const MAX_ERRORS: usize = 20;

#[derive(Default)]
pub(crate) struct ControlMailbox {
    requests: AtomicU64,
    contents: Mutex<Contents>,
    replied: Condvar,
}

#[derive(Default)]
pub(crate) struct Contents {
    answered_request: u64,
    report: WorkerReport,
    /// Settings that the worker is to apply.
    settings: Option<Settings>,
    /// A search that the worker is to begin.
    search: Option<RunningSearch>,
}

#[derive(Default)]
pub(crate) struct WorkerReport {
    pub account: Account,
    pub cpu_time_ns: u64,
    /// The first errors since the previous report.
    pub errors: Vec<PipelineError>,
    pub more_errors: u64,
    /// The worker has finished, and this is its last report.
    pub is_finished: bool,
    /// The worker has panicked. Set in its last report.
    pub has_panicked: bool,
    /// The worker did not answer in time, and this is an earlier report.
    pub timed_out: bool,
}

/// A problem that does not end a pipeline.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The source is damaged at some place.
    #[error(transparent)]
    Source(#[from] weir_capture::Error),
    /// The packet filter cannot be applied to some frames.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl ControlMailbox {
    /// Requests a report. Returns the number of the request.
    pub fn request_report(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Requests to apply settings. Returns the number of the request.
    pub fn request_settings(&self, settings: &Settings) -> u64 {
        self.contents.lock().settings = Some(settings.clone());
        self.request_report()
    }

    /// Requests a search, which replaces one that has not ended. A worker that has finished has no flows.
    pub fn request_search(&self, search: RunningSearch) {
        let mut contents = self.contents.lock();
        if !contents.report.is_finished {
            contents.search = Some(search);
            self.request_report();
        }
    }

    /// For the worker, after a reply: a search that it is to begin.
    pub fn take_search(&self) -> Option<RunningSearch> {
        self.contents.lock().search.take()
    }

    /// Waits for the reply to a request, no longer than to a deadline.
    pub fn wait_for_reply(&self, request: u64, deadline: Instant) -> MutexGuard<'_, Contents> {
        let mut contents = self.contents.lock();
        let waits = |contents: &mut Contents| contents.answered_request < request && !contents.report.is_finished;
        self.replied.wait_while_until(&mut contents, waits, deadline);
        contents
    }

    /// The report for a request; after the deadline, an earlier one. Each error appears once.
    pub fn report(&self, request: u64, deadline: Instant) -> WorkerReport {
        let mut contents = self.wait_for_reply(request, deadline);
        let timed_out = contents.answered_request < request && !contents.report.is_finished;
        let report = &mut contents.report;
        let (errors, more_errors) = (std::mem::take(&mut report.errors), std::mem::take(&mut report.more_errors));
        WorkerReport { account: report.account.clone(), errors, more_errors, timed_out, ..*report }
    }

    /// For the worker: the number of a request that is newer than `last_seen`, which is updated.
    #[inline]
    pub fn new_request(&self, last_seen: &mut u64) -> Option<u64> {
        let request = self.requests.load(Ordering::Relaxed);
        (request != std::mem::replace(last_seen, request)).then_some(request)
    }

    /// For the worker: answers a request. `reply` applies the settings, if there are any.
    pub fn reply(&self, request: u64, reply: impl FnOnce(Option<Settings>) -> (Account, Vec<FilterError>)) {
        let mut contents = self.contents.lock();
        let settings = contents.settings.take();
        let (account, errors) = reply(settings);
        (contents.report.account, contents.report.cpu_time_ns) = (account, cpu_time_ns());
        contents.report.errors.extend(errors.into_iter().map(PipelineError::from));
        contents.answered_request = request;
        self.replied.notify_all();
    }

    /// For the worker: adds an error to the next report.
    pub fn add_error(&self, error: impl Into<PipelineError>) {
        let report = &mut self.contents.lock().report;
        if report.errors.len() < MAX_ERRORS {
            report.errors.push(error.into());
        } else {
            report.more_errors += 1;
        }
    }

    pub fn finish(&self, account: Account) {
        let mut contents = self.contents.lock();
        contents.search = None;
        let report = &mut contents.report;
        (report.account, report.cpu_time_ns, report.is_finished) = (account, cpu_time_ns(), true);
        self.replied.notify_all();
    }
}
