//! Generates frames that are hostile but meaningful: few hosts, so that keys meet in both directions;
//! every header of `docs/metering.md`, nested, cut and damaged; time that stands still, runs and jumps.
//!
//! [`steps`] is a strategy of descriptions; [`frames`] builds the frames. [`check`] tests a property for
//! numbered seeds, shrinks a failing case and reports its seed.

use crate::RawFrame;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as RunnerConfig, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use weir_flow::{CacheFullPolicy, Config, KeyOptions};
use weir_packet::Packet;
use weir_probe::Settings;
use weir_trafficgen::Random;

const SECOND: i64 = 1_000_000_000;
const YEAR: i64 = 31_557_600 * SECOND;
/// Start time of the traffic: 2023-11-14.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// An event and its time after the previous one.
#[derive(Clone, Debug)]
pub struct Step {
    /// A step back of up to 1 s is a packet out of order; a longer one sets the clock back.
    gap_ns: i64,
    event: Event,
}

#[derive(Clone, Debug)]
enum Event {
    Packet(Shape),
    /// One IP packet in several fragments: which of them arrive, in order, and the pause before the last
    /// one, ns.
    Fragments(Shape, Vec<usize>, u64),
    /// A TCP connection from its beginning to its end.
    Conversation(Conversation),
    /// A frame without IP: its EtherType, or an IEEE 802.3 length below 1501.
    Other(u16, Outside),
    /// Random octets of some link type.
    Noise(u16, Vec<u8>),
}

/// One packet, from the inside to the outside.
#[derive(Clone, Debug)]
struct Shape {
    path: Path,
    carried: Carried,
    header: Header,
    /// Innermost first.
    tunnels: Vec<Tunnel>,
    outside: Outside,
}

/// Two endpoints out of very few; hosts are numbers.
#[derive(Clone, Copy, Debug)]
struct Path {
    v6: bool,
    from: u8,
    to: u8,
    source_port: u16,
    destination_port: u16,
}

/// Payload of an IP packet.
#[derive(Clone, Debug)]
enum Carried {
    /// Control bits, octets of payload, data offset.
    Tcp(u16, usize, u8),
    /// A protocol that starts with ports: its number, and the octets after them.
    Ports(u8, usize),
    /// ICMP or ICMPv6 by the IP version: type and code; errors carry the header of another packet.
    Icmp(u8, u8),
    /// Any protocol: its number, and its octets.
    Any(u8, usize),
}

/// Fields of an IP header.
#[derive(Clone, Debug)]
struct Header {
    ttl: u8,
    tos: u8,
    identification: u8,
    /// More-fragments flag, and offset in units of 8 octets; IPv6 uses a fragment header.
    fragment: Option<(bool, u16)>,
    /// Words of IPv4 options, or protocol numbers of IPv6 extension headers.
    extensions: Vec<u8>,
    length: Length,
}

/// The length field of an IP header.
#[derive(Clone, Copy, Debug)]
enum Length {
    Right,
    Zero,
    /// Too large by this number.
    More(u16),
    /// Too small by this number.
    Less(u16),
    /// Zero, with a jumbo payload option (IPv6) that states this many octets more.
    Jumbo(u32),
}

#[derive(Clone, Debug)]
struct Tunnel {
    /// Whether the IP header around it is IPv6.
    v6: bool,
    /// Numbers of the hosts at its ends.
    ends: (u8, u8),
    kind: TunnelKind,
    /// Identifier, 0 to 3.
    id: u8,
    /// Optional parts, one per bit.
    options: u8,
}

/// The tunnels of section 3. The number is the EtherType of what is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelKind {
    /// IP protocol 4 or 41.
    Ip,
    /// Version 0.
    Gre(u16),
    /// GRE version 1.
    Pptp,
    Vxlan,
    Geneve(u16),
    Gtpu,
}

/// Link type, tags, and what the capture did to the octets.
#[derive(Clone, Debug)]
struct Outside {
    /// LINKTYPE number.
    link: u16,
    /// Headers between link and IP, innermost first.
    tags: Vec<Tag>,
    interface: u32,
    /// Last octet of the source MAC address.
    source_mac: u8,
    /// Octets at the end.
    padding: usize,
    /// Snap length.
    snap: Option<usize>,
    /// Changed octets: offset and value.
    damage: Vec<(usize, u8)>,
}

