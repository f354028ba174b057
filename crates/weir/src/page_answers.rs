//! Answers all questions of the page of `weir read --html` together: each flow is read twice, however many there are.
//!
//! Input: a store that does not change, and questions that are of all of its times. Output: the answers that
//! `stored_answers` gives to each of them alone. The first pass has the sums of all groups, and the flows; the second one
//! the intervals of the groups that are shown over time: each set of groups once, whatever they are sorted by.

use crate::memory;
use crate::question_checks::invalid_order;
use crate::stored_answers::{MAX_ROWS, Opened, Read, fields_of};
use crate::table::{LargestFlows, Layout};
use std::ops::RangeInclusive;
use std::slice;
use weir_control::{FlowSource, StoredAnswer, StoredError, StoredQuestion, Wanted};
use weir_export::{ViewFormat, append_json_record};
use weir_fields::{Column, FieldValue};
use weir_flow::FlowRecord;
use weir_query::{CountField, Expression, GroupField, Metric, RecordOrder, View, ViewSettings};

/// An answer, or why the flows have none.
pub type Answered = Result<StoredAnswer, StoredError>;

/// The first and the last packet of all flows, ns since 1970 UTC; `None` without flows. And their number.
///
/// # Errors
/// The store cannot be read.
pub fn times(source: &FlowSource, all: &StoredQuestion) -> Result<(Option<RangeInclusive<u64>>, u64), StoredError> {
    let settings = ViewSettings { groups: 1, ..ViewSettings::default() };
    let empty = || View::new(settings.clone()).expect("the default order is valid");
    let (view, read) = Opened::new(source, all)?.sum_up(all, &empty);
    let total = view.total();
    Ok(((total.flows > 0).then_some(total.first_ns..=total.last_ns), read.matching))
}

/// Answers questions. `all` has no expression, and all times.
///
/// # Errors
/// The store cannot be read.
pub fn answer_all(
    source: &FlowSource,
    all: &StoredQuestion,
    questions: &[StoredQuestion],
) -> Result<Vec<Answered>, StoredError> {
    let opened = Opened::new(source, all)?;
    let mut plan = Plan::default();
    let parts: Vec<_> = questions.iter().map(|question| plan.add(&opened, question)).collect();
    let mut first = plan.groups.start();
    let read = first.read(opened, all, plan.fields.clone());
    let mut lines = Lines::default();
    for (question, part) in questions.iter().zip(&parts) {
        if let Ok(Part::Line(place, every_ns)) = part {
            lines.add(first.sorted(*place, question)?, *place, *every_ns, question.top);
        }
    }
    let (places, mut second) = lines.start(&first);
    let of_lines = match places.is_empty() {
        true => read.clone(),
        false => second.read(Opened::new(source, all)?, all, plan.fields),
    };
    let answer = |(question, part): (&StoredQuestion, Result<Part, StoredError>)| match part? {
        Part::Sums(place) => {
            let mut rows = Vec::new();
            let view = first.sorted(place, question)?;
            // All intervals of a time line.
            let most = if view.settings().fields.is_empty() { usize::MAX } else { question.top };
            view.append_rows(ViewFormat::Json, most, &mut rows);
            Ok(first.answer(place, &read, rows))
        }
        Part::Line(place, every_ns) => {
            let mut few = first.sorted(place, question)?.of_first_groups(question.top, every_ns, MAX_ROWS);
            let at = places.iter().position(|of| *of == (place, every_ns)).expect("each line was added");
            few.merge(&second.0[at].views[0]);
            let mut rows = Vec::new();
            few.append_rows(ViewFormat::Json, question.top, &mut rows);
            Ok(second.answer((at, 0), &of_lines, rows))
        }
        Part::Flows(place, flows) => {
            let rows = flows.rows(&mut first.0[place.0].flows[place.1], question.top);
            Ok(first.answer(place, &read, rows))
        }
    };
    Ok(questions.iter().zip(parts).map(answer).collect())
}

/// The condition, and which of its views or lists of flows.
type Place = (usize, usize);

/// What answers a question.
enum Part {
    Sums(Place),
    /// With the length of intervals.
    Line(Place, u64),
    Flows(Place, FlowsPart),
}

