//! Opens live traffic by its name.
//!
//! ```text
//! SCHEME:NAME[,key=value]...       af_packet:eth0,queues=4       dpdk:0000:17:00.0,queues=8
//! SCHEME:NAME+NAME[,...]           af_packet:eth0+eth1: the two directions of a network tap, merged
//! ```
//! Out: one [`LiveSource`] per receive queue, each to be read by its own thread. Both directions of
//! a flow are delivered by the same one.

use crate::live_error::LiveError;
use crate::tap::{self, Tap};
use crate::{Error, LiveSource, af_packet, af_xdp, system};

/// Schemes of live sources, with the colon.
pub const LIVE_SCHEMES: [&str; 3] = [af_packet::SCHEME, af_xdp::SCHEME, DPDK];
const DPDK: &str = "dpdk:";

/// Returns whether a source is live traffic, by its name.
pub fn is_live(source: &str) -> bool {
    LIVE_SCHEMES.iter().any(|scheme| source.starts_with(scheme))
}

/// Opens live traffic: one source per receive queue, in the order of their numbers.
///
/// # Errors
/// [`Error::Live`]: no such interface, no permission, or a wrong setting.
pub fn open_live(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let names = interface_sources(source);
    if names.len() < 2 {
        return open_interface(source);
    }
    let refuse = |cause| Error::Live { name: source.into(), cause };
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(refuse(LiveError::DuplicateInterface));
    }
    if source.starts_with(af_packet::SCHEME) {
        return af_packet::open_tap(source, &names);
    }
    let opened = names.iter().map(|name| open_interface(name)).collect::<Result<Vec<_>, _>>()?;
    let queues = tap::queue_by_queue(opened).map_err(refuse)?;
    Ok(queues.into_iter().map(|queues| Box::new(Tap::new(queues)) as Box<dyn LiveSource + Send>).collect())
}

/// Returns the devices of a live source without settings: `af_packet:eth0` for
/// `af_packet:eth0,queues=4`; several for a tap.
pub fn devices(source: &str) -> Vec<String> {
    let without_settings = |name: String| name.split(',').next().unwrap_or_default().to_owned();
    interface_sources(source).into_iter().map(without_settings).collect()
}

/// Splits the name of a tap into one source per interface.
fn interface_sources(source: &str) -> Vec<String> {
    let (scheme, rest) = source.split_once(':').unwrap_or((source, ""));
    let (interfaces, settings) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
    // The arguments of a DPDK device may contain any character.
    if source.starts_with(DPDK) || !interfaces.contains('+') {
        return vec![source.into()];
    }
    interfaces.split('+').map(|interface| format!("{scheme}:{interface}{settings}")).collect()
}

/// Returns whether the interface of one of the [`devices`] is up and has a link; `None` if it does
/// not exist or is not the kernel's.
pub fn has_link(device: &str) -> Option<bool> {
    match device.split_once(':') {
        Some((_, interface)) if !device.starts_with(DPDK) => system::has_link(interface).ok(),
        _ => None,
    }
}

/// Opens a single interface.
fn open_interface(source: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    if source.starts_with(af_packet::SCHEME) {
        return af_packet::open(source);
    }
    if source.starts_with(af_xdp::SCHEME) {
        return af_xdp::open(source);
    }
    if let Some(rest) = source.strip_prefix(DPDK) {
        return open_dpdk(source, rest);
    }
    Err(Error::Live { name: source.into(), cause: LiveError::UnknownScheme { known: &LIVE_SCHEMES } })
}

/// Returns a warning to print when this source is opened, if it has side effects on the host.
pub fn notice(source: &str) -> Option<&'static str> {
    source.starts_with(af_xdp::SCHEME).then_some(af_xdp::NOTICE)
}

#[cfg(feature = "dpdk")]
use crate::dpdk::open as open_dpdk;

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(name: &str, _rest: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    Err(Error::Live { name: name.into(), cause: LiveError::NoDpdk })
}

#[cfg(all(test, not(feature = "dpdk")))]
mod tests {
    use super::*;

    #[test]
    fn build_without_dpdk_says_how_to_get_it() {
        assert!(is_live("dpdk:net_null0"));
        let Err(error) = open_live("dpdk:net_null0,queues=4") else { panic!("it cannot be opened") };
        let text = error.to_string();
        assert!(text.starts_with("dpdk:net_null0,queues=4: this weir was built without DPDK"), "{text}");
        assert!(text.contains("--features dpdk"), "{text}");
    }
}
