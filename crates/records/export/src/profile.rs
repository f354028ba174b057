//! Which elements the records of IPFIX and NetFlow v9 have: those of basic or full templates, those
//! of a profile for a collector, or a list of elements.
//!
//! A profile is a list of differences from basic or full templates. docs/collectors.md has the
//! table of [`PROFILES`]; the test below writes it.

use tracing::warn;
use weir_fields::{Column, Element, Format, elements_of_records};

/// How the elements of a record follow from its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One direction per record. The elements of basic templates are in every record of their
    /// network (IPv4 and IPv6, each with ports or with ICMP, and layer 2), with 0 if they do not
    /// apply; other elements are in the record if they apply.
    Basic,
    /// The elements that apply. In a direction without TCP anomalies, those that follow from others
    /// are omitted.
    Full,
    /// The listed elements that apply.
    List,
}

/// Differences from basic or full templates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub name: &'static str,
    /// Basic or full.
    pub base: Layout,
    /// Elements that records have besides. Those that the format does not have are ignored.
    with: &'static [&'static str],
    without: &'static [&'static str],
    /// A sentence for docs/collectors.md.
    reason: &'static str,
}

/// The profiles by name. The first is the default over UDP.
pub(crate) const PROFILES: &[Profile] = &[
    Profile {
        name: "basic",
        base: Layout::Basic,
        with: &[],
        without: &[],
        reason: "The default: what most collectors read, whichever they are.",
    },
    Profile {
        name: "full",
        base: Layout::Full,
        with: &[],
        without: &[],
        reason: "Everything that Weir knows of a flow, both directions in one record of IPFIX.",
    },
    Profile {
        name: "nfdump",
        base: Layout::Basic,
        with: &["mplsTopLabelStackSection", "dot1qVlanId", "dot1qCustomerVlanId", "biflowDirection"],
        without: &["layer2OctetDeltaCount", "samplingInterval"],
        reason: "nfdump stores what is added (VLAN tags 243 and 245 from 1.7.5 on), and ignores what is left out.",
    },
    Profile {
        name: "pmacct",
        base: Layout::Basic,
        with: &["mplsTopLabelStackSection", "layer2SegmentId"],
        without: &[
            "flowStartSysUpTime",
            "flowEndSysUpTime",
            "layer2OctetDeltaCount",
            "minimumTTL",
            "maximumTTL",
            "icmpTypeCodeIPv4",
            "icmpTypeCodeIPv6",
            "flowEndReason",
        ],
        reason: "nfacctd has primitives for what is added, and none for what is left out. If NetFlow v9 has the \
                 SysUptime, nfacctd rounds times to seconds.",
    },
    Profile {
        name: "goflow2",
        base: Layout::Basic,
        with: &["flowStartNanoseconds", "flowEndNanoseconds", "mplsTopLabelStackSection"],
        without: &[
            "flowStartMilliseconds",
            "flowEndMilliseconds",
            "layer2OctetDeltaCount",
            "maximumTTL",
            "samplingInterval",
            "flowEndReason",
            "ethernetType",
            "applicationId",
        ],
        reason: "goflow2 keeps nanoseconds in IPFIX, reads only the SysUptime in NetFlow v9, and ignores the rest of \
                 what is left out. It takes the sampling rate from options records.",
    },
    Profile {
        name: "akvorado",
        base: Layout::Basic,
        with: &["mplsTopLabelStackSection"],
        without: &[
            "flowStartSysUpTime",
            "flowEndSysUpTime",
            "flowEndMilliseconds",
            "layer2OctetDeltaCount",
            "maximumTTL",
            "flowEndReason",
            "ethernetType",
        ],
        reason: "Akvorado ignores what is left out, except the SysUptime, which is less exact than milliseconds.",
    },
    Profile {
        name: "ntopng",
        base: Layout::Basic,
        with: &["RETRANSMITTED_IN_PKTS", "OOORDER_IN_PKTS"],
        without: &["layer2OctetDeltaCount", "icmpTypeCodeIPv6", "ethernetType"],
        reason: "ntopng shows what is added (in IPFIX). ntop's list of elements does not have what is left out.",
    },
    Profile {
        name: "logstash",
        base: Layout::Basic,
        with: &["dot1qCustomerVlanId", "tcpSynTotalCount", "tcpFinTotalCount", "tcpRstTotalCount", "biflowDirection"],
        without: &["flowStartSysUpTime", "flowEndSysUpTime"],
        reason: "The codec names what is added, with these lengths. It converts the SysUptime to a time 1 s late.",
    },
    Profile {
        name: "ipfixcol2",
        base: Layout::Full,
        with: &[],
        without: &[],
        reason: "No difference from full: ipfixcol2 reads bidirectional records and every element of IANA.",
    },
];

