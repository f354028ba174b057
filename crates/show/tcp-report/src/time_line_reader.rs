//! Reads a capture again for the time lines of the connections that are listed first.
//!
//! In: the report, and a function that reads the same sources again. Out: the time lines of the
//! report. A connection is recognised by its endpoints, times and packets, as
//! [`CaptureReport::explain`] does.

use crate::connection::Connection;
use crate::explain::{FirstFrames, PairTracker, Pass};
use crate::reader::PacketConsumer;
use crate::report::{CaptureReport, Part};
use crate::time_line::{MAX_TIME_LINES, TimeLine, TimeLines};
use std::collections::{BTreeMap, HashMap};
use weir_packet::Packet;
use weir_tcp::SegmentEvent;
use weir_tcp_batch::ConnectionKey;

impl CaptureReport {
    /// Reads the sources once more, for the time lines of the connections that are listed first.
    ///
    /// # Errors
    /// A source failed.
    pub fn read_time_lines<E>(
        &mut self,
        read: impl FnOnce(&mut dyn PacketConsumer) -> Result<Pass, E>,
    ) -> Result<(), E> {
        let wanted =
            Part::ALL.into_iter().flat_map(|part| self.listed(part).take(MAX_TIME_LINES).chain(self.named(part)));
        let mut reader = TimeLineReader::default();
        wanted.for_each(|index| reader.want(index, &self.connections[index]));
        let wanted = reader.wanted;
        let pass = read(&mut FirstFrames { frames: self.counts.ledger.packets.received, consumer: &mut reader })?;
        let lines = reader.finish();
        let missing = match wanted - lines.len() {
            0 => "",
            _ if pass.interrupted => "The second reading of the capture was interrupted: not all time lines are known.",
            _ => "The capture changed while it was read: not all time lines are known.",
        };
        self.time_lines = TimeLines { lines, missing };
        Ok(())
    }
}

/// Makes the time lines of some connections from the packets of a capture.
#[derive(Default)]
struct TimeLineReader<'a> {
    pairs: HashMap<ConnectionKey, Pair<'a>, ahash::RandomState>,
    wanted: usize,
}

/// The connections between two endpoints.
struct Pair<'a> {
    tracker: PairTracker,
    wanted: Vec<(usize, &'a Connection)>,
    /// By side of the batch engine.
    line: TimeLine,
    finished: BTreeMap<usize, TimeLine>,
}

impl<'a> TimeLineReader<'a> {
    fn want(&mut self, index: usize, connection: &'a Connection) {
        let new = || Pair {
            tracker: PairTracker::new(connection),
            wanted: Vec::new(),
            line: TimeLine::default(),
            finished: BTreeMap::new(),
        };
        self.pairs.entry(connection.key()).or_insert_with(new).wanted.push((index, connection));
        self.wanted += 1;
    }

    fn finish(self) -> BTreeMap<usize, TimeLine> {
        let finished = self.pairs.into_values().flat_map(|mut pair| {
            pair.finish_connection();
            pair.finished
        });
        finished.collect()
    }
}

impl PacketConsumer for TimeLineReader<'_> {
    fn consume(&mut self, packets: &[Packet], _: &[u64]) {
        for packet in packets {
            let (key, side) = ConnectionKey::from_packet(packet);
            if let Some(pair) = self.pairs.get_mut(&key) {
                pair.enter(side, packet);
            }
        }
    }
}

impl Pair<'_> {
    fn enter(&mut self, side: usize, packet: &Packet) {
        if self.tracker.opens_next(packet) {
            self.finish_connection();
            self.tracker.start_next();
        }
        let (mut zero_window, mut response_ns) = (false, None);
        let class = self.tracker.classify(side, packet, |event| match event {
            SegmentEvent::ZeroWindow => zero_window = true,
            SegmentEvent::RequestAnswered { response_ns: time_ns } => response_ns = Some(time_ns),
            _ => {}
        });
        self.line.enter(side, packet, class, zero_window);
        if let Some(response_ns) = response_ns {
            self.line.enter_response(side, packet.time_ns, response_ns);
        }
    }

    fn finish_connection(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        let mut wanted = self.wanted.iter();
        let Some(&(index, connection)) = wanted.find(|(_, connection)| self.tracker.is_at(connection)) else { return };
        if connection.client_side == 1 {
            line.reverse();
        }
        self.finished.entry(index).or_insert(line);
    }
}
