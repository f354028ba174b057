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
mod flows;
mod frames;
mod meter;
mod tcp;

pub use captures::{compressed, packets_file, pcap, pcapng};
pub use dpi::{dpi_datagram, dpi_inspector, dpi_quic, dpi_streams};
pub use export::export;
pub use expression::expression;
pub use filter::filter;
pub use frames::decode;
pub use meter::meter;
pub use tcp::tcp;

/// A function that takes any octets.
pub type Target = fn(&[u8]);

/// All targets by name. The name is also that of the program in `fuzz` and of the folder of seeds.
pub const TARGETS: [(&str, Target); 14] = [
    ("compressed", compressed),
    ("decode", decode),
    ("dpi_datagram", dpi_datagram),
    ("dpi_inspector", dpi_inspector),
    ("dpi_quic", dpi_quic),
    ("dpi_streams", dpi_streams),
    ("export", export),
    ("expression", expression),
    ("filter", filter),
    ("meter", meter),
    ("packets_file", packets_file),
    ("pcap", pcap),
    ("pcapng", pcapng),
    ("tcp", tcp),
];

/// Reads values from the front of an input; zeros after its end.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn octets<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut octets = [0; N];
        octets[..front.len()].copy_from_slice(front);
        octets
    }

    pub(crate) fn octet(&mut self) -> u8 {
        let [octet] = self.octets();
        octet
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.octets())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.octets())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.octets())
    }

    /// The next octets, or all that are left.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The value at an index, modulo the length of the list.
pub(crate) fn pick<T: Copy>(list: &[T], index: impl Into<usize>) -> T {
    list[index.into() % list.len()]
}
