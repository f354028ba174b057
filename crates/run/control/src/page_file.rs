//! The page as one file, with the answers that it asks for (`weir read --html`).
//!
//! In: the files of the page that are embedded, among them the list of its questions, which the build of the page makes;
//! and their answers. Out: HTML that loads nothing, and whose browser runs no other script than that of the page.
//! Always: texts of traffic stay texts. No `<` or `>` of an answer or of a name is in the file, so none ends its element.

use crate::page;
use crate::stored::{StoredAnswer, StoredQuestion};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where the parts are in the embedded `file.html`.
const STYLE: &str = "<!-- style -->";
const FACTS: &str = "<!-- facts -->";
const ANSWERS: &str = "<!-- answers -->";
const SCRIPT: &str = "<!-- script -->";

/// What a file is made of.
pub struct PageFile {
    frame: &'static str,
    style: String,
    script: String,
    questions: Questions,
}

/// What the build of the page writes into `questions.json`.
#[derive(Deserialize)]
struct Questions {
    /// Intervals of a time line, at most.
    max_intervals: u64,
    /// Their lengths, the shortest first.
    lengths: Vec<Length>,
    /// Parameters of `/stored`; an empty `every` stands for the length of the intervals.
    questions: Vec<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Length {
    ms: u64,
    every: String,
}

/// A question of the page: parameters of `/stored`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuestion(BTreeMap<String, String>);

/// The answers of a file, as JSON.
#[derive(Default)]
pub struct PageAnswers(String);

impl PageFile {
    /// What is embedded; `None` if the program was built without the page.
    pub fn load() -> Option<Self> {
        let text = |name| std::str::from_utf8(page::embedded(name)?).ok();
        Some(Self {
            frame: text("file.html")?,
            style: page::plain_asset("page-", ".css")?,
            script: page::plain_asset("page-", ".js")?,
            questions: serde_json::from_str(text("questions.json")?).ok()?,
        })
    }

    /// The questions of the page about flows with packets from a first to a last time, ns since 1970 UTC. Those that differ
    /// only in order and number follow one another.
    pub fn questions(&self, times_ns: &RangeInclusive<u64>) -> impl Iterator<Item = PageQuestion> {
        let Questions { max_intervals, lengths, questions } = &self.questions;
        // As the page computes it (web/src/range.tsx).
        let span_ms = times_ns.end() / 1_000_000 + 1 - times_ns.start() / 1_000_000;
        let fits = lengths.iter().find(|length| span_ms <= length.ms * (max_intervals - 1)).or(lengths.last());
        let every = fits.map(|length| length.every.clone()).unwrap_or_default();
        questions.iter().map(move |parameters| {
            let mut parameters = parameters.clone();
            parameters.entry("every".into()).and_modify(|of| of.clone_from(&every));
            parameters.retain(|_, value| !value.is_empty());
            PageQuestion(parameters)
        })
    }

    /// The file. `about` is what `/about` answers to the page.
    pub fn html(&self, about: &Value, answers: &PageAnswers) -> String {
        let answers = plain(&format!("{{\"about\":{about},\"answers\":{{{}\n}}}}", answers.0));
        let mut html = String::with_capacity(self.frame.len() + self.style.len() + answers.len() + self.script.len());
        let mut rest = self.frame;
        let parts = [(STYLE, &self.style), (FACTS, &facts(about)), (ANSWERS, &answers), (SCRIPT, &self.script)];
        for (place, text) in parts {
            let (before, after) =
                rest.split_once(place).expect("the build of the page writes all places, in this order");
            html += before;
            html += text;
            rest = after;
        }
        html + rest
    }
}

/// What the file has, in a sentence for browsers without JavaScript, as HTML.
fn facts(about: &Value) -> String {
    let facts = about["facts"].as_array().into_iter().flatten();
    let facts = facts.filter_map(|fact| Some(format!("{}: {}", fact[0].as_str()?, fact[1].as_str()?)));
    let text = format!("It has the flows of what was read. {}.", facts.collect::<Vec<_>>().join("; "));
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => drop(write!(html, "&#{};", u32::from(character))),
            other => html.push(other),
        }
    }
    html
}

