//! Interfaces as outputs, in a network namespace: what arrives at the other end.

use std::ffi::OsString;
use std::process::Command;
use std::slice;
use std::thread;
use std::time::Duration;
use testbed::Tcpdump;
use testbed::namespace::{BOUND, LEFT, RIGHT, ip, keep_capabilities, network, network_of, until, until_wired};
use weir_capture::{Frame, Source};
use weir_egress::{Balance, Egress, EgressSpec, OutputSettings, OutputSpec, PacketOutput, check, open};
use weir_ledger::{OutputCounters, PacketTotals};
use weir_packet::{DecodeOptions, Packet, decode};
use weir_trafficgen::TrafficGenerator;

/// A time between two looks at an interface that is gone, after which the next frames lead to a look.
const RETRY: Duration = Duration::from_millis(20);

/// With this time between two looks at an interface that is gone.
fn settings(retry: Duration) -> OutputSettings {
    OutputSettings { retry, ..OutputSettings::default() }
}

fn output(name: &str) -> Box<dyn PacketOutput> {
    output_that_looks(name, BOUND)
}

fn output_that_looks(name: &str, retry: Duration) -> Box<dyn PacketOutput> {
    open(&OutputSpec::AfPacket(name.into()), &[], 1, &settings(retry)).unwrap().remove(0)
}

/// `None`, with a line, where the kernel has no AF_XDP.
fn xdp_output(name: &str) -> Option<Box<dyn PacketOutput>> {
    xdp_output_that_looks(name, BOUND)
}

fn xdp_output_that_looks(name: &str, retry: Duration) -> Option<Box<dyn PacketOutput>> {
    match open(&OutputSpec::AfXdp(name.into()), &[], 1, &settings(retry)).map_err(|error| error.to_string()) {
        Err(error) if error.contains("CONFIG_XDP_SOCKETS") => {
            eprintln!("SKIPPED: {error}");
            None
        }
        opened => Some(opened.unwrap().remove(0)),
    }
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, time_ns: 0, wire_bytes: bytes.len() as u32, link_type: 1, time_assumed: false, interface: 1 }
}

fn dropped(counters: &OutputCounters, reason: &str) -> u64 {
    counters.dropped.get(reason).map_or(0, |totals| totals.packets)
}

/// Frames of synthetic traffic.
fn traffic(specification: &str) -> Vec<Vec<u8>> {
    let mut source = TrafficGenerator::new(specification).unwrap();
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
    }
    frames
}

/// Sends frames with their decoded headers, and waits after each burst until the readers together have
/// `copies` of each frame: between the ends, and in tcpdump, there is room for some hundreds.
fn send(egress: &mut Egress, frames: &[Vec<u8>], readers: &mut [Tcpdump], copies: usize) -> PacketTotals {
    let mut handed = PacketTotals::default();
    for burst in frames.chunks(50) {
        let packets: Vec<Option<Packet>> = burst
            .iter()
            .map(|bytes| {
                let mut packet = Packet::default();
                decode(1, bytes, bytes.len() as u32, DecodeOptions::default(), &mut packet).is_ok().then_some(packet)
            })
            .collect();
        let burst: Vec<_> = burst.iter().zip(&packets).map(|(bytes, packet)| (frame(bytes), packet.as_ref())).collect();
        burst.iter().for_each(|(frame, _)| handed.add(frame.bytes.len()));
        egress.send(&burst);
        let expected = handed.packets as usize * copies;
        until("the frames arrive", || readers.iter_mut().map(Tcpdump::count).sum::<usize>() >= expected);
    }
    handed
}

fn add_wires(number: usize) {
    for wire in 0..number {
        ip(&format!("link add out{wire} mtu 65535 type veth peer name ids{wire} mtu 65535"));
        ["out", "ids"].iter().for_each(|end| drop(ip(&format!("link set {end}{wire} arp off up"))));
    }
    until("the wires carry frames", || {
        (0..number).all(|wire| ip(&format!("link show dev ids{wire}")).contains("state UP"))
    });
}

