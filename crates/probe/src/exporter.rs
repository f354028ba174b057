//! The exporter: a thread of its own that owns the sinks and is handed batches of records.
//!
//! ```text
//! pipeline -> full batches -> exporter -> every sink
//!          <- empty batches <-
//! ```
//! Always true: batches are taken in order, none is lost, and their memory goes around. If the sinks are slower than the
//! pipeline, the pipeline waits. What the sinks say of themselves is published after each batch, together with
//! what that batch held, so that an account can be drawn up at any moment.

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use weir_export::{Error, Sink};
use weir_flow::Flow;
use weir_ledger::{Records, SinkLine};

/// Batches on their way.
const BATCHES: usize = 8;

/// The pipeline's end of it.
pub(crate) struct Exporter {
    /// `None` once the last batch is on its way.
    full: Option<SyncSender<Vec<Flow>>>,
    empty: Receiver<Vec<Flow>>,
    published: Arc<Mutex<Published>>,
    thread: Option<JoinHandle<()>>,
    sent: Records,
}

/// What the sinks have done, after the last whole batch.
#[derive(Default)]
struct Published {
    taken: Records,
    lines: Vec<SinkLine>,
    ended: Vec<bool>,
    errors: Vec<Error>,
}

impl Exporter {
    /// # Errors
    /// The system starts no thread.
    pub fn new(mut sinks: Vec<Box<dyn Sink + Send>>) -> io::Result<Self> {
        let (full, to_write) = sync_channel::<Vec<Flow>>(BATCHES);
        let (written, empty) = sync_channel(BATCHES);
        let published = Arc::new(Mutex::new(Published {
            lines: sinks.iter().map(|sink| sink.line().clone()).collect(),
            ended: vec![false; sinks.len()],
            ..Published::default()
        }));
        let shared = published.clone();
        let work = move || {
            for mut batch in to_write {
                let results: Vec<_> = sinks.iter_mut().map(|sink| sink.write(&batch)).collect();
                lock(&shared).publish(&sinks, results, records(&batch));
                batch.clear();
                // Nobody waits for it at the end.
                let _ = written.try_send(batch);
            }
            let results = sinks.iter_mut().map(|sink| sink.finish()).collect();
            lock(&shared).publish(&sinks, results, Records::default());
        };
        let thread = thread::Builder::new().name("weir-export".into()).spawn(work)?;
        Ok(Self { full: Some(full), empty, published, thread: Some(thread), sent: Records::default() })
    }

    /// Hands over a batch and gives an empty one for it. Waits while [`BATCHES`] are on their way.
    pub fn write(&mut self, batch: Vec<Flow>) -> Vec<Flow> {
        let (room, records) = (batch.capacity(), records(&batch));
        self.sent.merge(records);
        let taken = self.full.as_ref().is_some_and(|full| full.send(batch).is_ok());
        if !taken {
            // The thread only ends early if a sink panics.
            self.join();
        }
        self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(room))
    }

    /// Finishes every sink.
    pub fn finish(&mut self) {
        self.full = None;
        self.join();
    }

    /// Waits for the thread. A panic in a sink goes on here.
    fn join(&mut self) {
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
    }

    /// What became of the records of each sink, and the records that are still on their way.
    pub fn account(&self) -> (Vec<SinkLine>, Records) {
        let published = lock(&self.published);
        let mut on_their_way = self.sent;
        on_their_way.flows -= published.taken.flows;
        on_their_way.packets -= published.taken.packets;
        on_their_way.bytes -= published.taken.bytes;
        (published.lines.clone(), on_their_way)
    }

    /// Whether every sink has ended early, and there is one.
    pub fn abandoned(&self) -> bool {
        let ended = &lock(&self.published).ended;
        !ended.is_empty() && ended.iter().all(|&ended| ended)
    }

    /// Errors with which sinks ended, each told once.
    pub fn errors(&self) -> Vec<Error> {
        std::mem::take(&mut lock(&self.published).errors)
    }
}

impl Drop for Exporter {
    /// A pipeline that is dropped unfinished waits for its thread, which then has nothing more to write.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Published {
    fn publish(&mut self, sinks: &[Box<dyn Sink + Send>], results: Vec<Result<(), Error>>, taken: Records) {
        self.taken.merge(taken);
        for (((sink, result), line), ended) in sinks.iter().zip(results).zip(&mut self.lines).zip(&mut self.ended) {
            line.clone_from(sink.line());
            // The error with which a sink ended is kept; later ones say nothing new.
            if let Err(error) = result
                && !std::mem::replace(ended, true)
            {
                self.errors.push(error);
            }
        }
    }
}

