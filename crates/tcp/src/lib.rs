//! What a TCP conversation tells: for every segment what it was, exactly.
//!
//! In: packets of a connection in the order of the capture, with the side that sent them. Out: a [`TcpReport`] per side
//! and record. Definitions: `docs/tcp.md`. [`Reference`] is that page as a program; [`Connection`] says the same at
//! speed in 256 octets, and takes from a [`Room`] what connections in trouble need more.
#![forbid(unsafe_code)]

mod connection;
mod kept;
mod reference;
mod report;
mod room;
mod rules;
mod segment;

pub use connection::Connection;
pub use kept::CompactReport;
pub use reference::Reference;
pub use report::{Degradation, SegmentClass, SegmentCount, TcpReport};
pub use room::{AnomalyPool, TcpAnomalies, TcpAnomaly};
pub use rules::MAX_HOLES;
pub use segment::{DigestKey, Segment};
