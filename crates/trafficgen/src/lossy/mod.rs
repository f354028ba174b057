//! TCP over a network that loses, reorders and duplicates, seen by a probe in its middle, with the truth of each
//! direction known exactly.
//!
//! ```text
//! sender -> lost here: the probe sees it only again -> probe -> lost here: the probe sees it twice -> receiver
//! ```
//! Two ends and what is on its way between them are played out, conversation by conversation: what is sent again, and
//! when, follows from what was lost. Acknowledgments alone, keep-alives, probes of a closed window and RSTs are never
//! lost. What the probe sees is kept octet by octet ([`probe`]), and what sets the events apart in time is said at
//! [`side`]: late segments come within 1 ms, copies within 100 us, and all that is sent again 10 ms or more later.
//! A conversation takes some kilobytes while it lasts.

mod conversation;
mod octets;
mod probe;
mod side;

use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{Slot, TCP};
use crate::hosts::Hosts;
use crate::random::{Fraction, Random, mix64};
use crate::schedule::Schedule;
use crate::{Bounds, SECOND_NS, START_NS};
use conversation::{Conversation, Draft};
use side::{Dice, Exchange, Side, Ways};
use weir_capture::{SettingsError, SourceSettings};

const KEYS: &[&str] = &[
    "flows",
    "new",
    "packets",
    "duration",
    "seed",
    "ipv6",
    "rst",
    "noid",
    "loss",
    "before",
    "recut",
    "reorder",
    "spurious",
    "duplicate",
    "routed",
    "keepalive",
    "zerowindow",
    "snap",
];

/// In this time the first conversations begin.
const RAMP_NS: u64 = SECOND_NS;
/// Turns in a conversation, on the average. Only the speed of the schedule depends on it.
const TURNS_PER_FLOW: u64 = 150;
/// Full segments in a conversation, heavy-tailed between these.
const SHAPE: f64 = 1.1;
const SEGMENTS: [u32; 2] = [4, 3_000];
/// From one end to the other and back.
const ROUND_TRIP_US: [u32; 2] = [10_000, 200_000];
/// What a segment takes to depart.
const PACE_NS: [u32; 2] = [12_000, 60_000];
/// One direction in so many wraps around its sequence numbers, if it says as much as this.
const WRAPS: u64 = 16;
const WRAP_OCTETS: u64 = 20_000;

/// How often the events come.
struct Probabilities {
    ipv6: Fraction,
    rst: Fraction,
    noid: Fraction,
    loss: Fraction,
    before: Fraction,
    recut: Fraction,
    reorder: Fraction,
    spurious: Fraction,
    duplicate: Fraction,
    routed: Fraction,
    keepalive: Fraction,
    zerowindow: Fraction,
}

pub(super) struct Lossy {
    random: Random,
    schedule: Schedule,
    hosts: Hosts,
    conversations: Box<[Option<Box<Conversation>>]>,
    bounds: Bounds,
    shares: Probabilities,
    sent: u64,
    opened: u64,
    mean_life_ns: u64,
    seed: u64,
}

impl Lossy {
    /// Reads the specification behind `lossy,`; the load and the snap length.
    pub(super) fn new(text: Option<&str>) -> Result<(Self, u32), SettingsError> {
        let values = SourceSettings::parse("lossy", KEYS, text)?;
        let flows = values.number("flows", [1, 1 << 17])?.unwrap_or(1_000);
        let new = values.number("new", [1, flows])?.unwrap_or_else(|| (flows / 10).max(1));
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let snap = values.number("snap", [1, 65_535])?.unwrap_or(65_535) as u32;
        let share = |key, tenths_of_a_percent: u64| {
            Ok(values
                .fraction_billionths(key)?
                .map_or(Fraction(tenths_of_a_percent * Fraction::ALL.0 / 1_000), Fraction))
        };
        let shares = Probabilities {
            ipv6: share("ipv6", 300)?,
            rst: share("rst", 50)?,
            noid: share("noid", 200)?,
            loss: share("loss", 10)?,
            before: share("before", 500)?,
            recut: share("recut", 200)?,
            reorder: share("reorder", 5)?,
            spurious: share("spurious", 1)?,
            duplicate: share("duplicate", 5)?,
            routed: share("routed", 0)?,
            keepalive: share("keepalive", 10)?,
            zerowindow: share("zerowindow", 10)?,
        };
        let mut lossy = Self {
            random: Random::new(seed),
            // A few turns in a bucket of the schedule.
            schedule: Schedule::new(flows as u32, 8 * SECOND_NS / (new * TURNS_PER_FLOW), START_NS),
            hosts: Hosts::new(flows, seed),
            conversations: (0..flows).map(|_| None).collect(),
            bounds: Bounds::read(&values, 1_000_000)?,
            shares,
            sent: 0,
            opened: 0,
            mean_life_ns: flows * SECOND_NS / new,
            seed,
        };
        for participant in 0..flows {
            lossy.schedule.set(participant as u32, START_NS + participant * RAMP_NS / flows);
        }
        Ok((lossy, snap))
    }

