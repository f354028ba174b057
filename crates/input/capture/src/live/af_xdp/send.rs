//! Sends frames out of one queue of an interface through AF_XDP, in copy mode.
//!
//! ```text
//! transmit ring:   chunks that hold a frame, and its length   user space -> kernel
//! completion ring: chunks that the kernel has finished        kernel -> user space
//! ```
//! In: frames that begin with an Ethernet header. Out: the same octets at the interface. They are
//! copied into the UMEM, and from there by the kernel. The socket receives nothing.
//!
//! Invariant: each frame that was put into the transmit ring is in the kernel, sent or lost.
//!
//! Why this is sound: a chunk belongs to this module while it is in `free`, and to the kernel from
//! when it is put into the transmit ring until it is taken from the completion ring. Only chunks of
//! this module are written. The rings are those of `socket.rs`.
#![allow(unsafe_code)]

use super::socket::{CHUNK_BYTES, Ring, bind_when_released, queue_address, set_up};
use super::{count_queues, is_permission};
use crate::error::Error;
use crate::live::interface::Interface;
use crate::live_error::LiveError;
use crate::send_frames::SendRefusal;
use crate::source::MAX_BURST_FRAMES;
use crate::system::{self, Mapping, enlarge_send_buffer};
use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Frames that the memory of a queue holds: 8 MiB.
const FRAMES: u32 = 2048;
/// How often a sender can attach to an interface again: each time takes a socket, which only a process
/// with CAP_NET_RAW can open.
const SPARE_SOCKETS: usize = 16;
/// System calls to send one burst: the kernel takes 32 frames per call, or one that it drops.
const MAX_CALLS: usize = MAX_BURST_FRAMES + 2;
const ETHERNET_HEADER_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// Number of frames and of their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTotals {
    /// Frames.
    pub frames: u64,
    /// Their octets.
    pub octets: u64,
}

impl FrameTotals {
    fn add(&mut self, octets: u32) {
        self.frames += 1;
        self.octets += u64::from(octets);
    }
}

/// A socket and its rings. Its memory is that of the [`XdpSender`].
struct SendSocket {
    descriptor: OwnedFd,
    transmit: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
}

/// Sends out of one queue of an interface.
pub struct XdpSender {
    interface: String,
    queue: u32,
    socket: SendSocket,
    spare: Vec<SendSocket>,
    umem: Mapping,
    free: Vec<u64>,
    /// Frames that are not in the transmit ring yet.
    pending: Vec<libc::xdp_desc>,
    /// Octets of the frame in each chunk, and whether it was lost.
    chunks: Vec<(u32, bool)>,
    longest_bytes: usize,
    sent: FrameTotals,
    lost: FrameTotals,
}

impl XdpSender {
    /// Memory of a sender, bytes.
    pub const MEMORY_BYTES: usize = FRAMES as usize * CHUNK_BYTES;

    /// Opens one sender for each of the first `queues` queues of an interface of this network
    /// namespace, which must be up.
    ///
    /// # Errors
    /// [`Error::Live`]: no such interface, it is down, not Ethernet, or has fewer queues; or not
    /// permitted. `output` is its name in that error.
    pub fn open(output: &str, interface: &str, queues: usize) -> Result<Vec<Self>, Error> {
        let opened = Self::open_queues(interface, queues);
        opened.map_err(|cause| Error::Live { name: output.into(), cause })
    }

    fn open_queues(name: &str, queues: usize) -> Result<Vec<Self>, LiveError> {
        let interface = Interface::find(name)?;
        if !matches!(interface.hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(LiveError::SendNotEthernet(interface.hardware_type));
        }
        if !system::is_up(name).map_err(LiveError::query(name))? {
            return Err(LiveError::InterfaceDown(name.into()));
        }
        let existing = count_queues(name)?;
        if queues > existing as usize {
            return Err(LiveError::SendQueues(queues, existing, name.into()));
        }
        let mtu_bytes = system::mtu_bytes(name).map_err(LiveError::query(name))?;
        (0..queues as u32).map(|queue| Self::open_queue(&interface, queue, mtu_bytes)).collect()
    }

