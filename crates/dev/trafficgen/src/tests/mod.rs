//! Checks generated traffic with an independent parser and an independent count of flows.

mod apps;
mod frame;
mod lossy;

use frame::{ACK, FIN, RST, SYN, Seen, digest, see};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use weir_capture::{PcapWriter, SettingsError, Source};
use weir_trafficgen::{CESNET_RATES, ExpectedDirection, ExpectedFlow, TrafficGenerator, write_expected_flows};

const SECOND_NS: u64 = 1_000_000_000;

/// A generator that records the expected flows.
fn recording(spec: &str) -> TrafficGenerator {
    TrafficGenerator::new(spec).unwrap().with_expected_flows()
}

/// The same, read to its end.
fn run(spec: &str) -> TrafficGenerator {
    let mut source = recording(spec);
    while source.burst().unwrap().is_some() {}
    source
}

/// Every frame of a source, parsed.
fn all(source: &mut TrafficGenerator) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        assert!(!burst.is_empty());
        seen.extend(burst.iter().map(|frame| {
            assert_eq!(frame.bytes.len(), frame.wire_bytes as usize);
            assert_eq!((frame.link_type, frame.interface, frame.time_assumed), (1, 1, false));
            see(frame)
        }));
    }
    assert!(source.burst().unwrap().is_none(), "the end stays the end");
    assert!(seen.is_sorted_by_key(|seen| seen.time_ns), "times never go back");
    seen
}

fn packets(flow: &ExpectedFlow) -> u64 {
    flow.forward.packets + flow.reverse.packets
}

/// Flows by an independent count.
fn recount(packets: &[Seen]) -> Vec<ExpectedFlow> {
    let mut flows: Vec<ExpectedFlow> = Vec::new();
    let mut places = HashMap::new();
    for packet in packets {
        let [from, to] = packet.ends;
        let key = (from.min(to), from.max(to), packet.protocol);
        let place = *places.entry(key).or_insert_with(|| {
            flows.push(ExpectedFlow {
                source: from.0,
                destination: to.0,
                source_port: from.1,
                destination_port: to.1,
                protocol: packet.protocol,
                forward: ExpectedDirection::default(),
                reverse: ExpectedDirection::default(),
            });
            flows.len() - 1
        });
        let flow = &mut flows[place];
        let forward = (flow.source, flow.source_port) == from;
        let direction = if forward { &mut flow.forward } else { &mut flow.reverse };
        if direction.packets == 0 {
            direction.first_ns = packet.time_ns;
        }
        direction.last_ns = packet.time_ns;
        direction.packets += 1;
        direction.bytes += u64::from(packet.ip_bytes);
        direction.frame_bytes += u64::from(packet.wire_bytes);
        direction.tcp_flags |= packet.flags;
    }
    flows
}

#[test]
fn same_specification_gives_the_same_frames_bit_by_bit() {
    for (spec, expected) in [
        ("lossy,flows=100,packets=20k,seed=7", 0xd6f9_190b_2d88_2ebe),
        ("apps,flows=100,new=500,packets=20k,seed=7,undecided=5%", 0x290f_aa3a_8c33_b5f4),
        ("velan,flows=1000,packets=10k", 0xb8d0_ee02_c425_2b34),
        ("velan,flows=1000,packets=10k,seed=2,size=200,directions=2", 0x2b09_3cca_9a32_1e7e),
        ("velan,flows=1000,packets=3k,order=round,rate=1M", 0x7f0b_de20_a3bc_7dd2),
        ("mix,flows=100,packets=20k,seed=7", 0x35a1_8c3c_2966_409b),
        ("mix,flows=1000,packets=50k,snap=96,rst=0.5,new=2k", 0x87fa_989b_6beb_2eb4),
        ("mix,flows=1000,packets=50k,trains=60%", 0x6756_3c92_8061_98a6),
    ] {
        assert_eq!(digest(spec), expected, "{spec}: {:#x}", digest(spec));
    }
    for spec in ["mix,flows=100,packets=1k", "lossy,packets=1k", "apps,packets=1k"] {
        assert_ne!(digest(spec), digest(&format!("{spec},seed=2")));
    }
}

