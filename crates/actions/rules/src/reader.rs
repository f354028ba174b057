//! Reads the tables of a rules file. It continues after a problem, so that all are reported, up to a
//! number of them.

use crate::rules::{Egress, Level, RECORDER, Rule, Rules, Settings, Slice};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_fields::{Known, Origin, Properties, field};
use weir_query::Expression;
use weir_text::most_similar;

/// A decision has a bit for each.
const MAX_EGRESSES: usize = 32;
const MAX_RULES: usize = 4096;
/// Reading ends with this number of problems.
pub const MAX_PROBLEMS: usize = 100;
/// Memory for packets that wait: 16 GiB. More is a mistake.
const MAX_HOLD_OCTETS: u64 = 16 << 30;

const TABLES: [&str; 7] = ["egress", "recorder", "hold", "default", "source", "network", "application"];
const RULE_KEYS: [&str; 8] = ["name", "where", "action", "shunt", "slice", "slice_after", "to", "record"];
const DEFAULT_KEYS: [&str; 6] = ["action", "shunt", "slice", "slice_after", "to", "record"];
const EGRESS_KEYS: [&str; 2] = ["outputs", "balance"];
const HOLD_KEYS: [&str; 2] = ["octets", "ms"];

/// The problems of a rules file: all, or the first [`MAX_PROBLEMS`].
#[derive(Debug, thiserror::Error)]
pub struct InvalidRules {
    /// In the order of the file: line, counted from 1, and problem.
    pub problems: Vec<(usize, String)>,
}

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (line, problem)) in self.problems.iter().enumerate() {
            write!(f, "{}line {line}: {problem}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

/// A rule decides each flow once, so that the value of its fields must not change any more.
fn properties(name: &str) -> Properties {
    field(name).expect("an expression names fields").properties()
}

struct Reader {
    /// Where each line ends.
    line_ends: Vec<usize>,
    problems: Vec<(usize, String)>,
    rules: Rules,
    /// Levels and names of rules with the key `name`, or whose condition is their name.
    names: HashSet<(Level, String)>,
}

impl Rules {
    /// Compiles a rules file.
    ///
    /// # Errors
    /// The problems of the file.
    pub fn new(text: &str) -> Result<Self, InvalidRules> {
        let (rules, mut problems) = read(text);
        problems.extend(unreachable(&rules));
        if problems.is_empty() {
            return Ok(rules);
        }
        problems.truncate(MAX_PROBLEMS);
        problems.sort_by_key(|&(line, _)| line);
        Err(InvalidRules { problems })
    }
}

/// The rules of a file without what is invalid, and its problems with their lines.
fn read(text: &str) -> (Rules, Vec<(usize, String)>) {
    let line_ends = text.bytes().enumerate().filter(|&(_, octet)| octet == b'\n').map(|(at, _)| at).collect();
    let mut reader = Reader { line_ends, problems: Vec::new(), rules: Rules::default(), names: HashSet::new() };
    match DeTable::parse(text) {
        Ok(table) => reader.read_file(table.get_ref()),
        Err(error) => reader.problem(&error.span().unwrap_or_default(), error.message().into()),
    }
    (reader.rules, reader.problems)
}

/// The lines of rules that no packet reaches: an earlier rule has the same text or no condition.
fn unreachable(rules: &Rules) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Conditions of earlier levels that drop what they match, whatever other rules say.
    let mut final_drops: HashMap<Option<&str>, usize> = HashMap::new();
    for level in Level::ALL {
        let of_level = || rules.rules.iter().filter(|rule| rule.level == level);
        let mut earlier: HashMap<Option<&str>, usize> = HashMap::new();
        for rule in of_level() {
            let text = rule.text();
            let in_either = |lines: &HashMap<_, usize>| lines.get(&text).or_else(|| lines.get(&None)).copied();
            let hides = in_either(&earlier).map(|line| format!("line {line} matches whatever it matches"));
            let drops =
                || Some(format!("line {} drops whatever it matches, and that is final", in_either(&final_drops)?));
            let problem = hides.or_else(drops).map(|why| format!("no packet reaches this rule: {why}"));
            found.extend(problem.map(|problem| (rule.line, problem)));
            earlier.entry(text).or_insert(rule.line);
        }
        // A rule behind one that does not drop is perhaps not asked.
        let drops = of_level().take_while(|rule| rule.settings.forward == Some(false));
        final_drops.extend(drops.map(|rule| (rule.text(), rule.line)));
    }
    found
}

impl Reader {
    fn problem(&mut self, place: &Range<usize>, problem: String) {
        if !self.has_enough() {
            self.problems.push((self.line(place), problem));
        }
    }

    /// Whether nothing more has to be read.
    fn has_enough(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    fn line(&self, place: &Range<usize>) -> usize {
        1 + self.line_ends.partition_point(|&end| end < place.start)
    }

    fn invalid(&mut self, key: &str, value: &Spanned<DeValue<'_>>, expected: &'static str) {
        self.problem(&value.span(), format!("'{key}' must be {expected}"));
    }

    fn check_keys(&mut self, table: &DeTable<'_>, place: &str, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&&**key.get_ref())) {
            if self.has_enough() {
                return;
            }
            let near = did_you_mean(key.get_ref(), known.iter().copied());
            let unknown = format!("there is no '{}' in {place}{near}; there are: {}", key.get_ref(), known.join(", "));
            self.problem(&key.span(), unknown);
        }
    }

    fn read_file(&mut self, file: &DeTable<'_>) {
        self.check_keys(file, "a rules file", &TABLES);
        // Rules name egresses.
        if let Some(egresses) = file.get("egress") {
            for (name, egress) in self.table("egress", egresses, "tables [egress.NAME]").into_iter().flatten() {
                if self.has_enough() {
                    return;
                }
                self.read_egress(name.get_ref(), egress, false);
            }
        }
        if let Some(recorder) = file.get("recorder") {
            let before = self.rules.egresses.len();
            self.read_egress(RECORDER, recorder, true);
            self.rules.has_recorder = self.rules.egresses.len() > before;
        }
        if self.rules.egresses.len() > MAX_EGRESSES {
            let number = self.rules.egresses.len();
            let line = self.rules.egresses[MAX_EGRESSES].line;
            self.problems.push((line, format!("there are {number} egresses, at most {MAX_EGRESSES} are allowed")));
            self.rules.egresses.truncate(MAX_EGRESSES);
            self.rules.has_recorder = false;
        }
        if let Some(hold) = file.get("hold") {
            self.read_hold(hold);
        }
        if let Some(default) = file.get("default")
            && let Some(table) = self.table("default", default, "a table [default]")
        {
            self.check_keys(table, "[default]", &DEFAULT_KEYS);
            self.rules.default = self.settings(table);
        }
        let mut number = 0;
        let mut first_beyond = None;
        for level in Level::ALL {
            let Some(rules) = file.get(level.name()) else { continue };
            match rules.get_ref() {
                DeValue::Array(rules) => {
                    let (read, beyond) = rules.split_at(rules.len().min(MAX_RULES.saturating_sub(number)));
                    for rule in read {
                        if self.has_enough() {
                            return;
                        }
                        self.read_rule(level, rule);
                    }
                    first_beyond = first_beyond.or(beyond.first().map(Spanned::span));
                    number += rules.len();
                }
                _ => self.invalid(level.name(), rules, "an array of tables: write [[ ]] around its name"),
            }
        }
        if let Some(place) = first_beyond {
            self.problem(&place, format!("there are {number} rules, at most {MAX_RULES} are allowed"));
        }
    }

    fn read_egress(&mut self, name: &str, value: &Spanned<DeValue<'_>>, is_recorder: bool) {
        let Some(table) = self.table(name, value, "a table with outputs") else { return };
        let place = if name == RECORDER { "[recorder]".into() } else { format!("[egress.{name}]") };
        self.check_keys(table, &place, &EGRESS_KEYS);
        let line = self.line(&value.span());
        if name == RECORDER && !is_recorder {
            let text = "an egress cannot have this name; the recorder is a table of its own: [recorder]";
            return self.problem(&value.span(), text.into());
        }
        if self.rules.egresses.iter().any(|egress| egress.name == name) {
            return self.problem(&value.span(), format!("the name '{name}' is used twice"));
        }
        let outputs = table.get("outputs").map_or_else(Vec::new, |outputs| self.texts("outputs", outputs));
        if outputs.is_empty() {
            self.invalid("outputs", value, "a list of outputs, like [\"af_packet:eth1\"]");
        }
        let balance = table.get("balance").and_then(|value| {
            let line = self.line(&value.span());
            self.text("balance", value).map(|balance| (line, balance))
        });
        self.rules.egresses.push(Egress { name: name.into(), outputs, balance, line });
    }

    fn read_hold(&mut self, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table("hold", value, "a table [hold]") else { return };
        self.check_keys(table, "[hold]", &HOLD_KEYS);
        if let Some(value) = table.get("octets") {
            match self.number("octets", value) {
                Some(octets @ 0..=MAX_HOLD_OCTETS) => self.rules.hold.octets = octets,
                Some(_) => self.invalid("octets", value, "at most 17179869184 (16 GiB)"),
                None => {}
            }
        }
        if let Some(ms) = table.get("ms").and_then(|ms| self.number("ms", ms)) {
            self.rules.hold.time_ns = ms.saturating_mul(1_000_000);
        }
    }

    fn read_rule(&mut self, level: Level, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table(level.name(), value, "a table") else { return };
        self.check_keys(table, &format!("[[{level}]]"), &RULE_KEYS);
        let settings = self.settings(table);
        if settings.forward == Some(false) {
            let contradicts = ["shunt", "slice", "slice_after", "to"].into_iter().find(|&key| table.contains_key(key));
            if let Some(key) = contradicts {
                let text = format!("action = \"drop\" contradicts '{key}': a dropped packet goes nowhere");
                self.problem(&value.span(), text);
            }
            if table.get("record").and_then(|record| record.get_ref().as_bool()) == Some(true) {
                let text = "action = \"drop\" contradicts 'record': to record packets and hand them on to no egress, write to = []";
                self.problem(&value.span(), text.into());
            }
        }
        let condition = table.get("where").and_then(|text| self.condition(level, text));
        let name = table.get("name").and_then(|name| self.text("name", name));
        let name = name.or_else(|| condition.as_ref().map(|condition| condition.text().into()));
        let name = name.unwrap_or_else(|| "others".into());
        let line = self.line(&value.span());
        if !self.names.insert((level, name.clone())) && table.contains_key("name") {
            self.problem(&value.span(), format!("the name '{name}' is used twice"));
        }
        if condition.is_none() && table.contains_key("where") {
            // It is invalid, and no rule for every flow.
            return;
        }
        let fields = || condition.iter().flat_map(Expression::fields);
        let needs_inspection = fields().any(|field| match properties(field).known {
            Known::Later => true,
            Known::InPart => level == Level::Application,
            Known::AtFirst | Known::Never => false,
        });
        let needs_places = fields().any(|field| properties(field).origin == Origin::Enrichment);
        self.rules.rules.push(Rule { level, name, line, condition, needs_inspection, needs_places, settings });
    }

    fn condition(&mut self, level: Level, value: &Spanned<DeValue<'_>>) -> Option<Expression> {
        let text = self.text("where", value)?;
        let expression = Expression::new(&text);
        let expression = expression.map_err(|error| self.problem(&value.span(), format!("where: {error}"))).ok()?;
        for field in expression.fields() {
            let reason = match properties(field).known {
                Known::AtFirst | Known::InPart => continue,
                Known::Later if level == Level::Application => continue,
                Known::Later => "is known after some packets only; use it in [[application]]",
                Known::Never => "changes while a flow lasts, and each flow is decided once",
            };
            self.problem(&value.span(), format!("where: '{field}' {reason}"));
        }
        Some(expression)
    }

    /// What a rule or the default sets.
    fn settings(&mut self, table: &DeTable<'_>) -> Settings {
        let mut set = Settings::default();
        if let Some(value) = table.get("action") {
            match value.get_ref().as_str() {
                Some("forward") => set.forward = Some(true),
                Some("drop") => set.forward = Some(false),
                _ => self.invalid("action", value, "\"forward\" or \"drop\""),
            }
        }
        if let Some(value) = table.get("shunt") {
            match number(value.get_ref()) {
                Some(packets @ 1..=0xffff_ffff) => set.shunt = Some(packets as u32),
                _ => self.invalid("shunt", value, "1 to 4294967295 packets; for none write action = \"drop\""),
            }
        }
        let mut slice_after = 0;
        if let Some(value) = table.get("slice_after") {
            match (number(value.get_ref()), table.get("slice")) {
                (Some(packets @ 1..=0xffff_ffff), Some(_)) => slice_after = packets as u32,
                _ => self.invalid("slice_after", value, "1 to 4294967295 packets, beside 'slice'"),
            }
        }
        if let Some(value) = table.get("slice") {
            let slice = match (value.get_ref().as_str(), number(value.get_ref())) {
                (Some("l3"), _) => Some(Slice::Network),
                (Some("l4"), _) => Some(Slice::Transport),
                (_, Some(octets @ 14..=0xffff_ffff)) => Some(Slice::Octets(octets as u32)),
                _ => {
                    self.invalid("slice", value, "\"l3\", \"l4\" or a number of octets, at least 14");
                    None
                }
            };
            set.slice = slice.map(|slice| (slice, slice_after));
        }
        if let Some(value) = table.get("to") {
            let names = self.texts("to", value);
            let mut egresses = 0;
            for (line, name) in names {
                if self.has_enough() {
                    break;
                }
                let all = self.rules.egresses.iter().map(|egress| &*egress.name).filter(|&of| of != RECORDER);
                match all.clone().position(|of| of == name) {
                    Some(index) => egresses |= 1 << index,
                    None => {
                        let near = did_you_mean(&name, all);
                        let text = format!("there is no egress '{name}'{near}; write [egress.{name}] with its outputs");
                        self.problems.push((line, text));
                    }
                }
            }
            set.egresses = Some(egresses);
        }
        if let Some(value) = table.get("record") {
            match value.get_ref().as_bool() {
                Some(true) if !self.rules.has_recorder => {
                    let text = "record = true needs a recorder; write [recorder] with outputs = [\"folder:...\"]";
                    self.problem(&value.span(), text.into());
                }
                Some(record) => set.record = Some(record),
                None => self.invalid("record", value, "true or false"),
            }
        }
        set
    }

    fn table<'a, 'b>(
        &mut self,
        key: &str,
        value: &'a Spanned<DeValue<'b>>,
        expected: &'static str,
    ) -> Option<&'a DeTable<'b>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.invalid(key, value, expected);
        }
        table
    }

    fn text(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = value.get_ref().as_str().map(String::from);
        if text.is_none() {
            self.invalid(key, value, "text in quotation marks");
        }
        text
    }

    /// A text, or a list of texts, each with its line.
    fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<(usize, String)> {
        let mut text = |value: &Spanned<DeValue<'_>>| Some((self.line(&value.span()), self.text(key, value)?));
        match value.get_ref() {
            DeValue::Array(values) => values.iter().filter_map(text).collect(),
            _ => text(value).into_iter().collect(),
        }
    }

    fn number(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        let number = number(value.get_ref());
        if number.is_none() {
            self.invalid(key, value, "a whole number, 0 or more");
        }
        number
    }
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(integer) = value else { return None };
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The most similar name, if one is similar.
fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    most_similar(name, known).map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}
