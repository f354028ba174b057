//! Whatever comes, and however it is cut: the same as of a plain map of [`weir_tcp::Reference`].

#[path = "../../../tcp/tests/history/mod.rs"]
mod history;
mod shim;

use crate::conversation::ConnectionRecord;
use crate::engine::{Backend, Engine, EngineCounters, EngineOptions};
use crate::golden;
use crate::key::Secret;
use crate::lane::Lane;
use crate::record::Facts;
use history::{Step, packets, step};
use proptest::prelude::*;
use shim::Shim;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use weir_packet::{Flags, Network, Packet, ip_address};
use weir_tcp::{Degradation, Reference, Segment};

/// What the engine is: a map of connections, and those that were followed by another one.
#[derive(Default)]
struct Model {
    known: BTreeMap<[SocketAddr; 2], (Reference, ConnectionRecord)>,
    done: Vec<ConnectionRecord>,
}

impl Model {
    fn enter(&mut self, packet: &Packet) {
        let end = |octets, port| {
            let ip: IpAddr = ip_address(packet.network, octets).expect("it has IP addresses");
            SocketAddr::new(ip, port)
        };
        let source = end(packet.source, packet.source_port);
        let destination = end(packet.destination, packet.destination_port);
        let endpoints = [source.min(destination), source.max(destination)];
        let side = usize::from(source > destination);
        let opens = packet.control & (Packet::SYN | Packet::ACK | Packet::RST) == Packet::SYN;
        if opens && packet.flags.has(Flags::TCP) {
            let ended = |(reference, _): &(Reference, ConnectionRecord)| {
                let [low, high] = [0, 1].map(|side| reference.report(side));
                let resets = |report: &weir_tcp::TcpReport| report.count(weir_tcp::SegmentClass::Reset).segments;
                low.fins > 0 && high.fins > 0 || resets(&low) + resets(&high) > 0
            };
            if self.known.get(&endpoints).is_some_and(ended) {
                let ended = self.known.remove(&endpoints).expect("it is there");
                self.done.push(finished(ended));
            }
        }
        let (reference, conversation) = self.known.entry(endpoints).or_insert_with(|| {
            let conversation = ConnectionRecord {
                endpoints,
                first_ns: u64::MAX,
                last_ns: 0,
                packets: [0; 2],
                reports: Default::default(),
            };
            (Reference::default(), conversation)
        });
        reference.enter(side, packet);
        conversation.packets[side] += 1;
        conversation.first_ns = conversation.first_ns.min(packet.time_ns);
        conversation.last_ns = conversation.last_ns.max(packet.time_ns);
    }

    fn finish(mut self) -> Vec<ConnectionRecord> {
        self.done.extend(self.known.into_values().map(finished));
        sorted(self.done)
    }
}

fn finished((reference, conversation): (Reference, ConnectionRecord)) -> ConnectionRecord {
    ConnectionRecord { reports: [0, 1].map(|side| reference.report(side).into()), ..conversation }
}

fn sorted(mut conversations: Vec<ConnectionRecord>) -> Vec<ConnectionRecord> {
    conversations.sort_by_cached_key(|one| (one.endpoints, one.first_ns, one.last_ns, format!("{one:?}")));
    conversations
}

fn through(mut lane: Lane, packets: &[Packet]) -> (Lane, Vec<ConnectionRecord>) {
    let mut done = Vec::new();
    packets.iter().for_each(|packet| lane.enter(packet, &mut done));
    lane.finish(&mut done);
    (lane, sorted(done))
}

