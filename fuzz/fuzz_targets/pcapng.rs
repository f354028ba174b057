//! pcapng, or anything else that is not compressed: the input unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    if let [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x50..=0x5f, 0x2a, ..] = bytes {
        return;
    }
    // A block has at least 12 bytes; the end may add an error.
    weir_fuzz::read_every_way(bytes, piece.into(), bytes.len() / 12 + 1);
});
