//! The meter agrees with the reference meter and with the figures of other tools.

mod af_packet;
mod agreement;
mod batches;
mod compare;
mod detail;
mod hostile;
mod migration;
mod packets;
mod tcp;
mod tcp_rules;
mod tcptrace;
mod truth;
mod tshark;
mod tshark_times;