/// The choice of elements of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementChoice {
    pub profile: &'static Profile,
    /// If not empty, records have these elements only.
    pub list: Vec<&'static str>,
}

impl ElementChoice {
    pub const BASIC: Self = Self { profile: &PROFILES[0], list: Vec::new() };
    pub const FULL: Self = Self { profile: &PROFILES[1], list: Vec::new() };

    pub fn layout(&self) -> Layout {
        if self.list.is_empty() { self.profile.base } else { Layout::List }
    }

    /// The choice for records with these fields only; `None` if they have none of the elements.
    pub fn of_fields(&self, sink: &str, fields: &[&'static Column], format: Format) -> Option<Self> {
        let elements = elements_of_records(fields);
        let has = |name: &str| elements.iter().any(|element| element.name == name);
        let unknown: Vec<_> = self.list.iter().copied().filter(|name| !has(name)).collect();
        let listed = elements.iter().filter(|element| element.is_in(format) && self.has(element));
        let mut list: Vec<_> = listed.map(|element| element.name).collect();
        if list.is_empty() {
            return None;
        }
        if !unknown.is_empty() {
            warn!(sink, elements = unknown.join(","), "stored flows do not have these, so they are left out");
        }
        list.sort_unstable();
        list.dedup();
        Some(Self { list, ..self.clone() })
    }

    /// Whether records may have an element.
    pub fn has(&self, element: &Element) -> bool {
        let Profile { with, without, .. } = self.profile;
        match self.layout() {
            Layout::List => self.list.contains(&element.name),
            Layout::Basic => element.is_basic() && !without.contains(&element.name) || with.contains(&element.name),
            Layout::Full => element.is_full() && !without.contains(&element.name) || with.contains(&element.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;
    use weir_fields::{Format, elements};

    #[test]
    fn every_difference_of_a_profile_is_one() {
        for Profile { name, base, with, without, .. } in PROFILES {
            let is_in_base = |wanted: &&&str| {
                let mut same = elements().filter(|element| element.name == **wanted);
                same.any(|element| if *base == Layout::Full { element.is_full() } else { element.is_basic() })
            };
            assert_eq!(with.iter().find(is_in_base), None, "{name} has the element anyway");
            assert_eq!(without.iter().find(|name| !is_in_base(name)), None, "{name} has no such element");
            assert!(with.iter().all(|name| elements().any(|element| element.name == *name)), "{name}");
        }
    }

    /// Two variants of an element in one record would be the same element twice.
    #[test]
    fn a_list_has_every_element_once() {
        let variants: BTreeSet<&str> = elements()
            .filter(|element| {
                [Format::Ipfix, Format::Netflow9].into_iter().any(|format| {
                    elements().filter(|other| other.name == element.name && other.is_in(format)).count() > 1
                })
            })
            .map(|element| element.name)
            .collect();
        // By the length of the value, and by the network.
        assert_eq!(variants.into_iter().collect::<Vec<_>>(), ["icmpTypeCodeIPv4", "tcpControlBits"]);
    }

    #[test]
    fn the_table_of_docs_collectors_md_is_up_to_date() {
        const HEADING: &str = "| Profile | Base | Added | Left out | Reason |\n|---|---|---|---|---|";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/collectors.md");
        let row = |profile: &Profile| {
            let Profile { name, base, with, without, reason } = profile;
            let base = if *base == Layout::Full { "full" } else { "basic" };
            format!("| `{name}` | {base} | {} | {} | {reason} |", with.join(", "), without.join(", "))
        };
        let rows: Vec<String> = std::iter::once(HEADING.into()).chain(PROFILES[2..].iter().map(row)).collect();
        let table = rows.join("\n");
        let page = std::fs::read_to_string(&path).unwrap();
        if std::env::var_os("BLESS").is_some() {
            let paragraphs = page.split("\n\n");
            let blessed = paragraphs.map(|of| if of.starts_with(HEADING) { table.as_str() } else { of });
            std::fs::write(&path, blessed.collect::<Vec<_>>().join("\n\n")).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&table), "docs/collectors.md is stale: BLESS=1 cargo test -p weir-export profile");
    }
}
