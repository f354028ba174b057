//! The profile `lossy`: TCP over a network that loses, reorders and duplicates segments, captured
//! by a capture point in its middle, with exact expected counters per direction.
//!
//! ```text
//! sender -> lost here: only the retransmission is captured -> capture point -> lost here: both are captured -> receiver
//! ```
//! Each conversation simulates both endpoints and the segments in flight: retransmissions follow
//! from losses. Pure acknowledgments, keep-alives, zero-window probes and RSTs are never lost.
//! [`capture_point`] records the captured octets; [`side`] keeps the events apart in time:
//! reordered segments are late by less than 1 ms, duplicates by less than 100 us, and
//! retransmissions by at least 10 ms. An active conversation takes some kilobytes of memory.

mod capture_point;
mod chance;
mod conversation;
mod octets;
mod side;

use crate::bounds::{Bounds, SECOND_NS, START_NS};
use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{Slot, TCP, segment_bytes};
use crate::hosts::Hosts;
use crate::random::{Fraction, Random, mix64};
use crate::schedule::Schedule;
use chance::{Chance, Probabilities};
use conversation::{Conversation, Properties};
use side::{Exchange, InFlight, Side};
use weir_capture::{SettingsError, SourceSettings};

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "flows", "new", "packets", "duration", "seed", "ipv6", "rst", "noid", "loss", "before", "recut", "reorder",
    "spurious", "duplicate", "routed", "keepalive", "zerowindow", "think", "snap",
];

/// Time in which the first conversations begin, ns.
const RAMP_NS: u64 = SECOND_NS;
/// Average events per conversation; affects only the speed of the schedule.
const EVENTS_PER_FLOW: u64 = 150;
/// Full segments in a conversation, with a bounded Pareto distribution.
const SHAPE: f64 = 1.1;
const SEGMENTS: [u32; 2] = [4, 3_000];
const ROUND_TRIP_US: [u32; 2] = [10_000, 200_000];
/// Transmission time of a segment.
const PACE_NS: [u32; 2] = [12_000, 60_000];
/// One in `WRAPS` directions begins up to `WRAP_OCTETS` before its sequence numbers wrap.
const WRAPS: u64 = 16;
const WRAP_OCTETS: u64 = 20_000;

pub(super) struct Lossy {
    random: Random,
    schedule: Schedule,
    hosts: Hosts,
    conversations: Box<[Option<Box<Conversation>>]>,
    bounds: Bounds,
    probabilities: Probabilities,
    sent: u64,
    opened: u64,
    mean_life_ns: u64,
    seed: u64,
}

impl Lossy {
    /// Parses the settings after `lossy,`. Returns the profile and the snap length.
    pub(super) fn new(text: Option<&str>) -> Result<(Self, u32), SettingsError> {
        let values = SourceSettings::parse("lossy", KEYS, text)?;
        let flows = values.number("flows", [1, 1 << 17])?.unwrap_or(1_000);
        let new = values.number("new", [1, flows])?.unwrap_or_else(|| (flows / 10).max(1));
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let snap = values.number("snap", [1, 65_535])?.unwrap_or(65_535) as u32;
        let probability = |key, tenths_of_a_percent: u64| {
            let given = values.fraction_billionths(key)?;
            Ok(Fraction(given.unwrap_or(tenths_of_a_percent * Fraction::ALL.0 / 1_000)))
        };
        let probabilities = Probabilities {
            ipv6: probability("ipv6", 300)?,
            rst: probability("rst", 50)?,
            noid: probability("noid", 200)?,
            loss: probability("loss", 10)?,
            before: probability("before", 500)?,
            recut: probability("recut", 200)?,
            reorder: probability("reorder", 5)?,
            spurious: probability("spurious", 1)?,
            duplicate: probability("duplicate", 5)?,
            routed: probability("routed", 0)?,
            keepalive: probability("keepalive", 10)?,
            zerowindow: probability("zerowindow", 10)?,
            think_ns: values.duration_ns("think", [0, 3600 * SECOND_NS])?.unwrap_or(0),
        };
        let mut lossy = Self {
            random: Random::new(seed),
            // A few events per bucket of the schedule.
            schedule: Schedule::new(flows as u32, 8 * SECOND_NS / (new * EVENTS_PER_FLOW), START_NS),
            hosts: Hosts::new(flows, seed),
            conversations: (0..flows).map(|_| None).collect(),
            bounds: Bounds::read(&values, 1_000_000)?,
            probabilities,
            sent: 0,
            opened: 0,
            mean_life_ns: flows * SECOND_NS / new,
            seed,
        };
        lossy.schedule.set_all(START_NS, RAMP_NS);
        Ok((lossy, snap))
    }

