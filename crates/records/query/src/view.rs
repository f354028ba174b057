//! Aggregation of records: sums per group, and per interval of time.
//!
//! A group is what the fields of the view have in common; with intervals, also the interval. Memory
//! is bounded by a number of groups: records of further groups are summed up as "others".
//!
//! Always: the sum of all groups and of the others is the sum of all records, except that a record of
//! two sides (`host`) is in the groups of both, and once in a group of both. [`View::total`] counts
//! each record once.

use crate::count_field::CountField;
use crate::distinct::{DistinctCount, DistinctSet};
use crate::group_field::GroupField;
use crate::kept_groups::KeptGroups;
use crate::key_hash::{hash_key, random_state};
use crate::order::{InvalidOrder, Metric, Order, RowOrder, rank};
use crate::sums::Sums;
use ahash::RandomState;
use hashbrown::HashTable;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use weir_fields::{Amount, Column, FieldValue, SumField, SumReader, column, number_of_all};
use weir_flow::FlowRecord;
use weir_text::zone::Zone;

/// A record that spans more intervals than this counts in the interval of its start.
const MAX_INTERVALS: u64 = 1000;

/// What a view is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSettings {
    /// Fields by which records are grouped; none for a time line of all records.
    pub fields: Vec<GroupField>,
    /// Of what the different values in each group are counted; without intervals only.
    pub counts: Vec<CountField>,
    /// What is added up beside the numbers that every view has. That of the order is added.
    pub sums: Vec<SumField>,
    /// Length of the intervals of the current zone ([`Zone::interval`]), ns.
    pub every_ns: Option<u64>,
    /// The order of the rows; by default the most octets first, or the most records if octets are not known.
    pub order: Option<Order>,
    /// Limit of the groups in memory.
    pub groups: usize,
    /// Numbers that are not known, because records do not have what they sum up, or that are not asked for.
    pub unknown: Vec<Metric>,
    /// Sums that are not known in the same way.
    pub unknown_sums: Vec<SumField>,
    /// Records are transactions: each has one question or request.
    pub of_transactions: bool,
}

impl ViewSettings {
    /// The sums that are asked for, also by the order.
    fn asked_sums(&self) -> Vec<SumField> {
        let mut sums = self.sums.clone();
        // An order that names nothing is refused by `View::new`.
        let _ = RowOrder::new(self.order.as_ref(), &self.fields, &self.counts, &mut sums);
        sums
    }

    /// A field of the groups that a flow has of its first question or request alone, and the number of these, if sums of
    /// the view count all of them.
    pub fn of_first_alone(&self) -> Option<(&'static str, &'static str)> {
        if self.of_transactions {
            return None;
        }
        let sums = self.asked_sums();
        let number = |field: &'static str| sums.iter().find_map(|sum| number_of_all(field, *sum));
        self.fields.iter().map(GroupField::name).find_map(|field| Some((field, number(field)?)))
    }

    /// The columns that the view sums up, beside those of every record.
    pub fn summed_columns(&self) -> Vec<&'static Column> {
        let metrics = Metric::ALL.into_iter().filter(|metric| !self.unknown.contains(metric));
        let fields = metrics.flat_map(Metric::fields).map(|name| column(name).expect("the column exists"));
        fields.chain(self.asked_columns()).collect()
    }

    /// The columns of the sums that are asked for, also by the order.
    pub fn asked_columns(&self) -> Vec<&'static Column> {
        self.asked_sums().into_iter().flat_map(SumField::columns).collect()
    }

    /// Notes which numbers are not known, if records have only these fields, beside those that are not asked for.
    pub fn set_known(&mut self, known: &[&'static Column]) {
        self.unknown.extend(Metric::unknown(known));
        self.unknown_sums = self.asked_sums().into_iter().filter(|sum| !sum.is_known(known)).collect();
    }

    /// The names of the sums that are not known; `of_every_view`: and of the numbers that every view has.
    pub fn unknown_names(&self, of_every_view: bool) -> Vec<&'static str> {
        let metrics = self.unknown.iter().filter(|_| of_every_view).map(|metric| metric.name());
        metrics.chain(self.unknown_sums.iter().map(|sum| sum.name())).collect()
    }

    /// Values by which groups differ: the start of the interval, and the fields.
    fn key_values(&self) -> usize {
        self.fields.len() + usize::from(self.every_ns.is_some())
    }

    /// Memory of the groups when there are as many as may be, bytes.
    pub fn max_memory_bytes(&self) -> u64 {
        /// The index has a power of two of entries with 5 bytes each, of which 7/8 are used.
        const INDEX_BYTES: usize = 12;
        let group_bytes = self.key_values() * size_of::<FieldValue>()
            + size_of::<Sums>()
            + self.asked_sums().len() * size_of::<Amount>()
            + self.counts.len() * DistinctSet::MAX_BYTES
            + INDEX_BYTES;
        self.groups as u64 * group_bytes as u64
    }
}

