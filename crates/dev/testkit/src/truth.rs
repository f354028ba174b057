//! Reads what other tools counted in captures, from the JSON files beside them.
//!
//! `exact` counts the outermost IP layer without entering tunnels, with ports 0 for later fragments;
//! the lists of `tshark` count every layer that it dissects. Third-party captures are in a directory of
//! their own (`truth/NAME.json` below it); the shipped ones have `NAME.truth.json` beside them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A conversation of tshark: both endpoints, packets from the first to the second, packets back.
pub type Conversation = (String, String, u64, u64);

/// Counts of one capture by other tools.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    /// Counted by a short program that keeps all packets.
    pub exact: Exact,
    /// Counted by tshark.
    pub tshark: Tshark,
    /// Other lists, by name.
    #[serde(flatten)]
    lists: BTreeMap<String, serde_json::Value>,
}

impl Truth {
    /// Conversations by tshark: `tcp`, `udp` or `sctp` with ports, `ipv4` or `ipv6` without.
    ///
    /// # Panics
    /// The list is not one of conversations.
    pub fn tshark_conversations(&self, kind: &str) -> Vec<Conversation> {
        let list = self.lists.get(&format!("tshark_conv_{kind}"));
        list.map_or_else(Vec::new, |list| Vec::deserialize(list).expect("a list of conversations"))
    }
}

/// Counts of the outermost IP layer.
#[derive(Clone, Debug, Deserialize)]
pub struct Exact {
    /// Frames.
    pub packets: u64,
    /// Octets captured.
    pub caplen: u64,
    /// Octets on the wire.
    pub origlen: u64,
    /// Frames with IPv4.
    pub ip4: u64,
    /// Frames with IPv6.
    pub ip6: u64,
    /// Frames without IP.
    pub non_ip: u64,
    /// Packets by protocol number, in decimal.
    pub ip_protocols: BTreeMap<String, u64>,
    /// Pairs of endpoints: `tcp`, `udp` and `other`.
    pub conversations: BTreeMap<String, u64>,
}

/// What tshark counted.
#[derive(Clone, Debug, Deserialize)]
pub struct Tshark {
    /// Frames.
    pub frames: u64,
}

/// A capture and its counts.
#[derive(Clone, Debug)]
pub struct Case {
    /// The capture's file name.
    pub name: String,
    /// The capture.
    pub path: PathBuf,
    /// Its counts.
    pub truth: Truth,
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("the crate lies three folders deep").into()
}

/// Directory of Weir's own captures and tables.
pub fn testdata() -> PathBuf {
    checkout().join("testdata")
}

/// Directory of third-party captures: `WEIR_CAPTURES`, else `../shared/captures` beside the checkout if
/// it exists.
pub fn third_party() -> Option<PathBuf> {
    match std::env::var_os("WEIR_CAPTURES") {
        Some(folder) => Some(folder.into()),
        None => Some(checkout().join("../shared/captures")).filter(|folder| folder.is_dir()),
    }
}

/// All captures with counts, third-party and shipped, sorted by name.
///
/// # Panics
/// A file of counts cannot be read or has no capture.
pub fn cases() -> Vec<Case> {
    let shipped = testdata().join("captures");
    let mut cases = read(&shipped, &shipped, ".truth.json");
    if let Some(folder) = third_party() {
        cases.extend(read(&folder, &folder.join("truth"), ".json"));
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// Third-party captures selected for TCP analysis, if there are any.
///
/// # Panics
/// The list cannot be read.
pub fn chosen_for_tcp() -> Option<Vec<PathBuf>> {
    let Some(folder) = third_party() else {
        println!("no third-party captures: WEIR_CAPTURES is not set and there is no ../shared/captures");
        return None;
    };
    let text = std::fs::read_to_string(folder.join("truth/TCP_ACCURACY.json")).expect("the list can be read");
    let list: serde_json::Value = serde_json::from_str(&text).expect("the list is JSON");
    let captures = list["captures"].as_array().expect("the list has captures");
    Some(captures.iter().map(|capture| folder.join(capture["file"].as_str().expect("a file name"))).collect())
}

fn read(captures: &Path, truths: &Path, ending: &str) -> Vec<Case> {
    let Ok(entries) = std::fs::read_dir(truths) else { return Vec::new() };
    let mut cases = Vec::new();
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let file = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
        let Some(name) = file.strip_suffix(ending) else { continue };
        let text = std::fs::read_to_string(&path).expect("a truth can be read");
        // The directory also has a summary of several captures.
        let Ok(truth) = serde_json::from_str::<Truth>(&text) else {
            assert!(!captures.join(name).exists(), "{file}: not a truth as in the other files");
            continue;
        };
        let path = captures.join(name);
        assert!(path.is_file(), "{file} belongs to a capture that does not exist");
        cases.push(Case { name: name.into(), path, truth });
    }
    cases
}
