//! Live traffic by AF_XDP, between interfaces made for the test: every sent frame is either
//! delivered or counted as lost.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use testbed::namespace::{BOUND, LEFT, RIGHT, ip, keep_capabilities, network_of, until, until_wired};
use weir_capture::{Burst, Error, LiveSource, LiveSpec, Losses};

type Sources = Vec<Box<dyn LiveSource + Send>>;

/// Moves the test into a network whose interfaces have this number of queues. The tests run one at
/// a time: a process that another test starts inherits the open sockets until it calls `exec`,
/// which would keep a program attached. Prints the reason and returns `None` where this is not
/// permitted, or where the kernel or container has no AF_XDP.
fn network(queues: u32) -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // With larger frames, veth refuses native programs.
    if !network_of(queues, 1500) {
        return None;
    }
    let opened = try_open("af_xdp:right,attach=generic").map(drop).map_err(|error| error.to_string());
    match opened {
        Err(error) if ["not permitted", "CONFIG_XDP_SOCKETS"].iter().any(|what| error.contains(what)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        opened => opened.map(|()| Some(alone)).unwrap(),
    }
}

/// Waits until no program is attached: a process that another test has just started may still have the
/// sockets of sources that are dropped.
fn until_detached() {
    until("the program is detached", || !ip("link show dev right").contains("xdp"));
}

fn try_open(source: &str) -> Result<Sources, Error> {
    source.parse::<LiveSpec>()?.open()
}

/// Opens sources of an interface that has none.
fn open(source: &str) -> Sources {
    until_detached();
    try_open(source).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(source: &str) -> String {
    try_open(source).err().map_or_else(|| panic!("{source} was opened"), |error| error.to_string())
}

/// A socket that sends or receives whole frames at an interface.
struct Raw(OwnedFd);

impl Raw {
    fn at(interface: &str, protocol: i32) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name and the address live across the calls, with their lengths.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0);
            assert!(socket >= 0, "{}", io::Error::last_os_error());
            let socket = OwnedFd::from_raw_fd(socket);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (protocol as u16).to_be();
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let size: i32 = 16 << 20;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const size).cast(), 4);
            let octets = size_of_val(&address) as u32;
            assert_eq!(
                libc::bind(socket.as_raw_fd(), (&raw const address).cast(), octets),
                0,
                "{}",
                io::Error::last_os_error()
            );
            Self(socket)
        }
    }

    /// Returns whether the frame was sent; a busy device refuses it.
    fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the frame lives across the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        let error = io::Error::last_os_error();
        let busy = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
        assert!(sent == frame.len() as isize || busy, "{error}");
        sent >= 0
    }

    /// Adds the sequence numbers of the frames received so far.
    fn receive(&self, numbers: &mut Vec<u64>) {
        let mut frame = [0; 4096];
        loop {
            // SAFETY: the memory lives across the call and has the given length.
            let octets = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            let Ok(octets) = usize::try_from(octets) else { return };
            numbers.push(number(&frame[..octets]));
        }
    }

    /// Receives until this number of frames has come here or through the queues.
    fn receive_until(&self, frames: u64, numbers: &mut Vec<u64>, received: &Received) {
        let started = Instant::now();
        while received.frames() + (numbers.len() as u64) < frames {
            self.receive(numbers);
            assert!(started.elapsed() < BOUND, "frames do not come");
        }
    }
}

/// Octets of the headers of Ethernet, IPv4 and UDP, and of the sequence number after them.
const HEADERS: usize = 42;

