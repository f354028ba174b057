//! What is asked of the system about an interface, and of sockets, as safe functions.
//!
//! Why this is sound: every call hands the kernel memory of a value that lives across the call, with its size, or a structure
//! with a pointer to such a value; what the kernel writes back are plain numbers. Nothing here keeps a pointer.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_ulong};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `ETHTOOL_GCHANNELS` and its answer.
const GET_CHANNELS: u32 = 0x3c;

#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    /// At most: receiving, sending, others, both.
    most: [u32; 4],
    receiving: u32,
    sending: u32,
    others: u32,
    both: u32,
}

/// Takes this thread, and what it starts from now on, into a network namespace of its own, in which there is nothing but a loopback
/// interface that is down. It is gone when they are.
///
/// # Errors
/// What the operating system says: above all that this is not permitted (`CAP_SYS_ADMIN`).
pub fn own_network() -> io::Result<()> {
    // SAFETY: the call takes no memory, and changes nothing but the network that this thread sees.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of an interface by its name.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with 0 and lives across the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// What an interface is (`ARPHRD_...`).
///
/// # Errors
/// What the operating system says.
pub(crate) fn hardware_type(name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    ask(libc::SIOCGIFHWADDR as c_ulong, &mut request)?;
    // SAFETY: the kernel has written an address into the union, whose first number is the type.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Whether an interface is up and has a link.
///
/// # Errors
/// What the operating system says.
pub(crate) fn has_link(name: &str) -> io::Result<bool> {
    const LINK: c_int = libc::IFF_UP | libc::IFF_RUNNING;
    let mut request = request(name)?;
    ask(libc::SIOCGIFFLAGS as c_ulong, &mut request)?;
    // SAFETY: the kernel has written a number into the union.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & LINK == LINK)
}

/// Queues on which an interface receives; `None` if its driver does not say.
///
/// # Errors
/// What the operating system says.
pub(crate) fn receiving_queues(name: &str) -> io::Result<Option<u32>> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast::<c_char>();
    match ask(libc::SIOCETHTOOL as c_ulong, &mut request) {
        Ok(()) => Ok(Some(channels.receiving + channels.both)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: it is made of numbers and a pointer, for which 0 is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(place, octet)| *place = octet as c_char);
    Ok(request)
}

fn ask(question: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: the request lives across the call, and so does what it points to, which is what this question wants.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), question as _, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has an interface take in frames for others, too, until the descriptor is closed.
///
/// # Errors
/// What the operating system says.
pub(crate) fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    // Without a protocol: it receives nothing itself.
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}

/// A way to ask the kernel about interfaces (rtnetlink).
///
/// # Errors
/// What the operating system says.
pub(crate) fn route_netlink() -> io::Result<File> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).map(File::from)
}

/// A new socket.
///
/// # Errors
/// What the operating system says.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers alone; the descriptor is new, so nobody else has it.
    unsafe {
        let descriptor = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(descriptor)) }
    }
}

/// Sets an option of a socket.
///
/// # Errors
/// What the operating system says.
pub(crate) fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let octets = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives across the call and is as long as is said; the kernel only reads it.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), octets) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What is read from a socket's options: numbers.
///
/// # Safety
/// Every pattern of bits, 0 as well, must be a value.
pub(crate) unsafe trait Numbers {}
// SAFETY: they are numbers.
unsafe impl Numbers for c_int {}
// SAFETY: they are made of numbers.
unsafe impl Numbers for libc::xdp_mmap_offsets {}
// SAFETY: they are made of numbers.
unsafe impl Numbers for libc::xdp_statistics {}
// SAFETY: they are made of numbers.
unsafe impl Numbers for libc::xdp_options {}

/// An option of a socket. What an older kernel does not know of it is 0.
///
/// # Errors
/// What the operating system says.
pub(crate) fn get<T: Numbers>(socket: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: by its trait 0 is a value, and so is whatever the kernel writes; it is told the length, and writes no more.
    unsafe {
        let mut value: T = mem::zeroed();
        let mut octets = size_of::<T>() as libc::socklen_t;
        let place = std::ptr::from_mut(&mut value).cast();
        let result = libc::getsockopt(socket.as_raw_fd(), level, option, place, &mut octets);
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
    }
}
