//! Which frames are admitted: sampling, then their time and the packet filter, and after decoding the self-traffic
//! filter. The counters of what is left out go into the ledger.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use weir_capture::{Burst, Frame, PacketFilter};
use weir_ledger::{Ledger, TrafficCounters};
use weir_packet::{Flags, Packet, address_octets};

const UDP: u8 = 17;

/// What each frame has to pass.
pub(crate) struct Admission {
    /// `None` if every packet is metered.
    pub sampler: Option<Sampler>,
    /// Frames that do not match are not admitted; `None` is no filter.
    pub filter: Option<PacketFilter>,
    /// Frames of other times are not admitted, ns since 1970 UTC; `None` admits all.
    pub times_ns: Option<RangeInclusive<u64>>,
}

impl Admission {
    /// Removes the frames of a burst that are not admitted, and counts them.
    #[inline]
    pub fn admit(&mut self, burst: &mut Burst<'_>, ledger: &mut Ledger) {
        if let Some(sampler) = &mut self.sampler {
            remove_unless(burst, ledger, |counters| &mut counters.sampled_out, |_| sampler.choose_next());
        }
        if let Some(times_ns) = &self.times_ns {
            remove_unless(burst, ledger, |counters| &mut counters.filtered, |frame| times_ns.contains(&frame.time_ns));
        }
        if let Some(filter) = &mut self.filter {
            remove_unless(burst, ledger, |counters| &mut counters.filtered, |frame| filter.matches(frame));
        }
    }
}

/// Removes frames and counts them as received and in `counter`.
#[inline]
fn remove_unless(
    burst: &mut Burst<'_>,
    ledger: &mut Ledger,
    counter: fn(&mut TrafficCounters) -> &mut u64,
    mut keep: impl FnMut(&Frame<'_>) -> bool,
) {
    let (frames, mut removed_bytes) = (burst.len(), 0);
    burst.retain(|frame| {
        let keeps = keep(frame);
        removed_bytes += if keeps { 0 } else { u64::from(frame.wire_bytes) };
        keeps
    });
    let removed_packets = (frames - burst.len()) as u64;
    for (counters, removed) in [(&mut ledger.packets, removed_packets), (&mut ledger.bytes, removed_bytes)] {
        counters.received += removed;
        *counter(counters) += removed;
    }
}

/// Random n-out-of-N packet sampling with n = 1 (RFC 5475 section 5.2.1).
///
/// Of each N consecutive packets exactly one is chosen, independent of how they are grouped into
/// bursts. So the share is exact, and neither periodic traffic nor a sender that times its packets
/// can avoid the sample, as is possible with systematic sampling (every Nth packet).
pub(crate) struct Sampler {
    /// N, the packets of a group.
    population: u32,
    /// Packets of the current group so far.
    seen: u32,
    /// The number of the packet that is chosen in the current group.
    chosen: u32,
    random: fastrand::Rng,
}

impl Sampler {
    /// A sampler that chooses one packet in `population`, which is at least 1.
    pub fn new(population: u32) -> Self {
        let mut random = fastrand::Rng::new();
        Self { population, seen: 0, chosen: random.u32(..population), random }
    }

    #[inline]
    fn choose_next(&mut self) -> bool {
        let is_chosen = self.seen == self.chosen;
        self.seen += 1;
        if self.seen == self.population {
            (self.seen, self.chosen) = (0, self.random.u32(..self.population));
        }
        is_chosen
    }
}

/// The filter for Weir's own export traffic: source and destination of the UDP datagrams that sinks
/// send. A record of an export datagram would cause another datagram, and so on without end;
/// therefore such datagrams are never metered. Their later fragments have no ports: all later UDP
/// fragments between the addresses of a sink match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTrafficFilter(Vec<[([u8; 16], u16); 2]>);

impl SelfTrafficFilter {
    /// A filter for `[source, destination]` pairs, see [`weir_export::Sink::udp_endpoints`].
    pub fn new(endpoints: impl IntoIterator<Item = [SocketAddr; 2]>) -> Self {
        Self(endpoints.into_iter().map(|ends| ends.map(endpoint)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline(never)]
    pub(crate) fn matches(&self, packet: &Packet) -> bool {
        // The addresses decide first: other packets are not examined for fragments.
        let is_own = |&[(source, source_port), (destination, destination_port)]: &[_; 2]| {
            (packet.source, packet.destination) == (source, destination)
                && ((packet.source_port, packet.destination_port) == (source_port, destination_port)
                    || packet.flags.has(Flags::FRAGMENT_LATER))
        };
        packet.protocol == UDP && self.0.iter().any(is_own)
    }
}

fn endpoint(address: SocketAddr) -> ([u8; 16], u16) {
    (address_octets(address.ip()), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::ipv4_mapped;

    #[test]
    fn later_udp_fragments_match_by_the_addresses_alone() {
        let [local, remote, other] = [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 3]];
        let filter = SelfTrafficFilter::new([[(local, 50_000), (remote, 4739)].map(SocketAddr::from)]);
        let matches = |source, destination, ports: [u16; 2], protocol, flags| {
            let [source, destination] = [source, destination].map(ipv4_mapped);
            let [source_port, destination_port] = ports;
            let flags = Flags(flags);
            let packet =
                Packet { source, destination, source_port, destination_port, protocol, flags, ..Packet::default() };
            filter.matches(&packet)
        };
        let (first, later) = (Flags::FRAGMENT_FIRST | Flags::PORTS, Flags::FRAGMENT_LATER);
        for flags in [Flags::PORTS, first] {
            assert!(matches(local, remote, [50_000, 4739], UDP, flags));
            assert!(!matches(local, remote, [50_001, 4739], UDP, flags));
            assert!(!matches(local, remote, [50_000, 53], UDP, flags));
        }
        assert!(matches(local, remote, [0; 2], UDP, later));
        assert!(!matches(local, remote, [0; 2], UDP, 0));
        assert!(!matches(remote, local, [0; 2], UDP, later));
        assert!(!matches(local, other, [0; 2], UDP, later));
        assert!(!matches(local, remote, [0; 2], 6, later));
    }

    #[test]
    fn exactly_one_packet_of_each_group_is_chosen_and_each_position_equally_often() {
        for population in [1_u32, 2, 3, 16, 1000] {
            let mut sampler = Sampler::new(population);
            let mut times_chosen = vec![0_u32; population as usize];
            let groups = 20 * population + 1000;
            for _ in 0..groups {
                let chosen: Vec<usize> = (0..population as usize).filter(|_| sampler.choose_next()).collect();
                assert_eq!(chosen.len(), 1);
                times_chosen[chosen[0]] += 1;
            }
            let mean = f64::from(groups) / f64::from(population);
            let is_far = |&times: &u32| (f64::from(times) - mean).abs() > 7.0 * mean.sqrt() + 1.0;
            assert!(!times_chosen.iter().any(is_far), "one in {population}: {times_chosen:?}");
        }
    }
}
