//! librdkafka's C interface (rdkafka.h), loaded at run time. It is not needed to build.
#![allow(unsafe_code)]

use crate::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The name by which the system finds the library. Its version 1 has been the same interface since 2014.
const NAME: &str = "librdkafka.so.1";

/// Handles: pointers to structures of librdkafka.
pub type Handle = *mut c_void;

/// `rd_kafka_type_t`: a producer.
pub const PRODUCER: c_int = 0;
/// `rd_kafka_type_t`: a consumer.
pub const CONSUMER: c_int = 1;
/// `RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE`: it has not joined its group.
pub const NO_CONSUMER_CLOSE: c_int = 0x8;
/// `rd_kafka_conf_res_t`: success.
pub const CONF_OK: c_int = 0;
/// Events (`rd_kafka_event_type_t`).
pub const EVENT_DELIVERY: c_int = 0x1;
pub const EVENT_LOG: c_int = 0x4;
pub const EVENT_ERROR: c_int = 0x8;
/// `RD_KAFKA_MSG_F_COPY`: librdkafka copies the value.
pub const COPY: i32 = 0x2;
/// `RD_KAFKA_PURGE_F_QUEUE` and `RD_KAFKA_PURGE_F_INFLIGHT`.
pub const PURGE_ALL: c_int = 0x3;
/// `RD_KAFKA_PARTITION_UA`: the partitioner chooses.
pub const ANY_PARTITION: i32 = -1;
/// Kinds of arguments of a message (`rd_kafka_vtype_t`).
pub mod argument {
    use std::ffi::c_int;

    pub const TOPIC_HANDLE: c_int = 2;
    pub const PARTITION: c_int = 3;
    pub const VALUE: c_int = 4;
    pub const KEY: c_int = 5;
    pub const OPAQUE: c_int = 6;
    pub const FLAGS: c_int = 7;
    pub const HEADER: c_int = 9;
}

/// `rd_kafka_vu_t`: an argument of a message. Its union has 64 octets, of which the first ones are one to three
/// words: a number or a pointer, a length, another pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CArgument {
    kind: c_int,
    words: [usize; 8],
}

impl CArgument {
    pub fn new(kind: c_int, words: [usize; 3]) -> Self {
        let [first, second, third] = words;
        Self { kind, words: [first, second, third, 0, 0, 0, 0, 0] }
    }

    /// An argument of 32 bits, the first ones of the union.
    pub fn number(kind: c_int, number: i32) -> Self {
        let mut octets = [0; size_of::<usize>()];
        octets[..4].copy_from_slice(&number.to_ne_bytes());
        Self::new(kind, [usize::from_ne_bytes(octets), 0, 0])
    }
}

/// `rd_kafka_message_t`.
#[repr(C)]
pub struct CMessage {
    pub error: c_int,
    topic: Handle,
    partition: i32,
    value: *mut c_void,
    value_length: usize,
    key: *mut c_void,
    key_length: usize,
    offset: i64,
    pub opaque: usize,
}

/// `struct rd_kafka_metadata`.
#[repr(C)]
pub struct CMetadata {
    broker_count: c_int,
    brokers: *const c_void,
    pub topic_count: c_int,
    pub topics: *const CTopic,
}

/// `struct rd_kafka_metadata_topic`.
#[repr(C)]
pub struct CTopic {
    name: *const c_char,
    partition_count: c_int,
    partitions: *const c_void,
    pub error: c_int,
}

