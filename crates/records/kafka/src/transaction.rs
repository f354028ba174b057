//! Transactions, and a number in each of them: the committed offset of a group that has no members.
//!
//! The number is in the topic's cluster if the messages of the transaction are, and only then. A later client with the
//! same `transactional.id` reads it when the transactions of earlier ones are over.
//!
//! Steps of transactions wait for brokers, so a thread makes them. Messages are sent and events are polled beside it.
#![allow(unsafe_code)]

use crate::client::{Client, REASON_BYTES, milliseconds, set_all};
use crate::error::Error;
use crate::library::{CONSUMER, Handle, Library, NO_CONSUMER_CLOSE, text};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The partition of the topic for which the group has an offset.
const PARTITION: i32 = 0;
/// librdkafka waits this long for brokers until a call has to be repeated. It takes the result of an earlier call, which
/// comes late, for that of the next one, up to a failed assertion that ends the process: so calls that only wait must be
/// rare.
const STEP_TIME: Duration = Duration::from_secs(30);

/// Why a step of a transaction has not succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is not done yet: the same step has to be called again.
    Pending(String),
    /// The transaction has to be aborted.
    Abort(String),
    /// The client can do nothing any longer, as when another one has its `transactional.id`.
    Fatal(String),
}

/// Where the number is: a group, and a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    group: CString,
    topic: CString,
}

impl Position {
    /// # Errors
    /// A name has a NUL character.
    pub fn new(group: &str, topic: &str) -> Result<Self, Error> {
        let group = CString::new(group).map_err(|_| Error::Nul("the name of the group"))?;
        let topic = CString::new(topic).map_err(|_| Error::Nul("the topic"))?;
        Ok(Self { group, topic })
    }

    /// Reads the number, for which this waits. `None`: no transaction had one.
    ///
    /// # Errors
    /// No broker has answered in time, or it refuses this.
    pub fn read(
        &self,
        library: &'static Library,
        options: &[(String, String)],
        wait: Duration,
    ) -> Result<Option<i64>, Error> {
        let functions = &library.functions;
        let mut reason = [0; REASON_BYTES];
        let own = [("group.id", self.group.to_string_lossy()), ("enable.auto.commit", "false".into())];
        let own = own.map(|(name, value)| (name.to_owned(), value.into_owned()));
        // SAFETY: the configuration is used by this thread only; `rd_kafka_new` owns it if it returns a client,
        // otherwise it is destroyed here. The client is destroyed once.
        unsafe {
            let configuration = (functions.conf_new)();
            if let Err(error) = set_all(library, configuration, &[options, &own].concat()) {
                (functions.conf_destroy)(configuration);
                return Err(error);
            }
            let client = (functions.new)(CONSUMER, configuration, reason.as_mut_ptr(), reason.len());
            if client.is_null() {
                (functions.conf_destroy)(configuration);
                return Err(Error::Client(text(reason.as_ptr())));
            }
            let result = self.with_list(library, 0, |list, offset| {
                let error = (functions.committed)(client, list, milliseconds(wait));
                let error = if error == 0 { (*offset).error } else { error };
                if error == 0 { Ok((*offset).offset) } else { Err(Error::Unreachable(library.sentence(error))) }
            });
            (functions.destroy_flags)(client, NO_CONSUMER_CLOSE);
            result.map(|offset| (offset >= 0).then_some(offset))
        }
    }

    /// Calls a function with a list that has the topic, and with its entry.
    fn with_list<T>(
        &self,
        library: &Library,
        offset: i64,
        call: impl FnOnce(Handle, *mut crate::library::CTopicPartition) -> T,
    ) -> T {
        let functions = &library.functions;
        // SAFETY: the list and its entry are alive until the list is destroyed, once, after the call. The name ends
        // with NUL and is copied.
        unsafe {
            let list = (functions.topic_partition_list_new)(1);
            let entry = (functions.topic_partition_list_add)(list, self.topic.as_ptr(), PARTITION);
            (*entry).offset = offset;
            let result = call(list, entry);
            (functions.topic_partition_list_destroy)(list);
            result
        }
    }
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ends the transactions of earlier clients with this `transactional.id`.
    Start,
    /// Begins a transaction, to which all messages belong that are sent when this is done.
    Begin,
    /// Puts the number into the transaction.
    Position(Position, i64),
    /// Commits the transaction, all of whose messages have a report.
    Commit,
    /// Aborts the transaction. Messages without a report get one.
    Abort,
}

