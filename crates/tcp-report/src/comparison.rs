//! The rule by which most tools count, beside ours: a segment with payload is a *retransmission* if one with the same
//! addresses, ports and sequence number came before, and a *copy* if one of those had its identification, too.
//!
//! It is kept simple: an exact set of sequence numbers, no bound in time. Memory: 60 octets per segment with payload,
//! 400 per connection.

use crate::reader::{PacketConsumer, ends, opens};
use serde_json::{Value, json};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use weir_packet::{Flags, Packet};
use weir_tcp::{AnomalyPool, Connection, SegmentClass};

/// What both rules said of segments with payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Found by that rule.
    pub rule: u64,
    /// Found by ours.
    pub ours: u64,
    /// Found by ours; that rule sees nothing in them.
    pub missed: u64,
    /// Found by ours; that rule takes them for the other of the two.
    pub mistaken: u64,
    /// Found by that rule; by ours they are neither.
    pub wrong: u64,
}

/// The comparison so far.
#[derive(Default)]
pub struct Comparison {
    /// Number of each pair of ends, and its connection, as ours has it.
    pairs: HashMap<[SocketAddr; 2], usize>,
    connections: Vec<Connection>,
    room: AnomalyPool,
    /// Pair and side, and sequence number, of what was seen; identification of the first of them.
    seen: HashMap<(u32, u32), u32>,
    /// Those of the others.
    identifications: HashSet<(u32, u32, u32)>,
    /// Segments with payload.
    pub data_segments: u64,
    /// Retransmissions.
    pub retransmissions: Verdicts,
    /// Duplicates that the capture made.
    pub duplicates: Verdicts,
    /// Pairs of ends in which retransmissions were missed or mistaken.
    missed_in: HashSet<u32>,
    ours_in: HashSet<u32>,
}

impl PacketConsumer for Comparison {
    fn consume(&mut self, packets: &[Packet], _: &[u64]) {
        // Without memory for it the segments of some classes are not told apart.
        let _ = self.room.reserve(packets.len());
        packets.iter().for_each(|packet| self.enter(packet));
    }
}

impl Comparison {
    fn enter(&mut self, packet: &Packet) {
        let (ends, side) = ends(packet);
        let next = self.connections.len();
        let pair = *self.pairs.entry(ends).or_insert(next);
        if pair == next {
            self.connections.push(Connection::NEW);
        }
        let connection = &mut self.connections[pair];
        if opens(packet) && connection.has_ended() {
            connection.reset(&mut self.room);
        }
        let class = connection.enter(side, packet, &mut self.room);
        if packet.payload_bytes == 0 || !packet.flags.has(Flags::TCP) {
            return;
        }
        self.data_segments += 1;
        let pair = pair as u32;
        let (again, same_identification) = self.by_rule(pair << 1 | side as u32, packet);
        let retransmission = class == SegmentClass::Retransmission;
        let copy = matches!(class, SegmentClass::Duplicate | SegmentClass::RoutedDuplicate);
        let by_rule = again && !same_identification;
        self.retransmissions.count([by_rule, same_identification], [retransmission, copy]);
        self.duplicates.count([same_identification, by_rule], [copy, retransmission]);
        if retransmission {
            self.ours_in.insert(pair);
            if !again || same_identification {
                self.missed_in.insert(pair);
            }
        }
    }

    /// Whether the sequence number was there before, and whether with this identification.
    fn by_rule(&mut self, direction: u32, packet: &Packet) -> (bool, bool) {
        // Above 16 bits an IPv4 identification is something else in a SYN.
        let identification = packet.identification & 0xffff;
        match self.seen.entry((direction, packet.sequence)) {
            Entry::Vacant(free) => {
                free.insert(identification);
                (false, false)
            }
            Entry::Occupied(first) if *first.get() == identification => (true, true),
            Entry::Occupied(_) => (true, !self.identifications.insert((direction, packet.sequence, identification))),
        }
    }

    /// As lines.
    pub fn text(&self) -> String {
        let columns = ["that rule", "weir", "missed", "mistaken", "wrong"];
        let mut text = format!(
            "Beside the rule \"addresses, ports and sequence number as before\": {} segments with payload\n{:16}",
            self.data_segments, ""
        );
        columns.iter().for_each(|heading| text += &format!(" {heading:>11}"));
        text.push('\n');
        for (name, Verdicts { rule, ours, missed, mistaken, wrong }) in self.rows() {
            text += &format!("{name:16}");
            [rule, ours, missed, mistaken, wrong].iter().for_each(|count| text += &format!(" {count:>11}"));
            text.push('\n');
        }
        text += &format!(
            "a copy by that rule has equal IP identification, too. missed: it sees nothing; mistaken: it takes one for the other;\n\
             wrong: neither by ours. It does not find all retransmissions in {} of the {} pairs of ends that have some\n",
            self.missed_in.len(),
            self.ours_in.len()
        );
        text
    }

    fn rows(&self) -> [(&'static str, Verdicts); 2] {
        [("retransmissions", self.retransmissions), ("copies", self.duplicates)]
    }

    /// As an object.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "data_segments": self.data_segments,
            "pairs_with_retransmissions": self.ours_in.len(),
            "pairs_with_missed": self.missed_in.len(),
        });
        for (name, Verdicts { rule, ours, missed, mistaken, wrong }) in self.rows() {
            object[name] = json!({"rule": rule, "weir": ours, "missed": missed, "mistaken": mistaken, "wrong": wrong});
        }
        object
    }
}

impl Verdicts {
    /// Counts a segment by what each rule says: that it is one, that it is one of the other kind.
    fn count(&mut self, [rule, rule_other]: [bool; 2], [ours, ours_other]: [bool; 2]) {
        self.rule += u64::from(rule);
        self.ours += u64::from(ours);
        self.missed += u64::from(ours && !rule && !rule_other);
        self.mistaken += u64::from(ours && rule_other);
        self.wrong += u64::from(rule && !ours && !ours_other);
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
    fn what_is_cut_anew_is_missed_and_what_is_equal_is_not() {
        let mut comparison = Comparison::default();
        // In order twice, the first again, its second half again, both together again, and a copy of that.
        for (at, (sequence, payload)) in
            [(1, 100), (101, 100), (1, 100), (51, 50), (1, 200), (1, 200)].into_iter().enumerate()
        {
            let identification = if at == 5 { 14 } else { 10 + at as u32 };
            comparison.enter(&data(10 * at as u64, sequence, payload, identification));
        }
        assert_eq!(comparison.data_segments, 6);
        assert_eq!(comparison.retransmissions, Verdicts { rule: 2, ours: 3, missed: 1, mistaken: 0, wrong: 0 });
        assert_eq!(comparison.duplicates, Verdicts { rule: 1, ours: 1, missed: 0, mistaken: 0, wrong: 0 });
        assert!(comparison.text().contains("in 1 of the 1 pairs"));
    }
}
