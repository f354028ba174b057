//! `--anonymise` through the binary: no output has an address or a name of the traffic, and all of them have the same
//! others.

use super::store::files;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testbed::decode::{self, Decoder};
use testbed::namespace::BOUND;
use testbed::running::send_requests;
use testbed::served::Served;
use testbed::{
    arguments, assert_usage_errors, capture_files, captures, captures_of_applications, ledger_of, number,
    permit_all_users, read_flows, success, weir,
};
use weir_fields::{Anonymisation, Column, columns};

/// The key of the sample of Crypto-PAn's authors. The results of the tests do not depend on chance.
const KEY: [u8; 32] = [
    21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121, 101, 39, 98,
    87, 76, 45, 42, 132, 34, 2,
];

/// A folder with a key.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        permit_all_users(folder.0.path());
        folder.write_key("key", &KEY);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write_key(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
        self.name(name)
    }

    fn key(&self) -> String {
        self.name("key")
    }
}

/// All shipped captures, with all that Weir can find in them.
fn input() -> Vec<OsString> {
    let options = ["-q", "--layer2", "--mac-addresses", "--decap", "--dpi-fields"].map(OsString::from);
    let captures = capture_files().into_iter().chain(captures_of_applications());
    options.into_iter().chain(captures.map(PathBuf::into_os_string)).collect()
}

/// What becomes of a column.
fn rule(column: &Column) -> Option<Anonymisation> {
    column.properties.anonymisation.filter(|rule| *rule != Anonymisation::Keep)
}

type Row = Map<String, Value>;

fn rows(path: &Path) -> Vec<Row> {
    read_flows(path).into_iter().map(|row| row.as_object().unwrap().clone()).collect()
}

fn rows_of(text: &str) -> Vec<Row> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Addresses, MAC addresses and texts that no output may have.
#[derive(Default)]
struct Originals {
    addresses: BTreeSet<IpAddr>,
    macs: BTreeSet<String>,
    texts: BTreeSet<String>,
}

impl Originals {
    fn of(rows: &[Row]) -> Self {
        let mut originals = Self::default();
        for row in rows {
            for column in columns() {
                let (Some(rule), Some(text)) = (rule(column), row[column.name].as_str()) else { continue };
                match rule {
                    Anonymisation::Address => drop(originals.addresses.insert(text.parse().unwrap())),
                    Anonymisation::Mac => drop(originals.macs.insert(text.into())),
                    Anonymisation::Name => originals.texts.extend(text.split(',').map(String::from)),
                    Anonymisation::Words(words) => {
                        originals.texts.extend(text.split(',').filter(|word| !words.contains(word)).map(String::from));
                    }
                    Anonymisation::LeaveOut | Anonymisation::Derived | Anonymisation::Keep => {}
                }
            }
        }
        // What a text of its own may be, and no name: a type of a record.
        originals.texts.retain(|text| !text.starts_with("TYPE"));
        originals
    }

    /// Asserts that a text has none of them. Words of the text are what no other character than those of addresses
    /// separates.
    fn assert_missing(&self, place: &str, text: &str) {
        let is_of_address = |letter: char| letter.is_ascii_hexdigit() || matches!(letter, ':' | '.');
        for word in text.split(|letter| !is_of_address(letter)) {
            let word = word.trim_matches('.');
            let address: Option<IpAddr> = word.parse().ok();
            assert!(!address.is_some_and(|address| self.addresses.contains(&address)), "{place}: {word}");
            assert!(!self.macs.contains(word), "{place}: {word}");
        }
        // Shorter ones are part of words of Weir.
        for original in self.texts.iter().filter(|text| text.len() > 5) {
            assert!(!text.contains(original.as_str()), "{place}: {original}");
        }
    }

