//! Tests of the whole decoder, and the frames that the tests of the parsers share.

mod etherparse;
mod fast_path;
pub(crate) mod frames;
mod mac_addresses;
mod properties;
mod strategies;
mod tunnels;
