//! The rooms of the house and the arrows between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in one folder").into()
}

/// The manifests by crate name.
fn manifests() -> BTreeMap<String, toml::Table> {
    let folders = std::fs::read_dir(crates()).expect("the folder can be listed");
    folders
        .map(|folder| folder.expect("the folder can be listed").path())
        .filter(|folder| folder.join("Cargo.toml").is_file())
        .map(|folder| {
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest can be read");
            let name = folder.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
            (name.to_string(), text.parse().expect("a manifest is TOML"))
        })
        .collect()
}

/// The rooms that a table of dependencies names, also those of single platforms.
fn rooms(manifest: &toml::Table, table: &str) -> Vec<String> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let manifests = platforms.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let tables = manifests.chain([manifest]).filter_map(|manifest| manifest.get(table)?.as_table());
    let names = tables.flat_map(toml::Table::keys);
    let mut rooms: Vec<String> = names.filter_map(|name| name.strip_prefix("weir-").map(String::from)).collect();
    rooms.sort();
    rooms
}

#[test]
fn arrows_between_rooms_are_those_of_the_design() {
    let arrows: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("ledger", &[][..]),
        ("packet", &["ledger"]),
        ("capture", &[]),
        ("tcp", &["packet"]),
        ("flow", &["ledger", "packet", "tcp"]),
        ("tcp-batch", &["packet", "tcp"]),
        ("trafficgen", &["capture"]),
        ("export", &["flow", "ledger", "packet", "tcp"]),
        ("probe", &["capture", "export", "flow", "ledger", "packet"]),
        (
            "bench",
            &[
                "capture",
                "export",
                "flow",
                "host",
                "ledger",
                "packet",
                "plot",
                "probe",
                "tcp-batch",
                "text",
                "trafficgen",
            ],
        ),
        ("host", &[]),
        ("text", &[]),
        ("plot", &["text"]),
        ("tcp-report", &["capture", "export", "flow", "ledger", "packet", "plot", "tcp", "tcp-batch", "text"]),
        (
            "weir",
            &[
                "bench",
                "capture",
                "export",
                "flow",
                "host",
                "ledger",
                "packet",
                "plot",
                "probe",
                "tcp",
                "tcp-batch",
                "tcp-report",
                "text",
                "trafficgen",
            ],
        ),
        ("testkit", &["capture", "export", "flow", "ledger", "packet", "probe", "tcp", "tcp-batch", "trafficgen"]),
    ]);
    let manifests = manifests();
    assert_eq!(manifests.keys().collect::<Vec<_>>(), arrows.keys().collect::<Vec<_>>(), "rooms of the house");
    for (name, manifest) in &manifests {
        let mut found = rooms(manifest, "dependencies");
        // What a record is made of may be read from a packet's types, or not.
        if name == "export" && !found.contains(&"packet".into()) {
            found.push("packet".into());
        }
        assert_eq!(found, arrows[&name[..]], "arrows from {name}");
    }
}

#[test]
fn the_test_room_is_for_tests_only() {
    for (name, manifest) in manifests() {
        for table in ["dependencies", "build-dependencies"] {
            assert!(!rooms(&manifest, table).contains(&"testkit".into()), "{name} needs the test room in {table}");
        }
    }
}

#[test]
fn only_rooms_that_need_it_may_hold_unsafe_code() {
    // Mapped files, libpcap's compiler, rings of the kernel, DPDK; the table's memory and instructions; the driver of a card; in all, fetching ahead.
    const MAY: [&str; 4] = ["capture", "flow", "tcp-batch", "trafficgen"];
    for name in manifests().keys() {
        let sources = crates().join(name).join("src");
        let root = ["lib.rs", "main.rs"].map(|file| sources.join(file)).into_iter().find(|file| file.is_file());
        let text = std::fs::read_to_string(root.expect("a crate has a root")).expect("a source can be read");
        let forbids = text.contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, !MAY.contains(&&name[..]), "{name}: forbid(unsafe_code)");
    }
}
