//! The engine against a map of connections with the slow reference, for random traffic, batch sizes
//! and devices.

mod simulated_device;

use crate::device::DeviceError;
use crate::engine::{Backend, Engine, EngineCounters, EngineOptions, Fallback};
use crate::key::HashKey;
use crate::packed::PackedSegment;
use crate::self_test;
use crate::shard::Shard;
use crate::table::ConnectionRecord;
use proptest::prelude::*;
use simulated_device::SimulatedDevice;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use weir_packet::{Flags, Network, Packet, ip_address};
use weir_tcp::{Degradation, Segment};
use weir_testkit::reference::TcpReference;
use weir_testkit::tcp_packets::{Step, packets, step};

/// What the engine computes: a map of connections, and those that ended and were followed by
/// another.
#[derive(Default)]
struct Model {
    known: BTreeMap<[SocketAddr; 2], (TcpReference, ConnectionRecord)>,
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
            let ended = |(reference, _): &(TcpReference, ConnectionRecord)| {
                let [low, high] = [0, 1].map(|side| reference.report(side));
                let resets = |report: &weir_tcp::TcpReport| report.count(weir_tcp::SegmentClass::Reset).segments;
                low.fins > 0 && high.fins > 0 || resets(&low) + resets(&high) > 0
            };
            if self.known.get(&endpoints).is_some_and(ended) {
                let ended = self.known.remove(&endpoints).expect("it was found");
                self.done.push(finished(ended));
            }
        }
        let (reference, record) = self.known.entry(endpoints).or_insert_with(|| {
            let record = ConnectionRecord {
                endpoints,
                first_ns: u64::MAX,
                last_ns: 0,
                packets: [0; 2],
                reports: Default::default(),
            };
            (TcpReference::default(), record)
        });
        reference.enter(side, packet);
        record.packets[side] += 1;
        record.first_ns = record.first_ns.min(packet.time_ns);
        record.last_ns = record.last_ns.max(packet.time_ns);
    }

    fn finish(mut self) -> Vec<ConnectionRecord> {
        self.done.extend(self.known.into_values().map(finished));
        sorted(self.done)
    }
}

fn finished((reference, record): (TcpReference, ConnectionRecord)) -> ConnectionRecord {
    ConnectionRecord { reports: [0, 1].map(|side| reference.report(side).into()), ..record }
}

fn sorted(mut records: Vec<ConnectionRecord>) -> Vec<ConnectionRecord> {
    records.sort_by_cached_key(|one| (one.endpoints, one.first_ns, one.last_ns, format!("{one:?}")));
    records
}

fn process(mut shard: Shard, packets: &[Packet]) -> (Shard, Vec<ConnectionRecord>) {
    let mut done = Vec::new();
    packets.iter().for_each(|packet| shard.enter(packet, &mut done));
    shard.finish(&mut done);
    (shard, sorted(done))
}

/// Packets of some connections between few endpoints, interleaved at random.
fn traffic() -> impl Strategy<Value = Vec<Packet>> {
    let steps =
        prop_oneof![12 => 1..60_usize, 1 => 60..300_usize].prop_flat_map(|steps| prop::collection::vec(step(), steps));
    let one = (any::<[u32; 2]>(), any::<bool>(), 0..3_u8, 0..3_u16, steps);
    (prop::collection::vec(one, 1..7), any::<bool>(), any::<[u8; 32]>()).prop_map(|(all, calm, order)| {
        let mut queues = all
            .into_iter()
            .map(|(base, swap, host, port, mut steps)| {
                // Calm traffic has only times that fit into one batch.
                steps.iter_mut().filter(|_| calm).for_each(|step: &mut Step| step.after_ns %= 6_000_000);
                packets(base, &steps)
                    .into_iter()
                    .map(move |tcp| between(tcp.packet, tcp.side ^ usize::from(swap), host, port))
                    .collect::<Vec<_>>()
                    .into_iter()
            })
            .collect::<Vec<_>>();
        let mut mixed = Vec::new();
        let mut numbers = order.iter().cycle();
        while !queues.is_empty() {
            let number = usize::from(*numbers.next().expect("it is endless"));
            let at = number % queues.len();
            mixed.extend(queues[at].by_ref().take(1 + number / 32));
            queues.retain(|queue| queue.len() > 0);
        }
        mixed
    })
}

