//! The meter: one packet at a time into the record of its flow (`docs/metering.md` section 5).
//!
//! ```text
//! for each 64 packets:
//!     hash their keys                              -> fetch the buckets of the index
//!     look for their tags in the buckets           -> fetch the records they lead to
//!     for each: advance the clock; known and still of that flow -> enter into its record   (the hot path: `enter`)
//!                                  else            -> find room, open a record, `add`      (`enter_other`)
//!     the hand passes over the next places         -> end what is due
//! ```
//! How records end stands in `meter/ending.rs`, where new flows find room in `meter/room.rs`, and how flows move to another meter
//! in `meter/moving.rs`.
//!
//! A *place* holds a flow: its key, and the record that is exported, if it has one at the moment. The three passes let
//! the memory of 64 packets be fetched at the same time; what the first two saw decides nothing.

mod ending;
mod moving;
mod room;

pub use moving::MigratedFlow;

use crate::bounded::list;
use crate::clock::Clock;
use crate::detail::{Detail, Marks, Newcomers};
use crate::fragments::Fragments;
use crate::hash::KeyHasher;
use crate::key::{Extra, Key, Side};
use crate::labels::Annex;
use crate::lanes::{self, Lanes, prefetch};
use crate::memory::Memory;
use crate::overflow::Overflow;
use crate::place::{Bits, Narrow, Place};
use crate::wide::Wide;
use crate::{ALL, Approximate, CONVERSATIONS, EndReason, FlowRecord, Hpc, Index, Instructions, LABELS, Tuning};
use moving::Search;
use std::io;
use weir_ledger::{PacketAnomaly, ReasonCounters, RecordTotals};
use weir_packet::{Flags, Packet};
use weir_tcp::{AnomalyPool, Connection};

/// Packets after which the hand moves, and most packets whose memory is fetched together.
const GROUP: usize = 64;
/// Places that the hand passes over at a time.
const SWEPT: usize = 256;
/// A tick for a place that is not in use: later than any.
const NEVER: u32 = u32::MAX;
const TCP: u8 = 6;
/// Directions in trouble that there is room for: half as many as there are places, but no fewer and no more than these.
const TROUBLED: [usize; 2] = [1 << 16, 1 << 22];
/// Places that a table may have.
const MOST: u32 = 1 << 31;

/// What distinguishes flows besides network, addresses, ports and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Both VLAN identifiers.
    pub vlan: bool,
    /// The interface.
    pub interface: bool,
    /// The tunnel's type and identifier.
    pub tunnel: bool,
    /// One-way flows: the two directions are two records.
    pub unidirectional: bool,
}

/// What happens to a packet of a new flow when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheFullPolicy {
    /// Sum it into an overflow record.
    #[default]
    Overflow,
    /// End the record that has been idle for longest among the next 16 places.
    EvictOldestIdle,
    /// Count it and drop it.
    Drop,
}

/// What the meter is told at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Records in the table, at least 1.
    pub flows: u32,
    /// Idle timeout, ns.
    pub idle_timeout_ns: u64,
    /// Active timeout, ns.
    pub active_timeout_ns: u64,
    /// The flow key.
    pub key: KeyOptions,
    /// What a full table does.
    pub policy: CacheFullPolicy,
    /// Secret of the hash; `None` takes one from the operating system. Records do not depend on it.
    pub secret: Option<u64>,
    /// How it uses the machine.
    pub tuning: Tuning,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            idle_timeout_ns: 120_000_000_000,
            active_timeout_ns: 300_000_000_000,
            key: KeyOptions::default(),
            policy: CacheFullPolicy::Overflow,
            secret: None,
            tuning: Tuning::default(),
        }
    }
}

/// What the meter counts beside its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records opened, overflow records included.
    pub created: u64,
    /// Packets dropped because the table was full.
    pub dropped_packets: u64,
    /// Their octets on the wire.
    pub dropped_bytes: u64,
    /// Unattributed fragments, steps back of the clock, packets in overflow records, flows evicted.
    pub anomalies: ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
}

impl KeyOptions {
    /// Addresses, ports and protocol; both directions in one record.
    pub(crate) const USUAL: Self = Self { vlan: false, interface: false, tunnel: false, unidirectional: false };

