//! How records end: timeouts, the hand that finds what is due, and the one door out.

use super::{Meter, NEVER, SWEPT, TCP, fetch};
use crate::key::{Extra, Side};
use crate::lanes::prefetch;
use crate::place::{Bits, Head};
use crate::{Approximate, CONVERSATIONS, Direction, EndReason, FlowRecord, Index};
use weir_packet::Packet;

/// How long a flow that has ended still takes its last acknowledgments, and what is sent again.
const CLOSING_NS: u64 = 5_000_000_000;
/// After a year ticks are counted anew; they have room for two, for deadlines beyond.
const TICKED_NS: u64 = 1 << 55;

impl<I: Index, const FIELDS: u8> Meter<I, FIELDS> {
    /// Whether a packet of its key still belongs to the flow in a place. If not, the place is free again.
    /// If so, the place is ready for it: a record that is due has been handed out.
    pub(super) fn still_of_flow(&mut self, at: u32, hash: u64, packet: &Packet, out: &mut Vec<FlowRecord>) -> bool {
        if self.places[at as usize].head.bits().has(Bits::CLOSING) {
            if packet.control & Packet::SYN == 0 && !self.over(at) {
                return true;
            }
            self.retire(at, hash, EndReason::EndOfFlow, out);
            return false;
        }
        !self.end_if_due(at, hash, out)
    }

    /// Ends what is due in a place: its record, the flow, or both. Whether the place is free now.
    pub(super) fn end_if_due(&mut self, at: u32, hash: u64, out: &mut Vec<FlowRecord>) -> bool {
        let head = &self.places[at as usize].head;
        if head.bits().0 & (Bits::CLOSING | Bits::WAITING) == 0
            && self.clock.since(head.began_ns) >= self.config.active_timeout_ns
            && self.active_first(head)
        {
            self.hand_out_active(at, out);
        }
        let over = self.over(at);
        if over {
            self.retire(at, hash, EndReason::Idle, out);
        }
        over
    }

    /// Whether nothing came for as long as a place waits.
    fn over(&self, at: u32) -> bool {
        let head = &self.places[at as usize].head;
        self.clock.since(head.touched_ns) >= self.patience(head)
    }

    fn patience(&self, head: &Head) -> u64 {
        let idle = self.config.idle_timeout_ns;
        if head.bits().has(Bits::CLOSING) { idle.min(CLOSING_NS) } else { idle }
    }

    /// Whether the active timeout comes before the idle timeout.
    fn active_first(&self, head: &Head) -> bool {
        self.config.active_timeout_ns
            < head.touched_ns.saturating_sub(head.began_ns).saturating_add(self.config.idle_timeout_ns)
    }

    /// Notes when the hand is to look into a place.
    pub(super) fn set_due(&mut self, at: u32) {
        let head = &self.places[at as usize].head;
        let over = head.touched_ns.saturating_add(self.patience(head));
        let open = head.bits().0 & (Bits::CLOSING | Bits::WAITING) == 0;
        let deadline_ns =
            if open { over.min(head.began_ns.saturating_add(self.config.active_timeout_ns)) } else { over };
        self.due[at as usize] = self.tick(deadline_ns);
    }

    /// A time by the clock in units of 17 ms since they are counted, rounded down.
    #[inline(always)]
    pub(super) fn tick(&self, clock_ns: u64) -> u32 {
        (clock_ns.saturating_sub(self.ticks_from_ns) >> 24).min(u64::from(NEVER) - 1) as u32
    }

    /// Other timeouts from now on, also of flows that there are. A record that is due by them ends within one round of the hand.
    pub fn set_timeouts(&mut self, idle_timeout_ns: u64, active_timeout_ns: u64) {
        (self.config.idle_timeout_ns, self.config.active_timeout_ns) = (idle_timeout_ns, active_timeout_ns);
        self.look_everywhere();
    }

    /// Counts ticks from now on.
    #[cold]
    fn count_ticks_anew(&mut self) {
        self.ticks_from_ns = self.clock.now_ns;
        self.look_everywhere();
    }

    /// The hand is to look into every place that is in use, once.
    fn look_everywhere(&mut self) {
        let used = &mut self.due[..self.used as usize];
        used.iter_mut().filter(|due| **due != NEVER).for_each(|due| *due = 0);
    }

