//! Safe wrappers of DPDK: the environment (EAL), a port, and the receiver of one queue, over the C
//! functions in `shim.c`.
//!
//! Why this is sound:
//! * The environment is changed, and ports are opened and closed, under one lock ([`Environment`]),
//!   as DPDK requires.
//! * A [`Port`] is started when it is created and stopped when its last [`Receiver`] is dropped, so
//!   no stopped port is used.
//! * There is one [`Receiver`] per queue, and receiving borrows it mutably: one thread at a time
//!   polls a queue and returns buffers to its pool.
//! * The bytes of packets are borrowed from the receiver, which releases them when it receives the
//!   next ones.
//! * The packets of a receiver are under a lock ([`Received`]). A [`Transmitter`] that finds a frame
//!   among them holds it until the packet has a second owner, so that no release comes between. It
//!   keeps the receiver's port open until its own is closed.

use super::clock::Clock;
use super::error::Failure;
use super::settings::Settings;
use crate::clock;
use crate::send_frames::{SendFrames, SendRefusal};
use crate::source::MAX_BURST_FRAMES;
use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Length of the longest hash key of a port, in bytes.
const KEY_BYTES: usize = 255;

/// Key of the Toeplitz hash that gives both directions of a flow the same value: it repeats every
/// 16 bits, and the lengths of addresses and ports are multiples of that, so exchanging them does
/// not change the hash (Woo and Park, 2012).
pub(super) const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
    let mut key = [0x6d; KEY_BYTES];
    let mut i = 1;
    while i < KEY_BYTES {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// `struct weir_dpdk_packet` of the shim.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawPacket {
    bytes: *const u8,
    mbuf: *mut c_void,
    ticks: u64,
    captured: u32,
    wire: u32,
}

// SAFETY: packets belong to the thread that holds their lock, and DPDK lets any thread use them.
#[allow(unsafe_code)]
unsafe impl Send for RawPacket {}

/// `struct weir_dpdk_outgoing` of the shim.
#[repr(C)]
struct RawOutgoing {
    bytes: *const u8,
    mbuf: *mut c_void,
    length: u32,
}

/// `struct weir_dpdk_output` of the shim.
#[repr(C)]
struct RawOutput {
    queues: u16,
    descriptors: u16,
    mbufs: u32,
    longest: u32,
    step: *const c_char,
}

/// `struct weir_dpdk_port` of the shim.
#[repr(C)]
struct RawPort {
    queues: u16,
    descriptors: u16,
    mbufs: u32,
    symmetric: u8,
    step: *const c_char,
    stamped: u8,
    key: *const u8,
}

/// Counters of a port since it was opened (`struct weir_dpdk_counts` of the shim).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortCounts {
    /// Packets delivered to the queues.
    pub received: u64,
    /// Packets for which no descriptor was free.
    pub missed: u64,
    /// Packets that the NIC found damaged.
    pub damaged: u64,
    /// Failed allocations of a packet buffer.
    pub without_memory: u64,
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn weir_dpdk_take_log(into: *mut u8, size: usize) -> usize;
    fn weir_dpdk_run_on(core: c_uint) -> c_int;
    fn weir_dpdk_may_run_on(core: c_uint) -> c_int;
    fn weir_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn weir_dpdk_attach(arguments: *const c_char, name: *const c_char, port: *mut u16) -> c_int;
    fn weir_dpdk_max_queues(port: u16) -> c_int;
    fn weir_dpdk_open(port: u16, about: *mut RawPort) -> c_int;
    fn weir_dpdk_detach(port: u16, queues: u16);
    fn weir_dpdk_counts(port: u16, counts: *mut PortCounts) -> c_int;
    fn weir_dpdk_read_clock(port: u16, ticks: *mut u64) -> c_int;
    fn weir_dpdk_receive(port: u16, queue: u16, packets: *mut RawPacket) -> c_uint;
    fn weir_dpdk_release(packets: *const RawPacket, count: c_uint);
    fn weir_dpdk_max_output_queues(port: u16) -> c_int;
    fn weir_dpdk_open_output(port: u16, about: *mut RawOutput) -> c_int;
    fn weir_dpdk_pool(port: u16, queue: u16) -> *mut c_void;
    fn weir_dpdk_send(port: u16, queue: u16, pool: *mut c_void, packets: *const RawOutgoing, count: c_uint) -> c_uint;
}

