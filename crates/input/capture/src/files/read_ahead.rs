//! Brings what comes next of a mapped file into memory and into the cache, ahead of the reader.
//!
//! Each record says where the next one is, so a reader of a large file waits a memory latency per
//! record. Here several chains of records wait at the same time. Their first records are guessed,
//! from what a record looks like. The reader walks the records itself afterwards, so a wrong guess
//! costs time and changes nothing.
//!
//! ```text
//! reader
//! |<--------------------- AREA_BYTES --------------------->|
//! |a record         |guess            |guess            |...
//! chain 0 ──►       chain 1 ──►       chain 2 ──►
//! ```

use crate::files::format::Format;
use crate::files::mapped_file::MappedFile;
use crate::files::prefetch::prefetch;
use memmap2::Advice;

/// Chains that are walked at once, and bytes of each. 16 chains of 32 KiB are as fast; 8 chains or
/// 16 KiB are slower.
const CHAINS: usize = 16;
const CHAIN_BYTES: usize = 64 * 1024;
const AREA_BYTES: usize = CHAINS * CHAIN_BYTES;
/// Bytes in which the first record of a chain is looked for, and those of them that are prefetched.
const GUESS_BYTES: usize = 4096;
const GUESS_PREFETCH_BYTES: usize = 1024;
/// Shorter records are so close together that the hardware prefetcher loads them.
const MIN_MEAN_BYTES: u64 = 256;
/// Bytes of the file that are mapped at once: a page fault for each few pages costs more.
const MAPPED_BYTES: usize = 4 * 1024 * 1024;
/// Bytes behind the reader that stay mapped: more than packets that wait for another thread take.
/// The rest is released as the reader goes on, which costs the same at the end.
pub(crate) const RETAINED_BYTES: usize = 64 * 1024 * 1024;
const LINE_BYTES: usize = 64;

/// How far a file was read ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Place where the last area began, and the packets before it.
    start: usize,
    packets: u64,
    /// Its end.
    end: usize,
    /// Place up to which pages are mapped.
    mapped: usize,
    /// Place up to which they are released.
    released: usize,
}

impl ReadAhead {
    /// Whether the reader is at the end of the last area.
    #[inline]
    pub fn is_due(&self, cursor: usize) -> bool {
        cursor >= self.end
    }

    /// Reads the next area of a file, the first bytes of which are there: from the record at `cursor`
    /// on, after this number of packets.
    #[cold]
    #[inline(never)]
    pub fn advance(&mut self, format: &impl Format, (file, length): (&MappedFile, usize), cursor: usize, packets: u64) {
        let (bytes, records) = ((cursor - self.start) as u64, packets - self.packets);
        (self.start, self.packets, self.end) = (cursor, packets, cursor + AREA_BYTES);
        if self.mapped < self.end.min(length) {
            let start = self.mapped.max(cursor);
            let bytes = MAPPED_BYTES.min(length - start);
            // Linux before 5.14 refuses it. Then each page is mapped when it is read.
            let _ = file.map().advise_range(Advice::PopulateRead, start, bytes);
            self.mapped = start + bytes;
            let behind = cursor.saturating_sub(RETAINED_BYTES) / MAPPED_BYTES * MAPPED_BYTES;
            if self.released < behind {
                file.release(self.released, behind - self.released);
                self.released = behind;
            }
        }
        if let Some(area) = file.map()[..length].get(cursor..self.end)
            && bytes >= MIN_MEAN_BYTES * records
        {
            walk(format, area, first_records(format, area));
        }
    }
}

/// The place of the first record of each chain; the end of the area if none was found.
fn first_records(format: &impl Format, area: &[u8]) -> [usize; CHAINS] {
    for chain in 1..CHAINS {
        let start = chain * CHAIN_BYTES;
        area[start..start + GUESS_PREFETCH_BYTES].iter().step_by(LINE_BYTES).for_each(prefetch);
    }
    std::array::from_fn(|chain| match chain * CHAIN_BYTES {
        0 => 0,
        start => format.guess(area, start..start + GUESS_BYTES).unwrap_or(AREA_BYTES),
    })
}

/// Walks each chain from its first record to its end.
fn walk(format: &impl Format, area: &[u8], mut places: [usize; CHAINS]) {
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (chain, place) in places.iter_mut().enumerate() {
            if *place < (chain + 1) * CHAIN_BYTES {
                goes_on = true;
                *place += format.record_bytes(&area[*place..]).unwrap_or(AREA_BYTES);
                // The headers of the packet end in the line behind that of the record header.
                area.get(*place + LINE_BYTES).into_iter().for_each(prefetch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::pcap::{FILE_HEADER_BYTES, Pcap};
    use crate::files::pcapng::Pcapng;

    /// Records of 800 bytes on average: how each begins, its length, and how it ends.
    fn area(header: impl Fn(u32) -> Vec<u8>, trailer: impl Fn(u32) -> Vec<u8>) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for number in 0.. {
            if bytes.len() > AREA_BYTES {
                return (bytes, starts);
            }
            let captured = number * 7919 % 1500 / 4 * 4 + 60;
            starts.push(bytes.len());
            bytes.extend(header(captured));
            bytes.extend((0..captured).map(|at| ((at * 31) ^ number) as u8));
            bytes.extend(trailer(captured));
        }
        unreachable!("the loop returns");
    }

    fn assert_guesses(format: &impl Format, (bytes, starts): (Vec<u8>, Vec<usize>)) {
        let bytes = &bytes[..AREA_BYTES];
        let places = first_records(format, bytes);
        for (chain, place) in places.into_iter().enumerate() {
            let expected = starts.iter().find(|&&start| start >= chain * CHAIN_BYTES);
            assert_eq!(Some(&place), expected, "chain {chain}");
        }
        walk(format, bytes, places);
    }

    #[test]
    fn first_records_of_all_chains_are_found() {
        for swap in [false, true] {
            let word = |value: u32| if swap { value.swap_bytes() } else { value }.to_ne_bytes();
            let words = |words: &[u32]| words.iter().flat_map(|value| word(*value)).collect::<Vec<_>>();
            let mut head = words(&[0xa1b2_c3d4, 0, 0, 0, 0, 1]);
            let half = |value: u16| if swap { value.swap_bytes() } else { value }.to_ne_bytes();
            head[4..8].copy_from_slice(&[half(2), half(4)].concat());
            let pcap = Pcap::new(&head[..FILE_HEADER_BYTES]).unwrap();
            let header = |captured| words(&[1_800_000_000 + captured % 3, captured, captured, captured + 8]);
            assert_guesses(&pcap, area(header, |_| Vec::new()));

            let section = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0, u32::MAX, u32::MAX, 28]);
            let mut pcapng = Pcapng::new();
            let mut section = section;
            section[12..16].copy_from_slice(&[half(1), half(0)].concat());
            assert!(matches!(pcapng.step(&section), crate::files::format::Step::Skip(28)));
            let header = |captured| words(&[6, captured + 32, 0, 1, captured, captured, captured]);
            assert_guesses(&pcapng, area(header, |captured| words(&[captured + 32])));
        }
    }
}
