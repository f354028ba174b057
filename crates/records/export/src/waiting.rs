//! The messages that wait for a connection, in the order in which they are sent.
//!
//! ```text
//! push -> messages -> slices -> the connection takes octets -> the system accepts them: exported
//!             └> oldest lost beyond the limit, but none of which the connection has taken a part;
//!                with a spool, all go to the disk, and newer ones behind them
//! ```
//! IPFIX messages get their number, from 0 in each connection, and their Export Time when they are sent (RFC 7011
//! section 3.1): no element of Weir's records is relative to it.

use crate::message::{Message, TIME_OFFSET, change_of_templates};
use crate::pending_records::PendingRecords;
use crate::spooled::{Context, Item, OfSpool, Spooled};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Most messages that a connection gets at once.
const MAX_SLICES: usize = 64;
/// With a spool: messages in memory while it is read, bytes.
pub(crate) const READ_AHEAD_BYTES: usize = 1 << 20;
/// Offsets of sequence number and observation domain in an IPFIX message (RFC 7011 section 3.1).
const SEQUENCE_OFFSET: usize = 8;
const DOMAIN_OFFSET: usize = 12;

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
    sequences: Sequences,
    /// While a session begins: where its next message goes.
    session_end: Option<usize>,
    spool: Option<Spooled<Message>>,
    /// Templates of an earlier run that the connection has; `None` for those of this run.
    present: Option<Context>,
    /// Whether there may be messages that need others.
    has_foreign: bool,
}

/// The sequence number of each observation domain: messages of an earlier run may have another one.
#[derive(Clone, Default)]
struct Sequences(Vec<(u32, u32)>);