    /// Asserts that no value of a record has one of them, in either order of its octets.
    fn assert_missing_in_record(&self, record: &decode::Record) {
        for (element, value) in record {
            let text = match value {
                decode::Value::Ip(address) => {
                    let turned: IpAddr = match address {
                        IpAddr::V4(address) => u32::from(*address).swap_bytes().to_be_bytes().into(),
                        IpAddr::V6(address) => u128::from(*address).swap_bytes().to_be_bytes().into(),
                    };
                    for address in [*address, turned] {
                        assert!(!self.addresses.contains(&address), "{element}: {address}");
                    }
                    continue;
                }
                decode::Value::Octets(octets) => {
                    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
                }
                decode::Value::Text(text) => text.clone(),
                decode::Value::Unsigned(_) | decode::Value::Float(_) => continue,
            };
            assert!(!self.macs.contains(&text), "{element}: {text}");
            assert!(!self.texts.contains(&text), "{element}: {text}");
        }
    }
}

/// Values of a text column, one from each row, sorted.
fn sorted<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut values: Vec<String> = values.into_iter().map(Value::to_string).collect();
    values.sort_unstable();
    values
}

/// Compares an anonymised record with the true one.
fn compare(before: &Row, after: &Row) {
    for column in columns() {
        let (from, to) = (&before[column.name], &after[column.name]);
        match rule(column) {
            None => assert_eq!(from, to, "{}", column.name),
            Some(Anonymisation::LeaveOut) => assert!(to.is_null(), "{}: {to}", column.name),
            Some(Anonymisation::Words(_)) => assert_eq!(from.is_null(), to.is_null(), "{}", column.name),
            Some(_) => {
                assert_eq!(from.is_null(), to.is_null(), "{}: {from} {to}", column.name);
                let none = ["00:00:00:00:00:00", "TYPE257"].iter().any(|none| to == none);
                assert!(from.is_null() || from != to || none, "{}: {to}", column.name);
            }
        }
    }
}

/// The ledger without what depends on the texts of records, and on the run.
fn without_sizes(mut ledger: Value) -> Value {
    for sink in ledger["sinks"].as_array_mut().unwrap() {
        let sink = sink.as_object_mut().unwrap();
        ["octets", "sink", "wire_records", "messages"].iter().for_each(|key| drop(sink.remove(*key)));
    }
    ledger
}

#[test]
fn no_output_has_what_was_there_and_all_have_the_same_others() {
    let folder = Folder::new();
    let outputs = |name: &str| -> Vec<OsString> {
        let sinks =
            ["flows.json?fields=all", "flows.csv?fields=all", "flows.ipfix?fields=all", "flows.parquet?fields=all"];
        let mut outputs = Vec::new();
        for sink in sinks {
            outputs.extend(["-o".into(), folder.path(&format!("{name}-{sink}")).into_os_string()]);
        }
        let [table, store] = ["table", "store"].map(|of| folder.name(&format!("{name}-{of}")));
        let others = [format!("table:{table}?fields=all"), format!("parquet:{store}?fields=all")];
        outputs.extend(others.into_iter().flat_map(|sink| ["-o".into(), sink.into()]));
        outputs.extend(["--top".into(), "0".into()]);
        outputs
    };
    let read = |name: &str, more: &[&str]| {
        let mut arguments: Vec<OsString> = vec!["read".into()];
        arguments.extend(input().into_iter().chain(outputs(name)).chain(more.iter().map(OsString::from)));
        ledger_of(arguments)
    };
    let (code, err, before) = read("true", &[]);
    let (code_after, err_after, after) = read("other", &["--anonymise", &folder.key()]);
    assert_eq!((code, without_sizes(before)), (code_after, without_sizes(after)));
    assert_eq!(err, err_after, "the same warnings");
    let [from, to] = ["true", "other"].map(|name| rows(&folder.path(&format!("{name}-flows.json"))));
    assert_eq!(from.len(), to.len());
    from.iter().zip(&to).for_each(|(from, to)| compare(from, to));
    let originals = Originals::of(&from);
    let numbers = [originals.addresses.len(), originals.macs.len(), originals.texts.len()];
    assert!(numbers[0] > 20 && numbers[1] > 8 && numbers[2] > 100, "{numbers:?}");
    for name in ["flows.json", "flows.csv", "table"] {
        let text = fs::read_to_string(folder.path(&format!("other-{name}"))).unwrap();
        originals.assert_missing(name, &text);
        assert!(text.contains("n-") && text.len() > 10_000, "{name}");
    }
    let records = Decoder::new().file(&fs::read(folder.path("other-flows.ipfix")).unwrap());
    records.iter().for_each(|record| originals.assert_missing_in_record(record));
    let endpoints = ["sourceIPv4Address", "destinationIPv4Address", "sourceIPv6Address", "destinationIPv6Address"];
    let of_ipfix: BTreeSet<IpAddr> = endpoints.iter().flat_map(|element| sorted_ips(&records, element)).collect();
    let of_json = to.iter().flat_map(|row| [&row["src_ip"], &row["dst_ip"]]).filter_map(Value::as_str);
    let of_json: BTreeSet<IpAddr> = of_json.map(|text| text.parse().unwrap()).collect();
    assert!(records.len() >= to.len() && of_ipfix == of_json, "{of_ipfix:?} {of_json:?}");
    assert_equal_in_other_formats(&folder, &to);
}