/// Result of the start of the environment, which happens once per process: its arguments.
type Outcome = Option<Result<Vec<String>, Failure>>;

static OUTCOME: Mutex<Outcome> = Mutex::new(None);

/// DPDK's environment of this process, locked.
pub(super) struct Environment(MutexGuard<'static, Outcome>);

impl Environment {
    pub(super) fn lock() -> Self {
        // A panic leaves it consistent, because it is one value.
        Self(OUTCOME.lock())
    }

    /// Returns the arguments of the start or its failure; `None` before the start.
    pub(super) fn outcome(&self) -> Option<&Result<Vec<String>, Failure>> {
        self.0.as_ref()
    }

    /// Starts the environment, on one core if given.
    ///
    /// # Panics
    /// It was started before.
    #[allow(unsafe_code)]
    pub(super) fn start(&mut self, arguments: Vec<String>, core: Option<u32>) -> Result<(), Failure> {
        assert!(self.0.is_none(), "the environment of DPDK is started once per process");
        let texts: Vec<CString> = arguments.iter().map(|text| c_string(text)).collect();
        // DPDK binds the thread that starts it to a core, so this is not the caller's thread.
        let result = std::thread::spawn(move || {
            let mut pointers: Vec<*mut c_char> = texts.into_iter().map(CString::into_raw).collect();
            pointers.push(std::ptr::null_mut());
            // DPDK keeps pointers to them.
            let pointers = pointers.leak();
            let count = c_int::try_from(pointers.len() - 1).expect("a dozen arguments");
            if let Some(core) = core {
                // SAFETY: it takes a number.
                let result = unsafe { weir_dpdk_run_on(core) };
                if result != 0 {
                    return result;
                }
            }
            // SAFETY: `count` strings that end with 0 and are never freed; the thread that waits
            // for this one holds the lock.
            unsafe { weir_dpdk_start(count, pointers.as_mut_ptr()) }
        });
        let result = result.join().expect("calls into DPDK do not panic");
        let outcome = if result == 0 { Ok(()) } else { Err(failure("rte_eal_init", result)) };
        // The messages of a successful start are not part of a later failure.
        take_log();
        *self.0 = Some(match &outcome {
            Ok(()) => Ok(arguments),
            Err(failure) => Err(failure.clone()),
        });
        outcome
    }

    /// Opens a device and starts its port. Returns one receiver per queue, and the number of
    /// descriptors of each.
    ///
    /// # Errors
    /// The device is not opened.
    #[allow(unsafe_code)]
    pub(super) fn open(&mut self, settings: &Settings) -> Result<(Vec<Receiver>, u16), OpenError> {
        let queues = settings.queues;
        let id = self.attach(settings, weir_dpdk_max_queues)?;
        let mut port = RawPort {
            queues,
            descriptors: settings.descriptors(),
            mbufs: settings.mbufs(),
            symmetric: settings.symmetric.into(),
            step: c"".as_ptr(),
            stamped: 0,
            key: SYMMETRIC_KEY.as_ptr(),
        };
        // SAFETY: `port` has the layout of the C side, its key has 255 bytes, and the lock is held.
        let result = unsafe { weir_dpdk_open(id, &raw mut port) };
        if result != 0 {
            // SAFETY: the shim sets it to a string literal.
            let step = unsafe { CStr::from_ptr(port.step) };
            return Err(self.refused(id, queues, step, result));
        }
        let clock = if port.stamped != 0 { Clock::new(|| read_clocks(id)) } else { None };
        let shared = Arc::new(Port { id, queues, counters: Mutex::new(()), clock: clock.map(Mutex::new) });
        let receivers = (0..queues).map(|queue| Receiver::new(shared.clone(), queue)).collect();
        Ok((receivers, port.descriptors))
    }

    /// Adds a device, whose port may have the number of queues that `most` returns. Returns the number
    /// of the port.
    #[allow(unsafe_code)]
    fn attach(
        &mut self,
        Settings { device, queues, .. }: &Settings,
        most: unsafe extern "C" fn(u16) -> c_int,
    ) -> Result<u16, OpenError> {
        assert!(matches!(self.outcome(), Some(Ok(_))), "the environment is started before a port is opened");
        take_log();
        let (arguments, name, mut id) = (c_string(device.arguments()), c_string(device.name()), 0);
        // SAFETY: two strings that end with 0, and a variable for the number; the lock is held.
        let result = unsafe { weir_dpdk_attach(arguments.as_ptr(), name.as_ptr(), &raw mut id) };
        if result != 0 {
            return Err(OpenError::Device(failure("rte_dev_probe", result)));
        }
        // SAFETY: it takes a number; the lock is held.
        let most = unsafe { most(id) };
        if i32::from(*queues) > most {
            // SAFETY: the port was attached above and is not used elsewhere; the lock is held.
            unsafe { weir_dpdk_detach(id, 0) };
            return Err(OpenError::Queues(most.try_into().unwrap_or(0)));
        }
        Ok(id)
    }

    /// Removes a device whose port refused a step of its configuration.
    #[allow(unsafe_code)]
    fn refused(&mut self, id: u16, queues: u16, step: &CStr, result: c_int) -> OpenError {
        let error = failure(&step.to_string_lossy(), result);
        // SAFETY: the port was attached and is not used elsewhere; the lock is held.
        unsafe { weir_dpdk_detach(id, queues) };
        OpenError::Port(error)
    }

    /// Opens a device and starts its port for sending. Returns one transmitter per queue.
    ///
    /// # Errors
    /// The device is not opened.
    #[allow(unsafe_code)]
    pub(super) fn open_output(&mut self, settings: &Settings) -> Result<Vec<Transmitter>, OpenError> {
        let queues = settings.queues;
        let id = self.attach(settings, weir_dpdk_max_output_queues)?;
        let (descriptors, mbufs) = (settings.descriptors(), settings.mbufs());
        let mut output = RawOutput { queues, descriptors, mbufs, longest: 0, step: c"".as_ptr() };
        // SAFETY: `output` has the layout of the C side, and the lock is held.
        let result = unsafe { weir_dpdk_open_output(id, &raw mut output) };
        if result != 0 {
            // SAFETY: the shim sets it to a string literal.
            let step = unsafe { CStr::from_ptr(output.step) };
            return Err(self.refused(id, queues, step, result));
        }
        let port = Port { id, queues, counters: Mutex::new(()), clock: None };
        let port = Arc::new(OutputPort { port, sources: Mutex::default() });
        let transmitter = |queue| {
            // SAFETY: it takes numbers; the lock is held.
            let pool = unsafe { weir_dpdk_pool(id, queue) };
            Transmitter { port: port.clone(), queue, pool, longest: output.longest as usize, source: Weak::new() }
        };
        Ok((0..queues).map(transmitter).collect())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    /// The device does not exist or cannot be opened.
    Device(Failure),
    /// It has only this number of queues.
    Queues(u16),
    /// Its port refuses the configuration.
    Port(Failure),
}

#[allow(unsafe_code)]
pub(super) fn may_run_on(core: u32) -> bool {
    // SAFETY: it takes a number.
    unsafe { weir_dpdk_may_run_on(core) != 0 }
}

/// Describes a failed call by its negative result and DPDK's log messages.
fn failure(call: &str, result: c_int) -> Failure {
    Failure { call: call.into(), errno: result.saturating_neg(), message: take_log() }
}

/// Takes DPDK's log messages since the last call, joined to one line.
#[allow(unsafe_code)]
fn take_log() -> String {
    let mut text = [0; 4096];
    // SAFETY: it writes at most this number of bytes, and returns how many.
    let length = unsafe { weir_dpdk_take_log(text.as_mut_ptr(), text.len()) };
    let text = String::from_utf8_lossy(&text[..length]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// Returns a C string; a zero byte, which no name or argument has, ends it.
fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("no zero is left")
}

#[allow(unsafe_code)]
fn read_clocks(port: u16) -> Option<(u64, Instant, u64)> {
    let mut ticks = 0;
    // SAFETY: the caller holds the port; a variable for the number.
    let result = unsafe { weir_dpdk_read_clock(port, &raw mut ticks) };
    (result == 0).then(|| (ticks, Instant::now(), clock::now_ns()))
}

/// A started port; stopped when dropped.
pub(super) struct Port {
    id: u16,
    queues: u16,
    /// Held while the counters are read. Not the environment's lock, because opening another port
    /// takes seconds.
    counters: Mutex<()>,
    /// Conversion of its clock, if its packets are time-stamped.
    clock: Option<Mutex<Clock>>,
}

impl Port {
    pub(super) fn number(&self) -> u32 {
        self.id.into()
    }

    /// Returns its counters since it was opened; `None` if it has none.
    #[allow(unsafe_code)]
    pub(super) fn counts(&self) -> Option<PortCounts> {
        let _guard = self.counters.lock();
        let mut counts = PortCounts::default();
        // SAFETY: the port is started, `counts` has the layout of the C side, and the lock is held.
        let result = unsafe { weir_dpdk_counts(self.id, &raw mut counts) };
        (result == 0).then_some(counts)
    }

    /// Returns its clock, compared with the system's within the last second.
    fn clock(&self) -> Option<Clock> {
        let mut clock = self.clock.as_ref()?.lock();
        clock.refresh(|| read_clocks(self.id));
        Some(*clock)
    }
}

impl Drop for Port {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let _environment = Environment::lock();
        // SAFETY: no receiver is left, so neither its queues nor its packets are in use; the lock
        // is held.
        unsafe { weir_dpdk_detach(self.id, self.queues) };
    }
}

/// The packets that a receiver has received last, and not released: the first `count`.
struct Received {
    port: Arc<Port>,
    packets: Mutex<([RawPacket; MAX_BURST_FRAMES], usize)>,
}

thread_local! {
    /// Where the frames that this thread processes probably are.
    static RECEIVED: RefCell<Weak<Received>> = const { RefCell::new(Weak::new()) };
}

/// Receives from one queue of a port.
pub(super) struct Receiver {
    port: Arc<Port>,
    queue: u16,
    received: Arc<Received>,
    clock: Option<Clock>,
}

impl Receiver {
    fn new(port: Arc<Port>, queue: u16) -> Self {
        let nothing = RawPacket { bytes: std::ptr::null(), mbuf: std::ptr::null_mut(), ticks: 0, captured: 0, wire: 0 };
        let clock = port.clock();
        let packets = Mutex::new(([nothing; MAX_BURST_FRAMES], 0));
        let received = Arc::new(Received { port: port.clone(), packets });
        Self { port, queue, received, clock }
    }

    /// Returns the port, which all its queues share.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    /// Releases the packets received last and receives the next; returns their number, which may be
    /// 0.
    #[allow(unsafe_code)]
    pub(super) fn receive(&mut self) -> usize {
        self.release();
        let count = {
            let mut packets = self.received.packets.lock();
            // SAFETY: the port is started and has this queue, only this receiver polls it, and the
            // array has MAX_BURST_FRAMES elements.
            packets.1 = unsafe { weir_dpdk_receive(self.port.id, self.queue, packets.0.as_mut_ptr()) } as usize;
            packets.1
        };
        if count > 0 {
            RECEIVED.with_borrow_mut(|here| {
                if !std::ptr::eq(here.as_ptr(), &raw const *self.received) {
                    *here = Arc::downgrade(&self.received);
                }
            });
        }
        if self.clock.as_ref().is_some_and(Clock::is_old) {
            self.clock = self.port.clock();
        }
        count
    }

    /// Calls `take` for each of the packets received last; those without a time stamp have the time
    /// `now_ns`.
    pub(super) fn packets<'a>(&'a self, now_ns: u64, mut take: impl FnMut(Packet<'a>)) {
        let packets = self.received.packets.lock();
        packets.0[..packets.1].iter().for_each(|raw| take(self.packet(raw, now_ns)));
    }

    #[allow(unsafe_code)]
    fn packet(&self, raw: &RawPacket, now_ns: u64) -> Packet<'_> {
        // SAFETY: the packet's first segment has this number of bytes there, unchanged until it is
        // released, which borrows this receiver mutably. (DPDK's buffers are never at address 0.)
        let bytes = unsafe { std::slice::from_raw_parts(raw.bytes, raw.captured as usize) };
        let time_ns = match &self.clock {
            Some(clock) if raw.ticks != 0 => clock.time_ns(raw.ticks),
            _ => now_ns,
        };
        Packet { bytes, wire_bytes: raw.wire, time_ns }
    }

    #[allow(unsafe_code)]
    fn release(&mut self) {
        let mut packets = self.received.packets.lock();
        // SAFETY: the first `count` were received and not yet released; no slice of them is left,
        // because `self` is borrowed mutably.
        unsafe { weir_dpdk_release(packets.0.as_ptr(), packets.1 as c_uint) };
        packets.1 = 0;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

pub(super) struct Packet<'a> {
    /// Its bytes; of a packet in several segments, those of the first one.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes.
    pub wire_bytes: u32,
    /// Time, ns since 1970 UTC; that of the NIC if it time-stamps.
    pub time_ns: u64,
}

/// A port that sends, and the ports whose packets it may hold: it is closed before them.
struct OutputPort {
    port: Port,
    sources: Mutex<Vec<Arc<Port>>>,
}

/// Sends through one queue of a port.
pub(crate) struct Transmitter {
    port: Arc<OutputPort>,
    queue: u16,
    pool: *mut c_void,
    /// Length of the longest frame without VLAN tag.
    longest: usize,
    /// The port whose packets were sent last. `port` keeps it open.
    source: Weak<Port>,
}

// SAFETY: the pool is that of this transmitter's queue, from which it alone takes, and lives as long
// as the port.
#[allow(unsafe_code)]
unsafe impl Send for Transmitter {}

impl Transmitter {
    fn check(&self, frame: &[u8]) -> Result<(), SendRefusal> {
        const ETHERNET_HEADER_BYTES: usize = 14;
        /// Data bytes of an mbuf, as in the shim.
        const SEGMENT_BYTES: usize = 2048;
        const TAG_BYTES: usize = 4;
        let tag_bytes = if frame.get(12..14) == Some(&[0x81, 0]) { TAG_BYTES } else { 0 };
        match frame.len() {
            ..ETHERNET_HEADER_BYTES => Err(SendRefusal::TooShort),
            length if length > (self.longest + tag_bytes).min(SEGMENT_BYTES) => Err(SendRefusal::TooLong),
            _ => Ok(()),
        }
    }

    fn keep_open(&mut self, source: &Arc<Port>) {
        if std::ptr::eq(self.source.as_ptr(), &raw const **source) {
            return;
        }
        self.source = Arc::downgrade(source);
        let mut sources = self.port.sources.lock();
        if !sources.iter().any(|known| Arc::ptr_eq(known, source)) {
            sources.push(source.clone());
        }
    }
}

impl SendFrames for Transmitter {
    /// Frames that the receiver of this thread has received last are not copied.
    #[allow(unsafe_code)]
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SendRefusal> {
        let valid = frames.iter().take(MAX_BURST_FRAMES).map_while(|frame| self.check(frame).ok());
        let count = valid.count();
        if let (0, Some(first)) = (count, frames.first()) {
            self.check(first)?;
        }
        let received = RECEIVED.with_borrow(Weak::upgrade);
        // Held until the packets have a second owner.
        let packets = received.as_ref().map(|received| received.packets.lock());
        let packets = packets.as_ref().map_or(&[][..], |packets| &packets.0[..packets.1]);
        let mut next = 0;
        let outgoing: ArrayVec<RawOutgoing, MAX_BURST_FRAMES> = frames[..count]
            .iter()
            .map(|frame| {
                // Frames have the order of the packets, of which some may be left out.
                let found = packets[next..].iter().position(|packet| std::ptr::eq(packet.bytes, frame.as_ptr()));
                next += found.map_or(0, |at| at + 1);
                let mbuf = found.map_or(std::ptr::null_mut(), |_| packets[next - 1].mbuf);
                RawOutgoing { bytes: frame.as_ptr(), mbuf, length: frame.len() as u32 }
            })
            .collect();
        if let Some(received) = received.as_ref().filter(|_| next > 0) {
            self.keep_open(&received.port);
        }
        let (port, count) = (self.port.port.id, outgoing.len() as c_uint);
        // SAFETY: the port is started and has this queue, only this transmitter sends through it and
        // takes from its pool; the frames live across the call, and their mbufs are not released
        // while the lock is held.
        let sent = unsafe { weir_dpdk_send(port, self.queue, self.pool, outgoing.as_ptr(), count) };
        if sent == 0 { Err(SendRefusal::Interface) } else { Ok(sent as usize) }
    }

    fn bind(&mut self) -> bool {
        true
    }
}

/// Wrappers of `inject.c`, for tests.
#[cfg(test)]
pub(super) mod inject {
    use super::{Environment, c_string};
    use std::ffi::{c_char, c_int, c_uint, c_void};

    #[link(name = "weir_dpdk_inject", kind = "static")]
    #[allow(unsafe_code)]
    unsafe extern "C" {
        fn weir_dpdk_inject(device: *const c_char, queue: u16, bytes: *const u8, length: u32, segment: u16) -> c_int;
        fn weir_dpdk_injected() -> c_uint;
        fn weir_dpdk_take(
            device: *const c_char,
            queue: u16,
            bytes: *mut u8,
            size: u32,
            address: *mut *const c_void,
        ) -> c_int;
        fn weir_dpdk_table(device: *const c_char, queues: *mut u16, size: u16) -> c_int;
        fn weir_dpdk_key(device: *const c_char, key: *mut u8, size: u8) -> c_int;
    }

    /// Puts a packet into a queue of a `net_ring` device, in segments of `segment` bytes. Returns
    /// false if the ring is full.
    #[allow(unsafe_code)]
    pub(in crate::live::dpdk) fn inject(device: &str, queue: u16, bytes: &[u8], segment: u16) -> bool {
        let _environment = Environment::lock();
        let (device, length) = (c_string(device), u32::try_from(bytes.len()).expect("a packet"));
        // SAFETY: a string that ends with 0, and the bytes with their length; the lock makes this
        // the only producer.
        unsafe { weir_dpdk_inject(device.as_ptr(), queue, bytes.as_ptr(), length, segment) == 0 }
    }

    /// Takes a packet that was sent into a queue of a `net_ring` device: its bytes, and where they were.
    #[allow(unsafe_code)]
    pub(in crate::live::dpdk) fn take(device: &str, queue: u16) -> Option<(Vec<u8>, usize)> {
        let _environment = Environment::lock();
        let (device, mut bytes, mut address) = (c_string(device), vec![0; 4096], std::ptr::null());
        // SAFETY: a string that ends with 0, 4096 bytes, and a variable for the address; the lock makes
        // this the only consumer.
        let length = unsafe { weir_dpdk_take(device.as_ptr(), queue, bytes.as_mut_ptr(), 4096, &raw mut address) };
        bytes.truncate(usize::try_from(length).ok()?);
        Some((bytes, address.addr()))
    }

    /// Returns the number of buffers of injected packets that are not released yet.
    #[allow(unsafe_code)]
    pub(in crate::live::dpdk) fn injected() -> u32 {
        let _environment = Environment::lock();
        // SAFETY: it takes no arguments; the pool may be missing.
        unsafe { weir_dpdk_injected() }
    }

    /// Returns the queue of each entry of a port's indirection table.
    #[allow(unsafe_code)]
    pub(in crate::live::dpdk) fn table(device: &str) -> Vec<u16> {
        let _environment = Environment::lock();
        let (device, mut queues) = (c_string(device), vec![0; 512]);
        // SAFETY: a string that ends with 0, and 512 numbers.
        let count = unsafe { weir_dpdk_table(device.as_ptr(), queues.as_mut_ptr(), 512) };
        queues.truncate(count.try_into().expect("the port has a table"));
        queues
    }

    #[allow(unsafe_code)]
    pub(in crate::live::dpdk) fn key(device: &str) -> Vec<u8> {
        let _environment = Environment::lock();
        let (device, mut key) = (c_string(device), vec![0; 255]);
        // SAFETY: a string that ends with 0, and 255 bytes.
        let count = unsafe { weir_dpdk_key(device.as_ptr(), key.as_mut_ptr(), 255) };
        key.truncate(count.try_into().expect("the port has a key"));
        key
    }
}
