//! `weir doctor`: finds settings that make a probe lose packets, and changes those that are safe.

mod configuration;
mod kernel;

use crate::arguments::Doctor;
use crate::console::{print, print_styled, style};
use crate::enrichment::unix_seconds;
use crate::error::{Error, MachineError};
use crate::files;
use crate::findings::{self, append_line, append_row, append_sections, append_wrapped};
use crate::run_status::RunStatus;
use serde_json::json;
use std::path::Path;
use std::time::SystemTime;
use tracing::info;
use weir_capture::SourceSpec;
use weir_control::DoctorFindings;
use weir_export::FileMode;
use weir_host::{Finding, Machine, Nic, Severity, Sysroot, examine};

/// Headings and sentences, also of the HTTP interface.
const CRITICAL: &str = "CRITICAL: packets are lost, or counts are wrong";
const FIX: &str = "weir doctor --fix (as root) applies the changes marked (--fix); they last until the next reboot";
const NO_NIC: &str = "no physical NIC: only the machine was checked";

pub fn run(doctor: &Doctor) -> Result<RunStatus, Error> {
    let root = open_root(doctor.machine.sysroot.as_deref())?;
    let (of_probes, needs) = match root.is_live() {
        true => configuration::check(&configuration::paths(doctor.config.as_deref())),
        false => Default::default(),
    };
    let named = if doctor.interfaces.is_empty() { &needs.interfaces } else { &doctor.interfaces };
    let machine = Machine::read(&root, named);
    if let Some(path) = &doctor.record {
        return record(&root, path, doctor.output_files.mode());
    }
    let interfaces = interfaces(&machine, &doctor.interfaces, &needs.interfaces)?;
    let of_service = || {
        let of_kernel = if root.is_live() { kernel::check(&needs) } else { Vec::new() };
        of_probes.iter().cloned().chain(configuration::absent(&needs, &machine)).chain(of_kernel)
    };
    let mut findings = with(examine(&machine, &interfaces), of_service());
    if doctor.machine.json {
        let report = json!({
            "critical": count(&findings, Severity::Critical),
            "warning": count(&findings, Severity::Warning),
            "unknown": count(&findings, Severity::Unknown),
            "interfaces": interfaces,
            "findings": findings,
            "machine": machine,
        });
        return Ok(status(&findings).and(print(format!("{report:#}\n").as_bytes())));
    }
    let mut printed = print_styled(&report(&machine, &interfaces, &findings, doctor), style::findings);
    if doctor.fix {
        fix(&findings, root.is_live());
        if root.is_live() {
            let machine = Machine::read(&Sysroot::live(), named);
            findings = with(examine(&machine, &interfaces), of_service());
            printed = printed.and(print(format!("\nnow: {}\n", counts(&findings)).as_bytes()));
        }
    }
    Ok(status(&findings).and(printed))
}

/// All findings, the most serious first.
fn with(mut findings: Vec<Finding>, others: impl Iterator<Item = Finding>) -> Vec<Finding> {
    findings.extend(others);
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// The findings for the sources of a probe, for its HTTP interface. This starts `ethtool`, so it has to be called before
/// the sandbox forbids that.
pub fn findings_of(sources: &[SourceSpec]) -> DoctorFindings {
    let live: Vec<_> = sources.iter().filter_map(SourceSpec::live).collect();
    if live.is_empty() {
        let notes = vec!["nothing was checked: the probe reads no live traffic".into()];
        return DoctorFindings { notes, ..DoctorFindings::default() };
    }
    let of_kernel = live.iter().filter(|live| !live.is_dpdk()).flat_map(|live| live.devices());
    let mut named: Vec<String> = of_kernel.map(|device| device.name.clone()).collect();
    named.sort();
    named.dedup();
    let machine = Machine::read(&Sysroot::live(), &named);
    let (present, absent): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|name| machine.nics.iter().any(|nic| nic.name == *name));
    let names: Vec<&str> = present.iter().map(String::as_str).collect();
    let mut findings = examine(&machine, &names);
    let counts = counts(&findings);
    findings.retain(|finding| finding.severity != Severity::Ok);
    let mut notes: Vec<String> =
        absent.iter().map(|name| format!("{name} was not checked: it is not in /sys/class/net")).collect();
    if live.iter().any(|live| live.is_dpdk()) {
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
        severities: json!({ "critical": CRITICAL, "warning": findings::WARNING, "unknown": findings::UNKNOWN }),
        findings: json!(findings),
        notes,
    }
}

