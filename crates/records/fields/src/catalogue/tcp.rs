//! Fields of TCP analysis. docs/tcp.md defines them.

use super::reading::optional;
use crate::column::Profile::Store;
use crate::column::{Origin, Properties};
use crate::element::DataType::{Float64, Unsigned8, Unsigned16, Unsigned32, Unsigned64};
use crate::element::{Element, Semantics, Units, anomaly_octets, anomaly_packets, quantity};
use crate::entry::{DirectionView, fields};
use crate::field::{response, retransmitted, retransmitted_share, rtt};
use crate::restore::{assign, set, set_some, words};
use crate::tcp_failure::TcpFailure;
use crate::value::FieldValue;
use crate::words::Words;
use weir_flow::Direction;
use weir_packet::Packet;
use weir_tcp::{Degradation, SegmentClass, TcpReport};

const COMMON: Properties = Properties::of(Origin::TcpAnalysis);

#[rustfmt::skip]
fields! {
    COMMON;
    each "tcp_syn_count", Integer, "packets", "Segments with SYN, including retransmitted segments, without duplicates. `weir help tcp-guide` defines all TCP fields.",
        [Element::iana(218, "tcpSynTotalCount", Unsigned64)],
        |r| implied(r, TcpReport::syns, |d, _| has_bit(d, Packet::SYN)) => |r, v| set(&mut r.class(SegmentClass::Syn).segments, v), profiles: &[Store];
    each "tcp_syn_bytes", Integer, "octets", "Payload of segments with SYN, without retransmitted segments.",
        [anomaly_octets(44, "tcpSynOctets")], |r| segment_bytes(r, SegmentClass::Syn) => |r, v| set(&mut r.class(SegmentClass::Syn).bytes, v);
    each "tcp_syn_retransmitted", Integer, "packets", "Retransmitted segments with SYN: the sequence number is that of the previous SYN.",
        [anomaly_packets(14, "tcpSynRetransmitted")], |r| segments(r, SegmentClass::SynRetransmission) => |r, v| r.set_syn_retransmissions(v), profiles: &[Store];
    each "tcp_syn_retransmitted_bytes", Integer, "octets", "Payload of retransmitted segments with SYN.",
        [anomaly_octets(45, "tcpSynRetransmittedOctets")], |r| segment_bytes(r, SegmentClass::SynRetransmission) => |r, v| set(&mut r.class(SegmentClass::SynRetransmission).bytes, v);
    each "tcp_fin_count", Integer, "packets", "Segments with FIN, without duplicates, out-of-window segments and segments with RST.",
        [Element::iana(219, "tcpFinTotalCount", Unsigned64)],
        |r| implied(r, |t| t.fins, |d, _| has_bit(d, Packet::FIN)) => |r, v| set(&mut r.tcp().fins, v);
    each "tcp_rst_count", Integer, "packets", "Segments with RST, without duplicates.",
        [Element::iana(220, "tcpRstTotalCount", Unsigned64)], |r| segments(r, SegmentClass::Reset) => |r, v| set(&mut r.class(SegmentClass::Reset).segments, v);
    each "tcp_rst_bytes", Integer, "octets", "Payload of segments with RST.",
        [anomaly_octets(46, "tcpRstOctets")], |r| segment_bytes(r, SegmentClass::Reset) => |r, v| set(&mut r.class(SegmentClass::Reset).bytes, v);
    each "tcp_payload_bytes", Integer, "octets", "Payload of all segments, calculated from the IP length; duplicates are included.",
        [quantity(15, "tcpPayloadOctets", Unsigned64, Units::Octets)], |r| tcp_count(r, payload);
    each "tcp_unique_bytes", Integer, "octets", "Payload octets seen for the first time.",
        [quantity(16, "tcpUniqueOctets", Unsigned64, Units::Octets)],
        |r| implied(r, |t| t.unique_bytes, |_, t| payload(t)) => |r, v| set(&mut r.tcp().unique_bytes, v);
    each "tcp_in_order_packets", Integer, "packets", "In-order segments: segments with payload or FIN that begin at or after the end of the octets seen.",
        [quantity(17, "tcpInOrderPackets", Unsigned64, Units::Packets)], |r| segments(r, SegmentClass::InOrder) => |r, v| set(&mut r.class(SegmentClass::InOrder).segments, v), profiles: &[Store];
    each "tcp_in_order_bytes", Integer, "octets", "Payload of in-order segments.",
        [anomaly_octets(18, "tcpInOrderOctets")], |r| segment_bytes(r, SegmentClass::InOrder) => |r, v| set(&mut r.class(SegmentClass::InOrder).bytes, v);
    each "tcp_acknowledgments", Integer, "packets", "Segments without payload, SYN, FIN or RST that are neither keep-alives nor duplicate acknowledgments.",
        [quantity(19, "tcpAcknowledgments", Unsigned64, Units::Packets)],
        |r| implied(r, |t| t.count(SegmentClass::Acknowledgment).segments, other_packets) => |r, v| set(&mut r.class(SegmentClass::Acknowledgment).segments, v);
    each "tcp_duplicate_acks", Integer, "packets", "Duplicate acknowledgments: they repeat the acknowledgment number although the other side has sent more octets.",
        [anomaly_packets(20, "tcpDuplicateAcknowledgments")], |r| segments(r, SegmentClass::DuplicateAcknowledgment) => |r, v| set(&mut r.class(SegmentClass::DuplicateAcknowledgment).segments, v);
    each "tcp_retransmitted_packets", Integer, "packets", "Retransmitted segments: at least one octet or the FIN was seen before. Duplicates, keep-alives and SYN are counted separately.",
        [Element::ntop(109, 110, "RETRANSMITTED_IN_PKTS", Unsigned32).with_anomalies_only(),
         anomaly_packets(21, "tcpRetransmittedPackets")],
        |r| segments(r, SegmentClass::Retransmission) => |r, v| set(&mut r.class(SegmentClass::Retransmission).segments, v), profiles: &[Store];
    each "tcp_retransmitted_bytes", Integer, "octets", "Payload octets that were seen before. Octets of duplicates, keep-alives, out-of-window segments and segments with RST are not counted.",
        [anomaly_octets(22, "tcpRetransmittedOctets")], |r| tcp_count(r, |t| t.retransmitted_bytes) => |r, v| set(&mut r.tcp().retransmitted_bytes, v), profiles: &[Store];
    each "tcp_retransmitted_payload_bytes", Integer, "octets", "Whole payload of retransmitted segments, including octets not seen before.",
        [anomaly_octets(47, "tcpRetransmittedPayloadOctets")], |r| segment_bytes(r, SegmentClass::Retransmission) => |r, v| set(&mut r.class(SegmentClass::Retransmission).bytes, v);
    each "tcp_retransmitted_partial", Integer, "packets", "Retransmitted segments that also have octets not seen before.",
        [anomaly_packets(23, "tcpRetransmittedPartial")], |r| tcp_count(r, |t| t.partial_retransmissions) => |r, v| set(&mut r.tcp().partial_retransmissions, v);
    each "tcp_retransmitted_spurious", Integer, "packets", "Retransmitted segments of which all octets were acknowledged before.",
        [anomaly_packets(24, "tcpRetransmittedSpurious")], |r| tcp_count(r, |t| t.spurious_retransmissions) => |r, v| set(&mut r.tcp().spurious_retransmissions, v);
    each "tcp_retransmitted_unseen", Integer, "packets", "Retransmitted segments whose original was lost before the capture point: they fill a hole with a newer IP identification, or later than out-of-order segments do.",
        [anomaly_packets(25, "tcpRetransmittedUnseenPackets")], |r| segments(r, SegmentClass::UnseenRetransmission) => |r, v| set(&mut r.class(SegmentClass::UnseenRetransmission).segments, v), profiles: &[Store];
    each "tcp_retransmitted_unseen_bytes", Integer, "octets", "Payload of retransmitted segments whose original was lost before the capture point.",
        [anomaly_octets(26, "tcpRetransmittedUnseenOctets")], |r| segment_bytes(r, SegmentClass::UnseenRetransmission) => |r, v| set(&mut r.class(SegmentClass::UnseenRetransmission).bytes, v);
    each "tcp_out_of_order", Integer, "packets", "Out-of-order segments: they fill a hole with an older IP identification; if that does not decide, within the round-trip time of the handshake, or 3 ms if that is unknown.",
        [Element::ntop(111, 112, "OOORDER_IN_PKTS", Unsigned32).with_anomalies_only(),
         anomaly_packets(27, "tcpOutOfOrderPackets")],
        |r| segments(r, SegmentClass::OutOfOrder) => |r, v| set(&mut r.class(SegmentClass::OutOfOrder).segments, v), profiles: &[Store];
    each "tcp_out_of_order_bytes", Integer, "octets", "Payload of out-of-order segments.",
        [anomaly_octets(28, "tcpOutOfOrderOctets")], |r| segment_bytes(r, SegmentClass::OutOfOrder) => |r, v| set(&mut r.class(SegmentClass::OutOfOrder).bytes, v);
    each "tcp_duplicates", Integer, "packets", "Duplicates: packets captured twice, with the same TTL. They are also counted in `packets` and `bytes`.",
        [anomaly_packets(29, "tcpDuplicatePackets")], |r| segments(r, SegmentClass::Duplicate) => |r, v| set(&mut r.class(SegmentClass::Duplicate).segments, v);
    each "tcp_routed_duplicates", Integer, "packets", "Routed duplicates: packets captured twice, before and after a router, with different TTLs.",
        [anomaly_packets(30, "tcpRoutedDuplicatePackets")], |r| segments(r, SegmentClass::RoutedDuplicate) => |r, v| set(&mut r.class(SegmentClass::RoutedDuplicate).segments, v);
    each "tcp_duplicate_bytes", Integer, "octets", "Payload of all duplicates, including routed duplicates.",
        [anomaly_octets(31, "tcpDuplicateOctets")],
        |r| tcp_count(r, |t| t.count(SegmentClass::Duplicate).bytes + t.count(SegmentClass::RoutedDuplicate).bytes);
    each "tcp_routed_duplicate_bytes", Integer, "octets", "Payload of routed duplicates.",
        [anomaly_octets(48, "tcpRoutedDuplicateOctets")], |r| segment_bytes(r, SegmentClass::RoutedDuplicate) => |r, v| set(&mut r.class(SegmentClass::RoutedDuplicate).bytes, v);
    each "tcp_keepalives", Integer, "packets", "Keep-alives: segments with 0 or 1 octet of payload at the position of the last octet sent.",
        [anomaly_packets(32, "tcpKeepAlives")], |r| segments(r, SegmentClass::KeepAlive) => |r, v| set(&mut r.class(SegmentClass::KeepAlive).segments, v);
    each "tcp_keepalive_bytes", Integer, "octets", "Payload of keep-alives.",
        [anomaly_octets(49, "tcpKeepAliveOctets")], |r| segment_bytes(r, SegmentClass::KeepAlive) => |r, v| set(&mut r.class(SegmentClass::KeepAlive).bytes, v);
    each "tcp_zero_window_probes", Integer, "packets", "Zero-window probes: segments with 1 octet of payload while the other side announces a window of 0.",
        [anomaly_packets(33, "tcpZeroWindowProbes")], |r| segments(r, SegmentClass::ZeroWindowProbe) => |r, v| set(&mut r.class(SegmentClass::ZeroWindowProbe).segments, v), profiles: &[Store];
    each "tcp_zero_window_probe_bytes", Integer, "octets", "Payload of zero-window probes.",
        [anomaly_octets(50, "tcpZeroWindowProbeOctets")], |r| segment_bytes(r, SegmentClass::ZeroWindowProbe) => |r, v| set(&mut r.class(SegmentClass::ZeroWindowProbe).bytes, v);
    each "tcp_zero_window", Integer, "packets", "Segments that announce a window of 0, without duplicates, out-of-window segments and segments with RST.",
        [anomaly_packets(34, "tcpZeroWindowAnnouncements")], |r| tcp_count(r, |t| t.zero_windows) => |r, v| set(&mut r.tcp().zero_windows, v), profiles: &[Store];
    each "tcp_out_of_window", Integer, "packets", "Out-of-window segments: 2^30 octets or more away from the octets seen, or before the SYN.",
        [anomaly_packets(35, "tcpOutOfWindowPackets")], |r| segments(r, SegmentClass::OutOfWindow) => |r, v| set(&mut r.class(SegmentClass::OutOfWindow).segments, v), profiles: &[Store];
    each "tcp_out_of_window_bytes", Integer, "octets", "Payload of out-of-window segments.",
        [anomaly_octets(51, "tcpOutOfWindowOctets")], |r| segment_bytes(r, SegmentClass::OutOfWindow) => |r, v| set(&mut r.class(SegmentClass::OutOfWindow).bytes, v);
    each "tcp_unread", Integer, "packets", "Packets without a whole TCP header: later fragments, and packets that the capture truncated.",
        [anomaly_packets(36, "tcpUnreadPackets")], |r| segments(r, SegmentClass::Unread) => |r, v| set(&mut r.class(SegmentClass::Unread).segments, v);
    each "tcp_missing_bytes", Integer, "octets", "Missing octets: octets in holes between octets that were seen, which no segment has filled by the end of the record.",
        [anomaly_octets(37, "tcpMissingOctets")], |r| tcp_count(r, |t| t.missing_bytes) => |r, v| set(&mut r.tcp().missing_bytes, v), profiles: &[Store];
    each "tcp_largest_hole", Integer, "octets", "Largest hole: the most octets that one segment skipped.",
        [anomaly_octets(38, "tcpLargestHole")], |r| tcp_count(r, |t| t.largest_hole_bytes) => |r, v| set(&mut r.tcp().largest_hole_bytes, v);
    each "tcp_handshake_rtt_ns", Integer, "ns", "Time from the SYN of the other side to the first acknowledgment of this side. For the responder it is the round-trip time between capture point and responder; for the initiator, between capture point and initiator.",
        [quantity(39, "tcpHandshakeRoundTrip", Unsigned64, Units::Nanoseconds)],
        |r| tcp_value(r, |t| t.handshake_rtt_ns) => |r, v| set_some(&mut r.tcp().handshake_rtt_ns, v), profiles: &[Store];
    each "tcp_response_count", Integer, "", "Answers of this side: payload that acknowledges all that the other side sent before. `weir help tcp-guide`, section 6 defines response times, round trips and throughput.",
        [quantity(57, "tcpResponseCount", Unsigned64, Units::None).only_listed()], |r| tcp_count(r, |t| t.responses.count) => |r, v| set(&mut r.tcp().responses.count, v), profiles: &[Store];
    each "tcp_response_first_ns", Integer, "ns", "Response time of the first answer of this side: time from the last octet of the request of the other side to the first octet of the answer.",
        [quantity(58, "tcpResponseTimeFirst", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.responses.count > 0).then_some(t.responses.first_ns)) => |r, v| r.set_response(v, |times| &mut times.first_ns);
    each "tcp_response_mean_ns", Number, "ns", "Mean response time of this side.",
        [quantity(54, "tcpResponseTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.tcp.and_then(|t| t.responses.mean_ns()), FieldValue::Float) => |r, v| r.set_response_mean(v), profiles: &[Store], restored_from: &["tcp_response_count"];
    each "tcp_response_max_ns", Integer, "ns", "Longest response time of this side.",
        [quantity(59, "tcpResponseTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.responses.count > 0).then_some(t.responses.max_ns)) => |r, v| r.set_response(v, |times| &mut times.max_ns), profiles: &[Store];
    each "tcp_rtt_count", Integer, "", "Round trips between capture point and this side: segments of the other side that were timed, and that this side acknowledged.",
        [quantity(60, "tcpRoundTripCount", Unsigned64, Units::None).only_listed()], |r| tcp_count(r, |t| t.round_trips.count) => |r, v| set(&mut r.tcp().round_trips.count, v);
    each "tcp_rtt_min_ns", Integer, "ns", "Shortest round-trip time: from payload of the other side to its acknowledgment by this side.",
        [quantity(61, "tcpRoundTripTimeMinimum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.round_trips.count > 0).then_some(t.round_trips.min_ns)) => |r, v| r.set_round_trip(v, |times| &mut times.min_ns), profiles: &[Store];
    each "tcp_rtt_mean_ns", Number, "ns", "Mean round-trip time of payload.",
        [quantity(55, "tcpRoundTripTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.tcp.and_then(|t| t.round_trips.mean_ns()), FieldValue::Float) => |r, v| r.set_round_trip_mean(v), restored_from: &["tcp_rtt_count"];
    each "tcp_rtt_max_ns", Integer, "ns", "Longest round-trip time of payload.",
        [quantity(62, "tcpRoundTripTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.round_trips.count > 0).then_some(t.round_trips.max_ns)) => |r, v| r.set_round_trip(v, |times| &mut times.max_ns);
    each "tcp_throughput_bits_per_second", Integer, "bit/s", "Throughput of the payload: `tcp_unique_bytes` * 8 / `duration_ns`, rounded down. Does not apply to a record of 0 ns.",
        [quantity(64, "tcpThroughput", Unsigned64, Units::None).only_listed()], throughput, restored_from: &["tcp_unique_bytes", "duration_ns"];
    each "tcp_syn_window", Integer, "octets", "Window of the SYN, not scaled.",
        [quantity(40, "tcpSynWindow", Unsigned16, Units::Octets)], |r| tcp_value(r, |t| t.syn_window) => |r, v| set_some(&mut r.tcp().syn_window, v);
    each "tcp_mss", Integer, "octets", "Maximum segment size option of the SYN.",
        [Element::ntop(417, 421, "TCP_WIN_MSS_IN", Unsigned16)], |r| syn_option(r, |t| t.maximum_segment_size) => |r, v| set_some(&mut r.tcp().maximum_segment_size, v), restored_from: &["tcp_syn_window"];
    each "tcp_window_scale", Integer, "bits", "Window scale option of the SYN: a shift in bits.",
        [Element::ntop(418, 422, "TCP_WIN_SCALE_IN", Unsigned8)], |r| syn_option(r, |t| t.window_scale) => |r, v| set_some(&mut r.tcp().window_scale, v), restored_from: &["tcp_syn_window"];
    each "tcp_size_by_sequence", Integer, "octets", "Octets from SYN to FIN by sequence numbers. Only for directions with exactly one SYN and one FIN; retransmitted SYN and FIN do not count.",
        [quantity(41, "tcpSizeBySequence", Unsigned64, Units::Octets)], size_by_sequence;
    each "tcp_duration_by_sequence_ns", Integer, "ns", "Time between the SYN and the FIN of `tcp_size_by_sequence`.",
        [quantity(42, "tcpDurationBySequence", Unsigned64, Units::Nanoseconds)],
        |r| tcp_value(r, |t| t.duration_by_sequence_ns);
    each "tcp_degraded", Words, "", "Reasons why the TCP analysis is not exact, separated by spaces: holes, duplicates, jump, reused, unread, room (bits 1 to 32 in IPFIX). The word room stands for too little memory: segments with payload may then be counted as acknowledgments, without their payload.",
        [Element::weir(43, "tcpDegraded", Unsigned8, Semantics::Flags, Units::None).with_anomalies_only()],
        |r| optional(r.tcp, |t| if t.degradation.0 == 0 { FieldValue::NoValue } else { FieldValue::Degraded(t.degradation) }) => |r, v| assign(&mut r.tcp().degradation.0, words(v, &Degradation::NAMES)), words: Some(Words::TcpDegraded), profiles: &[Store];
    flow "retransmitted", Integer, "packets", "Retransmitted segments of both directions, also those whose original was lost before the capture point.",
        [], |r| retransmitted(r.flow), computed_from: &["tcp_retransmitted_packets", "tcp_retransmitted_unseen", "tcp_syn_retransmitted"], restored_from: &["tcp_retransmitted_packets", "tcp_retransmitted_unseen", "tcp_syn_retransmitted"];
    flow "retransmitted_share", Number, "", "Retransmitted segments of both directions per segment with payload, SYN or FIN: 0 to 1.",
        [], |r| retransmitted_share(r.flow), computed_from: &["tcp_retransmitted_packets", "tcp_retransmitted_unseen", "tcp_syn_retransmitted", "tcp_in_order_packets"], restored_from: &["retransmitted", "tcp_syn_count", "tcp_in_order_packets", "tcp_out_of_order", "tcp_zero_window_probes", "tcp_out_of_window"];
    flow "tcp_failure", Word, "", "How the connection failed, as far as its flags show it: no_answer (the server sent nothing), refused (it answered the SYN with RST), half_open (the client did not acknowledge its SYN), reset_by_client, reset_by_server and reset_by_both (RST before both sides had sent FIN). Only in the record that has the SYN.",
        [], |r| optional(TcpFailure::of(r.flow), |failure| FieldValue::Code(failure as u8, failure.name())), words: Some(Words::TcpFailure), computed_from: &["tcp_flags_number"], restored_from: &["tcp_flags", "packets", "protocol"];
    flow "rtt", Integer, "ns", "Initial round trip: the sum of `tcp_handshake_rtt_ns` of both directions.", [], |r| rtt(r.flow), computed_from: &["tcp_handshake_rtt_ns"], restored_from: &["tcp_handshake_rtt_ns"];
    flow "response", Integer, "ns", "Mean time in which the server (`server_ip`) answers requests.", [], |r| response(r.flow), computed_from: &["tcp_response_mean_ns"], restored_from: &["tcp_response_mean_ns", "tcp_response_max_ns", "service_port"];
}

/// A counter of TCP analysis.
fn tcp_count(record: &DirectionView<'_>, read: impl FnOnce(&TcpReport) -> u64) -> FieldValue<'static> {
    optional(record.tcp, |report| FieldValue::Unsigned(read(report)))
}

/// Segments of one class.
#[inline]
fn segments(record: &DirectionView<'_>, class: SegmentClass) -> FieldValue<'static> {
    tcp_count(record, |report| report.count(class).segments)
}

/// Payload octets of one class.
#[inline]
fn segment_bytes(record: &DirectionView<'_>, class: SegmentClass) -> FieldValue<'static> {
    tcp_count(record, |report| report.count(class).bytes)
}

/// A counter of TCP analysis that equals `usual`, computed from other fields, in nearly every
/// direction without anomalies. docs/fields.md has the rules.
fn implied(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> u64,
    usual: impl FnOnce(&Direction, &TcpReport) -> u64,
) -> FieldValue<'static> {
    let Some(report) = record.tcp else { return FieldValue::NotApplicable };
    let count = read(report);
    if count == usual(record.direction, report) { FieldValue::Implied(count) } else { FieldValue::Unsigned(count) }
}

/// 1 if a TCP control bit was seen, otherwise 0.
#[inline]
fn has_bit(direction: &Direction, bit: u16) -> u64 {
    u64::from(direction.tcp_flags & bit != 0)
}

/// Payload octets of all segments, duplicates included.
#[inline]
fn payload(report: &TcpReport) -> u64 {
    report.classes.iter().map(|count| count.bytes).sum()
}

/// Packets that are neither SYN nor RST nor in order.
#[inline]
fn other_packets(direction: &Direction, report: &TcpReport) -> u64 {
    let others =
        report.syns() + report.count(SegmentClass::Reset).segments + report.count(SegmentClass::InOrder).segments;
    direction.packets.wrapping_sub(others)
}

/// The size by sequence numbers. It equals the payload if the whole connection is in one record.
#[inline]
fn size_by_sequence<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    match record.tcp {
        Some(TcpReport { size_by_sequence_bytes: Some(_), duration_by_sequence_ns: Some(_), .. }) => {
            implied(record, |t| t.size_by_sequence_bytes.unwrap_or_default(), |_, t| payload(t))
        }
        _ => tcp_value(record, |t| t.size_by_sequence_bytes),
    }
}

/// Octets of payload seen for the first time, per second of the record.
#[inline]
fn throughput<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    let duration_ns = record.flow.end_ns().saturating_sub(record.flow.start_ns());
    tcp_value(record, |t| {
        let bits_per_second = (u128::from(t.unique_bytes) * 8 * 1_000_000_000).checked_div(duration_ns.into())?;
        u64::try_from(bits_per_second).ok()
    })
}

/// An optional value of TCP analysis.
fn tcp_value<T: Into<u64>>(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> Option<T>,
) -> FieldValue<'static> {
    optional(record.tcp.and_then(read), |number| FieldValue::Unsigned(number.into()))
}

/// An option of the SYN: no value if the SYN has no such option; does not apply if no SYN was seen.
fn syn_option<T: Into<u64>>(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> Option<T>,
) -> FieldValue<'static> {
    match record.tcp {
        Some(report) if report.syn_window.is_some() => {
            read(report).map_or(FieldValue::NoValue, |number| FieldValue::Unsigned(number.into()))
        }
        _ => FieldValue::NotApplicable,
    }
}
