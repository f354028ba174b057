//! Reads batches, and counts what is missing between them.

use crate::count::{Count, Split};
use crate::entry::{Found, Header, Kind, find, fingerprint};
use crate::error::Error;
use crate::folder::segment_name;
use crate::state::{Batch, BatchId, InFlight, Place, Spool};
use std::io;
use std::sync::Arc;

impl Spool {
    /// Reads the oldest batch that is not read; `None` if there is none. Damage is skipped and counted. An error of
    /// the system that may pass, such as too many open files, is returned; the next call tries again.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Batch>, Error> {
        while let Some(flight) = self.rewound.pop_front() {
            match self.find_entry(flight.place.segment, flight.place.offset, u64::MAX) {
                Ok(Found::Entry(offset, header, octets)) if header.id == flight.id && offset == flight.place.offset => {
                    let batch = self.batch(&header, octets, flight.context.clone());
                    self.in_flight.push_back(flight);
                    return Ok(Some(batch));
                }
                Err(error) => {
                    self.rewound.push_front(flight);
                    return Err(error);
                }
                _ => self.damaged.merge(flight.split(self.border)),
            }
        }
        loop {
            let number = self.place.segment;
            let at = self.segments.partition_point(|segment| segment.number < number);
            let Some(segment) = self.segments.get(at) else {
                self.skip_to(self.appended);
                return Ok(None);
            };
            if segment.number != number {
                self.place = Place { segment: segment.number, offset: 0 };
                continue;
            }
            if self.place.offset >= segment.octets {
                if at + 1 == self.segments.len() {
                    self.skip_to(self.appended);
                    return Ok(None);
                }
                self.place = Place { segment: number + 1, offset: 0 };
                continue;
            }
            let end = segment.octets;
            match self.find_entry(number, self.place.offset, end)? {
                Found::Entry(offset, header, octets) => {
                    self.place.offset = offset + header.octets();
                    if let Some(batch) = self.accept(number, offset, &header, octets) {
                        return Ok(Some(batch));
                    }
                }
                Found::Damaged(offset, header) => self.place.offset = offset + header.octets(),
                Found::End => self.place.offset = end,
            }
        }
    }

    /// An entry that was found while reading: a batch that is not gone, or nothing.
    fn accept(&mut self, segment: u32, offset: u64, header: &Header, octets: Vec<u8>) -> Option<Batch> {
        if header.kind == Kind::Context {
            self.open.context = Some((fingerprint(&octets), octets.into()));
            return None;
        }
        if header.before.batches < self.read.batches || header.after().batches > self.appended.batches {
            return None;
        }
        let of_segment = self.open.context.as_ref().filter(|(fingerprint, _)| *fingerprint == header.context);
        let context = match of_segment {
            Some((_, context)) => context.clone(),
            None if header.context == fingerprint(&self.context) => self.context.clone(),
            None if header.context == fingerprint(&[]) => Arc::new([]),
            // Without its context, nothing can read the batch: it is missing.
            None => return None,
        };
        self.skip_to(header.before);
        self.read = header.after();
        self.in_flight.push_back(InFlight {
            id: header.id,
            before: header.before,
            count: header.count,
            place: Place { segment, offset },
            context: context.clone(),
        });
        Some(self.batch(header, octets, context))
    }

    fn batch(&self, header: &Header, octets: Vec<u8>, context: Arc<[u8]>) -> Batch {
        Batch {
            id: BatchId(header.id),
            records: header.count.records,
            format: header.format,
            octets,
            context,
            is_earlier: header.before.batches < self.border.batches,
        }
    }

    /// Counts what is missing up to a position.
    fn skip_to(&mut self, position: Count) {
        if position.batches > self.read.batches {
            self.damaged.merge(Split::between(self.read, position, self.border));
            self.read = position;
        }
    }

    fn find_entry(&mut self, number: u32, offset: u64, end: u64) -> Result<Found, Error> {
        let name = segment_name(number);
        if self.open.file.as_ref().is_none_or(|(open, _)| *open != number) {
            match self.folder.read(&name) {
                Ok(file) => self.open.file = Some((number, file)),
                Err(error) if may_pass(&error) => return Err(self.folder.error(&name, error)),
                Err(_) => return Ok(Found::End),
            }
        }
        let Some((_, file)) = &self.open.file else { return Ok(Found::End) };
        // Whatever the disk cannot read is damaged.
        Ok(find(file, offset, end).unwrap_or(Found::End))
    }
}

/// Whether an error in opening a file is not one of the file.
fn may_pass(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR].map(Some).contains(&errno)
}
