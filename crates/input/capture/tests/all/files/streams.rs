//! Streams give the same frames as files in memory.

use super::*;
use proptest::prelude::*;

/// A capture of many small and some large records, intact or damaged in places.
fn captures() -> impl Strategy<Value = Vec<u8>> {
    let records = prop::collection::vec((any::<u32>(), 0..2000_u32, 0..3_u32), 0..150);
    let spoils = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (records, spoils, any::<bool>(), any::<bool>(), 0..40_usize).prop_map(|(records, spoils, ng, big, cut)| {
        let mut bytes = if ng {
            let file = Ng::section(big).interface(1, 0, &[(9, &[9])]).interface(101, 99, &[]);
            let pack = |file: Ng, &(time, octets, kind): &(u32, u32, u32)| match kind {
                0 => file.enhanced(time % 2, time.into(), octets, octets + time % 9),
                1 => file.simple(octets, octets),
                _ => file.obsolete(1, time.into(), octets, octets),
            };
            records.iter().fold(file, pack).done()
        } else {
            let pack = |file: Pcap, &(time, octets, _): &(u32, u32, u32)| file.record(time, time, octets, octets);
            records.iter().fold(Pcap::new(big, 0xa1b2_c3d4), pack).done()
        };
        for (at, value) in spoils {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn stream_in_pieces_of_any_size_gives_the_frames_of_the_whole(bytes in captures(), piece in 1..5000_usize) {
        let whole = from_bytes(Path::new("input"), bytes.clone()).map(|mut source| make::read_as_text(&mut *source));
        let pieces = make::try_stream(bytes, piece).map(|mut source| make::read_as_text(&mut *source));
        match (whole, pieces) {
            (Ok(whole), Ok(pieces)) => prop_assert_eq!(whole, pieces),
            (Err(whole), Err(pieces)) => prop_assert_eq!(whole.to_string(), pieces.to_string()),
            (whole, pieces) => prop_assert!(false, "{:?} {:?}", whole, pieces),
        }
    }
}

#[test]
fn record_larger_than_the_window_makes_it_grow() {
    let file = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 3_000_000, 3_000_000).record(2, 0, 5, 5).done();
    assert_eq!(intact(&file).iter().map(|f| f.bytes.len()).collect::<Vec<_>>(), [3_000_000, 5]);
}

#[test]
fn frames_are_delivered_as_soon_as_they_are_complete() {
    struct Slow(Vec<Vec<u8>>);
    impl std::io::Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let part = self.0.remove(0);
            into[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }
    let file = Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 4, 4).record(2, 0, 4, 4).done();
    // A third reading would panic: the first frame must not wait for it.
    let parts = Slow(vec![file[..24].to_vec(), file[24..50].to_vec()]);
    let mut source = weir_capture::from_reader(Path::new("-"), Box::new(parts)).unwrap();
    assert_eq!(source.burst().unwrap().unwrap().len(), 1);
}
