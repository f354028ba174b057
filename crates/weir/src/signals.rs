//! Signals that end a run, those that request something of it, and one that must not end it.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail like one to a full disk. By default
/// the signal would end the program, and its records would be lost without being counted.
pub fn survive_file_size_limit() -> Result<(), Error> {
    // With any handler the write returns an error.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(drop).map_err(Error::Signals)
}

/// A flag that the first SIGINT or SIGTERM sets. The second one ends the program at once.
pub fn stop_signal() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(Error::Signals)?;
    }
    Ok(stop)
}

/// A flag that a signal sets.
pub fn signal_flag(signal: i32) -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, flag.clone()).map_err(Error::Signals)?;
    Ok(flag)
}
