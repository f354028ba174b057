//! What the screen shows, what it asks for, and what keys change.

use crate::about::{About, Mode};
use crate::answer::{Reply, Rows, sentence};
use crate::columns::{self, BYTES, RATE, START};
use crate::detail::{self, Detail, Meanings};
use crate::editor::Editor;
use crate::key::{Action, Key};
use crate::line::width;
use crate::list::List;
use crate::question::{Question, Questions, Topic, path};
use crate::row::Row;
use crate::scan;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::HashMap;
use weir_dpi::{is_unprintable, printable};
use weir_text::units;

/// Rows that are asked for to sort them by rate.
const ROWS_FOR_RATES: usize = 1000;
const DAY_NS: u64 = 86_400_000_000_000;
/// Since when ended flows are among the failures of a probe.
const FAILURES_SINCE: &str = "-15m";
/// Since when stored flows are shown: all.
const ALL_SINCE: &str = "1970-01-01T00:00:00Z";

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is looked at, as the user named it.
    pub target: String,
    /// The first list.
    pub list: List,
    /// The first order, if it is not the usual one.
    pub sort: Option<String>,
    /// The first filter.
    pub filter: String,
    /// Rows that are asked for.
    pub top: usize,
    /// Time between questions, ns.
    pub interval_ns: u64,
    /// Whether names are shown.
    pub names: bool,
}

/// A list of rows, and the row that is selected.
#[derive(Debug)]
pub struct Listing {
    pub list: List,
    pub sort: String,
    /// In the detail of a group: its name, and the expression that selects its flows.
    pub group: Option<(String, String)>,
    pub rows: Vec<Row>,
    pub matching: u64,
    pub searched: u64,
    pub is_complete: bool,
    pub problems: Vec<String>,
    /// Why names are missing.
    pub no_names: Option<String>,
    pub is_answered: bool,
    pub selected: usize,
    /// Rows above the screen.
    pub first: usize,
    /// Octets of each row in the last answer, and its time.
    last: HashMap<String, (u64, u64)>,
    current: Vec<Row>,
    ended: Vec<Row>,
    /// Flows that have ended and match; `None` without an answer.
    pub matching_ended: Option<u64>,
    /// Whether all of them were looked at.
    is_ended_complete: bool,
    /// Scans, whose flows are in none of the rows above.
    pub scans: Vec<Row>,
    /// The rows before answers without any flow: a probe that ends has none any more, before it is away.
    before_none: Vec<Row>,
}

/// A filter that is edited, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Edit {
    pub editor: Editor,
    /// The sentence, and the place in the filter: characters before it, and its length.
    pub error: Option<(String, Option<(usize, usize)>)>,
}

impl Edit {
    /// The text, which the user has typed or pasted, as the terminal may show it: a character for each.
    pub fn text(&self) -> String {
        self.editor.text().chars().map(|character| if is_unprintable(character) { '?' } else { character }).collect()
    }

    /// Columns of the terminal that the characters from one place to before another take.
    pub fn columns(&self, from: usize, to: usize) -> usize {
        width(&self.text().chars().take(to).skip(from).collect::<String>())
    }
}

/// What the screen shows.
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) about: About,
    pub(crate) base: Listing,
    pub(crate) group: Option<Listing>,
    pub(crate) detail: Option<Detail>,
    pub(crate) meanings: Meanings,
    pub(crate) filter: String,
    /// The filter before the present one, until that has an answer.
    before: Option<String>,
    pub(crate) edit: Option<Edit>,
    pub(crate) status: Option<Value>,
    /// Why the last question has no answer.
    pub(crate) away: Option<String>,
    /// For how long there is no answer, ns; `None` if that is no longer than usual.
    pub(crate) silence_ns: Option<u64>,
    /// What answers may be another one than before.
    is_about_old: bool,
    /// Why the last question has no rows.
    pub(crate) refusal: Option<String>,
    /// What the child has logged last.
    pub(crate) note: String,
    pub(crate) is_paused: bool,
    pub(crate) is_help: bool,
    pub(crate) clock_ns: u64,
    /// Rows of a page.
    pub(crate) page: usize,
    generation: u64,
}