/// Sums of records by group.
#[derive(Clone)]
pub struct View {
    settings: ViewSettings,
    order: RowOrder,
    has_sides: bool,
    /// Values of a group: the start of the interval, if there are intervals, and the fields.
    key_values: usize,
    /// Indices of rows by the hash of their key, which is keyed with a secret of the run.
    index: HashTable<u32>,
    hasher: RandomState,
    keys: Vec<FieldValue<'static>>,
    /// Octets of the texts in the keys.
    key_texts: usize,
    rows: Vec<Sums>,
    /// Reads the sums that are asked for from records.
    readers: Vec<SumReader>,
    /// Per row, those sums.
    amounts: Vec<Amount>,
    /// Those of the current record.
    record_amounts: Vec<Amount>,
    /// Those of the records whose group did not fit into memory.
    other_amounts: Vec<Amount>,
    total_amounts: Vec<Amount>,
    /// Per count, the field of a group of the source, and of one of the destination.
    count_fields: Vec<[GroupField; 2]>,
    /// Per row, the values of each count.
    sets: Vec<DistinctSet>,
    /// Octets of these beside themselves.
    set_octets: usize,
    /// The values of all records.
    total_sets: Vec<DistinctSet>,
    /// Hashes of the values of a record on each side, for each count; `None` where the field does not apply.
    count_hashes: [Vec<Option<u64>>; 2],
    /// Memory for the key of a record and, if the record has two sides, for that of its source.
    key_memory: [Vec<FieldValue<'static>>; 2],
    /// Rows of a batch with the figures to be added, so that the processor waits for the memory of
    /// many rows at once.
    pending: Vec<(u32, Sums)>,
    /// Records whose group did not fit into memory.
    others: Sums,
    total: Sums,
    /// Records that span several intervals.
    spread_flows: u64,
    /// Of these, those that span more than [`MAX_INTERVALS`].
    long_flows: u64,
    /// With intervals: the groups that have rows of their own; `None` for all.
    kept: Option<Arc<KeptGroups>>,
}

/// The groups of records with the same values.
pub(crate) struct KeyRows {
    /// The values of the fields, behind the start of an interval if there are intervals; of the other side, if it has
    /// other values.
    keys: [Vec<FieldValue<'static>>; 2],
    is_same: bool,
    has_other: bool,
    /// The groups of the last interval.
    rows: Option<(u64, [u32; 2])>,
}

/// A group with its sums.
#[derive(Clone, Debug)]
pub struct Row {
    /// Start of the interval, ns since 1970 UTC, if there are intervals.
    pub start_ns: Option<u64>,
    /// A value for each field; none for a row that sums up groups.
    pub key: Vec<FieldValue<'static>>,
    /// The sums.
    pub sums: Sums,
    /// The sums that are asked for.
    pub amounts: Vec<Amount>,
    /// For each count, the number of different values; none for a row that sums up groups.
    pub counts: Vec<DistinctCount>,
}

/// A group in the order of the view.
struct Ranked {
    start_ns: u64,
    /// It sums up the groups that are not kept.
    is_rest: bool,
    rank: (bool, u64),
    row: u32,
}

/// A group with its sums in all intervals together.
#[derive(Clone, Debug)]
pub struct Series {
    /// A value for each field.
    pub key: Vec<FieldValue<'static>>,
    /// The sums.
    pub sums: Sums,
    /// The sums that are asked for.
    pub amounts: Vec<Amount>,
    /// Start of each interval with records, and the IP octets in it.
    pub intervals: Vec<(u64, u64)>,
}

impl View {
    /// The fields that views sum up, beside those of every record.
    pub fn summed_fields() -> impl Iterator<Item = &'static Column> {
        Metric::ALL.into_iter().flat_map(Metric::fields).map(|name| column(name).expect("the column exists"))
    }

    /// The name that two columns of a view of these fields, counts and sums would have.
    pub fn repeated_column(fields: &[GroupField], counts: &[CountField], sums: &[SumField]) -> Option<String> {
        let by = fields.iter().map(|field| field.name().to_owned());
        let sums = sums.iter().map(|sum| sum.name().to_owned());
        let names: Vec<String> = by.chain(counts.iter().map(|count| count.name().to_owned())).chain(sums).collect();
        let is_number = |name: &str| Metric::ALL.iter().any(|of| [of.name(), of.name_of_side()].contains(&name));
        let is_twice = |(at, name): &(usize, &String)| is_number(name) || names[at + 1..].contains(name);
        names.iter().enumerate().find(is_twice).map(|(_, name)| name.clone())
    }

