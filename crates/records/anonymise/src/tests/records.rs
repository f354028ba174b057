//! Whole records: what becomes of each field of the catalogue.

use super::{SAMPLE_KEY, sample_key};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use weir_anonymise::{Anonymiser, Key};
use weir_dpi::{Application, Confidence, Fact, Findings};
use weir_fields::{Anonymisation, Column, FieldValue, column, columns, fields};
use weir_flow::{Approximate, AutonomousSystem, Direction, FlowRecord, NamedNetwork, Place, Places};
use weir_packet::{Network, TunnelType, address_octets};

fn anonymiser(key: &Key, settings: &str) -> Anonymiser {
    Anonymiser::new(key, &format!("key{settings}").parse().unwrap())
}

/// The record of others, with the sample key.
fn anonymised(record: &FlowRecord, settings: &str) -> FlowRecord {
    let mut record = record.clone();
    anonymiser(&sample_key(), settings).anonymise(&mut record);
    record
}

fn octets(address: &str) -> [u8; 16] {
    address_octets(address.parse().unwrap())
}

fn direction(outer: [&str; 2], macs: [[u8; 6]; 2]) -> Direction {
    let [outer_source, outer_destination] = outer.map(octets);
    let [source_mac, destination_mac] = macs;
    Direction {
        packets: 3,
        bytes: 300,
        first_ns: 1,
        last_ns: 9,
        tunnel_type: TunnelType::Vxlan,
        tunnel_id: Some(7),
        outer_source,
        outer_destination,
        source_mac,
        destination_mac,
        ..Direction::default()
    }
}

const MACS: [[u8; 6]; 2] = [[0x00, 0x1b, 0x21, 0x3c, 0x4d, 0x5e], [0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb]];

/// Findings with a text, or a number, for each extracted field.
fn findings() -> Findings {
    let mut findings = Findings::new(true);
    findings.recognise(Application::Tls, Confidence::Message);
    for entry in fields() {
        let column = &entry.columns[0];
        let Some(fact) = column.properties.fact else { continue };
        if matches!(fact, Fact::TlsClientHello | Fact::TlsServerHello) {
            continue;
        }
        if column.kind.can_identify() && !matches!(fact, Fact::TlsVersion | Fact::TlsAlert) {
            findings.set_text(fact, format!("secret{}", fact as u8).as_bytes());
        } else {
            findings.set_number(fact, 0x0202);
        }
    }
    findings.set_octets(Fact::DnsQuestion, b"secret-question");
    findings
}

fn places() -> Places {
    let network = NamedNetwork { name: "office".into(), site: "Bonn".into(), role: "web".into(), is_local: true };
    let system = AutonomousSystem { number: 64_500, organization: Some("Example".into()) };
    let place = Place {
        network: Some(Arc::new(network)),
        is_local: Some(true),
        country: Some(*b"DE"),
        autonomous_system: Some(Arc::new(system)),
        tags: Some("botnets".into()),
    };
    let (source, destination) = (place.clone(), place);
    Places { source, destination, tags: Some("botnets".into()), interface: Some("eth0".into()), has_geo: true }
}

/// A record with all that can identify.
fn record() -> FlowRecord {
    FlowRecord {
        source: octets("192.0.2.1"),
        destination: octets("198.51.100.7"),
        source_port: 40_000,
        destination_port: 443,
        protocol: 6,
        network: Network::Ipv4,
        forward: direction(["203.0.113.1", "203.0.113.2"], MACS),
        reverse: direction(["203.0.113.2", "203.0.113.1"], [MACS[1], MACS[0]]),
        findings: Some(Arc::new(findings())),
        places: Some(Arc::new(places())),
        ..FlowRecord::default()
    }
}

fn text(column: &Column, record: &FlowRecord) -> String {
    column.read(record).to_string()
}

#[test]
fn each_field_is_what_its_rule_says_and_no_field_has_what_was_there() {
    let before = record();
    let after = anonymised(&before, "");
    for column in columns() {
        let (from, to) = (text(column, &before), text(column, &after));
        match column.properties.anonymisation {
            None | Some(Anonymisation::Keep) => assert_eq!(from, to, "{}", column.name),
            Some(Anonymisation::LeaveOut) => assert!(!from.is_empty() && to.is_empty(), "{}: {to}", column.name),
            Some(_) => assert!(!from.is_empty() && !to.is_empty() && from != to, "{}: {from} {to}", column.name),
        }
        let stays = matches!(column.properties.anonymisation, None | Some(Anonymisation::Keep));
        assert!(stays || !to.contains("secret"), "{}: {to}", column.name);
    }
    let texts: BTreeSet<String> = columns().iter().map(|column| text(column, &after)).collect();
    for original in
        ["192.0.2.1", "198.51.100.7", "203.0.113.1", "203.0.113.2", "00:1b:21:3c:4d:5e", "01:00:5e:00:00:fb"]
    {
        assert!(!texts.contains(original), "{original}");
    }
    let findings = after.findings.unwrap();
    assert_eq!(findings.application(), Some((Application::Tls, Confidence::Message)));
    assert_eq!(findings.octets(Fact::DnsQuestion), None, "what no field shows is left out");
}

