//! `syslog+tcp://HOST:PORT`: syslog messages (RFC 5424) over TCP.

use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, RETRY};
use super::syslog::{Carrier, FACILITY, SyslogReceiver};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "syslog+tcp",
    place: "://HOST:PORT",
    writes: "syslog (RFC 5424) over TCP, a JSON object per message; default port 601",
    example: "syslog+tcp://192.0.2.1:601",
    settings: &[FIELDS, FACILITY, BUFFER, SPOOL, LIMIT, RETRY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(SyslogReceiver::parse(text, 601, Carrier::Tcp)?)),
};
