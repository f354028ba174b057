//! Live traffic by AF_PACKET, between interfaces made for the test: every sent frame is either
//! delivered or counted as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Instant;
use testbed::namespace::{BOUND, LEFT, RIGHT, Sender, ip, is_captured, keep_capabilities, network, until, until_wired};
use weir_capture::{Error, Frame, LiveSource, LiveSpec, Losses};

/// A delivered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    bytes: Vec<u8>,
    wire_bytes: u32,
    link_type: u16,
    time_ns: u64,
    interface: u32,
}

impl Seen {
    /// Sequence number of a TCP segment over IPv4.
    fn sequence(&self) -> u32 {
        u32::from_be_bytes(*self.bytes[38..].first_chunk().unwrap())
    }
}

type Live = Box<dyn LiveSource + Send>;

/// Moves the test into a network; returns the sender whose frames arrive at `right`.
fn wire() -> Option<Sender> {
    network().then(|| Sender::new(LEFT))
}

fn try_open(text: &str) -> Result<Vec<Live>, Error> {
    text.parse::<LiveSpec>()?.open()
}

fn open(text: &str) -> Vec<Live> {
    try_open(text).unwrap_or_else(|error| panic!("{error}"))
}

fn open_one(text: &str) -> Live {
    let mut queues = open(text);
    assert_eq!(queues.len(), 1);
    queues.remove(0)
}

fn refusal(text: &str) -> String {
    try_open(text).err().map_or_else(|| panic!("{text} can be opened"), |error| error.to_string())
}

/// Adds the next burst. Returns `false` at the end.
fn take(source: &mut Live, seen: &mut Vec<Seen>) -> bool {
    let Some(burst) = source.burst().unwrap_or_else(|error| panic!("{error}")) else { return false };
    seen.extend(burst.iter().map(|&Frame { bytes, wire_bytes, link_type, time_ns, interface, .. }| Seen {
        bytes: bytes.to_vec(),
        wire_bytes,
        link_type,
        time_ns,
        interface,
    }));
    true
}

/// Stops a source and reads its remaining frames.
fn rest(source: &mut Live) -> Vec<Seen> {
    source.stop();
    let (mut seen, started) = (Vec::new(), Instant::now());
    while take(source, &mut seen) {
        assert!(started.elapsed() < BOUND, "a source that was stopped ends");
    }
    assert!(source.burst().unwrap().is_none(), "the end stays the end");
    seen
}

/// Reads from a source until this number of frames was read.
fn take_until(source: &mut Live, frames: usize) -> Vec<Seen> {
    let (mut seen, started) = (Vec::new(), Instant::now());
    while seen.len() < frames {
        assert!(take(source, &mut seen), "a source that was not stopped does not end");
        assert!(started.elapsed() < BOUND, "{} of {frames} frames came", seen.len());
    }
    seen
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes()[..], payload].concat()
}

/// A UDP packet, or a later fragment of one.
fn ipv4([source, destination]: [[u8; 4]; 2], number: u16, later_fragment: bool) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 48];
    packet.extend(number.to_be_bytes());
    packet.extend(if later_fragment { [0x00, 0xb9] } else { [0x20, 0] });
    packet.extend([64, 17, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(number.to_be_bytes());
    packet.extend([0, 53, 0, 28]);
    packet.resize(48, 0);
    packet
}

fn numbered(number: u32, octets: usize) -> Vec<u8> {
    let mut frame = ethernet(0x88b5, &number.to_be_bytes());
    frame.resize(octets, number as u8);
    frame
}

/// Ethernet frames of the captures in the repository, unchanged.
fn captured() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().is_some_and(|path| path.contains(".pcap") && !path.ends_with(".json")));
    paths.sort();
    let mut frames = Vec::new();
    for path in paths {
        let mut source = weir_capture::open(&path).unwrap();
        while let Some(burst) = source.burst().unwrap() {
            let ethernet = burst.iter().filter(|frame| frame.link_type == 1 && frame.bytes.len() > 14);
            frames.extend(ethernet.map(|frame| frame.bytes.to_vec()));
        }
    }
    assert!(frames.len() > 2000, "{} frames", frames.len());
    frames
}

