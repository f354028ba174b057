//! Packet inspection: recognises the application of a flow from the first octets of its payload,
//! and extracts a few fields (the server name of TLS, the host of HTTP, the name that DNS was
//! asked for).
//!
//! ```text
//! payload of a packet -> Inspector: state of the flow, reassembly -> a reader per protocol -> Findings
//! ```
//! In: the payload of the first packets of a flow, in their order. Out: [`Findings`]. All input is
//! hostile: a reader looks at bounded octets, allocates no more than these beyond [`Findings`], and
//! never panics. A reader claims nothing that the octets do not show.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_dpi;

mod application;
mod ber;
mod bittorrent;
mod dns;
mod dtls;
mod findings;
mod greeting;
mod hpack;
mod http1;
mod http2;
mod inspector;
mod kerberos;
mod ldap;
mod learned;
mod lines;
mod message_stream;
mod mqtt;
mod mysql;
mod ntp;
mod openvpn;
mod ports;
mod postgresql;
pub mod quic;
mod rdp;
mod readers;
mod reassembly;
mod redis;
mod sip;
mod smb;
mod snmp;
mod ssh;
mod start;
mod streams;
mod stun;
#[cfg(test)]
mod tests;
mod tls;
mod transaction_log;
mod transactions;
mod wireguard;

pub use application::{Application, Confidence};
pub use dns::addresses_of_response;
pub use findings::{Fact, Findings, MAX_FINDINGS_OCTETS, MAX_TEXT_OCTETS, Note, Notes, is_unprintable, printable};
pub use inspector::{FlowInspection, InspectionSettings, Inspector, Payload};
pub use readers::{DATAGRAM_READERS, DatagramReader, DatagramState, STREAM_READERS, StreamReader};
pub use streams::{Datagram, Streams, Verdict};
pub use tls::{ja3, ja3s, ja4};
pub use transaction_log::{Parties, Transaction};
pub use transactions::MessageCounts;
