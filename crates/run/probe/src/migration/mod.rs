//! Several meters for a worker group: every packet reaches the meter of its flow, and flows migrate
//! between meters while packets arrive.
//!
//! ```text
//! reader 0: Dispatcher ──┬──────────> meter 0: MeterInput
//!                        └────┐ ┌───>                        Rebalancer
//! reader 1: Dispatcher ───────┼─┘
//!                             └─────> meter 1: MeterInput
//! ```
//! A copy of the indirection table in each reader assigns each of 512 buckets of flows to a meter.
//! The rebalancer moves buckets in steps that never stop the group for long:
//!
//! 1. The old meters of the buckets collect their flows, besides their other work
//!    ([`MigrationTask::MigrateOut`](group_state::MigrationTask::MigrateOut)).
//! 2. The new meters get ready. From now on, neither the old nor the new meters process packets
//!    that a reader sent with the new table.
//! 3. Each reader adopts the new table between two bursts, and publishes how many packets it had
//!    sent to each meter before.
//! 4. The old meters process these packets and pass the flows on: no packet of the buckets is in
//!    their queues any more.
//! 5. The new meters add the flows and continue with the packets sent with the new table.
//!
//! So the packets of a flow are processed in the order in which a reader sent them, and by one
//! meter at a time.

mod dispatcher;
mod group_state;
mod indirection_table;
mod meter_input;
mod rebalancer;

pub(crate) use dispatcher::Dispatcher;
pub(crate) use group_state::GroupState;
pub(crate) use meter_input::MeterInput;
pub(crate) use rebalancer::RebalancerThread;

use crate::loss_channel::{SnapshotReceiver, snapshot_channel};
use crate::settings::BackPressure;
use dispatcher::QUEUE_PACKETS;
use indirection_table::{MAX_METERS, even_table};
use meter_input::PacketQueue;
use rtrb::RingBuffer;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use weir_flow::{KeyOptions, Partitioner};

/// The ends of all connections between readers and meters.
pub(crate) struct Connections {
    pub group: Arc<GroupState>,
    pub dispatchers: Vec<Dispatcher>,
    pub inputs: Vec<(MeterInput, Vec<SnapshotReceiver>)>,
}

/// Connects each reader with each meter: by a queue of packets and a channel of loss snapshots.
/// `poll_timeout` is that of the sources; `secret` and `key` are those of the meters.
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
    let (flows_out, flows_in): (Vec<_>, Vec<_>) = (0..meters).map(|_| channel()).unzip();
    let input = |(number, flows_in)| MeterInput {
        group: group.clone(),
        number,
        queues: Vec::new(),
        seen_task: 0,
        task: None,
        is_collected: false,
        flows_in,
        flows_out: flows_out.clone(),
        received: Vec::new(),
    };
    let mut inputs: Vec<_> = flows_in.into_iter().enumerate().map(|meter| (input(meter), Vec::new())).collect();
    let mut dispatchers = Vec::new();
    for number in 0..readers {
        let (mut queues, mut snapshots) = (Vec::new(), Vec::new());
        for (input, receivers) in &mut inputs {
            let (producer, consumer) = RingBuffer::new(QUEUE_PACKETS);
            input.queues.push(PacketQueue { packets: consumer, taken: 0 });
            queues.push(producer);
            let (sender, receiver) = snapshot_channel();
            snapshots.push(sender);
            receivers.push(receiver);
        }
        let partitioner = if meters > 1 { Some(Partitioner::new(secret, key)?) } else { None };
        dispatchers.push(Dispatcher {
            group: group.clone(),
            number,
            queues,
            sent: vec![0; meters],
            snapshots,
            back_pressure,
            poll_timeout,
            partitioner,
            table: even_table(meters),
            generation: 0,
            update: 0,
        });
    }
    Ok(Connections { group, dispatchers, inputs })
}
