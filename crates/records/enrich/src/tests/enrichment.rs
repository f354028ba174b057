//! Tables, databases and lists from files, and the places of records.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use testbed::mmdb::{Database, Value, country, system};
use weir_dpi::{Fact, Findings, STREAM_READERS, Streams, Verdict};
use weir_enrich::{Enrichment, Error, ListContent, Sources, TagList};
use weir_flow::{Approximate, FlowRecord, Place, Places};
use weir_packet::Network;

fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn record(source: &str, destination: &str) -> FlowRecord {
    let octets = |address: &str| match address.parse().unwrap() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let network = if source.contains(':') { Network::Ipv6 } else { Network::Ipv4 };
    FlowRecord { source: octets(source), destination: octets(destination), network, ..FlowRecord::default() }
}

fn load(sources: &Sources) -> Enrichment {
    Enrichment::load(sources).unwrap().0
}

fn geo(paths: &[&Path]) -> Sources {
    Sources { geo: paths.iter().map(|path| path.to_path_buf()).collect(), ..Sources::default() }
}

fn countries() -> Vec<u8> {
    Database::of(
        "Test-Country",
        &[
            ("1.0.0.0/8", country("AU")),
            ("1.2.0.0/16", country("JP")),
            ("1.2.3.0/24", country("")),
            ("2001:db8::/32", country("DE")),
            ("2001:db8:1::/48", system(64_500, "not a country")),
        ],
    )
    .octets()
}

/// Country and number of the autonomous system.
fn texts(place: &Place) -> (Option<&str>, Option<u32>) {
    (place.country(), place.autonomous_system.as_ref().map(|system| system.number))
}

#[test]
fn each_side_has_its_network_country_system_and_tags() {
    let folder = tempfile::tempdir().unwrap();
    let systems = Database::of(
        "Test-ASN",
        &[("1.0.0.0/8", system(64_500, "Example Ltd")), ("2.0.0.0/8", system(4_200_000_000, "B\u{fc}cher"))],
    );
    let networks = "prefix,name,site,role,local\n2.0.0.0/8,office,Bonn,clients,true\n1.0.0.0/8,partner,,,\n";
    let sources = Sources {
        networks: Some(file(&folder, "networks.csv", networks)),
        geo: vec![file(&folder, "country.mmdb", countries()), file(&folder, "asn.mmdb", systems.octets())],
        tags: vec![
            TagList { name: "bad".into(), path: file(&folder, "bad.txt", "1.0.0.0/24\n") },
            TagList { name: "scanner".into(), path: file(&folder, "scanner.txt", "1.0.0.1\n2.0.0.1\n") },
        ],
    };
    let (enrichment, reports) = Enrichment::load(&sources).unwrap();
    let reports: Vec<String> =
        reports.iter().map(|of| format!("{} {} {:?}", of.option, of.entries, of.kind.as_deref())).collect();
    assert_eq!(
        reports,
        [
            "--networks 2 None",
            "--geo 33 Some(\"Test-Country\")",
            "--geo 2 Some(\"Test-ASN\")",
            "--tags bad 1 None",
            "--tags scanner 2 None"
        ]
    );
    let Places { source, destination, tags, has_geo, .. } = enrichment.places(&record("1.0.0.1", "2.0.0.2"));
    assert_eq!((texts(&source), texts(&destination)), ((Some("AU"), Some(64_500)), (None, Some(4_200_000_000))));
    assert_eq!(source.autonomous_system.unwrap().organization.as_deref(), Some("Example Ltd"));
    assert_eq!(destination.autonomous_system.unwrap().organization.as_deref(), Some("B\u{fc}cher"));
    let [partner, office] = [&source.network, &destination.network].map(|network| network.as_ref().unwrap());
    assert_eq!([&*partner.name, &*office.name, &*office.site, &*office.role], ["partner", "office", "Bonn", "clients"]);
    assert!(has_geo);
    assert_eq!((source.is_local, destination.is_local), (Some(false), Some(true)));
    assert_eq!(
        (source.tags.as_deref(), destination.tags, tags.as_deref()),
        (Some("bad scanner"), None, Some("bad scanner"))
    );
    let places = enrichment.places(&record("9.0.0.1", "2.0.0.1"));
    assert_eq!((places.source.is_local, places.destination.tags.as_deref()), (Some(false), Some("scanner")));
    assert_eq!(
        (places.source, places.tags.as_deref()),
        (Place { is_local: Some(false), ..Place::default() }, Some("scanner"))
    );
    assert!(enrichment.memory_bytes() > 0);
}

