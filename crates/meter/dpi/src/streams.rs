//! The input of a reader: the start of both streams of a TCP connection, or one datagram.

/// The start of both directions of a TCP connection, each without gaps from its first octet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streams<'a> {
    /// Octets of the side that sent payload first.
    pub first: &'a [u8],
    /// Octets of the other side.
    pub second: &'a [u8],
    /// No further octets will come: of the first side, of the second.
    pub ended: [bool; 2],
    /// Octets that come are not kept, because the limit is reached: of the first side, of the
    /// second.
    pub limited: [bool; 2],
    /// Port of the first side, of the second.
    pub ports: [u16; 2],
    /// The first side opened the connection. `None`: its SYN was not captured.
    pub first_is_client: Option<bool>,
}

/// The payload of a UDP datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Datagram<'a> {
    /// The payload, as far as it was captured.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub wire_octets: u32,
    /// It comes from the side that sent payload first.
    pub from_first: bool,
    /// Port of its sender, of its receiver.
    pub ports: [u16; 2],
    /// Time of its packet, in ns since 1970.
    pub time_ns: u64,
}

/// The result of a reader for the octets so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are not of this protocol, whatever follows.
    No,
    /// They may be of this protocol. More octets, or octets of the other side, decide.
    More,
    /// They are of this protocol, and more extracted fields may follow. The findings name the application.
    Recognised,
    /// They are of this protocol, and no field is left to be extracted.
    Complete,
}