#[test]
fn every_frame_is_delivered_unchanged_in_order_with_its_vlan_tags() {
    let Some(mut sender) = wire() else { return };
    let frames = captured();
    let tagged = |frame: &&Vec<u8>| frame[12..14] == [0x81, 0x00] || frame[12..14] == [0x88, 0xa8];
    assert!(frames.iter().filter(tagged).count() > 20, "there are tags to be put back");
    let mut source = open_one("af_packet:right");
    let before_ns = source.now_ns();
    frames.iter().for_each(|frame| sender.send(frame));
    let seen = rest(&mut source);
    assert_eq!(seen.len(), frames.len());
    for (seen, frame) in seen.iter().zip(&frames) {
        assert_eq!((&seen.bytes, seen.wire_bytes, seen.link_type), (frame, frame.len() as u32, 1));
    }
    assert!(seen.is_sorted_by_key(|seen| seen.time_ns) && seen[0].time_ns > before_ns);
    assert_eq!(source.query_losses(), Losses::default());
}

#[test]
fn sent_and_received_frames_are_captured() {
    let Some(mut left) = wire() else { return };
    let frames = captured();
    let mut source = open_one("af_packet:left");
    let mut right = Sender::new(RIGHT);
    for frame in &frames[..500] {
        left.send(frame);
        right.send(frame);
    }
    let seen = rest(&mut source);
    let twice: Vec<_> = frames[..500].iter().flat_map(|frame| [frame, frame]).collect();
    assert_eq!(seen.iter().map(|seen| &seen.bytes).collect::<Vec<_>>(), twice);
}

#[test]
fn directions_fragments_and_tagged_frames_of_two_addresses_reach_one_queue() {
    let Some(mut sender) = wire() else { return };
    let mut queues = open("af_packet:right,queues=4,blocks=16");
    assert_eq!(queues.len(), 4);
    let mut sent = 0;
    let ends = |pair: u8| [[10, 0, 0, pair], [192, 0, 2, 200 - pair]];
    for number in 0..3 {
        for pair in 0..64 {
            for way in [ends(pair), [ends(pair)[1], ends(pair)[0]]] {
                let packet = ipv4(way, number, number == 2);
                for (ethertype, before) in [
                    (0x0800, &[][..]),
                    (0x8100, &[0, 7, 8, 0]),
                    (0x88a8, &[0, 9, 0x81, 0, 0, 7, 8, 0]),
                    (0x8847, &[0, 1, 0, 64, 0, 1, 1, 64]),
                    (0x8100, &[0, 7, 0x88, 0x64, 0x11, 0, 0, 1, 0, 50, 0, 0x21]),
                ] {
                    sender.send(&ethernet(ethertype, &[before, &packet].concat()));
                    sent += 1;
                }
            }
        }
        sender.send(&numbered(number.into(), 60));
        sent += 1;
    }
    let mut homes: BTreeMap<u8, BTreeSet<usize>> = BTreeMap::new();
    let (mut handed, mut without_ip) = ([0; 4], [0; 4]);
    for (number, queue) in queues.iter_mut().enumerate() {
        for seen in rest(queue) {
            handed[number] += 1;
            match seen.bytes.windows(4).find(|octets| octets[..3] == [10, 0, 0]) {
                Some(host) => {
                    homes.entry(host[3]).or_default().insert(number);
                }
                None => without_ip[number] += 1,
            }
        }
        assert_eq!(queue.query_losses(), Losses::default());
    }
    assert_eq!(handed.iter().sum::<usize>(), sent);
    assert_eq!(homes.len(), 64);
    assert!(homes.values().all(|queues| queues.len() == 1), "{homes:?}");
    assert!(handed.iter().all(|&frames| frames > 0), "all queues have something: {handed:?}");
    assert_eq!(without_ip, [3, 0, 0, 0]);
    // The other way round the kernel shows frames from another place on: what is sent goes where
    // what is received goes.
    drop(queues);
    let mut queues = open("af_packet:left,queues=4,blocks=16");
    let mut other_way = Sender::new(RIGHT);
    for pair in 0..64 {
        sender.send(&ethernet(0x0800, &ipv4(ends(pair), 1, false)));
        other_way.send(&ethernet(0x0800, &ipv4(ends(pair), 2, true)));
    }
    for queue in &mut queues {
        let mut frames: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        rest(queue).iter().for_each(|seen| *frames.entry(seen.bytes[26..34].to_vec()).or_default() += 1);
        assert!(frames.values().all(|&frames| frames == 2), "{frames:?}");
    }
}

