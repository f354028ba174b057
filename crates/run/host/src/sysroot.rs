//! The root of a machine's files: this machine, a folder with a copy of `/sys` and `/proc`, or a
//! recording.
//!
//! Everything that is read is recorded ([`Sysroot::recording`]). Nothing is written. Outside the
//! folder, files are read only through links in it. A file that is missing or unreadable is absent.

use crate::ethtool::Reading;
use crate::recording::{Entry, Recording};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longer files are cut off.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Longer recordings are cut off.
const MAX_RECORDING_BYTES: u64 = 64 << 20;
/// Where to find ethtool: users may have no `/usr/sbin` in their PATH.
const ETHTOOL: [&str; 2] = ["ethtool", "/usr/sbin/ethtool"];
/// In a recording, failures of ethtool begin with this text.
const FAILED: &str = "not known: ";

/// The files of a machine, real or recorded.
#[derive(Debug)]
pub struct Sysroot {
    files: Files,
    /// Everything that was read so far.
    recorded: RefCell<Recording>,
}

#[derive(Debug)]
enum Files {
    Live,
    Folder(PathBuf),
    Recorded(Recording),
}

/// A sysroot that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path does not exist or cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// A file that is not a recording.
    #[error("{0}: neither a directory nor a recording of a machine (the first line must be '# weir machine')")]
    NotARecording(PathBuf),
}

impl Sysroot {
    /// This machine.
    pub fn live() -> Self {
        Self::new(Files::Live)
    }

    /// Opens a folder that contains `sys` and `proc`, or a recording.
    ///
    /// # Errors
    /// The path cannot be read, or it is a file and not a recording.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unreadable = |error| Error::Unreadable(path.into(), error);
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Ok(Self::new(Files::Folder(path.into())));
        }
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_RECORDING_BYTES).read_to_end(&mut bytes)).map_err(unreadable)?;
        let recording = Recording::parse(&String::from_utf8_lossy(&bytes));
        Ok(Self::new(Files::Recorded(recording.ok_or_else(|| Error::NotARecording(path.into()))?)))
    }

    fn new(files: Files) -> Self {
        Self { files, recorded: RefCell::default() }
    }

    /// Whether this is the machine on which the program runs.
    pub fn is_live(&self) -> bool {
        matches!(self.files, Files::Live)
    }

    /// Everything that was read so far, as text of a recording.
    pub fn recording(&self) -> String {
        self.recorded.borrow().text()
    }

    fn record(&self, path: &str, entry: Entry) {
        self.recorded.borrow_mut().0.insert(path.into(), entry);
    }

    /// The path in the file system; `None` for a recording.
    fn path(&self, path: &str) -> Option<PathBuf> {
        match &self.files {
            Files::Live => Some(path.into()),
            Files::Folder(folder) => Some(folder.join(path.trim_start_matches('/'))),
            Files::Recorded(_) => None,
        }
    }

    /// The text of a file, without trailing white space.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.text_until(path, None)
    }

    /// The same up to a mark: for files that repeat themselves.
    pub(crate) fn text_until(&self, path: &str, mark: Option<&str>) -> Option<String> {
        let text = match &self.files {
            Files::Recorded(recording) => match recording.0.get(path)? {
                Entry::Text(text) => text.clone(),
                _ => return None,
            },
            _ => {
                let path = self.path(path)?;
                // Reading a pipe would block.
                if !fs::metadata(&path).ok()?.is_file() {
                    return None;
                }
                let mut bytes = Vec::new();
                File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        let text = mark.and_then(|mark| text.split(mark).next()).unwrap_or(&text).trim_end().to_owned();
        self.record(path, Entry::Text(text.clone()));
        Some(text)
    }

    /// The number in a file.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    /// The list of numbers in a file.
    pub(crate) fn list(&self, path: &str) -> Option<Vec<u32>> {
        crate::lists::parse_list(&self.text(path)?)
    }

    /// The target of a symbolic link, which need not exist.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = match &self.files {
            Files::Recorded(recording) => match recording.0.get(path)? {
                Entry::Link(target) => target.clone(),
                _ => return None,
            },
            _ => fs::read_link(self.path(path)?).ok()?.to_str()?.to_owned(),
        };
        self.record(path, Entry::Link(target.clone()));
        Some(target)
    }

    /// Names in a folder, sorted; empty if the folder does not exist.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let mut names = match &self.files {
            Files::Recorded(recording) => recording.names(folder),
            _ => self.names_unrecorded(folder),
        };
        names.sort();
        let mut recorded = self.recorded.borrow_mut();
        for name in &names {
            // Reading a file or a link replaces this entry.
            recorded.0.entry(format!("{folder}/{name}")).or_insert(Entry::Folder);
        }
        names
    }

    fn names_unrecorded(&self, folder: &str) -> Vec<String> {
        let entries = self.path(folder).and_then(|folder| fs::read_dir(folder).ok());
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// The output of `ethtool OPTION INTERFACE MORE`.
    pub(crate) fn ethtool(&self, option: &str, interface: &str, more: &[&str]) -> Reading<String> {
        let name = [&[option], more].concat().join(" ");
        let path = format!("/weir/ethtool/{interface}/{name}");
        let output = match &self.files {
            // ethtool would take the name for an option.
            Files::Live if interface.starts_with('-') => {
                Reading::Unavailable { reason: format!("ethtool does not accept the interface name '{interface}'") }
            }
            Files::Live => run_ethtool(&[&[option, interface], more].concat()),
            _ => match self.text(&path) {
                Some(text) => match text.strip_prefix(FAILED) {
                    Some(reason) => Reading::Unavailable { reason: reason.into() },
                    None => Reading::Value(text),
                },
                None => return Reading::Unavailable { reason: "the output of ethtool was not recorded".into() },
            },
        };
        let text = match &output {
            Reading::Value(text) => text.trim_end().to_owned(),
            Reading::Unavailable { reason } => format!("{FAILED}{reason}"),
        };
        self.record(&path, Entry::Text(text));
        output
    }

    /// Whether a process with this name runs.
    pub(crate) fn runs(&self, process: &str) -> Option<bool> {
        let path = format!("/weir/process/{process}");
        let runs = match &self.files {
            Files::Recorded(_) => self.text(&path)? == "runs",
            _ => {
                let ids =
                    self.names_unrecorded("/proc").into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
                let mut names = ids
                    .filter_map(|id| fs::read_to_string(self.path(&format!("/proc/{id}/comm"))?).ok())
                    .map(|name| name.trim_end() == process)
                    .peekable();
                // Without any process, `/proc` is missing.
                names.peek()?;
                names.any(|is| is)
            }
        };
        self.record(&path, Entry::Text(if runs { "runs" } else { "does not run" }.into()));
        Some(runs)
    }
}

fn run_ethtool(arguments: &[&str]) -> Reading<String> {
    for program in ETHTOOL {
        let result = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let Ok(output) = result else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Reading::Value(text);
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let first_line = message.lines().chain(text.lines()).map(str::trim).find(|line| !line.is_empty());
        return Reading::Unavailable {
            reason: format!("ethtool: {}", first_line.unwrap_or("failed without a message")),
        };
    }
    Reading::Unavailable { reason: "ethtool is not installed (apt install ethtool)".into() }
}
