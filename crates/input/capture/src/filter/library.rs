//! Compiles filter expressions with libpcap, which is loaded at run time.
//!
//! In: an expression. Out: the instructions, or libpcap's error message. libpcap is not needed to
//! build, and does not run when frames are filtered.
#![allow(unsafe_code)]

use super::program::Instruction;
use libloading::Library;
use parking_lot::Mutex;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// File names of libpcap: Debian's, and that of other distributions.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// `PCAP_NETMASK_UNKNOWN`: `ip broadcast` then does not compile instead of having another meaning.
const UNKNOWN_NETMASK: c_uint = u32::MAX;
/// libpcap before 1.8 compiles in global variables.
static COMPILE_LOCK: Mutex<()> = Mutex::new(());

/// `struct bpf_program`.
#[repr(C)]
struct Compiled {
    length: c_uint,
    instructions: *mut Instruction,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Compiled, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *mut c_char;
type FreeCode = unsafe extern "C" fn(*mut Compiled);
type Close = unsafe extern "C" fn(*mut c_void);

pub(super) enum CompileError {
    Library(&'static libloading::Error),
    /// libpcap refuses the expression, with this message.
    Expression(String),
}

struct Pcap {
    open_dead: OpenDead,
    compile: Compile,
    get_error: GetError,
    free_code: FreeCode,
    close: Close,
}

/// Compiles an expression for frames of a link type (DLT number) and a snap length. Without
/// optimization the program is longer.
pub(super) fn compile(
    expression: &str,
    link_type: c_int,
    snap: c_int,
    optimize: bool,
) -> Result<Vec<Instruction>, CompileError> {
    let expression =
        CString::new(expression).map_err(|_| CompileError::Expression("it contains a zero byte".into()))?;
    let pcap = pcap().map_err(CompileError::Library)?;
    let _guard = COMPILE_LOCK.lock();
    // SAFETY: the functions are libpcap's by name, with the types of pcap/pcap.h. The handle is not
    // null, is used only by this thread and closed once, after its last use. The expression ends
    // with 0 and outlives the call. `compile` writes the program before it is read; its
    // instructions are copied (`length` of them, or none if the pointer is null) and freed once,
    // only if they were allocated. The error message is copied before the handle is closed.
    unsafe {
        let Some(handle) = NonNull::new((pcap.open_dead)(link_type, snap)) else {
            return Err(CompileError::Expression("libpcap is out of memory".into()));
        };
        let mut compiled = Compiled { length: 0, instructions: std::ptr::null_mut() };
        let status =
            (pcap.compile)(handle.as_ptr(), &mut compiled, expression.as_ptr(), optimize.into(), UNKNOWN_NETMASK);
        let result = if status == 0 {
            let instructions = match NonNull::new(compiled.instructions) {
                Some(first) => std::slice::from_raw_parts(first.as_ptr(), compiled.length as usize).to_vec(),
                None => Vec::new(),
            };
            (pcap.free_code)(&mut compiled);
            Ok(instructions)
        } else {
            let message = NonNull::new((pcap.get_error)(handle.as_ptr()));
            let message =
                message.map_or("no reason given".into(), |text| CStr::from_ptr(text.as_ptr()).to_string_lossy());
            Err(CompileError::Expression(message.into_owned()))
        };
        (pcap.close)(handle.as_ptr());
        result
    }
}

/// Returns libpcap, which is loaded once and never unloaded.
fn pcap() -> Result<&'static Pcap, &'static libloading::Error> {
    static LOADED: OnceLock<Result<Pcap, libloading::Error>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref()
}

fn load() -> Result<Pcap, libloading::Error> {
    // SAFETY: libpcap's initializers have no requirements. The functions have the types of
    // pcap/pcap.h, which have not changed since 0.8, and stay valid because the library is never
    // unloaded.
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
