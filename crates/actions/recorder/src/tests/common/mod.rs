//! Frames in memory, recordings of them, and what other programs read.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_capture::{Frame, Source};
use weir_egress::{InterfaceReport, PacketOutput, WhenFull};
use weir_flow::FlowRecord;
use weir_ledger::{PacketTotals, RecorderCounters};
use weir_packet::{DecodeOptions, Flags, Network, Packet, decode};
use weir_recorder::{FolderSettings, RecorderOutput};

/// Copies of frames, and the errors between them.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    frames: Vec<(Vec<u8>, u64, u32, u16)>,
    pub errors: Vec<String>,
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self.frames == other.frames
    }
}

impl Frames {
    pub fn synth(spec: &str) -> Self {
        Self::read(&mut weir_trafficgen::TrafficGenerator::new(spec).unwrap())
    }

    fn read(source: &mut dyn Source) -> Self {
        let mut frames = Self::default();
        loop {
            match source.burst() {
                Ok(Some(burst)) => burst.iter().for_each(|frame| frames.add(frame)),
                Ok(None) => return frames,
                Err(error) => frames.errors.push(error.to_string()),
            }
        }
    }

    pub fn add(&mut self, frame: &Frame<'_>) {
        self.frames.push((frame.bytes.to_vec(), frame.time_ns, frame.wire_bytes, frame.link_type));
    }

    pub fn append(&mut self, other: &Self) {
        self.frames.extend(other.frames.iter().cloned());
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub fn starts_with(&self, other: &Self) -> bool {
        self.frames.starts_with(&other.frames)
    }

    pub fn totals(&self) -> PacketTotals {
        let mut totals = PacketTotals::default();
        self.frames.iter().for_each(|(bytes, ..)| totals.add(bytes.len()));
        totals
    }

    pub fn frame(&self, at: usize, interface: u32) -> Frame<'_> {
        let (bytes, time_ns, wire_bytes, link_type) = &self.frames[at];
        let (time_ns, wire_bytes, link_type) = (*time_ns, *wire_bytes, *link_type);
        Frame { bytes, time_ns, wire_bytes, link_type, time_assumed: false, interface }
    }

    /// Sends all frames in bursts, without waiting.
    pub fn send(&self, output: &mut RecorderOutput) {
        self.send_as(output, 1);
    }

    pub fn send_as(&self, output: &mut RecorderOutput, interface: u32) {
        let frames: Vec<Frame<'_>> = (0..self.len()).map(|at| self.frame(at, interface)).collect();
        frames.chunks(64).for_each(|burst| output.send(burst));
    }
}

