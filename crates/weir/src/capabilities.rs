//! The capabilities of this process: which are missing, and how to give them.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::env::current_exe;

/// Makes all permitted capabilities of this thread, and of those that it starts from now on, effective. The file of the
/// program in an image has them as permitted ones, so that it also starts where one of them is not given.
pub fn raise_permitted() {
    if let Ok(sets) = capabilities(None)
        && sets.effective != sets.permitted
    {
        // Permitted ones may always be raised.
        let _ = set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets });
    }
}

/// Those of these capabilities that the process does not have.
pub fn missing(needed: &[&'static str]) -> Vec<&'static str> {
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let is_missing = |name: &&&str| set_of(name).is_some_and(|set| !permitted.contains(set));
    needed.iter().filter(is_missing).copied().collect()
}

/// What the user can do if live traffic may not be read; begins with punctuation.
pub fn advice(error: &weir_capture::Error) -> String {
    let needed = error.needed_capabilities();
    if needed.is_empty() {
        return String::new();
    }
    let missing = missing(needed);
    if missing.is_empty() {
        return "; this process has them, so a user namespace or a sandbox around it forbids it".into();
    }
    format!("; missing: {}. {}", missing.join(", "), how_to_give(needed, &missing))
}

/// How a probe gets capabilities.
pub fn how_to_give(needed: &[&str], missing: &[&str]) -> String {
    let names: Vec<&str> = missing.iter().map(|name| name.trim_start_matches("CAP_")).collect();
    format!(
        "Start it as root, or once as root: {}; in a service AmbientCapabilities={}, in a container --cap-add {}",
        setcap(needed),
        missing.join(" "),
        names.join(" --cap-add ")
    )
}

/// The command that gives them to the file of this program.
pub fn setcap(needed: &[&str]) -> String {
    let program = current_exe().map_or_else(|_| "weir".into(), |path| path.display().to_string());
    format!("setcap {}+ep {program}", needed.join(",").to_lowercase())
}

fn set_of(name: &str) -> Option<CapabilitySet> {
    Some(match name {
        "CAP_NET_RAW" => CapabilitySet::NET_RAW,
        "CAP_NET_ADMIN" => CapabilitySet::NET_ADMIN,
        "CAP_BPF" => CapabilitySet::BPF,
        _ => return None,
    })
}
