//! `spool=FOLDER` and `limit=SIZE`: where records wait on disk, of all sinks that have a spool.

use super::SinkSetting;
use crate::rotation::parse_size;
use crate::sink::{Error, ExportOptions, InvalidSink, Owner};
use crate::spooled::{Item, SpoolSettings, Spooled};
use std::path::PathBuf;
use weir_spool::{SEGMENT_BYTES, SMALLEST_LIMIT, Settings};

/// Limit of a spool without a setting, octets.
const DEFAULT_LIMIT: u64 = 10 << 30;

pub(super) const SPOOL: SinkSetting = SinkSetting {
    name: "spool",
    value: "FOLDER",
    default: "",
    effect: "folder for records that wait while the collector is away or slow, also for the next run",
};

pub(super) const LIMIT: SinkSetting = SinkSetting {
    name: "limit",
    value: "10GiB",
    default: "",
    effect: "size of the spool, from 1MiB: then its oldest records are lost; 10GiB, or 10G (10^9 octets)",
};

impl SpoolSettings {
    /// `spool=FOLDER,limit=SIZE` is the same as `spool=FOLDER&limit=SIZE`.
    pub(super) fn set(spool: &mut Option<Self>, name: &str, value: &str) -> Result<(), InvalidSink> {
        let settings = spool.get_or_insert_with(|| Self { folder: PathBuf::new(), limit: DEFAULT_LIMIT });
        if name == LIMIT.name {
            let limit = parse_size(value).filter(|&limit| limit >= SMALLEST_LIMIT);
            settings.limit = limit.ok_or_else(|| InvalidSink::SpoolLimit(value.into()))?;
            return Ok(());
        }
        let (folder, limit) = value.rsplit_once(",limit=").map_or((value, None), |(a, b)| (a, Some(b)));
        if folder.is_empty() {
            return Err(InvalidSink::Syntax("the folder of the spool is missing: spool=FOLDER"));
        }
        settings.folder = folder.into();
        limit.map_or(Ok(()), |limit| Self::set(spool, LIMIT.name, limit))
    }

    /// Checks the settings together.
    pub(super) fn check_settings(&self) -> Result<(), InvalidSink> {
        if self.folder.as_os_str().is_empty() {
            return Err(InvalidSink::Syntax("limit= is the size of a spool; add spool=FOLDER"));
        }
        Ok(())
    }

    /// Opens the spool. `collector`: whose records these are; a spool of another one is refused.
    pub(super) fn open<T: Item>(
        &self,
        sink: &str,
        collector: &str,
        options: &ExportOptions,
    ) -> Result<Spooled<T>, Error> {
        let owner = options.file_owner.map(|Owner { user, group }| (user, group));
        let opened = Spooled::open(sink, self.of_collector(collector, options.anonymised, owner));
        opened.map_err(|error| Error::Spool { sink: sink.into(), error })
    }

    /// Whether [`SpoolSettings::open`] would succeed. Changes nothing.
    pub(super) fn check(&self, sink: &str, collector: &str, options: &ExportOptions) -> Result<(), Error> {
        let checked = weir_spool::check(&self.of_collector(collector, options.anonymised, None));
        checked.map_err(|error| Error::Spool { sink: sink.into(), error })
    }

    /// A run that anonymises does not send what another one has left, nor the other way round.
    fn of_collector(&self, collector: &str, anonymised: bool, owner: Option<(u32, u32)>) -> Settings {
        Settings {
            folder: self.folder.clone(),
            sink: format!("{collector}{}", if anonymised { " with --anonymise" } else { "" }),
            limit: self.limit,
            segment_bytes: SEGMENT_BYTES,
            owner,
        }
    }
}
