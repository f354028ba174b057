//! The ring: memory that the kernel writes frames into, block by block, and that is read where it lies.
//!
//! Why this is sound. Each block has a status word that says whose it is. The kernel writes into a block only while it is its
//! own, and sets the word to ours when it is done; we touch a block only from then on until we set the word back.
//! * [`Ring::block`] gives a block as a slice only if the word says ours (read with acquire, so that what the kernel wrote before
//!   is seen), and the slice borrows the ring mutably: while it lives nobody can get it again or give it back.
//! * [`Ring::release`] sets the word (with release, so that all reads and writes of ours come before), and needs the ring
//!   mutably: no slice is left then.
//! * Blocks do not overlap, and their number and size are those that the kernel was asked for and that were mapped.
#![allow(unsafe_code)]

use super::RETIRE_MS;
use super::socket::Socket;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a block's status word is.
const STATUS: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
/// Bit of the status word: the block is ours.
const OURS: u32 = libc::TP_STATUS_USER;
const KERNELS: u32 = libc::TP_STATUS_KERNEL;

/// The mapped ring of one socket.
pub(super) struct Ring {
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
}

// SAFETY: the memory belongs to this value alone, on whichever thread that is.
unsafe impl Send for Ring {}

impl Ring {
    /// Has the kernel make a ring for a socket, and maps it.
    ///
    /// # Errors
    /// What the operating system says: above all that it has not that much memory.
    pub fn new(socket: &Socket, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        let numbers = (u32::try_from(block_bytes), u32::try_from(blocks));
        let (Ok(block_number), Ok(blocks_number)) = numbers else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        socket.ring(block_number, blocks_number, RETIRE_MS)?;
        Self::map(Some(socket.as_fd()), block_bytes, blocks)
    }

    /// Maps the ring of a socket; without one, memory of the process that looks like it.
    fn map(socket: Option<BorrowedFd<'_>>, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        let octets = block_bytes.checked_mul(blocks).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (descriptor, sharing) = match socket {
            Some(socket) => (socket.as_raw_fd(), libc::MAP_SHARED),
            None => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        // SAFETY: a new mapping, at a place that the kernel chooses, overlaps nothing that is in use.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), octets, access, sharing, descriptor, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { memory, block_bytes, blocks })
    }

    /// Number of the block behind another.
    pub fn after(&self, block: usize) -> usize {
        (block + 1) % self.blocks
    }

    /// Number of the block half a ring behind another.
    pub fn half_after(&self, block: usize) -> usize {
        (block + self.blocks / 2) % self.blocks
    }

    /// Whether a block is ours.
    pub fn is_ready(&self, block: usize) -> bool {
        self.status(block).load(Ordering::Acquire) & OURS != 0
    }

    /// A block, if it is ours.
    pub fn block(&mut self, block: usize) -> Option<&mut [u8]> {
        if !self.is_ready(block) {
            return None;
        }
        // SAFETY: the block lies within the mapping, which lives as long as `self`; it is ours, as the module's doc
        // defines it, until `release`, which cannot be called while the slice lives; and octets are always valid.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(block).as_ptr(), self.block_bytes) })
    }

    /// Gives a block back to the kernel.
    pub fn release(&mut self, block: usize) {
        self.status(block).store(KERNELS, Ordering::Release);
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: the word lies within the mapping, aligned as blocks begin at pages; both sides use it atomically, and
        // slices of a block, which cover it, live only while `self` is borrowed mutably.
        unsafe { AtomicU32::from_ptr(self.start(block).as_ptr().add(STATUS).cast()) }
    }

    fn start(&self, block: usize) -> NonNull<u8> {
        assert!(block < self.blocks, "a ring has no block beyond its last");
        // SAFETY: within the mapping, as just seen.
        unsafe { self.memory.add(block * self.block_bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and every slice of it borrowed `self`. There is nothing to be done if it fails.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ring {
        /// What the kernel does when it is done with a block.
        fn hand_over(&self, block: usize) {
            self.status(block).store(OURS, Ordering::Release);
        }
    }

    #[test]
    fn a_block_can_be_had_only_between_handing_over_and_release() {
        let mut ring = Ring::map(None, 4096, 3).unwrap();
        assert!(ring.block(1).is_none());
        ring.hand_over(1);
        ring.block(1).unwrap()[100..].fill(7);
        assert_eq!(ring.block(1).unwrap().iter().filter(|&&octet| octet == 7).count(), 4096 - 100);
        assert!(ring.block(0).is_none() && ring.block(2).is_none());
        ring.release(1);
        assert!(ring.block(1).is_none() && !ring.is_ready(1));
        assert_eq!([ring.after(0), ring.after(2)], [1, 0]);
        let moved = std::thread::spawn(move || ring.is_ready(2));
        assert!(!moved.join().unwrap());
    }

    #[test]
    #[should_panic(expected = "no block beyond")]
    fn there_is_no_block_beyond_the_last() {
        Ring::map(None, 4096, 3).unwrap().is_ready(3);
    }
}
