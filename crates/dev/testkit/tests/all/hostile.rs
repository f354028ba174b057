//! Damaged captures: no panic, a balanced ledger, and unchanged frames before the place of a cut.

use weir_flow::{CacheFullPolicy, Config};
use weir_packet::DecodeOptions;
use weir_probe::Settings;
use weir_testkit::{RawFrame, compare, real, truth};

/// Frames of each capture to damage.
const PACKETS: usize = 10;
/// Octets of each frame to damage.
const OCTETS: usize = 96;
/// Files up to this size (bytes) are cut at every octet, larger ones at [`CUTS`] places.
const CUT_EVERYWHERE: usize = 1200;
const CUTS: usize = 48;

fn settings(decapsulate: bool) -> Settings {
    let meter = Config { flows: 64, cache_full_policy: CacheFullPolicy::Drop, secret: Some(7), ..Config::default() };
    Settings { meter, decode: DecodeOptions { decapsulate }, layer2: true, ..Settings::default() }
}

/// Returns copies of a frame in each of which one of the first octets is changed.
fn mutants(frame: &RawFrame) -> impl Iterator<Item = RawFrame> + '_ {
    (0..frame.bytes.len().min(OCTETS)).flat_map(move |at| {
        let octet = frame.bytes[at];
        [0, 0xff, octet.wrapping_add(1), octet ^ 0x80, octet.rotate_left(4)].into_iter().map(move |value| {
            let mut mutant = frame.clone();
            mutant.bytes[at] = value;
            mutant
        })
    })
}

#[test]
fn ledger_balances_for_any_damaged_header_octet() {
    let mut damaged = 0;
    for case in truth::cases() {
        let frames = real::capture(&case.path);
        for decapsulate in [false, true] {
            let mutants: Vec<RawFrame> = frames.iter().take(PACKETS).flat_map(mutants).collect();
            damaged += mutants.len();
            let outcome = real::meter(&mutants, weir_capture::MAX_BURST_FRAMES, settings(decapsulate));
            assert_eq!(outcome.ledger.check(), vec![], "{}, decapsulate {decapsulate}", case.name);
            assert_eq!(outcome.ledger.packets.received, mutants.len() as u64);
        }
    }
    println!("{damaged} damaged frames");
}

#[test]
fn decoder_equals_reference_on_damaged_headers() {
    for case in truth::cases() {
        for frame in real::capture(&case.path).iter().take(PACKETS) {
            for mutant in mutants(frame).step_by(3) {
                for decapsulate in [false, true] {
                    compare::decoders(&mutant, decapsulate)
                        .unwrap_or_else(|difference| panic!("{}, {difference}", case.name));
                }
            }
        }
    }
}

#[test]
fn cut_file_delivers_all_frames_before_the_cut() {
    for case in truth::cases() {
        let bytes = std::fs::read(&case.path).expect("every capture can be read");
        let whole = real::capture(&case.path);
        let step = if bytes.len() <= CUT_EVERYWHERE { 1 } else { bytes.len().div_ceil(CUTS) };
        for cut in (0..bytes.len()).step_by(step) {
            // A file cut in its header is refused.
            let Ok(mut source) = weir_capture::from_bytes(&case.path, bytes[..cut].to_vec()) else { continue };
            let (before, _) = real::frames(&mut *source);
            assert!(whole.starts_with(&before), "{} cut at {cut}: frames before the cut differ", case.name);
            let outcome = real::meter(&before, weir_capture::MAX_BURST_FRAMES, settings(true));
            assert_eq!(outcome.ledger.check(), vec![], "{} cut at {cut}", case.name);
        }
    }
}
