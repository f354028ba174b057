//! Captures built octet by octet, and the binary run on them.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

    /// Adds a frame that was captured whole.
    pub fn frame(self, seconds: u32, microseconds: u32, frame: &[u8]) -> Self {
        self.record(seconds, microseconds, frame, frame.len() as u32)
    }

    /// Adds a record as it is.
    pub fn record(mut self, seconds: u32, microseconds: u32, captured: &[u8], wire_bytes: u32) -> Self {
        for word in [seconds, microseconds, captured.len() as u32, wire_bytes] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(captured);
        self
    }

    pub fn save(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, &self.0).unwrap();
        path
    }
}

/// Ethernet and IPv4 around a payload of the protocol.
pub fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(payload);
    frame
}

/// A UDP datagram with so many octets of payload.
pub fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: usize) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(source.1.to_be_bytes());
    datagram.extend(destination.1.to_be_bytes());
    datagram.extend((8 + payload as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.resize(8 + payload, 0);
    ipv4(17, source.0, destination.0, &datagram)
}

/// A TCP segment with control bits and so many octets of payload.
pub fn tcp(source: ([u8; 4], u16), destination: ([u8; 4], u16), control: u8, payload: usize) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.1.to_be_bytes());
    segment.extend(destination.1.to_be_bytes());
    segment.extend([0; 8]);
    segment.extend([0x50, control, 0xff, 0xff, 0, 0, 0, 0]);
    segment.resize(20 + payload, 0);
    ipv4(6, source.0, destination.0, &segment)
}

/// An ARP request.
pub fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.resize(60, 0);
    frame
}

/// A conversation with handshake, data both ways and FIN from both sides; a UDP question with its answer; a ping.
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

/// Runs the binary without standard input.
pub fn weir<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the binary with standard input.
pub fn weir_with_input<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whether the program reads all of it is for the test to see.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// The same, with nobody who reads what it prints.
pub fn weir_nobody_reads(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.wait_with_output().unwrap()
}

/// Exit code, standard output and standard error.
pub fn parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().unwrap_or_else(|| panic!("ended by a signal: {err}")), out, err)
}
