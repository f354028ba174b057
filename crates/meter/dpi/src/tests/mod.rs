//! Tests of the public interface of this crate.

mod fixtures;
mod inspector;
mod readers;
mod signatures;
mod tls;
mod tshark;
