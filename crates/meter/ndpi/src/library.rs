//! Safe wrappers of nDPI over the C functions in `shim.c`.
//!
//! Why this is sound:
//! * Modules are opened and closed under one lock, as nDPI requires.
//! * A [`Library`] and its flows are used through `&mut Library`, so by one thread at a time. nDPI
//!   has no state of a thread, so they may move between threads.
//! * nDPI copies what it keeps of a packet, and reads it within the given length.
//! * Names of confidences and risks are constants of nDPI. Other texts are copied.

use crate::{Classification, Error, Names};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// `struct ndpi_detection_module_struct` of nDPI.
#[repr(C)]
struct RawModule([u8; 0]);

/// `struct ndpi_flow_struct` of nDPI.
#[repr(C)]
struct RawFlow([u8; 0]);

unsafe extern "C" {
    fn weir_ndpi_version() -> *const c_char;
    fn weir_ndpi_flow_size() -> u32;
    fn weir_ndpi_open() -> *mut RawModule;
    fn weir_ndpi_close(module: *mut RawModule);
    fn weir_ndpi_new_flow() -> *mut RawFlow;
    fn weir_ndpi_free_flow(flow: *mut RawFlow);
    fn weir_ndpi_inspect(
        module: *mut RawModule,
        flow: *mut RawFlow,
        packet: *const u8,
        length: u16,
        time_ms: u64,
    ) -> c_int;
    fn weir_ndpi_result(module: *mut RawModule, flow: *mut RawFlow, result: *mut Classification);
    fn weir_ndpi_protocol(module: *mut RawModule, master: u16, application: u16, into: *mut c_char, size: u32);
    fn weir_ndpi_category(module: *mut RawModule, category: u16, into: *mut c_char, size: u32);
    fn weir_ndpi_confidence(confidence: u16) -> *const c_char;
    fn weir_ndpi_risk(number: u32) -> *const c_char;
}

/// Length of the longest name that is read.
const NAME_OCTETS: usize = 64;

static MODULES: Mutex<()> = Mutex::new(());

/// nDPI with all its protocols, for one thread. Version 4.2 takes 11 MB, and 30 ms to open.
#[derive(Debug)]
pub struct Library(NonNull<RawModule>);

/// The state of a flow.
#[derive(Debug)]
pub struct Flow(NonNull<RawFlow>);

// SAFETY: nDPI keeps no state per thread, and these own what they point to.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Send for Flow {}

impl Library {
    /// Opens nDPI.
    ///
    /// # Errors
    /// The system has too little memory.
    pub fn open() -> Result<Self, Error> {
        let _one_at_a_time = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only this thread opens a module.
        NonNull::new(unsafe { weir_ndpi_open() }).map(Self).ok_or(Error::OutOfMemory)
    }

    /// Octets of a flow, besides what nDPI allocates for single protocols.
    pub fn flow_octets() -> usize {
        // SAFETY: returns a constant.
        unsafe { weir_ndpi_flow_size() as usize }
    }

    /// The state of a new flow.
    ///
    /// # Errors
    /// The system has too little memory.
    pub fn new_flow(&self) -> Result<Flow, Error> {
        // SAFETY: allocates memory.
        NonNull::new(unsafe { weir_ndpi_new_flow() }).map(Flow).ok_or(Error::OutOfMemory)
    }

    /// Shows the next packet of a flow, from its IP header on. Returns whether more packets would
    /// not change what is known. Octets from 65 536 on are left out.
    pub fn inspect(&mut self, flow: &mut Flow, packet: &[u8], time_ns: u64) -> bool {
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        // SAFETY: the module and the flow are borrowed mutably, and the packet has `length` octets.
        unsafe {
            weir_ndpi_inspect(self.0.as_ptr(), flow.0.as_ptr(), packet.as_ptr(), length, time_ns / 1_000_000) != 0
        }
    }

    /// What is known of a flow. Protocols are not guessed from port numbers.
    pub fn classify(&mut self, flow: Flow) -> Classification {
        let mut result = Classification::default();
        // SAFETY: the module is borrowed mutably, the flow is owned, and the result is writable.
        unsafe { weir_ndpi_result(self.0.as_ptr(), flow.0.as_ptr(), &raw mut result) }
        result
    }

    /// The words for what is known.
    pub fn names(&self, of: &Classification) -> Names {
        let (module, size) = (self.0.as_ptr(), NAME_OCTETS as u32);
        let risks = (0..u64::BITS).filter(|number| of.risks >> number & 1 == 1);
        // SAFETY: the shim checks the number of a risk, and its name is a constant.
        let risks = risks.map(|number| unsafe { text(weir_ndpi_risk(number)) });
        let risks = risks.filter(|name| !name.is_empty()).collect();
        if !of.is_known() {
            return Names { risks, ..Names::default() };
        }
        Names {
            // SAFETY: the module exists, and the buffer has `size` octets.
            protocol: copied(|into| unsafe { weir_ndpi_protocol(module, of.master, of.application, into, size) }),
            // SAFETY: as above.
            category: copied(|into| unsafe { weir_ndpi_category(module, of.category, into, size) }),
            // SAFETY: a constant.
            confidence: unsafe { text(weir_ndpi_confidence(of.confidence)) },
            risks,
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _one_at_a_time = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the module is not used any more. Flows own their memory.
        unsafe { weir_ndpi_close(self.0.as_ptr()) }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: the flow is not used any more.
        unsafe { weir_ndpi_free_flow(self.0.as_ptr()) }
    }
}

/// Version of the library that is loaded.
pub fn version() -> Option<&'static str> {
    // SAFETY: a constant of the library.
    Some(unsafe { text(weir_ndpi_version()) })
}

/// A name that nDPI writes into a buffer of `NAME_OCTETS`.
fn copied(write: impl FnOnce(*mut c_char)) -> String {
    let mut buffer = [0; NAME_OCTETS];
    write(buffer.as_mut_ptr());
    let octets: Vec<u8> = buffer.iter().map(|&octet| octet as u8).take_while(|&octet| octet != 0).collect();
    String::from_utf8_lossy(&octets).into_owned()
}

/// A constant text; empty for null and for what is not UTF-8.
///
/// # Safety
/// `pointer` is null, or a text that ends with a zero and lives as long as the program.
unsafe fn text(pointer: *const c_char) -> &'static str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or_default()
}
