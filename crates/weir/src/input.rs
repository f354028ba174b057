//! Opens sources: captures, pipes, generated traffic, live interfaces.

use crate::arguments::{Inspection, Metering, Selection};
use crate::capabilities;
use crate::error::{Error, InputError, SourceError};
use crate::protocols;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{debug, info, warn};
use weir_capture::{
    Burst, Content, Device, FilterError, Input, LiveSource, LiveSpec, Losses, Progress, ReadingThreads, Source,
    SourceSpec,
};
use weir_packet::DecodeOptions;

/// Bursts between two checks of signals, sinks and progress.
pub const BURSTS_BETWEEN_CHECKS: u64 = 16;

/// Logs damaged input, each place up to a limit.
#[derive(Default)]
pub struct DamageLog {
    count: u64,
    /// Those that are logged one by one.
    texts: Vec<String>,
    /// A file was damaged, not a live source.
    has_damaged_file: bool,
}

impl DamageLog {
    /// Places that are logged one by one.
    const LIMIT: u64 = 20;

    /// Counts a damaged place, and logs it below the limit.
    pub fn log(&mut self, error: &weir_capture::Error) {
        self.count += 1;
        let is_live = matches!(error, weir_capture::Error::Live { .. });
        self.has_damaged_file |= !is_live;
        if self.count <= Self::LIMIT {
            self.texts.push(error.to_string());
            warn!(%error, "{}", if is_live { "source failed" } else { "damaged input" });
        }
    }

