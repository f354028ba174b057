//! The configuration file of `weir probe`: any text. The modules of the program are compiled into this
//! target, because the program has no library.
//!
//! Invariants: nothing panics, and a valid configuration equals the one that is read from its printed
//! form.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/weir/src/arguments/mod.rs"]
mod arguments;
#[path = "../../crates/weir/src/probe/config.rs"]
mod config;
#[path = "../../crates/weir/src/error/mod.rs"]
mod error;

use std::ffi::OsString;
use std::path::Path;

/// The arguments of a probe whose file has this text, or the error.
fn read(text: &str) -> Result<Vec<OsString>, error::Error> {
    let arguments = config::add_text(&["weir".into(), "probe".into()], Path::new("weir.toml"), text)?;
    config::parse(&arguments)?;
    Ok(arguments)
}

libfuzzer_sys::fuzz_target!(|input: &str| {
    let Ok(arguments) = read(input) else { return };
    let printed = config::to_file(&arguments).expect("the arguments are valid");
    let again = read(&printed).expect("a printed configuration is valid");
    assert_eq!(config::to_file(&again).expect("it is valid"), printed);
    let differing = config::differing_options(&arguments, &again).expect("both are valid");
    assert!(differing.is_empty(), "{differing:?}");
});
