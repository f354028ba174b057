//! Checks the profile `apps`: its frames are well formed, its flows are counted, and the shares of
//! kinds and faults are those of the settings. What is in its messages is read by the tests of the
//! binary, and by tshark there.

use crate::tests::{all, packets, recording, recount};
use std::collections::BTreeMap;
use weir_trafficgen::{ExpectedApplication, TrafficGenerator};

fn count<'a>(
    applications: &'a [ExpectedApplication],
    words: impl Fn(&'a ExpectedApplication) -> Vec<&'a str>,
) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    applications.iter().flat_map(words).for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

#[test]
fn expected_flows_are_those_of_an_independent_count() {
    for spec in ["apps,flows=300,new=1k,packets=40k", "apps,flows=500,new=5k,undecided=60%,packets=20k,ipv6=100%"] {
        let mut source = recording(spec);
        let seen = all(&mut source);
        let mut counted = recount(&seen);
        let mut expected = source.expected_flows().to_vec();
        assert_eq!(source.expected_applications().len(), expected.len());
        counted.sort_by_key(|flow| (flow.source, flow.source_port));
        expected.sort_by_key(|flow| (flow.source, flow.source_port));
        assert_eq!(counted, expected, "{spec}");
        let sum: u64 = source.expected_flows().iter().map(packets).sum();
        assert_eq!(sum, seen.len() as u64);
    }
}

#[test]
fn shares_are_those_of_the_settings() {
    let mut source = recording("apps,flows=2k,new=20k,packets=200k,split=50%");
    while weir_capture::Source::burst(&mut source).unwrap().is_some() {}
    let applications = source.expected_applications();
    let kinds = count(applications, |application| vec![application.kind]);
    let all = applications.len() as f64;
    for (kind, share) in [("tls12", 15.0), ("tls13", 35.0), ("quic", 20.0), ("http", 8.0), ("dns", 15.0), ("ssh", 2.0)]
    {
        let percent = 100.0 * kinds[kind] as f64 / all;
        assert!((percent - share).abs() < 1.0, "{kind}: {percent} %");
    }
    assert_eq!(kinds.values().sum::<usize>(), applications.len());
    let tls: Vec<_> = applications.iter().filter(|application| application.application == "tls").cloned().collect();
    let events = count(&tls, |application| application.first_packets.clone());
    for (event, share) in
        [("split", 50.0), ("records", 5.0), ("missing", 2.0), ("loss", 2.0), ("conflict", 2.0), ("reorder", 2.0)]
    {
        let percent = 100.0 * events[event] as f64 / tls.len() as f64;
        assert!((percent / share - 1.0).abs() < 0.3, "{event}: {percent} %");
    }
}

#[test]
fn shares_that_are_not_given_have_the_rest() {
    let source = |settings: &str| {
        let mut source = recording(&format!("apps,flows=100,packets=5k,{settings}"));
        while weir_capture::Source::burst(&mut source).unwrap().is_some() {}
        let applications = source.expected_applications().to_vec();
        count(&applications, |application| vec![application.kind]).into_keys().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(source("ssh=1"), ["ssh"]);
    assert_eq!(source("undecided=100%"), ["undecided"]);
    assert!(source("ssh=50%").len() > 4);
    let error = |settings: &str| TrafficGenerator::new(&format!("apps,{settings}")).err().expect(settings).to_string();
    assert_eq!(error("ssh=50%,dns=60%"), "ssh=50%: the shares of all kinds add up to 110 %");
    let none = "tls12=0,tls13=0,quic=0,http=0,dns=0,ssh=0,unknown=0";
    assert!(error(none).contains("add up to 0 %"), "{}", error(none));
    assert!(error("loss=60%,reorder=60%").contains("exceed 100 %"));
}
