//! The bpf(2) system call: a map of sockets, a program, and the link that keeps it at an interface.
//!
//! Why this is sound: the kernel reads the attributes, which live across the call and whose size it is told, and the memory
//! that pointers in them lead to, which does so, too; it writes into the verifier's log alone, within the length it is told.
//! Descriptors that it returns are new and owned from then on.
//! Always true: what is made here is gone when its descriptors are closed, however the process ends.
#![allow(unsafe_code)]

use super::program::Instruction;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const TYPE_XSKMAP: u32 = 17;
const TYPE_XDP: u32 = 6;
const AT_XDP: u32 = 37;
const LOG_OCTETS: usize = 64 * 1024;

/// Where a program is attached (`XDP_FLAGS_...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Place {
    /// Behind the driver.
    Generic = 2,
    /// In the driver.
    Native = 4,
}

/// Sockets by queue.
pub(super) struct SocketMap(OwnedFd);

/// A program that the kernel has taken.
pub(super) struct Loaded(OwnedFd);

/// A program at an interface, until this is dropped.
pub(super) struct Link {
    _descriptor: OwnedFd,
}

/// Calls with attributes that are the first part of `union bpf_attr`.
///
/// # Safety
/// Addresses in the attributes must be those of memory that the command may read, or write, across the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes live across the call and are as long as is said; for what they lead to the caller vouches.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    i32::try_from(result).ok().filter(|&result| result >= 0).ok_or_else(io::Error::last_os_error)
}

/// A descriptor that a call has just returned.
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel made it for this call, so nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// How maps are asked for what is in them.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl SocketMap {
    /// A map for so many queues, without sockets.
    ///
    /// # Errors
    /// What the operating system says: above all that this is not permitted.
    pub fn new(queues: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_octets: u32,
            value_octets: u32,
            entries: u32,
            flags: u32,
        }
        let attributes = Attributes { kind: TYPE_XSKMAP, key_octets: 4, value_octets: 4, entries: queues, flags: 0 };
        // SAFETY: there are no addresses in it.
        unsafe { bpf(MAP_CREATE, &attributes) }.map(|descriptor| Self(owned(descriptor)))
    }

    /// What a program calls the map by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// From now on frames of a queue go to a socket.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let (key, value) = (std::ptr::from_ref(&queue) as u64, std::ptr::from_ref(&value) as u64);
        let element = Element { map: self.descriptor() as u32, padding: 0, key, value, flags: 0 };
        // SAFETY: key and value are numbers of the sizes that the map was made for, and live across the call.
        unsafe { bpf(MAP_UPDATE, &element) }.map(drop)
    }

    /// From now on frames of a queue are passed on. One that has no socket stays as it is.
    pub fn remove(&self, queue: u32) {
        let key = std::ptr::from_ref(&queue) as u64;
        let element = Element { map: self.descriptor() as u32, padding: 0, key, value: 0, flags: 0 };
        // SAFETY: the key is a number of the size that the map was made for, and lives across the call. That the
        // kernel finds nothing to remove is no trouble.
        let _ = unsafe { bpf(MAP_DELETE, &element) };
    }
}

impl Loaded {
    /// Has the kernel check a program and take it.
    ///
    /// # Errors
    /// What the operating system says, and the end of what its verifier says, if it says anything.
    pub fn new(program: &[Instruction]) -> Result<Self, (io::Error, String)> {
        Self::load(program, &mut []).or_else(|first| {
            // The log costs time, and more so memory: only for who reads it.
            let mut log = vec![0; LOG_OCTETS];
            Self::load(program, &mut log).map_err(|_| (first, last_words(&log)))
        })
    }

    fn load(program: &[Instruction], log: &mut [u8]) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            instructions: u32,
            program: u64,
            licence: u64,
            log_level: u32,
            log_octets: u32,
            log: u64,
            kernel: u32,
            flags: u32,
            name: [u8; 16],
        }
        let attributes = Attributes {
            kind: TYPE_XDP,
            instructions: program.len() as u32,
            program: program.as_ptr() as u64,
            licence: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_octets: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags: 0,
            name: *b"weir_af_xdp\0\0\0\0\0",
        };
        // SAFETY: program and licence are read, the log is written within its length, and all live across the call.
        unsafe { bpf(PROGRAM_LOAD, &attributes) }.map(|descriptor| Self(owned(descriptor)))
    }

    /// Attaches the program to an interface by its number, if there is no other.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn attach(&self, interface: u32, place: Place) -> io::Result<Link> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            kind: u32,
            flags: u32,
        }
        let program = self.0.as_raw_fd() as u32;
        let attributes = Attributes { program, interface, kind: AT_XDP, flags: place as u32 };
        // SAFETY: there are no addresses in it.
        unsafe { bpf(LINK_CREATE, &attributes) }.map(|descriptor| Link { _descriptor: owned(descriptor) })
    }
}

/// The last lines of a log.
fn last_words(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|&octet| octet == 0).next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}
