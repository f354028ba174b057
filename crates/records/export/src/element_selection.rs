//! The elements of a sink by their own names and by the names of fields.

use crate::sink::InvalidSink;
use weir_fields::{Format, InvalidFields, UnknownColumn, elements, elements_of, select_columns};
use weir_text::most_similar;

/// The names of the elements of a selection: names of elements, and fields as in
/// [`select_columns`], each of which stands for its elements in this format.
///
/// # Errors
/// A name is neither that of a field nor that of an element, or the format has no element for the
/// whole selection.
pub(crate) fn select_elements(selection: &str, format: Format) -> Result<Vec<&'static str>, InvalidSink> {
    let mut names = Vec::new();
    for item in selection.split(',') {
        if let Some(element) = elements().find(|element| element.name == item) {
            if !elements().any(|other| other.name == item && other.is_in(format)) {
                return Err(InvalidSink::NotInFormat { format: format.name(), name: element.name });
            }
            names.push(element.name);
            continue;
        }
        let columns = select_columns(item).map_err(|invalid| match invalid {
            InvalidFields::Unknown(UnknownColumn { name, similar }) => {
                let all = similar.into_iter().chain(elements().map(|element| element.name));
                InvalidSink::Field { similar: most_similar(&name, all), name }
            }
            other => other.into(),
        })?;
        names.extend(
            columns.into_iter().flat_map(elements_of).filter(|element| element.is_in(format)).map(|of| of.name),
        );
    }
    if names.is_empty() {
        return Err(InvalidSink::NoElement { format: format.name(), selection: selection.into() });
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::{Column, columns};

    #[test]
    fn a_field_selects_its_elements() {
        let ipfix = |selection| select_elements(selection, Format::Ipfix).unwrap();
        assert_eq!(ipfix("packets,rev_packets,packetDeltaCount"), ["packetDeltaCount"]);
        assert_eq!(ipfix("src_ip,protocol"), ["protocolIdentifier", "sourceIPv4Address", "sourceIPv6Address"]);
        assert_eq!(ipfix("fwd_tcp_flags"), ["tcpControlBits"]);
        assert_eq!(ipfix("duration_ns,community_id"), ["communityId", "flowDurationNanoseconds"]);
        assert_eq!(ipfix("application_by,sni"), ["TLS_SERVER_NAME", "applicationConfidence"]);
        assert_eq!(
            ipfix("server_ip"),
            ["destinationIPv4Address", "destinationIPv6Address", "sourceIPv4Address", "sourceIPv6Address"]
        );
        assert_eq!(ipfix("rtt"), ["tcpHandshakeRoundTrip"]);
        assert_eq!(ipfix("start_time"), ["flowStartMilliseconds", "flowStartNanoseconds"]);
        let netflow9 = |selection| select_elements(selection, Format::Netflow9);
        assert_eq!(netflow9("start_time,*_mss"), Ok(vec!["flowStartMilliseconds", "flowStartSysUpTime"]));
        assert_eq!(netflow9("applicationId,sni"), Ok(vec!["applicationId"]));
        let message = |selection| netflow9(selection).unwrap_err().to_string();
        assert_eq!(
            message("*_mss,duration_ns"),
            "NetFlow v9 has no element for \"*_mss,duration_ns\" (weir help fields)"
        );
        assert_eq!(message("flowStartNanoseconds"), "NetFlow v9 has no element flowStartNanoseconds");
        assert_eq!(message("src_op"), "there is no field or element \"src_op\" (did you mean src_ip?)");
        assert_eq!(message("x*"), "no field matches \"x*\" (names: weir fields)");
    }

    #[test]
    fn every_column_has_an_element_of_ipfix() {
        let has = |column: &Column| elements_of(column).any(|element| element.is_in(Format::Ipfix));
        let without = columns().iter().find(|column| !has(column)).map(|column| column.name);
        assert_eq!(without, None, "it needs an element, or `computed_from` in its entry");
    }
}
