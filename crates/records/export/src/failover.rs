//! A sink that sends each record to the first of several sinks that takes records: `failover:A,B`.
//!
//! ```text
//! write -> backlog -> active sink           copies of what it has not sent
//!             └────── <- taken back, when another sink becomes the active one
//! ```
//! Each record is with exactly one sink, and counted by that one. When the active sink has taken none for a time
//! (no connection, or a connection that accepts nothing) or has no room left, the next sink that takes records becomes
//! the active one. A sink before it that takes records for the same time gets them again. What the system has accepted
//! counts as exported, and is not retransmitted.
//!
//! A sink that knows nothing of its collector (UDP, a file) takes everything. One thread runs all sinks: a name server
//! that does not answer delays them all.

use crate::options_records::MeteringStatus;
use crate::pending_records::totals;
use crate::sink::{Attempts, Error, Intake, Sink};
use crate::watch::Watch;
use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, MemberCounters, SinkCounters};

/// Records that wait for a sink, and copies of those that the active one has not sent: at most this number each.
const MAX_HELD: usize = 32_768;
/// Memory that a record may take in a sink, bytes.
const RECORD_BYTES: usize = 16 << 10;
/// Records that a sink gets at once.
const MAX_BATCH: usize = 256;
/// At the end of a run, a connection that accepts nothing for this time is left.
const STALL_AT_END: Duration = Duration::from_secs(1);
/// Between two looks while records wait.
const SHORT_WAIT: Duration = Duration::from_millis(5);

/// One of the sinks.
struct Member {
    sink: Box<dyn Sink + Send>,
    name: String,
    /// Flows that it got, less those that were taken back.
    flows: u64,
    /// Copies of the newest of these, of those that it has not sent.
    held: VecDeque<FlowRecord>,
    /// Since when it takes nothing; `None` while it does.
    blocked_since: Option<Instant>,
    /// Since when it takes records without being blocked for long; `None` if it is.
    free_since: Option<Instant>,
    /// Octets that it had sent at the last look.
    octets: u64,
    /// It has failed for good.
    has_ended: bool,
    takeovers: u64,
}

/// The sink of `failover:`.
pub struct FailoverSink {
    members: Vec<Member>,
    active: usize,
    /// Records that no sink has got.
    backlog: VecDeque<FlowRecord>,
    times: Attempts,
    /// Live traffic: the sink does not wait.
    is_live: bool,
    /// End of the time for the last records.
    until: Option<Instant>,
    watch: Watch,
    /// The octets of all sinks, and when they last changed.
    progress: (u64, Instant),
    /// Losses of the backlog.
    own: SinkCounters,
    counters: SinkCounters,
}

impl FailoverSink {
    /// Memory of the records that it holds, bytes.
    pub const MEMORY_BYTES: usize = 2 * MAX_HELD * size_of::<FlowRecord>();

    /// `name`: as the user wrote it. `sinks`: at least one, opened so that a collector that is away is no error.
    pub fn new(name: &str, sinks: Vec<Box<dyn Sink + Send>>, times: Attempts, is_live: bool) -> Self {
        let own = SinkCounters { sink: name.into(), ..SinkCounters::default() };
        let mut failover = Self {
            members: sinks.into_iter().map(Member::new).collect(),
            active: 0,
            backlog: VecDeque::new(),
            times,
            is_live,
            until: None,
            watch: Watch::default(),
            progress: (0, Instant::now()),
            counters: own.clone(),
            own,
        };
        failover.update_counters();
        failover
    }

    fn update_counters(&mut self) {
        let mut counters = self.own.clone();
        for (at, member) in self.members.iter().enumerate() {
            let of_sink = member.sink.counters().clone();
            counters.members.push(MemberCounters {
                sink: member.name.clone(),
                is_active: at == self.active,
                takeovers: member.takeovers,
                exported: of_sink.exported,
                spooled: of_sink.spooled,
                lost: of_sink.lost.clone(),
            });
            counters.merge(of_sink);
        }
        self.counters = counters;
    }

