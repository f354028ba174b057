//! Warnings of fields in expressions and views that no record has because an option is left out, and
//! of options that have no effect because another one is.
//!
//! Such a comparison never holds, which looks like traffic that is not there.

use crate::arguments::{Enrichment, Metering, Sinks};
use tracing::warn;
use weir_dpi::InspectionSettings;
use weir_probe::Settings;
use weir_query::{GroupField, expression_of, split_where};

/// Warns of fields of `--where`, `?where=` and `--by` that no record of this run has, and of tags that
/// no list has.
pub fn warn(sinks: &[String], options: &Sinks, settings: &Settings, enrichment: &Enrichment) {
    let warn_of_field = |place: &str, field: &str| {
        if let Some(option) = missing_option(field, settings, enrichment) {
            warn!("{place}: no record has {field} without {option}");
        }
    };
    options.by.iter().for_each(|field| warn_of_field("--by", GroupField::name(field)));
    let of_all = options.records.iter().map(|expression| ("--where".into(), expression.clone()));
    let of_sink = |sink: &String| Some((format!("-o {}: where", split_where(sink).0), expression_of(sink).ok()??));
    for (place, expression) in of_all.chain(sinks.iter().filter_map(of_sink)) {
        expression.fields().iter().for_each(|field| warn_of_field(&place, field));
        let lists: Vec<&str> = enrichment.tags.iter().map(|list| list.name.as_str()).collect();
        for tag in expression.tags().iter().filter(|tag| !lists.is_empty() && !lists.contains(tag)) {
            warn!("{place}: no record has the tag {tag:?}: --tags has {}", lists.join(", "));
        }
    }
}

/// Warns of options of inspection if nothing is inspected.
pub fn warn_of_inspection(metering: &Metering, inspects: bool) {
    let default = InspectionSettings::default();
    let options = [
        (metering.dpi_packets != default.packets, "--dpi-packets"),
        (metering.dpi_octets != default.octets, "--dpi-octets"),
        (metering.dpi_fields, "--dpi-fields"),
        (metering.dpi_ports, "--dpi-ports"),
    ];
    let given: Vec<&str> = options.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option).collect();
    if !inspects && !given.is_empty() {
        warn!("no payload is inspected, so these options have no effect: {}", given.join(", "));
    }
}

/// The option without which no record has a value of a field.
fn missing_option(field: &str, settings: &Settings, enrichment: &Enrichment) -> Option<&'static str> {
    let unless = |is_given: bool, option| (!is_given).then_some(option);
    let inspection = settings.meter.inspection.as_ref();
    match field {
        "mac" | "src_mac" | "dst_mac" => unless(settings.meter.mac_addresses || settings.layer2, "--mac-addresses"),
        "ethertype" => unless(settings.layer2, "--layer2"),
        "as" | "country" => unless(!enrichment.geo.is_empty(), "--geo"),
        "http_path" | "http_user_agent" | "user_name" if inspection.is_some() => {
            unless(inspection.is_some_and(|settings| settings.personal), "--dpi-fields")
        }
        name if name.starts_with("ndpi_") => unless(settings.meter.second_opinion, "--dpi full"),
        name if name.contains("tunnel") || name.contains("outer_") => unless(settings.decode.decapsulate, "--decap"),
        name => {
            let is_found = weir_export::column(name).is_ok_and(|column| column.of_application);
            enrichment.missing_option(name).or(unless(!is_found || inspection.is_some(), "--dpi light"))
        }
    }
}