/// A datagram with a sequence number, in one of 97 flows.
fn frame(number: u64, octets: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((octets as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
    frame.extend((1000 + (number % 97) as u16).to_be_bytes());
    frame.extend([0, 53]);
    frame.extend((octets as u16 - 34).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(octets, number as u8);
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[HEADERS..HEADERS + 8].try_into().unwrap())
}

/// Octets of the frame with a sequence number.
fn octets_of(number: u64) -> usize {
    60 + (number * 31 % 1400) as usize
}

/// Frames received through all queues.
#[derive(Default)]
struct Seen {
    /// By sequence number: count, octets on the wire, octets captured.
    frames: BTreeMap<u64, (u64, u32, usize)>,
    /// Frames by queue.
    queues: Vec<u64>,
    losses: Losses,
    errors: Vec<String>,
}

impl Seen {
    fn frames(&self) -> u64 {
        self.queues.iter().sum()
    }
}

/// Counts of the frames received so far.
#[derive(Default)]
struct Received {
    frames: AtomicU64,
    /// Frames reported as lost.
    lost: AtomicU64,
}

impl Received {
    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// Stops the readers when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads each queue on its own thread while `body` runs, which may read the counts so far; then
/// stops all queues and reads them to the end.
fn read(sources: Sources, body: impl FnOnce(&Received)) -> Seen {
    let (received, stop) = (Received::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.into_iter().map(|source| scope.spawn(|| read_queue(source, &received, &stop))).collect();
        // Also if `body` panics, because the scope waits for the threads.
        let stopping = Stop(&stop);
        body(&received);
        drop(stopping);
        let mut all = Seen::default();
        for thread in threads {
            let one = thread.join().unwrap();
            for (number, (times, wire, captured)) in one.frames {
                let entry = all.frames.entry(number).or_insert((0, wire, captured));
                entry.0 += times;
            }
            all.queues.extend(one.queues);
            all.errors.extend(one.errors);
            all.losses = all.losses.plus(one.losses);
        }
        all
    })
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn read_queue(mut source: Box<dyn LiveSource + Send>, received: &Received, stop: &AtomicBool) -> Seen {
    let mut seen = Seen { queues: vec![0], ..Seen::default() };
    let (mut stopped, mut last_ns, mut lost) = (false, now_ns(), 0);
    loop {
        if !stopped && stop.load(Ordering::Relaxed) {
            source.stop();
            stopped = true;
        }
        let mut burst = Burst::new();
        match source.fill(&mut burst) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => seen.errors.push(error.to_string()),
        }
        for taken in &burst {
            assert!((last_ns..=now_ns()).contains(&taken.time_ns), "times are those of the clock, and do not go back");
            last_ns = taken.time_ns;
            assert_eq!(taken.link_type, 1);
            let number = number(taken.bytes);
            let whole = frame(number, octets_of(number));
            assert_eq!(taken.bytes, &whole[..taken.bytes.len()], "frame {number}");
            let entry = seen.frames.entry(number).or_insert((0, taken.wire_bytes, taken.bytes.len()));
            entry.0 += 1;
        }
        seen.queues[0] += burst.len() as u64;
        received.frames.fetch_add(burst.len() as u64, Ordering::Relaxed);
        let is_idle = burst.is_empty();
        drop(burst);
        if is_idle {
            let losses = source.query_losses();
            let now = losses.nic + losses.kernel + losses.queue;
            received.lost.fetch_add(now - lost, Ordering::Relaxed);
            lost = now;
        }
    }
    seen.losses = source.query_losses();
    seen
}

/// Sends frames with these sequence numbers, at the pace of the readers, so that none is lost.
fn send_slowly(numbers: std::ops::Range<u64>, received: &Received) {
    let (left, before) = (Raw::at(LEFT, 0), received.frames());
    for number in numbers.clone() {
        let started = Instant::now();
        while number - numbers.start > received.frames() - before + 100 {
            assert!(started.elapsed() < BOUND, "frames do not come");
            std::thread::yield_now();
        }
        assert!(left.send(&frame(number, octets_of(number))), "100 frames find room");
    }
    until("frames come", || received.frames() >= before + numbers.end - numbers.start);
}

fn once_each(seen: &Seen, frames: u64, snap: Option<usize>, case: &str) {
    assert_eq!(seen.errors, Vec::<String>::new(), "{case}");
    assert_eq!(seen.losses, Losses::default(), "{case}");
    assert_eq!(seen.frames(), frames, "{case}: {:?}", seen.queues);
    assert_eq!(seen.frames.len() as u64, frames, "{case}");
    for (&number, &(times, wire, captured)) in &seen.frames {
        let octets = octets_of(number);
        let kept = snap.map_or(octets, |snap| octets.min(snap));
        assert_eq!((times, wire as usize, captured), (1, octets, kept), "{case}, frame {number}");
    }
}

/// Asserts that each frame came through a queue or passed to the stack.
fn each_went_one_way(seen: &Seen, passed: &[u64], frames: u64, case: &str) {
    let mut all: Vec<u64> = seen.frames.keys().chain(passed).copied().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..frames), "{case}");
}

const PLACES: [&str; 2] = ["native", "generic"];

#[test]
fn every_packet_of_four_queues_is_delivered_once() {
    let Some(_alone) = network(4) else { return };
    for place in PLACES {
        let sources = open(&format!("af_xdp:right,mode=copy,attach={place}"));
        assert_eq!(sources.len(), 4);
        let seen = read(sources, |received| send_slowly(0..20_000, received));
        once_each(&seen, 20_000, None, place);
        assert!(seen.queues.iter().filter(|&&frames| frames > 1000).count() >= 3, "{:?}", seen.queues);
    }
}

