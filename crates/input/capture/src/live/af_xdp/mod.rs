//! Live traffic through AF_XDP: an XDP program redirects frames to user space before the kernel's
//! network stack.
//!
//! ```text
//! af_xdp:IFACE[,queues=0-3][,mode=auto|copy|zerocopy][,attach=auto|native|generic][,snap=N][,frames=N]
//! ```
//! In: an interface; all of its queues are read unless `queues` selects some. Out: one source per
//! queue. The NIC selects the queue of a frame; for both directions of a flow in one queue, its
//! hash must be symmetric.
//!
//! Invariants: **captured frames do not reach the kernel's network stack**, so use this on a mirror
//! port and not on a server. The program is detached when the process ends, in any way. A frame
//! that `snap` cuts keeps its length on the wire.
//!
//! Limits: all frames of a burst have the time at which the burst is read. Frames longer than 3840
//! bytes are dropped and counted unless `snap` cuts them. A VLAN tag that the NIC strips is lost
//! (`ethtool -K IFACE rxvlan off` keeps it). Source: the kernel's
//! `Documentation/networking/af_xdp.rst`.

mod bpf;
mod program;
mod send;
mod settings;
mod socket;

use crate::clock;
use crate::error::Error;
use crate::link_type::ETHERNET;
use crate::live::counters::{InterfaceCounters, InterfaceLosses};
use crate::live::interface::Interface;
use crate::live_error::LiveError;
use crate::source::{Burst, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
use crate::system;
use bpf::{AttachMode, BpfLink, LoadedProgram, SocketMap};
use parking_lot::Mutex;
pub use send::{FrameTotals, XdpSender};
pub(crate) use settings::Settings;
use settings::{Attach, Mode};
use socket::{Socket, SpareSocket, Step};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};
use tracing::warn;

pub(crate) const SCHEME: &str = "af_xdp:";

/// How often a source can attach to an interface again. Each time takes an AF_XDP socket, and only
/// a process with CAP_NET_RAW can open more of them.
const SPARE_SOCKETS: usize = 16;
/// Time between two checks whether the interface exists again.
const INTERFACE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Warning for users that open such a source.
pub(crate) const NOTICE: &str = "captured packets do not reach this host's network stack: connections through this \
     interface stall while it is captured; use it on mirror ports";

/// Checks a source without opening it.
///
/// # Errors
/// No such interface or queue, or no Ethernet.
pub(crate) fn check(interface: &str, settings: &Settings) -> Result<(), LiveError> {
    find(interface, settings).map(drop)
}

/// Whether a source has one queue, so that it can attach to an interface again; true if it cannot be
/// opened.
pub(crate) fn can_wait(interface: &str, settings: &Settings) -> bool {
    let found = || find(interface, settings).ok().map(|found| found.2);
    settings.queues.or_else(found).is_none_or(|(first, last)| first == last)
}

/// The interface, the number of its queues, and the first and the last that are read.
fn find(interface: &str, settings: &Settings) -> Result<(Interface, u32, (u32, u32)), LiveError> {
    let interface = Interface::find(interface)?;
    if !matches!(interface.hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        return Err(LiveError::NotEthernet(interface.hardware_type));
    }
    let queues = count_queues(&interface.name)?;
    let range = queue_range(&interface.name, queues, settings.queues)?;
    Ok((interface, queues, range))
}

