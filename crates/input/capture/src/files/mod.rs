//! Reads capture files, files of packet records and pipes, and writes them.

mod capture_file;
pub mod decompress;
pub mod format;
mod mapped_file;
mod memory_budget;
pub mod merge;
pub mod open;
pub mod packet_records;
mod pcap;
mod pcapng;
mod prefetch;
mod read_ahead;
pub mod reading_thread;
mod window;
pub mod write;
