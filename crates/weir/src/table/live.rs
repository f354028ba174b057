//! The table of live traffic on a terminal: refreshed in place once a second, and once more at the end.
//!
//! Input: the records of the table, which have ended, and once a second the current flows, which the pipeline looks at
//! between its bursts ([`weir_probe::Searcher`]): per packet nothing is done. Output: a frame that fits the terminal, and at the
//! end the table as without a terminal. While flows are looked at, others end: with more than some thousand of them, a
//! frame may miss some, or have some twice. The last table has each record once.

use super::{Content, LargestFlows, Layout, Table, ViewTable};
use crate::console::frame::Terminal;
use crate::console::style;
use crate::names::{HostNames, SharedNames};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_anonymise::Anonymiser;
use weir_export::{Error, MeteringStatus, Sink, ViewFormat};
use weir_fields::{Words, field};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;
use weir_probe::{FlowRank, FlowSearch, FoundFlows, Ranking, RecordEnricher, Searcher};
use weir_query::{Expression, Share, View};
use weir_text::units;
use weir_text::zone::Zone;

/// Time between two frames.
const INTERVAL: Duration = Duration::from_secs(1);
/// A frame takes at most one part in this number of the time of its thread.
const SHARE: u32 = 10;
/// Time between two looks whether a search has ended.
const LOOK: Duration = Duration::from_millis(20);
/// After this time a frame has what was found until then.
const SEARCH_TIME: Duration = Duration::from_secs(10);

/// What the table of live traffic has from the run.
#[derive(Clone)]
pub struct LiveTraffic {
    pub searcher: Searcher,
    pub enricher: Option<RecordEnricher>,
}

/// What selects the records of the table, and what is done with them before.
#[derive(Clone, Default)]
pub struct Selection {
    pub expressions: Vec<Expression>,
    pub share: Option<Share>,
    pub anonymiser: Option<Anonymiser>,
}

/// A table, and its frames.
pub struct LiveTable {
    table: Table,
    traffic: LiveTraffic,
    selection: Selection,
    /// Current flows can be in the table: their end, which is not known, does not matter.
    has_current: bool,
    /// `None` after the end.
    terminal: Option<Terminal>,
    /// When the next frame begins, or the search on its way is looked at.
    next: Instant,
    search: Option<RunningSearch>,
    /// Groups of the current flows of the frame before.
    groups: usize,
}

/// A search on its way.
struct RunningSearch {
    started: Instant,
    found: Arc<Mutex<Option<FoundFlows>>>,
    /// The sums of current flows, if the table is a view. No other thread uses it once they are found.
    view: Option<Arc<Mutex<View>>>,
}

impl LiveTable {
    /// Views that are in memory at a time: of ended flows, of current ones, and of both.
    pub const VIEWS: u64 = 3;

    /// Refreshes the table on this terminal.
    pub fn new(table: Table, traffic: LiveTraffic, selection: Selection, terminal: Terminal) -> Self {
        let is_of_end = |name: &str| field(name).is_some_and(|of| of.properties().words == Some(Words::EndReason));
        let has_expression = selection.expressions.iter().flat_map(Expression::fields).any(is_of_end);
        let has_group = match &table.content {
            Content::View(table) => table.view.settings().fields.iter().any(|of| of.has_words(Words::EndReason)),
            Content::Largest(_) => false,
        };
        let has_current = !has_expression && !has_group;
        let (terminal, next) = (Some(terminal), Instant::now() + INTERVAL);
        Self { table, traffic, selection, has_current, terminal, next, search: None, groups: 0 }
    }

    /// Does what is due.
    fn refresh(&mut self) {
        let now = Instant::now();
        if self.terminal.is_none() || now < self.next {
            return;
        }
        let Some(search) = self.search.take() else { return self.begin(now) };
        let found = search.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        if found.is_none() && now < search.started + SEARCH_TIME + INTERVAL {
            self.next = now + LOOK;
            self.search = Some(search);
            return;
        }
        let started = search.started;
        self.draw(found.unwrap_or_default(), search.view);
        self.next = (started + INTERVAL).max(now + now.elapsed() * SHARE);
    }