impl Listing {
    fn new(list: List, sort: Option<String>, group: Option<(String, String)>) -> Self {
        let usual = if list == List::Failures { START } else { BYTES };
        Self {
            list,
            sort: sort.map_or_else(|| usual.into(), |sort| columns::known_order(list, &sort)),
            group,
            rows: Vec::new(),
            matching: 0,
            searched: 0,
            is_complete: true,
            problems: Vec::new(),
            no_names: None,
            is_answered: false,
            selected: 0,
            first: 0,
            last: HashMap::new(),
            current: Vec::new(),
            ended: Vec::new(),
            matching_ended: None,
            is_ended_complete: true,
            scans: Vec::new(),
            before_none: Vec::new(),
        }
    }

    /// Takes rows. The selected one stays selected, unless it is the first: then the first one is.
    fn take(&mut self, answer: Rows, time_ns: u64, top: usize) {
        self.is_answered = true;
        (self.matching, self.searched) = (answer.matching, answer.searched);
        (self.is_complete, self.problems, self.no_names) = (answer.is_complete, answer.problems, answer.no_names);
        let before = std::mem::replace(&mut self.current, answer.rows);
        if self.searched > 0 {
            self.before_none.clear();
        } else if !before.is_empty() {
            self.before_none = before;
        }
        let mut last = HashMap::new();
        for row in &mut self.current {
            let Some(octets) = columns::octets_of(row).filter(|_| !row.has_ended && !columns::is_others(row)) else {
                continue;
            };
            row.bits_per_second = self.last.get(&row.key).and_then(|&(before, then_ns)| {
                let ns = time_ns.checked_sub(then_ns).filter(|&ns| ns > 0)?;
                let more = octets.checked_sub(before)?;
                u64::try_from(u128::from(more) * 8_000_000_000 / u128::from(ns)).ok()
            });
            last.insert(row.key.clone(), (octets, time_ns));
        }
        self.last = last;
        self.arrange(top);
    }

    /// Current and ended rows together, in their order.
    fn arrange(&mut self, top: usize) {
        let selected = self.rows.get(self.selected).filter(|_| self.selected > 0).map(|row| row.key.clone());
        let others = self.current.iter().position(columns::is_others).map(|at| self.current[at].clone());
        let rows = self.current.iter().filter(|row| !columns::is_others(row)).chain(&self.ended);
        self.rows = rows.cloned().collect();
        // The answers are sorted, but for these.
        if self.sort == RATE || !self.ended.is_empty() {
            let (name, is_ascending) = columns::order(&self.sort);
            self.rows.sort_by_cached_key(|row| Reverse(columns::rank(row, name)));
            if is_ascending {
                self.rows.reverse();
            }
        }
        self.rows.splice(..0, self.scans.iter().cloned());
        self.rows.truncate(top);
        self.rows.extend(others);
        let place = selected.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.selected = place.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    /// Back to the rows before answers without any flow.
    fn restore(&mut self, top: usize) {
        if !self.before_none.is_empty() {
            self.current = std::mem::take(&mut self.before_none);
            self.arrange(top);
        }
    }

    /// Rates are the differences of answers to one question.
    fn forget(&mut self) {
        self.last.clear();
        self.ended.clear();
        (self.matching_ended, self.is_ended_complete) = (None, true);
        self.before_none.clear();
    }
}

impl State {
    /// Of what answers.
    pub fn new(settings: Settings, about: About) -> Self {
        Self {
            base: Listing::new(settings.list, settings.sort.clone(), None),
            filter: settings.filter.clone(),
            settings,
            about,
            group: None,
            detail: None,
            meanings: Meanings::new(),
            before: None,
            edit: None,
            status: None,
            away: None,
            silence_ns: None,
            is_about_old: false,
            refusal: None,
            note: String::new(),
            is_paused: false,
            is_help: false,
            clock_ns: 0,
            page: 10,
            generation: 0,
        }
    }

