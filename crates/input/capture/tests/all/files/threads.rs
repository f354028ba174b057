//! Reading threads return what the source returns.

use super::mapped::{Numbers, large};
use super::*;
use ReadingThreads::{IfUseful, UpTo};
use std::fs::{self, File};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use weir_capture::{Burst, Frame, Progress, SharedMemory, Source, from_reader};

type Input = Box<dyn Source + Send>;

/// What each call of `fill` returns, with the interfaces that are known then.
fn calls(mut source: Input) -> Vec<String> {
    let mut calls = Vec::new();
    loop {
        let mut burst = Burst::new();
        let filled = source.fill(&mut burst).map_err(|error| error.to_string());
        let frames: Vec<Kept> = burst.iter().map(Kept::from).collect();
        drop(burst);
        calls.push(format!("{filled:?} {frames:?} {:?} {:?}", source.progress(), source.interfaces()));
        if filled == Ok(false) {
            return calls;
        }
    }
}

fn assert_same_calls(inputs: impl Fn() -> Vec<Input>) {
    let expected = calls(merge(inputs()));
    for threads in [0, 1, 2, 3, 8].map(UpTo).into_iter().chain([IfUseful(1)]) {
        let found = calls(read_on_threads(inputs(), threads));
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let tail = |at: usize, calls: &[String]| calls[at][calls[at].len().saturating_sub(200)..].to_owned();
        let differs = differs.map(|at| (at, tail(at, &found), tail(at, &expected)));
        assert_eq!((found.len(), differs), (expected.len(), None), "{threads:?}");
    }
}

#[test]
fn bursts_errors_and_progress_are_those_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(11);
    let mut paths = Vec::new();
    for round in 0..6 {
        let mut bytes = large(&mut numbers, round % 2 == 0, round == 5);
        for _ in 0..[0, 20, 1][round / 2] {
            let at = 200 + numbers.below(bytes.len() as u64 - 200) as usize;
            bytes[at] = numbers.below(256) as u8;
        }
        if round % 3 == 2 {
            bytes.truncate(bytes.len() - numbers.below(3_000_000) as usize);
        }
        let path = folder.path().join(round.to_string());
        fs::write(&path, &bytes).unwrap();
        let compressed = folder.path().join(format!("{round}.gz"));
        let mut stream = gzip(&bytes, flate2::Compression::fast());
        stream.truncate(stream.len() - [0, 0, 0, 1, 1000, 20_000][round]);
        fs::write(&compressed, &stream).unwrap();
        assert_same_calls(|| vec![open(&path).unwrap()]);
        assert_same_calls(|| vec![open(&compressed).unwrap()]);
        assert_same_calls(|| vec![from_reader(&path, Box::new(File::open(&path).unwrap())).unwrap()]);
        paths.extend([path, compressed]);
    }
    assert_same_calls(|| paths.iter().map(|path| open(path).unwrap()).collect());
}

#[test]
fn a_packet_of_a_slow_stream_is_returned_before_the_next_one_arrives() {
    let (mut one, bytes) = (Vec::new(), Pcap::new(false, 0xa1b2_c3d4).record(1, 0, 60, 60).record(2, 0, 60, 60).done());
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    sender.send(bytes[..24 + 76].to_vec()).unwrap();
    struct Stream(std::sync::mpsc::Receiver<Vec<u8>>);
    impl std::io::Read for Stream {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let Ok(bytes) = self.0.recv() else { return Ok(0) };
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }
    let mut source = read_on_threads(vec![from_reader(Path::new("-"), Box::new(Stream(receiver))).unwrap()], UpTo(1));
    one.extend(source.burst().unwrap().unwrap().iter().map(Kept::from));
    assert_eq!(one.len(), 1);
    sender.send(bytes[24 + 76..].to_vec()).unwrap();
    drop(sender);
    one.extend(source.burst().unwrap().unwrap().iter().map(Kept::from));
    assert_eq!(one.len(), 2);
    assert!(source.burst().unwrap().is_none() && source.burst().unwrap().is_none());
}

#[test]
#[should_panic(expected = "the source is broken")]
fn a_panic_of_the_source_is_one_of_the_caller() {
    struct Broken;
    impl Source for Broken {
        fn fill<'a>(&'a mut self, _: &mut Burst<'a>) -> Result<bool, Error> {
            panic!("the source is broken")
        }
        fn progress(&self) -> Progress {
            Progress::default()
        }
    }
    let _ = read_on_threads(vec![Box::new(Broken)], UpTo(1)).burst();
}

#[test]
fn a_source_that_is_dropped_early_does_not_wait_for_its_end() {
    struct Endless([u8; 60]);
    impl Source for Endless {
        fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
            let frame = weir_capture::Frame {
                bytes: &self.0,
                time_ns: 0,
                wire_bytes: 60,
                link_type: 1,
                time_assumed: false,
                interface: 1,
            };
            burst.push(frame);
            Ok(true)
        }
        fn progress(&self) -> Progress {
            Progress::default()
        }
    }
    let mut source = read_on_threads(vec![Box::new(Endless([7; 60])), Box::new(Endless([8; 60]))], UpTo(3));
    for _ in 0..10 {
        assert!(source.burst().unwrap().is_some());
    }
}

/// Frames in one piece of memory, those of a burst with one length, and the threads that read them.
struct InMemory {
    memory: Arc<Vec<u8>>,
    lengths: std::vec::IntoIter<usize>,
    readers: Arc<Mutex<Vec<ThreadId>>>,
}

impl Source for InMemory {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        self.readers.lock().unwrap().push(thread::current().id());
        let Some(length) = self.lengths.next() else { return Ok(false) };
        let (bytes, wire_bytes) = (&self.memory[..length], length as u32);
        let (time_ns, link_type, time_assumed, interface) = (0, 1, false, 1);
        while !burst.is_full() {
            burst.push(Frame { bytes, time_ns, wire_bytes, link_type, time_assumed, interface });
        }
        Ok(true)
    }

    fn memory(&self) -> Option<SharedMemory> {
        Some(self.memory.clone())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

#[test]
fn short_frames_in_memory_are_read_by_the_thread_that_asks_unless_a_number_is_given() {
    let caller = thread::current().id();
    let begins_with_handshakes = [[60; 40].as_slice(), &[1500; 60]].concat();
    for (lengths, threads, moves, before) in [
        (vec![60; 100], IfUseful(1), false, 16),
        (vec![79; 100], IfUseful(2), false, 16),
        (vec![60; 100], UpTo(1), true, 0),
        (vec![80; 100], IfUseful(1), true, 16),
        (begins_with_handshakes, IfUseful(1), true, 48),
    ] {
        let readers = Arc::default();
        let (memory, bytes) = (Arc::new(vec![7; 1500]), lengths[0]);
        let input = InMemory { memory, lengths: lengths.into_iter(), readers: Arc::clone(&readers) };
        let mut source = read_on_threads(vec![Box::new(input)], threads);
        let bursts = std::iter::from_fn(|| source.burst().unwrap().map(|burst| burst.len()));
        assert_eq!(bursts.sum::<usize>(), 100 * 64, "{threads:?}");
        let readers = readers.lock().unwrap();
        assert_eq!(readers.iter().any(|reader| *reader != caller), moves, "{bytes} bytes, {threads:?}");
        // It is decided after each 1024 frames, in 16 bursts.
        assert!(readers[..before].iter().all(|reader| *reader == caller), "{bytes} bytes, {threads:?}");
    }
}
