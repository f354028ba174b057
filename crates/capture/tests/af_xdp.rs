//! AF_XDP on a veth pair in a network namespace: what is sent into `right` comes out of `left`.
//!
//! Each test runs itself once more inside of a namespace that it makes and removes. Without the right to do so, or without
//! AF_XDP in the kernel, it is skipped, loudly.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_capture::{Burst, Losses, Source, live};

/// Tells a test that it runs inside.
const INSIDE: &str = "WEIR_TEST_NAMESPACE";
/// How long something is waited for that must come.
const LONG: Duration = Duration::from_secs(60);

type Sources = Vec<Box<dyn Source + Send>>;

/// Removed when the test is done with it.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs a command, whose words are separated by spaces.
fn run(line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|error| format!("{line}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(format!("{line}: {}", text(&output.stderr))) }
}

/// Runs the body of a test in a namespace of its own, with a veth pair of so many queues.
fn in_namespace(test: &str, queues: u32, body: impl Fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let namespace = format!("weir-{}-{test}", std::process::id());
    if let Err(error) = run(&format!("ip netns add {namespace}")) {
        eprintln!("SKIPPED: {test}: no network namespace can be made: {error}");
        return;
    }
    let namespace = Namespace(namespace);
    let name = &namespace.0;
    let inside = format!("ip netns exec {name}");
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    // Without IPv6 nobody but the test sends.
    let switches = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
    for line in [
        format!("{inside} sysctl -qw {switches}"),
        format!("ip -n {name} link add left {queues} type veth peer name right {queues}"),
        format!("ip -n {name} link set left up"),
        format!("ip -n {name} link set right up"),
        format!("ip -n {name} link set lo up"),
    ] {
        if let Err(error) = run(&line) {
            eprintln!("SKIPPED: {test}: no veth pair can be made: {error}");
            return;
        }
    }
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut again = Command::new("ip");
    again.args(["netns", "exec", name]).arg(program).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let status = again.env(INSIDE, test).status().expect("ip runs");
    assert!(status.success(), "{test}, inside of {name}");
}

/// Opens sources; a kernel or container that cannot have them ends the test, loudly.
fn open(source: &str) -> Sources {
    match live(source) {
        Ok(sources) => sources,
        Err(error) => {
            let error = error.to_string();
            if ["not permitted", "CONFIG_XDP_SOCKETS"].iter().any(|what| error.contains(what)) {
                eprintln!("SKIPPED: {error}");
                std::process::exit(0);
            }
            panic!("{error}");
        }
    }
}

fn refused(source: &str) -> String {
    live(source).err().map_or_else(|| panic!("{source} was opened"), |error| error.to_string())
}

/// A socket that sends, or receives, whole frames at an interface.
struct Raw(i32);

impl Raw {
    fn at(interface: &str, protocol: i32) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name and the address live across the calls, with their lengths.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0);
            assert!(socket >= 0, "{}", io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (protocol as u16).to_be();
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let size: i32 = 16 << 20;
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const size).cast(), 4);
            let octets = size_of_val(&address) as u32;
            assert_eq!(libc::bind(socket, (&raw const address).cast(), octets), 0, "{}", io::Error::last_os_error());
            Self(socket)
        }
    }

    /// Whether the frame left: a device may be too busy.
    fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the frame lives across the call.
        let sent = unsafe { libc::send(self.0, frame.as_ptr().cast(), frame.len(), 0) };
        let error = io::Error::last_os_error();
        let busy = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
        assert!(sent == frame.len() as isize || busy, "{error}");
        sent >= 0
    }

    /// The numbers of frames that were received, so far.
    fn received(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut frame = [0; 4096];
        loop {
            // SAFETY: the memory lives across the call, and is as long as is said.
            let octets = unsafe { libc::recv(self.0, frame.as_mut_ptr().cast(), frame.len(), 0) };
            let Ok(octets) = usize::try_from(octets) else { return numbers };
            numbers.push(number(&frame[..octets]));
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { libc::close(self.0) };
    }
}

/// Octets of Ethernet, IPv4 and UDP, and the number behind them.
const HEADERS: usize = 42;

/// A datagram with a number; of 97 flows.
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

/// Octets of the frame with a number.
fn octets_of(number: u64) -> usize {
    60 + (number * 31 % 1400) as usize
}

