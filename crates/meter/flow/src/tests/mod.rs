//! Tests of the public interface of this crate.

mod limits;
mod meter;
mod migration;
