//! Answers questions of the HTTP interface for the packets of a flow (`/packets`) and for its segments (`/explain`).
//!
//! Input: captures and folders of a recorder, which are read for each question. Output: a pcapng file in memory, up to a
//! number of octets; the segments as `weir tcp --explain` prints them. It runs on a thread of its own, and looks between
//! groups of indexes and between bursts whether its time is over: the answer then has what was found, and says so. A
//! packet that several recorders have is there once, and the answer says how many copies were left out.

use crate::input;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_capture::{Content, PacketFilter, Source, SourceSpec};
use weir_control::{AskPackets, FoundPackets, PacketError, PacketQuestion, SegmentQuestion, Segments, TimeLimit};
use weir_recorder::{FlowSource, IndexNotice, Opener, PacketBuffer, Query, Search};
use weir_tcp_report::{FlowError, FlowPackets, PacketReader, PacketSelection};
use weir_text::units;

/// Bursts between two looks at the time.
const BURSTS_BETWEEN_CHECKS: u64 = 16;
/// Why there are no packets.
pub const SWITCHED_OFF: &str = "--listen-packets 0 permits no packets";
pub const OF_TUNNELS: &str = "with --decap flows have inner addresses, and packets are found by the outer ones";
pub const NO_RECORDER: &str = "the probe records no packets: give it rules with folder:DIR among the outputs";
/// Reasons that an answer names one by one.
const MAX_REASONS: usize = 8;
const TIME_IS_OVER: &str = "the time of the question was over before all was read; use weir packets or weir tcp";

/// Where packets are found.
#[derive(Clone)]
pub struct PacketPlaces {
    /// Captures and folders of a recorder.
    pub paths: Vec<PathBuf>,
    /// What else has packets of flows, which cannot be read again.
    pub missing: Option<String>,
    /// Octets of an answer, at most.
    pub most_octets: usize,
    /// Copies of a packet in several of them are the packet itself: recorders of one probe have them.
    pub are_recorded: bool,
    /// Only packets that match.
    pub filter: Option<PacketFilter>,
    /// Only packets of these times, ns since 1970 UTC.
    pub times_ns: RangeInclusive<u64>,
}

/// Where segments are found, and which packets count.
#[derive(Clone)]
pub struct SegmentPlaces {
    pub source: SegmentSource,
    pub selection: PacketSelection,
}

/// Where segments are found.
#[derive(Clone)]
pub enum SegmentSource {
    /// Frames have their number in these.
    Inputs(Vec<SourceSpec>),
    /// Captures and folders of a recorder, of which indexes are used: frames have their number among those of the flow.
    Recorded(Vec<PathBuf>),
}

/// What answers questions for packets and segments; without places, why nothing does.
pub fn ask(packets: Result<PacketPlaces, String>, segments: Result<SegmentPlaces, String>) -> AskPackets {
    AskPackets {
        find: packets.map(|places| Arc::new(move |question: &PacketQuestion| places.find(question)) as _),
        explain: segments.map(|places| Arc::new(move |question: &SegmentQuestion| places.explain(question)) as _),
    }
}

impl PacketPlaces {
    fn find(&self, question: &PacketQuestion) -> Result<FoundPackets, PacketError> {
        let query = query_of(&question.flow)?;
        let (from_ns, to_ns) =
            (*question.times_ns.start().max(self.times_ns.start()), *question.times_ns.end().min(self.times_ns.end()));
        let mut doubts = Doubts::default();
        self.missing.iter().for_each(|missing| doubts.add(missing.clone()));
        let search = plan(&self.paths, query.within(from_ns, to_ns), &question.limit, &mut doubts)?;
        let (mut source, mut filter) = (flow_source(&search, self.are_recorded), self.filter.clone());
        let mut buffer = PacketBuffer::new(self.most_octets);
        'bursts: for bursts in 1_u64.. {
            if bursts % BURSTS_BETWEEN_CHECKS == 0 && question.limit.is_over() {
                doubts.add(TIME_IS_OVER);
                break;
            }
            match source.burst() {
                Ok(None) => break,
                Err(error) => doubts.add(format!("damaged input: {error}")),
                Ok(Some(burst)) => {
                    for frame in &burst {
                        if filter.as_mut().is_some_and(|filter| !filter.matches(frame)) {
                            continue;
                        }
                        if !buffer.add(frame) {
                            doubts.add(self.too_long());
                            break 'bursts;
                        }
                    }
                }
            }
        }
        let (incomplete, copies) = (doubts.text(), source.copies_left_out());
        if buffer.packets == 0 {
            return Err(none(incomplete, "packet", &question.limit));
        }
        let (packets, octets) = (buffer.packets, buffer.octets);
        let of_copies = (copies > 0).then(|| format!("copies left out: {copies}"));
        let comments = incomplete.iter().map(|why| format!("incomplete: {why}")).chain(of_copies);
        let comment = comments.collect::<Vec<_>>().join("; ");
        let capture = buffer.into_file(&comment, &source.interfaces());
        Ok(FoundPackets { capture, packets, octets, copies, incomplete })
    }

    fn too_long(&self) -> String {
        let most = units::quantity(self.most_octets as u64, "B");
        format!("only the first packets, {most} with their headers (--listen-packets); weir packets writes all")
    }
}