/// Sets the endpoints of a packet by its side. Host 2 may be both.
fn between(packet: Packet, side: usize, host: u8, port: u16) -> Packet {
    let one = (weir_packet::ipv4_mapped([10, 0, 0, host]), 1000 + port);
    let other = (weir_packet::ipv4_mapped([10, 0, 0, 2]), 1001);
    let ((source, source_port), (destination, destination_port)) = if side == 0 { (one, other) } else { (other, one) };
    let flags = Flags(packet.flags.0 | Flags::PORTS);
    Packet { source, destination, source_port, destination_port, flags, ..packet }
}

/// The state of every connection, without the indices of its pool entries, which depend on the order
/// of the threads of a device.
fn table_bytes(shard: &Shard) -> BTreeMap<String, Vec<u8>> {
    const ANOMALY_INDEX: [usize; 2] = [28, 64 + 28];
    let entries = shard.table.entries.chunks().flatten().map(|entry| {
        let mut bytes = bytemuck::bytes_of(entry).to_vec();
        let connection = size_of_val(entry) - size_of_val(&entry.connection);
        ANOMALY_INDEX.iter().for_each(|at| bytes[connection + at..][..4].fill(0));
        (format!("{:?}", entry.key), bytes)
    });
    entries.collect()
}

fn model(packets: &[Packet]) -> Vec<ConnectionRecord> {
    let mut model = Model::default();
    packets.iter().for_each(|packet| model.enter(packet));
    model.finish()
}

/// Batch sizes.
fn batch_size() -> impl Strategy<Value = usize> {
    prop_oneof![2..8_usize, 8..64_usize, Just(100_000)]
}

/// Random hash keys, or one with which all IPv4 connections collide.
fn hash_key() -> impl Strategy<Value = HashKey> {
    prop_oneof![4 => any::<[u64; 4]>(), 1 => Just([0; 4])].prop_map(HashKey)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn cpu_agrees_with_reference(packets in traffic(), size in batch_size(), key in hash_key()) {
        prop_assert_eq!(process(Shard::on_cpu(key, size), &packets).1, model(&packets));
    }

    #[test]
    fn unpacking_returns_the_segment(packets in traffic()) {
        let key = weir_tcp::DigestKey::of_this_process();
        for packet in packets {
            let base_ns = packet.time_ns - 12_345;
            let (packed, extension) = PackedSegment::pack(&packet, base_ns, &key);
            let mut expected = Segment::from_packet(&packet, &key);
            if let Some(segment) = &mut expected
                && extension.is_none()
                && segment.payload_bytes > 0
            {
                segment.window = segment.window.min(1);
            }
            let identification = expected.map_or(0, |segment| segment.identification);
            prop_assert_eq!(packed.unpack(extension.as_ref(), identification, base_ns), expected);
            prop_assert_eq!(packed.has_extension(), extension.is_some());
            prop_assert_eq!(packed.time_ns(base_ns), packet.time_ns);
        }
    }

    #[test]
    fn kernels_leave_the_same_table_as_the_cpu(packets in traffic(), size in batch_size(), key in hash_key()) {
        let size = size.min(1000);
        let shards = [Shard::on_cpu(key, size), Shard::on_device(Box::new(SimulatedDevice::default()), key, size).unwrap()];
        let [cpu, kernels] = shards.map(|mut shard| {
            let mut done = Vec::new();
            packets.iter().for_each(|packet| shard.enter(packet, &mut done));
            shard.finish_batches(&mut done);
            table_bytes(&shard)
        });
        prop_assert_eq!(cpu.is_empty(), packets.is_empty());
        prop_assert_eq!(cpu, kernels);
    }

    #[test]
    fn kernels_agree_with_reference(packets in traffic(), size in batch_size(), key in hash_key()) {
        let shard = Shard::on_device(Box::new(SimulatedDevice::default()), key, size.min(1000)).unwrap();
        let (shard, found) = process(shard, &packets);
        prop_assert_eq!(found, model(&packets));
        prop_assert!(shard.failure.is_none());
    }

    #[test]
    fn failing_device_does_not_change_the_records(packets in traffic(), size in batch_size(), calls in 0..400_usize) {
        let device = SimulatedDevice::failing_after(20 + calls);
        // It may fail while the shard is created.
        let Ok(shard) = Shard::on_device(Box::new(device), HashKey::random(), size.min(1000)) else { return Ok(()) };
        let (_, found) = process(shard, &packets);
        prop_assert_eq!(found, model(&packets));
    }

    #[test]
    fn number_of_devices_does_not_change_the_records(packets in traffic(), size in batch_size(), devices in 1..5_usize, fails in 0..400_usize) {
        let key = HashKey::random();
        let shards = (0..devices).map(|_| Shard::on_cpu(key, size)).collect();
        let mut engine = Engine::new(key, shards, "CPU".into(), None);
        let mut done = Vec::new();
        engine.enter(&packets, &mut done);
        let counters = engine.finish(&mut done);
        prop_assert_eq!(sorted(done), model(&packets));
        prop_assert_eq!(counters.entered, packets.len() as u64);

        let shard = |number: usize| {
            let failing = SimulatedDevice::failing_after(30 + fails);
            let device = if number == 0 { failing } else { SimulatedDevice::default() };
            Shard::on_device(Box::new(device), key, size.min(500)).unwrap()
        };
        let mut engine = Engine::new(key, (0..devices).map(shard).collect(), "simulated".into(), None);
        let mut done = Vec::new();
        engine.enter(&packets, &mut done);
        engine.finish(&mut done);
        prop_assert_eq!(sorted(done), model(&packets));
    }
}

