//! The reference meter: sections 1 to 6 of `docs/metering.md`, as plainly as possible.
//!
//! Input: frames. Output: all records, and counts of refusals, anomalies and drops. It uses linear
//! searches and lists of packets and judges everything at every packet: slow, and easy to compare with
//! the page. It shares no code with the program's decoder and meter.

mod decode;
mod meter;
mod tcp;

pub use decode::{decode, decode_with_mac_addresses};
pub use tcp::TcpReference;

use crate::RawFrame;
use std::collections::BTreeMap;
use weir_flow::FlowRecord;
use weir_ledger::{PacketAnomaly, RefusalReason};
use weir_packet::{Network, Packet};
use weir_probe::Settings;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All records, in no particular order.
    pub flows: Vec<FlowRecord>,
    /// Refused frames by reason.
    pub refused: BTreeMap<RefusalReason, u64>,
    /// Their octets on the wire.
    pub refused_bytes: BTreeMap<RefusalReason, u64>,
    /// Remarks on metered packets.
    pub anomalies: BTreeMap<PacketAnomaly, u64>,
    /// Frames without IP by EtherType.
    pub ethertypes: BTreeMap<u16, u64>,
    /// Frames of link types that are not decoded, by link type.
    pub link_types: BTreeMap<u16, u64>,
    /// Packets that a full table dropped.
    pub dropped_packets: u64,
    /// Their octets on the wire.
    pub dropped_bytes: u64,
}

/// Meters frames from the first to the last, `burst` of them at a time.
pub fn meter(frames: &[RawFrame], burst: usize, settings: &Settings) -> Outcome {
    let mut meter = meter::Meter::new(settings.meter);
    for frames in frames.chunks(burst) {
        let packets = decode_all(frames, settings, &mut meter.outcome);
        meter.process(&packets);
    }
    meter.finish()
}

/// Decodes frames; counts those that are refused.
fn decode_all(frames: &[RawFrame], settings: &Settings, outcome: &mut Outcome) -> Vec<Packet> {
    let mut packets = Vec::new();
    let decode = if settings.meter.mac_addresses { decode_with_mac_addresses } else { decode };
    for frame in frames {
        let refused = match decode(frame, settings.decode.decapsulate) {
            Ok((packet, anomalies)) if packet.network != Network::Layer2 || settings.layer2 => {
                for anomaly in anomalies {
                    *outcome.anomalies.entry(anomaly).or_default() += 1;
                }
                packets.push(packet);
                continue;
            }
            Ok((packet, _)) => {
                *outcome.ethertypes.entry(packet.source_port).or_default() += 1;
                RefusalReason::NonIp
            }
            Err(RefusalReason::LinkType) => {
                *outcome.link_types.entry(frame.link_type).or_default() += 1;
                RefusalReason::LinkType
            }
            Err(refused) => refused,
        };
        *outcome.refused.entry(refused).or_default() += 1;
        *outcome.refused_bytes.entry(refused).or_default() += u64::from(frame.wire_bytes);
    }
    packets
}

/// Meters decoded packets, `burst` of them at a time.
pub fn meter_packets(packets: &[Packet], burst: usize, config: weir_flow::Config) -> Outcome {
    let mut meter = meter::Meter::new(config);
    packets.chunks(burst).for_each(|burst| meter.process(burst));
    meter.finish()
}
