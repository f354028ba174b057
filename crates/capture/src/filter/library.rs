//! libpcap, found when it is needed: the one place that calls it.
//!
//! In: an expression. Out: the instructions that libpcap compiles it to, or its words. Nothing of libpcap is needed to build,
//! and nothing of it runs when frames are filtered.
#![allow(unsafe_code)]

use super::BpfInstruction;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names of libpcap: Debian's, and that of everybody else.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// The network's mask is not known: `ip broadcast` then does not compile, rather than to mean something else.
const NO_MASK: c_uint = u32::MAX;
/// libpcap before 1.8 keeps what it compiles in variables of its own.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `struct bpf_program`.
#[repr(C)]
struct Compiled {
    length: c_uint,
    instructions: *mut BpfInstruction,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Compiled, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *mut c_char;
type FreeCode = unsafe extern "C" fn(*mut Compiled);
type Close = unsafe extern "C" fn(*mut c_void);

/// Why there are no instructions.
pub(super) enum Trouble {
    /// There is no libpcap, or none that can be used.
    Library(String),
    /// The expression does not compile.
    Expression(String),
}

/// The functions that are called.
struct Pcap {
    open_dead: OpenDead,
    compile: Compile,
    get_error: GetError,
    free_code: FreeCode,
    close: Close,
}

/// Compiles an expression for frames of a link type (DLT number), `snap` octets of which are captured.
pub(super) fn compile(expression: &str, link_type: c_int, snap: c_int) -> Result<Vec<BpfInstruction>, Trouble> {
    let expression = CString::new(expression).map_err(|_| Trouble::Expression("it has an octet 0 in it".into()))?;
    let pcap = pcap().map_err(Trouble::Library)?;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the functions are libpcap's own by name, with the types of pcap/pcap.h. The handle is not null, is used by this
    // thread only and closed once, behind its last use. The expression ends with 0 and outlives the call, the program is
    // written by `compile` before it is read, its instructions are copied while they are there (`length` of them, or none if
    // the pointer is null) and freed once, and only if they were made. The text of an error is copied before the handle goes.
    unsafe {
        let Some(handle) = NonNull::new((pcap.open_dead)(link_type, snap)) else {
            return Err(Trouble::Library("libpcap has no memory".into()));
        };
        let mut compiled = Compiled { length: 0, instructions: std::ptr::null_mut() };
        let result = if (pcap.compile)(handle.as_ptr(), &mut compiled, expression.as_ptr(), 1, NO_MASK) == 0 {
            let instructions = match NonNull::new(compiled.instructions) {
                Some(first) => std::slice::from_raw_parts(first.as_ptr(), compiled.length as usize).to_vec(),
                None => Vec::new(),
            };
            (pcap.free_code)(&mut compiled);
            Ok(instructions)
        } else {
            let words = NonNull::new((pcap.get_error)(handle.as_ptr()));
            let words =
                words.map_or("no reason given".into(), |words| CStr::from_ptr(words.as_ptr()).to_string_lossy());
            Err(Trouble::Expression(words.into_owned()))
        };
        (pcap.close)(handle.as_ptr());
        result
    }
}

/// libpcap, loaded once and kept.
fn pcap() -> Result<&'static Pcap, String> {
    static LOADED: OnceLock<Result<Pcap, String>> = OnceLock::new();
    LOADED.get_or_init(|| load().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Pcap, libloading::Error> {
    // SAFETY: loading libpcap runs what it runs when it is loaded, which asks nothing of the program. The functions have the
    // types of pcap/pcap.h, which have not changed since 0.8, and the library is never unloaded, so they stay.
    unsafe {
        let library = Library::new(NAMES[0]).or_else(|_| Library::new(NAMES[1]))?;
        let pcap = Pcap {
            open_dead: *library.get::<OpenDead>(b"pcap_open_dead\0")?,
            compile: *library.get::<Compile>(b"pcap_compile\0")?,
            get_error: *library.get::<GetError>(b"pcap_geterr\0")?,
            free_code: *library.get::<FreeCode>(b"pcap_freecode\0")?,
            close: *library.get::<Close>(b"pcap_close\0")?,
        };
        std::mem::forget(library);
        Ok(pcap)
    }
}
