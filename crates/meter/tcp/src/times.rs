//! Times of answers: response times, and round trips of acknowledged payload.
//!
//! In: the segments of both sides with their classes. Out: [`ResponseTimes`] and
//! [`RoundTripTimes`] of each side. `docs/tcp.md` section 6 defines both. State per side is one
//! request and one timed segment, so not every segment is timed. It does not tell apart the
//! requests that a side sends before the first of them is answered.

use crate::rules::MAX_WINDOW;
use crate::segment::Segment;
use bytemuck::{Pod, Zeroable};

/// How long a side takes to answer requests of the other side, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable, Pod)]
#[repr(C)]
pub struct ResponseTimes {
    /// Number of answers.
    pub count: u64,
    /// Time of the first answer; 0 without answers.
    pub first_ns: u64,
    /// Longest time; 0 without answers.
    pub max_ns: u64,
    /// Sum of all times.
    pub sum_ns: u64,
}

/// How long payload of the other side is on the way to a side and acknowledged, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable, Pod)]
#[repr(C)]
pub struct RoundTripTimes {
    /// Number of timed segments that were acknowledged.
    pub count: u64,
    /// Shortest time; 0 if there is none.
    pub min_ns: u64,
    /// Longest time; 0 if there is none.
    pub max_ns: u64,
    /// Sum of all times.
    pub sum_ns: u64,
}

impl ResponseTimes {
    /// Mean time, ns; `None` without answers.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Adds those of a later record or of another direction.
    pub fn add(&mut self, later: &Self) {
        if self.count == 0 {
            self.first_ns = later.first_ns;
        }
        self.count += later.count;
        self.max_ns = self.max_ns.max(later.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(later.sum_ns);
    }
}

impl RoundTripTimes {
    /// Mean time, ns; `None` if there is none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Adds those of another record or direction.
    pub fn add(&mut self, other: &Self) {
        if self.count == 0 || (other.count > 0 && other.min_ns < self.min_ns) {
            self.min_ns = other.min_ns;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// A time that a segment completes.
#[derive(Clone, Copy, Debug)]
pub struct CompletedTime {
    /// ns.
    pub time_ns: u64,
    /// A round trip: since the timed segment that it acknowledges. Else a response time: since the
    /// request that it answers.
    pub is_round_trip: bool,
}

/// The times of both sides: three cache lines. Nearly every segment changes the first one, and each
/// time that is entered the results of its side.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct Times {
    waiting: [Waiting; 2],
    measured: [MeasuredTimes; 2],
}

/// What a side has sent and waits for.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
struct Waiting {
    request_ns: u64,
    timed_ns: u64,
    /// Sequence number after the request.
    request_end: u32,
    /// Sequence number after the timed segment.
    timed_end: u32,
    /// 1 if a request waits for its answer.
    has_request: u16,
    /// IP identification of the last segment in order or SYN. Stored here because payload changes this
    /// line anyway.
    identification: u16,
    /// 1 if a timed segment waits for its acknowledgment.
    has_timed: u32,
}

/// The times of a side in this record: a cache line.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub struct MeasuredTimes {
    pub(crate) responses: ResponseTimes,
    pub(crate) round_trips: RoundTripTimes,
}

impl MeasuredTimes {
    /// Adds a time. Both kinds take the same path, because no branch can tell which comes next.
    #[inline(always)]
    pub fn enter(&mut self, time: CompletedTime) {
        let CompletedTime { time_ns, is_round_trip } = time;
        let kinds: &mut [[u64; 4]; 2] = bytemuck::must_cast_mut(self);
        let [count, first_or_min, max, sum] = &mut kinds[usize::from(is_round_trip)];
        let known = if is_round_trip { time_ns.min(*first_or_min) } else { *first_or_min };
        *first_or_min = if *count == 0 { time_ns } else { known };
        *count += 1;
        *max = time_ns.max(*max);
        *sum = sum.saturating_add(time_ns);
    }
}

const _: () = assert!(size_of::<ResponseTimes>() == size_of::<[u64; 4]>());
const _: () = assert!(size_of::<Times>() == 3 * 64 && size_of::<MeasuredTimes>() == 64);

impl Times {
    /// Takes a segment of a side with ACK. Returns the round trip that it completes.
    #[inline(always)]
    pub fn acknowledge(&mut self, side: usize, segment: &Segment) -> Option<CompletedTime> {
        let waiting = &mut self.waiting[(side & 1) ^ 1];
        if waiting.has_timed == 0 || !reaches(segment.acknowledgment, waiting.timed_end) {
            return None;
        }
        waiting.has_timed = 0;
        let time_ns = segment.time_ns.checked_sub(waiting.timed_ns)?;
        Some(CompletedTime { time_ns, is_round_trip: true })
    }

