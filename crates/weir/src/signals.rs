//! Signals that end a run.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