#[test]
fn packets_dropped_by_a_full_ring_are_counted_exactly() {
    let Some(mut sender) = wire() else { return };
    const SENT: u64 = 20_000;
    for queues in [1, 4] {
        let mut sources = open(&format!("af_packet:right,queues={queues},block=4KiB,blocks=4"));
        for number in 0..SENT {
            let ends = [[10, 0, (number % 7) as u8, 1], [10, 1, 0, number as u8]];
            sender.send(&ethernet(0x0800, &ipv4(ends, number as u16, false)));
            if number % 1000 == 999 {
                // A reader that is much too slow. The frames that it receives are correct.
                for source in &mut sources {
                    let now_ns = source.now_ns();
                    let mut seen = Vec::new();
                    assert!(take(source, &mut seen));
                    assert!(seen.iter().all(|seen| seen.time_ns >= now_ns), "time goes ahead of frames to come");
                    assert!(seen.iter().all(|seen| seen.bytes.len() == 62 && seen.wire_bytes == 62));
                }
            }
        }
        let mut account = [0, 0];
        for source in &mut sources {
            let before = source.query_losses().kernel;
            rest(source);
            assert!(source.query_losses().kernel >= before, "losses are reported since the beginning");
            account[0] += source.progress().done_bytes / 62;
            account[1] += source.query_losses().kernel;
            assert_eq!([source.query_losses().nic, source.query_losses().queue], [0, 0]);
        }
        assert!(account[1] > SENT / 2, "the ring was too small on purpose: {account:?}");
        assert_eq!(account[0] + account[1], SENT, "{queues} queues: delivered and dropped: {account:?}");
    }
}

#[test]
fn frames_that_arrive_during_stop_are_delivered_or_not_counted() {
    let Some(_) = wire() else { return };
    for _ in 0..20 {
        let mut source = open_one("af_packet:right,blocks=16");
        let sending = std::thread::spawn(|| {
            let mut sender = Sender::new(LEFT);
            for number in 0..3000 {
                sender.send(&numbered(number, 60));
            }
        });
        take_until(&mut source, 100);
        // The source itself fails if the kernel counted more than it delivered.
        let seen = rest(&mut source);
        let numbers: Vec<u32> =
            seen.iter().map(|seen| u32::from_be_bytes(*seen.bytes[14..].first_chunk().unwrap())).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no gap up to the end");
        sending.join().unwrap();
        assert_eq!(source.query_losses(), Losses::default());
    }
}

#[test]
fn frame_on_an_idle_link_is_delivered_without_later_frames() {
    let Some(mut sender) = wire() else { return };
    let mut source = open_one("af_packet:right");
    let mut seen = Vec::new();
    assert!(take(&mut source, &mut seen) && seen.is_empty(), "nothing came: an empty burst, not the end");
    for number in 0..5 {
        sender.send(&numbered(number, 60));
        assert_eq!(take_until(&mut source, 1)[0].bytes, numbered(number, 60));
    }
    let now_ns = source.now_ns();
    until("time goes on without frames", || source.now_ns() > now_ns);
}