#[test]
fn velan_has_exactly_the_requested_flows() {
    for (spec, tuples, flows) in [
        ("velan,flows=128,packets=10k", 128, 128),
        ("velan,flows=1000,packets=1000,order=round", 1000, 1000),
        ("velan,flows=131072,packets=131072,order=round", 131_072, 131_072),
        ("velan,flows=300,packets=600,order=round,directions=2", 600, 300),
        ("velan,flows=100,packets=10k,directions=2", 200, 100),
        ("velan,flows=1,packets=10", 1, 1),
    ] {
        let mut source = recording(spec);
        let packets = all(&mut source);
        assert_eq!(packets.iter().map(|packet| packet.ends).collect::<HashSet<_>>().len(), tuples, "{spec}");
        assert_eq!(source.expected_flows().len(), flows, "{spec}");
        let ports: HashSet<_> = packets.iter().map(|packet| packet.ends.map(|end| end.1)).collect();
        assert_eq!(ports.len(), tuples / flows, "the ports never change");
    }
}

#[test]
fn velan_replaces_its_oldest_flows_by_new_ones() {
    let source = run("velan,flows=1,packets=1000,rate=1M,new=1M");
    assert_eq!(source.expected_flows().len(), 1000, "every packet is a flow of its own");
    // In a tenth of a second 1000 flows begin beside the first 100; none lasts longer than 100
    // others take to begin.
    let source = run("velan,flows=100,packets=100k,rate=1M,new=10k,directions=2");
    assert!((1090..=1100).contains(&source.expected_flows().len()), "{}", source.expected_flows().len());
    for flow in source.expected_flows() {
        let last_ns = flow.forward.last_ns.max(flow.reverse.last_ns);
        assert!(last_ns - flow.forward.first_ns <= 10_000_000, "{flow:?}");
    }
    assert!(TrafficGenerator::new("velan,rate=1M,new=1000001").is_err());
}

