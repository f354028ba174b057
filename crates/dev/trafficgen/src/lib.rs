//! Generates traffic in memory, for benchmarks and for tests that compare flow records with the
//! ground truth.
//!
//! In: a specification such as `velan,flows=131072,size=64` (profile and settings, see
//! `docs/synth.md`). Out: frames, and on request the expected flow records. Invariants: the same
//! specification gives the same frames, bit by bit, on every machine; times never go back; nothing
//! is allocated per packet.
//!
//! * `velan`: equal UDP packets, one flow per address pair: the traffic of CESNET's measurements.
//! * `mix`: conversations over TCP (handshake, requests and answers, acknowledgments, FIN or RST) and
//!   UDP, of heavy-tailed lengths, in both directions, 700 to 800 bytes per frame. No 5-tuple is used
//!   twice, and no packet is lost or duplicated. A conversation lasts `flows / new` seconds on
//!   average; it is cut where the packets end. Short frames are padded to 60 bytes.
//! * `lossy`: TCP conversations over a network that loses, delays and duplicates segments, captured
//!   in its middle. The expected flow records include exact counts of these events per direction, see
//!   [`ExpectedTcp`]. Segments have no timestamp option, and acknowledgments no SACK. Pure
//!   acknowledgments and RSTs of hosts without identification are not duplicated, because a duplicate
//!   could not be distinguished from a second segment.
//! * `apps`: conversations that begin with the messages of an application (TLS, QUIC, HTTP, DNS, SSH,
//!   and octets of none), some with faults among these packets. The expected flow records include the
//!   application and its facts, see [`ExpectedApplication`].
//!
//! All checksums are correct; except in `apps`, payloads are zeros.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_trafficgen;

mod apps;
mod conversation;
mod expected;
mod expected_application;
mod expected_tcp;
mod frame;
mod hosts;
mod lossy;
mod mix;
mod population;
mod random;
mod schedule;
#[cfg(test)]
mod tests;
mod velan;

pub use expected::{ExpectedDirection, ExpectedFlow, write_expected_flows};
pub use expected_application::ExpectedApplication;
pub use expected_tcp::ExpectedTcp;
pub use random::Random;
pub use velan::CESNET_RATES;

use apps::Apps;
use expected::ExpectedFlows;
use frame::Slot;
use lossy::Lossy;
use mix::Mix;
use population::Bounds;
use velan::Velan;
use weir_capture::{Burst, Error, FIRST_INTERFACE, Frame, Progress, SettingsError, Source};

const PROFILES: &[&str] = &["velan", "mix", "lossy", "apps"];

const ETHERNET_LINK_TYPE: u16 = 1;

/// A source of synthetic traffic.
pub struct TrafficGenerator {
    profile: Box<dyn Profile>,
    snap: u32,
    slots: Box<[Slot]>,
    expected: Option<ExpectedFlows>,
    /// Captured bytes so far.
    done_bytes: u64,
}

trait Profile: Send {
    /// Fills slots from the first on and returns their number.
    fn fill(&mut self, slots: &mut [Slot], expected: Option<&mut ExpectedFlows>) -> usize;

    fn bounds(&mut self) -> &Bounds;

    /// Returns the captured bytes of all frames, if the number of packets determines them.
    fn total_bytes(&self) -> Option<u64> {
        None
    }
}

impl TrafficGenerator {
    /// Creates a generator from a specification: the profile (`velan`, `mix`, `lossy`, `apps`),
    /// then `key=value` pairs, separated by commas. Numbers take the suffixes `k`, `M` and `G`,
    /// durations `ms`, `s`, `m` and `h`; fractions are 0 to 1 or percent.
    ///
    /// # Errors
    /// An unknown profile or key, or a wrong value.
    pub fn new(specification: &str) -> Result<Self, SettingsError> {
        let (kind, rest) =
            specification.split_once(',').map_or((specification, None), |(kind, rest)| (kind, Some(rest)));
        let mut profile: Box<dyn Profile> = match kind {
            "velan" => Box::new(Velan::new(rest)?),
            "mix" => Box::new(Mix::new(rest)?),
            "lossy" => Box::new(Lossy::new(rest)?),
            "apps" => Box::new(Apps::new(rest)?),
            _ => return Err(SettingsError::UnknownProfile(kind.into(), PROFILES)),
        };
        let snap = profile.bounds().snap;
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

    /// Returns the expected application of each of these flows; none unless the profile is `apps`.
    pub fn expected_applications(&self) -> &[ExpectedApplication] {
        self.expected.as_ref().map_or(&[], |expected| &expected.applications)
    }
}

impl Source for TrafficGenerator {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let filled = self.profile.fill(&mut self.slots, self.expected.as_mut());
        for slot in &self.slots[..filled] {
            let bytes = &slot.octets[..slot.wire_bytes.min(self.snap) as usize];
            self.done_bytes += bytes.len() as u64;
            burst.push(Frame {
                bytes,
                time_ns: slot.time_ns,
                wire_bytes: slot.wire_bytes,
                link_type: ETHERNET_LINK_TYPE,
                time_assumed: false,
                interface: FIRST_INTERFACE,
            });
        }
        Ok(filled > 0)
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.done_bytes, total_bytes: self.profile.total_bytes() }
    }
}
