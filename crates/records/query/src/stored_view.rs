//! Views of stored flows by their columns, without a flow record for each row.
//!
//! Input: the columns of row groups. Output: the same view as of the records. Invariant: what is not certain to be the
//! same is refused; the caller reads records then. The values of fields are computed once for rows of a row group with the
//! same stored values, from a record that has only these. So is a condition, if it compares such fields only; otherwise
//! it is computed for each row, from a record with all columns that decide, as the reader of records does.

use crate::expression::Expression;
use crate::group_field::GroupField;
use crate::group_sums::GroupSums;
use crate::sums::Sums;
use crate::view::{KeyRows, View, ViewSettings};
use ahash::RandomState;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use weir_fields::{
    Amount, Column, ColumnKind, FIRST_EPHEMERAL_PORT, Field, FieldValue, Figures, Grain, Restored, RowSums,
    StoredFigures, StoredRows, StoredValue, SumField, SumReader, field,
};
use weir_flow::FlowRecord;

/// Different amounts that are known at the same time, beside those of a batch of rows.
const MAX_AMOUNTS: usize = 1 << 16;

/// The place of flows without IP behind those of all protocols.
const NO_IP: usize = 1 << 8;

/// A view of stored flows: how it is computed from columns.
pub struct StoredView {
    columns: Vec<&'static Column>,
    figures: Figures,
    fields: Vec<GroupField>,
    /// Of each side, or with intervals one of both.
    keys: Vec<Key>,
    /// The sums that are asked for, with what each depends on.
    sums: Vec<(SumReader, Vec<Token>)>,
    condition: Option<Condition>,
    /// Flows that start at other times are not selected.
    starts_ns: Option<RangeInclusive<u64>>,
}

/// Which rows are selected.
struct Condition {
    expression: Expression,
    /// The stored values on which it depends.
    tokens: Vec<Token>,
    /// Rows with the same of these values are selected alike.
    is_shared: bool,
}

/// A stored value on which the value of a field depends, by the place of its column.
#[derive(Clone, Copy)]
enum Token {
    Value(usize),
    /// Of an address, only whether there is one, and the version of IP.
    Version(usize),
    /// Of a port, only whether a client gets such a one.
    Ephemeral(usize),
    /// Of a count, only whether it is 0.
    IsPositive(usize),
    /// The value of the server or of the client: one of the source, and one of the destination.
    OfRole {
        places: [usize; 2],
        is_server: bool,
    },
}

/// The values by which rows are grouped.
struct Key {
    /// On which the groups depend.
    tokens: Vec<Token>,
    /// The stored values of which they are computed.
    sources: Vec<Token>,
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
    /// How a view is computed from these columns, which are read in this order, with those that decide about a row;
    /// `None` if it needs records. `sources` are the stored columns that fields are computed from.
    pub fn new(
        settings: &ViewSettings,
        condition: Option<&Expression>,
        starts_ns: Option<RangeInclusive<u64>>,
        (columns, deciding): (&[&'static Column], &[&'static Column]),
        sources: impl Fn(&[&'static Column]) -> Vec<&'static Column>,
    ) -> Option<Self> {
        let names: Vec<_> = settings.fields.iter().map(GroupField::name).collect();
        if !settings.counts.is_empty() || !names.iter().all(|name| Figures::has_field(name)) {
            return None;
        }
        let place = |name: &str| columns.iter().position(|column| column.name == name);
        let sources_of = |fields: Vec<&'static Column>, among: &[&'static Column], needs_packets: bool| {
            let sources = sources(&fields);
            let token = |(place, column): (usize, &&'static Column)| match Figures::always_decides(column) {
                _ if sources.contains(column) => Some(Token::Value(place)),
                true if column.kind == ColumnKind::Address => Some(Token::Version(place)),
                true => Some(Token::Value(place)),
                false if needs_packets && Figures::is_packets(column) => Some(Token::IsPositive(place)),
                false => None,
            };
            let among = columns.iter().enumerate().filter(|(_, column)| among.contains(column));
            among.filter_map(token).collect::<Vec<_>>()
        };
        let columns_of = |name: &'static str| field(name).map(Field::columns).unwrap_or_default();
        // What is that of the server or of the client depends on one side only.
        let of_role = |name: &'static str| {
            let ([source, destination], is_server) = Figures::of_role(name)?;
            Some(Token::OfRole { places: [place(source)?, place(destination)?], is_server })
        };
        let key = |side: Option<usize>| {
            let columns_of = |field: &GroupField| match (columns_of(field.name()), side) {
                (both, Some(side)) if field.has_sides() => vec![both[side]],
                (all, _) => all,
            };
            let (of_roles, others): (Vec<_>, Vec<_>) =
                settings.fields.iter().partition(|field| of_role(field.name()).is_some());
            let mut tokens = sources_of(others.into_iter().flat_map(columns_of).collect(), columns, false);
            tokens.extend(of_roles.into_iter().filter_map(|field| of_role(field.name())));
            Key { tokens, sources: sources_of(settings.fields.iter().flat_map(columns_of).collect(), columns, false) }
        };
        let has_sides = settings.fields.iter().any(GroupField::has_sides) && settings.every_ns.is_none();
        let keys = if has_sides { vec![key(Some(0)), key(Some(1))] } else { vec![key(None)] };
        let condition = condition.map(|expression| {
            let compared = expression.fields();
            let has_flags = compared.iter().any(|name| Figures::is_of_packets(name));
            let is_shared = compared.iter().all(|name| Figures::has_field(name) || Figures::is_of_packets(name));
            let places = columns.iter().enumerate().filter(|(_, column)| deciding.contains(column));
            // The other columns are not decoded when rows are selected.
            let tokens = match is_shared {
                true => sources_of(compared.into_iter().flat_map(columns_of).collect(), deciding, has_flags),
                false => places.map(|(place, _)| Token::Value(place)).collect(),
            };
            Condition { expression: expression.clone(), tokens, is_shared }
        });
        Some(Self {
            columns: columns.to_vec(),
            figures: Figures::new(columns)?,
            fields: settings.fields.clone(),
            keys,
            sums: settings.sums.iter().map(|sum| (SumReader::new(*sum), tokens_of(*sum, columns, &sources))).collect(),
            condition,
            starts_ns,
        })
    }

