//! `--networks`, `--geo` and `--tags` through the binary: fields of records, files that cannot be used,
//! and SIGHUP.

use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use testbed::mmdb::{Database, Value, country, system};
use testbed::namespace::until;
use testbed::running::Running;
use testbed::{Pcap, START, assert_usage_errors, command, failure, permit_all_users, read_flows, success, tcp, weir};

/// A folder that every user can read.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        permit_all_users(folder.0.path());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        permit_all_users(&self.path(name));
        self.name(name)
    }

    /// `NAME=FILE` of a list with the name of its file.
    fn list(&self, name: &str, content: &str) -> String {
        format!("{name}={}", self.write(name, content))
    }

    fn geo(&self) -> [String; 2] {
        let countries = [("192.0.2.0/24", country("DE")), ("198.51.100.0/24", country("FR"))];
        let systems = [("198.51.100.0/24", system(64_500, "Example, \"Ltd\""))];
        [("country.mmdb", &countries[..]), ("asn.mmdb", &systems[..])]
            .map(|(name, networks)| self.write(name, Database::of(name, networks).octets()))
    }

    fn networks(&self) -> String {
        self.write("networks.csv", "prefix,name,site,local\n192.0.2.0/24,office,Bonn,true\n192.0.2.53,dns,,true\n")
    }
}

fn small(folder: &Folder) -> String {
    testbed::small().save(folder.0.path(), "small.pcap").display().to_string()
}

#[test]
fn records_have_places_and_tags() {
    let folder = Folder::new();
    let [countries, systems] = folder.geo();
    let networks = folder.networks();
    let (bad, all) = (folder.list("bad", "198.51.100.0/24\n"), folder.list("all", "0.0.0.0/0 # everything\n"));
    let output = folder.name("flows.json");
    let capture = small(&folder);
    let options = ["--networks", &networks, "--geo", &countries, "--geo", &systems, "--tags", &bad, "--tags", &all];
    let read = |more: &[&str]| success(["read", &capture].iter().chain(&options).chain(more));
    success(["read", &capture, "-o", &output, "-q"].iter().chain(&options));
    let flows = read_flows(Path::new(&output));
    let web = flows.iter().find(|flow| flow["dst_port"] == 80).unwrap();
    for (field, expected) in [
        ("src_network", json!("office")),
        ("src_site", json!("Bonn")),
        ("src_role", json!(null)),
        ("src_local", json!(1)),
        ("dst_network", json!(null)),
        ("dst_local", json!(0)),
        ("src_country", json!("DE")),
        ("dst_country", json!("FR")),
        ("src_as", json!(null)),
        ("dst_as", json!(64_500)),
        ("dst_as_org", json!("Example, \"Ltd\"")),
        ("src_tags", json!("all")),
        ("dst_tags", json!("bad all")),
        ("tags", json!("bad all")),
    ] {
        assert_eq!(web[field], expected, "{field}: {web}");
    }
    let dns = flows.iter().find(|flow| flow["dst_port"] == 53).unwrap();
    assert_eq!((&dns["dst_network"], &dns["tags"]), (&json!("dns"), &json!("all")));
    let csv = read(&["-o", "csv:-", "--where", "dst_as = 64500 and tcp", "--fields", "dst_port,dst_as_org,tags", "-q"]);
    assert_eq!(csv, "dst_port,dst_as_org,tags\n80,\"Example, \"\"Ltd\"\"\",bad all\n");
    let csv = read(&["--by", "dst_country", "-o", "csv:-", "-q", "--sort", "packets"]);
    assert_eq!(csv.lines().map(|row| row.split(',').next().unwrap()).collect::<Vec<_>>(), ["dst_country", "FR", "DE"]);
    let csv = read(&["--by", "country", "-o", "csv:-", "-q", "--sort", "flows"]);
    assert_eq!(csv.lines().map(|row| row.split(',').next().unwrap()).collect::<Vec<_>>(), ["country", "DE", "FR"]);
    let count = |expression: &str| read(&["--where", expression, "-o", "json:-", "-q"]).lines().count();
    for (expression, flows) in [
        ("tags = bad", 2),
        ("tags = all", 3),
        ("tags in {bad, all}", 3),
        ("not tags = bad", 1),
        ("src_tags = bad", 0),
        ("dst_country = FR", 2),
        ("src_local = 1 and dst_local = 0", 2),
        ("dst_as_org starts-with Example", 2),
        ("dst as 64500", 2),
        ("src as 64500", 0),
        ("as 64500 and src country DE", 2),
    ] {
        assert_eq!(count(expression), flows, "{expression}");
    }
    // A tag that no list has.
    for (expression, unknown, flows) in [("tags in {bda, bad}", "bda", 2), ("tags = ba", "ba", 0)] {
        let more = ["-q", "-o", "json:-", "--where", expression];
        let (code, out, err) = weir(["read", &capture].iter().chain(&more).chain(&options));
        let warning = format!("weir: warning: --where: no record has the tag {unknown:?}: --tags has bad, all\n");
        assert_eq!((code, out.lines().count(), err), (0, flows, warning));
    }
    let table = folder.write("invisible.csv", "prefix,name\n192.0.2.0/24,a\u{202e}b\u{fe0f}\n");
    let invisible = [("198.51.100.0/24", system(64_501, "x\u{202e}y"))];
    let systems = folder.write("invisible.mmdb", Database::of("asn", &invisible).octets());
    for output in ["table:-", "csv:-"] {
        let fields =
            ["-q", "--fields", "src_network,dst_as_org", "-o", output, "--networks", &table, "--geo", &systems];
        let text = success(["read", &capture].iter().chain(&fields));
        assert!(text.contains(r"a\xe2\x80\xaeb\xef\xb8\x8f") && text.contains(r"x\xe2\x80\xaey"), "{text}");
    }
    let broken = folder.write("quote.csv", "prefix,name\n# office\n192.0.2.0/24,\"office\n");
    let (code, _, err) = weir(["read", &capture, "-q", "--networks", &broken]);
    assert!(code == 1 && err.contains("line 3: \"192.0.2.0/24,office\": a quote is not closed"), "{err}");
    let broken = folder.write("zero.csv", "prefix,name\n192.0.2.0/024,office\n");
    let (code, _, err) = weir(["read", &capture, "-q", "--networks", &broken]);
    assert!(code == 1 && err.contains("the prefix length is not a number from 0 to 32"), "{err}");
    // Without the options, nothing is added.
    assert!(!success(["read", &capture, "-o", "json:-", "-q"]).contains("src_network"));
    let all = success(["read", &capture, "-o", "json:-", "--fields", "places", "-q"]);
    assert!(all.lines().all(|line| line.matches("null").count() == 18), "{all}");
}