/// What came through all queues.
#[derive(Default)]
struct Seen {
    /// By number: how often, octets on the wire, octets captured.
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

/// What came so far.
#[derive(Default)]
struct Come {
    frames: AtomicU64,
    /// Told as lost.
    lost: AtomicU64,
}

impl Come {
    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Reads every queue on a thread of its own while `body` runs, which may look at how many frames have come; then
/// stops all, and reads them to the end.
fn read(sources: Sources, body: impl FnOnce(&Come)) -> Seen {
    let (come, stop) = (Come::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.into_iter().map(|source| scope.spawn(|| read_queue(source, &come, &stop))).collect();
        body(&come);
        stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in threads {
            let one = thread.join().unwrap();
            for (number, (times, wire, captured)) in one.frames {
                let entry = all.frames.entry(number).or_insert((0, wire, captured));
                entry.0 += times;
            }
            all.queues.extend(one.queues);
            all.errors.extend(one.errors);
            all.losses.card += one.losses.card;
            all.losses.kernel += one.losses.kernel;
            all.losses.ring += one.losses.ring;
        }
        all
    })
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn read_queue(mut source: Box<dyn Source + Send>, come: &Come, stop: &AtomicBool) -> Seen {
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
            assert_eq!(taken.link, 1);
            let number = number(taken.bytes);
            let whole = frame(number, octets_of(number));
            assert_eq!(taken.bytes, &whole[..taken.bytes.len()], "frame {number}");
            let entry = seen.frames.entry(number).or_insert((0, taken.wire_bytes, taken.bytes.len()));
            entry.0 += 1;
        }
        seen.queues[0] += burst.len() as u64;
        come.frames.fetch_add(burst.len() as u64, Ordering::Relaxed);
        let is_idle = burst.is_empty();
        drop(burst);
        if is_idle {
            let losses = source.losses();
            let now = losses.card + losses.kernel + losses.ring;
            come.lost.fetch_add(now - lost, Ordering::Relaxed);
            lost = now;
        }
    }
    seen.losses = source.losses();
    seen
}

/// Sends frames with these numbers, never many more than were read, so that none is lost.
fn send_slowly(numbers: std::ops::Range<u64>, come: &Come) {
    let (right, before) = (Raw::at("right", 0), come.frames());
    for number in numbers.clone() {
        let started = Instant::now();
        while number - numbers.start > come.frames() - before + 100 {
            assert!(started.elapsed() < LONG, "frames do not come");
            std::thread::yield_now();
        }
        assert!(right.send(&frame(number, octets_of(number))), "100 frames find room");
    }
    wait_for(come, before + numbers.end - numbers.start);
}

fn wait_for(come: &Come, frames: u64) {
    let started = Instant::now();
    while come.frames() < frames {
        assert!(started.elapsed() < LONG, "{} of {frames} frames came", come.frames());
        std::thread::sleep(Duration::from_millis(1));
    }
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

const PLACES: [&str; 2] = ["native", "generic"];

#[test]
fn every_packet_arrives_once_through_four_queues() {
    in_namespace("every_packet_arrives_once_through_four_queues", 4, || {
        for place in PLACES {
            let sources = open(&format!("af_xdp:left,mode=copy,attach={place}"));
            assert_eq!(sources.len(), 4);
            let seen = read(sources, |come| send_slowly(0..20_000, come));
            once_each(&seen, 20_000, None, place);
            assert!(seen.queues.iter().filter(|&&frames| frames > 1000).count() >= 3, "{:?}", seen.queues);
        }
    });
}

#[test]
fn every_packet_arrives_once_through_one_queue() {
    in_namespace("every_packet_arrives_once_through_one_queue", 1, || {
        for place in PLACES {
            let sources = open(&format!("af_xdp:left,attach={place},frames=256"));
            assert_eq!(sources.len(), 1);
            let seen = read(sources, |come| send_slowly(0..20_000, come));
            once_each(&seen, 20_000, None, place);
        }
    });
}

#[test]
fn what_is_cut_keeps_its_length_on_the_wire() {
    in_namespace("what_is_cut_keeps_its_length_on_the_wire", 4, || {
        for place in PLACES {
            for snap in [64, 128, 1459] {
                let sources = open(&format!("af_xdp:left,attach={place},snap={snap}"));
                let seen = read(sources, |come| send_slowly(0..5000, come));
                once_each(&seen, 5000, Some(snap), &format!("{place}, {snap}"));
            }
        }
    });
}

#[test]
fn queues_that_are_not_read_go_on_to_the_stack() {
    in_namespace("queues_that_are_not_read_go_on_to_the_stack", 4, || {
        for (place, more) in [("native", ""), ("generic", ""), ("native", ",snap=64"), ("generic", ",snap=64")] {
            let sources = open(&format!("af_xdp:left,queues=1-2,attach={place}{more}"));
            assert_eq!(sources.len(), 2);
            let stack = Raw::at("left", libc::ETH_P_IP);
            let mut passed = Vec::new();
            let seen = read(sources, |come| {
                let right = Raw::at("right", 0);
                for number in 0..4000 {
                    let started = Instant::now();
                    while come.frames() + passed.len() as u64 + 100 < number {
                        passed.extend(stack.received());
                        assert!(started.elapsed() < LONG, "frames do not come");
                    }
                    assert!(right.send(&frame(number, octets_of(number))), "100 frames find room");
                }
                let started = Instant::now();
                while come.frames() + (passed.len() as u64) < 4000 {
                    passed.extend(stack.received());
                    assert!(started.elapsed() < LONG, "frames do not come");
                }
            });
            let mut all: Vec<u64> = seen.frames.keys().chain(&passed).copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..4000).collect::<Vec<_>>(), "{place}: each frame went one way");
            assert!(seen.frames() > 0 && !passed.is_empty());
        }
    });
}