    /// Whether anything is asked for beyond addresses, ports and protocol.
    pub(crate) fn more(self) -> bool {
        self.vlan || self.interface || self.tunnel
    }
}

/// What the first two passes found out about a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    hash: u64,
    /// As in [`Key`].
    rest: u64,
    side: Side,
    /// Where the index has its hash.
    area: u32,
    /// The place that probably is its flow's.
    likely: u32,
}

/// The meter. `I` is the index of its table; `FIELDS` are the field groups it fills (all of them, but for measuring).
#[derive(Debug)]
pub struct Meter<I = Hpc, const FIELDS: u8 = ALL> {
    config: Config,
    instructions: Instructions,
    counters: Counters,
    live: RecordTotals,
    clock: Clock,
    /// Whether there was a packet.
    started: bool,
    hash: KeyHasher,
    index: I,
    places: Memory<Place>,
    /// What TCP analysis knows of the flows in the places; of other protocols nothing, and untouched.
    tcp: Memory<Connection>,
    room: AnomalyPool,
    /// Of keys with more than addresses, ports and protocol; else empty.
    extras: Memory<Extra>,
    /// Per place a tick of the clock before which nothing is due there.
    due: Memory<u32>,
    /// Where ticks are counted from.
    ticks_from_ns: u64,
    /// Places that were used and are free; the last one is taken first.
    free: Vec<u32>,
    /// Places that were ever used: those below.
    used: u32,
    /// The place that is looked at next for being due.
    hand: u32,
    /// Places found due and their hashes, kept for its memory.
    found: Vec<(u32, u64)>,
    /// Places that the hand will probably find due next time.
    coming: Vec<u32>,
    annex: Annex,
    wide: Wide,
    fragments: Fragments,
    overflow: Overflow,
    search: Search,
    detail: Detail,
    /// Places of which TCP analysis left out a packet of the record.
    unanalysed: Marks,
    /// By the clock: a connection whose record began before may have had packets that TCP analysis never saw; without analysis all of them.
    whole_from_ns: u64,
    newcomers: Newcomers,
}

impl Meter {
    /// Takes all the memory it will ever use; the system provides pages as they are first touched.
    ///
    /// # Panics
    /// If the system has no room for that much, see [`Meter::try_new`].
    pub fn new(config: Config) -> Self {
        Self::try_new(config).unwrap_or_else(|error| panic!("no memory for {} flows: {error}", config.flows))
    }

    /// Octets of memory that [`Meter::try_new`] takes: [`Meter::memory_bytes`], [`Meter::tcp_memory_bytes`],
    /// [`Meter::tunnel_memory_bytes`] and [`Meter::migration_memory_bytes`] together. The system gives pages when they are touched.
    pub fn memory_bytes_for(config: &Config) -> usize {
        let flows = config.flows.clamp(1, MOST) as usize;
        let extra = if config.key.more() { size_of::<Extra>() } else { 0 };
        let of_table = size_of::<Place>() + 2 * size_of::<u32>() + extra + size_of::<Connection>();
        let fixed = Wide::octets() + Fragments::octets() + Overflow::octets_for() + Newcomers::octets();
        let annex: usize = Annex::octets_for(flows).iter().sum();
        Hpc::<10, 1>::octets_for(flows)
            + flows * of_table
            + annex
            + AnomalyPool::size_bytes_for(troubled(flows))
            + Search::octets_for(flows)
            + Marks::octets_for(flows)
            + fixed
    }
}

/// Directions in trouble for which there is room beside so many places.
fn troubled(flows: usize) -> usize {
    (flows / 2).clamp(TROUBLED[0], TROUBLED[1]).min(2 * flows)
}

