//! Live traffic of a network interface through AF_PACKET sockets with TPACKET_V3 rings:
//! `af_packet:eth0`.
//!
//! In: every frame that the interface receives and sends. Out: a [`Queue`] per receive queue.
//! `docs/af_packet.md` describes the settings.
//!
//! Invariants:
//! * When the source has ended, the packets that the kernel counted are exactly those that were
//!   delivered or dropped.
//! * Both directions of a flow, its fragments, and its packets with VLAN tags, MPLS labels and
//!   PPPoE reach the same queue: the queue depends only on the outermost IP addresses, see
//!   [`steering`]. Frames without IP go to the first queue. (The kernel's own hash uses ports,
//!   which fragments do not have, and its defragmentation would change the packets that are
//!   counted.) A tunnel's packets go to the queue of the tunnel's endpoints, so a flow over several
//!   tunnels may reach several queues. When an interface comes up again, or another program joins
//!   or leaves a `fanout` group, flows may change their queue.
//! * A frame has the bytes that it had on the wire: a VLAN tag that was stripped is restored. A
//!   packet that the host has not segmented yet (TSO), or has merged already (GRO), is one frame,
//!   longer than the MTU.
//! * Nothing is copied: frames are read in the ring that the kernel writes.
//!
//! Frames are captured when sent and when received; on the loopback interface, where each packet is
//! both, only when received. Times are those of the kernel (`CLOCK_REALTIME` without its steps:
//! `stamp_clock`) or of the NIC. Sent frames always have the kernel's times, so synchronize the
//! NIC's clock with the system's (`phc2sys`). The NIC keeps time-stamping every frame after the
//! source is closed.
//!
//! Frames are delivered at most 50 ms after they arrived. If an interface goes down, the source
//! waits for it; if it is removed, the source reports an error and ends, or waits for another one of
//! that name.

mod block;
mod program;
mod queue;
mod ring;
mod settings;
mod socket;
mod stamp_clock;
mod steering;
mod tap;

use crate::link_type::{ETHERNET, RAW};
use crate::live::counters::InterfaceCounters;
use crate::live::interface::Interface;
use crate::live_error::LiveError;
use crate::system;
pub(crate) use queue::Queue;
use ring::Ring;
pub(crate) use settings::Settings;
use socket::Socket;
use std::io::{self, ErrorKind};
pub(crate) use tap::TimeOrder;

pub(crate) const SCHEME: &str = "af_packet:";
/// Bytes reserved before each frame for a VLAN tag; 16, so that IP headers stay aligned.
const HEADROOM: u32 = 16;

/// Hardware type of devices that carry raw IP over a radio link; missing in `libc`.
const ARPHRD_RAWIP: u16 = 519;

/// Checks a source without opening it.
///
/// # Errors
/// No such interface, or it is down; no memory for the ring; no time stamps of the NIC.
pub(crate) fn check(interface: &str, settings: &Settings) -> Result<(), LiveError> {
    let (interface, _) = find(interface, settings)?;
    // A kernel that cannot say it may nevertheless have them.
    if settings.hardware && system::has_hardware_timestamps(&interface.name).is_ok_and(|has_them| !has_them) {
        return Err(LiveError::HardwareTimestamps(interface.name));
    }
    Ok(())
}

/// The interface and its link type.
fn find(interface: &str, settings: &Settings) -> Result<(Interface, u16), LiveError> {
    let interface = Interface::find(interface)?;
    let link_type = link_type(interface.hardware_type).ok_or(LiveError::HardwareType(interface.hardware_type))?;
    if !system::is_up(&interface.name).map_err(LiveError::query(&interface.name))? {
        return Err(LiveError::InterfaceDown(interface.name));
    }
    settings.check_memory(available_bytes())?;
    Ok((interface, link_type))
}

