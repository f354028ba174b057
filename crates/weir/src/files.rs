//! Sources and sinks as the user writes them, opened; nothing is written before everything could be opened,
//! and nothing that is read is written over.

use crate::arguments;
use crate::table::Table;
use crate::{Refusal, say};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_capture::{Burst, Error, Input, LiveSource, Losses, Progress, Source};
use weir_export::{ExportOptions, Sink};

/// Live traffic, which ends when the program is told to stop.
struct Live {
    source: Box<dyn LiveSource + Send>,
    stop: Arc<AtomicBool>,
}

impl Source for Live {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if self.stop.load(Ordering::Relaxed) {
            self.source.stop();
        }
        self.source.fill(burst)
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

impl LiveSource for Live {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.source.set_poll_timeout(timeout);
    }

    fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }

    fn latest_ns(&self) -> u64 {
        self.source.latest_ns()
    }

    fn losses(&mut self) -> Losses {
        self.source.losses()
    }

    fn stop(&mut self) {
        self.source.stop();
    }
}

/// The source that is live traffic, if there is one.
pub fn live<'a>(sources: &[&'a OsStr]) -> Option<&'a str> {
    sources.iter().filter_map(|source| source.to_str()).find(|source| weir_capture::is_live(source))
}

/// Opens every source and joins them in time order; live traffic is read alone. All that cannot be opened are named.
pub fn open_sources(sources: &[&OsStr], stop: &Arc<AtomicBool>) -> Result<Input<'static>, Refusal> {
    if let Some(live) = live(sources) {
        return open_live(live, sources.len(), stop).map(Input::Live);
    }
    let mut opened: Vec<Box<dyn Source + Send>> = Vec::new();
    let mut troubles = Vec::new();
    for &source in sources {
        match open_source(source, stop) {
            Ok(source) => opened.push(source),
            Err(trouble) => troubles.push(trouble),
        }
    }
    if troubles.is_empty() { Ok(Input::File(weir_capture::merge(opened))) } else { Err(Refusal(troubles.join("\n"))) }
}

/// Opens live traffic, a source per queue, and says what its user must know.
pub fn open_queues(live: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Refusal> {
    let queues = weir_capture::open_live(live).map_err(|error| Refusal(error.to_string()))?;
    if let Some(notice) = weir_capture::notice(live) {
        say(&format!("{live}: {notice}"));
    }
    Ok(queues)
}

/// Opens live traffic, which has no end that others could wait for, and which one thread reads here.
fn open_live(live: &str, sources: usize, stop: &Arc<AtomicBool>) -> Result<Box<dyn LiveSource + Send>, Refusal> {
    if sources > 1 {
        return Err(Refusal(format!("{live}: live traffic is read alone; leave the other inputs out")));
    }
    let mut queues = open_queues(live)?;
    match (queues.pop(), queues.is_empty()) {
        (Some(source), true) => Ok(Box::new(Live { source, stop: stop.clone() })),
        _ => Err(Refusal(format!(
            "{live}: weir read has one thread for one queue; use weir probe, or leave queues=N out (of af_xdp: queues=0)"
        ))),
    }
}

fn open_source(source: &OsStr, stop: &Arc<AtomicBool>) -> Result<Box<dyn Source + Send>, String> {
    if let Some(specification) = source.to_str().and_then(|text| text.strip_prefix("synth:")) {
        return match weir_trafficgen::TrafficGenerator::new(specification) {
            Ok(synth) => Ok(Box::new(synth)),
            Err(error) => Err(format!("synth:{specification}: {error}")),
        };
    }
    let path = Path::new(source);
    let opened = match pipe(path) {
        Some(file) => weir_capture::from_reader(path, Box::new(Pipe { file, stop: stop.clone() })),
        None => weir_capture::open(path),
    };
    opened.map_err(|error| match &error {
        Error::Io { error: cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
            format!("{error}; is the name right?{}", of_other_versions(source))
        }
        Error::Io { error: cause, .. } => format!("{error}{}", advice(cause)),
        _ => error.to_string(),
    })
}

/// Whether a source can be read only once.
pub fn is_pipe(source: &OsStr) -> bool {
    let path = Path::new(source);
    path == Path::new("-") || fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
}

/// Standard input, or what else is read as it comes; `None` for files.
fn pipe(path: &Path) -> Option<File> {
    let file = if path == Path::new("-") {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else if fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo()) {
        File::open(path)
    } else {
        return None;
    };
    file.ok().filter(|file| file.metadata().is_ok_and(|about| !about.is_file()))
}

/// A pipe that is waited for until the program is told to stop: its input ends there.
struct Pipe {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.file.read(into),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What to say of sources that other versions may have.
fn of_other_versions(source: &OsStr) -> String {
    match source.to_str() {
        Some(text) if text.starts_with("packets:") => {
            format!(" This version reads files, pipes, synthetic traffic and {}", weir_capture::LIVE_SCHEMES.join(", "))
        }
        _ => String::new(),
    }
}

/// What the user can do about trouble with a file; starts with punctuation.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; you need the permission for it",
        io::ErrorKind::NotFound => "; does its folder exist?",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::StorageFull => "; make room, or write elsewhere",
        _ => "",
    }
}

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Standard,
    /// A file.
    File(PathBuf),
    /// A collector.
    Network,
}

