//! Sends frames out of an interface unchanged, to test live sources.
//!
//! In: frames. Out: the same frames on the wire, and the number that the kernel accepted.
//!
//! Why `unsafe`: no safe library sets `PACKET_QDISC_BYPASS` or makes a link-layer address. Both
//! calls get memory of a value that lives across the call, with its size; no pointer is kept.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;
use rustix::net::{
    AddressFamily, MMsgHdr, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, netdevice, sendmmsg, socket_with,
};
use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use weir_capture::MAX_BURST_FRAMES;

/// Sends frames out of one interface. It receives nothing.
pub struct Sender(OwnedFd);

impl Sender {
    /// Opens an interface of this network namespace. `bypass_qdisc` skips the queueing discipline,
    /// which is faster; other packet sockets on the interface do not see those frames.
    ///
    /// # Errors
    /// No such interface, or not permitted (`CAP_NET_RAW`).
    pub fn open(interface: &str, bypass_qdisc: bool) -> io::Result<Self> {
        // Protocol 0: nothing is received.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&socket, interface)?;
        let bypass = c_int::from(bypass_qdisc);
        // SAFETY: the value lives across the call, with its size; the kernel only reads it.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                (&raw const bypass).cast(),
                size_of_val(&bypass) as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the structure is plain numbers, for which zeros are valid; it is a whole address,
        // and is copied.
        let address = unsafe {
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = index as c_int;
            SocketAddrAny::read((&raw const address).cast(), size_of_val(&address) as u32)
        };
        bind(&socket, &address)?;
        Ok(Self(socket))
    }

    /// Sends the first [`MAX_BURST_FRAMES`] frames in one system call. Returns how many the kernel
    /// accepted. It accepts fewer if it refuses one, whose error the next call returns.
    ///
    /// # Errors
    /// The kernel refuses the first frame; see [`Sender::is_full`].
    pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        let slices: ArrayVec<[IoSlice<'_>; 1], MAX_BURST_FRAMES> =
            frames.iter().take(MAX_BURST_FRAMES).map(|frame| [IoSlice::new(frame)]).collect();
        let mut ancillary: ArrayVec<_, MAX_BURST_FRAMES> = slices.iter().map(|_| Default::default()).collect();
        let mut messages: ArrayVec<_, MAX_BURST_FRAMES> =
            slices.iter().zip(&mut ancillary).map(|(slice, ancillary)| MMsgHdr::new(slice, ancillary)).collect();
        Ok(sendmmsg(&self.0, &mut messages, SendFlags::empty())?)
    }

    /// Returns whether an error means that the device had no space for the frame, which is then
    /// lost.
    pub fn is_full(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN))
    }
}
