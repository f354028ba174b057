//! Where the time of a connection went: network, server or client.
//!
//! In: a connection. Out: [`Delays`], whose parts add up to its duration, and a [`Delay`] in a word.
//! Rules: `docs/tcp.md`. It does not know why a side waited.

use crate::connection::Connection;
use weir_tcp::{Degradation, SegmentClass, TcpReport};

/// In which sum most of the time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// [`Delays::network_ns`].
    Network,
    /// [`Delays::server_ns`].
    Server,
    /// [`Delays::client_ns`].
    Client,
    /// [`Delays::other_ns`].
    Ok,
    /// The capture has too little of the connection.
    Unknown,
}

impl Delay {
    /// All, in the sequence of the type.
    pub const ALL: [Self; 5] = [Self::Network, Self::Server, Self::Client, Self::Ok, Self::Unknown];

    /// The word in all outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Server => "server",
            Self::Client => "client",
            Self::Ok => "ok",
            Self::Unknown => "unknown",
        }
    }
}

/// The duration of a connection in parts, ns. If both sides wait at once, the time counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Round trips, and transfer with retransmissions.
    pub network_ns: u64,
    /// The server had a request to answer, or its window was closed.
    pub server_ns: u64,
    /// The client had an answer and sent no request, or its window was closed.
    pub client_ns: u64,
    /// Transfer without retransmissions, and the time after the last payload.
    pub other_ns: u64,
}

/// Transfer counts for the network if at least one of this number of segments is retransmitted.
const SEGMENTS_PER_RETRANSMISSION: u64 = 100;

impl Connection {
    /// Where the time went.
    pub fn delays(&self) -> Delays {
        let reports = self.reports();
        // Server side and client side of the capture point, as far as known.
        let handshake_ns = self.sum(|report| report.handshake_rtt_ns.unwrap_or(0));
        let mut network_ns = handshake_ns;
        let mut waits_ns = [0_u64; 2];
        for (side, report) in reports.iter().enumerate() {
            let path_ns = report.responses.count.saturating_mul(self.rtt_ns(side).unwrap_or(0));
            let path_ns = path_ns.min(report.responses.sum_ns);
            network_ns = network_ns.saturating_add(path_ns);
            waits_ns[side] = report.responses.sum_ns - path_ns;
        }
        let mut idle_ns = self.duration_ns().saturating_sub(handshake_ns);
        if let Some(payload) = &self.sums.payload {
            let first_wait_ns = payload.first_ns.saturating_sub(self.first_ns).saturating_sub(handshake_ns);
            let is_retransmitted = |report: &TcpReport| report.count(SegmentClass::SynRetransmission).segments > 0;
            let waits_for = match reports.iter().any(is_retransmitted) {
                true => &mut network_ns,
                false => &mut waits_ns[usize::from(payload.of_second_side)],
            };
            *waits_for = waits_for.saturating_add(first_wait_ns);
            idle_ns = self.last_ns.saturating_sub(payload.last_ns);
        }
        let [client_ns, server_ns] = waits_ns;
        let mut delays = Delays { network_ns, server_ns, client_ns, other_ns: idle_ns };
        let known_ns = [network_ns, server_ns, client_ns, idle_ns].into_iter().fold(0, u64::saturating_add);
        // If there is any, no sum overflows.
        *self.transfer_owner(&reports, &mut delays) += self.duration_ns().saturating_sub(known_ns);
        delays
    }

    /// The part that the time of transfer counts for.
    fn transfer_owner<'a>(&self, reports: &[TcpReport; 2], delays: &'a mut Delays) -> &'a mut u64 {
        let sum = |counter: fn(&TcpReport) -> u64| reports.iter().map(counter).sum::<u64>();
        match reports.each_ref().map(|report| report.zero_windows > 0) {
            [true, false] => &mut delays.client_ns,
            [false, true] => &mut delays.server_ns,
            _ if sum(TcpReport::retransmitted_segments) * SEGMENTS_PER_RETRANSMISSION
                >= sum(TcpReport::sequenced_segments).max(1) =>
            {
                &mut delays.network_ns
            }
            _ => &mut delays.other_ns,
        }
    }

    /// Where most of the time went.
    pub fn delay(&self) -> Delay {
        if !self.has_known_delays() {
            return Delay::Unknown;
        }
        let Delays { network_ns, server_ns, client_ns, other_ns } = self.delays();
        let parts = [
            (other_ns, Delay::Ok),
            (client_ns, Delay::Client),
            (server_ns, Delay::Server),
            (network_ns, Delay::Network),
        ];
        // Of equal parts, the last one.
        let largest = parts.into_iter().max_by_key(|&(ns, _)| ns);
        largest.filter(|&(ns, _)| ns > 0).map_or(Delay::Ok, |(_, delay)| delay)
    }

    /// Whether both sides are in the capture, with at least one measured time, and are exact.
    fn has_known_delays(&self) -> bool {
        const CONFUSED: u8 = Degradation::JUMP | Degradation::REUSED | Degradation::UNREAD | Degradation::POOL_FULL;
        let is_measured = |report: &TcpReport| {
            report.handshake_rtt_ns.is_some() || report.responses.count > 0 || report.round_trips.count > 0
        };
        let opened = !self.failure().is_some_and(|failure| failure.is_before_opening());
        opened
            && !self.packets.contains(&0)
            && self.degradation().0 & CONFUSED == 0
            && self.reports().iter().any(is_measured)
    }

    /// The shortest round-trip time between the capture point and a side: of the handshake or of
    /// payload.
    pub fn rtt_ns(&self, side: usize) -> Option<u64> {
        let report = self.report(side);
        let of_payload = (report.round_trips.count > 0).then_some(report.round_trips.min_ns);
        report.handshake_rtt_ns.into_iter().chain(of_payload).min()
    }
}
