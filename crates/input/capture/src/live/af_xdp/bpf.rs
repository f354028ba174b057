//! The bpf(2) system call: a map of sockets, a program, and the link that keeps it at an interface.
//!
//! Why this is sound: the kernel reads the attributes, with their size, and the memory that their
//! pointers lead to; both live across the call. It writes only into the verifier's log, within the
//! given length. Descriptors that it returns are new and have one owner. Invariant: everything
//! created here disappears when its descriptors are closed, however the process ends.
#![allow(unsafe_code)]

use super::program::Instruction;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const LOG_BYTES: usize = 64 * 1024;

/// XDP mode (`XDP_FLAGS_...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum AttachMode {
    /// In the kernel, after the driver.
    Generic = 2,
    /// In the driver.
    Native = 4,
}

/// A map of sockets by queue (`BPF_MAP_TYPE_XSKMAP`).
pub(super) struct SocketMap(OwnedFd);

pub(super) struct LoadedProgram(OwnedFd);

/// A program attached to an interface until this is dropped.
pub(super) struct BpfLink {
    _descriptor: OwnedFd,
}

/// Calls bpf(2) with attributes that are the first part of `union bpf_attr`.
///
/// # Safety
/// Addresses in the attributes must be those of memory that the command may read or write across
/// the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes live across the call, with their size; the caller guarantees their
    // addresses.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    i32::try_from(result).ok().filter(|&result| result >= 0).ok_or_else(io::Error::last_os_error)
}

/// Takes ownership of a descriptor that a call has just returned.
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel created it in this call, so this is its only owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

impl SocketMap {
    /// Creates a map for this number of queues, without sockets.
    ///
    /// # Errors
    /// Not permitted, or not supported.
    pub fn new(queues: u32) -> io::Result<Self> {
        // Type, sizes of key and value, entries, flags.
        let attributes = [MAP_TYPE_XSKMAP, 4, 4, queues, 0];
        // SAFETY: it holds no addresses.
        unsafe { bpf(MAP_CREATE, &attributes) }.map(|descriptor| Self(owned(descriptor)))
    }

    /// Returns the descriptor by which a program refers to the map.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Redirects the frames of a queue to a socket from now on.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.change(MAP_UPDATE, queue, socket.as_raw_fd() as u32)
    }

    /// Passes the frames of a queue to the network stack from now on.
    pub fn remove(&self, queue: u32) {
        // The error that there is nothing to remove is ignored.
        let _ = self.change(MAP_DELETE, queue, 0);
    }

    fn change(&self, command: libc::c_long, key: u32, value: u32) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let (key, value) = (std::ptr::from_ref(&key) as u64, std::ptr::from_ref(&value) as u64);
        let attributes = Attributes { map: self.descriptor() as u32, padding: 0, key, value, flags: 0 };
        // SAFETY: key and value are numbers of the sizes that the map was made for, and live across
        // the call.
        unsafe { bpf(command, &attributes) }.map(drop)
    }
}

impl LoadedProgram {
    /// Loads a program into the kernel.
    ///
    /// # Errors
    /// The kernel refuses it; with the last lines of its verifier's log.
    pub fn new(program: &[Instruction]) -> Result<Self, (io::Error, String)> {
        Self::load(program, &mut []).or_else(|first| {
            // The log costs time and memory, so it is requested only after an error.
            let mut log = vec![0; LOG_BYTES];
            Self::load(program, &mut log).map_err(|_| (first, last_lines(&log)))
        })
    }

    fn load(program: &[Instruction], log: &mut [u8]) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            instructions: u32,
            program: u64,
            license: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
            kernel: u32,
            flags: u32,
            name: [u8; 16],
        }
        let attributes = Attributes {
            kind: PROGRAM_TYPE_XDP,
            instructions: program.len() as u32,
            program: program.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_bytes: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags: 0,
            name: *b"weir_af_xdp\0\0\0\0\0",
        };
        // SAFETY: program and license are read, the log is written within its length, and all live
        // across the call.
        unsafe { bpf(PROGRAM_LOAD, &attributes) }.map(|descriptor| Self(owned(descriptor)))
    }

    /// Attaches the program to an interface that has no XDP program.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn attach(&self, interface: u32, mode: AttachMode) -> io::Result<BpfLink> {
        let attributes = [self.0.as_raw_fd() as u32, interface, ATTACH_TYPE_XDP, mode as u32];
        // SAFETY: it holds no addresses.
        unsafe { bpf(LINK_CREATE, &attributes) }.map(|descriptor| BpfLink { _descriptor: owned(descriptor) })
    }
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}
