//! What every tunnel parser returns.

use crate::frame_slice::FrameSlice;
use crate::link::NextHeader;

/// A tunnel header, and the payload after it.
pub(super) struct TunnelHeader<'a> {
    /// GRE key or call ID, VXLAN or Geneve network identifier, GTP-U tunnel endpoint identifier.
    pub identifier: Option<u32>,
    pub next: NextHeader,
    pub payload: FrameSlice<'a>,
}
