//! TCP analysis: classifies every segment of a connection, exactly.
//!
//! In: packets of a connection in the order of the capture, with the side that sent them. Out: a
//! [`TcpReport`] per side and flow record. `docs/tcp.md` defines the rules; [`Connection`] is the
//! state machine that applies them, in 448 bytes. An [`AnomalyPool`] holds what connections with
//! holes, retransmissions and duplicates need beyond that.
#![forbid(unsafe_code)]

mod class;
mod classifier;
mod compact_report;
mod connection;
mod event;
mod history;
mod holes;
mod pool;
mod report;
mod rules;
mod segment;
mod side;
mod times;

pub use class::{SegmentClass, SegmentCount};
pub use compact_report::CompactReport;
pub use connection::Connection;
pub use event::SegmentEvent;
pub use pool::{AnomalyPool, DetachedEntries, PoolEntry};
pub use report::{Degradation, TcpReport};
pub use rules::MAX_HOLES;
pub use segment::{DigestKey, Segment};
pub use times::{CompletedTime, MeasuredTimes, ResponseTimes, RoundTripTimes};
