//! Packets of undecided flows that wait for the application, in a bounded ring of octets.
//!
//! Each flow has a chain of entries, in the order of arrival. Octets are freed from the oldest entry
//! on, so a flow that waits long keeps the octets behind it; the limit of time bounds that.

use std::collections::{HashMap, VecDeque};
use weir_capture::Frame;
use weir_packet::Packet;

/// Entries of the ring have at least this many octets on average, else the number of entries is the
/// limit.
const MEAN_OCTETS: u64 = 128;

#[derive(Debug)]
pub(crate) struct HeldPackets {
    octets: Box<[u8]>,
    /// Where the next frame begins.
    write_at: usize,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    max_entries: usize,
    chains: HashMap<u32, Chain, ahash::RandomState>,
    time_ns: u64,
}

#[derive(Debug)]
struct Entry {
    slot: u32,
    /// When it came.
    since_ns: u64,
    frame: Frame<'static>,
    place: (usize, usize),
    packet: Packet,
    /// Number of the packet in its flow, from 1.
    number: u32,
    next: Option<u64>,
    released: bool,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u64,
    last: u64,
    /// The decision from what was known when the last packet came.
    fallback: u16,
}

/// A packet that leaves.
pub(crate) struct Released<'a> {
    pub frame: Frame<'a>,
    pub packet: &'a Packet,
    pub number: u32,
}

impl HeldPackets {
    pub fn new(octets: u64, time_ns: u64) -> Self {
        let max_entries = (octets / MEAN_OCTETS).clamp(1, 1 << 24) as usize;
        Self {
            octets: vec![0; octets as usize].into(),
            write_at: 0,
            entries: VecDeque::new(),
            first: 0,
            max_entries,
            chains: HashMap::default(),
            time_ns,
        }
    }

    pub fn has(&self, slot: u32) -> bool {
        !self.chains.is_empty() && self.chains.contains_key(&slot)
    }

    /// Holds a packet that came at `now_ns`. Returns false if there is no room for it.
    pub fn hold(
        &mut self,
        now_ns: u64,
        slot: u32,
        frame: &Frame<'_>,
        packet: &Packet,
        number: u32,
        fallback: u16,
    ) -> bool {
        let length = frame.bytes.len();
        let Some(start) = self.room(length) else { return false };
        if self.entries.len() >= self.max_entries {
            return false;
        }
        let Some(place) = self.octets.get_mut(start..start + length) else { return false };
        place.copy_from_slice(frame.bytes);
        self.write_at = start + length;
        let at = self.first + self.entries.len() as u64;
        let frame = Frame { bytes: &[], ..*frame };
        let place = (start, length);
        self.entries.push_back(Entry {
            slot,
            since_ns: now_ns,
            frame,
            place,
            packet: *packet,
            number,
            next: None,
            released: false,
        });
        match self.chains.get_mut(&slot) {
            Some(chain) => {
                let last = std::mem::replace(&mut chain.last, at);
                chain.fallback = fallback;
                if let Some(last) = self.entries.get_mut(last.wrapping_sub(self.first) as usize) {
                    last.next = Some(at);
                }
            }
            None => {
                self.chains.insert(slot, Chain { first: at, last: at, fallback });
            }
        }
        true
    }

    /// Where a frame of this length has room. The used part of the ring goes from the oldest entry to
    /// `write_at`, and perhaps round the end.
    fn room(&mut self, length: usize) -> Option<usize> {
        let Some(oldest) = self.entries.front() else {
            self.write_at = 0;
            return (length <= self.octets.len()).then_some(0);
        };
        let (oldest, end) = (oldest.place.0, self.octets.len());
        if self.write_at > oldest || (self.write_at == oldest && oldest == 0) {
            if length <= end - self.write_at {
                Some(self.write_at)
            } else {
                // One octet stays free: a full ring does not look like an empty one.
                (length < oldest).then_some(0)
            }
        } else {
            (length < oldest - self.write_at).then_some(self.write_at)
        }
    }

