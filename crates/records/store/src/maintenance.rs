//! The thread of a store that removes what is too old or too much, and sorts hours that are over.

use crate::compaction::{Compacted, compact_hour};
use crate::folder::{Content, Folder, Hour, StoredFile};
use crate::retention::Keep;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// Without a new file, the thread looks at the store this often.
const PERIOD: Duration = Duration::from_secs(60);
/// An hour is over when it has had no new file for this long: flows that began in it end later.
const SETTLED: Duration = Duration::from_secs(15 * 60);

/// The thread. It ends when this is dropped.
pub struct Maintenance {
    wake: Option<Sender<()>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
struct Worker {
    name: String,
    folder: Folder,
    keep: Keep,
    compacts: bool,
    /// Held while a file gets its name.
    naming: Arc<Mutex<()>>,
    stop: Arc<AtomicBool>,
    /// Number of strange files that the log has told.
    told_strange: usize,
    /// The file system cannot do it, or a file cannot be read; the log has told it.
    failed: Vec<Hour>,
}

impl Maintenance {
    /// Starts the thread if it has something to do.
    pub fn start(name: &str, folder: &Folder, settings: &Settings, naming: &Arc<Mutex<()>>) -> Option<Self> {
        if !settings.compacts && settings.keep == Keep::default() {
            return None;
        }
        let (wake, woken) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            name: name.into(),
            folder: folder.clone(),
            keep: settings.keep,
            compacts: settings.compacts,
            naming: naming.clone(),
            stop: stop.clone(),
            told_strange: 0,
            failed: Vec::new(),
        };
        let started = std::thread::Builder::new().name("store".into()).spawn(move || worker.run(&woken));
        match started {
            Ok(thread) => Some(Self { wake: Some(wake), stop, thread: Some(thread) }),
            Err(error) => {
                warn!(sink = name, %error, "the store is not looked after: no thread can be started");
                None
            }
        }
    }

    /// There is a new file.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
            // The thread has ended by a panic, which is in the log.
            let _ = wake.send(());
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn run(&mut self, woken: &Receiver<()>) {
        loop {
            self.look();
            match woken.recv_timeout(PERIOD) {
                Err(RecvTimeoutError::Disconnected) => return self.remove_excess(),
                Ok(()) | Err(RecvTimeoutError::Timeout) => while woken.try_recv().is_ok() {},
            }
        }
    }

    fn look(&mut self) {
        self.remove_excess();
        if self.compacts
            && let Some(content) = self.content()
        {
            self.compact(&content);
        }
    }

    fn content(&mut self) -> Option<Content> {
        // The writer tells what is wrong with the folder.
        let content = self.folder.content().ok()?;
        if content.strange.len() > self.told_strange {
            let (files, first) = (content.strange.len(), content.strange[0].display());
            info!(sink = self.name, files, %first, "the folder has files that are none of the store, they stay");
        }
        self.told_strange = content.strange.len();
        Some(content)
    }

    fn remove_excess(&mut self) {
        if self.keep != Keep::default()
            && let Some(content) = self.content()
        {
            let _naming = self.naming.lock();
            self.keep.apply(&self.name, &self.folder, &content, now_ns());
        }
    }

    fn compact(&mut self, content: &Content) {
        for files in content.files.chunk_by(|a, b| a.hour == b.hour) {
            let hour = files[0].hour;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if self.failed.contains(&hour) || !is_settled(files) {
                continue;
            }
            let before: u64 = files.iter().map(|file| file.octets).sum();
            let (sink, name) = (&self.name, hour.path());
            match compact_hour(&self.folder, hour, files, &self.naming, &self.stop) {
                Ok(Compacted::Nothing) => {}
                Ok(Compacted::Into { files: after, octets }) => info!(
                    sink, hour = %name.display(), files = files.len(), into = after, before, octets, "sorted an hour of the store"
                ),
                Err(error) => {
                    warn!(sink, hour = %name.display(), %error, "cannot sort an hour of the store, it stays as it is");
                    self.failed.push(hour);
                }
            }
        }
    }
}

/// Whether an hour has files to sort, and will have no others soon.
fn is_settled(files: &[StoredFile]) -> bool {
    let newest =
        files.iter().filter(|file| !file.is_sorted).filter_map(|file| file.path.metadata().ok()?.modified().ok());
    let is_over = now_ns() > files[0].hour.end_ns();
    is_over && newest.max().is_some_and(|newest| newest.elapsed().is_ok_and(|age| age >= SETTLED))
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