    /// The columns in which null means the same as 0: none of those that a condition compares for each row.
    pub fn zeros(&self) -> Vec<&'static Column> {
        let compared = self.condition.iter().filter(|condition| !condition.is_shared);
        let compared: Vec<_> =
            compared.flat_map(|condition| &condition.tokens).filter_map(|token| token.place()).collect();
        let columns = self.columns.iter().enumerate().filter(|(place, _)| !compared.contains(place));
        columns.map(|(_, column)| *column).filter(|column| Figures::is_zero_nothing(column)).collect()
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
            keys: self.keys.iter().map(|_| Memo::default()).collect(),
            pairs: Vec::new(),
            groups: self.keys.iter().map(|_| Vec::new()).collect(),
            sums: Default::default(),
            amounts: self.sums.iter().map(|_| (Memo::default(), Vec::new())).collect(),
            row_amounts: vec![Amount::default(); self.sums.len()],
            conditions: Memo::default(),
            is_selected: Vec::new(),
        }
    }
}

/// The stored values on which a sum depends.
fn tokens_of(
    sum: SumField,
    columns: &[&'static Column],
    sources: impl Fn(&[&'static Column]) -> Vec<&'static Column>,
) -> Vec<Token> {
    let needed = sources(&sum.columns());
    let token = |(place, column): (usize, &&'static Column)| {
        Some(match SumField::grain(column, &needed)? {
            Grain::Value => Token::Value(place),
            Grain::Version => Token::Version(place),
            Grain::Ephemeral => Token::Ephemeral(place),
            Grain::IsZero => Token::IsPositive(place),
        })
    };
    columns.iter().enumerate().filter_map(token).collect()
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
    /// Of each side, or with intervals one of both.
    keys: Vec<Memo>,
    /// With intervals: for each key, the groups.
    pairs: Vec<KeyRows>,
    /// Without intervals: for each key of a side, the group.
    groups: Vec<Vec<u32>>,
    /// Without intervals: for each group, the sums of the rows whose source is in it, of those whose destination is, and of
    /// those with both.
    sums: [GroupSums; 3],
    /// For each sum that is asked for, the amounts of different values.
    amounts: Vec<(Memo, Vec<Amount>)>,
    /// Those of a row.
    row_amounts: Vec<Amount>,
    conditions: Memo,
    /// For each entry of these, whether the condition holds.
    is_selected: Vec<bool>,
}

/// Numbers of different combinations of stored values.
struct Memo {
    index: HashTable<u32>,
    /// Secrets of the run: traffic cannot choose keys with the same hash.
    seeds: [u64; 2],
    /// The values of all combinations.
    known: Vec<u64>,
    /// Those of some rows, one behind the other.
    values: Vec<u64>,
    /// For each of these rows, its number.
    numbers: Vec<u32>,
    /// The rows whose numbers are new: the next ones.
    new: Vec<u32>,
}

impl Default for Memo {
    fn default() -> Self {
        let hasher = RandomState::new();
        let seeds = [0, 1].map(|of: u64| hasher.hash_one(of) | 1);
        Self {
            index: HashTable::new(),
            seeds,
            known: Vec::new(),
            values: Vec::new(),
            numbers: Vec::new(),
            new: Vec::new(),
        }
    }
}

/// Mixes two numbers: the halves of their product.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ (product >> 64) as u64
}

impl Memo {
    /// Finds the numbers of the values of some rows. `serves` has for each of these whether its source is the server.
    fn find(&mut self, tokens: &[Token], rows: &StoredRows, of: &[u32], serves: &[bool]) {
        let Self { index, seeds: [first, factor], known, values, numbers, new } = self;
        let width = tokens.len();
        // All of them are set below.
        values.resize(of.len() * width, 0);
        for (at, token) in tokens.iter().enumerate() {
            let mut places = values.iter_mut().skip(at).step_by(width.max(1));
            token.for_each(rows, of, serves, |value| {
                if let Some(place) = places.next() {
                    *place = value;
                }
            });
        }
        numbers.clear();
        new.clear();
        let hash = |of: &[u64]| of.iter().fold(*first, |hash, value| fold(hash ^ value, *factor));
        for (at, row) in of.iter().enumerate() {
            let row_values = &values[at * width..][..width];
            let of_number = |known: &[u64], number: u32| -> u64 { hash(&known[number as usize * width..][..width]) };
            // A loop: few numbers are compared faster than by a call.
            let is_row = |number: &u32| known[*number as usize * width..].iter().zip(row_values).all(|(a, b)| a == b);
            let row_hash = hash(row_values);
            let number = match index.find(row_hash, is_row) {
                Some(number) => *number,
                None => {
                    let number = index.len() as u32;
                    index.insert_unique(row_hash, number, |number| of_number(known, *number));
                    known.extend_from_slice(row_values);
                    new.push(*row);
                    number
                }
            };
            numbers.push(number);
        }
    }
}

impl Token {
    /// The column whose value it is.
    fn place(self) -> Option<usize> {
        match self {
            Self::Value(place) | Self::Version(place) | Self::Ephemeral(place) | Self::IsPositive(place) => Some(place),
            Self::OfRole { .. } => None,
        }
    }

    /// Calls a function with the value of each of some rows.
    fn for_each(self, rows: &StoredRows, of: &[u32], serves: &[bool], mut use_value: impl FnMut(u64)) {
        match self {
            Self::Value(place) => rows.columns[place].for_each_token(of, use_value),
            Self::Version(place) => {
                let version = |row: &u32| match rows.columns[place].address(*row as usize) {
                    None => 0,
                    Some(IpAddr::V4(_)) => 4,
                    Some(IpAddr::V6(_)) => 6,
                };
                of.iter().for_each(|row| use_value(version(row)));
            }
            Self::Ephemeral(place) => of.iter().for_each(|row| {
                use_value(u64::from(number(rows, place, *row as usize) >= u64::from(FIRST_EPHEMERAL_PORT)))
            }),
            Self::IsPositive(place) => of.iter().for_each(|row| use_value(number(rows, place, *row as usize).min(1))),
            Self::OfRole { places, is_server } => {
                // Places of two columns are not those of the same texts.
                const OF_SOURCE: u64 = 1 << 63;
                let [source, destination] = places.map(|place| &rows.columns[place]);
                for (row, serves) in of.iter().zip(serves) {
                    let is_source = *serves == is_server;
                    let value = if is_source { source } else { destination }.token(*row as usize);
                    use_value(value | if is_source { OF_SOURCE } else { 0 });
                }
            }
        }
    }
}

/// A stored integer; 0 stands for null.
fn number(rows: &StoredRows, place: usize, row: usize) -> u64 {
    rows.columns[place].numbers().and_then(|numbers| numbers.values.get(row).copied()).unwrap_or_default()
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
        Token::Ephemeral(place) => {
            let port = number(rows, place, row).min(u64::from(FIRST_EPHEMERAL_PORT));
            columns[place].restore(flow, StoredValue::Unsigned(port))
        }
        Token::IsPositive(place) => {
            columns[place].restore(flow, StoredValue::Unsigned(number(rows, place, row).min(1)))
        }
        Token::OfRole { .. } => true,
    })
}

