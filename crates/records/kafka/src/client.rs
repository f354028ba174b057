//! The handles of a client of librdkafka, and its options.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::library::{CONF_OK, Handle, Library, text};
use std::ffi::{CString, c_char, c_int};
use std::time::Duration;

/// Space for a message of librdkafka.
pub(crate) const REASON_BYTES: usize = 512;
/// The handles of a client.
pub(crate) struct Client {
    pub(crate) library: &'static Library,
    pub(crate) handle: Handle,
    pub(crate) topic: Handle,
    /// The queue of all events.
    pub(crate) events: Handle,
}

// SAFETY: librdkafka permits every function on a handle from every thread (INTRODUCTION.md, *Threads and callbacks*).
unsafe impl Send for Client {}
// SAFETY: the same, also at the same time: one thread makes steps while another one sends, polls and purges.
unsafe impl Sync for Client {}

impl Drop for Client {
    /// Ends the threads of the client, which may take as long as a name server.
    fn drop(&mut self) {
        let functions = &self.library.functions;
        // SAFETY: each handle is destroyed once, and not used after this; the client is the last one.
        unsafe {
            (functions.queue_destroy)(self.events);
            (functions.topic_destroy)(self.topic);
            (functions.destroy)(self.handle);
        }
    }
}

/// Sets all options. The value may be a secret, so that no error has it.
///
/// # Safety
/// The configuration is alive, and used by this thread only.
pub(crate) unsafe fn set_all(
    library: &Library,
    configuration: Handle,
    options: &[(String, String)],
) -> Result<(), Error> {
    for (name, value) in options {
        let c_name = CString::new(name.as_str()).map_err(|_| Error::Nul("the name of an option"))?;
        let c_value = CString::new(value.as_str()).map_err(|_| Error::Nul("the value of an option"))?;
        let mut reason: [c_char; REASON_BYTES] = [0; REASON_BYTES];
        // SAFETY: texts end with NUL; the function copies them, and writes at most the length of the buffer.
        let status = unsafe {
            (library.functions.conf_set)(
                configuration,
                c_name.as_ptr(),
                c_value.as_ptr(),
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        if status != CONF_OK {
            // SAFETY: the buffer has a text with NUL.
            let reason = unsafe { text(reason.as_ptr()) };
            let reason = if value.is_empty() { reason } else { reason.replace(value.as_str(), "VALUE") };
            return Err(Error::Option { name: name.clone(), reason });
        }
    }
    Ok(())
}

pub(crate) fn milliseconds(time: Duration) -> c_int {
    time.as_millis().try_into().unwrap_or(c_int::MAX)
}
