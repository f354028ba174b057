//! Frames out of an interface as they are: what live sources are tried with.
//!
//! In: frames. Out: the same on the wire, past the interface's queueing, and how many of them the kernel took.
//!
//! Why this is sound: every call hands the kernel memory of values that live across the call, with its size; it reads the frames and
//! writes how many octets of each it took, numbers. Nothing here keeps a pointer.
#![allow(unsafe_code)]

use crate::source::BURST;
use crate::system;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// A way out of one interface. It receives nothing.
pub struct Sender(OwnedFd);

impl Sender {
    /// Opens an interface of this network for sending.
    ///
    /// # Errors
    /// What the operating system says: no such interface, or not permitted (`CAP_NET_RAW`).
    pub fn open(interface: &str) -> io::Result<Self> {
        let index = system::interface_index(interface).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        // Without a protocol: nothing comes in.
        let socket = system::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        system::set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &(1 as c_int))?;
        // SAFETY: the structure is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as c_int;
        let octets = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address lives across the call, and its size is its own.
        match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), octets) } {
            0 => Ok(Self(socket)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Hands over the first frames, at most [`BURST`], in one call, and says how many the kernel took: fewer if it refused the
    /// one behind them, which the next call is told.
    ///
    /// # Errors
    /// What the operating system says of the first frame; of a device without room it is [`Sender::is_full`].
    pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        // SAFETY: numbers and pointers, for which zeros are valid.
        let (mut pieces, mut messages) =
            unsafe { (mem::zeroed::<[libc::iovec; BURST]>(), mem::zeroed::<[libc::mmsghdr; BURST]>()) };
        let count = frames.len().min(BURST);
        for ((piece, message), frame) in pieces.iter_mut().zip(&mut messages).zip(frames) {
            *piece = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (std::ptr::from_mut(piece), 1);
        }
        // SAFETY: so many messages, each with one piece, each of these a frame, all of which live across the call; the kernel only
        // reads the frames, and writes lengths into the messages.
        let taken = unsafe { libc::sendmmsg(self.0.as_raw_fd(), messages.as_mut_ptr(), count as u32, 0) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Whether an error says that the device had no room for the frame, which is lost.
    pub fn is_full(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN))
    }
}
