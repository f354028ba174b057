//! Rotated files: their names, and when one ends.
//!
//! Names are patterns with the time at which a file begins, in UTC: `flows-%Y%m%d-%H%M.csv`. A file
//! that is being written has the name with `.part`, which it loses at its end. If a file of that name
//! exists, a number is added: `flows-20261120-1205-1.csv`.

use crate::kinds::is_standard_output;
use crate::pending_records::PendingRecords;
use crate::sink::{Error, ExportOptions, FileMode, InvalidSink};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_flow::FlowRecord;
use weir_text::units::time_unit_ns;

const NS_PER_SECOND: u64 = 1_000_000_000;
/// Smallest size of `rotate=`. A write has up to about this length.
const MIN_FILE_BYTES: u64 = 1 << 16;
/// End of the name of a file that is being written.
const TEMPORARY_SUFFIX: &str = ".part";
/// Conversions of a name, with the digits that they give.
const CONVERSIONS: [(char, usize); 7] = [('Y', 4), ('m', 2), ('d', 2), ('H', 2), ('M', 2), ('S', 2), ('j', 3)];
/// Units of a name, largest first: how long the shortest one lasts, seconds, and its conversions.
const UNITS: [(u64, &str); 6] =
    [(366 * 86_400, "Y"), (31 * 86_400, "mj"), (86_400, "dj"), (3600, "H"), (60, "M"), (0, "S")];
/// Files with the same name but for their numbers, at most.
const MAX_FILES_OF_A_NAME: u32 = 1_000_000;

/// The values of `rotate=`: a file ends after the first of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RotationSettings {
    interval_ns: Option<u64>,
    bytes: Option<u64>,
}

/// Parses a size of at least 64 KiB (`100MB`, `1GiB`). Returns bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    weir_text::units::parse_size(text).filter(|&bytes| bytes >= MIN_FILE_BYTES)
}

impl RotationSettings {
    /// Adds a value: a time (`5m`) or a size (`1GiB`).
    pub fn add(&mut self, value: &str) -> Result<(), InvalidSink> {
        let invalid = || InvalidSink::Rotate(value.into());
        let digits = value.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = value.split_at(digits);
        let number = number.parse::<u64>().ok().filter(|&number| number > 0).ok_or_else(invalid)?;
        match time_unit_ns(unit).filter(|&ns| ns >= NS_PER_SECOND) {
            Some(factor) => self.interval_ns = Some(number.checked_mul(factor).ok_or_else(invalid)?),
            None => self.bytes = Some(parse_size(value).ok_or_else(invalid)?),
        }
        Ok(())
    }

    /// Checks the path of a file with these settings. `None` without settings.
    pub fn rotation(self, path: &str) -> Result<Option<RotatedName>, InvalidSink> {
        let is_conversion = |letter: char| CONVERSIONS.iter().any(|&(known, _)| known == letter);
        if self == Self::default() {
            let time = path.split('%').skip(1).find_map(|part| part.chars().next().filter(|&c| is_conversion(c)));
            return time.map_or(Ok(None), |letter| Err(InvalidSink::TimeWithoutRotation(letter)));
        }
        if is_standard_output(path) {
            return Err(InvalidSink::Syntax("standard output cannot be rotated; remove rotate="));
        }
        RotatedName::parse(path, self).map(Some)
    }
}

/// The name of rotated files, which has the time, and when one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RotatedName {
    settings: RotationSettings,
    folder: PathBuf,
    /// Up to the last conversion.
    pieces: Vec<Piece>,
    /// What follows: in front of its first dot, where numbers are added, and from there on.
    tail: (String, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Time(char),
}

/// If files of different intervals would have the same name: the times that tell them apart. These are
/// the year and all units down to the longest one that is no longer than an interval.
fn unique_name(pieces: &[Piece], interval_ns: u64) -> Option<String> {
    let has = |conversions: &str| {
        pieces.iter().any(|piece| matches!(piece, Piece::Time(letter) if conversions.contains(*letter)))
    };
    let last = UNITS.iter().position(|&(seconds, _)| seconds * NS_PER_SECOND <= interval_ns);
    let needed = &UNITS[..=last.expect("the last unit has no length")];
    // The day of the year replaces month and day, the month does not replace it.
    let repeats = needed.iter().any(|(_, conversions)| !has(conversions));
    repeats.then(|| ["%Y", "%m", "%d", "-%H", "%M", "%S"][..needed.len()].concat())
}

