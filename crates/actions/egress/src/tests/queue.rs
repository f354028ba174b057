//! The queue between pipelines and a thread that writes: what is counted if the thread does not.

use std::sync::mpsc::channel;
use std::time::Duration;
use weir_capture::Frame;
use weir_egress::{QUEUE_OCTETS, Queue, QueueSettings, WhenFull};
use weir_ledger::{OutputDropReason, PacketTotals};

const FRAME: Frame<'static> =
    Frame { bytes: &[7; 1000], time_ns: 1, wire_bytes: 1000, link_type: 1, time_assumed: false, interface: 1 };

fn settings() -> QueueSettings {
    QueueSettings {
        output: "test".into(),
        thread: "test",
        when_full: WhenFull::Drop,
        finish_timeout: Duration::from_millis(20),
        give_up_timeout: Duration::from_millis(20),
        reason_to_abandon: OutputDropReason::QueueFull,
    }
}

fn send(queue: &mut Queue, frames: usize) {
    for _ in 0..frames {
        queue.push(&FRAME, 1000, |octets| octets.extend_from_slice(FRAME.bytes));
        queue.flush();
    }
}

#[test]
fn abandoned_packets_are_not_counted_again_when_the_thread_goes_on() {
    let (go_on, blocked) = channel::<()>();
    let (tell, written) = channel();
    let mut queues = Queue::open(&settings(), 1, move |chunks, _| {
        blocked.recv().unwrap_or_default();
        for chunk in chunks {
            chunk.progress.add_sent(PacketTotals { packets: 1, octets: 1000 });
            chunk.give_back();
        }
        tell.send(()).unwrap();
    });
    send(&mut queues[0], 3);
    queues[0].finish();
    let counters = queues[0].counters();
    assert_eq!((counters.sent.packets, counters.waiting.packets), (0, 0));
    assert_eq!(counters.dropped["queue_full"], PacketTotals { packets: 3, octets: 3000 });
    drop(go_on);
    written.recv().unwrap();
    assert_eq!(queues[0].counters(), counters);
}

#[test]
fn small_bursts_do_not_use_up_the_queue_of_a_blocked_thread() {
    let (go_on, blocked) = channel::<()>();
    let mut queues = Queue::open(&settings(), 2, move |chunks, _| {
        blocked.recv().unwrap_or_default();
        chunks.iter().for_each(|chunk| chunk.discard(0, OutputDropReason::Closed));
    });
    send(&mut queues[0], 20_000);
    let counters = queues[0].counters();
    let full = counters.dropped["queue_full"].packets;
    assert_eq!(counters.waiting.packets, 20_000 - full);
    // Seven eighths of the chunks are full.
    assert!(counters.waiting.octets > QUEUE_OCTETS as u64 / 10 * 8, "{counters:?}");
    drop(go_on);
    queues.iter_mut().for_each(Queue::finish);
    assert_eq!(queues[0].counters().total().packets, 20_000);
}

#[test]
fn frames_that_are_longer_than_a_chunk_take_no_more_memory_than_others() {
    let (go_on, blocked) = channel::<()>();
    let mut queues = Queue::open(&settings(), 1, move |chunks, _| {
        blocked.recv().unwrap_or_default();
        chunks.iter().for_each(|chunk| chunk.discard(0, OutputDropReason::Closed));
    });
    let bytes = vec![7; 3 << 20];
    for _ in 0..10 {
        let long = Frame { bytes: &bytes, ..FRAME };
        queues[0].push(&long, bytes.len(), |octets| octets.extend_from_slice(&bytes));
    }
    let counters = queues[0].counters();
    assert_eq!((counters.waiting.packets, counters.dropped["queue_full"].packets), (5, 5));
    drop(go_on);
    queues[0].finish();
    assert_eq!(queues[0].counters().total().packets, 10);
}

#[test]
fn packets_without_a_thread_are_counted_as_failed() {
    let mut queues = Queue::open(&settings(), 1, |chunks, _| drop(chunks));
    queues[0].start();
    while !queues[0].has_lost_thread() {
        send(&mut queues[0], 1);
    }
    assert!(queues[0].counters().dropped["write_failed"].packets > 0);
}
