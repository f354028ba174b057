//! Generates docs/fields.md and the output of `weir fields` from the list of fields.

use crate::element::{Element, Formats, NTOP_ENTERPRISE, WEIR_ENTERPRISE};
use crate::fields::{FIELDS, Field, TEMPLATE_FIELDS};
use std::fmt::Write;

/// The text of docs/fields.md.
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
    page.push_str("| Field | Type | Unit | Meaning | IPFIX | NetFlow v9 |\n|---|---|---|---|---|---|\n");
    for field in TEMPLATE_FIELDS {
        let name = field.name.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        row(&mut page, &name, field);
    }
    page.push_str(TAIL);
    page
}

/// The fields for a terminal, one aligned line each.
pub fn fields_text() -> String {
    let mut text = format!("{:<18} {:<22} {:<8} {:<8} meaning\n", "field", "reverse direction", "type", "unit");
    for field in FIELDS {
        let reverse = field.reverse.unwrap_or("");
        writeln!(
            text,
            "{:<18} {reverse:<22} {:<8} {:<8} {}",
            field.name, field.type_name, field.unit, field.description
        )
        .expect("a string takes every character");
    }
    text
}

fn row(page: &mut String, name: &str, field: &Field) {
    let list = |formats: &[Formats], text: fn(&Element) -> String| {
        let elements = field.elements.iter().filter(|element| formats.contains(&element.formats)).map(text);
        let mut elements: Vec<String> = elements.collect();
        // One element may occur with several lengths.
        elements.dedup();
        elements.join(", ")
    };
    let ipfix = list(&[Formats::Ipfix, Formats::Both], |element| {
        let number = match (element.weir, element.ntop_reverse) {
            (None, None) => element.number.to_string(),
            (None, Some(reverse)) => format!("{NTOP_ENTERPRISE}/{}, reverse {reverse}", element.number),
            (Some(_), _) => format!("{WEIR_ENTERPRISE}/{}", element.number),
        };
        format!("{} ({number}){}", element.name, if element.with_anomalies_only { "\\*" } else { "" })
    });
    let netflow9 = list(&[Formats::Netflow9, Formats::Both], |element| element.number.to_string());
    let cells = [name, field.type_name, field.unit, field.description, &ipfix, &netflow9];
    writeln!(page, "| {} |", cells.join(" | ")).expect("a string takes every character");
}

const HEAD: &str = "\
# Fields of flow records

This page is generated from the list in `crates/export/src/fields.rs`. To generate it again, run
`BLESS=1 cargo test -p weir-export fields_page`. [metering.md](metering.md) defines what is
counted and how, [tcp.md](tcp.md) defines the fields `tcp_...` except `tcp_flags`.

```console
$ weir fields                                    # the names and meanings, in the terminal
$ weir read capture.pcap -o json:- | head -1     # a record with all of its fields
```

## Formats

* **JSON** has one object per record, with every field. A field that does not apply is null. The
  TCP fields are left out of records of other protocols and of overflow records.
* **CSV** has the fields as columns in the order of the table below, then the fields of the
  reverse direction. A field that does not apply is empty.
* **IPFIX and NetFlow v9** have templates with the elements that apply to the flow.

Fields that do not apply are, for example, the ports of ICMP, the TCP control bits of UDP, the
VLAN of an untagged frame, and all fields `rev_...` of a unidirectional flow. Its `rev_packets`,
`rev_bytes` and `rev_l2_bytes` are 0 in JSON and CSV.

The prefix `rev_` marks the reverse direction, from the responder to the initiator. In IPFIX it
is the same element with enterprise number 29305 (RFC 5103); for the elements of Weir it is the
element number plus 16384. With `--uniflow`, and always in NetFlow, each direction is a record
of its own with its own start and end.

Types: `time` is RFC 3339 in UTC with nanoseconds. `integer` is unsigned and exact up to 64
bits. `number` is a 64-bit floating point number. `address` is IPv4 or IPv6 (RFC 5952). `mac` is
six octets in hexadecimal. `word`, `words` and `text` are strings.

## TCP elements in IPFIX

tshark does not decode records with more than 60 fields, unless it runs with
`-o cflow.max_template_fields:0`. Therefore IPFIX leaves out the TCP elements of a direction without
TCP anomalies that are 0 or follow from other fields. The record of such a bidirectional flow
has at most 60 fields. A direction with anomalies, a second VLAN tag, labels, a tunnel or a word
in `approximate` adds fields.