    /// Looks at all sinks, after they have sent what the system accepts, and changes the active one if this is due.
    fn look(&mut self, is_end: bool) {
        let (now, time) = (Instant::now(), self.times.failover);
        self.members.iter_mut().for_each(|member| member.look(now, time));
        let octets = self.members.iter().map(|member| member.octets).sum();
        if octets != self.progress.0 {
            self.progress = (octets, now);
        }
        let active = &self.members[self.active];
        let is_blocked = active.blocked_since.is_some_and(|since| now - since >= time);
        let is_away = !active.is_connected();
        let is_away_at_end = is_end && active.is_away_for(time.min(STALL_AT_END));
        let is_full = !self.backlog.is_empty() && active.room() == 0 && (self.is_live || is_away);
        let must_leave = active.has_ended || is_full || is_away_at_end || is_blocked;
        let others = self.members.iter().enumerate().filter(|(at, _)| *at != self.active);
        let next = match must_leave {
            true => {
                // If none of them takes records, a spool keeps those that would be lost.
                let keeps = |member: &Member| member.waits_on_disk() && !member.has_ended && !active.waits_on_disk();
                let taking = others.clone().find(|(_, member)| member.takes());
                taking.or_else(|| others.clone().find(|(_, member)| (is_full || is_away_at_end) && keeps(member)))
            }
            false => others.clone().find(|(at, member)| *at < self.active && member.takes_since(now, time) && !is_end),
        };
        if let Some((next, _)) = next {
            self.change_to(next);
        }
    }

    /// Makes another sink the active one, which gets what the one before has not sent.
    fn change_to(&mut self, next: usize) {
        let before = mem::replace(&mut self.active, next);
        let moved = self.take_back(before, false);
        // It was left for a reason: it has to take records for the whole time.
        self.members[before].free_since = None;
        self.members[next].takeovers += 1;
        let (sink, from, to) = (&self.own.sink, &self.members[before].name, &self.members[next].name);
        if next > before {
            warn!(sink, from, to, moved, "a sink takes no records, they go to another one");
        } else {
            info!(sink, from, to, moved, "a sink takes records again, they go there");
        }
    }

    /// Takes back what a sink has not sent. It goes to the active one, in front of what waits. Returns the number.
    fn take_back(&mut self, from: usize, all: bool) -> usize {
        let member = &mut self.members[from];
        member.trim();
        let flows = member.sink.take_back(member.held.len() as u64, all).min(member.held.len() as u64);
        member.flows -= flows;
        let mut taken = member.held.split_off(member.held.len() - flows as usize);
        let count = taken.len();
        taken.append(&mut self.backlog);
        self.backlog = taken;
        count
    }

    /// Gives the active sink what waits, as far as it has room.
    fn hand_over(&mut self) -> Result<(), Error> {
        while !self.backlog.is_empty() {
            let member = &mut self.members[self.active];
            let room = member.room().min(self.backlog.len());
            if room == 0 {
                break;
            }
            let flows: Vec<_> = self.backlog.drain(..room).collect();
            if let Err(error) = member.write(flows) {
                if self.members.iter().all(|member| member.has_ended) {
                    return Err(error);
                }
                warn!(sink = self.own.sink, %error, "a sink has failed");
                self.look(false);
            }
        }
        Ok(())
    }