/// Opens the queues of an interface. Capturing begins when all of them are open.
///
/// # Errors
/// No such interface or queue, not permitted, a mode that the driver does not support, or another
/// program is attached.
pub(crate) fn open(name: &str, interface: &str, settings: &Settings) -> Result<Vec<Queue>, LiveError> {
    let (interface, queues, (first, last)) = find(interface, settings)?;
    let sockets = SocketMap::new(last + 1).map_err(|error| match is_permission(&error) {
        true => LiveError::XdpPermission,
        false => LiveError::SocketMap(error),
    })?;
    let program = LoadedProgram::new(&program::program(sockets.descriptor(), settings.snap_bytes));
    let program = program.map_err(|(error, verifier)| match error.raw_os_error() {
        // EACCES is the error of the verifier.
        Some(libc::EPERM) => LiveError::XdpPermission,
        _ => LiveError::XdpProgram(if settings.snap_bytes.is_some() { "5.18" } else { "5.9" }, error, verifier),
    })?;
    // Attached before the sockets are opened, because their mode depends on it. All frames pass to
    // the stack until the map has a socket.
    let (link, attach_mode) = attach(&program, &interface, settings)?;
    let promiscuous = system::socket(libc::AF_PACKET, libc::SOCK_RAW)
        .and_then(|socket| system::enable_promiscuous_mode(&socket, interface.index).map(|()| socket))
        .map_err(promiscuous_error)?;
    let open = |queue| {
        let socket = Socket::new(interface.index, queue, settings.frames, socket_flags(settings, attach_mode));
        socket.map_err(|(step, error)| socket_error(&step, error, queue, settings)).map(|socket| (queue, socket))
    };
    let opened = (first..=last).map(open).collect::<Result<Vec<_>, _>>()?;
    for (queue, socket) in &opened {
        register(&sockets, *queue, socket)?;
    }
    let reads_all_queues = (first, last) == (0, queues - 1);
    // `rx_dropped` counts the kernel's drops before the program. It counts nothing else only in
    // generic mode, and if no packet continues to the stack. In native mode some drivers count
    // there what a socket dropped, too, which the socket's statistics report.
    let counts_kernel = reads_all_queues && attach_mode == AttachMode::Generic;
    let counters = InterfaceCounters::new(interface.index).map_err(LiveError::io("query its counters"))?;
    let counters = Arc::new(Mutex::new(counters));
    let attachment = Attachment {
        settings: *settings,
        program,
        mode: attach_mode,
        sockets,
        counters: counters.clone(),
        link: Some(link),
        promiscuous,
    };
    let attachment = Arc::new(attachment);
    Ok(opened
        .into_iter()
        .map(|(number, socket)| Queue {
            name: name.into(),
            number,
            interface_name: interface.name.clone(),
            interface: interface.index,
            socket,
            snap_bytes: settings.snap_bytes.map(|bytes| bytes as usize),
            attachment: Some(attachment.clone()),
            counters: (number == first).then(|| (counters.clone(), counts_kernel)),
            state: State::Receiving,
            waits: false,
            is_refusal_logged: false,
            spare: Vec::new(),
            dropped: 0,
            dropped_before: 0,
            unknown_length: 0,
            bytes: 0,
            poll_timeout: POLL_TIMEOUT,
            interface_checked: Instant::now(),
        })
        .collect())
}

