//! The first packets of a conversation, with what was done to them.
//!
//! ```text
//! number -> kind -> messages of both sides -> segments or datagrams -> a fault -> packets
//! ```
//! All of it follows from the number of the conversation, so it is made again for each packet and
//! takes no memory between packets.

use super::kind::{Kind, Shares};
use super::messages::{Flight, Form, Messages};
use super::quic;
use crate::expected_application::Fact;
use crate::frame::segment_bytes;
use crate::random::{Fraction, Random, mix64};
use arrayvec::ArrayVec;

/// Segments that a flight is cut into, before those that are too long are cut again.
const MAX_CUTS: u64 = 4;
/// Octets of each of two packets that overlap with a third one at most.
const MAX_OVERLAP: u64 = 500;

/// What happens to the segments or datagrams of one flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// One is not captured, although it arrived.
    Missing,
    /// One is lost before the capture point, and retransmitted after the others.
    Loss,
    /// One is captured twice.
    Duplicate,
    /// Octets of two of them come once more, between them.
    Overlap,
    /// One comes again with other octets.
    Conflict,
    /// Two are exchanged.
    Reorder,
}

impl Fault {
    pub(super) const ALL: [(Self, &str); 6] = [
        (Self::Missing, "missing"),
        (Self::Loss, "loss"),
        (Self::Duplicate, "duplicate"),
        (Self::Overlap, "overlap"),
        (Self::Conflict, "conflict"),
        (Self::Reorder, "reorder"),
    ];
}

/// A packet of the opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) flight: u8,
    /// Its octets in the stream of its side.
    pub(super) start: u16,
    pub(super) end: u16,
    /// The octets are other ones than those that came first.
    is_altered: bool,
    /// A retransmission after a timeout.
    pub(super) is_late: bool,
    /// Packet number of QUIC.
    number: u8,
}

/// The settings that all openings follow.
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) shares: Shares,
    /// Fraction of first flights of clients that are cut.
    pub(super) split: Fraction,
    /// Fraction of ClientHellos that are cut into records or frames.
    pub(super) records: Fraction,
    /// Fractions of conversations with each fault.
    pub(super) faults: [Fraction; Fault::ALL.len()],
}

/// The opening of a conversation, in memory that is used again for others.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) messages: Messages,
    pub(super) packets: ArrayVec<Packet, 64>,
    pub(super) is_split: bool,
    pub(super) fault: Option<Fault>,
    /// The packet that shows the fault.
    fault_at: usize,
    /// Side, begin and end of the octets that are missing.
    missing: Option<(u8, u16, u16)>,
    /// Octets of a packet.
    octets: Vec<u8>,
    frames: Vec<u8>,
}

fn random_of(settings: &Settings, number: u64) -> Random {
    Random::new(mix64(settings.seed ^ mix64(number)))
}

/// Returns the kind of a conversation.
pub(super) fn kind(settings: &Settings, number: u64) -> Kind {
    settings.shares.kind(&mut random_of(settings, number))
}

impl Opening {
    /// Makes the opening of the conversation with this number.
    pub(super) fn make(&mut self, settings: &Settings, number: u64, ipv6: bool) {
        let mut random = random_of(settings, number);
        let kind = settings.shares.kind(&mut random);
        let wants_split = random.chance(settings.split);
        let wants_records = random.chance(settings.records);
        let fault = random.weighted(Fraction::ALL.0, settings.faults.map(|share| share.0)).map(|at| Fault::ALL[at].0);
        let mut cuts = Random::new(random.next_u64());
        self.messages.make(kind, number, wants_records, &mut random);

        self.packets.clear();
        (self.is_split, self.fault, self.missing) = (false, None, None);
        let damageable = self.messages.flights.iter().filter(|flight| flight.facts_end > 0).count();
        let damaged = (damageable > 0).then(|| cuts.below(damageable as u64) as usize);
        for at in 0..self.messages.flights.len() {
            let flight = self.messages.flights[at];
            let fault = fault.filter(|fault| damaged == Some(at) && is_possible(*fault, flight.form, kind));
            let can_be_cut = flight.facts_end > 0 && (kind.is_tcp() || flight.form == Form::Initial);
            let is_split = wants_split && at == 0 && can_be_cut;
            let mut packets = cut(at as u8, &flight, can_be_cut && (is_split || fault.is_some()), ipv6, &mut cuts);
            self.is_split |= is_split && packets.len() > 1;
            if let Some(fault) = fault
                && (packets.len() > 1 || !can_be_cut)
            {
                self.fault = Some(fault);
                let (at, missing) = apply(fault, &flight, &mut packets, &mut cuts);
                (self.fault_at, self.missing) = (self.packets.len() + at, missing);
            }
            self.packets.extend(packets);
        }
    }