impl<I: Index, const FIELDS: u8> Meter<I, FIELDS> {
    /// The same with any index and fields.
    ///
    /// # Errors
    /// The system has no room for that much.
    pub fn try_new(config: Config) -> io::Result<Self> {
        let flows = config.flows.clamp(1, MOST);
        let tuning = Tuning { prefetch_packets: config.tuning.prefetch_packets.clamp(1, GROUP), ..config.tuning };
        let config = Config { flows, tuning, ..config };
        let best = Instructions::best();
        let (flows, pages) = (flows as usize, config.tuning.pages);
        let hash = KeyHasher::new(config.secret);
        let free = list(flows)?;
        Ok(Self {
            config,
            instructions: config.tuning.instructions.filter(|set| set.is_there()).unwrap_or(best),
            counters: Counters::default(),
            live: RecordTotals::default(),
            clock: Clock::default(),
            started: false,
            index: I::new(flows, pages)?,
            places: Memory::new(flows, pages)?,
            tcp: Memory::new(flows, pages)?,
            room: AnomalyPool::new(troubled(flows))?,
            extras: Memory::new(if config.key.more() { flows } else { 0 }, pages)?,
            due: Memory::new(flows, pages)?,
            ticks_from_ns: Clock::default().now_ns,
            free,
            used: 0,
            hand: 0,
            found: list(SWEPT)?,
            coming: list(SWEPT)?,
            annex: Annex::new(flows)?,
            wide: Wide::new()?,
            fragments: Fragments::new(hash.random())?,
            search: Search::new(flows)?,
            overflow: Overflow::new(hash.random())?,
            detail: Detail::ALL,
            unanalysed: Marks::new(flows)?,
            whole_from_ns: 0,
            newcomers: Newcomers::new()?,
            hash,
        })
    }

    /// Enters a burst; records that end are appended to `out`.
    pub fn process(&mut self, burst: &[Packet], out: &mut Vec<FlowRecord>) {
        if let Some(first) = burst.first()
            && !self.started
        {
            self.start(first);
        }
        // Two functions, so that the usual one is not the worse for the other.
        if self.detail.tcp_analysis {
            lanes::run(self.instructions, Absorb::<_, FIELDS, true> { meter: self, burst, out });
        } else {
            lanes::run(self.instructions, Absorb::<_, FIELDS, false> { meter: self, burst, out });
        }
    }

    /// The first packet of all.
    #[cold]
    fn start(&mut self, first: &Packet) {
        self.started = true;
        self.expect(first.time_ns, first.interface);
        // It may be older than flows that were adopted before.
        self.clock.set(first.time_ns);
    }

    /// What time it is, and what interface is the usual one, as long as there is nothing to tell by.
    fn expect(&mut self, time_ns: u64, interface: u32) {
        if self.used == 0 {
            self.clock.newest_ns = time_ns;
            self.annex.set_usual_interface(interface);
        }
    }

    /// Ends every record: call at the end of input.
    pub fn drain(&mut self, out: &mut Vec<FlowRecord>) {
        while self.drain_up_to(usize::MAX, out) {}
    }

    /// Ends up to `limit` records, so that draining needs no memory for all of them at once. Whether any may be left.
    /// Meant for the end: what is absorbed in between finds less room, as places that are free are forgotten.
    pub fn drain_up_to(&mut self, limit: usize, out: &mut Vec<FlowRecord>) -> bool {
        let enough = out.len().saturating_add(limit);
        self.free.clear();
        while out.len() < enough && self.used > 0 {
            let at = self.used - 1;
            if (at as usize).is_multiple_of(GROUP) {
                self.fetch_buckets(at.saturating_sub(GROUP as u32)..at);
            }
            if !self.places[at as usize].head.is_free() {
                let hash = self.hash_of(at);
                if !self.end_if_due(at, hash, out) {
                    self.retire(at, hash, EndReason::Forced, out);
                }
            }
            // What lies above is not in use, so there is no need to remember it as free.
            self.free.clear();
            self.used = at;
            self.hand = 0;
        }
        while out.len() < enough
            && let Some(flow) = self.overflow.take()
        {
            self.hand_out(flow, out);
        }
        out.len() >= enough
    }

    /// How much it finds out from now on. With TCP analysis comes the promise that it sees every packet from now on; before that some
    /// may have been missing (as sampling does), so that connections known by then stay without it for their record.
    pub fn set_detail(&mut self, detail: Detail) {
        match (self.detail.tcp_analysis, detail.tcp_analysis) {
            (false, true) => self.whole_from_ns = self.clock.now_ns + 1,
            (true, false) => self.whole_from_ns = u64::MAX,
            _ => {}
        }
        self.detail = detail;
    }

