//! One pipeline: capture, decode and meter, run to completion on one thread; records leave for the exporter's.
//!
//! ```text
//! burst of frames -> leave out what the filter does not keep -> decode each into a burst of packets (or count why not) -> meter -> flows -> exporter
//! ```
//! This is the hot path of the whole program. Per packet it counts, decodes and enters; it allocates
//! nothing, takes no lock and makes no system call. Records leave it in batches.

use crate::exporter::{Account, Entrance, records};
use crate::own::Own;
use std::io;
use std::time::{Duration, Instant};
use weir_capture::{BURST, Burst, FilterError, Frame, Losses, Selector, Source};
use weir_flow::{Flow, Meter};
use weir_ledger::{Ledger, Noted, Records, Refused};
use weir_packet::{Network, Notes, Packet};

/// Records handed to the sinks at a time.
const BATCH: usize = 128;
/// A source that hands over less than it could is waited for; its records then leave this often, whole batch or not.
const PATIENCE: Duration = Duration::from_secs(1);
/// While a live source hands over less than it could, time goes on without packets this often.
const TICK: Duration = weir_capture::PATIENCE;

/// What one pipeline is told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which frames go further; all without one.
    pub filter: Option<Selector>,
    /// The meter's part.
    pub meter: weir_flow::Config,
    /// The decoder's part.
    pub decode: weir_packet::Options,
    /// Meter frames without IP as flows of MAC addresses.
    pub layer2: bool,
    /// What is not metered because our sinks send it; it counts as filtered.
    pub own: Own,
}

/// One pipeline. Feed it a source (or sources one after another), then finish it.
pub struct Pipeline {
    settings: Settings,
    /// What happened to frames; the meter's part is added on reading.
    ledger: Ledger,
    packets: Box<[Packet; BURST]>,
    meter: Meter,
    flows: Vec<Flow>,
    /// When records were handed to the sinks last.
    exported: Instant,
    /// When time went on without packets last.
    waited: Instant,
    entrance: Entrance,
    sent: Records,
    lost: Records,
}

impl Pipeline {
    /// Takes the meter's memory.
    ///
    /// # Errors
    /// The system has not that much.
    pub fn new(settings: Settings, entrance: Entrance) -> io::Result<Self> {
        Ok(Self {
            ledger: Ledger::default(),
            packets: Box::new([Packet::default(); BURST]),
            meter: Meter::try_new(settings.meter)?,
            settings,
            flows: Vec::with_capacity(2 * BATCH),
            exported: Instant::now(),
            waited: Instant::now(),
            entrance,
            sent: Records::default(),
            lost: Records::default(),
        })
    }

    /// Takes one burst from the source through the house. `Ok(false)` at the end of the source.
    ///
    /// # Errors
    /// The source is damaged at this place (call again to go on behind it), see [`weir_capture::Source::fill`].
    pub fn step(&mut self, source: &mut dyn Source) -> Result<bool, weir_capture::Error> {
        let mut burst = Burst::new();
        let more = source.fill(&mut burst)?;
        let full = burst.is_full();
        if more {
            self.select(&mut burst);
            self.absorb(&burst);
        }
        drop(burst);
        if !more {
            self.look(source);
        } else if !full {
            self.wait(source);
        }
        Ok(more)
    }

    /// What a pipeline does while there is little to do: records leave, and end, without a packet that says how late it is.
    fn wait(&mut self, source: &mut dyn Source) {
        let now = Instant::now();
        if now - self.waited >= TICK {
            self.waited = now;
            if let Some(now_ns) = source.now_ns() {
                self.meter.wait(now_ns, &mut self.flows);
            }
        }
        if now - self.exported >= PATIENCE {
            self.export();
        }
    }

    /// Asks a live source what it lost.
    pub fn look(&mut self, source: &mut dyn Source) {
        self.note(source.losses());
    }

