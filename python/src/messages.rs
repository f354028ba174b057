//! What a run writes to standard error: a file in memory, so that no thread has to read it.

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// Octets that are read at a time: the last ones, if there are more.
const MESSAGE_BYTES: u64 = 1 << 16;

/// Messages of a run, and how far they were read.
pub struct Messages {
    file: File,
    read: u64,
}

impl Messages {
    /// None yet.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("weir-messages", MemfdFlags::CLOEXEC)?;
        Ok(Self { file: file.into(), read: 0 })
    }

    /// Where the program writes them.
    pub fn standard_error(&self) -> io::Result<Stdio> {
        Ok(self.file.try_clone()?.into())
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.read == 0
    }

    /// The lines since the last call; `None` without any. The memory of earlier ones is released.
    pub fn next(&mut self, is_at_end: bool) -> Option<String> {
        let length = self.file.metadata().ok()?.len();
        let start = self.read.max(length.saturating_sub(MESSAGE_BYTES));
        let mut octets = vec![0; usize::try_from(length - start).ok()?];
        self.file.read_exact_at(&mut octets, start).ok()?;
        if !is_at_end {
            // What has no end of line yet is for the next call.
            octets.truncate(octets.iter().rposition(|octet| *octet == b'\n').map_or(0, |end| end + 1));
        }
        self.read = start + octets.len() as u64;
        // A file system in memory can release a part of a file.
        let _ = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, self.read.max(1));
        sentences(&String::from_utf8_lossy(&octets))
    }
}

/// The sentences of the program, without its name and what helps on a command line only.
fn sentences(text: &str) -> Option<String> {
    let line = |line: &str| {
        let line =
            ["weir: ", "error: ", "warning: "].iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
        line.trim_end().to_owned()
    };
    let is_for_terminals = |line: &&str| line.starts_with("For more information, try") || line.starts_with("Usage: ");
    let lines: Vec<String> = text.lines().filter(|line| !is_for_terminals(line)).map(line).collect();
    let text = lines.join("\n");
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}
