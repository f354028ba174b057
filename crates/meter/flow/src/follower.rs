//! What a caller does with each packet once it is counted: it gets the flow of the packet, and has
//! eight octets per flow for itself.

use crate::{FlowRecord, FlowTuple};
use weir_packet::Packet;

/// Sees each packet of a burst after it was counted in its flow, in the order of the burst. It does
/// not see packets of no flow: the cache was full, or it is under overload.
pub trait PacketFollower {
    /// Whether there is anything to do. If not, the loop over packets is compiled without it.
    const ACTIVE: bool;

    /// Whether [`PacketFollower::follow`] needs the record of a flow with this mark, as far as it has
    /// come.
    fn needs_record(&self, mark: u64) -> bool;

    /// Whether [`PacketFollower::follow`] needs the five-tuples of flows.
    fn needs_tuple(&self) -> bool;

    /// A packet of a flow. `mark` is what the last call for this flow has left there, 0 for a new
    /// flow. It outlives the record at the active timeout.
    fn follow(&mut self, followed: &mut FollowedPacket<'_>, mark: &mut u64);
}

/// A packet and its flow.
#[derive(Debug)]
pub struct FollowedPacket<'a> {
    /// Index of the packet in the burst.
    pub index: usize,
    /// The packet.
    pub packet: &'a Packet,
    /// The slot of its flow, which another flow gets when this one has ended.
    pub slot: u32,
    /// No later packet can tell more about the application of the flow.
    pub inspection_ended: bool,
    /// The record so far, if it was asked for. It includes this packet.
    pub record: Option<&'a mut FlowRecord>,
    /// The five-tuple of the flow, if it was asked for. It has the ports also if the packet is a later
    /// fragment.
    pub tuple: Option<FlowTuple>,
}

/// Does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoFollower;

impl PacketFollower for NoFollower {
    const ACTIVE: bool = false;

    fn needs_record(&self, _: u64) -> bool {
        false
    }

    fn needs_tuple(&self) -> bool {
        false
    }

    fn follow(&mut self, _: &mut FollowedPacket<'_>, _: &mut u64) {}
}