#[test]
fn far_end_reads_every_frame_unchanged_and_in_order() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(mut tcpdump) = Tcpdump::at(folder.path(), RIGHT) else { return };
    let frames = traffic("mix,packets=5000");
    let mut egress = Egress::new(vec![output(LEFT)], Balance::AddressPair, 1);
    let handed = send(&mut egress, &frames, slice::from_mut(&mut tcpdump), 1);
    egress.finish();
    let [counters] = &egress.counters()[..] else { panic!("there is one") };
    assert_eq!((counters.sent, counters.total(), counters.output.as_str()), (handed, handed, "af_packet:left"));
    let arrived = tcpdump.frames(frames.len());
    assert_eq!(arrived.len(), frames.len());
    assert!(arrived == frames, "octets or order differ");
}

#[test]
fn far_end_reads_what_af_xdp_sends() {
    if !network_of(1, 1500) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = xdp_output(LEFT) else { return };
    let Some(mut tcpdump) = Tcpdump::at(folder.path(), RIGHT) else { return };
    let frames = traffic("mix,packets=5000");
    let mut egress = Egress::new(vec![output], Balance::AddressPair, 1);
    let handed = send(&mut egress, &frames, slice::from_mut(&mut tcpdump), 1);
    let long = [1; 1515];
    egress.send(&[(frame(&long), None), (frame(&long[..13]), None)]);
    egress.finish();
    let [counters] = &egress.counters()[..] else { panic!("there is one") };
    assert_eq!((counters.sent, counters.waiting.packets, counters.output.as_str()), (handed, 0, "af_xdp:left"));
    assert_eq!(["too_long", "interface_refused"].map(|reason| dropped(counters, reason)), [1, 1]);
    assert!(tcpdump.frames(frames.len()) == frames, "octets or order differ");
}

#[test]
fn af_xdp_counts_what_an_interface_refuses_and_continues_when_it_is_back() {
    for retry in [BOUND, RETRY] {
        // A namespace of its own.
        thread::scope(|scope| scope.spawn(|| assert_af_xdp_continues(retry)).join().unwrap());
    }
}

fn assert_af_xdp_continues(retry: Duration) {
    if !network_of(1, 1500) {
        return;
    }
    let Some(mut output) = xdp_output_that_looks(LEFT, retry) else { return };
    keep_capabilities(&[]);
    let mut handed = 0;
    let mut send = |frames: usize| {
        let bytes = [7; 60];
        output.send(&vec![frame(&bytes); frames]);
        handed += frames as u64;
        let counters = output.counters();
        assert_eq!(counters.total(), PacketTotals { packets: handed, octets: 60 * handed });
        (counters.sent.packets, counters.waiting.packets, dropped(&counters, "interface_refused"))
    };
    assert_eq!(send(100), (100, 0, 0));
    // Without a link, the kernel drops each frame.
    ip("link set right down");
    assert_eq!(send(50), (100, 0, 50));
    ip("link set right up");
    until_wired();
    assert_eq!(send(10), (110, 0, 50));
    // While it is down, they wait, as far as there is room.
    ip("link set left down");
    assert_eq!(send(3000), (110, 2048, 1002));
    ip("link set left up");
    until_wired();
    // The first one finds no room, and makes the kernel send those that waited.
    assert_eq!(send(1), (110 + 2048, 0, 1003));
    ip("link delete left");
    assert_eq!(send(10), (2158, 0, 1013));
    ip("link add left mtu 1500 type veth peer name right");
    [LEFT, RIGHT].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until_wired();
    if retry == BOUND {
        // It does not look for the interface yet.
        assert_eq!(send(10), (2158, 0, 1023));
    } else {
        thread::sleep(retry);
        assert_eq!(send(100), (2258, 0, 1013));
    }
    output.finish();
}

#[test]
fn af_xdp_needs_a_queue_for_each_pipeline() {
    if !network_of(2, 1500) || xdp_output(LEFT).is_none() {
        return;
    }
    let opened = |pipelines| {
        open(&OutputSpec::AfXdp(LEFT.into()), &[], pipelines, &OutputSettings::default()).map(|outputs| outputs.len())
    };
    assert_eq!(opened(2).unwrap(), 2);
    let error = opened(3).unwrap_err().to_string();
    assert!(
        error.starts_with("af_xdp:left: 3 pipelines need 3 queues, and the interface has 2; use af_packet:left"),
        "{error}"
    );
    keep_capabilities(&[]);
    let error = opened(1).unwrap_err().to_string();
    assert!(error.contains("not permitted"), "{error}");
}

