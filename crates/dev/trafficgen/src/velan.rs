//! The profile `velan`: CESNET's synthetic traffic of equal UDP packets whose flows differ only in
//! some address bits (Velan, Puš: High-Density Network Flow Monitoring, 2015, section IV.B and
//! Table I).
//!
//! The even bits of a flow's number are bits of the source address, the odd ones of the destination
//! address, and the ports never change: every flow has its own 5-tuple, which is hard for a weak
//! hash function.

use crate::Profile;
use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::frame::{ETHERNET, Endpoint, Headers, Slot, Transport, UDP, finish, sum, udp_checksum};
use crate::population::{Bounds, SECOND_NS, START_NS};
use crate::random::Random;
use weir_capture::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["flows", "size", "packets", "duration", "seed", "order", "directions", "rate", "new", "snap"];

/// Networks for benchmarks (RFC 2544): flows go from the lower half to the upper.
const SOURCES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const DESTINATIONS: u32 = u32::from_be_bytes([198, 19, 0, 0]);
const SOURCE_PORT: u16 = 49_152;
const DESTINATION_PORT: u16 = 49_153;
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Bytes of the frame check sequence, which sizes include and captures do not.
const FCS: u32 = 4;

/// CESNET's Table I, the traffic of a generator on one 10 Gbit/s interface: frame size in bytes with the
/// 4 bytes of the FCS, packets per second, bits of frames per second.
pub const CESNET_RATES: [(u32, u64, u64); 4] = [
    (64, 14_880_545, 7_618_839_040),
    (128, 8_445_715, 8_648_411_900),
    (256, 4_528_861, 9_275_108_100),
    (512, 2_349_560, 9_623_786_500),
];

#[derive(Clone, Copy)]
enum Order {
    Random,
    Round,
}

pub(super) struct Velan {
    random: Random,
    flows: u64,
    order: Order,
    two_way: bool,
    wire_bytes: u32,
    /// The time, and packets per second.
    clock: Steps,
    /// The number of the oldest active flow.
    window: Steps,
    bounds: Bounds,
    sent: u64,
    /// Headers of both directions, without the lower halves of the addresses and the checksums.
    templates: [[u8; HEADERS]; 2],
    /// Sums of their words, for the checksums.
    ip_sum: u32,
    udp_sum: u32,
}

impl Velan {
    /// Parses the settings after `velan,`.
    pub(super) fn new(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("velan", KEYS, text)?;
        let flows = values.number("flows", [1, 1 << 32])?.unwrap_or(131_072);
        let size = values.number("size", [64, 1518])?.unwrap_or(64) as u32;
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let order = values.choice("order", &[("random", Order::Random), ("round", Order::Round)])?;
        let two_way = values.choice("directions", &[("1", false), ("2", true)])?.unwrap_or(false);
        let rate = values.number("rate", [1, SECOND_NS])?.unwrap_or_else(|| line_rate(size));
        let new = values.number("new", [0, rate])?.unwrap_or(0);
        let wire_bytes = size - FCS;
        let [(forward, ip_sum, udp_sum), (reverse, ..)] = [0, 1].map(|direction| template(wire_bytes, direction));
        Ok(Self {
            random: Random::new(seed),
            flows,
            order: order.unwrap_or(Order::Random),
            two_way,
            wire_bytes,
            clock: Steps::new(START_NS, SECOND_NS, rate),
            window: Steps::new(0, new, rate),
            bounds: Bounds::read(&values, 8_000_000)?,
            sent: 0,
            templates: [forward, reverse],
            ip_sum,
            udp_sum,
        })
    }

    /// Returns the number within the window, and the direction, of the next packet's flow.
    #[inline]
    fn draw(&mut self) -> (u32, usize) {
        let drawn = match self.order {
            Order::Random => self.random.next_u64(),
            // In turn: every flow forward, then every flow in reverse.
            Order::Round => {
                let turn = self.sent % (2 * self.flows);
                let back = turn >= self.flows;
                return ((turn - u64::from(back) * self.flows) as u32, usize::from(back && self.two_way));
            }
        };
        let number = ((drawn >> 32) * self.flows) >> 32;
        (number as u32, usize::from(self.two_way) & drawn as usize & 1)
    }
}

impl Profile for Velan {
    fn fill(&mut self, slots: &mut [Slot], mut expected: Option<&mut ExpectedFlows>) -> usize {
        for (filled, slot) in slots.iter_mut().enumerate() {
            if self.bounds.reached(self.sent, self.clock.value) {
                return filled;
            }
            let (drawn, direction) = self.draw();
            let number = (self.window.value as u32).wrapping_add(drawn);
            let (source, destination) = endpoints(number);
            let octets = slot.octets.first_chunk_mut::<HEADERS>().expect("a slot is longer than the headers");
            *octets = self.templates[direction];
            let (first, second) = if direction == 0 { (source, destination) } else { (destination, source) };
            octets[28..30].copy_from_slice(&first.to_be_bytes());
            octets[32..34].copy_from_slice(&second.to_be_bytes());
            let addresses = u32::from(source) + u32::from(destination);
            octets[24..26].copy_from_slice(&finish(self.ip_sum + addresses).to_be_bytes());
            octets[40..42].copy_from_slice(&udp_checksum(finish(self.udp_sum + addresses)).to_be_bytes());
            slot.time_ns = self.clock.value;
            slot.wire_bytes = self.wire_bytes;
            if let Some(expected) = expected.as_deref_mut() {
                // The sender of the first packet is the initiator, whichever direction it has.
                let flow = expected.by_number(number, || ExpectedFlow::new(ends(number, direction), false, UDP));
                let forward = flow.source_port == [SOURCE_PORT, DESTINATION_PORT][direction];
                flow.count(!forward, slot, self.wire_bytes - ETHERNET as u32, 0);
            }
            self.sent += 1;
            self.clock.tick();
            self.window.tick();
        }
        slots.len()
    }

