//! Idle link: CPU load of waiting threads, and delay of a single flow's record.

use crate::error::Error;
use crate::live::consumer::{Consumer, ConsumerKind, LAYOUTS};
use crate::live::dpdk_device::DpdkDevice;
use crate::live::report::IdleLink;
use crate::live::status::ConsumerStatus;
use crate::live::trial::{IDLE_TIMEOUT, Setup, TrafficFeed, wait_for_packets};
use crate::report::Spread;
use std::thread;
use std::time::{Duration, Instant};

/// Time until a started consumer only waits.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Time within which the record of an ended flow must arrive.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

/// TCP flags.
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Measures the CPU load of each layout on an idle link, and the delay between the end of a flow and
/// its record, over `flows` single flows.
pub fn measure(setup: &mut Setup<'_>, flows: usize, time: Duration) -> Result<Vec<IdleLink>, Error> {
    if !setup.is_veth() {
        // No later measurement needs the device that generates packets.
        setup.feed = TrafficFeed::Dpdk(DpdkDevice::silent());
    }
    LAYOUTS.into_iter().map(|kind| measure_consumer(setup, kind, flows, time)).collect()
}

fn measure_consumer(
    setup: &mut Setup<'_>,
    kind: ConsumerKind,
    flows: usize,
    time: Duration,
) -> Result<IdleLink, Error> {
    setup.check_interrupted()?;
    let consumer = Consumer::start(kind, setup.open()?, setup.cores.pipeline_affinities(true), IDLE_TIMEOUT)?;
    let before = setup.lost_on_veth()?;
    thread::sleep(SETTLE_TIME);
    let busy = |status: &ConsumerStatus| status.cpu_time_ns.iter().sum::<u64>();
    let (first, began) = (consumer.status()?, Instant::now());
    thread::sleep(time);
    let last = consumer.status()?;
    let load = (busy(&last) - busy(&first)) as f64 / began.elapsed().as_nanos() as f64;
    let (mut delays, mut sent) = (Vec::new(), 0);
    if kind != ConsumerKind::Null {
        for flow in 0..flows {
            setup.check_interrupted()?;
            let TrafficFeed::Veth(veth) = &mut setup.feed else { break };
            let frames = conversation(flow as u16);
            for frame in &frames {
                veth.send_all(&[frame])?;
            }
            let due = Instant::now() + IDLE_TIMEOUT;
            sent += frames.len() as u64;
            wait_for_packets(&consumer, sent)?;
            delays.push(wait_for_record(&consumer, flow as u64)?.saturating_duration_since(due).as_secs_f64());
            // Varying pauses, so that flows are not in step with a timer.
            thread::sleep(Duration::from_millis(137 * (flow as u64 + 1) % 500));
        }
    }
    let end = consumer.finish()?;
    setup.account([sent, 0], before, &end, kind)?;
    let flows = delays.len();
    let delay = (flows > 0).then(|| Spread::of(delays));
    Ok(IdleLink { consumer: kind.name(), load, delay, flows })
}

/// Waits for one more record than `before` and returns its arrival time.
fn wait_for_record(consumer: &Consumer, before: u64) -> Result<Instant, Error> {
    let start = Instant::now();
    loop {
        match consumer.status()? {
            ConsumerStatus { records, last_record: Some(at), .. } if records > before => return Ok(at),
            _ if start.elapsed() > RECORD_TIMEOUT => {
                return Err(Error::Consumer("no record of an ended flow arrived".into()));
            }
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Frames of one flow. Even numbers: a TCP connection from SYN to FIN; odd numbers: one datagram.
fn conversation(number: u16) -> Vec<Vec<u8>> {
    let ports = [10_000 + number, 443];
    if number % 2 == 1 {
        return vec![frame(17, true, &[&ports[0].to_be_bytes()[..], &ports[1].to_be_bytes(), &[0, 8, 0, 0]].concat())];
    }
    let segment = |forward: bool, [sequence, acknowledged]: [u32; 2], flags: u8| {
        let [source, destination] = if forward { ports } else { [ports[1], ports[0]] };
        let numbers = [sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat();
        let rest = [0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
        frame(6, forward, &[&source.to_be_bytes()[..], &destination.to_be_bytes(), &numbers, &rest].concat())
    };
    vec![
        segment(true, [100, 0], SYN),
        segment(false, [500, 101], SYN | ACK),
        segment(true, [101, 501], ACK),
        segment(true, [101, 501], FIN | ACK),
        segment(false, [501, 102], FIN | ACK),
        segment(true, [102, 502], ACK),
    ]
}

/// Builds an Ethernet frame with an IPv4 packet between two hosts.
fn frame(protocol: u8, forward: bool, payload: &[u8]) -> Vec<u8> {
    let [source, destination] = if forward { [1, 2] } else { [2, 1] };
    let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 0x08, 0x00];
    let length = (20 + payload.len() as u16).to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([192, 0, 2, source, 192, 0, 2, destination]);
    frame.extend(payload);
    frame
}
