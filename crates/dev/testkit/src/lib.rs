//! Test support: what the other crates are compared with. No part of the program.
//!
//! [`reference`] is a slow and plain meter, written from `docs/metering.md` alone; [`traffic`] generates
//! hostile but meaningful frames; [`real`] runs the program's own pipeline over them; [`compare`]
//! reports the difference between two lists of records; [`truth`] reads what other tools counted in
//! captures.
//!
//! Invariant: [`reference`] shares no code with the decoder and the meter that it judges, only the
//! plain data types they exchange.
#![forbid(unsafe_code)]

pub mod compare;
pub mod input;
pub mod real;
pub mod reference;
pub mod tcp_packets;
pub mod traffic;
pub mod truth;

use weir_capture::{Frame, Source};
use weir_packet::Packet;
use weir_trafficgen::TrafficGenerator;

/// A captured frame that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Octets on the wire.
    pub wire_bytes: u32,
    /// LINKTYPE number.
    pub link_type: u16,
    /// Number of the interface.
    pub interface: u32,
    /// Captured octets.
    pub bytes: Vec<u8>,
}

/// Decodes all frames of a generated load.
///
/// # Panics
/// The load does not exist, or a frame cannot be decoded.
pub fn load(specification: &str) -> Vec<Packet> {
    packets(&mut TrafficGenerator::new(specification).expect("the load exists"))
}

/// Decodes all frames of a generated source.
///
/// # Panics
/// A frame cannot be decoded.
pub fn packets(source: &mut dyn Source) -> Vec<Packet> {
    let (frames, damage) = real::frames(source);
    assert!(damage.is_empty(), "{damage:?}");
    frames.iter().map(|frame| real::decode(frame, false).expect("frames are whole").0).collect()
}

impl From<&Frame<'_>> for RawFrame {
    fn from(frame: &Frame<'_>) -> Self {
        let &Frame { time_ns, wire_bytes, link_type, interface, bytes, .. } = frame;
        Self { time_ns, wire_bytes, link_type, interface, bytes: bytes.to_vec() }
    }
}

impl std::fmt::Debug for RawFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ns, link type {}, interface {}, ", self.time_ns, self.link_type, self.interface)?;
        write!(f, "{} of {} octets: ", self.bytes.len(), self.wire_bytes)?;
        self.bytes.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
