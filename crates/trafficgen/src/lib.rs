//! Traffic made in memory, for benchmarks and for tests that know the expected.
//!
//! In: a specification such as `velan,flows=131072,size=64`. Out: frames, and on request the true flows.
//! Always true: the same specification gives the same frames, to the bit, on every machine; times never go back;
//! nothing is allocated per packet. Nothing here is sent anywhere.
//!
//! **`velan`**: equal UDP packets in one flow per address pair, as CESNET measured with.
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 131072 | number of flows, up to 2^32; each has a tuple of its own |
//! | `size` | 64 | octets of a frame *with* its FCS, 64 to 1518; captured and counted are 4 less |
//! | `packets` | 8M | packets; without a bound if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | another number, other packets |
//! | `order` | `random` | `random`: each packet belongs to any flow with equal chance; `round`: one flow after the other |
//! | `directions` | 1 | 2: every other packet (`random`: on average; `round`: every other round) goes the other way |
//! | `rate` | line rate | packets per second; else what 10 Gbit/s Ethernet carries, see [`VELAN_PRESETS`] |
//! | `new` | 0 | flows that begin per second, each in place of the oldest, up to `rate` |
//! | `snap` | 65535 | octets captured of each frame, at most |
//!
//! **`mix`**: conversations over TCP (handshake, requests and answers, acknowledgments, FIN or RST) and UDP, of
//! heavy-tailed lengths, both ways, 700 to 800 octets a frame. No tuple comes twice, nothing is lost or repeated.
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 10000 | conversations at a time, from the end of the ramp on, up to 2^24; each takes about 120 octets of memory |
//! | `new` | `flows` / 10 | conversations that begin per second, in place of those that have ended |
//! | `packets` | 1M | packets; without a bound if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | another number, other packets |
//! | `ramp` | 1s | in this time the first `flows` conversations begin |
//! | `ipv6` | 30% | conversations over IPv6 |
//! | `udp` | 40% | conversations over UDP; the others are TCP |
//! | `rst` | 10% | TCP conversations that end with a RST; the others end with FIN |
//! | `snap` | 65535 | octets captured of each frame, at most |
//!
//! A conversation lasts `flows / new` seconds on average; it is cut where the packets end. All checksums are right,
//! those of UDP too; payloads are zeros; frames shorter than Ethernet allows are padded to 60 octets.
//!
//! **`lossy`**: conversations over TCP that a network loses, delays and copies segments of, seen by a probe in its
//! middle. With the truth comes what happened to each direction in exact numbers, see [`ExpectedTcp`].
//!
//! | key | default | |
//! |---|---|---|
//! | `flows` | 1000 | conversations at a time, up to 2^17; each takes some kilobytes of memory |
//! | `new` | `flows` / 10 | conversations that begin per second, about; `flows` at most |
//! | `packets` | 1M | packets that the probe sees; without a bound if only `duration` is given |
//! | `duration` | | time span covered by the packets |
//! | `seed` | 1 | another number, other packets |
//! | `ipv6` | 30% | conversations over IPv6 |
//! | `rst` | 5% | conversations that end with a RST; the others end with FIN |
//! | `noid` | 20% | hosts whose IPv4 packets all have the identification 0; those of others count up |
//! | `loss` | 1% | segments with SYN, FIN or octets that are lost; they are sent again, and may be lost again |
//! | `before` | 50% | of them those lost before the probe, which sees them only when they are sent again |
//! | `recut` | 20% | segments sent again that are split, joined with the octets behind or shifted back |
//! | `reorder` | 0.5% | segments delayed by less than 1 ms, so that others may overtake them |
//! | `spurious` | 0.1% | segments sent again though they have been acknowledged |
//! | `duplicate` | 0.5% | frames that the probe gets twice, within 100 us, behind at most 2 others of their direction |
//! | `routed` | 0 | of these copies those with a TTL lower by 1 |
//! | `keepalive` | 1% | conversations with keep-alives |
//! | `zerowindow` | 1% | conversations in which a window is closed, and probed |
//! | `snap` | 65535 | octets captured of each frame, at most |
//!
//! Segments carry no timestamps, and acknowledgments no SACK. From hosts without identification acknowledgments alone
//! and RSTs are not copied: a copy could not be told from the same said twice.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

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
use weir_capture::{Burst, Error, Frame, Progress, SettingsError, Source, SourceSettings, closest_name};

const LOADS: &[&str] = &["velan", "mix", "lossy"];

const SECOND_NS: u64 = 1_000_000_000;
/// When all synthetic traffic begins: 2026-01-01 00:00 UTC.
const START_NS: u64 = 1_767_225_600 * SECOND_NS;
/// Packets in a run, at most: so many conversations have tuples of their own.
const MAX_PACKETS: u64 = 100_000_000_000;
/// LINKTYPE_ETHERNET.
const ETHERNET_LINK_TYPE: u16 = 1;

