//! Generates traffic in memory, for benchmarks and for tests that compare flow records with the
//! ground truth.
//!
//! In: a specification such as `velan,flows=131072,size=64`. Out: frames, and on request the
//! expected flow records. Invariants: the same specification gives the same frames, bit by bit, on
//! every machine; times never go back; nothing is allocated per packet. Only [`Sender`] sends
//! frames anywhere.
//!
//! **`velan`**: equal UDP packets, one flow per address pair: the traffic of CESNET's measurements.
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 131072 | number of flows, up to 2^32; each has its own 5-tuple |
//! | `size` | 64 | frame size in bytes *with* the FCS, 64 to 1518; captures and counters have 4 bytes less |
//! | `packets` | 8M | number of packets; unlimited if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | seed of the random generator |
//! | `order` | `random` | `random`: each packet belongs to a random flow; `round`: one flow after the other |
//! | `directions` | 1 | 2: half of the packets (`random`: on average; `round`: every other round) go the other way |
//! | `rate` | line rate | packets per second; default: the line rate of 10 Gbit/s Ethernet, see [`VELAN_PRESETS`] |
//! | `new` | 0 | new flows per second, each replaces the oldest, up to `rate` |
//! | `snap` | 65535 | snap length in bytes |
//!
//! **`mix`**: conversations over TCP (handshake, requests and answers, acknowledgments, FIN or RST)
//! and UDP, of heavy-tailed lengths, in both directions, 700 to 800 bytes per frame. No 5-tuple is
//! used twice, and no packet is lost or duplicated.
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 10000 | concurrent conversations after the ramp, up to 2^24; each takes about 120 bytes of memory |
//! | `new` | `flows` / 10 | new conversations per second, each replaces one that has ended |
//! | `packets` | 1M | number of packets; unlimited if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | seed of the random generator |
//! | `ramp` | 1s | time in which the first `flows` conversations begin |
//! | `ipv6` | 30% | fraction of conversations over IPv6 |
//! | `udp` | 40% | fraction of conversations over UDP; the others use TCP |
//! | `rst` | 10% | fraction of TCP conversations that end with RST; the others end with FIN |
//! | `snap` | 65535 | snap length in bytes |
//!
//! A conversation lasts `flows / new` seconds on average; it is cut where the packets end. All
//! checksums are correct, also those of UDP; payloads are zeros; short frames are padded to 60
//! bytes.
//!
//! **`lossy`**: TCP conversations over a network that loses, delays and duplicates segments,
//! captured by a capture point in its middle. The expected flow records include exact counts of these
//! events per direction, see [`ExpectedTcp`].
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 1000 | concurrent conversations, up to 2^17; each takes some kilobytes of memory |
//! | `new` | `flows` / 10 | new conversations per second, approximately; at most `flows` |
//! | `packets` | 1M | packets that reach the capture point; unlimited if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | seed of the random generator |
//! | `ipv6` | 30% | fraction of conversations over IPv6 |
//! | `rst` | 5% | fraction of conversations that end with RST; the others end with FIN |
//! | `noid` | 20% | fraction of hosts whose IPv4 packets all have the identification 0; other hosts count up |
//! | `loss` | 1% | fraction of segments with SYN, FIN or payload that are lost; they are retransmitted, and may be lost again |
//! | `before` | 50% | fraction of these that are lost before the capture point, which captures only their retransmissions |
//! | `recut` | 20% | fraction of retransmitted segments that are split, merged with following payload or shifted back |
//! | `reorder` | 0.5% | fraction of segments delayed by less than 1 ms, so that others may overtake them |
//! | `spurious` | 0.1% | fraction of segments that are retransmitted although they were acknowledged |
//! | `duplicate` | 0.5% | fraction of frames that are captured twice, within 100 us, after at most 2 others of their direction |
//! | `routed` | 0 | fraction of these duplicates whose TTL is lower by 1 |
//! | `keepalive` | 1% | fraction of conversations with keep-alives |
//! | `zerowindow` | 1% | fraction of conversations with a zero window and window probes |
//! | `snap` | 65535 | snap length in bytes |
//!
//! Segments have no timestamp option, and acknowledgments no SACK. Pure acknowledgments and RSTs of
//! hosts without identification are not duplicated, because a duplicate could not be distinguished
//! from a second segment.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod bounds;
mod expected;
mod expected_tcp;
mod frame;
mod hosts;
mod lossy;
mod mix;
mod random;
mod schedule;
mod sender;
mod velan;

