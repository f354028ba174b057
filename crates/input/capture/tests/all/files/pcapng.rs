//! Intact and damaged pcapng files.

use super::*;

#[test]
fn names_of_interfaces_have_the_numbers_of_their_frames() {
    let file = Ng::section(false).interface(1, 0, &[(2, b"eth0")]).interface(1, 0, &[]);
    let file = file.and(Ng::section(true).interface(1, 0, &[(2, b"wlan0")]).enhanced(0, 7, 11, 20)).done();
    let named = |number, name: &str| (number, name.to_owned());
    let long = Ng::section(false).interface(1, 0, &[(2, &[b'a'; 60_000])]).enhanced(0, 7, 11, 20).done();
    let mut source = from_bytes(Path::new("input"), long).unwrap();
    assert!(source.burst().unwrap().is_some());
    assert_eq!(source.interfaces(), [named(1, &"a".repeat(64))]);
    let mut source = from_bytes(Path::new("input"), file.clone()).unwrap();
    assert_eq!(source.burst().unwrap().unwrap()[0].interface, 3);
    assert_eq!(source.interfaces(), [named(1, "eth0"), named(3, "wlan0")]);
    let mut merged =
        merge(vec![from_bytes(Path::new("a"), file.clone()).unwrap(), from_bytes(Path::new("b"), file).unwrap()]);
    while merged.burst().unwrap().is_some() {}
    assert_eq!(merged.interfaces(), [named(1, "wlan0"), named(2, "wlan0")]);
}

#[test]
fn control_characters_of_names_are_replaced() {
    let name = "\u{1b}[31mréd\u{7}\u{9b}\u{202e}\u{3164}";
    let file = Ng::section(false).interface(1, 0, &[(2, name.as_bytes())]).enhanced(0, 7, 11, 20).done();
    let mut source = from_bytes(Path::new("input"), file).unwrap();
    assert!(source.burst().unwrap().is_some());
    assert_eq!(source.interfaces(), [(1, "\u{fffd}[31mréd\u{fffd}\u{fffd}\u{fffd}\u{fffd}".to_owned())]);
}

#[test]
fn sections_have_their_own_byte_order_and_interface_numbers_continue() {
    let mut file = Ng::section(false).interface(1, 0, &[]).interface(101, 0, &[]);
    file = file.enhanced(1, 5, 10, 10).enhanced(0, 6, 10, 10);
    file = file.and(Ng::section(true).interface(276, 0, &[]).enhanced(0, 7, 11, 20));
    file = file.and(Ng::section(false).interface(113, 0, &[]).enhanced(0, 8, 12, 12));
    let frames = intact(&file.done());
    let facts: Vec<_> = frames.iter().map(|f| (f.interface, f.link_type, f.time_ns, f.wire_bytes)).collect();
    assert_eq!(facts, [(2, 101, 5000, 10), (1, 1, 6000, 10), (3, 276, 7000, 20), (4, 113, 8000, 12)]);
}

#[test]
fn times_follow_resolution_and_offset_of_their_interface() {
    for big_endian in [false, true] {
        let offset = if big_endian { (-10_i64).to_be_bytes() } else { (-10_i64).to_le_bytes() };
        let file = Ng::section(big_endian)
            .interface(1, 0, &[(9, &[9])])
            .interface(1, 0, &[(2, b"eth0"), (9, &[0x80 | 20]), (14, &offset)])
            .interface(1, 0, &[(9, &[12])])
            .interface(1, 0, &[(9, &[0])])
            .interface(1, 0, &[(0, &[]), (9, &[9])]);
        let file = file.enhanced(0, 77, 1, 1).enhanced(1, 11 << 20 | 1 << 19, 1, 1);
        let file = file.enhanced(2, 5999, 1, 1).enhanced(3, 2, 1, 1).enhanced(4, 3, 1, 1);
        let times: Vec<_> = intact(&file.done()).iter().map(|f| f.time_ns).collect();
        assert_eq!(times, [77, 1_500_000_000, 5, 2_000_000_000, 3000], "options end where they say so");
    }
}

#[test]
fn times_out_of_range_are_clamped_and_flagged() {
    let before = (-1_i64).to_le_bytes();
    let file = Ng::section(false).interface(1, 0, &[]).interface(1, 0, &[(14, &before)]);
    let frames = intact(&file.enhanced(0, u64::MAX, 1, 1).enhanced(1, 5, 1, 1).enhanced(0, 5, 1, 1).done());
    let facts: Vec<_> = frames.iter().map(|f| (f.time_ns, f.time_assumed)).collect();
    assert_eq!(facts, [(u64::MAX, true), (0, true), (5000, false)]);
}