/// The thread on which steps are made. When this is dropped, it waits until librdkafka returns.
pub(crate) struct Steps {
    /// `None` when the thread is to end.
    requests: Option<Sender<Step>>,
    results: Receiver<Result<(), Failure>>,
    thread: Option<JoinHandle<()>>,
    /// The step that is made.
    running: Option<Step>,
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It calls C only: a panic has no other cause than memory.
            let _ = thread.join();
        }
    }
}

fn no_thread() -> Failure {
    Failure::Fatal("the thread for transactions has ended".into())
}

impl Steps {
    pub(crate) fn start(client: Arc<Client>) -> Result<Self, Failure> {
        let (requests, asked) = channel::<Step>();
        let (send, results) = channel();
        let make = move || {
            while let Ok(step) = asked.recv()
                && send.send(client.make(&step)).is_ok()
            {}
        };
        match thread::Builder::new().name("weir-kafka-steps".into()).spawn(make) {
            Ok(thread) => Ok(Self { requests: Some(requests), results, thread: Some(thread), running: None }),
            Err(error) => Err(Failure::Pending(format!("no thread can be started: {error}"))),
        }
    }

    /// Begins a step, or goes on with it, and waits for its end up to this time.
    pub(crate) fn go_on(&mut self, step: &Step, wait: Duration) -> Result<(), Failure> {
        if self.running.as_ref().is_some_and(|running| running != step) {
            match self.results.try_recv() {
                Ok(_) => self.running = None,
                Err(_) => return Err(Failure::Pending("another step is not done".into())),
            }
        }
        if self.running.is_none() {
            self.requests.as_ref().ok_or_else(no_thread)?.send(step.clone()).map_err(|_| no_thread())?;
            self.running = Some(step.clone());
        }
        let result = match self.results.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => return Err(Failure::Pending("no broker has answered".into())),
            Err(RecvTimeoutError::Disconnected) => Err(no_thread()),
            Ok(result) => result,
        };
        self.running = None;
        result
    }
}

impl Client {
    /// Makes a step.
    fn make(&self, step: &Step) -> Result<(), Failure> {
        let functions = &self.library.functions;
        let wait = milliseconds(STEP_TIME);
        // SAFETY: the client is alive, and so is the list of a position. The group is copied, and destroyed once.
        let error = unsafe {
            match step {
                Step::Start => (functions.init_transactions)(self.handle, wait),
                Step::Begin => (functions.begin_transaction)(self.handle),
                Step::Position(position, number) => position.with_list(self.library, *number, |list, _| {
                    let group = (functions.consumer_group_metadata_new)(position.group.as_ptr());
                    let error = (functions.send_offsets_to_transaction)(self.handle, list, group, wait);
                    (functions.consumer_group_metadata_destroy)(group);
                    error
                }),
                Step::Commit => (functions.commit_transaction)(self.handle, wait),
                Step::Abort => (functions.abort_transaction)(self.handle, wait),
            }
        };
        self.outcome(error)
    }

    fn outcome(&self, error: Handle) -> Result<(), Failure> {
        if error.is_null() {
            return Ok(());
        }
        let functions = &self.library.functions;
        // SAFETY: the error is not null; its text is copied; it is destroyed once, after its last use.
        let (sentence, is_pending, needs_abort) = unsafe {
            let result = (
                text((functions.error_string)(error)),
                (functions.error_is_retriable)(error) != 0,
                (functions.error_txn_requires_abort)(error) != 0,
            );
            (functions.error_destroy)(error);
            result
        };
        Err(match (is_pending, needs_abort) {
            (_, true) => Failure::Abort(sentence),
            (true, _) => Failure::Pending(sentence),
            _ => Failure::Fatal(sentence),
        })
    }
}
