//! Makes flow records of stored values.

use crate::column::{Column, ColumnKind, Origin, Profile};
use crate::restore::NO_TIME;
use crate::selection::columns;
use weir_flow::FlowRecord;
use weir_packet::{NO_LABEL, NO_VLAN, Network};

/// The entries whose columns are always set: the ledger counts them, and whether others apply follows from them.
const ALWAYS: [&str; 7] = ["start_time", "end_time", "src_ip", "protocol", "packets", "bytes", "l2_bytes"];

/// Those that say nothing about others.
const OCTETS: [&str; 2] = ["bytes", "l2_bytes"];

/// The way of stored values back into flow records, and the fields that these have then.
#[derive(Clone, Debug)]
pub struct Restored {
    known: Vec<&'static Column>,
    columns: Vec<&'static Column>,
}

impl Restored {
    /// For records that are stored with these columns. What is computed from several fields of a flow is not known of a
    /// direction of it (`is_uniflow`).
    ///
    /// # Errors
    /// The name of a column without which they are no flow records: those of the profile `basic` that are not computed
    /// from others.
    pub fn of(stored: &[&'static Column], is_uniflow: bool) -> Result<Self, &'static str> {
        if let Some(missing) = columns().iter().find(|column| is_of_every_record(column) && !stored.contains(column)) {
            return Err(missing.name);
        }
        Ok(Self::of_some(stored, is_uniflow))
    }

    /// The same for records that have times, addresses, packets and octets, but need not have the other columns.
    pub fn of_some(stored: &[&'static Column], is_uniflow: bool) -> Self {
        let columns_of_store: Vec<_> =
            columns().iter().filter(|column| column.restore.is_some() && stored.contains(column)).collect();
        let mut known: Vec<&'static Column> = Vec::new();
        // What a column is computed from may be computed.
        loop {
            let is_known = |column: &&'static Column| {
                let is_stored = columns_of_store.contains(column);
                let from = column.properties.restored_from;
                let has_source = is_stored || column.restore.is_none() && !from.is_empty();
                let is_of_flow = !column.properties.computed_from.is_empty();
                has_source
                    && !(is_uniflow && is_of_flow)
                    && !known.contains(column)
                    && from.iter().all(|name| has(&known, name))
            };
            let more: Vec<_> = columns().iter().filter(is_known).collect();
            if more.is_empty() {
                break;
            }
            known.extend(more);
        }
        let place = |of: &&Column| columns().iter().position(|column| column == *of);
        known.sort_by_key(place);
        let columns = columns_of_store.into_iter().filter(|column| known.contains(column)).collect();
        Self { known, columns }
    }

    /// The fields that records have, in the order of the catalogue.
    pub fn known(&self) -> &[&'static Column] {
        &self.known
    }

    /// The stored columns, in the order in which their values are set.
    pub fn columns(&self) -> &[&'static Column] {
        &self.columns
    }

    /// Leaves out the columns that these fields are not computed from. Those stay that the ledger needs, and that say
    /// whether other fields apply.
    pub fn keep_only(&mut self, needed: &[&'static Column]) {
        let entries = self.entries_of(needed);
        self.columns.retain(|column| ALWAYS.iter().chain(&entries).any(|entry| *entry == entry_name(column.name)));
    }

    /// The same for records that only decide about others: without octets that no field is computed from.
    pub fn keep_only_deciding(&mut self, needed: &[&'static Column]) {
        self.keep_only(needed);
        let sources = self.sources(needed);
        self.columns.retain(|column| sources.contains(column) || !OCTETS.contains(&entry_name(column.name)));
    }

    /// Leaves out the octets of frames, except in these columns: records have 0.
    pub fn leave_out_frames(&mut self, except: &[&'static Column]) {
        self.columns.retain(|column| except.contains(column) || entry_name(column.name) != OCTETS[1]);
    }

    /// The stored columns that these fields are computed from.
    pub fn sources(&self, needed: &[&'static Column]) -> Vec<&'static Column> {
        let entries = self.entries_of(needed);
        self.columns.iter().copied().filter(|column| entries.contains(&entry_name(column.name))).collect()
    }

    /// The names of the entries of these fields, and of all that they are computed from.
    fn entries_of(&self, needed: &[&'static Column]) -> Vec<&'static str> {
        let mut entries: Vec<&str> = Vec::new();
        let mut waiting: Vec<&str> = needed.iter().map(|column| entry_name(column.name)).collect();
        while let Some(entry) = waiting.pop() {
            if !entries.contains(&entry) {
                entries.push(entry);
                let of_entry = self.known.iter().filter(|column| entry_name(column.name) == entry);
                waiting
                    .extend(of_entry.flat_map(|column| column.properties.restored_from).map(|name| entry_name(name)));
            }
        }
        entries
    }

    /// A record without values.
    pub fn begin() -> FlowRecord {
        let mut flow = FlowRecord { network: Network::Layer2, protocol: u8::MAX, ..FlowRecord::default() };
        for direction in [&mut flow.forward, &mut flow.reverse] {
            (direction.vlan, direction.inner_vlan, direction.mpls_label) = (NO_VLAN, NO_VLAN, NO_LABEL);
        }
        flow
    }

    /// Whether a value must not be null, because every record has one.
    pub fn is_required(column: &Column) -> bool {
        is_of_every_record(column) && matches!(column.kind, ColumnKind::Time | ColumnKind::Integer)
    }

    /// Completes a record whose values are set. Returns whether they can be those of a flow.
    pub fn finish(flow: &mut FlowRecord) -> bool {
        const UDP: u8 = 17;
        let is_flow = flow.forward.first_ns <= flow.forward.last_ns
            && flow.packets() > 0
            && (flow.network != Network::Layer2 || flow.protocol == u8::MAX);
        if flow.reverse.first_ns == NO_TIME {
            flow.reverse.first_ns = flow.forward.first_ns;
            // Without a response time, the packet of the responder was the first.
            let is_answered = flow.forward.packets > 0 && flow.reverse.packets > 0;
            flow.forward.first_ns += u64::from(is_answered && flow.protocol == UDP);
        }
        is_flow
    }
}

/// Whether a field is known, or a field of both directions.
fn has(known: &[&'static Column], name: &str) -> bool {
    let has = |prefix| known.iter().any(|column| column.name.strip_prefix(prefix) == Some(name));
    has("") || has("fwd_") && has("rev_")
}

/// The name of the entry of a column.
pub(crate) fn entry_name(name: &str) -> &str {
    name.strip_prefix("fwd_").or_else(|| name.strip_prefix("rev_")).unwrap_or(name)
}

/// Whether all records have a field: its key, times and counts.
pub(crate) fn is_of_every_record(column: &Column) -> bool {
    // Without inspection, they have no application.
    let is_basic = column.is_in(Profile::Basic) && column.is_in(Profile::Store) && column.is_of(Origin::Meter);
    is_basic && column.restore.is_some()
}
