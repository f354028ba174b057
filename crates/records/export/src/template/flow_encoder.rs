//! Encodes a flow as one record, or as one for each direction, such that they fit into a message and can
//! have templates.

use super::message::{MAX_PADDING, SET_HEADER_OCTETS};
use super::table::TemplateTable;
use crate::element::{Context, MAX_TEXT_OCTETS};
use crate::record_encoder::{ElementSet, RecordEncoder};
use crate::unidirectional::unidirectional;
use std::sync::Arc;
use weir_dpi::Note;
use weir_flow::FlowRecord;

/// The texts of a record that does not fit into a message are cut to the first of these lengths
/// with which it fits, octets.
const CUT_TEXT_OCTETS: [usize; 5] = [255, 128, 64, 32, 16];
/// Key in `altered` of flows whose texts were cut.
const CUT_TEXT: &str = "cut_text";
/// Key in `altered` of flows that were written as basic records for these reasons.
const BASIC_TEMPLATE: &str = "basic_template";

/// What became of the records of a flow, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Written,
    /// The records can have no template.
    NoTemplate,
    /// A record does not fit into a message.
    TooLong,
}

pub(super) struct FlowEncoder {
    pub encoder: RecordEncoder,
    /// Whether records may have texts of any length.
    has_texts: bool,
    uniflow: bool,
    /// Records of the flow.
    pub octets: Vec<u8>,
    /// The elements of each record, and the offset at which it ends.
    pub records: Vec<(ElementSet, usize)>,
}

/// What limits the records of a flow.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Start of the time of NetFlow v9.
    pub boot_ms: u64,
    /// Longest content of a message, octets.
    pub content_octets: usize,
}

impl FlowEncoder {
    pub fn new(encoder: RecordEncoder, uniflow: bool) -> Self {
        Self { has_texts: encoder.has_texts(), encoder, uniflow, octets: Vec::new(), records: Vec::new() }
    }

    /// Octets in a message that the records need: each may begin a set after a padded one.
    pub fn needed_octets(&self) -> usize {
        self.octets.len() + self.records.len() * (MAX_PADDING + SET_HEADER_OCTETS)
    }

    /// Fills `octets` and `records`. Returns the key in `altered` if they are not what was asked for.
    pub fn encode(&mut self, flow: &FlowRecord, limits: Limits, templates: &mut TemplateTable) -> Option<&'static str> {
        let outcome = self.encode_texts(flow, MAX_TEXT_OCTETS, limits, templates);
        if outcome == Outcome::Written {
            return None;
        }
        if outcome == Outcome::TooLong && self.has_texts {
            let mut flow = flow.clone();
            if let Some(findings) = &mut flow.findings {
                Arc::make_mut(findings).note(Note::Cut);
            }
            let mut fits = |octets| self.encode_texts(&flow, octets, limits, templates) == Outcome::Written;
            if CUT_TEXT_OCTETS.into_iter().any(&mut fits) {
                return Some(CUT_TEXT);
            }
        }
        Some(BASIC_TEMPLATE)
    }

    /// The same with texts of at most this length. Records that cannot be written are basic ones.
    fn encode_texts(
        &mut self,
        flow: &FlowRecord,
        text_octets: usize,
        limits: Limits,
        templates: &mut TemplateTable,
    ) -> Outcome {
        self.octets.clear();
        self.records.clear();
        let context = Context { boot_ms: limits.boot_ms, text_octets };
        let is_two_way = flow.forward.packets > 0 && flow.reverse.packets > 0;
        let one_record = !self.uniflow && is_two_way || flow.reverse.packets == 0;
        let longest_of = |records: usize| limits.content_octets / records - SET_HEADER_OCTETS - MAX_PADDING;
        if one_record && self.append(flow, false, context, longest_of(1), templates) == Outcome::Written {
            return Outcome::Written;
        }
        let mut worst = Outcome::Written;
        let longest = longest_of(if is_two_way { 2 } else { 1 });
        for (part, from_responder) in unidirectional(flow) {
            let outcome = self.append(&part, from_responder, context, longest, templates);
            if outcome != Outcome::Written {
                let elements = self.encoder.encode(&part, from_responder, true, context, &mut self.octets);
                self.records.push((elements, self.octets.len()));
            }
            worst = worst.max(outcome);
        }
        worst
    }

    /// Appends a record of at most this length, or nothing.
    fn append(
        &mut self,
        flow: &FlowRecord,
        from_responder: bool,
        context: Context,
        longest: usize,
        templates: &mut TemplateTable,
    ) -> Outcome {
        let start = self.octets.len();
        let elements = self.encoder.encode(flow, from_responder, false, context, &mut self.octets);
        let outcome = if self.octets.len() - start > longest {
            Outcome::TooLong
        } else if templates.permits(elements, &self.encoder) {
            self.records.push((elements, self.octets.len()));
            return Outcome::Written;
        } else {
            Outcome::NoTemplate
        };
        self.octets.truncate(start);
        outcome
    }
}
