//! Schedules conversations by a two-level timing wheel, whose cost does not depend on their number.
//!
//! ```text
//! events of the current bucket -> a small heap, in the order of (time, number)
//! later in this window         -> a list per bucket
//! later windows                -> a list per window, distributed to buckets when the window begins
//! ```
//! Invariant: events are returned in the order of (time, number) for every bucket width.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buckets in a window, as a power of two.
const WINDOW: u32 = 13;
/// Windows with their own list; a later window shares the list of an earlier one.
const WINDOWS: usize = 1 << 10;
const END: u32 = u32::MAX;

pub(super) struct Schedule {
    /// Width of a bucket in ns, as a power of two.
    bucket_ns_log2: u32,
    /// The current bucket, whose remaining events are in `due`.
    bucket: u64,
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// First event of each bucket of this window.
    buckets: Box<[u32]>,
    /// First event of each later window.
    windows: Box<[u32]>,
    events: Box<[Event]>,
}

#[derive(Clone, Copy)]
struct Event {
    time_ns: u64,
    next: u32,
}

impl Schedule {
    /// A schedule for this number of participants, without events. `bucket_ns` is rounded up to a
    /// power of two; the best value is the time of a few events.
    pub(super) fn new(participants: u32, bucket_ns: u64, start_ns: u64) -> Self {
        let bucket_ns_log2 = bucket_ns.next_power_of_two().trailing_zeros();
        Self {
            bucket_ns_log2,
            bucket: start_ns >> bucket_ns_log2,
            due: BinaryHeap::with_capacity(1024),
            buckets: vec![END; 1 << WINDOW].into(),
            windows: vec![END; WINDOWS].into(),
            events: vec![Event { time_ns: 0, next: END }; participants as usize].into(),
        }
    }

    /// Sets the next event of a participant that has none.
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
        self.events[participant as usize] = Event { time_ns, next: *list };
        *list = participant;
    }

    /// Sets the first events of all participants, evenly over a time.
    pub(super) fn set_all(&mut self, start_ns: u64, ramp_ns: u64) {
        let participants = self.events.len() as u32;
        for participant in 0..participants {
            let after_ns = u128::from(participant) * u128::from(ramp_ns) / u128::from(participants);
            self.set(participant, start_ns + after_ns as u64);
        }
    }

    /// Removes the next event and returns its time and participant. There must be an event.
    #[inline]
    pub(super) fn next(&mut self) -> (u64, u32) {
        loop {
            if let Some(Reverse(event)) = self.due.pop() {
                return event;
            }
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.bucket += 1;
        let at = self.bucket as usize % (1 << WINDOW);
        if at == 0 {
            // A list may also hold events of a later window; they return to it.
            let window = (self.bucket >> WINDOW) as usize % WINDOWS;
            let first = std::mem::replace(&mut self.windows[window], END);
            self.distribute(first);
        }
        let first = std::mem::replace(&mut self.buckets[at], END);
        self.distribute(first);
    }

    fn distribute(&mut self, mut participant: u32) {
        while participant != END {
            let Event { time_ns, next } = self.events[participant as usize];
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
    fn events_are_in_time_order_for_every_bucket_width() {
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
        let event = |_| {
            let (time_ns, participant) = schedule.next();
            let magnitude = random.below(25);
            schedule.set(participant, time_ns + 1 + random.below(1 << magnitude));
            (time_ns, participant)
        };
        (0..20_000).map(event).collect()
    }
}
