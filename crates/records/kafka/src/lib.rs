//! A producer of Kafka messages. librdkafka does the work; it is loaded at run time.
//!
//! Input: options of librdkafka by its names, and messages with key and headers. Output: a [`Report`] for each
//! message, and events of the connection. Invariants: nothing of librdkafka calls into Rust (events replace its
//! callbacks); each accepted message has one report, unless it is purged; sending never waits.
//! Not done here: encoding, counting, limits of memory.
//! `unsafe` is in `library.rs` (the C interface), `client.rs`, `producer.rs` and `transaction.rs` (its handles).
#![deny(unsafe_code)]

mod client;
mod error;
mod library;
mod producer;
mod transaction;

pub use error::{Error, code};
pub use library::Library;
pub use producer::{Event, Message, Outcome, Producer, Report};
pub use transaction::{Failure, Position, Step};