    /// The time of the clock, ns since 1970.
    pub fn set_clock(&mut self, now_ns: u64) {
        self.clock_ns = now_ns;
    }

    /// For how long there is no answer, ns, if that is longer than usual.
    pub fn set_silence(&mut self, silence_ns: Option<u64>) {
        self.silence_ns = silence_ns;
    }

    /// What the command line says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the child has logged last.
    pub fn set_note(&mut self, note: &str) {
        self.note = printable(note);
    }

    /// The list on the screen.
    pub(crate) fn listing(&self) -> &Listing {
        self.group.as_ref().unwrap_or(&self.base)
    }

    fn listing_mut(&mut self) -> &mut Listing {
        self.group.as_mut().unwrap_or(&mut self.base)
    }

    /// Whether a probe answers.
    pub fn is_live(&self) -> bool {
        self.about.mode == Mode::Probe
    }

    /// Whether the probe has said what happened in an interval.
    pub fn has_rates(&self) -> bool {
        self.status.as_ref().is_some_and(|status| !status["interval"].is_null())
    }

    /// Why there are no rows: the sentence, and lines that show the place in the filter.
    pub fn failure(&self) -> Option<String> {
        if let Some(edit @ Edit { error: Some((sentence, place)), .. }) = &self.edit {
            let marks = place.map(|(before, length)| {
                let [before, length] =
                    [(0, before), (before, before + length)].map(|(from, to)| edit.columns(from, to));
                format!("\n  {}\n  {}{}", edit.text(), " ".repeat(before), "^".repeat(length.max(1)))
            });
            return Some(format!("{sentence}{}", marks.unwrap_or_default()));
        }
        let away = self.away.as_ref().map(|reason| format!("{}: {reason}", printable(&self.settings.target)));
        away.or_else(|| self.refusal.clone())
    }

    /// Whether the rows are all of them, and the files of a store without damage.
    pub fn is_complete(&self) -> bool {
        let listing = self.listing();
        listing.is_complete && listing.is_ended_complete && listing.problems.is_empty()
    }

    /// Whether times need their dates: more than a day is between two of them, or between one and now.
    pub(crate) fn has_dates(&self) -> bool {
        let is_long = |(first_ns, last_ns): (u64, u64)| {
            let [first_ns, last_ns] = match self.clock_ns {
                0 => [first_ns, last_ns],
                now_ns => [first_ns.min(now_ns), last_ns.max(now_ns)],
            };
            last_ns - first_ns > DAY_NS
        };
        columns::times_ns(self.listing().list, &self.listing().rows).is_some_and(is_long)
    }

    /// What the screen wants to know.
    pub fn questions(&self) -> Questions {
        let mut all = Vec::new();
        let mut ask = |topic, path| {
            let names = self.settings.names && matches!(topic, Topic::Rows | Topic::Ended);
            all.push(Question { topic, path, names });
        };
        if self.is_live() {
            ask(Topic::Status, "/status".into());
        }
        match &self.detail {
            Some(detail) => {
                if self.meanings.is_empty() {
                    ask(Topic::Meanings, "/fields".into());
                }
                if let Some((start, id)) = &detail.identity {
                    ask(Topic::Detail, self.path_of_flow(start, id, detail.has_ended));
                }
            }
            None => {
                ask(Topic::Rows, self.path_of_rows(!self.is_live()));
                if self.is_live() && self.about.has_history && self.listing().list == List::Failures {
                    ask(Topic::Ended, self.path_of_rows(true));
                }
                if self.has_scans() {
                    ask(Topic::Scans, self.path_of_scans());
                }
            }
        }
        // Files may have grown, and a probe that was away may be another one.
        if !self.is_live() || self.is_about_old {
            ask(Topic::About, "/about".into());
        }
        let repeats = self.away.is_some() || self.is_live() && !self.is_paused;
        Questions { generation: self.generation, repeats, all }
    }

