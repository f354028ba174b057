//! Options records: what a sink sends about its flow records as a whole (RFC 7011 sections 3.4.2
//! and 4, RFC 5476 section 6.5.2, RFC 3954 section 6.1).
//!
//! Input: the status of the metering process and the counters of the sink. Output: options
//! templates and options data records. All fields have a fixed length; texts are padded with octets
//! 0. NetFlow v9 gets the elements that have the same numbers in IPFIX, with the scopes that
//! NetFlow v9 has.
//!
//! Records of applications name the values of applicationId (RFC 6759 section 4).
//!
//! No record has the times of the first and last packet or flow that was lost: they are not known.

use crate::element::{application_id, cut};
use crate::ipfix_file::FIRST_TEMPLATE_ID;
use weir_dpi::Application;
use weir_fields::Format;
use weir_ledger::{RecordTotals, SinkCounters};

/// What a sink reports about the metering process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeteringStatus {
    /// 1 in this number of packets is metered at present; 0 and 1 are all.
    pub sampling_population: u32,
    /// Packets that were neither metered nor left out on purpose, see
    /// [`weir_ledger::TrafficCounters::ignored`].
    pub ignored_packets: u64,
    /// Their octets on the wire, as far as known.
    pub ignored_octets: u64,
    /// Numbers and names of interfaces, as far as known.
    pub interfaces: Vec<(u32, String)>,
    /// Records that were lost on the way to the sink.
    pub lost_before_sink: RecordTotals,
}

/// An options template of a sink.
struct OptionsTemplate {
    id: u16,
    scope: Scope,
    /// Number and length in octets of each element.
    elements: &'static [(u16, u16)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    ObservationDomain,
    ExportingProcess,
    Selector,
    Template,
    Interface,
    Application,
}

impl Scope {
    /// The element or, in NetFlow v9, the type of the scope, and its length in octets. `None` if
    /// the format does not have it.
    const fn field(self, format: Format) -> Option<(u16, u16)> {
        Some(match (format, self) {
            (Format::Ipfix, Self::ObservationDomain) => (149, 4),
            (Format::Ipfix, Self::ExportingProcess) => (144, 4),
            (Format::Ipfix, Self::Selector) => (302, 8),
            (Format::Ipfix, Self::Template) => (145, 2),
            (Format::Ipfix, Self::Interface) => (10, 4),
            (Format::Ipfix, Self::Application) => (APPLICATION_ID, 4),
            // System.
            (Format::Netflow9, Self::ObservationDomain | Self::ExportingProcess) => (1, 4),
            (Format::Netflow9, Self::Interface) => (2, 4),
            (Format::Netflow9, Self::Selector | Self::Template | Self::Application) => return None,
        })
    }
}

/// samplingInterval: what collectors for NetFlow v9 read, in IPFIX too. It is alone, because nfcapd
/// 1.7.1 reads no record that has samplingAlgorithm as well.
const SAMPLING: OptionsTemplate =
    OptionsTemplate { id: FIRST_TEMPLATE_ID + 1, scope: Scope::ObservationDomain, elements: &[(34, 4)] };
/// selectorAlgorithm, samplingSize and samplingPopulation (RFC 5476 section 6.5.2).
const SELECTOR: OptionsTemplate =
    OptionsTemplate { id: FIRST_TEMPLATE_ID + 2, scope: Scope::Selector, elements: &[(304, 2), (309, 4), (310, 4)] };
/// exportedMessageTotalCount, exportedFlowRecordTotalCount and exportedOctetTotalCount (RFC 7011
/// section 4.1).
const METERING_STATISTICS: OptionsTemplate = OptionsTemplate {
    id: FIRST_TEMPLATE_ID + 3,
    scope: Scope::ObservationDomain,
    elements: &[(41, 8), (42, 8), (40, 8)],
};
/// ignoredPacketTotalCount and ignoredOctetTotalCount (RFC 7011 section 4.2).
const METERING_RELIABILITY: OptionsTemplate =
    OptionsTemplate { id: FIRST_TEMPLATE_ID + 4, scope: Scope::ObservationDomain, elements: &[(164, 8), (165, 8)] };
