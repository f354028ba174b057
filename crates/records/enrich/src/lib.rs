//! Enrichment: what tables, databases and lists of the user say about a flow record.
//!
//! ```text
//! --networks, --geo, --tags -> Enrichment
//! flow record, Enrichment   -> places and tags of the record
//! ```
//! In: files, read whole into memory, and flow records. Out: [`weir_flow::Places`] of a record. A
//! record costs a few searches of sorted arrays, and an allocation. Files are checked when they are
//! loaded, so a lookup cannot fail, and a file that is replaced, cut or removed while Weir runs has
//! no effect before the next load. [`Enrichment::reload`] builds a new value, which the caller puts
//! in the place of the old one.
//!
//! Not done here: threads, signals, and the log.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_enrich;

mod domain;
mod enrichment;
mod error;
mod file;
mod geo;
mod name_table;
mod networks;
mod prefix;
mod prefix_map;
mod tag_set;
mod tags;
#[cfg(test)]
mod tests;

pub use enrichment::{Enrichment, Report, Sources};
pub use error::{BrokenLine, BrokenLines, Error, MAX_NAMED_LINES, Problem};
pub use tag_set::MAX_TAG_LISTS;
pub use tags::{InvalidTagList, ListContent, TagList};
