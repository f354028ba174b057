//! Mapped files, which are read ahead, give the same frames as files in memory.

use super::*;
use std::fs;

/// Numbers that look random.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A capture of about 4 MiB of long packets. Some have records of a capture as payload, and some are
/// longer than what is read ahead.
pub fn large(numbers: &mut Numbers, ng: bool, big_endian: bool) -> Vec<u8> {
    let inner =
        (0..20).fold(Pcap::new(big_endian, 0xa1b2_c3d4), |file, n| file.record(1_800_000_000, n, 60, 60)).done();
    let inner_ng = (0..20).fold(Ng::section(big_endian), |file, n| file.enhanced(0, n, 60, 60)).done();
    let mut lengths = Vec::new();
    while lengths.iter().sum::<u32>() < 4_000_000 {
        let length = [1500, 9000, 400, 1500, 60, 1500][numbers.below(6) as usize] + numbers.below(20);
        lengths.push(if numbers.below(200) == 0 { 70_000 + length as u32 } else { length as u32 });
    }
    let seconds = |at: usize| 1_800_000_000 + (at / 10) as u32;
    if !ng {
        let magic = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34][numbers.below(3) as usize];
        let add = |file: Pcap, (at, &length): (usize, &u32)| {
            file.record(seconds(at), at as u32 % 900_000, length, length + 4)
        };
        let file = lengths.iter().enumerate().fold(Pcap::new(big_endian, magic), add);
        return with_payload(file.ends.clone(), file.done(), &inner[24..]);
    }
    let add = |file: Ng, (at, &length): (usize, &u32)| match at % 50 {
        49 => file.simple(length, length),
        48 => file.block(5, &[0; 40]),
        _ => file.enhanced(0, at as u64, length, length + 4),
    };
    let file = lengths.iter().enumerate().fold(Ng::section(big_endian).interface(1, 0, &[]), add);
    with_payload(file.packet_ends.clone(), file.done(), &inner_ng[28..])
}

/// Puts octets into the payload of every third packet that has room for them.
fn with_payload(ends: Vec<usize>, mut bytes: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    for pair in ends.windows(2).step_by(3) {
        let start = pair[0] + 100;
        if let Some(place) = bytes.get_mut(start..start + payload.len()).filter(|_| start + payload.len() + 8 < pair[1])
        {
            place.copy_from_slice(payload);
        }
    }
    bytes
}

#[test]
fn a_mapped_file_has_the_frames_of_the_same_octets_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let mut numbers = Numbers(7);
    for round in 0..24 {
        let mut bytes = large(&mut numbers, round % 2 == 0, round % 4 < 2);
        // Intact, damaged or cut.
        for _ in 0..[0, 1, 20][round / 2 % 3] {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.below(256) as u8;
        }
        if round % 5 == 4 {
            bytes.truncate(bytes.len() - numbers.below(3_000_000) as usize);
        }
        fs::write(&path, &bytes).unwrap();
        let mapped = open(&path).map(|mut source| make::read_as_text(&mut *source));
        let owned = from_bytes(&path, bytes).map(|mut source| make::read_as_text(&mut *source));
        match (mapped, owned) {
            (Ok(mapped), Ok(owned)) => {
                assert!(mapped.len() > 10 && mapped == owned, "round {round}: {} and {}", mapped.len(), owned.len());
            }
            (mapped, owned) => assert_eq!(mapped.err().unwrap().to_string(), owned.err().unwrap().to_string()),
        }
    }
}