    /// Fills slots from the first on; how many.
    pub(super) fn fill(&mut self, slots: &mut [Slot], mut expected: Option<&mut ExpectedFlows>) -> usize {
        let mut filled = 0;
        while filled < slots.len() && self.bounds.packets != self.sent {
            let (now_ns, participant) = self.schedule.next();
            if self.bounds.reached(self.sent, now_ns) {
                self.bounds.packets = self.sent;
                break;
            }
            let at = participant as usize;
            if self.conversations[at].as_ref().is_none_or(|conversation| conversation.is_over()) {
                self.conversations[at] = Some(Box::new(self.open(now_ns)));
            }
            let conversation = self.conversations[at].as_mut().expect("one was opened if there was none");
            let mut dice = Dice { random: &mut self.random, shares: &self.shares };
            let segment = conversation.turn(now_ns, &mut dice);
            self.schedule.set(participant, conversation.next_ns().max(now_ns));
            let Some(segment) = segment else { continue };

            let slot = &mut slots[filled];
            slot.time_ns = now_ns;
            let ip_bytes = conversation.write(&segment, slot);
            let mut unkept = ExpectedTcp::default();
            let tcp = match expected.as_deref_mut() {
                None => &mut unkept,
                Some(expected) => {
                    let Draft { ends, ipv6, .. } = conversation.draft;
                    let place = *conversation.place.get_or_insert_with(|| {
                        expected.tcp.push(Default::default());
                        expected.open(ExpectedFlow::new(ends, ipv6, TCP))
                    });
                    let flow = &mut expected.flows[place];
                    let direction = if segment.side == 0 { &mut flow.forward } else { &mut flow.reverse };
                    direction.enter(now_ns, ip_bytes, slot.wire_bytes, segment.flags);
                    &mut expected.tcp[place][usize::from(segment.side)]
                }
            };
            conversation.probe.see(&segment, tcp);
            self.sent += 1;
            filled += 1;
        }
        filled
    }

    /// Draws everything about a new conversation.
    fn open(&mut self, now_ns: u64) -> Conversation {
        let number = self.opened;
        self.opened += 1;
        let random = &mut self.random;
        let ipv6 = random.chance(self.shares.ipv6);
        let ends = self.hosts.ends(number, ipv6, 443, random);

        let longest = u32::from(super::frame::segment_bytes(ipv6));
        // One in two on a path of its own.
        let full = if random.below(2) == 0 { longest } else { random.between([536, longest]) };
        let segments = random.pareto(SHAPE, SEGMENTS);
        let rounds = random.between([1, segments.min(8)]);
        let round_trip_ns = u64::from(random.between(ROUND_TRIP_US)) * 1_000;
        // The probe stands anywhere between the two.
        let ahead_ns = round_trip_ns / 40 + random.below(round_trip_ns * 9 / 20);
        let ahead_ns = [ahead_ns, round_trip_ns / 2 - ahead_ns];
        let pace_ns = u64::from(random.between(PACE_NS));
        let most_allowed = random.between([8, 40]);
        let bits = random.next_u64();
        let ttl = [64 - (bits >> 24) as u8 % 8, 60 - (bits >> 32) as u8 % 12];
        let sides = [0, 1].map(|side| {
            let identification = if ipv6 || self.is_without_identification(&ends[side].address) {
                0
            } else {
                self.random.between([1, 65_535]) as u16
            };
            let wraps = self.random.below(WRAPS) == 0;
            let near = self.random.below(WRAP_OCTETS) as u32;
            let first = if wraps { near.wrapping_neg() } else { self.random.next_u64() as u32 };
            Side::new(first, identification, ttl[side], ahead_ns[side], pace_ns, most_allowed)
        });
        let random = &mut self.random;
        let mut event = |share| {
            let times = random.between([1, 3]) as u8;
            let at = random.below(u64::from(rounds)) as u32;
            random.chance(share).then_some((times, at))
        };
        let draft = Draft {
            ends,
            ipv6,
            keep_alives: event(self.shares.keepalive),
            closed_windows: event(self.shares.zerowindow),
            until_ns: now_ns + (self.random.exponential() * self.mean_life_ns as f64) as u64,
            talker: u8::from(bits & 7 != 0),
            closer: (bits >> 3) as u8 & 1,
            resets: self.random.chance(self.shares.rst),
            joins_fin: (bits >> 4) & 1 == 0,
            rounds,
            answer: segments * full / rounds,
        };
        let exchange = Exchange {
            sides,
            ways: Ways::default(),
            round_trip_ns,
            full: full as u16,
            longest: longest as u16,
            fin_rides: (bits >> 5) & 1 == 0,
        };
        Conversation::new(draft, exchange, now_ns)
    }

    /// Whether a host's packets have no identification; IPv6 has none anyway.
    fn is_without_identification(&self, address: &[u8; 16]) -> bool {
        let host = u64::from(u32::from_be_bytes([address[0], address[1], address[2], address[3]]));
        Random::new(mix64(host ^ self.seed)).chance(self.shares.noid)
    }
}