#[test]
fn what_an_overload_loses_is_counted_to_the_packet() {
    in_namespace("what_an_overload_loses_is_counted_to_the_packet", 4, || {
        for (place, on_threads) in [("native", false), ("native", true), ("generic", false)] {
            for queues in ["", ",queues=0"] {
                // Nobody reads meanwhile, and there is room for 128 frames of each queue.
                let sources = open(&format!("af_xdp:left,attach={place},frames=128{queues}"));
                // Where the driver works on a thread of its own, its queue runs over, too, and it refuses what is sent.
                let threads = std::fs::write("/sys/class/net/left/threaded", if on_threads { "1" } else { "0" });
                threads.unwrap_or_else(|error| eprintln!("SKIPPED: the driver on threads of its own: {error}"));
                let one = sources.len() == 1;
                let stack = Raw::at("left", libc::ETH_P_IP);
                let right = Raw::at("right", 0);
                let (mut left, mut refused) = (0, 0);
                for number in 0..20_000 {
                    *(if right.send(&frame(number, octets_of(number))) { &mut left } else { &mut refused }) += 1;
                }
                // Behind the driver, what the sender's device refuses was refused by the queue before the program: the
                // kernel's loss, if the whole interface is read.
                let all = if place == "generic" && !one { left + refused } else { left };
                let mut passed = 0;
                let seen = read(sources, |come| {
                    let started = Instant::now();
                    while come.frames() + come.lost() + passed < all && started.elapsed() < LONG {
                        passed += stack.received().len() as u64;
                        std::thread::sleep(Duration::from_millis(10));
                    }
                });
                passed += stack.received().len() as u64;
                let case = format!(
                    "{place}{queues}, on threads {on_threads}: {left} left, {refused} refused, {passed} passed, {:?} {:?}",
                    seen.queues, seen.losses
                );
                assert_eq!(seen.errors, Vec::<String>::new());
                assert!(seen.losses.kernel > 0, "{case}");
                assert_eq!(seen.frames.len() as u64, seen.frames(), "none came twice: {case}");
                eprintln!("{case}");
                assert_eq!(all, seen.frames() + seen.losses.kernel + passed, "{case}");
                assert_eq!((seen.losses.card, seen.losses.ring), (0, 0), "{case}");
            }
        }
    });
}

#[test]
fn the_program_goes_with_its_sources() {
    in_namespace("the_program_goes_with_its_sources", 4, || {
        let attached = || run("ip link show dev left").unwrap().contains("xdp");
        for place in PLACES {
            let sources = open(&format!("af_xdp:left,attach={place}"));
            assert!(attached());
            assert!(refused("af_xdp:left").contains("another XDP program"), "{}", refused("af_xdp:left"));
            drop(sources);
            assert!(!attached());
            // Stopped, they hand over what has come, and packets go on to the stack.
            let mut sources = open(&format!("af_xdp:left,attach={place}"));
            let (right, stack) = (Raw::at("right", 0), Raw::at("left", libc::ETH_P_IP));
            (0..100).for_each(|number| assert!(right.send(&frame(number, octets_of(number)))));
            sources.iter_mut().for_each(|source| source.stop());
            assert!(!attached());
            (100..200).for_each(|number| assert!(right.send(&frame(number, octets_of(number)))));
            let mut passed = Vec::new();
            let seen = read(sources, |come| {
                let started = Instant::now();
                while come.frames() + (passed.len() as u64) < 200 {
                    passed.extend(stack.received());
                    assert!(started.elapsed() < LONG, "frames do not come");
                }
            });
            assert!(seen.frames.keys().all(|&number| number < 100), "{place}");
            let mut all: Vec<u64> = seen.frames.keys().chain(&passed).copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..200).collect::<Vec<_>>(), "{place}: each frame went one way");
            assert_eq!((seen.losses, seen.errors), (Losses::default(), vec![]));
        }
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_namespace("what_cannot_be_opened_says_why", 4, || {
        drop(open("af_xdp:left"));
        for (source, why) in [
            ("af_xdp:nowhere", "no interface 'nowhere'"),
            ("af_xdp:", "no interface"),
            ("af_xdp:left,queues=0-4", "left has queues 0-3"),
            ("af_xdp:left,queues=7", "left has queues 0-3"),
            ("af_xdp:left,mode=zerocopy", "no zero copy"),
            ("af_xdp:lo,attach=native", "no native XDP"),
            ("af_xdp:left,speed=100", "speed"),
            ("af_xdp:left,snap=9000", "3840"),
        ] {
            let error = refused(source);
            assert!(error.contains(why) && error.starts_with(source), "{source}: {error}");
        }
        // A socket of the queue that another program has, though there is no program at the interface.
        let first = open("af_xdp:left,queues=1,attach=generic");
        assert!(refused("af_xdp:left,queues=1,attach=native").contains("another XDP program"));
        drop(first);
        run("ip link add dummy type dummy").and_then(|_| run("ip tuntap add dev tunnel mode tun")).map_or_else(
            |error| eprintln!("SKIPPED: interfaces of other kinds: {error}"),
            |_| {
                assert!(refused("af_xdp:tunnel").contains("no Ethernet"), "{}", refused("af_xdp:tunnel"));
                drop(open("af_xdp:dummy"));
            },
        );
    });
}

