//! Who is next: a timing wheel of two levels, so that the cost does not grow with the number of conversations.
//!
//! ```text
//! due now, this bucket of time -> a small heap, in the order of (time, number)
//! later, within this window    -> a list per bucket
//! later still                  -> a list per window, taken apart when the window begins
//! ```
//! Always true: turns come in the order of (time, number), however wide the buckets are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buckets in a window, as a power of two.
const WINDOW: u32 = 13;
/// Windows that have a list of their own; what is later shares a list with something earlier.
const WINDOWS: usize = 1 << 10;
/// The end of a list.
const END: u32 = u32::MAX;

pub(super) struct Schedule {
    /// Nanoseconds in a bucket, as a power of two.
    bucket_ns_log2: u32,
    /// The bucket that `due` holds the rest of.
    bucket: u64,
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// First of each bucket of this window.
    buckets: Box<[u32]>,
    /// First of each later window.
    windows: Box<[u32]>,
    turns: Box<[Turn]>,
}

#[derive(Clone, Copy)]
struct Turn {
    time_ns: u64,
    next: u32,
}

impl Schedule {
    /// For so many participants, none of which has a turn yet. `bucket_ns` is rounded up to a power of two;
    /// best is the time in which a few turns come.
    pub(super) fn new(participants: u32, bucket_ns: u64, start_ns: u64) -> Self {
        let bucket_ns_log2 = bucket_ns.next_power_of_two().trailing_zeros();
        Self {
            bucket_ns_log2,
            bucket: start_ns >> bucket_ns_log2,
            due: BinaryHeap::with_capacity(1024),
            buckets: vec![END; 1 << WINDOW].into(),
            windows: vec![END; WINDOWS].into(),
            turns: vec![Turn { time_ns: 0, next: END }; participants as usize].into(),
        }
    }

    /// Gives a participant that has none its next turn.
    #[inline]
    pub(super) fn set(&mut self, participant: u32, time_ns: u64) {
        let bucket = time_ns >> self.bucket_ns_log2;
        if bucket <= self.bucket {
            self.due.push(Reverse((time_ns, participant)));
            return;
        }
        let list = if bucket >> WINDOW == self.bucket >> WINDOW {
            &mut self.buckets[bucket as usize % (1 << WINDOW)]
        } else {
            &mut self.windows[(bucket >> WINDOW) as usize % WINDOWS]
        };
        self.turns[participant as usize] = Turn { time_ns, next: *list };
        *list = participant;
    }

    /// Takes the next turn: when, and whose. Somebody must have one.
    #[inline]
    pub(super) fn next(&mut self) -> (u64, u32) {
        loop {
            if let Some(Reverse(turn)) = self.due.pop() {
                return turn;
            }
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.bucket += 1;
        let at = self.bucket as usize % (1 << WINDOW);
        if at == 0 {
            // A list may hold turns of a later round too: they go back to where they were.
            let window = (self.bucket >> WINDOW) as usize % WINDOWS;
            let first = std::mem::replace(&mut self.windows[window], END);
            self.take_apart(first);
        }
        let first = std::mem::replace(&mut self.buckets[at], END);
        self.take_apart(first);
    }

    fn take_apart(&mut self, mut participant: u32) {
        while participant != END {
            let Turn { time_ns, next } = self.turns[participant as usize];
            self.set(participant, time_ns);
            participant = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn turns_come_in_the_order_of_time_whatever_the_buckets() {
        let orders: Vec<Vec<(u64, u32)>> = [1, 1 << 10, 1 << 20].map(run).into();
        assert!(orders[0].is_sorted());
        assert_eq!(orders[0], orders[1]);
        assert_eq!(orders[0], orders[2]);
    }

    /// Gaps from 1 ns to far beyond what the windows of narrow buckets cover.
    fn run(bucket_ns: u64) -> Vec<(u64, u32)> {
        let mut random = Random::new(3);
        let mut schedule = Schedule::new(50, bucket_ns, 1_000);
        (0..50).for_each(|participant| schedule.set(participant, 1_000 + u64::from(participant % 7)));
        let turn = |_| {
            let (time_ns, participant) = schedule.next();
            let magnitude = random.below(25);
            schedule.set(participant, time_ns + 1 + random.below(1 << magnitude));
            (time_ns, participant)
        };
        (0..20_000).map(turn).collect()
    }
}