#[test]
fn names_of_a_flow_are_compared_with_domains() {
    let folder = tempfile::tempdir().unwrap();
    let tags = vec![
        TagList { name: "a".into(), path: file(&folder, "a", "evil.example\n10.0.0.1\n") },
        TagList { name: "b".into(), path: file(&folder, "b", "*.cdn.example\n") },
    ];
    let enrichment = load(&Sources { tags, ..Sources::default() });
    for (fact, name, expected) in [
        (Fact::ServerName, "www.Evil.example", Some("a")),
        (Fact::HttpHost, "evil.example:8080", Some("a")),
        (Fact::DnsName, "x.cdn.example.", Some("b")),
        (Fact::DnsName, "devil.example", None),
        (Fact::HttpHost, "[2001:db8::1]:80", None),
        (Fact::HttpMethod, "evil.example", None),
    ] {
        let mut findings = Findings::new(false);
        findings.set_text(fact, name.as_bytes());
        let flow = FlowRecord { findings: Some(Arc::new(findings)), ..record("192.0.2.1", "192.0.2.2") };
        let places = enrichment.places(&flow);
        assert_eq!(
            (places.tags.as_deref(), places.source.tags, places.destination.tags),
            (expected, None, None),
            "{name}"
        );
        assert!(!places.has_geo);
    }
}

