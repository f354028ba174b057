//! pcapng, or anything else that is not compressed: the octets as they are.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    if let [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x50..=0x5f, 0x2a, ..] = bytes {
        return;
    }
    // A block has 12 octets at least; the end may be told as well.
    weir_fuzz::read_every_way(bytes, piece.into(), bytes.len() / 12 + 1);
});
