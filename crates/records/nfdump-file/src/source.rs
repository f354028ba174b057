//! The records of a file.
//!
//! Input: blocks. Output: the records of each as data records of information elements. Invariant: a record that is
//! no flow is counted with its reason, and so is a block whose records cannot be told apart.

use crate::block::{BLOCK_HEADER_OCTETS, Block, BlockReader};
use crate::error::FormatError;
use crate::record::{Kind, Record, Usage, fields, with_approximate};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;
use weir_ipfix_file::{ElementId, Field, Handler, Layout, ReadError, Reject, SetContext, Source, split_record};

/// The type of blocks of records.
const RECORDS: u16 = 3;
/// Types of records: flows, samplers, and what describes exporters and their names.
const FLOW: u16 = 11;
const SAMPLER: u16 = 15;
const DESCRIPTIONS: [u16; 6] = [7, 8, 9, 12, 13, 14];
/// Most kinds of records of a file. nfcapd writes a few for each template.
const MAX_KINDS: usize = 4096;
/// Most records that are passed on at once.
const BATCH: usize = 512;

/// Numbers of the exporters that sampled packets, so that nfcapd multiplied their counters.
pub type Samplers = BTreeSet<u16>;

/// Reads a file of nfdump once.
pub struct Nfdump {
    blocks: BlockReader,
    open: Option<OpenBlock>,
    offset: u64,
    kinds: BTreeMap<Kind, (Vec<Field>, Rc<Layout>)>,
    samplers: Samplers,
    usage: Usage,
    losses: Losses,
}

/// A block whose records are read.
struct OpenBlock {
    offset: u64,
    content: Vec<u8>,
    at: usize,
    /// Records that its header counts and that were not read.
    left: u32,
}

/// What is left out, each with a number and the place of the first.
#[derive(Debug, Default)]
struct Losses {
    compressed: Count,
    malformed: Count,
    other_blocks: BTreeMap<u16, Count>,
    other_records: BTreeMap<u16, Count>,
    malformed_records: Count,
    events: Count,
    rejects: BTreeMap<Reject, Count>,
}

/// A number, and the octet of the first block.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    number: u64,
    first: u64,
}

impl Count {
    fn add(&mut self, offset: u64) {
        if self.number == 0 {
            self.first = offset;
        }
        self.number += 1;
    }
}

impl Source for Nfdump {
    type Context = Samplers;
    const MAY_BE_EMPTY: bool = false;

    fn open(path: &Path, samplers: Samplers) -> io::Result<Self> {
        Ok(Self {
            blocks: BlockReader::new(File::open(path)?),
            open: None,
            offset: 0,
            kinds: BTreeMap::new(),
            samplers,
            usage: Usage::default(),
            losses: Losses::default(),
        })
    }

    fn read_records(&mut self, handler: &mut impl Handler) -> Result<bool, ReadError> {
        let header = self.blocks.read_header()?;
        if header > 0 {
            self.offset += header;
            return Ok(true);
        }
        let Some(mut block) = self.open.take() else {
            let Some(block) = self.blocks.next()? else { return Ok(false) };
            self.offset += BLOCK_HEADER_OCTETS;
            self.open = self.losses.opened(block);
            return Ok(true);
        };
        let (start, offset) = (block.at, block.offset);
        for _ in 0..BATCH {
            let Some((kind, record)) = block.next() else {
                if block.at < block.content.len() || block.left > 0 {
                    self.losses.malformed.add(offset);
                }
                self.offset += (block.content.len() - start) as u64;
                return Ok(true);
            };
            self.read_record(kind, record, offset, handler)?;
        }
        self.offset += (block.at - start) as u64;
        self.open = Some(block);
        Ok(true)
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn losses(&self) -> Vec<String> {
        let mut sentences = self.losses.sentences();
        if let Some(octets) = self.blocks.uncounted() {
            let (first, end) = (octets.start, octets.end);
            sentences.push(format!("octets {first} to {end}, which the header of the file does not count as blocks"));
        }
        sentences
    }

    fn unused_elements(&self) -> Vec<ElementId> {
        self.usage.unused()
    }

    fn into_context(self) -> Samplers {
        self.samplers
    }
}

impl Nfdump {
    fn read_record(
        &mut self,
        kind: u16,
        octets: &[u8],
        offset: u64,
        handler: &mut impl Handler,
    ) -> Result<(), ReadError> {
        match kind {
            FLOW => self.read_flow(octets, offset, handler)?,
            // Exporter, algorithm, number of the sampler, packets that are selected, and those that are not.
            SAMPLER => {
                let exporter = octets.get(4..6).map(|word| u16::from_le_bytes([word[0], word[1]]));
                let is_sampled = octets.get(20..24).is_some_and(|space| space != [0; 4]);
                self.samplers.extend(exporter.filter(|_| is_sampled));
            }
            kind if DESCRIPTIONS.contains(&kind) => {}
            kind => self.losses.other_records.entry(kind).or_default().add(offset),
        }
        Ok(())
    }

