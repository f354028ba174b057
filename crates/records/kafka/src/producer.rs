//! A client of librdkafka that sends messages to one topic.
#![allow(unsafe_code)]

use crate::client::{Client, REASON_BYTES, milliseconds, set_all};
use crate::error::{Error, code};
use crate::library::{
    ANY_PARTITION, CArgument, CMetadata, COPY, EVENT_DELIVERY, EVENT_ERROR, EVENT_LOG, Library, PRODUCER, PURGE_ALL,
    argument, text,
};
use crate::transaction::{Failure, Step, Steps};
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request for metadata waits this long at a time: events are looked at in between.
const METADATA_WAIT: Duration = Duration::from_millis(100);

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Messages of the same key go to the same partition.
    pub key: &'a [u8],
    /// The content.
    pub value: &'a [u8],
    /// Names and values of its headers.
    pub headers: &'a [(&'a CStr, &'a [u8])],
    /// A number that its report has.
    pub number: usize,
}

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for a broker. A report follows.
    Accepted,
    /// It was not accepted, for the reason with this number. There is no report.
    Refused(i32),
}

/// What became of an accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// That of the message.
    pub number: usize,
    /// 0 if the broker has it, otherwise the number of the error.
    pub error: i32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Messages were delivered, or failed.
    Reports(Vec<Report>),
    /// An error of the connection or of the client: number and sentence.
    Error(i32, String),
    /// A line for the log: severity of syslog and text.
    Log(i32, String),
}

/// A client with a topic.
pub struct Producer {
    client: Arc<Client>,
    /// Where steps of transactions are made.
    steps: Option<Steps>,
}

impl Producer {
    /// Makes a client, which connects on threads of its own.
    ///
    /// # Errors
    /// An option is refused.
    pub fn new(library: &'static Library, options: &[(String, String)], topic: &str) -> Result<Self, Error> {
        let functions = &library.functions;
        let name = CString::new(topic).map_err(|_| Error::Nul("the topic"))?;
        let mut reason = [0; REASON_BYTES];
        // SAFETY: the configuration is used by this thread only. `rd_kafka_new` owns it if it returns a client;
        // otherwise it is destroyed here. The client is not null, nor are topic and queue; `drop` destroys each once.
        // Texts end with NUL and outlive the calls, which copy them.
        unsafe {
            let configuration = (functions.conf_new)();
            if let Err(error) = set_all(library, configuration, options) {
                (functions.conf_destroy)(configuration);
                return Err(error);
            }
            (functions.conf_set_events)(configuration, EVENT_DELIVERY | EVENT_ERROR | EVENT_LOG);
            let client = (functions.new)(PRODUCER, configuration, reason.as_mut_ptr(), reason.len());
            if client.is_null() {
                (functions.conf_destroy)(configuration);
                return Err(Error::Client(text(reason.as_ptr())));
            }
            let topic_handle = (functions.topic_new)(client, name.as_ptr(), std::ptr::null_mut());
            if topic_handle.is_null() {
                let reason = library.sentence((functions.last_error)());
                (functions.destroy)(client);
                return Err(Error::Topic { topic: topic.into(), reason });
            }
            let events = (functions.queue_get_main)(client);
            // Lines of the log come as events of the main queue.
            (functions.set_log_queue)(client, std::ptr::null_mut());
            let client = Client { library, handle: client, topic: topic_handle, events };
            Ok(Self { client: Arc::new(client), steps: None })
        }
    }

    /// Begins a step of a transaction, or goes on with it, and waits for its end up to this time.
    ///
    /// # Errors
    /// [`Failure::Pending`] if it is not done: it goes on, and is called again.
    pub fn step(&mut self, step: &Step, wait: Duration) -> Result<(), Failure> {
        let steps = match &mut self.steps {
            Some(steps) => steps,
            none => none.insert(Steps::start(self.client.clone())?),
        };
        steps.go_on(step, wait)
    }

    /// Sends a message: it waits in the queue of the client, which copies it.
    pub fn send(&mut self, message: &Message<'_>) -> Outcome {
        let functions = &self.client.library.functions;
        let mut arguments = vec![
            CArgument::new(argument::TOPIC_HANDLE, [self.client.topic as usize, 0, 0]),
            CArgument::number(argument::PARTITION, ANY_PARTITION),
            CArgument::number(argument::FLAGS, COPY),
            CArgument::new(argument::VALUE, [message.value.as_ptr() as usize, message.value.len(), 0]),
            CArgument::new(argument::KEY, [message.key.as_ptr() as usize, message.key.len(), 0]),
            CArgument::new(argument::OPAQUE, [message.number, 0, 0]),
        ];
        for (name, header) in message.headers {
            let words = [name.as_ptr() as usize, header.as_ptr() as usize, header.len()];
            arguments.push(CArgument::new(argument::HEADER, words));
        }
        // SAFETY: topic and client are alive. The kinds of the arguments say which words they have; the pointers are
        // those of slices and a text that outlive the call, which copies value (COPY), key and headers. Without
        // F_BLOCK it does not wait. An error is destroyed once.
        unsafe {
            let error = (functions.produceva)(self.client.handle, arguments.as_ptr(), arguments.len());
            if error.is_null() {
                return Outcome::Accepted;
            }
            let number = (functions.error_code)(error);
            (functions.error_destroy)(error);
            Outcome::Refused(number)
        }
    }