#[test]
fn simple_packets_have_the_time_of_the_previous_packet() {
    let file = Ng::section(false).interface(1, 20, &[]).simple(10, 10);
    let file = file.enhanced(0, 9, 1, 1).simple(20, 33).simple(7, 7);
    let frames = intact(&file.done());
    let facts: Vec<_> = frames.iter().map(|f| (f.time_ns, f.bytes.len(), f.wire_bytes)).collect();
    assert_eq!(facts, [(0, 10, 10), (9000, 1, 1), (9000, 20, 33), (9000, 7, 7)]);
}

#[test]
fn simple_packets_without_a_snap_length_are_whole() {
    let file = Ng::section(true).interface(1, 0, &[]).simple(9, 9);
    assert_eq!(intact(&file.done())[0].bytes.len(), 9);
    let (frames, errors) = damage(&Ng::section(true).interface(1, 0, &[]).simple(8, 99).done());
    assert!(frames.is_empty() && errors[0].1.contains("99 captured bytes"));
}

#[test]
fn obsolete_packet_blocks_are_read() {
    let file = Ng::section(true).interface(1, 0, &[]).interface(1, 0, &[]).obsolete(1, 4, 6, 60);
    let frames = intact(&file.done());
    assert_eq!((frames[0].interface, frames[0].time_ns, frames[0].wire_bytes), (2, 4000, 60));
}

#[test]
fn blocks_of_other_types_are_skipped() {
    let mut file = Ng::section(false).block(4, &[0; 4]).interface(1, 0, &[]).block(5, &[0; 12]);
    file = file.block(0x0bad, &[0xff; 40]).enhanced(0, 1, 5, 5).block(10, &[0; 8]).block(0x8000_0001, &[]);
    assert_eq!(intact(&file.done()).len(), 1);
}

#[test]
fn unknown_interface_loses_only_that_packet() {
    let file = Ng::section(false).interface(1, 0, &[]).enhanced(0, 1, 4, 4);
    let at = file.len() as u64;
    let (frames, errors) = damage(&file.enhanced(1, 1, 4, 4).enhanced(0, 2, 4, 4).done());
    assert_eq!((frames.len(), errors.len(), errors[0].0), (2, 1, at));
    assert!(errors[0].1.contains("interface 1"), "{}", errors[0].1);
}

/// Asserts the numbers of frames and errors of a file.
fn has(file: Ng, frames: usize, errors: usize) {
    let found = damage(&file.done());
    assert_eq!((found.0.len(), found.1.len()), (frames, errors), "{found:?}");
}

#[test]
fn interfaces_of_an_earlier_section_are_unknown() {
    let last = Ng::section(false).enhanced(0, 1, 4, 4).simple(4, 4);
    has(Ng::section(false).interface(1, 0, &[]).and(last), 0, 2);
}

#[test]
fn packet_larger_than_its_block_loses_only_that_packet() {
    for captured in [9, 12, 13, u32::MAX] {
        let mut body = [0_u32, 0, 1, captured, 60].map(u32::to_le_bytes).concat();
        body.extend([7; 8]);
        has(Ng::section(false).interface(1, 0, &[]).block(6, &body).enhanced(0, 2, 4, 4), 1, 1);
    }
}

#[test]
fn packet_block_without_its_fixed_fields_loses_only_that_block() {
    let file = Ng::section(false).interface(1, 0, &[]);
    has(file.block(6, &[0; 16]).block(3, &[]).block(2, &[0; 16]).enhanced(0, 2, 4, 4), 1, 3);
}

#[test]
fn block_with_two_different_lengths_loses_only_that_block() {
    let file = Ng::section(false).interface(1, 0, &[]).enhanced(0, 1, 4, 4);
    let at = file.len();
    let file = file.enhanced(0, 2, 4, 4);
    let end = file.len();
    let mut file = file.enhanced(0, 3, 4, 4).done();
    file[end - 4] ^= 4;
    let (frames, errors) = damage(&file);
    assert_eq!(frames.iter().map(|f| f.time_ns).collect::<Vec<_>>(), [1000, 3000]);
    assert_eq!(errors, [(at as u64, "the block's length is 36 at its start and 32 at its end".to_owned())]);
}

#[test]
fn damaged_interface_keeps_its_number() {
    let cut_option = &[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 200, 0];
    let file = Ng::section(false).block(1, &[0; 4]).block(1, cut_option).interface(113, 0, &[]);
    let file = file.interface(1, 0, &[(9, &[1, 2])]).interface(1, 0, &[(14, &[1])]);
    let file = file.enhanced(0, 1, 4, 4).enhanced(1, 1, 4, 4).enhanced(2, 1, 4, 4).enhanced(3, 1, 4, 4);
    let (frames, errors) = damage(&file.enhanced(4, 1, 4, 4).done());
    assert_eq!(frames.iter().map(|f| (f.interface, f.link_type)).collect::<Vec<_>>(), [(3, 113)]);
    assert_eq!(errors.len(), 8, "four damaged descriptions and a packet from each: {errors:?}");
}

