//! The wire: two interfaces joined in a network of their own, a thread that sends into one end, and what got lost between.
//!
//! Nothing of it can stay behind: the network goes with this process, however that ends.

use crate::Error;
use crate::live::traffic::Traffic;
use std::fs::read_to_string;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{BURST, Sender};
use weir_probe::CpuAffinity;

/// What is sent into the first arrives at the second.
const LEFT: &str = "left";
pub const RIGHT: &str = "right";

/// Longer than a system takes to notice that an interface is up.
const BOUND: Duration = Duration::from_secs(30);
/// How far the sender may be behind before it gives up what it should have sent.
const BEHIND: Duration = Duration::from_millis(5);
/// It sleeps if there is more time than this to the next frame, else it watches the clock.
const NAP: Duration = Duration::from_micros(200);

/// A wire.
pub struct Wire {
    sender: Sender,
    affinity: CpuAffinity,
}

/// Counts frames that are sent.
#[derive(Default)]
pub struct Sent {
    /// Those that the kernel took.
    pub frames: AtomicU64,
    /// Those that it did not.
    pub refused: AtomicU64,
}

impl Wire {
    /// Takes this thread into a network of its own and makes the wire there. Its sender will run in a place.
    pub fn make(affinity: CpuAffinity) -> Result<Self, Error> {
        let failed = |what: String| Error::Live(format!("cannot make a wire to measure on: {what}"));
        weir_capture::own_network().map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; it takes CAP_SYS_ADMIN (and CAP_NET_RAW, CAP_NET_ADMIN, of af_xdp CAP_BPF): run it as root, or, for af_packet alone, \
                     behind `unshare --user --map-root-user`"
                }
                _ => "",
            };
            failed(format!("no network namespace: {error}{advice}"))
        })?;
        for kind in ["all", "default"] {
            // Nothing in it sends by itself. Without IPv6 in the kernel there is nothing to switch off.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{kind}/disable_ipv6"), "1");
        }
        let shape = "mtu 1500 numrxqueues 1 numtxqueues 1";
        ip(&format!("link add {LEFT} {shape} type veth peer name {RIGHT} {shape}")).map_err(failed)?;
        for end in [LEFT, RIGHT] {
            ip(&format!("link set {end} arp off up")).map_err(failed)?;
        }
        let began = Instant::now();
        while [LEFT, RIGHT]
            .iter()
            .any(|end| !ip(&format!("link show dev {end}")).is_ok_and(|about| about.contains("state UP")))
        {
            if began.elapsed() > BOUND {
                return Err(failed("its ends do not come up".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let sender = Sender::open(LEFT).map_err(|error| failed(format!("cannot send: {error}")))?;
        Ok(Self { sender, affinity })
    }

    /// Sends for a time, or until it is told to stop, so many frames a second, or as fast as it goes, from a thread with its CPU affinity, while
    /// something else is done here. Gives how long it sent, and what that came to.
    pub fn send<T>(
        &mut self,
        traffic: &mut Traffic,
        rate: Option<f64>,
        time: Duration,
        (sent, stop): (&Sent, &AtomicBool),
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Duration, T), Error> {
        let (sender, affinity) = (&mut self.sender, &self.affinity);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                affinity.apply();
                send(sender, traffic, rate, time, sent, stop)
            });
            let done = meanwhile();
            let took = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let took = took.map_err(|error| Error::Live(format!("cannot send: {error}")))?;
            Ok((took, done))
        })
    }

    /// Sends a single frame.
    pub fn send_one(&mut self, frame: &[u8]) -> Result<(), Error> {
        match self.sender.send(&[frame]) {
            Ok(1) => Ok(()),
            Ok(_) => Err(Error::Live("cannot send: a frame was not taken".into())),
            Err(error) => Err(Error::Live(format!("cannot send: {error}"))),
        }
    }
}

fn send(
    sender: &mut Sender,
    traffic: &mut Traffic,
    rate: Option<f64>,
    time: Duration,
    sent: &Sent,
    stop: &AtomicBool,
) -> io::Result<Duration> {
    let (began, mut done, mut refused, mut forgiven) = (Instant::now(), 0_u64, 0, 0.0);
    // Single frames cost more calls than a fast sender has time for.
    let fewest = rate.map_or(BURST as f64, |rate| (rate / 5e3).clamp(1.0, 32.0));
    loop {
        let elapsed = began.elapsed();
        if elapsed >= time || stop.load(Ordering::Relaxed) {
            return Ok(elapsed);
        }
        let due = match rate {
            None => BURST as f64,
            Some(rate) => {
                let due = rate * elapsed.as_secs_f64() - forgiven - (done + refused) as f64;
                let most = (rate * BEHIND.as_secs_f64()).max(2.0 * fewest);
                forgiven += (due - most).max(0.0);
                if due < fewest {
                    let gap = Duration::from_secs_f64(((fewest - due) / rate).max(0.0));
                    if gap > NAP {
                        // Shorter than a second, so that it hears when it is to stop.
                        thread::sleep((gap - NAP / 2).min(NAP * 100).min(time - elapsed));
                    } else {
                        std::hint::spin_loop();
                    }
                    continue;
                }
                due
            }
        };
        let mut burst = [&[][..]; BURST];
        let count = traffic.burst(due as usize, &mut burst);
        let mut frames = &burst[..count];
        while !frames.is_empty() {
            let taken = match sender.send(frames) {
                Ok(taken) => taken,
                Err(error) if Sender::is_full(&error) => {
                    refused += 1;
                    frames = &frames[1..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            done += taken as u64;
            frames = &frames[taken..];
        }
        sent.frames.store(done, Ordering::Relaxed);
        sent.refused.store(refused, Ordering::Relaxed);
    }
}

/// Frames that were sent into this thread's wire and did not arrive, since it was made: what the receiving end had no room for.
pub fn lost() -> Result<u64, Error> {
    let text = read_to_string("/proc/thread-self/net/dev");
    let text = text.map_err(|error| Error::Live(format!("/proc/thread-self/net/dev: {error}")))?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(LEFT)?.strip_prefix(':'));
    // Eight numbers of what was received, then octets, frames, errors, drops of what was sent.
    let drops = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
    drops.ok_or_else(|| Error::Live("/proc/thread-self/net/dev: the wire is not in it".into()))
}

/// Runs `ip` in this thread's network.
fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}; it is in the package iproute2"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
