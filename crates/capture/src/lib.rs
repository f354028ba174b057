//! Sources: whatever hands over frames, a burst at a time.
//!
//! In: capture files, standard input, live traffic, or a recipe for synthetic traffic.
//! Out: [`Burst`]s of [`Frame`]s: bytes, time, length on the wire, link type, interface.
//! Always true: every record of the input becomes one frame or one [`Error`] that names the place;
//! frames before damage are delivered. Nothing here looks inside a frame.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod af_packet;
mod af_xdp;
mod counters;
mod decompress;
#[cfg(feature = "dpdk")]
mod dpdk;
mod filter;
mod input;
mod live;
mod map;
mod merge;
mod open;
mod pcap;
mod pcapng;
mod reader;
mod send;
mod settings;
mod source;
mod system;
mod tap;
mod write;

pub use filter::{BpfInstruction, CompiledFilter, FilterError, PacketFilter};
pub use live::{LIVE_SCHEMES, devices, has_link, is_live, notice, open_live};
pub use merge::merge;
pub use open::{from_bytes, from_reader, open};
pub use send::Sender;
pub use settings::{SettingsError, SourceSettings, closest_name};
pub use source::{BURST, Burst, Error, Frame, Input, LiveSource, Losses, POLL_TIMEOUT, Progress, Source};
pub use system::own_network;
pub use write::PcapWriter;
