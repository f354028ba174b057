//! Reads the messages of an IPFIX file that is to be continued.
//!
//! Input: the file. Output: where its last whole message ends, and its templates. They are used
//! again, and new ones get other IDs: tshark 4.0 ignores that a file defines an ID differently,
//! with and without a template withdrawal.

use crate::compression::{Compression, WholeFrames};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use weir_fields::Format;

/// Set ID of templates (RFC 7011 section 3.3.2).
pub(crate) const TEMPLATE_SET: u16 = Format::Ipfix.template_set();
/// Set ID of options templates.
pub(crate) const OPTIONS_TEMPLATE_SET: u16 = Format::Ipfix.options_template_set();
/// The first template ID (RFC 7011 section 3.4.1).
pub(crate) const FIRST_TEMPLATE_ID: u16 = 256;
/// The first ID of a template of flow records. Those before are options templates.
pub(crate) const FIRST_DATA_TEMPLATE_ID: u16 = FIRST_TEMPLATE_ID + 16;
const HEADER_OCTETS: usize = 16;
/// The last ID of a template in a file of Weir: a file with higher ones is from another program.
pub(crate) const MAX_TEMPLATE_ID: u16 = 32_768;

/// The templates of a file.
pub(crate) struct FileTemplates {
    /// The ID of each template, by the rest of its record.
    pub ids: HashMap<Vec<u8>, u16>,
    /// No template has this ID or a higher one.
    pub next_id: u16,
}

impl Default for FileTemplates {
    fn default() -> Self {
        Self { ids: HashMap::new(), next_id: FIRST_DATA_TEMPLATE_ID }
    }
}

impl FileTemplates {
    /// Reads a file that may be compressed: the length of its whole messages, octets. `None` if no
    /// messages can be added.
    pub fn read_file(&mut self, compression: Option<Compression>, file: &File, length: u64) -> io::Result<Option<u64>> {
        let Some(compression) = compression else { return self.read(BufReader::new(file)) };
        let mut frames = WholeFrames::new(compression, file);
        let messages = self.read(&mut frames)?;
        Ok(messages.filter(|&octets| octets == frames.content()).and_then(|_| frames.length(length)))
    }

    /// Reads a file to its end: the length of its whole messages, octets. `None` if these are not
    /// messages to which Weir can add others, or one has a wrong length.
    pub fn read(&mut self, mut file: impl Read) -> io::Result<Option<u64>> {
        let (mut whole, mut message) = (0, Vec::new());
        loop {
            message.clear();
            file.by_ref().take(HEADER_OCTETS as u64).read_to_end(&mut message)?;
            let version = &message[..message.len().min(2)];
            if !10_u16.to_be_bytes().starts_with(version) {
                return Ok(None);
            }
            if message.len() < HEADER_OCTETS {
                return Ok(Some(whole));
            }
            let length = word(&message, 2).unwrap_or(0);
            let Some(body) = length.checked_sub(HEADER_OCTETS) else { return Ok(None) };
            file.by_ref().take(body as u64).read_to_end(&mut message)?;
            if message.len() < length {
                return Ok(begins_with_sets(&message[HEADER_OCTETS..]).then_some(whole));
            }
            if self.add_sets(&message[HEADER_OCTETS..]).is_none() {
                return Ok(None);
            }
            whole += length as u64;
        }
    }

    /// `None` if the sets are malformed or have IDs that Weir does not use.
    fn add_sets(&mut self, mut sets: &[u8]) -> Option<()> {
        while !sets.is_empty() {
            let (id, length) = (word(sets, 0)?, word(sets, 2)?);
            let records = sets.get(4..length)?;
            sets = &sets[length..];
            if id == usize::from(TEMPLATE_SET) {
                self.add_templates(records)?;
            } else if id == usize::from(OPTIONS_TEMPLATE_SET)
                && word(records, 0)? >= usize::from(FIRST_DATA_TEMPLATE_ID)
            {
                return None;
            }
        }
        Some(())
    }

    fn add_templates(&mut self, mut records: &[u8]) -> Option<()> {
        // Shorter rests are padding.
        while records.len() >= 4 {
            let (id, fields) = (word(records, 0)? as u16, word(records, 2)?);
            let mut end = 4;
            for _ in 0..fields {
                let has_enterprise = records.get(end)? & 0x80 != 0;
                end += if has_enterprise { 8 } else { 4 };
            }
            if !(FIRST_DATA_TEMPLATE_ID..=MAX_TEMPLATE_ID).contains(&id) {
                return None;
            }
            self.ids.insert(records.get(2..end)?.to_vec(), id);
            self.next_id = self.next_id.max(id + 1);
            records = &records[end..];
        }
        Some(())
    }
}

/// Whether an incomplete message is what it seems to be. If not the message is cut but its length is
/// wrong, another one follows its sets, and the version there is no set ID (RFC 7011 section 3.3.2).
fn begins_with_sets(mut sets: &[u8]) -> bool {
    while let (Some(id), Some(length)) = (word(sets, 0), word(sets, 2)) {
        let is_set = matches!(id as u16, TEMPLATE_SET | OPTIONS_TEMPLATE_SET | FIRST_TEMPLATE_ID..);
        if !is_set || length < 4 {
            return false;
        }
        sets = sets.get(length..).unwrap_or_default();
    }
    true
}

fn word(octets: &[u8], at: usize) -> Option<usize> {
    let octets = octets.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([octets[0], octets[1]])))
}
