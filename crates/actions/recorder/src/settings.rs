//! The settings of a folder of packets: `folder:DIR?size=1GiB&time=1h&total=100GiB`.

use crate::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use weir_ledger::Timing;
use weir_text::units::{parse_duration, parse_size};

/// Smallest limit of a file, octets.
const MIN_SIZE: u64 = 1 << 20;

/// Where packets are recorded, and the limits of files and folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderSettings {
    /// The output as the user wrote it.
    pub name: String,
    /// The folder; it is created if its parent exists.
    pub folder: PathBuf,
    /// Another file begins when this one would exceed this size in octets.
    pub size: u64,
    /// Another file begins after this time.
    pub time: Option<Duration>,
    /// The oldest files are removed so that all capture files and indexes have no more octets.
    pub total: u64,
    /// From a failed attempt to write to the next one. Not a setting of the output.
    pub retry: Duration,
}

impl FolderSettings {
    /// Parses an output; `folder:` may be left out.
    ///
    /// # Errors
    /// [`Error::Setting`] with what is wrong.
    pub fn parse(output: &str) -> Result<Self, Error> {
        let invalid = |problem: String| Error::Setting { output: output.into(), problem };
        let rest = output.strip_prefix("folder:").unwrap_or(output);
        let (folder, settings) = rest.split_once('?').unwrap_or((rest, ""));
        if folder.is_empty() {
            return Err(invalid("name a folder, as in folder:/var/lib/weir/packets".into()));
        }
        let (mut size, mut time, mut total) = (1 << 30, None, None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let no_size = || invalid(format!("{name}={value} is not a size; write for example {name}=1GiB"));
            let octets = || parse_size(value).ok_or_else(no_size);
            match name {
                "size" => size = octets()?,
                "total" => total = Some(octets()?),
                "time" => {
                    let ns = parse_duration(value).ok().filter(|&ns| ns >= 1_000_000_000);
                    let problem = || format!("time={value} is not a time of at least 1s; write for example time=5m");
                    let ns = ns.ok_or_else(|| invalid(problem()))?;
                    time = Some(Duration::from_nanos(ns));
                }
                _ => return Err(invalid(format!("no setting {name}; there are size, time and total"))),
            }
        }
        if size < MIN_SIZE {
            return Err(invalid(format!("size={size} is too small; at least 1MiB")));
        }
        let total = total.unwrap_or(size.saturating_mul(10));
        if total / 2 < size {
            return Err(invalid(format!(
                "total={total} must be at least twice size={size}: the oldest file is removed while the newest is written"
            )));
        }
        let retry = Timing::default().recorder_retry;
        Ok(Self { name: output.into(), folder: folder.into(), size, time, total, retry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_units_and_limits() {
        let parsed = FolderSettings::parse("folder:/a/b?size=100MB&time=5m&total=1GiB").unwrap();
        let expected = FolderSettings {
            name: "folder:/a/b?size=100MB&time=5m&total=1GiB".into(),
            folder: "/a/b".into(),
            size: 100_000_000,
            time: Some(Duration::from_secs(300)),
            total: 1 << 30,
            retry: Duration::from_secs(2),
        };
        assert_eq!(parsed, expected);
        let default = FolderSettings::parse("folder:x").unwrap();
        assert_eq!((default.size, default.time, default.total), (1 << 30, None, 10 << 30));
        for (output, problem) in [
            ("folder:", "name a folder"),
            ("folder:x?sise=1GiB", "no setting sise; there are size, time and total"),
            ("folder:x?size=1X", "size=1X is not a size; write for example size=1GiB"),
            ("folder:x?time=1ms", "time=1ms is not a time"),
            ("folder:x?size=1GiB&total=1GiB", "must be at least twice"),
            ("folder:x?size=1kB", "at least 1MiB"),
        ] {
            let error = FolderSettings::parse(output).unwrap_err().to_string();
            assert!(error.starts_with(output) && error.contains(problem), "{error}");
        }
    }
}
