//! The output of the engine.

use std::net::SocketAddr;
use weir_tcp::CompactReport;

/// Record of one connection, from its first packet to its end or the end of the capture.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRecord {
    /// Both endpoints. Side 0 is the lower one, by address and then by port.
    pub endpoints: [SocketAddr; 2],
    /// Time of the earliest packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the latest packet, ns since 1970-01-01 UTC.
    pub last_ns: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    /// TCP report of each side.
    pub reports: [CompactReport; 2],
}
