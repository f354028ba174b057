//! A message that is being filled: header, sets, records. No message is longer than its limit. Sets are
//! padded to 4 octets, which is less than the shortest record.

use crate::ipfix_file::FIRST_TEMPLATE_ID;
use crate::pending_records::PendingRecords;
use crate::uptime::SysUptime;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_fields::Format;

pub(super) const SET_HEADER_OCTETS: usize = 4;
/// Largest number of octets that pad a set.
pub(super) const MAX_PADDING: usize = 3;

pub(super) struct MessageBuilder {
    format: Format,
    domain: u32,
    /// IPFIX: number of data records before this message. NetFlow v9: number of messages before it.
    sequence: u32,
    /// Times of NetFlow v9.
    pub uptime: SysUptime,
    /// Space for the header, then sets.
    octets: Vec<u8>,
    /// Set ID and offset of the open set.
    set: Option<(u16, usize)>,
    records: u32,
    /// IPFIX data records.
    pub data_records: u32,
    /// The flow records in the message.
    pub pending: PendingRecords,
}

impl MessageBuilder {
    pub fn new(format: Format, domain: u32) -> Self {
        Self {
            format,
            domain,
            sequence: 0,
            uptime: SysUptime::default(),
            octets: Vec::new(),
            set: None,
            records: 0,
            data_records: 0,
            pending: PendingRecords::default(),
        }
    }

    /// Begins the sequence of messages again.
    pub fn restart_sequence(&mut self) {
        self.sequence = 0;
    }

    /// The octets; none if there is no message.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Whether a record needs a new set. nfdump 1.7.1 reads one options template per set.
    fn opens(&self, set: u16) -> bool {
        self.set.is_none_or(|(open, _)| open != set || set == self.format.options_template_set())
    }

    /// Whether the message has records and a further one would make it longer than `limit`, octets.
    #[inline]
    pub fn is_too_full_for(&self, set: u16, record: &[u8], limit: usize) -> bool {
        let header = if self.opens(set) { MAX_PADDING + SET_HEADER_OCTETS } else { 0 };
        !self.octets.is_empty() && self.octets.len() + header + record.len() + MAX_PADDING > limit
    }

    /// Appends a record to the open set or to a new one.
    #[inline]
    pub fn append(&mut self, set: u16, record: &[u8]) {
        if self.octets.is_empty() {
            self.octets.resize(self.format.header_octets(), 0);
        }
        if self.opens(set) {
            self.close_set();
            self.set = Some((set, self.octets.len()));
            self.octets.extend(set.to_be_bytes());
            self.octets.extend([0, 0]);
        }
        self.octets.extend(record);
        self.records += 1;
        self.data_records += u32::from(set >= FIRST_TEMPLATE_ID);
    }

    /// Pads the open set and fills in its length.
    fn close_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            self.octets.resize(self.octets.len().next_multiple_of(4), 0);
            let length = u16::try_from(self.octets.len() - start).expect("the limit is below 65536");
            self.octets[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Closes the last set and writes the header.
    pub fn close(&mut self) {
        self.close_set();
        match self.format {
            Format::Ipfix => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let length = u16::try_from(self.octets.len()).expect("the limit is below 65536");
                write_header(10, length, &[now as u32, self.sequence, self.domain], &mut self.octets);
            }
            Format::Netflow9 => {
                let (up_ms, seconds) = self.uptime.header();
                let count = u16::try_from(self.records).expect("records are longer than an octet");
                write_header(9, count, &[up_ms, seconds, self.sequence, self.domain], &mut self.octets);
            }
        }
    }

    /// Begins the next message, which reuses the memory. `counts`: it is numbered after this one.
    pub fn start_next(&mut self, counts: bool) {
        if counts {
            let step = if self.format == Format::Ipfix { self.data_records } else { 1 };
            self.sequence = self.sequence.wrapping_add(step);
        }
        self.octets.clear();
        (self.set, self.records, self.data_records) = (None, 0, 0);
        self.pending = PendingRecords::default();
    }
}

/// Writes the header of a message: version, length or number of records, and further words.
pub(crate) fn write_header(version: u16, length_or_count: u16, words: &[u32], octets: &mut [u8]) {
    octets[..2].copy_from_slice(&version.to_be_bytes());
    octets[2..4].copy_from_slice(&length_or_count.to_be_bytes());
    for (octets, word) in octets[4..].chunks_exact_mut(4).zip(words) {
        octets.copy_from_slice(&word.to_be_bytes());
    }
}
