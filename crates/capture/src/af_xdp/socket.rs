//! One AF_XDP socket: memory for frames, and the two rings through which places in it go to the kernel and come back.
//!
//! ```text
//! fill ring:    places that the kernel may write a frame into    ours -> kernel
//! receive ring: places where a frame lies, and its length        kernel -> ours
//! ```
//! Why this is sound. A place in the memory is the kernel's from when it is put into the fill ring until it comes out of the
//! receive ring; from then on it is ours.
//! * [`Socket::take`] gives slices of places that are ours alone, each once. They borrow the socket mutably, so that while one of
//!   them lives nothing is given back: [`Socket::give_back`] needs the socket mutably, too.
//! * Each ring has a word that its producer writes and one that its consumer writes. The producer fills entries, then
//!   stores its word with release; the consumer loads it with acquire before it reads them, and stores its own with release when
//!   it has done so, which the producer loads with acquire before it writes there again. Only 32-bit atomics touch
//!   these words, only this value our end of a ring.
//! * Lengths and places that come from the kernel are compared with the memory's size before they become slices.
#![allow(unsafe_code)]

use super::program::{MARK, METADATA};
use crate::BURST;
use crate::system;
use arrayvec::ArrayVec;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Octets of memory for a frame: the most that every driver takes.
const PLACE: usize = 4096;
/// Octets of it that the kernel keeps before a frame.
const HEADROOM: usize = 256;
/// How long the kernel takes, at most, to release the queue of a socket that was closed: it does so later, by a thread of its own.
const RELEASE: Duration = Duration::from_secs(2);
/// Octets of a frame that fit, so.
pub(super) const MOST_OCTETS: u32 = (PLACE - HEADROOM) as u32;

/// Memory that is mapped.
struct Mapping {
    start: NonNull<u8>,
    octets: usize,
}

/// Our end of a ring of entries of type `T`, which is made of numbers.
struct Ring<T> {
    memory: Mapping,
    /// Where in the memory the words and the entries are.
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    _entries: std::marker::PhantomData<T>,
}

/// A frame as it lies in memory.
pub(super) struct Taken<'a> {
    pub bytes: &'a [u8],
    /// The length that the program left before it, if it did.
    pub told: Option<u32>,
}

/// A socket of one queue.
pub(super) struct Socket {
    descriptor: OwnedFd,
    memory: Mapping,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    /// Places that are ours: those of the last frames, and at first all.
    held: Vec<u64>,
}

/// What a socket did not take, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// No place was in the fill ring, or the frame was longer than a place.
    pub dropped: u64,
    /// The receive ring was full.
    pub ring_full: u64,
}

