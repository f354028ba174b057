//! Live traffic by name: what is opened, and how the name is read.
//!
//! ```text
//! SCHEME:NAME[,key=value]...       af_packet:eth0,queues=4       dpdk:0000:17:00.0,queues=8
//! SCHEME:NAME+NAME[,...]           af_packet:eth0+eth1: both directions of a tap, as one, in the order of time
//! ```
//! A live source is as many [`LiveSource`]s as it has queues, each to be read by a thread of its own. What comes in both
//! directions of one flow is handed over by one of them.

use crate::tap::{self, Tap};
use crate::{Error, LiveSource, af_packet, af_xdp};

/// Schemes of live sources, with the colon.
pub const LIVE_SCHEMES: [&str; 3] = [af_packet::SCHEME, af_xdp::SCHEME, DPDK];
const DPDK: &str = "dpdk:";

/// Whether a source is live traffic by its name.
pub fn is_live(source: &str) -> bool {
    LIVE_SCHEMES.iter().any(|scheme| source.starts_with(scheme))
}

/// Opens live traffic: a source per queue, in the order of their numbers.
///
/// # Errors
/// [`Error::Live`]: no such interface, not permitted, a setting that makes no sense.
pub fn open_live(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let names = names(source);
    if names.len() < 2 {
        return one(source);
    }
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        let what = "an interface stands there twice, and each packet would count twice".into();
        return Err(Error::Live { name: source.into(), what });
    }
    if source.starts_with(af_packet::SCHEME) {
        return af_packet::open_tap(source, &names);
    }
    let opened = names.iter().map(|name| one(name)).collect::<Result<Vec<_>, _>>()?;
    let queues = tap::queue_by_queue(source, opened)?;
    Ok(queues.into_iter().map(|queues| Box::new(Tap::new(queues)) as Box<dyn LiveSource + Send>).collect())
}

/// What live traffic is taken from, by its name: `af_packet:eth0` of `af_packet:eth0,queues=4`; two of a tap.
pub fn devices(source: &str) -> Vec<String> {
    let without_settings = |name: String| name.split(',').next().unwrap_or_default().to_owned();
    names(source).into_iter().map(without_settings).collect()
}

/// The sources of single interfaces that a name stands for.
fn names(source: &str) -> Vec<String> {
    let (scheme, rest) = source.split_once(':').unwrap_or((source, ""));
    let (interfaces, settings) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
    // A device of DPDK may have any sign in its arguments.
    if source.starts_with(DPDK) || !interfaces.contains('+') {
        return vec![source.into()];
    }
    interfaces.split('+').map(|interface| format!("{scheme}:{interface}{settings}")).collect()
}

/// Whether the interface of one of [`devices`] is up and has a link; `None` if it is gone, or not the system's.
pub fn has_link(device: &str) -> Option<bool> {
    match device.split_once(':') {
        Some((_, interface)) if !device.starts_with(DPDK) => crate::system::has_link(interface).ok(),
        _ => None,
    }
}

/// Opens a single interface.
fn one(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    if source.starts_with(af_packet::SCHEME) {
        return af_packet::open(source);
    }
    if source.starts_with(af_xdp::SCHEME) {
        return af_xdp::open(source);
    }
    if let Some(rest) = source.strip_prefix(DPDK) {
        return dpdk(source, rest);
    }
    let what = format!("not live traffic: {} are", LIVE_SCHEMES.join(", "));
    Err(Error::Live { name: source.into(), what })
}

/// What somebody who opens live traffic must know before, if anything; to be said where it is opened.
pub fn notice(source: &str) -> Option<&'static str> {
    source.starts_with(af_xdp::SCHEME).then_some(af_xdp::NOTICE)
}

#[cfg(feature = "dpdk")]
use crate::dpdk::open as dpdk;

/// Without DPDK: says how to have it.
#[cfg(not(feature = "dpdk"))]
fn dpdk(name: &str, _rest: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let what = "this weir was built without DPDK: `cargo build --release --features dpdk` builds it in, and needs DPDK \
        itself (on Debian 12, apt-get install libdpdk-dev pkg-config)";
    Err(Error::Live { name: name.into(), what: what.into() })
}

#[cfg(all(test, not(feature = "dpdk")))]
mod tests {
    use super::*;

    #[test]
    fn a_weir_without_dpdk_says_how_to_have_it() {
        assert!(is_live("dpdk:net_null0"));
        let Err(error) = open_live("dpdk:net_null0,queues=4") else { panic!("it cannot be opened") };
        let text = error.to_string();
        assert!(text.starts_with("dpdk:net_null0,queues=4: this weir was built without DPDK"), "{text}");
        assert!(text.contains("--features dpdk"), "{text}");
    }
}
