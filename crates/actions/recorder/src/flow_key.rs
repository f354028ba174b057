//! The flow of a packet as the meter sees it with default settings: without tunnels, VLANs and
//! interfaces in the key.

use weir_capture::Frame;
use weir_flow::FlowRecord;
use weir_packet::{DecodeOptions, Flags, Network, Packet, decode};

/// An address as in [`Packet::source`], and a port as in [`Packet::source_port`].
pub(crate) type Endpoint = ([u8; 16], u16);

/// Both endpoints, the low one first, so that both directions have one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    pub network: Network,
    pub protocol: u8,
    /// Not a flow, but all fragments between these addresses, because later ones have no ports.
    pub is_of_fragments: bool,
    pub endpoints: [Endpoint; 2],
}

impl FlowKey {
    fn new(network: Network, protocol: u8, mut endpoints: [Endpoint; 2]) -> Option<Self> {
        endpoints.sort_unstable();
        (network != Network::Layer2).then_some(Self { network, protocol, is_of_fragments: false, endpoints })
    }

    /// The key of a packet; `None` for layer 2. The ports of a later fragment are 0.
    pub fn of(packet: &Packet) -> Option<Self> {
        let endpoints = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
        Self::new(packet.network, packet.protocol, endpoints)
    }

    /// The key of a record; `None` for layer 2.
    pub fn of_record(flow: &FlowRecord) -> Option<Self> {
        let endpoints = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
        Self::new(flow.network, flow.protocol, endpoints)
    }

    /// The key of the fragments between the same addresses.
    pub fn of_fragments(self) -> Self {
        let mut endpoints = self.endpoints.map(|(address, _)| (address, 0));
        endpoints.sort_unstable();
        Self { is_of_fragments: true, endpoints, ..self }
    }

    /// Makes a record the record of this flow, without packets; `from` is the number of the initiator.
    pub fn write_to(&self, flow: &mut FlowRecord, from: usize) {
        (flow.network, flow.protocol) = (self.network, self.protocol);
        (flow.source, flow.source_port) = self.endpoints[from];
        (flow.destination, flow.destination_port) = self.endpoints[1 - from];
    }
}

/// Decodes a frame. `None` if the meter refuses it, or if it has no IP.
pub(crate) fn decode_frame(frame: &Frame<'_>, packet: &mut Packet) -> Option<FlowKey> {
    packet.time_ns = frame.time_ns;
    packet.interface = frame.interface;
    decode(frame.link_type, frame.bytes, frame.wire_bytes, DecodeOptions::default(), packet).ok()?;
    FlowKey::of(packet)
}

/// Whether a packet is a first or a later fragment.
pub(crate) fn is_fragment(packet: &Packet) -> bool {
    packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0
}
