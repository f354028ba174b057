//! Views of stored flows by their columns, without a flow record for each row.
//!
//! Input: the columns of row groups. Output: the same view as of the records. Invariant: what is not certain to be the
//! same is refused; the caller reads records then. A value of a field, or of a condition, is computed once for rows of
//! a row group with the same stored values, from a record that has only these.

use crate::expression::Expression;
use crate::group_field::GroupField;
use crate::sums::Sums;
use crate::view::{KeyRows, View, ViewSettings};
use ahash::RandomState;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use weir_fields::{
    Column, ColumnKind, FieldValue, Figures, Restored, RowSums, StoredFigures, StoredRows, StoredValue, field,
};
use weir_flow::FlowRecord;

/// The place of flows without IP behind those of all protocols.
const NO_IP: usize = 1 << 8;

/// A view of stored flows: how it is computed from columns.
pub struct StoredView {
    columns: Vec<&'static Column>,
    figures: Figures,
    fields: Vec<GroupField>,
    key: Vec<Token>,
    condition: Option<(Expression, Vec<Token>)>,
    /// Flows that start at other times are not selected.
    starts_ns: Option<RangeInclusive<u64>>,
}

/// A stored value on which the value of a field depends, by the place of its column.
#[derive(Clone, Copy)]
enum Token {
    Value(usize),
    /// Of an address, only whether there is one, and the version of IP.
    Version(usize),
}

/// What is known of stored flows beside their view.
#[derive(Clone, Debug, Default)]
pub struct StoredTotals {
    /// Octets on the wire by IP protocol; `None` is without IP.
    pub protocol_bytes: BTreeMap<Option<u8>, u64>,
    /// Retransmitted segments whose original was lost before the capture point.
    pub lost_before_capture: u64,
}

impl StoredView {
    /// How a view is computed from these columns, which are read in this order; `None` if it needs records. `sources`
    /// are the stored columns that fields are computed from.
    pub fn new(
        settings: &ViewSettings,
        condition: Option<&Expression>,
        starts_ns: Option<RangeInclusive<u64>>,
        columns: &[&'static Column],
        sources: impl Fn(&[&'static Column]) -> Vec<&'static Column>,
    ) -> Option<Self> {
        let names = settings.fields.iter().map(GroupField::name);
        let compared = condition.map(Expression::fields).unwrap_or_default();
        if !settings.counts.is_empty()
            || names.clone().chain(compared.iter().copied()).any(|name| !Figures::has_field(name))
        {
            return None;
        }
        let tokens = |names: Vec<&'static str>| {
            let fields: Vec<_> = names.into_iter().filter_map(field).flat_map(|field| field.columns()).collect();
            let sources = sources(&fields);
            let token = |(place, column): (usize, &&'static Column)| match Figures::always_decides(column) {
                _ if sources.contains(column) => Some(Token::Value(place)),
                true if column.kind == ColumnKind::Address => Some(Token::Version(place)),
                true => Some(Token::Value(place)),
                false => None,
            };
            columns.iter().enumerate().filter_map(token).collect::<Vec<_>>()
        };
        Some(Self {
            columns: columns.to_vec(),
            figures: Figures::new(columns)?,
            fields: settings.fields.clone(),
            key: tokens(names.collect()),
            condition: condition.map(|condition| (condition.clone(), tokens(compared))),
            starts_ns,
        })
    }

    /// The columns in which null means the same as 0.
    pub fn zeros(&self) -> Vec<&'static Column> {
        self.columns.iter().copied().filter(|column| Figures::is_zero_nothing(column)).collect()
    }

    /// Sums of no rows, for those of a row group. They are merged into the view.
    pub fn sums(&self, view: &View) -> StoredSums<'_> {
        StoredSums {
            plan: self,
            view: view.of_part(),
            protocol_bytes: vec![None; NO_IP + 1],
            lost_before_capture: 0,
            figures: StoredFigures::default(),
            scratch: Restored::begin(),
            keys: Memo::default(),
            key_rows: Vec::new(),
            conditions: Memo::default(),
            is_selected: Vec::new(),
        }
    }
}

/// The sums of a row group.
pub struct StoredSums<'a> {
    plan: &'a StoredView,
    view: View,
    /// Octets on the wire by protocol, without IP at the end; `None` if there are no flows of it.
    protocol_bytes: Vec<Option<u64>>,
    lost_before_capture: u64,
    figures: StoredFigures,
    /// A record with the stored values of one row.
    scratch: FlowRecord,
    keys: Memo,
    /// For each key, the groups.
    key_rows: Vec<KeyRows>,
    conditions: Memo,
    /// For each entry of these, whether the condition holds.
    is_selected: Vec<bool>,
}

/// Numbers of different combinations of stored values.
#[derive(Default)]
struct Memo {
    index: HashTable<u32>,
    hasher: RandomState,
    /// The values of all combinations.
    tokens: Vec<u64>,
    /// Those of the row.
    row: Vec<u64>,
    last: Option<u32>,
}