/// Opens an interface: one source per queue.
///
/// # Errors
/// No such interface, not permitted, or no memory for the ring.
pub(crate) fn open(source: &str, interface: &str, settings: &Settings) -> Result<Vec<Queue>, LiveError> {
    let (interface, link_type) = find(interface, settings)?;
    let hardware_type = interface.hardware_type;
    if settings.hardware {
        enable_hardware_timestamps(&interface.name)?;
    }
    let mut opened = Vec::new();
    for _ in 0..settings.queues {
        let socket = Socket::new().map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => LiveError::CapturePermission,
            _ => LiveError::Io("open a packet socket".into(), error),
        })?;
        // No queue receives before all of them exist, because the queue of a flow depends on their
        // number.
        let ring = prepare(&socket, settings).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => settings.memory_error(),
            _ => LiveError::Io("set up the ring".into(), error),
        })?;
        socket.bind(interface.index as i32).map_err(LiveError::io("bind the socket"))?;
        opened.push((socket, ring));
    }
    let sockets: Vec<&Socket> = opened.iter().map(|(socket, _)| socket).collect();
    share(&sockets, link_type, settings)?;
    let mut counters = Some(InterfaceCounters::new(interface.index).map_err(LiveError::io("query its counters"))?);
    let filter = program::snap_filter(settings.snap_bytes, hardware_type == libc::ARPHRD_LOOPBACK);
    let mut queues = Vec::new();
    for (socket, ring) in opened {
        socket.set_filter(&filter).map_err(LiveError::io("set the filter"))?;
        if settings.promiscuous {
            let enabled = socket.enable_promiscuous_mode(interface.index);
            enabled.map_err(LiveError::io("enable promiscuous mode (promisc=off leaves it off)"))?;
        }
        queues.push(Queue::new(source, interface.clone(), *settings, link_type, (socket, ring), counters.take()));
    }
    Ok(queues)
}

/// Sets everything that must be set before the socket is bound.
fn prepare(socket: &Socket, settings: &Settings) -> io::Result<Ring> {
    socket.set_filter(&program::drop_filter())?;
    socket.reserve(HEADROOM)?;
    socket.set_timestamps(settings.hardware)?;
    Ring::new(socket, settings.block_bytes, settings.blocks)
}

/// Makes the sockets share the traffic by a fanout group, if there are several or a group is named.
fn share(sockets: &[&Socket], link_type: u16, settings: &Settings) -> Result<(), LiveError> {
    if sockets.len() == 1 && settings.fanout.is_none() {
        return Ok(());
    }
    let steering = steering::by_addresses(link_type, steering::secret());
    let mut group = settings.fanout;
    for socket in sockets {
        match group {
            Some(group) => socket.join_fanout_group(group),
            None => socket.create_fanout_group().map(|created| group = Some(created)),
        }
        .map_err(|error| match (settings.fanout, error.kind()) {
            (Some(group), _) if error.raw_os_error() == Some(libc::ENOSPC) => LiveError::FanoutFull(group),
            (Some(group), ErrorKind::InvalidInput | ErrorKind::AlreadyExists) => LiveError::FanoutInUse(group),
            _ => LiveError::Io("share the traffic between the queues".into(), error),
        })?;
    }
    sockets[0].set_fanout_program(&steering).map_err(LiveError::io("share the traffic between the queues"))
}

fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn link_type(hardware_type: u16) -> Option<u16> {
    match hardware_type {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(ETHERNET),
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT | ARPHRD_RAWIP => Some(RAW),
        _ => None,
    }
}

fn enable_hardware_timestamps(interface: &str) -> Result<(), LiveError> {
    system::enable_hardware_timestamps(interface).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => LiveError::TimestampPermission,
        _ if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) => {
            LiveError::HardwareTimestamps(interface.into())
        }
        _ => LiveError::Io("configure the NIC for timestamps=hardware".into(), error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_types_without_known_link_type_are_refused() {
        assert_eq!([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].map(link_type), [Some(1); 2]);
        assert_eq!([libc::ARPHRD_NONE, libc::ARPHRD_TUNNEL, ARPHRD_RAWIP].map(link_type), [Some(101); 3]);
        assert_eq!([libc::ARPHRD_IPGRE, libc::ARPHRD_INFINIBAND, libc::ARPHRD_IEEE80211].map(link_type), [None; 3]);
    }
}