fn sorted_ips(records: &[decode::Record], element: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = records
        .iter()
        .filter_map(|record| match record.get(element) {
            Some(decode::Value::Ip(address)) => Some(*address),
            _ => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses
}

/// Compares CSV and Parquet with the rows of JSON.
fn assert_equal_in_other_formats(folder: &Folder, json: &[Row]) {
    let mut csv = csv::Reader::from_path(folder.path("other-flows.csv")).unwrap();
    let names: Vec<String> = csv.headers().unwrap().iter().map(String::from).collect();
    let records: Vec<_> = csv.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), json.len());
    for (record, row) in records.iter().zip(json) {
        for (name, value) in names.iter().zip(record) {
            if let Some(text) = row[name].as_str() {
                assert_eq!(value, text, "{name}");
            }
        }
    }
    for stored in ["other-flows.parquet", "other-store"] {
        let (code, text, _) = weir(["read", "-q", &folder.name(stored), "-o", "json:-", "--fields", "all"]);
        let stored_rows = rows_of(&text);
        assert_eq!((code, stored_rows.len()), (0, json.len()), "{stored}");
        let known: Vec<&String> = stored_rows[0].keys().collect();
        assert!(known.len() > 200, "{}", known.len());
        for name in known {
            let of = |rows: &[Row]| sorted(rows.iter().map(|row| &row[name]));
            assert_eq!(of(&stored_rows), of(json), "{stored}: {name}");
        }
    }
}

#[test]
fn stored_flows_are_anonymised_like_metered_ones_and_once_more() {
    let folder = Folder::new();
    let capture = captures().join("dns.pcap.gz");
    let [plain, once] = ["plain.parquet", "once.parquet"].map(|name| folder.name(name));
    success(arguments!["read", "-q", capture, "-o", plain]);
    success(arguments!["read", "-q", capture, "--anonymise", folder.key(), "-o", once]);
    let fields = "src_ip,dst_ip,dns_name,dst_dns_name";
    let of = |input: &str, more: &[&str]| {
        let arguments = ["read", "-q", input, "-o", "json:-", "--fields", fields];
        sorted(&rows_of(&success(arguments.iter().chain(more))).into_iter().map(Value::Object).collect::<Vec<_>>())
    };
    let key = folder.key();
    let anonymised = of(&plain, &["--anonymise", &key]);
    assert_eq!(anonymised, of(&once, &[]));
    assert_eq!(anonymised, of(capture.to_str().unwrap(), &["--anonymise", &key]));
    let twice = of(&once, &["--anonymise", &key]);
    assert!(twice.len() == anonymised.len() && twice.iter().all(|row| !anonymised.contains(row)), "{twice:?}");
    // A reader can know.
    let octets = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap()).contains("weir.anonymised");
    assert_eq!([octets(&plain), octets(&once)], [false, true]);
    let table = folder.path("networks.csv");
    fs::write(&table, "prefix,name\n10.0.0.0/8,office\n").unwrap();
    let places = ["--networks", table.to_str().unwrap(), "-o", "json:/dev/null"];
    let (code, _, err) = weir(["read", "-q", &once].iter().chain(&places));
    assert!(code == 0 && err.contains("places and tags are those of the addresses that they have instead"), "{err}");
    success(["read", "-q", &plain].iter().chain(&places));
}

