//! A packet socket and its options, as safe functions.
//!
//! Why this is sound: as in [`system`]. The one structure with a pointer (a filter) points to a
//! slice that lives across the call, and the kernel copies it. The ring, memory that is shared with
//! the kernel, is in `ring.rs`.
#![allow(unsafe_code)]

use crate::filter::Instruction;
use crate::system::{self, check};
use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A packet socket with a TPACKET_V3 ring. It receives nothing before it is bound.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket for whole frames.
    ///
    /// # Errors
    /// Not permitted.
    pub fn new() -> io::Result<Self> {
        let socket = Self(system::socket(libc::AF_PACKET, libc::SOCK_RAW)?);
        socket.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        Ok(socket)
    }

    /// Reserves bytes before each frame of the ring. Call this before [`Socket::set_ring`].
    pub fn reserve(&self, bytes: u32) -> io::Result<()> {
        self.set(libc::PACKET_RESERVE, &bytes)
    }

    /// Selects time stamps of the NIC, where it gives some, or of the kernel.
    pub fn set_timestamps(&self, hardware: bool) -> io::Result<()> {
        let kind = if hardware { libc::SOF_TIMESTAMPING_RAW_HARDWARE as c_int } else { 0 };
        self.set(libc::PACKET_TIMESTAMP, &kind)
    }

    /// Makes the kernel allocate a ring whose blocks are delivered after at most `retire_ms`.
    pub fn set_ring(&self, block_bytes: u32, blocks: u32, retire_ms: u32) -> io::Result<()> {
        // TPACKET_V3 packs frames of any size into a block; the frame fields must only be
        // consistent.
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: block_bytes,
            tp_frame_nr: blocks,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::PACKET_RX_RING, &request)
    }

    pub fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
    }

    /// Begins to receive every frame of an interface.
    pub fn bind(&self, index: i32) -> io::Result<()> {
        // SAFETY: the structure is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        system::bind(&self.0, &address)
    }

    /// Returns the hardware type of the interface that the socket is bound to; `None` if that does not
    /// exist any more.
    pub fn bound_hardware_type(&self) -> io::Result<Option<u16>> {
        // SAFETY: as in `bind`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut bytes = size_of_val(&address) as u32;
        // SAFETY: the kernel writes at most this number of bytes of the structure, which are
        // numbers.
        check(unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes) })?;
        Ok((address.sll_ifindex > 0).then_some(address.sll_hatype))
    }

    /// Makes the interface receive frames for other hosts, too, until the socket is closed.
    pub fn enable_promiscuous_mode(&self, index: u32) -> io::Result<()> {
        system::enable_promiscuous_mode(&self.0, index)
    }

    /// Creates a fanout group that distributes frames by a program, and returns its number.
    pub fn create_fanout_group(&self) -> io::Result<u16> {
        self.set_fanout(0, libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let group: c_int = system::option(&self.0, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(group as u16)
    }

    /// Joins such a group, or creates it with this number.
    pub fn join_fanout_group(&self, group: u16) -> io::Result<()> {
        self.set_fanout(group, libc::PACKET_FANOUT_CBPF)
    }

    fn set_fanout(&self, group: u16, mode: u32) -> io::Result<()> {
        self.set(libc::PACKET_FANOUT, &(u32::from(group) | mode << 16))
    }

    /// Sets the program that selects the socket of the fanout group for each frame, for the whole
    /// group.
    pub fn set_fanout_program(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
    }

    /// Returns the packets that passed the filter since the previous query, and those of them that
    /// were dropped because the ring was full.
    pub fn statistics(&self) -> io::Result<[u64; 2]> {
        // `struct tpacket_stats_v3`; the third number counts how often the ring was full.
        let [packets, drops, _]: [u32; 3] = system::option(&self.0, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok([packets.into(), drops.into()])
    }

    /// Waits until a block may be ready, an error is pending, or the timeout has passed.
    ///
    /// # Errors
    /// The pending error; it is reported once.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout_ms = timeout.as_millis().clamp(1, 1 << 20) as c_int;
        match system::poll(&self.0, timeout_ms)? & libc::POLLERR {
            0 => Ok(()),
            _ => system::take_error(&self.0),
        }
    }

    fn set<T>(&self, option: c_int, value: &T) -> io::Result<()> {
        system::set_option(&self.0, libc::SOL_PACKET, option, value)
    }

    fn set_program(&self, level: c_int, option: c_int, program: &[Instruction]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // The kernel copies the instructions during the call and writes none of them.
        system::set_option(
            &self.0,
            level,
            option,
            &libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() },
        )
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until every CPU has finished the packet it was handling, so that a filter set before is in
/// force.
pub(super) fn wait_for_cpus() {
    const GLOBAL: c_int = 1;
    // SAFETY: the call takes no memory.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        // Kernels with isolated CPUs (nohz_full) refuse it. Handling a packet takes microseconds.
        std::thread::sleep(Duration::from_millis(50));
    }
}
