//! `ipfix+tcp://HOST:PORT`: IPFIX (RFC 7011 section 10.4) over TCP.

use super::collector::{ELEMENTS, TEMPLATE};
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, RETRY, TcpCollector};
use super::{SinkKind, WHERE};
use std::sync::Arc;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "ipfix+tcp",
    place: "://HOST:PORT",
    writes: "IPFIX (RFC 7011) over TCP; default port 4739",
    example: "ipfix+tcp://192.0.2.1:4739",
    settings: &[TEMPLATE, ELEMENTS, BUFFER, SPOOL, LIMIT, RETRY, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(TcpCollector::parse(text, 4739, false)?)),
};
