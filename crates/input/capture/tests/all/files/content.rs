//! File formats are recognized by content; compression.

use super::*;
use flate2::Compression;

fn capture() -> Vec<u8> {
    (0..300).fold(Pcap::new(false, 0xa1b2_c3d4), |file, n| file.record(n, n, n % 90, 100)).done()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    super::gzip(bytes, Compression::fast())
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn ng() -> Vec<u8> {
    Ng::section(true).interface(1, 0, &[]).enhanced(0, 1, 4, 4).done()
}

#[test]
fn compressed_captures_have_the_frames_of_the_plain_ones() {
    let plain = intact(&capture());
    assert_eq!(plain.len(), 300);
    assert_eq!(intact(&gzip(&capture())), plain);
    assert_eq!(intact(&zstd(&capture())), plain);
    assert_eq!(intact(&gzip(&ng())), intact(&ng()));
    assert_eq!(intact(&zstd(&ng())), intact(&ng()));
}

#[test]
fn members_and_frames_are_joined_wherever_they_are_split() {
    let file = capture();
    let plain = intact(&file);
    let skippable = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for split in [0, 1, 24, 30, 1000, file.len()] {
        let (front, back) = file.split_at(split);
        assert_eq!(intact(&[gzip(front), gzip(back)].concat()), plain, "gzip at {split}");
        let frames = [&skippable[..], &zstd(front), &skippable, &skippable, &zstd(back), &skippable].concat();
        assert_eq!(intact(&frames), plain, "zstd at {split}");
    }
}

#[test]
fn compressed_captures_cut_anywhere_are_damaged_or_no_captures() {
    let file = capture();
    let plain = intact(&file);
    for whole in [gzip(&file), zstd(&file)] {
        for cut in 0..whole.len() {
            let part = &whole[..cut];
            let (frames, errors) = match from_bytes(Path::new("input"), part.to_vec()) {
                Ok(_) => damage(part),
                Err(Error::NotACapture { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(frames, plain[..frames.len()], "cut at {cut}");
            assert_eq!(errors.len(), 1, "cut at {cut}");
            assert!(errors[0].1.contains("stream is cut"), "cut at {cut}: {}", errors[0].1);
        }
    }
}

#[test]
fn damaged_gzip_delivers_every_frame_before_the_damage() {
    // Each member has 3000 frames. In the second one, a code that no deflate stream has.
    let whole = (0..3000).fold(Pcap::new(false, 0xa1b2_c3d4), |file, n| file.record(n, n * n, n % 90, 100)).done();
    let mut stored = whole[24..].to_vec();
    stored.truncate(60_000);
    let length = (stored.len() as u16).to_le_bytes();
    let block = [&[0][..], &length, &length.map(|byte| !byte), &stored, &[7]].concat();
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0];
    let plain = [&whole[..], &stored].concat();
    let (expected, _) = damage(&plain);
    let (frames, errors) = damage(&[&gzip(&whole)[..], &header, &block].concat());
    assert!(expected.len() > 3500);
    assert_eq!((frames.len(), errors.len()), (expected.len(), 1), "{errors:?}");
    assert_eq!(frames, expected);
    assert!(errors[0].1.contains("the gzip stream is damaged"), "{errors:?}");
}

#[test]
fn damaged_zstd_delivers_every_frame_before_the_damage() {
    // The window, 2 MiB, is larger than the content. With and without a content checksum.
    let whole = (0..6000).fold(Pcap::new(false, 0xa1b2_c3d4), |file, n| file.record(n, n, n % 90, 100)).done();
    let (expected, _) = damage(&whole[..200_000]);
    assert!(expected.len() > 2000);
    for descriptor in [0, 4] {
        let raw = |content: &[u8]| [&(content.len() as u32 * 8).to_le_bytes()[..3], content].concat();
        let blocks: Vec<u8> = whole[..200_000].chunks(100_000).flat_map(raw).collect();
        let start = [&[0x28, 0xb5, 0x2f, 0xfd, descriptor, 0x58][..], &blocks].concat();
        // A block of a type that does not exist, and a cut within a block.
        for (end, words) in
            [(&[6, 0, 0][..], "the zstd stream is damaged"), (&[80, 0, 0, 1, 2], "the zstd stream is cut")]
        {
            let (frames, errors) = damage(&[&start, end].concat());
            assert_eq!((frames.len(), errors.len()), (expected.len(), 1), "{errors:?}");
            assert_eq!(frames, expected);
            assert!(errors[0].1.contains(words), "{errors:?}");
        }
    }
}

#[test]
fn wrong_checksum_is_reported_after_all_frames() {
    let mut file = gzip(&capture());
    let checksum = file.len() - 8;
    file[checksum] ^= 1;
    let (frames, errors) = damage(&file);
    assert_eq!((frames.len(), errors.len()), (300, 1));
    assert!(errors[0].1.contains("gzip"), "{}", errors[0].1);
}

#[test]
fn data_after_a_compressed_stream_is_reported() {
    for whole in [gzip(&capture()), zstd(&capture())] {
        let (frames, errors) = damage(&[&whole[..], b"something else"].concat());
        assert_eq!((frames.len(), errors.len()), (300, 1));
    }
}

#[test]
fn too_large_zstd_window_is_refused_with_the_remedy() {
    // Window descriptor 0xa0: 2^30 octets.
    let what = refusal(vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0, 1, 0, 0]);
    assert!(what.contains("window of 1073741824") && what.contains("--long=31"), "{what}");
}

#[test]
fn only_one_layer_of_compression_is_removed() {
    for (outer, name) in [(gzip(&gzip(&capture())), "gzip"), (gzip(&zstd(&capture())), "zstd")] {
        let what = refusal(outer);
        assert!(what.contains("inside gzip") && what.contains(&format!("{name} once more")), "{what}");
    }
}

#[test]
fn other_file_formats_are_named() {
    let erf = [&[1, 2, 3, 4][..], &1_700_000_000_u32.to_le_bytes(), &[2, 4, 0, 80, 0, 0, 0, 60], &[0; 64]].concat();
    for (bytes, name) in [
        (b"".to_vec(), "empty"),
        (b"x".to_vec(), "only 1 bytes"),
        (b"Hello, world\n".to_vec(), "text"),
        ("Größe: ä€".as_bytes()[..11].to_vec(), "text"),
        (gzip(b"Hello, world\n"), "inside gzip, it looks like text"),
        (gzip(b""), "inside gzip, it is empty"),
        (zstd(b"Hello, world, hello\n"), "inside zstd, it looks like text"),
        (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04".to_vec(), "snoop"),
        (b"\xfd7zXZ\0\0\0".to_vec(), "xz -dc"),
        (b"BZh91AY&SY".to_vec(), "bzip2 -dc"),
        (b"PK\x03\x04\0\0".to_vec(), "zip"),
        (erf, "ERF"),
        (vec![0x1f, 0x8b, 9, 9], "before the first packet: the gzip stream"),
        (vec![0x28, 0xb5, 0x2f, 0xfd], "before the first packet: the zstd stream"),
        (vec![0xff; 30], "ff ff ff ff"),
        ([vec![b'a'; 70], vec![0xff; 70]].concat(), "text"),
        (vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4, 0, 0], "byte-order magic"),
    ] {
        let what = refusal(bytes);
        assert!(what.contains(name), "{name}: {what}");
        assert!(what.contains("Weir reads pcap and pcapng"), "{what}");
    }
}

#[test]
fn first_block_of_impossible_length_is_no_capture() {
    let mut file = ng();
    file[4..8].copy_from_slice(&[0xff; 4]);
    assert!(refusal(file).contains("length of 4294967295"));
}
