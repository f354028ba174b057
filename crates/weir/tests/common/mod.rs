//! Helpers for tests of the binary: captures built from bytes, runs of the binary, and its outputs.
#![allow(dead_code, unused_imports, unused_macros)]

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

/// An Ethernet frame with an IPv4 packet.
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

/// An Ethernet frame with a UDP datagram. `payload` is the length of its payload in octets.
pub fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: usize) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(source.1.to_be_bytes());
    datagram.extend(destination.1.to_be_bytes());
    datagram.extend((8 + payload as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.resize(8 + payload, 0);
    ipv4(17, source.0, destination.0, &datagram)
}

/// An Ethernet frame with a TCP segment. `payload` is the length of its payload in octets.
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

/// A DNS request and its response between client `number` and one server.
pub fn request_and_response(number: u16) -> [Vec<u8>; 2] {
    let [high, low] = number.to_be_bytes();
    let (client, server) = (([10, 0, high, low], 1024 + number % 5000), ([10, 1, 0, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}

/// The captures of single flows of the crate `dpi`, in the order of their names.
pub fn captures_of_applications() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dpi/testdata");
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures")
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

/// Command line arguments of different string types, as an array of `&OsStr`.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { [$(std::ffi::OsStr::new(&$argument)),*] };
}
pub(crate) use arguments;

/// The content of all members of a gzip file.
pub fn gunzip(octets: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(octets), &mut content).unwrap();
    content
}

/// The content of all frames of a Zstandard file.
pub fn unzstd(mut octets: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while !octets.is_empty() {
        let mut frame = ruzstd::decoding::StreamingDecoder::new(&mut octets).unwrap();
        std::io::Read::read_to_end(&mut frame, &mut content).unwrap();
    }
    content
}

/// The binary, without standard input.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.stdin(Stdio::null());
    command
}

/// Runs the binary: exit code, standard output and standard error.
pub fn weir<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> (i32, String, String) {
    text_of(&command().args(arguments).output().unwrap())
}

/// Runs the binary, which succeeds and logs nothing: standard output.
pub fn success<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> String {
    let (code, out, err) = weir(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// Runs the binary, which fails with this exit code and prints no result: standard error.
pub fn failure<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(expected: i32, arguments: I) -> String {
    let (code, out, err) = weir(arguments);
    assert_eq!((code, out.as_str()), (expected, ""), "{err}");
    err
}

/// Runs the binary with each of these arguments: exit code 1, and an error with the reason.
pub fn assert_usage_errors(cases: &[(&[&str], &str)]) {
    for (arguments, reason) in cases {
        let err = failure(1, *arguments);
        assert!(err.contains(reason), "{arguments:?}: {err}");
    }
}

/// Runs a command with `--stats`: exit code, standard error, and the ledger, which balances.
pub fn ledger_of<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> (i32, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let output = command().args(arguments).arg("--stats").arg(&stats).output().unwrap();
    let (code, _, err) = text_of(&output);
    assert!(stats.exists(), "{code}: {err}");
    (code, err, read_ledger(&stats))
}

/// Runs `weir read` or `weir probe` with a JSON sink: exit code, standard error, records, ledger.
pub fn metered(arguments: &[&str]) -> (i32, String, Vec<Value>, Value) {
    let output = JsonOutput::new();
    let (code, err, ledger) = ledger_of(arguments.iter().chain(&["-o", &output.sink]));
    (code, err, output.flows(), ledger)
}

/// Runs the binary with standard input: exit code, standard output and standard error.
pub fn weir_with_input<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
    arguments: I,
    input: &[u8],
) -> (i32, String, String) {
    let mut command = command();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    text_of(&child.wait_with_output().unwrap())
}

/// Runs the binary with a closed standard output: exit code and standard error.
pub fn weir_with_closed_output(arguments: &[&str]) -> (i32, String) {
    let mut child = command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    (code, err)
}

/// Exit code, standard output and standard error of a run that did not panic.
pub fn text_of(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().unwrap_or_else(|| panic!("ended by a signal: {err}")), out, err)
}

/// Sends a signal to a child process.
pub fn signal(child: &Child, signal: i32) {
    // SAFETY: the test started the process and has not waited for it yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Waits until a child process handles SIGINT.
pub fn wait_for_handler_of_sigint(child: &Child) {
    // Bit 1 is SIGINT.
    let has_handler = |status: String| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        caught.is_some_and(|caught| u64::from_str_radix(caught, 16).unwrap() & 2 != 0)
    };
    while !has_handler(std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap()) {
        std::thread::yield_now();
    }
}

pub fn is_root() -> bool {
    // SAFETY: the call takes no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Whether a program is on `PATH`. Prints that the test is skipped if not.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: {program} is not installed (make test installs it)");
    }
    found
}

/// Gives every user access to a file or folder: `weir probe` drops to user nobody.
pub fn permit_all_users(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// Reads the ledger that `--stats` wrote. It must balance.
pub fn read_ledger(path: &Path) -> Value {
    let ledger: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    ledger
}

/// A number of a JSON object; 0 if it is absent.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Packets of a flow record in both directions.
pub fn packets(flow: &Value) -> u64 {
    number(&flow["packets"])
}

/// Reads JSON flow records, one per line. An incomplete last line is left out.
pub fn read_flows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file of JSON flow records in a folder of its own.
pub struct JsonOutput {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    /// The value for `-o`.
    pub sink: String,
}

impl JsonOutput {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.json");
        let sink = format!("json:{}?fields=all", path.display());
        Self { folder, path, sink }
    }

    /// The flow records written so far.
    pub fn flows(&self) -> Vec<Value> {
        read_flows(&self.path)
    }
}

/// A process in the background. It is killed on drop.
pub struct Background(pub Child);

impl Background {
    /// Starts a command without input and output.
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Sends a signal and waits for the exit.
    pub fn stop(&mut self, number: i32) {
        signal(&self.0, number);
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The collector nfcapd on a port of loopback, with its files in a folder of its own.
pub struct Nfcapd {
    process: Background,
    files: tempfile::TempDir,
}

impl Nfcapd {
    pub fn start(port: u16) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut command = Command::new("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-B", "4000000", "-w"]);
        Self { process: Background::start(command.arg(files.path())), files }
    }

    /// Stops nfcapd, and returns the output of nfdump for its files.
    pub fn dump(&mut self, options: &[&str]) -> String {
        if self.process.0.try_wait().unwrap().is_none() {
            self.process.stop(libc::SIGTERM);
        }
        let mut nfdump = Command::new("nfdump");
        nfdump.args(options).args(["-q", "-R"]).arg(self.files.path()).env("TZ", "UTC");
        String::from_utf8(nfdump.output().unwrap().stdout).unwrap()
    }
}

/// A UDP port of loopback that is not in use.
pub fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
