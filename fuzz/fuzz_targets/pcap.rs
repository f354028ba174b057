//! pcap: the first bytes select the variant, the rest follows the file header.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (variant, piece, rest) = input;
    let magic = [0xa1b2_c3d4_u32, 0xa1b2_3c4d, 0xa1b2_cd34][usize::from(variant % 3)];
    let (magic, version) = match variant & 0x80 {
        0 => (magic.to_le_bytes(), if variant & 0x40 == 0 { [2, 0, 4, 0] } else { [2, 0, 2, 0] }),
        _ => (magic.to_be_bytes(), if variant & 0x40 == 0 { [0, 2, 0, 4] } else { [0, 2, 0, 2] }),
    };
    let bytes = [&magic[..], &version, rest].concat();
    // A record has at least 16 bytes; the end may add an error.
    weir_fuzz::read_every_way(&bytes, piece.into(), bytes.len() / 16 + 1);
});