/// `rd_kafka_topic_partition_t`.
#[repr(C)]
pub struct CTopicPartition {
    topic: *mut c_char,
    partition: i32,
    pub offset: i64,
    metadata: *mut c_void,
    metadata_octets: usize,
    opaque: *mut c_void,
    pub error: c_int,
    private: *mut c_void,
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $returned:ty)?;)*) => {
        /// The functions, by their names without `rd_kafka_`.
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $returned)?,)* }

        impl Functions {
            /// # Safety
            /// The library is librdkafka, and is never unloaded.
            unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the functions have the types of rdkafka.h; they stay as long as the library.
                unsafe { Ok(Self { $($name: *library.get(concat!("rd_kafka_", stringify!($name), "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    version_str: fn() -> *const c_char;
    conf_new: fn() -> Handle;
    conf_destroy: fn(Handle);
    conf_set: fn(Handle, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_set_events: fn(Handle, c_int);
    new: fn(c_int, Handle, *mut c_char, usize) -> Handle;
    destroy: fn(Handle);
    topic_new: fn(Handle, *const c_char, Handle) -> Handle;
    topic_destroy: fn(Handle);
    last_error: fn() -> c_int;
    set_log_queue: fn(Handle, Handle) -> c_int;
    queue_get_main: fn(Handle) -> Handle;
    queue_destroy: fn(Handle);
    queue_poll: fn(Handle, c_int) -> Handle;
    event_type: fn(Handle) -> c_int;
    event_destroy: fn(Handle);
    event_message_next: fn(Handle) -> *const CMessage;
    event_error: fn(Handle) -> c_int;
    event_error_string: fn(Handle) -> *const c_char;
    event_log: fn(Handle, *mut *const c_char, *mut *const c_char, *mut c_int) -> c_int;
    produceva: fn(Handle, *const CArgument, usize) -> Handle;
    error_code: fn(Handle) -> c_int;
    error_string: fn(Handle) -> *const c_char;
    error_is_retriable: fn(Handle) -> c_int;
    error_txn_requires_abort: fn(Handle) -> c_int;
    error_destroy: fn(Handle);
    fatal_error: fn(Handle, *mut c_char, usize) -> c_int;
    flush: fn(Handle, c_int) -> c_int;
    purge: fn(Handle, c_int) -> c_int;
    metadata: fn(Handle, c_int, Handle, *mut *const CMetadata, c_int) -> c_int;
    metadata_destroy: fn(*const CMetadata);
    err2str: fn(c_int) -> *const c_char;
    init_transactions: fn(Handle, c_int) -> Handle;
    begin_transaction: fn(Handle) -> Handle;
    send_offsets_to_transaction: fn(Handle, Handle, Handle, c_int) -> Handle;
    commit_transaction: fn(Handle, c_int) -> Handle;
    abort_transaction: fn(Handle, c_int) -> Handle;
    consumer_group_metadata_new: fn(*const c_char) -> Handle;
    consumer_group_metadata_destroy: fn(Handle);
    topic_partition_list_new: fn(c_int) -> Handle;
    topic_partition_list_add: fn(Handle, *const c_char, i32) -> *mut CTopicPartition;
    topic_partition_list_destroy: fn(Handle);
    committed: fn(Handle, Handle, c_int) -> c_int;
    destroy_flags: fn(Handle, c_int);
}

/// librdkafka, which is loaded once and never unloaded.
pub struct Library {
    pub(crate) functions: Functions,
}

impl Library {
    /// Loads the library, if this process has not loaded it before.
    ///
    /// # Errors
    /// There is none, or it lacks a function.
    pub fn load() -> Result<&'static Self, Error> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let library = Self::open().map_err(Error::NoLibrary)?;
        Ok(LOADED.get_or_init(|| library))
    }

    fn open() -> Result<Self, libloading::Error> {
        // SAFETY: the initializers of librdkafka have no requirements; the library is never unloaded.
        unsafe {
            let library = libloading::Library::new(NAME)?;
            let functions = Functions::of(&library)?;
            std::mem::forget(library);
            Ok(Self { functions })
        }
    }

    /// Its version, such as `2.0.2`.
    pub fn version(&self) -> String {
        // SAFETY: the function returns a constant text.
        unsafe { text((self.functions.version_str)()) }
    }

    /// The sentence of an error.
    pub fn sentence(&self, code: i32) -> String {
        // SAFETY: the function returns a text for every number, which does not change until this thread calls again.
        unsafe { text((self.functions.err2str)(code)) }
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
