//! A batch: packed packets in the order of the capture.

use crate::buffer::Buffer;
use crate::packed::{PackedIpv6, PackedPacket, PackedSegment};
use weir_packet::{Network, Packet};
use weir_tcp::DigestKey;

/// Most entries of a batch: their numbers have 24 bits.
pub(crate) const MAX_ENTRIES: usize = 1 << 24;
/// Size of the largest entry.
pub(crate) const MAX_ENTRY_BYTES: usize = size_of::<PackedIpv6>();
/// How far before the first packet of a batch later ones may lie: of the 4.3 s that 32 bits hold.
const SLACK_NS: u64 = 1 << 30;

/// Packets of one network whose times fit into 32 bits.
pub(crate) struct Batch {
    pub network: Network,
    /// Packet times are relative to this, ns.
    pub base_ns: u64,
    /// Entries, including extensions.
    pub count: usize,
    pub buffer: Buffer,
}

impl Batch {
    /// Creates an empty batch in a buffer.
    pub fn new(network: Network, buffer: Buffer) -> Self {
        Self { network, base_ns: 0, count: 0, buffer }
    }

    /// The entries. `P` is the type for the network of the batch.
    pub fn entries<P: PackedPacket>(&self) -> &[P] {
        bytemuck::cast_slice(&self.buffer.bytes()[..self.count * size_of::<P>()])
    }

    /// Adds a packet of its network. Returns false if the batch is full or the time does not fit.
    #[inline]
    pub fn push<P: PackedPacket>(&mut self, packet: &Packet, key: &DigestKey, max_entries: usize) -> bool {
        if self.count == 0 {
            self.base_ns = packet.time_ns.saturating_sub(SLACK_NS);
        }
        let fits = packet.time_ns.checked_sub(self.base_ns).is_some_and(|ns| ns <= u32::MAX.into());
        let bytes = self.buffer.bytes_mut();
        let whole = bytes.len() / size_of::<P>() * size_of::<P>();
        let entries: &mut [P] = bytemuck::cast_slice_mut(&mut bytes[..whole]);
        // A packet and its extension are in the same batch.
        if !fits || self.count + 2 > max_entries.min(entries.len()) {
            return false;
        }
        let (segment, extension) = PackedSegment::pack(packet, self.base_ns, key);
        entries[self.count] = P::new(packet, segment);
        self.count += 1;
        if let Some(extension) = extension {
            entries[self.count] = P::new(packet, extension);
            self.count += 1;
        }
        true
    }
}