    /// Logs at the end how many places were not logged, and what the user can do.
    pub fn log_end(&self) {
        if self.count > Self::LIMIT {
            warn!("{} more damaged places", self.count - Self::LIMIT);
        }
        if self.has_damaged_file {
            warn!(
                "all readable packets were processed; if the file was truncated while being written or copied, copy it again"
            );
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// What is damaged, up to a limit.
    pub fn into_texts(mut self) -> Vec<String> {
        let others = self.count.saturating_sub(Self::LIMIT);
        self.texts.extend((others > 0).then(|| format!("{others} more damaged places")));
        self.texts
    }
}

/// Logs link types for which the filter expression has no meaning. Returns whether there are any.
pub fn log_filter_errors(errors: &[FilterError]) -> bool {
    for error in errors {
        match error {
            FilterError::LinkType { expression, link_type, message } => {
                let link_type = protocols::link_type(*link_type);
                warn!(
                    "filter \"{expression}\" has no meaning for {link_type}; all its packets are filtered: {message}"
                );
            }
            error => warn!(%error, "packets are filtered"),
        }
    }
    !errors.is_empty()
}

/// What is wrong after a signal.
pub const INTERRUPTED: &str = "interrupted: the rest of the input was not read";

pub fn log_interrupted() {
    warn!("{INTERRUPTED}");
}

/// Checks what a command is given to read. At most one source is standard input.
pub fn check_sources(sources: &[SourceSpec], command: &'static str) -> Result<(), Error> {
    if command == "tcp"
        && let Some(live) = sources.iter().find(is_live)
    {
        return Err(InputError::TcpOfLiveTraffic(live.to_string()).into());
    }
    let paths = sources.iter().filter_map(SourceSpec::path);
    if paths.clone().any(|path| path.as_os_str().is_empty()) {
        return Err(InputError::EmptyInputName { command }.into());
    }
    if sources.is_empty() {
        let wanted = if command == "probe" {
            "a source (-i af_packet:eth0, or input in the file of --config), a capture"
        } else {
            "a capture file"
        };
        return Err(InputError::NoInput { command, wanted }.into());
    }
    if paths.filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(InputError::StandardInputTwice.into());
    }
    Ok(())
}

/// Whether a source is an interface, also if it has only its name.
pub fn is_live(source: &&SourceSpec) -> bool {
    match source {
        SourceSpec::Live(_) => true,
        SourceSpec::Capture(path) => path.to_str().is_some_and(weir_capture::is_interface) && !path.exists(),
        SourceSpec::Generated(_) | SourceSpec::Packets(_) => false,
    }
}

/// Refuses a source that takes the traffic of the loopback interface away from the whole machine,
/// unless the user insists.
pub fn check_loopback(sources: &[SourceSpec], force: bool) -> Result<(), Error> {
    let loopback = sources.iter().find_map(|source| source.live()?.captured_loopback());
    loopback.filter(|_| !force).map_or(Ok(()), |interface| Err(InputError::Loopback(interface.into()).into()))
}

/// Checks that nothing asks for octets of files of packet records, which have none.
pub fn check_packets(sources: &[SourceSpec], selection: &Selection, has_rules: bool) -> Result<(), Error> {
    let is_given = [(selection.filter.is_some(), "--filter"), (has_rules, "--rules")];
    let option = is_given.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
    let source = sources.iter().find(|source| matches!(source, SourceSpec::Packets(_)));
    match source.zip(option) {
        Some((source, option)) => Err(InputError::OctetsOfPackets { file: source.to_string(), option }.into()),
        None => Ok(()),
    }
}

/// The metering of sources: without inspection if all are files of packet records, which have no payload.
pub fn metering_of(sources: &[SourceSpec], metering: &Metering) -> Result<Metering, Error> {
    let mut metering = metering.clone();
    if sources.iter().all(|source| matches!(source, SourceSpec::Packets(_))) {
        if metering.dpi.is_some() && metering.inspects() {
            let file = sources.first().map_or_else(String::new, SourceSpec::to_string);
            return Err(InputError::OctetsOfPackets { file, option: "--dpi" }.into());
        }
        metering.dpi = Some(Inspection::Off);
    }
    Ok(metering)
}

/// Opens every source and merges them in time order. Live traffic cannot be merged. If `stop` is
/// set while a pipe has no writer or no data, its source has no packets.
///
/// # Errors
/// Lists all sources that cannot be opened.
pub fn open_sources(
    sources: &[SourceSpec],
    decode: DecodeOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Input<'static>, Error> {
    open_on_threads(sources, decode, stop, ReadingThreads::UpTo(0))
}

/// The same. Captures are read on threads of their own.
///
/// # Errors
/// As [`open_sources`].
pub fn open_on_threads(
    sources: &[SourceSpec],
    decode: DecodeOptions,
    stop: &Arc<AtomicBool>,
    threads: ReadingThreads,
) -> Result<Input<'static>, Error> {
    if let Some(live) = sources.iter().find_map(SourceSpec::live) {
        if sources.len() > 1 {
            return Err(InputError::LiveNotAlone(live.to_string()).into());
        }
        let mut queues = open_queues(live)?;
        return match (queues.pop(), queues.is_empty()) {
            (Some(source), true) => Ok(Input::Live(source)),
            _ => Err(InputError::SeveralQueues(live.to_string()).into()),
        };
    }
    let mut opened: Vec<Box<dyn Source + Send>> = Vec::new();
    let mut errors = Vec::new();
    for source in sources {
        match open_source(source, decode, stop) {
            None => {}
            Some(Ok(opened_source)) => {
                debug!(%source, is_pipe = is_pipe(source), "source opened");
                opened.push(opened_source);
            }
            Some(Err(error)) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(Error::Sources(errors));
    }
    Ok(Input::File(weir_capture::read_on_threads(opened, threads)))
}

pub fn open_queues(live: &LiveSpec) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    capabilities::raise_permitted();
    let queues = live.open().map_err(Error::Live)?;
    debug!(source = %live, queues = queues.len(), "source opened");
    if let Some(notice) = live.notice() {
        info!("{live}: {notice}");
    }
    Ok(queues)
}