A direction has TCP anomalies if any of the elements marked \\*, except `packet_size_mean` and
`tcp_in_order_bytes`, is not 0. The element `tcpDegraded` is in every direction with anomalies,
where it may be 0, and in no other. In a direction without anomalies, an element that is left
out has this value:

| Element of | Value |
|---|---|
| `packet_size_mean` | `bytes` / `packets` |
| `tcp_in_order_bytes`, `tcp_unique_bytes` | `tcp_payload_bytes` |
| `tcp_acknowledgments` | `packets` minus SYN, RST and `tcp_in_order_packets` |
| `tcp_syn_count`, `tcp_fin_count` | 1 if the bit is set in `tcp_flags`, otherwise 0 |
| `tcp_size_by_sequence` | `tcp_payload_bytes` if `tcp_duration_by_sequence_ns` is present; otherwise it does not apply |
| all others marked \\* | 0 |

In an element of `tcp_mss` or `tcp_window_scale`, 0 means that the SYN had no such option.
Overflow records have no TCP element except that of `tcp_flags`.

## The fields

";

const MIDDLE: &str = "
IPFIX and NetFlow v9 also carry some of these fields in other encodings that collectors expect:

";

const TAIL: &str = "
The elements of enterprise 32473 are those of Weir. IPFIX announces their names, types and units
in type information records (RFC 5610); [decision 10](decisions/0010-own-elements.md) gives the
reasons. The elements of enterprise 35632 are those of ntop, which has one number for each
direction. They have 32 bits: a larger count is sent as the largest number.

SysUptime of NetFlow (elements 21 and 22) counts from a boot one day before the first record.
The time in a message header is the end of the latest record. `crates/export/src/uptime.rs`
describes the limits of 32 bits.

## NetFlow v5

NetFlow v5 has addresses, ports (for ICMP the destination port is type * 256 + code), protocol,
packets, bytes, the low 8 TCP control bits, type of service, interface (0 above 65535), start
and end in ms. IPv6 and layer-2 flows are counted as lost (`not_ipv4`, `not_ip`). A direction
with more packets or octets than 32 bits hold is split into several records whose sums are
exact.

## Not supported

Other NetFlow v5 fields (next hop, output interface, AS numbers, prefix lengths) are 0: a probe
does not know them. IPFIX and NetFlow over TCP, TLS or SCTP are not supported.
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
    fn docs_fields_md_is_up_to_date() {
        let path = root().join("docs/fields.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, fields_markdown()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(page == fields_markdown(), "docs/fields.md is stale: BLESS=1 cargo test -p weir-export fields_page");
    }

    #[test]
    fn every_name_is_unique() {
        let names: Vec<&str> = columns().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(
            FIELDS.iter().all(|field| field.reverse.is_none_or(|reverse| reverse == format!("rev_{}", field.name)))
        );
    }

    #[test]
    fn iana_elements_match_the_registry() {
        let registry = std::fs::read_to_string(root().join("data/iana/ipfix-elements.csv")).unwrap();
        let registry: BTreeMap<u16, Vec<&str>> = registry
            .lines()
            .skip(1)
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|columns| (columns[0].parse().unwrap(), columns))
            .collect();
        let mut weir = BTreeSet::new();
        for element in FIELDS.iter().chain(TEMPLATE_FIELDS).flat_map(|field| field.elements) {
            if element.weir.is_some() {
                assert!(weir.insert(element.number), "number {} is unique", element.number);
                assert!(element.number < crate::element::WEIR_REVERSE_BIT);
                continue;
            }
            if element.ntop_reverse.is_some() {
                continue;
            }
            let columns = &registry[&element.number];
            let (name, data_type, status) = (columns[1], columns[2], columns[5]);
            assert_eq!((name, data_type), (element.name, element.data_type.name()));
            // NetFlow v9 uses some elements that IPFIX has replaced.
            assert!(status == "current" || element.formats == Formats::Netflow9, "{name} is {status}");
        }
    }

    #[test]
    fn elements_of_one_network_are_restricted_to_it() {
        for element in FIELDS.iter().chain(TEMPLATE_FIELDS).flat_map(|field| field.elements) {
            let applies = |network| element.applies(&crate::field_value::FieldValue::Unsigned(1), network, false);
            if element.name.starts_with("icmp") {
                assert_eq!(applies(Network::Ipv4), element.name.ends_with("IPv4"));
                assert_eq!(applies(Network::Ipv6), element.name.ends_with("IPv6"));
            }
        }
    }
}
