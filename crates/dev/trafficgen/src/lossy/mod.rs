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

use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{Slot, TCP, segment_bytes};
use crate::population::{Conversations, Done, Population, SECOND_NS, Scale};
use crate::random::{Fraction, Random, mix64};
use chance::{Chance, Probabilities};
use conversation::{Conversation, Properties};
use side::{Exchange, InFlight, Side};
use weir_capture::{SettingsError, SourceSettings};

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "flows", "new", "packets", "duration", "seed", "ipv6", "rst", "noid", "loss", "before", "recut", "reorder",
    "spurious", "duplicate", "routed", "keepalive", "zerowindow", "think", "snap",
];

const SCALE: Scale = Scale { flows: [1_000, 1 << 17], turnover: 1, events: 150, rst: 50 };
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
    population: Population<Box<Conversation>>,
    probabilities: Probabilities,
}

impl Lossy {
    /// Parses the settings after `lossy,`.
    pub(super) fn new(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("lossy", KEYS, text)?;
        let population = Population::read(&values, &SCALE)?;
        let probability = |key, per_mille| Fraction::read(&values, key, per_mille);
        let probabilities = Probabilities {
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
        Ok(Self { population, probabilities })
    }

    fn has_no_identification(&self, address: &[u8; 16]) -> bool {
        let host = u64::from(u32::from_be_bytes([address[0], address[1], address[2], address[3]]));
        Random::new(mix64(host ^ self.population.seed)).chance(self.probabilities.noid)
    }
}

impl Conversations for Lossy {
    type Conversation = Box<Conversation>;

    fn population(&mut self) -> &mut Population<Box<Conversation>> {
        &mut self.population
    }

    fn advance(
        &mut self,
        conversation: &mut Box<Conversation>,
        slot: &mut Slot,
        expected: Option<&mut ExpectedFlows>,
    ) -> Done {
        let now_ns = slot.time_ns;
        let mut chance = Chance { random: &mut self.population.random, probabilities: &self.probabilities };
        let segment = conversation.advance(now_ns, &mut chance);
        let done = Done {
            has_frame: segment.is_some(),
            has_ended: conversation.has_ended(),
            next_ns: conversation.next_ns().max(now_ns),
        };
        let Some(segment) = segment else { return done };
        let ip_bytes = conversation.write(&segment, slot);
        let mut discarded = ExpectedTcp::default();
        let tcp = match expected {
            None => &mut discarded,
            Some(expected) => {
                let Properties { ends, ipv6, .. } = conversation.properties;
                let index = *conversation.index.get_or_insert_with(|| {
                    expected.tcp.push(Default::default());
                    expected.add(ExpectedFlow::new(ends, ipv6, TCP))
                });
                expected.flows[index].count(segment.side == 1, slot, ip_bytes, segment.flags);
                &mut expected.tcp[index][usize::from(segment.side)]
            }
        };
        conversation.capture_point.capture(&segment, now_ns, tcp);
        done
    }

    fn open(&mut self, number: u64, now_ns: u64) -> Box<Conversation> {
        let Population { random, hosts, ipv6, .. } = &mut self.population;
        let ipv6 = random.chance(*ipv6);
        let ends = hosts.ends(number, ipv6, 443, random);

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
            let has_none = ipv6 || self.has_no_identification(&ends[side].address);
            let random = &mut self.population.random;
            let identification = if has_none { 0 } else { random.between([1, 65_535]) as u16 };
            let wraps = random.below(WRAPS) == 0;
            let near = random.below(WRAP_OCTETS) as u32;
            let first = if wraps { near.wrapping_neg() } else { random.next_u64() as u32 };
            Side::new(first, identification, ttl[side], to_capture_point_ns[side], pace_ns, max_window_segments)
        });
        let Population { random, mean_life_ns, rst, .. } = &mut self.population;
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
            until_ns: now_ns + (random.exponential() * *mean_life_ns as f64) as u64,
            talker: u8::from(bits & 7 != 0),
            closer: (bits >> 3) as u8 & 1,
            resets: random.chance(*rst),
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
        Box::new(Conversation::new(properties, exchange, now_ns))
    }
}
