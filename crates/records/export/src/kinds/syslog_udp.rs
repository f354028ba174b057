//! `syslog+udp://HOST:PORT`: syslog messages (RFC 5424) over UDP.

use super::collector::RATE;
use super::file::FIELDS;
use super::syslog::{Carrier, FACILITY, SIZE, SyslogReceiver};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "syslog+udp",
    place: "://HOST:PORT",
    writes: "syslog (RFC 5424) over UDP, a JSON object per message; default port 514",
    example: "syslog+udp://192.0.2.1:514",
    settings: &[FIELDS, FACILITY, SIZE, RATE, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(SyslogReceiver::parse(text, 514, Carrier::Udp)?)),
};