/// What is published is whole after every line of [`Published::publish`] that could panic, so a poisoned lock says
/// nothing that the panic itself does not.
fn lock(published: &Mutex<Published>) -> MutexGuard<'_, Published> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

fn records(batch: &[Flow]) -> Records {
    let mut records = Records::default();
    batch.iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_ledger::Lost;

    /// A sink that sleeps, fails or panics at some batch.
    struct Odd {
        line: SinkLine,
        batches: u32,
        at: u32,
        does: Does,
    }

    #[derive(PartialEq)]
    enum Does {
        Sleep,
        Fail,
        Panic,
    }

    fn odd(at: u32, does: Does) -> Box<dyn Sink + Send> {
        Box::new(Odd { line: SinkLine { sink: "odd".into(), ..SinkLine::default() }, batches: 0, at, does })
    }

    impl Sink for Odd {
        fn write(&mut self, flows: &[Flow]) -> Result<(), Error> {
            self.batches += 1;
            let sick = self.batches >= self.at;
            if sick && self.does == Does::Panic {
                panic!("a sink that panics");
            } else if sick && self.does == Does::Fail {
                self.line.lose(Lost::WriteFailed, records(flows));
                return Err(Error::Io { sink: "odd".into(), error: io::ErrorKind::StorageFull.into() });
            } else if self.does == Does::Sleep {
                thread::sleep(Duration::from_millis(1));
            }
            self.line.exported.merge(records(flows));
            Ok(())
        }

        fn finish(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn line(&self) -> &SinkLine {
            &self.line
        }
    }

    fn batch(flows: usize) -> Vec<Flow> {
        let mut flow = Flow::default();
        (flow.forward.packets, flow.forward.frame_bytes) = (2, 100);
        vec![flow; flows]
    }

    #[test]
    fn a_slow_sink_is_waited_for_and_the_account_balances_at_any_moment() {
        let mut exporter = Exporter::new(vec![odd(1, Does::Sleep)]).unwrap();
        for sent in 1..100_u64 {
            exporter.write(batch(3));
            let (lines, on_their_way) = exporter.account();
            assert_eq!(lines[0].exported.flows + on_their_way.flows, 3 * sent);
            assert_eq!(lines[0].exported.packets + on_their_way.packets, 6 * sent);
            assert!(on_their_way.flows <= 3 * (BATCHES as u64 + 2), "{} records wait", on_their_way.flows);
        }
        exporter.finish();
        let (lines, on_their_way) = exporter.account();
        assert_eq!((lines[0].exported.flows, on_their_way), (297, Records::default()));
    }

    #[test]
    fn batches_go_around() {
        let mut exporter = Exporter::new(vec![]).unwrap();
        let mut fresh = 0;
        for _ in 0..1000 {
            let mut empty = exporter.write(Vec::with_capacity(7));
            fresh += u32::from(empty.capacity() == 7);
            empty.reserve_exact(9);
        }
        assert!(fresh > 0);
        exporter.finish();
    }

    #[test]
    fn a_sink_that_fails_is_told_once_and_the_others_go_on() {
        let mut exporter = Exporter::new(vec![odd(3, Does::Fail), odd(u32::MAX, Does::Fail)]).unwrap();
        for _ in 0..10 {
            exporter.write(batch(1));
        }
        exporter.finish();
        assert_eq!((exporter.errors().len(), exporter.errors().len()), (1, 0));
        assert!(!exporter.abandoned());
        let (lines, _) = exporter.account();
        assert_eq!(lines.iter().map(|line| line.exported.flows).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(lines[0].lost.values().map(|lost| lost.flows).sum::<u64>(), 8);
        let mut alone = Exporter::new(vec![odd(1, Does::Fail)]).unwrap();
        alone.write(batch(1));
        alone.finish();
        assert!(alone.abandoned());
    }

    #[test]
    #[should_panic(expected = "a sink that panics")]
    fn a_sink_that_panics_is_neither_silent_nor_waited_for() {
        let mut exporter = Exporter::new(vec![odd(2, Does::Panic)]).unwrap();
        for _ in 0..1000 {
            exporter.write(batch(1));
        }
    }
}
