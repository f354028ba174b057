//! Opens a folder for recording: a writer, whose thread starts with the first burst, and an output for
//! each pipeline.

use crate::block::InterfaceStatistics;
use crate::error::Error;
use crate::queue::{IdleWriter, RecorderOutput};
use crate::settings::FolderSettings;
use crate::writer::{InterfaceInfo, RecorderStatus, Shared, Writer};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use weir_egress::{OutputSpec, PacketOutput, WhenFull};

/// Records packets into a folder.
pub struct Recorder {
    shared: Arc<Shared>,
}

/// Opens the output `folder:DIR?size=…&time=…&total=…` for these pipelines: one handle each.
///
/// Open it before the process restricts itself, and let it create, write and remove files in the
/// folder. Then describe the interfaces ([`Recorder::describe`]), and set their statistics when they
/// are reported ([`Recorder::set_statistics`]).
///
/// # Errors
/// A setting is invalid, the folder cannot be written, or another program records into it.
pub fn open(
    output: &OutputSpec,
    pipelines: usize,
    when_full: WhenFull,
) -> Result<(Recorder, Vec<Box<dyn PacketOutput>>), Error> {
    let (recorder, mut outputs) = Recorder::open(&FolderSettings::parse(&output.to_string())?, pipelines)?;
    outputs.iter_mut().for_each(|output| output.set_when_full(when_full));
    Ok((recorder, outputs.into_iter().map(|output| Box::new(output) as Box<dyn PacketOutput>).collect()))
}

impl Recorder {
    /// Opens the folder, which is created if it is missing. Returns an output for each pipeline.
    ///
    /// # Errors
    /// The folder cannot be written, or another program records into it.
    pub fn open(settings: &FolderSettings, pipelines: usize) -> Result<(Self, Vec<RecorderOutput>), Error> {
        let failed = |error| Error::Folder { folder: settings.folder.clone(), error };
        match fs::create_dir(&settings.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let lock = File::open(&settings.folder).map_err(failed)?;
        if !lock.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse(settings.folder.clone())),
            locked => locked.map_err(|error| failed(error.into()))?,
        }
        rustix::fs::access(&settings.folder, rustix::fs::Access::WRITE_OK).map_err(|error| failed(error.into()))?;
        let shared = Arc::<Shared>::default();
        let writer = Writer::new(settings.clone(), shared.clone(), lock).map_err(failed)?;
        shared.pipelines.store(pipelines, Relaxed);
        let (full, chunks) = channel();
        let writer: IdleWriter = Arc::new(Mutex::new(Some((writer, chunks))));
        let output = |_| RecorderOutput::new(&settings.name, writer.clone(), shared.clone(), full.clone());
        let outputs = (0..pipelines).map(output).collect();
        Ok((Self { shared }, outputs))
    }

    /// Describes an interface, by the number in the frames. It holds for the files that begin later.
    pub fn describe(&self, interface: u32, info: InterfaceInfo) {
        let mut interfaces = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.entry(interface).or_default().0 = info;
    }

    /// Names the capture filter, in the syntax of libpcap. It holds for the files that begin later.
    pub fn set_filter(&self, filter: &str) {
        *self.shared.filter.lock().unwrap_or_else(PoisonError::into_inner) = Some(filter.into());
    }

    /// Sets the packets that an interface has received and lost, which the end of each file has.
    pub fn set_statistics(&self, interface: u32, statistics: InterfaceStatistics) {
        let mut interfaces = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.entry(interface).or_default().1 = statistics;
    }

    /// What was written and removed so far.
    pub fn status(&self) -> RecorderStatus {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
