//! One AF_XDP socket: its UMEM and the two rings that pass UMEM chunks to the kernel and back.
//!
//! ```text
//! fill ring:    chunks that the kernel may write a frame into    user space -> kernel
//! receive ring: chunks that hold a frame, and its length         kernel -> user space
//! ```
//! Why this is sound: a chunk belongs to the kernel from when it is put into the fill ring until it
//! is taken from the receive ring; then it belongs to this module.
//! * [`Socket::receive`] returns slices of chunks that belong to this module, each once. They
//!   borrow the socket mutably, and [`Socket::release`] needs the socket mutably, too, so no chunk
//!   is released while a slice lives.
//! * Each ring has a producer word and a consumer word. The producer fills entries, then stores its
//!   word with release; the consumer loads it with acquire before it reads them, and then stores
//!   its own word with release, which the producer loads with acquire before it writes there again.
//!   Only 32-bit atomics access these words, and only this value accesses our end of a ring.
//! * Lengths and offsets from the kernel are compared with the UMEM's size before they become
//!   slices.
//!
//! Why no library: libxdp would be a C dependency, and Rust bindings of it leave the ownership of
//! chunks, which is checked here, to the caller.
#![allow(unsafe_code)]

use super::program::{MARK, METADATA_BYTES};
use crate::source::MAX_BURST_FRAMES;
use crate::system::{self, Mapping, Plain};
use arrayvec::ArrayVec;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Size of a UMEM chunk: the largest that every driver supports.
pub(super) const CHUNK_BYTES: usize = 4096;
/// Bytes of a chunk that the kernel reserves before a frame.
const HEADROOM_BYTES: usize = 256;
/// Longest time that the kernel takes to release the queue of a closed socket, which it does in a
/// worker thread.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest frame that fits into a chunk, in bytes.
pub(super) const MAX_FRAME_BYTES: u32 = (CHUNK_BYTES - HEADROOM_BYTES) as u32;

/// Our end of a ring of entries of type `T`, which consists of numbers.
pub(super) struct Ring<T> {
    memory: Mapping,
    /// Offsets of the words and the entries in the memory.
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    _entries: std::marker::PhantomData<T>,
}

pub(super) struct ReceivedFrame<'a> {
    pub bytes: &'a [u8],
    /// Original length that the program stored before the frame, if it did.
    pub wire_bytes: Option<u32>,
}

pub(super) struct Socket {
    descriptor: OwnedFd,
    umem: Mapping,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    /// Chunks that belong to user space: those of the last frames, and initially all.
    free: Vec<u64>,
}

/// A socket that is not bound to a queue.
pub(super) struct SpareSocket {
    descriptor: OwnedFd,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
}

impl SpareSocket {
    /// Opens a socket that uses this memory for this number of frames.
    fn new(umem: &Mapping, frames: u32) -> Result<Self, (Step, io::Error)> {
        let descriptor = system::socket(libc::AF_XDP, libc::SOCK_RAW).map_err(|error| (Step::Open, error))?;
        Self::with_memory(descriptor, umem, frames).map_err(|error| (Step::Memory, error))
    }

    fn with_memory(descriptor: OwnedFd, umem: &Mapping, frames: u32) -> io::Result<Self> {
        // Nothing is sent, but the completion ring is mandatory.
        let rings =
            [(libc::XDP_UMEM_FILL_RING, frames), (libc::XDP_UMEM_COMPLETION_RING, 2), (libc::XDP_RX_RING, frames)];
        let parts = set_up(&descriptor, umem, frames, rings)?;
        let fill = Ring::map(descriptor.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING, parts.fr, frames)?;
        let received = Ring::map(descriptor.as_fd(), libc::XDP_PGOFF_RX_RING as u64, parts.rx, frames)?;
        Ok(Self { descriptor, fill, received })
    }
}

/// Binds a socket to a queue, which the kernel may not have released yet from the last socket.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn bind_when_released(socket: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match system::bind(socket, address) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < RELEASE_TIMEOUT => {
                std::thread::sleep(RELEASE_TIMEOUT / 100);
            }
            bound => return bound,
        }
    }
}