#[test]
fn self_test_rejects_a_failing_device() {
    self_test::run(Box::new(SimulatedDevice::default())).unwrap();
    for calls in [0, 1, 20, 40, 60, 80] {
        assert!(self_test::run(Box::new(SimulatedDevice::failing_after(calls))).is_err(), "after {calls} calls");
    }
    // The self-test covers every class.
    let all = model(&self_test::packets());
    for class in weir_tcp::SegmentClass::ALL {
        let count: u64 =
            all.iter().flat_map(|record| &record.reports).map(|report| report.report().count(class).segments).sum();
        assert!(count > 0, "{}", class.name());
    }
    for (bit, name) in
        [(Degradation::DUPLICATES, "duplicates"), (Degradation::UNREAD, "unread"), (Degradation::HOLES, "holes")]
    {
        assert!(
            all.iter().flat_map(|record| &record.reports).any(|report| report.report().degradation.has(bit)),
            "{name}"
        );
    }
}

#[test]
fn reused_pool_entry_has_no_history_of_another_connection() {
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
        // The second `first` is a duplicate, so the history is deep; `original` has no duplicate.
        packets.extend([syn, first, first, original, segment(3, Packet::RST)]);
    }
    let expected = model(&packets);
    for size in 2..8 {
        let shard = Shard::on_device(Box::new(SimulatedDevice::default()), HashKey::random(), size).unwrap();
        assert_eq!(process(shard, &packets).1, expected, "batches of {size}");
        assert_eq!(process(Shard::on_cpu(HashKey::random(), size), &packets).1, expected, "batches of {size}");
    }
}

#[test]
fn many_connections_start_in_one_batch() {
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
    for size in [300, 1000, 4000, 12_002] {
        let shard = Shard::on_device(Box::new(SimulatedDevice::default()), HashKey::random(), size).unwrap();
        assert_eq!(process(shard, &packets).1, expected, "batches of {size}");
    }
}

