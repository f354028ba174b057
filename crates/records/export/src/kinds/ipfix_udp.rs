//! `ipfix+udp://HOST:PORT`: IPFIX (RFC 7011) over UDP.

use super::collector::{ELEMENTS, MTU, RATE, REFRESH, TEMPLATE, TemplateCollector};
use super::{SinkKind, WHERE};
use std::sync::Arc;
use weir_fields::Format;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "ipfix+udp",
    place: "://HOST:PORT",
    writes: "IPFIX (RFC 7011) over UDP; default port 4739",
    example: "ipfix+udp://192.0.2.1:4739",
    settings: &[TEMPLATE, ELEMENTS, REFRESH, MTU, RATE, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(TemplateCollector::parse(text, 4739, Format::Ipfix)?)),
};
