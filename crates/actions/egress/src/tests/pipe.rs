//! Pipes and files in pcap format: what is written, and what is counted without a reader.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use testbed::namespace::{BOUND, until};
use weir_capture::Frame;
use weir_egress::{Balance, Egress, OutputSettings, OutputSpec, PacketOutput, WhenFull, open};
use weir_ledger::{OutputCounters, PacketTotals};

/// Octets of the queue of a pipeline, and of a pipe of the kernel.
const QUEUE_OCTETS: u64 = 16 << 20;
const PIPE_OCTETS: u64 = 1 << 20;

fn frame(bytes: &[u8], time_ns: u64) -> Frame<'_> {
    Frame { bytes, time_ns, wire_bytes: bytes.len() as u32, link_type: 1, time_assumed: false, interface: 1 }
}

/// A frame that begins with its number.
fn numbered(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8; 60 + number as usize % 1400];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The end waits for any reader that reads, and what failed is tried again soon.
fn settings() -> OutputSettings {
    OutputSettings { retry: Duration::from_millis(20), finish_timeout: BOUND, ..OutputSettings::default() }
}

fn outputs(path: &Path, pipelines: usize) -> Vec<Box<dyn PacketOutput>> {
    outputs_with(path, pipelines, &settings())
}

fn outputs_with(path: &Path, pipelines: usize, settings: &OutputSettings) -> Vec<Box<dyn PacketOutput>> {
    let mut outputs = open(&OutputSpec::Pcap(path.into()), &[], pipelines, settings).unwrap();
    outputs.iter_mut().for_each(|output| output.send(&[]));
    outputs
}

fn send(output: &mut dyn PacketOutput, numbers: std::ops::Range<u32>) -> PacketTotals {
    let mut handed = PacketTotals::default();
    for number in numbers {
        let bytes = numbered(number);
        output.send(&[frame(&bytes, u64::from(number) * 1000)]);
        handed.add(bytes.len());
    }
    handed
}

fn dropped(counters: &OutputCounters, reason: &str) -> u64 {
    counters.dropped.get(reason).map_or(0, |totals| totals.packets)
}

fn fifo(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Numbers and times in µs of the frames in a capture, whose octets are compared.
fn read(capture: &[u8]) -> Vec<(u32, u64)> {
    let mut source = weir_capture::from_bytes(Path::new("test"), capture.to_vec()).unwrap();
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        for frame in &burst {
            let number = u32::from_le_bytes(*frame.bytes.first_chunk().unwrap());
            assert_eq!(frame.bytes, numbered(number));
            assert_eq!((frame.wire_bytes as usize, frame.link_type), (frame.bytes.len(), 1));
            frames.push((number, frame.time_ns / 1000));
        }
    }
    frames
}

/// What the output keeps, because the writer was behind, goes when that has caught up.
fn until_none_waits(output: &mut dyn PacketOutput) {
    until("each packet is written or lost", || {
        output.flush();
        output.counters().waiting.packets == 0
    });
}

/// Sends frames with the number 0 until the output takes them, and returns when it has none left.
fn send_until_sent(output: &mut dyn PacketOutput) -> PacketTotals {
    let (before, mut handed) = (output.counters().sent.packets, PacketTotals::default());
    until("the output takes packets", || {
        handed.merge(send(output, 0..1));
        output.counters().sent.packets > before
    });
    until_none_waits(output);
    handed
}

#[test]
fn file_has_every_frame_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let mut output = outputs(&path, 1).remove(0);
    let handed = send(&mut *output, 0..30_000);
    output.finish();
    let counters = output.counters();
    let frames = read(&fs::read(&path).unwrap());
    assert!(frames.is_sorted());
    // The queue holds most of them: whether all depends on the disk.
    assert_eq!(frames.len() as u64, counters.sent.packets);
    assert_eq!(counters.sent.packets + dropped(&counters, "queue_full"), 30_000);
    assert_eq!((counters.total(), counters.waiting), (handed, PacketTotals::default()));
    assert_eq!(counters.output, format!("pcap:{}", path.display()));
}