impl Memo {
    /// The number of the values of a row, and whether it is new.
    #[inline]
    fn number(&mut self, tokens: &[Token], rows: &StoredRows, row: usize) -> (u32, bool) {
        let Self { index, hasher, tokens: known, row: values, last } = self;
        values.clear();
        values.extend(tokens.iter().map(|token| token.of(rows, row)));
        let of = |number: u32| &known[number as usize * tokens.len()..][..tokens.len()];
        let is_row = |number: u32| of(number).iter().zip(&*values).all(|(one, other)| one == other);
        if let Some(last) = last.filter(|last| is_row(*last)) {
            return (last, false);
        }
        let hash = hasher.hash_one(values.as_slice());
        if let Some(&number) = index.find(hash, |&number| is_row(number)) {
            *last = Some(number);
            return (number, false);
        }
        let number = index.len() as u32;
        index.insert_unique(hash, number, |&number| hasher.hash_one(of(number)));
        known.extend_from_slice(values);
        *last = Some(number);
        (number, true)
    }
}

impl Token {
    #[inline]
    fn of(self, rows: &StoredRows, row: usize) -> u64 {
        match self {
            Self::Value(place) => rows.columns[place].token(row),
            Self::Version(place) => match rows.columns[place].address(row) {
                None => 0,
                Some(IpAddr::V4(_)) => 4,
                Some(IpAddr::V6(_)) => 6,
            },
        }
    }
}

/// Sets the values of a row in a record. Returns whether they are values of their columns.
fn restore(
    flow: &mut FlowRecord,
    columns: &[&'static Column],
    tokens: &[Token],
    rows: &StoredRows,
    row: usize,
) -> bool {
    *flow = Restored::begin();
    // In the order of the columns, because some values depend on others.
    tokens.iter().all(|token| match *token {
        Token::Value(place) => rows.columns[place].restore(columns[place], row, flow),
        Token::Version(place) => {
            let of_version = rows.columns[place].address(row).map(|address| match address {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            });
            of_version.is_none_or(|address| columns[place].restore(flow, StoredValue::Ip(address)))
        }
    })
}

impl RowSums for StoredSums<'_> {
    fn select(&mut self, rows: &StoredRows, selected: &mut Vec<u32>) -> bool {
        let plan = self.plan;
        if plan.condition.is_none() && plan.starts_ns.is_none() {
            selected.extend(0..rows.rows as u32);
            return true;
        }
        let Some(starts) = self.figures.check(&plan.figures, rows) else { return false };
        for row in 0..rows.rows {
            // Values that no record can have are found in all rows.
            let is_selected = match &plan.condition {
                None => true,
                Some((condition, tokens)) => {
                    let (number, is_new) = self.conditions.number(tokens, rows, row);
                    if is_new {
                        if !restore(&mut self.scratch, &plan.columns, tokens, rows, row) {
                            return false;
                        }
                        self.is_selected.push(condition.matches(&self.scratch));
                    }
                    self.is_selected[number as usize]
                }
            };
            if is_selected && plan.starts_ns.as_ref().is_none_or(|of| of.contains(&starts.values[row])) {
                selected.push(row as u32);
            }
        }
        true
    }

    fn add(&mut self, rows: &StoredRows, selected: &[u32]) -> bool {
        let plan = self.plan;
        if !self.figures.prepare(&plan.figures, rows) {
            return false;
        }
        for &row in selected {
            let (number, is_new) = self.keys.number(&plan.key, rows, row as usize);
            if is_new && !self.add_key(rows, row as usize) {
                return false;
            }
            let figures = self.figures.of(&plan.figures, rows, row as usize);
            let (sums, protocol) = (Sums::of_stored(&figures), figures.protocol);
            let protocol = &mut self.protocol_bytes[protocol.map_or(NO_IP, usize::from)];
            *protocol = Some(protocol.unwrap_or_default().wrapping_add(sums.l2_bytes));
            self.lost_before_capture = self.lost_before_capture.wrapping_add(figures.lost_before_capture);
            self.view.add_figures(&sums, &mut self.key_rows[number as usize]);
        }
        true
    }
}

impl StoredSums<'_> {
    /// Finds the groups of the values of a row.
    fn add_key(&mut self, rows: &StoredRows, row: usize) -> bool {
        let plan = self.plan;
        let is_valid = restore(&mut self.scratch, &plan.columns, &plan.key, rows, row);
        let key =
            |side| plan.fields.iter().map(|field| field.value(&self.scratch, side)).collect::<Vec<FieldValue<'_>>>();
        let other = self.view.has_sides().then(|| key(1));
        self.key_rows.push(self.view.key_rows(&key(0), other.as_deref()));
        is_valid
    }

    /// Adds the sums to those of other row groups, which are before it in the order of the files.
    pub fn merge_into(self, view: &mut View, totals: &mut StoredTotals) {
        view.merge(&self.view);
        for (protocol, bytes) in self.protocol_bytes.iter().enumerate() {
            if let Some(bytes) = bytes {
                *totals.protocol_bytes.entry(u8::try_from(protocol).ok()).or_default() += bytes;
            }
        }
        totals.lost_before_capture += self.lost_before_capture;
    }
}
