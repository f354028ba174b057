//! Output files. No output overwrites an input or another output.

use crate::error::{Error, OutputError};
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::info;
use weir_capture::SourceSpec;
use weir_export::{Compression, FileMode, OutputFile, SinkSpec, UnusableFile, UnusedFile};

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    StandardOutput,
    File(PathBuf),
    /// A folder in which files are made.
    Folder(PathBuf),
    Network,
    /// A collector to which connections are made at any time.
    Tcp {
        ports: Vec<u16>,
    },
}

impl Target {
    pub fn of_sink(sink: &SinkSpec) -> Self {
        if let Some(folder) = sink.folder() {
            return Self::Folder(folder.into());
        }
        let ports = sink.tcp_ports();
        if !ports.is_empty() {
            return Self::Tcp { ports };
        }
        match sink.path() {
            None => Self::Network,
            Some(_) if sink.is_standard_output() => Self::StandardOutput,
            Some(path) => Self::File(path.into()),
        }
    }

    /// The folder in which records wait for the collector of the sink.
    pub fn spool_of(sink: &SinkSpec) -> Option<Self> {
        sink.spool().map(|folder| Self::Folder(folder.into()))
    }

    /// All targets of a sink: where it writes, and its spool.
    pub fn all_of(sink: &SinkSpec) -> impl Iterator<Item = Self> {
        std::iter::once(Self::of_sink(sink)).chain(Self::spool_of(sink))
    }

    /// Whether the sink opens it also after the start: files, or connections.
    pub fn is_opened_later(sink: &SinkSpec) -> bool {
        sink.is_rotated() || !sink.tcp_ports().is_empty()
    }

    /// Target of a path; `-` is standard output.
    pub fn of_path(path: &Path) -> Self {
        if path == Path::new("-") { Self::StandardOutput } else { Self::File(path.into()) }
    }
}

/// Checks that no output is also an input or another output. Devices may be shared.
pub fn check_targets(sources: &[SourceSpec], targets: &[(String, Target)]) -> Result<(), Error> {
    let inputs: Vec<(&SourceSpec, FileIdentity)> = sources
        .iter()
        .filter_map(|source| {
            let path = source.path()?;
            let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
            Some((source, FileIdentity::of(path)?))
        })
        .collect();
    let mut used: Vec<(&String, FileIdentity)> = Vec::new();
    for (output, target) in targets {
        let identity = match target {
            Target::StandardOutput => Some(FileIdentity::StandardOutput),
            Target::File(path) => FileIdentity::of(path),
            Target::Folder(path) => Some(FileIdentity::New(absolute(&link_target(path)))),
            Target::Network | Target::Tcp { .. } => None,
        };
        let Some(identity) = identity else { continue };
        if let Some((input, _)) = inputs.iter().find(|(_, other)| *other == identity) {
            return Err(OutputError::OverwritesInput { output: output.clone(), input: input.to_string() }.into());
        }
        if let Some((other, _)) = used.iter().find(|(_, other)| *other == identity) {
            return Err(OutputError::SharedOutput { output: output.clone(), other: (*other).clone() }.into());
        }
        used.push((output, identity));
    }
    Ok(())
}

/// Checks that nothing is written into the files and folders that are read, nor into a folder with one of them.
///
/// # Errors
/// An output is there.
pub fn check_outside(inputs: &[PathBuf], targets: &[(String, Target)]) -> Result<(), Error> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| absolute(path));
    let inputs: Vec<PathBuf> = inputs.iter().map(|path| real(path)).collect();
    for (output, target) in targets {
        let (target, is_folder) = match target {
            Target::File(path) => (real(path), false),
            Target::Folder(path) => (real(path), true),
            Target::StandardOutput | Target::Network | Target::Tcp { .. } => continue,
        };
        let meets = |input: &&PathBuf| target.starts_with(input) || is_folder && input.starts_with(&target);
        if let Some(input) = inputs.iter().find(meets) {
            let (output, input) = (output.clone(), input.display().to_string());
            return Err(OutputError::OverwritesInput { output, input }.into());
        }
    }
    Ok(())
}

/// Opens a file for an output. Waits for the reader of a named pipe until `stop` is set.
pub fn open(path: &Path, mode: FileMode, stop: &AtomicBool) -> Result<File, Error> {
    open_output(path, mode, stop).map(OutputFile::keep)
}

fn open_output(path: &Path, mode: FileMode, stop: &AtomicBool) -> Result<OutputFile, Error> {
    let name = path.display().to_string();
    let open = || Ok(weir_export::open_file(&name, path, mode, None)?);
    wait_for_reader(&name, stop, open)
}

/// The same as [`open`]; a file that was created goes to `unused` until all outputs are open.
pub fn open_unused(
    path: &Path,
    mode: FileMode,
    stop: &AtomicBool,
    unused: &mut Vec<UnusedFile>,
) -> Result<File, Error> {
    let OutputFile { file, unused: created } = open_output(path, mode, stop)?;
    unused.extend(created);
    Ok(file)
}

