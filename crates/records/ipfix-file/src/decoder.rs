//! Decodes the messages of a file into data records.
//!
//! Input: a file. Output: the values of each data record with the layout of its template. Invariant: a message whose
//! sets are malformed is left out from there on, and counted; so is a set without a template.

use crate::conversion::number;
use crate::error::ReadError;
use crate::field::{Field, min_octets, split_record};
use crate::layout::{Reject, SetContext};
use crate::message::{Header, MessageReader};
use crate::source::{Handler, Source};
use crate::template::{FIRST_DATA_SET, Malformed, OPTIONS_TEMPLATE_SET, TEMPLATE_SET, Template, TemplateTable};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use weir_fields::WEIR_ENTERPRISE;

/// Most observation domains whose start is remembered.
const MAX_DOMAINS: usize = 4096;

/// Reads an IPFIX file once.
pub struct Decoder {
    messages: MessageReader,
    /// The templates of the file so far.
    templates: TemplateTable,
    /// Start of the exporter of each domain, ms since 1970 UTC.
    boot_ms: HashMap<u32, u64>,
    /// Type information of Weir is read, and no data since.
    is_in_types: bool,
    losses: Losses,
}

/// What is left out, each with a number and the first place.
#[derive(Debug, Default)]
struct Losses {
    malformed_messages: (u64, u64),
    sets_without_template: (u64, (u32, u16)),
    records: BTreeMap<Reject, (u64, (u32, u16))>,
}

impl Source for Decoder {
    type Context = TemplateTable;
    /// A run of Weir without flows writes nothing.
    const MAY_BE_EMPTY: bool = true;

    fn open(path: &Path, templates: TemplateTable) -> io::Result<Self> {
        let messages = MessageReader::open(path)?;
        Ok(Self { messages, templates, boot_ms: HashMap::new(), is_in_types: false, losses: Losses::default() })
    }

    fn offset(&self) -> u64 {
        self.messages.offset
    }

    /// Decodes the next message.
    fn read_records(&mut self, handler: &mut impl Handler) -> Result<bool, ReadError> {
        let offset = self.messages.offset;
        let Some((header, mut sets)) = self.messages.next()? else { return Ok(false) };
        let state = &mut State {
            templates: &mut self.templates,
            boot_ms: &mut self.boot_ms,
            is_in_types: &mut self.is_in_types,
            losses: &mut self.losses,
        };
        // Shorter rests are no sets.
        while let [a, b, c, d, ..] = *sets {
            let (id, length) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
            let Some(records) = sets.get(4..length) else {
                state.losses.add_malformed(offset);
                return Ok(true);
            };
            sets = &sets[length..];
            if state.read_set(header, id, records, handler)?.is_err() {
                state.losses.add_malformed(offset);
                return Ok(true);
            }
        }
        if !sets.is_empty() {
            state.losses.add_malformed(offset);
        }
        Ok(true)
    }

    fn losses(&self) -> Vec<String> {
        self.losses.sentences()
    }

    fn into_context(self) -> TemplateTable {
        self.templates.complete()
    }
}

/// The parts of a decoder that a message changes.
struct State<'a> {
    templates: &'a mut TemplateTable,
    boot_ms: &'a mut HashMap<u32, u64>,
    is_in_types: &'a mut bool,
    losses: &'a mut Losses,
}

impl State<'_> {
    fn read_set(
        &mut self,
        header: Header,
        id: u16,
        mut records: &[u8],
        handler: &mut impl Handler,
    ) -> Result<Result<(), Malformed>, ReadError> {
        if matches!(id, TEMPLATE_SET | OPTIONS_TEMPLATE_SET) {
            return self.templates.read_set(header.domain, id, records);
        }
        if id < FIRST_DATA_SET {
            return Ok(Err(Malformed));
        }
        let mut values = Vec::new();
        match self.templates.of_set(header.domain, id) {
            None => {
                let (sets, first) = &mut self.losses.sets_without_template;
                if *sets == 0 {
                    *first = (header.domain, id);
                }
                *sets += 1;
            }
            Some(Template::Options(fields)) => {
                let fields = fields.clone();
                while records.len() >= min_octets(&fields) && split_record(&fields, &mut records, &mut values).is_some()
                {
                    self.read_options(header.domain, &fields, &values, handler);
                }
            }
            Some(Template::Data { fields, layout }) => {
                let boot_ms = self.boot_ms.get(&header.domain).copied();
                let set = SetContext { export_seconds: header.export_seconds, boot_ms };
                let min_octets = min_octets(fields);
                *self.is_in_types = false;
                while records.len() >= min_octets {
                    if split_record(fields, &mut records, &mut values).is_none() {
                        // Padding may be longer than the shortest record of variable-length fields.
                        let is_padding = records.iter().all(|octet| *octet == 0);
                        return Ok(if is_padding { Ok(()) } else { Err(Malformed) });
                    }
                    if let Err(reject) = handler.record(layout, &set, &values) {
                        self.losses.records.entry(reject).or_insert((0, (header.domain, id))).0 += 1;
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    /// Type information of Weir (RFC 5610), and the start of the exporter.
    fn read_options(&mut self, domain: u32, fields: &[Field], values: &[&[u8]], handler: &mut impl Handler) {
        const PRIVATE_ENTERPRISE_NUMBER: u16 = 346;
        const INFORMATION_ELEMENT_ID: u16 = 303;
        const SYSTEM_INIT_TIME_MILLISECONDS: u16 = 160;
        for (field, value) in fields.iter().zip(values).filter(|(field, _)| field.enterprise == 0) {
            let Some(number) = number(value) else { continue };
            if field.number == PRIVATE_ENTERPRISE_NUMBER && number == u64::from(WEIR_ENTERPRISE) && !*self.is_in_types {
                *self.is_in_types = true;
                handler.begin_weir_run();
            }
            if field.number == INFORMATION_ELEMENT_ID && *self.is_in_types {
                handler.weir_element(number as u16);
            }
            if field.number == SYSTEM_INIT_TIME_MILLISECONDS && self.boot_ms.len() < MAX_DOMAINS {
                self.boot_ms.insert(domain, number);
            }
        }
    }
}

impl Losses {
    fn add_malformed(&mut self, offset: u64) {
        let (messages, first) = &mut self.malformed_messages;
        if *messages == 0 {
            *first = offset;
        }
        *messages += 1;
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let (messages, offset) = self.malformed_messages;
        if messages > 0 {
            sentences.push(format!(
                "{messages} malformed messages, the first at octet {offset}: their sets from there on are left out"
            ));
        }
        let (sets, (domain, id)) = self.sets_without_template;
        if sets > 0 {
            sentences.push(format!("{sets} sets without a template, the first with ID {id} of domain {domain}"));
        }
        for (reject, (records, (domain, id))) in &self.records {
            sentences.push(reject.sentence(*records, &format!("with template {id} of domain {domain}")));
        }
        sentences
    }
}
