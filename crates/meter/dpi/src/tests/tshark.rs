//! Compares the facts of the captures in `testdata` with the fields of tshark, where it has the same.
//!
//! `tests/readers.rs` asserts that the readers find these facts. tshark knows no HTTP method if the client asks
//! for an interim response, and no LLMNR over TCP: what it does not know is not compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A fact, and the fields of tshark that have it.
const FACTS: [(&str, &[&str]); 14] = [
    ("DnsName", &["dns.qry.name"]),
    ("DnsType", &["dns.qry.type"]),
    ("DnsRcode", &["dns.flags.rcode"]),
    ("HttpHost", &["http.host", "http2.headers.authority"]),
    ("HttpMethod", &["http.request.method", "http2.headers.method"]),
    ("HttpUserAgent", &["http.user_agent", "http2.headers.user_agent"]),
    ("HttpStatus", &["http.response.code", "http2.headers.status"]),
    ("HttpContentType", &["http.content_type", "http2.headers.content_type"]),
    ("SshClient", &["ssh.protocol"]),
    ("Hassh", &["ssh.kex.hassh"]),
    ("HasshServer", &["ssh.kex.hasshserver"]),
    ("User", &["mqtt.clientid", "mysql.user", "ldap.name", "ftp.request.arg", "pop.request.parameter"]),
    ("ServerSoftware", &["mysql.version"]),
    ("ServerName", &["tls.handshake.extensions_server_name"]),
];
/// What listens on the ports of the captures.
const PORTS: [&str; 6] = ["8081,http2", "2222,ssh", "11883,mqtt", "13306,mysql", "1389,ldap", "1021,ftp"];
/// Facts that tshark 4.0.17 has.
const MIN_COMPARED: usize = 52;

/// The first value of each field.
fn fields(capture: &Path) -> BTreeMap<&'static str, String> {
    let names: Vec<&str> = FACTS.iter().flat_map(|(_, fields)| *fields).copied().collect();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"]).arg(capture);
    PORTS.iter().for_each(|port| {
        tshark.args(["-d", &format!("tcp.port=={port}")]);
    });
    names.iter().for_each(|name| {
        tshark.args(["-e", name]);
    });
    let output = tshark.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut values = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        for (name, value) in names.iter().zip(line.split('\t')).filter(|(_, value)| !value.is_empty()) {
            values.entry(*name).or_insert_with(|| value.to_string());
        }
    }
    values
}

#[test]
fn facts_are_those_of_tshark() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let (mut compared, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        if path.extension().is_none_or(|extension| extension != "facts") {
            continue;
        }
        let facts = std::fs::read_to_string(&path).expect("the facts can be read");
        let compared_facts: Vec<_> = facts
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(fact, ours)| Some((fact, ours, FACTS.iter().find(|(name, _)| *name == fact)?.1)))
            .collect();
        if compared_facts.is_empty() {
            continue;
        }
        let fields = fields(&path.with_extension("pcap"));
        for (fact, ours, names) in compared_facts {
            let Some(theirs) = names.iter().find_map(|name| fields.get(name)) else { continue };
            compared += 1;
            if ours != theirs {
                wrong.push(format!("{}: {fact}: {ours}, tshark: {theirs}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{compared} facts compared");
    assert!(compared >= MIN_COMPARED, "{compared}");
}
