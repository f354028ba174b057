//! The page about fields, docs/fields.md, written from the list of fields.

use crate::element::{Element, Formats, NTOP_ENTERPRISE, OWN_ENTERPRISE};
use crate::fields::{EXTRA, FIELDS, Field};
use std::fmt::Write;

/// The whole of docs/fields.md.
pub fn fields_markdown() -> String {
    let mut page = String::from(HEAD);
    page.push_str("| Field | Type | Unit | Meaning | IPFIX | NetFlow v9 |\n|---|---|---|---|---|---|\n");
    for field in FIELDS {
        let name = match field.reverse {
            Some(reverse) => format!("`{}`, `{reverse}`", field.name),
            None => format!("`{}`", field.name),
        };
        row(&mut page, &name, field);
    }
    page.push_str(MIDDLE);
    page.push_str("| Made from | Type | Unit | Meaning | IPFIX | NetFlow v9 |\n|---|---|---|---|---|---|\n");
    for field in EXTRA {
        let name = field.name.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        row(&mut page, &name, field);
    }
    page.push_str(TAIL);
    page
}

/// The fields for a terminal: one line each, aligned.
pub fn fields_text() -> String {
    let mut text = format!("{:<18} {:<22} {:<8} {:<8} meaning\n", "field", "opposite direction", "type", "unit");
    for field in FIELDS {
        let reverse = field.reverse.unwrap_or("");
        writeln!(text, "{:<18} {reverse:<22} {:<8} {:<8} {}", field.name, field.kind, field.unit, field.sentence)
            .expect("a string takes every character");
    }
    text
}

fn row(page: &mut String, name: &str, field: &Field) {
    let list = |formats: &[Formats], text: fn(&Element) -> String| {
        let elements = field.elements.iter().filter(|element| formats.contains(&element.formats)).map(text);
        let mut elements: Vec<String> = elements.collect();
        // One element may be there in several lengths.
        elements.dedup();
        elements.join(", ")
    };
    let ipfix = list(&[Formats::Ipfix, Formats::Both], |element| {
        let number = match (element.own, element.ntop_reverse) {
            (None, None) => element.number.to_string(),
            (None, Some(reverse)) => format!("{NTOP_ENTERPRISE}/{}, reverse {reverse}", element.number),
            (Some(_), _) => format!("{OWN_ENTERPRISE}/{}", element.number),
        };
        format!("{} ({number}){}", element.name, if element.of_trouble { "\\*" } else { "" })
    });
    let netflow9 = list(&[Formats::Netflow9, Formats::Both], |element| element.number.to_string());
    let cells = [name, field.kind, field.unit, field.sentence, &ipfix, &netflow9];
    writeln!(page, "| {} |", cells.join(" | ")).expect("a string takes every character");
}

const HEAD: &str = "\
# Fields

Written from the list in crates/export/src/fields.rs (`BLESS=1 cargo test -p weir-export page` writes it again). What is counted,
and how, is defined in metering.md.

JSON has every field in every record; CSV has them as columns in this order, those with `rev_` behind all others. A field that
does not apply is null in JSON, empty in CSV, and not sent in IPFIX and NetFlow v9: ports of ICMP, control bits of UDP, VLAN of a frame without
a tag, everything `rev_` of a one-way flow but its `rev_packets`, `rev_bytes` and `rev_l2_bytes`, which are 0 in JSON and CSV.

The fields `tcp_...` but for `tcp_flags` are defined in tcp.md. JSON leaves them out of records of other protocols, and overflow records. In an element of `tcp_mss` and `tcp_window_scale` 0 is none.

Of a direction of TCP without trouble IPFIX leaves out what is 0, and what follows from other fields, so that the template of such a two-way flow has at most 60 fields: tshark decodes no record of a larger one, if not told otherwise
(`-o cflow.max_template_fields:0`). With a direction in trouble, a second tag, labels, a tunnel or a mark in `approximate` there may be more. Trouble is any of the elements marked \\* that is not 0, but for the first two below; whether there was trouble says
`tcpDegraded`, which is there (perhaps 0) in every direction in trouble and in no other. Overflow records have no element of `tcp_...` but `tcp_flags`. Absent in others without trouble means:

