//! Live traffic through AF_XDP: frames that a program in the driver hands over, before the kernel's own network stack.
//!
//! ```text
//! af_xdp:IFACE[,queues=0-3][,mode=auto|copy|zerocopy][,attach=auto|native|generic][,snap=N][,frames=N]
//! ```
//! In: an interface, all of whose queues are read unless some are named. Out: a source per queue. The card decides which queue a
//! frame is on; for both directions of a flow on one queue its hash must be symmetric.
//! Always true: **what is handed over here does not reach the kernel's stack**: for this machine it never came. That
//! is right at a mirror port and wrong on a server. The program goes away with the process, however that ends. A frame that was
//! cut by `snap` keeps its length on the wire.
//! Limits: times are taken when a burst is, once for all of it; frames above 3840 octets are dropped, and counted, unless `snap`
//! cuts them; a VLAN tag that the card took off is lost (`ethtool -K IFACE rxvlan off` leaves it on).
//! Source: the kernel's `Documentation/networking/af_xdp.rst`.

mod bpf;
mod interface;
mod program;
mod settings;
mod socket;

use crate::counters::{Counters, Lost};
use crate::{Burst, Error, Frame, LiveSource, Losses, POLL_TIMEOUT, Progress, Source, system};
use bpf::{Link, Loaded, Place, SocketMap};
use interface::Interface;
use settings::{Attach, Mode, Settings};
use socket::{MOST_OCTETS, Socket, Statistics, Step};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the name of such a source begins with.
pub(crate) const SCHEME: &str = "af_xdp:";

/// What somebody who opens one must know.
pub(crate) const NOTICE: &str = "packets that it takes in do not reach this machine's own network stack: connections through that interface stand still \
     meanwhile; meant for mirror ports";

/// LINKTYPE number of Ethernet.
const ETHERNET: u16 = 1;
/// What it takes to be permitted.
const PERMISSION: &str = "not permitted: it takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or root";

/// Opens the queues of an interface; packets are taken from when all of them are open.
///
/// # Errors
/// [`Error::Live`]: no such interface or queue, not permitted, a mode that the driver has not, another program in its place.
pub(crate) fn open(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let refuse = |what| Error::Live { name: source.into(), what };
    let text = source.strip_prefix(SCHEME).unwrap_or(source);
    let settings = Settings::parse(text, MOST_OCTETS).map_err(|error| refuse(error.to_string()))?;
    let queues = queues(source, &settings).map_err(refuse)?;
    Ok(queues.into_iter().map(|queue| Box::new(queue) as Box<dyn LiveSource + Send>).collect())
}

fn queues(name: &str, settings: &Settings) -> Result<Vec<Queue>, String> {
    let interface = Interface::find(&settings.interface)?;
    let (first, last) = interface.range(settings.queues)?;
    let sockets = SocketMap::new(last + 1).map_err(|error| match permission(&error) {
        Some(what) => what,
        None => {
            format!("the kernel makes no map of sockets (it must be 5.9 or newer, with CONFIG_XDP_SOCKETS): {error}")
        }
    })?;
    let loaded = Loaded::new(&program::program(sockets.descriptor(), settings.snap));
    let loaded = loaded.map_err(|(error, words)| refused_program(&error, &words, settings))?;
    // Before the sockets, as what they can do depends on it. Everything is passed on until there is a socket in the map.
    let (link, place) = attach(&loaded, &interface, settings)?;
    let promiscuous = system::promiscuous(interface.index)
        .map_err(|error| permission(&error).unwrap_or_else(|| format!("cannot make it promiscuous: {error}")))?;
    let flags = match (settings.mode, place) {
        (Mode::Copy, _) | (_, Place::Generic) => libc::XDP_COPY,
        (Mode::Zerocopy, _) => libc::XDP_ZEROCOPY,
        (Mode::Auto, _) => 0,
    };
    let open = |queue| {
        let socket = Socket::new(interface.index, queue, settings.frames, flags);
        socket.map_err(|(step, error)| refused_socket(&step, &error, queue, settings)).map(|socket| (queue, socket))
    };
    let opened = (first..=last).map(open).collect::<Result<Vec<_>, _>>()?;
    for (queue, socket) in &opened {
        let inserted = sockets.insert(*queue, socket.as_fd());
        inserted.map_err(|error| format!("the kernel does not take the socket of queue {queue}: {error}"))?;
    }
    let takes_all = (first, last) == (0, interface.queues - 1);
    // What the kernel drops before the program is known only where nothing else is counted with it: behind the driver, and if no
    // packet goes on to the stack. Some drivers count there what a socket did not take, which is known from the socket.
    let counters = Counters::new(interface.index).map_err(|error| format!("cannot count what it loses: {error}"))?;
    let counts_kernel = takes_all && place == Place::Generic;
    let counters = Arc::new(Mutex::new(counters));
    let attached = Attached { sockets, counters: counters.clone(), _link: link, _promiscuous: promiscuous };
    let attached = Arc::new(attached);
    Ok(opened
        .into_iter()
        .map(|(number, socket)| Queue {
            name: name.into(),
            number,
            interface: interface.index,
            socket,
            snap: settings.snap.map(|octets| octets as usize),
            attached: Some(attached.clone()),
            // The first one tells what cannot be told by queue.
            counters: (number == first).then(|| (counters.clone(), counts_kernel)),
            state: State::Takes,
            statistics: Statistics::default(),
            unknown: 0,
            octets: 0,
            poll_timeout: POLL_TIMEOUT,
        })
        .collect())
}

