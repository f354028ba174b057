//! Losses before and behind the capture point, and reordering: `weir tcp` tells them apart.
//!
//! Two hosts with the TCP of the kernel exchange data over a network that the test makes. It knows
//! what it lost and what it delayed before the capture point. The times in the capture are not those
//! of the machine, so that a busy machine has the same results.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use testbed::host::Host;
use testbed::namespace::BOUND;
use testbed::{Pcap, START, SavedCapture, success, tcp};

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A segment of the server, or of the client, with these IP identification, sequence number and
/// payload.
fn segment(from_server: bool, control: u8, identification: u16, sequence: u32, payload: usize) -> Vec<u8> {
    let (client, server) = (([192, 0, 2, 10], 40_000), ([198, 51, 100, 20], 80));
    let (from, to) = if from_server { (server, client) } else { (client, server) };
    let mut frame = tcp(from, to, control, payload);
    frame[18..20].copy_from_slice(&identification.to_be_bytes());
    frame[38..42].copy_from_slice(&sequence.to_be_bytes());
    frame[42..46].copy_from_slice(&if from_server { 1_u32 } else { 1001 }.to_be_bytes());
    frame
}

/// The classes of the segments with payload, in the order of the capture, each with the IP
/// identification. The batch engine has the same result.
fn classes(capture: &SavedCapture) -> Vec<(u16, String)> {
    let out = success(["tcp", capture.name(), "--explain", "#1"]);
    assert!(out.ends_with("\nthe batch engine reports the same\n"), "{out}");
    let class = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("0x"))?;
        let identification = u16::from_str_radix(&words[at][2..], 16).unwrap();
        let name = words[at + 2..].join(" ");
        (words[at - 1] != "0").then(|| (identification, name.split(':').next().unwrap().into()))
    };
    out.lines().filter_map(class).collect()
}

#[test]
fn a_newer_identification_decides_although_the_hole_is_younger_than_the_round_trip() {
    for (filling, expected) in [(44, "unseen retransmission"), (41, "out of order")] {
        for age_us in [300, 19_000, 22_000, 150_000] {
            let capture = Pcap::new()
                .frame(START, 0, &segment(false, SYN, 1, 0, 0))
                .frame(START, 20_000, &segment(true, SYN | ACK, 0, 1000, 0))
                .frame(START, 21_000, &segment(false, ACK, 2, 1, 0))
                .frame(START, 22_000, &segment(true, ACK, 40, 1001, 100))
                .frame(START, 30_000, &segment(true, ACK, 42, 1201, 100))
                .frame(START, 30_100, &segment(true, ACK, 43, 1301, 100))
                .frame(START, 30_000 + age_us, &segment(true, ACK, filling, 1101, 100))
                .saved();
            let found: Vec<String> = classes(&capture).into_iter().map(|(_, class)| class).collect();
            assert_eq!(found, ["in order", "in order", "in order", expected], "{age_us} us");
        }
    }
}

/// Octets that each side sends.
const OCTETS: usize = 400_000;
const MTU: u32 = 576;

#[test]
fn losses_before_the_capture_point_and_reordering_are_told_apart() {
    // Identification 0 is no identification: a transfer whose counter passes it is repeated.
    let captured = loop {
        let Some(network) = transfer() else { return };
        if network.captured.iter().all(|segment| segment.range.is_empty() || segment.identification != 0) {
            break network.captured;
        }
    };
    let expected: Vec<(u16, &str)> = expected_classes(&captured);
    let mut counts = BTreeMap::new();
    expected.iter().for_each(|(_, class)| *counts.entry(*class).or_insert(0) += 1);
    println!("{counts:?}");
    for class in ["unseen retransmission", "out of order", "retransmission"] {
        assert!(counts[class] >= 20, "{counts:?}");
    }
    // The round trip of the handshake is longer than any hole is old, and shorter than most are.
    for handshake_us in [500_000, 10] {
        let found = classes(&saved(&captured, handshake_us));
        assert_eq!(found.len(), expected.len());
        let wrong: Vec<_> = found.iter().zip(&expected).filter(|((_, found), (_, class))| found != class).collect();
        assert!(wrong.is_empty(), "{} of {counts:?}: {wrong:?}", wrong.len());
    }
}

/// A segment that was captured.
struct Captured {
    from_server: bool,
    packet: Vec<u8>,
    identification: u16,
    /// Octets of the stream of its side, from 0.
    range: Range<usize>,
    /// An earlier transmission of some of these octets came to the network.
    was_sent_before: bool,
}

/// The class of each segment with payload, by what was sent and captured before.
fn expected_classes(captured: &[Captured]) -> Vec<(u16, &'static str)> {
    let mut seen = [vec![false; OCTETS], vec![false; OCTETS]];
    let mut next = [0; 2];
    let mut classes = Vec::new();
    for segment in captured.iter().filter(|segment| !segment.range.is_empty()) {
        let side = usize::from(segment.from_server);
        let octets = &mut seen[side][segment.range.clone()];
        let class = match octets.contains(&true) {
            true => "retransmission",
            false if segment.range.start >= next[side] => "in order",
            false if segment.was_sent_before => "unseen retransmission",
            false => "out of order",
        };
        octets.fill(true);
        next[side] = next[side].max(segment.range.end);
        classes.push((segment.identification, class));
    }
    classes
}

/// A capture in which a packet comes every 10 us after the handshake, whose steps take half of
/// `handshake_us` each.
fn saved(captured: &[Captured], handshake_us: u32) -> SavedCapture {
    let mut pcap = Pcap::new();
    for (number, segment) in (0..).zip(captured) {
        let time_us = number.min(2) * handshake_us / 2 + u32::saturating_sub(number, 2) * 10;
        let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], &segment.packet[..]].concat();
        pcap = pcap.frame(START + time_us / 1_000_000, time_us % 1_000_000, &frame);
    }
    pcap.saved()
}

