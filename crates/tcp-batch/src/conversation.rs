//! What comes out of the engine.

use std::net::SocketAddr;
use weir_tcp::CompactReport;

/// A connection that has ended, or was there when the capture ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRecord {
    /// Both ends. Side 0 is the lower one, by address and then by port, whoever began.
    pub endpoints: [SocketAddr; 2],
    /// Time of the earliest packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the latest packet, ns.
    pub last_ns: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    /// What became of the segments of each side.
    pub reports: [CompactReport; 2],
}
