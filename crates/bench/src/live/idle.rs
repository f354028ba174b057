//! A quiet link: what waiting costs, and how soon the first flow is told.

use crate::Error;
use crate::live::consumer::{Consumer, Seen, What};
use crate::live::device::Device;
use crate::live::report::Idle;
use crate::live::trial::{Bed, Feed, IDLE, arrive};
use crate::report::Spread;
use std::thread;
use std::time::{Duration, Instant};

/// A consumer has come to rest by then.
const REST: Duration = Duration::from_millis(300);
/// Longer than a record can take.
const BOUND: Duration = Duration::from_secs(60);

/// TCP flags.
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// What waiting costs each layout, and how long after the end of a flow its record came.
pub fn idle(bed: &mut Bed<'_>, flows: usize, time: Duration) -> Result<Vec<Idle>, Error> {
    let silent = Feed::Device(Device::that_is_silent());
    let feed = if bed.is_wire() { None } else { Some(std::mem::replace(&mut bed.feed, silent)) };
    let idle = [What::Null, What::Fused, What::Split].into_iter().map(|what| one(bed, what, flows, time)).collect();
    if let Some(feed) = feed {
        bed.feed = feed;
    }
    idle
}

fn one(bed: &mut Bed<'_>, what: What, flows: usize, time: Duration) -> Result<Idle, Error> {
    bed.interrupted()?;
    let source = bed.open()?;
    let consumer = Consumer::begin(what, source, bed.cores.of_pipeline(true), IDLE)?;
    let before = bed.wire_lost()?;
    thread::sleep(REST);
    let busy = |seen: &Seen| seen.busy_ns.iter().sum::<u64>();
    let (first, began) = (consumer.ask()?, Instant::now());
    thread::sleep(time);
    let last = consumer.ask()?;
    let load = (busy(&last) - busy(&first)) as f64 / began.elapsed().as_nanos() as f64;
    let (mut delays, mut sent) = (Vec::new(), 0);
    if what != What::Null {
        for flow in 0..flows {
            bed.interrupted()?;
            let Feed::Wire(wire) = &mut bed.feed else { break };
            let frames = conversation(flow as u16);
            for frame in &frames {
                wire.send_one(frame)?;
            }
            let due = Instant::now() + IDLE;
            sent += frames.len() as u64;
            arrive(&consumer, sent)?;
            delays.push(recorded(&consumer, flow as u64)?.saturating_duration_since(due).as_secs_f64());
            // The next one does not come in step with anything.
            thread::sleep(Duration::from_millis(137 * (flow as u64 + 1) % 500));
        }
    }
    let end = consumer.finish()?;
    bed.account(sent, 0, before, &end, what)?;
    let tried = delays.len();
    let delay = (!delays.is_empty()).then(|| Spread::of(delays));
    Ok(Idle { consumer: what.name(), load, delay, flows: tried })
}

/// Waits for one more record than there were, and tells when it came.
fn recorded(consumer: &Consumer, before: u64) -> Result<Instant, Error> {
    let began = Instant::now();
    loop {
        match consumer.ask()? {
            Seen { records, recorded: Some(at), .. } if records > before => return Ok(at),
            _ if began.elapsed() > BOUND => {
                return Err(Error::Live("the record of an ended flow does not come".into()));
            }
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Every other one a TCP connection from SYN to FIN, the rest a single datagram.
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

/// An Ethernet frame with an IPv4 packet between two hosts.
fn frame(protocol: u8, forward: bool, payload: &[u8]) -> Vec<u8> {
    let [source, destination] = if forward { [1, 2] } else { [2, 1] };
    let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 0x08, 0x00];
    let length = (20 + payload.len() as u16).to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([192, 0, 2, source, 192, 0, 2, destination]);
    frame.extend(payload);
    frame
}