#[test]
fn snap_length_and_small_blocks_cut_frames_but_keep_their_length_on_the_wire() {
    let Some(mut sender) = wire() else { return };
    let mut source = open_one("af_packet:right,snap=96");
    let tagged = |octets: usize| {
        let mut frame = ethernet(0x8100, &[0, 7, 0x88, 0xb5]);
        frame.resize(octets, 9);
        frame
    };
    sender.send(&numbered(1, 60));
    sender.send(&numbered(2, 1500));
    sender.send(&tagged(98));
    let seen = rest(&mut source);
    let expected = [(numbered(1, 60), 60), (numbered(2, 96), 1500), (tagged(96), 98)];
    assert_eq!(seen.iter().map(|seen| (seen.bytes.clone(), seen.wire_bytes)).collect::<Vec<_>>(), expected);

    let mut source = open_one("af_packet:right,block=4KiB");
    sender.send(&numbered(3, 60_000));
    let seen = rest(&mut source);
    assert_eq!(seen[0].wire_bytes, 60_000);
    let kept = seen[0].bytes.len();
    assert!((3500..4096).contains(&kept) && seen[0].bytes == numbered(3, kept), "{kept}");

    let mut source = open_one("af_packet:right");
    sender.send(&numbered(4, 60_000));
    assert_eq!(rest(&mut source)[0].bytes, numbered(4, 60_000));
}

#[test]
fn loopback_interface_delivers_each_packet_once() {
    let Some(_) = wire() else { return };
    ip("link set lo up");
    for queues in [1, 3] {
        let mut sources = open(&format!("af_packet:lo,queues={queues}"));
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..100_u8 {
            sender.send_to(&[number; 30], receiver.local_addr().unwrap()).unwrap();
        }
        let mut numbers: Vec<u8> = sources.iter_mut().flat_map(rest).map(|seen| seen.bytes[71]).collect();
        numbers.sort();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn unsegmented_packets_of_the_host_are_delivered_whole() {
    let Some(_) = wire() else { return };
    ip("link set lo mtu 1500 up");
    const SENT: usize = 1_000_000;
    let mut source = open_one("af_packet:lo");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sending = std::thread::spawn(move || client.write_all(&vec![7; SENT]).unwrap());
    assert_eq!(server.read_to_end(&mut Vec::new()).unwrap(), SENT);
    sending.join().unwrap();
    let seen = rest(&mut source);
    // The payload at each position of the stream, once per transmission.
    let mut octets: BTreeMap<u32, u32> = BTreeMap::new();
    let start = seen[0].sequence();
    for frame in &seen {
        assert_eq!(frame.bytes.len(), frame.wire_bytes as usize);
        let payload = frame.bytes.len() - 34 - usize::from(frame.bytes[46] >> 4) * 4;
        // Acknowledgments of the other side have no payload.
        if payload > 0 {
            let longest = octets.entry(frame.sequence().wrapping_sub(start)).or_default();
            *longest = (*longest).max(payload as u32);
        }
    }
    let mut end = 1;
    for (start, octets) in octets {
        assert!(start <= end, "nothing is missing before {start}");
        end = end.max(start + octets);
    }
    assert_eq!(end as usize, 1 + SENT);
    assert!(seen.iter().any(|frame| frame.wire_bytes > 3000), "there are frames longer than the MTU");
}

#[test]
fn tunnel_interface_delivers_raw_ip() {
    let Some(_) = wire() else { return };
    let Ok(mut tunnel) = std::fs::File::options().read(true).write(true).open("/dev/net/tun") else {
        eprintln!("SKIPPED: no /dev/net/tun");
        return;
    };
    // SAFETY: the request lives across the call and consists of numbers.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..4].copy_from_slice(&b"tun0".map(|octet| octet as _));
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        let made = libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&tunnel), libc::TUNSETIFF, &raw mut request);
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    }
    ip("link set tun0 up");
    let mut queues = open("af_packet:tun0,queues=2");
    let packets: Vec<_> = (0..60).map(|host| ipv4([[10, 0, 0, host], [10, 0, 1, 1]], 1, false)).collect();
    packets.iter().for_each(|packet| tunnel.write_all(packet).unwrap());
    let seen: Vec<Vec<Seen>> = queues.iter_mut().map(rest).collect();
    assert!(seen.iter().all(|queue| !queue.is_empty()));
    let mut all: Vec<_> = seen.concat();
    assert!(all.iter().all(|seen| seen.link_type == 101 && seen.wire_bytes == 48));
    all.sort_by_key(|seen| seen.bytes[15]);
    assert_eq!(all.into_iter().map(|seen| seen.bytes).collect::<Vec<_>>(), packets);
}