#[test]
fn sorted_hours_keep_anonymised_flows_apart() {
    let folder = Folder::new();
    let capture = captures().join("dns.pcap.gz");
    let store = folder.path("store");
    let sink = format!("parquet:{}", store.display());
    for _ in 0..2 {
        success(arguments!["read", "-q", capture, "-o", sink]);
        success(arguments!["read", "-q", capture, "--anonymise", folder.key(), "-o", sink]);
    }
    let are_anonymised = || -> Vec<bool> {
        let has_key = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).contains("weir.anonymised");
        files(&store).iter().map(has_key).collect()
    };
    assert_eq!(are_anonymised().iter().filter(|is| **is).count() * 2, files(&store).len());
    assert_eq!(weir(arguments!["store", store, "--compact"]).0, 0);
    let mut sorted = are_anonymised();
    sorted.sort_unstable();
    assert_eq!(sorted, [false, true]);
}

#[test]
fn expressions_have_the_true_values_and_views_the_others() {
    let folder = Folder::new();
    let capture = testbed::small().save(folder.0.path(), "small.pcap").display().to_string();
    let key = folder.key();
    let read = |more: &[&str]| success(["read", "-q", &capture, "--anonymise", &key].iter().chain(more));
    let sources =
        |text: &str| -> Vec<String> { text.lines().skip(1).map(|row| row.split(',').next().unwrap().into()).collect() };
    let all = sources(&read(&["-o", "csv:-", "--fields", "src_ip"]));
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|source| *source == all[0] && source != "192.0.2.10"), "{all:?}");
    assert_eq!(sources(&read(&["-o", "csv:-", "--fields", "src_ip", "--where", "src_ip = 192.0.2.10"])), all);
    assert_eq!(sources(&read(&["-o", "csv:-?fields=src_ip&where=src_ip = 192.0.2.10"])), all);
    assert!(sources(&read(&["-o", "csv:-", "--where", &format!("src_ip = {}", all[0])])).is_empty());
    assert_eq!(sources(&read(&["-o", "csv:-", "--by", "src_ip"])), &all[..1]);
    let prefixes = sources(&read(&["-o", "csv:-", "--by", "src_ip/24"]));
    assert_eq!(prefixes.len(), 1);
    let table = read(&["--by", "host"]);
    assert!(table.contains(&all[0]) && !table.contains("192.0.2.") && !table.contains("198.51.100."), "{table}");
    // Places are those of the true addresses.
    let networks = folder.path("networks.csv");
    fs::write(&networks, "prefix,name\n192.0.2.0/24,office\n").unwrap();
    let places = read(&["--networks", networks.to_str().unwrap(), "-o", "csv:-", "--fields", "src_ip,src_network"]);
    assert!(places.lines().skip(1).all(|row| row == format!("{},office", all[0])), "{places}");
    let short = sources(&success([
        "read",
        "-q",
        &capture,
        "--anonymise",
        &format!("{key}?ipv4=24"),
        "-o",
        "csv:-",
        "--fields",
        "src_ip",
    ]));
    let address: std::net::Ipv4Addr = all[0].parse().unwrap();
    let [a, b, c, _] = address.octets();
    assert!(short.iter().all(|source| *source == format!("{a}.{b}.{c}.0")), "{short:?}");
}

#[test]
fn the_key_decides_and_its_file_has_two_forms() {
    let folder = Folder::new();
    let digits: String = KEY.iter().map(|octet| format!("{octet:02x}")).collect();
    let mut other = KEY;
    other[20] ^= 1;
    let [hexadecimal, other] = [("hexadecimal", format!("{digits}\n").into_bytes()), ("other", other.into())]
        .map(|(name, content)| folder.write_key(name, &content));
    let capture = captures().join("dns.pcap.gz").display().to_string();
    let read = |spec: &str| success(["read", "-q", &capture, "--anonymise", spec, "-o", "json:-", "--fields", "all"]);
    let expected = read(&folder.key());
    assert_eq!(read(&folder.key()), expected);
    assert_eq!(read(&hexadecimal), expected);
    assert_ne!(read(&other), expected);
    let dropped = rows_of(&read(&format!("{}?names=drop", folder.key())));
    assert!(dropped.iter().all(|row| row["dns_name"].is_null() && row["dns_records"].is_null()));
    assert!(expected.contains("\"dns_name\":\"n-") && dropped.iter().any(|row| row["application"] == "dns"));
}