    /// Takes a segment of a side with ACK and payload in order. Returns the response time if it is
    /// an answer.
    #[inline(always)]
    pub fn answer(&mut self, side: usize, segment: &Segment) -> Option<CompletedTime> {
        let waiting = &mut self.waiting[(side & 1) ^ 1];
        if waiting.has_request == 0 || !reaches(segment.acknowledgment, waiting.request_end) {
            return None;
        }
        waiting.has_request = 0;
        let time_ns = segment.time_ns.checked_sub(waiting.request_ns)?;
        Some(CompletedTime { time_ns, is_round_trip: false })
    }

    /// Takes payload in order of a side, which ends before a sequence number: the new end of its
    /// request.
    #[inline(always)]
    pub fn request(&mut self, side: usize, end: u32, time_ns: u64) {
        let waiting = &mut self.waiting[side & 1];
        (waiting.request_ns, waiting.request_end, waiting.has_request) = (time_ns, end, 1);
    }

    /// Times a segment of a side with payload in order, unless another one is timed.
    #[inline(always)]
    pub fn time_segment(&mut self, side: usize, end: u32, time_ns: u64) {
        let waiting = &mut self.waiting[side & 1];
        if waiting.has_timed == 0 {
            (waiting.timed_ns, waiting.timed_end, waiting.has_timed) = (time_ns, end, 1);
        }
    }

    /// Stores the identification of a segment in order or SYN of a side.
    #[inline(always)]
    pub fn set_identification(&mut self, side: usize, identification: u16) {
        self.waiting[side & 1].identification = identification;
    }

    /// IP identification of the last segment in order or SYN of a side since its positions started; 0 if
    /// there is none.
    pub fn identification(&self, side: usize) -> u16 {
        self.waiting[side & 1].identification
    }

    /// Sequence number after the request of a side that waits for its answer.
    pub fn request_end(&self, side: usize) -> Option<u32> {
        let waiting = &self.waiting[side & 1];
        (waiting.has_request != 0).then_some(waiting.request_end)
    }

    /// The timed segment of a side no longer counts (Karn's rule).
    pub fn discard_timed(&mut self, side: usize) {
        self.waiting[side & 1].has_timed = 0;
    }

    /// Positions of a side start again.
    pub fn forget(&mut self, side: usize) {
        self.waiting[side & 1] = Waiting::zeroed();
    }

    #[inline(always)]
    pub fn measured_mut(&mut self, side: usize) -> &mut MeasuredTimes {
        &mut self.measured[side & 1]
    }

    pub fn measured(&self, side: usize) -> &MeasuredTimes {
        &self.measured[side & 1]
    }

    /// Starts the next record. What the sides wait for stays.
    pub fn start_next_record(&mut self) {
        self.measured = Zeroable::zeroed();
    }
}

/// Whether an acknowledgment number acknowledges all octets before `end`.
#[inline(always)]
fn reaches(acknowledgment: u32, end: u32) -> bool {
    u64::from(acknowledgment.wrapping_sub(end)) < MAX_WINDOW
}
