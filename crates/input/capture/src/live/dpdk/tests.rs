//! Tests with DPDK's virtual devices: in one process without huge pages (DPDK starts once per
//! process), and again in another process with huge pages.

use super::driver::inject::{inject, injected, key, table, take};
use super::driver::{PortCounts, SYMMETRIC_KEY};
use super::error::Failure;
use super::*;
use crate::clock;
use crate::files::write::PcapWriter;
use crate::send_frames::{SendFrames, SendRefusal};
use crate::source::{Burst, Frame, LiveSource, Losses, POLL_TIMEOUT, Source};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Set in the process that runs the tests with huge pages.
const WITH_PAGES: &str = "WEIR_DPDK_TEST_WITH_PAGES";
/// Longer than any of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Puts a packet into a queue. The tests share a pool of buffers, which may be empty for a moment.
fn put(device: &str, queue: u16, bytes: &[u8], segment: u16) {
    let deadline = Instant::now() + TIMEOUT;
    while !inject(device, queue, bytes, segment) {
        assert!(Instant::now() < deadline, "{device} takes no packet");
        std::thread::yield_now();
    }
}

/// Opens a device with little memory.
fn try_device(rest: &str) -> Result<Vec<Queue>, DpdkError> {
    let pages = if std::env::var_os(WITH_PAGES).is_some() { "on" } else { "off" };
    let descriptors = if rest.contains("descriptors=") { "" } else { ",descriptors=512" };
    open(&Settings::parse(&format!("{rest}{descriptors},hugepages={pages}"))?)
}

fn device(rest: &str) -> Vec<Queue> {
    try_device(rest).unwrap_or_else(|error| panic!("{rest}: {error}"))
}

/// Opens a device for sending.
fn output(rest: &str, queues: u16) -> Vec<Transmitter> {
    let pages = if std::env::var_os(WITH_PAGES).is_some() { "on" } else { "off" };
    let opened = open_output(&format!("{rest},descriptors=256,hugepages={pages}"), queues);
    opened.unwrap_or_else(|error| panic!("{rest}: {error}"))
}

fn refused(rest: &str) -> String {
    try_device(rest).err().map_or_else(|| panic!("{rest}: this cannot be opened"), |error| error.to_string())
}

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures");
    let mut files: Vec<_> = fs::read_dir(folder).expect("it is shipped").flatten().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng"));
    files.sort();
    files
}

/// Returns the bytes of each packet of a capture; `None` if a packet is not Ethernet.
fn packets_of(file: &Path) -> Option<Vec<Vec<u8>>> {
    let mut source = crate::files::open::open(file).expect("it is shipped and whole");
    let mut packets = Vec::new();
    while let Some(burst) = source.burst().expect("it is whole") {
        if burst.iter().any(|frame| frame.link_type != 1) {
            return None;
        }
        packets.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
    }
    Some(packets)
}

/// Reads a queue until it is idle: bytes and length on the wire of each packet.
fn read_all(queue: &mut Queue) -> Vec<(Vec<u8>, u32)> {
    let mut packets = Vec::new();
    loop {
        let burst = burst(queue);
        if burst.is_empty() {
            return packets;
        }
        packets.extend(burst.iter().map(|frame| (frame.bytes.to_vec(), frame.wire_bytes)));
    }
}

/// Receives a burst, which may be empty.
fn burst(queue: &mut Queue) -> Burst<'_> {
    queue.burst().expect("it goes on").expect("it was not stopped")
}

/// Stops a queue and counts the packets that it still delivers.
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
fn net_pcap_delivers_every_packet_of_a_file_unchanged() {
    let mut files = 0;
    for file in captures() {
        let Some(expected) = packets_of(&file) else { continue };
        let name = format!("net_pcap_whole;rx_pcap={}", file.display());
        let mut queues = device(&name);
        assert_eq!(queues.len(), 1);
        let names: Vec<String> = queues[0].interfaces().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["net_pcap_whole"]);
        let before = clock::now_ns();
        let packets = read_all(&mut queues[0]);
        assert_eq!(packets.len(), expected.len(), "{name}");
        for (number, ((octets, wire_bytes), expected)) in packets.iter().zip(&expected).enumerate() {
            // A packet longer than a buffer arrives in several segments, of which the first is
            // delivered.
            assert_eq!(octets, &expected[..expected.len().min(2048)], "{name}: packet {number}");
            assert_eq!(*wire_bytes as usize, expected.len(), "{name}: packet {number}");
        }
        let counts = PortCounts { received: expected.len() as u64, ..PortCounts::default() };
        assert_eq!(queues[0].counts(), counts, "{name}");
        assert_eq!(queues[0].query_losses(), Losses::default());
        assert!(queues[0].now_ns() >= before);
        assert_eq!(drain(&mut queues[0]), 0);
        files += 1;
    }
    assert!(files >= 20, "only {files} files");
}