    /// Time goes on to `now_ns` (as packets' times are) while few packets or none come, and a quarter of the places is looked
    /// at for what is due: call it a few times a second. Before the first packet or adopted flow there is no time.
    pub fn advance_time(&mut self, now_ns: u64, out: &mut Vec<FlowRecord>) {
        if (self.started || self.used > 0) && now_ns > self.clock.newest_ns {
            self.advance_clock(now_ns);
        }
        for _ in 0..(self.used as usize).div_ceil(4 * SWEPT) {
            self.sweep(out);
        }
        self.look(self.used.div_ceil(4));
    }

    /// The hand passes over the next places and ends what is due there.
    #[inline(always)]
    pub(super) fn sweep(&mut self, out: &mut Vec<FlowRecord>) {
        if self.clock.since(self.ticks_from_ns) > TICKED_NS {
            self.count_ticks_anew();
        }
        let now = self.tick(self.clock.now_ns);
        let mut left = SWEPT.min(self.used as usize);
        while left > 0 {
            let from = self.hand as usize;
            let run = left.min(self.used as usize - from);
            due_among(&self.due[from..from + run], from, now, |at| self.found.push((at, 0)));
            left -= run;
            self.hand = if from + run == self.used as usize { 0 } else { (from + run) as u32 };
        }
        if !self.found.is_empty() {
            self.end_found(out);
        }
        self.look_ahead(now);
        if self.search.from < self.search.until {
            self.look_beside();
        }
        self.end_overflow(out);
    }

    /// Begins to fetch what the hand will need the time after next, and more of what it will need next time. What comes of
    /// that decides nothing.
    #[inline(always)]
    fn look_ahead(&mut self, now: u32) {
        let from = self.hand as usize + SWEPT;
        let Some(coming) = self.due[..self.used as usize].get(from..from + SWEPT) else { return };
        while let Some(at) = self.coming.pop() {
            if self.over(at) {
                let place = &self.places[at as usize];
                place.sides.iter().for_each(prefetch);
                if FIELDS & CONVERSATIONS != 0 && place.head.protocol() == TCP {
                    fetch(&self.tcp[at as usize]);
                }
                self.index.prefetch(self.hash_of(at));
            }
        }
        due_among(coming, from, now, |at| {
            prefetch(&self.places[at as usize].head);
            self.coming.push(at);
        });
    }

    /// Ends what is due in the places that the hand found.
    #[inline(never)]
    fn end_found(&mut self, out: &mut Vec<FlowRecord>) {
        let mut found = std::mem::take(&mut self.found);
        for (at, hash) in &mut found {
            *hash = self.hash_of(*at);
            self.index.prefetch(*hash);
        }
        for (at, hash) in found.drain(..) {
            if !self.end_if_due(at, hash, out) {
                self.set_due(at);
            }
        }
        self.found = found;
    }

    /// Begins to fetch where the index holds some places.
    pub(super) fn fetch_buckets(&self, places: impl IntoIterator<Item = u32>) {
        for at in places {
            self.index.prefetch(self.hash_of(at));
        }
    }

    pub(super) fn hash_of(&self, at: u32) -> u64 {
        let extra = self.extras.get(at as usize).copied().unwrap_or(Extra::NONE);
        self.hash.key(&self.places[at as usize].head.key(extra))
    }

    /// Ends the overflow records that are due.
    #[inline(always)]
    pub(super) fn end_overflow(&mut self, out: &mut Vec<FlowRecord>) {
        while let Some(flow) = self.overflow.due(self.config.active_timeout_ns, self.clock.now_ns) {
            self.hand_out(flow, out);
        }
    }

    /// Hands out the record of a flow that goes on after the active timeout.
    fn hand_out_active(&mut self, at: u32, out: &mut Vec<FlowRecord>) {
        let unanalysed = self.unanalysed.has(at);
        self.hand_out_record(at, EndReason::Active, out);
        if self.is_connection(at) {
            let head = &self.places[at as usize].head;
            let connection = &mut self.tcp[at as usize];
            if !unanalysed && head.began_ns >= self.whole_from_ns {
                connection.start_next_record(&mut self.room);
            } else {
                // What it knows is not whole: it begins as one of which the beginning was not seen.
                connection.reset(&mut self.room);
            }
        }
        let head = &mut self.places[at as usize].head;
        head.set_bits(Bits(head.bits().0 & Bits::OF_THE_FLOW | Bits::WAITING | Bits::SETTLED));
        // Remembered for one idle timeout after its active end.
        head.touched_ns = head.began_ns + self.config.active_timeout_ns;
        self.set_due(at);
    }

