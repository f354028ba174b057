//! Embeds the files of the page (`web/dist`), if `make web` has built them. Otherwise the crate has none.

use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../web/dist");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    files
        .retain(|name| ["index.html", "file.html", "questions.json"].contains(&name.as_str()) || name.ends_with(".gz"));
    files.sort();
    let embedded = |name: &String| format!("    ({name:?}, include_bytes!({:?})),\n", folder.join(name));
    let list = format!("&[\n{}]\n", files.iter().map(embedded).collect::<String>());
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("page.rs"), list).expect("the output folder can be written");
}
