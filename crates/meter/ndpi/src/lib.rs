//! nDPI, a library of ntop that recognises several hundred applications, as a second opinion beside
//! crate `dpi`.
//!
//! In: packets of a flow, from the IP header on. Out: protocol, category, confidence and risks, as
//! nDPI names them. Only with the cargo feature `ndpi`, which links the library dynamically (it is
//! LGPL-3.0); without it [`Library::open`] fails. nDPI is C code that reads packets of strangers.

#[cfg(feature = "ndpi")]
mod library;
#[cfg(not(feature = "ndpi"))]
mod without;

#[cfg(feature = "ndpi")]
pub use library::{Flow, Library, version};
#[cfg(not(feature = "ndpi"))]
pub use without::{Flow, Library, version};

use bytemuck::Zeroable;

/// What nDPI knows of a flow, as its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(C)]
pub struct Classification {
    /// Set of risks.
    pub risks: u64,
    master: u16,
    application: u16,
    category: u16,
    confidence: u16,
}

impl Classification {
    /// Whether a protocol was recognised.
    pub fn is_known(&self) -> bool {
        self.master != 0 || self.application != 0
    }
}

/// The same in nDPI's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Protocol, with the one that it is within: `TLS`, `TLS.Google`. Empty if none was recognised.
    pub protocol: String,
    /// Category: `Web`, `Network`.
    pub category: String,
    /// How the protocol is known: `DPI`, `Match by IP`.
    pub confidence: &'static str,
    /// Risks: `Known Protocol on Non Standard Port`.
    pub risks: Vec<&'static str>,
}

/// Why nDPI cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The feature is off.
    #[error("this weir was built without nDPI; build it with --features ndpi")]
    NotBuiltIn,
    /// The system has too little memory.
    #[error("nDPI has too little memory")]
    OutOfMemory,
}
