//! The thread of a store that removes what is too old or too much, and sorts hours that are over.

use crate::compaction::{Compacted, compact_hour};
use crate::folder::{Content, Folder, Hour, StoredFile};
use crate::retention::Keep;
use crate::settings::{Settings, UpkeepTimes};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

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
    times: UpkeepTimes,
    /// Held while a file gets its name.
    naming: Arc<Mutex<()>>,
    stop: Arc<AtomicBool>,
    /// Number of strange files that the log has told.
    told_strange: usize,
    /// Hours that could not be sorted as a whole, which the log has told, and when.
    failed: HashMap<Hour, Instant>,
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
            times: settings.upkeep,
            naming: naming.clone(),
            stop: stop.clone(),
            told_strange: 0,
            failed: HashMap::new(),
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
            match woken.recv_timeout(self.times.check) {
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
        let mut others = content.strange.iter().chain(&content.foreign);
        let files = content.strange.len() + content.foreign.len();
        if let Some(first) = others.next().filter(|_| files > self.told_strange) {
            let first = first.display();
            info!(sink = self.name, files, %first, "the folder has files that are none of the store, they stay");
        }
        self.told_strange = files;
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
        let is_stored = |hour: &Hour| content.files.binary_search_by_key(hour, |file| file.hour).is_ok();
        self.failed.retain(|hour, _| is_stored(hour));
        for files in content.files.chunk_by(|a, b| a.hour == b.hour) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let is_due = self.failed.get(&files[0].hour).is_none_or(|at| at.elapsed() >= self.times.retry);
            if is_due && is_settled(files, self.times.settled) {
                self.compact_hour(files);
            }
        }
    }

    fn compact_hour(&mut self, files: &[StoredFile]) {
        let hour = files[0].hour;
        let (sink, name) = (&self.name, hour.path());
        let before: u64 = files.iter().map(|file| file.octets).sum();
        let compacted = compact_hour(&self.folder, hour, files, &self.naming, &self.stop);
        let failed_before = self.failed.remove(&hour).is_some();
        match compacted {
            Ok(Compacted::Nothing) => {}
            Ok(Compacted::Into { files: after, octets, damaged }) => {
                info!(sink, hour = %name.display(), files = files.len(), into = after, before, octets, "sorted an hour of the store");
                for file in damaged {
                    self.failed.insert(hour, Instant::now());
                    warn!(sink, file = %file.display(), "a file of the store is damaged, it stays unsorted");
                }
            }
            Err(error) => {
                self.failed.insert(hour, Instant::now());
                if !failed_before {
                    warn!(sink, hour = %name.display(), %error, retry = ?self.times.retry, "cannot sort an hour of the store, it stays as it is");
                }
            }
        }
    }
}

/// Whether an hour has files to sort, and will have no others soon.
fn is_settled(files: &[StoredFile], settled: Duration) -> bool {
    let newest =
        files.iter().filter(|file| !file.is_sorted).filter_map(|file| file.path.metadata().ok()?.modified().ok());
    let is_over = now_ns() > files[0].hour.end_ns();
    is_over && newest.max().is_some_and(|newest| newest.elapsed().is_ok_and(|age| age >= settled))
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