impl Target {
    /// Of a sink as the user wrote it. What is no sink at all is refused when it is opened.
    pub fn of_sink(sink: &str) -> Self {
        match sink.split_once(':') {
            Some((_, path)) if !path.starts_with("//") => Self::of_path(Path::new(path)),
            _ => Self::Network,
        }
    }

    /// Of a file name.
    pub fn of_path(path: &Path) -> Self {
        if path == Path::new("-") { Self::Standard } else { Self::File(path.into()) }
    }
}

/// Refuses outputs that would write over an input or over each other.
pub fn check_targets(sources: &[&OsStr], targets: &[(String, Target)]) -> Result<(), Refusal> {
    let inputs: Vec<(&OsStr, Identity)> = sources
        .iter()
        .map(|&source| (source, Identity::of(if source == "-" { "/dev/stdin".as_ref() } else { source })))
        .collect();
    let mut taken: Vec<(&String, Identity)> = Vec::new();
    for (output, target) in targets {
        let identity = match target {
            Target::Standard => Identity::StandardOutput,
            Target::File(path) => Identity::of(path.as_os_str()),
            Target::Network => Identity::None,
        };
        if identity == Identity::None {
            continue;
        }
        if let Some((input, _)) = inputs.iter().find(|(_, other)| *other == identity) {
            let input = input.display();
            return Err(Refusal(format!(
                "{output} is also the input {input} and would write over it; name another file"
            )));
        }
        if let Some((other, _)) = taken.iter().find(|(_, other)| *other == identity) {
            return Err(Refusal(format!("{output} and {other} would be mixed in one place; give each its own file")));
        }
        taken.push((output, identity));
    }
    Ok(())
}

/// What makes two names one file. Devices and pipes may be shared.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    StandardOutput,
    /// A regular file: device and number.
    File(u64, u64),
    /// A file that is not there yet.
    Name(PathBuf),
    None,
}

impl Identity {
    fn of(path: &OsStr) -> Self {
        match fs::metadata(path) {
            Ok(file) if file.is_file() => Self::File(file.dev(), file.ino()),
            Ok(_) => Self::None,
            Err(_) => Self::Name(absolute(Path::new(path))),
        }
    }
}

/// The one name of a file that is not there yet: its folder's true name, and its own.
fn absolute(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.into(),
    }
}

