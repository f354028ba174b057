//! Configuration files of probes: whether they can be read, and whether the machine has what they need: folders with
//! space that may be written, each for one probe.

use crate::arguments::{Output, ProbeOptions};
use crate::files::{self, Target};
use crate::probe;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_capture::SourceSpec;
use weir_host::{Finding, MACHINE, Machine, Severity};
use weir_text::units;

/// Where packages have the configuration files of services.
pub const FOLDER: &str = "/etc/weir";
/// Less space than this is a warning: some minutes of records.
const LITTLE_OCTETS: u64 = 256 << 20;

/// What the probes of the files need of the kernel, each with what needs it.
#[derive(Default)]
pub struct Needs {
    pub capabilities: Vec<&'static str>,
    /// Whether there is a probe at all.
    pub has_probes: bool,
    pub af_xdp: Vec<String>,
    pub ipv6: Vec<String>,
    /// Interfaces of sources, without those of DPDK.
    pub interfaces: Vec<String>,
    /// Those of them that have to be there when the probe starts: without `wait = true`.
    required: Vec<String>,
}

/// A folder that a probe writes to: a store, a spool, or that of a file.
struct Written {
    /// The file or folder, as in the configuration.
    path: PathBuf,
    file: String,
    /// One probe at a time may write to it.
    is_exclusive: bool,
}

/// The configuration files that are named, or those of the folder.
pub fn paths(named: Option<&Path>) -> Vec<PathBuf> {
    let path = named.unwrap_or(Path::new(FOLDER));
    if named.is_some() && !path.is_dir() {
        return vec![path.into()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("toml"))).collect();
    files.sort();
    if named.is_some() && files.is_empty() {
        // The finding says that it cannot be read, or is a folder.
        files.push(path.into());
    }
    files
}

/// Findings about the files, and what their probes need.
pub fn check(files: &[PathBuf]) -> (Vec<Finding>, Needs) {
    let (mut findings, mut needs, mut written) = (Vec::new(), Needs::default(), Vec::new());
    let parsed: Vec<_> = files.iter().map(|path| (path, probe::options_of_file(path))).collect();
    let rules: Vec<PathBuf> = parsed.iter().filter_map(|(_, options)| options.as_ref().ok()?.rules.clone()).collect();
    for (path, options) in parsed {
        // A file of rules beside that of a probe.
        if rules.iter().any(|rules| real(rules) == real(path)) {
            continue;
        }
        let name = path.display().to_string();
        match options {
            Ok(options) => {
                needs.has_probes = true;
                needs.add(&options);
                written.extend(targets(&options, &name));
                let (inputs, outputs) = (options.inputs.len() as u64, options.sinks.outputs.len() as u64);
                let (inputs, outputs) = (units::count(inputs, "source"), units::count(outputs, "sink"));
                findings.push(Finding::ok("configuration", MACHINE, format!("{name}: {inputs}, {outputs}")));
            }
            Err(error) => {
                let impact = "A probe with this file does not start, and one that runs keeps its old configuration.";
                let finding = |line: &str| Finding::new(Severity::Critical, "configuration", MACHINE, line, impact);
                findings.extend(error.to_string().lines().map(finding));
            }
        }
    }
    findings.extend(shared(&written));
    findings.extend(written.iter().filter_map(space));
    (findings, needs)
}

impl Needs {
    fn add(&mut self, options: &ProbeOptions) {
        let live = options.inputs.iter().filter_map(SourceSpec::live);
        for live in live.filter(|live| !live.is_dpdk()) {
            let needed = live.needed_capabilities().iter().filter(|name| !self.capabilities.contains(name));
            self.capabilities.extend(needed.copied().collect::<Vec<_>>());
            self.af_xdp.extend(live.is_af_xdp().then(|| live.to_string()));
            let names = live.devices().iter().map(|device| device.name.clone());
            self.interfaces.extend(names.clone());
            self.required.extend(names.filter(|_| !options.wait));
        }
        self.interfaces.sort();
        self.interfaces.dedup();
        self.required.sort();
        self.required.dedup();
        let listens = options.listen.filter(|address| address.is_ipv6());
        self.ipv6.extend(listens.map(|address| format!("listen = \"{address}\"")));
        let sinks = options.sinks.outputs.iter().flat_map(Output::sinks).chain(&options.sinks.transactions);
        self.ipv6.extend(sinks.map(|sink| sink.spec.name().to_owned()).filter(|name| name.contains("://[")));
    }
}

/// Interfaces that have to be there, and are not.
pub fn absent(needs: &Needs, machine: &Machine) -> Vec<Finding> {
    let is_absent = |name: &&String| !machine.nics.iter().any(|nic| nic.name == **name);
    let impact = "The probe does not start. Name another one, or let it wait (wait = true).";
    let finding = |name: &String| {
        let summary = format!("there is no interface {name}, which a configuration names");
        Finding::new(Severity::Critical, "interface", name, summary, impact)
    };
    needs.required.iter().filter(is_absent).map(finding).collect()
}

fn targets(options: &ProbeOptions, file: &str) -> Vec<Written> {
    let sinks = options.sinks.outputs.iter().flat_map(Output::sinks).chain(&options.sinks.transactions);
    let of_target = |target| match target {
        Target::Folder(path) => Some(Written { path, file: file.into(), is_exclusive: true }),
        // Devices and pipes have no space of their own.
        Target::File(path) if fs::metadata(&path).is_ok_and(|found| !found.is_file()) => None,
        Target::File(path) => Some(Written { path, file: file.into(), is_exclusive: false }),
        Target::StandardOutput | Target::Network | Target::Tcp { .. } => None,
    };
    sinks.flat_map(|sink| Target::all_of(&sink.spec).collect::<Vec<_>>()).filter_map(of_target).collect()
}

/// A path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| files::absolute(path))
}

/// Folders that several files name, and those that a running program has locked.
fn shared(written: &[Written]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, one) in written.iter().enumerate().filter(|(_, one)| one.is_exclusive) {
        let other = written[at + 1..].iter().find(|other| other.is_exclusive && real(&other.path) == real(&one.path));
        let folder = one.path.display();
        if let Some(other) = other {
            let summary = format!("{} and {} both write to {folder}", one.file, other.file);
            let impact = "A store or spool has one writer: the probe that starts second does not start. Give each a folder of \
                          its own.";
            findings.push(Finding::new(Severity::Critical, "store", MACHINE, summary, impact));
        } else if let Some(process) = writer(&one.path) {
            findings.push(Finding::ok("store", MACHINE, format!("process {process} writes to {folder}")));
        }
    }
    findings
}

/// The process that has locked a store, by the list of all locks.
fn writer(folder: &Path) -> Option<String> {
    let lock = fs::metadata(folder.join(".weir").join("lock")).ok()?;
    let inode = format!(":{}", lock.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF
    let of_lock = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(5)?.ends_with(&inode)).then(|| words[4].to_owned())
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
        let impact = "Records are lost while it is. Free some space, or limit what is kept (keep= of a store, limit= of a spool).";
        return Some(Finding::new(Severity::Critical, "space", MACHINE, summary, impact));
    }
    if free < LITTLE_OCTETS && of > 0 {
        let summary = format!("{file}: the file system of {name} has only {free_text} left");
        let impact = "When it is full, records are lost. Free some space, or limit what is kept (keep= of a store, limit= of a \
                      spool).";
        return Some(Finding::new(Severity::Warning, "space", MACHINE, summary, impact));
    }
    Some(Finding::ok("space", MACHINE, format!("{file}: {name} has {free_text} left")))
}
