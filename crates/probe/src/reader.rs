//! The first half of a pipeline: frames in, packets out, and an account of those that become none.
//!
//! ```text
//! burst of frames -> sample, if that is asked for or must be -> leave out what the filter does not keep -> decode each, or count why not -> packets
//! ```
//! Per packet it counts and decodes; it allocates nothing, takes no lock and makes no system call.

use crate::account::Account;
use crate::history::Look;
use crate::ladder::{Ladder, LevelSettings, Overload, Pressure};
use crate::sampler::Sampler;
use crate::self_traffic::SelfTrafficFilter;
use crate::settings::Settings;
use std::time::Instant;
use weir_capture::{BURST, Burst, FilterError, Frame, Input, LiveSource, Losses, POLL_TIMEOUT, PacketFilter, Source};
use weir_ledger::{Ledger, PacketAnomaly, RefusalReason};
use weir_packet::{AnomalySet, Network, Packet};

/// How often a live source is asked what it lost, by the time of its packets while they come in full bursts.
const LOOK_NS: u64 = POLL_TIMEOUT.as_nanos() as u64;

/// The packets of a burst.
pub(crate) type Packets = Box<[Packet; BURST]>;

/// Reads frames.
pub(crate) struct Reader {
    filter: Option<PacketFilter>,
    decode: weir_packet::DecodeOptions,
    layer2: bool,
    own: SelfTrafficFilter,
    /// What happened to frames. Those that became packets count as metered.
    pub ledger: Ledger,
    /// What the source has lost so far.
    losses: Losses,
    /// Time of the newest packet that was read, and of the one that was the newest at the last look.
    newest_ns: u64,
    looked_ns: u64,
    /// When that look was, if there was one.
    looked: Option<Instant>,
    /// The last burst was not full.
    waits: bool,
    /// If detail is given up under overload.
    ladder: Option<Ladder>,
    level: u8,
    /// One packet in so many is metered on any level.
    sample: u32,
    /// If not all packets are metered.
    sampler: Option<Sampler>,
    /// When the load was judged last, and what the account said then: packets read, and lost.
    judged_ns: u64,
    before: [u64; 2],
}

impl Reader {
    pub fn new(settings: &Settings) -> Self {
        let Settings { filter, decode, layer2, self_traffic: own, overload, sample_one_in: sample, .. } =
            settings.clone();
        let (ladder, level) = match overload {
            Overload::Drop => (None, 0),
            Overload::Shed => (Some(Ladder::new()), 0),
            Overload::Level(level) => (None, level),
        };
        let mut reader = Self {
            filter,
            decode,
            layer2,
            own,
            ledger: Ledger::default(),
            losses: Losses::default(),
            newest_ns: 0,
            looked_ns: 0,
            looked: None,
            waits: false,
            ladder,
            level: 0,
            sample: sample.max(1),
            sampler: None,
            judged_ns: 0,
            before: [0; 2],
        };
        reader.stand_on(level);
        (reader.ledger.overload.level, reader.ledger.overload.highest) = (level, level);
        reader
    }

    /// Takes over what can change while it runs.
    pub fn change(&mut self, settings: &Settings) {
        self.filter.clone_from(&settings.filter);
        self.own = settings.self_traffic.clone();
    }

    /// The account of this half.
    pub fn account(&self) -> Account {
        Account { ledger: self.ledger.clone(), ..Account::default() }
    }

    /// Link types for which the filter means nothing, each told once.
    pub fn filter_errors(&mut self) -> Vec<FilterError> {
        self.filter.as_mut().map_or_else(Vec::new, PacketFilter::take_errors)
    }

    /// Takes the next burst from a source: how many packets it became, and whether the source handed over less than it could;
    /// `None` at its end.
    ///
    /// # Errors
    /// As [`Source::fill`].
    #[inline]
    pub fn read(
        &mut self,
        source: &mut Input<'_>,
        packets: &mut Packets,
    ) -> Result<Option<(usize, bool)>, weir_capture::Error> {
        let mut burst = Burst::new();
        if !source.fill(&mut burst)? {
            return Ok(None);
        }
        self.waits = !burst.is_full();
        self.newest_ns = burst.last().map_or(self.newest_ns, |frame| frame.time_ns);
        self.thin_out(&mut burst);
        self.select(&mut burst);
        Ok(Some((self.decode(&burst, packets), self.waits)))
    }

    /// Whether it is time to look what a live source lost: before the next burst, so that the account of all that was read is whole.
    #[inline]
    pub fn is_time_to_look(&self) -> bool {
        self.looked.is_none_or(|looked| {
            self.newest_ns.abs_diff(self.looked_ns) >= LOOK_NS || self.waits && looked.elapsed() >= POLL_TIMEOUT
        })
    }

