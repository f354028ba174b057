//! Transactions, and a number in each of them: the committed offset of a group that has no members.
//!
//! The number is in the topic's cluster if the messages of the transaction are, and only then. A later client with the
//! same `transactional.id` reads it when the transactions of earlier ones are over.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::library::{CONSUMER, Handle, Library, NO_CONSUMER_CLOSE, text};
use crate::producer::{Producer, REASON_BYTES, milliseconds, set_all};
use std::ffi::CString;
use std::time::Duration;

/// The partition of the topic for which the group has an offset.
const PARTITION: i32 = 0;

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
#[derive(Clone, Debug)]
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

impl Producer {
    /// Ends the transactions of earlier clients with this `transactional.id`. Waits up to this time.
    ///
    /// # Errors
    /// [`Failure::Pending`] if it is not done: it goes on, and is called again.
    pub fn init_transactions(&mut self, wait: Duration) -> Result<(), Failure> {
        // SAFETY: the client is alive.
        self.outcome(unsafe { (self.library.functions.init_transactions)(self.client, milliseconds(wait)) })
    }

    /// Begins a transaction, to which all messages belong that are sent from now on.
    ///
    /// # Errors
    /// There is one, or the client has failed.
    pub fn begin_transaction(&mut self) -> Result<(), Failure> {
        // SAFETY: the client is alive.
        self.outcome(unsafe { (self.library.functions.begin_transaction)(self.client) })
    }

    /// Puts the number into the transaction. Waits up to this time.
    ///
    /// # Errors
    /// [`Failure::Pending`] if no broker answered in time: it is called again.
    pub fn send_position(&mut self, position: &Position, number: i64, wait: Duration) -> Result<(), Failure> {
        let functions = &self.library.functions;
        // SAFETY: client and list are alive. The group is copied, and destroyed once.
        let error = position.with_list(self.library, number, |list, _| unsafe {
            let group = (functions.consumer_group_metadata_new)(position.group.as_ptr());
            let error = (functions.send_offsets_to_transaction)(self.client, list, group, milliseconds(wait));
            (functions.consumer_group_metadata_destroy)(group);
            error
        });
        self.outcome(error)
    }

    /// Commits the transaction, all of whose messages have a report. Waits up to this time.
    ///
    /// # Errors
    /// [`Failure::Pending`] if it is not done: it goes on, and is called again.
    pub fn commit_transaction(&mut self, wait: Duration) -> Result<(), Failure> {
        // SAFETY: the client is alive.
        self.outcome(unsafe { (self.library.functions.commit_transaction)(self.client, milliseconds(wait)) })
    }

    /// Aborts the transaction. Messages without a report get one. Waits up to this time.
    ///
    /// # Errors
    /// [`Failure::Pending`] if it is not done: it goes on, and is called again.
    pub fn abort_transaction(&mut self, wait: Duration) -> Result<(), Failure> {
        // SAFETY: the client is alive.
        self.outcome(unsafe { (self.library.functions.abort_transaction)(self.client, milliseconds(wait)) })
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
