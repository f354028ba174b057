//! Sources of frames: capture files and live traffic, delivered in bursts.
//!
//! In: capture files, pipes, network interfaces. Out: [`Burst`]s of [`Frame`]s: bytes, time, length
//! on the wire, link type, interface. Invariants: every record of the input becomes one frame, or
//! one [`Error`] with its place; frames before damage are delivered. This crate parses no packet.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod clock;
mod error;
mod files;
mod filter;
#[rustfmt::skip]
mod link_type;
mod live;
mod live_error;
mod send;
mod send_frames;
mod settings;
mod source;
mod source_spec;
mod system;

pub use clock::ClockSteps;
pub use error::Error;
pub use files::format::DECODED_LINK_TYPE;
pub use files::merge::merge;
pub use files::open::{Content, from_bytes, from_bytes_as, from_reader, from_reader_as, open, open_as};
pub use files::packet_records::{BODY_BYTES, PacketsWriter};
pub use files::reading_thread::{ReadingThreads, read_on_threads, useful_threads};
pub use files::write::{PcapWriter, pcap_file_header, pcap_record_header};
pub use filter::{FilterError, PacketFilter};
pub use live::af_xdp::{FrameTotals, XdpSender};
pub use live::links::Links;
pub use live::{Device, LIVE_SCHEMES, LiveSpec, is_interface};
pub use send::{FrameSender, open_dpdk_senders};
pub use send_frames::{SendFrames, SendRefusal};
pub use settings::{SettingsError, SourceSettings};
pub use source::{
    Burst, FIRST_INTERFACE, Frame, FrameMemory, Input, LiveSource, Loss, Losses, MAX_BURST_FRAMES, POLL_TIMEOUT,
    Progress, SharedMemory, Source,
};
pub use source_spec::{SourceSpec, packets_path};
