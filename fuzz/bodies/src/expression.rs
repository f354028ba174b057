//! Expressions that select records: any words, over any records.

use super::flows::flow;
use weir_query::Expression;
use weir_testkit::input::{Input, pick};

const WORDS: [&str; 80] = [
    "and",
    "or",
    "not",
    "&&",
    "||",
    "!",
    "(",
    ")",
    "{",
    "}",
    ",",
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "src",
    "dst",
    "src or dst",
    "src and dst",
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "protocol",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "ip",
    "ip6",
    "layer2",
    "any",
    "vlan",
    "mpls",
    "mac",
    "tunnel",
    "flags",
    "S",
    "SA",
    "bytes",
    "fwd_packets",
    "duration",
    "duration_ns",
    "start_time",
    "src_ip",
    "dst_port",
    "service_port",
    "server_ip",
    "retransmitted",
    "rtt",
    "bps",
    "fwd_packet_size_mean",
    "end_reason",
    "fwd_tcp_flags",
    "approximate",
    "community_id",
    "contains",
    "starts-with",
    "10.0.0.0/8",
    "10.0.0.1",
    "::/0",
    "2001:db8::1",
    "80",
    "443-65535",
    "1.5M",
    "2Ki",
    "10ms",
    "0x1f",
    "0",
    "18446744073709551615",
    "2026-11-20T12:00:00Z",
    "idle",
    "\"end\"",
    "02:00:00:00:00:01",
    "*",
];

/// Compiles an expression and applies it and its negation. Invariants: nothing panics, an expression
/// and its negation never agree, and an error marks a place.
///
/// # Panics
/// An invariant does not hold.
pub fn expression(input: &[u8]) {
    let mut input = Input(input);
    let count = input.octet();
    let text = if count & 0x80 == 0 {
        let words: Vec<&str> = (0..count % 32).map(|_| pick(&WORDS, input.octet())).collect();
        words.join(" ")
    } else {
        let rest = input.rest();
        let (text, records) = rest.split_at(rest.len().min(usize::from(count & 0x7f)));
        input = Input(records);
        String::from_utf8_lossy(text).into_owned()
    };
    let expression = match Expression::new(&text) {
        Ok(expression) => expression,
        Err(error) => {
            let error = error.to_string();
            assert!(error.lines().last().is_some_and(|mark| mark.trim_start().starts_with('^')), "{text:?}: {error}");
            return;
        }
    };
    // Deep nesting is refused, so the negation may be.
    let negation = Expression::new(&format!("not ({text})")).ok();
    for _ in 0..4 {
        let flow = flow(&mut input);
        let matches = expression.matches(&flow);
        assert!(negation.as_ref().is_none_or(|negation| negation.matches(&flow) != matches), "{text:?}: {flow:?}");
    }
}
