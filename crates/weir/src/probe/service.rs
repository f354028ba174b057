//! Notifications to the service manager (`sd_notify(3)`): ready, status, watchdog, stopping.
//!
//! Input: the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).

pub use sd_notify::NotifyState;

use std::time::{Duration, Instant};

/// Sends a notification. That it fails does not affect the probe.
pub fn notify(state: NotifyState) {
    let _ = sd_notify::notify(&[state]);
}

/// Notifies the service manager regularly that the probe runs.
pub struct Watchdog {
    /// Half of the timeout, as `sd_watchdog_enabled(3)` recommends.
    interval: Duration,
    last: Instant,
}

impl Watchdog {
    /// `None` if the environment requests no watchdog.
    pub fn from_environment() -> Option<Self> {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero())?;
        Some(Self { interval: timeout / 2, last: Instant::now() })
    }

    /// Sends a notification if that is due. Call it often.
    pub fn keep_alive(&mut self) {
        if self.last.elapsed() >= self.interval {
            self.last = Instant::now();
            notify(NotifyState::Watchdog);
        }
    }
}
