//! Folders that probes write to: whether there is space, on a file system that may be written, and one writer for each.

use crate::actions::Actions;
use crate::arguments::ProbeOptions;
use crate::files::{self, Target};
use rustix::fs::{StatVfsMountFlags, major, minor, statvfs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_host::{Finding, MACHINE, Severity};
use weir_text::units;

/// Less space than this is a warning: some minutes of records.
const LITTLE_OCTETS: u64 = 256 << 20;

/// What a probe writes to: a store, a spool, packets of the recorder, a file.
pub struct Written {
    /// The file or folder, as in the configuration.
    path: PathBuf,
    /// The configuration.
    file: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A store or spool: one probe at a time.
    Records,
    /// A folder of the recorder: one probe at a time.
    Packets,
    File,
}

/// What a probe writes to. Rules that cannot be read name nothing.
pub fn of_probe(options: &ProbeOptions, file: &str) -> Vec<Written> {
    let targets = options.sinks.all().flat_map(|sink| Target::all_of(&sink.spec));
    let of_target = |target| match target {
        Target::Folder(path) => Some((path, Kind::Records)),
        // Devices and pipes have no space of their own.
        Target::File(path) if fs::metadata(&path).is_ok_and(|found| !found.is_file()) => None,
        Target::File(path) => Some((path, Kind::File)),
        Target::StandardOutput | Target::Network | Target::Tcp { .. } => None,
    };
    let actions = options.rules.as_deref().and_then(|rules| Actions::load(rules).ok());
    let recorded = actions.iter().flat_map(Actions::folders).map(|path| (path, Kind::Packets));
    let written = targets.filter_map(of_target).chain(recorded);
    written.map(|(path, kind)| Written { path, file: file.into(), kind }).collect()
}

/// All findings.
pub fn check(written: &[Written]) -> Vec<Finding> {
    let mut findings = shared(written);
    findings.extend(written.iter().filter_map(space));
    findings
}

/// A path without links, as far as it is there.
pub fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| files::absolute(path))
}

/// Folders that several files name, and those that a running program has locked.
fn shared(written: &[Written]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_exclusive = |one: &&Written| one.kind != Kind::File;
    for (at, one) in written.iter().enumerate().filter(|(_, one)| is_exclusive(one)) {
        let other = written[at + 1..].iter().filter(is_exclusive).find(|other| real(&other.path) == real(&one.path));
        let folder = one.path.display();
        let check = if one.kind == Kind::Packets { "recorder" } else { "store" };
        if let Some(other) = other {
            let summary = format!("{} and {} both write to {folder}", one.file, other.file);
            let impact = "A store, a spool and a folder of the recorder have one writer: the probe that starts second does not \
                          start. Give each a folder of its own.";
            findings.push(Finding::new(Severity::Critical, check, MACHINE, summary, impact));
        } else if let Some(process) = writer(one) {
            findings.push(Finding::ok(check, MACHINE, format!("process {process} writes to {folder}")));
        }
    }
    findings
}

/// The process that has locked a folder, by the list of all locks.
fn writer(Written { path, kind, .. }: &Written) -> Option<String> {
    let lock = match kind {
        Kind::Records => {
            [weir_store::lock_of(path), weir_export::lock_of_spool(path)].into_iter().find(|lock| lock.exists())?
        }
        Kind::Packets => path.clone(),
        Kind::File => return None,
    };
    let found = fs::metadata(lock).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF
    let of_lock = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (*words.get(5)? == file).then(|| words[4].to_owned())
    };
    locks.lines().find_map(of_lock)
}

/// Whether there is space, on a file system that may be written.
fn space(Written { path, file, .. }: &Written) -> Option<Finding> {
    let path = files::absolute(path);
    let existing = path.ancestors().find(|path| path.exists())?;
    let found = statvfs(existing).ok()?;
    let name = path.display();
    let (free, of) = (found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize));
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let summary = format!("{file}: {name} is on a file system that is mounted read-only");
        let impact =
            "The probe does not start. Write elsewhere, such as /var/lib/weir, or mount it so that it can be written.";
        return Some(Finding::new(Severity::Critical, "space", MACHINE, summary, impact));
    }
    let free_text = units::quantity(free, "B");
    if free == 0 || found.f_favail == 0 && found.f_files > 0 {
        let summary = format!("{file}: the file system of {name} is full");
        let impact = "Records are lost while it is. Free some space, or limit what is kept (keep= of a store, limit= of a spool, total= of the recorder).";
        return Some(Finding::new(Severity::Critical, "space", MACHINE, summary, impact));
    }
    if free < LITTLE_OCTETS && of > 0 {
        let summary = format!("{file}: the file system of {name} has only {free_text} left");
        let impact = "When it is full, records are lost. Free some space, or limit what is kept (keep= of a store, limit= of a \
                      spool, total= of the recorder).";
        return Some(Finding::new(Severity::Warning, "space", MACHINE, summary, impact));
    }
    Some(Finding::ok("space", MACHINE, format!("{file}: {name} has {free_text} left")))
}