    fn read_flow(&mut self, octets: &[u8], offset: u64, handler: &mut impl Handler) -> Result<(), ReadError> {
        let Some(record) = Record::split(octets) else {
            self.losses.malformed_records.add(offset);
            return Ok(());
        };
        if record.is_event() {
            self.losses.events.add(offset);
            return Ok(());
        }
        let mut kind = record.kind();
        self.usage.add(&record, kind);
        if !self.samplers.is_empty() {
            kind = with_approximate(kind);
        }
        if !self.kinds.contains_key(&kind) {
            if self.kinds.len() == MAX_KINDS {
                return Err(FormatError::TooManyKinds(MAX_KINDS).into());
            }
            let fields = fields(kind);
            let layout = Rc::new(Layout::new(self.kinds.len(), &fields));
            self.kinds.insert(kind, (fields, layout));
        }
        let (fields, layout) = &self.kinds[&kind];
        let is_sampled = record.sampled_by().is_some_and(|exporter| self.samplers.contains(&exporter));
        let (mut octets, mut values) = (Vec::with_capacity(128), Vec::with_capacity(fields.len()));
        record.append_values(kind, is_sampled, &mut octets);
        split_record(fields, &mut &*octets, &mut values).expect("the values have the lengths of the fields");
        let set = SetContext { export_seconds: 0, boot_ms: None };
        if let Err(reject) = handler.record(layout, &set, &values) {
            self.losses.rejects.entry(reject).or_default().add(offset);
        }
        Ok(())
    }
}

impl OpenBlock {
    /// The type and the octets of the next record. `None` behind the last, or if lengths do not fit.
    fn next(&mut self) -> Option<(u16, &[u8])> {
        let rest = &self.content[self.at..];
        let &[kind, kind_high, length, length_high, ..] = rest else { return None };
        let length = usize::from(u16::from_le_bytes([length, length_high]));
        let record = rest.get(..length).filter(|record| record.len() >= 4)?;
        self.left = self.left.checked_sub(1)?;
        self.at += length;
        Some((u16::from_le_bytes([kind, kind_high]), record))
    }
}

impl Losses {
    /// The block, if it has records.
    fn opened(&mut self, block: Block) -> Option<OpenBlock> {
        let Block { offset, kind, records, content } = block;
        if kind != RECORDS {
            self.other_blocks.entry(kind).or_default().add(offset);
            return None;
        }
        if content.is_none() {
            self.compressed.add(offset);
        }
        Some(OpenBlock { offset, content: content?, at: 0, left: records })
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut add = |count: &Count, what: &str| {
            if count.number > 0 {
                sentences.push(format!("{} {what} (the first in the block at octet {})", count.number, count.first));
            }
        };
        add(&self.compressed, "blocks that cannot be decompressed");
        add(&self.malformed, "malformed blocks, from the first wrong length on");
        for (kind, count) in &self.other_blocks {
            add(count, &format!("blocks of type {kind}, which have no flow records"));
        }
        for (kind, count) in &self.other_records {
            add(count, &format!("records of the unknown type {kind}"));
        }
        add(&self.malformed_records, "malformed records");
        add(&self.events, "events of firewalls and NAT (NSEL, NEL), which are no flows");
        let rejects = self.rejects.iter();
        sentences.extend(rejects.map(|(reject, Count { number, first })| {
            reject.sentence(*number, &format!("in the block at octet {first}"))
        }));
        sentences
    }
}
