//! Capture files that are built from frames, and the captures that ship with Weir.

use crate::frames::{ipv4, tcp, udp};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// 2026-11-20 12:00:00 UTC.
pub const START: u32 = 1_795_176_000;

/// A pcap file in memory: microseconds, little-endian, Ethernet.
pub struct Pcap(pub Vec<u8>);

impl Pcap {
    pub fn new() -> Self {
        Self::with_snap_length(262_144)
    }

    pub fn with_snap_length(snap_length: u32) -> Self {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
        bytes.extend(2_u16.to_le_bytes());
        bytes.extend(4_u16.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(snap_length.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        Self(bytes)
    }

    /// A capture of these frames, one per microsecond.
    pub fn of(frames: &[Vec<u8>]) -> Self {
        let add =
            |pcap: Self, (time, frame): (u32, &Vec<u8>)| pcap.frame(START + time / 1_000_000, time % 1_000_000, frame);
        (0..).zip(frames).fold(Self::new(), add)
    }

    /// Adds a frame that was captured whole.
    pub fn frame(self, seconds: u32, microseconds: u32, frame: &[u8]) -> Self {
        self.record(seconds, microseconds, frame, frame.len() as u32)
    }

    /// Adds a packet record.
    pub fn record(mut self, seconds: u32, microseconds: u32, captured: &[u8], wire_bytes: u32) -> Self {
        for word in [seconds, microseconds, captured.len() as u32, wire_bytes] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(captured);
        self
    }

    /// Writes the file.
    pub fn save(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, &self.0).unwrap();
        path
    }

    /// Writes the file `test.pcap` to a folder of its own.
    pub fn saved(&self) -> SavedCapture {
        let folder = tempfile::tempdir().unwrap();
        let path = self.save(folder.path(), "test.pcap");
        SavedCapture { folder, path }
    }
}

/// A capture file in a folder of its own.
pub struct SavedCapture {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl SavedCapture {
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Path of another file in the folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl AsRef<OsStr> for SavedCapture {
    fn as_ref(&self) -> &OsStr {
        self.path.as_os_str()
    }
}

/// The captures of single flows of the crate `dpi`, in the order of their names.
pub fn captures_of_applications() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../meter/dpi/testdata");
    let files = std::fs::read_dir(folder).expect("the folder can be listed").map(|entry| entry.unwrap().path());
    let mut captures: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "pcap")).collect();
    captures.sort();
    assert!(captures.len() > 50);
    captures
}

/// A capture of three flows: a TCP connection with handshake, data in both directions and FIN from
/// both sides; a UDP request and its response; a ping.
pub fn small() -> Pcap {
    let (client, server, name_server) = ([192, 0, 2, 10], [198, 51, 100, 20], [192, 0, 2, 53]);
    let (c, s) = ((client, 40_000), (server, 80));
    let (q, n) = ((client, 50_000), (name_server, 53));
    Pcap::new()
        .frame(START, 0, &udp(q, n, 30))
        .frame(START, 2_000, &udp(n, q, 92))
        .frame(START, 3_000, &tcp(c, s, 0x02, 0))
        .frame(START, 13_000, &tcp(s, c, 0x12, 0))
        .frame(START, 13_100, &tcp(c, s, 0x10, 0))
        .frame(START, 13_200, &tcp(c, s, 0x18, 100))
        .frame(START, 23_200, &tcp(s, c, 0x18, 1400))
        .frame(START, 23_300, &tcp(c, s, 0x11, 0))
        .frame(START, 33_300, &tcp(s, c, 0x11, 0))
        .frame(START, 33_400, &tcp(c, s, 0x10, 0))
        .frame(START + 1, 0, &ipv4(1, client, server, &[8, 0, 0, 0, 0, 1, 0, 1]))
        .frame(START + 1, 10_000, &ipv4(1, server, client, &[0, 0, 0, 0, 0, 1, 0, 1]))
}

/// Packets of [`small`].
pub const SMALL_PACKETS: u64 = 12;
/// Octets on the wire of [`small`].
pub const SMALL_BYTES: u64 = 14 * 12 + (58 + 120) + (40 * 8 + 100 + 1400) + 28 * 2;

/// Folder of the captures that ship with Weir.
pub fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures")
}

/// Paths of the captures that ship with Weir, sorted.
pub fn capture_files() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(captures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|name| name.contains(".pcap") && !name.ends_with(".json")))
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths
}

impl Default for Pcap {
    fn default() -> Self {
        Self::new()
    }
}
