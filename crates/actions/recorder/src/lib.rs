//! Recorder: packets in rolling pcapng files with an index beside them, and the search in them.
//!
//! ```text
//! RecorderOutput of each pipeline ─ chunks ─► thread: capture files, indexes      (open)
//! Query ─► indexes ─► parts of capture files ─► frames of the flows that are wanted (Search)
//! ```
//! Input: frames that a pipeline forwards, or files and folders. Output: files; selected frames.
//! Invariants: each frame is counted as written, waiting, or dropped with a reason, and nothing waits
//! for the disk. A capture file is a whole pcapng file at any time, but for its last block. A search
//! with an index finds the same packets as one without.
//! Not done here: which packets are recorded (rules). Flows are those of the meter with default
//! settings: the packets of a tunnel belong to the flow of the outer addresses.
//!
//! Source: draft-ietf-opsawg-pcapng; docs/recorder.md.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_recorder;

mod block;
mod error;
mod flow_key;
mod flow_source;
mod folder;
mod index;
mod output;
mod packet_buffer;
mod packet_file;
mod plan;
mod query;
mod recorder;
mod recording;
mod select;
mod settings;
#[cfg(test)]
mod tests;
mod writer;

pub use error::Error;
pub use flow_source::FlowSource;
pub use output::RecorderOutput;
pub use packet_buffer::PacketBuffer;
pub use packet_file::PacketFile;
pub use plan::{IndexNotice, Search};
pub use query::{InvalidFlow, Query};
pub use recorder::{FOLDER_MODE, check, open};
pub use recording::Opener;
pub use select::{FrameSelector, RecordSearch, SelectedRecords};
pub use settings::FolderSettings;
