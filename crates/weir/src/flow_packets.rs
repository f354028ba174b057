//! Answers questions of the HTTP interface for the packets of a flow (`/packets`) and for its segments (`/explain`).
//!
//! Input: captures and folders of a recorder, which are read for each question. Output: a pcapng file in memory, up to a
//! number of octets; the segments as `weir tcp --explain` prints them. It runs on a thread of its own, and looks between
//! bursts whether its time is over: the answer then has what was found, and says so.

use crate::error::{Error, SourceError};
use crate::input;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_capture::{Content, PacketFilter, Source, SourceSpec};
use weir_control::{AskPackets, FoundPackets, PacketError, PacketQuestion, SegmentQuestion, Segments, TimeLimit};
use weir_recorder::{FrameSelector, Opener, PacketBuffer, Query, Search, SelectedRecords};
use weir_tcp_report::{FlowError, FlowPackets, PacketReader, PacketSelection};
use weir_text::units;

/// Bursts between two looks at the time.
const BURSTS_BETWEEN_CHECKS: u64 = 16;
/// Why there are no packets.
pub const SWITCHED_OFF: &str = "--listen-packets 0 permits no packets";
pub const OF_TUNNELS: &str = "with --decap flows have inner addresses, and packets are found by the outer ones";
pub const NO_RECORDER: &str = "the probe records no packets: give it rules with folder:DIR among the outputs";
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
        let query = Query::flow(&question.flow).map_err(|error| PacketError::Question(format!("flow: {error}")))?;
        let (from_ns, to_ns) =
            (*question.times_ns.start().max(self.times_ns.start()), *question.times_ns.end().min(self.times_ns.end()));
        let search = Search::plan(&self.paths, query.clone().within(from_ns, to_ns));
        let search = search.map_err(|error| PacketError::Source(unreadable(error)))?;
        let (mut source, mut filter) = (search.source(&opener()), self.filter.clone());
        let mut selector = FrameSelector::new(&query, SelectedRecords::default());
        let mut buffer = PacketBuffer::new(self.most_octets);
        let mut incomplete = self.missing.clone();
        'bursts: for bursts in 1_u64.. {
            if bursts % BURSTS_BETWEEN_CHECKS == 0 && question.limit.is_over() {
                incomplete = Some(TIME_IS_OVER.into());
                break;
            }
            match source.burst() {
                Ok(None) => break,
                Err(error) => incomplete = Some(format!("damaged input: {error}")),
                Ok(Some(burst)) => {
                    for frame in &burst {
                        let is_of_time = (from_ns..=to_ns).contains(&frame.time_ns);
                        let is_found = is_of_time && selector.selects(frame);
                        if !is_found || filter.as_mut().is_some_and(|filter| !filter.matches(frame)) {
                            continue;
                        }
                        if !buffer.add(frame) {
                            incomplete = Some(self.too_long());
                            break 'bursts;
                        }
                    }
                }
            }
        }
        if buffer.packets == 0 {
            return Err(none(incomplete, "packet", &question.limit));
        }
        let (packets, octets) = (buffer.packets, buffer.octets);
        let comment = incomplete.as_ref().map_or_else(String::new, |why| format!("incomplete: {why}"));
        Ok(FoundPackets { capture: buffer.into_file(&comment, &source.interfaces()), packets, octets, incomplete })
    }

    fn too_long(&self) -> String {
        let most = units::quantity(self.most_octets as u64, "B");
        format!("only the first packets, {most} with their headers (--listen-packets); weir packets writes all")
    }
}

impl SegmentPlaces {
    fn open(&self, flow: &str) -> Result<Box<dyn Source + '_>, Error> {
        match &self.source {
            SegmentSource::Inputs(sources) => {
                Ok(Box::new(input::open_sources(sources, self.selection.decode, &Arc::default())?))
            }
            SegmentSource::Recorded(paths) => {
                // A name of TCP without a protocol is one of the search, too.
                let query = Query::flow(flow).unwrap_or_else(|_| Query::everything());
                let search =
                    Search::plan(paths, query).map_err(|error| Error::Sources(vec![SourceError::Capture(error)]))?;
                Ok(search.source(&opener()))
            }
        }
    }

    fn explain(&self, question: &SegmentQuestion) -> Result<Segments, PacketError> {
        let mut found =
            FlowPackets::new(&question.flow).map_err(|error| PacketError::Question(format!("flow: {error}")))?;
        let mut source = self.open(&question.flow).map_err(|error| PacketError::Source(unreadable(error)))?;
        if matches!(self.source, SegmentSource::Recorded(_)) {
            found.number_alone();
        }
        let mut reader = PacketReader::new(self.selection.clone());
        let mut incomplete = None;
        for bursts in 1_u64.. {
            if bursts % BURSTS_BETWEEN_CHECKS == 0 && question.limit.is_over() {
                incomplete = Some(TIME_IS_OVER.to_owned());
                break;
            }
            match reader.read_burst(&mut *source, &mut found) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => incomplete = Some(format!("damaged input: {error}")),
            }
        }
        if found.beyond() > 0 {
            let beyond = units::count(found.beyond(), "later packet");
            incomplete = Some(format!("{beyond} of these addresses and ports not read; weir tcp --explain reads all"));
        }
        let mut text = Vec::new();
        let explained = found.explain(reader.into_counts(), question.at_ns, question.most, &mut text);
        let explained = explained.map_err(|error| match error {
            FlowError::NoPackets => none(incomplete.clone(), "segment", &question.limit),
            FlowError::OtherTimes(_) => PacketError::Missing(format!("at: {error}")),
            FlowError::Several(_) => PacketError::Question(format!("at: {error}")),
            FlowError::Engine(_) | FlowError::Explain(_) => PacketError::Source(format!("no segments: {error}")),
        })?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Segments { text, segments: explained.segments, left_out: explained.left_out, incomplete })
    }
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