/// Flows that are shown.
struct FlowsPart {
    columns: Vec<&'static Column>,
    offset: usize,
    is_newest: bool,
}

impl FlowsPart {
    fn rows(&self, first: &mut LargestFlows, top: usize) -> Vec<u8> {
        let first = std::mem::replace(first, LargestFlows::new(1, Layout::default()));
        let mut shown: Vec<FlowRecord> = first.into_flows().skip(self.offset).take(top).collect();
        if self.is_newest {
            shown.reverse();
        }
        let mut rows = Vec::new();
        for flow in &shown {
            append_json_record(&self.columns, flow, &mut rows);
            rows.push(b'\n');
        }
        rows
    }
}

/// What the first pass computes.
#[derive(Default)]
struct Plan {
    groups: Groups,
    /// The columns that it reads.
    fields: Vec<&'static Column>,
}

/// What is computed, by condition.
#[derive(Default)]
struct Groups(Vec<OfCondition>);

/// What is computed of the flows that match an expression.
struct OfCondition {
    expression: Option<Expression>,
    views: Vec<ViewSettings>,
    /// Numbers of flows, and their orders.
    flows: Vec<(usize, RecordOrder)>,
}

impl Plan {
    /// Adds what a question needs.
    fn add(&mut self, opened: &Opened, question: &StoredQuestion) -> Result<Part, StoredError> {
        let compared = question.expression.iter().flat_map(Expression::fields);
        let known = opened.known();
        known.check_condition(question.expression.as_ref())?;
        match &question.wanted {
            Wanted::Flows { order, columns, offset } => {
                let stored = known.stored_columns(order.as_ref(), columns)?;
                let by = order.unwrap_or_else(RecordOrder::newest);
                self.fields.extend(stored.iter().copied().chain(fields_of(compared.chain([by.name()]))));
                let part = FlowsPart { columns: stored, offset: *offset, is_newest: order.is_none() };
                // A limit of 0 is none.
                Ok(Part::Flows(self.groups.add_flows(question, (offset + question.top).max(1), by), part))
            }
            Wanted::Sums(settings) => {
                let counted = settings.counts.iter().flat_map(|count| CountField::names_in(count, &settings.fields));
                let names = settings.fields.iter().map(GroupField::name).chain(counted);
                let every_ns = settings.every_ns.filter(|_| settings.fields.is_empty());
                // All numbers: questions that differ in those that they ask for have the same sums.
                let settings = ViewSettings { every_ns, unknown: Vec::new(), ..settings.clone() };
                let mut settings = known.checked_sums(settings)?;
                // With the sum that the order asks for.
                let view = View::new(settings.clone()).map_err(invalid_order)?;
                settings.sums.clone_from(&view.settings().sums);
                self.fields.extend(settings.summed_columns().into_iter().chain(fields_of(names.chain(compared))));
                let place = self.groups.add_view(question, ViewSettings { order: None, groups: 1, ..settings });
                let Wanted::Sums(ViewSettings { every_ns: Some(every_ns), fields, .. }) = &question.wanted else {
                    return Ok(Part::Sums(place));
                };
                Ok(if fields.is_empty() { Part::Sums(place) } else { Part::Line(place, *every_ns) })
            }
        }
    }
}

impl Groups {
    fn condition(&mut self, question: &StoredQuestion) -> usize {
        self.0.iter().position(|of| of.expression == question.expression).unwrap_or_else(|| {
            let expression = question.expression.clone();
            self.0.push(OfCondition { expression, views: Vec::new(), flows: Vec::new() });
            self.0.len() - 1
        })
    }

    fn add_view(&mut self, question: &StoredQuestion, settings: ViewSettings) -> Place {
        let at = self.condition(question);
        let views = &mut self.0[at].views;
        let view = views.iter().position(|of| *of == settings).unwrap_or_else(|| {
            views.push(settings);
            views.len() - 1
        });
        (at, view)
    }

    fn add_flows(&mut self, question: &StoredQuestion, most: usize, order: RecordOrder) -> Place {
        let at = self.condition(question);
        let flows = &mut self.0[at].flows;
        flows.push((most, order));
        (at, flows.len() - 1)
    }

