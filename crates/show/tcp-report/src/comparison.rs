//! Comparison with the rule of most tools: a segment with payload is a retransmission if one with
//! the same addresses, ports and sequence number came before, and a duplicate if one of those had
//! the same IP identification.
//!
//! The rule has no limit in time and in the number of segments. Memory: 60 bytes per segment with
//! payload, 400 per connection.

use crate::endpoint_pairs::opens_connection;
use crate::reader::PacketConsumer;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use weir_packet::{Flags, Packet};
use weir_tcp::{AnomalyPool, Connection, SegmentClass};
use weir_tcp_batch::ConnectionKey;
use weir_text::paragraph;

/// Segments with payload of one kind: retransmissions or duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCounts {
    /// Found by the usual rule.
    pub rule: u64,
    /// Found by Weir's rules.
    pub weir: u64,
    /// Found by Weir's rules only.
    pub missed: u64,
    /// Found by Weir's rules; the usual rule takes them for the other kind.
    pub mistaken: u64,
    /// Found by the usual rule only.
    pub wrong: u64,
}

/// The comparison so far.
#[derive(Default)]
pub struct Comparison {
    /// The number of each pair of endpoints.
    pairs: HashMap<ConnectionKey, usize>,
    /// The current connection of each pair.
    connections: Vec<Connection>,
    anomalies: AnomalyPool,
    /// For each direction and sequence number the IP identification of the first segment.
    first_segments: HashMap<(u32, u32), u32>,
    /// Direction, sequence number and IP identification of the other segments.
    other_segments: HashSet<(u32, u32, u32)>,
    /// Segments with payload.
    pub data_segments: u64,
    /// Retransmissions.
    pub retransmissions: RuleCounts,
    /// Duplicates.
    pub duplicates: RuleCounts,
    /// Pairs of endpoints with retransmissions by Weir's rules.
    pairs_with_retransmissions: HashSet<u32>,
    /// Those of these in which the usual rule missed or mistook one.
    pairs_with_missed: HashSet<u32>,
}

impl PacketConsumer for Comparison {
    fn consume(&mut self, packets: &[Packet], _: &[u64]) {
        // Without memory for anomalies, segments of some classes count as acknowledgments.
        let _ = self.anomalies.reserve(packets.len());
        packets.iter().for_each(|packet| self.enter(packet));
    }
}

impl Comparison {
    fn enter(&mut self, packet: &Packet) {
        let (key, side) = ConnectionKey::from_packet(packet);
        let next = self.connections.len();
        let pair = *self.pairs.entry(key).or_insert(next);
        if pair == next {
            self.connections.push(Connection::NEW);
        }
        let connection = &mut self.connections[pair];
        if opens_connection(packet) && connection.has_ended() {
            connection.reset(&mut self.anomalies);
        }
        let class = connection.classify(side, packet, &mut self.anomalies);
        if packet.payload_bytes == 0 || !packet.flags.has(Flags::TCP) {
            return;
        }
        self.data_segments += 1;
        let pair = pair as u32;
        let (repeated, same_identification) = self.apply_usual_rule(pair << 1 | side as u32, packet);
        let by_rule = [repeated && !same_identification, same_identification];
        let is_retransmission = class == SegmentClass::Retransmission;
        let is_duplicate = matches!(class, SegmentClass::Duplicate | SegmentClass::RoutedDuplicate);
        self.retransmissions.count(by_rule, [is_retransmission, is_duplicate]);
        self.duplicates.count([by_rule[1], by_rule[0]], [is_duplicate, is_retransmission]);
        if is_retransmission {
            self.pairs_with_retransmissions.insert(pair);
            if !by_rule[0] {
                self.pairs_with_missed.insert(pair);
            }
        }
    }

