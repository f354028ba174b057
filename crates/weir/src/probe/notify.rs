//! What the service manager is told, if one asks (`sd_notify(3)`): that the probe is at work, how it goes, that it ends, and that it
//! still looks after its pipelines.
//!
//! In: the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`). Out: datagrams of lines. Nobody waits for them, and
//! trouble with them is no trouble of the probe.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The way to the service manager; without one nothing is told.
#[derive(Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear something, and when it did.
    watchdog: Option<(Duration, Instant)>,
}

impl Manager {
    /// The one that the environment names. Call it before rights are given up.
    pub fn of_environment() -> Self {
        let Some(socket) = connected() else { return Self::default() };
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let interval = number("WATCHDOG_USEC").filter(|&interval| interval > 0 && is_for_us);
        // Twice as often as it must be, as the manual asks.
        let watchdog = interval.map(|microseconds| (Duration::from_micros(microseconds / 2), Instant::now()));
        Self { socket: Some(socket), watchdog }
    }

    /// Everything is open, and packets are metered.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// How it goes, in a line.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// The end begins.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Still there. Call it often; it tells so as often as it must.
    pub fn alive(&mut self) {
        if let Some((interval, last)) = &mut self.watchdog
            && last.elapsed() >= *interval
        {
            *last = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(what.as_bytes());
        }
    }
}

/// A socket to where the environment says: a path, or a name behind an `@` that no file has.
fn connected() -> Option<UnixDatagram> {
    let name = env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