#[test]
fn without_names_no_record_has_any() {
    let after = anonymised(&record(), "?names=drop");
    for column in columns()
        .iter()
        .filter(|column| matches!(column.properties.anonymisation, Some(Anonymisation::Name | Anonymisation::Words(_))))
    {
        assert_eq!(text(column, &after), "", "{}", column.name);
    }
    assert_ne!(text(column("ndpi_protocol").unwrap(), &after), "", "words of nDPI are no names");
}

#[test]
fn the_same_key_gives_the_same_record_and_another_key_another_one() {
    let before = record();
    let mut again = before.clone();
    let mut anonymiser = anonymiser(&sample_key(), "");
    // The second record comes from the cache, and a clone has an empty one.
    anonymiser.anonymise(&mut before.clone());
    anonymiser.anonymise(&mut again);
    let mut with_clone = before.clone();
    anonymiser.clone().anonymise(&mut with_clone);
    assert_eq!(anonymised(&before, ""), again);
    assert_eq!(with_clone, again);
    let mut key = SAMPLE_KEY;
    key[0] ^= 1;
    let mut other = before;
    super::records::anonymiser(&key.into(), "").anonymise(&mut other);
    for column in ["src_ip", "dst_ip", "src_mac", "sni", "community_id", "fwd_outer_src_ip"] {
        let column = weir_fields::column(column).unwrap();
        assert_ne!(text(column, &other), text(column, &again), "{}", column.name);
    }
}

#[test]
fn derived_values_follow_from_the_anonymised_addresses() {
    let after = anonymised(&record(), "");
    let value = |name: &str| text(column(name).unwrap(), &after);
    let by_hand = FlowRecord {
        source: octets(&value("src_ip")),
        destination: octets(&value("dst_ip")),
        source_port: 40_000,
        destination_port: 443,
        protocol: 6,
        ..FlowRecord::default()
    };
    assert_eq!(value("community_id"), text(column("community_id").unwrap(), &by_hand));
    assert_eq!((value("server_ip"), value("client_ip")), (value("dst_ip"), value("src_ip")));
}

#[test]
fn leading_bits_stay_and_the_others_are_zero() {
    let of = |source: &str, network, settings: &str| {
        let record = FlowRecord { source: octets(source), network, ..FlowRecord::default() };
        text(column("src_ip").unwrap(), &anonymised(&record, settings))
    };
    assert_eq!(of("128.11.68.132", Network::Ipv4, ""), "135.242.180.132");
    assert_eq!(of("128.11.68.132", Network::Ipv4, "?ipv4=24"), "135.242.180.0");
    assert_eq!(of("128.11.68.132", Network::Ipv4, "?ipv4=0"), "0.0.0.0");
    assert_eq!(of("2001:db8::1", Network::Ipv6, "?ipv4=24"), "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e");
    assert_eq!(of("2001:db8::1", Network::Ipv6, "?ipv6=48"), "4401:2bc:603f::");
    assert_eq!(of("2001:db8::1", Network::Ipv6, "?ipv6=0"), "::");
}

#[test]
fn mac_addresses_keep_the_bit_of_groups_and_are_local() {
    let mut record = record();
    record.reverse.source_mac = [0; 6];
    let after = anonymised(&record, "");
    let [source, destination] = [after.forward.source_mac, after.forward.destination_mac];
    assert_eq!((source[0] & 3, destination[0] & 3), (2, 3));
    assert_eq!(after.reverse.destination_mac, source, "one address has one other");
    assert_eq!(after.reverse.source_mac, [0; 6], "no address stays none");
    // A layer-2 flow has them as its endpoints.
    let mut layer2 = FlowRecord { network: Network::Layer2, protocol: 255, ..FlowRecord::default() };
    layer2.source[10..].copy_from_slice(&MACS[0]);
    layer2.destination[10..].copy_from_slice(&MACS[1]);
    assert_eq!(anonymised(&layer2, "").mac_addresses(), [Some(source), Some(destination)]);
}

#[test]
fn sums_of_several_hosts_stay_prefixes() {
    let sum = |network, source: &str| {
        let mut record = FlowRecord { source: octets(source), network, ..FlowRecord::default() };
        record.approximate = Approximate(Approximate::OVERFLOW);
        let host = FlowRecord { approximate: Approximate(0), ..record.clone() };
        [record, host].map(|record| anonymised(&record, "").source_ip().unwrap())
    };
    let [IpAddr::V4(of_sum), IpAddr::V4(of_host)] = sum(Network::Ipv4, "192.0.2.0") else { panic!() };
    assert_eq!((&of_sum.octets()[..3], of_sum.octets()[3]), (&of_host.octets()[..3], 0));
    let [IpAddr::V6(of_sum), IpAddr::V6(of_host)] = sum(Network::Ipv6, "2001:db8:1::") else { panic!() };
    assert_eq!((&of_sum.octets()[..6], &of_sum.octets()[6..]), (&of_host.octets()[..6], &[0; 10][..]));
    assert_eq!(sum(Network::Ipv4, "0.0.0.0")[0].to_string(), "0.0.0.0", "the sum of all networks");
    assert_eq!(sum(Network::Ipv6, "::")[0].to_string(), "::");
}

