//! The readers of all protocols.

use crate::{
    Datagram, Findings, Streams, Verdict, bittorrent, dns, dtls, greeting, http1, http2, kerberos, ldap, mqtt, mysql,
    ntp, openvpn, postgresql, rdp, redis, sip, smb, snmp, ssh, stun, tls, wireguard,
};

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

/// Readers of UDP. At most one of them recognises a datagram.
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
