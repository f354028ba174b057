//! The meter's door: what it is told, and what it says of itself.

use crate::Flow;
use weir_ledger::{Noted, Records, Tally};
use weir_packet::Packet;

/// What distinguishes flows besides network, addresses, ports and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Both VLAN identifiers.
    pub vlan: bool,
    /// The interface.
    pub interface: bool,
    /// The tunnel's type and identifier.
    pub tunnel: bool,
    /// One-way flows: the two directions are two records.
    pub unidirectional: bool,
}

/// What happens to a packet of a new flow when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Sum it into an overflow record.
    #[default]
    Overflow,
    /// End the record that has been idle for longest.
    EvictOldestIdle,
    /// Count it and drop it.
    Drop,
}

/// What the meter is told at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Records in the table, at least 1.
    pub flows: u32,
    /// Idle timeout, ns.
    pub idle_ns: u64,
    /// Active timeout, ns.
    pub active_ns: u64,
    /// The flow key.
    pub key: KeyOptions,
    /// What a full table does.
    pub policy: Policy,
    /// Secret of the hash; `None` takes one from the operating system. Records do not depend on it.
    pub secret: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            idle_ns: 120_000_000_000,
            active_ns: 300_000_000_000,
            key: KeyOptions::default(),
            policy: Policy::Overflow,
            secret: None,
        }
    }
}

/// What the meter counts beside its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records opened, overflow records included.
    pub created: u64,
    /// Packets dropped because the table was full.
    pub dropped_packets: u64,
    /// Their octets on the wire.
    pub dropped_bytes: u64,
    /// Unattributed fragments and steps back of the clock.
    pub noted: Tally<Noted, { Noted::ALL.len() }>,
}

/// The meter.
#[derive(Debug)]
pub struct Meter {
    counters: Counters,
}

impl Meter {
    /// Takes all the memory it will use.
    pub fn new(_config: Config) -> Self {
        Self { counters: Counters::default() }
    }

    /// Enters a burst; records that end are appended to `out`.
    pub fn absorb(&mut self, _burst: &[Packet], _out: &mut Vec<Flow>) {}

    /// Ends every record: call at the end of input.
    pub fn drain(&mut self, _out: &mut Vec<Flow>) {}

    /// Records in the table now, with their packets and octets.
    pub fn live(&self) -> Records {
        Records::default()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