/// Attaches a program where the settings say, or in the best place that there is.
fn attach(loaded: &Loaded, interface: &Interface, settings: &Settings) -> Result<(Link, Place), String> {
    let places: &[Place] = match (settings.attach, settings.mode) {
        (Attach::Native, _) | (_, Mode::Zerocopy) => &[Place::Native],
        (Attach::Generic, _) => &[Place::Generic],
        (Attach::Auto, _) => &[Place::Native, Place::Generic],
    };
    let name = &interface.name;
    let mut trouble = String::new();
    for &place in places {
        let error = match loaded.attach(interface.index, place) {
            Ok(link) => return Ok((link, place)),
            Err(error) => error,
        };
        if let Some(what) = permission(&error) {
            return Err(what);
        }
        trouble = match (error.raw_os_error(), place) {
            (Some(libc::EBUSY | libc::EEXIST), _) => {
                return Err(format!(
                    "another XDP program is attached to it (ip link show dev {name} tells which): end what it belongs to, \
                     or: ip link set dev {name} xdp off"
                ));
            }
            (Some(libc::EOPNOTSUPP), Place::Native) => {
                "its driver has no native XDP; attach=generic works with every driver".into()
            }
            (Some(libc::EINVAL | libc::ERANGE | libc::E2BIG), Place::Native) => format!(
                "its driver takes no native XDP program as it is set up ({error}): often the MTU is too large for it, \
                 or GRO in hardware (LRO) is on; attach=generic works with every driver"
            ),
            _ => format!("the kernel does not attach the program (it must be 5.9 or newer): {error}"),
        };
    }
    Err(trouble)
}

fn permission(error: &io::Error) -> Option<String> {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)).then(|| PERMISSION.into())
}

/// Why the kernel did not take the program; EACCES is what its verifier says.
fn refused_program(error: &io::Error, words: &str, settings: &Settings) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => PERMISSION.into(),
        _ => {
            let newer = if settings.snap.is_some() { "5.18 or newer for snap" } else { "5.9 or newer" };
            format!("the kernel does not take the program (it must be {newer}): {error}; {words}")
        }
    }
}

/// Why there is no socket for a queue.
fn refused_socket(step: &Step, error: &io::Error, queue: u32, settings: &Settings) -> String {
    if let Some(what) = permission(error) {
        return what;
    }
    let frames = settings.frames;
    match (step, error.raw_os_error()) {
        (Step::Open, Some(libc::EAFNOSUPPORT)) => "the kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".into(),
        (Step::Open, _) => format!("cannot open an AF_XDP socket: {error}"),
        (Step::Memory, Some(libc::ENOBUFS)) => format!(
            "frames={frames}: that much memory may not be locked; raise the limit (ulimit -l), give CAP_IPC_LOCK, or ask for fewer"
        ),
        (Step::Memory, _) => format!("frames={frames}: no memory for the frames of queue {queue}: {error}"),
        (Step::Bind, Some(libc::EBUSY)) => {
            format!("queue {queue} has an AF_XDP socket of another program already")
        }
        (Step::Bind, Some(libc::EOPNOTSUPP | libc::EINVAL)) if settings.mode == Mode::Zerocopy => {
            format!("its driver has no zero copy for queue {queue} ({error}); mode=copy works with every driver")
        }
        (Step::Bind, _) => format!("cannot bind a socket to queue {queue}: {error}"),
    }
}

