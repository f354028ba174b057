//! Reads packets of TCP from a source, and counts all others.
//!
//! In: bursts of frames from a [`Source`]. Out: the packets of TCP that have ports, each with the number of its frame.
//! Invariant: frames received = refused + not matching the filter + not TCP + without ports + delivered.

use std::net::SocketAddr;
use weir_capture::{BURST, FilterError, Frame, PacketFilter, Source};
use weir_ledger::{Ledger, PacketAnomaly, RefusalReason};
use weir_packet::{Flags, Network, Packet, decode, ip_address};

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Receives packets of TCP.
pub trait PacketConsumer {
    /// Receives packets in the order of the capture, each with the number of its frame in the input, from 1.
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]);
}

/// What became of the frames of an input.
#[derive(Debug, Default)]
pub struct PacketCounts {
    /// All frames. `metered` are the packets that were delivered; `filtered` is the sum of the three counts below.
    pub ledger: Ledger,
    /// Packets that do not match the filter.
    pub not_matching: u64,
    /// Packets of other protocols.
    pub not_tcp: u64,
    /// Packets of TCP without ports, whose connection is unknown: later fragments, packets captured too short, wrong lengths.
    pub without_ports: u64,
}

/// Decodes the frames of a source, and delivers its packets of TCP.
pub struct PacketReader {
    filter: Option<PacketFilter>,
    decode: weir_packet::DecodeOptions,
    counts: PacketCounts,
    packets: Vec<Packet>,
    frame_numbers: Vec<u64>,
}

impl PacketReader {
    /// Creates a reader of the packets that match the filter, or of all packets.
    pub fn new(filter: Option<PacketFilter>, decode: weir_packet::DecodeOptions) -> Self {
        Self {
            filter,
            decode,
            counts: PacketCounts::default(),
            packets: Vec::with_capacity(BURST),
            frame_numbers: Vec::with_capacity(BURST),
        }
    }

    /// Reads one burst of frames, and delivers its packets. Returns false at the end of the source.
    ///
    /// # Errors
    /// The source is damaged here. The next call goes on behind the damage, or returns false.
    pub fn read_burst(
        &mut self,
        source: &mut dyn Source,
        consumer: &mut dyn PacketConsumer,
    ) -> Result<bool, weir_capture::Error> {
        let Some(burst) = source.burst()? else { return Ok(false) };
        self.packets.clear();
        self.frame_numbers.clear();
        for frame in &burst {
            if let Some(filter) = &mut self.filter
                && !filter.keeps(frame)
            {
                self.counts.leave_out(frame);
            } else if let Some(packet) = self.counts.decode(frame, self.decode) {
                self.packets.push(packet);
                self.frame_numbers.push(self.counts.ledger.packets.received);
            }
        }
        consumer.consume(&self.packets, &self.frame_numbers);
        Ok(true)
    }

    /// Frames read so far.
    pub fn frames(&self) -> u64 {
        self.counts.ledger.packets.received
    }

    /// Link types for which the filter has no meaning, each once.
    pub fn filter_errors(&mut self) -> Vec<FilterError> {
        self.filter.as_mut().map_or_else(Vec::new, PacketFilter::take_errors)
    }

    /// The counts of all that was read.
    pub fn into_counts(self) -> PacketCounts {
        self.counts
    }
}

impl PacketCounts {
    /// Counts a frame that the filter does not keep.
    fn leave_out(&mut self, frame: &Frame<'_>) {
        let Ledger { packets, bytes, .. } = &mut self.ledger;
        let wire_bytes = u64::from(frame.wire_bytes);
        self.not_matching += 1;
        (packets.received, packets.filtered) = (packets.received + 1, packets.filtered + 1);
        (bytes.received, bytes.filtered) = (bytes.received + wire_bytes, bytes.filtered + wire_bytes);
    }

    /// Counts a frame, and gives its packet if that is one of a connection.
    fn decode(&mut self, frame: &Frame<'_>, options: weir_packet::DecodeOptions) -> Option<Packet> {
        let ledger = &mut self.ledger;
        let wire_bytes = u64::from(frame.wire_bytes);
        ledger.packets.received += 1;
        ledger.bytes.received += wire_bytes;
        let mut packet = Packet { time_ns: frame.time_ns, interface: frame.interface, ..Packet::default() };
        let refused = match decode(frame.link_type, frame.bytes, frame.wire_bytes, options, &mut packet) {
            Ok(notes) if packet.network != Network::Layer2 => {
                let has_ports = packet.flags.has(Flags::PORTS);
                if packet.protocol != TCP || !has_ports {
                    *(if packet.protocol == TCP { &mut self.without_ports } else { &mut self.not_tcp }) += 1;
                    ledger.packets.filtered += 1;
                    ledger.bytes.filtered += wire_bytes;
                    return None;
                }
                notes.iter().for_each(|noted| ledger.anomalies.count(noted));
                if frame.time_clamped {
                    ledger.anomalies.count(PacketAnomaly::TimeClamped);
                }
                ledger.packets.metered += 1;
                ledger.bytes.metered += wire_bytes;
                return Some(packet);
            }
            Ok(_) => {
                *ledger.ethertypes.entry(packet.source_port).or_default() += 1;
                RefusalReason::NonIp
            }
            Err(refused) => refused,
        };
        ledger.count_refused(refused, frame.link_type, frame.wire_bytes);
        None
    }
}

/// Both ends of the connection that a packet is of, the lower one first, and which of them sent it.
pub fn ends(packet: &Packet) -> ([SocketAddr; 2], usize) {
    let end = |octets, port| {
        let address = ip_address(packet.network, octets).expect("packets of TCP have addresses of IP");
        SocketAddr::new(address, port)
    };
    let source = end(packet.source, packet.source_port);
    let destination = end(packet.destination, packet.destination_port);
    if source <= destination { ([source, destination], 0) } else { ([destination, source], 1) }
}

/// Whether a segment begins a connection where another one has ended: SYN without ACK and RST.
pub fn opens(packet: &Packet) -> bool {
    let bits = packet.control & (Packet::SYN | Packet::ACK | Packet::RST);
    packet.flags.has(Flags::TCP) && bits == Packet::SYN
}