    /// Records in the table now, with their packets and octets.
    pub fn live(&self) -> RecordTotals {
        self.live
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Octets of memory taken for the table and what belongs to it, but for TCP analysis, tunnels and flows that
    /// move, see [`Meter::tcp_memory_bytes`], [`Meter::tunnel_memory_bytes`] and [`Meter::migration_memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let [labels, _] = self.annex.octets();
        let table = self.index.memory() + self.places.octets() + self.extras.octets();
        let lists = self.due.octets() + self.free.capacity() * size_of::<u32>();
        table + lists + labels + Wide::octets() + Fragments::octets() + self.overflow.octets() + Newcomers::octets()
    }

    /// Octets of memory taken on top, of which the system provides what TCP connections touch: 256 octets for each, and
    /// 1.5 KiB for each direction that is in trouble.
    pub fn tcp_memory_bytes(&self) -> usize {
        self.tcp.octets() + self.room.size_bytes() + self.unanalysed.octets()
    }

    /// Octets of memory taken on top, of which the system provides what records of tunnelled packets touch.
    pub fn tunnel_memory_bytes(&self) -> usize {
        self.annex.octets()[1]
    }

    /// Octets of memory taken on top, of which the system provides what a search for flows that move touches: 4 for each of them.
    pub fn migration_memory_bytes(&self) -> usize {
        self.search.octets()
    }

    /// How many buckets the longest search in the table's index has to look at.
    pub fn longest_chain(&self) -> usize {
        self.index.longest_chain()
    }

    /// The instruction set in use.
    pub fn instructions(&self) -> Instructions {
        self.instructions
    }
}

/// [`Meter::process`] in the best instruction set, with TCP analysis or without.
struct Absorb<'a, I, const FIELDS: u8, const ANALYSE: bool> {
    meter: &'a mut Meter<I, FIELDS>,
    burst: &'a [Packet],
    out: &'a mut Vec<FlowRecord>,
}

impl<I: Index, const FIELDS: u8, const ANALYSE: bool> lanes::Work for Absorb<'_, I, FIELDS, ANALYSE> {
    #[inline(always)]
    fn run(self, lanes: impl Lanes) {
        let Self { meter, burst, out } = self;
        for group in burst.chunks(GROUP) {
            for together in group.chunks(meter.config.tuning.prefetch_packets) {
                // The usual key on a path of its own, where its options are constants.
                match meter.config.key {
                    KeyOptions::USUAL => meter.enter_together::<ANALYSE>(together, KeyOptions::USUAL, lanes, out),
                    options => meter.enter_together::<ANALYSE>(together, options, lanes, out),
                }
            }
            meter.sweep(out);
        }
    }
}

impl<I: Index, const FIELDS: u8> Meter<I, FIELDS> {
    /// Enters up to [`GROUP`] packets in three passes, with TCP analysis or without.
    #[inline(always)]
    fn enter_together<const ANALYSE: bool>(
        &mut self,
        packets: &[Packet],
        options: KeyOptions,
        lanes: impl Lanes,
        out: &mut Vec<FlowRecord>,
    ) {
        let mut spots = [Spot::default(); GROUP];
        for (spot, packet) in spots.iter_mut().zip(packets) {
            let (hash, side, rest) = self.hash.look(packet, options);
            *spot = Spot { hash, rest, side, area: self.index.prefetch(hash), likely: 0 };
        }
        let mut unknown = 0;
        for (spot, packet) in spots.iter_mut().zip(packets) {
            spot.likely = self.index.likely(spot.area, spot.hash, lanes).unwrap_or_else(|| {
                // Probably a new flow, which will take this place.
                unknown += 1;
                let next = self.next_free(unknown);
                if let Some(place) = self.places.get(next as usize) {
                    prefetch(&place.sides[1 - (spot.side & 1)]);
                }
                next
            });
            if let Some(place) = self.places.get(spot.likely as usize) {
                prefetch(&place.head);
                prefetch(&place.sides[spot.side & 1]);
            }
            if ANALYSE
                && FIELDS & CONVERSATIONS != 0
                && packet.protocol == TCP
                && let Some(connection) = self.tcp.get(spot.likely as usize)
            {
                prefetch(connection.hot_line(spot.side));
                if packet.control & (Packet::SYN | Packet::FIN | Packet::RST) != 0 {
                    fetch(connection);
                }
            }
        }
        self.live.packets += packets.len() as u64;
        self.live.bytes += packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum::<u64>();
        for (spot, packet) in spots.iter().zip(packets) {
            self.enter::<ANALYSE>(spot, packet, options, out);
        }
    }