/// A header between link and IP.
#[derive(Clone, Copy, Debug)]
enum Tag {
    /// EtherType and VLAN ID.
    Vlan(u16, u8),
    /// A stack of labels: their number, and the top label.
    Mpls(u8, u8),
    /// Ethernet over one label, with or without a control word.
    Pseudowire(bool),
    /// A PPPoE session, with or without a compressed protocol field.
    Pppoe(bool),
    /// IEEE 802.3 with SNAP.
    Snap,
}

/// A TCP connection.
#[derive(Clone, Debug)]
struct Conversation {
    /// Client and server.
    path: Path,
    /// Of each packet: whether the server sends it, control bits, octets of payload.
    script: Vec<(bool, u16, usize)>,
    /// Time between two packets, ns.
    gap_ns: u64,
    /// Time before the last packet, if different, ns.
    pause_ns: u64,
}

// ---- Strategies ----

/// Sequences with advancing time and reordering of up to about 1 s.
pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        8 => Just(0),
        2 => 0..SECOND / 1000,
        4 => 0..SECOND,
        2 => SECOND..6 * SECOND,
        1 => 6 * SECOND..130 * SECOND,
        1 => 100 * SECOND..700 * SECOND,
        2 => select(vec![1, 3, 5, 10, 30, 60, 120, 300]).prop_map(|seconds| seconds * SECOND),
        2 => -SECOND..=0,
        1 => select(vec![-SECOND - 1, -SECOND]),
    ];
    steps_with(gap, most)
}

/// Sequences whose time jumps forward and back, by seconds to decades.
pub fn jumps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        4 => 0..SECOND,
        2 => -SECOND..=0,
        2 => -400 * SECOND..400 * SECOND,
        1 => -4 * YEAR..4 * YEAR,
        1 => -20 * YEAR..20 * YEAR,
    ];
    steps_with(gap, most)
}

fn steps_with(gap: impl Strategy<Value = i64>, most: usize) -> impl Strategy<Value = Vec<Step>> {
    vec((gap, event()).prop_map(|(gap_ns, event)| Step { gap_ns, event }), 1..most)
}

