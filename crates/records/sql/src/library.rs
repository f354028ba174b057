//! DuckDB's C interface (duckdb.h), loaded at run time. It is not needed to build.
#![allow(unsafe_code)]

use crate::error::Error;
use libloading::Library;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Environment variable with the path of the library.
pub const ENVIRONMENT: &str = "WEIR_DUCKDB";
/// The first version that has all functions.
pub const OLDEST_VERSION: &str = "1.4";
/// The name by which the system finds the library.
const NAME: &str = "libduckdb.so";
/// Beside the folder of the program, and where packages have it.
const BESIDE_PROGRAM: &str = "../lib/weir/libduckdb.so";
const OF_PACKAGES: &str = "/usr/lib/weir/libduckdb.so";

/// `duckdb_state`: success.
pub const SUCCESS: c_int = 0;

/// `duckdb_result`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CResult {
    counts: [u64; 3],
    pointers: [*mut c_void; 3],
}

impl CResult {
    pub const EMPTY: Self = Self { counts: [0; 3], pointers: [std::ptr::null_mut(); 3] };
}

/// `duckdb_query_progress_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CProgress {
    pub percentage: f64,
    rows: [u64; 2],
}

/// `duckdb_string_t`: up to [`INLINE_LENGTH`] octets are in `rest`; of longer ones the last 8 octets are a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CText {
    pub length: u32,
    pub rest: CTextRest,
}

/// Octets of a text without a pointer, at most.
pub const INLINE_LENGTH: usize = 12;

#[repr(C)]
#[derive(Clone, Copy)]
pub union CTextRest {
    pub inline: [u8; INLINE_LENGTH],
    pub long: CLongText,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CLongText {
    prefix: [u8; 4],
    pub pointer: *const u8,
}

/// Handles: pointers to structures of DuckDB.
pub type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $returned:ty)?;)*) => {
        /// The functions, by their names without `duckdb_`.
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $returned)?,)* }

        impl Functions {
            /// # Safety
            /// The library is DuckDB's, and is never unloaded.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the functions have the types of duckdb.h; they stay as long as the library.
                unsafe { Ok(Self { $($name: *library.get(concat!("duckdb_", stringify!($name), "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    open: fn(*const c_char, *mut Handle) -> c_int;
    close: fn(*mut Handle);
    connect: fn(Handle, *mut Handle) -> c_int;
    disconnect: fn(*mut Handle);
    interrupt: fn(Handle);
    query_progress: fn(Handle) -> CProgress;
    query: fn(Handle, *const c_char, *mut CResult) -> c_int;
    prepare: fn(Handle, *const c_char, *mut Handle) -> c_int;
    prepare_error: fn(Handle) -> *const c_char;
    destroy_prepare: fn(*mut Handle);
    prepared_statement_type: fn(Handle) -> c_int;
    prepared_statement_column_count: fn(Handle) -> u64;
    prepared_statement_column_name: fn(Handle, u64) -> *const c_char;
    prepared_statement_column_type: fn(Handle, u64) -> c_int;
    free: fn(*mut c_void);
    execute_prepared: fn(Handle, *mut CResult) -> c_int;
    result_error: fn(*mut CResult) -> *const c_char;
    destroy_result: fn(*mut CResult);
    column_count: fn(*mut CResult) -> u64;
    fetch_chunk: fn(CResult) -> Handle;
    data_chunk_get_size: fn(Handle) -> u64;
    data_chunk_get_vector: fn(Handle, u64) -> Handle;
    destroy_data_chunk: fn(*mut Handle);
    vector_get_data: fn(Handle) -> *const CText;
    vector_get_validity: fn(Handle) -> *const u64;
}

/// `duckdb_execute_prepared_streaming`, which later versions may not have.
type ExecuteStreaming = unsafe extern "C" fn(Handle, *mut CResult) -> c_int;

/// DuckDB's library, which is never unloaded.
pub struct Engine {
    pub(crate) functions: Functions,
    pub(crate) execute_streaming: Option<ExecuteStreaming>,
}

impl Engine {
    /// Loads the library: the one that is named, or the first of those beside the program, of packages and of the
    /// system.
    ///
    /// # Errors
    /// There is none, or it is older than [`OLDEST_VERSION`].
    pub fn load(named: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = named {
            return Self::open(path.as_os_str()).map_err(|error| Error::Library { path: path.into(), error });
        }
        match Self::known_paths().find(|path| path.exists()) {
            Some(path) => Self::open(path.as_os_str()).map_err(|error| Error::Library { path, error }),
            None => Self::open(OsStr::new(NAME)).map_err(Error::NoLibrary),
        }
    }

    fn known_paths() -> impl Iterator<Item = PathBuf> {
        let program = std::env::current_exe().ok();
        let beside = program.and_then(|program| Some(program.parent()?.join(BESIDE_PROGRAM)));
        beside.into_iter().chain([OF_PACKAGES.into()])
    }

    fn open(name: &OsStr) -> Result<Self, libloading::Error> {
        // SAFETY: the initializers of DuckDB have no requirements; the library is never unloaded.
        unsafe {
            let library = Library::new(name)?;
            let functions = Functions::of(&library)?;
            let execute_streaming = library.get(b"duckdb_execute_prepared_streaming\0").ok().map(|function| *function);
            std::mem::forget(library);
            Ok(Self { functions, execute_streaming })
        }
    }
}

/// The text at a pointer, which may be null.
///
/// # Safety
/// The pointer is null, or that of a text that ends with NUL and does not change now.
pub unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "no reason given".into();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
