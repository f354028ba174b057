//! Lines of an EVE file, as `weir bypass` reads them. The modules of the program are compiled into this target,
//! because the program has no library.
//!
//! Invariants: nothing panics, and a selected event becomes a JSON object that names a flow.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/weir/src/arguments/mod.rs"]
mod arguments;
#[path = "../../crates/weir/src/probe/config.rs"]
mod config;
#[path = "../../crates/weir/src/error/mod.rs"]
mod error;
#[path = "../../crates/weir/src/eve.rs"]
mod eve;

use clap::Parser;
use std::sync::LazyLock;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bypass: arguments::Bypass,
}

static ARGUMENTS: LazyLock<Arguments> = LazyLock::new(|| {
    Arguments::parse_from(["bypass", "--eve", "eve.json", "--token-file", "token", "--on", "alert,drop,bypassed"])
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for line in input.split(|&octet| octet == b'\n') {
        if let eve::Line::Selected { body, is_icmp } = eve::read(Some(line), &ARGUMENTS.bypass) {
            let body: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
            assert_eq!(body["flow"].get("community_id").is_some(), is_icmp, "{body}");
        }
    }
});