#[test]
fn net_pcap_has_one_queue_per_file() {
    let files: Vec<(PathBuf, Vec<Vec<u8>>)> =
        captures().into_iter().filter_map(|file| Some((file.clone(), packets_of(&file)?))).take(3).collect();
    let arguments: Vec<String> = files.iter().map(|(file, _)| format!(";rx_pcap={}", file.display())).collect();
    let name = format!("net_pcap_several{}", arguments.concat());
    let mut queues = device(&format!("{name},queues=3"));
    for (queue, (file, expected)) in queues.iter_mut().zip(&files) {
        let octets: Vec<Vec<u8>> = read_all(queue).into_iter().map(|(octets, _)| octets).collect();
        assert_eq!(&octets, expected, "{}", file.display());
    }
    let all: usize = files.iter().map(|(_, packets)| packets.len()).sum();
    assert_eq!(queues[0].counts().received, all as u64, "one counter for all queues");
    drop(queues);
    let error = refused(&format!("{name},queues=4"));
    assert!(error.contains("queues=4: the port has 3 at most"), "{error}");
    // The refusal left nothing open.
    assert_eq!(device(&format!("{name},queues=2")).len(), 2);
}

#[test]
fn snap_length_cuts_bytes_but_not_the_length_on_the_wire() {
    let file = captures().into_iter().find(|file| file.ends_with("web.pcap")).expect("it is shipped");
    let mut queues = device(&format!("net_pcap_snap;rx_pcap={},snap=60", file.display()));
    let expected = packets_of(&file).expect("it is Ethernet");
    for ((octets, wire_bytes), expected) in read_all(&mut queues[0]).iter().zip(&expected) {
        assert_eq!((&octets[..], *wire_bytes as usize), (&expected[..expected.len().min(60)], expected.len()));
    }
}

#[test]
fn first_segment_of_a_long_packet_is_delivered_with_the_length_on_the_wire() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("long.pcap");
    let long: Vec<u8> = (0..9018_u32).map(|i| (i % 251) as u8).collect();
    let mut writer = PcapWriter::new(fs::File::create(&file).unwrap(), 1, 65535).unwrap();
    let frame = Frame { bytes: &long, time_ns: 1, wire_bytes: 9018, link_type: 1, time_assumed: false, interface: 0 };
    (0..200).for_each(|_| writer.write(&frame).unwrap());
    writer.finish().unwrap();
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
fn net_ring_delivers_every_packet_while_threads_read() {
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
                    let (mut next, deadline) = (0_u32, Instant::now() + TIMEOUT);
                    while received.load(Ordering::Relaxed) < 4 * EACH {
                        assert!(Instant::now() < deadline, "queue {number} stops at {next}");
                        let burst = burst(&mut queue);
                        for frame in &burst {
                            // Queue, packet number, padding; every tenth packet in segments of 100
                            // bytes.
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
            // Half of the pool is for the other tests, of which one sees its packets copied when it is nearly empty.
            while injected() > 2000 {
                std::thread::yield_now();
            }
            for queue in 0..4_u16 {
                let mut bytes = [0xaa; 250];
                bytes[..4].copy_from_slice(&u32::from(queue).to_be_bytes());
                bytes[4..8].copy_from_slice(&i.to_be_bytes());
                put("net_ring_threads", queue, &bytes, if i.is_multiple_of(10) { 100 } else { 250 });
            }
        }
        let mut queues: Vec<(Queue, u32)> =
            threads.into_iter().map(|thread| thread.join().expect("no claim failed")).collect();
        assert!(queues.iter().all(|(_, packets)| *packets as usize == EACH));
        assert_eq!(queues[0].0.counts(), PortCounts { received: 4 * EACH as u64, ..PortCounts::default() });
        assert_eq!(queues.iter_mut().map(|(queue, _)| drain(queue)).sum::<u64>(), 0);
    });
}