    /// The slot of the oldest flow, and the decision that is made without more: if its packet has
    /// waited too long by now, or `now_ns` is `None`.
    pub fn overdue(&mut self, now_ns: Option<u64>) -> Option<(u32, u16)> {
        self.free_released();
        let oldest = self.entries.front()?;
        if now_ns.is_some_and(|now_ns| now_ns.saturating_sub(oldest.since_ns) < self.time_ns) {
            return None;
        }
        Some((oldest.slot, self.chains.get(&oldest.slot)?.fallback))
    }

    /// The decision that would be made about a flow with what was known.
    pub fn fallback(&self, slot: u32) -> Option<u16> {
        self.chains.get(&slot).map(|chain| chain.fallback)
    }

    /// Hands the packets of a flow over, in their order.
    pub fn release(&mut self, slot: u32, mut hand_over: impl FnMut(Released<'_>)) {
        let Some(chain) = self.chains.remove(&slot) else { return };
        let mut next = Some(chain.first);
        while let Some(at) = next {
            let Some(entry) = self.entries.get_mut(at.wrapping_sub(self.first) as usize) else { break };
            entry.released = true;
            next = entry.next;
            let (start, length) = entry.place;
            let bytes = self.octets.get(start..start + length).unwrap_or(&[]);
            hand_over(Released { frame: Frame { bytes, ..entry.frame }, packet: &entry.packet, number: entry.number });
        }
        self.free_released();
    }

    fn free_released(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.released) {
            self.entries.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8], time_ns: u64) -> Frame<'_> {
        Frame { bytes, time_ns, wire_bytes: bytes.len() as u32, link_type: 1, time_assumed: false, interface: 1 }
    }

    fn released(held: &mut HeldPackets, slot: u32) -> Vec<(Vec<u8>, u32)> {
        let mut all = Vec::new();
        held.release(slot, |released| all.push((released.frame.bytes.to_vec(), released.number)));
        all
    }

    #[test]
    fn packets_leave_by_flow_and_in_order() {
        let mut held = HeldPackets::new(4096, 100);
        for (number, slot) in [(1, 7), (1, 8), (2, 7), (3, 7), (2, 8)] {
            assert!(held.hold(5, slot, &frame(&[slot as u8, number as u8], 5), &Packet::default(), number, 0));
        }
        assert_eq!(released(&mut held, 7), [(vec![7, 1], 1), (vec![7, 2], 2), (vec![7, 3], 3)]);
        assert!(!held.has(7) && held.has(8));
        assert_eq!(held.overdue(Some(104)), None);
        assert_eq!(held.overdue(Some(105)), Some((8, 0)));
        assert_eq!(released(&mut held, 8).len(), 2);
        assert_eq!(held.overdue(None), None);
        assert!(held.entries.is_empty());
    }

    #[test]
    fn the_ring_holds_what_was_put_in_whatever_the_order_of_release() {
        let mut held = HeldPackets::new(1000, 100);
        let (mut expected, mut random): (HashMap<u32, Vec<Vec<u8>>>, u64) = (HashMap::new(), 1);
        let mut refused = 0;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (random >> 40) as u32 % 5;
            if random >> 60 < 3 {
                let left: Vec<Vec<u8>> = released(&mut held, slot).into_iter().map(|(bytes, _)| bytes).collect();
                assert_eq!(left, expected.remove(&slot).unwrap_or_default(), "step {step}");
            } else {
                let bytes = vec![step as u8; (random >> 50) as usize % 300];
                if held.hold(0, slot, &frame(&bytes, 0), &Packet::default(), 1, 0) {
                    expected.entry(slot).or_default().push(bytes);
                } else {
                    refused += 1;
                    let (oldest, _) = held.overdue(None).expect("something has to leave");
                    let left: Vec<Vec<u8>> = released(&mut held, oldest).into_iter().map(|(bytes, _)| bytes).collect();
                    assert_eq!(left, expected.remove(&oldest).unwrap());
                }
            }
        }
        assert!(refused > 100);
    }
}
