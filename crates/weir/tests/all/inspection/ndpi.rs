//! `--dpi full`: nDPI beside our own inspection. Without the cargo feature it is refused.

#[cfg(feature = "ndpi")]
use serde_json::Value;
#[cfg(feature = "ndpi")]
use std::path::Path;
use testbed::captures_of_applications;
#[cfg(feature = "ndpi")]
use testbed::metered;

#[cfg(feature = "ndpi")]
fn records(path: &Path, options: &[&str]) -> Vec<Value> {
    let (code, err, records, _) = metered(&[&["read", path.to_str().unwrap(), "-q"], options].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{}", path.display());
    records
}

#[cfg(not(feature = "ndpi"))]
#[test]
fn full_inspection_needs_ndpi() {
    let err = testbed::failure(1, ["read", captures_of_applications()[0].to_str().unwrap(), "--dpi", "full"]);
    assert!(err.contains("--dpi full: this weir was built without nDPI; build it with --features ndpi"), "{err}");
}

/// What nDPI 4.2 calls an application of ours. `None` if it has no such protocol.
#[cfg(feature = "ndpi")]
fn of_ndpi(application: &str) -> Option<&'static [&'static str]> {
    Some(match application {
        "tls" => &["TLS", "DTLS"],
        "dtls" => &["DTLS", "TLS"],
        "quic" => &["QUIC"],
        "dns" => &["DNS"],
        "mdns" => &["MDNS"],
        "llmnr" => &["LLMNR"],
        "http" => &["HTTP", "HTTP_Proxy", "HTTP_Connect"],
        "ssh" => &["SSH"],
        "ntp" => &["NTP"],
        "smtp" => &["SMTP", "SMTPS"],
        "imap" => &["IMAP", "IMAPS"],
        "pop3" => &["POP3", "POPS"],
        "ftp" => &["FTP_CONTROL"],
        "sip" => &["SIP"],
        "snmp" => &["SNMP"],
        "mqtt" => &["MQTT"],
        "stun" => &["STUN"],
        "rdp" => &["RDP"],
        "smb" => &["SMBv1", "SMBv23", "NetBIOS"],
        "kerberos" => &["Kerberos"],
        "ldap" => &["LDAP"],
        "postgresql" => &["PostgreSQL"],
        "mysql" => &["MySQL"],
        "redis" => &["Redis"],
        "bittorrent" => &["BitTorrent"],
        "wireguard" => &["WireGuard"],
        "openvpn" => &["OpenVPN"],
        _ => return None,
    })
}

/// Captures in which nDPI 4.2 takes one protocol for another. It knows LDAP and SNMP on their own ports only.
#[cfg(feature = "ndpi")]
const DIFFERENT: [&str; 4] =
    ["ldap-search: ldap MQTT", "ldap-starttls: ldap MQTT", "snmp-v2c: snmp Skype_Teams", "snmp-v3: snmp Skype_Teams"];

#[cfg(feature = "ndpi")]
#[test]
fn ndpi_agrees_with_our_own_inspection() {
    let (mut compared, mut unknown, mut different) = (0, Vec::new(), Vec::new());
    for path in captures_of_applications() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for record in records(&path, &["--dpi", "full", "--fields", "applications,ndpi_*"]) {
            let Some(application) = record["application"].as_str() else { continue };
            let Some(names) = of_ndpi(application) else { continue };
            let Some(protocol) = record["ndpi_protocol"].as_str() else {
                unknown.push(name.clone());
                continue;
            };
            compared += 1;
            assert!(record["ndpi_category"].is_string() && record["ndpi_confidence"].is_string(), "{record}");
            if !protocol.split('.').any(|part| names.contains(&part)) {
                different.push(format!("{name}: {application} {protocol}"));
            }
        }
    }
    println!("{compared} compared, unknown to nDPI: {unknown:?}");
    assert!(compared > 40, "{compared}");
    assert_eq!(different, DIFFERENT);
}

#[cfg(feature = "ndpi")]
#[test]
fn records_are_the_same_with_ndpi_beside() {
    for path in captures_of_applications() {
        let own = |level| records(&path, &["--dpi", level, "--fields", "applications"]);
        let without = |mut records: Vec<Value>| {
            for record in &mut records {
                record.as_object_mut().unwrap().retain(|name, _| !name.starts_with("ndpi_"));
            }
            records
        };
        assert_eq!(without(own("full")), without(own("light")), "{}", path.display());
    }
}

/// nDPI sees packets with plain headers that Weir makes, and finds the same in them as in the packets
/// of the capture.
#[cfg(feature = "ndpi")]
#[test]
fn answers_are_those_of_ndpireader() {
    if std::process::Command::new("ndpiReader").arg("-h").output().is_err() {
        return eprintln!("SKIPPED: ndpiReader is not installed (libndpi-bin)");
    }
    let mut compared = 0;
    for path in captures_of_applications() {
        let output = std::process::Command::new("ndpiReader").arg("-i").arg(&path).args(["-v", "2"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // 1 TCP 127.0.0.1:1 <-> 127.0.0.1:2 [proto: 91.7/TLS.HTTP]...[Confidence: DPI]...
        let part = |line: &str, key: &str| {
            let (_, after) = line.split_once(key)?;
            Some(after.split(']').next()?.to_owned())
        };
        let lines = text.lines().filter(|line| line.contains("[Confidence: DPI]"));
        let theirs: Vec<String> =
            lines.filter_map(|line| Some(part(line, "[proto: ")?.split_once('/')?.1.to_owned())).collect();
        let records = records(&path, &["--dpi", "full", "--fields", "ndpi_*"]);
        let ours = records.iter().filter(|record| record["ndpi_confidence"] == "DPI");
        let ours: Vec<&str> = ours.filter_map(|record| record["ndpi_protocol"].as_str()).collect();
        assert_eq!(ours, theirs, "{}", path.display());
        compared += ours.len();
    }
    assert!(compared > 40, "{compared}");
}
