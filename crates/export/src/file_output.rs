//! A file or standard output that counts which records were written.
//!
//! Callers pass octets together with the offsets at which records end. The first write that fails
//! ends the output: records that end before the first octet not written are exported, all later
//! ones are lost.

use crate::pending_records::PendingRecords;
use crate::sink::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_ledger::{ExportLossReason, SinkCounters};

/// An open file or standard output, unbuffered.
pub(crate) struct FileOutput {
    sink: String,
    file: File,
    ended: Option<ExportLossReason>,
    /// The error that ended the output, until it is reported.
    error: Option<io::Error>,
}

/// Records that are complete when the octets before `end` are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBoundary {
    pub end: usize,
    pub pending: PendingRecords,
}

impl FileOutput {
    /// Creates a file; `-` is standard output.
    pub fn create(sink: &str, path: &str) -> Result<Self, Error> {
        let file = if path == "-" {
            // Not `Stdout`, which buffers and so does not report which octets were written.
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::create(path)
        };
        match file {
            Ok(file) => Ok(Self { sink: sink.into(), file, ended: None, error: None }),
            Err(error) => Err(Error::Io { sink: sink.into(), error }),
        }
    }

    /// Writes octets and counts the records in them.
    pub fn write(&mut self, octets: &[u8], boundaries: &[RecordBoundary], counters: &mut SinkCounters) {
        let written = if self.ended.is_none() { self.write_octets(octets) } else { 0 };
        counters.octets += written as u64;
        for boundary in boundaries {
            match self.ended {
                Some(reason) if boundary.end > written => boundary.pending.count_lost(reason, counters),
                _ => boundary.pending.count_exported(counters),
            }
        }
    }

    /// Reports once that the output has ended.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn report_end(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), |error| Err(Error::Io { sink: self.sink.clone(), error }))
    }

    /// Returns the number of octets written. The output has ended if not all were.
    fn write_octets(&mut self, octets: &[u8]) -> usize {
        let mut written = 0;
        while written < octets.len() {
            let error = match self.file.write(&octets[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(more) => {
                    written += more;
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => continue,
                // The pipe was inherited in non-blocking mode: wait until it can take more.
                io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                io::ErrorKind::BrokenPipe => self.ended = Some(ExportLossReason::OutputClosed),
                _ => self.ended = Some(ExportLossReason::WriteFailed),
            }
            self.error = Some(error);
            break;
        }
        written
    }
}
