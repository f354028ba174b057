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
    file: File,
    ended: Option<ExportLossReason>,
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
            Ok(file) => Ok(Self { file, ended: None }),
            Err(error) => Err(Error::Io { sink: sink.into(), error }),
        }
    }

    /// Writes octets and counts the records in them.
    ///
    /// # Errors
    /// The first write that fails. Records of later calls are counted as lost for the same reason.
    pub fn write(
        &mut self,
        octets: &[u8],
        boundaries: &[RecordBoundary],
        counters: &mut SinkCounters,
    ) -> Result<(), Error> {
        let (written, error) = match self.ended {
            Some(_) => (0, None),
            None => self.write_all(octets),
        };
        if let Some(error) = &error {
            let closed = error.kind() == io::ErrorKind::BrokenPipe;
            self.ended = Some(if closed { ExportLossReason::OutputClosed } else { ExportLossReason::WriteFailed });
        }
        counters.octets += written as u64;
        for boundary in boundaries {
            match self.ended {
                Some(reason) if boundary.end > written => boundary.pending.count_lost(reason, counters),
                _ => boundary.pending.count_exported(counters),
            }
        }
        error.map_or(Ok(()), |error| Err(Error::Io { sink: counters.sink.clone(), error }))
    }

    /// The number of octets written, and the error if not all were.
    fn write_all(&mut self, octets: &[u8]) -> (usize, Option<io::Error>) {
        let mut written = 0;
        while written < octets.len() {
            match self.file.write(&octets[written..]) {
                Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The pipe was inherited in non-blocking mode: wait until it can take more.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }
}
