//! Opens a folder for recording: a writer, whose thread starts with the first burst, and an output for
//! each pipeline.

use crate::error::Error;
use crate::output::RecorderOutput;
use crate::settings::FolderSettings;
use crate::writer::{Shared, Writer};
use rustix::fs::{Access, FlockOperation, access};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weir_egress::{OutputSpec, PacketOutput, Queue, QueueSettings, WhenFull};
use weir_ledger::OutputDropReason;

/// How often, and how long, another holder of the lock is waited for.
const LOCK_ATTEMPTS: usize = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Longest time that the end of a run waits for the disk.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Access to a folder that is created.
pub const FOLDER_MODE: u32 = 0o750;

/// Opens the output `folder:DIR?size=…&time=…&total=…` for these pipelines: one handle each. `filter`
/// is the capture filter in the syntax of libpcap, which the files have; `retry` is the time from a failed
/// attempt to write to the next one.
///
/// Open it before the process restricts itself, and let it create, write and remove files in the
/// folder, which is created if it is missing.
///
/// # Errors
/// A setting is invalid, the folder cannot be written, or another program records into it.
pub fn open(
    output: &OutputSpec,
    pipelines: usize,
    when_full: &WhenFull,
    retry: Duration,
    filter: Option<&str>,
) -> Result<Vec<Box<dyn PacketOutput>>, Error> {
    let settings = FolderSettings { retry, ..FolderSettings::parse(&output.to_string())? };
    let outputs = RecorderOutput::open(&settings, pipelines, when_full, filter)?;
    Ok(outputs.into_iter().map(|output| Box::new(output) as Box<dyn PacketOutput>).collect())
}

/// Checks that a folder can be written, or created. Creates nothing.
///
/// # Errors
/// A setting is invalid, or the folder cannot be written or created.
pub fn check(output: &OutputSpec) -> Result<(), Error> {
    let FolderSettings { folder, .. } = FolderSettings::parse(&output.to_string())?;
    let writable = |path: &Path| match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        found => found.and_then(|_| Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)),
    };
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let checked = if folder.exists() { writable(&folder) } else { writable(parent) };
    checked.map_err(|error| Error::Folder { folder, error })
}

impl RecorderOutput {
    /// Opens a folder, as [`open`] does.
    ///
    /// # Errors
    /// The folder cannot be written, or another program records into it.
    pub fn open(
        settings: &FolderSettings,
        pipelines: usize,
        when_full: &WhenFull,
        filter: Option<&str>,
    ) -> Result<Vec<Self>, Error> {
        let failed = |error| Error::Folder { folder: settings.folder.clone(), error };
        match DirBuilder::new().mode(FOLDER_MODE).create(&settings.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let lock = File::open(&settings.folder).map_err(failed)?;
        if !lock.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let try_lock = || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let mut locked = try_lock();
        // A search looks at the lock for a moment.
        for _ in 0..LOCK_ATTEMPTS {
            if locked != Err(rustix::io::Errno::WOULDBLOCK) {
                break;
            }
            thread::sleep(LOCK_PAUSE);
            locked = try_lock();
        }
        match locked {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse(settings.folder.clone())),
            locked => locked.map_err(|error| failed(error.into()))?,
        }
        access(&settings.folder, Access::WRITE_OK).map_err(|error| failed(error.into()))?;
        let shared = Arc::<Shared>::default();
        let writer = Writer::new(settings.clone(), filter, shared.clone(), lock).map_err(failed)?;
        let queue_settings = QueueSettings {
            output: settings.name.clone(),
            thread: "weir-recorder",
            when_full: when_full.clone(),
            finish_timeout: FINISH_TIMEOUT,
            give_up_timeout: Duration::ZERO,
            reason_to_abandon: OutputDropReason::WriteFailed,
        };
        let queues = Queue::open(&queue_settings, pipelines, |chunks, _| writer.run(&chunks));
        let (missing, received) = (BTreeMap::new(), BTreeMap::new());
        let output =
            |queue| Self { queue, shared: shared.clone(), missing: missing.clone(), received: received.clone() };
        Ok(queues.into_iter().map(output).collect())
    }
}