#[test]
fn pipelines_are_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(&folder);
    // Without a reader nothing is read from the queues, but dropped: one comes first.
    let (all_are_queued, wait) = channel::<()>();
    let reader = {
        let path = path.clone();
        thread::spawn(move || {
            let mut file = File::open(path).unwrap();
            // All frames are queued before the reader takes some, so the order is exact.
            wait.recv().unwrap_or_default();
            let mut capture = Vec::new();
            file.read_to_end(&mut capture).unwrap();
            capture
        })
    };
    until("the FIFO has a reader", || OpenOptions::new().write(true).open(&path).is_ok());
    let mut outputs = outputs(&path, 3);
    let mut handed = PacketTotals::default();
    for number in 0..9000 {
        handed.merge(send(&mut *outputs[number as usize % 3], number..number + 1));
    }
    drop(all_are_queued);
    let mut counters = OutputCounters::default();
    for output in &mut outputs {
        output.finish();
        counters.merge(&output.counters());
    }
    assert_eq!((counters.sent, counters.total()), (handed, handed), "{counters:?}");
    let frames = read(&reader.join().unwrap());
    assert_eq!(frames.len(), 9000);
    for pipeline in 0..3 {
        assert!(frames.iter().filter(|(number, _)| number % 3 == pipeline).is_sorted());
    }
    let swapped = frames.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    // Rounds begin while frames still come, so some of those are out of order that the pipe holds without a
    // reader: two for each swap, of some 1400.
    assert!(swapped < 900, "{swapped}");
}

#[test]
fn stopped_reader_loses_only_its_own_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(&folder);
    let stopped = {
        let path = path.clone();
        thread::spawn(move || File::open(path).unwrap())
    };
    until("the FIFO has a reader", || OpenOptions::new().write(true).open(&path).is_ok());
    let other = folder.path().join("other.pcap");
    let stops_soon = OutputSettings { finish_timeout: Duration::from_millis(100), ..settings() };
    let both = vec![outputs_with(&path, 1, &stops_soon).remove(0), outputs(&other, 1).remove(0)];
    let mut egress = Egress::new(both, Balance::Mirror, 1);
    let mut handed = PacketTotals::default();
    for number in 0..60_000 {
        let bytes = numbered(number);
        egress.send(&[(frame(&bytes, 0), None)]);
        handed.add(bytes.len());
        if number % 1000 == 0 {
            until("the disk takes what the other output has", || {
                egress.counters()[1].waiting.octets < QUEUE_OCTETS / 2
            });
        }
    }
    let [slow, fast] = &egress.counters()[..] else { panic!("there are two") };
    assert!(dropped(slow, "queue_full") > 0);
    assert!(slow.waiting.octets > QUEUE_OCTETS / 2 && slow.waiting.octets < QUEUE_OCTETS + PIPE_OCTETS, "{slow:?}");
    assert_eq!((slow.total(), fast.total(), fast.dropped.len()), (handed, handed, 0));
    egress.finish();
    for counters in egress.counters() {
        assert_eq!((counters.total(), counters.waiting), (handed, PacketTotals::default()));
    }
    assert_eq!(read(&fs::read(&other).unwrap()).len(), 60_000);
    drop(stopped);
}

/// Whether this process has a file open.
fn is_open(path: &Path) -> bool {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.into_iter().any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target == path))
}

#[test]
fn capture_is_written_whole_if_the_output_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let waits = OutputSettings { when_full: WhenFull::Wait(Arc::default()), ..settings() };
    let mut output = open(&OutputSpec::Pcap(path.clone()), &[], 1, &waits).unwrap().remove(0);
    // More than the queue holds.
    let handed = send(&mut *output, 0..100_000);
    assert!(handed.octets > 4 * QUEUE_OCTETS);
    output.finish();
    assert_eq!((output.counters().sent, output.counters().dropped.len()), (handed, 0));
    assert!(read(&fs::read(&path).unwrap()).into_iter().map(|(number, _)| number).eq(0..100_000));
}

#[test]
fn other_tools_read_the_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(&folder);
    let tcpdump = Command::new("tcpdump").args(["-n", "--count", "-r"]).arg(&path).stdout(Stdio::piped()).spawn();
    let Ok(tcpdump) = tcpdump else {
        eprintln!("SKIPPED: tcpdump is not installed");
        return;
    };
    let mut output = outputs(&path, 1).remove(0);
    send_until_sent(&mut *output);
    let before = output.counters().sent.packets;
    send(&mut *output, 0..5000);
    output.finish();
    let sent = output.counters().sent.packets;
    let printed = String::from_utf8(tcpdump.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((printed.trim(), sent), (&*format!("{sent} packets"), before + 5000));
}

#[test]
fn capture_without_packets_has_a_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    outputs(&path, 2).iter_mut().for_each(|output| output.finish());
    assert_eq!(fs::read(&path).unwrap().len(), 24);
}

#[test]
fn frames_of_another_link_type_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let mut output = outputs(&path, 1).remove(0);
    let ip = Frame { link_type: 101, ..frame(&[0x45; 40], 5) };
    output.send(&[ip, frame(&[1; 60], 6), ip]);
    output.finish();
    let counters = output.counters();
    assert_eq!((counters.sent.packets, dropped(&counters, "link_type")), (2, 1));
    assert_eq!(fs::read(&path).unwrap()[20], 101);
}