#[test]
fn interface_may_go_down_and_up_and_change_its_mtu_until_it_is_removed() {
    let Some(_) = wire() else { return };
    for queues in [1, 2] {
        let mut sources = open(&format!("af_packet:right,queues={queues}"));
        let mut sender = Sender::new(LEFT);
        for round in 0..3 {
            // Frames without IP arrive in the first queue.
            sender.send(&numbered(round, 100));
            assert_eq!(take_until(&mut sources[0], 1)[0].bytes, numbered(round, 100));
            ip("link set right down");
            let mut seen = Vec::new();
            for source in &mut sources {
                assert!(take(source, &mut seen) && take(source, &mut seen) && seen.is_empty());
            }
            ip(&format!("link set right mtu {}", 2000 + round));
            ip("link set right up");
            until_wired();
        }
        for number in 3..10 {
            sender.send(&numbered(number, 100));
        }
        ip("link delete right");
        for (number, source) in sources.iter_mut().enumerate() {
            let (mut seen, mut errors, started) = (Vec::new(), Vec::new(), Instant::now());
            loop {
                match source.burst() {
                    Ok(Some(burst)) => seen.extend(burst.iter().map(|frame| frame.bytes.to_vec())),
                    Ok(None) => break,
                    Err(error) => errors.push(error),
                }
                assert!(started.elapsed() < BOUND);
            }
            let expected = if number == 0 { (3..10).map(|number| numbered(number, 100)).collect() } else { vec![] };
            assert_eq!(seen, expected);
            let [Error::Live { .. }] = &errors[..] else { panic!("{errors:?}") };
            assert!(errors[0].to_string().contains("the interface was removed"), "{errors:?}");
            assert_eq!(source.query_losses(), Losses::default());
        }
        ip(&format!("link add {LEFT} type veth peer name {RIGHT}"));
        [LEFT, RIGHT].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
        until_wired();
    }
}