    /// Whether scans are rows of their own. Only stored flows can be counted by their targets.
    fn has_scans(&self) -> bool {
        let listing = self.listing();
        let is_stored = !self.is_live() || self.about.has_history;
        is_stored && listing.list == List::Failures && listing.group.is_none()
    }

    fn path_of_scans(&self) -> String {
        let expression = self.expression(&[scan::UNOPENED.into()]);
        let parameters = [
            ("where", expression.as_str()),
            ("by", scan::BY),
            ("count", scan::COUNTS),
            ("sum", scan::SUMS),
            ("sort", "flows"),
            ("top", scan::MOST),
            ("from", self.since()),
        ];
        path("/stored", &parameters)
    }

    /// Since when stored flows are asked for.
    fn since(&self) -> &'static str {
        if self.is_live() { FAILURES_SINCE } else { ALL_SINCE }
    }

    /// The filter and further conditions. Without these, places in the filter are those that the user sees.
    fn expression(&self, conditions: &[String]) -> String {
        let filter = self.filter.trim();
        if conditions.is_empty() {
            return filter.to_owned();
        }
        let filter = (!filter.is_empty()).then_some(filter);
        let parts = filter.into_iter().chain(conditions.iter().map(String::as_str));
        parts.map(|part| format!("({part})")).collect::<Vec<_>>().join(" and ")
    }

    fn path_of_rows(&self, is_stored: bool) -> String {
        let listing = self.listing();
        let is_by_rate = listing.sort == RATE;
        let failed = (listing.list == List::Failures).then(|| columns::failed(is_stored));
        let group = listing.group.as_ref().map(|(_, condition)| condition.clone());
        let conditions: Vec<String> = [group, failed, scan::others(&listing.scans)].into_iter().flatten().collect();
        let expression = self.expression(&conditions);
        let top = if is_by_rate { ROWS_FOR_RATES.max(self.settings.top) } else { self.settings.top }.to_string();
        let by = listing.list.group_fields().unwrap_or_default();
        let parameters = [
            ("where", expression.as_str()),
            ("by", by),
            ("fields", if by.is_empty() { columns::FLOW_FIELDS } else { "" }),
            ("sort", if is_by_rate { BYTES } else { &listing.sort }),
            ("top", &top),
            ("from", if is_stored { self.since() } else { "" }),
        ];
        path(if is_stored { "/stored" } else { "/flows" }, &parameters)
    }

    fn path_of_flow(&self, start: &str, id: &str, has_ended: bool) -> String {
        if has_ended {
            let expression = format!("{} = \"{id}\"", columns::FLOW_ID);
            let parameters = [("from", start), ("to", start), ("where", &expression), ("fields", "all"), ("top", "1")];
            path("/stored", &parameters)
        } else {
            path("/flows", &[(columns::FLOW_ID, id), ("fields", "all"), ("top", "1")])
        }
    }

    /// Takes an answer.
    pub fn take(&mut self, reply: Reply) {
        if reply.generation != self.generation {
            return;
        }
        let (status, body) = match reply.result {
            Ok(answer) => answer,
            Err(reason) => {
                self.away = Some(printable(&reason));
                self.is_about_old = true;
                let top = self.settings.top;
                self.listing_mut().restore(top);
                return;
            }
        };
        (self.away, self.silence_ns) = (None, None);
        match (reply.topic, status) {
            (Topic::Status, 200) => self.status = Some(body),
            (Topic::About, 200) => self.take_about(&body),
            (Topic::Meanings, 200) => self.meanings = detail::meanings(&body),
            (Topic::Rows, 200) => self.take_rows(&body, reply.time_ns),
            (Topic::Ended, 200) => {
                let top = self.settings.top;
                let listing = self.listing_mut();
                let answer = Rows::new(listing.list, &body, true);
                (listing.matching_ended, listing.is_ended_complete) = (Some(answer.matching), answer.is_complete);
                listing.ended = answer.rows;
                listing.arrange(top);
            }
            (Topic::Scans, 200) => self.take_scans(&body),
            (Topic::Detail, 200) => {
                let is_found = self.detail.as_mut().is_none_or(|detail| detail.take(&body));
                self.refusal = (!is_found).then(|| "the flow has ended: these are its last figures here".into());
            }
            // The figures of a moment ago are still there.
            (Topic::Status | Topic::Ended | Topic::Scans | Topic::Meanings | Topic::About, _) => {}
            (Topic::Rows | Topic::Detail, 429 | 503) => {
                self.refusal = Some(format!("no new answer: {}", self.sentence(status, &body)));
            }
            (Topic::Rows, 400) if self.before.is_some() => self.refuse_filter(&body),
            (Topic::Rows | Topic::Detail, _) => self.refusal = Some(self.sentence(status, &body)),
        }
    }

