//! What a probe needs of the kernel: Landlock and seccomp, AF_XDP, IPv6, capabilities. Tried on this machine, not read
//! of files, so that a recording does not have it.

use crate::arguments::ProbeOptions;
use crate::capabilities;
use crate::sandbox;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use std::net::UdpSocket;
use weir_capture::SourceSpec;
use weir_host::{Finding, MACHINE, Severity};

/// The capability that a probe needs mostly, where no file says what it reads.
const CAPTURE: &[&str] = &["CAP_NET_RAW"];

/// What probes need of the kernel, each with what needs it.
#[derive(Default)]
pub struct KernelNeeds {
    capabilities: Vec<&'static str>,
    /// Whether there is a probe at all.
    has_probes: bool,
    af_xdp: Vec<String>,
    ipv6: Vec<String>,
}

impl KernelNeeds {
    /// Adds those of a probe.
    pub fn add(&mut self, options: &ProbeOptions) {
        self.has_probes = true;
        let live = options.inputs.iter().filter_map(SourceSpec::live);
        for live in live.filter(|live| !live.is_dpdk()) {
            let needed = live.needed_capabilities().iter().filter(|name| !self.capabilities.contains(name));
            self.capabilities.extend(needed.copied().collect::<Vec<_>>());
            self.af_xdp.extend(live.is_af_xdp().then(|| live.to_string()));
        }
        let listens = options.listen.filter(|address| address.is_ipv6());
        self.ipv6.extend(listens.map(|address| format!("listen = \"{address}\"")));
        let names = options.sinks.all().map(|sink| sink.spec.name().to_owned());
        self.ipv6.extend(names.filter(|name| name.contains("://[")));
    }
}

pub fn check(needs: &KernelNeeds) -> Vec<Finding> {
    vec![sandbox_of_kernel(), af_xdp(needs), ipv6(needs), permission(needs)]
}

fn sandbox_of_kernel() -> Finding {
    let missing = sandbox::missing_in_kernel();
    if missing.is_empty() {
        return Finding::ok("sandbox", MACHINE, "the kernel has Landlock and seccomp, which restrict a running probe");
    }
    let summary =
        format!("the kernel does not offer {}: a probe runs without this part of its sandbox", missing.join(", "));
    let impact = format!("{}.", capital(sandbox::INCOMPLETE_EFFECT));
    let note =
        "Landlock is in Linux 5.13 and newer; it has to be in lsm= on the kernel's command line, where that is given.";
    Finding::new(Severity::Warning, "sandbox", MACHINE, summary, impact).with_commands(&[], note)
}

/// The kernel looks for the family before it looks for the capability.
fn af_xdp(KernelNeeds { af_xdp: needed, .. }: &KernelNeeds) -> Finding {
    let opened = socket(AddressFamily::XDP, SocketType::RAW, None);
    if !matches!(opened, Err(Errno::AFNOSUPPORT)) {
        return Finding::ok("af_xdp", MACHINE, "the kernel has AF_XDP");
    }
    let summary = "the kernel has no AF_XDP (CONFIG_XDP_SOCKETS)";
    match needed.first() {
        None => Finding::ok("af_xdp", MACHINE, format!("{summary}: use af_packet:")),
        Some(source) => {
            let impact =
                format!("{source} cannot be opened, so the probe does not start. Use af_packet: in its place.");
            Finding::new(Severity::Critical, "af_xdp", MACHINE, summary, impact)
        }
    }
}

fn ipv6(KernelNeeds { ipv6: needed, .. }: &KernelNeeds) -> Finding {
    let Err(error) = UdpSocket::bind("[::1]:0") else {
        return Finding::ok("ipv6", MACHINE, "IPv6 is on");
    };
    let summary = format!("this machine has no IPv6 ({error})");
    match needed.first() {
        None => Finding::ok("ipv6", MACHINE, summary),
        Some(user) => {
            let impact = format!("{user} needs it. Name an IPv4 address, or switch IPv6 on.");
            Finding::new(Severity::Critical, "ipv6", MACHINE, summary, impact)
                .with_commands(&["sysctl -w net.ipv6.conf.all.disable_ipv6=0".into()], "")
        }
    }
}

/// What a probe may do that this user starts. A service has what its unit gives it.
fn permission(KernelNeeds { capabilities: needed, has_probes, .. }: &KernelNeeds) -> Finding {
    if *has_probes && needed.is_empty() {
        return Finding::ok("capabilities", MACHINE, "these probes need none");
    }
    let needed = if needed.is_empty() { CAPTURE } else { &needed[..] };
    let missing = capabilities::missing(needed);
    if missing.is_empty() {
        return Finding::ok("capabilities", MACHINE, format!("this user may capture: {}", needed.join(", ")));
    }
    let summary = format!("this user may not capture: {} is missing", missing.join(", "));
    let impact = format!(
        "A probe that this user starts ends with 'not permitted'; a service may have what its unit gives it. {}.",
        capabilities::how_to_give(needed, &missing)
    );
    Finding::new(Severity::Warning, "capabilities", MACHINE, summary, impact)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
