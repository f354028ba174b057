//! `syslog+tls://HOST:PORT`: syslog messages (RFC 5424) over TLS.

use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, CA, CERTIFICATE, KEY, NAME, RETRY};
use super::syslog::{Carrier, FACILITY, SyslogReceiver};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "syslog+tls",
    place: "://HOST:PORT",
    writes: "syslog (RFC 5424) over TLS, a JSON object per message; default port 6514",
    example: "syslog+tls://192.0.2.1:6514?ca=ca.pem",
    settings: &[FIELDS, FACILITY, BUFFER, SPOOL, LIMIT, RETRY, CA, NAME, CERTIFICATE, KEY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(SyslogReceiver::parse(text, 6514, Carrier::Tls)?)),
};