#[test]
fn stopped_queue_delivers_waiting_packets_and_ends() {
    let mut queues = device("net_ring_stop,queues=2");
    for i in 0..300_u16 {
        put("net_ring_stop", i % 2, &i.to_be_bytes().repeat(32), 2048);
    }
    assert_eq!(burst(&mut queues[0]).len(), 64);
    assert_eq!(drain(&mut queues[0]), 150 - 64);
    assert_eq!(drain(&mut queues[1]), 150);
    assert_eq!(queues[0].counts().received, 300);
    drop(queues);
    let error = refused("net_ring_stop,queues=17");
    assert!(error.contains("the port has 16 at most"), "{error}");
}

#[test]
fn four_queues_of_net_null_deliver_what_the_port_counts() {
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
                        let burst = burst(&mut queue);
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
    // 10 000 full bursts, and then the packets of the descriptors of each queue, rounded up to a
    // burst.
    assert_eq!(packets, 640_000 + 4 * 512);
    assert_eq!(done[0].0.counts(), PortCounts { received: packets, ..PortCounts::default() });
    assert!(done.iter_mut().all(|(queue, _)| queue.query_losses() == Losses::default()));
}

#[test]
fn losses_are_reported_by_one_queue_and_never_decrease() {
    let mut queues = device("net_null_losses,queues=2");
    let lost = Losses { nic: 7, kernel: 0, queue: 2 };
    queues[1].stop();
    *queues[0].losses_at_stop.lock() = Some(lost);
    assert_eq!((queues[0].query_losses(), queues[1].query_losses()), (lost, Losses::default()));
    *queues[0].losses_at_stop.lock() = Some(Losses { nic: 5, ..lost });
    assert_eq!(queues[0].query_losses(), lost);
}

#[test]
fn idle_queue_returns_after_the_poll_timeout_and_sleeps() {
    let mut queues = device("net_ring_quiet");
    /// CPU time of this thread, ns.
    fn busy() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
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
    // And it receives again.
    put("net_ring_quiet", 0, &[1; 60], 2048);
    assert_eq!(burst(&mut queues[0]).len(), 1);
}