#[test]
fn impossible_length_ends_the_file_with_its_offset() {
    for length in [0, 4, 8, 11, 13, 30, 0x7fff_fffc, u32::MAX] {
        let file = Ng::section(false).interface(1, 0, &[]).enhanced(0, 1, 4, 4);
        let at = file.len();
        let mut file = file.enhanced(0, 2, 4, 4).enhanced(0, 3, 4, 4).done();
        file[at + 4..at + 8].copy_from_slice(&u32::to_le_bytes(length));
        let (frames, errors) = damage(&file);
        assert_eq!((frames.len(), errors.len()), (1, 1), "{length}");
        assert_eq!(errors[0].0, at as u64);
    }
}

#[test]
fn section_of_another_version_is_skipped() {
    let mut foreign = Ng::section(true).interface(1, 0, &[]).enhanced(0, 1, 4, 4).done();
    foreign[12..14].copy_from_slice(&[0, 2]);
    let last = Ng::section(false).interface(1, 0, &[]).enhanced(0, 3, 4, 4).done();
    let (frames, errors) = damage(&[foreign, last].concat());
    assert_eq!((frames.len(), errors.len()), (1, 1));
    assert!(errors[0].1.contains("version 2.0"));
}

#[test]
fn damage_is_reported_after_the_frames_before_it() {
    let file = Ng::section(false).interface(1, 0, &[]).enhanced(0, 1, 4, 4).enhanced(7, 2, 4, 4).enhanced(0, 3, 4, 4);
    let mut source = from_bytes(Path::new("input"), file.done()).unwrap();
    assert_eq!(source.burst().unwrap().unwrap()[0].time_ns, 1000);
    assert!(matches!(source.burst(), Err(weir_capture::Error::Damaged { .. })));
    assert_eq!(source.burst().unwrap().unwrap()[0].time_ns, 3000);
    assert!(source.burst().unwrap().is_none());
    assert!(source.burst().unwrap().is_none(), "the end stays the end");
}

#[test]
fn file_cut_at_any_byte_delivers_all_whole_frames_and_the_offset() {
    let file = Ng::section(true).interface(1, 0, &[(9, &[9]), (2, b"lo")]).enhanced(0, 1, 5, 5).simple(6, 6);
    let file = file.block(5, &[0; 8]).and(Ng::section(false).interface(1, 0, &[]).obsolete(0, 2, 3, 9));
    let (starts, packets) = (file.starts.clone(), file.packet_ends.clone());
    let first = starts[1];
    let file = file.done();
    for cut in 0..=file.len() {
        let part = &file[..cut];
        if cut < first {
            let what = refusal(part.to_vec());
            assert!(cut < 4 || what.contains("cut in its first block"), "{cut}: {what}");
            continue;
        }
        let whole = packets.iter().filter(|&&end| end <= cut).count();
        let start = starts.iter().chain([&file.len()]).rfind(|&&start| start <= cut).copied().unwrap();
        delivers_until_the_cut(part, whole, start);
    }
}

#[test]
fn any_value_of_any_byte_is_handled() {
    let file = Ng::section(false).interface(1, 0, &[(9, &[9])]).enhanced(0, 1, 4, 4).simple(4, 4).obsolete(0, 1, 4, 4);
    let file = file.done();
    for at in 0..file.len() {
        for value in 0..=255 {
            let mut changed = file.clone();
            changed[at] = value;
            let (frames, errors) = same_either_way(&changed);
            assert!(frames.len() <= 3 && errors.len() <= 4, "{at} {value}");
            let capture = at >= 28 || from_bytes(Path::new("input"), changed).is_ok();
            assert!(!capture || frames.len() + errors.len() >= 1, "{at} {value}: nothing is lost without a word");
        }
    }
}

#[test]
fn pcap_parser_reads_the_same_packets() {
    use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
    use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};
    let mut file = Ng::section(true).interface(1, 0, &[(2, b"eth0"), (9, &[9])]).interface(113, 64, &[]);
    for packet in 0..200 {
        file = file.enhanced(packet % 2, 1_600_000_000_000_000 + u64::from(packet), packet, packet + 3);
    }
    let file = file.done();
    let mut reader = PcapNGReader::new(65_536, std::io::Cursor::new(&file)).unwrap();
    let mut theirs = Vec::new();
    loop {
        match reader.next() {
            Ok((octets, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
                    theirs.push((packet.if_id + 1, packet.packet_data().to_vec(), packet.origlen));
                }
                reader.consume(octets);
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
    let ours: Vec<_> = intact(&file).into_iter().map(|f| (f.interface, f.bytes, f.wire_bytes)).collect();
    assert_eq!(ours, theirs);
}
