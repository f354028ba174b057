//! Files that are built here, files of nfdump 1.7.1, wrong and hostile ones.

use crate::NfdumpReader;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::path::{Path, PathBuf};
use weir_fields::{FieldValue, column};
use weir_flow::FlowRecord;
use weir_ipfix_file::{Found, Problem, What};

struct Outcome {
    flows: Vec<FlowRecord>,
    problems: Vec<String>,
    known: Vec<&'static str>,
    has_directions: bool,
}

impl Outcome {
    fn packets(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.forward.packets).collect()
    }

    /// The values of a field.
    fn values(&self, name: &str) -> Vec<String> {
        assert!(self.known.contains(&name), "{name} is not known: {:?}", self.known);
        let text = |flow| {
            let value = column(name).unwrap().read(flow);
            assert!(!matches!(value, FieldValue::NoValue | FieldValue::Implied(_)), "{name}");
            let mut text = Vec::new();
            value.append_text(&mut text);
            String::from_utf8(text).unwrap()
        };
        self.flows.iter().map(text).collect()
    }
}

fn read_path(path: &Path) -> Outcome {
    let Found { mut reader, has_directions, .. } = NfdumpReader::open(&[PathBuf::from(path)], None).unwrap();
    let known = reader.known().iter().map(|column| column.name).collect();
    let (mut flows, mut problems) = (Vec::new(), Vec::new());
    loop {
        match reader.read(&mut flows, 3) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Problem { what: What::Ended(error), .. }) => problems.push(error.to_string()),
            Err(Problem { what: What::LeftOut(records), .. }) => problems.push(records),
        }
    }
    Outcome { flows, problems, known, has_directions }
}

fn read(octets: &[u8]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nfcapd");
    fs::write(&path, octets).unwrap();
    read_path(&path)
}

fn of_nfdump(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/nfdump").join(name)
}

/// A file of these blocks, which have their headers.
fn file(compression: u8, blocks: &[Vec<u8>]) -> Vec<u8> {
    let octets = 40 + blocks.iter().map(Vec::len).sum::<usize>() as u64;
    let mut file = [&[0x0c, 0xa5, 2, 0][..], &0x0107_0100_u32.to_le_bytes(), &[0; 8], &[compression, 0, 1, 0]].concat();
    file.extend([&[0; 4][..], &octets.to_le_bytes(), &[0; 4], &(blocks.len() as u32).to_le_bytes()].concat());
    file.extend(blocks.concat());
    // In place of an appendix.
    file.extend([0; 20]);
    file
}