    /// An empty view.
    ///
    /// # Errors
    /// The order names nothing that a view has.
    pub fn new(mut settings: ViewSettings) -> Result<Self, InvalidOrder> {
        let order = RowOrder::new(settings.order.as_ref(), &settings.fields, &settings.counts, &mut settings.sums)?;
        match order {
            RowOrder::Metric(Metric::Bytes, _)
                if settings.order.is_none() && settings.unknown.contains(&Metric::Bytes) =>
            {
                Ok(Self::with_order(settings, RowOrder::Metric(Metric::Flows, false)))
            }
            RowOrder::Metric(metric, _) if settings.unknown.contains(&metric) => {
                Err(InvalidOrder::NotStored(metric.name()))
            }
            RowOrder::Sum(_, sum, _) if settings.unknown_sums.contains(&sum) => {
                Err(InvalidOrder::NotStored(sum.name()))
            }
            _ => Ok(Self::with_order(settings, order)),
        }
    }

    /// From now on the rows have another order, and these numbers are not known.
    ///
    /// # Errors
    /// The order names nothing that a view has.
    pub fn set_shown(&mut self, order: Option<Order>, unknown: Vec<Metric>) -> Result<(), InvalidOrder> {
        let settings = ViewSettings { order, unknown, ..self.settings.clone() };
        let Self { settings, order, .. } = Self::new(settings)?;
        (self.settings, self.order) = (settings, order);
        Ok(())
    }

    fn with_order(settings: ViewSettings, order: RowOrder) -> Self {
        let count_fields: Vec<_> = settings.counts.iter().map(|count| count.of_sides(&settings.fields)).collect();
        let total_sets = vec![DistinctSet::default(); count_fields.len()];
        let key_values = settings.key_values();
        let has_sides = settings.fields.iter().any(GroupField::has_sides);
        let readers: Vec<SumReader> = settings.sums.iter().copied().map(SumReader::new).collect();
        let no_amounts = vec![Amount::default(); readers.len()];
        Self {
            settings,
            order,
            has_sides,
            key_values,
            index: HashTable::new(),
            hasher: random_state(),
            keys: Vec::new(),
            key_texts: 0,
            rows: Vec::new(),
            readers,
            amounts: Vec::new(),
            record_amounts: no_amounts.clone(),
            other_amounts: no_amounts.clone(),
            total_amounts: no_amounts,
            count_fields,
            sets: Vec::new(),
            set_octets: 0,
            total_sets,
            count_hashes: Default::default(),
            key_memory: [0; 2].map(|_| Vec::with_capacity(key_values)),
            pending: Vec::new(),
            others: Sums::NONE,
            total: Sums::NONE,
            spread_flows: 0,
            long_flows: 0,
            kept: None,
        }
    }

    /// An empty view with the same fields and intervals of this length, in which the first groups of this one have rows
    /// of their own, and all others are one row of each interval. This view has neither intervals nor counts.
    pub fn of_first_groups(&self, most: usize, every_ns: u64, groups: usize) -> Self {
        let (rows, _) = self.first_rows(most);
        self.of_groups(rows.into_iter().map(|row| row.key).collect(), every_ns, groups)
    }

    /// The same with these groups of this view, each of them once.
    pub fn of_groups(&self, keys: Vec<Vec<FieldValue<'static>>>, every_ns: u64, groups: usize) -> Self {
        let others = self.groups() - keys.len();
        let settings = ViewSettings { every_ns: Some(every_ns), groups, ..self.settings.clone() };
        let kept = Some(Arc::new(KeptGroups::new(keys, others.max(1) as u64)));
        Self { kept, ..Self::with_order(settings, self.order) }
    }

    /// The groups of this view in all intervals together. All groups of this one are in memory.
    pub fn without_intervals(&self) -> Self {
        let settings = ViewSettings { every_ns: None, ..self.settings.clone() };
        let total_amounts = self.total_amounts.clone();
        let mut whole = Self { total: self.total, total_amounts, ..Self::with_order(settings, self.order) };
        for (row, sums) in self.rows.iter().enumerate() {
            // No flow is spread.
            whole.merge_group(self.fields_of(row), &Sums { spread_bytes: 0, ..*sums }, self.amounts_of(row));
        }
        whole
    }

    /// Takes the memory of all groups now, so that none is taken while records are added. Fields with texts take theirs
    /// when a group begins.
    pub fn reserve(&mut self) {
        self.reserve_for(self.settings.groups);
    }

    /// The same for a number of groups.
    pub fn reserve_for(&mut self, groups: usize) {
        let Self { settings, index, hasher, keys, rows, key_values, amounts, .. } = self;
        let groups = groups.min(settings.groups);
        let of_row = |row: u32| &keys[row as usize * *key_values..][..*key_values];
        index.reserve(groups, |&row| hash_key(hasher, of_row(row)));
        keys.reserve_exact(groups * *key_values);
        rows.reserve_exact(groups);
        amounts.reserve_exact(groups * settings.sums.len());
    }

    /// An empty view with the same settings, of other records, to be merged with [`Self::merge`].
    pub fn of_others(&self) -> Self {
        Self { hasher: self.hasher.clone(), ..Self::with_order(self.settings.clone(), self.order) }
    }

