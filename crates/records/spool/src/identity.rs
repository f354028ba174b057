//! The file `spool`: whose records these are, and how many runs have used it.

use crate::count::Count;
use crate::error::Error;
use crate::folder::{Folder, IDENTITY};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use weir_ledger::RecordTotals;

const FIRST_LINE: &str = "weir-spool 1";
/// Octets of the file at most.
const MOST_OCTETS: u64 = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub sink: String,
    /// Runs that have used the spool, with this one. The first part of the identifiers of batches.
    pub runs: u32,
    /// A random number by which others know this spool from one that had the same folder before.
    pub number: u64,
    /// Batches up to here were gone when the last run began.
    pub gone: Count,
}

impl Identity {
    fn encode(&self) -> String {
        let Self { sink, runs, number, gone: Count { batches, records } } = self;
        let RecordTotals { flows, packets, bytes } = records;
        with_crc(format!(
            "{FIRST_LINE}\nsink {sink}\nruns {runs}\nnumber {number:016x}\ngone {batches} {flows} {packets} {bytes}\n"
        ))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let _ = lines.next()?;
        let sink = lines.next()?.strip_prefix("sink ")?.to_owned();
        let runs = lines.next()?.strip_prefix("runs ")?.parse().ok()?;
        let number = lines.next()?.strip_prefix("number ").map(|number| u64::from_str_radix(number, 16));
        let Some(number) = number else {
            // Of a version without numbers.
            let is_valid = with_crc(format!("{FIRST_LINE}\nsink {sink}\nruns {runs}\n")) == text;
            return is_valid.then(|| Self { sink, runs, number: random(), gone: Count::default() });
        };
        let Some(gone) = lines.next()?.strip_prefix("gone ") else {
            // Of a version that did not write this.
            let number = number.ok()?;
            let is_valid = with_crc(format!("{FIRST_LINE}\nsink {sink}\nruns {runs}\nnumber {number:016x}\n")) == text;
            return is_valid.then(|| Self { sink, runs, number, gone: Count::default() });
        };
        let gone = gone.split(' ').map(str::parse);
        let [batches, flows, packets, bytes] = gone.collect::<Result<Vec<_>, _>>().ok()?.try_into().ok()?;
        let gone = Count { batches, records: RecordTotals { flows, packets, bytes } };
        let identity = Self { sink, runs, number: number.ok()?, gone };
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

fn with_crc(text: String) -> String {
    let crc = crc32fast::hash(text.as_bytes());
    format!("{text}crc {crc:08x}\n")
}

pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_without_a_number_gets_one() {
        let of_old = with_crc(format!("{FIRST_LINE}\nsink kafka://k/t\nruns 3\n"));
        let identity = Identity::decode(&of_old).unwrap();
        assert_eq!((identity.sink.as_str(), identity.runs), ("kafka://k/t", 3));
        let text = identity.encode();
        assert_eq!(Identity::decode(&text), Some(identity));
        for at in 0..text.len() {
            assert_eq!(Identity::decode(&text[..at]), None);
        }
    }
}
