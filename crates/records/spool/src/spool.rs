//! The spool: appends, releases, drops.

use crate::acks::Ack;
use crate::count::{Count, Split};
use crate::entry::{HEADER_OCTETS, Header, Kind, fingerprint};
use crate::error::Error;
use crate::folder::segment_name;
use crate::state::{Active, BATCH_BITS, BatchId, Place, Segment, Spool, Status};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};
use weir_ledger::RecordTotals;

/// Octets of a segment, at most; one batch may be larger.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// The smallest limit of a spool, octets.
pub const SMALLEST_LIMIT: u64 = 1 << 20;
/// A segment is at most this part of the limit, because the oldest one is dropped when the spool is full.
const SEGMENTS_OF_LIMIT: u64 = 8;
/// Data is on the disk after this many octets, or this time.
const SYNC_OCTETS: u64 = 1 << 20;
const SYNC_TIME: Duration = Duration::from_millis(500);
impl Spool {
    /// Sets what all later batches need, and what comes with each of them when it is read.
    pub fn set_context(&mut self, context: &[u8]) {
        if *self.context != *context {
            self.context = context.into();
            self.close_segment();
        }
    }

    /// Appends a batch. After an error it is not in the spool, and all others are as they were; those that were
    /// dropped to make room stay dropped. [`Spool::sync_if_due`] brings it to the disk.
    pub fn append(&mut self, format: u16, octets: &[u8], records: RecordTotals) -> Result<BatchId, Error> {
        let id = u64::from(self.runs) << BATCH_BITS | (self.own_batches + 1);
        let header = Header {
            kind: Kind::Batch,
            format,
            payload_octets: octets.len().try_into().unwrap_or(u32::MAX),
            payload_crc: crc32fast::hash(octets),
            id,
            context: fingerprint(&self.context),
            before: self.appended,
            count: Count { batches: 1, records },
        };
        let context_octets = (HEADER_OCTETS + self.context.len()) as u64;
        let (size, limit) = (header.octets() + context_octets, self.limit);
        if size > limit || octets.len() > u32::MAX as usize {
            return Err(Error::TooLarge { folder: self.folder.path().into(), octets: size, limit });
        }
        self.make_room(size)?;
        let is_full = |segment: &Segment| segment.octets + header.octets() > self.segment_bytes;
        if self.active.is_none() || self.segments.back().is_none_or(is_full) {
            self.start_segment()?;
        }
        self.write(&header.encode(octets))?;
        self.own_batches += 1;
        self.appended = header.after();
        Ok(BatchId(id))
    }

    fn close_segment(&mut self) {
        if let Some(active) = self.active.take() {
            // What this does not bring to the disk is found to be damaged when it is read.
            let _ = active.file.sync_data();
        }
    }

    fn start_segment(&mut self) -> Result<(), Error> {
        self.close_segment();
        let name = segment_name(self.next_number);
        let file = self.folder.create(&name).map_err(|error| self.folder.error(&name, error))?;
        let begun = SystemTime::now();
        self.segments.push_back(Segment { number: self.next_number, octets: 0, start: self.appended, begun });
        self.next_number += 1;
        self.active = Some(Active { file, unsynced: 0 });
        if self.context.is_empty() {
            return Ok(());
        }
        let header = Header {
            kind: Kind::Context,
            format: 0,
            payload_octets: self.context.len() as u32,
            payload_crc: crc32fast::hash(&self.context),
            id: 0,
            context: fingerprint(&self.context),
            before: self.appended,
            count: Count::default(),
        };
        self.write(&header.encode(&self.context.clone()))
    }

    /// Writes an entry to the end of the last segment. After an error, a part of it is removed.
    fn write(&mut self, entry: &[u8]) -> Result<(), Error> {
        let (Some(segment), Some(active)) = (self.segments.back_mut(), self.active.as_mut()) else { return Ok(()) };
        if active.file.metadata().is_ok_and(|file| file.nlink() == 0) {
            // What it had counts as damaged when it is to be read.
            self.active = None;
            let error = io::Error::new(io::ErrorKind::NotFound, "the file was removed");
            return Err(self.folder.error(&segment_name(segment.number), error));
        }
        if let Err(error) = self.folder.write_at(&active.file, entry, segment.octets) {
            let name = segment_name(segment.number);
            let is_whole = active.file.set_len(segment.octets).is_ok();
            let is_empty = segment.octets == 0;
            if !is_whole || is_empty {
                self.close_segment();
            }
            if is_empty {
                self.segments.pop_back();
                let _ = self.folder.delete(&name);
            }
            return Err(self.folder.error(&name, error));
        }
        segment.octets += entry.len() as u64;
        active.unsynced += entry.len() as u64;
        self.octets += entry.len() as u64;
        Ok(())
    }

    /// Drops the oldest segments until an entry fits.
    fn make_room(&mut self, octets: u64) -> Result<(), Error> {
        while self.octets + octets > self.limit && !self.segments.is_empty() {
            self.drop_oldest()?;
        }
        Ok(())
    }

    fn drop_oldest(&mut self) -> Result<(), Error> {
        if self.segments.len() == 1 {
            self.close_segment();
        }
        let Some(segment) = self.segments.front() else { return Ok(()) };
        let number = segment.number;
        let end = self.segments.get(1).map_or(self.appended, |next| next.start);
        let ack = Ack { id: self.last_gone, position: end };
        self.acks.append(&self.folder, ack).and_then(|()| self.acks.sync()).map_err(|error| self.error(error))?;
        if self.place.segment <= number {
            if end.batches > self.read.batches {
                self.dropped.merge(Split::between(self.read, end, self.border));
                self.read = end;
            }
            self.place = Place { segment: number + 1, offset: 0 };
        }
        let border = self.border;
        while self.rewound.front().is_some_and(|flight| flight.place.segment <= number)
            && let Some(flight) = self.rewound.pop_front()
        {
            self.dropped.merge(flight.split(border));
        }
        self.delete_oldest();
        self.folder.sync().map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> Error {
        Error::Io { path: self.folder.path().into(), error }
    }

    /// Deletes the oldest segment. Its batches are acknowledged: a file that cannot be deleted is at the next start.
    fn delete_oldest(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.octets = self.octets.saturating_sub(segment.octets);
            let _ = self.folder.delete(&segment_name(segment.number));
        }
    }