fn block(kind: u16, records: usize, content: &[u8]) -> Vec<u8> {
    let numbers = [(records as u32).to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
    [&numbers, &kind.to_le_bytes()[..], &[0; 2], content].concat()
}

fn plain(records: &[Vec<u8>]) -> Vec<u8> {
    file(0, &[block(3, records.len(), &records.concat())])
}

type Extension = (u16, Vec<u8>);

fn record(flags: u8, extensions: &[Extension]) -> Vec<u8> {
    let mut content = Vec::new();
    for (kind, octets) in extensions {
        content.extend([kind.to_le_bytes(), (octets.len() as u16 + 4).to_le_bytes()].concat());
        content.extend(octets);
    }
    let length = (12 + content.len()) as u16;
    let numbers = [11, length, extensions.len() as u16, 0, 7].map(u16::to_le_bytes).concat();
    [&numbers[..], &[flags, 10], &content].concat()
}

/// The extension of every flow: one of 1.5 s, with these ports, protocol and TCP flags.
fn generic(packets: u64, ports: [u16; 2], protocol: u8, tcp_flags: u8) -> Extension {
    let times = [1_700_000_010_000_u64, 1_700_000_011_500, 0, packets, packets * 100].map(u64::to_le_bytes).concat();
    (1, [&times, &ports.map(u16::to_le_bytes).concat()[..], &[protocol, tcp_flags, 0, 0xb8]].concat())
}

fn ipv4() -> Extension {
    (2, [0xc000_0201_u32, 0xc000_0202].map(u32::to_le_bytes).concat())
}

fn counters(packets: u64, octets: u64) -> Extension {
    (5, [1, packets, octets].map(u64::to_le_bytes).concat())
}

fn tcp(packets: u64, more: &[Extension]) -> Vec<u8> {
    record(0, &[&[generic(packets, [50_000, 80], 6, 0x1b), ipv4()], more].concat())
}

/// Input and output interface, and values of an octet each.
fn miscellaneous(input: u32, direction: u8, end_reason: u8, reverse_tcp_flags: u8) -> Extension {
    let interfaces = [input, 9].map(u32::to_le_bytes).concat();
    (4, [&interfaces[..], &[24, 24, 0, 0, direction, end_reason, reverse_tcp_flags, 0]].concat())
}

#[test]
fn values_of_extensions_are_fields() {
    let ipv6 = [0x2001_0db8_0000_0000_u64, 1, 0x2001_0db8_0000_0000, 2].map(u64::to_le_bytes).concat();
    let macs = [0x0200_0000_0001_u64, 0, 0x0200_0000_0002, 0].map(u64::to_le_bytes).concat();
    let more = [
        miscellaneous(3, 1, 2, 0x12),
        counters(4, 500),
        (6, [100_u32, 0].map(u32::to_le_bytes).concat()),
        (14, [0x12345_u32 << 4 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(u32::to_le_bytes).concat()),
        (15, macs),
        (42, vec![0, 0, 60, 64]),
        // An extension of the future, and one with a number that none has.
        (50, vec![1; 8]),
        (9999, vec![]),
    ];
    let outcome =
        read(&plain(&[tcp(6, &more), record(0, &[&[generic(2, [1, 2], 17, 0), (3, ipv6)], &more[..]].concat())]));
    assert!(outcome.problems.is_empty() && !outcome.has_directions, "{:?}", outcome.problems);
    let expected = [
        ("start_time", ["2023-11-14T22:13:30.000000000Z"; 2]),
        ("duration_ns", ["1500000000"; 2]),
        ("src_ip", ["192.0.2.1", "2001:db8::1"]),
        ("dst_ip", ["192.0.2.2", "2001:db8::2"]),
        ("src_port", ["50000", "1"]),
        ("dst_port", ["80", "2"]),
        ("protocol", ["tcp", "udp"]),
        ("fwd_packets", ["6", "2"]),
        ("rev_packets", ["4"; 2]),
        ("bytes", ["1100", "700"]),
        ("fwd_tos", ["184"; 2]),
        ("interface", ["3"; 2]),
        ("end_reason", ["active"; 2]),
        ("fwd_vlan_id", ["100"; 2]),
        ("fwd_mpls_label", ["74565"; 2]),
        ("src_mac", ["02:00:00:00:00:01"; 2]),
        ("dst_mac", ["02:00:00:00:00:02"; 2]),
        ("fwd_ttl_min", ["60"; 2]),
        ("fwd_ttl_max", ["64"; 2]),
    ];
    for (field, values) in expected {
        assert_eq!(outcome.values(field), values, "{field}");
    }
    assert_eq!(outcome.flows[0].forward.tcp_flags, 0x1b);
    assert_eq!(outcome.flows[0].reverse.tcp_flags, 0x12);
    for field in ["rev_tos", "rev_vlan_id", "approximate", "sampling_max"] {
        assert!(!outcome.known.contains(&field), "{field}");
    }
}

#[test]
fn type_and_code_of_icmp_are_in_the_port() {
    let flow = record(0, &[generic(1, [0, 0x0301], 1, 0), ipv4()]);
    let outcome = read(&plain(&[flow]));
    assert_eq!(
        (outcome.values("fwd_icmp_type"), outcome.values("fwd_icmp_code")),
        (vec!["3".into()], vec!["1".into()])
    );
}

#[test]
fn what_no_record_of_a_file_has_is_not_known() {
    let outcome = |records: &[Vec<u8>]| read(&plain(records));
    let none = [miscellaneous(0, 0, 0, 0), counters(0, 0), (6, vec![0; 8])];
    let one_way = outcome(&[tcp(1, &none), tcp(2, &none)]);
    assert!(one_way.has_directions, "counters that are 0 in all records are no direction");
    for field in ["interface", "end_reason", "fwd_vlan_id", "service_port"] {
        assert!(!one_way.known.contains(&field), "{field}");
    }
    assert_eq!(one_way.values("fwd_tcp_flags").len(), 2);
    // Some have a value, so that 0 is one in the others.
    let some = [miscellaneous(1, 0, 1, 0), counters(1, 100), (6, [5_u32, 0].map(u32::to_le_bytes).concat())];
    let both = outcome(&[tcp(1, &none), tcp(2, &some)]);
    assert!(!both.has_directions);
    assert_eq!(both.values("interface"), ["0", "1"]);
    assert_eq!(both.values("rev_packets"), ["0", "1"]);
    assert_eq!(both.values("fwd_vlan_id")[1], "5");
    // No record of TCP has flags, so the exporter did not send them.
    let no_flags = outcome(&[record(0, &[generic(1, [1, 2], 6, 0), ipv4()])]);
    assert!(!no_flags.known.contains(&"fwd_tcp_flags"));
}

#[test]
fn a_responder_as_source_is_exchanged() {
    let outcome = read(&plain(&[tcp(6, &[miscellaneous(1, 2, 1, 0), counters(4, 500)])]));
    assert_eq!((outcome.values("src_ip"), outcome.values("fwd_packets")), (vec!["192.0.2.2".into()], vec!["4".into()]));
}

#[test]
fn counters_that_nfcapd_multiplied_are_marked() {
    // Of exporter 7, one in 10.
    let sampler = [&[15, 0, 24, 0, 7, 0, 0, 0][..], &[255; 8], &[1, 0, 0, 0], &[9, 0, 0, 0]].concat();
    let sampled = record(2, &[generic(1, [1, 2], 6, 1), ipv4()]);
    let outcome = read(&plain(&[sampler.clone(), sampled.clone(), tcp(1, &[])]));
    assert_eq!(outcome.values("approximate"), ["sampled", ""]);
    assert!(outcome.problems.is_empty());
    // One in 1.
    let outcome = read(&plain(&[[&sampler[..20], &[0; 4]].concat(), sampled]));
    assert!(!outcome.known.contains(&"approximate") && outcome.flows.len() == 1);
}

#[test]
fn what_is_no_flow_is_counted() {
    let outcome = read(&file(
        0,
        &[
            block(4, 1, &[0; 8]),
            block(
                3,
                9,
                &[
                    record(1, &[generic(1, [1, 2], 6, 1), ipv4()]),
                    record(0, &[generic(1, [1, 2], 6, 1)]),
                    record(0, &[ipv4()]),
                    record(0, &[generic(0, [1, 2], 6, 1), ipv4()]),
                    record(0, &[(1, vec![0; 20]), ipv4()]),
                    // An exporter, a record of 1.6, and one whose length is that of its header.
                    vec![7, 0, 8, 0, 0, 0, 0, 0],
                    vec![1, 0, 8, 0, 0, 0, 0, 0],
                    vec![11, 0, 4, 0],
                    tcp(5, &[]),
                ]
                .concat(),
            ),
            block(3, 2, &tcp(6, &[])),
            block(3, 1, &[tcp(7, &[]), tcp(8, &[])].concat()),
        ],
    ));
    assert_eq!(outcome.packets(), [5, 6, 7]);
    let place = "the first in the block at octet";
    let expected = [
        format!("2 malformed blocks, from the first wrong length on ({place} 456)"),
        format!("1 blocks of type 4, which have no flow records ({place} 40)"),
        format!("1 records of the unknown type 1 ({place} 60)"),
        format!("2 malformed records ({place} 60)"),
        format!("1 events of firewalls and NAT (NSEL, NEL), which are no flows ({place} 60)"),
        format!("1 records without sourceIPv4Address or sourceIPv6Address ({place} 60)"),
        format!("1 records without protocolIdentifier ({place} 60)"),
        format!("1 records whose times or counts do not fit together ({place} 60)"),
    ];
    assert_eq!(outcome.problems.len(), expected.len(), "{:#?}", outcome.problems);
    for problem in &expected {
        assert!(outcome.problems.contains(problem), "{problem}: {:#?}", outcome.problems);
    }
}

#[test]
fn compressed_blocks_are_read_up_to_the_limit_of_nfdump() {
    let records = [1, 2, 3].map(|packets| tcp(packets, &[])).concat();
    for number in [3, 4] {
        let compress = |octets: &[u8]| match number {
            3 => lz4_flex::block::compress(octets),
            _ => compress_to_vec(octets, CompressionLevel::Fastest),
        };
        let content = compress(&records);
        assert_eq!(read(&file(number, &[block(3, 3, &content)])).packets(), [1, 2, 3]);
        // The flag of a block that is not compressed.
        let mut plain = block(3, 3, &records);
        plain[10] = 1;
        let too_many = block(3, 1, &compress(&vec![0; (5 << 20) + 1]));
        let wrong = block(3, 1, &[9; 30]);
        let outcome = read(&file(number, &[plain, too_many, wrong, block(3, 3, &content)]));
        assert_eq!(outcome.packets(), [1, 2, 3, 1, 2, 3]);
        let left_out = "2 blocks that cannot be decompressed (the first in the block at octet 280)";
        assert_eq!(outcome.problems, [left_out]);
    }
}

#[test]
fn files_that_are_not_read_are_named() {
    let header = |version: u8, compression: u8, encryption: u8| {
        let mut file = plain(&[tcp(1, &[])]);
        (file[2], file[16], file[17]) = (version, compression, encryption);
        file
    };
    let mut long = plain(&[tcp(1, &[])]);
    long[44..48].fill(255);
    let cases = [
        (b"text".to_vec(), "this is no file of nfdump"),
        (Vec::new(), "this is no file of nfdump"),
        (vec![0xa5, 0x0c, 0, 2], "big-endian"),
        (header(1, 0, 0), "nfdump -r FILE -w NEW_FILE"),
        (header(3, 0, 0), "layout version 3 of nfdump's files is not known"),
        (header(2, 1, 0), "nfdump -J 3 -r FILE"),
        (header(2, 5, 0), "compression 5"),
        (header(2, 0, 1), "encrypted"),
        (header(2, 0, 0)[..30].to_vec(), "the header of the file is cut off"),
        (long, "at octet 40 is no block (length 4294967295)"),
        (fs::read(of_nfdump("vlan-lzo.nfcapd")).unwrap(), "compressed with LZO"),
    ];
    for (octets, expected) in cases {
        let outcome = read(&octets);
        assert!(outcome.flows.is_empty());
        assert!(outcome.problems.len() == 1 && outcome.problems[0].contains(expected), "{:?}", outcome.problems);
    }
}

#[test]
fn numbers_of_blocks_that_are_wrong_are_reported() {
    let blocks = [1, 2, 3].map(|packets| block(3, 1, &tcp(packets, &[])));
    let with = |blocks_of_header: u8, appendix: Option<u64>| {
        let mut octets = file(0, &blocks);
        octets[36] = blocks_of_header;
        if let Some(appendix) = appendix {
            octets[24..32].copy_from_slice(&appendix.to_le_bytes());
            octets.truncate(octets.len() - 20);
        }
        read(&octets)
    };
    let two = with(2, None);
    assert_eq!(two.packets(), [1, 2]);
    assert!(two.problems[0].contains("which the header of the file does not count as blocks"), "{:?}", two.problems);
    let none = with(0, None);
    assert!(none.flows.is_empty() && none.problems.len() == 1, "{:?}", none.problems);
    assert!(none.problems[0].starts_with("octets 40 to "), "{:?}", none.problems);
    // Nothing was received.
    let empty = read(&file(0, &[]));
    assert!(empty.flows.is_empty() && empty.problems.is_empty(), "{:?}", empty.problems);
    let four = with(5, Some(0));
    assert_eq!(
        (four.packets(), &*four.problems[0]),
        (vec![1, 2, 3], "the file ends 2 blocks before the number in its header")
    );
    // nfcapd has not finished the file.
    let open = with(0, Some(0));
    assert_eq!((open.packets(), open.problems.len()), (vec![1, 2, 3], 0));
}

#[test]
fn files_of_nfdump_have_the_sums_that_it_prints() {
    // Flows, packets and octets of nfdump -I.
    for (name, expected) in [
        ("vlan.nfcapd", [21, 57, 20_806]),
        ("dns-bzip2.nfcapd", [36, 82, 22_576]),
        ("web-lz4.nfcapd", [12, 120, 79_504]),
    ] {
        let outcome = read_path(&of_nfdump(name));
        let sum = |value: fn(&FlowRecord) -> u64| outcome.flows.iter().map(value).sum::<u64>();
        assert_eq!([sum(|_| 1), sum(FlowRecord::packets), sum(FlowRecord::bytes)], expected, "{name}");
        assert!(outcome.problems.is_empty() && outcome.has_directions, "{name}");
    }
    let outcome = read_path(&of_nfdump("vlan.nfcapd"));
    assert_eq!(outcome.values("src_mac")[0], "02:00:00:00:00:01");
    assert_eq!(outcome.values("fwd_icmp_type")[0], "8");
}

#[test]
fn a_file_that_is_cut_anywhere_has_the_blocks_before() {
    let blocks = [1, 2, 3].map(|packets| block(3, 1, &tcp(packets, &[])));
    let (whole, length) = (file(0, &blocks), blocks[0].len());
    for end in 1..whole.len() - 20 {
        let outcome = read(&whole[..end]);
        let expected = &[1, 2, 3][..(end.saturating_sub(40)) / length];
        assert_eq!(outcome.packets(), expected, "{end}");
        assert_eq!(outcome.problems.len(), 1, "{end}: {:?}", outcome.problems);
    }
}

#[test]
fn octets_that_are_flipped_cannot_cause_a_panic() {
    for name in ["vlan.nfcapd", "dns-bzip2.nfcapd", "web-lz4.nfcapd"] {
        let whole = fs::read(of_nfdump(name)).unwrap();
        for at in (0..whole.len()).step_by(11) {
            for bits in [1, 0xff] {
                let mut octets = whole.clone();
                octets[at] ^= bits;
                let outcome = read(&octets);
                assert!(outcome.flows.iter().all(|flow| flow.packets() > 0), "{name} {at}");
            }
        }
    }
}