impl PageQuestion {
    /// The question, which ends when `stop` is set.
    ///
    /// # Errors
    /// A parameter is invalid: the sentence.
    pub fn stored(&self, stop: Arc<AtomicBool>) -> Result<StoredQuestion, String> {
        StoredQuestion::without_limit(&self.0, stop)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The name of its answer: a file has intervals of one length.
    fn name(&self) -> String {
        let value = |name: &str, value: &String| if name == "every" { String::new() } else { value.clone() };
        json!(self.0.iter().map(|(name, of)| (name, value(name, of))).collect::<Vec<_>>()).to_string()
    }

    /// Whether the page reads this column of the rows. Of intervals it reads the number that it stacks.
    fn reads(&self, column: &str) -> bool {
        let names = |text: Option<&str>| {
            text.is_some_and(|text| text.split(',').any(|name| name.split('/').next() == Some(column)))
        };
        self.get("every").is_none()
            || ["interval_start", "other_groups"].contains(&column)
            || names(self.get("by"))
            || names(self.get("sort"))
    }
}

impl PageAnswers {
    /// Adds an answer: its rows by columns, each value as it was written.
    pub fn add(&mut self, question: &PageQuestion, answer: &StoredAnswer) {
        let StoredAnswer { rows, matching, read, is_complete, problems } = answer;
        let rows = String::from_utf8_lossy(rows);
        let (columns, count) = columns(&rows, |name| question.reads(name));
        let kind = if question.get("by").or(question.get("every")).is_some() { "groups" } else { "flows" };
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let every = question.get("every").map_or(String::new(), |every| format!(",\"every\":{}", json!(every)));
        let _ = write!(
            self.0,
            "{}\n{}:{{\"matching\":{matching},\"read\":{read},\"complete\":{is_complete},\"problems\":{},\
             \"rows\":\"{kind}\",\"count\":{count}{every},\"names\":{},\"columns\":[",
            if self.0.is_empty() { "" } else { "," },
            Value::String(question.name()),
            json!(problems),
            json!(names),
        );
        for (at, (_, values)) in columns.iter().enumerate() {
            self.0 += if at == 0 { "" } else { "," };
            self.0 += &column(values);
        }
        self.0 += "]}";
    }
}

/// The columns of rows that are JSON objects, each in a line: names and values, as they were written. Rows without one
/// have null. And the number of rows.
fn columns(rows: &str, is_read: impl Fn(&str) -> bool) -> (Vec<(&str, Vec<&str>)>, usize) {
    let mut columns: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut count = 0;
    for row in rows.lines() {
        for (name, value) in cells(row).filter(|(name, _)| is_read(name)) {
            let at = columns.iter().position(|(of, _)| *of == name).unwrap_or_else(|| {
                columns.push((name, vec!["null"; count]));
                columns.len() - 1
            });
            columns[at].1.push(value);
        }
        count += 1;
        columns.iter_mut().for_each(|(_, values)| values.resize(count, "null"));
    }
    (columns, count)
}

/// A column as JSON: of few values, these, and which of them each row has; one value is that of all rows.
fn column(values: &[&str]) -> String {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut different = Vec::new();
    let at: Vec<String> = values
        .iter()
        .map(|value| {
            let place = *places.entry(value).or_insert_with(|| {
                different.push(*value);
                different.len() - 1
            });
            place.to_string()
        })
        .collect();
    match different.len() {
        1 if values.len() > 1 => format!("{{\"values\":[{}],\"at\":[]}}", different[0]),
        few if few > 0 && few <= values.len() / 2 => {
            format!("{{\"values\":[{}],\"at\":[{}]}}", different.join(","), at.join(","))
        }
        _ => format!("[{}]", values.join(",")),
    }
}

/// Names and values of a JSON object of one line, which encoders of records and views have written.
fn cells(row: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = row.strip_prefix('{').unwrap_or_default();
    std::iter::from_fn(move || {
        let (name, after) = rest.split_at(end_of_value(rest));
        let after = after.strip_prefix(':')?;
        let (value, after) = after.split_at(end_of_value(after));
        rest = after.get(1..).unwrap_or_default();
        Some((name.trim_matches('"'), value))
    })
}

/// The octets of the JSON value at the begin of a text.
fn end_of_value(text: &str) -> usize {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (at, octet) in text.bytes().enumerate() {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b',' | b':' | b'}' | b']' if depth == 0 => return at,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// JSON that can stand in an element: in JSON, these characters are only in texts, where their codes mean the same.
fn plain(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &str) -> StoredAnswer {
        StoredAnswer { rows: rows.into(), matching: 3, read: 4, is_complete: true, problems: vec!["a <b>".into()] }
    }

    fn question(parameters: &[(&str, &str)]) -> PageQuestion {
        PageQuestion(parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn rows_become_columns_with_each_value_as_it_was() {
        let mut answers = PageAnswers::default();
        let rows = "{\"host\":\"a\\\",}:\",\"other_groups\":0,\"names\":[\"x\",\"y\"],\"share\":0.10}\n\
                    {\"host\":null,\"other_groups\":0,\"share\":18446744073709551615}\n";
        answers.add(&question(&[("by", "host"), ("top", "8")]), &answer(rows));
        answers.add(&question(&[("by", "host/24"), ("every", "1s"), ("sort", "share")]), &answer(rows));
        let json = format!("{{{}}}", answers.0);
        let all: BTreeMap<String, Value> = serde_json::from_str(&json).unwrap();
        let sums = &all["[[\"by\",\"host\"],[\"top\",\"8\"]]"];
        assert_eq!(sums["names"], json!(["host", "other_groups", "names", "share"]));
        assert_eq!((&sums["count"], &sums["matching"], &sums["rows"]), (&json!(2), &json!(3), &json!("groups")));
        assert_eq!(sums["columns"][0], json!(["a\",}:", null]));
        assert_eq!(sums["columns"][1], json!({"values": [0], "at": []}));
        assert_eq!(sums["columns"][2], json!([["x", "y"], null]));
        assert!(json.contains("[0.10,18446744073709551615]"), "{json}");
        let line = &all["[[\"by\",\"host/24\"],[\"every\",\"\"],[\"sort\",\"share\"]]"];
        assert_eq!((&line["names"], &line["every"]), (&json!(["host", "other_groups", "share"]), &json!("1s")));
    }

    #[test]
    fn few_values_are_written_once() {
        assert_eq!(column(&["1", "2", "1", "1"]), "{\"values\":[1,2],\"at\":[0,1,0,0]}");
        assert_eq!(column(&["1", "2", "1"]), "[1,2,1]");
        assert_eq!((column(&["7"]), column(&[])), ("[7]".into(), "[]".into()));
        let none = columns("", |_| true);
        assert_eq!(none, (Vec::new(), 0));
    }

    #[test]
    fn no_text_ends_the_element_of_the_answers() {
        let Some(page) = PageFile::load() else { return eprintln!("SKIPPED: the page is not built (make web)") };
        let mut answers = PageAnswers::default();
        let text = "</script><!--<script>\u{2028}&amp;";
        let rows = format!("{{\"host\":{}}}\n", json!(text));
        answers.add(&question(&[("by", "host")]), &answer(&rows));
        let html = page.html(&json!({ "inputs": [text] }), &answers);
        assert_eq!((html.matches("<script").count(), html.matches("</script").count()), (2, 2));
        assert!(!html.contains("<!--") && !html.contains('\u{2028}'));
        let (_, json) = html.split_once("type=\"application/json\">").unwrap();
        let json: Value = serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(json["about"]["inputs"][0], text);
        assert_eq!(json["answers"]["[[\"by\",\"host\"]]"]["columns"][0][0], text);
    }

    #[test]
    fn all_questions_are_valid_and_intervals_are_not_too_many() {
        let Some(page) = PageFile::load() else { return eprintln!("SKIPPED: the page is not built (make web)") };
        for (last_ns, every) in [(0, "1ms"), (198_999_999, "1ms"), (199_000_000, "2ms"), (3_600_000_000_000, "20s")] {
            let questions: Vec<_> = page.questions(&(0..=last_ns)).collect();
            let lengths: Vec<_> = questions.iter().filter_map(|question| question.get("every")).collect();
            assert!(lengths.len() > 10 && lengths.iter().all(|of| *of == every), "{lengths:?}");
            for question in &questions {
                assert!(question.stored(Arc::default()).is_ok(), "{question:?}");
            }
            let names: std::collections::HashSet<_> = questions.iter().map(PageQuestion::name).collect();
            assert_eq!(names.len(), questions.len());
        }
    }
}
