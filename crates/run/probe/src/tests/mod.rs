//! Tests of the public interface of this crate.

#[cfg(feature = "dpdk")]
mod dpdk;
mod faults;
