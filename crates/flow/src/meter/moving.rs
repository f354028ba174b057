//! Flows that move to another meter while both run: looked for beside the packets, taken out at once, put in.
//!
//! ```text
//! seek     -> each group of packets is followed by a look at a few places; what opens in the meantime is listed, too
//! release  -> what is listed, and still there, is taken out: place, record, connection, whatever is kept elsewhere
//! adopt    -> the same on another meter, by its clock, as if it had been there from the beginning
//! ```
//! Always true: a flow is in one meter or in one [`MigratedFlow`], with all its packets and octets; records are opened, and counted
//! as that, once.

use super::{GROUP, Meter, TCP, fetch};
use crate::clock::Clock;
use crate::key::{Extra, Side};
use crate::labels::Inside;
use crate::lanes::prefetch;
use crate::memory::Memory;
use crate::parts::part_of;
use crate::place::{Bits, Place};
use crate::{Approximate, BucketSet, CONVERSATIONS, Direction, EndReason, FlowRecord, Index, PageKind};
use std::io;
use weir_ledger::RecordTotals;
use weir_tcp::{Connection, TcpAnomalies};

/// Places that are looked at after each group of packets: as many as packets.
const LOOKED: u32 = GROUP as u32;
/// Of a place that is listed last.
const LAST: u32 = u32::MAX;

/// A flow that has left one meter for another: [`Meter::migrate_out`], [`Meter::migrate_in`]. Nobody ends one that is dropped, and its
/// packets are in no record.
#[derive(Debug)]
pub struct MigratedFlow {
    place: Place,
    /// [`Connection::NEW`] if it is none.
    connection: Connection,
    troubles: TcpAnomalies,
    extra: Extra,
    /// That of the meter it left, by which its times are told.
    clock: Clock,
    /// The usual interface there.
    interface: u32,
    /// TCP analysis has missed a packet of its record.
    unanalysed: bool,
    more: Option<Box<More>>,
}

const _: () = assert!(size_of::<MigratedFlow>() == 512);

/// What few flows have.
#[derive(Debug)]
struct More {
    inside: Option<Inside>,
    wide: [Option<Direction>; 2],
}

/// The search for the flows of some parts.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether there is one.
    pub on: bool,
    parts: BucketSet,
    /// The place that is looked at next, and the one before which all is done: what opens is listed when it does.
    pub from: u32,
    pub until: u32,
    /// The place that was listed last, plus 1, or [`LAST`].
    first: u32,
    /// Per place the one that was listed before it, in the same way; 0 if it is not listed.
    listed: Memory<u32>,
}

impl Search {
    /// None, in a table of so many flows.
    ///
    /// # Errors
    /// The system has no room for that much.
    pub fn new(flows: usize) -> io::Result<Self> {
        // Touched only where something is found.
        let listed = Memory::new(flows, PageKind::Small)?;
        Ok(Self { on: false, parts: BucketSet::new(), from: 0, until: 0, first: LAST, listed })
    }

    /// Octets of memory that one takes.
    pub fn octets_for(flows: usize) -> usize {
        flows * size_of::<u32>()
    }

    /// Octets of memory taken, of which the system provides what is touched.
    pub fn octets(&self) -> usize {
        self.listed.octets()
    }

    /// Lists a place, once.
    fn list(&mut self, at: u32) {
        let before = &mut self.listed[at as usize];
        if *before == 0 {
            *before = std::mem::replace(&mut self.first, at + 1);
        }
    }

    /// Takes a place from the list.
    fn take(&mut self) -> Option<u32> {
        if self.first == LAST {
            return None;
        }
        let at = self.first - 1;
        self.first = std::mem::take(&mut self.listed[at as usize]);
        Some(at)
    }
}

impl MigratedFlow {
    fn wide(&self, side: Side) -> Option<&Direction> {
        self.more.as_ref()?.wide[side].as_ref()
    }

    /// Its record, with packets and octets; nothing if it is between two of them.
    fn records(&self) -> RecordTotals {
        if self.place.head.bits().has(Bits::WAITING) {
            return RecordTotals::default();
        }
        let mut records = RecordTotals { flows: 1, ..RecordTotals::default() };
        for side in [0, 1] {
            let narrow = self.place.sides[side].direction();
            let direction = self.wide(side).unwrap_or(&narrow);
            records.packets += direction.packets;
            records.bytes += direction.frame_bytes;
        }
        records
    }
}

