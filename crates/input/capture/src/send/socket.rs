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
use crate::live::interface::Interface;
use crate::live_error::LiveError;
use crate::send_frames::{SendFrames, SendRefusal};
use crate::source::MAX_BURST_FRAMES;
use crate::system::{self, enlarge_send_buffer};
use arrayvec::ArrayVec;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// A socket that sends out of one interface.
pub struct FrameSender {
    socket: OwnedFd,
    interface: String,
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
