//! Live traffic by name: what is opened, and how the name is read.
//!
//! ```text
//! SCHEME:NAME[,key=value]...       af_packet:eth0,queues=4
//! ```
//! A live source is as many [`Source`]s as it has queues, each to be read by a thread of its own. What comes in both
//! directions of one flow is handed over by one of them.

use crate::{Error, Source, af_packet, af_xdp};

/// Schemes of live sources, with the colon.
pub const LIVE: [&str; 2] = [af_packet::SCHEME, af_xdp::SCHEME];

/// Whether a source is live traffic by its name.
pub fn is_live(source: &str) -> bool {
    LIVE.iter().any(|scheme| source.starts_with(scheme))
}

/// Opens live traffic: a source per queue, in the order of their numbers.
///
/// # Errors
/// [`Error::Live`]: no such interface, not permitted, a setting that makes no sense.
pub fn live(source: &str) -> Result<Vec<Box<dyn Source + Send>>, Error> {
    if source.starts_with(af_packet::SCHEME) {
        return af_packet::open(source);
    }
    if source.starts_with(af_xdp::SCHEME) {
        return af_xdp::open(source);
    }
    let what = format!("not live traffic: {} are", LIVE.join(", "));
    Err(Error::Live { name: source.into(), what })
}

/// What somebody who opens live traffic must know before, if anything; to be said where it is opened.
pub fn notice(source: &str) -> Option<&'static str> {
    source.starts_with(af_xdp::SCHEME).then_some(af_xdp::NOTICE)
}