#[test]
fn every_injected_buffer_is_released() {
    let mut queues = device("net_ring_given");
    for _ in 0..3 {
        put("net_ring_given", 0, &[1; 500], 100);
    }
    assert_eq!(burst(&mut queues[0]).len(), 3);
    drop(queues);
    // Other tests of this process have injected packets, too, and release them.
    let deadline = Instant::now() + TIMEOUT;
    while injected() != 0 {
        assert!(Instant::now() < deadline, "{} buffers are not released", injected());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn received_packets_are_sent_as_they_are_and_all_others_are_copied() {
    let mut source = device("net_ring_source");
    let mut outputs = output("net_ring_to", 2);
    let packet = |number: u8, length: usize| vec![number; length];
    for number in 0..8 {
        // The last one in segments, of which the first is read.
        let segment = if number == 7 { 100 } else { 2048 };
        put("net_ring_source", 0, &packet(number, 200), segment);
    }
    let burst = burst(&mut source[0]);
    assert_eq!(burst.len(), 8);
    let (received, elsewhere) = (burst[1].bytes, packet(9, 300));
    let frames =
        [burst[0].bytes, received, &burst[3].bytes[..60], &elsewhere, burst[5].bytes, burst[6].bytes, burst[7].bytes];
    let is_shared = [true, true, false, false, true, true, false];
    // Two outputs, as with a mirror.
    for (queue, output) in (0..).zip(&mut outputs) {
        assert_eq!(output.send(&frames), Ok(7));
        for (number, (frame, is_shared)) in frames.iter().zip(is_shared).enumerate() {
            let (bytes, address) = take("net_ring_to", queue).expect("it was sent");
            assert_eq!(&bytes, frame, "{number}");
            assert_eq!(address == frame.as_ptr().addr(), is_shared, "{number}");
        }
        assert!(take("net_ring_to", queue).is_none());
    }
    // Still there, until the source releases them.
    assert_eq!(received, packet(1, 200));
    drop(burst);
    // The packets of an earlier burst are not those of this one.
    put("net_ring_source", 0, &packet(10, 200), 2048);
    assert_eq!(self::burst(&mut source[0]).len(), 1);
    assert_eq!(outputs[0].send(&[&elsewhere]), Ok(1));
    assert_eq!(take("net_ring_to", 0).expect("it was sent").0, elsewhere);
}

#[test]
fn packets_of_a_source_outlive_it_in_the_output() {
    let mut source = device("net_null_gone");
    let mut outputs = output("net_ring_after", 1);
    let burst = burst(&mut source[0]);
    let frames: Vec<&[u8]> = burst.iter().map(|frame| frame.bytes).collect();
    let addresses: Vec<usize> = frames.iter().map(|frame| frame.as_ptr().addr()).collect();
    assert_eq!(outputs[0].send(&frames), Ok(64));
    drop(burst);
    drop(source);
    let error = refused("net_null_gone");
    assert!(error.contains("already has the device"), "its packets are in use: {error}");
    for address in addresses {
        let (bytes, at) = take("net_ring_after", 0).expect("it was sent");
        assert_eq!((bytes.len(), at), (64, address));
    }
    drop(outputs);
    drop(device("net_null_gone"));
}

#[test]
fn full_output_refuses_packets_and_loses_no_buffer() {
    let mut source = device("net_null_full");
    let mut outputs = output("net_ring_full", 1);
    let own = [5; 100];
    for round in 0..20 {
        let mut sent = 0;
        // From the source, and copies.
        loop {
            let burst = burst(&mut source[0]);
            let mut frames: Vec<&[u8]> = burst.iter().map(|frame| frame.bytes).collect();
            frames.truncate(40);
            frames.push(&own);
            match outputs[0].send(&frames) {
                Ok(count) => sent += count,
                Err(refusal) => break assert_eq!(refusal, SendRefusal::Interface),
            }
        }
        // More than this would take mbufs that the source needs, or do not fit the ring.
        assert!(sent >= 512, "round {round}: {sent}");
        let mut taken = 0;
        while take("net_ring_full", 0).is_some() {
            taken += 1;
        }
        assert_eq!(taken, sent, "round {round}");
        // The source goes on.
        assert_eq!(burst(&mut source[0]).len(), 64);
    }
    assert_eq!(source[0].query_losses(), Losses::default());
}

#[test]
fn frames_that_cannot_be_sent_are_refused_alone() {
    let mut outputs = output("net_ring_bounds", 1);
    let [short, least, most, long] = [13, 14, 2040, 2049].map(|length| vec![1; length]);
    assert_eq!(outputs[0].send(&[&least, &most, &long, &least]), Ok(2));
    assert_eq!(outputs[0].send(&[&long, &least]), Err(SendRefusal::TooLong));
    assert_eq!(outputs[0].send(&[&short]), Err(SendRefusal::TooShort));
    let lengths = [0, 1].map(|_| take("net_ring_bounds", 0).expect("it was sent").0.len());
    assert_eq!(lengths, [14, 2040]);
    let error = open_output("net_ring_bounds,hugepages=off", 1).err().expect("it is open").to_string();
    assert!(error.contains("already has the device") || error.contains("hugepages"), "{error}");
    let error = open_output("net_ring_many,queues=2", 1).err().expect("an output has no queues").to_string();
    assert!(error.contains("its keys are: descriptors, hugepages, core"), "{error}");
    let pages = if std::env::var_os(WITH_PAGES).is_some() { "on" } else { "off" };
    let error = open_output(&format!("net_ring_many,hugepages={pages}"), 17).err().expect("too many").to_string();
    assert!(error.contains("each of 17 pipelines needs a transmit queue, and the port has 16"), "{error}");
}

#[test]
fn device_that_cannot_be_opened_is_refused_with_the_cause() {
    let error = refused("net_nothing0");
    assert!(error.contains("cannot open this device") && error.contains("net_nothing0"), "{error}");
    let error = refused("net_pcap_missing;rx_pcap=/nowhere/at/all.pcap");
    assert!(error.contains("/nowhere/at/all.pcap"), "DPDK's message is part of it: {error}");
    assert!(!error.contains("permitted"), "permissions are not the cause: {error}");
    let error = refused("fffe:ff:1f.7");
    assert!(error.contains("no PCI device has the address fffe:ff:1f.7"), "{error}");
    let queues = device("net_null_twice");
    let error = refused("net_null_twice");
    assert!(error.contains("already has the device"), "{error}");
    drop(queues);
    // Closed, it can be opened again.
    drop(device("net_null_twice"));
}

#[test]
fn missing_memory_is_reported_with_the_required_size() {
    let settings = Settings::parse("net_null0,queues=8,mbufs=1000000").expect("it is well written");
    for errno in [libc::ENOMEM, libc::ENOBUFS] {
        let failure = Failure { call: "rte_pktmbuf_pool_create_by_ops".into(), errno, message: String::new() };
        let error = open_error(OpenError::Port(failure), Path::new("/sys"), &settings).to_string();
        assert!(error.contains("1000000 packet buffers on each of 8 queues, 19457 MB"), "{error}");
    }
}

#[test]
fn second_source_cannot_change_settings_of_the_process() {
    drop(device("net_null_first"));
    let with = std::env::var_os(WITH_PAGES).is_some();
    let other = if with { "off" } else { "on" };
    let error = open(&Settings::parse(&format!("net_null_second,hugepages={other}")).unwrap())
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("a second source cannot have hugepages"), "{error}");
    let error = refused("net_null_second,core=0");
    assert!(error.contains("cannot have core=0"), "{error}");
    // Without settings, it uses the current ones.
    assert!(open(&Settings::parse("net_null_second,descriptors=512").unwrap()).is_ok());
}

#[test]
fn nic_needs_huge_pages_and_the_error_says_how_to_reserve_them() {
    let card = Settings::parse("0000:17:00.0").expect("an address");
    let error = use_huge_pages(&card, false).expect_err("there are none").to_string();
    assert!(error.contains("/proc/sys/vm/nr_hugepages"), "{error}");
    assert!(use_huge_pages(&card, true).unwrap());
    let without = Settings::parse("0000:17:00.0,hugepages=off").expect("an address");
    assert!(!use_huge_pages(&without, true).unwrap());
    let virtual_device = Settings::parse("net_null0").expect("a device");
    assert!([false, true].iter().all(|&free| use_huge_pages(&virtual_device, free).unwrap() == free));
}

#[test]
fn bound_driver_is_reported_with_the_command_that_changes_it() {
    let root = tempfile::tempdir().expect("a folder can be made");
    let devices = root.path().join("bus/pci/devices");
    for (address, driver) in [("0000:17:00.0", "ice"), ("0000:17:00.1", "vfio-pci"), ("0000:17:00.2", "")] {
        let device = devices.join(address);
        fs::create_dir_all(&device).unwrap();
        if !driver.is_empty() {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
        }
        assert!(check_pci_device(root.path(), address).is_ok());
    }
    let missing = check_pci_device(root.path(), "0000:18:00.0").expect_err("there is none");
    assert!(missing.to_string().contains("lspci -D"));
    for (address, errno, expected) in [
        ("0000:17:00.0", 19, "driver ice is bound to it; `dpdk-devbind.py --bind=vfio-pci 0000:17:00.0`"),
        ("0000:17:00.1", 19, "another process uses it"),
        ("0000:17:00.2", 19, "no kernel driver is bound to it"),
        ("0000:17:00.2", libc::EBUSY, "another process uses it"),
        ("0000:17:00.2", libc::EACCES, "not permitted"),
    ] {
        let cause = pci_cause(root.path(), address, errno).to_string();
        assert!(cause.contains(expected), "{cause}");
    }
}

#[test]
fn symmetric_key_gives_both_directions_the_same_hash() {
    /// The Toeplitz hash of NICs: the XOR of the 32 key bits at the position of each bit that is
    /// set.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], i: usize| u32::from(bytes[i / 8] >> (7 - i % 8) & 1);
        let window = |from: usize| (0..32).fold(0, |value, i| value << 1 | bit(key, from + i));
        (0..input.len() * 8).filter(|&i| bit(input, i) == 1).fold(0, |hash, i| hash ^ window(i))
    }
    // The published test vector of the hash: 66.9.149.187:2794 -> 161.142.100.80:1766.
    let published = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];
    let tuple = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!(toeplitz(&published, &tuple), 0x51cc_c178);

    let mut random = weir_trafficgen::Random::new(1);
    let mut byte = || random.below(256) as u8;
    for address_bytes in [4, 16] {
        for _ in 0..1000 {
            let [a, b] = [(); 2].map(|()| (0..address_bytes).map(|_| byte()).collect::<Vec<u8>>());
            let [p, q] = [[byte(), byte()], [byte(), byte()]];
            let there = toeplitz(&SYMMETRIC_KEY[..40], &[&a[..], &b, &p, &q].concat());
            let back = toeplitz(&SYMMETRIC_KEY[..40], &[&b[..], &a, &q, &p].concat());
            assert_eq!(there, back, "{a:?} {p:?} {b:?} {q:?}");
        }
    }
}