#[test]
fn the_fingerprints_of_a_client_are_compared_with_lists() {
    // A ClientHello with one cipher suite and without extensions.
    let body = [&[3, 3][..], &[0; 32], &[0, 0, 2, 0x13, 0x01, 1, 0]].concat();
    let handshake = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    let stream = [&[22, 3, 1, 0, handshake.len() as u8][..], &handshake].concat();
    let mut findings = Findings::new(false);
    let streams = Streams { first: &stream, ..Streams::default() };
    STREAM_READERS.iter().find(|reader| reader.read(&streams, &mut findings) != Verdict::No).unwrap();
    let ja3 = weir_dpi::ja3(&findings).unwrap();
    let ja4 = weir_dpi::ja4(&findings).unwrap();
    let [ja3, ja4] = [&ja3[..], &ja4].map(|octets| String::from_utf8(octets.to_vec()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, text| TagList { name: name.into(), path: file(&folder, name, text) };
    let tags = vec![list("a", ja3.to_uppercase()), list("b", ja4), list("c", "0".repeat(32))];
    let enrichment = load(&Sources { tags, ..Sources::default() });
    let flow = FlowRecord { findings: Some(Arc::new(findings)), ..record("192.0.2.1", "192.0.2.2") };
    assert_eq!(enrichment.places(&flow).tags.as_deref(), Some("a b"));
}

#[test]
fn records_without_addresses_of_hosts_have_no_places() {
    let folder = tempfile::tempdir().unwrap();
    let enrichment = load(&geo(&[&file(&folder, "country.mmdb", countries())]));
    let flow = record("1.0.0.0", "1.0.0.0");
    assert_ne!(enrichment.places(&flow), Places::default());
    let layer2 = FlowRecord { network: Network::Layer2, ..flow.clone() };
    let overflow = FlowRecord { approximate: Approximate(Approximate::OVERFLOW), ..flow };
    for record in [layer2, overflow] {
        assert_eq!(enrichment.places(&record), Places::default());
    }
}

#[test]
fn the_most_specific_network_of_a_database_counts() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [
        ("first.mmdb", countries()),
        ("second.mmdb", Database::of("x", &[("::/1", country("FR")), ("0.0.0.0/1", country("FR"))]).octets()),
    ]
    .map(|(name, content)| file(&folder, name, content));
    let of = |sources: &Sources, address: &str| {
        load(sources).places(&record(address, address)).source.country().map(String::from)
    };
    let [one, both] = [geo(&[&first]), geo(&[&first, &second])];
    for (address, alone, then) in [
        ("1.0.0.0", Some("AU"), Some("AU")),
        ("1.2.0.0", Some("JP"), Some("JP")),
        // Without a country: the next database has one.
        ("1.2.3.0", None, Some("FR")),
        ("1.255.255.255", Some("AU"), Some("AU")),
        ("2.0.0.0", None, Some("FR")),
        ("2001:db8::1", Some("DE"), Some("DE")),
        ("2001:db8:1::1", None, Some("FR")),
        ("2001:db9::1", None, Some("FR")),
        ("192.0.2.1", None, Some("FR")),
        ("8000::", None, None),
    ] {
        assert_eq!((of(&one, address).as_deref(), of(&both, address).as_deref()), (alone, then), "{address}");
    }
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str, content: &[u8]| {
        let path = file(&folder, name, content);
        let errors = Enrichment::load(&geo(&[&path])).unwrap_err();
        let [error] = &errors[..] else { panic!("{errors:?}") };
        error.to_string().replace(&format!("{}/", folder.path().display()), "")
    };
    let speed = Value::Map(vec![("connection_type", Value::Text("Cable/DSL".into()))]);
    let other = Database::of("GeoIP2-Connection-Type", &[("1.0.0.0/8", speed)]).octets();
    assert_eq!(
        error("speed.mmdb", &other),
        "--geo speed.mmdb: the database has no country and no autonomous system; its type is \"GeoIP2-Connection-Type\""
    );
    let whole = countries();
    for (name, content) in [("cut.mmdb", &whole[..whole.len() / 2]), ("text.csv", b"prefix,country\n")] {
        let error = error(name, content);
        assert!(error.starts_with(&format!("--geo {name}: not a MaxMind database, or damaged: ")), "{error}");
    }
    assert_eq!(error("empty.mmdb", b""), "--geo empty.mmdb: the file is empty");
    let missing = folder.path().join("missing.mmdb");
    let errors = Enrichment::load(&geo(&[&missing, folder.path()])).unwrap_err();
    let texts: Vec<_> = errors.iter().map(|error| error.problem.to_string()).collect();
    assert_eq!(texts, ["No such file or directory (os error 2)", "not a regular file"]);
}

#[test]
fn all_files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str| TagList { name: name.into(), path: file(&folder, &format!("{name}.txt"), "?\n") };
    let sources = Sources {
        networks: Some(file(&folder, "networks.csv", "?\n")),
        geo: vec![file(&folder, "country.mmdb", "?\n")],
        tags: vec![list("a"), list("b")],
    };
    fs::remove_file(folder.path().join("b.txt")).unwrap();
    let errors = Enrichment::load(&sources).unwrap_err();
    let options: Vec<&str> = errors.iter().map(|error: &Error| error.option.as_str()).collect();
    assert_eq!(options, ["--networks", "--geo", "--tags a", "--tags b"]);
}

#[test]
fn what_a_list_has_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, text| TagList {
        name: name.into(),
        path: file(&folder, &format!("{name}{}", str::len(text)), text),
    };
    let tags = vec![
        list("addresses", "192.0.2.1\n"),
        list("names", "evil.example\n"),
        list("hashes", "t13d1516h2_8daaf6152771_b186095e22b6\n"),
        list("both", "2001:db8::/32\n"),
        list("both", "e7d705a3286e19ea42f587b344ee6865\n"),
        list("empty", "# nothing\n"),
    ];
    let enrichment = load(&Sources { tags, ..Sources::default() });
    for (name, has_addresses, has_findings) in [
        ("addresses", true, false),
        ("names", false, true),
        ("hashes", false, true),
        ("both", true, true),
        ("empty", false, false),
    ] {
        assert_eq!(enrichment.lists(|list| list == name), ListContent { has_addresses, has_findings }, "{name}");
    }
    assert_eq!(enrichment.lists(|list| list == "other"), ListContent::default());
}