    fn bounds(&mut self) -> &Bounds {
        &self.bounds
    }

    fn total_bytes(&self) -> Option<u64> {
        let Bounds { packets, end_ns, snap } = self.bounds;
        (end_ns == u64::MAX).then(|| packets * u64::from(self.wire_bytes.min(snap)))
    }
}

/// Returns the lower halves of the source and destination address of a flow: the even and the odd
/// bits of its number.
#[inline]
fn endpoints(number: u32) -> (u16, u16) {
    let number = u64::from(number);
    let mut bits = (number & 0x5555_5555) | ((number & 0xaaaa_aaaa) << 31);
    bits = (bits | (bits >> 1)) & 0x3333_3333_3333_3333;
    bits = (bits | (bits >> 2)) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | (bits >> 4)) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | (bits >> 8)) & 0x0000_ffff_0000_ffff;
    (bits as u16, (bits >> 32) as u16)
}

/// Returns source and destination of the packets of a flow in one direction.
fn ends(number: u32, direction: usize) -> [Endpoint; 2] {
    let (source, destination) = endpoints(number);
    let endpoint = |network: u32, host: u16, port| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&(network | u32::from(host)).to_be_bytes());
        Endpoint { address, port }
    };
    let mut ends = [endpoint(SOURCES, source, SOURCE_PORT), endpoint(DESTINATIONS, destination, DESTINATION_PORT)];
    if direction == 1 {
        ends.reverse();
    }
    ends
}

/// Returns the headers of one direction of flow 0 with checksums of 0, and the sums of the words of
/// the IP header and of the UDP header with its pseudo-header.
fn template(wire_bytes: u32, direction: usize) -> ([u8; HEADERS], u32, u32) {
    let [source, destination] = ends(0, direction);
    let headers = Headers {
        ipv6: false,
        source,
        destination,
        source_side: direction as u8,
        ttl: 64,
        identification: 0,
        transport: Transport::Udp,
        payload: (wire_bytes as usize - HEADERS) as u16,
        opening: [0; 4],
    };
    let mut slot = Slot { time_ns: 0, wire_bytes: 0, octets: [0; 1588] };
    headers.write(&mut slot);
    let mut octets = *slot.octets.first_chunk::<HEADERS>().expect("a slot is longer than the headers");
    octets[24..26].fill(0);
    octets[40..42].fill(0);
    let udp_bytes = u32::from(u16::from_be_bytes([octets[38], octets[39]]));
    let pseudo = sum(&octets[26..34]) + u32::from(UDP) + udp_bytes;
    (octets, sum(&octets[14..34]), sum(&octets[34..42]) + pseudo)
}

/// Returns the packets per second at 10 Gbit/s: from Table I, otherwise with the 20 bytes between
/// Ethernet frames.
fn line_rate(size: u32) -> u64 {
    let known = CESNET_RATES.iter().find(|row| row.0 == size);
    known.map_or_else(|| 10_000_000_000 / (8 * (u64::from(size) + 20)), |row| row.1)
}

/// A number that grows with every packet by a constant amount, exact over any duration.
struct Steps {
    value: u64,
    /// Packets per second.
    rate: u64,
    /// Growth: whole numbers, and the fraction in units of 1 / `rate`.
    step: [u64; 2],
    /// Accumulated fraction.
    parts: u64,
}

impl Steps {
    fn new(value: u64, per_second: u64, rate: u64) -> Self {
        Self { value, rate, step: [per_second / rate, per_second % rate], parts: 0 }
    }

    #[inline]
    fn tick(&mut self) {
        let [whole, parts] = self.step;
        self.value += whole;
        self.parts += parts;
        if self.parts >= self.rate {
            self.parts -= self.rate;
            self.value += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_number_has_its_own_addresses() {
        let some = (0..100_000).chain(u32::MAX - 1000..=u32::MAX);
        let distinct: HashSet<(u16, u16)> = some.clone().map(endpoints).collect();
        assert_eq!(distinct.len(), some.count());
        // Each bit of the number is one bit of one address.
        let bits: HashSet<(u16, u16)> = (0..32).map(|bit| endpoints(1 << bit)).collect();
        assert_eq!(bits.len(), 32);
        assert!(bits.iter().all(|(source, destination)| source.count_ones() + destination.count_ones() == 1));
    }

    #[test]
    fn clock_is_exact_after_a_second() {
        let mut clock = Steps::new(START_NS, SECOND_NS, 14_880_545);
        (0..14_880_545).for_each(|_| clock.tick());
        assert_eq!(clock.value, START_NS + SECOND_NS);
    }
}
