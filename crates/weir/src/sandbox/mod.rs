//! Restricts the process to what it needs after start: system calls with seccomp, files and TCP
//! connections with Landlock.
//!
//! Input: the files that may be opened later. The restrictions hold for the calling thread and for
//! those that it starts from now on, and cannot be lifted. Open files stay open. They are a second
//! line of defense, behind the dropped privileges: for code that takes over the process. What the
//! kernel does not offer is left out, with a line in the log.
//!
//! A forbidden call returns an error (EPERM from seccomp, EACCES from Landlock) and does not end
//! the process: if a library makes a call that is not on the list, one operation fails visibly, and
//! the records in the flow cache are not lost. Only a call of another architecture (`int 0x80`),
//! which no library makes, ends it (SIGSYS).

mod system_calls;

use crate::files::{Target, absolute};
use landlock::{
    ABI, Access, AccessFs, AccessNet, NetPort, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, path_beneath_rules,
};
use std::fs;
use std::path::{Path, PathBuf};
use tracing::{debug, info, warn};
use weir_capture::{LiveSpec, SourceSpec};

/// Readable after start: libraries and files of name resolution (NSS modules, libpcap), devices
/// without content, the maps of this process, for the backtrace of a panic, and available memory.
const READABLE: [&str; 11] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/sys",
    "/proc/self",
    "/proc/sys",
    "/proc/meminfo",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
];
/// Name servers answer over TCP what does not fit a datagram. Only `weir bypass` and sinks over TCP use
/// other TCP connections.
const DNS_PORT: u16 = 53;

/// What the log says.
const INCOMPLETE: &str = "sandbox is incomplete, the kernel does not offer all of it";
/// What that means for a probe.
pub const INCOMPLETE_EFFECT: &str =
    "permissions of files and the service manager alone limit what code could do that takes over the probe";

/// What the kernel does not offer of a sandbox. It is tried on a thread that ends.
pub fn missing_in_kernel() -> Vec<String> {
    let restrictions = Restrictions::FilesAndCalls { accepts: false };
    let tried = std::thread::spawn(move || Sandbox::restrict(&[], &[], &[], restrictions).1);
    tried.join().expect("the trial does not panic")
}

/// What is restricted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restrictions {
    FilesAndCalls {
        /// Whether connections are accepted on a socket that listens already (`--listen`).
        accepts: bool,
    },
    /// Files and calls, of a client that connects to this port.
    Client { port: u16 },
    /// Only files: the drivers of DPDK make system calls that depend on the device.
    Files,
}

impl Restrictions {
    /// What can be restricted with these sources, and with outputs of packets that use DPDK or not.
    pub fn of(sources: &[SourceSpec], sends_by_dpdk: bool, accepts: bool) -> Self {
        let mut live = sources.iter().filter_map(SourceSpec::live);
        if sends_by_dpdk || live.any(LiveSpec::is_dpdk) { Self::Files } else { Self::FilesAndCalls { accepts } }
    }
}

/// What a restricted process may still open.
pub struct Sandbox {
    /// Directories in which files can be opened for writing; devices and pipes.
    writable: Vec<PathBuf>,
    /// Those of them in which folders can be made.
    folders: Vec<PathBuf>,
    /// Ports of TCP connections.
    ports: Vec<u16>,
}

impl Sandbox {
    /// As [`Sandbox::of_service`]; the log says at level info what the kernel does not offer.
    pub fn enter(outputs: &[Target], pipes: &[PathBuf], read_again: &[&Path], restrictions: Restrictions) -> Self {
        let (sandbox, missing) = Self::restrict(outputs, pipes, read_again, restrictions);
        if !missing.is_empty() {
            info!(missing = missing.join(", "), "{INCOMPLETE}");
        }
        sandbox
    }

    /// Restricts this thread and those that it starts from now on. The log warns of what the kernel does not offer,
    /// also with `--quiet`.
    pub fn of_service(outputs: &[Target], pipes: &[PathBuf], read_again: &[&Path], restrictions: Restrictions) -> Self {
        let (sandbox, missing) = Self::restrict(outputs, pipes, read_again, restrictions);
        if !missing.is_empty() {
            warn!(missing = missing.join(", "), "{INCOMPLETE}: {INCOMPLETE_EFFECT}");
        }
        sandbox
    }