#[test]
fn file_with_other_content_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "do not lose this").unwrap();
    let error = open(&OutputSpec::Pcap(path.clone()), &[], 1, &settings()).err().unwrap().to_string();
    assert!(error.contains("the file has other content, and is not overwritten"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"do not lose this");
    // A capture is overwritten.
    fs::write(&path, [&[0x4d, 0x3c, 0xb2, 0xa1][..], &[7; 100]].concat()).unwrap();
    outputs(&path, 1)[0].finish();
    assert_eq!(fs::read(&path).unwrap().len(), 24);
    let error =
        open(&OutputSpec::Pcap(folder.path().join("none/out.pcap")), &[], 1, &settings()).err().unwrap().to_string();
    assert!(error.contains("No such file or directory"), "{error}");
}

#[test]
fn full_disk_loses_packets_and_the_file_stays_readable() {
    let mut output = outputs(Path::new("/dev/full"), 1).remove(0);
    let handed = send(&mut *output, 0..100);
    output.finish();
    let counters = output.counters();
    assert_eq!((dropped(&counters, "write_failed"), counters.total()), (100, handed));

    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(folder.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no file system can be mounted");
        return;
    }
    let path = folder.path().join("out.pcap");
    let mut output = outputs(&path, 1).remove(0);
    let mut handed = send(&mut *output, 0..3000);
    // When the loss is counted, the incomplete record is cut off.
    until("the disk is full", || dropped(&output.counters(), "write_failed") > 0);
    until_none_waits(&mut *output);
    fs::write(folder.path().join("other"), []).unwrap();
    let whole = read(&fs::read(&path).unwrap());
    assert!(whole.len() > 100 && whole.len() as u64 == output.counters().sent.packets);
    // Another program makes room.
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    handed.merge(send_until_sent(&mut *output));
    let sent = output.counters().sent.packets;
    handed.merge(send(&mut *output, 0..100));
    until_none_waits(&mut *output);
    assert_eq!(output.counters().sent.packets, sent + 100);
    output.finish();
    assert_eq!(output.counters().total(), handed);
    assert!(Command::new("umount").arg("--lazy").arg(folder.path()).status().unwrap().success());
}

/// While another test starts a process, that has the ends of all pipes until it runs its program: a reader that has
/// gone would still be there.
mod alone {
    use super::*;

    #[test]
    fn reader_that_closes_the_pipe_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let mut output = outputs(&path, 1).remove(0);
        let mut handed = send(&mut *output, 0..10);
        until_none_waits(&mut *output);
        assert_eq!(dropped(&output.counters(), "closed"), 10);
        for _ in 0..2 {
            let mut reader = {
                let path = path.clone();
                thread::spawn(move || File::open(path).unwrap()).join().unwrap()
            };
            handed.merge(send_until_sent(&mut *output));
            let sent = output.counters().sent.packets;
            handed.merge(send(&mut *output, 0..100));
            until_none_waits(&mut *output);
            assert_eq!(output.counters().sent.packets, sent + 100);
            let mut capture = vec![0; 24];
            reader.read_exact(&mut capture).unwrap();
            assert_eq!(capture[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
            drop(reader);
            until("the writer has closed the FIFO", || !is_open(&path));
            for packets in [10, 7] {
                let closed = dropped(&output.counters(), "closed") + u64::from(packets);
                handed.merge(send(&mut *output, 0..packets));
                until_none_waits(&mut *output);
                assert_eq!(dropped(&output.counters(), "closed"), closed);
            }
        }
        output.finish();
        let counters = output.counters();
        assert_eq!((counters.total(), counters.waiting.packets), (handed, 0), "{counters:?}");
    }

    #[test]
    fn next_reader_gets_a_header_even_if_no_packet_came_between() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let open_reader = |path: PathBuf| thread::spawn(move || File::open(path).unwrap());
        let first = open_reader(path.clone());
        until("the FIFO has a reader", || OpenOptions::new().write(true).open(&path).is_ok());
        let mut output = outputs(&path, 1).remove(0);
        send(&mut *output, 0..10);
        until_none_waits(&mut *output);
        assert_eq!(output.counters().sent.packets, 10);
        drop(first.join().unwrap());
        until("the writer has closed the FIFO", || !is_open(&path));
        let mut second = open_reader(path.clone()).join().unwrap();
        send_until_sent(&mut *output);
        let before = output.counters().sent.packets;
        send(&mut *output, 0..20);
        output.finish();
        let mut capture = Vec::new();
        second.read_to_end(&mut capture).unwrap();
        let counters = output.counters();
        assert_eq!(
            (counters.sent.packets, read(&capture).len() as u64),
            (before + 20, before + 20 - 10),
            "{counters:?}"
        );
    }
}