/// The address of a queue. `flags`: `XDP_COPY`, `XDP_ZEROCOPY` or neither.
pub(super) fn queue_address(interface: u32, queue: u32, flags: u16) -> libc::sockaddr_xdp {
    libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    }
}

/// Gives a socket the memory for this number of frames, and rings with these numbers of entries.
/// Returns where the parts of the rings are. The kernel pins the pages, even beyond the end of our
/// mapping.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn set_up(
    socket: &OwnedFd,
    umem: &Mapping,
    frames: u32,
    rings: [(c_int, u32); 3],
) -> io::Result<libc::xdp_mmap_offsets> {
    let bytes = frames as usize * CHUNK_BYTES;
    let region = libc::xdp_umem_reg {
        addr: umem.at(0, bytes).expect("it has this size") as u64,
        len: bytes as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    system::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
    for (ring, entries) in rings {
        system::set_option(socket, libc::SOL_XDP, ring, &entries)?;
    }
    system::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
}

impl<T: Plain + Copy> Ring<T> {
    /// Maps the ring of a socket at an offset. `entries` is a power of two; `parts` are offsets
    /// from the kernel.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        parts: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = parts.desc as usize + entries as usize * size_of::<T>();
        Self::new(Mapping::new(bytes, Some((socket, offset)))?, parts, entries)
    }

    fn new(memory: Mapping, parts: libc::xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let [producer, consumer, flags, start] =
            [parts.producer, parts.consumer, parts.flags, parts.desc].map(|part| part as usize);
        let inside = |part| part % 4 == 0 && memory.at(part, 4).is_some();
        let entries_fit = memory.at(start, entries as usize * size_of::<T>()).is_some();
        if [producer, consumer, flags].into_iter().all(inside) && entries_fit && start % align_of::<T>() == 0 {
            let mask = entries - 1;
            Ok(Self { memory, producer, consumer, flags, entries: start, mask, _entries: std::marker::PhantomData })
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let address = self.memory.at(offset, 4).expect("the words are within the mapping, as `new` checked");
        // SAFETY: the word is in the mapping, which lives as long as `self`, at a multiple of 4,
        // and is accessed only by atomics.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        let offset = self.entries + (number & self.mask) as usize * size_of::<T>();
        self.memory.at(offset, size_of::<T>()).expect("the entries are within the mapping, as `new` checked").cast()
    }

    /// As the producer: moves values from the end of `values` into the free entries.
    pub(super) fn produce(&mut self, values: &mut Vec<T>) {
        // Only this end stores it.
        let produced = self.word(self.producer).load(Ordering::Relaxed);
        let used = produced.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire));
        let free = (self.mask + 1).saturating_sub(used) as usize;
        let mut number = produced;
        for value in values.drain(values.len().saturating_sub(free)..) {
            // SAFETY: the entry is in the mapping, aligned, and ours, because the consumer is past
            // it.
            unsafe { self.entry(number).write(value) };
            number = number.wrapping_add(1);
        }
        self.word(self.producer).store(number, Ordering::Release);
    }

    /// As the consumer: returns the number of entries to read.
    pub(super) fn ready(&self) -> u32 {
        let consumed = self.word(self.consumer).load(Ordering::Relaxed);
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(consumed)
    }

    /// As the consumer: returns the entry that the producer wrote last, if it is not consumed.
    pub(super) fn last(&self) -> Option<T> {
        let ready = self.ready().min(self.mask + 1);
        let number = self.word(self.consumer).load(Ordering::Relaxed).wrapping_add(ready.checked_sub(1)?);
        // SAFETY: as in `consume`.
        Some(unsafe { self.entry(number).read() })
    }

    /// As the consumer: moves entries into `into` until it is full.
    pub(super) fn consume(&mut self, into: &mut ArrayVec<T, MAX_BURST_FRAMES>) {
        // Only this end stores it.
        let mut number = self.word(self.consumer).load(Ordering::Relaxed);
        for _ in 0..self.ready().min(self.mask + 1).min(into.remaining_capacity() as u32) {
            // SAFETY: the entry is in the mapping, aligned, valid by its trait whatever the kernel
            // wrote, and ours, because the producer is past it.
            into.push(unsafe { self.entry(number).read() });
            number = number.wrapping_add(1);
        }
        self.word(self.consumer).store(number, Ordering::Release);
    }

    /// Returns whether the kernel needs a system call to process the ring.
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The step of opening a socket that failed.
pub(super) enum Step {
    Open,
    /// Mapping and registering the UMEM and the rings.
    Memory,
    Bind,
}