    #[inline(always)]
    fn enter<const ANALYSE: bool>(
        &mut self,
        spot: &Spot,
        packet: &Packet,
        options: KeyOptions,
        out: &mut Vec<FlowRecord>,
    ) {
        self.advance_clock(packet.time_ns);
        let (side, likely) = (spot.side & 1, spot.likely);
        let key = Key::from_side(packet, side, spot.rest, options);
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) == 0
            && (FIELDS & LABELS == 0 || self.annex.is_plain(packet))
            && let Some(place) = self.places.get_mut(likely as usize)
            && place.head.is_ordinary(&key)
            && (!options.more() || self.extras[likely as usize] == key.extra)
            // A flow that came from another meter may have times ahead of the clock: it goes the other way.
            && self.clock.now_ns.wrapping_sub(place.head.began_ns) < self.config.active_timeout_ns
            && self.clock.now_ns.wrapping_sub(place.head.touched_ns) < self.config.idle_timeout_ns
            && let Some(gap) = place.usual_step(side, packet)
        {
            place.head.touched_ns = self.clock.now_ns;
            place.add_usual::<FIELDS>(side, gap, packet);
            if packet.control & (Packet::SYN | Packet::FIN | Packet::RST) != 0 {
                self.turn(likely, side, packet);
                self.analyse(likely, side, packet);
            } else if FIELDS & CONVERSATIONS != 0 && packet.protocol == TCP {
                if !ANALYSE {
                    self.unanalysed.set(likely);
                } else if !self
                    .tcp
                    .get_mut(likely as usize)
                    .is_some_and(|connection| connection.enter_fast(side, packet, &self.room))
                {
                    self.analyse(likely, side, packet);
                }
            }
        } else {
            self.enter_other(spot, packet, out);
        }
    }

    /// A packet that is a fragment, whose flow is not known or not where it was thought to be, that needs more than the
    /// usual, or that comes at a turn of its flow's life.
    #[inline(never)]
    fn enter_other(&mut self, spot: &Spot, packet: &Packet, out: &mut Vec<FlowRecord>) {
        let Spot { mut hash, mut side, mut rest, .. } = *spot;
        let options = self.config.key;
        let (mut packet, mut approximate) = (packet, 0);
        let with_ports;
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0 {
            let mut fragment = *packet;
            let known = if packet.flags.has(Flags::LOOKED_UP) {
                !packet.flags.has(Flags::FRAGMENT_LATER)
            } else {
                self.fragments.resolve(&mut fragment, self.clock.now_ns)
            };
            if !known {
                self.counters.anomalies.count(PacketAnomaly::FragmentUnattributed);
                approximate = Approximate::FRAGMENTS;
            }
            with_ports = fragment;
            packet = &with_ports;
            (hash, side, rest) = self.hash.look(packet, options);
        }
        let key = Key::from_side(packet, side, rest, options);
        let (places, extras) = (&self.places, &self.extras);
        let known = self.index.find(hash, |at| {
            let at = at as usize;
            places[at].head.is(&key) && extras.get(at).is_none_or(|extra| *extra == key.extra)
        });
        // A packet that no ordinary record takes opens none that would have to be a wide one.
        let is_wide = |at| self.wide.has(at, side);
        let refused = !Narrow::begins_with(packet) && self.wide.is_full() && !known.is_some_and(is_wide);
        let at = if refused {
            None
        } else {
            known.filter(|&at| self.still_of_flow(at, hash, packet, out)).or_else(|| {
                if !self.detail.small_flows && !self.newcomers.enter(hash) {
                    approximate |= Approximate::AGGREGATED;
                    return None;
                }
                self.admit(&key, hash, side, packet, out)
            })
        };
        let entered = at.is_some_and(|at| {
            let place = &mut self.places[at as usize];
            let plain = approximate == 0 && place.head.bits().0 & Bits::ODD == 0 && self.annex.is_plain(packet);
            if plain && place.add::<FIELDS>(side, packet) {
                place.head.touched_ns = self.clock.now_ns;
                self.turn(at, side, packet);
                return true;
            }
            self.add(at, side, approximate, packet)
        });
        match at {
            Some(at) if entered => self.analyse(at, side, packet),
            _ => self.refuse(packet, approximate, out),
        }
    }

    /// Enters a packet that was entered into a record into the connection that the record is of, if it is one.
    #[inline(never)]
    fn analyse(&mut self, at: u32, side: Side, packet: &Packet) {
        if FIELDS & CONVERSATIONS == 0 || packet.protocol != TCP {
            return;
        }
        if self.places[at as usize].head.began_ns < self.whole_from_ns {
            self.unanalysed.set(at);
        } else {
            self.tcp[at as usize].enter(side, packet, &mut self.room);
        }
    }

    #[inline(always)]
    fn advance_clock(&mut self, time_ns: u64) {
        if !self.clock.advance(time_ns) {
            self.counters.anomalies.count(PacketAnomaly::ClockWentBack);
        }
    }

    /// Enters a packet into a place that is ready for it, whatever it needs: labels, a wide record, the next record of
    /// a flow that goes on. False if it needs a wide record and there is no room for one.
    fn add(&mut self, at: u32, side: Side, approximate: u16, packet: &Packet) -> bool {
        let place = &mut self.places[at as usize];
        if place.head.bits().has(Bits::WAITING) {
            if FIELDS & CONVERSATIONS != 0 && packet.protocol == TCP && place.head.began_ns < self.whole_from_ns {
                self.tcp[at as usize].reset(&mut self.room);
            }
            place.head.set_bits(Bits(place.head.bits().0 & Bits::OF_THE_FLOW | Bits::SETTLED));
            place.head.began_ns = self.clock.now_ns;
            place.head.control = [0; 2];
            place.sides = [Narrow::NONE; 2];
            self.set_due(at);
            self.counters.created += 1;
            self.live.flows += 1;
        }
        let packets = self.packets(at);
        let (opens, begins) = (packets == [0; 2], packets[side] == 0);
        let place = &mut self.places[at as usize];
        let mut bits = place.head.bits();
        let is_wide = bits.has(Bits::WIDE) && self.wide.has(at, side);
        if is_wide || !place.add::<FIELDS>(side, packet) {
            let narrow = std::mem::replace(&mut place.sides[side], Narrow::NONE);
            if !self.wide.enter(at, side, || narrow.direction(), packet) {
                place.sides[side] = narrow;
                return false;
            }
            bits.0 |= Bits::WIDE;
            place.head.note(side, begins, packet);
        }
        bits.0 |= 1 << (Bits::SEEN + side as u32);
        bits.approximate_too(approximate);
        if bits.has(Bits::LABELLED) || (FIELDS & LABELS != 0 && !self.annex.is_plain(packet)) {
            let mixed = self.annex.enter(at as usize, side, &mut bits, opens, begins, packet);
            bits.approximate_too(mixed);
        }
        place.head.set_bits(bits);
        if !bits.has(Bits::CLOSING) {
            place.head.touched_ns = self.clock.now_ns;
            self.turn(at, side, packet);
        }
        true
    }

    /// Packets of both sides' records so far.
    fn packets(&self, at: u32) -> [u64; 2] {
        let place = &self.places[at as usize];
        let narrow = [0, 1].map(|side| place.sides[side].packets());
        if place.head.bits().has(Bits::WIDE) {
            return [0, 1].map(|side| narrow[side] + self.wide.packets(at, side));
        }
        narrow
    }

    /// What SYN, FIN and RST change: who began, and whether the flow has ended.
    #[inline(never)]
    fn turn(&mut self, at: u32, side: Side, packet: &Packet) {
        let head = &mut self.places[at as usize].head;
        let mut bits = head.bits();
        let one_way = self.config.key.unidirectional;
        let syn = packet.control & Packet::SYN != 0;
        if syn && !bits.has(Bits::SETTLED) && !one_way && head.endpoint(0) != head.endpoint(1) {
            let answers = packet.control & Packet::ACK != 0;
            let initiator = side as u16 ^ u16::from(answers);
            bits.0 = bits.0 & !(1 << Bits::INITIATOR) | initiator << Bits::INITIATOR | Bits::SETTLED;
        }
        if packet.protocol == TCP {
            if packet.control & Packet::FIN != 0 {
                bits.0 |= 1 << (Bits::FINS + side as u32);
            }
            let fins = bits.0 >> Bits::FINS & 3;
            if packet.control & Packet::RST != 0 || fins == 3 || (one_way && fins != 0) {
                bits.0 |= Bits::CLOSING;
            }
        }
        head.set_bits(bits);
        if bits.has(Bits::CLOSING) {
            self.set_due(at);
        }
    }
}