    /// Starts a search for the current flows.
    fn begin(&mut self, now: Instant) {
        let view = match &self.table.content {
            Content::View(table) => {
                let mut view = table.view.of_others();
                view.reserve_for(self.groups);
                Some(Arc::new(Mutex::new(view)))
            }
            Content::Largest(_) => None,
        };
        let found = Arc::<Mutex<Option<FoundFlows>>>::default();
        let of_reply = found.clone();
        let reply = move |flows| *of_reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(flows);
        let limit = if view.is_some() { 0 } else { Terminal::size().1 };
        let search = match self.has_current {
            true => {
                let (rank, deadline) = (self.ranking(view.clone()), now + SEARCH_TIME);
                FlowSearch { rank, limit, deadline, head_start: Searcher::LONGEST }
            }
            // It answers at once.
            false => {
                let rank = Arc::new(|| Box::new(|_: &mut FlowRecord| None) as Box<Ranking>);
                FlowSearch { rank, limit, deadline: now, head_start: Duration::ZERO }
            }
        };
        self.next = now + LOOK;
        if self.traffic.searcher.start(&search, Box::new(reply)) {
            self.search = Some(RunningSearch { started: now, found, view });
        }
    }

    /// What the thread of the pipeline does with a current flow.
    fn ranking(&self, view: Option<Arc<Mutex<View>>>) -> Arc<dyn Fn() -> Box<Ranking> + Send + Sync> {
        let (enricher, names) = (self.traffic.enricher.clone(), self.table.names.clone());
        let order = match &self.table.content {
            Content::Largest(largest) => largest.layout.order,
            Content::View(_) => None,
        };
        let selection = Mutex::new(self.selection.clone());
        Arc::new(move || {
            let (enricher, names, view) = (enricher.clone(), names.clone(), view.clone());
            let mut selection = selection.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Box::new(move |record: &mut FlowRecord| {
                enricher.iter().for_each(|enrich| enrich(std::slice::from_mut(record)));
                names.iter().for_each(|names| names.learn(std::slice::from_ref(record)));
                if !selection.has(record) {
                    return None;
                }
                selection.anonymiser.iter_mut().for_each(|anonymiser| anonymiser.anonymise(record));
                match &view {
                    Some(view) => {
                        view.lock().unwrap_or_else(PoisonError::into_inner).add(std::slice::from_ref(record));
                        Some(FlowRank::default())
                    }
                    None => Some(order.map_or((false, record.bytes()), |order| order.rank(record))),
                }
            })
        })
    }

    /// Draws the table of ended and current flows.
    fn draw(&mut self, found: FoundFlows, view: Option<Arc<Mutex<View>>>) {
        let Some(terminal) = &self.terminal else { return };
        let (columns, rows) = Terminal::size();
        let status = weir_text::wrap(&self.status(&found), columns).join("\n");
        // The cursor is in the line below.
        let most = rows.saturating_sub(1 + status.lines().count());
        let flows = self.table.received.flows + found.matching;
        let names = self.table.names.as_ref().map(SharedNames::lock);
        let text = match &self.table.content {
            Content::Largest(ended) => of_flows(ended, found, flows, names.as_deref(), [columns, most]),
            Content::View(ended) => {
                let mut all = ended.view.clone();
                if let Some(view) = view {
                    let empty = all.of_others();
                    let current = std::mem::replace(&mut *view.lock().unwrap_or_else(PoisonError::into_inner), empty);
                    self.groups = current.groups();
                    all.merge(&current);
                }
                let table = ViewTable { view: all, format: ViewFormat::Table, top: ended.top };
                of_view(table, names.as_deref(), [columns, most])
            }
        };
        drop(names);
        let text = text + &status + "\n";
        let width = text.lines().map(|line| line.chars().count()).max().unwrap_or_default().min(columns);
        let is_styled = style::is_on(&std::io::stdout());
        terminal.draw(if is_styled { style::styled(&text, style::table) } else { text }, width);
    }