/// A source of synthetic traffic.
pub struct TrafficGenerator {
    load: Load,
    /// Octets captured of each frame, at most.
    snap: u32,
    slots: Box<[Slot]>,
    expected: Option<ExpectedFlows>,
    /// Captured octets so far.
    done_bytes: u64,
}

enum Load {
    Velan(Velan),
    Mix(Mix),
    Lossy(Lossy),
}

impl TrafficGenerator {
    /// Makes a source of what a specification says: `velan`, `mix` or `lossy`, then `key=value` pairs with commas. Numbers take
    /// `k`, `M` and `G`, time spans `ms`, `s`, `m` and `h`, shares are 0 to 1 or percent.
    ///
    /// Keys of `velan`: `flows` (131072), `size` in octets with FCS (64), `packets` (8M), `duration`, `seed` (1),
    /// `order` (`random` or `round`), `directions` (1 or 2), `rate` in packets per second (10 Gbit/s),
    /// `new` flows per second (0), `snap`.
    /// Keys of `mix`: `flows` at a time (10000), `new` per second (`flows` / 10), `packets` (1M), `duration`, `seed` (1),
    /// `ramp` until all have begun (1s), shares `ipv6` (30%), `udp` (40%) and `rst` (10%), `snap`.
    /// Keys of `lossy`: `flows` at a time (1000), `new` per second (`flows` / 10), `packets` (1M), `duration`, `seed` (1),
    /// shares `ipv6` (30%), `rst` (5%), `noid` (20%), `loss` (1%), `before` (50%), `recut` (20%), `reorder` (0.5%),
    /// `spurious` (0.1%), `duplicate` (0.5%), `routed` (0), `keepalive` (1%) and `zerowindow` (1%), `snap`.
    ///
    /// # Errors
    /// An unknown load or key, answered with the near one and all that exist, or a value that makes no sense.
    pub fn new(specification: &str) -> Result<Self, SettingsError> {
        let (kind, rest) = match specification.split_once(',') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (specification, None),
        };
        let (load, snap) = match kind {
            "velan" => Velan::new(rest).map(|(velan, snap)| (Load::Velan(velan), snap))?,
            "mix" => Mix::new(rest).map(|(mix, snap)| (Load::Mix(mix), snap))?,
            "lossy" => Lossy::new(rest).map(|(lossy, snap)| (Load::Lossy(lossy), snap))?,
            _ => {
                let near = closest_name(kind, LOADS);
                return Err(SettingsError::UnknownProfile { name: kind.into(), near, known: LOADS });
            }
        };
        Ok(Self { load, snap, slots: frame::slots(), expected: None, done_bytes: 0 })
    }

    /// Remembers the true flows from here on: about 200 octets for each. To be called before the first burst;
    /// what came before it is not in the expected.
    #[must_use]
    pub fn with_expected_flows(mut self) -> Self {
        self.expected.get_or_insert_default();
        self
    }

    /// The flows of all packets so far, in the order of their first packets; none without [`TrafficGenerator::with_expected_flows`].
    pub fn expected_flows(&self) -> &[ExpectedFlow] {
        self.expected.as_ref().map_or(&[], |expected| &expected.flows)
    }

    /// What happened to TCP in each of those flows, from the initiator and back; none if the load is not `lossy`.
    pub fn expected_tcp(&self) -> &[[ExpectedTcp; 2]] {
        self.expected.as_ref().map_or(&[], |expected| &expected.tcp)
    }
}

impl Source for TrafficGenerator {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let expected = self.expected.as_mut();
        let filled = match &mut self.load {
            Load::Velan(velan) => velan.fill(&mut self.slots, expected),
            Load::Mix(mix) => mix.fill(&mut self.slots, expected),
            Load::Lossy(lossy) => lossy.fill(&mut self.slots, expected),
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
        let total_bytes = match &self.load {
            Load::Velan(velan) => velan.total_bytes(self.snap),
            // Sizes are drawn on the way.
            Load::Mix(_) | Load::Lossy(_) => None,
        };
        Progress { done_bytes: self.done_bytes, total_bytes }
    }
}

/// Where a load ends.
struct Bounds {
    packets: u64,
    /// The first moment that does not belong to it.
    end_ns: u64,
}

impl Bounds {
    /// Reads `packets` and `duration`; without either, so many packets.
    fn read(values: &SourceSettings<'_>, packets: u64) -> Result<Self, SettingsError> {
        let given = values.number("packets", [1, MAX_PACKETS])?;
        let duration_ns = values.duration_ns("duration", [1, 1_000_000 * SECOND_NS])?;
        Ok(Self {
            packets: given.unwrap_or(if duration_ns.is_some() { MAX_PACKETS } else { packets }),
            end_ns: duration_ns.map_or(u64::MAX, |duration_ns| START_NS + duration_ns),
        })
    }

    /// Whether a packet at this time, behind so many, is one too many.
    #[inline]
    fn reached(&self, sent: u64, time_ns: u64) -> bool {
        sent >= self.packets || time_ns >= self.end_ns
    }
}