    fn sentence(&self, status: u16, body: &Value) -> String {
        sentence(&self.settings.target, status, body)
    }

    fn take_about(&mut self, body: &Value) {
        if !About::is_of_weir(body) {
            return;
        }
        let was_live = self.is_live();
        (self.about, self.is_about_old) = (About::new(body), false);
        if was_live != self.is_live() {
            // Its lists have other orders.
            let list = self.base.list;
            (self.base, self.group, self.detail, self.status) = (Listing::new(list, None, None), None, None, None);
            self.ask_anew();
        }
    }

    fn take_rows(&mut self, body: &Value, time_ns: u64) {
        let (top, has_ended) = (self.settings.top, !self.is_live());
        let listing = self.listing_mut();
        let answer = Rows::new(listing.list, body, has_ended);
        listing.take(answer, time_ns, top);
        (self.refusal, self.before) = (None, None);
    }

    /// Takes scans. The rows without the flows of the first ones are asked for at once, those without others later.
    fn take_scans(&mut self, body: &Value) {
        let top = self.settings.top;
        let listing = self.listing_mut();
        let scans = scan::scans(body);
        let are_first = listing.scans.is_empty() && !scans.is_empty();
        listing.scans = scans;
        listing.arrange(top);
        self.generation += u64::from(are_first);
    }

    /// Goes back to the last filter, and lets the user edit the one that is wrong.
    fn refuse_filter(&mut self, body: &Value) {
        let wrong = std::mem::replace(&mut self.filter, self.before.take().unwrap_or_default());
        let place = &body["place"];
        let [before, length] = ["before", "length"].map(|key| place[key].as_u64().map(|number| number as usize));
        // Behind a parenthesis if there are further conditions.
        let shift =
            usize::from(place["text"].as_str().is_some_and(|text| text != wrong.trim() && text.starts_with('(')));
        let characters = wrong.chars().count();
        let place = before.zip(length).map(|(before, length)| {
            let before = before.saturating_sub(shift).min(characters);
            (before, length.clamp(1, (characters - before).max(1)))
        });
        let mut editor = Editor::new(&wrong);
        if let Some((before, _)) = place {
            editor.place(before);
        }
        self.edit = Some(Edit { editor, error: Some((self.sentence(400, body), place)) });
        self.ask_anew();
    }

    /// From now on other questions are asked.
    fn ask_anew(&mut self) {
        self.generation += 1;
        self.refusal = None;
        self.listing_mut().forget();
    }

    /// The filter of the command line is wrong if the first answer says so.
    pub fn try_filter(&mut self) {
        self.before = Some(String::new());
    }

    /// Does what a key means.
    pub fn key(&mut self, key: Key) -> Action {
        if key == Key::Interrupt {
            return Action::Quit;
        }
        if self.edit.is_some() {
            self.edit_filter(key);
        } else if self.is_help {
            self.is_help = false;
        } else if key == Key::Character('q') {
            return Action::Quit;
        } else if self.detail.is_some() {
            self.key_of_detail(key);
        } else {
            self.key_of_list(key);
        }
        Action::Continue
    }