/// Runs tests again, in another process with an environment variable. Returns its output, unless a
/// test failed.
fn run_again(command: &mut Command, variable: &str) -> String {
    let output = command.env(variable, "1").output().expect("it runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !said.contains(" 0 passed"), "{said}");
    said.into_owned()
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test has a file")
}

/// Runs a program. Returns its error output if it fails.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{program} {arguments:?}: {}", said.trim()))
}

#[test]
fn losses_of_an_idle_reader_are_counted_exactly() {
    const NAME: &str = "live::dpdk::tests::losses_of_an_idle_reader_are_counted_exactly";
    const INSIDE: &str = "WEIR_DPDK_TEST_INSIDE";
    const SENT: u64 = 30_000;
    if std::env::var_os(INSIDE).is_none() {
        // Runs this test in its own network namespace, which ends with the process.
        if let Err(why) = run("unshare", &["--net", "true"]) {
            return eprintln!("SKIPPED: DPDK's losses in a network namespace: {why}");
        }
        let arguments = ["--exact", NAME, "--nocapture"];
        run_again(Command::new("unshare").arg("--net").arg(this_program()).args(arguments), INSIDE);
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
    let (mut received, deadline) = (0, Instant::now() + TIMEOUT);
    loop {
        let packets = burst(&mut queues[0]).len() as u64;
        received += packets;
        let Losses { nic, kernel: 0, queue: 0 } = queues[0].query_losses() else { panic!("{:?}", queues[0].counts()) };
        if packets == 0 && received + nic >= SENT {
            assert_eq!(received + nic, SENT);
            assert!(nic > 0 && received > 0, "{received} received, {nic} lost: the test needs both");
            break;
        }
        assert!(Instant::now() < deadline, "{received} received, {nic} lost of {SENT}");
    }
    assert_eq!(queues[0].counts().received, received);
}

#[test]
fn dpdk_threads_run_on_the_given_core_and_other_threads_are_not_moved() {
    const NAME: &str = "live::dpdk::tests::dpdk_threads_run_on_the_given_core_and_other_threads_are_not_moved";
    const INSIDE: &str = "WEIR_DPDK_TEST_CORE";
    // Name and allowed CPUs of each thread.
    fn threads() -> Vec<(String, String)> {
        let threads = fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
        let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        let value = |status: &str, key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux has it");
            line.trim().to_string()
        };
        status.map(|status| (value(&status, "Name:"), value(&status, "Cpus_allowed_list:"))).collect()
    }
    // The environment starts once per process, so this test needs its own process.
    if std::env::var_os(INSIDE).is_none() {
        run_again(Command::new(this_program()).args(["--exact", NAME]), INSIDE);
        return;
    }
    let error = refused("net_null_core,core=1023");
    assert!(error.contains("core=1023: this process may not run on this core"), "{error}");
    let core = (0..1023).rfind(|&core| driver::may_run_on(core)).expect("this runs somewhere");
    let before = threads();
    let queues = device(&format!("net_null_core,core={core}"));
    let (old, new): (Vec<_>, Vec<_>) = threads().into_iter().partition(|thread| before.contains(thread));
    assert_eq!(old.len(), before.len(), "{before:?} became {old:?} and {new:?}");
    assert!(!new.is_empty() && new.iter().all(|(_, cores)| *cores == core.to_string()), "{new:?}");
    drop(queues);
}

