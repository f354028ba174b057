//! The file `spool`: whose records these are, and how many runs have used it.

use crate::error::Error;
use crate::folder::{Folder, IDENTITY};
use std::io::Read;

const FIRST_LINE: &str = "weir-spool 1";
/// Octets of the file at most.
const MOST_OCTETS: u64 = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub sink: String,
    /// Runs that have used the spool, with this one. The first part of the identifiers of batches.
    pub runs: u32,
}

impl Identity {
    fn encode(&self) -> String {
        let text = format!("{FIRST_LINE}\nsink {}\nruns {}\n", self.sink, self.runs);
        let crc = crc32fast::hash(text.as_bytes());
        format!("{text}crc {crc:08x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let _ = lines.next()?;
        let sink = lines.next()?.strip_prefix("sink ")?.to_owned();
        let runs = lines.next()?.strip_prefix("runs ")?.parse().ok()?;
        let identity = Self { sink, runs };
        (identity.encode() == text).then_some(identity)
    }

    pub fn read(folder: &Folder) -> Result<Self, Error> {
        let file = folder.read(IDENTITY).map_err(|error| folder.error(IDENTITY, error))?;
        let mut octets = Vec::new();
        file.take(MOST_OCTETS).read_to_end(&mut octets).map_err(|error| folder.error(IDENTITY, error))?;
        let identity = std::str::from_utf8(&octets).ok().and_then(Self::decode);
        identity.ok_or_else(|| Error::InvalidIdentity(folder.path().into()))
    }

    pub fn write(&self, folder: &Folder) -> Result<(), Error> {
        folder.replace(IDENTITY, self.encode().as_bytes()).map_err(|error| folder.error(IDENTITY, error))?;
        Ok(())
    }
}