impl RowSums for StoredSums<'_> {
    fn select(&mut self, rows: &StoredRows, selected: &mut Vec<u32>) -> bool {
        let plan = self.plan;
        selected.extend(0..rows.rows as u32);
        if plan.condition.is_none() && plan.starts_ns.is_none() {
            return true;
        }
        let Some(starts) = self.figures.check(&plan.figures, rows) else { return false };
        // Values that no record can have are found in all rows.
        let matches = match &plan.condition {
            None => true,
            Some(condition) if condition.is_shared => self.retain_shared(condition, rows, selected),
            Some(condition) => self.retain_each(condition, rows, selected),
        };
        if let Some(of) = &plan.starts_ns {
            selected.retain(|row| of.contains(&starts.values[*row as usize]));
        }
        matches
    }

    fn add(&mut self, rows: &StoredRows, selected: &[u32]) -> bool {
        let plan = self.plan;
        if !self.figures.prepare(&plan.figures, rows)
            || !self.find_keys(rows, selected)
            || !self.find_amounts(rows, selected)
        {
            return false;
        }
        let columns = self.figures.columns(&plan.figures, rows);
        for &row in selected {
            let of = |numbers: &[u64]| numbers.get(row as usize).copied().unwrap_or_default();
            let protocol = self.figures.ip_protocol(&plan.figures, rows, row as usize);
            let bytes = &mut self.protocol_bytes[protocol.map_or(NO_IP, usize::from)];
            let of_row = columns.l2_bytes.map(of).into_iter().fold(0, u64::wrapping_add);
            *bytes = Some(bytes.unwrap_or_default().wrapping_add(of_row));
            self.lost_before_capture = self.lost_before_capture.wrapping_add(of(columns.lost_before_capture));
        }
        if self.view.settings().every_ns.is_none() {
            self.add_to_groups(rows, selected);
            return true;
        }
        for (at, &row) in selected.iter().enumerate() {
            let sums = Sums::of_stored(&self.figures.of(&plan.figures, rows, row as usize));
            self.read_amounts(at);
            let number = self.keys[0].numbers[at];
            self.view.add_figures(&sums, &self.row_amounts, &mut self.pairs[number as usize]);
        }
        true
    }
}