/// The network between both hosts. Only segments with payload are lost or delayed.
#[derive(Default)]
struct Network {
    /// Of the client and of the server.
    sides: [Side; 2],
    captured: Vec<Captured>,
}

/// What a side has sent.
#[derive(Default)]
struct Side {
    initial_sequence: u32,
    sent: Vec<bool>,
    /// Segments with payload so far: at the network, and behind the capture point.
    before: usize,
    behind: usize,
    /// Segments that wait before the capture point, and the number of others that overtake each.
    delayed: Vec<(usize, Captured)>,
}

/// Whether the `number`th of `each` segments has its turn. Numbers of losses and delays have no
/// common divisor, so that they meet in every way.
fn is_turn(number: usize, each: usize) -> bool {
    number % each == each / 2
}

impl Network {
    /// Takes a packet of a host. Returns those that go on to the other one.
    fn take(&mut self, from_server: bool, packet: Vec<u8>) -> Vec<Vec<u8>> {
        let side = &mut self.sides[usize::from(from_server)];
        let Some(segment) = side.read(from_server, packet) else { return Vec::new() };
        if segment.range.is_empty() {
            return Vec::from_iter(self.capture(segment));
        }
        side.before += 1;
        if is_turn(side.before, 37) {
            return Vec::new();
        }
        if is_turn(side.before, 23) {
            side.delayed.push((1 + side.before % 5, segment));
            return Vec::new();
        }
        side.delayed.iter_mut().for_each(|(others, _)| *others -= 1);
        let mut passed = vec![segment];
        passed.extend(side.delayed.extract_if(.., |(others, _)| *others == 0).map(|(_, segment)| segment));
        passed.into_iter().filter_map(|segment| self.capture(segment)).collect()
    }

    /// Captures a segment. Returns its packet unless it is lost behind the capture point.
    fn capture(&mut self, segment: Captured) -> Option<Vec<u8>> {
        let side = &mut self.sides[usize::from(segment.from_server)];
        side.behind += usize::from(!segment.range.is_empty());
        let is_lost = !segment.range.is_empty() && is_turn(side.behind, 41);
        let packet = segment.packet.clone();
        self.captured.push(segment);
        (!is_lost).then_some(packet)
    }

    /// Nothing comes any more: takes the delayed segments.
    fn take_delayed(&mut self, from_server: bool) -> Vec<Vec<u8>> {
        let delayed = std::mem::take(&mut self.sides[usize::from(from_server)].delayed);
        delayed.into_iter().filter_map(|(_, segment)| self.capture(segment)).collect()
    }
}

impl Side {
    /// Reads a packet; `None` if it is not TCP over IPv4.
    fn read(&mut self, from_server: bool, packet: Vec<u8>) -> Option<Captured> {
        if packet.len() < 40 || packet[0] != 0x45 || packet[9] != 6 {
            return None;
        }
        let identification = u16::from_be_bytes([packet[4], packet[5]]);
        let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        if packet[33] & SYN != 0 {
            (self.initial_sequence, self.sent) = (sequence, vec![false; OCTETS]);
        }
        let start = sequence.wrapping_sub(self.initial_sequence).wrapping_sub(1) as usize;
        let payload = packet.len() - 20 - usize::from(packet[32] >> 4) * 4;
        let range = if payload > 0 { start..start + payload } else { 0..0 };
        let sent = &mut self.sent[range.clone()];
        let was_sent_before = sent.contains(&true);
        sent.fill(true);
        Some(Captured { from_server, packet, identification, range, was_sent_before })
    }
}

/// Both hosts send and receive at once. `None` where that is not permitted.
fn transfer() -> Option<Network> {
    let (bound, is_bound) = channel();
    let server = Host::start("192.0.2.2/24", MTU, move || {
        let listener = TcpListener::bind("192.0.2.2:7").unwrap();
        bound.send(()).unwrap();
        exchange(listener.accept().unwrap().0);
    })?;
    is_bound.recv().unwrap();
    let client = Host::start("192.0.2.1/24", MTU, || exchange(TcpStream::connect("192.0.2.2:7").unwrap()))?;
    let mut network = Network::default();
    let (started, mut last) = (Instant::now(), Instant::now());
    let mut buffer = vec![0; 1 << 16];
    while !(client.is_finished() && server.is_finished()) {
        assert!(started.elapsed() < 3 * BOUND, "the transfer ends");
        let mut is_idle = true;
        for from_server in [false, true] {
            let (mut own, other) =
                if from_server { (&server.packets, &client.packets) } else { (&client.packets, &server.packets) };
            match own.read(&mut buffer) {
                Ok(length) => {
                    network
                        .take(from_server, buffer[..length].to_vec())
                        .iter()
                        .for_each(|packet| deliver(other, packet));
                    (is_idle, last) = (false, Instant::now());
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            if last.elapsed() > Duration::from_millis(5) {
                network.take_delayed(from_server).iter().for_each(|packet| deliver(other, packet));
            }
        }
        if is_idle {
            let mut hosts = [&client.packets, &server.packets].map(|packets| PollFd::new(packets, PollFlags::IN));
            poll(&mut hosts, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
        }
    }
    client.join();
    server.join();
    Some(network)
}

fn deliver(mut host: &File, packet: &[u8]) {
    host.write_all(packet).unwrap();
}

/// Sends and receives all octets.
fn exchange(stream: TcpStream) {
    let mut sender = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        sender.write_all(&vec![7; OCTETS]).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), OCTETS);
    sending.join().unwrap();
}
