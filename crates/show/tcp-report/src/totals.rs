//! Sums over all connections of a run.

use crate::connection::{Connection, payload_bytes};
use crate::delay::Delay;
use crate::failure::Failure;
use weir_tcp::{SegmentClass, SegmentCount, TcpReport};

/// Sums over all connections. In pairs the clients' value comes first.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Connections.
    pub connections: u64,
    /// Packets of connections.
    pub packets: u64,
    /// The counters of all clients, and of all servers.
    pub sides: [TcpReport; 2],
    /// Connections by number of [`Failure`].
    pub failures: [u64; Failure::COUNT],
    /// Connections by number of [`Delay`].
    pub delays: [u64; Delay::ALL.len()],
    /// Connections with missing octets.
    pub with_missing: u64,
    /// Connections that the capture has one direction of.
    pub one_way: u64,
    /// Connections without a SYN in the capture.
    pub without_syn: u64,
    /// Connections by bit of [`weir_tcp::Degradation`].
    pub degraded: [u64; 8],
    /// Connections with any of these bits.
    pub any_degraded: u64,
    /// Octets that sequence numbers skip in connections whose time is too short for them on any link.
    pub impossible_bytes: u64,
    /// Time of the first packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the last packet, ns since 1970-01-01 UTC.
    pub last_ns: u64,
    /// Round-trip times of handshakes, ns, ascending: on the client side of the capture point, and
    /// on the server side.
    pub handshake_rtts_ns: [Vec<u64>; 2],
}

/// A rate that no link has, bit/s: the fastest Ethernet has 1.6 Tbit/s (IEEE P802.3dj).
const IMPOSSIBLE_BITS_PER_SECOND: u128 = 1_600_000_000_000;

/// Less may wait in queues: the buffer of a switch.
const FEWEST_IMPOSSIBLE_BITS: u128 = 8 * 256_000_000;

/// Octets that sequence numbers of a connection skip, if they do not fit into its time on any link.
fn impossible_bytes(connection: &Connection) -> u64 {
    let missing = connection.sum(|report| report.missing_bytes);
    let bits = u128::from(missing) * 8;
    let fitting_bits = IMPOSSIBLE_BITS_PER_SECOND * u128::from(connection.duration_ns()) / 1_000_000_000;
    if bits > fitting_bits.max(FEWEST_IMPOSSIBLE_BITS) { missing } else { 0 }
}

impl Totals {
    /// Adds up connections.
    pub fn new(connections: &[Connection]) -> Self {
        let mut totals = Self { first_ns: u64::MAX, ..Self::default() };
        connections.iter().for_each(|connection| totals.add(connection));
        totals.handshake_rtts_ns.iter_mut().for_each(|times| times.sort_unstable());
        totals
    }

    fn add(&mut self, connection: &Connection) {
        self.connections += 1;
        self.packets += connection.total_packets();
        self.first_ns = self.first_ns.min(connection.first_ns);
        self.last_ns = self.last_ns.max(connection.last_ns);
        if let Some(failure) = connection.failure() {
            self.failures[failure as usize] += 1;
        }
        self.delays[connection.delay() as usize] += 1;
        let reports = connection.reports();
        self.impossible_bytes = self.impossible_bytes.saturating_add(impossible_bytes(connection));
        self.with_missing += u64::from(reports.iter().any(|report| report.missing_bytes > 0));
        self.one_way += u64::from(connection.is_one_way());
        self.without_syn += u64::from(reports.iter().all(|report| report.syn_window.is_none()));
        let degradation = connection.degradation().0;
        self.any_degraded += u64::from(degradation != 0);
        for (bit, count) in self.degraded.iter_mut().enumerate() {
            *count += u64::from(degradation >> bit & 1);
        }
        for (side, report) in reports.iter().enumerate() {
            self.sides[side].add(report);
            self.handshake_rtts_ns[side].extend(report.handshake_rtt_ns);
        }
    }

    /// The sum of a counter over both sides.
    pub fn sum(&self, counter: impl Fn(&TcpReport) -> u64) -> u64 {
        self.sides.iter().map(counter).sum()
    }

    /// Segments and payload octets of a class, both sides together.
    pub fn count(&self, class: SegmentClass) -> SegmentCount {
        let [client, server] = self.sides.each_ref().map(|side| side.count(class));
        SegmentCount { segments: client.segments + server.segments, bytes: client.bytes + server.bytes }
    }

    /// Payload octets, duplicates included.
    pub fn payload_bytes(&self) -> u64 {
        self.sum(payload_bytes)
    }

    /// Connections with a bit of [`weir_tcp::Degradation`].
    pub fn with_degradation(&self, bit: u8) -> u64 {
        self.degraded[bit.trailing_zeros() as usize]
    }
}
