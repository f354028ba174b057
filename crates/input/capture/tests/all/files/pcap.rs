//! Intact and damaged pcap files.

use super::*;

#[test]
fn every_magic_number_gives_the_same_frames() {
    for big_endian in [false, true] {
        for (magic, unit_ns) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1), (0xa1b2_cd34, 1000)] {
            let file = Pcap::new(big_endian, magic).record(7, 5, 60, 60).record(8, 999_999, 3, 1500).done();
            let frames = intact(&file);
            assert_eq!(frames.len(), 2, "{magic:x} {big_endian}");
            assert_eq!(frames[0].time_ns, 7_000_000_000 + 5 * unit_ns);
            assert_eq!(frames[1].time_ns, 8_000_000_000 + 999_999 * unit_ns);
            assert_eq!((frames[0].bytes.len(), frames[0].wire_bytes), (60, 60));
            assert_eq!((frames[1].bytes.len(), frames[1].wire_bytes), (3, 1500));
            assert_eq!((frames[0].link_type, frames[0].interface, frames[0].time_assumed), (1, 1, false));
        }
    }
}

#[test]
fn fcs_length_is_no_part_of_the_link_type() {
    for big_endian in [false, true] {
        let mut file = Pcap::new(big_endian, 0xa1b2_c3d4);
        file.link_type = 0x2400_0114;
        assert_eq!(intact(&file.record(0, 0, 1, 1).done())[0].link_type, 276);
    }
}

#[test]
fn snap_length_of_the_file_header_is_ignored() {
    for snap_bytes in [0, 1, 68, u32::MAX] {
        let mut file = Pcap::new(false, 0xa1b2_c3d4);
        file.snap_bytes = snap_bytes;
        assert_eq!(intact(&file.record(0, 0, 1000, 1000).done())[0].bytes.len(), 1000);
    }
}

#[test]
fn before_version_2_4_the_smaller_length_is_the_captured_length() {
    let mut file = Pcap::new(true, 0xa1b2_c3d4);
    file.version = (2, 2);
    let mut file = file.record(0, 0, 60, 1500);
    file.swap_lengths = true;
    let frames = intact(&file.record(0, 0, 60, 1500).done());
    assert_eq!(frames.iter().map(|f| (f.bytes.len(), f.wire_bytes)).collect::<Vec<_>>(), [(60, 1500), (60, 1500)]);
}

#[test]
fn records_have_their_time_and_lengths() {
    let latest_ns = u64::from(u32::MAX) * 1_000_001_000;
    // Seconds, fraction, captured and original length; time, captured and original length.
    for (record, expected) in [
        // A fraction of a second or more is added.
        ([1, 2_500_000, 1, 1], (3_500_000_000, 1, 1)),
        ([u32::MAX, u32::MAX, 1, 1], (latest_ns, 1, 1)),
        // A captured length above the original length raises that.
        ([0, 0, 64, 60], (0, 64, 64)),
        ([0, 0, 60, 0], (0, 60, 60)),
        // Empty frames are delivered.
        ([1, 0, 0, 0], (1_000_000_000, 0, 0)),
        ([2, 0, 0, 9], (2_000_000_000, 0, 9)),
    ] {
        let [seconds, fraction, captured, wire] = record;
        let frames = intact(&Pcap::new(false, 0xa1b2_c3d4).record(seconds, fraction, captured, wire).done());
        assert_eq!((frames[0].time_ns, frames[0].bytes.len(), frames[0].wire_bytes), expected);
        assert!(frames.len() == 1 && !frames[0].time_assumed);
    }
    assert_eq!(intact(&Pcap::new(false, 0xa1b2_c3d4).done()), [], "a file without packets is a capture");
}

#[test]
fn impossible_captured_length_ends_the_file_with_its_offset() {
    for captured in [16 * 1024 * 1024 + 1, u32::MAX] {
        let mut file = Pcap::new(false, 0xa1b2_c3d4).record(0, 0, 10, 10);
        file.header(1, 1, captured, captured);
        let (frames, errors) = damage(&file.record(0, 0, 10, 10).done());
        assert_eq!(frames.len(), 1);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].0, 24 + 16 + 10);
        assert!(errors[0].1.contains(&captured.to_string()), "{}", errors[0].1);
    }
}

#[test]
fn file_cut_at_any_byte_delivers_all_whole_frames_and_the_offset() {
    for magic in [0xa1b2_c3d4, 0xa1b2_cd34] {
        let file = Pcap::new(true, magic).record(1, 0, 20, 20).record(2, 0, 0, 5).record(3, 0, 33, 40);
        let ends = file.ends.clone();
        let file = file.done();
        for cut in 0..=file.len() {
            let part = &file[..cut];
            if cut < 24 {
                let what = refusal(part.to_vec());
                assert!(cut < 4 || what.contains("cut in its file header"), "{cut}: {what}");
                continue;
            }
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            let start = ends[..whole].last().copied().unwrap_or(24);
            delivers_until_the_cut(part, whole, start);
        }
    }
}

#[test]
fn any_value_of_any_header_byte_is_handled() {
    let file = Pcap::new(false, 0xa1b2_c3d4).record(1, 2, 8, 8).record(3, 4, 8, 8).done();
    for at in 0..24 + 16 + 8 + 16 {
        for value in 0..=255 {
            let mut changed = file.clone();
            changed[at] = value;
            let (frames, errors) = same_either_way(&changed);
            assert!(frames.len() <= 3 && errors.len() <= 1, "{at} {value}");
            assert!(frames.iter().all(|frame| frame.wire_bytes as usize >= frame.bytes.len()));
        }
    }
}

#[test]
fn other_major_version_is_refused() {
    let mut file = Pcap::new(false, 0xa1b2_c3d4);
    file.version = (3, 0);
    assert!(refusal(file.done()).contains("version 3.0"));
}

#[test]
fn long_file_is_delivered_in_full_bursts() {
    let file = (0..1000).fold(Pcap::new(false, 0xa1b2_c3d4), |file, second| file.record(second, 0, 100, 100));
    let mut source = from_bytes(Path::new("input"), file.done()).unwrap();
    let mut sizes = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        sizes.push(burst.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 1000);
    assert_eq!(sizes[..15], [64; 15]);
}