    /// Adds a batch of records to their groups.
    pub fn add(&mut self, flows: &[FlowRecord]) {
        flows.iter().for_each(|flow| self.find_groups(flow));
        for (row, sums) in self.pending.drain(..) {
            match self.rows.get_mut(row as usize) {
                Some(group) => group.merge(&sums),
                None => self.others.merge(&sums),
            }
        }
    }

    /// Finds the rows of a record.
    fn find_groups(&mut self, flow: &FlowRecord) {
        for (amount, reader) in self.record_amounts.iter_mut().zip(&self.readers) {
            *amount = reader.amount(flow);
        }
        self.add_spread(&Sums::of(flow), |view, start_ns, sums| view.add_to_sides(flow, start_ns, sums));
    }

    /// Adds the figures of a record to the total, and calls a function with those of each of its intervals.
    #[inline]
    fn add_spread(&mut self, sums: &Sums, mut add: impl FnMut(&mut Self, Option<u64>, &Sums)) {
        self.total.merge(sums);
        merge_amounts(&self.settings.sums, &mut self.total_amounts, &self.record_amounts);
        let Some(every_ns) = self.settings.every_ns else { return add(self, None, sums) };
        let zone = Zone::current();
        let mut interval = zone.interval(sums.first_ns, every_ns);
        let is_last = |interval: &Range<u64>| sums.last_ns < interval.end || interval.end == u64::MAX;
        if is_last(&interval) {
            return add(self, Some(interval.start), sums);
        }
        self.spread_flows += 1;
        if zone.interval(sums.last_ns, every_ns).start - interval.start >= MAX_INTERVALS.saturating_mul(every_ns) {
            self.long_flows += 1;
            let sums = Sums { spread_bytes: sums.all_bytes(), ..*sums };
            return add(self, Some(interval.start), &sums);
        }
        loop {
            let (from_ns, to_ns) = (interval.start.max(sums.first_ns), interval.end.min(sums.last_ns));
            let part = sums.part(from_ns - sums.first_ns, to_ns - sums.first_ns);
            if !part.is_nothing() {
                add(self, Some(interval.start), &part);
            }
            if is_last(&interval) {
                return;
            }
            interval = zone.interval(interval.end, every_ns);
        }
    }

    /// Adds figures to the group of the record, or to those of both of its sides.
    fn add_to_sides(&mut self, flow: &FlowRecord, start_ns: Option<u64>, sums: &Sums) {
        let [mut source, mut other] = std::mem::take(&mut self.key_memory).map(recycle);
        self.read_key(flow, start_ns, 0, &mut source);
        if self.has_sides {
            self.read_key(flow, start_ns, 1, &mut other);
        }
        self.hash_counts(flow);
        match self.has_sides {
            true if source == other => self.add_to_group(&source, &sums.of_both_sides(), 0..2),
            true => {
                self.add_to_group(&source, sums, 0..1);
                self.add_to_group(&other, &sums.of_other_side(), 1..2);
            }
            false => self.add_to_group(&source, sums, 0..1),
        }
        self.key_memory = [source, other].map(recycle);
    }

    fn read_key<'a>(&self, flow: &'a FlowRecord, start_ns: Option<u64>, side: usize, key: &mut Vec<FieldValue<'a>>) {
        key.extend(start_ns.map(FieldValue::Time));
        key.extend(self.settings.fields.iter().map(|field| field.value(flow, side)));
    }

    /// Hashes the values of a record that are counted.
    fn hash_counts(&mut self, flow: &FlowRecord) {
        let Self { has_sides, count_hashes, count_fields, total_sets, hasher, .. } = self;
        if count_fields.is_empty() {
            return;
        }
        let sides = if *has_sides { 2 } else { 1 };
        for (side, hashes) in count_hashes.iter_mut().enumerate().take(sides) {
            hashes.clear();
            for (fields, total) in count_fields.iter().zip(&mut *total_sets) {
                let hash = match fields[side].value(flow, side) {
                    FieldValue::NotApplicable | FieldValue::NoValue => None,
                    value => Some(hash_key(hasher, &[value])),
                };
                hash.into_iter().for_each(|hash| total.insert(hash));
                hashes.push(hash);
            }
        }
    }

    /// Counts the values of some sides of a record in a row.
    fn count(&mut self, row: u32, sides: Range<usize>) {
        let counts = self.count_fields.len();
        let sets = &mut self.sets[row as usize * counts..][..counts];
        for hashes in &self.count_hashes[sides] {
            for (set, hash) in sets.iter_mut().zip(hashes) {
                let before = set.heap_bytes();
                hash.iter().for_each(|hash| set.insert(*hash));
                self.set_octets = self.set_octets + set.heap_bytes() - before;
            }
        }
    }

