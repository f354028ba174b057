//! What a TCP conversation tells: for every segment what it was, exactly.
//!
//! In: packets of a connection in the order of the capture, with the side that sent them. Out: a [`Report`] per side
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
pub use kept::Kept;
pub use reference::Reference;
pub use report::{Class, Count, Degraded, Report};
pub use room::{Room, Trouble, Troubles};
pub use rules::HOLES;
pub use segment::{Secret, Segment};