impl Socket {
    /// Opens a socket on a queue, with memory for `frames` frames (a power of two), all of it in
    /// the fill ring. `flags`: `XDP_COPY`, `XDP_ZEROCOPY` or neither.
    ///
    /// # Errors
    /// The step that failed, and the error of the operating system.
    pub fn new(interface: u32, queue: u32, frames: u32, flags: u16) -> Result<Self, (Step, io::Error)> {
        let bytes = frames as usize * CHUNK_BYTES;
        let umem = Mapping::new(bytes, None).map_err(|error| (Step::Memory, error))?;
        let SpareSocket { descriptor, fill, received } = SpareSocket::new(&umem, frames)?;
        let mut socket = Self { descriptor, umem, fill, received, free: Vec::new() };
        socket.bind(interface, queue, flags)?;
        Ok(socket)
    }

    /// Opens a socket that can take the place of this one, with the same memory. The kernel needs
    /// 32 bytes per frame for it.
    ///
    /// # Errors
    /// The step that failed, and the error of the operating system.
    pub fn spare(&self) -> Result<SpareSocket, (Step, io::Error)> {
        SpareSocket::new(&self.umem, self.received.mask + 1)
    }

    /// Replaces this socket, whose interface was removed, and binds the other one to a queue. Needs
    /// no capability.
    ///
    /// # Errors
    /// The step that failed, and the error of the operating system.
    pub fn replace(
        &mut self,
        spare: SpareSocket,
        interface: u32,
        queue: u32,
        flags: u16,
    ) -> Result<(), (Step, io::Error)> {
        // The kernel writes nothing into the memory for a socket without an interface.
        (self.descriptor, self.fill, self.received) = (spare.descriptor, spare.fill, spare.received);
        self.bind(interface, queue, flags)
    }

    /// Puts all chunks into the fill ring, and binds the socket.
    fn bind(&mut self, interface: u32, queue: u32, flags: u16) -> Result<(), (Step, io::Error)> {
        let frames = u64::from(self.received.mask) + 1;
        self.free = (0..frames).map(|number| number * CHUNK_BYTES as u64).collect();
        self.fill.produce(&mut self.free);
        bind_when_released(&self.descriptor, &queue_address(interface, queue, flags))
            .map_err(|error| (Step::Bind, error))
    }

    /// Releases the chunks of the frames received last.
    pub fn release(&mut self) {
        self.fill.produce(&mut self.free);
        if self.fill.needs_wakeup() {
            // A driver that ran out of chunks waits for a system call. If this one fails, the next
            // wait reports it.
            let _ = self.wait(Duration::ZERO);
        }
    }

    pub fn ready(&self) -> u32 {
        self.received.ready()
    }

