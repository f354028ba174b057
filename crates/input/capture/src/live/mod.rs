//! Opens live traffic by its name.
//!
//! ```text
//! SCHEME:NAME[,key=value]...       af_packet:eth0,queues=4       dpdk:0000:17:00.0,queues=8
//! SCHEME:NAME+NAME[,...]           af_packet:eth0+eth1: the two directions of a network tap, merged
//! ```
//! Out: one [`LiveSource`] per receive queue, each to be read by its own thread. Both directions of
//! a flow are delivered by the same one.

mod af_packet;
pub mod af_xdp;
mod counters;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod interface;
pub mod links;
mod tap;

use crate::error::Error;
use crate::live_error::LiveError;
use crate::source::LiveSource;
use crate::system;
use tap::Tap;

/// One source per receive queue.
type Queues = Vec<Box<dyn LiveSource + Send>>;

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
pub fn open_live(source: &str) -> Result<Queues, Error> {
    let names = interface_sources(source);
    if names.len() < 2 {
        return open_interface(source);
    }
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(failed(source)(LiveError::DuplicateInterface));
    }
    if source.starts_with(af_packet::SCHEME) {
        let opened = names.iter().map(|name| af_packet::open(name).map_err(failed(name)));
        let queues = tap::queue_by_queue(opened.collect::<Result<_, _>>()?);
        return box_all(source, queues.map(|queues| queues.into_iter().map(af_packet::Tap::new).collect()));
    }
    let opened = names.iter().map(|name| open_interface(name)).collect::<Result<_, _>>()?;
    box_all(source, tap::queue_by_queue(opened).map(|queues| queues.into_iter().map(Tap::new).collect()))
}

/// Checks a live source without opening it: its settings, its interfaces and their queues. The devices of
/// DPDK are known only to DPDK.
///
/// # Errors
/// As [`open_live`], but no permission is checked.
pub fn check_live(source: &str) -> Result<(), Error> {
    interface_sources(source).iter().try_for_each(|name| {
        if name.starts_with(af_packet::SCHEME) {
            af_packet::check(name).map_err(failed(name))
        } else if name.starts_with(af_xdp::SCHEME) {
            af_xdp::check(name).map_err(failed(name))
        } else if cfg!(feature = "dpdk") {
            Ok(())
        } else {
            Err(failed(name)(LiveError::NoDpdk))
        }
    })
}

/// Returns whether a source can attach to its interfaces again, as far as its settings and interfaces
/// say; for AF_XDP it also needs memory that may be locked. True for a source that cannot be opened.
pub fn can_wait(source: &str) -> bool {
    interface_sources(source).iter().all(|name| {
        if name.starts_with(af_packet::SCHEME) {
            af_packet::can_wait(name)
        } else {
            name.starts_with(af_xdp::SCHEME) && af_xdp::can_wait(name)
        }
    })
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

/// Returns the interface indexes of the [`devices`] of a source: they change if an interface is removed
/// and another one of its name appears.
pub fn interface_indexes(source: &str) -> Vec<Option<u32>> {
    let index = |device: String| system::interface_index(device.split_once(':')?.1);
    devices(source).into_iter().map(index).collect()
}

/// Returns whether the interface of one of the [`devices`] exists and is up; true if it is not the
/// kernel's.
pub fn is_up(device: &str) -> bool {
    match device.split_once(':') {
        Some((_, interface)) if !device.starts_with(DPDK) => system::is_up(interface).unwrap_or(false),
        _ => true,
    }
}

fn open_interface(source: &str) -> Result<Queues, Error> {
    if source.starts_with(af_packet::SCHEME) {
        return box_all(source, af_packet::open(source));
    }
    if source.starts_with(af_xdp::SCHEME) {
        return box_all(source, af_xdp::open(source));
    }
    #[cfg(feature = "dpdk")]
    if let Some(device) = source.strip_prefix(DPDK) {
        return box_all(source, crate::live::dpdk::open(device).map_err(|error| Box::new(error).into()));
    }
    let is_dpdk = source.starts_with(DPDK);
    let cause = if is_dpdk { LiveError::NoDpdk } else { LiveError::UnknownScheme(&LIVE_SCHEMES) };
    Err(failed(source)(cause))
}

/// Makes live sources of opened queues, or names the source that cannot be opened.
fn box_all<S: LiveSource + Send + 'static>(source: &str, opened: Result<Vec<S>, LiveError>) -> Result<Queues, Error> {
    let queues = opened.map_err(failed(source))?;
    Ok(queues.into_iter().map(|queue| Box::new(queue) as Box<dyn LiveSource + Send>).collect())
}

fn failed(source: &str) -> impl FnOnce(LiveError) -> Error {
    move |cause| Error::Live { name: source.into(), cause }
}

/// Whether there is an interface of the kernel with this name.
pub fn is_interface(name: &str) -> bool {
    system::interface_index(name).is_some()
}

/// The loopback interface that a source would take away from this host, if there is one.
pub fn captured_loopback(source: &str) -> Option<String> {
    let is_loopback = |name: &String| system::hardware_type(name).is_ok_and(|kind| kind == libc::ARPHRD_LOOPBACK);
    let interfaces = devices(source).into_iter().filter_map(|device| Some(device.strip_prefix(af_xdp::SCHEME)?.into()));
    interfaces.into_iter().find(is_loopback)
}

/// Returns a warning to print when this source is opened, if it has side effects on the host.
pub fn notice(source: &str) -> Option<&'static str> {
    source.starts_with(af_xdp::SCHEME).then_some(af_xdp::NOTICE)
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