    fn add_to_group(&mut self, key: &[FieldValue<'_>], sums: &Sums, sides: Range<usize>) {
        let row = self.row_of(key);
        self.pending.push((row.unwrap_or(u32::MAX), *sums));
        self.add_amounts(row.unwrap_or(u32::MAX), sums);
        if let Some(row) = row.filter(|_| !self.count_fields.is_empty()) {
            self.count(row, sides);
        }
    }

    /// Adds the sums of the current record that are asked for to a row, or to the others. The parts of a record in
    /// several intervals have them once, at its start, where the record itself counts.
    #[inline]
    fn add_amounts(&mut self, row: u32, part: &Sums) {
        if part.flows != 0 {
            self.add_amounts_to_row(row);
        }
    }

    #[inline]
    fn add_amounts_to_row(&mut self, row: u32) {
        let sums = self.settings.sums.len();
        if sums == 0 {
            return;
        }
        let into = self.amounts.chunks_exact_mut(sums).nth(row as usize).unwrap_or(&mut self.other_amounts);
        merge_amounts(&self.settings.sums, into, &self.record_amounts);
    }

    /// Finds the row of the key, or makes a new one; `None` without memory.
    pub(crate) fn row_of(&mut self, key: &[FieldValue<'_>]) -> Option<u32> {
        let Self { settings, index, hasher, keys, key_texts, rows, key_values, kept, amounts, .. } = self;
        let rest;
        let key = match kept {
            Some(kept) if !kept.has(&key[1..]) => {
                rest = KeptGroups::rest_key(key);
                rest.as_slice()
            }
            _ => key,
        };
        let of_row = |row: u32| &keys[row as usize * *key_values..][..*key_values];
        let hash = hash_key(hasher, key);
        if let Some(&row) = index.find(hash, |&row| of_row(row) == key) {
            return Some(row);
        }
        if rows.len() >= settings.groups {
            return None;
        }
        let row = rows.len() as u32;
        index.insert_unique(hash, row, |&row| hash_key(hasher, of_row(row)));
        grow(keys, *key_values, settings.groups * *key_values);
        for value in key {
            if let FieldValue::Text(text) = value {
                *key_texts += text.len();
            }
            keys.push(value.clone().into_owned());
        }
        grow(rows, 1, settings.groups);
        rows.push(Sums::NONE);
        grow(amounts, settings.sums.len(), settings.groups * settings.sums.len());
        amounts.resize(rows.len() * settings.sums.len(), Amount::default());
        self.sets.resize(self.rows.len() * self.count_fields.len(), DistinctSet::default());
        Some(row)
    }

    /// An empty view of a part of the records, to be merged with [`Self::merge`]. All of its groups fit into memory.
    pub(crate) fn of_part(&self) -> Self {
        let settings = ViewSettings { groups: u32::MAX as usize, counts: Vec::new(), ..self.settings.clone() };
        Self { hasher: self.hasher.clone(), kept: self.kept.clone(), ..Self::with_order(settings, self.order) }
    }

    /// The groups of records with these values in intervals, on the one side and, if the view has sides, on the other.
    pub(crate) fn key_rows(&self, source: &[FieldValue<'_>], other: Option<&[FieldValue<'_>]>) -> KeyRows {
        let is_same = other == Some(source);
        let other = other.filter(|_| !is_same);
        let mut key = KeyRows { keys: Default::default(), is_same, has_other: other.is_some(), rows: None };
        let owned = |key: &[FieldValue<'_>]| {
            let values = key.iter().cloned().map(FieldValue::into_owned);
            [FieldValue::Time(0)].into_iter().chain(values).collect::<Vec<_>>()
        };
        key.keys = [owned(source), other.map(owned).unwrap_or_default()];
        key
    }

    /// Adds the sums of records to the rows, in their order, as they are for this side; `is_counted`: to the total, too.
    pub(crate) fn add_to_rows(&mut self, all: impl Iterator<Item = Sums>, is_counted: bool, of_side: fn(Sums) -> Sums) {
        for (sums, row) in all.zip(&mut self.rows) {
            if is_counted {
                self.total.merge(&sums);
            }
            row.merge(&of_side(sums));
        }
    }

    /// Adds the sums of a record that are asked for to the total, and to the rows of its sides.
    pub(crate) fn add_record_amounts(&mut self, amounts: &[Amount], rows: [Option<u32>; 2]) {
        self.record_amounts.copy_from_slice(amounts);
        merge_amounts(&self.settings.sums, &mut self.total_amounts, amounts);
        rows.into_iter().flatten().for_each(|row| self.add_amounts_to_row(row));
    }

    /// Adds the figures of a record to its groups, with intervals; `amounts` are its sums that are asked for.
    #[inline]
    pub(crate) fn add_figures(&mut self, sums: &Sums, amounts: &[Amount], key: &mut KeyRows) {
        self.record_amounts.copy_from_slice(amounts);
        self.add_spread(sums, |view, start_ns, sums| {
            let start_ns = start_ns.unwrap_or_default();
            let rows = match key.rows {
                Some((of, rows)) if of == start_ns => rows,
                _ => view.find_rows(start_ns, key),
            };
            key.rows = Some((start_ns, rows));
            let (source, other) =
                if key.is_same { (sums.of_both_sides(), None) } else { (*sums, Some(sums.of_other_side())) };
            let pairs = [(rows[0], Some(source)), (rows[1], other.filter(|_| key.has_other))];
            for (row, sums) in pairs {
                if let Some(sums) = sums {
                    view.add_amounts(row, &sums);
                    view.rows.get_mut(row as usize).unwrap_or(&mut view.others).merge(&sums);
                }
            }
        });
    }

    fn find_rows(&mut self, start_ns: u64, key: &mut KeyRows) -> [u32; 2] {
        let mut row = |key: &mut Vec<FieldValue<'static>>| {
            key[0] = FieldValue::Time(start_ns);
            self.row_of(key).unwrap_or(u32::MAX)
        };
        let source = row(&mut key.keys[0]);
        [source, if key.has_other { row(&mut key.keys[1]) } else { source }]
    }

    /// Adds a view of other records, with the same fields and intervals. Its groups come behind those of this one; if only
    /// some have rows of their own here, the others join the rest.
    pub fn merge(&mut self, part: &Self) {
        for (from, sums) in part.rows.iter().enumerate() {
            let key = &part.keys[from * part.key_values..][..part.key_values];
            if let Some(row) = self.merge_group(key, sums, part.amounts_of(from)) {
                self.merge_counts(row, part.counts_of(from));
            }
        }
        self.total_sets.iter_mut().zip(&part.total_sets).for_each(|(set, other)| set.merge(other));
        self.others.merge(&part.others);
        self.total.merge(&part.total);
        merge_amounts(&self.settings.sums, &mut self.other_amounts, &part.other_amounts);
        merge_amounts(&self.settings.sums, &mut self.total_amounts, &part.total_amounts);
        self.spread_flows += part.spread_flows;
        self.long_flows += part.long_flows;
    }

    /// Adds sums to the row of a key, which it returns, or to the others.
    fn merge_group(&mut self, key: &[FieldValue<'_>], sums: &Sums, amounts: &[Amount]) -> Option<u32> {
        let row = self.row_of(key);
        let asked = self.settings.sums.len();
        let (group, into) = match row {
            Some(row) => (&mut self.rows[row as usize], &mut self.amounts[row as usize * asked..][..asked]),
            None => (&mut self.others, self.other_amounts.as_mut_slice()),
        };
        group.merge(sums);
        merge_amounts(&self.settings.sums, into, amounts);
        row
    }

    /// Adds the values that a row of another view has counted.
    fn merge_counts(&mut self, row: u32, others: &[DistinctSet]) {
        let counts = self.count_fields.len();
        for (set, other) in self.sets[row as usize * counts..][..counts].iter_mut().zip(others) {
            let before = set.heap_bytes();
            set.merge(other);
            self.set_octets = self.set_octets + set.heap_bytes() - before;
        }
    }

    /// A number of a row; it does not apply if it is not known.
    pub fn number(&self, metric: Metric, sums: &Sums) -> FieldValue<'static> {
        if self.settings.unknown.contains(&metric) { FieldValue::NotApplicable } else { metric.value(sums) }
    }

    /// The same of a sum that is asked for.
    pub fn asked_number(&self, sum: SumField, amount: Amount) -> FieldValue<'static> {
        if self.settings.unknown_sums.contains(&sum) { FieldValue::NotApplicable } else { sum.value(amount) }
    }