/// This machine, or the one of `--sysroot`.
pub fn open_root(sysroot: Option<&Path>) -> Result<Sysroot, Error> {
    sysroot.map_or_else(|| Ok(Sysroot::live()), |path| Ok(Sysroot::open(path)?))
}

/// The named interfaces, which must exist; without names, those of physical devices and of configurations.
fn interfaces<'a>(machine: &'a Machine, named: &'a [String], configured: &'a [String]) -> Result<Vec<&'a str>, Error> {
    for name in named {
        check_interface(machine, name)?;
    }
    if !named.is_empty() {
        return Ok(named.iter().map(String::as_str).collect());
    }
    let is_examined = |nic: &&Nic| nic.physical || configured.contains(&nic.name);
    Ok(machine.nics.iter().filter(is_examined).map(|nic| &nic.name[..]).collect())
}

pub fn check_interface(machine: &Machine, name: &str) -> Result<(), Error> {
    if machine.nics.iter().any(|nic| nic.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = machine.nics.iter().map(|nic| &nic.name[..]).collect();
    let existing = if names.is_empty() { "none".into() } else { names.join(", ") };
    Err(MachineError::UnknownInterface { name: name.into(), existing }.into())
}

fn status(findings: &[Finding]) -> RunStatus {
    RunStatus::from_problems(count(findings, Severity::Critical) > 0)
}

fn record(root: &Sysroot, path: &Path, mode: FileMode) -> Result<RunStatus, Error> {
    let text = root.recording();
    if path == Path::new("-") {
        return Ok(print(text.as_bytes()));
    }
    files::write(path, mode, &text)?;
    info!(
        file = path.display().to_string(),
        lines = text.lines().count(),
        "machine recorded, for weir doctor and weir plan; the file has PCI addresses and RSS hash keys of NICs, but no MAC or IP addresses"
    );
    Ok(RunStatus::Success)
}

fn report(machine: &Machine, interfaces: &[&str], findings: &[Finding], doctor: &Doctor) -> String {
    let mut text = String::new();
    let width = interfaces.iter().map(|name| name.len()).max().unwrap_or(0).max("machine".len());
    append_row(&mut text, "machine", width + 2, &findings::describe_machine(machine));
    for nic in machine.nics.iter().filter(|nic| interfaces.contains(&&nic.name[..])) {
        append_row(&mut text, &nic.name, width + 2, &findings::describe_nic(nic));
    }
    if interfaces.is_empty() {
        append_line(&mut text, NO_NIC);
    }
    append_sections(&mut text, findings, CRITICAL, doctor.machine.verbose);
    append_line(&mut text, &format!("\n{}", counts(findings)));
    if !doctor.fix && findings.iter().any(is_fixable) {
        append_wrapped(&mut text, 0, FIX);
    }
    text
}

/// Whether `--fix` changes something.
fn is_fixable(finding: &Finding) -> bool {
    finding.remedy.as_ref().is_some_and(|remedy| !remedy.steps.is_empty())
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

fn counts(findings: &[Finding]) -> String {
    let [critical, warning, unknown, ok] =
        [Severity::Critical, Severity::Warning, Severity::Unknown, Severity::Ok].map(|one| count(findings, one));
    format!("{critical} critical, {warning} warning, {unknown} unknown, {ok} ok")
}

/// Applies every safe change; for a recorded machine, only prints them.
fn fix(findings: &[Finding], is_live: bool) {
    let remedies = findings.iter().filter_map(|finding| finding.remedy.as_ref());
    let steps: Vec<_> = remedies.flat_map(|remedy| &remedy.steps).collect();
    if steps.is_empty() {
        print(b"\n--fix: no safe changes to apply\n");
        return;
    }
    print_line(if is_live { "\n--fix:" } else { "\n--fix on that machine would run:" });
    for step in steps {
        // Printed first, so that the command is known if the machine hangs.
        print_line(&format!("  # {step}"));
        if is_live {
            let result = step.apply().map_or_else(|error| format!("failed: {error}"), |()| "done".into());
            print_line(&format!("    {result}"));
        }
    }
}

fn print_line(content: &str) {
    let mut text = String::new();
    append_line(&mut text, content);
    print(text.as_bytes());
}
