//! Tests of the public interface of this crate.

mod common;
mod recorder;
