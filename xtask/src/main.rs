//! Checks of the repository that no compiler makes. `cargo run -p xtask -- tidy` prints one line per violation.
#![forbid(unsafe_code)]

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").into()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::FAILURE;
    }
    let violations = tidy::violations(&root());
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("tidy: {} violations", violations.len());
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
