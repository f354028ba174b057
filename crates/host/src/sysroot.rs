//! Where facts are read from: this machine, a folder with a copy of its files, or a recording.
//!
//! Whatever is read is noted, so that a recording holds exactly what was read ([`Sysroot::recording`]).
//! Always true: nothing outside the folder is read but through links in it; nothing is written; a file that is missing,
//! empty, odd or too long is absent.

use crate::ethtool::Reading;
use crate::recording::{Entry, Recording};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// No file that is read here is longer.
const MOST_OCTETS: u64 = 256 << 10;
/// A recording may be as long as a large machine needs.
const MOST_RECORDED: u64 = 64 << 20;
/// Where ethtool lies if the path of a user does not name it.
const ETHTOOL: [&str; 2] = ["ethtool", "/usr/sbin/ethtool"];
/// An answer of ethtool that was a refusal begins so.
const REFUSED: &str = "not known: ";

/// A place that looks like the root of a machine.
#[derive(Debug)]
pub struct Sysroot {
    place: Place,
    noted: RefCell<Recording>,
}

#[derive(Debug)]
enum Place {
    Live,
    Folder(PathBuf),
    Recorded(Recording),
}

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is there, or it must not be read.
    #[error("{0}: {1}")]
    Absent(PathBuf, std::io::Error),
    /// A file, but not one that `--record` wrote.
    #[error("{0}: neither a folder nor a recording of a machine (its first line must be '# weir machine')")]
    NoRecording(PathBuf),
}

impl Sysroot {
    /// This machine.
    pub fn live() -> Self {
        Self::of(Place::Live)
    }

    /// A folder that holds `sys` and `proc` as a machine does, or a recording.
    ///
    /// # Errors
    /// If there is nothing, or a file that is no recording.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let absent = |error| Error::Absent(path.into(), error);
        if fs::metadata(path).map_err(absent)?.is_dir() {
            return Ok(Self::of(Place::Folder(path.into())));
        }
        let mut octets = Vec::new();
        File::open(path).and_then(|file| file.take(MOST_RECORDED).read_to_end(&mut octets)).map_err(absent)?;
        let recording = Recording::parse(&String::from_utf8_lossy(&octets));
        Ok(Self::of(Place::Recorded(recording.ok_or_else(|| Error::NoRecording(path.into()))?)))
    }

    fn of(place: Place) -> Self {
        Self { place, noted: RefCell::default() }
    }

    /// Whether this is the machine that the program runs on.
    pub fn is_live(&self) -> bool {
        matches!(self.place, Place::Live)
    }

    /// Everything that was read so far, as the text of a recording.
    pub fn recording(&self) -> String {
        self.noted.borrow().text()
    }

    fn note(&self, path: &str, entry: Entry) {
        self.noted.borrow_mut().0.insert(path.into(), entry);
    }

    /// The path in the file system, unless there is none behind this root.
    fn path(&self, path: &str) -> Option<PathBuf> {
        match &self.place {
            Place::Live => Some(path.into()),
            Place::Folder(folder) => Some(folder.join(path.trim_start_matches('/'))),
            Place::Recorded(_) => None,
        }
    }

    /// The text of a file without white space at its end.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.text_until(path, None)
    }

    /// The same, up to a mark: of a file that says the same many times.
    pub(crate) fn text_until(&self, path: &str, mark: Option<&str>) -> Option<String> {
        let text = match &self.place {
            Place::Recorded(recording) => match recording.0.get(path)? {
                Entry::Text(text) => text.clone(),
                _ => return None,
            },
            _ => {
                let path = self.path(path)?;
                // A pipe would be waited for.
                if !fs::metadata(&path).ok()?.is_file() {
                    return None;
                }
                let mut octets = Vec::new();
                File::open(path).ok()?.take(MOST_OCTETS).read_to_end(&mut octets).ok()?;
                String::from_utf8_lossy(&octets).into_owned()
            }
        };
        let text = mark.and_then(|mark| text.split(mark).next()).unwrap_or(&text).trim_end().to_owned();
        self.note(path, Entry::Text(text.clone()));
        Some(text)
    }

    /// A number that a file holds.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        crate::lists::number(&self.text(path)?)
    }

    /// A list of numbers that a file holds.
    pub(crate) fn list(&self, path: &str) -> Option<Vec<u32>> {
        crate::lists::parse_list(&self.text(path)?)
    }

    /// Where a link points, whether or not something is there.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = match &self.place {
            Place::Recorded(recording) => match recording.0.get(path)? {
                Entry::Link(target) => target.clone(),
                _ => return None,
            },
            _ => fs::read_link(self.path(path)?).ok()?.to_str()?.to_owned(),
        };
        self.note(path, Entry::Link(target.clone()));
        Some(target)
    }

    /// Names in a folder, sorted; none if there is none.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let mut names = match &self.place {
            Place::Recorded(recording) => recording.names(folder),
            _ => self.names_unnoted(folder),
        };
        names.sort();
        let mut noted = self.noted.borrow_mut();
        for name in &names {
            // What is a file or a link says so when it is read.
            noted.0.entry(format!("{folder}/{name}")).or_insert(Entry::Folder);
        }
        names
    }

    fn names_unnoted(&self, folder: &str) -> Vec<String> {
        let entries = self.path(folder).and_then(|folder| fs::read_dir(folder).ok());
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// What `ethtool OPTION INTERFACE MORE` says, or why it says nothing.
    pub(crate) fn ethtool(&self, option: &str, interface: &str, more: &[&str]) -> Reading<String> {
        let name = [&[option], more].concat().join(" ");
        let path = format!("/weir/ethtool/{interface}/{name}");
        let said = match &self.place {
            // A name with a dash in front would be an option.
            Place::Live if interface.starts_with('-') => Err(format!("ethtool cannot be asked about '{interface}'")),
            Place::Live => run_ethtool(&[&[option, interface], more].concat()),
            _ => match self.text(&path) {
                Some(text) => text.strip_prefix(REFUSED).map(|why| Err(why.to_owned())).unwrap_or(Ok(text)),
                None => return Reading::Unavailable { reason: "ethtool's answer was not recorded".into() },
            },
        };
        let text = said.as_ref().map_or_else(|why| format!("{REFUSED}{why}"), |said| said.trim_end().to_owned());
        self.note(&path, Entry::Text(text));
        match said {
            Ok(said) => Reading::Value(said),
            Err(reason) => Reading::Unavailable { reason },
        }
    }

    /// Whether a process of this name runs.
    pub(crate) fn runs(&self, process: &str) -> Option<bool> {
        let path = format!("/weir/process/{process}");
        let runs = match &self.place {
            Place::Recorded(_) => self.text(&path)? == "runs",
            _ => {
                let ids =
                    self.names_unnoted("/proc").into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
                let mut names = ids
                    .filter_map(|id| fs::read_to_string(self.path(&format!("/proc/{id}/comm"))?).ok())
                    .map(|name| name.trim_end() == process)
                    .peekable();
                // Without any process nothing is known of one.
                names.peek()?;
                names.any(|is| is)
            }
        };
        self.note(&path, Entry::Text(if runs { "runs" } else { "does not run" }.into()));
        Some(runs)
    }
}

fn run_ethtool(arguments: &[&str]) -> Result<String, String> {
    for program in ETHTOOL {
        let result = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let Ok(output) = result else { continue };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let first = complaint.lines().chain(said.lines()).map(str::trim).find(|line| !line.is_empty());
        return Err(format!("ethtool: {}", first.unwrap_or("failed, and did not say why")));
    }
    Err("ethtool is not installed (apt install ethtool)".into())
}