/// The program at the interface, with the sockets that it hands frames to.
struct Attached {
    sockets: SocketMap,
    counters: Arc<Mutex<Counters>>,
    _link: Link,
    _promiscuous: OwnedFd,
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Takes,
    /// Hands over what has come.
    Stops,
    Ended,
}

/// One queue.
struct Queue {
    /// The source as the user wrote it.
    name: String,
    number: u32,
    /// The system's number of the interface.
    interface: u32,
    socket: Socket,
    snap: Option<usize>,
    /// Until it is stopped. The program goes with the last queue that is.
    attached: Option<Arc<Attached>>,
    /// Of the first queue; and whether the kernel's counter is one of losses.
    counters: Option<(Arc<Mutex<Counters>>, bool)>,
    state: State,
    /// As they were last.
    statistics: Statistics,
    /// Frames that were cut and whose length on the wire nobody knows: they are not handed over.
    unknown: u64,
    octets: u64,
    /// How long it waits for frames.
    poll_timeout: Duration,
}

impl Queue {
    fn error(&self, what: String) -> Error {
        Error::Live { name: format!("{}, queue {}", self.name, self.number), what }
    }

    /// Waits until there are frames, or for [`POLL_TIMEOUT`]; says whether there are.
    fn settle(&mut self) -> Result<bool, Error> {
        if self.state == State::Ended {
            return Ok(false);
        }
        if self.unknown > 0 && self.state == State::Takes {
            self.stop();
            let what =
                "the driver passes no metadata on, so that the length of frames that are cut is lost; leave snap out";
            return Err(self.error(what.into()));
        }
        self.socket.give_back();
        if self.socket.ready() > 0 {
            return Ok(true);
        }
        let waited = self.socket.wait(self.poll_timeout);
        if self.socket.ready() > 0 {
            return Ok(true);
        }
        let trouble = self.socket.broken().or(waited.err());
        if let Some(error) = trouble {
            self.stop();
            self.state = State::Ended;
            return Err(self.error(match error.raw_os_error() {
                Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => {
                    "the interface is gone; packets before that were read".into()
                }
                _ => format!("no more packets can be read: {error}"),
            }));
        }
        // What was on its way when the program was taken off has come by now.
        if self.state == State::Stops {
            self.state = State::Ended;
        }
        Ok(false)
    }
}

impl Source for Queue {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.settle()? {
            return Ok(self.state != State::Ended);
        }
        let time_ns = now_ns();
        for taken in self.socket.take() {
            let (bytes, wire_bytes) = match self.snap {
                // Where the program could not cut, it is done here.
                Some(snap) if taken.bytes.len() > snap => (&taken.bytes[..snap], taken.bytes.len() as u32),
                Some(snap) if taken.bytes.len() == snap => match taken.told {
                    Some(wire_bytes) => (taken.bytes, wire_bytes),
                    None => {
                        self.unknown += 1;
                        continue;
                    }
                },
                _ => (taken.bytes, taken.bytes.len() as u32),
            };
            self.octets += u64::from(wire_bytes);
            burst.push(Frame {
                bytes,
                time_ns,
                wire_bytes,
                link_type: ETHERNET,
                time_clamped: false,
                interface: self.interface,
            });
        }
        Ok(true)
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.octets, total_bytes: None }
    }
}

impl LiveSource for Queue {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.poll_timeout = timeout;
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn latest_ns(&self) -> u64 {
        now_ns()
    }

    fn losses(&mut self) -> Losses {
        self.statistics = self.socket.statistics().unwrap_or(self.statistics);
        let mut losses =
            Losses { nic: 0, kernel: self.statistics.dropped + self.statistics.ring_full, ring: self.unknown };
        if let Some((counters, counts_kernel)) = &self.counters {
            let Lost { card, kernel } = counters.lock().unwrap_or_else(PoisonError::into_inner).lost();
            losses.nic = card;
            losses.kernel += if *counts_kernel { kernel } else { 0 };
        }
        losses
    }

    fn stop(&mut self) {
        if let Some(attached) = self.attached.take() {
            // From here on packets go on to the stack, and what it drops is no loss of ours.
            attached.counters.lock().unwrap_or_else(PoisonError::into_inner).freeze();
            attached.sockets.remove(self.number);
            self.state = State::Stops;
        }
    }
}

/// Nanoseconds since 1970, UTC, by the system's clock.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64)
}
