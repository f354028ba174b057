//! The fuzz targets: functions that take any octets and panic if an invariant does not hold.
//!
//! The folder `fuzz` runs them under a fuzzer, and `tests/fuzz_seeds.rs` runs them over the inputs in
//! `fuzz/seeds`. Each target cuts its input into values of fixed width, so that a changed octet
//! changes one thing.

mod captures;
mod dpi;
mod export;
mod expression;
mod filter;
mod flow_files;
mod flows;
mod frames;
mod meter;
mod recording;
mod selections;
mod tcp;
mod user_files;

pub use captures::{compressed, packets_file, pcap, pcapng};
pub use dpi::{dpi_datagram, dpi_inspector, dpi_quic, dpi_streams};
pub use export::export;
pub use expression::expression;
pub use filter::filter;
pub use flow_files::{ipfix_file, nfdump_file};
pub use frames::decode;
pub use meter::meter;
pub use recording::index;
pub use selections::{fields, query};
pub use tcp::tcp;
pub use user_files::{mmdb, networks, rules, tags};

/// A function that takes any octets.
pub type Target = fn(&[u8]);

/// All targets by name. The name is also that of the program in `fuzz` and of the folder of seeds.
pub const TARGETS: [(&str, Target); 23] = [
    ("compressed", compressed),
    ("decode", decode),
    ("dpi_datagram", dpi_datagram),
    ("dpi_inspector", dpi_inspector),
    ("dpi_quic", dpi_quic),
    ("dpi_streams", dpi_streams),
    ("export", export),
    ("expression", expression),
    ("fields", fields),
    ("filter", filter),
    ("index", index),
    ("ipfix_file", ipfix_file),
    ("meter", meter),
    ("mmdb", mmdb),
    ("networks", networks),
    ("nfdump_file", nfdump_file),
    ("packets_file", packets_file),
    ("pcap", pcap),
    ("pcapng", pcapng),
    ("query", query),
    ("rules", rules),
    ("tags", tags),
    ("tcp", tcp),
];
