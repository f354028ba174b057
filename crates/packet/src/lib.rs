//! The decoder: frame bytes in, one [`Packet`] or one reason out.
//!
//! In: the captured bytes of one frame, its link type and its length on the wire.
//! Out: what the headers said, in two cache lines, never the payload.
//! Always true: nothing allocates, panics or loops without a bound; lengths come from the IP
//! header, so a snapped capture gives the same packet as a full one.
//! Not here: reassembly (later fragments are resolved by the meter), flows, time.
#![forbid(unsafe_code)]

mod decode;
mod packet;

pub use decode::{Options, decode};
pub use packet::{Flags, NO_LABEL, NO_VLAN, Network, Notes, Packet, TunnelType, address, mapped};
