//! Notifications to the service manager (`sd_notify(3)`): ready, status, watchdog, stopping.
//!
//! Input: the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`). Without a service manager nothing is sent.
//! A failed notification does not affect the probe.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// Connection to the service manager.
pub struct ServiceManager {
    watchdog: Option<Watchdog>,
}

struct Watchdog {
    /// Half of the timeout, as `sd_watchdog_enabled(3)` recommends.
    interval: Duration,
    last: Instant,
}

impl ServiceManager {
    /// The service manager that the environment names.
    pub fn from_environment() -> Self {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero());
        Self { watchdog: timeout.map(|timeout| Watchdog { interval: timeout / 2, last: Instant::now() }) }
    }

    /// Sources and sinks are open; packets are metered.
    pub fn ready(&self) {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }

    /// Status line of `systemctl status`.
    pub fn status(&self, status: &str) {
        let _ = sd_notify::notify(&[NotifyState::Status(status)]);
    }

    pub fn stopping(&self) {
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
    }

    /// Notifies the watchdog if that is due. Call it often.
    pub fn keep_alive(&mut self) {
        if let Some(watchdog) = &mut self.watchdog
            && watchdog.last.elapsed() >= watchdog.interval
        {
            watchdog.last = Instant::now();
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
    }
}