/// Pipeline settings, mostly with short timeouts and small flow caches.
pub fn settings() -> impl Strategy<Value = Settings> {
    let seconds = |list: Vec<u64>| select(list).prop_map(|seconds| seconds * SECOND as u64);
    let key = prop_oneof![2 => Just([false; 4]), 1 => any::<[bool; 4]>()];
    let policy = select(vec![CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop]);
    let flows = prop_oneof![2 => 1..6_u32, 1 => 15..22_u32, 1 => Just(4096)];
    let timeouts = (seconds(vec![1, 3, 10, 60, 120]), seconds(vec![1, 3, 10, 60, 300]));
    (flows, timeouts, key, policy, any::<(bool, bool, bool, u64)>(), 1..=64_usize).prop_map(|case| {
        let (flows, (idle_timeout_ns, active_timeout_ns), key, cache_full_policy, others, prefetch_packets) = case;
        let [vlan, interface, tunnel, unidirectional] = key;
        let key = KeyOptions { vlan, interface, tunnel, unidirectional };
        let (decapsulate, layer2, mac_addresses, secret) = others;
        let timeouts = Config { idle_timeout_ns, active_timeout_ns, mac_addresses, ..Config::default() };
        let meter = Config { flows, key, cache_full_policy, secret: Some(secret), prefetch_packets, ..timeouts };
        Settings { meter, decode: weir_packet::DecodeOptions { decapsulate }, layer2, ..Settings::default() }
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => shape().prop_map(Event::Packet),
        2 => (shape(), vec(0..4_usize, 1..6), pause())
            .prop_map(|(shape, order, pause_ns)| Event::Fragments(shape, order, pause_ns)),
        4 => conversation().prop_map(Event::Conversation),
        1 => (select(vec![0x0806, 0x88cc, 0x8863, 0, 60, 1500, 1501, 1535, 1536]), outside())
            .prop_map(|(kind, outside)| Event::Other(kind, outside)),
        1 => (select(LINKS.to_vec()), vec(any::<u8>(), 0..90))
            .prop_map(|(link, bytes)| Event::Noise(link, bytes)),
    ]
}

/// Mostly none, else close to a timeout.
fn pause() -> impl Strategy<Value = u64> {
    let edge = select(vec![1, 3, 5, 10, 30, 60]).prop_flat_map(|seconds: u64| {
        let edge = seconds * SECOND as u64;
        select(vec![edge - 1, edge, edge + 1])
    });
    prop_oneof![2 => Just(0), 1 => edge]
}

const LINKS: [u16; 16] = [1, 9, 12, 14, 50, 100, 101, 104, 228, 229, 239, 113, 276, 0, 108, 147];

fn path() -> impl Strategy<Value = Path> {
    let port = prop_oneof![6 => select(vec![0, 53, 80, 4000]), 1 => select(vec![4789, 6081, 2152])];
    (prop::bool::weighted(0.3), 1..4_u8, 1..4_u8, port.clone(), port)
        .prop_map(|(v6, from, to, source_port, destination_port)| Path { v6, from, to, source_port, destination_port })
}

fn shape() -> impl Strategy<Value = Shape> {
    let parts = (path(), carried(), header(), tunnels(), outside());
    parts.prop_map(|(path, carried, header, tunnels, outside)| Shape { path, carried, header, tunnels, outside })
}

fn carried() -> impl Strategy<Value = Carried> {
    let control = prop_oneof![
        10 => select(vec![
            Packet::SYN,
            Packet::SYN | Packet::ACK,
            Packet::ACK,
            Packet::FIN | Packet::ACK,
            Packet::RST,
            Packet::RST | Packet::ACK,
        ]),
        1 => 0..0x1000_u16,
    ];
    let offset = prop_oneof![9 => Just(5), 1 => 0..16_u8];
    let length = prop_oneof![2 => Just(0), 2 => 0..60_usize];
    let icmp = prop_oneof![3 => select(vec![0, 8, 3, 11, 128, 129, 1, 135, 136, 9, 10]), 1 => any::<u8>()];
    prop_oneof![
        6 => (control, length.clone(), offset).prop_map(|(control, length, offset)| Carried::Tcp(control, length, offset)),
        4 => (select(vec![17, 17, 17, 33, 132, 136]), length.clone()).prop_map(|(p, length)| Carried::Ports(p, length)),
        2 => (icmp, 0..3_u8).prop_map(|(kind, code)| Carried::Icmp(kind, code)),
        1 => (prop_oneof![select(vec![50, 51, 89, 59, 4, 41, 47, 6, 17, 1, 58]), any::<u8>()], 0..30_usize)
            .prop_map(|(protocol, length)| Carried::Any(protocol, length)),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let fragment = prop_oneof![
        12 => Just(None),
        1 => Just(Some((true, 0))),
        2 => (any::<bool>(), 0..4_u16).prop_map(Some),
    ];
    let extensions = prop_oneof![
        8 => Just(vec![]),
        2 => vec(select(vec![0, 43, 60, 51, 135, 139, 140, 44]), 1..4),
        1 => vec(select(vec![0, 60]), 14..19),
    ];
    let length = prop_oneof![
        16 => Just(Length::Right),
        1 => Just(Length::Zero),
        1 => prop_oneof![1..60_u16, Just(u16::MAX)].prop_map(Length::More),
        1 => (1..60_u16).prop_map(Length::Less),
        1 => prop_oneof![Just(0), Just(1), any::<u32>()].prop_map(Length::Jumbo),
    ];
    let fields = (select(vec![1, 63, 64]), select(vec![0, 0xb8]), 0..3_u8, fragment, extensions, length);
    fields.prop_map(|fields| {
        let (ttl, tos, identification, fragment, extensions, length) = fields;
        Header { ttl, tos, identification, fragment, extensions, length }
    })
}

fn tunnels() -> impl Strategy<Value = Vec<Tunnel>> {
    let kind = prop_oneof![
        4 => Just(TunnelKind::Ip),
        4 => select(vec![0x0800, 0x86dd, 0x880b, 0x8847, 0x6558, 0x8100, 0x0806]).prop_map(TunnelKind::Gre),
        1 => Just(TunnelKind::Pptp),
        2 => Just(TunnelKind::Vxlan),
        2 => select(vec![0x6558, 0x0800, 0x86dd, 0x1234]).prop_map(TunnelKind::Geneve),
        2 => Just(TunnelKind::Gtpu),
    ];
    let options = prop_oneof![2 => Just(0), 1 => any::<u8>()];
    let tunnel = (any::<bool>(), (1..3_u8, 1..3_u8), kind, 0..3_u8, options)
        .prop_map(|(v6, ends, kind, id, options)| Tunnel { v6, ends, kind, id, options });
    prop_oneof![
        6 => Just(vec![]),
        3 => vec(tunnel.clone(), 1..3),
        1 => vec(tunnel, 6..11),
    ]
}

fn outside() -> impl Strategy<Value = Outside> {
    let tag = prop_oneof![
        4 => (select(vec![0x8100, 0x88a8, 0x9100, 0x9200, 0x9300]), 0..3_u8).prop_map(|(kind, id)| Tag::Vlan(kind, id)),
        3 => (1..4_u8, 0..3_u8).prop_map(|(count, top)| Tag::Mpls(count, top)),
        1 => (15..19_u8, 0..3_u8).prop_map(|(count, top)| Tag::Mpls(count, top)),
        1 => any::<bool>().prop_map(Tag::Pseudowire),
        1 => any::<bool>().prop_map(Tag::Pppoe),
        1 => Just(Tag::Snap),
    ];
    let tags = prop_oneof![
        8 => Just(vec![]),
        3 => vec(tag.clone(), 1..4),
        1 => vec(tag, 13..19),
    ];
    let link = prop_oneof![8 => Just(1), 2 => select(LINKS.to_vec())];
    let interface = prop_oneof![4 => Just(0), 1 => 1..3_u32];
    let padding = prop_oneof![3 => Just(0), 1 => 0..20_usize];
    let snap = prop_oneof![6 => Just(None), 1 => (0..120_usize).prop_map(Some)];
    let source_mac = prop_oneof![8 => Just(1), 1 => 0..3_u8];
    let damage = prop_oneof![
        8 => Just(vec![]),
        1 => vec((0..100_usize, any::<u8>()), 1..4),
    ];
    (link, tags, interface, source_mac, padding, snap, damage).prop_map(|parts| {
        let (link, tags, interface, source_mac, padding, snap, damage) = parts;
        Outside { link, tags, interface, source_mac, padding, snap, damage }
    })
}

fn conversation() -> impl Strategy<Value = Conversation> {
    const SYN: u16 = Packet::SYN;
    const ACK: u16 = Packet::ACK;
    const FIN: u16 = Packet::FIN | Packet::ACK;
    const RST: u16 = Packet::RST;
    let begin = select(vec![
        vec![(false, SYN, 0), (true, SYN | ACK, 0), (false, ACK, 0)],
        vec![(true, SYN | ACK, 0), (false, SYN, 0)],
        vec![(true, ACK, 10)],
        vec![(false, SYN, 0)],
    ]);
    let data = vec((any::<bool>(), Just(ACK), 0..50_usize), 0..6);
    let end = select(vec![
        vec![],
        vec![(false, FIN, 0)],
        vec![(true, FIN, 5), (false, FIN, 0), (true, ACK, 0)],
        vec![(false, FIN, 0), (true, FIN, 0), (false, ACK, 0), (true, ACK, 0)],
        vec![(false, RST, 0), (true, RST | ACK, 0)],
        vec![(false, FIN, 0), (true, FIN, 0), (false, ACK, 0)],
        vec![(false, FIN, 0), (true, FIN, 0), (true, ACK, 1)],
        vec![(true, RST, 0), (false, SYN, 0), (true, SYN | ACK, 0)],
    ]);
    let gap = prop_oneof![3 => 0..SECOND as u64 / 100, 1 => 0..7 * SECOND as u64];
    (path(), begin, data, end, gap, pause()).prop_map(|(path, begin, data, end, gap_ns, pause_ns)| {
        let script = [begin, data, end].concat();
        Conversation { path, script, gap_ns, pause_ns }
    })
}

// ---- Seeds ----

/// The seeds to test: those from 0 to `count`, or those in the environment variable `WEIR_SEEDS`,
/// which is a number or a range like `3..7`.
///
/// # Panics
/// The variable is neither.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("WEIR_SEEDS") else { return 0..count };
    let number = |text: &str| text.parse::<u64>().expect("WEIR_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

/// Tests a property for `count` [`seeds`].
///
/// # Panics
/// The property fails. The message has the seed, the smallest failing case and the error.
pub fn check<T: std::fmt::Debug>(
    count: u64,
    strategy: &impl Strategy<Value = T>,
    property: impl Fn(T) -> Result<(), String>,
) {
    for seed in seeds(count) {
        let mut runner = runner(seed);
        let tree = strategy.new_tree(&mut runner).expect("no strategy here refuses values");
        match runner.run_one(tree, |value| property(value).map_err(TestCaseError::fail)) {
            Ok(_) => {}
            Err(TestError::Fail(why, smallest)) => {
                panic!("seed {seed} (WEIR_SEEDS={seed} runs it alone)\n{smallest:?}\n{}", why.message())
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

/// XorShift, because ChaCha would take more than a third of the time of the tests.
fn runner(seed: u64) -> TestRunner {
    let mut random = Random::new(seed);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    key[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    let config = RunnerConfig { failure_persistence: None, max_shrink_iters: 4000, ..RunnerConfig::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &key))
}

// ---- Building ----

/// The frames of a sequence.
pub fn frames(steps: &[Step]) -> Vec<RawFrame> {
    let mut frames = Vec::new();
    let mut newest_ns = BEGIN_NS;
    for step in steps {
        let mut time_ns = newest_ns.saturating_add_signed(step.gap_ns);
        if !(-SECOND..0).contains(&step.gap_ns) {
            newest_ns = time_ns;
        }
        match &step.event {
            Event::Packet(shape) => frames.push(packet(shape, time_ns)),
            Event::Fragments(shape, order, pause_ns) => {
                for (at, &number) in order.iter().enumerate() {
                    if at + 1 == order.len() {
                        time_ns = time_ns.saturating_add(*pause_ns);
                    }
                    let mut shape = shape.clone();
                    shape.header.fragment = Some((number < 3, 2 * number as u16));
                    frames.push(packet(&shape, time_ns));
                }
            }
            Event::Conversation(conversation) => {
                let Conversation { path, ref script, gap_ns, pause_ns } = *conversation;
                for (at, &(by_server, control, length)) in script.iter().enumerate() {
                    let wait_ns = match at {
                        0 => 0,
                        last if last + 1 == script.len() && pause_ns > 0 => pause_ns,
                        _ => gap_ns,
                    };
                    time_ns = time_ns.saturating_add(wait_ns);
                    frames.push(packet(&segment(path, by_server, control, length), time_ns));
                }
            }
            Event::Other(ethertype, outside) => frames.push(link(outside, *ethertype, vec![0x42; 46], time_ns)),
            Event::Noise(link, bytes) => frames.push(RawFrame {
                time_ns,
                wire_bytes: bytes.len() as u32,
                link_type: *link,
                interface: 0,
                bytes: bytes.clone(),
            }),
        }
        newest_ns = newest_ns.max(time_ns);
    }
    frames
}

fn segment(path: Path, by_server: bool, control: u16, length: usize) -> Shape {
    let Path { v6, from, to, source_port, destination_port } = path;
    let reverse = Path { v6, from: to, to: from, source_port: destination_port, destination_port: source_port };
    Shape {
        path: if by_server { reverse } else { path },
        carried: Carried::Tcp(control, length, 5),
        header: plain_header(),
        tunnels: vec![],
        outside: Outside { link: 1, tags: vec![], interface: 0, source_mac: 1, padding: 0, snap: None, damage: vec![] },
    }
}

fn plain_header() -> Header {
    Header { ttl: 64, tos: 0, identification: 0, fragment: None, extensions: vec![], length: Length::Right }
}

fn packet(shape: &Shape, time_ns: u64) -> RawFrame {
    let path = shape.path;
    let (protocol, payload) = carry(&shape.carried, path);
    let mut bytes = ip(path.v6, (path.from, path.to), protocol, &shape.header, payload);
    let mut v6 = path.v6;
    for tunnel in &shape.tunnels {
        let (protocol, payload) = wrap(tunnel, v6, bytes);
        let ends = (tunnel.ends.0 + 10, tunnel.ends.1 + 10);
        bytes = ip(tunnel.v6, ends, protocol, &plain_header(), payload);
        v6 = tunnel.v6;
    }
    link(&shape.outside, if v6 { 0x86dd } else { 0x0800 }, bytes, time_ns)
}

fn carry(carried: &Carried, path: Path) -> (u8, Vec<u8>) {
    let mut bytes = [path.source_port.to_be_bytes(), path.destination_port.to_be_bytes()].concat();
    match *carried {
        Carried::Tcp(control, length, offset) => {
            bytes.extend([0, 0, 0, 7, 0, 0, 0, 9]);
            bytes.extend((u16::from(offset) << 12 | control & 0x0fff).to_be_bytes());
            bytes.extend([0x20, 0, 0, 0, 0, 0]);
            bytes.resize(20 + length, 0x41);
            (6, bytes)
        }
        Carried::Ports(protocol, length) => {
            bytes.extend([0, 8, 0, 0]);
            bytes.resize(8 + length, 0x41);
            (protocol, bytes)
        }
        Carried::Icmp(kind, code) => {
            let mut bytes = vec![kind, code, 0, 0, 0, 1, 0, 2];
            if matches!(kind, 1 | 3 | 11) {
                bytes.extend(ip(path.v6, (path.to, path.from), 17, &plain_header(), vec![0; 8]));
            }
            (if path.v6 { 58 } else { 1 }, bytes)
        }
        Carried::Any(protocol, length) => (protocol, vec![0x45; length]),
    }
}

fn ip(v6: bool, (from, to): (u8, u8), protocol: u8, header: &Header, payload: Vec<u8>) -> Vec<u8> {
    if v6 { ipv6(from, to, protocol, header, payload) } else { ipv4(from, to, protocol, header, payload) }
}

fn length_field(length: Length, truth: usize) -> u16 {
    let truth = truth as u16;
    match length {
        Length::Right => truth,
        Length::Zero | Length::Jumbo(_) => 0,
        Length::More(more) => truth.saturating_add(more),
        Length::Less(less) => truth.saturating_sub(less),
    }
}

fn ipv4(from: u8, to: u8, protocol: u8, header: &Header, payload: Vec<u8>) -> Vec<u8> {
    let words = 5 + header.extensions.len().min(10);
    let length = length_field(header.length, words * 4 + payload.len());
    let fragment = header.fragment.map_or(0, |(more, offset)| u16::from(more) << 13 | offset);
    let mut bytes = vec![0x40 | words as u8, header.tos];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, header.identification]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([header.ttl, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    bytes.resize(words * 4, 1);
    bytes.extend(payload);
    bytes
}

fn ipv6(from: u8, to: u8, protocol: u8, header: &Header, payload: Vec<u8>) -> Vec<u8> {
    // From the inside to the outside: the payload, then the extension headers in front of it.
    let mut next = protocol;
    let mut bytes = payload;
    let mut put = |front: Vec<u8>, number: u8| {
        bytes.splice(0..0, front);
        next = number;
    };
    let mut numbers = header.extensions.clone();
    numbers.reverse();
    let mut last = protocol;
    if let Some((more, offset)) = header.fragment {
        let field = (offset << 3 | u16::from(more)).to_be_bytes();
        put(vec![last, 0, field[0], field[1], 0, 0, 0, header.identification], 44);
        last = 44;
    }
    for number in numbers {
        let front = match number {
            44 => vec![last, 0, 0, 0, 0, 0, 0, header.identification],
            51 => [&[last, 1][..], &[0; 10]].concat(),
            _ => vec![last, 0, 1, 4, 0, 0, 0, 0],
        };
        put(front, number);
        last = number;
    }
    if let Length::Jumbo(more) = header.length {
        let length = ((bytes.len() + 8) as u32).saturating_add(more);
        bytes.splice(0..0, [&[next, 0, 0xc2, 4][..], &length.to_be_bytes()].concat());
        next = 0;
    }
    let host = |number: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number];
    let mut whole = vec![0x60 | header.tos >> 4, header.tos << 4, 0, 0];
    whole.extend(length_field(header.length, bytes.len()).to_be_bytes());
    whole.extend([next, header.ttl]);
    whole.extend(host(from));
    whole.extend(host(to));
    whole.extend(bytes);
    whole
}

/// Puts an IP packet into a tunnel: the IP protocol of the tunnel, and its header with what is inside.
fn wrap(tunnel: &Tunnel, v6: bool, inner: Vec<u8>) -> (u8, Vec<u8>) {
    let ethertype: u16 = if v6 { 0x86dd } else { 0x0800 };
    let version: u8 = if v6 { 0x57 } else { 0x21 };
    let ethernet = |inner: &[u8]| [&[2; 12][..], &ethertype.to_be_bytes(), inner].concat();
    let id = [0, 0, 0, tunnel.id];
    match tunnel.kind {
        TunnelKind::Ip => (if v6 { 41 } else { 4 }, inner),
        TunnelKind::Gre(protocol) => {
            let flags = tunnel.options & 0xf0;
            let mut bytes = vec![flags, tunnel.options & 2];
            // A protocol that stands for an IP version follows what is inside.
            let protocol = if matches!(protocol, 0x0800 | 0x86dd) { ethertype } else { protocol };
            bytes.extend(protocol.to_be_bytes());
            for bit in [0x80, 0x20, 0x10] {
                if flags & bit != 0 {
                    bytes.extend(id);
                }
            }
            match protocol {
                0x6558 => bytes.extend(ethernet(&inner)),
                0x8100 => bytes.extend([&[0, tunnel.id][..], &ethertype.to_be_bytes(), &inner].concat()),
                0x8847 => bytes.extend([&[0, 0, 0x11, 64][..], &inner].concat()),
                0x880b if tunnel.options & 1 == 1 => bytes.extend([&[0xff, 3, 0, version][..], &inner].concat()),
                0x880b => bytes.extend([&[version][..], &inner].concat()),
                _ => bytes.extend(inner),
            }
            (47, bytes)
        }
        TunnelKind::Pptp => {
            let (sequence, acknowledgment) = (!tunnel.options >> 6 & 1, tunnel.options & 0x80);
            let mut bytes = vec![0x20 | sequence << 4, 1 | acknowledgment, 0x88, 0x0b];
            bytes.extend([0, inner.len() as u8, 0, tunnel.id]);
            bytes.resize(8 + 4 * usize::from(sequence) + 4 * usize::from(acknowledgment >> 7), 1);
            bytes.extend([0xff, 3, 0, version]);
            bytes.extend(inner);
            (47, bytes)
        }
        TunnelKind::Vxlan => {
            let flags = if tunnel.options & 0xc0 == 0xc0 { 0 } else { 8 };
            (17, udp(4789, [&[flags, 0, 0, 0, 0, 0, tunnel.id, 0][..], &ethernet(&inner)].concat()))
        }
        TunnelKind::Geneve(protocol) => {
            let protocol = if matches!(protocol, 0x0800 | 0x86dd) { ethertype } else { protocol };
            let words = tunnel.options & 0x43;
            let mut bytes = vec![words, 0];
            bytes.extend(protocol.to_be_bytes());
            bytes.extend([0, 0, tunnel.id, 0]);
            bytes.resize(8 + usize::from(words & 0x3f) * 4, 0);
            bytes.extend(if protocol == 0x6558 { ethernet(&inner) } else { inner });
            (17, udp(6081, bytes))
        }
        TunnelKind::Gtpu => {
            let optional = tunnel.options & 7;
            let kind = if tunnel.options & 0x30 == 0x30 { 1 } else { 255 };
            let mut bytes = vec![0x30 | optional, kind, 0, inner.len() as u8];
            bytes.extend(id);
            if optional != 0 {
                let more = tunnel.options & 8 != 0;
                bytes.extend([0, 1, 0, if more { 0x85 } else { 0 }]);
                if more && optional & 4 != 0 {
                    bytes.extend([1, 0, 0, 0x85, 2, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            bytes.extend(inner);
            (17, udp(2152, bytes))
        }
    }
}

fn udp(port: u16, payload: Vec<u8>) -> Vec<u8> {
    let length = ((payload.len() + 8) as u16).to_be_bytes();
    [&[0xc0, 0][..], &port.to_be_bytes(), &length, &[0, 0], &payload].concat()
}

fn link(outside: &Outside, mut ethertype: u16, mut bytes: Vec<u8>, time_ns: u64) -> RawFrame {
    let ethernet: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, outside.source_mac];
    let family = ethertype;
    for tag in &outside.tags {
        let here = ethertype.to_be_bytes();
        let (front, outer) = match *tag {
            Tag::Vlan(kind, id) => (vec![0x20, id, here[0], here[1]], kind),
            Tag::Mpls(count, top) => {
                let mut stack: Vec<u8> = (0..count).flat_map(|at| [0, 0, (top + at) << 4, 64]).collect();
                stack[usize::from(count) * 4 - 2] |= 1;
                (stack, 0x8847)
            }
            Tag::Pseudowire(control_word) => {
                let word: &[u8] = if control_word { &[0; 4] } else { &[] };
                ([&[0, 0, 0x51, 64], word, &ethernet, &here].concat(), 0x8848)
            }
            Tag::Pppoe(compressed) => {
                let protocol = match ethertype {
                    0x0800 => [0, 0x21],
                    0x86dd => [0, 0x57],
                    0x8847 => [2, 0x81],
                    _ => [0xc0, 0x21],
                };
                let kept = if compressed && protocol[0] == 0 { &protocol[1..] } else { &protocol[..] };
                ([&[0x11, 0, 0, 1, 0, 40][..], kept].concat(), 0x8864)
            }
            Tag::Snap => (vec![0xaa, 0xaa, 3, 0, 0, 0, here[0], here[1]], (bytes.len() + 8).min(1500) as u16),
        };
        bytes.splice(0..0, front);
        ethertype = outer;
    }
    let here = ethertype.to_be_bytes();
    let front = match outside.link {
        1 => [&ethernet[..], &here].concat(),
        113 => [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, outside.source_mac, 0, 0][..], &here].concat(),
        276 => [&here[..], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, outside.source_mac, 0, 0]].concat(),
        0 => vec![if family == 0x86dd { 30 } else { 2 }, 0, 0, 0],
        108 => vec![0, 0, 0, if family == 0x86dd { 24 } else { 2 }],
        // Padding is no part of the packet: it stands behind the attribute.
        239 => {
            let [low, high] = (bytes.len() as u16 + 4).to_le_bytes();
            let family = if family == 0x86dd { 10 } else { 2 };
            vec![family, 0, 0, 7, 8, 0, 1, 0, 8, 0, 0, 3, low, high, 9, 0]
        }
        100 => [&[0xaa, 0xaa, 3, 0, 0, 0][..], &here].concat(),
        104 => [&[0x8f, 0], &here[..]].concat(),
        9 => vec![if family == 0x86dd { 0x57 } else { 0x21 }],
        50 => vec![0xff, 3, 0, if family == 0x86dd { 0x57 } else { 0x21 }],
        _ => vec![],
    };
    bytes.splice(0..0, front);
    bytes.resize(bytes.len() + outside.padding, 0);
    let wire_bytes = bytes.len() as u32;
    bytes.truncate(outside.snap.unwrap_or(usize::MAX));
    for &(at, value) in &outside.damage {
        if let Some(octet) = bytes.get_mut(at) {
            *octet = value;
        }
    }
    RawFrame { time_ns, wire_bytes, link_type: outside.link, interface: outside.interface, bytes }
}
