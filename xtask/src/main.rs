//! `cargo run -p xtask -- tidy`: checks of the repository that no compiler makes, one line per violation.
//! `cargo run -p xtask -- site WEIR MDBOOK TARGET`: builds the site (`make site`).
#![forbid(unsafe_code)]

mod site;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").into()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["site", weir, mdbook, target] => site(Path::new(weir), Path::new(mdbook), Path::new(target)),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy\n       cargo run -p xtask -- site WEIR MDBOOK TARGET");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    let violations = tidy::violations(&root());
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("tidy: {} violations", violations.len());
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn site(weir: &Path, mdbook: &Path, target: &Path) -> ExitCode {
    match site::build(&root(), weir, mdbook, target) {
        Ok(()) => {
            println!("site: {}; as text: {}", target.join("site").display(), target.join("site-text").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("site: {error}");
            ExitCode::FAILURE
        }
    }
}
