//! DPDK behind a safe surface: its environment, a port, the receiver of one queue. The one place with `unsafe`.
//!
//! What it calls is `shim.c`. Why it is sound:
//! * The environment is changed, and ports are opened and closed, under one lock ([`Environment`]), as DPDK wants it.
//! * A [`Port`] is started when it is made and stopped when the last [`Receiver`] is gone, so nobody asks a port that is stopped.
//! * There is one [`Receiver`] per queue, and it has to be borrowed mutably to receive: one thread at a time asks a
//!   queue, and gives back to its pool.
//! * Octets of packets are borrowed from the receiver, which gives them back when it is asked for the next ones.

use super::clock::Clock;
use super::settings::Device;
use crate::BURST;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Octets of the longest key that a port can want.
const KEY_BYTES: usize = 255;

/// Key of the Toeplitz hash that gives both directions of a flow the same value: it repeats every 16 bits, and
/// addresses and ports have multiples of that, so exchanging them changes nothing (Woo and Park, 2012).
pub(super) const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
    let mut key = [0x6d; KEY_BYTES];
    let mut i = 1;
    while i < KEY_BYTES {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// A packet as the shim hands it over.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handed {
    bytes: *const u8,
    mbuf: *mut c_void,
    ticks: u64,
    captured: u32,
    wire: u32,
}

/// What the shim is told of a port to open, and tells.
#[repr(C)]
struct About {
    queues: u16,
    descriptors: u16,
    mbufs: u32,
    symmetric: u8,
    step: *const c_char,
    stamped: u8,
    key: *const u8,
}

/// What a port counted since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets that went to the queues.
    pub received: u64,
    /// Packets for which no descriptor was free.
    pub missed: u64,
    /// Packets that the card found damaged.
    pub damaged: u64,
    /// Times that there was no memory for a packet.
    pub without_memory: u64,
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn weir_dpdk_words(into: *mut u8, room: usize) -> usize;
    fn weir_dpdk_run_on(core: c_uint) -> c_int;
    fn weir_dpdk_may_run_on(core: c_uint) -> c_int;
    fn weir_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn weir_dpdk_attach(arguments: *const c_char, name: *const c_char, port: *mut u16) -> c_int;
    fn weir_dpdk_most_queues(port: u16) -> c_int;
    fn weir_dpdk_open(port: u16, about: *mut About) -> c_int;
    fn weir_dpdk_detach(port: u16, queues: u16);
    fn weir_dpdk_counts(port: u16, counts: *mut Counts) -> c_int;
    fn weir_dpdk_read_clock(port: u16, ticks: *mut u64) -> c_int;
    fn weir_dpdk_receive(port: u16, queue: u16, packets: *mut Handed) -> c_uint;
    fn weir_dpdk_release(packets: *const Handed, count: c_uint);
}

/// DPDK's own number of what went wrong (an `errno`), and its words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The call, by DPDK's name.
    pub call: String,
    /// `errno`, positive.
    pub number: i32,
    /// What DPDK said meanwhile.
    pub words: String,
}

impl Failure {
    fn new(call: &str, result: c_int) -> Self {
        Self { call: call.into(), number: result.saturating_neg(), words: words() }
    }
}

