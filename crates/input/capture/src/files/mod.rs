//! Reads capture files, packets files and pipes, and writes them.

mod capture_file;
pub mod decompress;
pub mod format;
mod mapped_file;
mod memory_budget;
pub mod merge;
pub mod open;
pub mod packets_file;
mod pcap;
mod pcapng;
mod prefetch;
mod read_ahead;
pub mod reading_thread;
mod window;
pub mod write;