/// Leaves a thread these capabilities alone.
fn keep_capabilities(kept: &[u32]) {
    #[repr(C)]
    struct Header(u32, i32);
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header(VERSION_3, 0);
    let half = |from: u32| {
        kept.iter().filter(|&&bit| (from..from + 32).contains(&bit)).fold(0_u32, |set, bit| set | 1 << (bit - from))
    };
    // Effective, permitted, inheritable; twice 32 of them.
    let sets = [half(0), half(0), 0, half(32), half(32), 0];
    // SAFETY: both live across the call, and have the form of the version.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

#[test]
fn without_capabilities_it_says_which_it_takes_and_those_suffice() {
    const NET_ADMIN: u32 = 12;
    const NET_RAW: u32 = 13;
    const BPF: u32 = 39;
    in_namespace("without_capabilities_it_says_which_it_takes_and_those_suffice", 4, || {
        drop(open("af_xdp:left"));
        let with = |kept: Vec<u32>, source: &'static str| {
            let tried = move || {
                keep_capabilities(&kept);
                live(source).map(drop).map_err(|error| error.to_string())
            };
            std::thread::spawn(tried).join().unwrap()
        };
        for kept in [vec![], vec![NET_ADMIN, NET_RAW], vec![NET_RAW, BPF], vec![NET_ADMIN, BPF]] {
            let error = with(kept.clone(), "af_xdp:left,frames=128").unwrap_err();
            assert!(error.contains("CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "{kept:?}: {error}");
        }
        for source in ["af_xdp:left,frames=128", "af_xdp:left,frames=128,snap=64,attach=generic"] {
            assert_eq!(with(vec![NET_ADMIN, NET_RAW, BPF], source), Ok(()), "{source}");
        }
    });
}

#[test]
fn an_interface_that_goes_down_and_comes_back_is_read_on() {
    in_namespace("an_interface_that_goes_down_and_comes_back_is_read_on", 4, || {
        for place in PLACES {
            let seen = read(open(&format!("af_xdp:left,attach={place}")), |come| {
                send_slowly(0..1000, come);
                run("ip link set left down").unwrap();
                std::thread::sleep(Duration::from_millis(300));
                run("ip link set left mtu 1600").unwrap();
                run("ip link set left up").unwrap();
                // The other end has to notice.
                let started = Instant::now();
                while !run("ip link show dev right").unwrap().contains("LOWER_UP") {
                    assert!(started.elapsed() < LONG);
                }
                send_slowly(1000..2000, come);
            });
            once_each(&seen, 2000, None, place);
        }
    });
}

#[test]
fn an_interface_that_is_removed_ends_its_sources_with_an_error() {
    in_namespace("an_interface_that_is_removed_ends_its_sources_with_an_error", 4, || {
        let seen = read(open("af_xdp:left"), |come| {
            send_slowly(0..1000, come);
            run("ip link del left").unwrap();
            std::thread::sleep(Duration::from_millis(500));
        });
        assert_eq!(seen.errors.len(), 4, "one for each queue: {:?}", seen.errors);
        assert!(seen.errors.iter().all(|error| error.contains("gone")), "{:?}", seen.errors);
        assert_eq!((seen.frames(), seen.losses), (1000, Losses::default()));
    });
}