#[test]
fn collectors_get_anonymised_records() {
    let folder = Folder::new();
    let capture = testbed::small().save(folder.0.path(), "small.pcap").display().to_string();
    let originals = Originals::of(&rows_of(&success(["read", "-q", &capture, "-o", "json:-", "--fields", "all"])));
    assert!(!originals.addresses.is_empty());
    let anonymised = success(["read", "-q", &capture, "--anonymise", &folder.key(), "-o", "json:-"]);
    let expected: BTreeSet<IpAddr> =
        rows_of(&anonymised).iter().map(|row| row["src_ip"].as_str().unwrap().parse().unwrap()).collect();
    for scheme in ["ipfix", "netflow9", "netflow5"] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(BOUND)).unwrap();
        let sink = format!("{scheme}+udp://{}", socket.local_addr().unwrap());
        let (code, err, ledger) = ledger_of(["read", "-q", &capture, "--anonymise", &folder.key(), "-o", &sink]);
        assert_eq!((code, err.as_str()), (0, ""));
        let (mut decoder, mut records) = (Decoder::new(), Vec::new());
        let mut sources = BTreeSet::new();
        for _ in 0..number(&ledger["sinks"][0]["messages"]) {
            let mut datagram = [0; 2000];
            let octets = socket.recv(&mut datagram).unwrap();
            if scheme == "netflow5" {
                for record in datagram[24..octets].as_chunks::<48>().0 {
                    let [source, destination]: [IpAddr; 2] =
                        [0, 4].map(|at| <[u8; 4]>::try_from(&record[at..at + 4]).unwrap().into());
                    assert!(!originals.addresses.contains(&source) && !originals.addresses.contains(&destination));
                    sources.insert(source);
                }
            } else {
                records.extend(decoder.message(&datagram[..octets]));
            }
        }
        records.iter().for_each(|record| originals.assert_missing_in_record(record));
        sources.extend(sorted_ips(&records, "sourceIPv4Address"));
        assert!(expected.is_subset(&sources), "{scheme}");
    }
}

#[test]
fn keys_that_are_none_and_packets_are_refused_before_an_output_is_opened() {
    let folder = Folder::new();
    let capture = testbed::small().save(folder.0.path(), "small.pcap").display().to_string();
    let output = folder.name("flows.json");
    let short = folder.write_key("short", &[7; 31]);
    let text = folder.write_key("text", &b"zz".repeat(32));
    let (missing, key) = (folder.name("missing"), folder.key());
    for (spec, reason) in [
        (
            &short,
            "short: a key has 32 octets, or 64 hexadecimal digits; this file has 31 octets; make one with: head -c",
        ),
        (&text, "text: a key has 32 octets, or 64 hexadecimal digits; this file has other characters; make one with"),
        (&missing, "missing: No such file or directory (os error 2); is the name right?"),
    ] {
        for command in [&["read", &capture][..], &["probe", "-i", &capture], &["probe", "--check", "-i", &capture]] {
            let (code, _, err) = weir(command.iter().copied().chain(["--anonymise", spec, "-o", &output]));
            assert!(code == 1 && err.contains("--anonymise: ") && err.contains(reason), "{command:?}: {err}");
            assert!(!Path::new(&output).exists());
        }
    }
    let bits = format!("{key}?ipv4=33");
    let packets = format!("packets:{}", folder.name("packets"));
    let rules = folder.path("rules.toml");
    fs::write(&rules, "").unwrap();
    let rules = rules.to_str().unwrap();
    const PACKETS: &str = "passes on whole packets, which cannot be anonymised; leave out one of the two";
    let (of_output, of_rules) = (format!("-o packets:FILE {PACKETS}"), format!("--rules {PACKETS}"));
    assert_usage_errors(&[
        (&["read", &capture, "--anonymise", &bits], "ipv4=33: use the number of leading bits that stay, from 0 to 32"),
        (&["read", &capture, "--anonymise", "?ipv4=8"], "name the file of the key"),
        (&["read", &capture, "--anonymise", &key, "-o", &packets], &of_output),
        (&["read", &capture, "--anonymise", &key, "-o", &output, "-o", &packets], &of_output),
        (&["read", &capture, "--anonymise", &key, "--rules", rules], &of_rules),
        (&["probe", "-i", &capture, "--anonymise", &key, "--rules", rules], &of_rules),
        (&["probe", "-i", &capture, "--anonymise", &key, "--rules", rules, "--check"], &of_rules),
    ]);
    assert!(!folder.path("packets").exists() && !Path::new(&output).exists());
    // A key that others may read is used, with a warning that does not have it.
    fs::set_permissions(folder.path("key"), Permissions::from_mode(0o644)).unwrap();
    let (code, _, err) = weir(["read", "-q", &capture, "--anonymise", &key, "-o", "json:/dev/null"]);
    assert_eq!(code, 0);
    assert_eq!(
        err,
        format!(
            "weir: warning: others than its owner may read the key of --anonymise; chmod 600 it file={key} mode=644\n"
        )
    );
}