impl SegmentPlaces {
    fn explain(&self, question: &SegmentQuestion) -> Result<Segments, PacketError> {
        let found = FlowPackets::new(&question.flow);
        let mut found = found.map_err(|error| PacketError::Question(format!("flow: {error}")))?;
        let mut doubts = Doubts::default();
        match &self.source {
            SegmentSource::Inputs(sources) => {
                let source = input::open_sources(sources, self.selection.decode, &Arc::default());
                let mut source = source.map_err(|error| PacketError::Source(unreadable(error)))?;
                self.answer(question, found, doubts, &mut source)
            }
            SegmentSource::Recorded(paths) => {
                found.number_alone();
                let search = plan(paths, query_of(&question.flow)?, &question.limit, &mut doubts)?;
                let mut source = flow_source(&search, true);
                let segments = self.answer(question, found, doubts, &mut source)?;
                Ok(Segments { copies: source.copies_left_out(), ..segments })
            }
        }
    }

    /// Reads a source, and lists the segments that it has.
    fn answer(
        &self,
        question: &SegmentQuestion,
        mut found: FlowPackets,
        mut doubts: Doubts,
        source: &mut dyn Source,
    ) -> Result<Segments, PacketError> {
        let mut reader = PacketReader::new(self.selection.clone());
        for bursts in 1_u64.. {
            if bursts % BURSTS_BETWEEN_CHECKS == 0 && question.limit.is_over() {
                doubts.add(TIME_IS_OVER);
                break;
            }
            match reader.read_burst(source, &mut found) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => doubts.add(format!("damaged input: {error}")),
            }
        }
        if found.beyond() > 0 {
            let beyond = units::count(found.beyond(), "later packet");
            doubts.add(format!("{beyond} of these addresses and ports not read; weir tcp --explain reads all"));
        }
        let (mut text, incomplete) = (Vec::new(), doubts.text());
        let explained = found.explain(reader.into_counts(), question.at_ns, question.most, &mut text);
        let explained = explained.map_err(|error| match error {
            FlowError::NoPackets => none(incomplete.clone(), "segment", &question.limit),
            FlowError::OtherTimes(_) => PacketError::Missing(format!("at: {error}")),
            FlowError::Several(_) => PacketError::Question(format!("at: {error}")),
            FlowError::Engine(_) | FlowError::Explain(_) => PacketError::Source(format!("no segments: {error}")),
        })?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Segments { text, segments: explained.segments, left_out: explained.left_out, copies: 0, incomplete })
    }
}

/// Why an answer does not have all, each reason once.
#[derive(Default)]
struct Doubts {
    reasons: Vec<String>,
    /// Beyond [`MAX_REASONS`].
    others: usize,
}

impl Doubts {
    fn add(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        match self.reasons.len() < MAX_REASONS {
            _ if self.reasons.contains(&reason) => {}
            true => self.reasons.push(reason),
            false => self.others += 1,
        }
    }

    /// All reasons, if there are any.
    fn text(&self) -> Option<String> {
        let others = (self.others > 0).then(|| units::count(self.others as u64, "other problem"));
        let all: Vec<String> = self.reasons.iter().cloned().chain(others).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Plans a search, and says what it does not find.
fn plan(paths: &[PathBuf], query: Query, limit: &TimeLimit, doubts: &mut Doubts) -> Result<Search, PacketError> {
    let search = Search::plan_until(paths, query, &|| limit.is_over());
    let search = search.map_err(|error| PacketError::Source(unreadable(error)))?;
    if search.is_cut {
        doubts.add(TIME_IS_OVER);
    }
    // With other notices, files are read without their index.
    for (path, notice) in search.notices.iter().filter(|(_, notice)| *notice == IndexNotice::ShortFile) {
        doubts.add(format!("{}: {notice}", path.display()));
    }
    Ok(search)
}

fn query_of(flow: &str) -> Result<Query, PacketError> {
    Query::flow(flow).map_err(|error| PacketError::Question(format!("flow: {error}")))
}

fn flow_source(search: &Search, are_recorded: bool) -> FlowSource {
    FlowSource::new(search, &opener(), are_recorded && search.inputs() > 1)
}

fn opener() -> Opener {
    Arc::new(|path: &Path| input::open_capture(path, Content::Capture, &Arc::default()))
}

fn unreadable(error: impl Display) -> String {
    format!("packets cannot be read: {error}")
}

/// Nothing was found.
fn none(incomplete: Option<String>, thing: &str, limit: &TimeLimit) -> PacketError {
    if limit.is_over() {
        return PacketError::Unavailable(TIME_IS_OVER);
    }
    let but = incomplete.map_or_else(String::new, |why| format!("; not all was read: {why}"));
    PacketError::Missing(format!("no {thing} of this flow was found{but}"))
}
