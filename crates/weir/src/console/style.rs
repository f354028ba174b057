//! Colours on a terminal: the heads of tables, warnings and errors, losses, failed connections.
//!
//! Text is laid out without styles. A rule then finds the parts of a line that get one, so that the
//! widths of columns never count escape sequences. Streams are styled if they are a terminal, unless
//! `NO_COLOR` is set; `CLICOLOR_FORCE` styles all. Files and JSON never are.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use std::io::{self, Write};
use std::ops::Range;

const HEADING: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What was lost, or failed.
const LOSS: Style = AnsiColor::Red.on_default();

/// The parts of a line with a style, in order. The number of the line is from 0.
pub type Rule = fn(usize, &str) -> Vec<(Range<usize>, Style)>;

/// Whether a stream is styled.
pub fn is_on(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// A table: its first line has the headings.
pub fn table(number: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    if number == 0 { whole(line, HEADING) } else { vec![] }
}

/// A page of `weir help`: its headings have less indentation than all else.
pub fn page(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    if line.starts_with("   ") { vec![] } else { whole(line, HEADING) }
}

/// The summary and the ledger.
pub fn ledger(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| line.starts_with(beginning));
    if begins(&["dropped ", "lost ", "- dropped", "  + lost"]) {
        whole(line, LOSS)
    } else if begins(&["THE LEDGER DOES NOT BALANCE"]) {
        whole(line, ERROR)
    } else if begins(&["ledger  ", "records  "]) {
        whole(line, HEADING)
    } else {
        vec![]
    }
}

/// A status line of `weir probe`: the losses that are not 0.
pub fn status(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    let is_loss = |(name, number): (&str, &str)| matches!(name, "lost" | "drop") && number != "0";
    let mut end = 0;
    let words = line.split_inclusive(' ').map(|word| {
        end += word.len();
        (end - word.len(), word.trim_end())
    });
    let lost = words.filter(|(_, word)| word.split_once('=').is_some_and(is_loss));
    lost.map(|(start, word)| (start..start + word.len(), LOSS)).collect()
}

/// The report of `weir tcp`: the heads of its lists, and why connections failed.
pub fn tcp_report(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    // Rows of the classes begin with a capital letter, too.
    const TITLES: [&str; 5] = ["# ", "class ", "Retransmitted segments", "Round-trip time", "Comparison with"];
    let row = line.trim_start();
    if TITLES.iter().any(|title| row.starts_with(title)) {
        whole(line, HEADING)
    } else if line.starts_with("failed ") {
        whole(line, LOSS)
    } else if line.starts_with("note:") {
        vec![(0.."note:".len(), WARNING)]
    } else if row.starts_with(|letter: char| letter.is_ascii_digit()) && row.contains(" → ") {
        let names = weir_tcp_report::Failure::all().map(|failure| failure.name());
        let found = names.filter_map(|name| line.find(&format!(" {name} ")).map(|at| at + 1..at + 1 + name.len()));
        found.map(|range| (range, LOSS)).collect()
    } else {
        vec![]
    }
}

/// The findings of `weir doctor` and `weir plan`.
pub fn findings(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    match line.split([':', ' ']).next() {
        Some("CRITICAL") => whole(line, ERROR),
        Some("WARNING") => whole(line, WARNING),
        Some("UNKNOWN" | "OK") => whole(line, HEADING),
        _ => vec![],
    }
}

/// A line of the log: its level.
pub fn log(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    // The program's name, or the time.
    let Some((before, rest)) = line.split_once(' ') else { return vec![] };
    let start = before.len() + 1;
    [("error:", ERROR), ("warning:", WARNING)]
        .iter()
        .filter(|(level, _)| rest.starts_with(level))
        .map(|&(level, style)| (start..start + level.len(), style))
        .collect()
}

/// Why a command failed: the program's name in front of each line, or what the parser begins with.
pub fn failure(_: usize, line: &str) -> Vec<(Range<usize>, Style)> {
    let prefix = ["weir:", "error:"].into_iter().find(|prefix| line.starts_with(prefix));
    prefix.map(|prefix| (0..prefix.len(), ERROR)).into_iter().collect()
}

fn whole(line: &str, style: Style) -> Vec<(Range<usize>, Style)> {
    vec![(0..line.len(), style)]
}

/// A text with the styles of a rule.
pub fn styled(text: &str, rule: Rule) -> String {
    text.split_inclusive('\n').enumerate().map(|(number, line)| styled_line(number, line, rule)).collect()
}

fn styled_line(number: usize, line: &str, rule: Rule) -> String {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    let (mut styled, mut at) = (String::new(), 0);
    for (range, style) in rule(number, content) {
        styled += &format!("{}{style}{}{style:#}", &content[at..range.start], &content[range.clone()]);
        at = range.end;
    }
    styled + &content[at..] + end
}

/// An output that styles each line.
pub struct StyledLines<W: Write> {
    output: W,
    rule: Rule,
    number: usize,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl<W: Write> StyledLines<W> {
    pub fn new(output: W, rule: Rule) -> Self {
        Self { output, rule, number: 0, line: Vec::new() }
    }
}

impl<W: Write> Write for StyledLines<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        for part in octets.split_inclusive(|&octet| octet == b'\n') {
            self.line.extend(part);
            if part.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.line);
                self.output.write_all(styled_line(self.number, &line, self.rule).as_bytes())?;
                self.number += 1;
                self.line.clear();
            }
        }
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.write_all(&std::mem::take(&mut self.line))?;
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str, rule: Rule) -> String {
        styled(text, rule).replace('\u{1b}', "^")
    }

    #[test]
    fn losses_and_levels_are_styled_and_nothing_else() {
        let line = "1.20 Mpackets/s active=12.0k ended=310/s lost=0 drop=";
        assert_eq!(codes(&format!("{line}0\n"), status), format!("{line}0\n"));
        let expected = "1.20 Mpackets/s active=12.0k ended=310/s lost=0 ^[31mdrop=7^[0m\n";
        assert_eq!(codes(&format!("{line}7\n"), status), expected);
        assert_eq!(codes("weir: error: a: error: b\n", log), "weir: ^[1m^[31merror:^[0m a: error: b\n");
        assert_eq!(codes("weir: no error: b\n", log), "weir: no error: b\n");
        assert_eq!(codes("a b\nc d\n", table), "^[1ma b^[0m\nc d\n");
        assert_eq!(codes("lost       1 flow\nlonely\n", ledger), "^[31mlost       1 flow^[0m\nlonely\n");
        let row = "1 a:1 → b:2  no answer  0s";
        assert_eq!(codes(row, tcp_report), "1 a:1 → b:2  ^[31mno answer^[0m  0s");
    }

    #[test]
    fn lines_are_styled_however_they_are_written() {
        let mut output = StyledLines::new(Vec::new(), table);
        for part in ["he", "ad\nro", "w\nrest"] {
            output.write_all(part.as_bytes()).unwrap();
        }
        output.flush().unwrap();
        assert_eq!(output.output, b"\x1b[1mhead\x1b[0m\nrow\nrest");
    }
}
