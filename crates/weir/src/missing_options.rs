//! Warnings of fields in expressions and views that no record has because an option is left out, and
//! of options that have no effect because another one is.
//!
//! Such a comparison never holds, which looks like traffic that is not there. In a rule it is an error:
//! a rule that bans a country must not do nothing.

use crate::arguments::{Enrichment, Inspection, Metering, RecordSink, Sinks, Switch};
use crate::error::{Error, RulesError};
use tracing::warn;
use weir_dpi::InspectionSettings;
use weir_enrich::ListContent;
use weir_fields::{Requirement, field};
use weir_query::{CountField, Expression, GroupField, TagTest};
use weir_rules::{Level, Rule, Rules};

/// Warns of fields of `--where`, `?where=` and `--by` that no record of this run has, and of tags that
/// no list has.
pub fn warn(sinks: &[RecordSink], options: &Sinks, metering: &Metering, inspects: bool, enrichment: &Enrichment) {
    let warn_of_field = |place: &str, field: &str| {
        if let Some(option) = missing_option(field, metering, inspects, enrichment) {
            warn!("{place}: no record has {field} without {option}");
        }
    };
    options.by.iter().for_each(|field| warn_of_field("--by", GroupField::name(field)));
    let counted = options.counts.iter().filter_map(CountField::field);
    counted.for_each(|field| warn_of_field("--count", field.name()));
    let summed = options.view(|_| 1).map(|view| view.asked_columns()).unwrap_or_default();
    summed.iter().for_each(|column| warn_of_field("--sum", column.name));
    let of_all = options.records.iter().map(|expression| ("--where".into(), expression.clone()));
    let of_sink = |sink: &RecordSink| Some((format!("-o {}: where", sink.spec.name()), sink.condition.clone()?));
    for (place, expression) in of_all.chain(sinks.iter().filter_map(of_sink)) {
        expression.fields().iter().for_each(|field| warn_of_field(&place, field));
        for TagTest { text, .. } in unknown_tags(&expression, enrichment) {
            warn!("{place}: no record has the tag {text:?}: --tags has {}", lists(enrichment).join(", "));
        }
    }
}

/// Checks that flows of this run can have what rules ask for.
///
/// # Errors
/// A field that no flow has without an option, or a tag that no list has: of all rules.
pub fn check_rules(rules: &Rules, metering: &Metering, enrichment: &Enrichment) -> Result<(), Error> {
    let mut problems = Vec::new();
    for Rule { name, line, condition, .. } in &rules.rules {
        let Some(condition) = condition else { continue };
        let (rule, line) = (name.clone(), *line);
        for field in condition.fields() {
            let Some(option) = missing_option(field, metering, metering.inspects(), enrichment) else { continue };
            problems.push(RulesError::RuleNeedsOption { rule: rule.clone(), line, field, option }.into());
        }
    }
    Error::of(problems.into_iter().chain(unknown_tags_of(rules, enrichment)).collect())
}

/// Tags of rules that no list has, as errors.
pub fn unknown_tags_of(rules: &Rules, enrichment: &Enrichment) -> Vec<Error> {
    let of_rule = |rule: &Rule| {
        let unknown = rule.condition.iter().flat_map(|condition| unknown_tags(condition, enrichment));
        let error = |tag: TagTest<'_>| {
            let (rule, line, lists) = (rule.name.clone(), rule.line, lists(enrichment).join(", "));
            RulesError::RuleNeedsTag { rule, line, tag: tag.text.into(), lists }.into()
        };
        unknown.map(error).collect::<Vec<Error>>()
    };
    rules.rules.iter().flat_map(of_rule).collect()
}

/// Checks that flows can have the tags that rules ask for: the names and fingerprints of a list are known only to
/// `tags` in a rule for applications. Warns of a rule that misses them only.
///
/// # Errors
/// A list has nothing else: of all rules.
pub fn check_tags(rules: &Rules, metering: &Metering, loaded: &weir_enrich::Enrichment) -> Result<(), Error> {
    let mut problems = Vec::new();
    for Rule { name, line, level, condition, .. } in &rules.rules {
        for tag in condition.iter().flat_map(Expression::tags) {
            let (content, field) = (loaded.lists(|list| tag.matches(list)), tag.field);
            let tag = if tag.text.is_empty() { field } else { tag.text };
            let advice = match field {
                "tags" if *level != Level::Application => "move the rule to [[application]]",
                "tags" if !metering.inspects() => "leave out --dpi off",
                "tags" => continue,
                _ => "use tags in [[application]]",
            };
            let (rule, line) = (name.clone(), *line);
            match content {
                ListContent { has_findings: false, .. } => {}
                ListContent { has_addresses: true, .. } => warn!(
                    "--rules: line {line}: '{rule}' matches only addresses of the list {tag}, not its names and fingerprints; {advice}"
                ),
                ListContent { has_addresses: false, .. } => {
                    let tag = tag.into();
                    problems.push(RulesError::RuleNeedsAddresses { rule, line, tag, advice }.into());
                }
            }
        }
    }
    Error::of(problems)
}

fn lists(enrichment: &Enrichment) -> Vec<&str> {
    enrichment.tags.iter().map(|list| list.name.as_str()).collect()
}

/// Tags that no list has. Without lists the option is missing, not the tag.
fn unknown_tags<'a>(expression: &'a Expression, enrichment: &Enrichment) -> Vec<TagTest<'a>> {
    let lists = lists(enrichment);
    let is_known = |tag: &TagTest<'_>| lists.is_empty() || lists.iter().any(|list| tag.matches(list));
    expression.tags().into_iter().filter(|tag| !is_known(tag)).collect()
}

/// Warns of options of inspection if nothing is inspected.
pub fn warn_of_inspection(metering: &Metering, inspects: bool) {
    let default = InspectionSettings::default();
    let options = [
        (metering.dpi_packets != default.packets, "--dpi-packets"),
        (metering.dpi_octets != default.octets, "--dpi-octets"),
        (metering.dpi_fields, "--dpi-fields"),
        (metering.dpi_ports, "--dpi-ports"),
        (metering.dpi_transactions == Switch::Off, "--dpi-transactions"),
    ];
    let given: Vec<&str> = options.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option).collect();
    if !inspects && !given.is_empty() {
        warn!("no payload is inspected, so these options have no effect: {}", given.join(", "));
    }
}

/// The option without which no record has a value of a field.
fn missing_option(name: &str, metering: &Metering, inspects: bool, enrichment: &Enrichment) -> Option<&'static str> {
    let needs = match field(name)?.properties().needs? {
        Requirement::PersonalFields | Requirement::Transactions if !inspects => Requirement::Inspection,
        needs => needs,
    };
    let is_met = match needs {
        Requirement::Layer2Flows => metering.layer2,
        Requirement::MacAddresses => metering.mac_addresses || metering.layer2,
        Requirement::Decapsulation => metering.selection.decap,
        Requirement::Inspection => inspects,
        Requirement::PersonalFields => metering.dpi_fields,
        Requirement::Transactions => metering.dpi_transactions == Switch::On,
        Requirement::Ndpi => metering.dpi == Some(Inspection::Full),
        Requirement::Networks | Requirement::Geo | Requirement::Tags | Requirement::InterfaceNames => {
            enrichment.meets(needs)
        }
    };
    (!is_met).then_some(needs.option())
}