    pub(super) fn flight(&self, packet: &Packet) -> &Flight {
        &self.messages.flights[usize::from(packet.flight)]
    }

    /// Octets of the other side that were sent before the flight of a packet.
    pub(super) fn acknowledged(&self, packet: &Packet) -> u16 {
        let side = self.flight(packet).side;
        let before = self.messages.flights[..usize::from(packet.flight)].iter();
        before.filter(|flight| flight.side != side).map(|flight| flight.end).max().unwrap_or(0)
    }

    /// Makes the payload of a packet.
    pub(super) fn payload(&mut self, packet: &Packet) -> &[u8] {
        let flight = self.messages.flights[usize::from(packet.flight)];
        let stream = &self.messages.streams[usize::from(flight.side)];
        let octets = &stream[usize::from(packet.start)..usize::from(packet.end)];
        self.octets.clear();
        let ids = &self.messages.ids;
        let mut random = Random::new(u64::from_be_bytes(ids.server) ^ u64::from(packet.start));
        match flight.form {
            Form::Plain => {
                self.octets.extend(octets);
                if packet.is_altered {
                    self.octets.iter_mut().for_each(|octet| *octet ^= 0x15);
                }
            }
            Form::Initial => {
                self.frames.clear();
                if flight.side == 1 {
                    // ACK of the first packets
                    let largest = self.packets.iter().filter(|packet| packet.flight == 0).count() as u8 - 1;
                    self.frames.extend([2, largest, 0, 0, largest]);
                }
                crypto_frames(packet.start.into(), octets, self.messages.has_records, &mut self.frames);
                quic::initial(ids, flight.side, packet.number, &mut self.frames, &mut self.octets);
                if flight.side == 1 {
                    quic::handshake(ids, 1, None, &mut random, &mut self.octets);
                }
            }
            Form::Handshake => quic::handshake(ids, flight.side, Some(60), &mut random, &mut self.octets),
        }
        &self.octets
    }

    /// What the first packets of the opening, as many as were sent, have of what was done to it.
    pub(super) fn events(&self, sent: usize) -> impl Iterator<Item = &'static str> {
        let is_whole = sent == self.packets.len();
        let of_first_flight = |packets: &[Packet]| packets.iter().filter(|packet| packet.flight == 0).count();
        let first_flight = of_first_flight(&self.packets[..sent]);
        let is_split = self.is_split && (is_whole || first_flight > 1);
        let has_records = self.messages.has_records && first_flight == of_first_flight(&self.packets);
        let fault = self.fault.filter(|_| is_whole || sent > self.fault_at);
        let name = Fault::ALL.into_iter().find(|(known, _)| fault == Some(*known)).map(|(_, name)| name);
        [is_split.then_some("split"), has_records.then_some("records"), name].into_iter().flatten()
    }

    /// Whether the first packets, as many as were sent, show a fact, and whether they would with
    /// the one that is missing. A fact may be in several places.
    pub(super) fn shows(&self, fact: Fact, sent: usize) -> [bool; 2] {
        let places = || self.messages.facts.iter().filter(|place| place.0 == fact);
        let packets = self.packets[..sent].iter().map(|packet| (self.flight(packet).side, packet.start, packet.end));
        let packets: ArrayVec<_, 65> = packets.collect();
        let mut with_missing = packets.clone();
        with_missing.extend(self.missing.filter(|_| sent > 0));
        [packets, with_missing].map(|packets| {
            places().any(|&(_, side, end)| {
                let mut reached = 0;
                while let Some(next) =
                    packets.iter().find(|next| next.0 == side && next.1 <= reached && reached < next.2)
                {
                    reached = next.2;
                }
                reached >= end
            })
        })
    }
}