impl StoredSums<'_> {
    /// Keeps the rows for which the condition holds, which is computed once for the same values. Returns whether all are
    /// flows.
    fn retain_shared(&mut self, condition: &Condition, rows: &StoredRows, selected: &mut Vec<u32>) -> bool {
        let Self { plan, conditions, scratch, is_selected, .. } = self;
        let Condition { expression, tokens, .. } = condition;
        conditions.find(tokens, rows, selected, &[]);
        let mut are_flows = true;
        for row in &conditions.new {
            are_flows &= restore(scratch, &plan.columns, tokens, rows, *row as usize);
            is_selected.push(expression.matches(scratch));
        }
        let mut numbers = conditions.numbers.iter();
        selected.retain(|_| numbers.next().is_some_and(|number| is_selected[*number as usize]));
        are_flows
    }

    /// The same, computed for each row.
    fn retain_each(&mut self, condition: &Condition, rows: &StoredRows, selected: &mut Vec<u32>) -> bool {
        let Self { plan, scratch, .. } = self;
        let mut are_flows = true;
        selected.retain(|row| {
            let is_valid = restore(scratch, &plan.columns, &condition.tokens, rows, *row as usize);
            are_flows &= is_valid && Restored::finish(scratch);
            condition.expression.matches(scratch)
        });
        are_flows
    }

    /// Finds the numbers of the keys of rows, and the groups of those that are new, in the order in which records have
    /// them. Returns whether all rows are flows.
    fn find_keys(&mut self, rows: &StoredRows, selected: &[u32]) -> bool {
        let Self { plan, view, scratch, keys, pairs, groups, figures, .. } = self;
        let depends_on_role = |key: &Key| key.tokens.iter().any(|token| matches!(token, Token::OfRole { .. }));
        let serves: Vec<bool> = match plan.keys.iter().any(depends_on_role) {
            true => selected.iter().map(|row| figures.is_source_server(&plan.figures, rows, *row as usize)).collect(),
            false => Vec::new(),
        };
        for (memo, key) in keys.iter_mut().zip(&plan.keys) {
            memo.find(&key.tokens, rows, selected, &serves);
        }
        let mut new: Vec<(u32, usize)> = Vec::new();
        for (side, memo) in keys.iter().enumerate() {
            new.extend(memo.new.iter().map(|row| (*row, side)));
        }
        new.sort_unstable();
        let mut are_flows = true;
        for (row, side) in new {
            are_flows &= restore(scratch, &plan.columns, &plan.keys[side].sources, rows, row as usize);
            let key =
                |side| plan.fields.iter().map(|field| field.value(scratch, side)).collect::<Vec<FieldValue<'_>>>();
            if view.settings().every_ns.is_some() {
                let other = view.has_sides().then(|| key(1));
                pairs.push(view.key_rows(&key(0), other.as_deref()));
            } else {
                groups[side].push(view.row_of(&key(side)).unwrap_or(u32::MAX));
            }
        }
        are_flows
    }

    /// Finds the amounts of rows for the sums that are asked for, which are computed once for the same values. Returns
    /// whether all rows are flows.
    fn find_amounts(&mut self, rows: &StoredRows, selected: &[u32]) -> bool {
        let Self { plan, scratch, amounts, .. } = self;
        let mut are_flows = true;
        for ((reader, tokens), (memo, known)) in plan.sums.iter().zip(amounts) {
            if known.len() >= MAX_AMOUNTS {
                (*memo, *known) = Default::default();
            }
            memo.find(tokens, rows, selected, &[]);
            for row in &memo.new {
                are_flows &= restore(scratch, &plan.columns, tokens, rows, *row as usize);
                known.push(reader.amount(scratch));
            }
        }
        are_flows
    }

    /// Reads the amounts of the row at a place among those whose amounts are found.
    fn read_amounts(&mut self, at: usize) {
        for (amount, (memo, known)) in self.row_amounts.iter_mut().zip(&self.amounts) {
            *amount = known[memo.numbers[at] as usize];
        }
    }

    /// Adds rows, whose keys and amounts are found, to the groups of their sides.
    fn add_to_groups(&mut self, rows: &StoredRows, selected: &[u32]) {
        let of_side = |(memo, groups): (&Memo, &Vec<u32>)| -> Vec<u32> {
            memo.numbers.iter().map(|number| groups[*number as usize]).collect()
        };
        let sides: Vec<_> = self.keys.iter().zip(&self.groups).map(of_side).collect();
        if !self.row_amounts.is_empty() {
            for at in 0..selected.len() {
                self.read_amounts(at);
                let first = sides[0][at];
                let second = sides.get(1).map(|of| of[at]).filter(|second| *second != first);
                self.view.add_record_amounts(&self.row_amounts, [Some(first), second]);
            }
        }
        let Self { plan, view, sums: [sources, destinations, both], figures, .. } = self;
        let (stored, all) = ((&*figures, &plan.figures), view.groups());
        let [first, second] = match sides.as_slice() {
            [first] => return sources.add(stored, rows, selected, first, all),
            [first, second, ..] => [first, second],
            [] => unreachable!("a view has a key"),
        };
        let (mut different, mut same) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
        for ((row, first), second) in selected.iter().zip(first).zip(second) {
            if first == second {
                same[0].push(*row);
                same[1].push(*first);
            } else {
                different[0].push(*row);
                different[1].push(*first);
                different[2].push(*second);
            }
        }
        sources.add(stored, rows, &different[0], &different[1], all);
        destinations.add(stored, rows, &different[0], &different[2], all);
        both.add(stored, rows, &same[0], &same[1], all);
    }

    /// Adds the sums to those of other row groups, which are before it in the order of the files.
    pub fn merge_into(mut self, view: &mut View, totals: &mut StoredTotals) {
        let [sources, destinations, both] = &self.sums;
        self.view.add_to_rows(sources.iter(), true, |sums| sums);
        self.view.add_to_rows(destinations.iter(), false, Sums::of_other_side);
        self.view.add_to_rows(both.iter(), true, Sums::of_both_sides);
        view.merge(&self.view);
        for (protocol, bytes) in self.protocol_bytes.iter().enumerate() {
            if let Some(bytes) = bytes {
                *totals.protocol_bytes.entry(u8::try_from(protocol).ok()).or_default() += bytes;
            }
        }
        totals.lost_before_capture += self.lost_before_capture;
    }
}