    /// Ends the flow in a place, hands out its record if it has one, and frees the place: the one door out.
    /// A closing record ends with the flow whatever the `reason`.
    /// `hash` is that of its key.
    pub(super) fn retire(&mut self, at: u32, hash: u64, reason: EndReason, out: &mut Vec<FlowRecord>) {
        let bits = self.places[at as usize].head.bits();
        if !bits.has(Bits::WAITING) {
            let reason = if bits.has(Bits::CLOSING) { EndReason::EndOfFlow } else { reason };
            self.hand_out_record(at, reason, out);
        }
        if self.is_connection(at) {
            self.tcp[at as usize].reset(&mut self.room);
        }
        self.vacate(at, hash);
    }

    /// Frees a place whose flow is no longer there.
    pub(super) fn vacate(&mut self, at: u32, hash: u64) {
        self.index.remove(hash, at);
        self.places[at as usize].head.free();
        self.due[at as usize] = NEVER;
        self.free.push(at);
    }

    /// Whether a place has a connection that is analysed.
    pub(super) fn is_connection(&self, at: u32) -> bool {
        FIELDS & CONVERSATIONS != 0 && self.places[at as usize].head.protocol() == TCP
    }

    pub(super) fn hand_out(&mut self, flow: FlowRecord, out: &mut Vec<FlowRecord>) {
        self.no_longer_live(&flow);
        out.push(flow);
    }

    fn no_longer_live(&mut self, flow: &FlowRecord) {
        self.live.flows -= 1;
        self.live.packets -= flow.packets();
        self.live.bytes -= flow.frame_bytes();
    }

    /// Hands out the record in a place, turned so that the initiator is the source. What is kept of it elsewhere ends.
    fn hand_out_record(&mut self, at: u32, end_reason: EndReason, out: &mut Vec<FlowRecord>) {
        // A record has more than a KiB: it is written where it stays.
        let unanalysed = self.unanalysed.has(at);
        out.push(if self.is_connection(at) && !unanalysed { FlowRecord::OF_TCP } else { FlowRecord::NONE });
        let Some(flow) = out.last_mut() else { return };
        let head = self.places[at as usize].head;
        let initiator = head.introduce(flow);
        flow.end_reason = end_reason;
        if unanalysed {
            flow.approximate.0 |= Approximate::UNANALYSED;
            self.unanalysed.clear(at);
        }
        flow.interface = self.annex.interface(at as usize, head.bits());
        self.describe(at, initiator, &head, &mut flow.forward);
        self.describe(at, 1 - initiator, &head, &mut flow.reverse);
        if let Some([forward, reverse]) = &mut flow.tcp {
            let (connection, room) = (&self.tcp[at as usize], &self.room);
            connection.write_report(initiator, flow.forward.packets, room, forward);
            connection.write_report(1 - initiator, flow.reverse.packets, room, reverse);
        }
        self.no_longer_live(flow);
    }

    /// Writes one side of a record, of which nothing is written yet.
    #[inline(always)]
    fn describe(&mut self, at: u32, side: Side, head: &Head, direction: &mut Direction) {
        let wide = if head.bits().has(Bits::WIDE) { self.wide.take(at, side) } else { None };
        let narrow = &self.places[at as usize].sides[side];
        match wide {
            Some(wide) => *direction = wide,
            None if narrow.packets() == 0 => return,
            None => narrow.describe(direction),
        }
        head.describe(side, direction);
        self.annex.describe(at as usize, side, head.bits(), direction);
    }
}

/// Tells which places of `due`, of which the first has number `from`, are due now. Mostly none of 32 are; who is stands in a
/// bit each, so that only those are looked at.
#[inline(always)]
fn due_among(due: &[u32], from: usize, now: u32, mut found: impl FnMut(u32)) {
    for (group, at) in due.chunks(32).zip((from as u32..).step_by(32)) {
        let mut among = (0..).zip(group).fold(0_u32, |among, (bit, &due)| among | u32::from(due <= now) << bit);
        while among != 0 {
            found(at + among.trailing_zeros());
            among &= among - 1;
        }
    }
}
