//! The readers of all protocols.

use crate::{Datagram, Findings, Streams, Verdict, dns, http1, http2, ssh, tls};

/// Reads the start of a TCP connection.
pub type StreamReader = fn(&Streams<'_>, &mut Findings) -> Verdict;
/// Reads one datagram of a flow.
pub type DatagramReader = fn(&Datagram<'_>, &mut Findings) -> Verdict;

/// Readers of TCP. At most one of them recognises a connection.
pub const STREAM_READERS: &[StreamReader] =
    &[tls::read_streams, http1::read_streams, http2::read_streams, ssh::read_streams, dns::read_streams];

/// Readers of UDP. At most one of them recognises a datagram.
pub const DATAGRAM_READERS: &[DatagramReader] = &[dns::read_datagram];