    /// Asks a live source what it lost. The octets of what nobody saw are not known.
    /// `queue_is_full`: a queue of ours has little room left.
    pub fn look(&mut self, source: &mut dyn LiveSource, queue_is_full: bool) -> Look {
        // Asked first: what is lost from here on is younger.
        let settled_ns = source.now_ns().max(self.newest_ns);
        let before = std::mem::replace(&mut self.losses, source.losses());
        let (losses, line) = (self.losses, &mut self.ledger.packets);
        let new = [losses.nic - before.nic, losses.kernel - before.kernel, losses.ring - before.ring];
        line.dropped_nic += new[0];
        line.dropped_kernel += new[1];
        line.dropped_ring += new[2];
        line.received += new.iter().sum::<u64>();
        let lost = line.dropped_nic + line.dropped_kernel + line.dropped_ring;
        // Asked last: what was lost meanwhile is told by the next look, and was there by then.
        let latest_ns = source.latest_ns();
        (self.looked_ns, self.looked) = (self.newest_ns, Some(Instant::now()));
        let stood = self.level;
        let now = [line.received - lost, lost];
        // Looks that the meter asks for may follow each other closely: the measures of a level need time to tell.
        if let Some(ladder) = &mut self.ladder
            && latest_ns.abs_diff(self.judged_ns) >= LOOK_NS / 2
        {
            self.judged_ns = latest_ns;
            let before = std::mem::replace(&mut self.before, now);
            ladder.look(
                latest_ns,
                Pressure::of(now[1].saturating_sub(before[1]), now[0].saturating_sub(before[0]), queue_is_full),
            );
            let level = ladder.level();
            if level != stood {
                self.stand_on(level);
                let told = &mut self.ledger.overload;
                (told.level, told.since_ns, told.highest) = (level, latest_ns, told.highest.max(level));
                told.steps += 1;
            }
        }
        Look { answers: 0, settled_ns, latest_ns, lost, levels: [stood; 2], level: self.level }
    }

    /// Takes the measures of a level from the next burst on.
    fn stand_on(&mut self, level: u8) {
        self.level = level;
        let LevelSettings { population, .. } = LevelSettings::of(level, self.sample);
        self.sampler = (population > 1).then(|| Sampler::new(population));
    }

    /// Leaves out, and counts, what is not sampled.
    fn thin_out(&mut self, burst: &mut Burst<'_>) {
        let Some(sampler) = &mut self.sampler else { return };
        let (packets, mut wire_bytes) = (burst.len(), 0);
        burst.retain(|frame| {
            let takes = sampler.takes();
            wire_bytes += if takes { 0 } else { u64::from(frame.wire_bytes) };
            takes
        });
        let left_out = (packets - burst.len()) as u64;
        let Ledger { packets, bytes, .. } = &mut self.ledger;
        (packets.received, packets.sampled_out) = (packets.received + left_out, packets.sampled_out + left_out);
        (bytes.received, bytes.sampled_out) = (bytes.received + wire_bytes, bytes.sampled_out + wire_bytes);
    }

    /// Packets that were read and then found no room in a queue of ours.
    pub fn lose<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>) {
        let (mut count, mut octets) = (0, 0);
        for packet in packets {
            (count, octets) = (count + 1, octets + u64::from(packet.frame_bytes));
        }
        for (line, count) in [(&mut self.ledger.packets, count), (&mut self.ledger.bytes, octets)] {
            line.metered -= count;
            line.dropped_ring += count;
        }
    }

    /// Leaves out, and counts, what the filter does not keep.
    fn select(&mut self, burst: &mut Burst<'_>) {
        let Some(filter) = &mut self.filter else { return };
        let (packets, mut wire_bytes) = (burst.len(), 0);
        burst.retain(|frame| {
            let keeps = filter.keeps(frame);
            wire_bytes += if keeps { 0 } else { u64::from(frame.wire_bytes) };
            keeps
        });
        let filtered = (packets - burst.len()) as u64;
        let Ledger { packets, bytes, .. } = &mut self.ledger;
        (packets.received, packets.filtered) = (packets.received + filtered, packets.filtered + filtered);
        (bytes.received, bytes.filtered) = (bytes.received + wire_bytes, bytes.filtered + wire_bytes);
    }

    fn decode(&mut self, burst: &Burst<'_>, packets: &mut Packets) -> usize {
        let wire_bytes: u64 = burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum();
        let (mut metered, mut refused_bytes) = (0, 0);
        let (decode, layer2) = (self.decode, self.layer2);
        for frame in burst {
            let packet = &mut packets[metered % BURST];
            packet.time_ns = frame.time_ns;
            packet.interface = frame.interface;
            let read = weir_packet::decode(frame.link_type, frame.bytes, frame.wire_bytes, decode, packet);
            let ordinary = matches!(read, Ok(notes) if notes.is_empty());
            if self.own.has(packet) && read.is_ok() {
                self.ledger.packets.filtered += 1;
                self.ledger.bytes.filtered += u64::from(frame.wire_bytes);
                refused_bytes += u64::from(frame.wire_bytes);
            } else if (ordinary && packet.network != Network::Layer2 && !frame.time_clamped)
                || is_metered(frame, read, packet, layer2, &mut self.ledger)
            {
                metered += 1;
            } else {
                refused_bytes += u64::from(frame.wire_bytes);
            }
        }
        self.ledger.packets.received += burst.len() as u64;
        self.ledger.packets.metered += metered as u64;
        self.ledger.bytes.received += wire_bytes;
        self.ledger.bytes.metered += wire_bytes - refused_bytes;
        metered
    }
}

/// Counts what is out of the ordinary about a frame, which was read as `packet`, and says whether it is one to be metered.
#[cold]
fn is_metered(
    frame: &Frame<'_>,
    read: Result<AnomalySet, RefusalReason>,
    packet: &Packet,
    layer2: bool,
    ledger: &mut Ledger,
) -> bool {
    let refused = match read {
        Ok(notes) if packet.network != Network::Layer2 || layer2 => {
            notes.iter().for_each(|noted| ledger.anomalies.count(noted));
            if frame.time_clamped {
                ledger.anomalies.count(PacketAnomaly::TimeClamped);
            }
            return true;
        }
        Ok(_) => {
            *ledger.ethertypes.entry(packet.source_port).or_default() += 1;
            RefusalReason::NonIp
        }
        Err(refused) => refused,
    };
    ledger.packets.refused.count(refused);
    ledger.bytes.refused.add(refused, frame.wire_bytes.into());
    false
}