impl Mapping {
    /// Maps a ring of a socket by its offset; without a socket, memory that nobody else has.
    fn new(octets: usize, ring: Option<(BorrowedFd<'_>, i64)>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (kind, descriptor, offset) = match ring {
            Some((socket, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        // SAFETY: a new mapping, at a place that the kernel chooses, overlaps nothing that is in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), octets, access, kind, descriptor, offset) };
        match NonNull::new(start.cast()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Ok(Self { start, octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address of so many octets at an offset.
    fn at(&self, offset: usize, octets: usize) -> Option<*mut u8> {
        let end = offset.checked_add(octets)?;
        // SAFETY: the offset lies within the mapping.
        (end <= self.octets).then(|| unsafe { self.start.as_ptr().add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is the mapping that was made, and whoever has it last drops it.
        unsafe { libc::munmap(self.start.as_ptr().cast::<c_void>(), self.octets) };
    }
}

// SAFETY: the memory belongs to this value alone, on whichever thread that is; with the kernel it is shared by the rules above.
unsafe impl Send for Mapping {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of a socket at an offset, with so many entries, a power of two, and parts that are where the kernel says.
    fn map(socket: BorrowedFd<'_>, offset: i64, parts: libc::xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let octets = parts.desc as usize + entries as usize * size_of::<T>();
        Self::over(Mapping::new(octets, Some((socket, offset)))?, parts, entries)
    }

    /// A ring in memory that is mapped.
    fn over(memory: Mapping, parts: libc::xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let [producer, consumer, flags, start] =
            [parts.producer, parts.consumer, parts.flags, parts.desc].map(|part| part as usize);
        let inside = |part| part % 4 == 0 && memory.at(part, 4).is_some();
        let has_room = memory.at(start, entries as usize * size_of::<T>()).is_some();
        if [producer, consumer, flags].into_iter().all(inside) && has_room && start % align_of::<T>() == 0 {
            let mask = entries - 1;
            Ok(Self { memory, producer, consumer, flags, entries: start, mask, _entries: std::marker::PhantomData })
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let address = self.memory.at(offset, 4).expect("the words of a ring were found inside of it");
        // SAFETY: the word lies in the mapping, which lives as long as `self`, at a multiple of 4, and is touched by atomics alone.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        let offset = self.entries + (number & self.mask) as usize * size_of::<T>();
        self.memory.at(offset, size_of::<T>()).expect("the entries of a ring were mapped").cast()
    }

    /// As the producer: puts in what there is room for, from the end of `values`.
    fn put(&mut self, values: &mut Vec<T>) {
        // Only we store it.
        let produced = self.word(self.producer).load(Ordering::Relaxed);
        let used = produced.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire));
        let room = (self.mask + 1).saturating_sub(used) as usize;
        let mut number = produced;
        for value in values.drain(values.len().saturating_sub(room)..) {
            // SAFETY: the entry lies in the mapping, is aligned, and is ours, as the consumer is past it.
            unsafe { self.entry(number).write(value) };
            number = number.wrapping_add(1);
        }
        self.word(self.producer).store(number, Ordering::Release);
    }

    /// As the consumer: how many there are.
    fn ready(&self) -> u32 {
        let taken = self.word(self.consumer).load(Ordering::Relaxed);
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(taken)
    }

    /// As the consumer: takes out what there is, as far as it fits.
    fn take(&mut self, into: &mut ArrayVec<T, BURST>) {
        // Only we store it.
        let mut number = self.word(self.consumer).load(Ordering::Relaxed);
        for _ in 0..self.ready().min(self.mask + 1).min(into.remaining_capacity() as u32) {
            // SAFETY: the entry lies in the mapping, is aligned, holds numbers, and is ours, as the producer is past it.
            into.push(unsafe { self.entry(number).read() });
            number = number.wrapping_add(1);
        }
        self.word(self.consumer).store(number, Ordering::Release);
    }

    /// Whether the kernel wants to be woken to look at the ring.
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// What went wrong while a socket was made, and when.
pub(super) enum Step {
    /// Making the socket.
    Open,
    /// Mapping memory, and telling the kernel of it.
    Memory,
    /// Binding it to the queue.
    Bind,
}

impl Socket {
    /// A socket of a queue, with memory for so many frames (a power of two), all of it in the fill ring. `flags`:
    /// `XDP_COPY`, `XDP_ZEROCOPY` or neither.
    ///
    /// # Errors
    /// What the operating system says, and to what.
    pub fn new(interface: u32, queue: u32, frames: u32, flags: u16) -> Result<Self, (Step, io::Error)> {
        let descriptor = system::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| (Step::Open, error))?;
        let mut socket = Self::with_memory(descriptor, frames).map_err(|error| (Step::Memory, error))?;
        socket.fill.put(&mut socket.held);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let started = Instant::now();
        loop {
            match socket.bind(&address) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < RELEASE => {
                    std::thread::sleep(RELEASE / 100);
                }
                bound => return bound.map(|()| socket).map_err(|error| (Step::Bind, error)),
            }
        }
    }

    fn bind(&self, address: &libc::sockaddr_xdp) -> io::Result<()> {
        let place = std::ptr::from_ref(address).cast::<libc::sockaddr>();
        // SAFETY: the address lives across the call and is as long as is said.
        match unsafe { libc::bind(self.descriptor.as_raw_fd(), place, size_of_val(address) as libc::socklen_t) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn with_memory(descriptor: OwnedFd, frames: u32) -> io::Result<Self> {
        let memory = Mapping::new(frames as usize * PLACE, None)?;
        let region = libc::xdp_umem_reg {
            addr: memory.start.as_ptr() as u64,
            len: memory.octets as u64,
            chunk_size: PLACE as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        // The kernel holds on to the pages from here on, also behind our mapping's end.
        system::set(&descriptor, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            // Nothing is sent, but a ring for it must be there.
            let entries: u32 = if ring == libc::XDP_UMEM_COMPLETION_RING { 2 } else { frames };
            system::set(&descriptor, libc::SOL_XDP, ring, &entries)?;
        }
        let parts: libc::xdp_mmap_offsets = system::get(&descriptor, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let fill = Ring::map(descriptor.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING as i64, parts.fr, frames)?;
        let received = Ring::map(descriptor.as_fd(), libc::XDP_PGOFF_RX_RING, parts.rx, frames)?;
        let held = (0..u64::from(frames)).map(|number| number * PLACE as u64).collect();
        Ok(Self { descriptor, memory, fill, received, held })
    }

    /// Gives back the places of the frames that were taken.
    pub fn give_back(&mut self) {
        self.fill.put(&mut self.held);
        if self.fill.needs_wakeup() {
            // A card that ran out of places waits to be told of new ones; if this fails, the next wait will tell.
            let _ = self.wait(Duration::ZERO);
        }
    }

    /// Frames that have come and were not taken.
    pub fn ready(&self) -> u32 {
        self.received.ready()
    }

    /// Takes up to [`BURST`] frames that have come.
    pub fn take(&mut self) -> impl Iterator<Item = Taken<'_>> {
        let mut descriptors = ArrayVec::<libc::xdp_desc, BURST>::new();
        self.received.take(&mut descriptors);
        // A place is known by its beginning; frames lie a little behind it.
        self.held.extend(descriptors.iter().map(|descriptor| descriptor.addr & !(PLACE as u64 - 1)));
        let memory = &self.memory;
        descriptors.into_iter().map(move |descriptor| {
            let (start, octets) = (descriptor.addr as usize, descriptor.len as usize);
            // Of what makes no sense nothing is left, which the decoder refuses.
            let bytes = memory.at(start, octets).map_or(&[][..], |first| {
                // SAFETY: the octets lie in the memory, which lives as long as the socket; the place is ours until
                // it is given back, which no slice outlives.
                unsafe { std::slice::from_raw_parts(first, octets) }
            });
            let metadata = start.checked_sub(METADATA).and_then(|before| memory.at(before, METADATA)).map(|first| {
                // SAFETY: these octets lie in the same place, before the frame. They may begin anywhere.
                unsafe { first.cast::<[u32; 2]>().read_unaligned() }
            });
            let told = metadata.filter(|&[_, mark]| mark == MARK).map(|[octets, _]| octets);
            Taken { bytes, told }
        })
    }

    /// Waits for frames, at most so long; wakes the kernel if it wants that. A signal ends it early.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn wait(&self, at_most: Duration) -> io::Result<()> {
        let mut asked = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = c_int::try_from(at_most.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: one structure, which lives across the call.
        if unsafe { libc::poll(&mut asked, 1, milliseconds) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
    }

    /// Why the socket receives nothing any more, if that is so.
    pub fn broken(&self) -> Option<io::Error> {
        match system::get::<c_int>(&self.descriptor, libc::SOL_SOCKET, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(error) => Some(io::Error::from_raw_os_error(error)),
            Err(error) => Some(error),
        }
    }

    /// What was not taken since the socket was made.
    pub fn statistics(&self) -> Option<Statistics> {
        let told: libc::xdp_statistics = system::get(&self.descriptor, libc::SOL_XDP, libc::XDP_STATISTICS).ok()?;
        Some(Statistics { dropped: told.rx_dropped, ring_full: told.rx_ring_full })
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

    /// A ring of 128 places, whose words have come so far.
    fn ring(begun: u32) -> Ring<u64> {
        let memory = Mapping::new(192 + 128 * size_of::<u64>(), None).unwrap();
        let ring = Ring::over(memory, PARTS, 128).unwrap();
        ring.word(ring.producer).store(begun, Ordering::Relaxed);
        ring.word(ring.consumer).store(begun, Ordering::Relaxed);
        ring
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out_in_order_also_where_the_words_wrap(
            begun in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
            steps in proptest::collection::vec((0..100_usize, any::<bool>()), 1..100),
        ) {
            let (mut ring, mut expected, mut next) = (ring(begun), VecDeque::new(), 0);
            for (some, takes) in steps {
                if takes {
                    let mut taken = ArrayVec::new();
                    ring.take(&mut taken);
                    prop_assert_eq!(taken.len(), expected.len().min(BURST));
                    prop_assert!(taken.into_iter().eq(expected.drain(..expected.len().min(BURST))));
                } else {
                    let mut values: Vec<u64> = (next..next + some as u64).collect();
                    next += some as u64;
                    let room = 128 - expected.len();
                    // From the end of the values, as far as there is room.
                    let fit = values[some.saturating_sub(room)..].to_vec();
                    ring.put(&mut values);
                    prop_assert_eq!(values.len(), some - fit.len());
                    expected.extend(fit);
                }
                prop_assert_eq!(ring.ready() as usize, expected.len());
            }
        }
    }

    #[test]
    fn a_ring_that_does_not_fit_into_its_memory_is_refused() {
        let memory = || Mapping::new(4096, None).unwrap();
        assert!(Ring::<u64>::over(memory(), PARTS, 256).is_ok());
        assert!(Ring::<u64>::over(memory(), PARTS, 512).is_err());
        assert!(Ring::<u64>::over(memory(), libc::xdp_ring_offset { consumer: 4096, ..PARTS }, 128).is_err());
        assert!(Ring::<u64>::over(memory(), libc::xdp_ring_offset { desc: 196, ..PARTS }, 128).is_err());
    }
}
