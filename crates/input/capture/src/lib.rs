//! Sources of frames: capture files and live traffic, delivered in bursts.
//!
//! In: capture files, pipes, network interfaces. Out: [`Burst`]s of [`Frame`]s: bytes, time, length
//! on the wire, link type, interface. Invariants: every record of the input becomes one frame, or
//! one [`Error`] with its place; frames before damage are delivered. This crate parses no packet.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod af_packet;
mod af_xdp;
mod capture_file;
mod clock;
mod counters;
mod decompress;
#[cfg(feature = "dpdk")]
mod dpdk;
mod error;
mod filter;
mod format;
mod interface;
#[rustfmt::skip]
mod link_type;
mod links;
mod live;
mod live_error;
mod mapped_file;
mod memory_budget;
mod merge;
mod open;
mod packets_file;
mod pcap;
mod pcapng;
mod prefetch;
mod read_ahead;
mod reading_thread;
mod send;
mod settings;
mod source;
mod system;
mod tap;
mod window;
mod write;

pub use af_xdp::{FrameTotals, XdpSender};
pub use clock::ClockSteps;
pub use error::Error;
pub use filter::{FilterError, PacketFilter};
pub use format::DECODED_LINK_TYPE;
pub use links::Links;
pub use live::{
    LIVE_SCHEMES, can_wait, captured_loopback, check_live, devices, has_link, interface_indexes, is_interface, is_live,
    is_up, notice, open_live,
};
pub use merge::merge;
pub use open::{Content, from_bytes, from_bytes_as, from_reader, from_reader_as, open, open_as};
pub use packets_file::{BODY_BYTES, PacketsWriter};
pub use reading_thread::{ReadingThreads, read_on_threads, useful_threads};
pub use send::{FrameSender, SendFrames, SendRefusal, open_dpdk_senders};
pub use settings::{SettingsError, SourceSettings};
pub use source::{
    Burst, FIRST_INTERFACE, Frame, FrameMemory, Input, LiveSource, Loss, Losses, MAX_BURST_FRAMES, POLL_TIMEOUT,
    Progress, SharedMemory, Source,
};
pub use write::{PcapWriter, pcap_file_header, pcap_record_header};