/// Waits until all interfaces of a live source are up, or `stop` is set.
pub fn wait_for_interfaces(live: &LiveSpec, stop: &AtomicBool) {
    const CHECK_INTERVAL: Duration = Duration::from_millis(100);
    for device in live.devices() {
        let mut is_logged = false;
        while !device.is_up() && !stop.load(Ordering::Relaxed) {
            if !std::mem::replace(&mut is_logged, true) {
                warn!(source = %device, "waiting for the interface: it is absent or down, and nothing is metered until it is up");
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Checks a source without metering it. Pipes can be read only once, so they are not opened.
pub fn check_source(source: &SourceSpec, decode: DecodeOptions) -> Result<(), Error> {
    match source.live() {
        Some(live) => live.check().map_err(Error::Live),
        None if is_pipe(source) => Ok(()),
        None => match open_source(source, decode, &Arc::default()) {
            Some(Err(error)) => Err(Error::Sources(vec![error])),
            _ => Ok(()),
        },
    }
}

/// Whether an interface of a live source is not the one with this index any more, or not up.
pub fn have_changed(live: &LiveSpec, indexes: &[Option<u32>]) -> bool {
    live.interface_indexes() != indexes || !live.devices().iter().all(Device::is_up)
}

type Opened = Result<Box<dyn Source + Send>, SourceError>;

/// Opens a source; `None` for live traffic.
fn open_source(source: &SourceSpec, decode: DecodeOptions, stop: &Arc<AtomicBool>) -> Option<Opened> {
    Some(match source {
        SourceSpec::Live(_) => return None,
        SourceSpec::Generated(spec) => match weir_trafficgen::TrafficGenerator::new(spec) {
            Ok(synth) => Ok(Box::new(synth)),
            Err(error) => Err(SourceError::Traffic { spec: spec.into(), error }),
        },
        SourceSpec::Packets(path) => open_file(path, Content::Packets { decapsulated: decode.decapsulate }, stop),
        SourceSpec::Capture(path) => open_file(path, Content::Capture, stop),
    })
}

fn open_file(path: &Path, content: Content, stop: &Arc<AtomicBool>) -> Opened {
    open_capture(path, content, stop).map_err(SourceError::Capture)
}

/// Opens a file or a pipe. If `stop` is set, a pipe ends.
///
/// # Errors
/// It cannot be opened, or is no capture.
pub fn open_capture(
    path: &Path,
    content: Content,
    stop: &Arc<AtomicBool>,
) -> Result<Box<dyn Source + Send>, weir_capture::Error> {
    let Some(file) = open_pipe(path) else { return weir_capture::open_as(path, content) };
    let stop = stop.clone();
    match weir_capture::from_reader_as(path, content, Box::new(Pipe { file, stop: stop.clone() })) {
        Err(error) if !stop.load(Ordering::Relaxed) => Err(error),
        opened => Ok(Box::new(PipeCapture { capture: opened.ok(), stop })),
    }
}

/// Whether a source is a pipe, which can be read only once.
pub fn is_pipe(source: &SourceSpec) -> bool {
    source.path().is_some_and(is_pipe_at)
}

/// Whether a path is standard input or a named pipe.
pub fn is_pipe_at(path: &Path) -> bool {
    path == Path::new("-") || fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Opens standard input or a named pipe; `None` for files.
fn open_pipe(path: &Path) -> Option<File> {
    let file = if path == Path::new("-") {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else if is_pipe_at(path) {
        // Without the flag, this waits for a writer, and no signal ends that. `Pipe` waits instead.
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
    } else {
        return None;
    };
    file.ok().filter(|file| file.metadata().is_ok_and(|metadata| !metadata.is_file()))
}

/// The capture in a pipe. After a signal it ends, wherever the pipe ended.
struct PipeCapture {
    /// `None` if the pipe ended before it was known to be a capture.
    capture: Option<Box<dyn Source + Send>>,
    stop: Arc<AtomicBool>,
}

impl Source for PipeCapture {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        let Some(capture) = &mut self.capture else { return Ok(false) };
        match capture.fill(burst) {
            Err(_) if self.stop.load(Ordering::Relaxed) => Ok(false),
            filled => filled,
        }
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.capture.as_ref().map(|capture| capture.interfaces()).unwrap_or_default()
    }

    fn recorded_losses(&self) -> Losses {
        self.capture.as_ref().map(|capture| capture.recorded_losses()).unwrap_or_default()
    }

    fn progress(&self) -> Progress {
        self.capture.as_ref().map(|capture| capture.progress()).unwrap_or_default()
    }
}

/// A pipe whose input ends when `stop` is set.
struct Pipe {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        const STOP_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let has_data = weir_probe::while_waiting(|| {
                poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&STOP_CHECK_INTERVAL))
            });
            match has_data {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => match self.file.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}
