//! DPDK's virtual devices as sources. They run in one process without huge pages (DPDK starts once per process), and once more in
//! another with them.

use super::driver::inject::{inject, injected, key, table};
use super::driver::{Counts, SYMMETRIC_KEY};
use super::*;
use crate::{Burst, Losses, POLL_TIMEOUT, PcapWriter};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Set in the process that runs the tests with huge pages.
const WITH_PAGES: &str = "WEIR_DPDK_TEST_WITH_PAGES";
/// Longer than any of this takes anywhere.
const LONG: Duration = Duration::from_secs(120);

/// Opens a device as these tests do, in little memory.
fn try_device(rest: &str) -> Result<Vec<Queue>, String> {
    let pages = if std::env::var_os(WITH_PAGES).is_some() { "on" } else { "off" };
    let room = if rest.contains("descriptors=") { "" } else { ",descriptors=512" };
    try_open(&format!("{rest}{room},hugepages={pages}"))
}

fn device(rest: &str) -> Vec<Queue> {
    try_device(rest).unwrap_or_else(|error| panic!("{rest}: {error}"))
}

fn refused(rest: &str) -> String {
    match try_device(rest) {
        Ok(_) => panic!("{rest}: this cannot be opened"),
        Err(error) => error,
    }
}

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("it is shipped").flatten().map(|file| file.path()).collect();
    files.retain(|file| matches!(file.extension().and_then(|extension| extension.to_str()), Some("pcap" | "pcapng")));
    files.sort();
    files
}

/// The octets of each packet of a capture; none if it is not all Ethernet.
fn octets_of(file: &Path) -> Option<Vec<Vec<u8>>> {
    let mut source = crate::open(file).expect("it is shipped and whole");
    let mut packets = Vec::new();
    while let Some(burst) = source.burst().expect("it is whole") {
        for frame in &burst {
            if frame.link_type != 1 {
                return None;
            }
            packets.push(frame.bytes.to_vec());
        }
    }
    Some(packets)
}

/// What a queue hands over until it has been silent: octets and length on the wire.
fn read_all(queue: &mut Queue) -> Vec<(Vec<u8>, u32)> {
    let mut packets = Vec::new();
    loop {
        let burst = queue.burst().expect("it goes on").expect("nobody told it to stop");
        if burst.is_empty() {
            return packets;
        }
        packets.extend(burst.iter().map(|frame| (frame.bytes.to_vec(), frame.wire_bytes)));
    }
}

/// Tells a queue to stop and counts what it still hands over.
fn drain(queue: &mut Queue) -> u64 {
    queue.stop();
    let mut packets = 0;
    while let Some(burst) = queue.burst().expect("it goes on") {
        packets += burst.len() as u64;
    }
    assert!(queue.burst().expect("it is over").is_none(), "an end stays an end");
    packets
}

#[test]
fn every_packet_of_a_file_comes_out_of_net_pcap_octet_for_octet() {
    let mut files = 0;
    for file in captures() {
        let Some(expected) = octets_of(&file) else { continue };
        let name = format!("net_pcap_whole;rx_pcap={}", file.display());
        let mut queues = device(&name);
        assert_eq!(queues.len(), 1);
        let before = driver::now_ns();
        let packets = read_all(&mut queues[0]);
        assert_eq!(packets.len(), expected.len(), "{name}");
        for (number, ((octets, wire_bytes), expected)) in packets.iter().zip(&expected).enumerate() {
            // A packet longer than a buffer comes in several, of which the first is handed over.
            assert_eq!(octets, &expected[..expected.len().min(2048)], "{name}: packet {number}");
            assert_eq!(*wire_bytes as usize, expected.len(), "{name}: packet {number}");
        }
        assert_eq!(queues[0].counts(), Counts { received: expected.len() as u64, ..Counts::default() }, "{name}");
        assert_eq!(queues[0].losses(), Losses::default());
        assert!(queues[0].now_ns() >= before);
        assert_eq!(drain(&mut queues[0]), 0);
        files += 1;
    }
    assert!(files >= 20, "only {files} files");
}