fn count_queues(interface: &str) -> Result<u32, LiveError> {
    let reported = system::receive_queues(interface).map_err(LiveError::query(interface))?;
    // Some drivers do not report it.
    let count = || {
        let entries = fs::read_dir(format!("/sys/class/net/{interface}/queues")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count() as u32
    };
    Ok(reported.unwrap_or_else(count).max(1))
}

/// Returns the first and the last of the requested queues of an interface; without a request, those
/// of all its queues.
fn queue_range(interface: &str, queues: u32, requested: Option<(u32, u32)>) -> Result<(u32, u32), LiveError> {
    match requested {
        Some((first, last)) if last >= queues => {
            let requested = if first == last { format!("{last}") } else { format!("{first}-{last}") };
            Err(LiveError::NoQueue(interface.into(), requested, queues))
        }
        Some(range) => Ok(range),
        None => Ok((0, queues - 1)),
    }
}

/// Attaches a program in the mode of the settings, or in the best mode that the driver supports.
fn attach(
    program: &LoadedProgram,
    interface: &Interface,
    settings: &Settings,
) -> Result<(BpfLink, AttachMode), LiveError> {
    let attach = |mode| program.attach(interface.index, mode).map(|link| (link, mode));
    let (first, fallback) = match (settings.attach, settings.mode) {
        (Attach::Native, _) | (_, Mode::Zerocopy) => (AttachMode::Native, None),
        (Attach::Generic, _) => (AttachMode::Generic, None),
        (Attach::Auto, _) => (AttachMode::Native, Some(AttachMode::Generic)),
    };
    attach(first)
        .map_err(|error| (error, first))
        .or_else(|(error, mode)| match fallback {
            Some(fallback) if !is_permission(&error) && !is_in_use(&error) => {
                attach(fallback).map_err(|error| (error, fallback))
            }
            _ => Err((error, mode)),
        })
        .map_err(|(error, mode)| attach_error(error, mode, interface))
}

fn attach_error(error: io::Error, mode: AttachMode, interface: &Interface) -> LiveError {
    match (error.raw_os_error(), mode) {
        _ if is_permission(&error) => LiveError::XdpPermission,
        _ if is_in_use(&error) => LiveError::XdpInUse(interface.name.clone()),
        (Some(libc::EOPNOTSUPP), AttachMode::Native) => LiveError::NoNativeXdp,
        (Some(libc::EINVAL | libc::ERANGE | libc::E2BIG), AttachMode::Native) => LiveError::NativeXdp(error),
        _ => LiveError::XdpAttach(error),
    }
}

fn promiscuous_error(error: io::Error) -> LiveError {
    match is_permission(&error) {
        true => LiveError::XdpPermission,
        false => LiveError::Io("enable promiscuous mode".into(), error),
    }
}

fn socket_flags(settings: &Settings, attach_mode: AttachMode) -> u16 {
    match (settings.mode, attach_mode) {
        (Mode::Copy, _) | (_, AttachMode::Generic) => libc::XDP_COPY,
        (Mode::Zerocopy, _) => libc::XDP_ZEROCOPY,
        (Mode::Auto, _) => 0,
    }
}

fn register(sockets: &SocketMap, queue: u32, socket: &Socket) -> Result<(), LiveError> {
    let inserted = sockets.insert(queue, socket.as_fd());
    inserted.map_err(LiveError::io(format!("register the socket of queue {queue}")))
}

fn is_permission(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

fn socket_error(step: &Step, error: io::Error, queue: u32, settings: &Settings) -> LiveError {
    let frames = settings.frames;
    match (step, error.raw_os_error()) {
        _ if is_permission(&error) => LiveError::XdpPermission,
        (Step::Open, Some(libc::EAFNOSUPPORT)) => LiveError::NoXdpSockets,
        (Step::Open, _) => LiveError::Io("open an AF_XDP socket".into(), error),
        (Step::Memory, Some(libc::ENOBUFS)) => LiveError::LockedMemory(frames),
        (Step::Memory, _) => {
            let action = format!("allocate memory for the frames of queue {queue} (frames={frames})");
            LiveError::Io(action, error)
        }
        (Step::Bind, Some(libc::EBUSY)) => LiveError::QueueInUse(queue),
        (Step::Bind, Some(libc::EOPNOTSUPP | libc::EINVAL)) if settings.mode == Mode::Zerocopy => {
            LiveError::NoZeroCopy(queue, error)
        }
        (Step::Bind, _) => LiveError::Io(format!("bind a socket to queue {queue}"), error),
    }
}

/// The program at the interface, with the sockets that it redirects frames to.
struct Attachment {
    settings: Settings,
    program: LoadedProgram,
    mode: AttachMode,
    sockets: SocketMap,
    counters: Arc<Mutex<InterfaceCounters>>,
    /// `None` while the queue waits for an interface.
    link: Option<BpfLink>,
    /// Keeps the interface in promiscuous mode.
    promiscuous: OwnedFd,
}

impl Attachment {
    /// Attaches the program to another interface.
    ///
    /// # Errors
    /// As [`open`].
    fn attach(&mut self, interface: &Interface) -> Result<(), LiveError> {
        if interface.hardware_type != libc::ARPHRD_ETHER {
            return Err(LiveError::NotEthernet(interface.hardware_type));
        }
        let link = self.program.attach(interface.index, self.mode);
        self.link = Some(link.map_err(|error| attach_error(error, self.mode, interface))?);
        Ok(())
    }

    /// Captures from another interface, to which the program is attached, with one queue. Needs no
    /// capability: the program is loaded and the sockets are open.
    ///
    /// # Errors
    /// As [`open`].
    fn follow(
        &mut self,
        interface: &Interface,
        queue: u32,
        socket: &mut Socket,
        spare: &mut Vec<SpareSocket>,
    ) -> Result<(), LiveError> {
        let spare = spare.pop().ok_or(LiveError::NoSpareSocket(SPARE_SOCKETS))?;
        let replaced = socket.replace(spare, interface.index, queue, socket_flags(&self.settings, self.mode));
        replaced.map_err(|(step, error)| socket_error(&step, error, queue, &self.settings))?;
        register(&self.sockets, queue, socket)?;
        system::enable_promiscuous_mode(&self.promiscuous, interface.index).map_err(promiscuous_error)?;
        self.counters.lock().follow(interface.index);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Receiving,
    /// The interface was removed, and the queue waits for another one of its name.
    Waiting,
    /// Stopped; delivers the frames that have already arrived.
    Draining,
    Ended,
}

pub(crate) struct Queue {
    /// The source as the user wrote it.
    name: String,
    number: u32,
    interface_name: String,
    /// Interface index.
    interface: u32,
    socket: Socket,
    snap_bytes: Option<usize>,
    /// Dropped when the queue is stopped. The last queue detaches the program.
    attachment: Option<Arc<Attachment>>,
    /// Counters of the interface, only in the first queue; and whether `rx_dropped` counts losses.
    counters: Option<(Arc<Mutex<InterfaceCounters>>, bool)>,
    state: State,
    /// Waits for another interface of the same name if this one is removed.
    waits: bool,
    /// The log says why the present interface of the name cannot be captured.
    is_refusal_logged: bool,
    /// Sockets for these interfaces.
    spare: Vec<SpareSocket>,
    /// Frames that the socket has dropped, by the last query; and those of the sockets before it.
    dropped: u64,
    dropped_before: u64,
    /// Frames that were cut and whose length on the wire is unknown; they are not delivered.
    unknown_length: u64,
    bytes: u64,
    poll_timeout: Duration,
    interface_checked: Instant,
}

impl Queue {
    fn error(&self, cause: LiveError) -> Error {
        Error::Live { name: format!("{}, queue {}", self.name, self.number), cause }
    }

    /// Waits for frames for at most the poll timeout; returns whether there are some.
    fn wait(&mut self) -> Result<bool, Error> {
        if self.state == State::Ended {
            return Ok(false);
        }
        if self.state == State::Waiting {
            return self.attach_again().map(|()| false);
        }
        if self.unknown_length > 0 && self.state == State::Receiving {
            self.stop();
            return Err(self.error(LiveError::NoMetadata));
        }
        self.socket.release();
        if self.socket.ready() > 0 {
            return Ok(true);
        }
        let waited = self.socket.wait(self.poll_timeout);
        if self.socket.ready() > 0 {
            return Ok(true);
        }
        if let Err(error) = self.socket.take_error().and(waited) {
            let is_removed = matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO));
            let waits = self.waits && self.state == State::Receiving;
            if is_removed && waits {
                self.query_losses();
                self.state = State::Waiting;
                // An interface that moved to another network namespace keeps its program otherwise.
                self.attachment
                    .as_mut()
                    .and_then(Arc::get_mut)
                    .into_iter()
                    .for_each(|attachment| attachment.link = None);
                return Ok(false);
            }
            return Err(self.end(match is_removed {
                true => LiveError::InterfaceRemoved,
                false => LiveError::Io("read more packets".into(), error),
            }));
        }
        // Frames that were on their way when the queue was stopped have arrived by now.
        if self.state == State::Draining {
            self.state = State::Ended;
        }
        Ok(false)
    }

    fn end(&mut self, cause: LiveError) -> Error {
        self.stop();
        self.state = State::Ended;
        self.error(cause)
    }

    /// Attaches to an interface of the same name, if there is one that is up.
    fn attach_again(&mut self) -> Result<(), Error> {
        if self.interface_checked.elapsed() < INTERFACE_CHECK_INTERVAL {
            std::thread::sleep(self.poll_timeout.min(INTERFACE_CHECK_INTERVAL));
            return Ok(());
        }
        self.interface_checked = Instant::now();
        let Some(attachment) = self.attachment.as_mut().and_then(Arc::get_mut) else { return Ok(()) };
        let name = &self.interface_name;
        let Some(interface) = Interface::find(name).ok().filter(|_| system::is_up(name).unwrap_or(false)) else {
            return Ok(());
        };
        let attached = attachment.attach(&interface).map_err(|cause| (cause, true)).and_then(|()| {
            let followed = attachment.follow(&interface, self.number, &mut self.socket, &mut self.spare);
            followed.map_err(|cause| (cause, false))
        });
        let Err((error, may_wait)) = attached else {
            self.dropped_before += std::mem::take(&mut self.dropped);
            (self.interface, self.state, self.is_refusal_logged) = (interface.index, State::Receiving, false);
            return Ok(());
        };
        attachment.link = None;
        if system::interface_index(name) != Some(interface.index) {
            // It was removed meanwhile.
            return Ok(());
        }
        if !may_wait {
            return Err(self.end(error));
        }
        if !std::mem::replace(&mut self.is_refusal_logged, true) {
            let source = &self.name;
            warn!(source, %error, "interface cannot be captured, waiting for a change or another one of its name");
        }
        Ok(())
    }
}

impl Source for Queue {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.wait()? {
            return Ok(self.state != State::Ended);
        }
        let time_ns = clock::now_ns();
        for frame in self.socket.receive() {
            let (bytes, wire_bytes) = match self.snap_bytes {
                // The program could not cut it.
                Some(snap) if frame.bytes.len() > snap => (&frame.bytes[..snap], frame.bytes.len() as u32),
                Some(snap) if frame.bytes.len() == snap => match frame.wire_bytes {
                    Some(wire_bytes) => (frame.bytes, wire_bytes),
                    None => {
                        self.unknown_length += 1;
                        continue;
                    }
                },
                _ => (frame.bytes, frame.bytes.len() as u32),
            };
            self.bytes += u64::from(wire_bytes);
            burst.push(Frame {
                bytes,
                time_ns,
                wire_bytes,
                link_type: ETHERNET,
                time_assumed: false,
                interface: self.interface,
            });
        }
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        vec![(self.interface, self.interface_name.clone())]
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.bytes, total_bytes: None }
    }
}

