//! Random operations, with a new opening at any point and a disk that is full at any octet, against a list.

use super::{append, assert_balance, batch_of, drain, folder, is_batch, settings};
use crate::{BatchId, Error, Settings, Spool};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Operation {
    Append,
    Read,
    Release(u8),
    Rewind,
    Sync,
    Reopen,
    Space(Option<u64>),
    Context(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => Just(Operation::Append),
        6 => Just(Operation::Read),
        3 => any::<u8>().prop_map(Operation::Release),
        1 => Just(Operation::Rewind),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Reopen),
        1 => proptest::option::of(0u64..400).prop_map(Operation::Space),
        1 => (0u8..3).prop_map(Operation::Context),
    ]
}

/// What must be in a spool without a limit.
#[derive(Default)]
struct Model {
    unread: VecDeque<u64>,
    in_flight: VecDeque<(u64, BatchId)>,
    next: u64,
}

impl Model {
    fn rewind(&mut self) {
        while let Some((n, _)) = self.in_flight.pop_back() {
            self.unread.push_front(n);
        }
    }

    fn append(&mut self, spool: &mut Spool) {
        let (octets, records) = batch_of(self.next);
        match spool.append(self.next as u16, &octets, records) {
            Ok(_) => self.unread.push_back(self.next),
            Err(Error::Io { error, .. }) => assert_eq!(error.kind(), std::io::ErrorKind::StorageFull),
            Err(error) => panic!("{error}"),
        }
        self.next += 1;
    }

    fn read(&mut self, spool: &mut Spool) {
        let batch = spool.next().unwrap();
        assert_eq!(batch.as_ref().map(|batch| u64::from(batch.format)), self.unread.pop_front());
        if let Some(batch) = batch {
            assert!(is_batch(&batch));
            self.in_flight.push_back((batch.format.into(), batch.id));
        }
    }

    fn release(&mut self, spool: &mut Spool, at: u8) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = usize::from(at) % self.in_flight.len();
        // On a full disk the acknowledgement is written later.
        let _ = spool.release(self.in_flight[at].1);
        self.in_flight.drain(..=at);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_come_back_in_order_whatever_happens(operations in proptest::collection::vec(operation(), 1..80)) {
        let parent = folder();
        let (mut spool, _) = Spool::open(settings(parent.path())).unwrap();
        let mut model = Model::default();
        for operation in operations {
            match operation {
                Operation::Append => model.append(&mut spool),
                Operation::Read => model.read(&mut spool),
                Operation::Release(at) => model.release(&mut spool, at),
                Operation::Rewind => {
                    spool.rewind();
                    model.rewind();
                }
                Operation::Sync => drop(spool.sync()),
                Operation::Space(space) => spool.folder.space.set(space),
                Operation::Context(context) => spool.set_context(&[context; 20][..usize::from(context) * 9]),
                Operation::Reopen => {
                    // Acknowledgements reach the disk before this, as if the process was killed later.
                    spool.folder.space.set(None);
                    spool.sync().unwrap();
                    drop(spool);
                    spool = Spool::open(settings(parent.path())).unwrap().0;
                    model.rewind();
                }
            }
            assert_balance(&spool);
            let waiting = spool.status().waiting.total().batches;
            prop_assert_eq!(waiting, (model.unread.len() + model.in_flight.len()) as u64);
        }
        spool.folder.space.set(None);
        spool.rewind();
        model.rewind();
        let rest: Vec<u64> = drain(&mut spool).into_iter().map(u64::from).collect();
        prop_assert_eq!(rest, model.unread.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_full_spool_drops_the_oldest_and_counts_them(operations in proptest::collection::vec(operation(), 1..300)) {
        let parent = folder();
        let settings = Settings { limit: 3000, ..settings(parent.path()) };
        let (mut spool, _) = Spool::open(settings.clone()).unwrap();
        let (mut next, mut in_flight, mut last) = (0, VecDeque::new(), None);
        for operation in operations {
            match operation {
                Operation::Append | Operation::Space(_) | Operation::Context(_) => {
                    append(&mut spool, next);
                    next += 1;
                }
                Operation::Read => in_flight.extend(spool.next().unwrap().inspect(|batch| {
                    assert!(is_batch(batch));
                    assert!(Some(batch.id) > last);
                    last = Some(batch.id);
                })),
                Operation::Release(_) => {
                    in_flight.pop_front().into_iter().for_each(|batch| spool.release(batch.id).unwrap());
                }
                Operation::Rewind | Operation::Sync => spool.sync().unwrap(),
                Operation::Reopen => {
                    drop(spool);
                    spool = Spool::open(settings.clone()).unwrap().0;
                    (in_flight, last) = (VecDeque::new(), None);
                }
            }
            assert_balance(&spool);
            prop_assert!(spool.status().octets <= 3000 && spool.status().damaged.total().batches == 0);
        }
        spool.rewind();
        drain(&mut spool);
    }
}

#[test]
fn a_batch_larger_than_the_limit_is_refused_and_one_larger_than_a_segment_is_not() {
    let parent = folder();
    let (mut spool, _) = Spool::open(Settings { limit: 4000, ..settings(parent.path()) }).unwrap();
    append(&mut spool, 1);
    assert!(matches!(spool.append(0, &[0; 4000], Default::default()), Err(Error::TooLarge { .. })));
    spool.append(7, &[1; 3000], Default::default()).unwrap();
    assert_eq!(spool.next().unwrap().unwrap().format, 1);
    assert_eq!(spool.next().unwrap().unwrap().octets, [1; 3000]);
}

#[test]
fn data_is_synced_when_it_is_due() {
    let parent = folder();
    let (mut spool, _) =
        Spool::open(Settings { limit: 1 << 30, segment_bytes: 1 << 30, ..settings(parent.path()) }).unwrap();
    let unsynced = |spool: &Spool| spool.active.as_ref().map(|active| active.unsynced);
    let start = Instant::now();
    append(&mut spool, 1);
    spool.sync_if_due(start).unwrap();
    assert!(unsynced(&spool) > Some(0));
    spool.sync_if_due(start + Duration::from_millis(500)).unwrap();
    assert_eq!(unsynced(&spool), Some(0));
    spool.append(0, &vec![0; 1 << 20], Default::default()).unwrap();
    spool.sync_if_due(start + Duration::from_millis(501)).unwrap();
    assert_eq!(unsynced(&spool), Some(0));
}
