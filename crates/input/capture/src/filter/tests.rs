//! Packet filters, beside libpcap's own interpreter of them.
#![allow(unsafe_code)]

use super::*;
use libloading::Library;
use proptest::prelude::*;
use std::ffi::c_uint;

type BpfFilter = unsafe extern "C" fn(*const Instruction, *const u8, c_uint, c_uint) -> c_uint;

/// libpcap's interpreter; `None`, loudly, where there is none.
fn theirs() -> Option<(Library, BpfFilter)> {
    // SAFETY: loading libpcap has no requirements, and the function has the type of
    // pcap/bpf.h.
    let loaded = unsafe {
        Library::new("libpcap.so.0.8").or_else(|_| Library::new("libpcap.so.1")).and_then(|library| {
            library.get::<BpfFilter>(b"bpf_filter\0").map(|function| *function).map(|f| (library, f))
        })
    };
    loaded.map_err(|error| eprintln!("SKIPPED: there is no libpcap to compare with: {error}")).ok()
}

fn instruction(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> Instruction {
    Instruction { code, jump_true, jump_false, constant }
}

/// An instruction that has `behind` others behind it. Loads reach a little beyond the longest
/// frame.
fn any_instruction(behind: u8) -> impl Strategy<Value = Instruction> {
    let select = proptest::sample::select::<u16>;
    let value = || prop_oneof![0..100_u32, any::<u32>(), Just(u32::MAX)];
    let plain = |codes: &[u16], constant| {
        (select(codes.to_vec()), constant).prop_map(|(code, constant)| instruction(code, 0, 0, constant)).boxed()
    };
    let operations: Vec<u16> = (0..=10).map(|operation| 0x04 | operation << 4).collect();
    let from_index: Vec<u16> = operations.iter().map(|code| code | 8).filter(|&code| code != 0x8c).collect();
    let far = 0..behind;
    prop_oneof![
        6 => plain(&[0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1], prop_oneof![20 => (0..90_u32).boxed(), 1 => value().boxed()].boxed()),
        2 => plain(&[0x00, 0x80, 0x01, 0x81], value().boxed()),
        2 => plain(&[0x60, 0x61, 0x02, 0x03], (0..16_u32).boxed()),
        3 => plain(&operations, (1..32_u32).boxed()),
        3 => plain(&from_index, value().boxed()),
        2 => plain(&[0x07, 0x87], Just(0).boxed()),
        1 => far.clone().prop_map(|far| instruction(0x05, 0, 0, far.into())),
        4 => (select(vec![0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d]), far.clone(), far, value())
            .prop_map(|(code, jump_true, jump_false, constant)| instruction(code, jump_true, jump_false, constant)),
    ]
}

/// A program that sets every scratch word (theirs does not), does something, and returns a bit of
/// what came of it.
fn any_program() -> impl Strategy<Value = Vec<Instruction>> {
    let body =
        (0..40_u8).prop_flat_map(|length| (0..length).map(|at| any_instruction(length - at)).collect::<Vec<_>>());
    // One bit of what was computed, or of the index.
    let end = (any::<bool>(), 0..32_u32).prop_map(|(index, bit)| {
        [
            instruction(if index { 0x87 } else { 0x04 }, 0, 0, 0),
            instruction(0x54, 0, 0, 1 << bit),
            instruction(0x16, 0, 0, 0),
        ]
    });
    (body, end).prop_map(|(body, end)| {
        let words = (0..16).map(|word| instruction(0x02, 0, 0, word));
        words.chain(body).chain(end).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_program_matches_the_frames_that_libpcap_matches(
        program in any_program(),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        more in 0..2000_u32,
    ) {
        let Some((_library, bpf_filter)) = theirs() else { return Ok(()) };
        let wire_bytes = bytes.len() as u32 + more;
        let ours = Program::new(&program).expect("it is one that runs");
        // SAFETY: the program was checked, and so was that it ends; the octets are as many as is
        // said.
        let kept = unsafe { bpf_filter(program.as_ptr(), bytes.as_ptr(), wire_bytes, bytes.len() as c_uint) };
        prop_assert_eq!(ours.run(&bytes, wire_bytes) > 0, kept > 0);
    }

    #[test]
    fn random_instructions_neither_panic_nor_hang(
        program in proptest::collection::vec(
            any::<(u16, u8, u8, u32)>().prop_map(|(code, t, f, k)| instruction(code & 0xff, t & 7, f & 7, k & 0x1f)),
            0..20,
        ),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        if let Ok(program) = Program::new(&program) {
            program.run(&bytes, 80);
        }
    }
}

fn no_library(error: &FilterError) -> bool {
    let missing = matches!(error, FilterError::NoLibrary(_));
    if missing {
        eprintln!("SKIPPED: {error}");
    }
    missing
}

fn frame(link_type: u16, bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, time_ns: 0, wire_bytes: bytes.len() as u32, link_type, time_assumed: false, interface: 0 }
}

#[test]
fn expressions_that_do_not_compile_and_loops_are_refused() {
    for (expression, message) in [("host and and", "syntax error"), ("ip6 protochain 6", "not supported")] {
        match PacketFilter::new(expression) {
            Err(error) if no_library(&error) => {}
            Err(error) => assert!(error.to_string().contains(message), "{error}"),
            Ok(_) => panic!("{expression} compiles"),
        }
    }
}

#[test]
fn each_link_type_has_its_own_program() {
    let mut filter = match PacketFilter::new("udp port 53") {
        Err(error) if no_library(&error) => return,
        filter => filter.unwrap(),
    };
    let mut packet =
        vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0x90, 0, 0, 53, 0, 8, 0, 0];
    let ethernet = |packet: &[u8]| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], packet].concat();
    for _ in 0..2 {
        assert!(filter.matches(&frame(1, &ethernet(&packet))));
        assert!(filter.matches(&frame(101, &packet)));
        assert!(!filter.matches(&frame(101, &ethernet(&packet))));
    }
    packet[23] = 54;
    assert!(!filter.matches(&frame(1, &ethernet(&packet))));
    assert!(!filter.matches(&frame(101, &packet)));
    assert!(filter.take_errors().is_empty());
}