/// Some connections between few endpoints, their packets mixed in a random order.
fn traffic() -> impl Strategy<Value = Vec<Packet>> {
    let steps =
        prop_oneof![12 => 1..60_usize, 1 => 60..300_usize].prop_flat_map(|steps| prop::collection::vec(step(), steps));
    let one = (any::<[u32; 2]>(), any::<bool>(), 0..3_u8, 0..3_u16, steps);
    (prop::collection::vec(one, 1..7), any::<bool>(), any::<[u8; 32]>()).prop_map(|(all, calm, order)| {
        let mut queues = all
            .into_iter()
            .map(|(base, swap, host, port, mut steps)| {
                // Times that leave a batch, or only such that a batch holds.
                steps.iter_mut().filter(|_| calm).for_each(|step: &mut Step| step.after_ns %= 6_000_000);
                let history = packets(base, &steps);
                history
                    .into_iter()
                    .map(move |(side, packet, ..)| between(packet, side ^ usize::from(swap), host, port))
                    .collect::<Vec<_>>()
                    .into_iter()
            })
            .collect::<Vec<_>>();
        let mut mixed = Vec::new();
        let mut turns = order.iter().cycle();
        while !queues.is_empty() {
            let turn = usize::from(*turns.next().expect("it comes around"));
            let at = turn % queues.len();
            mixed.extend(queues[at].by_ref().take(1 + turn / 32));
            queues.retain(|queue| queue.len() > 0);
        }
        mixed
    })
}

/// The packet, sent by one of two endpoints. Host 2 talks to itself.
fn between(packet: Packet, side: usize, host: u8, port: u16) -> Packet {
    let one = (weir_packet::ipv4_mapped([10, 0, 0, host]), 1000 + port);
    let other = (weir_packet::ipv4_mapped([10, 0, 0, 2]), 1001);
    let ((source, source_port), (destination, destination_port)) = if side == 0 { (one, other) } else { (other, one) };
    let flags = Flags(packet.flags.0 | Flags::PORTS);
    Packet { source, destination, source_port, destination_port, flags, ..packet }
}

fn model(packets: &[Packet]) -> Vec<ConnectionRecord> {
    let mut model = Model::default();
    packets.iter().for_each(|packet| model.enter(packet));
    model.finish()
}

/// So many records in a batch.
fn limit() -> impl Strategy<Value = usize> {
    prop_oneof![2..8_usize, 8..64_usize, Just(100_000)]
}

/// Keys that spread, or all of IPv4 with one hash.
fn secret() -> impl Strategy<Value = Secret> {
    prop_oneof![4 => any::<[u64; 4]>(), 1 => Just([0; 4])].prop_map(Secret)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_processor_says_what_the_reference_says(packets in traffic(), limit in limit(), secret in secret()) {
        prop_assert_eq!(through(Lane::new(secret, limit), &packets).1, model(&packets));
    }

    #[test]
    fn a_record_gives_back_the_segment(packets in traffic()) {
        let secret = weir_tcp::DigestKey::of_this_process();
        for packet in packets {
            let base_ns = packet.time_ns - 12_345;
            let (facts, second) = Facts::of(&packet, base_ns, &secret);
            let mut expected = Segment::from_packet(&packet, &secret);
            if let Some(segment) = &mut expected
                && second.is_none()
                && segment.payload_bytes > 0
            {
                segment.window = segment.window.min(1);
            }
            prop_assert_eq!(facts.segment(second.as_ref(), base_ns), expected);
            prop_assert_eq!(facts.has_second(), second.is_some());
            prop_assert_eq!(facts.time_ns(base_ns), packet.time_ns);
        }
    }

    #[test]
    fn the_kernels_leave_what_the_processor_leaves(packets in traffic(), limit in limit(), secret in secret()) {
        let limit = limit.min(1000);
        let lanes = [Lane::new(secret, limit), Lane::on(Box::new(Shim::default()), secret, limit).unwrap()];
        let [processor, kernels] = lanes.map(|lane| through(lane, &packets).0.octets());
        prop_assert_eq!(processor, kernels);
    }

    #[test]
    fn the_kernels_say_what_the_reference_says(packets in traffic(), limit in limit(), secret in secret()) {
        let lane = Lane::on(Box::new(Shim::default()), secret, limit.min(1000)).unwrap();
        let (lane, found) = through(lane, &packets);
        prop_assert_eq!(found, model(&packets));
        prop_assert!(lane.failure.is_none());
    }

    #[test]
    fn a_card_that_fails_changes_nothing(packets in traffic(), limit in limit(), calls in 0..400_usize) {
        let secret = Secret::new();
        let shim = Shim::failing_after(20 + calls);
        // It may fail at once.
        let Ok(lane) = Lane::on(Box::new(shim), secret, limit.min(1000)) else { return Ok(()) };
        let (_, found) = through(lane, &packets);
        prop_assert_eq!(found, model(&packets));
    }

    #[test]
    fn devices_share_the_packets(packets in traffic(), limit in limit(), devices in 1..5_usize, fails in 0..400_usize) {
        let options = EngineOptions { backend: Backend::Cpu, batch_size: limit, max_devices: devices, ..EngineOptions::default() };
        let mut engine = Engine::open(options).unwrap();
        let mut done = Vec::new();
        engine.enter(&packets, &mut done);
        let account = engine.finish(&mut done);
        prop_assert_eq!(sorted(done), model(&packets));
        prop_assert_eq!(account.entered, packets.len() as u64);

        let secret = Secret::new();
        let lane = |number: usize| {
            let shim = if number == 0 { Shim::failing_after(30 + fails) } else { Shim::default() };
            Lane::on(Box::new(shim), secret, limit.min(500)).unwrap()
        };
        let mut engine = Engine::of(secret, (0..devices).map(lane).collect(), "shim".into(), None);
        let mut done = Vec::new();
        engine.enter(&packets, &mut done);
        engine.finish(&mut done);
        prop_assert_eq!(sorted(done), model(&packets));
    }
}

