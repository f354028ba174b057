//! A number of packets in the order of the capture, packed, on their way to whoever walks through them.

use crate::buffer::Buffer;
use crate::record::{Facts, Record};
use weir_packet::{Network, Packet};
use weir_tcp::DigestKey;

/// The most records of a batch: the number of one has 24 bits.
pub(crate) const MOST: usize = 1 << 24;
/// Octets of the largest record.
pub(crate) const LARGEST: usize = size_of::<crate::record::Ipv6>();
/// How far before the first packet of a batch others may lie, ns: of the 4.3 s that fit.
const SLACK_NS: u64 = 1 << 30;

/// Packets of one network between times that fit in 32 bits.
pub(crate) struct Batch {
    pub network: Network,
    /// What times are counted from, ns.
    pub base_ns: u64,
    /// Records, second ones included.
    pub count: usize,
    pub buffer: Buffer,
}

impl Batch {
    /// An empty one in this buffer.
    pub fn new(network: Network, buffer: Buffer) -> Self {
        Self { network, base_ns: 0, count: 0, buffer }
    }

    /// The records, which are of this kind.
    pub fn records<R: Record>(&self) -> &[R] {
        bytemuck::cast_slice(&self.buffer.octets()[..self.count * size_of::<R>()])
    }

    /// Adds a packet of its network. If not, it is one for another batch: there is no room, or the time does not fit.
    #[inline]
    pub fn push<R: Record>(&mut self, packet: &Packet, secret: &DigestKey, limit: usize) -> bool {
        if self.count == 0 {
            self.base_ns = packet.time_ns.saturating_sub(SLACK_NS);
        }
        let fits = packet.time_ns.checked_sub(self.base_ns).is_some_and(|ns| ns <= u32::MAX.into());
        // Both records of a packet are in one batch.
        let octets = self.buffer.octets_mut();
        let whole = octets.len() / size_of::<R>() * size_of::<R>();
        let records: &mut [R] = bytemuck::cast_slice_mut(&mut octets[..whole]);
        if !fits || self.count + 2 > limit.min(records.len()) {
            return false;
        }
        let (facts, second) = Facts::of(packet, self.base_ns, secret);
        records[self.count] = R::new(packet, facts);
        self.count += 1;
        if let Some(second) = second {
            records[self.count] = R::new(packet, second);
            self.count += 1;
        }
        true
    }
}