/// notSentFlowTotalCount, notSentPacketTotalCount and notSentOctetTotalCount (RFC 7011 section
/// 4.3).
const EXPORTING_RELIABILITY: OptionsTemplate = OptionsTemplate {
    id: FIRST_TEMPLATE_ID + 5,
    scope: Scope::ExportingProcess,
    elements: &[(166, 8), (167, 8), (168, 8)],
};
/// flowKeyIndicator (RFC 7011 section 4.4).
const FLOW_KEYS: OptionsTemplate =
    OptionsTemplate { id: FIRST_TEMPLATE_ID + 6, scope: Scope::Template, elements: &[(173, 8)] };

/// interfaceName.
const INTERFACE: OptionsTemplate =
    OptionsTemplate { id: FIRST_TEMPLATE_ID + 7, scope: Scope::Interface, elements: &[(82, INTERFACE_NAME_OCTETS)] };
/// A longer name is cut.
const INTERFACE_NAME_OCTETS: u16 = 32;

/// applicationName (RFC 6759 section 4.3). Texts of any length keep the records of all applications
/// short, so that they fit into the message of the other options records.
const APPLICATION: OptionsTemplate = OptionsTemplate {
    id: FIRST_TEMPLATE_ID + 8,
    scope: Scope::Application,
    elements: &[(96, APPLICATION_NAME_OCTETS)],
};
/// The same in NetFlow v9, which has neither such a scope nor texts of any length, with
/// applicationDescription. Routers use the scope System.
const APPLICATION_NETFLOW9: OptionsTemplate = OptionsTemplate {
    id: APPLICATION.id,
    scope: Scope::ObservationDomain,
    elements: &[(APPLICATION_ID, 4), (96, NETFLOW9_NAME_OCTETS), (94, APPLICATION_DESCRIPTION_OCTETS)],
};
const APPLICATION_ID: u16 = 95;
/// A fixed length, because python-netflow 0.12 reads no set with texts of any length.
const APPLICATION_NAME_OCTETS: u16 = 16;
/// As routers have it.
const NETFLOW9_NAME_OCTETS: u16 = 24;
const APPLICATION_DESCRIPTION_OCTETS: u16 = 64;

const ALL: [OptionsTemplate; 7] =
    [SAMPLING, SELECTOR, METERING_STATISTICS, METERING_RELIABILITY, EXPORTING_RELIABILITY, FLOW_KEYS, INTERFACE];

/// Random n-out-of-N sampling.
const SELECTOR_ALGORITHM: u64 = 3;
/// There is one selector.
const SELECTOR_ID: u64 = 1;

/// The options template records of a format, with those of `applications` if there are any.
pub(crate) fn options_templates(format: Format, applications: bool) -> impl Iterator<Item = Vec<u8>> {
    let of_applications = applications.then(|| application_template(format));
    ALL.iter().chain(of_applications).filter_map(move |template| template.record(format))
}

const fn application_template(format: Format) -> &'static OptionsTemplate {
    match format {
        Format::Ipfix => &APPLICATION,
        Format::Netflow9 => &APPLICATION_NETFLOW9,
    }
}

/// The records of all applications.
pub(crate) fn application_records(format: Format, domain: u32) -> impl Iterator<Item = (u16, Vec<u8>)> {
    Application::ALL.iter().filter_map(move |&application| {
        let id = application_id(application as u8);
        if format == Format::Ipfix {
            let (set, mut record) = APPLICATION.data(format, id, &[])?;
            append_padded(application.name(), APPLICATION_NAME_OCTETS, &mut record);
            return Some((set, record));
        }
        let (set, mut record) = APPLICATION_NETFLOW9.data(format, domain.into(), &[id])?;
        append_padded(application.name(), NETFLOW9_NAME_OCTETS, &mut record);
        append_padded(application.description(), APPLICATION_DESCRIPTION_OCTETS, &mut record);
        Some((set, record))
    })
}

