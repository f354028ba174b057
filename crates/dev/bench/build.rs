//! Which compiler it was, for the conditions of a run.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said =
        Command::new(compiler).arg("--version").output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    println!("cargo::rustc-env=WEIR_COMPILER={}", said.as_deref().map_or("unknown compiler", str::trim));
}