#[test]
fn a_card_is_tested_before_it_is_used() {
    golden::test(Box::new(Shim::default())).unwrap();
    // Wherever it fails, it is not taken.
    for calls in [0, 1, 20, 40, 60, 80] {
        assert!(golden::test(Box::new(Shim::failing_after(calls))).is_err(), "after {calls} calls");
    }
    // There is something of every kind in that test.
    let all = model(&golden::packets());
    for class in weir_tcp::SegmentClass::ALL {
        let count: u64 = all.iter().flat_map(|one| &one.reports).map(|kept| kept.report().count(class).segments).sum();
        assert!(count > 0, "{}", class.name());
    }
    for (bit, name) in
        [(Degradation::DUPLICATES, "duplicates"), (Degradation::UNREAD, "unread"), (Degradation::HOLES, "holes")]
    {
        assert!(all.iter().flat_map(|one| &one.reports).any(|kept| kept.report().degradation.has(bit)), "{name}");
    }
}

#[test]
fn memory_taken_again_holds_no_originals_of_another_connection() {
    let mut packets = Vec::new();
    for round in 0..3_u32 {
        let segment = |at: u32, control: u16| Packet {
            source: weir_packet::ipv4_mapped([192, 0, 2, 1]),
            destination: weir_packet::ipv4_mapped([192, 0, 2, 2]),
            time_ns: (1 << 50) + u64::from(100 * round + at) * 1000,
            protocol: 6,
            control,
            flags: Flags(Flags::PORTS | Flags::TCP),
            sequence: at * 10,
            payload_bytes: if control == Packet::ACK { 10 } else { 0 },
            identification: at + 1,
            window: 100,
            ..Packet::default()
        };
        let [syn, first] = [segment(0, Packet::SYN), segment(1, Packet::ACK)];
        let original = segment(2, Packet::ACK);
        // In the first round it is one, in the others nothing it could be a copy of was there.
        packets.extend([syn, first, first, original, segment(3, Packet::RST)]);
    }
    let expected = model(&packets);
    for limit in 2..8 {
        let lane = Lane::on(Box::new(Shim::default()), Secret::new(), limit).unwrap();
        assert_eq!(through(lane, &packets).1, expected, "batches of {limit}");
        assert_eq!(through(Lane::new(Secret::new(), limit), &packets).1, expected, "batches of {limit}");
    }
}

#[test]
fn many_connections_that_begin_at_once_find_their_places() {
    let mut packets = Vec::new();
    for round in 0..3 {
        for number in 0..4000_u32 {
            let source = weir_packet::ipv4_mapped((0x0a00_0000 + number / 8).to_be_bytes());
            let syn = Packet {
                source,
                destination: weir_packet::ipv4_mapped([192, 0, 2, 1]),
                source_port: 40_000 + number as u16 % 8,
                destination_port: 443,
                time_ns: 1 << 50,
                protocol: 6,
                control: Packet::SYN,
                flags: Flags(Flags::PORTS | Flags::TCP),
                sequence: round,
                window: 100,
                ..Packet::default()
            };
            packets.push(syn);
        }
    }
    let expected = model(&packets);
    for limit in [300, 1000, 4000, 12_002] {
        let lane = Lane::on(Box::new(Shim::default()), Secret::new(), limit).unwrap();
        assert_eq!(through(lane, &packets).1, expected, "batches of {limit}");
    }
}

