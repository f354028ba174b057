//! Placeholder while the binary is being built.
fn main() {}
