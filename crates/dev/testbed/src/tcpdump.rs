//! tcpdump, which writes what it reads into a capture.

use crate::Background;
use crate::namespace::until;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE_HEADER: u64 = 24;
const RECORD_HEADER: u64 = 16;

/// A running tcpdump. It is killed on drop.
pub struct Tcpdump {
    process: Background,
    path: PathBuf,
    /// Frames that were found in the file, and the octets up to the end of the last one.
    counted: (usize, u64),
}

impl Tcpdump {
    /// tcpdump with this input, as in `-r FILE`. Prints the reason and returns `None` where it is not
    /// installed.
    pub fn start(folder: &Path, name: &str, input: &[&str]) -> Option<Self> {
        let path = folder.join(format!("{name}.pcap"));
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-U", "-Z", "root", "--nano", "-w"]).arg(&path).args(input).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => Some(Self { process: Background(child), path, counted: (0, FILE_HEADER) }),
            Err(error) => {
                eprintln!("SKIPPED: tcpdump: {error}");
                None
            }
        }
    }

    /// tcpdump that captures what an interface of the namespace receives, from now on. Its ring has room for
    /// 1000 frames if the interface carries the largest ones: it loses what comes while it does not run.
    pub fn at(folder: &Path, interface: &str) -> Option<Self> {
        let options = ["--immediate-mode", "-B", "65536", "-Q", "in", "-i", interface];
        let mut tcpdump = Self::start(folder, interface, &options)?;
        // It says so when its socket is ready. Its standard error stays open for its statistics.
        let messages = tcpdump.process.0.stderr.as_mut().unwrap();
        let listens = BufReader::new(messages).lines().any(|line| line.unwrap().contains("listening on"));
        assert!(listens, "tcpdump has ended");
        Some(tcpdump)
    }

    /// Whole frames that it has written so far.
    pub fn count(&mut self) -> usize {
        let Ok(mut file) = File::open(&self.path) else { return 0 };
        let (frames, end) = &mut self.counted;
        let mut octets = Vec::new();
        file.seek(SeekFrom::Start(*end)).unwrap();
        file.read_to_end(&mut octets).unwrap();
        let mut rest = &octets[..];
        while let Some(length) = rest.get(8..12) {
            let record = RECORD_HEADER + u64::from(u32::from_le_bytes(length.try_into().unwrap()));
            let Some(next) = rest.get(record as usize..) else { break };
            (*frames, *end, rest) = (*frames + 1, *end + record, next);
        }
        *frames
    }

    /// Waits until it has written this number of frames, and ends it: all that it has written.
    pub fn frames(mut self, expected: usize) -> Vec<Vec<u8>> {
        until(&format!("tcpdump has {expected} frames in {}", self.path.display()), || self.count() >= expected);
        self.process.stop(libc::SIGKILL);
        self.read()
    }

    /// The whole frames that it has written so far.
    pub fn read(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        if fs::metadata(&self.path).is_ok_and(|file| file.len() >= FILE_HEADER) {
            let mut source = weir_capture::open(&self.path).unwrap();
            // The last record may be incomplete.
            while let Ok(Some(burst)) = source.burst() {
                frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
            }
        }
        frames
    }
}