/// Opens a sink.
pub fn open_sink(sink: &str, sinks: &arguments::Sinks) -> Result<Box<dyn Sink + Send>, Refusal> {
    if let Some(path) = sink.strip_prefix("table:") {
        return Ok(match Target::of_path(Path::new(path)) {
            Target::File(_) if path.is_empty() => {
                return Err(Refusal(format!("{sink}: a file name, or -, must follow")));
            }
            Target::File(path) => Box::new(Table::new(sink, sinks.top, Box::new(create(&path)?), None)),
            _ => Box::new(Table::new(sink, sinks.top, Box::new(io::stdout()), terminal_columns())),
        });
    }
    let options = ExportOptions { uniflow: sinks.uniflow, observation_domain: sinks.domain };
    weir_export::open(sink, &options).map_err(|error| {
        let what_to_do = match &error {
            weir_export::Error::Io { error, .. } => advice(error),
            weir_export::Error::Spec { invalid: weir_export::InvalidSink::Scheme, .. } => ", or table:PATH",
            weir_export::Error::Spec { .. } => "",
        };
        Refusal(format!("{error}{what_to_do}"))
    })
}

/// Waits until somebody reads a sink that is a named pipe, and says so if it is long: opening it would wait as well, and hear no signal. The
/// pipe, which must stay open until the sink is, or the reader would take it for the end; nothing of any other sink.
///
/// # Errors
/// It was told to stop before.
pub fn wait_for_reader(sink: &str, stop: &AtomicBool) -> Result<Option<File>, Refusal> {
    const LOOK: Duration = Duration::from_millis(20);
    const SILENT: Duration = Duration::from_secs(1);
    let Target::File(path) = Target::of_sink(sink) else { return Ok(None) };
    if !fs::metadata(&path).is_ok_and(|about| about.file_type().is_fifo()) {
        return Ok(None);
    }
    let flags = OFlags::NONBLOCK.bits() as i32;
    let (began, mut told) = (Instant::now(), false);
    loop {
        match File::options().write(true).custom_flags(flags).open(&path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
            // What else may be wrong is told by who opens it for good.
            opened => return Ok(opened.ok()),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Refusal(format!("{sink}: nobody reads this pipe")));
        }
        if !told && began.elapsed() >= SILENT {
            told = true;
            say(&format!("{sink}: waits until somebody reads this pipe"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Opens a file that is written later, so that what is in it stays until then.
pub fn open_for_later(path: &Path) -> Result<File, Refusal> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map_err(|error| Refusal(format!("{}: {error}{}", path.display(), advice(&error))))
}

/// Creates a file.
pub fn create(path: &Path) -> Result<File, Refusal> {
    File::create(path).map_err(|error| Refusal(format!("{}: {error}{}", path.display(), advice(&error))))
}

/// Width of the terminal at standard output, if it is one.
pub fn terminal_columns() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A live source that reports each call that changes it.
    struct Reporting(Sender<String>);

    impl Source for Reporting {
        fn fill<'a>(&'a mut self, _burst: &mut Burst<'a>) -> Result<bool, Error> {
            Ok(true)
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    impl LiveSource for Reporting {
        fn set_poll_timeout(&mut self, timeout: Duration) {
            self.0.send(format!("{timeout:?}")).unwrap();
        }

        fn losses(&mut self) -> Losses {
            Losses::default()
        }

        fn now_ns(&self) -> u64 {
            1
        }

        fn latest_ns(&self) -> u64 {
            2
        }

        fn stop(&mut self) {
            self.0.send("stop".into()).unwrap();
        }
    }

    #[test]
    fn live_source_of_weir_read_forwards_poll_timeout_clock_and_stop() {
        let (calls, received) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut live = Live { source: Box::new(Reporting(calls)), stop: stop.clone() };
        live.set_poll_timeout(Duration::from_millis(3));
        assert_eq!((live.now_ns(), live.latest_ns()), (1, 2));
        live.burst().unwrap();
        stop.store(true, Ordering::Relaxed);
        live.burst().unwrap();
        drop(live);
        assert_eq!(received.into_iter().collect::<Vec<_>>(), ["3ms", "stop"]);
    }
}