    /// Lets all sinks send what they can. Waits a little if they have nothing to do.
    fn advance(&mut self, is_end: bool) -> Result<(), Error> {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.sink.connect();
            // This may wait for the collector.
            if at == self.active || !member.sink.intake().is_some_and(|intake| intake.is_stalled) {
                member.sink.tick();
            }
            member.trim();
        }
        self.look(is_end);
        self.hand_over()
    }

    /// Whether a wait that began at `start` is over, because nothing was sent for as long as an outage is waited for.
    fn is_outage(&self, start: Instant) -> bool {
        // A live run abandons a sink that accepts nothing for as long as an outage.
        let outage = if self.is_live { self.times.outage.mul_f64(0.8) } else { self.times.outage };
        self.progress.1.max(start).elapsed() >= outage
    }

    /// Loses the oldest records that wait until no more than `limit` are left.
    fn lose_oldest(&mut self, limit: usize, reason: ExportLossReason) {
        let over = self.backlog.len().saturating_sub(limit);
        for flow in self.backlog.drain(..over) {
            self.own.add_lost(reason, totals(&flow));
        }
    }

    /// The end of a run: waits until all sinks have sent everything, as long as it may be. What a sink does not take
    /// goes to another one.
    fn send_all(&mut self) -> Result<(), Error> {
        let mut start = Instant::now();
        loop {
            self.advance(true)?;
            for at in 0..self.members.len() {
                let is_left = at != self.active && self.members[at].is_away_for(self.times.failover.min(STALL_AT_END));
                if is_left && self.members[self.active].takes() && self.take_back(at, true) > 0 {
                    start = Instant::now();
                }
            }
            let is_sent = self.backlog.is_empty() && self.members.iter().all(|member| member.waiting() == 0);
            let is_safe = self.members[self.active].waits_on_disk() && !self.members.iter().any(Member::is_connected);
            let is_over = self.watch.must_end() || self.until.is_some_and(|until| Instant::now() >= until);
            if is_sent || is_over || (is_safe && self.backlog.is_empty()) || self.is_outage(start) {
                return Ok(());
            }
            thread::sleep(SHORT_WAIT);
        }
    }
}

impl Sink for FailoverSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.backlog.extend(flows.iter().cloned());
        self.look(false);
        let (mut result, start) = (self.hand_over(), Instant::now());
        while result.is_ok() && !self.is_live && self.backlog.len() >= MAX_HELD && !self.is_outage(start) {
            result = self.advance(false);
            thread::sleep(SHORT_WAIT);
        }
        self.lose_oldest(MAX_HELD, ExportLossReason::BufferFull);
        self.update_counters();
        result
    }

    fn connect(&mut self) -> bool {
        let mut is_new = false;
        for member in &mut self.members {
            is_new |= member.sink.connect();
            member.trim();
        }
        self.look(false);
        is_new
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        self.members.iter_mut().for_each(|member| member.sink.set_metering_status(status));
    }

    fn tick(&mut self) {
        if let Err(error) = self.advance(false) {
            warn!(sink = self.own.sink, %error, "a sink has failed");
        }
        self.update_counters();
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.members.iter().filter_map(|member| member.sink.wakes_at()).min()
    }

    fn reopen(&mut self) {
        self.members.iter_mut().for_each(|member| member.sink.reopen());
        self.update_counters();
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        self.until = Some(until);
        for (at, member) in self.members.iter_mut().enumerate() {
            member.sink.drain(if at == self.active { flows } else { 0 }, until);
        }
    }

    fn watch(&mut self, watch: &Watch) {
        self.watch = watch.clone();
        self.members.iter_mut().for_each(|member| member.sink.watch(watch));
    }

    fn finish(&mut self) -> Result<(), Error> {
        let mut result = self.send_all();
        let is_connected = self.members.iter().any(Member::is_connected);
        let reason = if is_connected { ExportLossReason::DrainTimeout } else { ExportLossReason::CollectorUnreachable };
        self.lose_oldest(0, reason);
        for member in &mut self.members {
            result = result.and(member.sink.finish());
        }
        self.update_counters();
        result
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.members.iter().find_map(|member| member.sink.udp_endpoints())
    }
}

impl Member {
    fn new(sink: Box<dyn Sink + Send>) -> Self {
        Self {
            name: sink.counters().sink.clone(),
            sink,
            flows: 0,
            held: VecDeque::new(),
            blocked_since: None,
            free_since: None,
            octets: 0,
            has_ended: false,
            takeovers: 0,
        }
    }

    fn write(&mut self, flows: Vec<FlowRecord>) -> Result<(), Error> {
        self.flows += flows.len() as u64;
        let result = self.sink.write(&flows);
        self.has_ended |= result.is_err();
        if self.sink.intake().is_some_and(|intake| intake.gives_back) {
            self.held.extend(flows);
            self.trim();
        }
        result
    }

    /// Flows that it got, and that are neither sent nor lost. Sinks that know no collector may collect them.
    fn waiting(&self) -> u64 {
        match self.sink.intake() {
            Some(_) => self.flows.saturating_sub(self.sink.counters().total().flows),
            None => 0,
        }
    }

