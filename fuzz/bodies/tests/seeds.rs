//! Runs every fuzz target over its seeds (`fuzz/seeds/TARGET/`), without a fuzzer.
//!
//! Each seed is an input that reached code which no other seed reaches, or that once failed.

use std::fs::read_dir;
use std::panic::catch_unwind;
use std::path::Path;
use weir_fuzz_bodies::TARGETS;

#[test]
fn every_seed_passes_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let files = read_dir(folder.join(name)).unwrap_or_else(|error| panic!("fuzz/seeds/{name}: {error}"));
        let mut count = 0;
        for file in files {
            let path = file.expect("the folder can be listed").path();
            let input = std::fs::read(&path).expect("a seed can be read");
            if catch_unwind(|| target(&input)).is_err() {
                failed.push(path);
            }
            count += 1;
        }
        println!("{name}: {count} seeds");
        assert!(count > 0, "fuzz/seeds/{name} is empty");
    }
    assert!(failed.is_empty(), "these seeds fail: {failed:?}");
}
