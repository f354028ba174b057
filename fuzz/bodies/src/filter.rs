//! Filters: expressions of tcpdump's words, over any octets as any link type.

use super::frames::LINK_TYPES;
use weir_capture::{Frame, PacketFilter};
use weir_testkit::input::{Input, pick};

/// Words of an expression. None is a host name, so that no name server is asked.
const WORDS: [&str; 64] = [
    "and",
    "or",
    "not",
    "(",
    ")",
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "src or dst",
    "ether",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "sctp",
    "vlan",
    "mpls",
    "pppoes",
    "geneve",
    "proto",
    "protochain",
    "broadcast",
    "multicast",
    "less",
    "greater",
    "len",
    "[",
    "]",
    ":",
    "&",
    "|",
    "<<",
    ">>",
    "=",
    "!=",
    ">",
    "<",
    "+",
    "-",
    "*",
    "/",
    "%",
    "0",
    "1",
    "2",
    "6",
    "12",
    "80",
    "255",
    "1500",
    "65535",
    "0xffffffff",
    "0-1024",
    "10.0.0.1",
    "10.0.0.0/8",
    "2001:db8::1",
    "02:00:00:00:00:01",
    "inbound",
];
/// libpcap may take long for more words.
const MAX_WORDS: u8 = 24;

/// Compiles an expression and its negation, and filters frames. Invariants: nothing panics, and no
/// frame matches both.
///
/// # Panics
/// An invariant does not hold.
pub fn filter(input: &[u8]) {
    let mut input = Input(input);
    let count = input.octet() % MAX_WORDS;
    let words: Vec<&str> = (0..count).map(|_| pick(&WORDS, input.octet())).collect();
    let expression = words.join(" ");
    let Ok(mut filter) = PacketFilter::new(&expression) else { return };
    // The empty expression matches all frames and has no negation.
    let mut negation = PacketFilter::new(&format!("not ({expression})")).ok();
    while !input.is_empty() {
        let [link_type, length, beyond] = input.octets();
        let rest = input.rest();
        let (bytes, rest) = rest.split_at(rest.len().min(length.into()));
        input = Input(rest);
        let frame = Frame {
            bytes,
            time_ns: 0,
            wire_bytes: u32::from(beyond) * 16 + u32::from(length),
            link_type: pick(&LINK_TYPES, link_type),
            time_assumed: false,
            interface: 0,
        };
        let matches = filter.matches(&frame);
        assert_eq!(matches, filter.matches(&frame));
        let both = matches && negation.as_mut().is_some_and(|negation| negation.matches(&frame));
        assert!(!both, "{expression:?} and its negation match {bytes:02x?}");
    }
    filter.take_errors();
}
