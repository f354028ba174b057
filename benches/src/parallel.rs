//! Runs parts of a load on a thread each.

use std::sync::Barrier;
use std::time::Instant;
use weir_bench::error::{CountMismatch, Error};
use weir_bench::measure::{Fact, Run, Work};

/// One case on each thread. They begin together; the time is that of the wall clock until the last one
/// ends.
pub struct Parallel<W>(pub Vec<W>);

impl<L: Send, W: Work<L> + Send> Work<Vec<L>> for Parallel<W> {
    fn run(&mut self, loads: &mut Vec<L>) -> Result<Run, Error> {
        let barrier = Barrier::new(self.0.len());
        let one = |work: &mut W, load: &mut L| {
            barrier.wait();
            let begin = Instant::now();
            Ok::<_, Error>((work.run(load)?.packets, begin, Instant::now()))
        };
        let results: Result<Vec<_>, Error> = std::thread::scope(|scope| {
            let pairs = self.0.iter_mut().zip(loads.iter_mut());
            let threads: Vec<_> = pairs.map(|(work, load)| scope.spawn(|| one(work, load))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a case does not panic")).collect()
        });
        let results = results?;
        let begin = results.iter().map(|(_, begin, _)| *begin).min();
        let end = results.iter().map(|(.., end)| *end).max();
        let seconds = begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
        Ok(Run::new(results.iter().map(|(packets, ..)| packets).sum(), seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.0.into_iter().try_for_each(|work| Box::new(work).finish().map(drop))?;
        Ok(vec![])
    }
}