    /// The empty views of all, which share the memory that a view of `weir read` has.
    fn start(&self) -> Pass {
        let all = self.0.iter().flat_map(|of| &of.views);
        let groups = memory::default_groups(all.map(ViewSettings::max_memory_bytes).sum::<u64>().max(1));
        let view = |settings: &ViewSettings| {
            View::new(ViewSettings { groups, ..settings.clone() }).expect("the default order is valid")
        };
        let condition = |OfCondition { expression, views, flows }: &OfCondition| Condition {
            expression: expression.clone(),
            matching: 0,
            unknown: views.first().map(|view| view.unknown.clone()).unwrap_or_default(),
            views: views.iter().map(view).collect(),
            flows: flows.iter().map(|(most, order)| LargestFlows::in_order(*most, *order)).collect(),
        };
        Pass(self.0.iter().map(condition).collect())
    }
}

/// The flows that match an expression.
struct Condition {
    expression: Option<Expression>,
    matching: u64,
    /// Numbers that are not stored.
    unknown: Vec<Metric>,
    views: Vec<View>,
    flows: Vec<LargestFlows>,
}

impl Condition {
    fn add(&mut self, flow: &FlowRecord, number: u64) {
        if self.expression.as_ref().is_none_or(|expression| expression.matches(flow)) {
            self.matching += 1;
            self.views.iter_mut().for_each(|view| view.add(slice::from_ref(flow)));
            self.flows.iter_mut().for_each(|flows| flows.insert(flow, number));
        }
    }
}

/// A reading of all flows.
struct Pass(Vec<Condition>);

impl Pass {
    fn read(&mut self, opened: Opened, all: &StoredQuestion, fields: Vec<&'static Column>) -> Read {
        let mut number = 0;
        opened.read(all, fields, &mut |flow| {
            self.0.iter_mut().for_each(|condition| condition.add(flow, number));
            number += 1;
        })
    }

    /// A view in the order of a question, with the numbers that it asks for.
    fn sorted(&mut self, (condition, view): Place, question: &StoredQuestion) -> Result<&View, StoredError> {
        let Wanted::Sums(ViewSettings { order, unknown, .. }) = &question.wanted else {
            unreachable!("only sums have a view")
        };
        let Condition { unknown: not_stored, views, .. } = &mut self.0[condition];
        let view = &mut views[view];
        let unknown = not_stored.iter().chain(unknown).copied().collect();
        view.set_shown(order.clone(), unknown).map_err(invalid_order)?;
        Ok(view)
    }

    /// The answer with these rows.
    fn answer(&self, (condition, _): Place, read: &Read, rows: Vec<u8>) -> StoredAnswer {
        read.of(self.0[condition].matching).answer(rows)
    }
}

/// Where the sums of groups are, and the length of their intervals.
type LinePlace = (Place, u64);
type Keys = Vec<Vec<FieldValue<'static>>>;

/// The groups whose intervals are asked.
#[derive(Default)]
struct Lines(Vec<(LinePlace, Keys)>);

impl Lines {
    /// Adds the first groups of a view.
    fn add(&mut self, sums: &View, place: Place, every_ns: u64, most: usize) {
        let of = (place, every_ns);
        let at = self.0.iter().position(|(other, _)| *other == of).unwrap_or_else(|| {
            self.0.push((of, Vec::new()));
            self.0.len() - 1
        });
        let keys = &mut self.0[at].1;
        for row in sums.first_rows(most).0 {
            if !keys.contains(&row.key) {
                keys.push(row.key);
            }
        }
    }

    /// What the second pass computes, and of what each condition of it is.
    fn start(self, first: &Pass) -> (Vec<LinePlace>, Pass) {
        let condition = |((condition, view), every_ns): LinePlace, keys| {
            let Condition { expression, unknown, views, .. } = &first.0[condition];
            let line = views[view].of_groups(keys, every_ns, MAX_ROWS);
            let (expression, unknown) = (expression.clone(), unknown.clone());
            Condition { expression, matching: 0, unknown, views: vec![line], flows: Vec::new() }
        };
        let (places, conditions) = self.0.into_iter().map(|(of, keys)| (of, condition(of, keys))).unzip();
        (places, Pass(conditions))
    }
}
