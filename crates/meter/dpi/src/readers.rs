//! The readers of all protocols, and which of them a first octet leaves.

use crate::start::Read;
use crate::{
    Datagram, Findings, Streams, Verdict, bittorrent, dns, dtls, greeting, http1, http2, kerberos, ldap, mqtt, mysql,
    ntp, openvpn, postgresql, quic, rdp, redis, sip, smb, snmp, ssh, stun, tls, wireguard,
};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// A reader of TCP.
#[derive(Debug)]
pub struct StreamReader(ReadStreams);

/// Reads the start of a connection.
#[derive(Debug)]
enum ReadStreams {
    /// From its first octet, also if it has read a part of it before.
    Whole(fn(&Streams<'_>, &mut Findings) -> Read<Verdict>),
    /// From where it stopped.
    Http1,
}

/// How far readers have read the streams of a connection. It is valid as long as these only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamState {
    http1: http1::State,
}

/// A reader of UDP.
#[derive(Debug)]
pub struct DatagramReader {
    /// First octets of the datagrams that it may recognise.
    first_octets: &'static [RangeInclusive<u8>],
    read: ReadDatagram,
}

/// Reads one datagram of a flow.
#[derive(Debug)]
enum ReadDatagram {
    /// By itself.
    Alone(fn(&Datagram<'_>, &mut Findings) -> Read<Verdict>),
    /// With the messages in fragments before it.
    Dtls,
    /// With the hello in fragments before it.
    Quic,
}

/// What readers of datagrams keep of a flow.
#[derive(Debug, Default)]
pub struct DatagramState {
    /// Made for the first flow that the reader reads.
    quic: Option<Box<quic::State>>,
    /// Made for messages in fragments.
    dtls: Option<Box<dtls::State>>,
}

const fn datagram(
    first_octets: &'static [RangeInclusive<u8>],
    read: fn(&Datagram<'_>, &mut Findings) -> Read<Verdict>,
) -> DatagramReader {
    DatagramReader { first_octets, read: ReadDatagram::Alone(read) }
}

const fn stream(read: fn(&Streams<'_>, &mut Findings) -> Read<Verdict>) -> StreamReader {
    StreamReader(ReadStreams::Whole(read))
}

/// Readers of TCP. At most one of them recognises a connection.
pub const STREAM_READERS: &[StreamReader] = &[
    stream(|streams, findings| Ok(tls::read_streams(streams, findings))),
    StreamReader(ReadStreams::Http1),
    stream(|streams, findings| Ok(http2::read_streams(streams, findings))),
    stream(|streams, findings| Ok(ssh::read_streams(streams, findings))),
    stream(dns::read_streams),
    stream(greeting::read_smtp),
    stream(greeting::read_imap),
    stream(greeting::read_pop3),
    stream(greeting::read_ftp),
    stream(|streams, findings| sip::read(streams.first, findings)),
    stream(mqtt::read_streams),
    stream(stun::read_streams),
    stream(rdp::read_streams),
    stream(smb::read_streams),
    stream(kerberos::read_streams),
    stream(ldap::read_streams),
    stream(postgresql::read_streams),
    stream(mysql::read_streams),
    stream(redis::read_streams),
    stream(bittorrent::read_streams),
    stream(openvpn::read_streams),
];

/// Readers of UDP. At most one of them recognises a datagram.
pub const DATAGRAM_READERS: &[DatagramReader] = &[
    DatagramReader { first_octets: &[20..=23], read: ReadDatagram::Dtls },
    datagram(&[0..=0xff], dns::read_datagram),
    // Versions 1 to 4.
    datagram(&[0x08..=0x27, 0x48..=0x67, 0x88..=0xa7, 0xc8..=0xe7], ntp::read_datagram),
    datagram(&[0..=0x3f], stun::read_datagram),
    datagram(&[b'A'..=b'Z'], |datagram, findings| sip::read(datagram.payload, findings)),
    datagram(&[0x30..=0x30], snmp::read_datagram),
    datagram(&[0x60..=0x7e], kerberos::read_datagram),
    datagram(&[0x30..=0x30], |datagram, findings| ldap::read(datagram.payload, findings)),
    datagram(&[b'd'..=b'd', 0x41..=0x41], bittorrent::read_datagram),
    datagram(&[1..=2], wireguard::read_datagram),
    datagram(&[0x38..=0x38, 0x40..=0x40, 0x50..=0x50], openvpn::read_datagram),
    // Long headers.
    DatagramReader { first_octets: &[0x80..=0xff], read: ReadDatagram::Quic },
];

/// Every reader has a bit.
const _: () = assert!(STREAM_READERS.len() <= 32 && DATAGRAM_READERS.len() <= 32);
/// All readers of TCP, one bit each.
pub(crate) const ALL_STREAM_READERS: u32 = u32::MAX >> (32 - STREAM_READERS.len());

impl StreamReader {
    /// Reads the start of a connection. It says `No` to the first octet of other protocols.
    #[inline]
    pub fn read(&self, streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
        self.read_on(&mut StreamState::default(), streams, findings)
    }

    /// The same with the state after fewer octets of the streams, for which the findings were the same.
    #[inline]
    pub(crate) fn read_on(&self, state: &mut StreamState, streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
        match self.0 {
            ReadStreams::Whole(read) => read(streams, findings).unwrap_or_else(|verdict| verdict),
            ReadStreams::Http1 => http1::read_streams(&mut state.http1, streams, findings),
        }
    }
}

impl DatagramReader {
    /// Reads one datagram of a flow.
    #[inline]
    pub fn read(&self, state: &mut DatagramState, datagram: &Datagram<'_>, findings: &mut Findings) -> Verdict {
        match self.read {
            // Nothing follows, so that `More` is `No`.
            ReadDatagram::Alone(read) => read(datagram, findings).unwrap_or(Verdict::No),
            ReadDatagram::Dtls => dtls::read(&mut state.dtls, datagram, findings),
            ReadDatagram::Quic => quic::read(state.quic.get_or_insert_default(), datagram, findings),
        }
    }
}

impl DatagramState {
    /// Whether octets are missing before others.
    pub fn has_gap(&self) -> bool {
        self.quic.as_ref().is_some_and(|state| state.stream.has_gap())
            || self.dtls.as_ref().is_some_and(|state| state.octets.has_gap())
    }

    /// Its memory.
    pub(crate) fn octets(&self) -> usize {
        self.quic.as_ref().map_or(0, |state| size_of_val(&**state))
            + self.dtls.as_ref().map_or(0, |state| size_of_val(&**state))
    }

    /// Forgets the flow. `keeps`: memory may be kept for the next one.
    pub(crate) fn clear(&mut self, keeps: bool) {
        match &mut self.quic {
            Some(state) if keeps => state.clear(),
            state => *state = None,
        }
        self.dtls = None;
    }
}

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
                let is_possible = reader.read(&streams, &mut findings) != Verdict::No;
                candidates.streams[usize::from(octet)] |= u32::from(is_possible) << at;
            }
            for (at, reader) in DATAGRAM_READERS.iter().enumerate() {
                let is_possible = reader.first_octets.iter().any(|octets| octets.contains(&octet));
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

    /// Readers of [`DATAGRAM_READERS`] for a datagram that begins with this octet.
    #[inline]
    pub fn of_datagram(&self, first: u8) -> u32 {
        self.datagrams[usize::from(first)]
    }
}