impl LiveSource for Queue {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn wait_for_interface(&mut self) -> bool {
        // Several queues share an attachment.
        if self.attachment.as_mut().and_then(Arc::get_mut).is_none() {
            return false;
        }
        let spare: Result<_, _> = (0..SPARE_SOCKETS).map(|_| self.socket.spare()).collect();
        self.spare = spare.unwrap_or_default();
        self.waits = !self.spare.is_empty();
        self.waits
    }

    fn query_losses(&mut self) -> Losses {
        self.dropped = self.socket.dropped().unwrap_or(self.dropped);
        let kernel = self.dropped_before + self.dropped;
        let mut losses = Losses { nic: 0, kernel, queue: self.unknown_length };
        if let Some((counters, counts_kernel)) = &self.counters {
            let InterfaceLosses { nic, kernel } = counters.lock().lost();
            losses.nic = nic;
            losses.kernel += if *counts_kernel { kernel } else { 0 };
        }
        losses
    }

    fn stop(&mut self) {
        if let Some(attachment) = self.attachment.take() {
            // From here on packets continue to the stack, whose drops are not losses of this
            // source.
            attachment.counters.lock().freeze();
            attachment.sockets.remove(self.number);
            self.state = if self.state == State::Waiting { State::Ended } else { State::Draining };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_queues_are_refused_with_the_existing_ones() {
        assert_eq!(queue_range("eth0", 4, None).unwrap(), (0, 3));
        assert_eq!(queue_range("eth0", 4, Some((1, 3))).unwrap(), (1, 3));
        let error = |queues, range| queue_range("eth0", queues, Some(range)).unwrap_err().to_string();
        assert!(error(4, (2, 4)).contains("queues=2-4: eth0 has queues 0-3"));
        assert!(error(1, (1, 1)).contains("only queue 0"));
        assert_eq!(count_queues("lo").unwrap(), 1);
    }
}