#[test]
fn queues_of_net_pcap_are_its_files() {
    let files: Vec<(PathBuf, Vec<Vec<u8>>)> =
        captures().into_iter().filter_map(|file| Some((file.clone(), octets_of(&file)?))).take(3).collect();
    let arguments: Vec<String> = files.iter().map(|(file, _)| format!(";rx_pcap={}", file.display())).collect();
    let name = format!("net_pcap_several{}", arguments.concat());
    let mut queues = device(&format!("{name},queues=3"));
    for (queue, (file, expected)) in queues.iter_mut().zip(&files) {
        let octets: Vec<Vec<u8>> = read_all(queue).into_iter().map(|(octets, _)| octets).collect();
        assert_eq!(&octets, expected, "{}", file.display());
    }
    let all: usize = files.iter().map(|(_, packets)| packets.len()).sum();
    assert_eq!(queues[0].counts().received, all as u64, "one account for all queues");
    drop(queues);
    let error = refused(&format!("{name},queues=4"));
    assert!(error.contains("queues=4: the port has 3 at most"), "{error}");
    // The refusal left nothing behind.
    assert_eq!(device(&format!("{name},queues=2")).len(), 2);
}

#[test]
fn snap_cuts_what_is_handed_over_and_not_the_length_on_the_wire() {
    let file = captures().into_iter().find(|file| file.ends_with("web.pcap")).expect("it is shipped");
    let mut queues = device(&format!("net_pcap_snap;rx_pcap={},snap=60", file.display()));
    let expected = octets_of(&file).expect("it is Ethernet");
    for ((octets, wire_bytes), expected) in read_all(&mut queues[0]).iter().zip(&expected) {
        assert_eq!((&octets[..], *wire_bytes as usize), (&expected[..expected.len().min(60)], expected.len()));
    }
}

#[test]
fn a_long_packet_is_handed_over_as_far_as_its_first_buffer_with_its_true_length() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("long.pcap");
    let long: Vec<u8> = (0..9018_u32).map(|i| (i % 251) as u8).collect();
    let mut writer =
        PcapWriter::new(fs::File::create(&file).expect("a file can be made"), 1, 65535).expect("a file can be written");
    for _ in 0..200 {
        writer
            .write(&crate::Frame {
                bytes: &long,
                time_ns: 1,
                wire_bytes: 9018,
                link_type: 1,
                time_clamped: false,
                interface: 0,
            })
            .expect("a file can be written");
    }
    writer.finish().expect("a file can be written");
    let mut queues = device(&format!("net_pcap_long;rx_pcap={}", file.display()));
    let packets = read_all(&mut queues[0]);
    assert_eq!(packets.len(), 200, "every buffer of the chains came back");
    for (octets, wire_bytes) in packets {
        assert_eq!((octets.len(), wire_bytes), (2048, 9018));
        assert_eq!(octets, long[..2048]);
    }
    assert_eq!(queues[0].counts().received, 200);
}

#[test]
fn each_packet_put_into_a_queue_of_net_ring_comes_out_of_it_while_threads_read() {
    const EACH: usize = 4000;
    let queues = device("net_ring_threads,queues=4");
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(number, mut queue)| {
                let received = &received;
                scope.spawn(move || {
                    let (mut next, deadline) = (0_u32, Instant::now() + LONG);
                    while received.load(Ordering::Relaxed) < 4 * EACH {
                        assert!(Instant::now() < deadline, "queue {number} stands at {next}");
                        let burst = queue.burst().expect("it goes on").expect("nobody told it to stop");
                        for frame in &burst {
                            // Queue, number in it, padding; every tenth in a chain of buffers of 100 octets.
                            assert_eq!(frame.bytes[..4], (number as u32).to_be_bytes());
                            assert_eq!(frame.bytes[4..8], next.to_be_bytes(), "in order, none missing");
                            assert_eq!(frame.wire_bytes, 250);
                            assert_eq!(frame.bytes.len(), if next.is_multiple_of(10) { 100 } else { 250 });
                            next += 1;
                        }
                        received.fetch_add(burst.len(), Ordering::Relaxed);
                    }
                    (queue, next)
                })
            })
            .collect();
        for i in 0..EACH as u32 {
            for queue in 0..4_u16 {
                let mut bytes = [0xaa; 250];
                bytes[..4].copy_from_slice(&u32::from(queue).to_be_bytes());
                bytes[4..8].copy_from_slice(&i.to_be_bytes());
                let deadline = Instant::now() + LONG;
                while !inject("net_ring_threads", queue, &bytes, if i.is_multiple_of(10) { 100 } else { 250 }) {
                    assert!(Instant::now() < deadline, "nobody reads");
                    std::thread::yield_now();
                }
            }
        }
        let mut queues: Vec<(Queue, u32)> =
            threads.into_iter().map(|thread| thread.join().expect("no claim failed")).collect();
        assert!(queues.iter().all(|(_, packets)| *packets as usize == EACH));
        assert_eq!(queues[0].0.counts(), Counts { received: 4 * EACH as u64, ..Counts::default() });
        assert_eq!(queues.iter_mut().map(|(queue, _)| drain(queue)).sum::<u64>(), 0);
    });
}