#[test]
fn address_pairs_with_their_fragments_stay_at_one_consumer() {
    if !network() {
        return;
    }
    add_wires(3);
    let folder = tempfile::tempdir().unwrap();
    let dumps: Option<Vec<_>> = (0..3).map(|wire| Tcpdump::at(folder.path(), &format!("ids{wire}"))).collect();
    let Some(mut dumps) = dumps else { return };
    let mut frames = traffic("mix,packets=6000");
    frames.extend((0..600_u32).map(fragment));
    let outputs = (0..3).map(|wire| output(&format!("out{wire}"))).collect();
    let mut egress = Egress::new(outputs, Balance::AddressPair, 42);
    let handed = send(&mut egress, &frames, &mut dumps, 1);
    let counters = egress.counters();
    let mut sum = OutputCounters::default();
    counters.iter().for_each(|counters| sum.merge(counters));
    assert_eq!((sum.sent, sum.total()), (handed, handed));
    let mut consumer_of = std::collections::HashMap::new();
    let mut arrived = 0;
    for (consumer, (dump, counters)) in dumps.into_iter().zip(&counters).enumerate() {
        let frames = dump.frames(counters.sent.packets as usize);
        assert_eq!(frames.len() as u64, counters.sent.packets);
        assert!(frames.len() > 100, "consumer {consumer} has {}", frames.len());
        arrived += frames.len();
        for bytes in frames {
            let mut packet = Packet::default();
            if decode(1, &bytes, bytes.len() as u32, DecodeOptions::default(), &mut packet).is_ok() {
                let mut pair = [packet.source, packet.destination];
                pair.sort();
                assert_eq!(*consumer_of.entry(pair).or_insert(consumer), consumer, "{pair:?}");
            }
        }
    }
    assert_eq!(arrived, frames.len());
    assert!(consumer_of.len() > 100);
}

/// Later, first and last fragments of datagrams between 100 pairs of hosts, in both directions.
fn fragment(number: u32) -> Vec<u8> {
    let [pair, part] = [number % 100, number / 100];
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    // More fragments in the upper bits, then the offset.
    let offset: u16 = [0x2000, 0x2005, 0x000a][part as usize % 3];
    frame.extend([0x45, 0, 0, 60, 0, number as u8]);
    frame.extend(offset.to_be_bytes());
    frame.extend([64, 17, 0, 0]);
    let ends = [[10, 77, 0, pair as u8], [192, 0, 2, 7]];
    let ends = if part < 3 { ends } else { [ends[1], ends[0]] };
    frame.extend(ends.concat());
    frame.extend([number as u8; 40]);
    frame
}

#[test]
fn mirror_gives_every_frame_to_every_output() {
    if !network() {
        return;
    }
    add_wires(2);
    let folder = tempfile::tempdir().unwrap();
    let dumps: Option<Vec<_>> = (0..2).map(|wire| Tcpdump::at(folder.path(), &format!("ids{wire}"))).collect();
    let Some(mut dumps) = dumps else { return };
    let frames = traffic("mix,packets=2000");
    let mut egress = Egress::new(vec![output("out0"), output("out1")], Balance::Mirror, 1);
    send(&mut egress, &frames, &mut dumps, 2);
    for dump in dumps {
        assert!(dump.frames(frames.len()) == frames);
    }
}

#[test]
fn frames_that_cannot_be_sent_are_counted_and_the_others_leave() {
    if !network_of(1, 1500) {
        return;
    }
    let mut output = output(LEFT);
    let (long, fits) = ([1; 1515], [2; 1514]);
    let ip = Frame { link_type: 101, ..frame(&[0x45; 60]) };
    let tagged = [&[2; 12][..], &[0x81, 0, 0, 7], &[2; 1502]].concat();
    output.send(&[frame(&fits), frame(&long), frame(&[3; 60]), ip, frame(&[4; 13]), frame(&long), frame(&tagged)]);
    let counters = output.counters();
    let reasons = ["too_long", "link_type", "interface_refused"].map(|reason| dropped(&counters, reason));
    assert_eq!((counters.sent, reasons), (PacketTotals { packets: 3, octets: 1514 + 60 + 1518 }, [2, 1, 1]));
    assert_eq!(counters.total().packets, 7);
}

