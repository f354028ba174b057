//! The file of a pipe output: a FIFO, standard output or a regular file.
//!
//! A FIFO is opened without waiting for its reader, and is opened again when a reader has closed it.

use crate::error::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, OFlags, access};
use rustix::pipe::fcntl_setpipe_size;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What a capture file can begin with: pcap with µs or ns, in either byte order.
const MAGIC: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// The buffer of a pipe: what the system permits every user (/proc/sys/fs/pipe-max-size).
const PIPE_OCTETS: usize = 1 << 20;

#[derive(Debug)]
enum Kind {
    /// A named pipe: another reader may come.
    Fifo(PathBuf),
    /// A regular file, of which the octets after the last whole record are cut off.
    Regular,
    /// Standard output, or a device. An error ends it.
    Stream,
}

/// A file that takes octets, and what to do when it does not.
#[derive(Debug)]
pub(crate) struct PipeFile {
    file: Option<File>,
    kind: Kind,
}

impl PipeFile {
    /// Opens the file at a path, which is created if there is none; `-` is standard output.
    ///
    /// # Errors
    /// It cannot be opened, or has other content than packets.
    pub fn open(output: &str, path: &Path) -> Result<Self, Error> {
        let failed = |error| Error::File(output.into(), error);
        if path == Path::new("-") {
            return Self::standard_output().map_err(failed);
        }
        let kind = fs::metadata(path).map(|metadata| metadata.file_type()).ok();
        if kind.is_some_and(|kind| kind.is_fifo()) {
            let mut fifo = Self { file: None, kind: Kind::Fifo(path.into()) };
            // Without a reader it cannot be opened yet.
            return match fifo.open_fifo() {
                Err(error) if !is_without_reader(&error) => Err(failed(error)),
                _ => Ok(fifo),
            };
        }
        let is_regular = kind.is_none_or(|kind| kind.is_file());
        let mut options = OpenOptions::new();
        // An existing file is read before it is truncated. Other users cannot read packets.
        options.read(is_regular).write(true).create(true).truncate(false).mode(0o640);
        let mut file = options.open(path).map_err(failed)?;
        if is_regular {
            if !is_empty_or_capture(&mut file).map_err(failed)? {
                return Err(Error::OtherContent(output.into()));
            }
            file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        }
        Ok(Self { file: Some(file), kind: if is_regular { Kind::Regular } else { Kind::Stream } })
    }

    /// Checks that [`PipeFile::open`] can open it, and creates nothing.
    ///
    /// # Errors
    /// As [`PipeFile::open`].
    pub fn check(output: &str, path: &Path) -> Result<(), Error> {
        let failed = |error| Error::File(output.into(), error);
        if path == Path::new("-") {
            return Ok(());
        }
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Ok(_) => access(path, Access::WRITE_OK).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                return access(folder, Access::WRITE_OK | Access::EXEC_OK)
                    .map_err(|error| Error::NotCreated(output.into(), folder.into(), error.into()));
            }
            Err(error) => return Err(failed(error)),
        }
        if path.is_file() && !File::open(path).and_then(|mut file| is_empty_or_capture(&mut file)).map_err(failed)? {
            return Err(Error::OtherContent(output.into()));
        }
        Ok(())
    }

    fn standard_output() -> io::Result<Self> {
        // A pipe is opened again, so that not waiting for it concerns no other program that writes it.
        let own = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open("/proc/self/fd/1");
        let file = match own {
            Ok(file) if file.metadata()?.file_type().is_fifo() => {
                enlarge(&file);
                file
            }
            _ => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        };
        Ok(Self { file: Some(file), kind: Kind::Stream })
    }

    fn open_fifo(&mut self) -> io::Result<()> {
        if let Kind::Fifo(path) = &self.kind {
            let flags = OFlags::NONBLOCK.bits() as i32;
            let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
            enlarge(&file);
            self.file = Some(file);
        }
        Ok(())
    }

    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Opens a FIFO whose reader was missing. Returns whether it has one now.
    ///
    /// # Errors
    /// It cannot be opened, whether it has a reader or not.
    pub fn reopen(&mut self) -> io::Result<bool> {
        match self.open_fifo() {
            Err(error) if !is_without_reader(&error) => Err(error),
            _ => Ok(self.is_open()),
        }
    }

    /// Writes some of the octets: 0 if the reader is slow.
    ///
    /// # Errors
    /// The file takes none, now or for ever.
    pub fn write(&mut self, octets: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(ErrorKind::BrokenPipe.into()) };
        match file.write_vectored(octets) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            written => written,
        }
    }

    /// Waits until the reader takes octets, at most this long.
    pub fn wait_for_room(&self, timeout: Duration) {
        self.poll(PollFlags::OUT, timeout);
    }

    /// Waits this long, but only until a pipe has no reader any more. Returns whether it has none.
    pub fn wait_for_end(&self, timeout: Duration) -> bool {
        if self.file.is_none() {
            thread::sleep(timeout);
        }
        self.poll(PollFlags::empty(), timeout).contains(PollFlags::ERR)
    }

    fn poll(&self, events: PollFlags, timeout: Duration) -> PollFlags {
        let Some(file) = &self.file else { return PollFlags::empty() };
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut file = [PollFd::new(file, events)];
        // If it fails, the next write says why.
        poll(&mut file, Some(&timeout)).map_or(PollFlags::empty(), |_| file[0].revents())
    }

    /// Ends what a failed write began, `incomplete` octets of a record: cuts them off a regular file, so
    /// that it stays readable, and closes everything else.
    pub fn fail(&mut self, incomplete: u64) {
        match (&self.kind, &mut self.file) {
            (Kind::Regular, Some(file)) => {
                let whole = file.stream_position().unwrap_or(0).saturating_sub(incomplete);
                // If it fails, so does the next write.
                let _ = file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole)));
            }
            _ => self.file = None,
        }
    }
}

/// Gives a pipe a larger buffer, as far as the system permits it.
fn enlarge(pipe: &File) {
    let _ = fcntl_setpipe_size(pipe, PIPE_OCTETS);
}

/// Whether opening failed because the FIFO has no reader.
fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

fn is_empty_or_capture(file: &mut File) -> io::Result<bool> {
    let mut magic = Vec::new();
    file.take(4).read_to_end(&mut magic)?;
    Ok(magic.is_empty() || MAGIC.iter().any(|known| magic == known))
}