    fn open_queue(interface: &Interface, queue: u32, mtu_bytes: usize) -> Result<Self, LiveError> {
        let failed = |action: &str, error: io::Error| match is_permission(&error) {
            true => LiveError::XdpPermission,
            false => LiveError::Io(format!("{action} (queue {queue})"), error),
        };
        let memory = |error: io::Error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => LiveError::NoXdpSockets,
            Some(libc::ENOBUFS) => LiveError::SendLockedMemory(Self::MEMORY_BYTES),
            _ => failed("allocate memory for frames", error),
        };
        let umem = Mapping::new(Self::MEMORY_BYTES, None).map_err(memory)?;
        let socket = SendSocket::new(&umem).map_err(memory)?;
        // As many as the limit of locked memory permits.
        let spare = (0..SPARE_SOCKETS).map_while(|_| SendSocket::new(&umem).ok()).collect();
        let bound = bind_when_released(&socket.descriptor, &queue_address(interface.index, queue, libc::XDP_COPY));
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => LiveError::QueueInUse(queue),
            _ => failed("bind an AF_XDP socket", error),
        })?;
        Ok(Self {
            interface: interface.name.clone(),
            queue,
            socket,
            spare,
            umem,
            free: (0..u64::from(FRAMES)).map(|number| number * CHUNK_BYTES as u64).collect(),
            pending: Vec::with_capacity(FRAMES as usize),
            chunks: vec![(0, false); FRAMES as usize],
            longest_bytes: mtu_bytes + ETHERNET_HEADER_BYTES,
            sent: FrameTotals::default(),
            lost: FrameTotals::default(),
        })
    }

    /// Copies a frame into the memory that [`XdpSender::flush`] sends.
    ///
    /// # Errors
    /// The frame is too long or too short, or the memory is full.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0]);
        let longest_bytes = self.longest_bytes + if is_tagged { TAG_BYTES } else { 0 };
        if frame.len() > longest_bytes.min(CHUNK_BYTES) {
            return Err(SendRefusal::TooLong);
        }
        if frame.len() < ETHERNET_HEADER_BYTES {
            return Err(SendRefusal::TooShort);
        }
        let address = self.free.pop().ok_or(SendRefusal::Interface)?;
        let chunk = self.umem.at(address as usize, frame.len()).expect("a chunk is in the UMEM");
        // SAFETY: the chunk has at least this size and belongs to this module; the frame is not in the
        // UMEM, of which no reference exists.
        unsafe { chunk.copy_from_nonoverlapping(frame.as_ptr(), frame.len()) };
        self.chunks[address as usize / CHUNK_BYTES] = (frame.len() as u32, false);
        self.pending.push(libc::xdp_desc { addr: address, len: frame.len() as u32, options: 0 });
        Ok(())
    }

    /// Makes the kernel send what was pushed, without waiting. What it cannot take now stays in the
    /// transmit ring.
    ///
    /// # Errors
    /// [`SendRefusal::Removed`], once: all frames in the ring are lost then. [`SendRefusal::Down`]: they
    /// wait until the interface is up.
    pub fn flush(&mut self) -> Result<(), SendRefusal> {
        self.socket.transmit.produce(&mut self.pending);
        let mut result = Ok(());
        for _ in 0..MAX_CALLS {
            match self.socket.send() {
                // The kernel takes 32 frames per call.
                Err(libc::EAGAIN) if self.socket.completed.ready() > 0 => self.reclaim(),
                // It has dropped the frame that it finished last.
                Err(libc::EBUSY) => {
                    let last = self.socket.completed.last();
                    if let Some(chunk) = last.and_then(|address| self.chunks.get_mut(address as usize / CHUNK_BYTES)) {
                        chunk.1 = true;
                    }
                    self.reclaim();
                }
                Err(libc::ENXIO | libc::ENODEV) => {
                    result = Err(SendRefusal::Removed);
                    break;
                }
                Err(libc::ENETDOWN) => {
                    result = Err(SendRefusal::Down);
                    break;
                }
                _ => break,
            }
        }
        self.reclaim();
        result
    }

    /// Frames that the kernel has sent, and those that it has dropped.
    pub fn finished(&self) -> [FrameTotals; 2] {
        [self.sent, self.lost]
    }

    /// Takes back the chunks that the kernel has finished.
    fn reclaim(&mut self) {
        let mut finished = ArrayVec::<u64, MAX_BURST_FRAMES>::new();
        loop {
            self.socket.completed.consume(&mut finished);
            if finished.is_empty() {
                return;
            }
            for address in finished.drain(..) {
                self.finish(address);
            }
        }
    }

    fn finish(&mut self, address: u64) {
        // An address that this module did not give is ignored.
        let address = address & !(CHUNK_BYTES as u64 - 1);
        let Some(chunk) = self.chunks.get_mut(address as usize / CHUNK_BYTES).filter(|chunk| chunk.0 > 0) else {
            return;
        };
        let (octets, is_lost) = std::mem::take(chunk);
        (if is_lost { &mut self.lost } else { &mut self.sent }).add(octets);
        self.free.push(address);
    }

    /// Drops what the kernel has not finished, for ever: call this before [`XdpSender::bind`], and at
    /// the end.
    pub fn abandon(&mut self) {
        self.pending.clear();
        for (number, chunk) in self.chunks.iter_mut().enumerate().filter(|(_, chunk)| chunk.0 > 0) {
            self.lost.add(std::mem::take(chunk).0);
            self.free.push((number * CHUNK_BYTES) as u64);
        }
    }

    /// Attaches to the interface that has the name now. Returns whether there is one that can be
    /// used. Needs no capability.
    pub fn bind(&mut self) -> bool {
        let Ok(interface) = Interface::find(&self.interface) else { return false };
        if interface.hardware_type != libc::ARPHRD_ETHER {
            return false;
        }
        let Some(spare) = self.spare.pop() else { return false };
        let is_bound =
            system::bind(&spare.descriptor, &queue_address(interface.index, self.queue, libc::XDP_COPY)).is_ok();
        if is_bound {
            self.socket = spare;
        } else {
            self.spare.push(spare);
        }
        is_bound
    }
}

impl SendSocket {
    fn new(umem: &Mapping) -> io::Result<Self> {
        let descriptor = system::socket(libc::AF_XDP, libc::SOCK_RAW)?;
        // The fill ring is mandatory, although nothing is received.
        let rings =
            [(libc::XDP_UMEM_FILL_RING, 2), (libc::XDP_UMEM_COMPLETION_RING, FRAMES), (libc::XDP_TX_RING, FRAMES)];
        let parts = set_up(&descriptor, umem, FRAMES, rings)?;
        enlarge_send_buffer(&descriptor);
        let transmit = Ring::map(descriptor.as_fd(), libc::XDP_PGOFF_TX_RING as u64, parts.tx, FRAMES)?;
        let completed = Ring::map(descriptor.as_fd(), libc::XDP_UMEM_PGOFF_COMPLETION_RING, parts.cr, FRAMES)?;
        Ok(Self { descriptor, transmit, completed })
    }

    /// Makes the kernel read the transmit ring; the error is its number.
    fn send(&self) -> Result<(), i32> {
        // SAFETY: the call takes no memory.
        let sent = unsafe {
            libc::sendto(self.descriptor.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if sent < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(()) }
    }
}