/// DPDK's environment of this process, by whoever may change it now.
pub(super) struct Environment(MutexGuard<'static, Started>);

/// How the environment was started, which happens once.
#[derive(Default)]
pub(super) struct Started {
    /// The arguments, or what went wrong.
    outcome: Option<Result<Vec<String>, String>>,
}

static STARTED: Mutex<Started> = Mutex::new(Started { outcome: None });

impl Environment {
    /// Waits until nobody else changes it.
    pub(super) fn lock() -> Self {
        // Nothing is left half done in it by a panic: it is one value.
        Self(STARTED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it was started: by which arguments, or that it could not be, and why. None before.
    pub(super) fn outcome(&self) -> Option<&Result<Vec<String>, String>> {
        self.0.outcome.as_ref()
    }

    /// Starts it, on processor `core` only if there is one; keeps how that went. To be called once: a second time is our bug.
    #[allow(unsafe_code)]
    pub(super) fn start(&mut self, arguments: Vec<String>, core: Option<u32>) -> Result<(), Failure> {
        assert!(self.0.outcome.is_none(), "the environment of DPDK is started once per process");
        let texts: Vec<CString> = arguments.iter().map(|text| text_for_c(text)).collect();
        // The thread that starts it is bound to a processor by it: not the caller's.
        let result = std::thread::spawn(move || {
            let mut pointers: Vec<*mut c_char> = texts.into_iter().map(CString::into_raw).collect();
            pointers.push(std::ptr::null_mut());
            // DPDK keeps pointers into them.
            let pointers = pointers.leak();
            let count = c_int::try_from(pointers.len() - 1).expect("a dozen arguments");
            if let Some(core) = core {
                // SAFETY: takes a number.
                let result = unsafe { weir_dpdk_run_on(core) };
                if result != 0 {
                    return result;
                }
            }
            // SAFETY: `count` texts that end with 0 and live for ever, and the lock is held by whoever waits for this thread.
            unsafe { weir_dpdk_start(count, pointers.as_mut_ptr()) }
        });
        let result = result.join().expect("calls into DPDK do not panic");
        let outcome = if result == 0 { Ok(()) } else { Err(Failure::new("rte_eal_init", result)) };
        // What it says of a start that went well is not part of a later failure.
        words();
        self.0.outcome = Some(match &outcome {
            Ok(()) => Ok(arguments),
            Err(failure) => Err(failure.words.clone()),
        });
        outcome
    }

    /// Takes a device and starts its port: a receiver per queue, and the descriptors that each got.
    ///
    /// # Errors
    /// [`Refused`], and nothing is kept of the device.
    #[allow(unsafe_code)]
    pub(super) fn open(&mut self, device: &Device, wanted: &Wanted) -> Result<(Vec<Receiver>, u16), Refused> {
        assert!(matches!(self.outcome(), Some(Ok(_))), "ports belong to an environment that was started");
        words();
        let (arguments, name, mut id) = (text_for_c(device.arguments()), text_for_c(device.name()), 0);
        // SAFETY: two texts that end with 0, and a place for the number; the lock is held.
        let result = unsafe { weir_dpdk_attach(arguments.as_ptr(), name.as_ptr(), &raw mut id) };
        if result != 0 {
            return Err(Refused::Device(Failure::new("rte_dev_probe", result)));
        }
        // SAFETY: takes a number; the lock is held.
        let most = unsafe { weir_dpdk_most_queues(id) };
        if i32::from(wanted.queues) > most {
            // SAFETY: the port was attached above and nobody else knows it; the lock is held.
            unsafe { weir_dpdk_detach(id, 0) };
            return Err(Refused::Queues(most.try_into().unwrap_or(0)));
        }
        let mut about = About {
            queues: wanted.queues,
            descriptors: wanted.descriptors,
            mbufs: wanted.mbufs,
            symmetric: wanted.symmetric.into(),
            step: c"".as_ptr(),
            stamped: 0,
            key: SYMMETRIC_KEY.as_ptr(),
        };
        // SAFETY: `about` is what the C side declares, its key has 255 octets, and the lock is held.
        let result = unsafe { weir_dpdk_open(id, &raw mut about) };
        if result != 0 {
            // SAFETY: the shim lets it point to a literal of its own.
            let step = unsafe { CStr::from_ptr(about.step) }.to_string_lossy();
            let failure = Failure::new(&step, result);
            // SAFETY: as above.
            unsafe { weir_dpdk_detach(id, wanted.queues) };
            return Err(Refused::Port(failure));
        }
        let clock = if about.stamped != 0 { Clock::new(|| reading(id)) } else { None };
        let port = Arc::new(Port { id, queues: wanted.queues, asked: Mutex::new(()), clock: clock.map(Mutex::new) });
        let receivers = (0..wanted.queues).map(|queue| Receiver::new(port.clone(), queue)).collect();
        Ok((receivers, about.descriptors))
    }
}

/// What a port is opened with.
pub(super) struct Wanted {
    /// Receive queues, at least one.
    pub queues: u16,
    /// Descriptors of each queue; the port may change the number.
    pub descriptors: u16,
    /// Packet buffers of each queue.
    pub mbufs: u32,
    /// Hash with [`SYMMETRIC_KEY`].
    pub symmetric: bool,
}

/// Why a device was not opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no such device, or it cannot be had.
    Device(Failure),
    /// It has only so many queues.
    Queues(u16),
    /// Its port did not take the settings.
    Port(Failure),
}

/// Whether this thread may run on processor `core`.
#[allow(unsafe_code)]
pub(super) fn may_run_on(core: u32) -> bool {
    // SAFETY: takes a number.
    unsafe { weir_dpdk_may_run_on(core) != 0 }
}

/// What DPDK said since it was asked last: its lines, joined.
#[allow(unsafe_code)]
fn words() -> String {
    let mut text = [0; 4096];
    // SAFETY: writes so many octets at most, and says how many.
    let length = unsafe { weir_dpdk_words(text.as_mut_ptr(), text.len()) };
    let text = String::from_utf8_lossy(&text[..length]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// A text for C; at a zero, which no name or argument has, it ends.
fn text_for_c(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("no zero is left")
}

/// What time it is by a port's clock and by the system's.
#[allow(unsafe_code)]
fn reading(port: u16) -> Option<(u64, Instant, u64)> {
    let mut ticks = 0;
    // SAFETY: the port is there, as its callers hold it; a place for the number.
    let result = unsafe { weir_dpdk_read_clock(port, &raw mut ticks) };
    (result == 0).then(|| (ticks, Instant::now(), now_ns()))
}

/// Nanoseconds since 1970 UTC by the system's clock.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A port that runs, until it is dropped.
pub(super) struct Port {
    id: u16,
    queues: u16,
    /// Held while it is asked for its counters. Not the environment's lock: to open another port takes seconds.
    asked: Mutex<()>,
    /// What relates its clock to the system's, if its packets carry a time.
    clock: Option<Mutex<Clock>>,
}

impl Port {
    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.id.into()
    }

    /// What it counted since it was opened; none if it cannot say.
    #[allow(unsafe_code)]
    pub(super) fn counts(&self) -> Option<Counts> {
        let _asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Counts::default();
        // SAFETY: the port runs, `counts` is what the C side declares, and nobody else asks this port for them.
        let result = unsafe { weir_dpdk_counts(self.id, &raw mut counts) };
        (result == 0).then_some(counts)
    }

    /// Its clock, compared with the system's within the last second.
    fn clock(&self) -> Option<Clock> {
        let mut clock = self.clock.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        clock.refresh(|| reading(self.id));
        Some(*clock)
    }
}

impl Drop for Port {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let _environment = Environment::lock();
        // SAFETY: no receiver is left, so nobody asks its queues and nobody holds packets of it; the lock is held.
        unsafe { weir_dpdk_detach(self.id, self.queues) };
    }
}

/// What receives from one queue of a port.
pub(super) struct Receiver {
    port: Arc<Port>,
    queue: u16,
    /// The packets that were received last: the first `count`.
    handed: Box<[Handed; BURST]>,
    count: usize,
    clock: Option<Clock>,
}

// SAFETY: the pointers are to packets of this receiver alone, which DPDK lets any thread read and give back, and a pool is
// used by the thread that has its queue's receiver.
#[allow(unsafe_code)]
unsafe impl Send for Receiver {}

impl Receiver {
    fn new(port: Arc<Port>, queue: u16) -> Self {
        let nothing = Handed { bytes: std::ptr::null(), mbuf: std::ptr::null_mut(), ticks: 0, captured: 0, wire: 0 };
        let clock = port.clock();
        Self { port, queue, handed: Box::new([nothing; BURST]), count: 0, clock }
    }

    /// The port, which all its queues share.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Number of the queue.
    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    /// Gives back the packets that were received last and receives the next, which may be none.
    #[allow(unsafe_code)]
    pub(super) fn receive(&mut self) -> usize {
        self.release();
        // SAFETY: the port runs and has this queue, nobody else asks the queue, and there is room for BURST packets.
        let count = unsafe { weir_dpdk_receive(self.port.id, self.queue, self.handed.as_mut_ptr()) };
        self.count = count as usize;
        if self.clock.as_ref().is_some_and(Clock::is_old) {
            self.clock = self.port.clock();
        }
        self.count
    }

    /// The packets that were received last, with what it is by the system's clock now.
    pub(super) fn packets(&self, now_ns: u64) -> impl Iterator<Item = Packet<'_>> {
        self.handed[..self.count].iter().map(move |handed| self.packet(handed, now_ns))
    }

    #[allow(unsafe_code)]
    fn packet(&self, handed: &Handed, now_ns: u64) -> Packet<'_> {
        // SAFETY: so many octets of the packet's first part are in memory there, and stay as they are until it is given
        // back, which needs this receiver mutably borrowed. (DPDK's buffers are never at address 0.)
        let bytes = unsafe { std::slice::from_raw_parts(handed.bytes, handed.captured as usize) };
        let time_ns = match &self.clock {
            Some(clock) if handed.ticks != 0 => clock.time_ns(handed.ticks),
            _ => now_ns,
        };
        Packet { bytes, wire_bytes: handed.wire, time_ns }
    }

    #[allow(unsafe_code)]
    fn release(&mut self) {
        // SAFETY: the first `count` were received and not yet given back; nobody borrows from them, as `self` is borrowed mutably.
        unsafe { weir_dpdk_release(self.handed.as_ptr(), self.count as c_uint) };
        self.count = 0;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

/// A packet that was received.
pub(super) struct Packet<'a> {
    /// Its first octets: all, but of a long one as many as lie in one piece.
    pub bytes: &'a [u8],
    /// Octets on the wire.
    pub wire_bytes: u32,
    /// Nanoseconds since 1970 UTC: by the card if it says so.
    pub time_ns: u64,
}

/// For the tests: what `inject.c` does.
#[cfg(test)]
pub(super) mod inject {
    use super::{Environment, text_for_c};
    use std::ffi::{c_char, c_int, c_uint};

    #[link(name = "weir_dpdk_inject", kind = "static")]
    #[allow(unsafe_code)]
    unsafe extern "C" {
        fn weir_dpdk_inject(device: *const c_char, queue: u16, bytes: *const u8, length: u32, each: u16) -> c_int;
        fn weir_dpdk_injected() -> c_uint;
        fn weir_dpdk_table(device: *const c_char, queues: *mut u16, room: u16) -> c_int;
        fn weir_dpdk_key(device: *const c_char, key: *mut u8, room: u8) -> c_int;
    }

    /// Puts a packet into a queue of a `net_ring` device, in parts of `each` octets; false if there is no room.
    #[allow(unsafe_code)]
    pub(in crate::dpdk) fn inject(device: &str, queue: u16, bytes: &[u8], each: u16) -> bool {
        let _environment = Environment::lock();
        let (device, length) = (text_for_c(device), u32::try_from(bytes.len()).expect("a packet"));
        // SAFETY: a text that ends with 0 and so many octets; the lock makes this the one thread that uses the ring's near end.
        unsafe { weir_dpdk_inject(device.as_ptr(), queue, bytes.as_ptr(), length, each) == 0 }
    }

    /// Buffers of injected packets that nobody has given back yet.
    #[allow(unsafe_code)]
    pub(in crate::dpdk) fn injected() -> u32 {
        let _environment = Environment::lock();
        // SAFETY: takes nothing; the pool is there or not.
        unsafe { weir_dpdk_injected() }
    }

    /// The queue of each entry of a port's indirection table.
    #[allow(unsafe_code)]
    pub(in crate::dpdk) fn table(device: &str) -> Vec<u16> {
        let _environment = Environment::lock();
        let (device, mut queues) = (text_for_c(device), vec![0; 512]);
        // SAFETY: a text that ends with 0, and room for 512 numbers.
        let count = unsafe { weir_dpdk_table(device.as_ptr(), queues.as_mut_ptr(), 512) };
        queues.truncate(count.try_into().expect("the port has a table"));
        queues
    }

    /// The key of a port's hash.
    #[allow(unsafe_code)]
    pub(in crate::dpdk) fn key(device: &str) -> Vec<u8> {
        let _environment = Environment::lock();
        let (device, mut key) = (text_for_c(device), vec![0; 255]);
        // SAFETY: a text that ends with 0, and room for 255 octets.
        let count = unsafe { weir_dpdk_key(device.as_ptr(), key.as_mut_ptr(), 255) };
        key.truncate(count.try_into().expect("the port has a key"));
        key
    }
}