pub use expected::{ExpectedDirection, ExpectedFlow, write_expected_flows};
pub use expected_tcp::ExpectedTcp;
pub use random::Random;
pub use sender::Sender;
pub use velan::{VELAN_PRESETS, VelanPreset};

use expected::ExpectedFlows;
use frame::Slot;
use lossy::Lossy;
use mix::Mix;
use velan::Velan;
use weir_capture::{Burst, Error, Frame, Progress, SettingsError, Source, closest_name};

const PROFILES: &[&str] = &["velan", "mix", "lossy"];

/// LINKTYPE_ETHERNET.
const ETHERNET_LINK_TYPE: u16 = 1;

/// A source of synthetic traffic.
pub struct TrafficGenerator {
    profile: Profile,
    /// Snap length in bytes.
    snap: u32,
    slots: Box<[Slot]>,
    expected: Option<ExpectedFlows>,
    /// Captured bytes so far.
    done_bytes: u64,
}

enum Profile {
    Velan(Velan),
    Mix(Mix),
    Lossy(Lossy),
}

impl TrafficGenerator {
    /// Creates a generator from a specification: the profile `velan`, `mix` or `lossy`, then
    /// `key=value` pairs, separated by commas. Numbers take the suffixes `k`, `M` and `G`,
    /// durations `ms`, `s`, `m` and `h`; fractions are 0 to 1 or percent. The crate documentation
    /// lists the keys.
    ///
    /// # Errors
    /// An unknown profile or key, or a wrong value.
    pub fn new(specification: &str) -> Result<Self, SettingsError> {
        let (kind, rest) = match specification.split_once(',') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (specification, None),
        };
        let (profile, snap) = match kind {
            "velan" => Velan::new(rest).map(|(velan, snap)| (Profile::Velan(velan), snap))?,
            "mix" => Mix::new(rest).map(|(mix, snap)| (Profile::Mix(mix), snap))?,
            "lossy" => Lossy::new(rest).map(|(lossy, snap)| (Profile::Lossy(lossy), snap))?,
            _ => {
                let near = closest_name(kind, PROFILES);
                return Err(SettingsError::UnknownProfile { name: kind.into(), near, known: PROFILES });
            }
        };
        Ok(Self { profile, snap, slots: frame::slots(), expected: None, done_bytes: 0 })
    }

    /// Records the expected flows, about 200 bytes each. Call this before the first burst; earlier
    /// packets are not included.
    #[must_use]
    pub fn with_expected_flows(mut self) -> Self {
        self.expected.get_or_insert_default();
        self
    }

    /// Returns the expected flows of all packets so far, in the order of their first packets; none
    /// without [`TrafficGenerator::with_expected_flows`].
    pub fn expected_flows(&self) -> &[ExpectedFlow] {
        self.expected.as_ref().map_or(&[], |expected| &expected.flows)
    }

    /// Returns the expected TCP counters of each of these flows, forward and reverse; none unless
    /// the profile is `lossy`.
    pub fn expected_tcp(&self) -> &[[ExpectedTcp; 2]] {
        self.expected.as_ref().map_or(&[], |expected| &expected.tcp)
    }
}

impl Source for TrafficGenerator {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let expected = self.expected.as_mut();
        let filled = match &mut self.profile {
            Profile::Velan(velan) => velan.fill(&mut self.slots, expected),
            Profile::Mix(mix) => mix.fill(&mut self.slots, expected),
            Profile::Lossy(lossy) => lossy.fill(&mut self.slots, expected),
        };
        for slot in &self.slots[..filled] {
            let bytes = &slot.octets[..slot.wire_bytes.min(self.snap) as usize];
            self.done_bytes += bytes.len() as u64;
            burst.push(Frame {
                bytes,
                time_ns: slot.time_ns,
                wire_bytes: slot.wire_bytes,
                link_type: ETHERNET_LINK_TYPE,
                time_clamped: false,
                interface: 0,
            });
        }
        Ok(filled > 0)
    }

    fn progress(&self) -> Progress {
        let total_bytes = match &self.profile {
            Profile::Velan(velan) => velan.total_bytes(self.snap),
            // Sizes are random.
            Profile::Mix(_) | Profile::Lossy(_) => None,
        };
        Progress { done_bytes: self.done_bytes, total_bytes }
    }
}