    /// Fills slots from the first on and returns their number.
    pub(super) fn fill(&mut self, slots: &mut [Slot], mut expected: Option<&mut ExpectedFlows>) -> usize {
        let mut filled = 0;
        while filled < slots.len() && self.bounds.packets != self.sent {
            let (now_ns, participant) = self.schedule.next();
            if self.bounds.reached(self.sent, now_ns) {
                self.bounds.packets = self.sent;
                break;
            }
            let at = participant as usize;
            if self.conversations[at].as_ref().is_none_or(|conversation| conversation.has_ended()) {
                self.conversations[at] = Some(Box::new(self.open(now_ns)));
            }
            let conversation = self.conversations[at].as_mut().expect("one was opened if there was none");
            let mut chance = Chance { random: &mut self.random, probabilities: &self.probabilities };
            let segment = conversation.advance(now_ns, &mut chance);
            self.schedule.set(participant, conversation.next_ns().max(now_ns));
            let Some(segment) = segment else { continue };

            let slot = &mut slots[filled];
            slot.time_ns = now_ns;
            let ip_bytes = conversation.write(&segment, slot);
            let mut discarded = ExpectedTcp::default();
            let tcp = match expected.as_deref_mut() {
                None => &mut discarded,
                Some(expected) => {
                    let Properties { ends, ipv6, .. } = conversation.properties;
                    let index = *conversation.index.get_or_insert_with(|| {
                        expected.tcp.push(Default::default());
                        expected.add(ExpectedFlow::new(ends, ipv6, TCP))
                    });
                    let flow = &mut expected.flows[index];
                    let direction = if segment.side == 0 { &mut flow.forward } else { &mut flow.reverse };
                    direction.count(now_ns, ip_bytes, slot.wire_bytes, segment.flags);
                    &mut expected.tcp[index][usize::from(segment.side)]
                }
            };
            conversation.capture_point.capture(&segment, now_ns, tcp);
            self.sent += 1;
            filled += 1;
        }
        filled
    }

    fn open(&mut self, now_ns: u64) -> Conversation {
        let number = self.opened;
        self.opened += 1;
        let random = &mut self.random;
        let ipv6 = random.chance(self.probabilities.ipv6);
        let ends = self.hosts.ends(number, ipv6, 443, random);

        let longest = u32::from(segment_bytes(ipv6));
        // Half of the conversations have a smaller path MTU.
        let full = if random.below(2) == 0 { longest } else { random.between([536, longest]) };
        let segments = random.pareto(SHAPE, SEGMENTS);
        let rounds = random.between([1, segments.min(8)]);
        let round_trip_ns = u64::from(random.between(ROUND_TRIP_US)) * 1_000;
        // The capture point is anywhere between the two endpoints.
        let to_capture_point_ns = round_trip_ns / 40 + random.below(round_trip_ns * 9 / 20);
        let to_capture_point_ns = [to_capture_point_ns, round_trip_ns / 2 - to_capture_point_ns];
        let pace_ns = u64::from(random.between(PACE_NS));
        let max_window_segments = random.between([8, 40]);
        let bits = random.next_u64();
        let ttl = [64 - (bits >> 24) as u8 % 8, 60 - (bits >> 32) as u8 % 12];
        let sides = [0, 1].map(|side| {
            let identification = if ipv6 || self.has_no_identification(&ends[side].address) {
                0
            } else {
                self.random.between([1, 65_535]) as u16
            };
            let wraps = self.random.below(WRAPS) == 0;
            let near = self.random.below(WRAP_OCTETS) as u32;
            let first = if wraps { near.wrapping_neg() } else { self.random.next_u64() as u32 };
            Side::new(first, identification, ttl[side], to_capture_point_ns[side], pace_ns, max_window_segments)
        });
        let random = &mut self.random;
        let mut event = |probability| {
            let times = random.between([1, 3]) as u8;
            let at = random.below(u64::from(rounds)) as u32;
            random.chance(probability).then_some((times, at))
        };
        let properties = Properties {
            ends,
            ipv6,
            keep_alives: event(self.probabilities.keepalive),
            zero_windows: event(self.probabilities.zerowindow),
            until_ns: now_ns + (self.random.exponential() * self.mean_life_ns as f64) as u64,
            talker: u8::from(bits & 7 != 0),
            closer: (bits >> 3) as u8 & 1,
            resets: self.random.chance(self.probabilities.rst),
            combines_fin: (bits >> 4) & 1 == 0,
            rounds,
            answer: segments * full / rounds,
        };
        let exchange = Exchange {
            sides,
            in_flight: InFlight::default(),
            round_trip_ns,
            full: full as u16,
            longest: longest as u16,
            fin_with_data: (bits >> 5) & 1 == 0,
        };
        Conversation::new(properties, exchange, now_ns)
    }

    fn has_no_identification(&self, address: &[u8; 16]) -> bool {
        let host = u64::from(u32::from_be_bytes([address[0], address[1], address[2], address[3]]));
        Random::new(mix64(host ^ self.seed)).chance(self.probabilities.noid)
    }
}