#[test]
fn velan_chooses_every_flow_with_equal_probability() {
    let source = run("velan,flows=100,packets=1M,size=128");
    let (least, most) = source
        .expected_flows()
        .iter()
        .map(|flow| flow.forward.packets)
        .fold((u64::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
    assert!(least > 9_500 && most < 10_500, "{least} to {most} packets a flow");
}

#[test]
fn velan_sizes_include_the_fcs() {
    for size in [64, 65, 128, 256, 512, 1000, 1518] {
        let packets = all(&mut TrafficGenerator::new(&format!("velan,flows=50,packets=200,size={size}")).unwrap());
        assert_eq!(packets.len(), 200);
        assert!(packets.iter().all(|p| p.wire_bytes == size - 4 && p.ip_bytes == size - 18 && p.payload == size - 46));
    }
}

#[test]
fn velan_reproduces_the_twelve_rows_of_table_1() {
    for (row, flows) in CESNET_RATES.into_iter().flat_map(|row| [128, 16_384, 131_072].map(|flows| (row, flows))) {
        let (size, published_packets, published_bits) = row;
        let mut source = TrafficGenerator::new(&format!("velan,size={size},flows={flows},packets=200k")).unwrap();
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        while let Some(burst) = source.burst().unwrap() {
            first_ns = first_ns.min(burst[0].time_ns);
            last_ns = burst.last().unwrap().time_ns;
            assert!(burst.iter().all(|frame| frame.wire_bytes == size - 4));
        }
        let packets_per_second = 199_999.0 * 1e9 / (last_ns - first_ns) as f64;
        let bits_per_second = packets_per_second * f64::from(size) * 8.0;
        assert!((packets_per_second / published_packets as f64 - 1.0).abs() < 3e-5, "{row:?} {flows}");
        assert!((bits_per_second / published_bits as f64 - 1.0).abs() < 3e-5, "{row:?} {flows}");
    }
}

#[test]
fn expected_counters_agree_with_an_independent_count() {
    for spec in [
        "velan,flows=500,packets=5k",
        "velan,flows=500,packets=5k,directions=2,size=300",
        "velan,flows=500,packets=1200,directions=2,order=round",
        "mix,flows=200,packets=60k,seed=3",
        "mix,flows=50,packets=20k,ipv6=0,udp=100%",
        "mix,flows=50,packets=20k,ipv6=1,udp=0,rst=1",
        "mix,flows=1,packets=5k,ramp=0",
        "mix,flows=200,packets=60k,trains=70%",
        "lossy,flows=100,packets=30k,loss=5%,duplicate=10%,routed=50%,keepalive=1,zerowindow=1",
    ] {
        let mut source = recording(spec);
        let packets = all(&mut source);
        assert!(source.expected_flows() == recount(&packets), "{spec}");
    }
    for load in ["velan,packets=1000", "mix,flows=100,packets=1000"] {
        let mut source = TrafficGenerator::new(load).unwrap();
        source.burst().unwrap();
        assert!(source.expected_flows().is_empty(), "they are recorded on request only");
        // Requested later: only the packets from here on are included.
        let mut source = source.with_expected_flows();
        while source.burst().unwrap().is_some() {}
        assert!(source.expected_flows().iter().map(packets).sum::<u64>() < 1000);
    }
}

#[test]
fn mean_frame_of_a_mix_has_700_to_800_bytes() {
    for spec in
        ["mix", "mix,seed=2", "mix,seed=3,flows=300k,packets=4M", "mix,flows=1000,packets=1M", "mix,seed=5,snap=64"]
    {
        let mut source = TrafficGenerator::new(spec).unwrap();
        let (mut packets, mut octets) = (0_u64, 0_u64);
        while let Some(burst) = source.burst().unwrap() {
            packets += burst.len() as u64;
            octets += burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum::<u64>();
        }
        let mean = octets as f64 / packets as f64;
        assert!((700.0..800.0).contains(&mean), "{spec}: {mean}");
    }
}

#[test]
fn mix_has_the_requested_concurrent_and_new_flows() {
    for (spec, flows, new, seconds) in [
        ("mix,flows=5000,new=1000,duration=20s", 5_000, 1_000, 20),
        ("mix,flows=2000,new=10k,duration=3s,ramp=100ms,seed=4", 2_000, 10_000, 3),
        ("mix,flows=20k,duration=11s,seed=9", 20_000, 2_000, 11),
    ] {
        let mut source = recording(spec);
        let mut last_ns = 0;
        while let Some(burst) = source.burst().unwrap() {
            last_ns = burst.last().unwrap().time_ns;
        }
        let truth = source.expected_flows();
        let start_ns = truth[0].forward.first_ns;
        assert!(last_ns < start_ns + seconds * SECOND_NS && last_ns > start_ns + (seconds * SECOND_NS / 100) * 99);
        for second in 1..seconds {
            let at = start_ns + second * SECOND_NS;
            let begun = truth.iter().filter(|flow| (at..at + SECOND_NS).contains(&flow.forward.first_ns)).count();
            // Four standard deviations of what comes without memory, and some for the shortest
            // lives.
            let slack = 4.0 * f64::from(new).sqrt() + 0.03 * f64::from(new);
            assert!((begun as f64 - f64::from(new)).abs() < slack, "{spec}: {begun} begin in second {second}");
        }
        let at = start_ns + seconds * SECOND_NS / 2;
        let open =
            |flow: &&ExpectedFlow| flow.forward.first_ns <= at && flow.forward.last_ns.max(flow.reverse.last_ns) >= at;
        let seen_open = truth.iter().filter(open).count();
        assert!(seen_open <= flows, "{spec}: {seen_open} at a time");
        // A flow whose next packet would be after the end seems to have ended: only a run that is
        // much longer than a flow shows this.
        let lives = seconds as usize * new as usize / flows;
        assert!(lives < 10 || seen_open * 100 > flows * 97, "{spec}: {seen_open} at a time");
    }
}

#[test]
fn packets_of_a_train_follow_each_other_at_100_gbit_s() {
    // Of 2000 conversations, two packets one after the other rarely belong to the same one.
    let share = |trains| {
        let packets = all(&mut recording(&format!("mix,flows=2000,packets=200k,trains={trains}")));
        let pairs = packets.windows(2).filter(|pair| {
            let ends = |packet: &Seen| packet.ends.iter().copied().collect::<HashSet<_>>();
            let wire_ns = u64::from(pair[0].wire_bytes) * 8 / 100;
            ends(&pair[0]) == ends(&pair[1]) && pair[1].time_ns - pair[0].time_ns == wire_ns.max(1)
        });
        pairs.count() as f64 / packets.len() as f64
    };
    let [none, half, all] = ["0", "50%", "1"].map(share);
    assert!(none < 0.001 && (0.45..0.55).contains(&(half / all)) && all > 0.5, "{none} {half} {all}");
}

#[test]
fn mix_has_the_requested_fractions() {
    let source = run("mix,flows=1000,new=5000,packets=300k,ipv6=40%,udp=0.25,rst=20%");
    let flows = source.expected_flows();
    let share = |of: &dyn Fn(&&ExpectedFlow) -> bool, among: &dyn Fn(&&ExpectedFlow) -> bool| {
        let among: Vec<_> = flows.iter().filter(among).collect();
        among.iter().filter(|&flow| of(flow)).count() as f64 / among.len() as f64
    };
    let flags = |flow: &ExpectedFlow| flow.forward.tcp_flags | flow.reverse.tcp_flags;
    let ended = |flow: &&ExpectedFlow| flow.protocol == 6 && flags(flow) & (FIN | RST) != 0;
    assert!(flows.len() > 3_000, "{}", flows.len());
    assert!((share(&|flow| flow.source.is_ipv6(), &|_| true) - 0.4).abs() < 0.03);
    assert!((share(&|flow| flow.protocol == 17, &|_| true) - 0.25).abs() < 0.03);
    assert!((share(&|flow| flags(flow) & RST != 0, &ended) - 0.2).abs() < 0.03);
    // The default ports carry what they do elsewhere.
    let ports: BTreeMap<_, usize> = flows.iter().fold(BTreeMap::new(), |mut ports, flow| {
        *ports.entry((flow.protocol, flow.destination_port)).or_default() += 1;
        ports
    });
    assert_eq!(ports.iter().max_by_key(|(_, flows)| **flows).unwrap().0, &(6, 443), "{ports:?}");
    assert!(flows.iter().all(|flow| flow.source_port >= 32_768));
}

#[test]
fn mix_is_heavy_tailed() {
    let source = run("mix,flows=2000,packets=1M");
    let mut sizes: Vec<u64> = source.expected_flows().iter().map(packets).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let (median, most) = (sizes[sizes.len() / 2], sizes[0]);
    let top: u64 = sizes[..sizes.len() / 100].iter().sum();
    assert!(median < 30 && most > 5_000, "median {median}, most {most}");
    assert!(top > 250_000, "the largest hundredth of the flows has {top} packets of a million");
}

#[test]
fn every_5_tuple_of_a_mix_is_unique() {
    // Few clients with many short conversations: each client uses many ports.
    for spec in ["mix,flows=100,new=1000,packets=2M,udp=1", "mix,flows=3000,packets=300k,seed=11"] {
        let source = run(spec);
        let tuple = |flow: &ExpectedFlow| {
            let (from, to) = ((flow.source, flow.source_port), (flow.destination, flow.destination_port));
            (from.min(to), from.max(to), flow.protocol)
        };
        let tuples: HashSet<_> = source.expected_flows().iter().map(tuple).collect();
        assert_eq!(tuples.len(), source.expected_flows().len(), "{spec}");
    }
}

/// Checks the rules of TCP for each packet of a conversation.
#[derive(Default)]
struct Conversation {
    packets: usize,
    initiator: Option<(IpAddr, u16)>,
    /// Next sequence number of each side.
    next: [Option<u32>; 2],
    /// Acknowledged sequence number of each side.
    acknowledged: [Option<u32>; 2],
    fins: [bool; 2],
    over: bool,
    data: [u64; 2],
}

impl Conversation {
    fn enter(&mut self, packet: &Seen) {
        assert!(!self.over, "nothing comes behind the end: {packet:?}");
        let initiator = *self.initiator.get_or_insert(packet.ends[0]);
        let side = usize::from(packet.ends[0] != initiator);
        match self.packets {
            0 => assert_eq!((side, packet.flags, packet.acknowledgment, packet.options), (0, SYN, 0, 12)),
            1 => assert_eq!((side, packet.flags, packet.options), (1, SYN | ACK, 12)),
            2 => assert_eq!((side, packet.flags, packet.payload), (0, ACK, 0)),
            _ => assert_eq!((packet.flags & (SYN | ACK), packet.options), (ACK, 0)),
        }
        if let Some(next) = self.next[side] {
            assert_eq!(packet.sequence, next, "neither a gap nor a repetition: {packet:?}");
        }
        let control = u32::from(packet.flags & (SYN | FIN) != 0);
        self.next[side] = Some(packet.sequence.wrapping_add(packet.payload + control));
        if packet.flags & ACK != 0 {
            assert_eq!(Some(packet.acknowledgment), self.next[1 - side], "all that was seen is acknowledged");
            let alone = packet.payload == 0 && packet.flags == ACK;
            let again = self.acknowledged[side] == Some(packet.acknowledgment);
            // A pure acknowledgment acknowledges new octets.
            assert!(!(alone && again), "{packet:?}");
            self.acknowledged[side] = Some(packet.acknowledgment);
        }
        assert!(!self.fins[side] || packet.payload == 0, "no data behind a FIN");
        self.data[side] += u64::from(packet.payload);
        self.fins[side] |= packet.flags & FIN != 0;
        self.over = packet.flags & RST != 0 || (self.fins == [true; 2] && packet.flags == ACK);
        self.packets += 1;
    }
}

#[test]
fn tcp_conversations_of_a_mix_follow_the_protocol() {
    let mut source = TrafficGenerator::new("mix,flows=500,new=2000,packets=300k,seed=6,rst=30%").unwrap();
    let mut conversations: HashMap<_, Conversation> = HashMap::new();
    for packet in all(&mut source).iter().filter(|packet| packet.protocol == 6) {
        let [from, to] = packet.ends;
        conversations.entry((from.min(to), from.max(to))).or_default().enter(packet);
    }
    let over: Vec<_> = conversations.values().filter(|conversation| conversation.over).collect();
    assert!(over.len() > 2_000, "{}", over.len());
    assert!(conversations.len() - over.len() <= 500, "only those at the end are cut");
    assert!(over.iter().all(|conversation| conversation.data.iter().all(|&octets| octets > 0)));
}

#[test]
fn handshake_shows_the_round_trip_time() {
    let packets = all(&mut TrafficGenerator::new("mix,flows=100,packets=20k,udp=0").unwrap());
    let mut syns = HashMap::new();
    let mut trips = Vec::new();
    for packet in &packets {
        match packet.flags {
            SYN => _ = syns.insert(packet.ends, packet.time_ns),
            flags if flags == SYN | ACK => {
                let [from, to] = packet.ends;
                trips.push(packet.time_ns - syns[&[to, from]]);
            }
            _ => {}
        }
    }
    trips.sort_unstable();
    assert!(trips[0] > 1_000 && *trips.last().unwrap() < 200_000_000, "{trips:?}");
}

#[test]
fn snap_length_cuts_only_the_captured_bytes() {
    for load in ["velan,size=512,flows=10,packets=1000", "mix,flows=50,packets=5k", "lossy,flows=50,packets=5k"] {
        let (mut whole, mut cut) = (TrafficGenerator::new(load).unwrap(), recording(&format!("{load},snap=96")));
        while let Some(expected) = whole.burst().unwrap() {
            let burst = cut.burst().unwrap().unwrap();
            assert_eq!(burst.len(), expected.len());
            for (frame, expected) in burst.iter().zip(&expected) {
                assert_eq!(frame.bytes, &expected.bytes[..expected.bytes.len().min(96)]);
                assert_eq!((frame.time_ns, frame.wire_bytes), (expected.time_ns, expected.wire_bytes));
            }
        }
        assert!(cut.burst().unwrap().is_none());
        let frame_bytes: u64 =
            cut.expected_flows().iter().map(|flow| flow.forward.frame_bytes + flow.reverse.frame_bytes).sum();
        assert_eq!(whole.progress().done_bytes, frame_bytes);
        assert!(cut.progress().done_bytes < frame_bytes);
    }
}

#[test]
fn packets_and_duration_limit_the_traffic() {
    let count = |spec: &str| all(&mut TrafficGenerator::new(spec).unwrap()).len();
    assert_eq!(count("velan,packets=1"), 1);
    assert_eq!(count("velan,packets=1k,rate=1000"), 1_000);
    assert_eq!(count("velan,duration=2s,rate=1000"), 2_000);
    assert_eq!(count("velan,duration=2s,rate=1000,packets=10k"), 2_000);
    assert_eq!(count("velan,duration=2s,rate=1000,packets=1999"), 1_999);
    assert_eq!(count("mix,packets=65"), 65);
    assert_eq!(count("mix,packets=20k,flows=100"), 20_000);
    assert_eq!(count("lossy,packets=65"), 65);
    assert_eq!(count("lossy,packets=20k,flows=100"), 20_000);
    let mut source = TrafficGenerator::new("velan,packets=100,size=1000,snap=100").unwrap();
    assert_eq!(source.progress().total_bytes, Some(10_000));
    while source.burst().unwrap().is_some() {}
    assert_eq!(source.progress().done_bytes, 10_000);
}

#[test]
fn written_pcap_file_is_read_unchanged() {
    for (spec, snap) in [("mix,flows=50,packets=3k,snap=200", 65_535), ("velan,packets=1000,size=1518", 100)] {
        let mut writer = PcapWriter::new(Vec::new(), 1, snap).unwrap();
        let mut source = TrafficGenerator::new(spec).unwrap();
        while let Some(burst) = source.burst().unwrap() {
            burst.iter().for_each(|frame| writer.write(frame).unwrap());
        }
        let file = writer.finish().unwrap();
        let written = frames(&mut *weir_capture::from_bytes(Path::new("memory"), file).unwrap(), snap);
        assert_eq!(written, frames(&mut TrafficGenerator::new(spec).unwrap(), snap), "{spec}");
    }
}

/// Time, octets on the wire and at most `snap` captured octets of each frame.
fn frames(source: &mut dyn Source, snap: u32) -> Vec<(u64, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(snap as usize)].to_vec();
        frames.extend(burst.iter().map(|frame| (frame.time_ns, frame.wire_bytes, cut(frame.bytes))));
    }
    frames
}

