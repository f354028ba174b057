//! A network namespace for a test, with a veth pair, and raw frames sent through it.
//!
//! The namespace belongs to the thread of the test and to the processes that it starts, and is
//! removed when they end. The kernel sends nothing in it: no addresses, no IPv6, no ARP.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

/// The ends of the pair. Frames sent into `LEFT` arrive at `RIGHT`.
pub const LEFT: &str = "left";
pub const RIGHT: &str = "right";

/// Timeout of a test that waits for a condition; longer than any machine takes. Where builds filled the disk's queue,
/// the sync of a spool took more than 60 s.
pub const BOUND: Duration = Duration::from_secs(180);

/// Moves this thread into a new namespace; its interfaces carry the largest frames. Prints the
/// reason and returns false where that is not permitted.
pub fn network() -> bool {
    network_of(1, 65535)
}

/// The same, with this number of queues and this MTU (in bytes) at both ends.
pub fn network_of(queues: u32, mtu: u32) -> bool {
    // SAFETY: the call takes no memory, and concerns this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("SKIPPED: no network namespace of its own: {}", io::Error::last_os_error());
        return false;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("SKIPPED: ip (iproute2) is not installed");
        return false;
    }
    for kind in ["all", "default"] {
        // Fails in a kernel without IPv6, where nothing needs to be disabled.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{kind}/disable_ipv6"), "1");
    }
    let shape = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {LEFT} {shape} type veth peer name {RIGHT} {shape}"));
    for end in [LEFT, RIGHT] {
        ip(&format!("link set {end} arp off up"));
    }
    until_wired();
    true
}

/// Waits until frames sent into either end arrive: the kernel notices with a delay that an end is
/// up.
pub fn until_wired() {
    until("the wire carries frames", || {
        [LEFT, RIGHT].iter().all(|end| ip(&format!("link show dev {end}")).contains("state UP"))
    });
}

/// Runs `ip` in the namespace.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until a condition holds.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(BOUND, what, holds);
}

/// The same with another timeout.
pub fn until_within(bound: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < bound, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether an interface is in promiscuous mode.
pub fn is_captured(interface: &str) -> bool {
    ip(&format!("-d link show dev {interface}")).contains("promiscuity 1")
}

/// Frames that have come to an interface of the namespace.
pub fn received_frames(interface: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{interface}:")));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Drops all capabilities of this thread but these.
pub fn keep_capabilities(kept: &[u32]) {
    const VERSION_3: u32 = 0x2008_0522;
    let half = |from: u32| {
        kept.iter().filter(|&&bit| (from..from + 32).contains(&bit)).fold(0_u32, |set, bit| set | 1 << (bit - from))
    };
    // Effective, permitted and inheritable capabilities, in two words of 32 each.
    let sets = [half(0), half(0), 0, half(32), half(32), 0];
    let header = [VERSION_3, 0];
    // SAFETY: both live across the call and have the layout of this version.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Sends frames out of an interface unchanged.
pub struct Sender {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
    sent: u64,
}

impl Sender {
    pub fn new(interface: &str) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name lives across its call, the socket has no other owner, and the address is plain
        // numbers, for which zeros are valid.
        let (socket, address) = unsafe {
            // Protocol 0: it receives nothing.
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0, "{}", io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            (OwnedFd::from_raw_fd(socket), address)
        };
        assert_ne!(address.sll_ifindex, 0, "{interface}: {}", io::Error::last_os_error());
        Self { socket, address, sent: 0 }
    }

    /// Sends a frame. It arrives at the other end before this returns, or soon after.
    pub fn send(&mut self, frame: &[u8]) {
        let address = (&raw const self.address).cast();
        let (socket, address_bytes) = (self.socket.as_raw_fd(), size_of_val(&self.address) as u32);
        // SAFETY: frame and address live across the call, with their sizes; the kernel only reads them.
        let sent = unsafe { libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, address, address_bytes) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
        self.sent += 1;
        if self.sent.is_multiple_of(BURST) {
            until_received();
        }
    }

    /// Sends frames that a program forwards over another pair. It may be late and then forwards them at
    /// once, so the next ones are sent when it has: `forwarded` returns their number since the start.
    pub fn send_forwarded(&mut self, frames: &[Vec<u8>], mut forwarded: impl FnMut() -> usize) {
        let before = forwarded();
        for (number, burst) in (1..).zip(frames.chunks(BURST as usize)) {
            burst.iter().for_each(|frame| self.send(frame));
            let expected = before + (number * BURST as usize).min(frames.len());
            until("the frames are forwarded", || forwarded() >= expected);
        }
    }
}

/// Frames that are sent over a pair without a look at its queue.
const BURST: u64 = 64;

/// Waits until the kernel has received most frames that were sent over pairs. Between the ends is a queue
/// of 1000 frames, and the pairs of all namespaces share it. A busy system empties it with a delay.
pub fn until_received() {
    until("the queue between the ends has room", || backlog() < 256);
}

/// Frames in the longest of the queues that the kernel receives from, one per CPU.
fn backlog() -> u32 {
    let queues = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let lengths = queues.lines().filter_map(|line| u32::from_str_radix(line.split(' ').nth(11)?, 16).ok());
    lengths.max().unwrap_or_default()
}
