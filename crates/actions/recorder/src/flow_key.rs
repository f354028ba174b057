//! The flow of a packet as the meter sees it with default settings: without tunnels, VLANs and
//! interfaces in the key.

use weir_capture::Frame;
use weir_flow::{FlowRecord, FlowTuple};
use weir_packet::{DecodeOptions, Flags, Network, Packet, decode};

/// A flow, or the fragments between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub tuple: FlowTuple,
    /// Not a flow, but all fragments between these addresses, because later ones have no ports.
    pub is_of_fragments: bool,
}

impl FlowKey {
    /// The key of a record; `None` for layer 2.
    pub fn of_record(flow: &FlowRecord) -> Option<Self> {
        (flow.network != Network::Layer2).then(|| Self { tuple: flow.into(), is_of_fragments: false })
    }

    /// The key of the fragments between the same addresses.
    pub fn of_fragments(self) -> Self {
        let ends = self.tuple.ends().map(|(address, _)| (address, 0));
        Self { tuple: FlowTuple::new(ends, self.tuple.protocol, self.tuple.network), is_of_fragments: true }
    }

    /// Makes a record the record of this flow, without packets; `from` is the number of the initiator.
    pub fn write_to(&self, flow: &mut FlowRecord, from: usize) {
        let ends = self.tuple.ends();
        (flow.network, flow.protocol) = (self.tuple.network, self.tuple.protocol);
        (flow.source, flow.source_port) = ends[from];
        (flow.destination, flow.destination_port) = ends[1 - from];
    }
}

/// Decodes a frame. `None` if the meter refuses it, or if it has no IP. The ports of a later fragment
/// are 0.
pub(crate) fn decode_frame(frame: &Frame<'_>, packet: &mut Packet) -> Option<FlowKey> {
    packet.time_ns = frame.time_ns;
    packet.interface = frame.interface;
    decode(frame.link_type, frame.bytes, frame.wire_bytes, DecodeOptions::default(), packet).ok()?;
    let ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
    let tuple = FlowTuple::new(ends, packet.protocol, packet.network);
    (packet.network != Network::Layer2).then_some(FlowKey { tuple, is_of_fragments: false })
}

/// Whether a packet is a first or a later fragment.
pub(crate) fn is_fragment(packet: &Packet) -> bool {
    packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0
}
