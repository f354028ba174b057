//! Tests of the public interface of this crate.

mod expressions;
mod records;
mod views;
