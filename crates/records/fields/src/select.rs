//! A selection of columns, as a user writes it: names, words, patterns and profiles.

use crate::column::Column;
use crate::field::columns_of_word;
use crate::selection::{FIELD_PROFILES, UnknownColumn, column, columns};
use std::collections::HashSet;

/// Why a selection of columns is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFields {
    /// A name is neither that of a column nor that of a profile.
    #[error(transparent)]
    Unknown(#[from] UnknownColumn),
    /// A pattern matches no column.
    #[error("no field matches {0:?} (names: weir fields)")]
    NoMatch(String),
    /// Of this name, pattern or profile, transactions have nothing.
    #[error("a transaction has no {0}; see weir help transactions for the fields that it has")]
    NotOfTransactions(String),
}

/// The columns of a selection: names, words of expressions (`host` is `src_ip` and `dst_ip`), patterns with `*` for any
/// text, and the profiles `basic`, `layer2`, `tcp`, `places`, `applications`, `store` and `all`, separated by commas,
/// without regard to case.
/// They are in the order of the selection, each once.
///
/// # Errors
/// A name is unknown, or a pattern matches no column.
pub fn select_columns(selection: &str) -> Result<Vec<&'static Column>, InvalidFields> {
    let mut selected: Vec<&'static Column> = Vec::new();
    let mut names = HashSet::new();
    for item in selection.split(',') {
        let lower = item.to_ascii_lowercase();
        let of_item: Vec<&'static Column> =
            if let Some((_, has)) = FIELD_PROFILES.iter().find(|(name, _)| *name == lower) {
                columns().iter().filter(|column| has(column)).collect()
            } else if item.contains('*') {
                columns().iter().filter(|column| matches(&lower, column.name)).collect()
            } else {
                match (column(&lower), columns_of_word(&lower)) {
                    (Ok(column), _) => vec![column],
                    (Err(_), Some(of_word)) => of_word,
                    (Err(unknown), None) => return Err(UnknownColumn { name: item.into(), ..unknown }.into()),
                }
            };
        if of_item.is_empty() {
            return Err(InvalidFields::NoMatch(item.into()));
        }
        for column in of_item {
            if names.insert(column.name) {
                selected.push(column);
            }
        }
    }
    Ok(selected)
}

/// Whether a name matches a pattern, in which `*` stands for any text. The work is at most that of one search
/// for each `*`: patterns come from the HTTP interface, too.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (parts, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut middle) = name.strip_prefix(start).and_then(|name| name.strip_suffix(end)) else { return false };
    // The first place of each part leaves most of the name to the others.
    parts.split('*').all(|part| match middle.find(part) {
        Some(at) => {
            middle = &middle[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::tests::BASIC;

    /// The columns of the profile `places`.
    const PLACES: [&str; 18] = [
        "interface_name",
        "src_network",
        "dst_network",
        "src_site",
        "dst_site",
        "src_role",
        "dst_role",
        "src_local",
        "dst_local",
        "src_country",
        "dst_country",
        "src_as",
        "dst_as",
        "src_as_org",
        "dst_as_org",
        "tags",
        "src_tags",
        "dst_tags",
    ];

    fn names(selection: &str) -> Vec<&'static str> {
        select_columns(selection).unwrap().iter().map(|column| column.name).collect()
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for pattern in
            ["*", "**", "abcabc", "abc*", "*abc", "a*c", "*b*b*", "*bca*", "a**c", "abc*abc", "*a*b*c*a*b*c*"]
        {
            assert!(matches(pattern, "abcabc"), "{pattern}");
        }
        for pattern in ["", "abc", "*bb*", "abca*cabc", "abcabc*c", "*b*b*b*", "b*", "*b", "abc*d*abc"] {
            assert!(!matches(pattern, "abcabc"), "{pattern}");
        }
        // As long as a request may be. A recursive search would not end, or overflow the stack.
        assert!(matches(&"*".repeat(16_000), "fwd_packets"));
        assert!(!matches(&format!("{}zz", "*".repeat(16_000)), "fwd_packets"));
        assert!(!matches(&format!("{}zz", "*s".repeat(8_000)), "fwd_packets"));
    }

    #[test]
    fn a_selection_has_profiles_names_and_patterns_in_its_order() {
        assert_eq!(names("basic"), BASIC, "the profile has the order of the table");
        assert_eq!(names("all").len(), columns().len());
        assert_eq!(names("places"), PLACES);
        assert_eq!(
            names("bytes,*_ip,src_ip,bytes"),
            [
                "bytes",
                "src_ip",
                "dst_ip",
                "server_ip",
                "client_ip",
                "fwd_outer_src_ip",
                "rev_outer_src_ip",
                "fwd_outer_dst_ip",
                "rev_outer_dst_ip"
            ]
        );
        assert_eq!(names("*rtt*")[..2], ["fwd_tcp_handshake_rtt_ns", "rev_tcp_handshake_rtt_ns"]);
        assert!(names("tcp").len() > 80 && names("tcp")[..26] == BASIC[..26] && names("tcp").contains(&"rev_tcp_mss"));
        assert_eq!(names("basic,*vlan_id").len(), 31);
        assert_eq!(names("fwd_*").len(), names("rev_*").len());
    }

    #[test]
    fn a_word_selects_the_columns_of_both_sides_and_directions() {
        for (word, expected) in [
            ("host", "src_ip dst_ip"),
            ("port", "src_port dst_port"),
            ("flags", "fwd_tcp_flags rev_tcp_flags"),
            ("vlan", "fwd_vlan_id rev_vlan_id"),
            ("inner_vlan", "fwd_inner_vlan_id rev_inner_vlan_id"),
            ("mpls", "fwd_mpls_label rev_mpls_label"),
            ("tunnel", "fwd_tunnel_type rev_tunnel_type"),
            ("icmp_type", "fwd_icmp_type rev_icmp_type"),
            ("mac", "src_mac dst_mac"),
            ("as", "src_as dst_as"),
            ("country", "src_country dst_country"),
            ("duration", "duration_ns"),
            ("source,dst,proto,host", "src_ip dst_ip protocol"),
            ("Host", "src_ip dst_ip"),
        ] {
            assert_eq!(names(word).join(" "), expected, "{word}");
        }
        for (word, _) in crate::words() {
            assert!(!names(word.name).is_empty());
        }
    }

    #[test]
    fn a_selection_that_does_not_exist_is_refused() {
        for (selection, expected) in [
            ("start", "there is no field \"start\" (did you mean start_time?)"),
            ("basic,rev_byte", "there is no field \"rev_byte\" (did you mean rev_bytes?)"),
            ("basics", "there is no field \"basics\" (did you mean basic?)"),
            ("", "there is no field \"\" (names: weir fields)"),
            ("src_ip,", "there is no field \"\" (names: weir fields)"),
            ("basic,*_mos", "no field matches \"*_mos\" (names: weir fields)"),
        ] {
            assert_eq!(select_columns(selection).unwrap_err().to_string(), expected);
        }
    }
}
