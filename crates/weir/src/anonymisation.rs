//! Anonymisation of the records of a run (`--anonymise`): its key, what it refuses, and the records that the HTTP
//! interface shows. Sinks get theirs where they are opened (`outputs.rs`).

use crate::arguments::Sinks;
use crate::error::{Error, OutputError};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;
use weir_anonymise::{Anonymiser, Key};
use weir_flow::FlowRecord;
use weir_probe::RecordEnricher;

/// Reads the key, with the privileges of the start; `None` without `--anonymise`. Warns of a key that others may read.
///
/// # Errors
/// The file has no key.
pub fn load(options: &Sinks) -> Result<Option<Anonymiser>, Error> {
    let Some(spec) = &options.anonymise else { return Ok(None) };
    let (key, readable) = Key::read(spec.key_file())?;
    if let Some(mode) = readable {
        let (file, mode) = (spec.key_file().display().to_string(), format!("{mode:o}"));
        warn!(file, mode, "others than its owner may read the key of --anonymise; chmod 600 it");
    }
    Ok(Some(Anonymiser::new(&key, spec)))
}

/// Refuses what forwards packets, which cannot be anonymised.
///
/// # Errors
/// There are rules.
pub fn check(options: &Sinks, rules: Option<&Path>) -> Result<(), Error> {
    match rules {
        Some(_) if options.anonymise.is_some() => Err(OutputError::AnonymisedPackets("--rules").into()),
        _ => Ok(()),
    }
}

/// Adds places to records, and then anonymises them: for the HTTP interface, which compares and shows the result.
pub fn enricher(places: Option<RecordEnricher>, anonymiser: Option<&Anonymiser>) -> Option<RecordEnricher> {
    let Some(anonymiser) = anonymiser else { return places };
    let anonymiser = Mutex::new(anonymiser.clone());
    Some(Arc::new(move |records: &mut [FlowRecord]| {
        if let Some(places) = &places {
            places(records);
        }
        let mut anonymiser = anonymiser.lock();
        records.iter_mut().for_each(|record| anonymiser.anonymise(record));
    }))
}
