//! Reads flow records from IPFIX files (RFC 5655): sequences of IPFIX messages (RFC 7011).
//!
//! Input: files of Weir and of other exporters, plain or compressed. Output: flow records, and the fields that are
//! known of all of them. Each file is read twice: first for its templates and the values that its records have, then
//! for the records. Invariants: every record is returned or counted in a [`Problem`]; memory is bounded by the
//! limits of [`TemplateTable`](template::TemplateTable) and the length of one message, whatever the file says.
//! Other formats of files are read as data records of information elements, too ([`Source`]).
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
mod source;
mod survey;
mod template;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use elements::ElementId;
pub use error::{Error, Problem, ReadError, What};
pub use field::{Field, split_record};
pub use layout::{Layout, Reject, SetContext};
pub use reader::{FileReader, Found};
pub use source::{Handler, Source};

/// Reads IPFIX files.
pub type IpfixReader = FileReader<Decoder>;
