//! The records of one file, whatever its format.

use crate::elements::ElementId;
use crate::error::ReadError;
use crate::layout::{Layout, Reject, SetContext};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Receives what a file has.
pub trait Handler {
    /// The next records are from a run of Weir that describes its elements (RFC 5610).
    fn begin_weir_run(&mut self);

    /// The run of Weir selected this element of its own.
    fn weir_element(&mut self, _number: u16) {}

    /// A data record: the values of the fields of its layout, in their order.
    ///
    /// # Errors
    /// It is no flow.
    fn record(&mut self, layout: &Rc<Layout>, set: &SetContext, values: &[&[u8]]) -> Result<(), Reject>;
}

/// Reads one file from its start to its end, as data records of information elements. Each file is read twice.
/// Invariant: both readings of an unchanged file have the same records, and the same offsets between them.
pub trait Source: Sized {
    /// What the second reading of a file needs of the first.
    type Context: Default;
    /// Whether a file without octets is one without records.
    const MAY_BE_EMPTY: bool;

    /// Opens a file.
    ///
    /// # Errors
    /// The operating system reported one.
    fn open(path: &Path, context: Self::Context) -> io::Result<Self>;

    /// Passes some of the next records to `handler`. Returns false at the end of the file.
    ///
    /// # Errors
    /// The rest of the file cannot be read.
    fn read_records(&mut self, handler: &mut impl Handler) -> Result<bool, ReadError>;

    /// Octets that were read, without compression.
    fn offset(&self) -> u64;

    /// What was left out so far, each a sentence.
    fn losses(&self) -> Vec<String>;

    /// Elements that the format has in every record, and that had no value in any of this file.
    fn unused_elements(&self) -> Vec<ElementId> {
        Vec::new()
    }

    /// What the second reading needs.
    fn into_context(self) -> Self::Context;
}