    fn edit_filter(&mut self, key: Key) {
        match (key, &mut self.edit) {
            (Key::Escape, _) => self.edit = None,
            (Key::Enter, edit) => {
                let text = edit.take().map(|edit| edit.editor.text()).unwrap_or_default();
                self.before = Some(std::mem::replace(&mut self.filter, text));
                // Those of the filter before.
                self.listing_mut().scans.clear();
                self.ask_anew();
            }
            (_, Some(edit)) => {
                edit.editor.key(key);
                edit.error = None;
            }
            _ => {}
        }
    }

    fn key_of_detail(&mut self, key: Key) {
        let page = self.page;
        let Some(detail) = &mut self.detail else { return };
        let first = detail.first;
        match key {
            Key::Escape | Key::Enter | Key::Backspace | Key::Left => {
                self.detail = None;
                self.ask_anew();
            }
            Key::Up => detail.first = first.saturating_sub(1),
            Key::Down => detail.first = first + 1,
            Key::PageUp => detail.first = first.saturating_sub(page),
            Key::PageDown => detail.first = first + page,
            Key::Home => detail.first = 0,
            Key::End => detail.first = usize::MAX,
            key => self.key_everywhere(key),
        }
    }

    fn key_everywhere(&mut self, key: Key) {
        match key {
            Key::Character('?') => self.is_help = true,
            Key::Character('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Character('r') => self.ask_anew(),
            _ => {}
        }
    }

    fn key_of_list(&mut self, key: Key) {
        let page = self.page.max(1);
        let listing = self.listing_mut();
        let last = listing.rows.len().saturating_sub(1);
        match key {
            Key::Up => listing.selected = listing.selected.saturating_sub(1),
            Key::Down => listing.selected = (listing.selected + 1).min(last),
            Key::PageUp => listing.selected = listing.selected.saturating_sub(page),
            Key::PageDown => listing.selected = (listing.selected + page).min(last),
            Key::Home => listing.selected = 0,
            Key::End => listing.selected = last,
            Key::Enter | Key::Right => self.open(),
            Key::Escape | Key::Left | Key::Backspace => {
                if self.group.take().is_some() {
                    self.ask_anew();
                }
            }
            Key::Character('s' | '>') => self.sort_by_next(1),
            Key::Character('S' | '<') => self.sort_by_next(-1),
            Key::Character('/') => self.edit = Some(Edit { editor: Editor::new(&self.filter), error: None }),
            Key::Character(digit @ '1'..='6') => {
                let list = List::of_key(digit).unwrap_or(self.base.list);
                (self.base, self.group) = (Listing::new(list, None, None), None);
                self.ask_anew();
            }
            key => self.key_everywhere(key),
        }
    }

    /// Opens the selected row: the fields of a flow, or the flows of a group.
    fn open(&mut self) {
        let listing = self.listing();
        let Some(row) = listing.rows.get(listing.selected).filter(|row| !columns::is_others(row)) else { return };
        if scan::is_scan(row) {
            let group = (columns::title(listing.list, row), scan::condition(row));
            self.group = Some(Listing::new(List::Failures, None, Some(group)));
        } else if listing.list.group_fields().is_none() {
            self.detail = Some(Detail::new(row));
        } else {
            let group = (columns::title(listing.list, row), columns::condition(listing.list, row));
            self.group = Some(Listing::new(List::Flows, None, Some(group)));
        }
        self.ask_anew();
    }

    /// Sorts by a column beside the present one.
    fn sort_by_next(&mut self, step: isize) {
        let is_live = self.is_live();
        let listing = self.listing_mut();
        let names = columns::sort_names(listing.list, is_live);
        let at = names.iter().position(|name| *name == columns::order(&listing.sort).0);
        let next = at.map_or(0, |at| (at as isize + step).rem_euclid(names.len() as isize) as usize);
        listing.sort = names[next].into();
        listing.selected = 0;
        self.ask_anew();
    }

    /// The interval of the questions, as text.
    pub(crate) fn interval(&self) -> String {
        units::span(self.settings.interval_ns)
    }
}
