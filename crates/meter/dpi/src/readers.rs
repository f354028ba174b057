//! The readers of all protocols, and which of them a first octet leaves.

use crate::{
    Datagram, Findings, Streams, Verdict, bittorrent, dns, dtls, greeting, http1, http2, kerberos, ldap, mqtt, mysql,
    ntp, openvpn, postgresql, rdp, redis, sip, smb, snmp, ssh, stun, tls, wireguard,
};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Reads the start of a TCP connection.
pub type StreamReader = fn(&Streams<'_>, &mut Findings) -> Verdict;
/// Reads one datagram of a flow.
pub type DatagramReader = fn(&Datagram<'_>, &mut Findings) -> Verdict;

/// Readers of TCP. At most one of them recognises a connection.
pub const STREAM_READERS: &[StreamReader] = &[
    tls::read_streams,
    http1::read_streams,
    http2::read_streams,
    ssh::read_streams,
    dns::read_streams,
    greeting::read_smtp,
    greeting::read_imap,
    greeting::read_pop3,
    greeting::read_ftp,
    sip::read_streams,
    mqtt::read_streams,
    stun::read_streams,
    rdp::read_streams,
    smb::read_streams,
    kerberos::read_streams,
    ldap::read_streams,
    postgresql::read_streams,
    mysql::read_streams,
    redis::read_streams,
    bittorrent::read_streams,
    openvpn::read_streams,
];

/// Readers of UDP. At most one of them recognises a datagram. The reader of QUIC, which has a state,
/// comes after them.
pub const DATAGRAM_READERS: &[DatagramReader] = &[
    dtls::read_datagram,
    dns::read_datagram,
    ntp::read_datagram,
    stun::read_datagram,
    sip::read_datagram,
    snmp::read_datagram,
    kerberos::read_datagram,
    ldap::read_datagram,
    bittorrent::read_datagram,
    wireguard::read_datagram,
    openvpn::read_datagram,
];

/// First octets of the datagrams that each reader of [`DATAGRAM_READERS`] may recognise, then of QUIC
/// (long headers).
const FIRST_OCTETS: [&[RangeInclusive<u8>]; DATAGRAM_READERS.len() + 1] = [
    &[20..=23],
    &[0..=0xff],
    // Versions 1 to 4.
    &[0x08..=0x27, 0x48..=0x67, 0x88..=0xa7, 0xc8..=0xe7],
    &[0..=0x3f],
    &[b'A'..=b'Z'],
    &[0x30..=0x30],
    &[0x60..=0x7e],
    &[0x30..=0x30],
    &[b'd'..=b'd', 0x41..=0x41],
    &[1..=2],
    &[0x38..=0x38, 0x40..=0x40, 0x50..=0x50],
    &[0x80..=0xff],
];

/// The readers that the first octet of a flow leaves, one bit each.
#[derive(Debug)]
pub(crate) struct Candidates {
    streams: [u32; 256],
    datagrams: [u32; 256],
}

impl Candidates {
    /// The table, which is made once.
    pub fn get() -> &'static Self {
        static CANDIDATES: LazyLock<Candidates> = LazyLock::new(Candidates::new);
        &CANDIDATES
    }

    fn new() -> Self {
        let mut candidates = Self { streams: [0; 256], datagrams: [0; 256] };
        let mut findings = Findings::default();
        for octet in 0..=u8::MAX {
            for (at, reader) in STREAM_READERS.iter().enumerate() {
                // `No` is final: whatever follows.
                let streams = Streams { first: &[octet], ..Streams::default() };
                let is_possible = reader(&streams, &mut findings) != Verdict::No;
                candidates.streams[usize::from(octet)] |= u32::from(is_possible) << at;
            }
            for (at, octets) in FIRST_OCTETS.iter().enumerate() {
                let is_possible = octets.iter().any(|octets| octets.contains(&octet));
                candidates.datagrams[usize::from(octet)] |= u32::from(is_possible) << at;
            }
        }
        candidates
    }

    /// Readers of [`STREAM_READERS`] for a stream that begins with this octet.
    #[inline]
    pub fn of_stream(&self, first: u8) -> u32 {
        self.streams[usize::from(first)]
    }

    /// Readers of [`DATAGRAM_READERS`], then QUIC, for a datagram that begins with this octet.
    #[inline]
    pub fn of_datagram(&self, first: u8) -> u32 {
        self.datagrams[usize::from(first)]
    }
}
