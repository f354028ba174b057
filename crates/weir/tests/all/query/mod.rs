//! `weir query`. Its tests need DuckDB's library, which `scripts/query` fetches.

mod answers;
mod output;
mod restrictions;

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use testbed::{arguments, binary, capture_files, success};

const LOSSY: &str = "synth:lossy,flows=100,packets=40k,ipv6=40%,seed=4";

/// Arguments after those of `arguments!`.
fn more<'a>(options: &'a [&'a str]) -> impl Iterator<Item = &'a OsStr> {
    options.iter().map(|option| OsStr::new(*option))
}

/// Whether the library is there. Prints that the test is skipped if not.
fn has_engine() -> bool {
    let library = binary().parent().unwrap().join("../lib/weir/libduckdb.so");
    if !library.exists() {
        eprintln!("SKIPPED: DuckDB's library is not in {} (scripts/query fetches it)", library.display());
    }
    library.exists()
}

/// The flows of all shipped captures.
fn stored_captures(folder: &Path) -> PathBuf {
    let store = folder.join("flows");
    let files: Vec<OsString> = capture_files().into_iter().map(PathBuf::into_os_string).collect();
    let mut read: Vec<OsString> = ["read", "-q", "-o"].map(Into::into).into();
    read.push(format!("parquet:{}", store.display()).into());
    read.extend(files);
    success(read);
    store
}

/// The flows of synthetic traffic with losses.
fn stored_losses(folder: &Path) -> PathBuf {
    let store = folder.join("lossy");
    success(arguments!["read", "-q", "-i", LOSSY, "-o", format!("parquet:{}", store.display())]);
    store
}

/// The rows of a query of a store.
fn ask(query: &[&str], store: &Path) -> Vec<Value> {
    let all = more(&["query"]).chain(more(query)).chain(arguments!["-i", store, "--format", "json"]);
    success(all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Some values of each row.
fn values<const N: usize>(rows: &[Value], names: [&str; N]) -> Vec<[Value; N]> {
    rows.iter().map(|row| names.map(|name| row.get(name).unwrap_or_else(|| panic!("{name}: {row}")).clone())).collect()
}
