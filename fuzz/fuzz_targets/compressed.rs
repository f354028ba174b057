//! gzip and zstd streams: the input follows a magic number.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Limit of frames and errors: a small input may decompress to many.
const LIMIT: usize = 1 << 24;

fuzz_target!(|input: (bool, &[u8])| {
    let (zstd, rest) = input;
    let magic: &[u8] = if zstd { &[0x28, 0xb5, 0x2f, 0xfd] } else { &[0x1f, 0x8b, 8] };
    weir_fuzz::read_every_way(&[magic, rest].concat(), 4096, LIMIT);
});
