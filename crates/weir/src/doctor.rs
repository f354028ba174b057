//! `weir doctor`: what is wrong with this machine for a probe, why, and what mends it.

use crate::arguments::Doctor;
use crate::findings::{self, line, section};
use crate::{Outcome, Refusal, files, print, say, units};
use serde_json::json;
use std::path::Path;
use weir_host::{Finding, Machine, Severity, Sysroot, examine};

/// Reads the machine, and tells; or records it; or mends what can be mended.
pub fn run(doctor: &Doctor) -> Result<Outcome, Refusal> {
    let root = root(doctor.sysroot.as_deref())?;
    let machine = Machine::read(&root, &doctor.interfaces);
    if let Some(path) = &doctor.record {
        return record(&root, path);
    }
    let cards = cards(&machine, &doctor.interfaces)?;
    let mut findings = examine(&machine, &cards);
    if doctor.json {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let report = json!({
            "critical": count(Severity::Critical),
            "warning": count(Severity::Warning),
            "unknown": count(Severity::Unknown),
            "interfaces": cards,
            "findings": findings,
            "machine": machine,
        });
        return Ok(worse(print(format!("{report:#}\n").as_bytes()), &findings));
    }
    let mut outcome = print(report(&machine, &cards, &findings, doctor).as_bytes());
    if doctor.fix {
        fix(&findings, root.is_live());
        if root.is_live() {
            let machine = Machine::read(&Sysroot::live(), &doctor.interfaces);
            findings = examine(&machine, &cards);
            if print(format!("\nnow: {}\n", in_short(&findings)).as_bytes()) == Outcome::Flawed {
                outcome = Outcome::Flawed;
            }
        }
    }
    Ok(worse(outcome, &findings))
}

/// This machine, or what stands for one.
pub fn root(sysroot: Option<&Path>) -> Result<Sysroot, Refusal> {
    sysroot.map_or_else(|| Ok(Sysroot::live()), |path| Sysroot::open(path).map_err(|error| Refusal(error.to_string())))
}

/// The interfaces that were named, all of which must be there; else those with a device behind them.
fn cards<'a>(machine: &'a Machine, named: &'a [String]) -> Result<Vec<&'a str>, Refusal> {
    for name in named {
        interface(machine, name)?;
    }
    if !named.is_empty() {
        return Ok(named.iter().map(String::as_str).collect());
    }
    Ok(machine.nics.iter().filter(|card| card.physical).map(|card| &card.name[..]).collect())
}

/// Refuses an interface that is not there.
pub fn interface(machine: &Machine, name: &str) -> Result<(), Refusal> {
    if machine.nics.iter().any(|card| card.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = machine.nics.iter().map(|card| &card.name[..]).collect();
    let there = if names.is_empty() { "none".into() } else { names.join(", ") };
    Err(Refusal(format!("no interface '{name}'; there is {there}")))
}

fn worse(outcome: Outcome, findings: &[Finding]) -> Outcome {
    let wrong = findings.iter().any(|finding| finding.severity == Severity::Critical);
    if wrong { Outcome::Flawed } else { outcome }
}

fn record(root: &Sysroot, path: &Path) -> Result<Outcome, Refusal> {
    let text = root.recording();
    if path == Path::new("-") {
        return Ok(print(text.as_bytes()));
    }
    let written = std::fs::write(path, &text);
    written.map_err(|error| Refusal(format!("{}: {error}{}", path.display(), files::advice(&error))))?;
    let lines = units::count(text.lines().count() as u64, "line");
    say(&format!(
        "{}: {lines}: what weir doctor and weir plan read of this machine; no addresses but those of slots, and the keys by \
         which cards choose queues",
        path.display()
    ));
    Ok(Outcome::Done)
}

fn report(machine: &Machine, cards: &[&str], findings: &[Finding], doctor: &Doctor) -> String {
    let mut text = String::new();
    let width = cards.iter().map(|name| name.len()).max().unwrap_or(0).max("machine".len());
    line(&mut text, &format!("{:width$}  {}", "machine", findings::machine_in_short(machine)));
    for card in machine.nics.iter().filter(|card| cards.contains(&&card.name[..])) {
        line(&mut text, &format!("{:width$}  {}", card.name, findings::card_in_short(card)));
    }
    if cards.is_empty() {
        line(&mut text, "no network card: what follows is about the machine alone");
    }
    section(&mut text, findings, Severity::Critical, "WRONG: packets are lost, or figures are not true");
    section(&mut text, findings, Severity::Warning, "COULD BE BETTER");
    section(&mut text, findings, Severity::Unknown, "NOT KNOWN");
    if doctor.verbose {
        section(&mut text, findings, Severity::Ok, "FINE");
    }
    line(&mut text, &format!("\n{}", in_short(findings)));
    let fixable = |finding: &Finding| finding.remedy.as_ref().is_some_and(|remedy| !remedy.steps.is_empty());
    if !doctor.fix && findings.iter().any(fixable) {
        line(&mut text, "weir doctor --fix (as root) does what is marked so; nothing of it outlives a reboot");
    }
    text
}

fn in_short(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let [wrong, better, unknown, fine] =
        [Severity::Critical, Severity::Warning, Severity::Unknown, Severity::Ok].map(count);
    format!("{wrong} wrong, {better} could be better, {unknown} not known, {fine} fine")
}

/// Does every step that is safe; on a recording it only says which.
fn fix(findings: &[Finding], live: bool) {
    let mut text = String::new();
    let remedies = findings.iter().filter_map(|finding| finding.remedy.as_ref());
    let steps: Vec<_> = remedies.flat_map(|remedy| &remedy.steps).collect();
    if steps.is_empty() {
        print(b"\n--fix: nothing that it may do\n");
        return;
    }
    line(&mut text, if live { "\n--fix:" } else { "\n--fix would do, on that machine:" });
    print(text.as_bytes());
    for step in steps {
        // Before it is done, so that it is known if it does not come back.
        let mut text = String::new();
        line(&mut text, &format!("  # {step}"));
        print(text.as_bytes());
        if live {
            let came_of_it = step.apply().map_or_else(|error| format!("failed: {error}"), |()| "done".into());
            let mut text = String::new();
            line(&mut text, &format!("    {came_of_it}"));
            print(text.as_bytes());
        }
    }
}