#[test]
fn csv_of_expected_flows_has_all_columns_and_empty_fields_where_none_apply() {
    let mut source = recording("velan,flows=1,packets=2,rate=1000");
    all(&mut source);
    let mut text = Vec::new();
    write_expected_flows(source.expected_flows(), source.expected_tcp(), source.expected_applications(), &mut text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let expected = "src_ip,dst_ip,src_port,dst_port,protocol_number,start_ns,end_ns,\
        fwd_packets,fwd_bytes,fwd_l2_bytes,fwd_tcp_flags_number,fwd_first_ns,fwd_last_ns,\
        rev_packets,rev_bytes,rev_l2_bytes,rev_tcp_flags_number,rev_first_ns,rev_last_ns\n\
        198.18.0.0,198.19.0.0,49152,49153,17,1767225600000000000,1767225600001000000,\
        2,92,120,,1767225600000000000,1767225600001000000,0,0,0,,,\n";
    assert_eq!(text, expected);
}

#[test]
fn wrong_specification_is_refused_with_the_right_ones() {
    let message = |spec: &str| TrafficGenerator::new(spec).err().unwrap().to_string();
    assert_eq!(
        message("velam"),
        "there is no traffic profile 'velam' (did you mean velan?); the profiles are: velan, mix, lossy, apps"
    );
    assert_eq!(message(""), "there is no traffic profile ''; the profiles are: velan, mix, lossy, apps");
    assert!(message("velan,flow=1").contains("'flow' (did you mean flows?); its keys are: flows, size, packets"));
    assert!(message("mix,size=64").starts_with("mix has no key 'size'"));
    for spec in [
        "velan,size=63",
        "velan,size=1519",
        "velan,flows=0",
        "velan,flows=5G",
        "velan,packets=0",
        "velan,rate=0",
        "velan,order=any",
        "velan,directions=3",
        "mix,flows=10,new=101",
        "mix,ipv6=2",
        "mix,duration=0",
        "mix,snap=0",
        "mix,seed=-1",
        "lossy,loss=101%",
        "lossy,flows=1M",
        "lossy,flows=10,new=11",
    ] {
        assert!(matches!(TrafficGenerator::new(spec), Err(SettingsError::Value(..))), "{spec}");
    }
    assert!(matches!(TrafficGenerator::new("mix,"), Err(SettingsError::NotAPair(_))));
    assert!(matches!(TrafficGenerator::new("mix,seed=1,seed=2"), Err(SettingsError::Duplicate("seed"))));
}