#[test]
fn every_packet_of_one_queue_is_delivered_once() {
    let Some(_alone) = network(1) else { return };
    for place in PLACES {
        let sources = open(&format!("af_xdp:right,attach={place},frames=256"));
        assert_eq!(sources.len(), 1);
        once_each(&read(sources, |received| send_slowly(0..20_000, received)), 20_000, None, place);
    }
}

#[test]
fn cut_frames_keep_their_length_on_the_wire() {
    let Some(_alone) = network(4) else { return };
    for place in PLACES {
        for snap in [64, 128, 1459] {
            let sources = open(&format!("af_xdp:right,attach={place},snap={snap}"));
            let seen = read(sources, |received| send_slowly(0..5000, received));
            once_each(&seen, 5000, Some(snap), &format!("{place}, {snap}"));
        }
    }
}

#[test]
fn frames_of_unselected_queues_reach_the_stack() {
    let Some(_alone) = network(4) else { return };
    for (place, more) in [("native", ""), ("generic", ""), ("native", ",snap=64"), ("generic", ",snap=64")] {
        let sources = open(&format!("af_xdp:right,queues=1-2,attach={place}{more}"));
        assert_eq!(sources.len(), 2);
        let stack = Raw::at(RIGHT, libc::ETH_P_IP);
        let mut passed = Vec::new();
        let seen = read(sources, |received| {
            let left = Raw::at(LEFT, 0);
            for number in 0..4000_u64 {
                stack.receive_until(number.saturating_sub(100), &mut passed, received);
                assert!(left.send(&frame(number, octets_of(number))), "100 frames find room");
            }
            stack.receive_until(4000, &mut passed, received);
        });
        each_went_one_way(&seen, &passed, 4000, place);
        assert!(seen.frames() > 0 && !passed.is_empty());
    }
}

