//! Findings about a machine as text, for `weir doctor`, `weir plan` and the HTTP interface.

use crate::console::{self, printable};
use weir_host::{Finding, Machine, Nic, Severity};
use weir_text::units;

/// Longest line of sentences. Commands are not wrapped.
const MAX_COLUMNS: usize = 96;
/// Most commands to show per finding.
const COMMANDS_SHOWN: usize = 4;

/// Headings; `weir plan` has its own for critical findings.
pub const CRITICAL: &str = "CRITICAL: packets are lost, or counts are wrong";
pub const WARNING: &str = "WARNING: costs performance, or will under load";
pub const UNKNOWN: &str = "UNKNOWN";
pub const FIX: &str = "weir doctor --fix (as root) applies the changes marked (--fix); they last until the next reboot";
pub const NO_NIC: &str = "no physical NIC: only the machine was checked";

/// Findings, the most serious first.
pub fn by_severity(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = findings.collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// All findings by severity; those without a problem only if `verbose`.
pub fn append_sections(text: &mut String, findings: &[Finding], critical: &str, verbose: bool) {
    append_section(text, findings, Severity::Critical, critical);
    append_section(text, findings, Severity::Warning, WARNING);
    append_section(text, findings, Severity::Unknown, UNKNOWN);
    if verbose {
        append_section(text, findings, Severity::Ok, "OK");
    }
}

/// Findings of one severity below a heading; nothing if there are none.
fn append_section(text: &mut String, findings: &[Finding], severity: Severity, heading: &str) {
    let mut selected = findings.iter().filter(|finding| finding.severity == severity).peekable();
    if selected.peek().is_none() {
        return;
    }
    append_line(text, &format!("\n{heading}"));
    for finding in selected {
        append_wrapped(text, 2, &format!("{}: {}", finding.subject, finding.summary));
        if !finding.impact.is_empty() {
            append_wrapped(text, 6, &finding.impact);
        }
        let Some(remedy) = &finding.remedy else { continue };
        let shown = if remedy.commands.len() > COMMANDS_SHOWN { COMMANDS_SHOWN - 1 } else { COMMANDS_SHOWN };
        for (at, command) in remedy.commands.iter().take(shown).enumerate() {
            let fixed = if at == 0 && !remedy.steps.is_empty() { "   (--fix)" } else { "" };
            append_line(text, &format!("      # {command}{fixed}"));
        }
        if let more @ 1.. = remedy.commands.len().saturating_sub(shown) {
            append_line(text, &format!("      … and {more} more similar commands; --json lists all"));
        }
        if !remedy.note.is_empty() {
            append_wrapped(text, 6, &remedy.note);
        }
    }
}

/// Whether `--fix` changes something.
pub fn is_fixable(finding: &Finding) -> bool {
    finding.remedy.as_ref().is_some_and(|remedy| !remedy.steps.is_empty())
}

pub fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

pub fn counts(findings: &[Finding]) -> String {
    let [critical, warning, unknown, ok] =
        [Severity::Critical, Severity::Warning, Severity::Unknown, Severity::Ok].map(|one| count(findings, one));
    format!("{critical} critical, {warning} warning, {unknown} unknown, {ok} ok")
}

pub fn describe_machine(machine: &Machine) -> String {
    let cores = machine.cores(None).len();
    let counts = [(machine.nodes.len(), "NUMA node"), (cores, "core"), (machine.cpus.len(), "CPU")];
    let counts =
        counts.map(|(n, thing)| if n == 0 { format!("{thing}s unknown") } else { units::count(n as u64, thing) });
    let name = machine.processor.as_deref().unwrap_or("CPU model unknown");
    let kernel = machine.kernel.as_ref().map_or_else(|| "kernel unknown".into(), |kernel| format!("Linux {kernel}"));
    format!("{name}; {}; {kernel}", counts.join(", "))
}

pub fn describe_nic(nic: &Nic) -> String {
    let speed = match nic.speed_mbps {
        Some(megabits) if megabits >= 1000 && megabits % 100 == 0 => format!("{} Gbit/s", megabits as f64 / 1000.0),
        Some(megabits) => format!("{megabits} Mbit/s"),
        None => "speed unknown".into(),
    };
    let driver = nic.driver.as_deref().unwrap_or("driver unknown");
    let place = nic.pci.as_ref().map_or_else(|| "no slot".into(), |pci| format!("at {pci}"));
    let node = nic.node.map_or_else(String::new, |node| format!(" on NUMA node {node}"));
    let link = nic.link.map_or_else(String::new, |link| format!(", {link}"));
    format!("{speed}, {driver}, {place}{node}{link}, {}", units::count(nic.queues.into(), "receive queue"))
}

/// Width of sentences, which fit the terminal.
pub fn columns() -> usize {
    console::terminal_columns().map_or(MAX_COLUMNS, |columns| columns.clamp(40, MAX_COLUMNS))
}

/// Appends a name, and a sentence behind it that is wrapped.
pub fn append_row(text: &mut String, name: &str, width: usize, sentence: &str) {
    let rows = weir_text::wrap(sentence, columns() - width);
    for (at, row) in rows.iter().enumerate() {
        append_line(text, &format!("{:width$}{row}", if at == 0 { name } else { "" }));
    }
}

/// Appends a line without control characters.
pub fn append_line(text: &mut String, line: &str) {
    text.push_str(&printable(line));
    text.push('\n');
}

/// Appends a wrapped sentence. If `indent` is below 6, later lines are indented by 4 more.
pub fn append_wrapped(text: &mut String, indent: usize, sentence: &str) {
    let continued = if indent < 6 { indent + 4 } else { indent };
    for (at, row) in weir_text::wrap(sentence, columns() - continued).iter().enumerate() {
        append_line(text, &format!("{:1$}{row}", "", if at == 0 { indent } else { continued }));
    }
}
