//! Tests of the public interface of this crate.

mod interface;
mod pipe;
mod queue;
