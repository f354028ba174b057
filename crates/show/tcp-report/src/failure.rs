//! Connections that failed: never opened, or ended by a RST.
//!
//! In: the reports of a connection. Out: a [`Failure`], or none. Duplicates decide nothing. Rules: `docs/tcp.md`.

use weir_tcp::{SegmentClass, TcpReport};

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server sent nothing.
    NoAnswer,
    /// The server answered the SYN with RST.
    Refused,
    /// The client did not acknowledge the server's SYN.
    HalfOpen,
    /// The client sent RST.
    ResetByClient,
    /// The server sent RST.
    ResetByServer,
    /// Both sides sent RST.
    ResetByBoth,
}

/// Each failure with its name for programs and its name for people, in the sequence of the type.
const FAILURES: [(Failure, &str, &str); 6] = [
    (Failure::NoAnswer, "no_answer", "no answer"),
    (Failure::Refused, "refused", "refused"),
    (Failure::HalfOpen, "half_open", "half-open"),
    (Failure::ResetByClient, "reset_by_client", "reset by client"),
    (Failure::ResetByServer, "reset_by_server", "reset by server"),
    (Failure::ResetByBoth, "reset_by_both", "reset by both"),
];

impl Failure {
    /// Number of failures.
    pub const COUNT: usize = FAILURES.len();

    /// All failures, in the sequence of the type.
    pub fn all() -> impl Iterator<Item = Self> {
        FAILURES.iter().map(|&(failure, ..)| failure)
    }

    /// How a connection with these reports and packets of client and server failed; `None` if it did
    /// not, or if the capture does not show it.
    pub(crate) fn of([client, server]: &[TcpReport; 2], packets: [u64; 2]) -> Option<Self> {
        let resets = |report: &TcpReport| report.count(SegmentClass::Reset).segments > 0;
        if client.syns() > 0 && only_opens(client) && only_opens(server) {
            return match (server.syns() > 0, resets(server)) {
                (false, false) if packets[1] == 0 => Some(Self::NoAnswer),
                (false, true) => Some(Self::Refused),
                // If both open at once, each SYN can acknowledge the other.
                (true, _) if client.handshake_rtt_ns.is_none() || resets(client) => Some(Self::HalfOpen),
                _ => None,
            };
        }
        if client.fins > 0 && server.fins > 0 {
            return None;
        }
        match [client, server].map(resets) {
            [true, false] => Some(Self::ResetByClient),
            [false, true] => Some(Self::ResetByServer),
            [true, true] => Some(Self::ResetByBoth),
            [false, false] => None,
        }
    }

    /// Whether the connection never opened.
    pub(crate) fn is_before_opening(self) -> bool {
        matches!(self, Self::NoAnswer | Self::Refused | Self::HalfOpen)
    }

    /// The name in JSON and CSV.
    pub fn key(self) -> &'static str {
        FAILURES[self as usize].1
    }

    /// The name for people.
    pub fn name(self) -> &'static str {
        FAILURES[self as usize].2
    }
}

/// Whether a side sent SYN and RST only, or nothing.
fn only_opens(report: &TcpReport) -> bool {
    use SegmentClass::{Duplicate, Reset, RoutedDuplicate, Syn, SynRetransmission};
    let opening = [Syn, SynRetransmission, Reset, Duplicate, RoutedDuplicate];
    opening.iter().map(|&class| report.count(class).segments).sum::<u64>() == report.segments()
}