#[test]
fn tags_follow_from_names_and_fingerprints_in_the_payload() {
    let folder = Folder::new();
    let lists = [
        folder.list("ja3", "5a1edc7f170af1014fc65c994878e63c # curl\n"),
        folder.list("ja4", "q13d0307h3_55b375c5d22e_1cecd519fee8\n"),
        folder.list("web", "example.test\n"),
        folder.list("cdn", "cdn.example.test\n"),
        folder.list("other", "ample.test\n192.0.2.7\n"),
    ];
    let options: Vec<&str> = lists.iter().flat_map(|list| ["--tags", list]).collect();
    let of_capture = |name: &str, more: &[&str]| {
        let capture = format!("{}/../meter/dpi/testdata/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
        let arguments = ["read", &capture, "-q", "-o", "csv:-", "--fields", "tags"];
        success(arguments.iter().chain(&options).chain(more)).trim_end().to_owned()
    };
    for (name, tags) in
        [("tls-1.2", "ja3 web"), ("quic-1", "ja4 web"), ("http-get", "web"), ("dns-udp", "web"), ("ssh-openssh", "")]
    {
        assert_eq!(of_capture(name, &[]), format!("tags\n{tags}").trim_end(), "{name}");
        assert_eq!(of_capture(name, &["--dpi", "off"]), "tags", "{name}: nothing is known without inspection");
    }
}

#[test]
fn records_have_the_names_of_their_interfaces() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/captures/loss.pcapng");
    let by_name = |command: &[&str]| {
        let more = ["--interface-names", "--fields", "interface,interface_name", "-o", "csv:-", "-q"];
        let csv = success(command.iter().chain(&more));
        let mut rows: Vec<&str> = csv.lines().skip(1).collect();
        rows.sort_unstable();
        rows.dedup();
        rows.join(" ")
    };
    assert_eq!(by_name(&["read", capture, "--key", "interface"]), "1,host 2,wire");
    for layout in ["fused", "split", "spread"] {
        assert_eq!(by_name(&["probe", "-i", capture, "--key", "interface", "--layout", layout]), "1,host 2,wire");
    }
    let without = success(["read", capture, "--fields", "interface_name", "-o", "csv:-", "-q"]);
    assert!(without.lines().skip(1).all(|name| name.is_empty() || name == "\"\""), "{without}");
    let (code, _, err) = weir(["read", capture, "--where", "interface_name = wire", "-q"]);
    assert_eq!((code, err.contains("without --interface-names")), (0, true), "{err}");
}