impl Sequences {
    /// That of the domain of a message.
    fn of(&mut self, message: &[u8]) -> &mut u32 {
        let domain = message[DOMAIN_OFFSET..].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
        let at = self.0.iter().position(|&(known, _)| known == domain);
        let at = at.unwrap_or_else(|| {
            self.0.push((domain, 0));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Waiting {
    /// Messages beyond the limit wait on disk.
    pub fn with_spool(spool: Option<Spooled<Message>>) -> Self {
        Self { spool, ..Self::default() }
    }

    pub fn has_spool(&self) -> bool {
        self.spool.is_some()
    }

    /// Whether there is a spool that takes what waits.
    pub fn is_safe(&self) -> bool {
        self.spool.as_ref().is_some_and(Spooled::is_usable)
    }

    /// Sets the messages with the templates of this run, which its batches in the spool need.
    pub fn set_context(&mut self, context: &[u8]) {
        if let Some(spool) = self.spool.as_mut().filter(|spool| *spool.context != *context) {
            spool.context = context.into();
        }
    }

    /// What the messages take, in memory and on disk, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.spool.as_ref().map_or(0, Spooled::bytes)
    }

    /// The messages in memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Flows of all messages.
    pub fn flows(&self) -> u64 {
        let in_memory = self.messages.iter().filter(|message| !message.is_spooled);
        let in_memory: u64 = in_memory.map(|message| message.pending.flows.flows).sum();
        in_memory + self.spool.as_ref().map_or(0, Spooled::flows)
    }

    /// Fetches messages from the spool, if there is room for them in memory.
    pub fn refill(&mut self) {
        while self.bytes < READ_AHEAD_BYTES
            && let Some(spool) = self.spool.as_mut().filter(|spool| spool.is_behind())
        {
            let messages = spool.next();
            if messages.is_empty() {
                break;
            }
            self.bytes += messages.iter().map(Message::memory_bytes).sum::<usize>();
            self.has_foreign |= messages.iter().any(|message| message.context.is_some());
            self.messages.extend(messages);
        }
        if self.has_foreign {
            self.change_templates();
        }
    }

    /// Puts templates between messages of different runs.
    fn change_templates(&mut self) {
        let own = self.spool.as_ref().map(|spool| spool.context.clone()).unwrap_or_default();
        let (mut at, mut present) = (0, self.present.clone());
        self.has_foreign = present.is_some();
        while let Some(message) = self.messages.get(at) {
            let (context, is_change) = (message.context.clone(), message.is_change);
            if is_change || !message.is_of_session {
                self.has_foreign |= context.is_some();
                if !is_change && context != present {
                    for change in change_of_templates(context.as_ref().unwrap_or(&own)) {
                        let change = Message { context: context.clone(), ..change };
                        self.bytes += change.memory_bytes();
                        self.messages.insert(at, change);
                        at += 1;
                    }
                }
                present = context;
            }
            at += 1;
        }
    }

    /// From now to [`Waiting::end_session`], messages go in front of those that wait.
    pub fn begin_session(&mut self) {
        self.session_end = Some(0);
    }

    pub fn end_session(&mut self) {
        self.session_end = None;
    }

    /// Adds a message. `data_records`: of an IPFIX message. Without a connection, messages of a session
    /// are left out, because the next one begins with them; also behind the templates of an earlier run, because
    /// all of this one's follow those.
    pub fn push(&mut self, octets: &[u8], pending: PendingRecords, data_records: Option<u32>, is_connected: bool) {
        let message = Message::new(octets, pending, data_records);
        if let Some(at) = &mut self.session_end {
            self.bytes += message.memory_bytes();
            self.messages.insert(*at, message);
            *at += 1;
            return;
        }
        let is_behind = self.spool.as_ref().is_some_and(Spooled::is_behind);
        let last = self.messages.iter().rfind(|message| message.is_change || !message.is_of_session);
        let is_foreign = last.map_or(&self.present, |message| &message.context).is_some();
        if message.is_of_session && (!is_connected || is_foreign) {
            return;
        }
        let is_behind = is_behind && !message.is_of_session;
        match self.spool.as_mut().filter(|_| is_behind) {
            Some(spool) => spool.push(message),
            None => {
                self.bytes += message.memory_bytes();
                self.messages.push_back(message);
            }
        }
    }

    /// What the connection has not taken of the first messages.
    pub fn slices(&mut self) -> Vec<IoSlice<'_>> {
        let (first, taken_octets) = self.first_not_taken();
        // Octets that the connection has taken do not change.
        let untouched = first + usize::from(taken_octets > 0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) as u32;
        let mut sequences = self.sequences.clone();
        for (at, message) in self.messages.iter_mut().take(first + MAX_SLICES).enumerate() {
            let Some(data_records) = message.data_records else { continue };
            let sequence = sequences.of(&message.octets);
            if at >= untouched {
                message.octets[TIME_OFFSET..][..4].copy_from_slice(&now.to_be_bytes());
                message.octets[SEQUENCE_OFFSET..][..4].copy_from_slice(&sequence.to_be_bytes());
            }
            *sequence = sequence.wrapping_add(data_records);
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
            if let Some(data_records) = message.data_records {
                let sequence = self.sequences.of(&message.octets);
                *sequence = sequence.wrapping_add(data_records);
                counters.messages += 1;
            }
            if message.is_change || !message.is_of_session {
                self.present.clone_from(&message.context);
            }
            let (mut pending, end_of) = (message.pending, message.end_of);
            self.messages.pop_front();
            if let (Some(OfSpool { batch, is_earlier }), Some(spool)) = (end_of, &mut self.spool) {
                spool.release(batch, pending.flows.flows);
                // The spool counts these.
                pending.flows = if is_earlier { RecordTotals::default() } else { pending.flows };
            }
            pending.count_exported(counters);
        }
    }

    /// Moves all messages with records to the spool, but those of which the connection has taken a part. What the
    /// spool does not take stays in memory up to `limit` bytes. Returns the number of flows that are lost.
    pub fn spill(&mut self, limit: usize, counters: &mut SinkCounters) -> u64 {
        let (whole, part) = self.first_not_taken();
        let first = whole + usize::from(part > 0);
        let (mut rest, mut moved) = (self.messages.split_off(first.min(self.messages.len())), Vec::new());
        for message in rest.drain(..) {
            if message.is_of_session || message.is_spooled {
                self.messages.push_back(message);
            } else {
                self.bytes -= message.memory_bytes();
                moved.push(message);
            }
        }
        let Some(spool) = &mut self.spool else { return 0 };
        let left = spool.spill(moved);
        spool.keep(left);
        spool.lose_oldest(limit, counters)
    }

    /// Writes to the spool what waits behind it, and brings it to the disk when this is due.
    pub fn settle(&mut self, counters: &mut SinkCounters) {
        if let Some(spool) = &mut self.spool {
            if spool.is_behind() {
                let left = spool.spill(Vec::new());
                spool.keep(left);
            }
            spool.settle(false, counters);
        }
    }

    /// Loses the oldest messages with records until the others take no more than `limit` bytes. A message of
    /// which the connection has taken a part stays. With a spool, they go there instead. Returns the number of flows
    /// that are lost.
    pub fn lose_oldest(&mut self, limit: usize, counters: &mut SinkCounters) -> u64 {
        if self.spool.is_some() {
            return self.spill(limit, counters);
        }
        let (whole, part) = self.first_not_taken();
        let first = whole + usize::from(part > 0);
        let mut flows = 0;
        while self.bytes > limit
            && let Some(at) = (first..self.messages.len()).find(|&at| !self.messages[at].is_of_session)
            && let Some(message) = self.messages.remove(at)
        {
            self.bytes -= message.memory_bytes();
            flows += message.pending.flows.flows;
            message.pending.count_lost(ExportLossReason::BufferFull, counters);
        }
        flows
    }

    /// Gives up the newest messages of this run in memory, whole ones of at most this number of flows, but none of which
    /// the connection has taken a part. Returns the number of their flows.
    pub fn take_back(&mut self, most: u64) -> u64 {
        let mut flows = self.spool.as_mut().map_or(0, |spool| spool.take_back(most));
        let (whole, part) = self.first_not_taken();
        let first = (whole + usize::from(part > 0)).min(self.messages.len());
        let mut kept = Vec::new();
        // With messages left behind it in the spool, an older one stays, too.
        let is_open = |spool: &Spooled<Message>| !spool.has_tail();
        while self.messages.len() > first
            && self.spool.as_ref().is_none_or(is_open)
            && let Some(message) = self.messages.pop_back()
        {
            let of_message = message.pending.flows.flows;
            if message.is_of_session || message.is_spooled {
                kept.push(message);
            } else if flows + of_message > most {
                kept.push(message);
                break;
            } else {
                flows += of_message;
                self.bytes -= message.memory_bytes();
            }
        }
        self.messages.extend(kept.into_iter().rev());
        flows
    }

    /// The connection is lost: messages that the system has not accepted as a whole are retransmitted. Those of
    /// the session do not wait.
    pub fn end_connection(&mut self) {
        self.messages.retain(|message| !message.is_of_session);
        self.bytes = self.messages.iter().map(Message::memory_bytes).sum();
        (self.taken_octets, self.accepted_octets) = (0, 0);
        (self.sequences, self.present) = (Sequences::default(), None);
    }

    /// Counts all messages as lost, or spooled. Returns their flows.
    pub fn lose_all(&mut self, reason: ExportLossReason, counters: &mut SinkCounters) -> RecordTotals {
        let mut lost = RecordTotals::default();
        let (mut in_memory, mut unsent) = (Vec::new(), 0);
        for message in self.messages.drain(..) {
            unsent += u64::from(message.is_spooled);
            lost.merge(message.pending.flows);
            match &self.spool {
                Some(_) if message.is_of_session || message.is_spooled => {}
                Some(_) => in_memory.push(message),
                None => message.pending.count_lost(reason, counters),
            }
        }
        (self.bytes, self.taken_octets, self.accepted_octets) = (0, 0, 0);
        if let Some(spool) = &mut self.spool {
            // Whatever is left in a spool is not sent.
            lost.flows += unsent + spool.end(in_memory, reason, counters);
        }
        lost
    }
}
