//! `cargo run -p xtask -- tidy`: checks of the repository that no compiler makes, one line per violation.
//! `cargo run -p xtask -- test ARGUMENTS`: the tests that `cargo test ARGUMENTS` selects, several programs side by side.
#![forbid(unsafe_code)]

mod test_programs;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").into()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.split_first() {
        Some((command, [])) if command == "tidy" => is_tidy(),
        Some((command, arguments)) if command == "test" => test_programs::run(arguments),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | test ARGUMENTS");
            false
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_tidy() -> bool {
    let violations = tidy::violations(&root());
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("tidy: {} violations", violations.len());
    violations.is_empty()
}