    /// Adds the sums of a row to those of another.
    pub fn merge_row(&self, into: &mut Row, row: &Row) {
        into.sums.merge(&row.sums);
        merge_amounts(&self.settings.sums, &mut into.amounts, &row.amounts);
    }

    /// A row that sums up no groups yet.
    pub fn empty_row(&self, start_ns: Option<u64>) -> Row {
        let amounts = vec![Amount::default(); self.settings.sums.len()];
        Row { start_ns, key: Vec::new(), sums: Sums::NONE, amounts, counts: Vec::new() }
    }

    /// With a row in each interval for the groups that are not kept: how many there are, at least.
    pub(crate) fn groups_of_rest(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.others)
    }

    /// What the view is.
    pub fn settings(&self) -> &ViewSettings {
        &self.settings
    }

    /// Whether a record is in the groups of both of its sides.
    pub fn has_sides(&self) -> bool {
        self.has_sides
    }

    /// Name of the number or field by which the rows are sorted.
    pub fn order_name(&self) -> &str {
        match self.order {
            RowOrder::Metric(metric, _) if self.has_sides => metric.name_of_side(),
            RowOrder::Metric(metric, _) => metric.name(),
            RowOrder::Key(at, _) => self.settings.fields[at].name(),
            RowOrder::Count(at, _) => self.settings.counts[at].name(),
            RowOrder::Sum(_, sum, _) => sum.name(),
        }
    }

    /// The number by which the rows are sorted, if it is one.
    pub fn order_metric(&self) -> Option<Metric> {
        match self.order {
            RowOrder::Metric(metric, _) => Some(metric),
            RowOrder::Key(..) | RowOrder::Count(..) | RowOrder::Sum(..) => None,
        }
    }

    /// For each count, the number of different values in all records.
    pub fn total_counts(&self) -> Vec<DistinctCount> {
        self.total_sets.iter().map(DistinctSet::count).collect()
    }

    /// All records, each counted once.
    pub fn total(&self) -> &Sums {
        &self.total
    }

    /// All records in a row.
    pub fn total_row(&self) -> Row {
        Row { sums: self.total, amounts: self.total_amounts.clone(), ..self.empty_row(None) }
    }

    /// Figures of the groups that did not fit into memory. With intervals, a record may have a part
    /// there although it counts in an interval that did fit.
    pub fn others(&self) -> Option<&Sums> {
        (!self.others.is_nothing()).then_some(&self.others)
    }

    /// The same in a row.
    pub fn others_row(&self) -> Option<Row> {
        let amounts = self.other_amounts.clone();
        self.others().map(|sums| Row { sums: *sums, amounts, ..self.empty_row(None) })
    }

    /// Number of groups in memory; with intervals, of each interval.
    pub fn groups(&self) -> usize {
        self.rows.len()
    }

    /// Records that span several intervals.
    pub fn spread_flows(&self) -> u64 {
        self.spread_flows
    }

    /// Of these, records that span too many intervals and count in that of their start.
    pub fn long_flows(&self) -> u64 {
        self.long_flows
    }

    /// The rank of a row in the order of the view: the largest is the first.
    pub fn rank(&self, row: &Row) -> (bool, u64) {
        self.order.rank(&row.sums, &row.amounts)
    }

    /// Memory of the groups.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<FieldValue<'_>>()
            + self.key_texts
            + self.rows.capacity() * size_of::<Sums>()
            + self.amounts.capacity() * size_of::<Amount>()
            + self.sets.capacity() * size_of::<DistinctSet>()
            + self.set_octets
            + self.index.allocation_size()
    }

    /// All groups: by time if there are intervals, then in the order of the view.
    pub fn rows(&self) -> Vec<Row> {
        self.first_rows(usize::MAX).0
    }

    /// Calls a function with each group of [`View::rows`], without a copy of all of them.
    pub fn for_each_row(&self, mut use_row: impl FnMut(Row)) {
        let mut ranked: Vec<Ranked> = (0..self.rows.len()).map(|row| self.ranked(row)).collect();
        ranked.sort_unstable_by(|one, other| self.compare_ranked(one, other));
        ranked.iter().for_each(|ranked| use_row(self.row(ranked.row as usize)));
    }

    /// The first groups of [`View::rows`], and the sums of the others.
    pub fn first_rows(&self, limit: usize) -> (Vec<Row>, Row) {
        // Only small entries are moved, and only those of the first groups are sorted.
        let mut ranked: Vec<Ranked> = (0..self.rows.len()).map(|row| self.ranked(row)).collect();
        let compare = |one: &Ranked, other: &Ranked| self.compare_ranked(one, other);
        let mut others = self.empty_row(None);
        if limit < ranked.len() {
            ranked.select_nth_unstable_by(limit, compare);
            for Ranked { row, .. } in ranked.drain(limit..) {
                others.sums.merge(&self.rows[row as usize]);
                merge_amounts(&self.settings.sums, &mut others.amounts, self.amounts_of(row as usize));
            }
        }
        ranked.sort_unstable_by(compare);
        (ranked.iter().map(|ranked| self.row(ranked.row as usize)).collect(), others)
    }

    fn ranked(&self, row: usize) -> Ranked {
        let (start_ns, is_rest) = match self.keys.get(row * self.key_values) {
            Some(&FieldValue::Time(start_ns)) if self.settings.every_ns.is_some() => (start_ns, false),
            Some(&FieldValue::Implied(start_ns)) if self.kept.is_some() => (start_ns, true),
            _ => (0, false),
        };
        let rank = match self.order {
            RowOrder::Count(at, ascending) => rank(Some(self.counts_of(row)[at].count().number), ascending),
            order => order.rank(&self.rows[row], self.amounts_of(row)),
        };
        Ranked { start_ns, is_rest, rank, row: row as u32 }
    }

    fn compare_ranked(&self, one: &Ranked, other: &Ranked) -> Ordering {
        let by_rank = match self.order {
            RowOrder::Metric(..) | RowOrder::Count(..) | RowOrder::Sum(..) => other.rank.cmp(&one.rank),
            RowOrder::Key(..) => Ordering::Equal,
        };
        let by_place = (one.start_ns, one.is_rest).cmp(&(other.start_ns, other.is_rest));
        by_place.then(by_rank).then_with(|| {
            let entry = |ranked: &Ranked| (self.fields_of(ranked.row as usize), ranked.rank);
            self.compare(entry(one), entry(other))
        })
    }

    /// All groups with their intervals, in the order of the view.
    pub fn series(&self) -> Vec<Series> {
        let mut rows: Vec<Row> = (0..self.rows.len()).map(|row| self.row(row)).collect();
        rows.sort_by(|one, other| compare_keys(&one.key, &other.key).then(one.start_ns.cmp(&other.start_ns)));
        let mut all: Vec<Series> = Vec::new();
        for row in rows {
            let interval = (row.start_ns.unwrap_or_default(), row.sums.all_bytes());
            match all.last_mut() {
                Some(last) if last.key == row.key => {
                    last.sums.merge(&row.sums);
                    merge_amounts(&self.settings.sums, &mut last.amounts, &row.amounts);
                    last.intervals.push(interval);
                }
                _ => {
                    let Row { key, sums, amounts, .. } = row;
                    all.push(Series { key, sums, amounts, intervals: vec![interval] });
                }
            }
        }
        let rank = |series: &Series| self.order.rank(&series.sums, &series.amounts);
        all.sort_by(|one, other| self.compare((&one.key, rank(one)), (&other.key, rank(other))));
        all
    }

    fn row(&self, row: usize) -> Row {
        let Ranked { start_ns, is_rest, .. } = self.ranked(row);
        let counts = self.counts_of(row).iter().map(DistinctSet::count).collect();
        let key = if is_rest { Vec::new() } else { self.fields_of(row).to_vec() };
        let amounts = self.amounts_of(row).to_vec();
        Row { start_ns: self.settings.every_ns.map(|_| start_ns), key, sums: self.rows[row], amounts, counts }
    }

    fn amounts_of(&self, row: usize) -> &[Amount] {
        let sums = self.settings.sums.len();
        &self.amounts[row * sums..][..sums]
    }

    fn counts_of(&self, row: usize) -> &[DistinctSet] {
        let counts = self.count_fields.len();
        &self.sets[row * counts..][..counts]
    }

    /// The values of the fields of a group.
    fn fields_of(&self, row: usize) -> &[FieldValue<'static>] {
        let key = &self.keys[row * self.key_values..][..self.key_values];
        &key[self.key_values - self.settings.fields.len()..]
    }

    /// The order of two groups with their ranks. Groups with equal numbers are in the order of their keys.
    fn compare(&self, one: (&[FieldValue<'_>], (bool, u64)), other: (&[FieldValue<'_>], (bool, u64))) -> Ordering {
        let by_key = match self.order {
            RowOrder::Key(at, ascending) => {
                let order = compare_values(&one.0[at], &other.0[at]);
                if ascending { order } else { order.reverse() }
            }
            RowOrder::Metric(..) | RowOrder::Count(..) | RowOrder::Sum(..) => Ordering::Equal,
        };
        by_key.then_with(|| other.1.cmp(&one.1)).then_with(|| compare_keys(one.0, other.0))
    }
}