/// Makes the driver of the receiving end use its own threads.
fn driver_on_threads() -> bool {
    // The files in /sys are those of the namespace in which they are mounted.
    let line = "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/right/threaded";
    let output = Command::new("unshare").args(["-m", "sh", "-c", line]).output().unwrap();
    if !output.status.success() {
        eprintln!("SKIPPED: the driver on threads of its own: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

#[test]
fn losses_under_overload_are_counted_exactly() {
    let Some(_alone) = network(4) else { return };
    for (place, on_threads) in [("native", false), ("native", true), ("generic", false)] {
        for queues in ["", ",queues=0"] {
            // The test does not read meanwhile, and each queue holds 128 frames.
            let sources = open(&format!("af_xdp:right,attach={place},frames=128{queues}"));
            // A driver with its own thread has a queue that overflows, too; then it refuses frames.
            if on_threads && !driver_on_threads() {
                continue;
            }
            let one = sources.len() == 1;
            let stack = Raw::at(RIGHT, libc::ETH_P_IP);
            let left = Raw::at(LEFT, 0);
            let (mut sent, mut refused) = (0, 0);
            for number in 0..20_000 {
                *(if left.send(&frame(number, octets_of(number))) { &mut sent } else { &mut refused }) += 1;
            }
            // With a generic program, the sender's device refuses a frame if the queue before the
            // program is full. The kernel counts these losses if the whole interface is read.
            let all = if place == "generic" && !one { sent + refused } else { sent };
            let mut passed = Vec::new();
            let seen = read(sources, |received| {
                until("all have come or are reported as lost", || {
                    stack.receive(&mut passed);
                    received.frames() + received.lost.load(Ordering::Relaxed) + passed.len() as u64 >= all
                });
            });
            stack.receive(&mut passed);
            let passed = passed.len() as u64;
            let case = format!(
                "{place}{queues}, on threads {on_threads}: {sent} sent, {refused} refused, {passed} passed, {:?} {:?}",
                seen.queues, seen.losses
            );
            assert_eq!(seen.errors, Vec::<String>::new());
            // A driver's thread that hardly runs refuses nearly all frames, and the few that it
            // accepts may fit into the ring.
            assert!(seen.losses.kernel > 0 || on_threads && refused > 0, "{case}");
            assert_eq!(seen.frames.len() as u64, seen.frames(), "none came twice: {case}");
            eprintln!("{case}");
            assert_eq!(all, seen.frames() + seen.losses.kernel + passed, "{case}");
            assert_eq!((seen.losses.nic, seen.losses.queue), (0, 0), "{case}");
        }
    }
}

#[test]
fn program_is_detached_with_its_sources() {
    let Some(_alone) = network(4) else { return };
    let attached = || ip("link show dev right").contains("xdp");
    for place in PLACES {
        let sources = open(&format!("af_xdp:right,attach={place}"));
        assert!(attached());
        assert!(refused("af_xdp:right").contains("another XDP program"), "{}", refused("af_xdp:right"));
        drop(sources);
        until_detached();
        // After the stop, received frames are delivered, and new packets go to the network stack.
        let mut sources = open(&format!("af_xdp:right,attach={place}"));
        let (left, stack) = (Raw::at(LEFT, 0), Raw::at(RIGHT, libc::ETH_P_IP));
        (0..100).for_each(|number| assert!(left.send(&frame(number, octets_of(number)))));
        sources.iter_mut().for_each(|source| source.stop());
        until_detached();
        (100..200).for_each(|number| assert!(left.send(&frame(number, octets_of(number)))));
        let mut passed = Vec::new();
        let seen = read(sources, |received| stack.receive_until(200, &mut passed, received));
        assert!(seen.frames.keys().all(|&number| number < 100), "{place}");
        each_went_one_way(&seen, &passed, 200, place);
        assert_eq!((seen.losses, seen.errors), (Losses::default(), vec![]));
    }
}

#[test]
fn sources_that_cannot_be_opened_are_refused_with_the_cause() {
    let Some(_alone) = network(4) else { return };
    drop(open("af_xdp:right"));
    for (source, why) in [
        ("af_xdp:nowhere", "no interface 'nowhere'"),
        ("af_xdp:", "no interface"),
        ("af_xdp:right,queues=0-4", "right has queues 0-3"),
        ("af_xdp:right,queues=7", "right has queues 0-3"),
        ("af_xdp:right,mode=zerocopy", "no zero copy"),
        ("af_xdp:lo,attach=native", "no native XDP"),
        ("af_xdp:right,speed=100", "speed"),
        ("af_xdp:right,snap=9000", "3840"),
    ] {
        let error = refused(source);
        assert!(error.contains(why) && error.starts_with(source), "{source}: {error}");
    }
    // Another program has a socket of the queue, but the interface has no program attached.
    let first = open("af_xdp:right,queues=1,attach=generic");
    assert!(refused("af_xdp:right,queues=1,attach=native").contains("another XDP program"));
    drop(first);
    ip("tuntap add dev tunnel mode tun");
    let error = refused("af_xdp:tunnel");
    assert!(error.contains("not Ethernet"), "{error}");
}

#[test]
fn missing_capabilities_are_named_and_sufficient() {
    const NET_ADMIN: u32 = 12;
    const NET_RAW: u32 = 13;
    const BPF: u32 = 39;
    let Some(_alone) = network(4) else { return };
    drop(open("af_xdp:right"));
    let with = |kept: Vec<u32>, source: &'static str| {
        until_detached();
        let tried = move || {
            keep_capabilities(&kept);
            try_open(source).map(drop).map_err(|error| error.to_string())
        };
        std::thread::spawn(tried).join().unwrap()
    };
    for kept in [vec![], vec![NET_ADMIN, NET_RAW], vec![NET_RAW, BPF], vec![NET_ADMIN, BPF]] {
        let error = with(kept.clone(), "af_xdp:right,frames=128").unwrap_err();
        assert!(error.contains("CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "{kept:?}: {error}");
    }
    for source in ["af_xdp:right,frames=128", "af_xdp:right,frames=128,snap=64,attach=generic"] {
        assert_eq!(with(vec![NET_ADMIN, NET_RAW, BPF], source), Ok(()), "{source}");
    }
}

#[test]
fn interface_that_goes_down_and_up_continues() {
    let Some(_alone) = network(4) else { return };
    for place in PLACES {
        let seen = read(open(&format!("af_xdp:right,attach={place}")), |received| {
            send_slowly(0..1000, received);
            ip("link set right down");
            std::thread::sleep(3 * weir_capture::POLL_TIMEOUT);
            ip("link set right mtu 1600");
            ip("link set right up");
            until_wired();
            send_slowly(1000..2000, received);
        });
        once_each(&seen, 2000, None, place);
    }
}

#[test]
fn removed_interface_ends_its_sources_with_an_error() {
    let Some(_alone) = network(4) else { return };
    let seen = read(open("af_xdp:right"), |received| {
        send_slowly(0..1000, received);
        ip("link del right");
    });
    assert_eq!(seen.errors.len(), 4, "one for each queue: {:?}", seen.errors);
    assert!(seen.errors.iter().all(|error| error.contains("removed")), "{:?}", seen.errors);
    assert_eq!((seen.frames(), seen.losses), (1000, Losses::default()));
}
