//! What the headers before IP say about a frame.

use crate::packet::{NO_LABEL, NO_VLAN};

/// Fields of the headers before IP. Each parser fills in its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkHeaders {
    /// Source MAC address; 0 where the link type has none.
    pub source: [u8; 6],
    /// Destination MAC address; 0 where the link type has none.
    pub destination: [u8; 6],
    /// VLAN identifier of the outermost tag, or [`NO_VLAN`].
    pub vlan: u16,
    /// VLAN identifier of the second tag, or [`NO_VLAN`].
    pub inner_vlan: u16,
    /// Top label of the outermost label stack, or [`NO_LABEL`].
    pub mpls_label: u32,
}

impl LinkHeaders {
    /// No header was read.
    pub const EMPTY: Self =
        Self { source: [0; 6], destination: [0; 6], vlan: NO_VLAN, inner_vlan: NO_VLAN, mpls_label: NO_LABEL };

    /// Fills in the identifier of the next tag; further ones than two are ignored.
    #[inline]
    pub fn add_vlan(&mut self, vlan: u16) {
        if self.vlan == NO_VLAN {
            self.vlan = vlan;
        } else if self.inner_vlan == NO_VLAN {
            self.inner_vlan = vlan;
        }
    }
}