/// Sends all frames, waits where the queue would be full, and finishes.
pub fn replay(frames: &Frames, output: &mut RecorderOutput) {
    let all: Vec<Frame<'_>> = (0..frames.len()).map(|at| frames.frame(at, 1)).collect();
    for burst in all.chunks(64) {
        output.send(burst);
        while output.counters().waiting.octets > 2 << 20 {
            std::thread::yield_now();
        }
    }
    output.finish();
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn settings(folder: &Path, settings: &str) -> FolderSettings {
    FolderSettings::parse(&format!("folder:{}?{settings}", folder.display())).unwrap()
}

/// Opens a folder for one pipeline, whose interface is 1.
pub fn open(folder: &Path, limits: &str) -> RecorderOutput {
    // What failed is tried again soon.
    let settings = FolderSettings { retry: Duration::from_millis(50), ..settings(folder, limits) };
    let mut output = RecorderOutput::open(&settings, 1, &WhenFull::Drop, Some("tcp or udp")).unwrap().remove(0);
    output.describe(&InterfaceReport { number: 1, name: "eth7".into(), received: None });
    output
}

/// Records frames into a folder. All of them are written.
pub fn record(frames: &Frames, folder: &Path, limits: &str) -> (u64, RecorderCounters) {
    let mut output = open(folder, limits);
    replay(frames, &mut output);
    let counters = output.counters();
    assert_eq!(counters.sent, frames.totals());
    (counters.sent.packets, counters.recorder.unwrap())
}

/// Records generated traffic, and returns the Community IDs of some of its flows.
pub fn record_synth(spec: &str, folder: &Path, limits: &str) -> Vec<String> {
    let mut generator = weir_trafficgen::TrafficGenerator::new(spec).unwrap();
    let mut output = open(folder, limits);
    let (mut ids, mut bursts) = (Vec::new(), 0);
    while let Some(burst) = generator.burst().unwrap() {
        output.send(&burst);
        bursts += 1;
        if bursts % 1000 == 500 && ids.len() < 12 {
            ids.extend(community_id(&burst[0]));
        }
        while output.counters().waiting.octets > 2 << 20 {
            std::thread::yield_now();
        }
    }
    output.finish();
    assert_eq!(output.counters().dropped.len(), 0);
    ids
}

/// The frames of a capture, as Weir reads them.
pub fn frames_of(path: &Path) -> Frames {
    Frames::read(&mut *weir_capture::open(path).unwrap())
}

fn community_id(frame: &Frame<'_>) -> Option<String> {
    let mut packet = Packet::default();
    decode(frame.link_type, frame.bytes, frame.wire_bytes, DecodeOptions::default(), &mut packet).ok()?;
    // A later fragment belongs to the flow of the first one.
    if packet.network == Network::Layer2 || packet.flags.has(Flags::FRAGMENT_LATER) {
        return None;
    }
    let Packet { network, protocol, source, destination, source_port, destination_port, .. } = packet;
    let flow =
        FlowRecord { network, protocol, source, destination, source_port, destination_port, ..FlowRecord::default() };
    weir_fields::community_id(&flow).map(|id| String::from_utf8(id.to_vec()).unwrap())
}

/// The Community IDs of all flows.
pub fn community_ids(frames: &Frames) -> Vec<String> {
    let ids: BTreeSet<String> = (0..frames.len()).filter_map(|at| community_id(&frames.frame(at, 1))).collect();
    ids.into_iter().collect()
}

/// Fragments of two UDP flows between the same hosts, with the same identifications at different times,
/// and later fragments before the first one.
pub fn fragments() -> Frames {
    let mut frames = Frames::default();
    let mut time_ns = 1_767_225_600_000_000_000_u64;
    for round in 0..3000_u16 {
        let port = 1000 + round % 2;
        for part in [0_u16, 1, 2] {
            let part = if round % 7 == 0 { 2 - part } else { part };
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0];
            frame.extend(1020_u16.to_be_bytes());
            frame.extend((round % 100).to_be_bytes());
            let more = if part < 2 { 0x2000 } else { 0 };
            frame.extend((more | (part * 125)).to_be_bytes());
            frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let start = frame.len();
            if part == 0 {
                frame.extend(port.to_be_bytes());
                frame.extend([0, 53, 11, 192, 0, 0]);
            }
            frame.resize(start + 1000, part as u8);
            time_ns += 10_000_000;
            frames.frames.push((frame, time_ns, 1034, 1));
        }
    }
    frames
}

/// The sum of the options epb_dropcount of a pcapng file that this machine wrote.
pub fn drop_counts(path: &Path) -> u64 {
    let octets = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut at, mut sum) = (0, 0);
    while at < octets.len() {
        let length = word(at + 4) as usize;
        let options = at + 28 + (word(at + 20) as usize).next_multiple_of(4);
        if word(at) == 6 && options + 4 < at + length {
            assert_eq!(word(options), 4 | 8 << 16);
            sum += u64::from(word(options + 4)) | u64::from(word(options + 8)) << 32;
        }
        at += length;
    }
    sum
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {program} is not installed (make test installs it)");
    }
    found
}

/// tshark reads the file to its end without a message, if it is installed, and counts the same packets.
pub fn tshark_reads(path: &Path) {
    if !is_installed("tshark") {
        return;
    }
    let output =
        Command::new("tshark").args(["-n", "-T", "fields", "-e", "frame.len", "-r"]).arg(path).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    let messages: Vec<&str> = messages.lines().filter(|line| !line.starts_with("Running as user")).collect();
    assert!(output.status.success() && messages.is_empty(), "{messages:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), frames_of(path).len());
}

/// What capinfos says about a file, if it is installed.
pub fn capinfos(path: &Path) -> Option<String> {
    if !is_installed("capinfos") {
        return None;
    }
    let output = Command::new("capinfos").arg(path).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
