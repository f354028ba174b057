//! Live traffic of a network interface from the Linux kernel: `af_packet:eth0`.
//!
//! In: every frame that the interface receives and sends, as the kernel's tap sees it. Out: a [`LiveSource`] per queue.
//!
//! ```text
//! af_packet:IFACE[,queues=N][,block=OCTETS][,blocks=N][,snap=N][,promisc=on|off][,timestamps=kernel|hardware][,fanout=ID]
//! ```
//!
//! | key | default | |
//! |---|---|---|
//! | `queues` | 1 | sources that share the traffic, each with a ring of its own, 1 to 256 |
//! | `block` | 256KiB | octets of a block of the ring: what the kernel hands over at a time, a multiple of the page size. A larger frame is cut |
//! | `blocks` | 256 | blocks of the ring: with `block`, the memory of a queue, which is never swapped out |
//! | `snap` | | octets kept of each frame, at most; without it all |
//! | `promisc` | on | also frames that are for others; ends with the source |
//! | `timestamps` | kernel | `hardware`: the time at which the card received the frame |
//! | `fanout` | | a number, 0 to 65535: programs that name the same one share the traffic of the interface |
//!
//! Always true:
//! * What the kernel counted is what was handed over and what was dropped, to the packet, when the source has ended.
//! * Both directions of a flow, its fragments, and the same with tags, labels and PPPoE around it meet in one queue: the
//!   queue follows from the outermost IP addresses alone, see [`steering`]. What has no IP is in the first queue. (The
//!   kernel's own hash takes the ports, which fragments do not have; and to put them together first, as it
//!   offers to, would change the packets that are counted.) What goes through a tunnel goes where the tunnel's ends send it, so a
//!   flow that is spread over several tunnels may be in several queues. While an interface comes up again, or another program joins
//!   or leaves a `fanout` group, flows may change their queue.
//! * A frame is as it was on the wire: a VLAN tag that was taken off is put back. What the host has not cut into segments
//!   yet, or has put together already, is one frame, longer than the MTU.
//! * Nothing is copied: frames lie in the ring that the kernel writes.
//!
//! Frames that the host sends are there as well as those that it receives; on the loopback interface, where each packet is
//! both, only as received. Nanosecond times are those of the kernel (`CLOCK_REALTIME`), or of the card; what the host sends
//! has those of the kernel in either case, so the card's clock should follow the system's (`phc2sys`). The card is
//! left set to stamp every frame.
//!
//! Frames are handed over at the latest 50 ms after they came. An interface that goes down is waited for; one that
//! is removed is an error, and then the end.

mod block;
mod interface;
mod program;
mod queue;
mod ring;
mod settings;
mod socket;
mod steering;
mod tap;

use crate::counters::Counters;
use crate::{Error, LiveSource};
use interface::Interface;
use queue::Queue;
use ring::Ring;
use settings::Settings;
use socket::Socket;
use std::io::{self, ErrorKind};
use tap::Tap;

/// The scheme of these sources.
pub(crate) const SCHEME: &str = "af_packet:";
/// A block goes to the reader after so long, full or not: at most twice this after the first frame in it, as the timer of
/// older kernels looks twice. A block costs its whole size however little is in it, so a reader
/// may be away for [`Settings::blocks`] times this on the quietest link.
const RETIRE_MS: u32 = 20;
/// Room before each frame for a VLAN tag; 16, so that IP headers stay aligned as the kernel lays them.
const HEADROOM: u32 = 16;

/// Opens an interface: a source per queue.
///
/// # Errors
/// [`Error::Live`]: no such interface, not permitted, no memory for the ring, a setting that makes no sense.
pub(crate) fn open(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let queues = open_queues(source).map_err(|what| Error::Live { name: source.into(), what })?;
    Ok(queues.into_iter().map(|queue| Box::new(queue) as Box<dyn LiveSource + Send>).collect())
}