    /// Forgets copies of what is sent: the oldest.
    fn trim(&mut self) {
        // Beyond this number, those of a sink with a spool stay with it.
        let waiting = usize::try_from(self.waiting()).unwrap_or(usize::MAX).min(MAX_HELD);
        self.held.drain(..self.held.len().saturating_sub(waiting));
    }

    fn look(&mut self, now: Instant, time: Duration) {
        let octets = self.sink.counters().octets;
        let has_advanced = mem::replace(&mut self.octets, octets) != octets;
        let Some(Intake { is_connected, is_stalled, .. }) = self.sink.intake() else {
            self.free_since.get_or_insert(now);
            return;
        };
        if is_connected && (!is_stalled || has_advanced) {
            self.blocked_since = None;
            self.free_since.get_or_insert(now);
        } else if now - *self.blocked_since.get_or_insert(now) >= time || !is_connected {
            self.free_since = None;
        }
    }

    fn is_connected(&self) -> bool {
        !self.has_ended && self.sink.intake().is_none_or(|intake| intake.is_connected)
    }

    /// Whether it has no connection, or one that has accepted nothing for this time.
    fn is_away_for(&self, time: Duration) -> bool {
        !self.is_connected() || self.blocked_since.is_some_and(|since| since.elapsed() >= time)
    }

    fn takes(&self) -> bool {
        self.is_connected() && self.blocked_since.is_none()
    }

    fn takes_since(&self, now: Instant, time: Duration) -> bool {
        self.takes() && self.free_since.is_some_and(|since| now - since >= time)
    }

    fn waits_on_disk(&self) -> bool {
        self.sink.intake().is_some_and(|intake| intake.room == usize::MAX)
    }