    /// Whether a segment with this sequence number came before, and whether one with this
    /// identification.
    fn apply_usual_rule(&mut self, direction: u32, packet: &Packet) -> (bool, bool) {
        // In a SYN over IPv4 the upper 16 bits are not part of the identification.
        let identification = packet.identification & 0xffff;
        match self.first_segments.entry((direction, packet.sequence)) {
            Entry::Vacant(entry) => {
                entry.insert(identification);
                (false, false)
            }
            Entry::Occupied(first) if *first.get() == identification => (true, true),
            Entry::Occupied(_) => (true, !self.other_segments.insert((direction, packet.sequence, identification))),
        }
    }

    /// A table with its explanation, in lines of at most 120 characters.
    pub(crate) fn text(&self, columns: Option<usize>) -> String {
        let title = format!(
            "Comparison with the rule \"addresses, ports and sequence number as before\": {} segments with payload",
            self.data_segments
        );
        let mut text = format!("{}{:16}", paragraph("", &title, columns), "");
        for heading in ["that rule", "weir", "missed", "mistaken", "wrong"] {
            text += &format!(" {heading:>11}");
        }
        for (name, counts) in [("retransmissions", self.retransmissions), ("duplicates", self.duplicates)] {
            text += &format!("\n{name:16}");
            let RuleCounts { rule, weir, missed, mistaken, wrong } = counts;
            [rule, weir, missed, mistaken, wrong].iter().for_each(|count| text += &format!(" {count:>11}"));
        }
        let meaning = format!(
            "That rule takes a segment with the same IP identification for a duplicate. missed: found by Weir only; \
             mistaken: found by both, as retransmission and as duplicate; wrong: found by that rule only. \
             That rule does not find all retransmissions in {} of the {} pairs of endpoints that have some.",
            self.pairs_with_missed.len(),
            self.pairs_with_retransmissions.len()
        );
        text + "\n" + &paragraph("", &meaning, columns)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "data_segments": self.data_segments,
            "pairs_with_retransmissions": self.pairs_with_retransmissions.len(),
            "pairs_with_missed": self.pairs_with_missed.len(),
            "retransmissions": self.retransmissions,
            "copies": self.duplicates,
        })
    }
}

impl RuleCounts {
    /// Counts a segment. For each rule: whether it is of this kind, and whether of the other kind.
    fn count(&mut self, [rule, rule_other]: [bool; 2], [weir, weir_other]: [bool; 2]) {
        self.rule += u64::from(rule);
        self.weir += u64::from(weir);
        self.missed += u64::from(weir && !rule && !rule_other);
        self.mistaken += u64::from(weir && rule_other);
        self.wrong += u64::from(rule && !weir && !weir_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::ipv4_mapped;

    fn data(time_ms: u64, sequence: u32, payload_bytes: u32, identification: u32) -> Packet {
        Packet {
            time_ns: time_ms * 1_000_000,
            source: ipv4_mapped([192, 0, 2, 1]),
            destination: ipv4_mapped([192, 0, 2, 2]),
            source_port: 1000,
            destination_port: 80,
            protocol: 6,
            flags: Flags(Flags::PORTS | Flags::TCP),
            control: Packet::ACK,
            window: 1000,
            sequence,
            payload_bytes,
            identification,
            ..Packet::default()
        }
    }

    #[test]
    fn the_usual_rule_misses_retransmissions_with_other_boundaries() {
        let mut comparison = Comparison::default();
        // Two in order, the first again, its second half again, both together again, and a
        // duplicate of that.
        let segments = [(1, 100), (101, 100), (1, 100), (51, 50), (1, 200), (1, 200)];
        for (at, (sequence, payload)) in segments.into_iter().enumerate() {
            let identification = if at == 5 { 14 } else { 10 + at as u32 };
            comparison.enter(&data(10 * at as u64, sequence, payload, identification));
        }
        assert_eq!(comparison.data_segments, 6);
        assert_eq!(comparison.retransmissions, RuleCounts { rule: 2, weir: 3, missed: 1, mistaken: 0, wrong: 0 });
        assert_eq!(comparison.duplicates, RuleCounts { rule: 1, weir: 1, missed: 0, mistaken: 0, wrong: 0 });
        assert!(comparison.text(None).contains("in 1 of the 1 pairs"));
    }
}
