//! Safe wrappers of the system calls that query interfaces, configure sockets and map memory.
//!
//! Why this is sound: every call gets memory of a value that lives across the call, with its size,
//! or a structure with a pointer to such a value. The kernel writes back plain numbers, for which
//! every bit pattern is valid. No pointer is kept. A [`Mapping`] gives out addresses; who makes
//! references of them says why they may.
#![allow(unsafe_code)]

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use std::ffi::{CStr, CString, c_char, c_int, c_ulong};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number at an offset of a structure of the kernel, in its byte order.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// As [`u32_at`].
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    /// Largest numbers: receive, transmit, other, combined.
    maximum: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GET_TS_INFO`.
const GET_TIMESTAMPS: u32 = 0x41;

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct Timestamps {
    command: u32,
    /// Flags `SOF_TIMESTAMPING_...`.
    kinds: u32,
    clock: i32,
    transmit: [u32; 4],
    /// A bit for each `HWTSTAMP_FILTER_...`.
    filters: u32,
    reserved: [u32; 3],
}

/// Returns the time of the system's clock, ns since 1970-01-01 UTC.
pub(crate) fn realtime_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the index of an interface of this network namespace.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with 0 and lives across the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// Returns the names of all interfaces of this network namespace.
pub(crate) fn interface_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list ends with an entry without a name, its names end with 0, and it is freed
    // once, after the last use.
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && !(*entry).if_name.is_null() {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

/// Returns the hardware type of an interface (`ARPHRD_...`).
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn hardware_type(name: &str) -> io::Result<u16> {
    let mut request = interface_request(name)?;
    query_interface(libc::SIOCGIFHWADDR as c_ulong, &mut request)?;
    // SAFETY: the kernel has written an address into the union, whose first number is the type.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Returns the longest packet that an interface sends, in bytes without its link-layer header.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn mtu_bytes(name: &str) -> io::Result<usize> {
    let mut request = interface_request(name)?;
    query_interface(libc::SIOCGIFMTU as c_ulong, &mut request)?;
    // SAFETY: the kernel has written a number into the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize)
}

/// Returns whether an interface is up.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn is_up(name: &str) -> io::Result<bool> {
    Ok(flags(name)? & libc::IFF_UP != 0)
}

/// Returns whether an interface is up and has a link.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn has_link(name: &str) -> io::Result<bool> {
    const LINK: c_int = libc::IFF_UP | libc::IFF_RUNNING;
    Ok(flags(name)? & LINK == LINK)
}

fn flags(name: &str) -> io::Result<c_int> {
    let mut request = interface_request(name)?;
    query_interface(libc::SIOCGIFFLAGS as c_ulong, &mut request)?;
    // SAFETY: the kernel has written a number into the union.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Returns the number of receive queues of an interface; `None` if its driver does not report it.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn receive_queues(name: &str) -> io::Result<Option<u32>> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast::<c_char>();
    match query_interface(libc::SIOCETHTOOL as c_ulong, &mut request) {
        Ok(()) => Ok(Some(channels.receive + channels.combined)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the NIC of an interface can time-stamp every frame that it receives.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn has_hardware_timestamps(name: &str) -> io::Result<bool> {
    let mut timestamps = Timestamps { command: GET_TIMESTAMPS, ..Timestamps::default() };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut timestamps).cast::<c_char>();
    query_interface(libc::SIOCETHTOOL as c_ulong, &mut request)?;
    let has_kind = timestamps.kinds & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0;
    Ok(has_kind && timestamps.filters & (1 << libc::HWTSTAMP_FILTER_ALL) != 0)
}

/// Makes the NIC of an interface time-stamp every frame that it receives, if it does not already.
///
/// # Errors
/// Not permitted, or the NIC cannot do it.
pub(crate) fn enable_hardware_timestamps(name: &str) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, for which zeros are valid.
    let mut config: libc::hwtstamp_config = unsafe { mem::zeroed() };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    let current = query_interface(libc::SIOCGHWTSTAMP as c_ulong, &mut request);
    if current.is_ok() && config.rx_filter == libc::HWTSTAMP_FILTER_ALL as c_int {
        return Ok(());
    }
    // Time stamps of transmitted frames stay as they are.
    config.flags = 0;
    config.rx_filter = libc::HWTSTAMP_FILTER_ALL as c_int;
    query_interface(libc::SIOCSHWTSTAMP as c_ulong, &mut request)?;
    // The kernel writes back what the NIC really does.
    if config.rx_filter == libc::HWTSTAMP_FILTER_ALL as c_int {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ERANGE))
    }
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: it consists of numbers and a pointer, for which 0 is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as c_char);
    Ok(request)
}

fn query_interface(command: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // Any socket will do, and this one needs no permission.
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
    // SAFETY: the request lives across the call, and so does what it points to, which is what this
    // command takes.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), command as _, std::ptr::from_mut(request)) })
}

/// Makes an interface receive frames for other hosts, too, until the packet socket is closed.
///
/// # Errors
/// Not permitted.
pub(crate) fn enable_promiscuous_mode(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Opens a socket for queries about interfaces (rtnetlink). Reading fails with `WouldBlock` after this time.
///
/// # Errors
/// The kernel opens no socket.
pub(crate) fn route_netlink(read_timeout: Duration) -> io::Result<File> {
    // NETLINK_ROUTE is 0.
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW)?;
    let timeout =
        libc::timeval { tv_sec: read_timeout.as_secs() as libc::time_t, tv_usec: read_timeout.subsec_micros().into() };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    Ok(socket.into())
}

/// Opens a socket with protocol 0.
///
/// # Errors
/// The kernel opens no socket.
pub(crate) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes only numbers; the descriptor is new, so this is its only owner.
    unsafe {
        let descriptor = libc::socket(family, kind | libc::SOCK_CLOEXEC, 0);
        check(descriptor)?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Sets an option of a socket.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn set_option<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives across the call and has this size; the kernel only reads it.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), bytes) })
}

/// A type of socket options or ring entries that consists of numbers.
///
/// # Safety
/// Every bit pattern, including 0, must be a valid value.
pub(crate) unsafe trait Plain {}
// SAFETY: a number.
unsafe impl Plain for c_int {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: numbers.
unsafe impl Plain for [u32; 3] {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::xdp_desc {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::xdp_statistics {}

/// Returns an option of a socket. Fields that an older kernel lacks are 0.
///
/// # Errors
/// The kernel refuses the query.
pub(crate) fn option<T: Plain>(socket: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: by its trait, 0 and everything that the kernel writes are valid; it writes no more
    // than the given length.
    unsafe {
        let mut value: T = mem::zeroed();
        let mut bytes = size_of::<T>() as libc::socklen_t;
        let address = std::ptr::from_mut(&mut value).cast();
        check(libc::getsockopt(socket.as_raw_fd(), level, option, address, &mut bytes))?;
        Ok(value)
    }
}

/// Binds a socket to an address: a `sockaddr_...` structure of its family.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn bind<T>(socket: &OwnedFd, address: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the address lives across the call and has this size; the kernel only reads it.
    check(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), bytes) })
}

/// Waits until a socket is readable or has an error, or the timeout has passed; returns the events.
/// A signal ends the wait early.
///
/// # Errors
/// The system call fails.
pub(crate) fn poll(socket: &OwnedFd, timeout_ms: c_int) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives across the call.
    match check(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(poll.revents),
    }
}

/// Takes the pending error of a socket.
///
/// # Errors
/// That error; it is reported once.
pub(crate) fn take_error(socket: &OwnedFd) -> io::Result<()> {
    match option::<c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Mapped memory, readable and writable. What the kernel shares of it is governed by the rules of each
/// ring.
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Maps a ring of a socket by its offset; without a socket, anonymous memory.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn new(bytes: usize, ring: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Self> {
        Ok(Self(match ring {
            Some((socket, offset)) => MmapOptions::new().len(bytes).offset(offset).populate().map_raw(&socket)?,
            None => MmapMut::map_anon(bytes)?.into(),
        }))
    }

    /// Returns the address of a range, if it is within the mapping.
    pub fn at(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        (end <= self.0.len()).then(|| self.0.as_mut_ptr().wrapping_add(offset))
    }
}

pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Octets that the frames in the transmit queue of the NIC may take, including the kernel's overhead.
const SEND_BUFFER_BYTES: c_int = 16 << 20;

/// Gives a socket the largest send buffer that the system permits; without limit with CAP_NET_ADMIN.
pub fn enlarge_send_buffer(socket: &OwnedFd) {
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES));
}