impl<I: Index, const FIELDS: u8> Meter<I, FIELDS> {
    /// Begins to look for the flows of some parts, which are to move to another meter. From now on [`Meter::process`] looks at a
    /// few places beside each group of packets, and [`Meter::advance_time`] at a quarter of them, until it has [`Meter::migration_ready`] all.
    /// Another search is given up.
    pub fn start_migration(&mut self, parts: BucketSet) {
        self.cancel_migration();
        let search = &mut self.search;
        (search.on, search.parts, search.until) = (true, parts, self.used);
    }

    /// Whether a search is under way that has seen every place, so that [`Meter::migrate_out`] takes no longer than what it finds.
    pub fn migration_ready(&self) -> bool {
        self.search.on && self.search.from >= self.search.until
    }

    /// Gives a search up.
    pub fn cancel_migration(&mut self) {
        while self.search.take().is_some() {}
        (self.search.on, self.search.from, self.search.until) = (false, 0, 0);
    }

    /// Takes every flow of the parts that are sought out of this meter, and hands it over with its part. None of them may come to
    /// this meter afterwards but by [`Meter::migrate_in`]: a packet of one of them would begin another record. The search is over then.
    /// Looks first at what was not looked at yet. Without a search it does nothing.
    pub fn migrate_out(&mut self, mut hand_over: impl FnMut(u16, MigratedFlow)) {
        self.look(u32::MAX);
        let mut found = std::mem::take(&mut self.found);
        loop {
            // Many at a time, so that their memory is fetched together.
            found.extend(std::iter::from_fn(|| self.search.take()).take(GROUP).map(|at| (at, 0)));
            if found.is_empty() {
                break;
            }
            found.iter().for_each(|&(at, _)| prefetch(&self.places[at as usize].head));
            for (at, hash) in &mut found {
                let place = &self.places[*at as usize];
                *hash = self.hash_of(*at);
                self.index.prefetch(*hash);
                place.sides.iter().for_each(prefetch);
                if FIELDS & CONVERSATIONS != 0 && place.head.protocol() == TCP {
                    fetch(&self.tcp[*at as usize]);
                }
            }
            for (at, hash) in found.drain(..) {
                // It may have ended since, and another flow have begun there.
                let part = part_of(hash);
                if !self.places[at as usize].head.is_free() && self.search.parts.contains(part) {
                    hand_over(part, self.take_out(at, hash));
                }
            }
        }
        self.found = found;
        self.cancel_migration();
    }

    /// Takes in a flow that another meter released: one of the same secret, key and fields. From now on it goes on as if it had
    /// been here from the beginning, whichever of both is ahead in time; until now no packet of it may have come here.
    /// If there is no room for it, or for what it has beyond the ordinary, its record ends now, for lack of resources; if there
    /// is none for what only TCP analysis has to know, the record says so.
    pub fn migrate_in(&mut self, moved: MigratedFlow, out: &mut Vec<FlowRecord>) {
        if !self.started {
            self.expect(moved.clock.newest_ns, moved.interface);
        }
        let wide = [0, 1].into_iter().filter(|&side| moved.wide(side).is_some()).count();
        let room = if self.wide.has_room_for(wide) { self.room(None, out) } else { None };
        match room {
            Some(at) => self.put_in(at, moved),
            None => self.end_moved(&moved, out),
        }
    }

    /// A flow has come into a place during a search: if its part is sought, the place is listed.
    #[cold]
    #[inline(never)]
    pub(super) fn note_opened(&mut self, at: u32, hash: u64) {
        if self.search.parts.contains(part_of(hash)) {
            self.search.list(at);
        }
    }

    /// Looks at some of the places beside the packets.
    #[cold]
    #[inline(never)]
    pub(super) fn look_beside(&mut self) {
        self.look(LOOKED);
    }

    /// Looks at the next places, if there is a search that has not seen them, and lists those of a part that is sought.
    pub(super) fn look(&mut self, places: u32) {
        let from = self.search.from;
        let until = self.search.until.min(from.saturating_add(places));
        for at in from..until {
            if !self.places[at as usize].head.is_free() && self.search.parts.contains(part_of(self.hash_of(at))) {
                self.search.list(at);
            }
        }
        self.search.from = until;
    }

