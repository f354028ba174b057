//! `weir doctor`: finds settings that make a probe lose packets, and changes those that are safe.

mod configuration;

use crate::arguments::Doctor;
use crate::console::{print, print_styled, style};
use crate::error::{Error, MachineError};
use crate::files;
use crate::findings::{self, FIX, NO_NIC, append_line, append_row, append_sections, append_wrapped, count, counts};
use crate::findings::{by_severity, is_fixable};
use crate::run_status::RunStatus;
use serde_json::json;
use std::path::Path;
use tracing::info;
use weir_export::FileMode;
use weir_host::{Finding, Machine, Nic, Severity, Sysroot, examine};

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
        let of_needs = if root.is_live() { needs.check() } else { Vec::new() };
        of_probes.iter().cloned().chain(needs.absent(&machine)).chain(of_needs)
    };
    let mut findings = by_severity(examine(&machine, &interfaces).into_iter().chain(of_service()));
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
            findings = by_severity(examine(&machine, &interfaces).into_iter().chain(of_service()));
            printed = printed.and(print(format!("\nnow: {}\n", counts(&findings)).as_bytes()));
        }
    }
    Ok(status(&findings).and(printed))
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
    append_sections(&mut text, findings, findings::CRITICAL, doctor.machine.verbose);
    append_line(&mut text, &format!("\n{}", counts(findings)));
    if !doctor.fix && findings.iter().any(is_fixable) {
        append_wrapped(&mut text, 0, FIX);
    }
    text
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