const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Huge pages reserved until this is dropped; with their number before.
struct HugePages(u64);

impl HugePages {
    /// Makes `pages` of 2 MB free, or returns why that is not possible.
    fn new(pages: u64) -> Result<Self, String> {
        let text = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
        let number = |file| text(file)?.trim().parse::<u64>().map_err(|error| format!("{file}: {error}"));
        let reserved = Self(number(PAGES)?);
        if number(FREE_PAGES)? < pages {
            fs::write(PAGES, (reserved.0 + pages).to_string()).map_err(|error| format!("{PAGES}: {error}"))?;
        }
        let are_free = number(FREE_PAGES)? >= pages;
        are_free.then_some(reserved).ok_or_else(|| format!("the system cannot reserve {pages} huge pages"))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(PAGES, self.0.to_string());
    }
}

#[test]
fn all_tests_pass_with_huge_pages() {
    if std::env::var_os(WITH_PAGES).is_some() {
        return;
    }
    let _reserved = match HugePages::new(192) {
        Ok(reserved) => reserved,
        Err(why) => return eprintln!("SKIPPED: DPDK with huge pages: {why}"),
    };
    let said = run_again(Command::new(this_program()).arg("live::dpdk::tests::"), WITH_PAGES);
    assert!(said.contains("live::dpdk::tests::four_queues_of_net_null"), "{said}");
}