/// A datagram of DNS or of an unknown protocol is whole, and has no place in a stream.
fn is_possible(fault: Fault, form: Form, kind: Kind) -> bool {
    match fault {
        Fault::Missing | Fault::Duplicate => true,
        Fault::Conflict => kind.is_tcp(),
        Fault::Loss | Fault::Overlap | Fault::Reorder => kind.is_tcp() || form == Form::Initial,
    }
}

/// Cuts a flight into packets: where it is too long, and if asked for at random positions among the
/// octets that facts depend on.
fn cut(at: u8, flight: &Flight, at_random: bool, ipv6: bool, random: &mut Random) -> ArrayVec<Packet, 20> {
    let most = match flight.form {
        Form::Initial => quic::MAX_CRYPTO as u16,
        _ => segment_bytes(ipv6),
    };
    let mut ends: ArrayVec<u16, { MAX_CUTS as usize + 1 }> = ArrayVec::new();
    let octets = flight.facts_end.saturating_sub(flight.start);
    if at_random && octets >= 2 {
        for _ in 0..1 + random.below(MAX_CUTS - 1) {
            ends.push(flight.start + 1 + random.below(u64::from(octets) - 1) as u16);
        }
    }
    ends.push(flight.end);
    ends.sort_unstable();
    let mut packets = ArrayVec::new();
    let mut start = flight.start;
    for end in ends {
        while start < end || (start == end && packets.is_empty()) {
            let cut = end.min(start + most);
            let number = packets.len() as u8;
            packets.push(Packet { flight: at, start, end: cut, is_altered: false, is_late: false, number });
            if start == cut {
                break;
            }
            start = cut;
        }
    }
    packets
}

/// Damages the packets of a flight. Returns the packet that shows it, and what is missing.
fn apply(
    fault: Fault,
    flight: &Flight,
    packets: &mut ArrayVec<Packet, 20>,
    random: &mut Random,
) -> (usize, Option<(u8, u16, u16)>) {
    // Those that hold octets that facts depend on; the last of them completes the message.
    let count = packets.iter().filter(|packet| packet.start < flight.facts_end).count() as u64;
    let any = random.below(count) as usize;
    let before_last = random.below((count - 1).max(1)) as usize;
    match fault {
        Fault::Missing => {
            let missing = packets.remove(any);
            return (any, Some((flight.side, missing.start, missing.end)));
        }
        Fault::Loss => {
            let mut lost = packets.remove(before_last);
            (lost.is_late, lost.number) = (true, packets.len() as u8 + 1);
            packets.push(lost);
            // The next one shows the gap.
            return (before_last, None);
        }
        Fault::Duplicate => {
            packets.insert(any + 1, packets[any]);
            return (any + 1, None);
        }
        Fault::Overlap => {
            let [before, next] = [packets[before_last], packets[before_last + 1]];
            let octets = |packet: Packet, random: &mut Random| {
                1 + random.below(u64::from(packet.end - packet.start).min(MAX_OVERLAP)) as u16
            };
            let (start, end) = (before.end - octets(before, random), next.start + octets(next, random));
            packets.insert(before_last + 1, Packet { start, end, number: packets.len() as u8, ..before });
        }
        Fault::Conflict => {
            let again = Packet { is_altered: true, ..packets[before_last] };
            packets.insert(before_last + 1, again);
        }
        Fault::Reorder => packets.swap(before_last, before_last + 1),
    }
    (before_last + 1, None)
}

/// Writes octets of the handshake as one CRYPTO frame, or as three in another order.
fn crypto_frames(start: usize, octets: &[u8], is_cut: bool, out: &mut Vec<u8>) {
    let [first, second] = [octets.len() / 3, octets.len() / 2];
    if !is_cut {
        return quic::crypto(start, octets, out);
    }
    quic::crypto(start + first, &octets[first..second], out);
    // PING
    out.push(1);
    quic::crypto(start + second, &octets[second..], out);
    quic::crypto(start, &octets[..first], out);
}
