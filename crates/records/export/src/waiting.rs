//! The messages that wait for a connection, in the order in which they are sent.
//!
//! ```text
//! push -> messages -> slices -> the connection takes octets -> the system accepts them: exported
//!             └> oldest lost beyond the limit, but none of which the connection has taken a part
//! ```
//! IPFIX messages are numbered when they are sent, from 0 in each connection (RFC 7011 section 3.1).

use crate::pending_records::PendingRecords;
use std::collections::VecDeque;
use std::io::IoSlice;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Most messages that a connection gets at once.
const MAX_SLICES: usize = 64;
/// Offset of the sequence number in an IPFIX message (RFC 7011 section 3.1).
const SEQUENCE_OFFSET: usize = 8;

struct Message {
    octets: Box<[u8]>,
    pending: PendingRecords,
    /// IPFIX data records, by which the next message is numbered; `None` in other formats.
    data_records: Option<u32>,
}

impl Message {
    /// Whether it has templates and options only, which each connection gets anew.
    fn is_of_session(&self) -> bool {
        self.pending.wire_records == 0
    }

    fn memory_bytes(&self) -> usize {
        self.octets.len() + size_of::<Self>()
    }
}

/// Messages that wait for a connection, or for its system to accept them.
#[derive(Default)]
pub(crate) struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
    /// Octets from the start of the first message on that the connection has taken.
    taken_octets: usize,
    /// Octets of the first message that the system has accepted.
    accepted_octets: usize,
    /// IPFIX data records that were sent over this connection.
    sequence: u32,
    /// While a session begins: where its next message goes.
    session_end: Option<usize>,
}

impl Waiting {
    /// Memory that the messages take, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Flows of all messages.
    pub fn flows(&self) -> u64 {
        self.messages.iter().map(|message| message.pending.flows.flows).sum()
    }

    /// From now to [`Waiting::end_session`], messages go in front of those that wait.
    pub fn begin_session(&mut self) {
        self.session_end = Some(0);
    }

    pub fn end_session(&mut self) {
        self.session_end = None;
    }

    /// Adds a message. `data_records`: of an IPFIX message. Without a connection, messages of a session
    /// are left out, because the next one begins with them.
    pub fn push(&mut self, octets: &[u8], pending: PendingRecords, data_records: Option<u32>, is_connected: bool) {
        let message = Message { octets: octets.into(), pending, data_records };
        if message.is_of_session() && !is_connected {
            return;
        }
        self.bytes += message.memory_bytes();
        match &mut self.session_end {
            Some(at) => {
                self.messages.insert(*at, message);
                *at += 1;
            }
            None => self.messages.push_back(message),
        }
    }

    /// What the connection has not taken of the first messages.
    pub fn slices(&mut self) -> Vec<IoSlice<'_>> {
        let (first, taken_octets) = self.first_not_taken();
        let mut sequence = self.sequence;
        for message in self.messages.iter_mut().take(first + MAX_SLICES) {
            if let Some(data_records) = message.data_records {
                message.octets[SEQUENCE_OFFSET..][..4].copy_from_slice(&sequence.to_be_bytes());
                sequence = sequence.wrapping_add(data_records);
            }
        }
        let messages = self.messages.iter().skip(first).take(MAX_SLICES);
        let mut slices: Vec<_> = messages.map(|message| IoSlice::new(&message.octets)).collect();
        if let Some(slice) = slices.first_mut() {
            slice.advance(taken_octets);
        }
        slices
    }

    /// The first message of which the connection has not taken all, and the octets that it has.
    fn first_not_taken(&self) -> (usize, usize) {
        let (mut at, mut taken_octets) = (0, self.taken_octets);
        while let Some(message) = self.messages.get(at).filter(|message| message.octets.len() <= taken_octets) {
            taken_octets -= message.octets.len();
            at += 1;
        }
        (at, taken_octets)
    }

    /// The connection has taken more octets of what [`Waiting::slices`] returned: it sends them, and reports when
    /// the system has accepted them.
    pub fn take(&mut self, octets: usize) {
        self.taken_octets += octets;
    }

    /// Counts octets that the system has accepted, and the messages that they complete.
    pub fn count_accepted(&mut self, octets: usize, counters: &mut SinkCounters) {
        counters.octets += octets as u64;
        self.accepted_octets += octets;
        while let Some(message) = self.messages.front()
            && message.octets.len() <= self.accepted_octets
        {
            self.accepted_octets -= message.octets.len();
            self.taken_octets -= message.octets.len();
            self.bytes -= message.memory_bytes();
            message.pending.count_exported(counters);
            if let Some(data_records) = message.data_records {
                self.sequence = self.sequence.wrapping_add(data_records);
                counters.messages += 1;
            }
            self.messages.pop_front();
        }
    }

    /// Loses the oldest messages with records until the others take no more than `limit` bytes. A message of
    /// which the connection has taken a part stays. Returns the number of flows.
    pub fn lose_oldest(&mut self, limit: usize, counters: &mut SinkCounters) -> u64 {
        let (whole, part) = self.first_not_taken();
        let first = whole + usize::from(part > 0);
        let mut flows = 0;
        while self.bytes > limit
            && let Some(at) = (first..self.messages.len()).find(|&at| !self.messages[at].is_of_session())
            && let Some(message) = self.messages.remove(at)
        {
            self.bytes -= message.memory_bytes();
            flows += message.pending.flows.flows;
            message.pending.count_lost(ExportLossReason::BufferFull, counters);
        }
        flows
    }

    /// The connection is lost: messages that the system has not accepted as a whole are sent again. Those of the
    /// session do not wait.
    pub fn end_connection(&mut self) {
        self.messages.retain(|message| !message.is_of_session());
        self.bytes = self.messages.iter().map(Message::memory_bytes).sum();
        (self.taken_octets, self.accepted_octets, self.sequence) = (0, 0, 0);
    }

    /// Counts all messages as lost. Returns their flows.
    pub fn lose_all(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) -> RecordTotals {
        let mut lost = RecordTotals::default();
        for message in self.messages.drain(..) {
            lost.merge(message.pending.flows);
            message.pending.count_lost(reason, counters);
        }
        (self.bytes, self.taken_octets, self.accepted_octets) = (0, 0, 0);
        lost
    }
}
