//! Restores what full IPFIX records omit (docs/fields.md, *TCP elements in IPFIX*).

use crate::column::Column;
use crate::restored::entry_name;
use crate::selection::columns;
use weir_flow::FlowRecord;
use weir_packet::Packet;
use weir_tcp::{SegmentClass, TcpReport};

/// The columns that [`restore_omitted`] depends on, and those that it sets.
pub fn columns_of_omitted() -> impl Iterator<Item = &'static Column> {
    columns().iter().filter(|column| entry_name(column.name).starts_with("tcp_"))
}

/// Sets the TCP counters that a full record omits in a direction without TCP anomalies, from the counters that it has.
/// `payload_bytes`: all payload of the direction. `has`: whether the record had an element of this entry.
pub fn restore_omitted(flow: &mut FlowRecord, is_reverse: bool, payload_bytes: u64, has: impl Fn(&str) -> bool) {
    let direction = if is_reverse { &flow.reverse } else { &flow.forward };
    let report = &mut flow.tcp.get_or_insert([TcpReport::EMPTY; 2])[usize::from(is_reverse)];
    let bit = |bit: u16| u64::from(direction.tcp_flags & bit != 0);
    if !has("tcp_syn_count") {
        report.classes[SegmentClass::Syn as usize].segments = bit(Packet::SYN);
    }
    if !has("tcp_fin_count") {
        report.fins = bit(Packet::FIN);
    }
    if !has("tcp_unique_bytes") {
        report.unique_bytes = payload_bytes;
    }
    report.classes[SegmentClass::InOrder as usize].bytes = payload_bytes;
    if !has("tcp_acknowledgments") {
        let counted = [SegmentClass::Syn, SegmentClass::Reset, SegmentClass::InOrder];
        let counted = counted.iter().fold(0_u64, |sum, class| sum.saturating_add(report.count(*class).segments));
        report.classes[SegmentClass::Acknowledgment as usize].segments = direction.packets.saturating_sub(counted);
    }
}