#[test]
fn a_live_interface_has_its_name() {
    let Some(mut sender) = testbed::running::wire() else { return };
    let probe = Running::probe("af_packet:right", &["--interface-names"]);
    testbed::running::send_requests(&mut sender, 1..3);
    probe.wait_for(" active=");
    let (err, flows, _) = probe.stop(0);
    assert!(!flows.is_empty() && flows.iter().all(|flow| flow["interface_name"] == "right"), "{err} {flows:?}");
}

#[test]
fn uniflow_records_have_the_places_of_their_source() {
    let folder = Folder::new();
    let [countries, _] = folder.geo();
    let fields = ["--fields", "src_ip,src_country,dst_country", "--uniflow", "-q"];
    let rows = success(["read", &small(&folder), "--geo", &countries, "-o", "csv:-"].iter().chain(&fields));
    let expected = [("192.0.2.", ",DE,"), ("198.51.100.", ",FR,DE")];
    assert_eq!(rows.lines().count(), 7);
    for row in rows.lines().skip(1) {
        assert!(expected.iter().any(|(address, place)| row.starts_with(address) && row.contains(place)), "{row}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_refused_before_an_output_is_opened() {
    let folder = Folder::new();
    let capture = small(&folder);
    let output = folder.name("flows.json");
    let other = Database::of("Other", &[("192.0.2.0/24", Value::Text("x".into()))]).octets();
    let other = folder.write("other.mmdb", other);
    let cut = folder.write("cut.mmdb", &fs::read(&folder.geo()[0]).unwrap()[..700]);
    let networks = folder.write("broken.csv", "prefix,name\n192.0.2.1/24,a\n10.0.0.0/8\n10.0.0.0/8\n");
    let page = folder.list("page", "<html>\n<body>\n");
    let missing = folder.name("missing");
    for (option, file, reason) in [
        ("--networks", &missing, "missing: No such file or directory (os error 2); is the name right?"),
        (
            "--networks",
            &networks,
            "line 2: \"192.0.2.1/24,a\": the address has bits behind the prefix; did you mean 192.0.2.0/24?; line 4: \"10.0.0.0/8\": the prefix is in line 3, too",
        ),
        (
            "--geo",
            &other,
            "the database has no country and no autonomous system; its type is \"Other\"; use a database of",
        ),
        ("--geo", &cut, "not a MaxMind database, or damaged: "),
        ("--geo", &folder.0.path().display().to_string(), "not a regular file; write its content to a file first"),
        ("--tags", &page, "no line is an address, a prefix, a domain name, a JA3 or a JA4; line 1: \"<html>\": not an"),
    ] {
        for command in [&["read", &capture][..], &["probe", "-i", &capture], &["probe", "--check", "-i", &capture]] {
            let arguments = command.iter().copied().chain([option, file, "-o", &output]);
            let (code, _, err) = weir(arguments);
            assert!(code == 1 && err.contains(reason), "{command:?} {option} {file}: {err}");
            assert!(!Path::new(&output).exists());
        }
    }
    assert_usage_errors(&[
        (&["read", &capture, "--tags", "list.txt"], "write NAME=FILE, as in botnets=/var/lib/weir/botnets.txt"),
        (&["read", &capture, "--tags", "a b=list.txt"], "\"a b\" is not a name of a list"),
    ]);
    let valid = folder.write("valid", "192.0.2.1\n");
    let lists: Vec<String> = (0..33).flat_map(|number| ["--tags".into(), format!("list{number}={valid}")]).collect();
    let arguments = ["read", &capture].into_iter().chain(lists.iter().map(String::as_str));
    assert!(failure(1, arguments).contains("--tags names more than 32 lists"));
}

#[test]
fn broken_lines_of_a_list_are_named_and_the_rest_is_loaded() {
    let folder = Folder::new();
    let list = folder.list("bad", &format!("198.51.100.20\nhello\n{}", "10.0.0.0/33\n".repeat(20)));
    let arguments = ["read", &small(&folder), "--tags", &list, "-o", "json:-", "--where", "tags = bad", "-q"];
    let (code, out, err) = weir(arguments);
    assert_eq!((code, out.lines().count()), (0, 2), "{err}");
    assert_eq!(err.lines().count(), 11, "{err}");
    for part in ["line left out", "line=2 ", "hello", "not an address, a prefix, a domain name", "line=11 ", "lines=11"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
}

/// A probe that reads a capture from a named pipe.
struct Probe {
    running: Running,
    input: File,
    seconds: u32,
}

impl Probe {
    fn start(folder: &Folder, options: &[&str]) -> Self {
        let pipe = folder.name("input");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        permit_all_users(Path::new(&pipe));
        let mut input = File::options().read(true).write(true).open(&pipe).unwrap();
        input.write_all(&Pcap::new().0).unwrap();
        let output = folder.name("flows.json");
        let arguments = ["probe", "-i", &pipe, "-o", &output, "--interval", "100ms", "--flows", "10k", "--idle", "1s"];
        let running = Running::start_in(command(), &[&arguments, options].concat());
        // Before it handles signals, SIGHUP would end it.
        running.wait_for("packets/s");
        Self { running, input, seconds: START }
    }

    /// Sends a connection attempt, which ends those before.
    fn send(&mut self) {
        self.seconds += 10;
        let frame = tcp(([192, 0, 2, 1], 1000), ([198, 51, 100, 1], 80), 2, 0);
        self.input.write_all(&Pcap(Vec::new()).frame(self.seconds, 0, &frame).0).unwrap();
    }

    /// Sends SIGHUP, and waits for this text in the log.
    fn reload(&self, text: &str) {
        let times = self.running.times(text);
        self.running.signal(libc::SIGHUP);
        until(text, || self.running.times(text) > times);
    }
}

#[test]
fn sighup_loads_all_files_again_or_none() {
    let folder = Folder::new();
    let (networks, list, [countries, _]) = (folder.networks(), folder.list("bad", "198.51.100.0/24\n"), folder.geo());
    let rules = folder.write("rules.toml", "[[network]]\nwhere = 'tags = bad'\n");
    let options = ["--networks", &networks, "--tags", &list, "--geo", &countries, "--fields", "basic,places"];
    let mut probe = Probe::start(&folder, &[&options[..], &["--rules", &rules]].concat());
    let (loaded, refused) = ("configuration reloaded", "cannot reload the configuration, continuing with the old one");
    probe.send();
    // Another file in the place of each, and a broken one: nothing changes.
    folder.write("new.csv", "prefix,name\n192.0.2.0/24,new office\n");
    fs::rename(folder.path("new.csv"), folder.path("networks.csv")).unwrap();
    folder.write("bad", "198.51.100.1\nhello\n");
    folder.write("rules.toml", "[[network]]\nwhere = 'tags = bad'\nname = 'new'\n");
    let countries = fs::read(folder.path("country.mmdb")).unwrap();
    for (name, content, reason) in [
        ("country.mmdb", &b""[..], "country.mmdb: the file is empty"),
        ("country.mmdb", &countries, "oops"),
        ("rules.toml", b"[[network]]\nwhere = 'tags = bad'\n", "no flow has bad then: its list has only names"),
        ("bad", b"?\n", "no line is an address"),
    ] {
        folder.write(name, content);
        if reason == "oops" {
            folder.write("rules.toml", "oops = 1\n");
        }
        if reason.contains("only names") {
            folder.write("bad", "evil.example\n");
        }
        let before = probe.running.times(loaded);
        probe.reload(refused);
        let err = probe.running.stderr();
        let lines: Vec<&str> = err.lines().filter(|line| line.contains(refused)).collect();
        assert!(lines.last().is_some_and(|line| line.contains(reason)), "{reason}: {err}");
        assert_eq!(probe.running.times(loaded), before, "{err}");
    }
    probe.send();
    fs::remove_file(folder.path("bad")).unwrap();
    probe.reload("bad: No such file or directory");
    probe.send();
    let written = || fs::read_to_string(folder.path("flows.json")).unwrap_or_default();
    until("a record is written", || written().contains("\"office\""));
    folder.write("bad", "198.51.100.1\nhello\n");
    probe.reload(loaded);
    let err = probe.running.stderr();
    assert!(err.contains("line=2 ") && err.contains("rules=\"1 rule of"), "{err}");
    probe.send();
    drop(probe.input);
    let (code, err, _, ledger) = probe.running.wait();
    assert_eq!((code, &ledger["balanced"]), (0, &json!(true)), "{err}");
    let flows = read_flows(&folder.path("flows.json"));
    let networks: Vec<_> = flows.iter().map(|flow| &flow["src_network"]).collect();
    assert_eq!((networks.len(), networks[0].as_str(), networks[3].as_str()), (4, Some("office"), Some("new office")));
    for flow in &flows {
        assert_eq!((&flow["dst_tags"], &flow["src_country"]), (&json!("bad"), &json!("DE")), "{flow}");
    }
}

#[test]
fn a_configuration_file_has_the_options_and_a_change_needs_a_restart() {
    let folder = Folder::new();
    let (networks, list) = (folder.networks(), folder.list("bad", "198.51.100.0/24\n"));
    let options = format!("networks = \"{networks}\"\ntags = [\"{list}\"]\nidle = \"1s\"\n");
    let config = folder.write("probe.toml", &options);
    let printed = success(["probe", "--config", &config, "-i", "-", "--print-config"]);
    assert!(printed.contains(&format!("tags = [\"{list}\"]")) && printed.contains(&networks), "{printed}");
    let probe = Probe::start(&folder, &["--config", &config]);
    folder.write("probe.toml", format!("{options}geo = [\"x.mmdb\"]\n"));
    probe.reload("a change needs a restart: geo");
    drop(probe.input);
    assert_eq!(probe.running.wait().0, 0);
}

/// Editors of other systems write it (RFC 3629 section 6).
#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let folder = Folder::new();
    let capture = small(&folder);
    let with_mark = |name: &str, text: &str| folder.write(name, format!("\u{feff}{text}"));
    let networks = with_mark("networks.csv", "prefix,name\n192.0.2.53,dns\n");
    let tags = format!("bad={}", with_mark("list.txt", "192.0.2.53\n198.51.100.20\n"));
    let options = ["-o", "csv:-", "--where", "port 53", "--fields", "dst_network,tags"];
    let out = success([&["read", &capture, "-q", "--networks", &networks, "--tags", &tags], &options[..]].concat());
    assert_eq!(out, "dst_network,tags\ndns,bad\n");
    let comment = format!("bad={}", with_mark("comment.txt", "# nothing yet\n"));
    let (code, _, err) = weir(["read", &capture, "-q", "-o", "csv:/dev/null", "--tags", &comment]);
    assert!(code == 0 && err.contains("there is no entry in this file") && err.lines().count() == 1, "{err}");
    let config = with_mark("weir.toml", "input = [\"synth:mix,packets=9\"]\noutput = [\"csv:/dev/null\"]\n");
    let (code, _, err) = weir(["probe", "--config", &config, "--check"]);
    assert_eq!((code, err.as_str()), (0, ""));
}
