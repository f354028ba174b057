//! The expected flow records (ground truth) of generated traffic.

use crate::expected_application::ExpectedApplication;
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{Endpoint, Slot, TCP};
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::IpAddr;

/// A flow as it was generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedFlow {
    /// Address of the initiator, the sender of the first packet (for TCP the SYN).
    pub source: IpAddr,
    /// Address of the responder.
    pub destination: IpAddr,
    /// Port of the initiator.
    pub source_port: u16,
    /// Port of the responder.
    pub destination_port: u16,
    /// IP protocol number: 6 or 17.
    pub protocol: u8,
    /// From initiator to responder; always has packets.
    pub forward: ExpectedDirection,
    /// From responder to initiator.
    pub reverse: ExpectedDirection,
}

impl ExpectedFlow {
    /// A flow without packets between two endpoints, initiator first.
    pub(super) fn new(ends: [Endpoint; 2], ipv6: bool, protocol: u8) -> Self {
        Self {
            source: ends[0].ip(ipv6),
            destination: ends[1].ip(ipv6),
            source_port: ends[0].port,
            destination_port: ends[1].port,
            protocol,
            forward: ExpectedDirection::default(),
            reverse: ExpectedDirection::default(),
        }
    }

    /// Counts the packet in a slot. Packets are in time order. `flags` are those of TCP.
    pub(super) fn count(&mut self, reverse: bool, slot: &Slot, ip_bytes: u32, flags: u8) {
        let direction = if reverse { &mut self.reverse } else { &mut self.forward };
        if direction.packets == 0 {
            direction.first_ns = slot.time_ns;
        }
        direction.last_ns = slot.time_ns;
        direction.packets += 1;
        direction.bytes += u64::from(ip_bytes);
        direction.frame_bytes += u64::from(slot.wire_bytes);
        direction.tcp_flags |= if self.protocol == TCP { u16::from(flags) } else { 0 };
    }
}

/// One direction of an [`ExpectedFlow`]. The times are undefined while `packets` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedDirection {
    /// Number of packets.
    pub packets: u64,
    /// IP octets (IPv4 total length; 40 + IPv6 payload length).
    pub bytes: u64,
    /// Bytes of the frames on the wire, without FCS.
    pub frame_bytes: u64,
    /// Time of the first packet, ns since 1970 UTC.
    pub first_ns: u64,
    /// Time of the last packet, ns since 1970 UTC.
    pub last_ns: u64,
    /// Union of the TCP control bits of all packets; 0 for UDP.
    pub tcp_flags: u16,
}

/// The expected flows so far, in the order of their first packets.
#[derive(Default)]
pub(super) struct ExpectedFlows {
    pub(super) flows: Vec<ExpectedFlow>,
    /// TCP counters of each flow, forward and reverse, if the profile is `lossy`.
    pub(super) tcp: Vec<[ExpectedTcp; 2]>,
    /// Application of each flow, if the profile is `apps`.
    pub(super) applications: Vec<ExpectedApplication>,
    /// Index of a flow by its number, for a profile that generates flows in any order.
    indexes: HashMap<u32, usize>,
}

impl ExpectedFlows {
    pub(super) fn add(&mut self, flow: ExpectedFlow) -> usize {
        self.flows.push(flow);
        self.flows.len() - 1
    }

    /// Returns the flow of a number, which `new` creates at its first packet.
    pub(super) fn by_number(&mut self, number: u32, new: impl FnOnce() -> ExpectedFlow) -> &mut ExpectedFlow {
        let index = *self.indexes.entry(number).or_insert_with(|| {
            self.flows.push(new());
            self.flows.len() - 1
        });
        &mut self.flows[index]
    }
}

/// Writes flows as CSV: a header line, then one line per flow. `start_ns` and `end_ns` are those of
/// both directions; fields that do not apply (TCP flags of UDP, times of a direction without
/// packets) are empty. `tcp` is the result of
/// [`TrafficGenerator::expected_tcp`](super::TrafficGenerator::expected_tcp); its counters follow
/// in the columns `fwd_tcp_NAME` and `rev_tcp_NAME`. `applications` is that of
/// [`TrafficGenerator::expected_applications`](super::TrafficGenerator::expected_applications).
///
/// # Errors
/// The output cannot be written.
pub fn write_expected_flows(
    flows: &[ExpectedFlow],
    tcp: &[[ExpectedTcp; 2]],
    applications: &[ExpectedApplication],
    mut output: impl Write,
) -> io::Result<()> {
    write!(
        output,
        "src_ip,dst_ip,src_port,dst_port,protocol_number,start_ns,end_ns,\
         fwd_packets,fwd_bytes,fwd_l2_bytes,fwd_tcp_flags_number,fwd_first_ns,fwd_last_ns,\
         rev_packets,rev_bytes,rev_l2_bytes,rev_tcp_flags_number,rev_first_ns,rev_last_ns"
    )?;
    for prefix in if tcp.is_empty() { &[][..] } else { &["fwd_tcp", "rev_tcp"] } {
        ExpectedTcp::NAMES.iter().try_for_each(|name| write!(output, ",{prefix}_{name}"))?;
    }
    if !applications.is_empty() {
        ExpectedApplication::names().try_for_each(|name| write!(output, ",{name}"))?;
    }
    writeln!(output)?;
    for (at, flow) in flows.iter().enumerate() {
        let ExpectedFlow { source, destination, source_port, destination_port, protocol, forward, reverse } = flow;
        let end_ns = if reverse.packets > 0 { forward.last_ns.max(reverse.last_ns) } else { forward.last_ns };
        let start_ns = forward.first_ns;
        write!(output, "{source},{destination},{source_port},{destination_port},{protocol},{start_ns},{end_ns}")?;
        for direction in [forward, reverse] {
            let ExpectedDirection { packets, bytes, frame_bytes, first_ns, last_ns, tcp_flags } = direction;
            write!(output, ",{packets},{bytes},{frame_bytes},")?;
            if *protocol == TCP && *packets > 0 {
                write!(output, "{tcp_flags}")?;
            }
            if *packets > 0 {
                write!(output, ",{first_ns},{last_ns}")?;
            } else {
                write!(output, ",,")?;
            }
        }
        for number in tcp.get(at).iter().flat_map(|directions| directions.iter()).flat_map(ExpectedTcp::values) {
            write!(output, ",{number}")?;
        }
        for value in applications.get(at).iter().flat_map(|application| application.values()) {
            // A list of protocols has a comma.
            if value.contains(',') { write!(output, ",\"{value}\"")? } else { write!(output, ",{value}")? }
        }
        writeln!(output)?;
    }
    output.flush()
}
