//! Sends frames out of interfaces and ports.

mod dpdk;
mod socket;

pub use dpdk::open_dpdk_senders;
pub use socket::FrameSender;