/// A second wire, from `left2` to `right2`.
fn second_wire() {
    ip("link add left2 mtu 65535 type veth peer name right2 mtu 65535");
    ["left2", "right2"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until("the other wire carries frames", || ip("link show dev right2").contains("state UP"));
}

/// The system's number of an interface.
fn number_of(interface: &str) -> u32 {
    ip(&format!("-o link show dev {interface}")).split(':').next().unwrap().parse().unwrap()
}

#[test]
fn tap_delivers_frames_in_time_order_with_their_interface_index() {
    let Some(left) = wire() else { return };
    second_wire();
    const FRAMES: u32 = 4000;
    let mut tap = open_one("af_packet:right+right2,block=16KiB");
    let mut senders = [left, Sender::new("left2")];
    for number in 0..FRAMES {
        senders[number as usize % 2].send(&numbered(number, 100));
    }
    let seen = rest(&mut tap);
    assert_eq!(seen.len(), FRAMES as usize);
    assert!(seen.is_sorted_by_key(|seen| seen.time_ns));
    let numbers = [number_of(RIGHT), number_of("right2")];
    assert!(seen.iter().all(|seen| seen.interface == numbers[usize::from(seen.bytes[17] % 2)]));
    let turns = seen.windows(2).filter(|two| two[0].interface != two[1].interface).count();
    assert!(turns > FRAMES as usize / 4, "{turns} turns between two interfaces that had frames in turn");
    assert_eq!(tap.query_losses(), Losses::default());
}

#[test]
fn idle_or_removed_interface_of_a_tap_delays_the_other_only_briefly() {
    let Some(mut sender) = wire() else { return };
    second_wire();
    let mut tap = open_one("af_packet:right+right2");
    sender.send(&numbered(0, 100));
    assert_eq!(take_until(&mut tap, 1)[0].bytes, numbered(0, 100));
    ip("link delete right2");
    let (mut seen, mut errors, started) = (0, 0, Instant::now());
    (1..100).for_each(|number| sender.send(&numbered(number, 100)));
    while seen < 99 || errors == 0 {
        match tap.burst() {
            Ok(burst) => seen += burst.expect("one direction is left").len(),
            Err(error) => {
                errors += u32::from(error.to_string().contains("af_packet:right2: the interface was removed"))
            }
        }
        assert!(started.elapsed() < BOUND, "{seen} frames, {errors} errors");
    }
    assert!(rest(&mut tap).is_empty());
}

#[test]
fn sources_of_one_fanout_group_share_the_traffic() {
    let Some(mut sender) = wire() else { return };
    let mut sources = open("af_packet:right,fanout=77");
    sources.extend(open("af_packet:right,fanout=77,queues=2"));
    for pair in 0..200 {
        sender.send(&ethernet(0x0800, &ipv4([[10, 0, 0, pair], [10, 1, 0, 1]], 0, false)));
        sender.send(&ethernet(0x0800, &ipv4([[10, 1, 0, 1], [10, 0, 0, pair]], 0, true)));
    }
    let seen: Vec<usize> = sources.iter_mut().map(|source| rest(source).len()).collect();
    assert_eq!(seen.iter().sum::<usize>(), 400);
    assert!(seen.iter().all(|&frames| frames > 0 && frames % 2 == 0), "{seen:?}");
    let error = refusal("af_packet:left,fanout=77");
    assert!(error.contains("fanout=77: another program"), "{error}");
}

#[test]
fn promiscuous_mode_is_on_by_default_and_ends_with_the_source() {
    let Some(_) = wire() else { return };
    assert!(!is_captured(RIGHT));
    let source = open_one("af_packet:right");
    assert!(is_captured(RIGHT));
    drop(source);
    // A process that another test has just forked may still have it open.
    until("promiscuous mode is off", || !is_captured(RIGHT));
    let _source = open_one("af_packet:right,promisc=off");
    assert!(!is_captured(RIGHT));
}

#[test]
fn sources_that_cannot_be_opened_are_refused_with_the_remedy() {
    let Some(_) = wire() else { return };
    let error = refusal("af_packet:eth9");
    assert!(error.starts_with("af_packet:eth9: there is no interface 'eth9'; there are: lo, "), "{error}");
    assert!(error.contains(LEFT) && error.contains(RIGHT), "{error}");
    assert!(refusal("af_packet:right,timestamps=hardware").contains("cannot time-stamp every frame (ethtool -T right"));
    assert!(refusal("af_packet:right,blocks=1M,block=1GiB").contains("more than is available"));
    assert!(refusal("af_packet:right,ring=3").contains("no key 'ring'"));
    ip("link set right down");
    assert!(refusal("af_packet:right").contains("ip link set dev right up"));
}

#[test]
fn missing_capability_is_named() {
    let error = std::thread::spawn(|| {
        keep_capabilities(&[]);
        refusal("af_packet:lo")
    });
    let error = error.join().unwrap();
    assert!(error.contains("capturing needs CAP_NET_RAW"), "{error}");
}
