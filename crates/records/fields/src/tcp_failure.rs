//! How a TCP connection failed, as far as a record shows it.
//!
//! In: the TCP flags of both directions. Out: a [`TcpFailure`], or none. The names are those of `weir tcp`, which knows
//! every segment: a record has only the flags of all of them together, so a reset counts in the record that has the
//! SYN. docs/fields.md has the rules.

use weir_flow::FlowRecord;
use weir_packet::{Network, Packet};

const PSH: u16 = 0x08;
const URG: u16 = 0x20;
const TCP: u8 = 6;

/// How a TCP connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpFailure {
    /// The server sent nothing.
    NoAnswer = 1,
    /// The server answered the SYN with RST.
    Refused = 2,
    /// The client did not acknowledge the server's SYN.
    HalfOpen = 3,
    /// It opened, and the client sent RST before both sides had sent FIN.
    ResetByClient = 4,
    /// The same of the server.
    ResetByServer = 5,
    /// The same of both.
    ResetByBoth = 6,
}

impl TcpFailure {
    /// All failures.
    pub const ALL: [Self; 6] =
        [Self::NoAnswer, Self::Refused, Self::HalfOpen, Self::ResetByClient, Self::ResetByServer, Self::ResetByBoth];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::Refused => "refused",
            Self::HalfOpen => "half_open",
            Self::ResetByClient => "reset_by_client",
            Self::ResetByServer => "reset_by_server",
            Self::ResetByBoth => "reset_by_both",
        }
    }

    /// How the connection of a record failed; `None` if it did not, or if the record does not show it.
    pub fn of(flow: &FlowRecord) -> Option<Self> {
        let [client, server] = [flow.forward.tcp_flags, flow.reverse.tcp_flags];
        let is_tcp = flow.protocol == TCP && flow.network != Network::Layer2;
        if !is_tcp || client & Packet::SYN == 0 {
            return None;
        }
        if client & (Packet::ACK | Packet::FIN | PSH | URG) == 0 {
            return match server & (Packet::SYN | Packet::RST) {
                _ if flow.reverse.packets == 0 => Some(Self::NoAnswer),
                0 => None,
                Packet::RST => Some(Self::Refused),
                _ => Some(Self::HalfOpen),
            };
        }
        if client & Packet::ACK == 0 || client & server & Packet::FIN != 0 {
            return None;
        }
        match [client, server].map(|flags| flags & Packet::RST != 0) {
            [true, false] => Some(Self::ResetByClient),
            [false, true] => Some(Self::ResetByServer),
            [true, true] => Some(Self::ResetByBoth),
            [false, false] => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: u16, server: u16, packets: u64) -> Option<TcpFailure> {
        let mut flow = FlowRecord { protocol: TCP, network: Network::Ipv4, ..FlowRecord::default() };
        (flow.forward.packets, flow.reverse.packets) = (1, packets);
        (flow.forward.tcp_flags, flow.reverse.tcp_flags) = (client, server);
        TcpFailure::of(&flow)
    }

    #[test]
    fn the_failure_of_a_connection_follows_from_the_flags_of_both_sides() {
        use TcpFailure::{HalfOpen, NoAnswer, Refused, ResetByBoth, ResetByClient, ResetByServer};
        const S: u16 = Packet::SYN;
        const A: u16 = Packet::ACK;
        const F: u16 = Packet::FIN;
        const R: u16 = Packet::RST;
        for (client, server, packets, expected) in [
            (S, 0, 0, Some(NoAnswer)),
            // The client ends its attempt with RST.
            (S | R, 0, 0, Some(NoAnswer)),
            (S, R | A, 1, Some(Refused)),
            (S, S | A, 2, Some(HalfOpen)),
            (S | R, S | A, 2, Some(HalfOpen)),
            // A server without flags that open or refuse.
            (S, A, 1, None),
            (S | A | PSH, S | A | R, 5, Some(ResetByServer)),
            (S | A | R, S | A, 5, Some(ResetByClient)),
            (S | A | R | F, S | A | R, 5, Some(ResetByBoth)),
            (S | A | R | F, S | A | F, 5, None),
            (S | A | F, S | A | F, 5, None),
            // The SYN is in another record.
            (A | R, A, 5, None),
            (S | A, 0, 0, None),
        ] {
            assert_eq!(of(client, server, packets), expected, "{client:#x} {server:#x} {packets}");
        }
    }

    #[test]
    fn the_words_have_the_numbers_of_the_failures() {
        for (at, failure) in TcpFailure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, at + 1, "{}", failure.name());
        }
    }
}
