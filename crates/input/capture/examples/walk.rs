//! The ceiling for metering from a file: walk the frames and hash 32 octets of each, nothing more.
//! No decoding, no table, no records. Run by `make bench` beside the real thing.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: walk FILE")?;
    let mut source = weir_capture::open(Path::new(&path))?;
    let (mut frames, mut wire_bytes, mut hash) = (0u64, 0u64, 0u64);
    while let Some(burst) = source.burst()? {
        for frame in &burst {
            frames += 1;
            wire_bytes += u64::from(frame.wire_bytes);
            // Addresses and ports of an untagged IPv4 frame lie at 26..38; only the touch matters
            // here.
            for word in frame.bytes.get(8..40).unwrap_or_default().chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into()?);
                hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
    }
    println!("{frames} frames, {wire_bytes} octets on the wire, hash {hash:016x}");
    Ok(())
}
