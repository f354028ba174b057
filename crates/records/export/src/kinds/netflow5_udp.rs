//! `netflow5+udp://HOST:PORT`: NetFlow v5 over UDP.

use super::collector::{MTU, RATE, connect, parse_collector, resolve};
use super::{Destination, SinkKind, WHERE};
use crate::netflow5::{MIN_DATAGRAM_BYTES, Netflow5Sink};
use crate::sink::{Error, ExportOptions, InvalidSink, InvalidSpec, Sink};
use crate::udp::Collector;
use std::sync::Arc;
use weir_fields::{Column, elements_of};

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "netflow5+udp",
    place: "://HOST:PORT",
    writes: "NetFlow v5 over UDP; default port 9995",
    example: "netflow5+udp://192.0.2.1:9995",
    settings: &[MTU, RATE, WHERE],
    endings: &[],
    view: None,
    parse: |text| match parse_collector(text, 9995, None)? {
        (collector, None) => Ok(Arc::new(Netflow5(collector))),
        _ => Err(InvalidSink::Syntax("NetFlow v5 has no templates; remove template=, fields= and refresh=")),
    },
};

#[derive(Debug)]
struct Netflow5(Collector);

impl Destination for Netflow5 {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let has_service = |fields: &[&'static Column]| {
            fields.iter().copied().flat_map(elements_of).any(|element| element.name == "ipClassOfService")
        };
        if options.known.as_ref().is_some_and(|fields| !has_service(fields)) {
            let reason = "NetFlow v5 reports the type of service, which is not stored; use ipfix+udp or netflow9+udp";
            return Err(InvalidSpec { spec: name.into(), invalid: InvalidSink::Syntax(reason) }.into());
        }
        Ok(Box::new(Netflow5Sink::new(name, connect(&self.0, name, MIN_DATAGRAM_BYTES, options)?, options)))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        resolve(&self.0, name)
    }

    fn collector(&self) -> Option<String> {
        Some(self.0.address())
    }
}