/// Begins to fetch all that is known of a connection.
#[inline(always)]
fn fetch(connection: &Connection) {
    let lines: &[[u64; 8]; 4] = bytemuck::must_cast_ref(connection);
    lines.iter().for_each(prefetch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::ipv4_mapped;

    #[test]
    fn memory_stays_as_it_was_taken_at_the_start() {
        let flows = 14 << 10;
        let config = Config { flows, policy: CacheFullPolicy::EvictOldestIdle, secret: Some(1), ..Config::default() };
        let mut meter = Meter::new(config);
        let lists = |meter: &Meter| [meter.free.capacity(), meter.found.capacity(), meter.coming.capacity()];
        let taken = |meter: &Meter| (meter.memory_bytes(), lists(meter));
        let before = taken(&meter);
        let mut out = Vec::new();
        for number in 0..20 * flows {
            let source = ipv4_mapped(number.to_be_bytes());
            meter.process(&[Packet { source, source_port: 1, protocol: 17, ..Packet::default() }], &mut out);
            out.clear();
        }
        assert_eq!((meter.live().flows, taken(&meter)), (u64::from(flows), before));
    }

    #[test]
    fn packets_between_two_parts_of_draining_are_metered() {
        for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop] {
            let config = Config { flows: 16, idle_timeout_ns: 1 << 30, policy, secret: Some(1), ..Config::default() };
            let mut meter = Meter::new(config);
            let (mut out, mut given) = (Vec::new(), 0);
            let mut give =
                |meter: &mut Meter, out: &mut Vec<FlowRecord>, numbers: std::ops::Range<u32>, time_ns: u64| {
                    for number in numbers {
                        let source = ipv4_mapped(number.to_be_bytes());
                        let packet = Packet { source, time_ns, frame_bytes: 60, protocol: 17, ..Packet::default() };
                        meter.process(&[packet], out);
                        given += 1;
                    }
                };
            // Eight places are free below four in use and one that is drained.
            give(&mut meter, &mut out, 0..8, 0);
            give(&mut meter, &mut out, 8..12, 1 << 29);
            give(&mut meter, &mut out, 12..13, 5 << 28);
            assert_eq!(out.len(), 8);
            assert!(meter.drain_up_to(1, &mut out));
            give(&mut meter, &mut out, 20..200, 5 << 28);
            meter.drain(&mut out);
            let metered: u64 = out.iter().map(FlowRecord::packets).sum();
            assert_eq!(metered + meter.counters().dropped_packets, given);
            assert_eq!(meter.live(), RecordTotals::default());
        }
    }

    #[test]
    fn what_the_meter_says_it_will_take_is_what_it_takes() {
        for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop] {
            for (flows, vlan) in [(0, false), (1, true), (1000, false), (100_001, true), (1 << 20, false)] {
                let key = KeyOptions { vlan, ..KeyOptions::default() };
                let config = Config { flows, policy, key, ..Config::default() };
                let meter = Meter::new(config);
                let on_top = [meter.tcp_memory_bytes(), meter.tunnel_memory_bytes(), meter.migration_memory_bytes()];
                let taken = meter.memory_bytes() + on_top.iter().sum::<usize>();
                assert_eq!(<Meter>::memory_bytes_for(&config), taken, "{flows} {policy:?}");
            }
        }
    }

    #[test]
    fn a_flow_takes_at_most_256_octets() {
        for flows in [1 << 20, 10_000_000] {
            let meter = Meter::new(Config { flows, ..Config::default() });
            let per_flow = meter.memory_bytes() as f64 / f64::from(flows);
            assert!(per_flow <= 256.0, "{per_flow} octets per flow of {flows}");
        }
    }
}
