//! The decoder's door.

use crate::{Notes, Packet};
use weir_ledger::Refused;

/// What the decoder enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Enter GRE, IP-in-IP, 6in4, 4in6, VXLAN, Geneve and GTP-U: the packet is then the innermost one.
    pub decapsulate: bool,
}

/// Reads the headers of one frame into `packet`, which it overwrites but for `time_ns` and `interface`.
///
/// `link` is the LINKTYPE number of the capture; `bytes` what was captured; `frame_bytes` the
/// length on the wire. A frame without IP becomes a packet of `Network::Layer2`.
///
/// # Errors
/// The one reason why there is no packet. `packet` is then unspecified.
pub fn decode(
    link: u16,
    bytes: &[u8],
    frame_bytes: u32,
    options: Options,
    packet: &mut Packet,
) -> Result<Notes, Refused> {
    let _ = (link, bytes, frame_bytes, options, packet);
    Err(Refused::LinkType)
}
