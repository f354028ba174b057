//! Sends frames out of an interface through an AF_PACKET socket, in one system call per burst.
//!
//! In: frames that begin with an Ethernet header. Out: the same octets at the interface; the kernel
//! copies them once. The frames skip the queueing discipline, so they wait nowhere, and packet
//! sockets on the interface do not see them. The socket receives nothing. It stays open when the
//! interface is removed, and can be bound to another one of that name without a capability.
//!
//! Why this is sound: the kernel reads messages, their slices and the frames during the call only,
//! and all of them live across it. It writes the length of each message, a number.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::interface::Interface;
use crate::live_error::LiveError;
use crate::{MAX_BURST_FRAMES, system};
use arrayvec::ArrayVec;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// Octets that the frames in the transmit queue of the NIC may take, including the kernel's overhead.
const SEND_BUFFER_BYTES: c_int = 16 << 20;

/// Sends frames that begin with an Ethernet header out of an interface or a port.
pub trait SendFrames: Send {
    /// Sends frames, at most [`MAX_BURST_FRAMES`], without waiting. Returns how many of the first ones
    /// were taken; if it is none, why the first one was refused.
    ///
    /// # Errors
    /// The refusal of the first frame.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SendRefusal>;

    /// After [`SendRefusal::Removed`]: attaches to the interface that has the name now. Returns whether
    /// there is one that can be used.
    fn bind(&mut self) -> bool;
}

/// Opens a device of DPDK for sending: `dpdk:DEVICE[,key=value]...`, one sender for each of `queues`
/// pipelines.
///
/// # Errors
/// [`Error::Live`]: this is built without DPDK, a wrong setting, or DPDK does not open the device.
pub fn open_dpdk_senders(output: &str, queues: usize) -> Result<Vec<Box<dyn SendFrames>>, Error> {
    #[cfg(feature = "dpdk")]
    let opened = {
        let device = output.strip_prefix("dpdk:").unwrap_or(output);
        let transmitters = crate::dpdk::open_output(device, u16::try_from(queues).unwrap_or(u16::MAX));
        transmitters.map_err(|error| LiveError::from(Box::new(error)))
    };
    #[cfg(not(feature = "dpdk"))]
    let opened = Err::<Vec<FrameSender>, _>(queues).map_err(|_| LiveError::NoDpdk);
    let senders = opened.map_err(|cause| Error::Live { name: output.into(), cause })?;
    Ok(senders.into_iter().map(|sender| Box::new(sender) as Box<dyn SendFrames>).collect())
}

/// A socket that sends out of one interface.
pub struct FrameSender {
    socket: OwnedFd,
    interface: String,
}

/// Why the kernel did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRefusal {
    /// It is longer than the MTU permits.
    TooLong,
    /// It is shorter than the Ethernet header.
    TooShort,
    /// The queue of the interface is full, or there is no memory: the next frames will not be taken
    /// either.
    Interface,
    /// The interface is down.
    Down,
    /// The interface was removed. [`SendFrames::bind`] attaches to another one of its name.
    Removed,
}

impl FrameSender {
    /// Opens an interface of this network namespace, which must be up.
    ///
    /// # Errors
    /// [`Error::Live`]: no such interface, it is down or not Ethernet, or not permitted. `output` is
    /// its name in that error.
    pub fn open(output: &str, interface: &str) -> Result<Self, Error> {
        Self::open_interface(interface).map_err(|cause| Error::Live { name: output.into(), cause })
    }

    fn open_interface(interface: &str) -> Result<Self, LiveError> {
        let Interface { name, .. } = Interface::find(interface)?;
        if !system::is_up(&name).map_err(LiveError::query(&name))? {
            return Err(LiveError::InterfaceDown(name));
        }
        let socket = system::socket(libc::AF_PACKET, libc::SOCK_RAW).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => LiveError::SendPermission,
            _ => LiveError::Io("open a packet socket".into(), error),
        })?;
        let bypass: c_int = 1;
        system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &bypass)
            .map_err(LiveError::io("skip the queueing discipline"))?;
        enlarge_send_buffer(&socket);
        let sender = Self { socket, interface: name };
        sender.bind_interface()?;
        Ok(sender)
    }

    fn bind_interface(&self) -> Result<(), LiveError> {
        let interface = Interface::find(&self.interface)?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&interface.hardware_type) {
            return Err(LiveError::SendNotEthernet(interface.hardware_type));
        }
        // SAFETY: the structure is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface.index as c_int;
        system::bind(&self.socket, &address).map_err(LiveError::io("bind the socket"))
    }
}

impl SendFrames for FrameSender {
    fn bind(&mut self) -> bool {
        self.bind_interface().is_ok()
    }

    /// In one system call.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SendRefusal> {
        let mut slices: ArrayVec<libc::iovec, MAX_BURST_FRAMES> = frames
            .iter()
            .take(MAX_BURST_FRAMES)
            .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
            .collect();
        let mut messages: ArrayVec<libc::mmsghdr, MAX_BURST_FRAMES> = ArrayVec::new();
        for slice in &mut slices {
            // SAFETY: the structure is numbers and pointers, for which zeros are valid.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (slice, 1);
            messages.push(message);
        }
        let (socket, number) = (self.socket.as_raw_fd(), messages.len() as u32);
        // SAFETY: the messages, the slices and the frames live across the call; the kernel reads
        // them, and writes only the lengths in the messages.
        let sent = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), number, libc::MSG_DONTWAIT as _) };
        usize::try_from(sent).map_err(|_| match io::Error::last_os_error().raw_os_error() {
            Some(libc::EMSGSIZE) => SendRefusal::TooLong,
            Some(libc::EINVAL) => SendRefusal::TooShort,
            Some(libc::ENXIO | libc::ENODEV) => SendRefusal::Removed,
            Some(libc::ENETDOWN) => SendRefusal::Down,
            _ => SendRefusal::Interface,
        })
    }
}

/// Gives a socket the largest send buffer that the system permits; without limit with CAP_NET_ADMIN.
pub(crate) fn enlarge_send_buffer(socket: &OwnedFd) {
    let _ = system::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)
        .or_else(|_| system::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES));
}
