//! Connects the readers and the meters of a worker group: for each pair a queue of packets and a
//! channel of loss snapshots.
//!
//! ```text
//! reader 0 ──┬──────────> meter 0
//!            └────┐ ┌───>
//! reader 1 ───────┼─┘
//!                 └─────> meter 1
//! ```

use crate::dispatcher::{Dispatcher, PACKET_QUEUE};
use crate::group_state::GroupState;
use crate::indirection_table::MAX_METERS;
use crate::loss_channel::{SnapshotReceiver, snapshot_channel};
use crate::meter_input::MeterInput;
use crate::settings::BackPressure;
use rtrb::RingBuffer;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use weir_flow::{KeyOptions, Partitioner};

/// The ends of all connections.
pub(crate) struct Connections {
    pub group: Arc<GroupState>,
    /// One per reader.
    pub dispatchers: Vec<Dispatcher>,
    /// One per meter.
    pub inputs: Vec<(MeterInput, Vec<SnapshotReceiver>)>,
}

/// Connects readers and meters. `poll_timeout` is that of the sources; `secret` and `key` are those
/// of the meters.
///
/// # Panics
/// Without readers, without meters or with more than [`MAX_METERS`] meters.
pub(crate) fn connect(
    readers: usize,
    meters: usize,
    back_pressure: BackPressure,
    poll_timeout: Duration,
    (secret, key): (u64, KeyOptions),
) -> io::Result<Connections> {
    assert!((1..=MAX_METERS).contains(&meters) && readers >= 1, "{readers} readers and {meters} meters");
    let group = Arc::new(GroupState::new(readers, meters));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..meters).map(|_| channel()).unzip();
    let input = |(number, flows_in)| (MeterInput::new((group.clone(), number), flows_in, senders.clone()), Vec::new());
    let mut inputs: Vec<_> = receivers.into_iter().enumerate().map(input).collect();
    let mut dispatchers = Vec::new();
    for number in 0..readers {
        let (mut queues, mut snapshots) = (Vec::new(), Vec::new());
        for (input, receivers) in &mut inputs {
            let (producer, consumer) = RingBuffer::new(PACKET_QUEUE);
            input.add(consumer);
            queues.push(producer);
            let (sender, receiver) = snapshot_channel();
            snapshots.push(sender);
            receivers.push(receiver);
        }
        let partitioner = if meters > 1 { Some(Partitioner::new(secret, key)?) } else { None };
        let ends = (queues, snapshots);
        dispatchers.push(Dispatcher::new((group.clone(), number), ends, (back_pressure, poll_timeout), partitioner));
    }
    Ok(Connections { group, dispatchers, inputs })
}
