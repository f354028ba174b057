//! Files of the user: rules, tables of networks, lists of tags, databases of places.

use super::flows::flow;
use std::io::Write;
use std::path::Path;
use weir_enrich::{Enrichment, MAX_NAMED_LINES, Sources, TagList};
use weir_flow::Approximate;
use weir_rules::{MAX_PROBLEMS, Rules};
use weir_testkit::input::Input;

/// Reads a rules file, and decides a record. Invariants: the same text has the same problems, each in a line of the
/// file; and the same record has the same decision.
///
/// # Panics
/// An invariant does not hold.
pub fn rules(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match (Rules::new(&text), Rules::new(&text)) {
        (Ok(rules), Ok(again)) => {
            let record = flow(&mut Input(input));
            for has_ended in [false, true] {
                assert_eq!(rules.decide(&record, has_ended), again.decide(&record, has_ended));
            }
            assert_eq!(rules.without_flow(), again.without_flow());
            assert!(rules.unused_egresses().count() <= rules.egresses.len());
        }
        (Err(invalid), Err(again)) => {
            assert_eq!(invalid.problems, again.problems);
            assert!((1..=MAX_PROBLEMS).contains(&invalid.problems.len()));
            let lines = 1 + text.matches('\n').count();
            assert!(invalid.problems.iter().all(|(line, _)| (1..=lines).contains(line)), "{invalid}");
        }
        _ => panic!("the same text is valid once: {text:?}"),
    }
}

/// Reads a list of `--tags`, and looks up a record. Invariants: broken lines are named up to a number, and a record
/// has no other tag than that of the list, which has entries then.
///
/// # Panics
/// An invariant does not hold.
pub fn tags(input: &[u8]) {
    let read =
        |path: &Path| Sources { tags: vec![TagList { name: "list".into(), path: path.into() }], ..Sources::default() };
    let Some((enrichment, entries)) = load(input, read) else { return };
    let places = enrichment.places(&flow(&mut Input(input)));
    let tags = [places.source.tags, places.destination.tags, places.tags];
    assert!(tags.iter().flatten().all(|tags| **tags == *"list" && entries > 0));
}

/// Reads a table of `--networks`, and looks up a record. Invariant: an address is local or not if there is a table.
///
/// # Panics
/// An invariant does not hold.
pub fn networks(input: &[u8]) {
    let read = |path: &Path| Sources { networks: Some(path.into()), ..Sources::default() };
    let Some((enrichment, _)) = load(input, read) else { return };
    let record = flow(&mut Input(input));
    let places = enrichment.places(&record);
    for (place, address) in [(&places.source, record.source_ip()), (&places.destination, record.destination_ip())] {
        let has_no_place = address.is_none() || record.approximate.has(Approximate::OVERFLOW);
        assert_eq!(place.is_local.is_none(), has_no_place);
        assert!(place.network.is_none() || !has_no_place);
    }
}

/// Reads a database of `--geo`, and looks up a record. Invariants: a country has two letters, and memory is in
/// proportion to the file.
///
/// # Panics
/// An invariant does not hold.
pub fn mmdb(input: &[u8]) {
    let read = |path: &Path| Sources { geo: vec![path.into()], ..Sources::default() };
    let Some((enrichment, networks)) = load(input, read) else { return };
    let places = enrichment.places(&flow(&mut Input(input)));
    let countries = [places.source.country, places.destination.country];
    assert!(countries.iter().flatten().flatten().all(u8::is_ascii_alphabetic));
    assert!(networks > 0);
    assert!(enrichment.memory_bytes() < 1000 * (input.len() + 1000), "{} bytes", enrichment.memory_bytes());
}

/// Loads a file with this content. Returns its entries, too; `None` if it is refused, of which the error tells the
/// file.
fn load(content: &[u8], read: impl FnOnce(&Path) -> Sources) -> Option<(Enrichment, u64)> {
    let mut file = tempfile::NamedTempFile::new().expect("a file can be made");
    file.write_all(content).expect("it can be written");
    match Enrichment::load(&read(file.path())) {
        Ok((enrichment, reports)) => {
            assert!(reports.iter().all(|report| report.broken.first.len() <= MAX_NAMED_LINES));
            Some((enrichment, reports.iter().map(|report| report.entries).sum()))
        }
        Err(errors) => {
            let name = file.path().display().to_string();
            let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
            assert!(text.len() == 1 && text[0].contains(&name), "{text:?}");
            None
        }
    }
}