* `tcp_in_order_bytes`: all of `tcp_payload_bytes`. `packet_size_mean`: `bytes` / `packets`. Others marked \\*: 0.
* `tcp_unique_bytes`: all of `tcp_payload_bytes`. `tcp_acknowledgments`: `packets` less SYN, RST and `tcp_in_order_packets`.
* `tcp_syn_count`, `tcp_fin_count`: 1 if the bit is set in `tcp_flags`, else 0.
* `tcp_size_by_sequence`: all of `tcp_payload_bytes` if `tcp_duration_by_sequence_ns` is there; if not, there is none.

`rev_` is the way from the responder to the initiator. In IPFIX it is the same element under the enterprise number 29305 (RFC 5103), or
for our own elements the number + 16384. With `--uniflow`, and always in NetFlow, each direction is a record of its own with its own start and end.

Types: `time` is RFC 3339 in UTC with nanoseconds, `integer` is exact and unsigned up to 64 bits, `number` is a 64-bit floating point number,
`address` is IPv4 or IPv6 (RFC 5952), `mac` is six octets in hexadecimal, `word`, `words` and `text` are strings.

";

const MIDDLE: &str = "
Besides these, IPFIX and NetFlow v9 carry what collectors look for in another shape:

";

const TAIL: &str = "
The elements of enterprise 32473 are our own; IPFIX announces their names, types and units in type information records (RFC 5610).
See decisions/0010. Those of enterprise 35632 are ntop's, which has a number for each direction; they stop at the largest number their 32 bits hold. Times of NetFlow's uptime (21, 22) count from a boot one day before the first record; header times are those of the newest
record (crates/export/src/uptime.rs says what 32 bits cannot tell).

NetFlow v5 has addresses, ports (for ICMP the destination port is type * 256 + code), protocol, packets, bytes, the low 8 control bits, ToS,
interface (0 above 65535), start and end in ms. IPv6 and layer-2 flows are counted as lost (`not_ipv4`, `not_ip`). A direction beyond 32 bits of packets
or octets is split into several records whose sums are exact.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::columns;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;
    use weir_packet::Network;

    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_page_about_fields_is_up_to_date() {
        let path = root().join("docs/fields.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, fields_markdown()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(page == fields_markdown(), "docs/fields.md is stale: BLESS=1 cargo test -p weir-export page");
    }

    #[test]
    fn every_name_is_there_once() {
        let names: Vec<&str> = columns().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(
            FIELDS.iter().all(|field| field.reverse.is_none_or(|reverse| reverse == format!("rev_{}", field.name)))
        );
    }

    #[test]
    fn elements_are_those_of_the_registry() {
        let registry = std::fs::read_to_string(root().join("data/iana/ipfix-elements.csv")).unwrap();
        let registry: BTreeMap<u16, Vec<&str>> = registry
            .lines()
            .skip(1)
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|columns| (columns[0].parse().unwrap(), columns))
            .collect();
        let mut own = BTreeSet::new();
        for element in FIELDS.iter().chain(EXTRA).flat_map(|field| field.elements) {
            if element.own.is_some() {
                assert!(own.insert(element.number), "own number {} is there once", element.number);
                assert!(element.number < crate::element::OWN_REVERSE);
                continue;
            }
            if element.ntop_reverse.is_some() {
                continue;
            }
            let columns = &registry[&element.number];
            let (name, data_type, status) = (columns[1], columns[2], columns[5]);
            assert_eq!((name, data_type), (element.name, element.data_type.name()));
            // Collectors of NetFlow v9 know what IPFIX has other elements for by now.
            assert!(status == "current" || element.formats == Formats::Netflow9, "{name} is {status}");
        }
    }

    #[test]
    fn elements_of_one_network_name_it() {
        for element in FIELDS.iter().chain(EXTRA).flat_map(|field| field.elements) {
            let takes = |network| element.takes(&crate::value::Value::Unsigned(1), network, false);
            if element.name.starts_with("icmp") {
                assert_eq!(takes(Network::Ipv4), element.name.ends_with("IPv4"));
                assert_eq!(takes(Network::Ipv6), element.name.ends_with("IPv6"));
            }
        }
    }
}