    fn take_out(&mut self, at: u32, hash: u64) -> MigratedFlow {
        let place = self.places[at as usize];
        let bits = place.head.bits();
        let (mut connection, mut troubles) = (Connection::NEW, TcpAnomalies::default());
        let mut unanalysed = false;
        if self.is_connection(at) {
            std::mem::swap(&mut connection, &mut self.tcp[at as usize]);
            unanalysed = self.unanalysed.has(at) || place.head.began_ns < self.whole_from_ns;
            if unanalysed {
                // What is known of it is not whole.
                connection.reset(&mut self.room);
                connection = Connection::NEW;
            }
            troubles = connection.detach_anomalies(&mut self.room);
            self.unanalysed.clear(at);
        }
        let inside = self.annex.copy(at as usize, bits);
        let wide = if bits.has(Bits::WIDE) { [0, 1].map(|side| self.wide.take(at, side)) } else { [None; 2] };
        let rare = inside.is_some() || wide.iter().any(Option::is_some);
        let moved = MigratedFlow {
            place,
            connection,
            troubles,
            extra: self.extras.get(at as usize).copied().unwrap_or(Extra::NONE),
            clock: self.clock,
            interface: self.annex.usual_interface(),
            unanalysed,
            more: rare.then(|| Box::new(More { inside, wide })),
        };
        let RecordTotals { flows, packets, bytes } = moved.records();
        self.live.flows -= flows;
        self.live.packets -= packets;
        self.live.bytes -= bytes;
        self.vacate(at, hash);
        moved
    }

    fn put_in(&mut self, at: u32, moved: MigratedFlow) {
        self.live.merge(moved.records());
        let MigratedFlow { mut place, mut connection, troubles, extra, clock, interface, unanalysed, more } = moved;
        let (inside, wide) = more.map_or((None, [None; 2]), |more| (more.inside, more.wide));
        for (side, direction) in wide.into_iter().enumerate() {
            if let Some(direction) = direction {
                self.wide.put(at, side, direction);
            }
        }
        let head = &mut place.head;
        head.began_ns = self.clock.translate(head.began_ns, &clock);
        head.touched_ns = self.clock.translate(head.touched_ns, &clock);
        let mut bits = head.bits();
        if !bits.has(Bits::WAITING) {
            if unanalysed {
                self.unanalysed.set(at);
            }
            self.annex.put(at as usize, &mut bits, inside, interface);
        }
        head.set_bits(bits);
        self.places[at as usize] = place;
        if let Some(own) = self.extras.get_mut(at as usize) {
            *own = extra;
        }
        if self.is_connection(at) {
            connection.attach_anomalies(troubles, &mut self.room);
            self.tcp[at as usize] = connection;
        }
        let hash = self.hash_of(at);
        self.index.insert(hash, at);
        self.set_due(at);
        if self.search.on {
            self.note_opened(at, hash);
        }
    }

    /// Hands out the record of a flow for which there is no room.
    fn end_moved(&self, moved: &MigratedFlow, out: &mut Vec<FlowRecord>) {
        let head = &moved.place.head;
        if head.bits().has(Bits::WAITING) {
            return;
        }
        let mut flow = FlowRecord::NONE;
        let initiator = head.introduce(&mut flow);
        let closing = head.bits().has(Bits::CLOSING);
        flow.end_reason = if closing { EndReason::EndOfFlow } else { EndReason::LackOfResources };
        let inside = moved.more.as_ref().and_then(|more| more.inside.as_ref());
        flow.interface = inside.map_or(moved.interface, Inside::interface);
        for (side, direction) in [(initiator, &mut flow.forward), (1 - initiator, &mut flow.reverse)] {
            *direction = moved.wide(side).copied().unwrap_or_else(|| moved.place.sides[side].direction());
            if direction.packets > 0 {
                head.describe(side, direction);
                if let Some(inside) = inside {
                    inside.describe(side, direction);
                }
            }
        }
        if moved.unanalysed {
            flow.approximate.0 |= Approximate::UNANALYSED;
        } else if FIELDS & CONVERSATIONS != 0 && head.protocol() == TCP {
            let packets = [flow.forward.packets, flow.reverse.packets];
            let report = |side, packets| moved.connection.report_detached(side, packets, &moved.troubles);
            flow.tcp = Some([report(initiator, packets[0]), report(1 - initiator, packets[1])]);
        }
        out.push(flow);
    }
}
