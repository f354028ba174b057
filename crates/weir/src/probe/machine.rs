//! What is wrong with the machine of a probe, for its HTTP interface: as `weir doctor` finds it.

use crate::arguments::ProbeOptions;
use crate::enrichment::unix_seconds;
use crate::findings::{self, FIX, NO_NIC, by_severity, counts, is_fixable};
use crate::needs::Needs;
use serde_json::json;
use std::time::SystemTime;
use weir_capture::SourceSpec;
use weir_control::DoctorFindings;
use weir_host::{Machine, Severity, Sysroot, examine};

/// Findings about what the probe needs and its interfaces. This starts `ethtool`, so it has to be called before the sandbox
/// forbids that.
pub fn findings_of(probe: &ProbeOptions) -> DoctorFindings {
    let has_dpdk = probe.inputs.iter().filter_map(SourceSpec::live).any(|live| live.is_dpdk());
    if !probe.inputs.iter().any(|input| input.live().is_some()) {
        let notes = vec!["nothing was checked: the probe reads no live traffic".into()];
        return DoctorFindings { notes, ..DoctorFindings::default() };
    }
    let mut needs = Needs::default();
    needs.add(probe, &probe.config.as_ref().map_or("the command line".into(), |path| path.display().to_string()));
    let machine = Machine::read(&Sysroot::live(), &needs.interfaces);
    let (present, absent): (Vec<_>, Vec<_>) =
        needs.interfaces.iter().cloned().partition(|name| machine.nics.iter().any(|nic| nic.name == *name));
    let names: Vec<&str> = present.iter().map(String::as_str).collect();
    let mut findings = by_severity(examine(&machine, &names).into_iter().chain(needs.check()));
    let counts = counts(&findings);
    findings.retain(|finding| finding.severity != Severity::Ok);
    let mut notes: Vec<String> =
        absent.iter().map(|name| format!("{name} was not checked: it is not in /sys/class/net")).collect();
    if has_dpdk {
        notes.push("ports of DPDK are not checked".into());
    }
    if present.is_empty() {
        notes.push(NO_NIC.into());
    }
    if findings.iter().any(is_fixable) {
        notes.push(FIX.into());
    }
    DoctorFindings {
        examined: Some(unix_seconds(SystemTime::now())),
        interfaces: present,
        counts,
        severities: json!({ "critical": findings::CRITICAL, "warning": findings::WARNING, "unknown": findings::UNKNOWN }),
        findings: json!(findings),
        notes,
    }
}
