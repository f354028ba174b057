//! The files of a folder: their names, and which of them are removed.
//!
//! A capture file is `weir_NUMBER_YYYYMMDDhhmmss.pcapng`, with the time of its first packet in UTC,
//! and its index has `.idx` behind this name. Numbers go up, also over restarts, so that the order of
//! files does not depend on the clock. Other files in the folder are not touched.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "weir_";
const ENDING: &str = ".pcapng";
/// Highest number of a file: 31 years of a million files a second.
pub(crate) const MAX_NUMBER: u64 = 999_999_999_999_999;

/// A capture file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordedFile {
    pub number: u64,
    pub path: PathBuf,
}

/// The index of a capture file.
pub(crate) fn index_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".idx");
    name.into()
}

/// The name of a capture file.
pub(crate) fn file_name(number: u64, time_ns: u64) -> String {
    let time = i64::try_from(time_ns / 1_000_000_000).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    let time = time.unwrap_or_default().strftime("%Y%m%d%H%M%S");
    format!("{PREFIX}{number:05}_{time}{ENDING}")
}

fn number_of(name: &OsStr) -> Option<u64> {
    let (number, time) = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(ENDING)?.split_once('_')?;
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    (are_digits(number) && are_digits(time)).then(|| number.parse().ok().filter(|&number| number <= MAX_NUMBER))?
}

/// The capture files of a folder, the oldest first. A pipe or a device with such a name is none.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<RecordedFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(number) = number_of(&entry.file_name()) {
            let path = entry.path();
            if fs::metadata(&path).is_ok_and(|file| file.is_file()) {
                files.push(RecordedFile { number, path });
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Octets of a capture file and its index.
pub(crate) fn octets(path: &Path) -> u64 {
    let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    length(path) + length(&index_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_number_and_time_and_other_files_are_none_of_ours() {
        assert_eq!(file_name(7, 1_795_176_000_999_999_999), "weir_00007_20261120120000.pcapng");
        assert_eq!(file_name(123_456, u64::MAX), "weir_123456_25540721233433.pcapng");
        for (name, number) in [
            ("weir_00007_20261120120000.pcapng", Some(7)),
            ("weir_123456_20261120120000.pcapng", Some(123_456)),
            ("weir_00007_20261120120000.pcapng.idx", None),
            ("weir_999999999999999_20261120120000.pcapng", Some(MAX_NUMBER)),
            ("weir_1000000000000000_20261120120000.pcapng", None),
            ("weir_18446744073709551615_20261120120000.pcapng", None),
            ("weir_00007.pcapng", None),
            ("weir_7a_2.pcapng", None),
            ("weir__2.pcapng", None),
            ("eth0_00007_20261120120000.pcapng", None),
        ] {
            assert_eq!(number_of(OsStr::new(name)), number, "{name}");
        }
    }
}