impl RotatedName {
    fn parse(path: &str, settings: RotationSettings) -> Result<Self, InvalidSink> {
        let (folder, name) = match path.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((folder, name)) => (folder, name),
            None => (".", path),
        };
        if folder.contains('%') {
            return Err(InvalidSink::Syntax("the folder of rotated files cannot change: use % in the file name only"));
        }
        let (mut pieces, mut text) = (Vec::new(), String::new());
        let mut letters = name.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            match letters.next() {
                Some('%') => text.push('%'),
                Some(letter) if CONVERSIONS.iter().any(|&(known, _)| known == letter) => {
                    pieces.extend([Piece::Text(std::mem::take(&mut text)), Piece::Time(letter)]);
                }
                unknown => return Err(InvalidSink::Conversion(unknown.map_or_else(String::new, String::from))),
            }
        }
        if pieces.is_empty() {
            return Err(InvalidSink::Syntax(
                "all files would have this name; rotate= needs the time in it, for example flows-%Y%m%d-%H%M.csv",
            ));
        }
        if let Some(example) = settings.interval_ns.and_then(|interval_ns| unique_name(&pieces, interval_ns)) {
            return Err(InvalidSink::RepeatedName(example));
        }
        let dot = text.find('.').unwrap_or(text.len());
        let tail = (text[..dot].into(), text[dot..].into());
        Ok(Self { settings, folder: folder.into(), pieces, tail })
    }

    /// The folder of the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the file that begins at this time, ns.
    fn path(&self, time_ns: u64, number: u32) -> PathBuf {
        let seconds = Timestamp::from_second((time_ns / NS_PER_SECOND) as i64);
        let time = seconds.expect("64 bits of ns end in the year 2554").to_zoned(TimeZone::UTC);
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Time(letter) => name.push_str(&match letter {
                    'Y' => format!("{:04}", time.year()),
                    'm' => format!("{:02}", time.month()),
                    'd' => format!("{:02}", time.day()),
                    'H' => format!("{:02}", time.hour()),
                    'M' => format!("{:02}", time.minute()),
                    'S' => format!("{:02}", time.second()),
                    _ => format!("{:03}", time.day_of_year()),
                }),
            }
        }
        name.push_str(&self.tail.0);
        if number > 0 {
            name.push_str(&format!("-{number}"));
        }
        name.push_str(&self.tail.1);
        self.folder.join(name)
    }

    /// The temporary path of a file that begins now.
    pub fn next_part(&self) -> PathBuf {
        temporary(self.path(now_ns(), 0))
    }

    /// Whether a file name is that of such a file.
    fn matches(&self, name: &str) -> bool {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut rest = name;
        for piece in &self.pieces {
            let width = match piece {
                Piece::Text(text) => match rest.strip_prefix(text.as_str()) {
                    Some(_) => text.len(),
                    None => return false,
                },
                Piece::Time(letter) => {
                    let width = CONVERSIONS.iter().find(|(known, _)| known == letter).map_or(0, |&(_, width)| width);
                    if digits(rest) < width {
                        return false;
                    }
                    width
                }
            };
            rest = &rest[width..];
        }
        let Some(rest) = rest.strip_prefix(self.tail.0.as_str()) else { return false };
        let number = rest.strip_prefix('-').map(|rest| &rest[digits(rest)..]);
        rest == self.tail.1 || number == Some(self.tail.1.as_str())
    }

    /// Files of such names that an earlier run did not end, sorted.
    pub fn unfinished(&self) -> io::Result<Vec<PathBuf>> {
        let names = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        let is_unfinished = |name: &&str| name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(|name| self.matches(name));
        let mut paths: Vec<_> = names
            .iter()
            .filter_map(|name| name.to_str().filter(is_unfinished))
            .map(|name| self.folder.join(name))
            .collect();
        paths.sort();
        Ok(paths)
    }

    /// Gives a file with a temporary name its own name. If a file has it, a number is added. Returns
    /// the path.
    ///
    /// # Errors
    /// The system refuses it. The file keeps its temporary name.
    pub fn rename(&self, part: &Path) -> io::Result<PathBuf> {
        let path = part.with_extension("");
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let tail = self.tail.1.as_str();
        let stem = name.strip_suffix(tail).unwrap_or(name);
        for number in 0..MAX_FILES_OF_A_NAME {
            let to = if number == 0 { path.clone() } else { path.with_file_name(format!("{stem}-{number}{tail}")) };
            match renameat_with(CWD, part, CWD, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                // The file system has no such call.
                Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(&to).is_err() => {
                    renameat_with(CWD, part, CWD, &to, RenameFlags::empty())?;
                }
                Err(Errno::INVAL | Errno::NOSYS) => continue,
                Err(error) => return Err(error.into()),
            }
            // The name lasts when the folder is on the disk. Some file systems refuse this.
            let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
            return Ok(to);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// The rotation of an output: the time, and the file that is being written.
pub(crate) struct Rotation {
    name: RotatedName,
    /// The time is the latest end of a record, not that of the system's clock.
    has_record_time: bool,
    now_ns: u64,
    /// When the file begins and ends, ns.
    start_ns: u64,
    end_ns: u64,
    /// Path of the file, if there is one.
    pub part: PathBuf,
    /// Octets in the file.
    pub length: u64,
    /// What was counted as exported to the file.
    pub records: PendingRecords,
}

impl Rotation {
    pub fn new(name: RotatedName, options: &ExportOptions) -> Self {
        let mut rotation = Self {
            name,
            has_record_time: options.file_mode != FileMode::Append,
            now_ns: 0,
            start_ns: 0,
            end_ns: 0,
            part: PathBuf::new(),
            length: 0,
            records: PendingRecords::default(),
        };
        rotation.read_clock();
        rotation
    }

    /// Whether files have the times of their records.
    pub fn has_record_time(&self) -> bool {
        self.has_record_time
    }

    /// Reads the system's clock, if it is the time.
    pub fn read_clock(&mut self) {
        if !self.has_record_time {
            self.now_ns = now_ns();
        }
    }

    /// Advances the time to the end of a record, if that is the time.
    pub fn advance(&mut self, flow: &FlowRecord) {
        if self.has_record_time {
            self.now_ns = self.now_ns.max(flow.end_ns());
        }
    }

    /// Whether the file has reached its time or its size. A clock that was set back ends it, too.
    pub fn is_over(&self) -> bool {
        !(self.start_ns..self.end_ns).contains(&self.now_ns)
            || self.name.settings.bytes.is_some_and(|bytes| self.length >= bytes)
    }

    /// Begins a file: calls `open` with temporary paths until it returns a file. It returns `None` for
    /// a path that is in use.
    ///
    /// # Errors
    /// Those of `open`. All names are in use.
    pub fn begin<T>(&mut self, mut open: impl FnMut(&Path) -> Result<Option<T>, Error>) -> Result<T, Error> {
        let interval_ns = self.name.settings.interval_ns;
        let start_ns = interval_ns.map_or(self.now_ns, |interval_ns| self.now_ns / interval_ns * interval_ns);
        for number in 0..MAX_FILES_OF_A_NAME {
            let path = self.name.path(start_ns, number);
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            let part = temporary(path);
            if let Some(file) = open(&part)? {
                self.start_ns = start_ns;
                self.end_ns = interval_ns.map_or(u64::MAX, |interval_ns| start_ns.saturating_add(interval_ns));
                (self.part, self.length, self.records) = (part, 0, PendingRecords::default());
                return Ok(file);
            }
        }
        let path = self.name.path(start_ns, 0).display().to_string();
        Err(Error::Io { sink: path, error: io::ErrorKind::AlreadyExists.into() })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// As [`RotatedName::rename`].
    pub fn rename(&self) -> io::Result<PathBuf> {
        self.name.rename(&self.part)
    }
}

/// The path of a file that is being written.
fn temporary(path: PathBuf) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(TEMPORARY_SUFFIX);
    path.into()
}

/// The system's clock, ns since 1970.
fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> Result<RotatedName, String> {
        rotated(path, "100kB")
    }

    fn rotated(path: &str, rotate: &str) -> Result<RotatedName, String> {
        let mut settings = RotationSettings::default();
        settings.add(rotate).unwrap();
        settings.rotation(path).map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_times_or_sizes() {
        let add = |value: &str| {
            let mut settings = RotationSettings::default();
            settings.add(value).map(|()| (settings.interval_ns.map(|ns| ns / NS_PER_SECOND), settings.bytes))
        };
        for (value, expected) in [
            ("1s", (Some(1), None)),
            ("5min", (Some(300), None)),
            ("5m", (Some(300), None)),
            ("1d", (Some(86_400), None)),
            ("64KiB", (None, Some(65_536))),
            ("1GiB", (None, Some(1 << 30))),
            ("1GB", (None, Some(1_000_000_000))),
        ] {
            assert_eq!(add(value), Ok(expected), "{value}");
        }
        for value in ["", "0", "0s", "5", "-1s", "1.5h", "5 m", "5x", "63KiB", "100B", "99999999999999999d"] {
            assert_eq!(add(value), Err(InvalidSink::Rotate(value.into())), "{value}");
        }
    }

    #[test]
    fn names_have_the_utc_time_and_a_number_in_front_of_the_ending() {
        // 2026-11-20 12:05:07 UTC.
        let time_ns = 1_795_176_307 * NS_PER_SECOND;
        for (pattern, expected) in [
            ("f-%Y%m%d-%H%M.csv", ["./f-20261120-1205.csv", "./f-20261120-1205-2.csv"]),
            ("/d/%Y-%j.a.csv.gz", ["/d/2026-324.a.csv.gz", "/d/2026-324-2.a.csv.gz"]),
            ("%M", ["./05", "./05-2"]),
            ("/100%%-%H-%M-%S-of-day", ["/100%-12-05-07-of-day", "/100%-12-05-07-of-day-2"]),
        ] {
            let name = name(pattern).unwrap();
            assert_eq!([0, 2].map(|number| name.path(time_ns, number).display().to_string()), expected);
            for path in expected {
                let file = path.rsplit('/').next().unwrap();
                assert!(name.matches(file) && !name.matches(&format!("{file}x")), "{file}");
            }
            assert!(!name.matches("") && !name.matches("f-2026") && !name.matches("f-20261120-12.csv"), "{pattern}");
        }
    }

    #[test]
    fn names_of_different_intervals_are_different() {
        for (rotate, seconds, example, unique, repeated) in [
            ("1s", 1, "%Y%m%d-%H%M%S", ["%Y%m%d-%H%M%S", "%S%M%H-%j-%Y"], ["%Y%m%d%H%M", "%H%M%S"]),
            ("59s", 59, "%Y%m%d-%H%M%S", ["%Y%m%d-%H%M%S", "%Y-%j-%H%M%S"], ["%Y%m%d%H%M", "%m%d%H%M%S"]),
            ("5m", 300, "%Y%m%d-%H%M", ["%Y%m%d-%H%M", "%Y%j%H%M%S"], ["%Y%m%d%H", "%Y%m%d%M"]),
            ("90m", 5400, "%Y%m%d-%H", ["%Y%m%d%H", "%d.%m.%Y-%H"], ["%Y%m%d", "%M%S"]),
            ("1d", 86_400, "%Y%m%d", ["%Y%m%d", "%Y-%j"], ["%Y%d", "%H"]),
            ("31d", 31 * 86_400, "%Y%m", ["%Y%m", "%Y%j"], ["%m%d", "%Y"]),
            ("366d", 366 * 86_400, "%Y", ["%Y", "%Y%m"], ["%j", "%S"]),
        ] {
            for path in unique {
                let name = rotated(path, rotate).unwrap();
                // From 1970 on, and some hours until 2108.
                for first in [0, (1 << 32) / seconds] {
                    let path = |number: u64| name.path((first + number) * seconds * NS_PER_SECOND, 0);
                    assert!((0..200).all(|number| path(number) != path(number + 1)), "{rotate} {first}");
                }
            }
            for path in repeated {
                let error = rotated(path, rotate).unwrap_err();
                assert!(error.ends_with(&format!("it needs {example}, for example flows-{example}.csv")), "{error}");
            }
        }
        // Files that end at a size get numbers.
        assert!(rotated("%S", "1GiB").is_ok());
    }

    #[test]
    fn invalid_names_are_refused() {
        for (path, expected) in [
            ("flows.csv", "all files would have this name"),
            ("100%%.csv", "all files would have this name"),
            ("f-%Q.csv", "%Q is not a time"),
            ("f-%H.csv%", "% is not a time"),
            ("%Y/f-%H.csv", "the folder of rotated files cannot change"),
            ("-", "standard output cannot be rotated"),
        ] {
            let error = name(path).unwrap_err();
            assert!(error.starts_with(expected), "{path}: {error}");
        }
        let unrotated = |path| RotationSettings::default().rotation(path);
        assert_eq!(unrotated("f-%Y.csv"), Err(InvalidSink::TimeWithoutRotation('Y')));
        assert_eq!(unrotated("100%.csv"), Ok(None));
    }
}
