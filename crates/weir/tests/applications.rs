//! Applications: what `weir read` finds in the payload of the captures of single flows.

mod common;

use common::{metered, weir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Facts of the list beside a capture, and the fields that have them.
const FIELDS: [(&str, &str); 20] = [
    ("ServerName", "sni"),
    ("AlpnOffered", "alpn_offered"),
    ("AlpnSelected", "alpn"),
    ("TlsCipher", "tls_cipher"),
    ("JA3", "ja3"),
    ("JA3S", "ja3s"),
    ("JA4", "ja4"),
    ("CertificateSubject", "cert_subject"),
    ("CertificateNames", "cert_names"),
    ("QuicVersion", "quic_version"),
    ("DnsName", "dns_name"),
    ("DnsType", "dns_type"),
    ("DnsRcode", "dns_rcode"),
    ("DnsAnswers", "dns_answers"),
    ("HttpHost", "http_host"),
    ("HttpPath", "http_path"),
    ("HttpUserAgent", "http_user_agent"),
    ("HttpStatus", "http_status"),
    ("SshServer", "ssh_server"),
    ("Hassh", "hassh"),
];

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dpi/testdata");
    let files = std::fs::read_dir(folder).expect("the folder can be listed").map(|entry| entry.unwrap().path());
    let mut captures: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "pcap")).collect();
    captures.sort();
    captures
}

/// The only record of a capture.
fn record(path: &Path, options: &[&str]) -> Value {
    let (code, err, records, _) = metered(&[&["read", path.to_str().unwrap(), "-q"], options].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{}", path.display());
    assert_eq!(records.len(), 1, "{}", path.display());
    records[0].clone()
}

#[test]
fn fields_have_the_facts_of_the_payload() {
    let captures = captures();
    assert!(captures.len() > 10);
    for path in captures {
        let facts = std::fs::read_to_string(path.with_extension("facts")).expect("each capture has a list of facts");
        let record = record(&path, &["--fields", "application", "--dpi-fields"]);
        let (application, by) = facts.lines().next().and_then(|line| line.split_once(" by ")).expect("the first line");
        assert_eq!((&record["application"], &record["application_by"]), (&application.into(), &by.into()));
        let facts: BTreeMap<&str, &str> = facts.lines().skip(1).filter_map(|line| line.split_once(' ')).collect();
        for (fact, field) in FIELDS {
            let expected = facts.get(fact).copied().unwrap_or("null");
            let value = &record[field];
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(value, expected, "{} {field}", path.display());
        }
    }
}

#[test]
fn inspection_can_be_off_and_personal_facts_are_kept_on_request_only() {
    for path in captures() {
        let without = record(&path, &["--fields", "application", "--dpi", "off"]);
        assert!(without["application"].is_null() && without["sni"].is_null() && without["dns_name"].is_null());
        let default = record(&path, &["--fields", "application"]);
        for field in ["http_path", "http_user_agent", "user_name"] {
            assert!(default[field].is_null(), "{} {field}", path.display());
        }
    }
}

#[test]
fn views_and_expressions_have_applications() {
    let of = |name: &str| captures().into_iter().find(|path| path.file_stem().unwrap() == name).unwrap();
    let (tls, dns) = (of("tls-1.2"), of("dns-udp"));
    let files = ["read", tls.to_str().unwrap(), dns.to_str().unwrap(), "-q"];
    let read = |options: &[&str]| weir(files.iter().chain(options));
    let (code, table, err) = read(&["--by", "application"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(table.contains("tls") && table.contains("dns"), "{table}");
    let (_, selected, _) = read(&["-o", "csv:-", "--fields", "sni", "--where", "sni ends-with .example.test"]);
    assert_eq!(selected, "sni\nwww.example.test\n");
    let (code, _, err) = read(&["--where", "application = dsn"]);
    assert_eq!(code, 1);
    assert!(err.contains("application has no value \"dsn\"; there are tls, quic, dns"), "{err}");
}
