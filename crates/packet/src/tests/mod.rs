//! Claims about the whole decoder, and what the tests of the parts build their frames with.

pub(crate) mod build;
mod common;
mod frames;
mod oracle;
mod properties;
mod tunnels;
