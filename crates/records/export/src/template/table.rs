//! The templates of a sink, one for each set of elements that records have had. Over UDP, templates that
//! no record has used for two refresh intervals expire (RFC 7011 section 8.4: there are no withdrawals
//! over UDP), so that there is space for others.

use super::message::{MAX_PADDING, SET_HEADER_OCTETS};
use crate::element::MIN_MESSAGE_BYTES;
use crate::ipfix_file::{FIRST_DATA_TEMPLATE_ID, FileTemplates, MAX_TEMPLATE_ID};
use crate::record_encoder::{ElementSet, RecordEncoder};
use std::collections::HashMap;
use weir_fields::Format;

/// Number of templates over UDP from which on only basic templates are added, of which there are
/// five, and up to twelve more with MAC addresses of IP flows. Ordinary traffic needs some dozens,
/// crafted packets could make tens of thousands.
const MAX_TEMPLATES: usize = 256;
/// The last ID of another template in a file, which has about 32 000 templates then. They take 3 MB
/// of memory, and the templates of a file that is continued up to 40 MB.
const MAX_FULL_TEMPLATE_ID: u16 = MAX_TEMPLATE_ID - 24;
/// Records that may be shorter are not written, because the padding of a set (RFC 7011 section
/// 3.3.1) could be taken for one. A list of elements may lead to them, and to empty ones.
const MIN_RECORD_OCTETS: usize = MAX_PADDING + 1;
/// Longer template records do not fit into the smallest message.
const MAX_TEMPLATE_OCTETS: usize =
    MIN_MESSAGE_BYTES - Format::Netflow9.header_octets() - SET_HEADER_OCTETS - MAX_PADDING;

pub(super) struct TemplateTable {
    /// Over UDP IDs are used again.
    is_udp: bool,
    templates: HashMap<ElementSet, Template>,
    /// The template of the last record, if it is marked as used in this interval.
    last: Option<(ElementSet, u16)>,
    /// Sets whose templates are sent at the start and do not expire.
    fixed: Vec<ElementSet>,
    /// Sets in the order in which their templates were added.
    order: Vec<ElementSet>,
    next_id: u16,
    /// Templates of the file that is continued: the ID of each, by the rest of its record.
    of_file: HashMap<Vec<u8>, u16>,
    /// Number of the refresh interval.
    interval: u32,
    /// Length of all templates.
    pub octets: usize,
}

struct Template {
    id: u16,
    /// The last refresh interval with a record of this template.
    last_used: u32,
}

impl TemplateTable {
    /// Has the templates of `fixed` sets.
    pub fn new(fixed: Vec<ElementSet>, is_udp: bool) -> Self {
        let mut table = Self {
            is_udp,
            templates: HashMap::new(),
            last: None,
            fixed,
            order: Vec::new(),
            next_id: FIRST_DATA_TEMPLATE_ID,
            of_file: HashMap::new(),
            interval: 0,
            octets: 0,
        };
        table.restart(FileTemplates::default());
        table
    }

    /// Forgets all templates but those of the fixed sets. A file has these templates already: records
    /// that need one get its ID.
    pub fn restart(&mut self, of_file: FileTemplates) {
        (self.of_file, self.next_id) = (of_file.ids, of_file.next_id);
        (self.last, self.octets) = (None, 0);
        self.templates.clear();
        self.order.clear();
        for at in 0..self.fixed.len() {
            let id = self.new_id();
            self.insert(self.fixed[at], id);
        }
    }

    /// The template ID of a set, for a record. Consecutive records mostly have the same one.
    #[inline]
    pub fn id(&mut self, elements: ElementSet) -> Option<u16> {
        if let Some((last, id)) = self.last
            && last == elements
        {
            return Some(id);
        }
        let template = self.templates.get_mut(&elements)?;
        template.last_used = self.interval;
        self.last = Some((elements, template.id));
        Some(template.id)
    }

    /// Whether a set has a template or may get one: its records can be told from padding, a key names the
    /// sides of both directions, and there are not too many templates.
    #[inline]
    pub fn permits(&mut self, elements: ElementSet, encoder: &RecordEncoder) -> bool {
        self.id(elements).is_some()
            || !self.is_full()
                && encoder.names_directions(elements)
                && encoder.min_octets(elements) >= MIN_RECORD_OCTETS
                && encoder.template(0, elements).len() <= MAX_TEMPLATE_OCTETS
    }

    /// Whether only basic templates are added.
    fn is_full(&self) -> bool {
        if self.is_udp { self.templates.len() >= MAX_TEMPLATES } else { self.next_id > MAX_FULL_TEMPLATE_ID }
    }

    /// Adds a template for a set. Returns its record.
    pub fn add(&mut self, elements: ElementSet, encoder: &RecordEncoder) -> Vec<u8> {
        let mut record = encoder.template(0, elements);
        let known = self.of_file.get(&record[2..]).copied();
        let id = known.unwrap_or_else(|| self.new_id());
        record[..2].copy_from_slice(&id.to_be_bytes());
        self.insert(elements, id);
        self.octets += record.len();
        record
    }

    fn insert(&mut self, elements: ElementSet, id: u16) {
        self.templates.insert(elements, Template { id, last_used: self.interval });
        self.order.push(elements);
    }

    /// An ID that no template has. Over UDP all others are used before one is used again.
    fn new_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(FIRST_DATA_TEMPLATE_ID);
            // In a file IDs end before 65535.
            if !self.is_udp || self.templates.values().all(|template| template.id != id) {
                return id;
            }
        }
    }

    /// Begins a refresh interval. Templates that had no record in the last two expire: they are not
    /// retransmitted any more.
    pub fn begin_interval(&mut self) {
        self.interval += 1;
        self.last = None;
        let (interval, fixed) = (self.interval, &self.fixed);
        self.templates.retain(|set, template| template.last_used + 2 >= interval || fixed.contains(set));
        self.order.retain(|set| self.templates.contains_key(set));
    }

    /// The sets and IDs of all templates, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (ElementSet, u16)> {
        self.order.iter().map(|set| (*set, self.templates[set].id))
    }

    /// The records of all templates.
    pub fn records(&mut self, encoder: &RecordEncoder) -> Vec<Vec<u8>> {
        let records: Vec<_> = self.iter().map(|(elements, id)| encoder.template(id, elements)).collect();
        self.octets = records.iter().map(Vec::len).sum();
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ElementChoice;

    #[test]
    fn template_ids_wrap_and_skip_those_in_use() {
        let encoder = RecordEncoder::new(Format::Ipfix, &ElementChoice::BASIC, true);
        let mut table = TemplateTable::new(encoder.fixed_sets(), true);
        table.next_id = u16::MAX;
        // The five basic templates have the first IDs.
        assert_eq!([table.new_id(), table.new_id()], [65_535, 277]);
    }
}
