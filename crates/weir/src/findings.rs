//! What was found of a machine, in words on a terminal.

use std::fmt::Write;
use weir_host::{Finding, Machine, Nic, Severity};

/// Columns that sentences fill; commands are not broken.
const COLUMNS: usize = 96;
/// Commands of one finding that are shown.
const COMMANDS_SHOWN: usize = 4;

/// Findings of one kind below their heading; nothing if there are none.
pub fn section(text: &mut String, findings: &[Finding], severity: Severity, heading: &str) {
    let mut of_kind = findings.iter().filter(|finding| finding.severity == severity).peekable();
    if of_kind.peek().is_none() {
        return;
    }
    line(text, &format!("\n{heading}"));
    for finding in of_kind {
        wrapped(text, 2, &format!("{}: {}", finding.subject, finding.summary));
        if !finding.impact.is_empty() {
            wrapped(text, 6, &finding.impact);
        }
        let Some(remedy) = &finding.remedy else { continue };
        let shown = if remedy.commands.len() > COMMANDS_SHOWN { COMMANDS_SHOWN - 1 } else { COMMANDS_SHOWN };
        for (at, command) in remedy.commands.iter().take(shown).enumerate() {
            let fixed = if at == 0 && !remedy.steps.is_empty() { "   (--fix)" } else { "" };
            line(text, &format!("      # {command}{fixed}"));
        }
        if let more @ 1.. = remedy.commands.len().saturating_sub(shown) {
            line(text, &format!("      … and {more} more like these; --json has all"));
        }
        if !remedy.note.is_empty() {
            wrapped(text, 6, &remedy.note);
        }
    }
}

/// What the machine is, in a line.
pub fn machine_in_short(machine: &Machine) -> String {
    let cores = machine.cores(None).len();
    let counts = [(machine.nodes.len(), "node"), (cores, "core"), (machine.cpus.len(), "processor")];
    let counts = counts
        .map(|(n, thing)| if n == 0 { format!("{thing}s not known") } else { crate::units::count(n as u64, thing) });
    let name = machine.processor.as_deref().unwrap_or("processor not known");
    let kernel = machine.kernel.as_ref().map_or_else(|| "kernel not known".into(), |kernel| format!("Linux {kernel}"));
    format!("{name}; {}; {kernel}", counts.join(", "))
}

/// What a card is, in a line.
pub fn card_in_short(card: &Nic) -> String {
    let speed = match card.speed_mbps {
        Some(megabits) if megabits >= 1000 && megabits % 100 == 0 => format!("{} Gbit/s", megabits as f64 / 1000.0),
        Some(megabits) => format!("{megabits} Mbit/s"),
        None => "speed not known".into(),
    };
    let driver = card.driver.as_deref().unwrap_or("driver not known");
    let place = card.pci.as_ref().map_or_else(|| "no slot".into(), |pci| format!("at {pci}"));
    let node = card.node.map_or_else(String::new, |node| format!(" on node {node}"));
    let link = card.link.map_or_else(String::new, |link| format!(", {link}"));
    format!("{speed}, {driver}, {place}{node}{link}, {}", crate::units::count(card.queues.into(), "receive queue"))
}

/// A line as it is; what would command the terminal is replaced.
pub fn line(text: &mut String, line: &str) {
    let clean = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.extend(line.chars().map(clean));
    text.push('\n');
}

/// A sentence broken into lines; those after the first are indented by 4 more if it is a heading of its own.
pub fn wrapped(text: &mut String, indent: usize, sentence: &str) {
    let mut row = " ".repeat(indent);
    let mut empty = true;
    let further = if indent < 6 { indent + 4 } else { indent };
    for word in sentence.split_whitespace() {
        if !empty && row.chars().count() + 1 + word.chars().count() > COLUMNS {
            line(text, &row);
            row = " ".repeat(further);
            empty = true;
        }
        if !empty {
            row.push(' ');
        }
        write!(row, "{word}").expect("a text takes every word");
        empty = false;
    }
    line(text, &row);
}
