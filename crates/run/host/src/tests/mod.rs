//! Tests of the public interface of this crate.

mod machines;
