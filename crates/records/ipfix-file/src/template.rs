//! Templates (RFC 7011 sections 3.4 and 8).
//!
//! Input: template records and options template records. Output: the fields of the template that an observation
//! domain uses for a set ID at present. Invariants: a template has [`MAX_FIELDS`] fields and its records an octet at
//! least; all domains together have [`MAX_TEMPLATES`] templates.

use crate::error::ReadError;
use crate::field::Field;
use crate::layout::Layout;
use std::collections::HashMap;
use std::rc::Rc;

/// Most fields of a template. YAF and nProbe have below 200.
pub const MAX_FIELDS: usize = 2048;
/// Most templates of a file at the same time, and most different ones of a file.
pub const MAX_TEMPLATES: usize = 4096;
/// The set IDs of templates and options templates.
pub const TEMPLATE_SET: u16 = 2;
pub const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The first set ID of data records.
pub const FIRST_DATA_SET: u16 = 256;

/// What a set ID stands for.
#[derive(Clone)]
pub enum Template {
    /// Data records. The layout is the same for equal templates.
    Data { fields: Rc<[Field]>, layout: Rc<Layout> },
    /// Options data records.
    Options(Rc<[Field]>),
}

/// The fields and the layout of a template of data records.
type DataTemplate = (Rc<[Field]>, Rc<Layout>);

/// The templates of all observation domains of a file.
#[derive(Default)]
pub struct TemplateTable {
    current: HashMap<(u32, u16), Template>,
    /// By the octets of the template record behind its ID. The number of a layout is its place.
    layouts: HashMap<Box<[u8]>, DataTemplate>,
    /// The templates of an earlier reading: others are refused.
    is_complete: bool,
}

/// A set is malformed.
#[derive(Debug)]
pub struct Malformed;

impl TemplateTable {
    /// No more templates than there are now.
    pub fn complete(mut self) -> Self {
        self.current.clear();
        self.is_complete = true;
        self
    }

    /// The template of a set.
    pub fn of_set(&self, domain: u32, id: u16) -> Option<&Template> {
        self.current.get(&(domain, id))
    }

    /// Reads a set of templates or of options templates.
    pub fn read_set(&mut self, domain: u32, set: u16, mut records: &[u8]) -> Result<Result<(), Malformed>, ReadError> {
        let is_options = set == OPTIONS_TEMPLATE_SET;
        // Shorter rests are padding.
        while let [a, b, c, d, ..] = *records {
            let (id, count) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
            if id == 0 && count == 0 {
                break;
            }
            if count == 0 {
                self.withdraw(domain, id, is_options);
                records = &records[4..];
                continue;
            }
            let start = if is_options { 6 } else { 4 };
            let Some((fields, end)) = fields(records, start, count) else { return Ok(Err(Malformed)) };
            let body = &records[2..end];
            records = &records[end..];
            if id < FIRST_DATA_SET || fields.iter().all(|field| field.length == 0) {
                return Ok(Err(Malformed));
            }
            let template = if is_options { Template::Options(fields.into()) } else { self.data(body, fields)? };
            self.current.insert((domain, id), template);
            if self.current.len() > MAX_TEMPLATES {
                return Err(ReadError::TooManyTemplates(MAX_TEMPLATES));
            }
        }
        Ok(Ok(()))
    }

    fn data(&mut self, body: &[u8], fields: Vec<Field>) -> Result<Template, ReadError> {
        if let Some((fields, layout)) = self.layouts.get(body) {
            return Ok(Template::Data { fields: fields.clone(), layout: layout.clone() });
        }
        if self.layouts.len() == MAX_TEMPLATES {
            return Err(ReadError::TooManyTemplates(MAX_TEMPLATES));
        }
        if self.is_complete {
            return Err(ReadError::Changed);
        }
        let layout = Rc::new(Layout::new(self.layouts.len(), &fields));
        let fields: Rc<[Field]> = fields.into();
        self.layouts.insert(body.into(), (fields.clone(), layout.clone()));
        Ok(Template::Data { fields, layout })
    }

    /// Template withdrawal (RFC 7011 section 8.1): of one ID, or of all with the ID of the set.
    fn withdraw(&mut self, domain: u32, id: u16, is_options: bool) {
        if id >= FIRST_DATA_SET {
            self.current.remove(&(domain, id));
        } else {
            let is_kept = |of: &(u32, u16), template: &mut Template| {
                of.0 != domain || matches!(template, Template::Options(_)) != is_options
            };
            self.current.retain(is_kept);
        }
    }
}

/// The fields of a template record, and its length, octets.
fn fields(record: &[u8], start: usize, count: usize) -> Option<(Vec<Field>, usize)> {
    if count > MAX_FIELDS {
        return None;
    }
    let word = |at: usize| Some(u16::from_be_bytes([*record.get(at)?, *record.get(at + 1)?]));
    let (mut fields, mut end) = (Vec::with_capacity(count), start);
    for _ in 0..count {
        let (number, length) = (word(end)?, word(end + 2)?);
        end += 4;
        let mut enterprise = 0;
        if number & 0x8000 != 0 {
            enterprise = u32::from(word(end)?) << 16 | u32::from(word(end + 2)?);
            end += 4;
        }
        fields.push(Field { enterprise, number: number & 0x7fff, length });
    }
    Some((fields, end))
}
