//! Sources in, packets of TCP out, and the account of all others.

use crate::files;
use crate::progress;
use crate::read::{BURSTS_BETWEEN_LOOKS, DAMAGES_TOLD};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_capture::{BURST, Selector, Source};
use weir_ledger::{Ledger, PacketAnomaly, RefusalReason};
use weir_packet::{Flags, Network, Packet, decode, ip_address};

/// The protocol number of TCP.
const TCP: u8 = 6;

/// What came of reading.
#[derive(Debug, Default)]
pub struct Intake {
    /// Metered are the packets that were handed on, filtered those of the next three.
    pub ledger: Ledger,
    /// Packets that the filter did not keep.
    pub not_kept: u64,
    /// Packets of other protocols.
    pub not_tcp: u64,
    /// TCP without ports: later fragments, captured too short, or lengths that lie. Nobody knows which connection they are of.
    pub without_ports: u64,
    /// Input was damaged or not read to its end.
    pub flawed: bool,
    /// A signal ended it.
    pub interrupted: bool,
}

/// Takes packets of TCP, each with the number of its frame in the input, from 1.
pub trait Taker {
    /// Takes some, in the order of the capture.
    fn take(&mut self, packets: &[Packet], frames: &[u64]);
}

/// Which packets are read, and how.
#[derive(Clone)]
pub struct Settings {
    pub filter: Option<Selector>,
    pub decode: weir_packet::DecodeOptions,
}

/// Lets a source run to its end, or until a signal. `tell` says whether damage is told.
pub fn read(
    source: &mut dyn Source,
    mut settings: Settings,
    stop: &AtomicBool,
    mut line: progress::Line,
    tell: bool,
    taker: &mut dyn Taker,
) -> Intake {
    let mut intake = Intake::default();
    let (mut packets, mut frames) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let mut damages = 0;
    for bursts in 1_u64.. {
        match source.burst() {
            Ok(Some(burst)) => {
                packets.clear();
                frames.clear();
                for frame in &burst {
                    if let Some(filter) = &mut settings.filter
                        && !filter.keeps(frame)
                    {
                        intake.leave_out(frame);
                    } else if let Some(packet) = intake.decode(frame, settings.decode) {
                        packets.push(packet);
                        frames.push(intake.ledger.packets.received);
                    }
                }
                taker.take(&packets, &frames);
            }
            Ok(None) => break,
            // A pipe that ends because of the signal may end within a packet.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                damages += 1;
                if tell && damages <= DAMAGES_TOLD {
                    line.say(&error.to_string());
                }
            }
        }
        if bursts % BURSTS_BETWEEN_LOOKS == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            line.update(source.progress(), || intake.ledger.packets.received);
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let meaningless = settings.filter.as_mut().map_or_else(Vec::new, Selector::troubles);
    let unfiltered = !meaningless.is_empty();
    if tell {
        meaningless.iter().for_each(|error| line.say(&error.to_string()));
    }
    if tell && damages > DAMAGES_TOLD {
        line.say(&format!("{} more damaged places", damages - DAMAGES_TOLD));
    }
    if tell && interrupted {
        line.say("interrupted: the rest of the input was not read");
    }
    line.clear();
    intake.flawed = damages > 0 || interrupted || unfiltered;
    intake.interrupted = interrupted;
    intake
}

/// Hands on the packets of the first frames alone.
pub struct First<'a> {
    /// How many frames.
    pub frames: u64,
    pub taker: &'a mut dyn Taker,
}

impl Taker for First<'_> {
    fn take(&mut self, packets: &[Packet], frames: &[u64]) {
        let first = frames.partition_point(|&frame| frame <= self.frames);
        self.taker.take(&packets[..first], &frames[..first]);
    }
}

impl Intake {
    /// Counts a frame that the filter does not keep.
    fn leave_out(&mut self, frame: &weir_capture::Frame<'_>) {
        let Ledger { packets, bytes, .. } = &mut self.ledger;
        let wire_bytes = u64::from(frame.wire_bytes);
        self.not_kept += 1;
        (packets.received, packets.filtered) = (packets.received + 1, packets.filtered + 1);
        (bytes.received, bytes.filtered) = (bytes.received + wire_bytes, bytes.filtered + wire_bytes);
    }

    /// Counts a frame, and gives its packet if that is one of a connection.
    fn decode(&mut self, frame: &weir_capture::Frame<'_>, options: weir_packet::DecodeOptions) -> Option<Packet> {
        let ledger = &mut self.ledger;
        let wire_bytes = u64::from(frame.wire_bytes);
        ledger.packets.received += 1;
        ledger.bytes.received += wire_bytes;
        let mut packet = Packet { time_ns: frame.time_ns, interface: frame.interface, ..Packet::default() };
        let refused = match decode(frame.link, frame.bytes, frame.wire_bytes, options, &mut packet) {
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
        ledger.packets.refused.count(refused);
        ledger.bytes.refused.add(refused, wire_bytes);
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

/// What to say of an output that could not be written.
pub fn not_written(name: &str, error: &std::io::Error) -> String {
    format!("{name}: {error}{}", files::advice(error))
}