/// Adds the sums that are asked for of one row to those of another.
fn merge_amounts(sums: &[SumField], into: &mut [Amount], amounts: &[Amount]) {
    for ((sum, into), amount) in sums.iter().zip(into).zip(amounts) {
        sum.merge(into, *amount);
    }
}

/// Makes room for more elements: twice of what there is, but at most the limit.
fn grow<T>(elements: &mut Vec<T>, more: usize, limit: usize) {
    let needed = elements.len() + more;
    if needed > elements.capacity() && 2 * elements.capacity() > limit {
        elements.reserve_exact(limit.max(needed) - elements.len());
    }
}

/// An empty list with the memory of another.
fn recycle<'a>(mut values: Vec<FieldValue<'_>>) -> Vec<FieldValue<'a>> {
    values.clear();
    // The standard library keeps the memory if the types have the same layout.
    values.into_iter().map(|_| FieldValue::NotApplicable).collect()
}

fn compare_keys(one: &[FieldValue<'_>], other: &[FieldValue<'_>]) -> Ordering {
    let values = one.iter().zip(other).map(|(one, other)| compare_values(one, other));
    values.fold(Ordering::Equal, Ordering::then)
}

/// Groups to which a field does not apply are the last.
fn compare_values(one: &FieldValue<'_>, other: &FieldValue<'_>) -> Ordering {
    use FieldValue::{Float, Ip, NotApplicable, Time, Unsigned};
    match (one, other) {
        (NotApplicable, NotApplicable) => Ordering::Equal,
        (NotApplicable, _) => Ordering::Greater,
        (_, NotApplicable) => Ordering::Less,
        (Unsigned(one), Unsigned(other)) | (Time(one), Time(other)) => one.cmp(other),
        (Float(one), Float(other)) => one.total_cmp(other),
        (Ip(one), Ip(other)) => one.cmp(other),
        _ => one.to_string().cmp(&other.to_string()),
    }
}