/// Opens a regular file for reading. A named pipe and a device are refused, and do not wait.
///
/// # Errors
/// The file cannot be opened, or is something else: `InvalidInput`.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file");
    if kind.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Opens a file for a report. The content that `mode` lets replace stays until [`truncate`]. Waits as [`open`].
pub fn open_report(path: &Path, mode: FileMode, stop: &AtomicBool) -> Result<File, Error> {
    open(path, keeping_content(mode), stop)
}

/// The mode that refuses the same files, but does not empty them.
pub fn keeping_content(mode: FileMode) -> FileMode {
    if mode == FileMode::Overwrite { FileMode::Append } else { mode }
}

/// Writes a short text to a file.
///
/// # Errors
/// The file cannot be opened or `mode` refuses it; it cannot be written.
pub fn write(path: &Path, mode: FileMode, text: &str) -> Result<(), Error> {
    let file = open_report(path, mode, &AtomicBool::new(false))?;
    truncate(file).and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| Error::file(path, error))
}

/// Calls `open` again and again until a program reads the output, if it is a named pipe. A signal ends
/// the wait.
///
/// # Errors
/// Those of `open`. `stop` is set before there is a reader.
pub fn wait_for_reader<T>(
    output: &str,
    stop: &AtomicBool,
    mut open: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    const RETRY_INTERVAL: Duration = Duration::from_millis(20);
    const LOG_AFTER: Duration = Duration::from_secs(1);
    let (started, mut logged) = (Instant::now(), false);
    loop {
        match open() {
            Err(
                Error::Sink { error: weir_export::Error::File { problem: UnusableFile::NoReader, .. } }
                | Error::Egress(weir_egress::Error::NoReader(_)),
            ) => {}
            opened => return opened,
        }
        if stop.load(Ordering::Relaxed) {
            return Err(OutputError::NoPipeReader(output.into()).into());
        }
        if !logged && started.elapsed() >= LOG_AFTER {
            logged = true;
            info!(output, "waiting for a program that reads this pipe");
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Empties a regular file. A pipe has no length.
pub fn truncate(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// A file in which each write is a frame of its own.
pub struct CompressedFile(pub File, pub Compression);

impl Write for CompressedFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.write_all(&self.1.compress(octets))?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A file to which texts are appended. A text that cannot be written whole is removed again, except
/// from a pipe.
pub struct WholeTexts(pub File);

/// As [`WholeTexts`], but of a text that cannot be written whole the whole lines stay.
pub struct WholeLines(pub File);

impl Write for WholeTexts {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(text)
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        let length = self.0.metadata()?.len();
        // Fails for a pipe.
        self.0.write_all(text).inspect_err(|_| self.0.set_len(length).unwrap_or(()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for WholeLines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(text)
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        let length = self.0.metadata()?.len();
        self.0.write_all(text).inspect_err(|_| {
            let written = self.0.metadata().map_or(0, |file| file.len().saturating_sub(length)) as usize;
            let lines =
                text[..written.min(text.len())].iter().rposition(|&octet| octet == b'\n').map_or(0, |at| at + 1);
            // Fails for a pipe.
            self.0.set_len(length + lines as u64).unwrap_or(());
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    StandardOutput,
    /// A regular file or a FIFO: device and inode.
    Existing(u64, u64),
    New(PathBuf),
}

impl FileIdentity {
    /// `None` for devices and directories.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(file) if is_standard_output(&file) => Some(Self::StandardOutput),
            Ok(file) if is_file_or_fifo(&file) => Some(Self::Existing(file.dev(), file.ino())),
            Ok(_) => None,
            Err(_) => Some(Self::New(absolute(&link_target(path)))),
        }
    }
}

/// Whether a file or a pipe is standard output under another name, such as `/dev/stdout`.
fn is_standard_output(file: &Metadata) -> bool {
    is_file_or_fifo(file) && is_stream(file, io::stdout().as_fd())
}

/// Whether a path is standard error, where the log goes: a terminal, a file or a pipe.
pub fn is_standard_error(path: &Path) -> bool {
    let is_shown = |file: &Metadata| is_file_or_fifo(file) || io::stderr().is_terminal();
    fs::metadata(path).is_ok_and(|file| is_shown(&file) && is_stream(&file, io::stderr().as_fd()))
}

fn is_file_or_fifo(file: &Metadata) -> bool {
    file.is_file() || file.file_type().is_fifo()
}

fn is_stream(file: &Metadata, stream: BorrowedFd<'_>) -> bool {
    let stream = stream.try_clone_to_owned().and_then(|stream| File::from(stream).metadata());
    stream.is_ok_and(|stream| (stream.dev(), stream.ino()) == (file.dev(), file.ino()))
}

/// The file that a symbolic link names, which may not exist.
fn link_target(path: &Path) -> PathBuf {
    /// As many as the kernel follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path.pop();
        path.push(target);
    }
    path
}

/// The absolute path of a file that does not exist, with the links of its directory resolved.
pub fn absolute(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(directory), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.into(),
    }
}