    /// The next event, for which this waits.
    pub fn poll(&mut self, wait: Duration) -> Option<Event> {
        let functions = &self.client.library.functions;
        // SAFETY: the queue is alive. The event is not null, is used by this thread only, and is destroyed once,
        // after its last use; messages and texts belong to it and are copied.
        unsafe {
            let event = (functions.queue_poll)(self.client.events, milliseconds(wait));
            if event.is_null() {
                return None;
            }
            let result = match (functions.event_type)(event) {
                EVENT_ERROR => {
                    let sentence = text((functions.event_error_string)(event));
                    Event::Error((functions.event_error)(event), sentence)
                }
                EVENT_LOG => {
                    let (mut facility, mut line, mut level) = (std::ptr::null(), std::ptr::null(), 0);
                    (functions.event_log)(event, &mut facility, &mut line, &mut level);
                    Event::Log(level, text(line))
                }
                _ => {
                    let mut reports = Vec::new();
                    while let Some(message) = (functions.event_message_next)(event).as_ref() {
                        reports.push(Report { number: message.opaque, error: message.error });
                    }
                    Event::Reports(reports)
                }
            };
            (functions.event_destroy)(event);
            Some(result)
        }
    }

    /// Sends what waits without regard to `linger.ms`, for up to this time.
    pub fn flush(&mut self, wait: Duration) {
        // SAFETY: the client is alive.
        unsafe { (self.client.library.functions.flush)(self.client.handle, milliseconds(wait)) };
    }

    /// Gives up all messages. Those that a broker has in hand may still arrive there.
    pub fn purge(&mut self) {
        // SAFETY: the client is alive.
        unsafe { (self.client.library.functions.purge)(self.client.handle, PURGE_ALL) };
    }

    /// The sentence of the error after which the client sends nothing any longer.
    pub fn fatal_error(&self) -> Option<String> {
        let mut reason = [0; REASON_BYTES];
        // SAFETY: the client is alive; the function writes a text with NUL into the buffer if it returns an error.
        unsafe {
            let code =
                (self.client.library.functions.fatal_error)(self.client.handle, reason.as_mut_ptr(), reason.len());
            (code != 0).then(|| text(reason.as_ptr()))
        }
    }

    /// Waits until a broker has answered and has the topic.
    ///
    /// # Errors
    /// No broker answered within this time, or all refused the connection, or the topic cannot be used.
    pub fn check(&mut self, topic: &str, limit: Duration) -> Result<(), Error> {
        let end = Instant::now() + limit;
        let mut last = "no broker has answered".to_owned();
        let mut of_topic = None;
        loop {
            let answer = self.topic_error(METADATA_WAIT.min(limit));
            let is_over = Instant::now() >= end;
            match answer {
                Ok(0) => return Ok(()),
                // A broker creates the topic, or says again that it does not.
                Ok(number @ (code::UNKNOWN_TOPIC | code::NO_LEADER)) => of_topic = Some(number),
                Ok(number) => return Err(self.unusable(topic, number)),
                Err(_) => {}
            }
            if is_over {
                return Err(of_topic.map_or(Error::Unreachable(last), |number| self.unusable(topic, number)));
            }
            while let Some(event) = self.poll(if answer.is_ok() { METADATA_WAIT } else { Duration::ZERO }) {
                match event {
                    Event::Error(code::ALL_BROKERS_DOWN, _) => return Err(Error::Unreachable(last)),
                    Event::Error(code::AUTHENTICATION | code::SSL | code::FATAL, sentence) => {
                        return Err(Error::Unreachable(sentence));
                    }
                    Event::Error(_, sentence) => last = sentence,
                    _ => {}
                }
            }
        }
    }

    fn unusable(&self, topic: &str, error: c_int) -> Error {
        Error::Topic { topic: topic.into(), reason: self.client.library.sentence(error) }
    }

    /// The error that a broker reports for the topic; 0 without one. The other one: no broker answered.
    fn topic_error(&mut self, wait: Duration) -> Result<c_int, c_int> {
        let functions = &self.client.library.functions;
        let mut metadata: *const CMetadata = std::ptr::null();
        // SAFETY: client and topic are alive. Metadata is set if there is no error, has as many topics as it says,
        // and is destroyed once, after its last use.
        unsafe {
            let error =
                (functions.metadata)(self.client.handle, 0, self.client.topic, &mut metadata, milliseconds(wait));
            if error != 0 {
                return Err(error);
            }
            let topics = (*metadata).topics;
            let of_topic = if (*metadata).topic_count > 0 { (*topics).error } else { code::UNKNOWN_TOPIC };
            (functions.metadata_destroy)(metadata);
            Ok(of_topic)
        }
    }
}