#[test]
fn after_a_failure_the_cpu_continues_and_reports_it() {
    let packets = self_test::packets();
    let key = HashKey::random();
    let shard = Shard::on_device(Box::new(SimulatedDevice::failing_after(60)), key, 1000).unwrap();
    let mut engine = Engine::new(key, vec![shard], "simulated".into(), None);
    let mut done = Vec::new();
    engine.enter(&packets, &mut done);
    let error = DeviceError::Driver("the GPU fell off the bus".into());
    assert_eq!(engine.counters().fallback, Some(Fallback::Failed(error)));
    let counters = engine.finish(&mut done);
    assert!(counters.repeated_batches > 0 && counters.batches > counters.repeated_batches, "{counters:?}");
    assert_eq!(sorted(done), model(&packets));
}

/// With a GPU it agrees with the reference. Without one `Auto` falls back, and `Gpu` fails.
#[test]
fn gpu_agrees_with_reference_if_there_is_one() {
    let options = EngineOptions { backend: Backend::Gpu, batch_size: 1000, ..EngineOptions::default() };
    match Engine::open(options) {
        Ok(mut engine) => {
            println!("on {}", engine.name());
            let packets = self_test::packets();
            let mut done = Vec::new();
            engine.enter(&packets, &mut done);
            let counters = engine.finish(&mut done);
            println!("repeated {}: {:?}", counters.repeated_batches, counters.fallback);
            assert_eq!(sorted(done), model(&packets));
        }
        Err(cause) => {
            println!("unavailable: {cause}");
            let engine = Engine::open(EngineOptions::default()).unwrap();
            match engine.counters().fallback {
                // The fake driver counts its calls anew, so that it may fail elsewhere.
                Some(Fallback::Unavailable(found)) => {
                    assert!(found == cause || matches!(cause, DeviceError::Driver(_)))
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Runs the test before with a fake driver that executes everything as late as CUDA permits.
#[test]
fn driver_calls_are_ordered_correctly() {
    let folder = tempfile::tempdir().unwrap();
    simulated_device::compile("src/tests/fake_libcuda.cpp", &folder.path().join("libcuda.so"));
    let output = |calls: &str| {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::gpu_agrees_with_reference_if_there_is_one", "--nocapture"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("WEIR_CALLS", calls)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&run.stderr));
        text
    };
    let whole = output("-1");
    assert!(whole.contains("on fake GPU, fake GPU") && whole.contains("repeated 0: None"), "{whole}");
    // It fails in the self-test, or later.
    assert!(output("100").contains("unavailable: the GPU fell off the bus"));
    let mut failures = 0;
    for calls in (540..860).step_by(20) {
        let failed = output(&calls.to_string()).contains("Some(Failed(Driver(\"the GPU fell off the bus\")))");
        failures += usize::from(failed);
    }
    assert!(failures > 2, "{failures}");
}

#[test]
fn packets_of_no_connection_are_counted() {
    let udp = Packet { protocol: 17, flags: Flags(Flags::PORTS), ..Packet::default() };
    let frame = Packet { protocol: 255, network: Network::Layer2, flags: Flags(Flags::PORTS), ..Packet::default() };
    let fragment = Packet { protocol: 6, flags: Flags(Flags::FRAGMENT_LATER), ..Packet::default() };
    let mut engine = Engine::open(EngineOptions { backend: Backend::Cpu, ..EngineOptions::default() }).unwrap();
    let mut done = Vec::new();
    engine.enter(&[udp, frame, fragment], &mut done);
    let counters = engine.finish(&mut done);
    let EngineCounters { times, memory_bytes, .. } = counters;
    assert_eq!(
        counters,
        EngineCounters { not_tcp: 2, without_ports: 1, times, memory_bytes, ..EngineCounters::default() }
    );
    assert!(done.is_empty());
}

#[test]
fn ptx_is_compiled_from_the_sources() {
    use sha1::{Digest, Sha1};
    let sources = concat!(include_str!("../../kernels/weir.cu"), include_str!("../../kernels/tcp.h"));
    let digest: String = Sha1::digest(sources).iter().map(|octet| format!("{octet:02x}")).collect();
    let first = include_str!("../../kernels/weir.ptx").lines().next().expect("it is not empty");
    assert!(first.ends_with(&digest), "run scripts/cuda: the sources have {digest}, weir.ptx has: {first}");
}