#[test]
fn a_probe_takes_it_from_its_configuration_and_describes_it() {
    let folder = Folder::new();
    let capture = testbed::small().save(folder.0.path(), "small.pcap").display().to_string();
    let output = folder.name("flows.json");
    let config = folder.name("probe.toml");
    let spec = format!("{}?names=drop&ipv4=16", folder.key());
    fs::write(&config, format!("input = [{capture:?}]\noutput = [{output:?}]\nanonymise = {spec:?}\n")).unwrap();
    let described = success(["probe", "--config", &config, "--check"]);
    let fact = "anonymise  addresses by Crypto-PAn (IPv4 /16, IPv6 /128), names left out, key of ";
    assert!(described.contains(fact), "{described}");
    let (code, _, err) = weir(["probe", "--config", &config, "-q", "--log-level", "debug"]);
    assert_eq!(code, 0, "{err}");
    let flows = rows(Path::new(&output));
    let addresses = |field: &str| flows.iter().map(|row| row[field].as_str().unwrap()).collect::<Vec<_>>().join(" ");
    let (sources, destinations) = (addresses("src_ip"), addresses("dst_ip"));
    assert!(sources.split(' ').chain(destinations.split(' ')).all(|address| address.ends_with(".0.0")), "{sources}");
    assert!(!err.contains("192.0.2.") && !err.contains("198.51.100."), "no line of the log has an address: {err}");
}

#[test]
fn the_http_interface_shows_and_compares_anonymised_flows() {
    let folder = Folder::new();
    let Some(mut served) = Served::start(&["--anonymise", &folder.key(), "--status", "json", "--interval", "100ms"])
    else {
        return;
    };
    send_requests(&mut served.sender, 0..50);
    served.probe.wait_for_packets(100);
    let flows = |query: &str| {
        let answer = served.get(&format!("/flows?{query}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let all = flows("top=1000&fields=src_ip,dst_ip,community_id");
    let shown = all["flows"].as_array().unwrap().clone();
    assert_eq!((number(&all["matching"]), shown.len()), (50, 50));
    // The clients are hosts of 10.0.0.0/24, the server is 10.1.0.1.
    for flow in &shown {
        for field in ["src_ip", "dst_ip"] {
            let address = flow[field].as_str().unwrap();
            assert!(!address.starts_with("10."), "{flow}");
            // The true address is in no answer, so no question may find it.
            assert!(number(&flows(&format!("where={field}%20%3D%20{address}"))["matching"]) > 0, "{flow}");
        }
    }
    for address in ["10.0.0.0", "10.0.0.1", "10.0.0.7", "10.1.0.1"] {
        assert_eq!(number(&flows(&format!("where=host%20{address}"))["matching"]), 0, "{address}");
    }
    let id = shown[7]["community_id"].as_str().unwrap().replace('+', "%2B");
    assert_eq!(flows(&format!("community_id={id}&fields=src_ip,dst_ip,community_id"))["flows"][0], shown[7]);
    let (_, records, _) = served.probe.stop(0);
    let of = |flows: &[Value]| sorted(flows.iter().map(|flow| &flow["src_ip"]));
    assert_eq!(of(&records), of(&shown), "sinks have the same addresses");
}
