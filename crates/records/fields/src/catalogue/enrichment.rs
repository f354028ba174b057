//! Fields of enrichment: networks, countries, autonomous systems, tags and names of interfaces.

use super::reading::{optional, text};
use crate::column::Anonymisation::Keep;
use crate::column::Requirement::{Geo, InterfaceNames, Networks, Tags};
use crate::column::{Known, Origin, Properties};
use crate::element::DataType::{Unsigned8, Unsigned32};
use crate::element::{DataType, Element, Semantics, Units, text_element};
use crate::entry::fields;
use crate::value::FieldValue;
use weir_flow::{FlowRecord, NamedNetwork, Place, Places};

const COMMON: Properties = Properties { known: Known::AtFirst, ..Properties::of(Origin::Enrichment) };

#[rustfmt::skip]
fields! {
    COMMON;
    flow "interface_name", Text, "", "Name of `interface`, if the source knows it; with --interface-names (weir help enrichment).",
        [Element::iana(82, "interfaceName", DataType::String).only_listed()],
        |r| of_places(r.flow, |places| places.interface.as_deref()), needs: Some(InterfaceNames), anonymisation: Some(Keep);
    flow "src_network", Text, "", "Name of the network of the source in the table of `--networks` (weir help enrichment).",
        [text_element(95, "sourceNetworkName")], |r| network(r.flow, SOURCE, |n| &n.name), needs: Some(Networks), anonymisation: Some(Keep);
    flow "dst_network", Text, "", "Name of the network of the destination.",
        [text_element(96, "destinationNetworkName")], |r| network(r.flow, DESTINATION, |n| &n.name), needs: Some(Networks), anonymisation: Some(Keep);
    flow "src_site", Text, "", "Site of the network of the source: where it is.",
        [text_element(97, "sourceNetworkSite")], |r| network(r.flow, SOURCE, |n| &n.site), needs: Some(Networks), anonymisation: Some(Keep);
    flow "dst_site", Text, "", "Site of the network of the destination.",
        [text_element(98, "destinationNetworkSite")], |r| network(r.flow, DESTINATION, |n| &n.site), needs: Some(Networks), anonymisation: Some(Keep);
    flow "src_role", Text, "", "Role of the network of the source in the same table, such as servers or guests.",
        [text_element(99, "sourceNetworkRole")], |r| network(r.flow, SOURCE, |n| &n.role), needs: Some(Networks), anonymisation: Some(Keep);
    flow "dst_role", Text, "", "Role of the network of the destination.",
        [text_element(100, "destinationNetworkRole")], |r| network(r.flow, DESTINATION, |n| &n.role), needs: Some(Networks), anonymisation: Some(Keep);
    flow "src_local", Integer, "", "1 if the source is in a local network of the table of `--networks`, 0 if it is not.",
        [Element::weir(90, "sourceIsLocal", Unsigned8, Semantics::Default, Units::None)], |r| local(r.flow, SOURCE), needs: Some(Networks);
    flow "dst_local", Integer, "", "1 if the destination is in a local network of the table, 0 if it is not.",
        [Element::weir(91, "destinationIsLocal", Unsigned8, Semantics::Default, Units::None)], |r| local(r.flow, DESTINATION), needs: Some(Networks);
    flow "src_country", CaselessText, "", "Country of the source in the databases of `--geo`: two letters (ISO 3166-1).",
        [Element::weir(92, "sourceCountryCode", DataType::String, Semantics::Default, Units::None).in_octets(2)],
        |r| geo(r.flow, SOURCE, |place| place.country().map(text)), needs: Some(Geo), anonymisation: Some(Keep);
    flow "dst_country", CaselessText, "", "Country of the destination.",
        [Element::weir(93, "destinationCountryCode", DataType::String, Semantics::Default, Units::None).in_octets(2)],
        |r| geo(r.flow, DESTINATION, |place| place.country().map(text)), needs: Some(Geo), anonymisation: Some(Keep);
    flow "src_as", Integer, "", "Number of the autonomous system of the source in the databases of `--geo`.",
        [Element::common(16, "bgpSourceAsNumber", Unsigned32)], |r| geo(r.flow, SOURCE, system_number), needs: Some(Geo);
    flow "dst_as", Integer, "", "Number of the autonomous system of the destination.",
        [Element::common(17, "bgpDestinationAsNumber", Unsigned32)], |r| geo(r.flow, DESTINATION, system_number), needs: Some(Geo);
    flow "src_as_org", Text, "", "Organization of the autonomous system of the source.",
        [text_element(101, "sourceAsOrganization")], |r| geo(r.flow, SOURCE, organization), needs: Some(Geo), anonymisation: Some(Keep);
    flow "dst_as_org", Text, "", "Organization of the autonomous system of the destination.",
        [text_element(102, "destinationAsOrganization")], |r| geo(r.flow, DESTINATION, organization), needs: Some(Geo), anonymisation: Some(Keep);
    flow "tags", Names, "", "Lists of `--tags` that have the source, the destination, or a name or fingerprint of the flow, separated by spaces.",
        [text_element(103, "flowTags")], |r| of_places(r.flow, |places| places.tags.as_deref()), needs: Some(Tags), known: Known::InPart, anonymisation: Some(Keep);
    flow "src_tags", Names, "", "Lists that have the source.",
        [text_element(104, "sourceTags")], |r| of_places(r.flow, |places| places.source.tags.as_deref()), needs: Some(Tags), anonymisation: Some(Keep);
    flow "dst_tags", Names, "", "Lists that have the destination.",
        [text_element(105, "destinationTags")], |r| of_places(r.flow, |places| places.destination.tags.as_deref()), needs: Some(Tags), anonymisation: Some(Keep);
}

