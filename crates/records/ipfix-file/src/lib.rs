//! Reads flow records from IPFIX files (RFC 5655): sequences of IPFIX messages (RFC 7011).
//!
//! Input: files of Weir and of other exporters, plain or compressed. Output: flow records, and the fields that are
//! known of all of them. Each file is read twice: first for its templates and the values that its records have, then
//! for the records. Invariants: every record is returned or counted in a [`Problem`]; memory is bounded by the
//! limits of [`TemplateTable`](template::TemplateTable) and the length of one message, whatever the file says.
//! Not done here: NetFlow v5 and v9, messages from the network, structured data (RFC 6313), which is skipped.
#![forbid(unsafe_code)]

mod conversion;
mod decoder;
mod elements;
mod error;
mod field;
mod layout;
mod message;
mod reader;
mod survey;
mod template;
#[cfg(test)]
mod tests;

pub use error::{Error, Problem, ReadError, What};
pub use reader::{FileReader, Found};