#[test]
fn what_waits_in_a_queue_when_it_is_stopped_is_handed_over_and_then_it_ends() {
    let mut queues = device("net_ring_stop,queues=2");
    for i in 0..300_u16 {
        assert!(inject("net_ring_stop", i % 2, &i.to_be_bytes().repeat(32), 2048));
    }
    assert_eq!(queues[0].burst().expect("it goes on").expect("packets are there").len(), 64);
    assert_eq!(drain(&mut queues[0]), 150 - 64);
    assert_eq!(drain(&mut queues[1]), 150);
    assert_eq!(queues[0].counts().received, 300);
    drop(queues);
    let error = refused("net_ring_stop,queues=17");
    assert!(error.contains("the port has 16 at most"), "{error}");
}

#[test]
fn four_queues_of_net_null_hand_over_what_the_port_counts_until_they_are_stopped() {
    let queues = device("net_null_four,queues=4");
    let entries = table("net_null_four");
    assert!(!entries.is_empty());
    for queue in 0..4 {
        assert_eq!(entries.iter().filter(|&&entry| entry == queue).count(), entries.len() / 4, "{entries:?}");
    }
    let found = key("net_null_four");
    assert_eq!(found, SYMMETRIC_KEY[..found.len()]);
    let mut done: Vec<(Queue, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(number, mut queue)| {
                scope.spawn(move || {
                    let mut packets = 0;
                    for _ in 0..1000 * (number + 1) {
                        let burst = queue.burst().expect("it goes on").expect("nobody told it to stop");
                        assert!(burst.iter().all(|frame| frame.bytes.len() == 64 && frame.wire_bytes == 64));
                        packets += burst.len() as u64;
                    }
                    packets += drain(&mut queue);
                    (queue, packets)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no claim failed")).collect()
    });
    let packets: u64 = done.iter().map(|(_, packets)| packets).sum();
    // 10 000 full bursts, and then of each queue no more than its descriptors hold, to the end of a burst.
    assert_eq!(packets, 640_000 + 4 * 512);
    assert_eq!(done[0].0.counts(), Counts { received: packets, ..Counts::default() });
    assert!(done.iter_mut().all(|(queue, _)| queue.losses() == Losses::default()));
}

#[test]
fn losses_are_told_once_and_never_get_fewer() {
    let mut queues = device("net_null_losses,queues=2");
    let lost = Losses { nic: 7, kernel: 0, ring: 2 };
    queues[1].stop();
    *queue::at_stop(&queues[0]) = Some(lost);
    assert_eq!((queues[0].losses(), queues[1].losses()), (lost, Losses::default()));
    *queue::at_stop(&queues[0]) = Some(Losses { nic: 5, ..lost });
    assert_eq!(queues[0].losses(), lost);
}

#[test]
fn a_quiet_queue_hands_over_nothing_in_time_and_sleeps() {
    let mut queues = device("net_ring_quiet");
    /// Nanoseconds for which this thread had a processor.
    fn busy() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
        text.split(' ').next().and_then(|number| number.parse().ok()).expect("its first number")
    }
    let (began, busy_before) = (Instant::now(), busy());
    for _ in 0..20 {
        let mut burst = Burst::new();
        assert!(queues[0].fill(&mut burst).expect("it goes on"));
        assert!(burst.is_empty());
    }
    let (took, busy) = (began.elapsed(), Duration::from_nanos(busy() - busy_before));
    assert!(took >= 20 * POLL_TIMEOUT);
    assert!(busy < took / 4, "busy for {busy:?} of {took:?}");
    // And it wakes up.
    assert!(inject("net_ring_quiet", 0, &[1; 60], 2048));
    assert_eq!(queues[0].burst().expect("it goes on").expect("nobody told it to stop").len(), 1);
}

#[test]
fn every_buffer_that_was_injected_is_given_back() {
    let mut queues = device("net_ring_given");
    for _ in 0..3 {
        assert!(inject("net_ring_given", 0, &[1; 500], 100));
    }
    assert_eq!(queues[0].burst().expect("it goes on").expect("nobody told it to stop").len(), 3);
    drop(queues);
    // Other tests of this process have some too; they end.
    let deadline = Instant::now() + LONG;
    while injected() != 0 {
        assert!(Instant::now() < deadline, "{} buffers are nowhere", injected());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_device_that_cannot_be_had_is_refused_with_what_to_do() {
    let error = refused("net_nothing0");
    assert!(error.contains("cannot take this device") && error.contains("net_nothing0"), "{error}");
    let error = refused("net_pcap_missing;rx_pcap=/nowhere/at/all.pcap");
    assert!(error.contains("/nowhere/at/all.pcap"), "DPDK's own words are in it: {error}");
    assert!(!error.contains("permitted"), "it has nothing to do with that: {error}");
    let error = refused("fffe:ff:1f.7");
    assert!(error.contains("no PCI device has the address fffe:ff:1f.7"), "{error}");
    let queues = device("net_null_twice");
    let error = refused("net_null_twice");
    assert!(error.contains("has the device already"), "{error}");
    drop(queues);
    // Given back, it can be had again.
    drop(device("net_null_twice"));
}

#[test]
fn memory_that_is_not_there_is_told_with_how_much_is_needed() {
    let settings = Settings::parse("net_null0,queues=8,mbufs=1000000").expect("it is well written");
    for number in [errno::ENOMEM, errno::ENOBUFS] {
        let failure = Failure { call: "rte_pktmbuf_pool_create_by_ops".into(), number, words: String::new() };
        let error = explain(Refused::Port(failure), Path::new("/sys"), &settings);
        assert!(error.contains("1000000 packet buffers on each of 8 queues, 19457 MB"), "{error}");
    }
}

#[test]
fn what_holds_for_the_process_cannot_be_changed_by_a_second_source() {
    drop(device("net_null_first"));
    let with = std::env::var_os(WITH_PAGES).is_some();
    let other = if with { "off" } else { "on" };
    let error = try_open(&format!("net_null_second,hugepages={other}")).err().expect("refused");
    assert!(error.contains("a second source cannot have hugepages"), "{error}");
    let error = refused("net_null_second,core=0");
    assert!(error.contains("cannot have core=0"), "{error}");
    // Unsaid, it follows.
    assert!(try_open("net_null_second,descriptors=512").is_ok());
}

#[test]
fn a_card_wants_huge_pages_and_says_how_to_have_them() {
    let card = Settings::parse("0000:17:00.0").expect("an address");
    let error = in_huge_pages(&card, false).expect_err("there are none");
    assert!(error.contains("/proc/sys/vm/nr_hugepages"), "{error}");
    assert_eq!(in_huge_pages(&card, true), Ok(true));
    let without = Settings::parse("0000:17:00.0,hugepages=off").expect("an address");
    assert_eq!(in_huge_pages(&without, true), Ok(false));
    let made = Settings::parse("net_null0").expect("a device");
    assert_eq!((in_huge_pages(&made, false), in_huge_pages(&made, true)), (Ok(false), Ok(true)));
}

#[test]
fn who_has_a_card_is_told_with_the_command_that_changes_it() {
    let root = tempfile::tempdir().expect("a folder can be made");
    let devices = root.path().join("bus/pci/devices");
    for (address, driver) in [("0000:17:00.0", Some("ice")), ("0000:17:00.1", Some("vfio-pci")), ("0000:17:00.2", None)]
    {
        fs::create_dir_all(devices.join(address)).expect("a folder can be made");
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), devices.join(address).join("driver"))
                .expect("a link can be made");
        }
        assert_eq!(find_card(root.path(), address), Ok(()));
    }
    assert!(find_card(root.path(), "0000:18:00.0").is_err_and(|error| error.contains("lspci -D")));
    let about = |address, number| about_card(root.path(), address, number);
    assert!(about("0000:17:00.0", 19).contains("driver ice has it; `dpdk-devbind.py --bind=vfio-pci 0000:17:00.0`"));
    assert!(about("0000:17:00.1", 19).contains("another process has it"));
    assert!(about("0000:17:00.2", 19).contains("no kernel driver has it"));
    assert!(about("0000:17:00.2", errno::EBUSY).contains("another process has it"));
    assert!(about("0000:17:00.2", errno::EACCES).contains("not permitted"));
}

