//! The first stage of a pipeline: frames in, decoded packets out, and a ledger of the frames that
//! become no packet.
//!
//! ```text
//! burst of frames -> sample -> filter -> decode -> remove self-traffic -> burst of packets
//! ```
//! Per packet the stage decodes and counts. It allocates nothing, takes no lock and makes no system
//! call.

use crate::account::Account;
use crate::admission::{Admission, Sampler, SelfTrafficFilter};
use crate::interface_names::SeenInterfaces;
use crate::load_shedder::{LoadShedder, ShedOrder, population};
use crate::loss_counter::LossCounter;
use crate::loss_history::LossSnapshot;
use crate::settings::Settings;
use weir_capture::{Burst, ClockSteps, FilterError, Frame, Input, LiveSource, MAX_BURST_FRAMES, PacketFilter, Source};
use weir_egress::ReceivedPackets;
use weir_flow::Payloads;
use weir_ledger::{ClockCounters, Ledger, PacketAnomaly, RefusalReason, TrafficCounters};
use weir_packet::{AnomalySet, DecodeOptions, Network, Packet, decode_with_mac_addresses};

pub(crate) type PacketBurst = Box<[Packet; MAX_BURST_FRAMES]>;
/// Per packet the index of its frame in the burst.
type FrameIndices = [u8; MAX_BURST_FRAMES];

/// The payload of the packets of a burst.
pub(crate) struct BurstPayloads<'a> {
    pub burst: &'a Burst<'a>,
    pub frame_of: &'a FrameIndices,
    options: DecodeOptions,
    /// Bit `n` is set if frame `n` is a datagram of a sink, which is filtered.
    pub self_traffic: u64,
}

impl Payloads for BurstPayloads<'_> {
    const AVAILABLE: bool = true;

    fn payload(&self, index: usize, packet: &Packet) -> (&[u8], u32) {
        let frame = self.frame_of.get(index).and_then(|&frame| self.burst.get(usize::from(frame)));
        frame.map_or((&[], 0), |frame| weir_packet::payload(frame.link_type, frame.bytes, packet, self.options))
    }
}

/// Reads, filters and decodes the frames of one source.
pub(crate) struct ReadingStage {
    admission: Admission,
    self_traffic: SelfTrafficFilter,
    decode: DecodeOptions,
    layer2: bool,
    mac_addresses: bool,
    pub losses: LossCounter,
    shedder: LoadShedder,
    shed: ShedOrder,
    sampling_population: u32,
    interfaces: Option<SeenInterfaces>,
    /// What became of the frames. Decoded packets count as metered.
    pub ledger: Ledger,
}

impl ReadingStage {
    pub fn new(settings: &Settings) -> Self {
        let mut reader = Self {
            admission: Admission {
                sampler: None,
                filter: settings.filter.clone(),
                times_ns: settings.times_ns.clone(),
            },
            self_traffic: settings.self_traffic.clone(),
            decode: settings.decode,
            layer2: settings.layer2,
            mac_addresses: settings.meter.mac_addresses,
            losses: LossCounter::default(),
            shedder: LoadShedder::new(settings.overload, settings.shed),
            shed: settings.shed,
            sampling_population: settings.sampling_population,
            interfaces: settings.interface_names.clone().map(SeenInterfaces::new),
            ledger: Ledger::default(),
        };
        let level = reader.shedder.level;
        (reader.ledger.overload.level, reader.ledger.overload.highest) = (level, level);
        reader.apply_level();
        reader
    }

    pub fn reconfigure(&mut self, settings: &Settings) {
        self.admission.filter.clone_from(&settings.filter);
        self.self_traffic = settings.self_traffic.clone();
    }

    pub fn account(&self) -> Account {
        Account { ledger: self.ledger.clone(), ..Account::default() }
    }

    /// Link types that the filter cannot be applied to; each is returned once.
    pub fn take_filter_errors(&mut self) -> Vec<FilterError> {
        self.admission.filter.as_mut().map_or_else(Vec::new, PacketFilter::take_errors)
    }

