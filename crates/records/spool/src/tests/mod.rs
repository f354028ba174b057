//! The spool against a model, with every cut, every flipped bit, full disks and random operations.

mod damage;
mod double_damage;
mod folders;
mod model;

use crate::{Batch, Settings, Spool};
use std::path::Path;
use weir_ledger::RecordTotals;

fn settings(folder: &Path) -> Settings {
    Settings {
        folder: folder.join("spool"),
        sink: "json+tcp:h:1".into(),
        limit: 1 << 20,
        segment_bytes: 600,
        owner: None,
    }
}

/// A folder, in memory if there is one: the tests bring data to the disk thousands of times.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Batch `n`: octets and totals that follow from it.
fn batch_of(n: u64) -> (Vec<u8>, RecordTotals) {
    let octets = (0..20 + n % 90).map(|at| (at * 7 + n) as u8).collect();
    (octets, RecordTotals { flows: 1 + n % 3, packets: n, bytes: 100 * n })
}

fn append(spool: &mut Spool, n: u64) {
    let (octets, records) = batch_of(n);
    spool.append(n as u16, &octets, records).unwrap();
}

fn is_batch(batch: &Batch) -> bool {
    (batch.octets.clone(), batch.records) == batch_of(batch.format.into())
}

/// Reads and releases everything; asserts that each batch is whole.
fn drain(spool: &mut Spool) -> Vec<u16> {
    let mut read = Vec::new();
    while let Some(batch) = spool.next().unwrap() {
        assert!(is_batch(&batch), "{batch:?}");
        read.push(batch.format);
        spool.release(batch.id).unwrap();
    }
    assert!(spool.is_empty());
    assert_balance(spool);
    read
}

/// appended = released + dropped + damaged + unknown + waiting, of this run and of earlier ones.
fn assert_balance(spool: &Spool) {
    let status = spool.status();
    let mut outcomes = status.released;
    [status.dropped, status.damaged, status.unknown, status.waiting].into_iter().for_each(|part| outcomes.merge(part));
    assert_eq!(outcomes, status.appended, "{status:?}");
}