#[test]
fn the_key_gives_both_directions_of_a_flow_the_same_hash() {
    /// The Toeplitz hash as cards compute it: for each bit that is set, the 32 bits of the key from there on.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], i: usize| u32::from(bytes[i / 8] >> (7 - i % 8) & 1);
        let window = |from: usize| (0..32).fold(0, |value, i| value << 1 | bit(key, from + i));
        (0..input.len() * 8).filter(|&i| bit(input, i) == 1).fold(0, |hash, i| hash ^ window(i))
    }
    // The published vector, so that this is the hash that cards have: 66.9.149.187:2794 -> 161.142.100.80:1766.
    let published = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];
    let tuple = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!(toeplitz(&published, &tuple), 0x51cc_c178);

    let mut state = 1_u64;
    let mut octet = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    for address_bytes in [4, 16] {
        for _ in 0..1000 {
            let [a, b] = [(); 2].map(|()| (0..address_bytes).map(|_| octet()).collect::<Vec<u8>>());
            let [p, q] = [[octet(), octet()], [octet(), octet()]];
            let there = toeplitz(&SYMMETRIC_KEY[..40], &[&a[..], &b, &p, &q].concat());
            let back = toeplitz(&SYMMETRIC_KEY[..40], &[&b[..], &a, &q, &p].concat());
            assert_eq!(there, back, "{a:?} {p:?} {b:?} {q:?}");
        }
    }
}