    /// Restricts, and returns what is missing. Files can be written in the
    /// directories of the `outputs`, to `pipes` and in folders, and read in those of the files that are
    /// `read_again`.
    fn restrict(
        outputs: &[Target],
        pipes: &[PathBuf],
        read_again: &[&Path],
        restrictions: Restrictions,
    ) -> (Self, Vec<String>) {
        let pipes = pipes.iter().filter_map(|path| fs::canonicalize(path).ok());
        let writable: Vec<PathBuf> = outputs.iter().filter_map(writable_path).chain(pipes).collect();
        let folders: Vec<PathBuf> =
            outputs.iter().filter(|output| matches!(output, Target::Folder(_))).filter_map(writable_path).collect();
        let mut missing = Vec::new();
        let to_collectors =
            outputs.iter().filter_map(|output| if let Target::Tcp { ports } = output { Some(ports) } else { None });
        let mut ports: Vec<u16> = to_collectors.flatten().copied().collect();
        let (port, has_http) = match restrictions {
            Restrictions::FilesAndCalls { accepts } => (None, Some(accepts)),
            Restrictions::Client { port } => (Some(port), Some(true)),
            Restrictions::Files => (None, None),
        };
        ports.extend(port);
        match restrict_files(&writable, &folders, read_again, &ports) {
            Ok(RulesetStatus::NotEnforced) => missing.push("Landlock".to_owned()),
            Ok(status) => debug!(?status, "Landlock restricts files"),
            Err(error) => missing.push(format!("Landlock ({error})")),
        }
        if let Some(has_http) = has_http
            && let Err(error) = system_calls::restrict(has_http)
        {
            missing.push(format!("seccomp ({error})"));
        }
        (Self { writable, folders, ports }, missing)
    }

    /// Whether an output can be opened now.
    pub fn permits(&self, output: &Target) -> bool {
        if let Target::Tcp { ports } = output {
            return ports.iter().all(|port| self.ports.contains(port));
        }
        let writable = if matches!(output, Target::Folder(_)) { &self.folders } else { &self.writable };
        writable_path(output).is_none_or(|path| writable.iter().any(|writable| path.starts_with(writable)))
    }

    /// The directories of [`Sandbox::permits`], for a message.
    pub fn directories(&self) -> String {
        let names: Vec<_> = self.writable.iter().map(|path| path.display().to_string()).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

/// What has to be writable so that an output can be opened: the directory of its file, or a device or
/// pipe itself. `None` if it is no file.
fn writable_path(output: &Target) -> Option<PathBuf> {
    let path = match output {
        Target::File(path) => path,
        // It may be removed, and made again.
        Target::Folder(path) => return directory(path),
        Target::StandardOutput | Target::Network | Target::Tcp { .. } => return None,
    };
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        // An inherited pipe (/dev/stdout) has no path.
        return fs::canonicalize(path).ok();
    }
    directory(path)
}

fn directory(file: &Path) -> Option<PathBuf> {
    absolute(file).parent().map(Path::to_path_buf)
}

fn restrict_files(
    writable: &[PathBuf],
    folders: &[PathBuf],
    read_again: &[&Path],
    ports: &[u16],
) -> Result<RulesetStatus, RulesetError> {
    // Later versions restrict more kinds of access; nothing here depends on them.
    const VERSION: ABI = ABI::V6;
    // The directories of files that may be replaced, and of the files that they are links to.
    let replaced = [Path::new("/etc/resolv.conf")].into_iter().chain(read_again.iter().copied());
    let directories =
        replaced.flat_map(|file| [directory(file), fs::canonicalize(file).ok().as_deref().and_then(directory)]);
    let readable = READABLE.iter().map(PathBuf::from).chain(directories.flatten()).chain(std::env::current_exe());
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile
        | AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Truncate;
    // Folders in folders, and files that move from one to another.
    let write_folders = write | AccessFs::MakeDir | AccessFs::RemoveDir | AccessFs::Refer;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, write))?
        .add_rules(path_beneath_rules(folders, write_folders))?
        .add_rules(
            [DNS_PORT]
                .into_iter()
                .chain(ports.iter().copied())
                .map(|port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))),
        )?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests;
