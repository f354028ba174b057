//! `ipfix+tls://HOST:PORT`: IPFIX (RFC 7011 sections 10.4 and 11.1) over TLS.

use super::collector::{ELEMENTS, TEMPLATE};
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, CA, CERTIFICATE, KEY, NAME, RETRY, TcpCollector};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "ipfix+tls",
    place: "://HOST:PORT",
    writes: "IPFIX (RFC 7011) over TLS; default port 4740",
    example: "ipfix+tls://192.0.2.1:4740?ca=ca.pem",
    settings: &[TEMPLATE, ELEMENTS, BUFFER, SPOOL, LIMIT, RETRY, CA, NAME, CERTIFICATE, KEY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(TcpCollector::parse(text, 4740, true)?)),
};