/// Runs a program and says what it said if it fails.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{program} {arguments:?}: {}", said.trim()))
}

#[test]
fn what_was_lost_because_nobody_read_is_told_to_the_packet() {
    const NAME: &str = "dpdk::tests::what_was_lost_because_nobody_read_is_told_to_the_packet";
    const INSIDE: &str = "WEIR_DPDK_TEST_INSIDE";
    const SENT: u64 = 30_000;
    if std::env::var_os(INSIDE).is_none() {
        // A network of its own, which goes when the process does.
        if let Err(why) = run("unshare", &["--net", "true"]) {
            return eprintln!("SKIPPED: DPDK's losses in a network namespace: {why}");
        }
        let this = std::env::current_exe().expect("a test has a file");
        let output = Command::new("unshare")
            .arg("--net")
            .arg(this)
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output();
        let output = output.expect("it ran before");
        let said = String::from_utf8_lossy(&output.stdout);
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let commands = "link add from type veth peer name into; addr add 192.0.2.1/24 dev from; link set from up; \
        link set into up; neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev from nud permanent";
    for interface in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1");
    }
    for command in commands.split("; ") {
        if let Err(why) = run("ip", &command.split_whitespace().collect::<Vec<_>>()) {
            return eprintln!("SKIPPED: DPDK's losses in a network namespace: {why}");
        }
    }
    let mut queues = device("net_pcap_losses;rx_iface_in=into");
    let socket = std::net::UdpSocket::bind("192.0.2.1:0").expect("the address is there");
    for number in 0..SENT {
        let mut payload = [0; 1400];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, "192.0.2.2:9").expect("the neighbour is known");
    }
    let (mut received, deadline) = (0, Instant::now() + LONG);
    loop {
        let burst = queues[0].burst().expect("it goes on").expect("nobody told it to stop");
        received += burst.len() as u64;
        let silent = burst.is_empty();
        drop(burst);
        let Losses { nic, kernel: 0, ring: 0 } = queues[0].losses() else { panic!("{:?}", queues[0].counts()) };
        if silent && received + card >= SENT {
            assert_eq!(received + card, SENT);
            assert!(card > 0 && received > 0, "{received} received, {card} lost: the test is about both");
            break;
        }
        assert!(Instant::now() < deadline, "{received} received, {card} lost of {SENT}");
    }
    assert_eq!(queues[0].counts().received, received);
}