    /// The batch and all that were read before it are delivered.
    pub fn release(&mut self, id: BatchId) -> Result<(), Error> {
        let border = self.border;
        while self.in_flight.front().is_some_and(|flight| flight.id <= id.0)
            && let Some(flight) = self.in_flight.pop_front()
        {
            self.released.merge(flight.split(border));
            self.last_gone = self.last_gone.max(flight.id);
        }
        self.acknowledge().map_err(|error| self.error(error))
    }

    /// The last batch that was read cannot be used: it counts as damaged.
    pub fn reject(&mut self, id: BatchId) {
        if self.in_flight.back().is_some_and(|flight| flight.id == id.0)
            && let Some(flight) = self.in_flight.pop_back()
        {
            self.damaged.merge(flight.split(self.border));
        }
    }

    /// Batches that were read and not released are read again, before all others: the connection is lost.
    pub fn rewind(&mut self) {
        let oldest = self.segments.front().map_or(u32::MAX, |segment| segment.number);
        while let Some(flight) = self.in_flight.pop_back() {
            if flight.place.segment < oldest {
                self.dropped.merge(flight.split(self.border));
            } else {
                self.rewound.push_front(flight);
            }
        }
    }

    /// Acknowledges what is gone, then deletes the segments of which everything is.
    fn acknowledge(&mut self) -> io::Result<()> {
        let first = self.in_flight.front().or(self.rewound.front());
        let position = first.map_or(self.read, |flight| flight.before);
        self.acks.append(&self.folder, Ack { id: self.last_gone, position })?;
        let needed = [self.in_flight.front(), self.rewound.front()].into_iter().flatten();
        let needed = needed.map(|flight| flight.place.segment).min().unwrap_or(u32::MAX).min(self.place.segment);
        if self.segments.front().is_none_or(|segment| segment.number >= needed) {
            return Ok(());
        }
        self.acks.sync()?;
        while self.segments.front().is_some_and(|segment| segment.number < needed) {
            self.delete_oldest();
        }
        self.folder.sync()
    }

    /// Brings batches and acknowledgements to the disk if they are due: 1 MiB of batches, or 500 ms after the last
    /// time.
    pub fn sync_if_due(&mut self, now: Instant) -> Result<(), Error> {
        let synced_at = *self.synced_at.get_or_insert(now);
        let is_large = self.active.as_ref().is_some_and(|active| active.unsynced >= SYNC_OCTETS);
        if is_large || now.saturating_duration_since(synced_at) >= SYNC_TIME {
            self.synced_at = Some(now);
            return self.sync();
        }
        Ok(())
    }

    /// Brings batches and acknowledgements to the disk. Deletes all segments if nothing waits.
    pub fn sync(&mut self) -> Result<(), Error> {
        if let Some(active) = self.active.as_mut().filter(|active| active.unsynced > 0) {
            let result = active.file.sync_data();
            active.unsynced = 0;
            if result.is_err() {
                // The system may have given up what was not on the disk: nothing is appended behind it.
                self.active = None;
            }
            result.map_err(|error| self.error(error))?;
        }
        if self.is_empty() && !self.segments.is_empty() {
            self.active = None;
            self.place = Place { segment: self.next_number, offset: 0 };
        }
        if self.own_batches > 0 && self.has_unread() {
            let id = u64::from(self.runs) << BATCH_BITS | self.own_batches;
            self.acks.note_on_disk(&self.folder, Ack { id, position: self.appended });
        }
        self.acknowledge().and_then(|()| self.acks.sync()).map_err(|error| self.error(error))
    }

    /// A random number, the same in all runs. A spool that is made later in the same folder has another one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// An identifier between those of the batches of earlier runs and those of this run.
    pub fn border(&self) -> BatchId {
        BatchId(u64::from(self.runs) << BATCH_BITS)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && !self.has_unread()
    }

    /// Whether there are batches to read.
    pub fn has_unread(&self) -> bool {
        !self.rewound.is_empty() || self.read.batches < self.appended.batches
    }

    /// What became of all batches.
    pub fn status(&self) -> Status {
        let mut waiting = Split::between(self.read, self.appended, self.border);
        self.in_flight.iter().chain(&self.rewound).for_each(|flight| waiting.merge(flight.split(self.border)));
        Status {
            appended: Split { earlier: self.found, own: self.appended.saturating_sub(self.border) },
            released: self.released,
            dropped: self.dropped,
            damaged: self.damaged,
            unknown: self.unknown,
            waiting,
            octets: self.octets,
            oldest: self.oldest(),
        }
    }

    fn oldest(&self) -> Option<SystemTime> {
        let first = self.in_flight.front().or(self.rewound.front());
        let number = first.map_or(self.place.segment, |flight| flight.place.segment);
        let oldest = self.segments.iter().find(|segment| segment.number >= number)?;
        (!self.is_empty()).then_some(oldest.begun)
    }

    pub(crate) fn segment_limit(limit: u64, segment_bytes: u64) -> u64 {
        segment_bytes.min(limit / SEGMENTS_OF_LIMIT)
    }
}
