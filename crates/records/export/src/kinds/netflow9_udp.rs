//! `netflow9+udp://HOST:PORT`: NetFlow v9 (RFC 3954) over UDP.

use super::collector::{ELEMENTS, MTU, RATE, REFRESH, TEMPLATE, TemplateCollector};
use super::{SinkKind, WHERE};
use std::sync::Arc;
use weir_fields::Format;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "netflow9+udp",
    place: "://HOST:PORT",
    writes: "NetFlow v9 (RFC 3954) over UDP; default port 2055",
    example: "netflow9+udp://192.0.2.1:2055",
    settings: &[TEMPLATE, ELEMENTS, REFRESH, MTU, RATE, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(TemplateCollector::parse(text, 2055, Format::Netflow9)?)),
};