#[test]
fn interface_that_is_down_or_removed_refuses_until_it_is_back() {
    if !network() {
        return;
    }
    // The second one does not look for the interface again during the test.
    let mut outputs = [output_that_looks(LEFT, RETRY), output_that_looks(LEFT, BOUND)];
    // As after the start of a probe.
    keep_capabilities(&[]);
    let mut send = |output: usize, frames: u64| {
        let output = &mut outputs[output];
        let before = output.counters();
        let bytes = [7; 60];
        output.send(&vec![frame(&bytes); frames as usize]);
        let after = output.counters();
        assert_eq!(after.total().packets - before.total().packets, frames);
        (
            after.sent.packets - before.sent.packets,
            dropped(&after, "interface_refused") - dropped(&before, "interface_refused"),
        )
    };
    assert_eq!([0, 1].map(|output| send(output, 100)), [(100, 0); 2]);
    ip("link set left down");
    assert_eq!([0, 1].map(|output| send(output, 100)), [(0, 100); 2]);
    assert_eq!(send(0, 10), (0, 10));
    ip("link set left up");
    until_wired();
    assert_eq!([0, 1].map(|output| send(output, 100)), [(100, 0); 2]);
    ip("link delete left");
    assert_eq!([0, 1].map(|output| send(output, 100)), [(0, 100); 2]);
    ip("link add left type veth peer name right");
    [LEFT, RIGHT].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until_wired();
    // It looks for the interface now and then.
    thread::sleep(RETRY);
    assert_eq!([0, 1].map(|output| send(output, 100)), [(100, 0), (0, 100)]);
    // An interface of another kind takes its name.
    ip("link delete left");
    assert_eq!(send(0, 1), (0, 1));
    ip("tuntap add dev left mode tun");
    ip("link set left up");
    thread::sleep(RETRY);
    assert_eq!(send(0, 5), (0, 5));
}

#[test]
fn output_through_a_monitored_interface_is_refused() {
    if !network() {
        return;
    }
    // A MACVLAN is linked to its parent as a VLAN is.
    for link in ["link left name above type macvlan", "name bridge type bridge"] {
        if !Command::new("ip").args(["link", "add"]).args(link.split(' ')).status().unwrap().success() {
            eprintln!("SKIPPED: this kernel has no MACVLAN, or no bridge");
            return;
        }
    }
    ip("link add port type veth peer name plug");
    ip("link set port master bridge");
    let refused = |output: &str, source: &str| {
        let outputs = vec![output.parse().unwrap()];
        let egress = EgressSpec { outputs, balance: Balance::AddressPair };
        check(&[egress], &[OsString::from(source).into()]).map_err(|error| error.to_string())
    };
    for (output, source, interface) in [
        ("af_packet:left", "af_packet:left,queues=2", "left"),
        ("af_packet:left", "af_xdp:port+left", "left"),
        ("af_packet:above", "af_packet:left", "left"),
        ("af_packet:bridge", "af_packet:port", "port"),
        ("af_packet:left", "af_packet:right", "right"),
    ] {
        let error = refused(output, source).unwrap_err();
        let expected =
            format!("{output}: this is a loop: its packets leave through {interface}, which {source} monitors, ");
        assert!(error.starts_with(&expected), "{error}");
    }
    for (output, source) in [("af_packet:port", "af_packet:left"), ("af_packet:left", "left.pcap")] {
        assert_eq!(refused(output, source), Ok(()));
    }
}

#[test]
fn interfaces_that_cannot_be_opened_are_refused_with_what_to_do() {
    if !network() {
        return;
    }
    ip("tuntap add dev tun0 mode tun");
    ip("link set tun0 up");
    let error = |name: &str| {
        open(&OutputSpec::AfPacket(name.into()), &[], 1, &OutputSettings::default()).err().unwrap().to_string()
    };
    let none = error("none");
    assert!(none.starts_with("af_packet:none: there is no interface 'none'; there are: "), "{none}");
    assert!(error("lo").contains("the interface is down; as root: ip link set dev lo up"), "{}", error("lo"));
    assert!(error("tun0").contains("it is not Ethernet"), "{}", error("tun0"));
    keep_capabilities(&[]);
    assert!(error(LEFT).contains("not permitted: sending packets needs CAP_NET_RAW"), "{}", error(LEFT));
}