#[test]
fn link_type_without_meaning_is_reported_once_and_its_frames_are_dropped() {
    let mut filter = match PacketFilter::new("vlan 5") {
        Err(error) if no_library(&error) => return,
        filter => filter.unwrap(),
    };
    for _ in 0..2 {
        assert!(!filter.matches(&frame(101, &[0x45; 40])));
    }
    let troubles = filter.take_errors();
    assert!(matches!(troubles[..], [FilterError::LinkType { link_type: 101, .. }]), "{troubles:?}");
    assert!(filter.take_errors().is_empty());
    // One that means something for cooked frames alone is not refused from the start.
    assert!(
        PacketFilter::new("ifindex 3")
            .unwrap()
            .matches(&frame(276, &[&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6][..], &[0; 48]].concat()))
    );
}

#[test]
fn expressions_that_take_minutes_to_compile_are_refused() {
    let alternatives = |count: u32, one: fn(u32) -> String| (0..count).map(one).collect::<Vec<_>>().join(" or ");
    let host = |n: u32| format!("host 10.{}.{}.1", n / 250, n % 250);
    for (expression, reason) in [
        (alternatives(2000, host), Some("it has 5999 words, the limit is 1000")),
        (alternatives(300, |n| format!("port {n}")), Some("instructions of it, the limit is 6000")),
        (alternatives(100, host), None),
        (alternatives(60, |n| format!("port {n}")), None),
    ] {
        let started = Instant::now();
        match PacketFilter::new(&expression) {
            Err(error) if no_library(&error) => return,
            Err(error) => {
                let text = error.to_string();
                assert!(reason.is_some_and(|reason| text.contains(reason)) && text.len() < 300, "{text}");
            }
            Ok(_) => assert_eq!(reason, None, "{expression}"),
        }
        // Seconds, and more on a busy machine; without limits, hours.
        assert!(started.elapsed() < Duration::from_secs(180), "{expression}: {:?}", started.elapsed());
    }
}

#[test]
fn the_programs_of_live_sources_exist_before_the_first_frame() {
    match PacketFilter::new("udp") {
        Err(error) if no_library(&error) => {}
        filter => assert_eq!(filter.unwrap().filters.iter().map(|filter| filter.0).collect::<Vec<_>>(), LIVE),
    }
}
