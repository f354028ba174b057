//! What tests of all crates share. No crate of the program depends on it.
//!
//! * [`frames`], [`pcap`]: Ethernet frames and capture files, built from addresses, ports and lengths.
//! * [`namespace`]: a network namespace for a test, with a veth pair and a sender of raw frames.
//! * [`binary`], [`records`]: runs of `weir` with their exit codes, flow records and ledgers.
//! * [`running`], [`served`]: a `weir` that is receiving, and one that serves the HTTP interface.
//! * [`collector`], [`decode`]: nfcapd, and a decoder of IPFIX and NetFlow v9 of its own.
//! * [`ipfix`]: IPFIX messages, also wrong ones.
//! * [`kafka`]: a cluster of Kafka, and a decoder of protobuf.
//! * [`terminal`]: a terminal with a program on it.
//! * [`tcpdump`]: tcpdump at an interface or a pipe.
//! * [`viewed`]: a `weir view` that serves the HTTP interface.
//! * [`mmdb`]: databases in the MaxMind DB format.
#![allow(missing_docs)] // The names of these functions are sentences in the tests.

pub mod binary;
pub mod collector;
pub mod decode;
pub mod frames;
pub mod host;
pub mod ipfix;
pub mod kafka;
pub mod mmdb;
pub mod namespace;
pub mod pcap;
pub mod records;
pub mod running;
pub mod served;
pub mod tcpdump;
pub mod terminal;
pub mod viewed;

pub use binary::{
    Background, assert_usage_errors, binary, command, failure, gunzip, is_installed, is_root, ledger_of, metered,
    permit_all_users, refused, signal, success, text_of, until_it_sleeps, unzstd, wait_for_handler_of_sigint,
    wait_for_thread_of_signals, weir, weir_with_closed_output, weir_with_input,
};
pub use collector::{Nfcapd, free_port};
pub use frames::{arp, datagram, ipv4, request_and_response, tcp, udp};
pub use pcap::{
    Pcap, SMALL_BYTES, SMALL_PACKETS, START, SavedCapture, capture_files, captures, captures_of_applications, small,
};
pub use records::{JsonOutput, number, packets, read_flows, read_ledger};
pub use tcpdump::Tcpdump;
