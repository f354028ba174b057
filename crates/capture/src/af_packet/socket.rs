//! The system calls around a packet socket, as safe functions.
//!
//! Why this is sound: every call hands the kernel either no memory, or memory of a value that lives across the call, with
//! its size; what the kernel writes back is a plain number or structure of numbers, for which every bit pattern is valid; the one
//! structure with a pointer (a filter) points to a slice that lives across the call, and the kernel copies it. Nothing
//! here keeps a pointer. The ring, which is memory that the kernel shares, is in `ring.rs`.
#![allow(unsafe_code)]

use super::program::Instruction;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A packet socket of the ring's third version. It takes in nothing before it is bound.
pub(super) struct Socket(OwnedFd);

/// What the kernel says of an interface.
pub(super) struct About {
    /// `ARPHRD_...`.
    pub hardware_type: u16,
    /// Whether somebody has put it into operation.
    pub is_up: bool,
}

/// Packets since they were counted last.
pub(super) struct Statistics {
    /// All that passed the filter, dropped ones as well.
    pub packets: u64,
    /// Those for which the ring had no room.
    pub drops: u64,
}

impl Socket {
    /// A socket for whole frames, not bound.
    ///
    /// # Errors
    /// What the operating system says: above all that this is not permitted.
    pub fn new() -> io::Result<Self> {
        let socket = Self(open(libc::AF_PACKET, libc::SOCK_RAW, 0)?);
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        Ok(socket)
    }

    /// Leaves so many octets before each frame of the ring. Before [`Socket::ring`].
    pub fn reserve(&self, octets: u32) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_RESERVE, &octets)
    }

    /// Whether frames have the card's times, where it gives some.
    pub fn timestamps(&self, hardware: bool) -> io::Result<()> {
        let kind = if hardware { libc::SOF_TIMESTAMPING_RAW_HARDWARE as c_int } else { 0 };
        self.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &kind)
    }

    /// Has the kernel take the memory of a ring whose blocks are handed over after so many milliseconds.
    pub fn ring(&self, block_bytes: u32, blocks: u32, retire_ms: u32) -> io::Result<()> {
        // Frames lie one behind the other in a block, however large: what is said of them must only be consistent.
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: block_bytes,
            tp_frame_nr: blocks,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
    }

    /// Sets the filter, in place of the one before.
    pub fn filter(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
    }

    /// Takes in every frame of an interface from now on.
    pub fn bind(&self, index: i32) -> io::Result<()> {
        // SAFETY: the structure is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        // SAFETY: the address lives across the call, and its size is its own.
        let result = unsafe { libc::bind(self.raw(), (&raw const address).cast(), size_of_val(&address) as u32) };
        checked(result).map(drop)
    }

    /// Number of the interface that it is bound to; `None` if that was removed.
    pub fn bound_to(&self) -> io::Result<Option<i32>> {
        // SAFETY: as in `bind`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut octets = size_of_val(&address) as u32;
        // SAFETY: the kernel writes at most so many octets of the structure, numbers.
        checked(unsafe { libc::getsockname(self.raw(), (&raw mut address).cast(), &raw mut octets) })?;
        Ok((address.sll_ifindex > 0).then_some(address.sll_ifindex))
    }

    /// Takes in frames that are for others, until it is closed.
    pub fn promiscuous(&self, index: i32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// Founds a group of sockets that share the traffic by a program, and tells its number.
    pub fn found(&self) -> io::Result<u16> {
        self.fanout(0, libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let group: c_int = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(group as u16)
    }

    /// Joins such a group, or founds it.
    pub fn join(&self, group: u16) -> io::Result<()> {
        self.fanout(group, libc::PACKET_FANOUT_CBPF)
    }

    fn fanout(&self, group: u16, how: u32) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(group) | how << 16))
    }

    /// Sets the program that says which socket of the group a frame goes to, for all of them.
    pub fn steer(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
    }

    /// What was counted since this was asked last.
    pub fn statistics(&self) -> io::Result<Statistics> {
        // The structure of three numbers, of which the third tells how often the ring was full.
        let [packets, drops, _]: [u32; 3] = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(Statistics { packets: packets.into(), drops: drops.into() })
    }

    /// Waits until a block may be ready, or something is wrong, or the time is over.
    ///
    /// # Errors
    /// What is wrong; told once.
    pub fn wait(&self, at_most: Duration) -> io::Result<()> {
        let mut what = libc::pollfd { fd: self.raw(), events: libc::POLLIN, revents: 0 };
        let milliseconds = at_most.as_millis().clamp(1, 1 << 20) as c_int;
        // SAFETY: one structure, which lives across the call.
        match checked(unsafe { libc::poll(&raw mut what, 1, milliseconds) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
            Ok(_) if what.revents & libc::POLLERR != 0 => match self.get::<c_int>(libc::SOL_SOCKET, libc::SO_ERROR)? {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            },
            Ok(_) => Ok(()),
        }
    }

    /// Has the card of an interface stamp every frame that it receives, if it does not already.
    pub fn stamp_by_card(&self, name: &str) -> io::Result<()> {
        // SAFETY: the structure is plain numbers, for which zeros are valid.
        let mut wanted: libc::hwtstamp_config = unsafe { mem::zeroed() };
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = (&raw mut wanted).cast();
        // SAFETY: the request and what it points to live across the call; the kernel writes numbers into either.
        let asked = checked(unsafe { libc::ioctl(self.raw(), libc::SIOCGHWTSTAMP, &raw mut request) });
        if asked.is_ok() && wanted.rx_filter == libc::HWTSTAMP_FILTER_ALL as c_int {
            return Ok(());
        }
        // How the card stamps what is sent stays as it is.
        wanted.flags = 0;
        wanted.rx_filter = libc::HWTSTAMP_FILTER_ALL as c_int;
        // SAFETY: as above.
        checked(unsafe { libc::ioctl(self.raw(), libc::SIOCSHWTSTAMP, &raw mut request) })?;
        // The kernel writes back what the card does in fact.
        if wanted.rx_filter == libc::HWTSTAMP_FILTER_ALL as c_int {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ERANGE))
        }
    }

    fn raw(&self) -> c_int {
        self.0.as_raw_fd()
    }

    /// `T`: what the option takes, without pointers.
    fn set<T: Copy>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let octets = size_of::<T>() as u32;
        // SAFETY: the kernel reads the value, which lives across the call and has that size.
        checked(unsafe { libc::setsockopt(self.raw(), level, option, std::ptr::from_ref(value).cast(), octets) })
            .map(drop)
    }

    fn set_program(&self, level: c_int, option: c_int, program: &[Instruction]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        let octets = size_of_val(&program) as u32;
        // SAFETY: the kernel reads so many instructions of the slice, which lives across the call, and copies them;
        // it writes none of them.
        checked(unsafe { libc::setsockopt(self.raw(), level, option, (&raw const program).cast(), octets) }).map(drop)
    }

    /// `T`: numbers, any of which are valid.
    fn get<T: Copy + Default>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let mut value = T::default();
        let mut octets = size_of::<T>() as u32;
        // SAFETY: the kernel writes at most so many octets of the value.
        checked(unsafe {
            libc::getsockopt(self.raw(), level, option, (&raw mut value).cast::<c_void>(), &raw mut octets)
        })?;
        Ok(value)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Number of an interface of this network namespace.