/// The set ID of each options data record, and the record. The counters do not include the message
/// that the records will be in (RFC 7011 section 4.1).
pub(crate) fn options_records(
    format: Format,
    domain: u32,
    status: &MeteringStatus,
    counters: &SinkCounters,
) -> Vec<(u16, Vec<u8>)> {
    let (domain, process) = (u64::from(domain), u64::from(std::process::id()));
    let process = if format == Format::Ipfix { process } else { domain };
    let population = status.sampling_population.max(1).into();
    let mut not_sent = status.lost_before_sink;
    counters.lost.values().for_each(|&lost| not_sent.merge(lost));
    let exported = [counters.messages, counters.wire_records, counters.octets];
    let records = [
        SAMPLING.data(format, domain, &[population]),
        SELECTOR.data(format, SELECTOR_ID, &[SELECTOR_ALGORITHM, 1, population]),
        METERING_STATISTICS.data(format, domain, &exported),
        METERING_RELIABILITY.data(format, domain, &[status.ignored_packets, status.ignored_octets]),
        EXPORTING_RELIABILITY.data(format, process, &[not_sent.flows, not_sent.packets, not_sent.bytes]),
    ];
    let interfaces = status.interfaces.iter().map(|(number, name)| interface_record(format, *number, name));
    records.into_iter().chain(interfaces).flatten().collect()
}

/// The record of the flow keys of a template; `None` in a format without such records.
pub(crate) fn flow_keys_record(format: Format, template_id: u16, flow_keys: u64) -> Option<(u16, Vec<u8>)> {
    FLOW_KEYS.data(format, template_id.into(), &[flow_keys])
}

fn interface_record(format: Format, number: u32, name: &str) -> Option<(u16, Vec<u8>)> {
    let (set, mut record) = INTERFACE.data(format, number.into(), &[])?;
    append_padded(name.split('\0').next().unwrap_or_default(), INTERFACE_NAME_OCTETS, &mut record);
    Some((set, record))
}

/// Appends a text in a fixed number of octets: cut after a whole character, or padded with octets
/// 0.
fn append_padded(text: &str, octets: u16, record: &mut Vec<u8>) {
    let end = record.len() + usize::from(octets);
    record.extend(cut(text, octets.into()).as_bytes());
    record.resize(end, 0);
}

impl OptionsTemplate {
    /// The options template record: ID and the counts of fields or, in NetFlow v9, of octets, then
    /// the fields.
    fn record(&self, format: Format) -> Option<Vec<u8>> {
        let scope = self.scope.field(format)?;
        let (elements, scopes) = (self.elements.len() as u16, 1);
        let header = match format {
            Format::Ipfix => [self.id, scopes + elements, scopes],
            Format::Netflow9 => [self.id, 4 * scopes, 4 * elements],
        };
        let fields = [scope].into_iter().chain(self.elements.iter().copied());
        let fields = fields.flat_map(|(number, octets)| [number, octets]);
        Some(header.into_iter().chain(fields).flat_map(u16::to_be_bytes).collect())
    }

    /// A data record and its set ID.
    fn data(&self, format: Format, scope: u64, values: &[u64]) -> Option<(u16, Vec<u8>)> {
        let (_, scope_octets) = self.scope.field(format)?;
        let octets = [scope_octets].into_iter().chain(self.elements.iter().map(|&(_, octets)| octets));
        let values = [scope].into_iter().chain(values.iter().copied());
        let fields = octets
            .zip(values)
            .flat_map(|(octets, value)| value.to_be_bytes().into_iter().skip(8 - usize::from(octets)));
        Some((self.id, fields.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_descriptions_of_applications_fit() {
        for application in Application::ALL {
            assert!(application.name().len() <= APPLICATION_NAME_OCTETS.into(), "{application:?}");
            assert!(application.description().len() <= APPLICATION_DESCRIPTION_OCTETS.into(), "{application:?}");
        }
    }
}
