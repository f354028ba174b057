//! The limits of inspection.

use crate::{Confidence, Findings, ports};

/// Limits of inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectionSettings {
    /// Inspection of a flow ends when one direction of a record has this many packets.
    pub packets: u32,
    /// Octets of each direction of a TCP connection that are inspected.
    pub octets: u32,
    /// Flows that can be undecided at the same time.
    pub sessions: u32,
    /// Memory for the payload of undecided flows, octets.
    pub session_octets: u64,
    /// Memory for the findings of decided flows, octets.
    pub findings_octets: u64,
    /// Names of addresses, learned from DNS, that are known at the same time.
    pub names: u32,
    /// Flows whose messages are counted at the same time; 0: none.
    pub transactions: u32,
    /// Memory for the records of transactions of these flows, octets; 0: none are recorded.
    pub transaction_octets: u64,
    /// Flows have both directions, so that questions without an answer are counted.
    pub two_way: bool,
    /// Personal fields are kept: see [`crate::Fact::is_personal`].
    pub personal: bool,
    /// The application of a flow whose payload matches no reader is guessed from its ports.
    pub ports: bool,
}

impl InspectionSettings {
    /// Largest number of octets of a direction that can be set.
    pub const MAX_OCTETS: u32 = 64 << 10;
    /// Memory for the records of transactions, if they are recorded, octets.
    pub const TRANSACTION_OCTETS: u64 = 64 << 20;

    /// The same with limits of memory that suit this number of flows: a small cache has a small inspector.
    #[must_use]
    pub fn within(self, flows: u32) -> Self {
        const OCTETS_PER_FLOW: u64 = 64;
        const LEAST_OCTETS: u64 = 1 << 20;
        // More than a quarter of the flows are undecided, or have names to learn, in small caches only.
        const LEAST_ENTRIES: u32 = 1024;
        let entries = (flows / 4).max(LEAST_ENTRIES).min(flows);
        let octets = (OCTETS_PER_FLOW * u64::from(flows)).max(LEAST_OCTETS);
        Self {
            sessions: self.sessions.min(entries),
            names: self.names.min(entries),
            transactions: self.transactions.min(entries / 2),
            session_octets: self.session_octets.min(octets),
            findings_octets: self.findings_octets.min(octets),
            transaction_octets: self.transaction_octets.min(octets),
            ..self
        }
    }

    /// Guesses the application from the ports, if that is asked for and it is not known.
    pub(super) fn guess(&self, is_tcp: bool, ports: [u16; 2], findings: &mut Findings) {
        if self.ports
            && findings.application().is_none()
            && let Some(application) = ports::application(is_tcp, ports)
        {
            findings.recognise(application, Confidence::Port);
        }
    }
}

impl Default for InspectionSettings {
    fn default() -> Self {
        Self {
            packets: 16,
            octets: 8 << 10,
            sessions: 1 << 15,
            session_octets: 64 << 20,
            findings_octets: 64 << 20,
            names: 1 << 15,
            transactions: 1 << 16,
            transaction_octets: 0,
            two_way: true,
            personal: false,
            ports: false,
        }
    }
}