    /// The last line.
    fn status(&self, found: &FoundFlows) -> String {
        let [received, dropped] = self.traffic.searcher.packets();
        let (day, time) = Zone::current().date_and_time(now_ns());
        let (time, zone) = (time.split('.').next().unwrap_or_default(), Zone::current().name());
        let mut text = format!("{day} {time} {zone}: {}, {dropped} dropped; ", units::count(received, "packet"));
        text += &units::count(self.table.received.flows, "ended flow");
        text += &match (self.has_current, found.is_complete) {
            (false, _) => ", without current ones".into(),
            (true, true) => format!(" and {} current", found.matching),
            (true, false) => format!(" and {} current (not all were looked at in time)", found.matching),
        };
        text + "; Ctrl-C ends"
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Selection {
    /// Whether the table has this record.
    fn has(&self, record: &FlowRecord) -> bool {
        self.share.is_none_or(|share| share.has(record))
            && self.expressions.iter().all(|expression| expression.matches(record))
    }
}

/// The largest of ended and current flows, in this number of columns and at most this number of lines.
fn of_flows(
    ended: &LargestFlows,
    found: FoundFlows,
    flows: u64,
    names: Option<&HostNames>,
    [columns, most]: [usize; 2],
) -> String {
    // How a current flow ends is not known.
    let layout = Layout { is_end_unknown: true, ..ended.layout.clone() };
    let mut shown = LargestFlows::new(ended.limit.min(most.max(1)), layout.clone());
    for (number, flow) in (0..).zip(ended.flows.values().rev().take(most)) {
        shown.insert(flow, number);
    }
    for (number, (_, flow)) in (u64::from(u32::MAX)..).zip(&found.records) {
        shown.insert(flow, number);
    }
    if flows == 0 {
        return super::NO_FLOWS.into();
    }
    let shown: Vec<FlowRecord> = shown.into_flows().collect();
    fitted(most, shown.len(), |top| {
        super::render::table(shown.get(..top).unwrap_or(&shown), flows, &layout, names, Some(columns))
    })
}

/// A view in this number of columns and at most this number of lines.
fn of_view(mut table: ViewTable, names: Option<&HostNames>, [columns, most]: [usize; 2]) -> String {
    let text_of = |table: &ViewTable| String::from_utf8_lossy(&table.text(names, Some(columns)).0).into_owned();
    if table.is_by_time() {
        // The last intervals are of interest.
        let text = text_of(&table);
        let lines: Vec<&str> = text.lines().collect();
        let hidden = lines.len().saturating_sub(most);
        let shown = lines.iter().enumerate().filter(|(at, _)| *at == 0 || *at > hidden);
        return shown.map(|(_, line)| format!("{line}\n")).collect();
    }
    let top = table.shown_rows();
    fitted(most, top, |top| {
        table.top = Some(top);
        text_of(&table)
    })
}

/// A text with as many rows as fit into this number of lines; at least one.
fn fitted(most: usize, rows: usize, mut text: impl FnMut(usize) -> String) -> String {
    // With less than a row for each line, there is only one attempt that is too long.
    let mut top = rows.min(most).max(1).min(rows.max(1));
    loop {
        let text = text(top);
        let lines = text.lines().count();
        if lines <= most || top == 1 {
            return text.lines().take(most).map(|line| format!("{line}\n")).collect();
        }
        top = (top * most / lines).min(top - 1).max(1);
    }
}

impl Sink for LiveTable {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        let result = self.table.write(flows);
        self.refresh();
        result
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        self.table.set_metering_status(status);
    }

    fn tick(&mut self) {
        self.refresh();
    }

    fn wakes_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn finish(&mut self) -> Result<(), Error> {
        // The last table is in the place of the last frame.
        self.terminal = None;
        self.table.finish()
    }

    fn counters(&self) -> &SinkCounters {
        self.table.counters()
    }
}