    /// Enters what a source lost. The octets of what nobody saw are not known.
    fn note(&mut self, losses: Losses) {
        let packets = &mut self.ledger.packets;
        let before = packets.dropped_card + packets.dropped_kernel + packets.dropped_ring;
        packets.received += losses.card + losses.kernel + losses.ring - before;
        (packets.dropped_card, packets.dropped_kernel, packets.dropped_ring) =
            (losses.card, losses.kernel, losses.ring);
    }

    /// Leaves out, and counts, what the filter does not keep.
    fn select(&mut self, burst: &mut Burst<'_>) {
        let Some(filter) = &mut self.settings.filter else { return };
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

    fn absorb(&mut self, burst: &Burst<'_>) {
        let wire_bytes: u64 = burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum();
        let (mut metered, mut refused_bytes) = (0, 0);
        let (decode, layer2, packets) = (self.settings.decode, self.settings.layer2, &mut *self.packets);
        for frame in burst {
            let packet = &mut packets[metered % BURST];
            packet.time_ns = frame.time_ns;
            packet.interface = frame.interface;
            let read = weir_packet::decode(frame.link, frame.bytes, frame.wire_bytes, decode, packet);
            let ordinary = matches!(read, Ok(notes) if notes.is_empty());
            if self.settings.own.has(packet) && read.is_ok() {
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
        self.meter.absorb(&self.packets[..metered], &mut self.flows);
        if self.flows.len() >= BATCH {
            self.export();
        }
    }

    /// Hands the records that have ended to the exporter.
    fn export(&mut self) {
        if !self.flows.is_empty() {
            let batch = std::mem::take(&mut self.flows);
            let records = records(&batch);
            match self.entrance.write(batch) {
                Ok(empty) => {
                    self.sent.merge(records);
                    self.flows = empty;
                }
                Err(refused) => {
                    self.lost.merge(records);
                    self.flows = refused;
                    self.flows.clear();
                }
            }
        }
        self.exported = Instant::now();
    }

    /// Takes over what can change while it runs: timeouts, also of flows that there are; the filter; what is our own.
    pub fn change(&mut self, settings: Settings) {
        self.meter.set_timeouts(settings.meter.idle_ns, settings.meter.active_ns);
        (self.settings.filter, self.settings.own) = (settings.filter, settings.own);
    }

    /// Link types for which the filter means nothing, each told once.
    pub fn filter_errors(&mut self) -> Vec<FilterError> {
        self.settings.filter.as_mut().map_or_else(Vec::new, Selector::troubles)
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        let counters = self.meter.counters();
        let mut ledger = self.ledger.clone();
        // The meter is the one to know what it had no room for.
        ledger.packets.metered -= counters.dropped_packets;
        ledger.packets.dropped_table_full = counters.dropped_packets;
        ledger.bytes.metered -= counters.dropped_bytes;
        ledger.bytes.dropped_table_full = counters.dropped_bytes;
        ledger.noted.merge(&counters.noted);
        ledger.created = counters.created;
        ledger.live = self.meter.live();
        ledger.live.merge(records(&self.flows));
        Account { ledger, sent: self.sent, lost: self.lost }
    }

    /// Ends every flow, hands over the last records, and gives the final account.
    pub fn finish(mut self) -> Account {
        while self.meter.drain_some(BATCH, &mut self.flows) {
            self.export();
        }
        self.export();
        self.account()
    }
}

/// Counts what is out of the ordinary about a frame, which was read as `packet`, and says whether it is one to be metered.
#[cold]
fn is_metered(
    frame: &Frame<'_>,
    read: Result<Notes, Refused>,
    packet: &Packet,
    layer2: bool,
    ledger: &mut Ledger,
) -> bool {
    let refused = match read {
        Ok(notes) if packet.network != Network::Layer2 || layer2 => {
            notes.iter().for_each(|noted| ledger.noted.count(noted));
            if frame.time_clamped {
                ledger.noted.count(Noted::TimeClamped);
            }
            return true;
        }
        Ok(_) => {
            *ledger.ethertypes.entry(packet.source_port).or_default() += 1;
            Refused::NonIp
        }
        Err(refused) => refused,
    };
    ledger.packets.refused.count(refused);
    ledger.bytes.refused.add(refused, frame.wire_bytes.into());
    false
}
