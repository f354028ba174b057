//! Veth pair in a network namespace of its own, a thread that sends into one end, and a count of the
//! frames lost between the ends. The kernel removes the namespace when the pair is dropped.

use crate::error::Error;
use crate::live::traffic::Traffic;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::{File, read_to_string};
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{FrameSender, MAX_BURST_FRAMES, SendFrames, SendRefusal};
use weir_probe::CpuAffinity;

/// Frames sent into the first interface arrive at the second.
const SENDING_END: &str = "left";
/// The end of the pair that receives.
pub const RECEIVING_END: &str = "right";

/// What failed, in errors.
const SEND: &str = "cannot send";
/// Time within which the interfaces must come up.
const LINK_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// Lag behind the requested rate beyond which the sender drops its arrears.
const MAX_LAG: Duration = Duration::from_millis(5);
/// The sender sleeps if the next frame is due later than this; otherwise it polls the clock.
const MIN_SLEEP: Duration = Duration::from_micros(200);

/// A veth pair and its sender.
pub struct VethPair {
    sender: FrameSender,
    affinity: CpuAffinity,
    /// The network namespace before.
    outside: File,
}

/// Counters of the sender.
#[derive(Default)]
pub struct SentFrames {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl SentFrames {
    /// Frames accepted and refused by the kernel.
    pub fn counts(&self) -> [u64; 2] {
        [&self.accepted, &self.refused].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl VethPair {
    /// Moves the calling thread into a new network namespace and creates the pair there. The sender
    /// thread will run with `affinity`.
    ///
    /// # Errors
    /// Missing privileges, or no `ip` command.
    pub fn create(affinity: CpuAffinity) -> Result<Self, Error> {
        let outside = File::open("/proc/thread-self/ns/net").map_err(Error::Namespace)?;
        // Deprecated because of other flags; this one affects only the calling thread.
        #[expect(deprecated)]
        rustix::thread::unshare(UnshareFlags::NEWNET).map_err(|error| Error::Namespace(error.into()))?;
        for kind in ["all", "default"] {
            // Keeps the kernel from sending packets of its own. Fails harmlessly without IPv6.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{kind}/disable_ipv6"), "1");
        }
        create([SENDING_END, RECEIVING_END])?;
        Ok(Self { sender: FrameSender::open(SENDING_END, SENDING_END)?, affinity, outside })
    }

    /// Sends for `time`, or until `stop` is set, at `rate` frames per second or at full speed, from a
    /// thread with the configured affinity. Runs `meanwhile` on the calling thread. Returns the duration
    /// of sending and the result of `meanwhile`.
    pub fn send<T>(
        &mut self,
        traffic: &mut Traffic,
        rate: Option<f64>,
        time: Duration,
        (sent, stop): (&SentFrames, &AtomicBool),
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
            Ok((took?, done))
        })
    }

    /// Sends these frames, at most [`MAX_BURST_FRAMES`], in one system call.
    pub fn send_all(&mut self, frames: &[&[u8]]) -> Result<(), Error> {
        match self.sender.send(frames).map_err(refused)? {
            sent if sent == frames.len() => Ok(()),
            _ => Err(Error::io(SEND)(io::Error::other("the kernel refused a frame"))),
        }
    }
}

fn refused(refusal: SendRefusal) -> Error {
    Error::io(SEND)(io::Error::other(format!("{refusal:?}")))
}

/// Moves the thread back, so that later work finds the interfaces of the machine.
impl Drop for VethPair {
    fn drop(&mut self) {
        // Fails only without privileges, which creating the pair needed, too.
        let _ = move_into_link_name_space(self.outside.as_fd(), Some(LinkNameSpaceType::Network));
    }
}

fn send(
    sender: &mut FrameSender,
    traffic: &mut Traffic,
    rate: Option<f64>,
    time: Duration,
    sent: &SentFrames,
    stop: &AtomicBool,
) -> Result<Duration, Error> {
    let (start, mut offered, mut dropped_arrears) = (Instant::now(), 0_u64, 0.0);
    // At high rates one system call per frame would be too slow.
    let batch = rate.map_or(MAX_BURST_FRAMES as f64, |rate| (rate / 5e3).clamp(1.0, 32.0));
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time || stop.load(Ordering::Relaxed) {
            return Ok(elapsed);
        }
        let due = match rate {
            None => MAX_BURST_FRAMES as f64,
            Some(rate) => {
                let due = rate * elapsed.as_secs_f64() - dropped_arrears - offered as f64;
                let limit = (rate * MAX_LAG.as_secs_f64()).max(2.0 * batch);
                dropped_arrears += (due - limit).max(0.0);
                if due < batch {
                    let gap = Duration::from_secs_f64(((batch - due) / rate).max(0.0));
                    if gap > MIN_SLEEP {
                        // Short, so that the loop sees the stop flag soon.
                        thread::sleep((gap - MIN_SLEEP / 2).min(MIN_SLEEP * 100).min(time - elapsed));
                    } else {
                        std::hint::spin_loop();
                    }
                    continue;
                }
                due
            }
        };
        let mut burst = [&[][..]; MAX_BURST_FRAMES];
        let count = traffic.burst(due as usize, &mut burst);
        offered += count as u64;
        let mut frames = &burst[..count];
        while !frames.is_empty() {
            let (counter, frames_done) = match sender.send(frames) {
                Ok(accepted) => (&sent.accepted, accepted),
                Err(SendRefusal::Interface) => (&sent.refused, 1),
                Err(refusal) => return Err(refused(refusal)),
            };
            counter.fetch_add(frames_done as u64, Ordering::Relaxed);
            frames = &frames[frames_done..];
        }
    }
}

/// Creates a pair of interfaces in this thread's network namespace.
pub fn create(ends: [&str; 2]) -> Result<(), Error> {
    let [first, second] = ends;
    let shape = "mtu 1500 numrxqueues 1 numtxqueues 1";
    ip(&format!("link add {first} {shape} type veth peer name {second} {shape}"))?;
    for end in ends {
        ip(&format!("link set {end} arp off up"))?;
    }
    let start = Instant::now();
    let is_up = |end: &str| ip(&format!("link show dev {end}")).is_ok_and(|text| text.contains("state UP"));
    while !ends.into_iter().all(is_up) {
        if start.elapsed() > LINK_UP_TIMEOUT {
            return Err(Error::LinkDown);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns the frames that were sent into this thread's pair since its creation and did not arrive,
/// because the receiving end had no buffer.
pub fn lost() -> Result<u64, Error> {
    statistic(SENDING_END, 11)
}

/// Returns the frames that an interface has received.
pub fn received(interface: &str) -> Result<u64, Error> {
    statistic(interface, 1)
}

/// A column of an interface: 8 of received traffic, then bytes, packets, errors, drops of sent traffic.
fn statistic(interface: &str, column: usize) -> Result<u64, Error> {
    const FILE: &str = "/proc/thread-self/net/dev";
    let text = read_to_string(FILE).map_err(Error::io(FILE))?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok());
    number.ok_or_else(|| Error::io(FILE)(io::ErrorKind::NotFound.into()))
}

/// Runs `ip` in this thread's network namespace and returns its output.
fn ip(arguments: &str) -> Result<String, Error> {
    let failed = |output: String| Error::Ip(arguments.into(), output);
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| failed(format!("{error}; install iproute2")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().into()))
}
