//! What to write in place of names of Wireshark's display filters, and in place of an address or a port without words.
//!
//! In: the word that is no field, and what follows it. Out: an expression that means the same, as text for an error.

use crate::lexer::{Operator, Token, TokenKind};
use std::net::IpAddr;

/// Names of Wireshark, and the words or the field here.
const NAMES: [(&str, &str); 22] = [
    ("ip.addr", "host"),
    ("ipv6.addr", "host"),
    ("ip.src", "src host"),
    ("ipv6.src", "src host"),
    ("ip.dst", "dst host"),
    ("ipv6.dst", "dst host"),
    ("ip.proto", "proto"),
    ("tcp.port", "tcp port"),
    ("tcp.srcport", "tcp src port"),
    ("tcp.dstport", "tcp dst port"),
    ("udp.port", "udp port"),
    ("udp.srcport", "udp src port"),
    ("udp.dstport", "udp dst port"),
    ("eth.addr", "mac"),
    ("eth.src", "src mac"),
    ("eth.dst", "dst mac"),
    ("vlan.id", "vlan"),
    ("http.host", "http_host"),
    ("http.response.code", "http_status"),
    ("dns.qry.name", "dns_name"),
    ("tls.handshake.extensions_server_name", "sni"),
    ("ssl.handshake.extensions_server_name", "sni"),
];

/// What to write in place of a word: `host 10.1.0.11`. `None` if it has no meaning elsewhere, either.
/// `next`: the two tokens behind it. `text`: the whole expression.
pub(crate) fn meant(word: &str, next: [Token<'_>; 2], text: &str) -> Option<String> {
    let Some((_, words)) = NAMES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) else {
        return of_literal(word);
    };
    let [operator, value] = next;
    // A field of one word is compared; the others are words before a value.
    let is_field = words.contains('_') || *words == "sni";
    let symbol = match operator.kind {
        TokenKind::Operator(operator) => Some(operator.symbol()),
        TokenKind::Word if operator.text == "contains" => Some("contains"),
        TokenKind::Word => Operator::of_word(operator.text).map(Operator::symbol),
        _ => None,
    };
    let has_value = symbol.is_some() && matches!(value.kind, TokenKind::Word | TokenKind::Quoted);
    let value = if has_value { &text[value.place()] } else { "VALUE" };
    Some(match symbol {
        // No words compare the size of a port.
        Some(other) if !is_field && !["=", "!="].contains(&other) => format!("{words} VALUE"),
        symbol if is_field => format!("{words} {} {value}", symbol.unwrap_or("=")),
        Some("!=") => format!("not {words} {value}"),
        _ => format!("{words} {value}"),
    })
}

/// An address, a prefix, a MAC address or a port without words.
fn of_literal(word: &str) -> Option<String> {
    let (address, prefix) = word.split_once('/').map_or((word, None), |(address, bits)| (address, Some(bits)));
    let is_mac =
        word.len() == 17 && word.split([':', '-']).filter(|part| u8::from_str_radix(part, 16).is_ok()).count() == 6;
    match () {
        () if is_mac => Some(format!("mac {word}")),
        () if address.parse::<IpAddr>().is_ok() => {
            Some(format!("{} {word}", if prefix.is_some() { "net" } else { "host" }))
        }
        () if word.parse::<u16>().is_ok() => Some(format!("port {word}")),
        () => None,
    }
}