/// What becomes of the text of a field.
fn name(field: &str, from: &str) -> String {
    let column = column(field).unwrap();
    let mut findings = Findings::new(true);
    findings.set_octets(column.properties.fact.unwrap(), from.as_bytes());
    let record = FlowRecord { findings: Some(Arc::new(findings)), ..FlowRecord::default() };
    text(column, &anonymised(&record, ""))
}

#[test]
fn one_name_has_one_hash_in_all_fields() {
    let host = name("sni", "www.example");
    assert!(host.len() == 18 && host.starts_with("n-"), "{host}");
    assert!(host[2..].bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit)), "{host}");
    for field in ["dns_name", "dst_dns_name", "http_host", "cert_names", "dns_records", "user_name", "ssh_client"] {
        assert_eq!(name(field, "www.example"), host, "{field}");
    }
    assert_eq!(name("sni", "WWW.Example."), host, "the case of letters means nothing, nor a dot at the end");
    assert_eq!(name("http_host", "www.example:8080"), format!("{host}:8080"));
    assert_eq!(name("cert_names", "www.example,*.example"), format!("{host},{}", name("sni", "*.example")));
    assert_ne!(name("http_path", "/A"), name("http_path", "/a"));
    // HMAC-SHA-256 of "name", 00 and the name, computed by Python's hmac.
    assert_eq!(host, "n-e4f67a64c9bd7dc0");
}

#[test]
fn addresses_in_names_are_anonymised_like_those_of_flows() {
    for field in ["http_host", "sni", "cert_names", "dns_records", "user_name"] {
        assert_eq!(name(field, "128.11.68.132"), "135.242.180.132", "{field}");
        assert_eq!(name(field, "2001:db8::1"), "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e", "{field}");
    }
    assert_eq!(name("http_host", "128.11.68.132:81"), "135.242.180.132:81");
    assert_eq!(name("http_host", "[2001:db8::1]"), "[4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e]");
    assert_eq!(name("http_host", "[2001:db8::1]:81"), "[4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e]:81");
    assert_eq!(
        name("dns_records", "128.11.68.132,2001:db8::2"),
        "135.242.180.132,4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"
    );
}

#[test]
fn records_of_dns_keep_their_numbers() {
    let host = name("sni", "mail.example");
    assert_eq!(name("dns_records", "10 mail.example"), format!("10 {host}"));
    assert_eq!(name("dns_records", "1 2 5060 mail.example,TYPE257"), format!("1 2 5060 {host},TYPE257"));
    for whole in ["\"v=spf1 ip4:192.0.2.1\"", "ns.example h.example 1 2 3 4 5", "1 . ipv4hint=192.0.2.1", "TYPEx", "1 "]
    {
        let hash = name("dns_records", whole);
        assert!(hash.rsplit(' ').next().unwrap().starts_with("n-") && !hash.contains("192"), "{whole}: {hash}");
    }
}

#[test]
fn words_of_protocols_stay_and_others_are_names() {
    assert_eq!(name("alpn_offered", "h2,http/1.1"), "h2,http/1.1");
    assert_eq!(name("alpn_offered", "h2,alice"), format!("h2,{}", name("user_name", "alice")));
    assert_eq!((name("http_method", "GET"), name("http_method", "ALICE")), ("GET".into(), name("user_name", "ALICE")));
}

#[test]
fn a_list_of_hashes_that_is_too_long_is_cut_and_says_so() {
    let names: Vec<String> = (0..60).map(|number| format!("h{number}")).collect();
    let mut findings = Findings::new(true);
    findings.set_octets(Fact::CertificateNames, names.join(",").as_bytes());
    let record = FlowRecord { findings: Some(Arc::new(findings)), ..FlowRecord::default() };
    let after = anonymised(&record, "");
    let cut = text(column("cert_names").unwrap(), &after);
    let hashes: Vec<_> = cut.split(',').collect();
    assert_eq!(hashes.len(), 13);
    assert!(cut.len() <= 255 && hashes.iter().zip(&names).all(|(hash, from)| *hash == name("sni", from)), "{cut}");
    assert_eq!(text(column("application_notes").unwrap(), &after), "cut");
}

#[test]
fn ipv6_tunnels_and_directions_without_packets() {
    let mut record = record();
    record.forward.tunnel_type = TunnelType::FourInSix;
    [record.forward.outer_source, record.forward.outer_destination] = ["2001:db8::1", "2001:db8::2"].map(octets);
    record.reverse = Direction::default();
    let after = anonymised(&record, "");
    let outer = after.forward.outer_ips().map(|(source, destination)| [source, destination].map(|at| at.to_string()));
    assert_eq!(
        outer.unwrap(),
        ["4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"].map(String::from)
    );
    assert_eq!(after.reverse, Direction::default());
    assert!(matches!(column("rev_outer_src_ip").unwrap().read(&after), FieldValue::NotApplicable));
}
