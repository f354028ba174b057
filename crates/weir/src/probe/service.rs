//! Notifications to the service manager (`sd_notify(3)`): ready, status, watchdog, stopping.
//!
//! Input: the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).

pub use sd_notify::NotifyState;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use std::{env, io};
use tracing::{error, info};

/// Sends a notification. That it fails does not affect the probe: a notification that does not fit
/// into the receive buffer of the service manager is lost.
pub fn notify(state: NotifyState) {
    let _ = send(&state);
}

/// The same as `sd_notify::notify`, which waits for a full buffer, and knows no abstract names.
fn send(state: &NotifyState) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.to_string().as_bytes(), &address).map(drop)
}

/// Notifies the service manager regularly that the probe runs, as long as all of its threads do.
pub struct Watchdog {
    /// Half of the timeout, as `sd_watchdog_enabled(3)` recommends.
    interval: Duration,
    last: Instant,
    /// Threads are not stuck before this time: one that has nothing to do advances about once a second.
    stuck_time: Duration,
    /// Threads that were stuck at the last check.
    stuck: Vec<String>,
}

impl Watchdog {
    /// `None` if the environment requests no watchdog. Threads are not stuck before a time.
    pub fn from_environment(least_stuck_time: Duration) -> Option<Self> {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero())?;
        let (interval, stuck_time) = (timeout / 2, least_stuck_time.max(timeout / 2));
        Some(Self { interval, last: Instant::now(), stuck_time, stuck: Vec::new() })
    }

    /// Sends a notification if that is due and no thread is stuck. Call it often.
    pub fn keep_alive(&mut self, probe: &mut weir_probe::Probe) {
        if self.last.elapsed() < self.interval {
            return;
        }
        self.last = Instant::now();
        let stuck = probe.stuck_threads(self.stuck_time);
        if stuck.is_empty() {
            notify(NotifyState::Watchdog);
        }
        if stuck != self.stuck {
            let threads = stuck.join(", ");
            if stuck.is_empty() {
                info!("all threads advance again, the watchdog is notified");
            } else {
                error!(threads, "threads do not advance, the watchdog is not notified until they do");
            }
            self.stuck = stuck;
        }
    }
}
