//! AF_PACKET through whole pipelines, one per receive queue: the records equal those of one pipeline that
//! reads the same frames from memory, times included, and every packet is accounted for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testbed::namespace::{BOUND, LEFT, Sender, network};
use weir_capture::{Burst, ClockSteps, Error, Input, LiveSource, LiveSpec, Losses, MAX_BURST_FRAMES, Progress, Source};
use weir_probe::Settings;
use weir_testkit::{RawFrame, compare, real, truth};
use weir_trafficgen::TrafficGenerator;

/// A source that records the frames it delivers.
struct RecordingSource {
    source: Box<dyn LiveSource + Send>,
    frames: Arc<Mutex<Vec<RawFrame>>>,
    stop: Arc<AtomicBool>,
}

impl Source for RecordingSource {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if self.stop.load(Ordering::Relaxed) {
            self.source.stop();
        }
        let more = self.source.fill(burst)?;
        self.frames.lock().unwrap().extend(burst.iter().map(RawFrame::from));
        Ok(more)
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

impl LiveSource for RecordingSource {
    fn set_poll_timeout(&mut self, timeout: Duration) {
        self.source.set_poll_timeout(timeout);
    }

    fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }

    fn latest_ns(&self) -> u64 {
        self.source.latest_ns()
    }

    fn wait_for_interface(&mut self) -> bool {
        self.source.wait_for_interface()
    }

    fn clock_steps(&self) -> ClockSteps {
        self.source.clock_steps()
    }

    fn stop(&mut self) {
        self.source.stop();
    }

    fn query_losses(&mut self) -> Losses {
        self.source.query_losses()
    }
}

/// Frames of the shipped Ethernet captures, and a generated mix.
fn traffic() -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(truth::testdata().join("captures")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.contains(".pcap") && !name.ends_with(".json")
    });
    paths.sort();
    let mut frames: Vec<RawFrame> = paths.iter().flat_map(|path| real::capture(path)).collect();
    frames.extend(real::frames(&mut TrafficGenerator::new("mix,flows=500,packets=20k,seed=5").unwrap()).0);
    frames.retain(|frame| frame.link_type == 1 && frame.bytes.len() > 14);
    frames.into_iter().map(|frame| frame.bytes).collect()
}

#[test]
fn live_records_equal_those_of_the_same_frames_from_memory_for_any_number_of_queues() {
    if !network() {
        return;
    }
    let sent = traffic();
    let plain = Settings::default;
    let decode = weir_packet::DecodeOptions { decapsulate: true };
    // In these captures the same addresses communicate through many tunnels; a queue receives all packets
    // of a pair of tunnel endpoints.
    let key = weir_flow::KeyOptions { tunnel: true, ..weir_flow::KeyOptions::default() };
    let meter = weir_flow::Config { key, ..weir_flow::Config::default() };
    let inside = || Settings { layer2: true, decode, meter, ..Settings::default() };
    for (queues, settings) in [(1, plain()), (4, plain()), (4, inside())] {
        let sources =
            format!("af_packet:right,queues={queues}").parse::<LiveSpec>().and_then(|live| live.open()).unwrap();
        assert_eq!(sources.len(), queues);
        let stop = Arc::new(AtomicBool::new(false));
        let pipelines: Vec<_> = sources
            .into_iter()
            .map(|source| {
                let frames = Arc::<Mutex<Vec<RawFrame>>>::default();
                let source = RecordingSource { source, frames: frames.clone(), stop: stop.clone() };
                let settings = settings.clone();
                std::thread::spawn(move || {
                    (real::run(Input::Live(Box::new(source)), settings), std::mem::take(&mut *frames.lock().unwrap()))
                })
            })
            .collect();
        let mut sender = Sender::new(LEFT);
        sent.iter().for_each(|frame| sender.send(frame));
        stop.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let (mut flows, mut frames, mut received) = (Vec::new(), Vec::new(), 0);
        for pipeline in pipelines {
            let (outcome, delivered) = pipeline.join().unwrap();
            assert!(started.elapsed() < BOUND, "a stopped source ends");
            assert_eq!(outcome.damage, Vec::<String>::new());
            assert!(outcome.ledger.balanced(), "{:?}", outcome.ledger);
            assert!(!delivered.is_empty(), "{queues} queues share");
            received += outcome.ledger.packets.received;
            flows.extend(outcome.flows);
            frames.extend(delivered);
        }
        assert_eq!((received, frames.len()), (sent.len() as u64, sent.len()), "{queues} queues");
        let sorted = |mut frames: Vec<Vec<u8>>| {
            frames.sort();
            frames
        };
        assert!(sorted(frames.iter().map(|frame| frame.bytes.clone()).collect()) == sorted(sent.clone()));
        frames.sort_by_key(|frame| frame.time_ns);
        let expected = real::meter(&frames, MAX_BURST_FRAMES, settings);
        compare::flows(&flows, &expected.flows).unwrap_or_else(|difference| panic!("{queues} queues: {difference}"));
    }
}