pub(super) fn interface_index(name: &str) -> Option<i32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string with its end, which lives across the call.
    i32::try_from(unsafe { libc::if_nametoindex(name.as_ptr()) }).ok().filter(|&index| index > 0)
}

/// Names of all interfaces of this network namespace.
pub(super) fn interface_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list that comes back ends with an entry without a name, its names are strings with an end, and
    // it is freed once, after the last use.
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

/// What the kernel says of an interface of this network namespace.
pub(super) fn about_interface(name: &str) -> io::Result<About> {
    // Any socket will do, and this one takes no permission.
    let socket = open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = request(name)?;
    // SAFETY: the request lives across the calls, which write a number or an address into it; each is read as what the
    // call before has written.
    unsafe {
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request))?;
        let is_up = c_int::from(request.ifr_ifru.ifru_flags) & libc::IFF_UP != 0;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request))?;
        Ok(About { hardware_type: request.ifr_ifru.ifru_hwaddr.sa_family, is_up })
    }
}

/// The time of the clock that stamps frames, ns since 1970 UTC.
pub(super) fn realtime_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Waits until every processor that was handling a packet is done with it, so that a filter set before is in force.
pub(super) fn settle() {
    const GLOBAL: c_int = 1;
    // SAFETY: the call takes no memory.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        // Kernels that keep processors free of such waits refuse it. A packet takes microseconds.
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the structure is plain numbers and a union of such, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, octet)| *to = octet as _);
    Ok(request)
}

fn open(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    let descriptor = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