    /// Reads and decodes the next burst, and hands over the packets with their payloads. Returns the
    /// number of packets, and whether the source had fewer frames than a full burst; `None` at the
    /// end of the source.
    ///
    /// # Errors
    /// As [`Source::fill`].
    #[inline]
    pub fn read(
        &mut self,
        source: &mut Input<'_>,
        packets: &mut PacketBurst,
        hand_over: impl FnOnce(&[Packet], &BurstPayloads<'_>),
    ) -> Result<Option<(usize, bool)>, weir_capture::Error> {
        let mut burst = Burst::new();
        if !source.fill(&mut burst)? {
            drop(burst);
            self.losses.add_recorded(source, &mut self.ledger.packets);
            return Ok(None);
        }
        let burst_was_short = self.losses.note_burst(&burst);
        self.admission.admit(&mut burst, &mut self.ledger);
        let mut frame_of = [0; MAX_BURST_FRAMES];
        let (count, self_traffic) = if self.mac_addresses {
            self.decode::<true>(&burst, packets, &mut frame_of)
        } else {
            self.decode::<false>(&burst, packets, &mut frame_of)
        };
        let payloads = BurstPayloads { burst: &burst, frame_of: &frame_of, options: self.decode, self_traffic };
        hand_over(&packets[..count], &payloads);
        drop(burst);
        if let Some(interfaces) = &mut self.interfaces {
            interfaces.note(&packets[..count], source);
        }
        Ok(Some((count, burst_was_short)))
    }

    /// Counts what a live source has lost, and adapts the level of load shedding.
    /// `queue_nearly_full` is the state of the queues to the meters.
    pub fn update_losses(&mut self, source: &mut dyn LiveSource, queue_nearly_full: bool) -> LossSnapshot {
        let snapshot = self.losses.update(source, &mut self.ledger.packets);
        let LossSnapshot { latest_ns, lost, clock, .. } = snapshot;
        let ClockSteps { forward, backward, offset_ns, .. } = clock;
        self.ledger.clock = ClockCounters { steps_forward: forward, steps_backward: backward, offset_ns };
        let previous_level = self.shedder.level;
        if self.shedder.update(latest_ns, (self.ledger.packets.received - lost, lost), queue_nearly_full) {
            self.apply_level();
            let (level, overload) = (self.shedder.level, &mut self.ledger.overload);
            (overload.level, overload.since_ns) = (level, latest_ns.saturating_add_signed(clock.offset_ns));
            overload.highest = overload.highest.max(level);
            overload.level_changes += 1;
        }
        LossSnapshot { levels: [previous_level; 2], level: self.shedder.level, ..snapshot }
    }

    /// What the source has received and lost so far.
    pub fn received_packets(&self) -> ReceivedPackets {
        let TrafficCounters { received, dropped_nic, dropped_kernel, dropped_queue, .. } = &self.ledger.packets;
        ReceivedPackets {
            received: received - dropped_nic,
            dropped_nic: *dropped_nic,
            dropped_system: dropped_kernel + dropped_queue,
        }
    }

    /// Counts packets as dropped because the queue to their meter was full.
    pub fn drop_packets<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>) {
        let (mut count, mut bytes) = (0, 0);
        for packet in packets {
            (count, bytes) = (count + 1, bytes + u64::from(packet.frame_bytes));
        }
        for (counters, dropped) in [(&mut self.ledger.packets, count), (&mut self.ledger.bytes, bytes)] {
            counters.metered -= dropped;
            counters.dropped_queue += dropped;
        }
    }

    fn apply_level(&mut self) {
        let population = population(self.shedder.level, self.shed, self.sampling_population);
        self.admission.sampler = (population > 1).then(|| Sampler::new(population));
    }

    fn decode<const MAC_ADDRESSES: bool>(
        &mut self,
        burst: &Burst<'_>,
        packets: &mut PacketBurst,
        frame_of: &mut FrameIndices,
    ) -> (usize, u64) {
        let wire_bytes: u64 = burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum();
        let (mut metered, mut other_bytes, mut self_traffic) = (0, 0, 0);
        let (decode, layer2, has_self_traffic) = (self.decode, self.layer2, !self.self_traffic.is_empty());
        for (index, frame) in burst.iter().enumerate() {
            let packet = &mut packets[metered % MAX_BURST_FRAMES];
            frame_of[metered % MAX_BURST_FRAMES] = index as u8;
            packet.time_ns = frame.time_ns;
            packet.interface = frame.interface;
            let decoded = if MAC_ADDRESSES {
                decode_with_mac_addresses(frame.link_type, frame.bytes, frame.wire_bytes, decode, packet)
            } else {
                weir_packet::decode(frame.link_type, frame.bytes, frame.wire_bytes, decode, packet)
            };
            let is_regular = matches!(decoded, Ok(anomalies) if anomalies.is_empty());
            if has_self_traffic && decoded.is_ok() && self.self_traffic.matches(packet) {
                self_traffic |= 1 << (index % MAX_BURST_FRAMES);
                self.ledger.packets.filtered += 1;
                self.ledger.bytes.filtered += u64::from(frame.wire_bytes);
                other_bytes += u64::from(frame.wire_bytes);
            } else if (is_regular && packet.network != Network::Layer2 && !frame.time_assumed)
                || count_irregular(frame, decoded, packet, layer2, &mut self.ledger)
            {
                metered += 1;
            } else {
                other_bytes += u64::from(frame.wire_bytes);
            }
        }
        self.ledger.packets.received += burst.len() as u64;
        self.ledger.packets.metered += metered as u64;
        self.ledger.bytes.received += wire_bytes;
        self.ledger.bytes.metered += wire_bytes - other_bytes;
        (metered, self_traffic)
    }
}

/// Counts the anomalies of a packet, or why its frame is refused. Returns whether it is metered.
#[cold]
fn count_irregular(
    frame: &Frame<'_>,
    decoded: Result<AnomalySet, RefusalReason>,
    packet: &Packet,
    layer2: bool,
    ledger: &mut Ledger,
) -> bool {
    let reason = match decoded {
        Ok(anomalies) if packet.network != Network::Layer2 || layer2 => {
            anomalies.iter().for_each(|anomaly| ledger.anomalies.count(anomaly));
            if frame.time_assumed {
                ledger.anomalies.count(PacketAnomaly::TimeAssumed);
            }
            return true;
        }
        Ok(_) => {
            // The decoder puts the EtherType of a frame without IP into the source port.
            *ledger.ethertypes.entry(packet.source_port).or_default() += 1;
            RefusalReason::NonIp
        }
        Err(reason) => reason,
    };
    ledger.count_refused(reason, frame.link_type, frame.wire_bytes);
    false
}