#[test]
fn after_a_failure_the_processor_goes_on_and_says_so() {
    let packets = golden::packets();
    let secret = Secret::new();
    let lane = Lane::on(Box::new(Shim::failing_after(60)), secret, 1000).unwrap();
    let mut engine = Engine::of(secret, vec![lane], "shim".into(), None);
    let mut done = Vec::new();
    engine.enter(&packets, &mut done);
    assert_eq!(engine.account().note.as_deref(), Some("a card failed, the processor goes on: the card fell off"));
    let account = engine.finish(&mut done);
    assert!(account.redone > 0 && account.batches > account.redone, "{account:?}");
    assert_eq!(sorted(done), model(&packets));
}

/// With a card: it says what the reference says. Without one: auto says why, and to ask for a card is an error.
#[test]
fn a_card_if_there_is_one() {
    let options = EngineOptions { backend: Backend::Gpu, batch_size: 1000, ..EngineOptions::default() };
    match Engine::open(options) {
        Ok(mut engine) => {
            println!("on {}", engine.name());
            let packets = golden::packets();
            let mut done = Vec::new();
            engine.enter(&packets, &mut done);
            let account = engine.finish(&mut done);
            println!("redone {}: {:?}", account.redone, account.note);
            assert_eq!(sorted(done), model(&packets));
        }
        Err(error) => {
            println!("no card: {error}");
            let engine = Engine::open(EngineOptions::default()).unwrap();
            let note = engine.account().note.expect("auto says why");
            assert!(note.starts_with("no card is used: ") && !note.contains('\n'), "{note}");
            assert!(error.to_string().contains("`auto`"), "{error}");
        }
    }
}

/// What the test before says beside a driver that is none, and does everything as late as it may.
#[test]
fn the_driver_is_asked_in_the_right_order() {
    let folder = tempfile::tempdir().unwrap();
    shim::compile("src/tests/driver.cpp", &folder.path().join("libcuda.so"));
    let says = |calls: &str| {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::a_card_if_there_is_one", "--nocapture"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("WEIR_CALLS", calls)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&run.stderr));
        text
    };
    let whole = says("-1");
    assert!(whole.contains("on stand-in, stand-in") && whole.contains("redone 0: None"), "{whole}");
    // It may fail in the test before it is used, or at any time after.
    assert!(says("100").contains("no card: no card can be used: the card fell off"));
    let mut redone = 0;
    for calls in (540..860).step_by(20) {
        redone +=
            usize::from(says(&calls.to_string()).contains("a card failed, the processor goes on: the card fell off"));
    }
    assert!(redone > 2, "{redone}");
}

#[test]
fn what_is_no_part_of_a_connection_is_counted() {
    let udp = Packet { protocol: 17, flags: Flags(Flags::PORTS), ..Packet::default() };
    let frame = Packet { protocol: 255, network: Network::Layer2, flags: Flags(Flags::PORTS), ..Packet::default() };
    let fragment = Packet { protocol: 6, flags: Flags(Flags::FRAGMENT_LATER), ..Packet::default() };
    let mut engine = Engine::open(EngineOptions { backend: Backend::Cpu, ..EngineOptions::default() }).unwrap();
    let mut done = Vec::new();
    engine.enter(&[udp, frame, fragment], &mut done);
    let account = engine.finish(&mut done);
    assert_eq!(account, EngineCounters { not_tcp: 2, without_ports: 1, ..EngineCounters::default() });
    assert!(done.is_empty());
}

#[test]
fn the_kernels_are_what_was_compiled() {
    use sha1::{Digest, Sha1};
    let sources = concat!(include_str!("../../kernels/weir.cu"), include_str!("../../kernels/tcp.h"));
    let digest: String = Sha1::digest(sources).iter().map(|octet| format!("{octet:02x}")).collect();
    let first = include_str!("../../kernels/weir.ptx").lines().next().expect("it has lines");
    assert!(first.ends_with(&digest), "run scripts/cuda: the sources are {digest}, weir.ptx says: {first}");
}
