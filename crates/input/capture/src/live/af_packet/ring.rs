//! The receive ring: memory that the kernel fills with frames, block by block, and that is read in
//! place.
//!
//! Why this is sound: each block has a status word with its owner. The kernel writes into a block
//! only while it owns it, and sets the word to `TP_STATUS_USER` when it is done; this module
//! touches the block only from then on until it sets the word back.
//! * [`Ring::block`] returns a block as a slice only if the word says `TP_STATUS_USER` (loaded with
//!   acquire, so that the kernel's writes are visible). The slice borrows the ring mutably: while
//!   it lives, the block can neither be borrowed again nor released.
//! * [`Ring::release`] sets the word (with release, after all our accesses) and needs the ring
//!   mutably, so no slice is left.
//! * Blocks do not overlap; their number and size are those that the kernel was given and that were
//!   mapped.
#![allow(unsafe_code)]

use super::socket::Socket;
use crate::system::Mapping;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Offset of a block's status word.
const STATUS: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
/// Bit of the status word: the block belongs to user space.
const USER: u32 = libc::TP_STATUS_USER;
const KERNEL: u32 = libc::TP_STATUS_KERNEL;

/// Time after which the kernel delivers a block that is not full, ms; older kernels take up to twice
/// this, so with delays of timers 50 ms. A nearly empty block uses up its whole size, so on a quiet
/// link a reader may pause for this times the number of blocks.
pub(super) const RETIRE_MS: u32 = 20;

pub(super) struct Ring {
    memory: Mapping,
    block_bytes: usize,
    blocks: usize,
}

impl Ring {
    /// Makes the kernel allocate a ring for a socket, and maps it.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(socket: &Socket, block_bytes: u32, blocks: u32) -> io::Result<Self> {
        socket.set_ring(block_bytes, blocks, RETIRE_MS)?;
        Self::map(Some(socket.as_fd()), block_bytes as usize, blocks as usize)
    }

    /// Maps the ring of a socket; without one, anonymous memory of the same layout, for tests.
    fn map(socket: Option<BorrowedFd<'_>>, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        let bytes = block_bytes.checked_mul(blocks).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { memory: Mapping::new(bytes, socket.map(|socket| (socket, 0)))?, block_bytes, blocks })
    }

    pub fn after(&self, block: usize) -> usize {
        (block + 1) % self.blocks
    }

    pub fn half_after(&self, block: usize) -> usize {
        (block + self.blocks / 2) % self.blocks
    }

    /// Returns whether a block belongs to user space.
    pub fn is_ready(&self, block: usize) -> bool {
        self.status(block).load(Ordering::Acquire) & USER != 0
    }

    /// Returns a block, if it belongs to user space.
    pub fn block(&mut self, block: usize) -> Option<&mut [u8]> {
        if !self.is_ready(block) {
            return None;
        }
        // SAFETY: the block is within the mapping, which lives as long as `self`. It belongs to
        // user space until `release`, which cannot be called while the slice lives. Every byte
        // value is valid.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(block), self.block_bytes) })
    }

    /// Returns a block to the kernel.
    pub fn release(&mut self, block: usize) {
        self.status(block).store(KERNEL, Ordering::Release);
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: the word is within the mapping, and aligned because blocks begin at pages. Both
        // sides use it atomically; slices of a block, which include it, live only while `self` is
        // borrowed mutably.
        unsafe { AtomicU32::from_ptr(self.start(block).add(STATUS).cast()) }
    }

    fn start(&self, block: usize) -> *mut u8 {
        let address = self.memory.at(block * self.block_bytes, self.block_bytes);
        address.expect("a ring has no block beyond its last")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ring {
        /// Does what the kernel does when a block is complete.
        fn deliver(&self, block: usize) {
            self.status(block).store(USER, Ordering::Release);
        }
    }

    #[test]
    fn block_is_accessible_only_between_delivery_and_release() {
        let mut ring = Ring::map(None, 4096, 3).unwrap();
        assert!(ring.block(1).is_none());
        ring.deliver(1);
        ring.block(1).unwrap()[100..].fill(7);
        assert_eq!(ring.block(1).unwrap().iter().filter(|&&byte| byte == 7).count(), 4096 - 100);
        assert!(ring.block(0).is_none() && ring.block(2).is_none());
        ring.release(1);
        assert!(ring.block(1).is_none() && !ring.is_ready(1));
        assert_eq!([ring.after(0), ring.after(2)], [1, 0]);
        let moved = std::thread::spawn(move || ring.is_ready(2));
        assert!(!moved.join().unwrap());
    }

    #[test]
    #[should_panic(expected = "no block beyond")]
    fn block_beyond_the_last_panics() {
        Ring::map(None, 4096, 3).unwrap().is_ready(3);
    }
}
