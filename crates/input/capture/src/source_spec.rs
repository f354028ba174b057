//! What a command is given to read, as the user names it. It is parsed once.

use crate::live::LiveSpec;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A source: live traffic (`af_packet:eth0`), generated traffic (`synth:mix`), a file of packet records
/// (`packets:FILE`) or a capture.
#[derive(Clone, Debug)]
pub enum SourceSpec {
    /// One or more receive queues.
    Live(LiveSpec),
    /// The traffic profile with its settings.
    Generated(String),
    /// The file; `-` is standard input.
    Packets(PathBuf),
    /// `-` is standard input.
    Capture(PathBuf),
}

impl SourceSpec {
    /// The live source, if it is one.
    pub fn live(&self) -> Option<&LiveSpec> {
        if let Self::Live(live) = self { Some(live) } else { None }
    }

    /// The path of a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Packets(path) | Self::Capture(path) => Some(path),
            Self::Live(_) | Self::Generated(_) => None,
        }
    }
}

impl From<OsString> for SourceSpec {
    fn from(text: OsString) -> Self {
        if let Some(live) = text.to_str().and_then(|text| text.parse().ok()) {
            Self::Live(live)
        } else if let Some(traffic) = text.to_str().and_then(|text| text.strip_prefix("synth:")) {
            Self::Generated(traffic.into())
        } else if let Some(path) = packets_path(&text) {
            Self::Packets(path.into())
        } else {
            Self::Capture(text.into())
        }
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(live) => live.fmt(f),
            Self::Generated(traffic) => write!(f, "synth:{traffic}"),
            Self::Packets(path) => write!(f, "packets:{}", path.display()),
            Self::Capture(path) => path.display().fmt(f),
        }
    }
}

/// The path in `packets:PATH`.
pub fn packets_path(name: &OsStr) -> Option<&Path> {
    name.as_bytes().strip_prefix(b"packets:").map(|path| Path::new(OsStr::from_bytes(path)))
}
