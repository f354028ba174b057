//! A file, or standard output, that knows how far the operating system took what was written.
//!
//! Callers give octets together with the places where records end. A write that fails ends the output: what
//! ended before the octet that was not taken is exported, everything after is lost.

use crate::account::Carried;
use crate::sink::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_ledger::{ExportLossReason, SinkCounters};

/// An open file or standard output, unbuffered.
pub(crate) struct Output {
    file: File,
    ended: Option<ExportLossReason>,
}

/// Records that are whole when the octets before `end` are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub end: usize,
    pub carried: Carried,
}

impl Output {
    /// Creates a file; `-` is standard output.
    pub fn create(sink: &str, path: &str) -> Result<Self, Error> {
        let file = if path == "-" {
            // Not through `Stdout`, which keeps octets back and so cannot say which were taken.
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::create(path)
        };
        match file {
            Ok(file) => Ok(Self { file, ended: None }),
            Err(error) => Err(Error::Io { sink: sink.into(), error }),
        }
    }

    /// Writes octets and enters the fate of what is in them into the line.
    ///
    /// # Errors
    /// The first write that fails. Later ones count as lost for the same reason.
    pub fn write(&mut self, octets: &[u8], pieces: &[Piece], line: &mut SinkCounters) -> Result<(), Error> {
        let (taken, error) = match self.ended {
            Some(_) => (0, None),
            None => self.put(octets),
        };
        if let Some(error) = &error {
            let closed = error.kind() == io::ErrorKind::BrokenPipe;
            self.ended = Some(if closed { ExportLossReason::OutputClosed } else { ExportLossReason::WriteFailed });
        }
        line.octets += taken as u64;
        for piece in pieces {
            match self.ended {
                Some(reason) if piece.end > taken => piece.carried.lost(reason, line),
                _ => piece.carried.exported(line),
            }
        }
        error.map_or(Ok(()), |error| Err(Error::Io { sink: line.sink.clone(), error }))
    }

    /// How many octets were taken, and what stopped it.
    fn put(&mut self, octets: &[u8]) -> (usize, Option<io::Error>) {
        let mut taken = 0;
        while taken < octets.len() {
            match self.file.write(&octets[taken..]) {
                Ok(0) => return (taken, Some(io::ErrorKind::WriteZero.into())),
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A pipe that whoever started us set to non-blocking is waited for.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return (taken, Some(error)),
            }
        }
        (taken, None)
    }
}
