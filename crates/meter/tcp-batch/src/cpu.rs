//! Processing of a batch on the CPU, in the order of the capture.
//!
//! The GPU kernels sort the packets of a batch by connection; tests compare both.

use crate::batch::Batch;
use crate::packed::{PackedIpv4, PackedIpv6, PackedPacket};
use crate::table::{ConnectionRecord, Entry, Table};
use weir_packet::Network;
use weir_tcp::{AnomalyPool, Segment};

/// Packets whose table entries are prefetched together.
const GROUP: usize = 32;

/// Enters a batch into the table. Connections that are followed by another are appended to `done`.
pub(crate) fn process(table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
    match batch.network {
        Network::Ipv4 => process_entries::<PackedIpv4>(table, batch, done),
        _ => process_entries::<PackedIpv6>(table, batch, done),
    }
}

fn process_entries<P: PackedPacket>(table: &mut Table, batch: &Batch, done: &mut Vec<ConnectionRecord>) {
    let mut entries = batch.entries::<P>().iter();
    let mut group = Vec::with_capacity(GROUP);
    loop {
        // The index slots and then the table entries of some packets are prefetched together.
        while group.len() < GROUP
            && let Some(packet) = entries.next()
        {
            let (key, side) = packet.key();
            let hash = key.hash(&table.hash_key);
            table.prefetch_slot(hash);
            let extension = if packet.segment().has_extension() { entries.next().map(P::segment) } else { None };
            group.push((key, hash, side, packet.segment(), extension));
        }
        if group.is_empty() {
            return;
        }
        for &(_, hash, ..) in &group {
            table.prefetch_entry(hash);
        }
        for (key, hash, side, packed, extension) in group.drain(..) {
            let number = table.find_or_insert(&key, hash);
            table.reserve_anomalies();
            let segment = packed.unpack(extension, batch.base_ns);
            enter(&mut table.entries[number], &mut table.pool, side, packed.time_ns(batch.base_ns), segment, done);
        }
    }
}

/// Enters a packet of a side into the table entry of its connection.
#[inline(always)]
fn enter(
    entry: &mut Entry,
    pool: &mut AnomalyPool,
    side: usize,
    time_ns: u64,
    segment: Option<Segment>,
    done: &mut Vec<ConnectionRecord>,
) {
    if segment.is_some_and(|segment| segment.opens_connection()) && entry.connection.has_ended() {
        done.push(entry.finish(pool));
    }
    entry.first_ns = entry.first_ns.min(time_ns);
    entry.last_ns = entry.last_ns.max(time_ns);
    entry.packets[side] += 1;
    if !segment.as_ref().is_some_and(|segment| entry.connection.classify_segment_fast(side, segment)) {
        entry.connection.classify_segment(side, segment.as_ref(), pool);
    }
}