/// The endpoints of a flow.
const SOURCE: bool = false;
const DESTINATION: bool = true;

#[inline]
fn place(flow: &FlowRecord, endpoint: bool) -> Option<&Place> {
    let places = flow.places.as_ref()?;
    Some(if endpoint == DESTINATION { &places.destination } else { &places.source })
}

/// A text of the table of networks; no value if there is none.
#[inline]
fn network(flow: &FlowRecord, endpoint: bool, read: fn(&NamedNetwork) -> &str) -> FieldValue<'_> {
    let Some(place) = place(flow, endpoint) else { return FieldValue::NotApplicable };
    let name = place.network.as_ref().map(|network| read(network)).filter(|text| !text.is_empty());
    name.map_or(FieldValue::NoValue, text)
}

#[inline]
fn local(flow: &FlowRecord, endpoint: bool) -> FieldValue<'static> {
    optional(place(flow, endpoint).and_then(|place| place.is_local), |local| FieldValue::Unsigned(local.into()))
}

/// A value of a database; no value if databases have none.
fn geo<'a>(
    flow: &'a FlowRecord,
    endpoint: bool,
    read: impl FnOnce(&'a Place) -> Option<FieldValue<'a>>,
) -> FieldValue<'a> {
    match &flow.places {
        Some(places) if places.has_geo => place(flow, endpoint).and_then(read).unwrap_or(FieldValue::NoValue),
        _ => FieldValue::NotApplicable,
    }
}

#[inline]
fn system_number(place: &Place) -> Option<FieldValue<'_>> {
    place.autonomous_system.as_ref().map(|system| FieldValue::Unsigned(system.number.into()))
}

#[inline]
fn organization(place: &Place) -> Option<FieldValue<'_>> {
    place.autonomous_system.as_ref()?.organization.as_deref().map(text)
}

/// A text that enrichment added to a flow; no value if it added none.
fn of_places<'a>(flow: &'a FlowRecord, read: impl FnOnce(&'a Places) -> Option<&'a str>) -> FieldValue<'a> {
    let Some(places) = flow.places.as_deref() else { return FieldValue::NotApplicable };
    read(places).map_or(FieldValue::NoValue, text)
}