/// Opens the interfaces of a tap, each named as a source of its own: a source per queue, of all of them.
///
/// # Errors
/// As [`open`]; or they have different numbers of queues.
pub(crate) fn open_tap(name: &str, interfaces: &[String]) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let open = |source: &String| open_queues(source).map_err(|what| Error::Live { name: source.clone(), what });
    let opened = interfaces.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let queues = crate::tap::queue_by_queue(name, opened)?;
    Ok(queues.into_iter().map(|queues| Box::new(Tap::new(queues)) as Box<dyn LiveSource + Send>).collect())
}

fn open_queues(source: &str) -> Result<Vec<Queue>, String> {
    let settings = Settings::parse(source.strip_prefix(SCHEME).unwrap_or(source)).map_err(|error| error.to_string())?;
    let interface = Interface::find(&settings.interface)?;
    settings.check_memory(available_octets())?;
    if settings.hardware {
        interface.stamp_by_card()?;
    }
    let mut opened = Vec::new();
    for _ in 0..settings.queues {
        let socket = Socket::new().map_err(|error| refused(&error))?;
        // Nothing comes in before every queue is there: where a flow goes depends on their number.
        let ring = prepare(&socket, &settings).map_err(|error| no_ring(&settings, &error))?;
        socket.bind(interface.index).map_err(|error| format!("cannot listen: {error}"))?;
        opened.push((socket, ring));
    }
    let sockets: Vec<&Socket> = opened.iter().map(|(socket, _)| socket).collect();
    share(&sockets, &interface, &settings)?;
    let mut card =
        Some(Counters::new(interface.index as u32).map_err(|error| format!("cannot ask for its counters: {error}"))?);
    let wanted = program::wanted(settings.snap, interface.is_loopback);
    let mut queues = Vec::new();
    for (socket, ring) in opened {
        socket.filter(&wanted).map_err(|error| format!("cannot set the filter: {error}"))?;
        if settings.promiscuous {
            socket.promiscuous(interface.index).map_err(|error| format!("promisc=on: {error}"))?;
        }
        let format =
            block::Format { link_type: interface.link_type, snap: settings.snap, interface: interface.index as u32 };
        queues.push(Queue::new(source.into(), socket, ring, format, settings.hardware, card.take()));
    }
    Ok(queues)
}

/// What must be set before a socket is bound.
fn prepare(socket: &Socket, settings: &Settings) -> io::Result<Ring> {
    socket.filter(&program::nothing())?;
    socket.reserve(HEADROOM)?;
    socket.timestamps(settings.hardware)?;
    Ring::new(socket, settings.block_bytes as usize, settings.blocks as usize)
}

/// Makes sockets share the traffic, if there are several, or others who share it.
fn share(sockets: &[&Socket], interface: &Interface, settings: &Settings) -> Result<(), String> {
    if sockets.len() == 1 && settings.fanout.is_none() {
        return Ok(());
    }
    let steering = steering::by_addresses(interface.link_type, steering::secret());
    let mut group = settings.fanout;
    for socket in sockets {
        match group {
            Some(group) => socket.join(group),
            None => socket.found().map(|founded| group = Some(founded)),
        }
        .map_err(|error| match (settings.fanout, error.kind()) {
            (Some(group), _) if error.raw_os_error() == Some(libc::ENOSPC) => {
                format!("fanout={group}: the group is full; choose another number")
            }
            (Some(group), ErrorKind::InvalidInput | ErrorKind::AlreadyExists) => format!(
                "fanout={group}: another program has a group of that number and shares in another way, or another interface; choose another number"
            ),
            _ => format!("the queues cannot share the traffic: {error}"),
        })?;
    }
    sockets[0].steer(&steering).map_err(|error| format!("the queues cannot share the traffic: {error}"))
}

/// What to say if there is no socket.
fn refused(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "not permitted: capturing takes CAP_NET_RAW; run as root, or once as root: setcap cap_net_raw+ep {}",
            std::env::current_exe().map_or_else(|_| "weir".into(), |path| path.display().to_string())
        ),
        _ => format!("no packet socket: {error}"),
    }
}

/// What to say if there is no ring.
fn no_ring(settings: &Settings, error: &io::Error) -> String {
    if error.kind() == ErrorKind::OutOfMemory { settings.too_large("gives") } else { format!("no ring: {error}") }
}

/// Octets of memory that the system could give, if it says so.
fn available_octets() -> Option<u64> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