    /// How many records it may get now.
    fn room(&self) -> usize {
        match self.sink.intake() {
            _ if self.has_ended => 0,
            Some(Intake { room, .. }) if room < usize::MAX && self.held.len() >= MAX_HELD => 0,
            Some(Intake { room, .. }) => (room / RECORD_BYTES).min(MAX_BATCH),
            None => MAX_BATCH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use weir_ledger::Timing;

    /// What a collector has, and whether it takes records.
    #[derive(Default)]
    struct Collector {
        is_up: bool,
        room: usize,
        received: Vec<u16>,
        waiting: VecDeque<FlowRecord>,
    }

    /// A sink whose records wait until its collector takes them.
    struct Waiting(Arc<Mutex<Collector>>, SinkCounters);

    impl Waiting {
        fn send(&mut self) {
            let mut collector = self.0.lock().unwrap();
            if !collector.is_up {
                return;
            }
            for flow in mem::take(&mut collector.waiting) {
                self.1.exported.merge(totals(&flow));
                self.1.octets += 1;
                collector.received.push(flow.source_port);
            }
        }
    }

    impl Sink for Waiting {
        fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
            self.0.lock().unwrap().waiting.extend(flows.iter().cloned());
            self.send();
            Ok(())
        }

        fn connect(&mut self) -> bool {
            self.send();
            false
        }

        fn finish(&mut self) -> Result<(), Error> {
            self.send();
            for flow in mem::take(&mut self.0.lock().unwrap().waiting) {
                self.1.add_lost(ExportLossReason::CollectorUnreachable, totals(&flow));
            }
            Ok(())
        }

        fn counters(&self) -> &SinkCounters {
            &self.1
        }

        fn intake(&self) -> Option<Intake> {
            let collector = self.0.lock().unwrap();
            let room = (collector.room - collector.waiting.len()) * RECORD_BYTES;
            let is_stalled = !collector.waiting.is_empty();
            Some(Intake { is_connected: collector.is_up, is_stalled, room, gives_back: true })
        }

        fn take_back(&mut self, most: u64, _: bool) -> u64 {
            let mut collector = self.0.lock().unwrap();
            let flows = collector.waiting.len().min(most as usize);
            let left = collector.waiting.len() - flows;
            collector.waiting.truncate(left);
            flows as u64
        }
    }

    /// Two collectors with room for 100 records each, and the sink. `time`: until another one gets the records.
    fn failover(time: Duration, is_live: bool) -> (FailoverSink, [Arc<Mutex<Collector>>; 2]) {
        let collectors = [0; 2].map(|_| Arc::new(Mutex::new(Collector { room: 100, ..Collector::default() })));
        let sinks = collectors.iter().map(|collector| {
            let counters = SinkCounters { sink: "sink".into(), ..SinkCounters::default() };
            Box::new(Waiting(collector.clone(), counters)) as Box<dyn Sink + Send>
        });
        let timing = Timing { sink_failover: time, sink_outage: Duration::from_millis(50), ..Timing::default() };
        (FailoverSink::new("failover", sinks.collect(), Attempts::from(&timing), is_live), collectors)
    }

    fn flows(numbers: std::ops::Range<u16>) -> Vec<FlowRecord> {
        numbers.map(|source_port| FlowRecord { source_port, ..FlowRecord::default() }).collect()
    }

    fn received(collector: &Mutex<Collector>) -> Vec<u16> {
        collector.lock().unwrap().received.clone()
    }

    #[test]
    fn what_is_not_sent_goes_to_the_other_sink_in_its_order() {
        let (mut sink, [first, second]) = failover(Duration::ZERO, true);
        first.lock().unwrap().is_up = true;
        sink.write(&flows(0..10)).unwrap();
        first.lock().unwrap().is_up = false;
        sink.connect();
        sink.write(&flows(10..60)).unwrap();
        assert_eq!(first.lock().unwrap().waiting.len(), 50, "no other sink takes records");
        second.lock().unwrap().is_up = true;
        sink.connect();
        sink.write(&flows(60..80)).unwrap();
        assert_eq!((received(&first), received(&second)), ((0..10).collect(), (10..80).collect()));
        first.lock().unwrap().is_up = true;
        sink.connect();
        sink.connect();
        sink.write(&flows(80..90)).unwrap();
        assert_eq!(received(&first)[10..], (80..90).collect::<Vec<_>>());
        sink.finish().unwrap();
        let counters = sink.counters();
        assert_eq!((counters.exported.flows, counters.total().flows), (90, 90));
        let members: Vec<_> = counters.members.iter().map(|of| (of.exported.flows, of.takeovers)).collect();
        assert_eq!(members, [(20, 1), (70, 1)]);
    }

    #[test]
    fn a_full_sink_is_left_at_once_and_a_short_absence_is_waited_for() {
        let (mut sink, [first, second]) = failover(Duration::from_secs(3600), true);
        second.lock().unwrap().is_up = true;
        sink.connect();
        sink.write(&flows(0..90)).unwrap();
        sink.connect();
        assert!(received(&second).is_empty());
        sink.write(&flows(90..200)).unwrap();
        sink.write(&flows(200..201)).unwrap();
        assert_eq!(received(&second), (0..201).collect::<Vec<_>>());
        assert!(first.lock().unwrap().waiting.is_empty());
    }

    #[test]
    fn without_any_collector_the_oldest_are_lost_and_counted() {
        for is_live in [true, false] {
            let (mut sink, [first, second]) = failover(Duration::ZERO, is_live);
            let all = MAX_HELD as u16 + 500;
            sink.write(&flows(0..all)).unwrap();
            let lost = |counters: &SinkCounters, reason: ExportLossReason| {
                counters.lost.get(reason.key()).map_or(0, |lost| lost.flows)
            };
            // 100 are with the first sink, and the newest wait.
            assert_eq!(lost(sink.counters(), ExportLossReason::BufferFull), 400);
            second.lock().unwrap().is_up = true;
            sink.connect();
            sink.finish().unwrap();
            let expected: Vec<u16> = (0..100).chain(500..all).collect();
            assert!(received(&second) == expected && received(&first).is_empty());
            assert_eq!(sink.counters().total().flows, u64::from(all));
        }
        let (mut sink, _) = failover(Duration::ZERO, true);
        sink.write(&flows(0..150)).unwrap();
        sink.finish().unwrap();
        let lost = &sink.counters().lost[ExportLossReason::CollectorUnreachable.key()];
        assert_eq!((lost.flows, sink.counters().total().flows), (150, 150));
    }
}