#[test]
fn dpdks_own_threads_run_where_they_are_told_and_nobody_elses_is_moved() {
    const NAME: &str = "dpdk::tests::dpdks_own_threads_run_where_they_are_told_and_nobody_elses_is_moved";
    const INSIDE: &str = "WEIR_DPDK_TEST_CORE";
    // The processors that each thread may run on, by its name.
    fn threads() -> Vec<(String, String)> {
        let threads = fs::read_dir("/proc/self/task").expect("Linux tells it").flatten();
        let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        let value = |status: &str, key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux tells it");
            line.trim().to_string()
        };
        status.map(|status| (value(&status, "Name:"), value(&status, "Cpus_allowed_list:"))).collect()
    }
    // The environment starts once per process: this test needs one of its own.
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("a test has a file");
        let output = Command::new(this).args(["--exact", NAME]).env(INSIDE, "1").output().expect("it runs again");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let error = refused("net_null_core,core=1023");
    assert!(error.contains("core=1023: there is no such processor"), "{error}");
    let core = (0..1023).rfind(|&core| driver::may_run_on(core)).expect("this runs somewhere");
    let before = threads();
    let queues = device(&format!("net_null_core,core={core}"));
    let (old, new): (Vec<_>, Vec<_>) = threads().into_iter().partition(|thread| before.contains(thread));
    assert_eq!(old.len(), before.len(), "{before:?} became {old:?} and {new:?}");
    assert!(!new.is_empty() && new.iter().all(|(_, cores)| *cores == core.to_string()), "{new:?}");
    drop(queues);
}

/// Huge pages that are reserved for as long as it lives.
struct Reserved {
    before: u64,
}

impl Reserved {
    const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    /// Sees to it that `pages` of 2 MB are free; none, with the reason, if that cannot be had.
    fn new(pages: u64) -> Result<Self, String> {
        let number = |file: &str| {
            let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            text.trim().parse::<u64>().map_err(|error| format!("{file}: {error}"))
        };
        let free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        let before = number(Self::PAGES)?;
        let reserved = Self { before };
        if number(free)? < pages {
            fs::write(Self::PAGES, (before + pages).to_string())
                .map_err(|error| format!("{}: {error}", Self::PAGES))?;
        }
        if number(free)? < pages {
            return Err(format!("the system has no {pages} huge pages to give"));
        }
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(Self::PAGES, self.before.to_string());
    }
}

#[test]
fn all_of_this_holds_with_huge_pages_too() {
    if std::env::var_os(WITH_PAGES).is_some() {
        return;
    }
    let _reserved = match Reserved::new(192) {
        Ok(reserved) => reserved,
        Err(why) => return eprintln!("SKIPPED: DPDK with huge pages: {why}"),
    };
    let this = std::env::current_exe().expect("a test has a file");
    let output = Command::new(this).arg("dpdk::tests::").env(WITH_PAGES, "1").output().expect("it runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dpdk::tests::four_queues_of_net_null") && !said.contains(" 0 passed"), "{said}");
}
