//! Reads the TCP packets of a source, and counts all others.
//!
//! In: bursts of frames. Out: the TCP packets that have ports, each with the number of its frame.
//! Invariant: frames = refused + outside the times + not matching the filter + not TCP + without ports
//! + delivered.

use std::ops::RangeInclusive;
use weir_capture::{FilterError, Frame, MAX_BURST_FRAMES, PacketFilter, Source};
use weir_ledger::{Ledger, PacketAnomaly, RefusalReason};
use weir_packet::{DecodeOptions, Flags, Network, Packet, decode, payload};

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;

/// Receives TCP packets from a [`PacketReader`].
pub trait PacketConsumer {
    /// Receives packets in the order of the capture, each with the number of its frame in the
    /// input, from 1.
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]);
}

/// Gets the payload of a datagram of UDP.
pub type DatagramObserver = Box<dyn FnMut(&[u8])>;

/// Port of the servers of DNS.
const DNS: u16 = 53;
/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Which packets are read, and how they are decoded.
#[derive(Clone)]
pub struct PacketSelection {
    /// Packets that do not match are left out.
    pub filter: Option<PacketFilter>,
    /// Packets of other times, ns since 1970-01-01 UTC, are left out.
    pub times_ns: Option<RangeInclusive<u64>>,
    /// How packets are decoded.
    pub decode: DecodeOptions,
}

/// What became of the frames of an input.
#[derive(Debug, Default)]
pub struct PacketCounts {
    /// All frames. `metered` counts delivered packets; `filtered` is the sum of the four counts
    /// below.
    pub ledger: Ledger,
    /// Packets of other times than the selected ones.
    pub outside_times: u64,
    /// Packets that do not match the filter.
    pub not_matching: u64,
    /// Packets of other protocols.
    pub not_tcp: u64,
    /// TCP packets without ports, whose connection is unknown: later fragments, packets captured
    /// too short, or an IP length that ends before the ports.
    pub without_ports: u64,
}

/// Decodes the frames of sources, and delivers the TCP packets.
pub struct PacketReader {
    dns: Option<DatagramObserver>,
    selection: PacketSelection,
    counts: PacketCounts,
    packets: Vec<Packet>,
    frame_numbers: Vec<u64>,
}

impl PacketReader {
    /// Creates a reader of selected packets.
    pub fn new(selection: PacketSelection) -> Self {
        Self {
            dns: None,
            selection,
            counts: PacketCounts::default(),
            packets: Vec::with_capacity(MAX_BURST_FRAMES),
            frame_numbers: Vec::with_capacity(MAX_BURST_FRAMES),
        }
    }

    /// Passes the payload of datagrams from servers of DNS to a function.
    #[must_use]
    pub fn with_dns(self, dns: Option<DatagramObserver>) -> Self {
        Self { dns, ..self }
    }

    /// Reads one burst of frames and delivers its packets. Returns false at the end of the source.
    ///
    /// # Errors
    /// The source is damaged here. The next call continues behind the damage if that is possible,
    /// otherwise it returns false.
    pub fn read_burst(
        &mut self,
        source: &mut dyn Source,
        consumer: &mut dyn PacketConsumer,
    ) -> Result<bool, weir_capture::Error> {
        let Some(burst) = source.burst()? else { return Ok(false) };
        self.packets.clear();
        self.frame_numbers.clear();
        for frame in &burst {
            if let Some(packet) = self.read(frame) {
                self.packets.push(packet);
                self.frame_numbers.push(self.frames());
            }
        }
        consumer.consume(&self.packets, &self.frame_numbers);
        Ok(true)
    }

    /// Counts a frame, and returns its packet if it belongs to a connection.
    fn read(&mut self, frame: &Frame<'_>) -> Option<Packet> {
        let PacketCounts { ledger, outside_times, not_matching, not_tcp, without_ports } = &mut self.counts;
        let PacketSelection { filter, times_ns, decode: options } = &mut self.selection;
        let bytes = u64::from(frame.wire_bytes);
        ledger.packets.received += 1;
        ledger.bytes.received += bytes;
        let mut packet = Packet { time_ns: frame.time_ns, interface: frame.interface, ..Packet::default() };
        let is_in_time = times_ns.as_ref().is_none_or(|times_ns| times_ns.contains(&frame.time_ns));
        let matches = is_in_time && filter.as_mut().is_none_or(|filter| filter.matches(frame));
        let decoded = matches.then(|| decode(frame.link_type, frame.bytes, frame.wire_bytes, *options, &mut packet));
        let filtered = match decoded {
            None if !is_in_time => outside_times,
            None => not_matching,
            Some(Err(reason)) => {
                ledger.count_refused(reason, frame.link_type, frame.wire_bytes);
                return None;
            }
            Some(Ok(_)) if packet.network == Network::Layer2 => {
                *ledger.ethertypes.entry(packet.source_port).or_default() += 1;
                ledger.count_refused(RefusalReason::NonIp, frame.link_type, frame.wire_bytes);
                return None;
            }
            Some(Ok(_)) if packet.protocol != TCP => {
                if let Some(dns) = &mut self.dns
                    && packet.protocol == UDP
                    && packet.flags.has(Flags::PORTS)
                    && packet.source_port == DNS
                {
                    dns(payload(frame.link_type, frame.bytes, &packet, *options).0);
                }
                not_tcp
            }
            Some(Ok(_)) if !packet.flags.has(Flags::PORTS) => without_ports,
            Some(Ok(anomalies)) => {
                anomalies.iter().for_each(|anomaly| ledger.anomalies.count(anomaly));
                if frame.time_assumed {
                    ledger.anomalies.count(PacketAnomaly::TimeAssumed);
                }
                ledger.packets.metered += 1;
                ledger.bytes.metered += bytes;
                return Some(packet);
            }
        };
        *filtered += 1;
        ledger.packets.filtered += 1;
        ledger.bytes.filtered += bytes;
        None
    }

    /// Frames read so far.
    pub fn frames(&self) -> u64 {
        self.counts.ledger.packets.received
    }

    /// Link types that the filter cannot be applied to, each once.
    pub fn filter_errors(&mut self) -> Vec<FilterError> {
        self.selection.filter.as_mut().map_or_else(Vec::new, PacketFilter::take_errors)
    }

    /// The counts of everything that was read.
    pub fn into_counts(self) -> PacketCounts {
        self.counts
    }
}