    /// Receives up to [`MAX_BURST_FRAMES`] frames.
    pub fn receive(&mut self) -> impl Iterator<Item = ReceivedFrame<'_>> {
        let mut descriptors = ArrayVec::<libc::xdp_desc, MAX_BURST_FRAMES>::new();
        self.received.consume(&mut descriptors);
        // A chunk is identified by its start; the frame begins after the headroom.
        self.free.extend(descriptors.iter().map(|descriptor| descriptor.addr & !(CHUNK_BYTES as u64 - 1)));
        let umem = &self.umem;
        descriptors.into_iter().map(move |descriptor| {
            let (start, length) = (descriptor.addr as usize, descriptor.len as usize);
            // An invalid descriptor gives an empty frame, which the decoder refuses.
            let bytes = umem.at(start, length).map_or(&[][..], |first| {
                // SAFETY: the bytes are in the UMEM, which lives as long as the socket; the chunk
                // is ours until it is released, which no slice outlives.
                unsafe { std::slice::from_raw_parts(first, length) }
            });
            let metadata =
                start.checked_sub(METADATA_BYTES).and_then(|before| umem.at(before, METADATA_BYTES)).map(|first| {
                    // SAFETY: these bytes are in the same chunk, before the frame; they need no
                    // alignment.
                    unsafe { first.cast::<[u32; 2]>().read_unaligned() }
                });
            let wire_bytes = metadata.filter(|&[_, mark]| mark == MARK).map(|[wire_bytes, _]| wire_bytes);
            ReceivedFrame { bytes, wire_bytes }
        })
    }

    /// Waits for frames, and wakes the kernel if it needs that. A signal ends the wait early.
    ///
    /// # Errors
    /// The system call fails.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout_ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        system::poll(&self.descriptor, timeout_ms).map(drop)
    }

    pub fn take_error(&self) -> io::Result<()> {
        system::take_error(&self.descriptor)
    }

    /// Returns the frames dropped since the socket was opened: because the fill ring was empty, the
    /// frame was longer than a chunk, or the receive ring was full.
    pub fn dropped(&self) -> io::Result<u64> {
        let statistics: libc::xdp_statistics = system::option(&self.descriptor, libc::SOL_XDP, libc::XDP_STATISTICS)?;
        Ok(statistics.rx_dropped + statistics.rx_ring_full)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const PARTS: libc::xdp_ring_offset = libc::xdp_ring_offset { producer: 0, consumer: 64, flags: 128, desc: 192 };

    /// A ring of 128 entries whose words have this value.
    fn ring(begun: u32) -> Ring<u64> {
        let memory = Mapping::new(192 + 128 * size_of::<u64>(), None).unwrap();
        let ring = Ring::new(memory, PARTS, 128).unwrap();
        ring.word(ring.producer).store(begun, Ordering::Relaxed);
        ring.word(ring.consumer).store(begun, Ordering::Relaxed);
        ring
    }

    proptest! {
        #[test]
        fn entries_are_consumed_in_order_even_where_the_words_wrap(
            begun in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
            steps in proptest::collection::vec((0..100_usize, any::<bool>()), 1..100),
        ) {
            let (mut ring, mut expected, mut next) = (ring(begun), VecDeque::new(), 0);
            for (some, takes) in steps {
                if takes {
                    let mut consumed = ArrayVec::new();
                    ring.consume(&mut consumed);
                    prop_assert_eq!(consumed.len(), expected.len().min(MAX_BURST_FRAMES));
                    prop_assert!(consumed.into_iter().eq(expected.drain(..expected.len().min(MAX_BURST_FRAMES))));
                } else {
                    let mut values: Vec<u64> = (next..next + some as u64).collect();
                    next += some as u64;
                    let free = 128 - expected.len();
                    // From the end of the values, into the free entries.
                    let fit = values[some.saturating_sub(free)..].to_vec();
                    ring.produce(&mut values);
                    prop_assert_eq!(values.len(), some - fit.len());
                    expected.extend(fit);
                }
                prop_assert_eq!(ring.ready() as usize, expected.len());
            }
        }
    }

    #[test]
    fn ring_larger_than_its_memory_is_refused() {
        let memory = || Mapping::new(4096, None).unwrap();
        assert!(Ring::<u64>::new(memory(), PARTS, 256).is_ok());
        assert!(Ring::<u64>::new(memory(), PARTS, 512).is_err());
        assert!(Ring::<u64>::new(memory(), libc::xdp_ring_offset { consumer: 4096, ..PARTS }, 128).is_err());
        assert!(Ring::<u64>::new(memory(), libc::xdp_ring_offset { desc: 196, ..PARTS }, 128).is_err());
    }
}
