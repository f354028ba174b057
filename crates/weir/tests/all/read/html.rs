//! `weir read --html`: the numbers of the page are those of `weir read`, and it holds what was selected only.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testbed::{Pcap, arguments, captures, command, failure, number, small, success, text_of};

/// Captures with several protocols.
fn inputs() -> Vec<String> {
    let paths =
        ["web.pcap", "tls.pcap", "dns.pcap.gz", "loss.pcapng", "traceroute.pcap"].map(|name| captures().join(name));
    paths.map(|path| path.display().to_string()).to_vec()
}

/// Runs of `weir read --html` with a temporary folder of their own.
struct Pages {
    folder: TempDir,
}

impl Pages {
    /// `None` if the program has no page.
    fn new() -> Option<Self> {
        let pages = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(pages.temporary()).unwrap();
        let capture = small().saved();
        let (_, _, err) = pages.run(&arguments!["read", capture, "-q", "--html", pages.path("first.html")]);
        if !err.contains("was built without it") {
            return Some(pages);
        }
        assert!(err.contains("make web") && !pages.path("first.html").exists(), "{err}");
        eprintln!("SKIPPED: the page is not built (make web)");
        None
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, standard output and standard error. Nothing is left in the temporary folder.
    fn run(&self, arguments: &[&OsStr]) -> (i32, String, String) {
        let output = command().args(arguments).env("TMPDIR", self.temporary()).output().unwrap();
        assert_eq!(fs::read_dir(self.temporary()).unwrap().count(), 0);
        text_of(&output)
    }

    /// The page of inputs with these options.
    fn page(&self, inputs: &[String], options: &[&str]) -> Page {
        let path = self.path("page.html");
        let mut all = arguments!["read", "-q", "--html", path, "--overwrite", "-o", "table:/dev/null"].to_vec();
        all.extend(inputs.iter().map(OsStr::new).chain(options.iter().map(OsStr::new)));
        let (code, out, err) = self.run(&all);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        Page::of(fs::read_to_string(path).unwrap())
    }
}

/// A page that was written.
struct Page {
    html: String,
    content: Value,
}

impl Page {
    fn of(html: String) -> Self {
        let (_, json) = html.split_once("<script id=\"answers\" type=\"application/json\">").unwrap();
        let content = serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap();
        Self { html, content }
    }

    /// The question with these parameters, whatever numbers and sums it asks for, and its answer.
    fn question(&self, parameters: &[(&str, &str)]) -> Option<(BTreeMap<String, String>, &Value)> {
        let wanted: BTreeMap<_, _> = parameters.iter().copied().collect();
        self.content["answers"].as_object().unwrap().iter().find_map(|(name, answer)| {
            let all: Vec<(String, String)> = serde_json::from_str(name).unwrap();
            let is_wanted = |(name, value): &&(String, String)| wanted.get(&**name) == Some(&&**value);
            let others = all.iter().filter(|(name, _)| name != "numbers" && name != "sum");
            let is_same = others.clone().count() == wanted.len() && others.clone().all(|of| is_wanted(&of));
            is_same.then(|| (all.into_iter().collect(), answer))
        })
    }

    fn answer(&self, parameters: &[(&str, &str)]) -> Option<&Value> {
        self.question(parameters).map(|(_, answer)| answer)
    }

    /// Compares the rows of a question with expected ones, in the numbers that it asks for. The others are null.
    fn compare(&self, parameters: &[(&str, &str)], expected: &[Value]) {
        let (rows, question) = (self.rows(parameters), self.question(parameters).unwrap().0);
        let asked: Vec<&str> = question["numbers"].split(',').collect();
        let groups: Vec<&str> = question["by"].split(',').filter_map(|by| by.split('/').next()).collect();
        let is_shown = |name: &str| asked.contains(&name) || groups.contains(&name) || name == "other_groups";
        let shown = |row: &Value| {
            let cells = row.as_object().unwrap().iter();
            let value = |(name, value): (&String, &Value)| {
                (name.clone(), if is_shown(name) { value.clone() } else { Value::Null })
            };
            Value::Object(cells.map(value).collect())
        };
        assert_eq!(rows, expected.iter().map(shown).collect::<Vec<_>>(), "{parameters:?}");
    }

    /// Its rows, as the script of the page reads them.
    fn rows(&self, parameters: &[(&str, &str)]) -> Vec<Value> {
        let answer = self.answer(parameters).unwrap_or_else(|| panic!("no answer: {parameters:?}"));
        assert_eq!((&answer["complete"], &answer["problems"]), (&json!(true), &json!([])));
        let value = |column: &Value, row: usize| match column["values"].as_array() {
            None => column[row].clone(),
            Some(values) => values[column["at"].get(row).map_or(0, |at| at.as_u64().unwrap() as usize)].clone(),
        };
        let columns = || answer["names"].as_array().unwrap().iter().zip(answer["columns"].as_array().unwrap());
        let row = |at| {
            let cells = columns().map(|(name, column)| (name.as_str().unwrap().to_owned(), value(column, at)));
            Value::Object(cells.collect())
        };
        (0..number(&answer["count"]) as usize).map(row).collect()
    }

    fn fact(&self, name: &str) -> &str {
        let facts = self.content["about"]["facts"].as_array().unwrap();
        facts.iter().find(|fact| fact[0] == name).map_or("", |fact| fact[1].as_str().unwrap())
    }
}

/// The rows that `weir read` writes.
fn read(inputs: &[String], options: &[&str]) -> Vec<Value> {
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let text = success([&["read", "-q", "-o", "json:-"][..], &inputs, options].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(rows: &[Value], name: &str) -> u64 {
    rows.iter().map(|row| number(&row[name])).sum()
}

/// Compares all tables and time lines of a page with the views of `weir read`.
fn compare(page: &Page, inputs: &[String], options: &[&str]) {
    let of = |more: &[&str]| read(inputs, &[options, more].concat());
    let all = of(&["--by", "protocol"]);
    page.compare(&[("by", "protocol"), ("top", "1000")], &all);
    for by in ["host", "server_ip", "protocol,service_port", "application", "client_ip,server_ip"] {
        for sort in ["bytes", "packets", "flows"] {
            for top in ["8", "20", "100"] {
                let expected = of(&["--by", by, "--sort", sort, "--top", top]);
                page.compare(&[("by", by), ("sort", sort), ("top", top)], &expected);
            }
        }
    }
    for by in ["application", "protocol", "host", "host/24"] {
        for figure in ["bytes", "packets", "flows"] {
            let sent = format!("sent_{figure}");
            // A flow counts for its source, an octet for its sender.
            let source = by.replace("host", "src_ip");
            let by = if figure == "flows" { &source } else { by };
            let figure = if by.starts_with("host") && figure != "flows" { &sent } else { figure };
            let question = [("by", by), ("every", ""), ("sort", figure), ("top", "8")];
            let mut rows = page.rows(&question);
            let every = page.answer(&question).unwrap()["every"].as_str().unwrap();
            let column = if figure == "sent_bytes" { "sent_bytes" } else { figure };
            let mut expected = of(&["--by", by, "--every", every, "--sort", figure, "--top", "8"]);
            for row in &mut expected {
                let kept = ["interval_start", "other_groups", column, by.split('/').next().unwrap()];
                row.as_object_mut().unwrap().retain(|name, _| kept.contains(&name.as_str()));
            }
            // The page has how many others there are in all intervals together.
            let others = |row: &mut Value| row["other_groups"] = json!(row["other_groups"] != 0);
            rows.iter_mut().chain(&mut expected).for_each(others);
            assert_eq!(rows, expected, "{by} {figure}");
            assert_eq!(sum(&rows, column), sum(&all, figure.trim_start_matches("sent_")), "{by} {figure}");
        }
    }
    let slow = page.rows(&[
        ("by", "server_ip,service_port"),
        ("sort", "response_mean_ns"),
        ("top", "10"),
        ("where", "response"),
    ]);
    let slow: Vec<_> = slow.iter().map(|row| &row["response_mean_ns"]).collect();
    let mut expected = of(&["--by", "server_ip,service_port", "--sort", "response_mean_ns"]);
    expected.retain(|row| !row["response_mean_ns"].is_null());
    assert_eq!(slow, expected.iter().take(10).map(|row| &row["response_mean_ns"]).collect::<Vec<_>>());
}

#[test]
fn numbers_are_those_of_weir_read_and_of_the_ledger() {
    let Some(pages) = Pages::new() else { return };
    let (inputs, ledger) = (inputs(), pages.path("ledger.json"));
    let page = pages.page(&inputs, &["--stats", ledger.to_str().unwrap()]);
    compare(&page, &inputs, &[]);
    let ledger = testbed::read_ledger(&ledger);
    let [received, metered] = ["received", "metered"].map(|name| number(&ledger["packets"][name]));
    let expected = format!(
        "{received} received = {metered} metered + {} refused; every packet is accounted for",
        received - metered
    );
    assert!(page.fact("packets") == expected && received > metered, "{}", page.fact("packets"));
    assert_eq!(page.fact("flows"), number(&ledger["flows"]["created"]).to_string());
    assert!(page.fact("read").contains("web.pcap, ") && page.fact("time").ends_with(')'));
    let sinks: Vec<_> = ledger["sinks"].as_array().unwrap().iter().map(|sink| sink["sink"].as_str().unwrap()).collect();
    assert!(sinks[1].starts_with("--html ") && sinks[1].ends_with("/page.html"), "{sinks:?}");
    // Fields that the flows do not have are not offered.
    let places = |by| page.answer(&[("by", by), ("every", ""), ("sort", "sent_bytes"), ("top", "8")]);
    assert!(places("host").is_some() && places("country").is_none() && places("as").is_none());
    assert!(page.html.len() < 1 << 20, "{}", page.html.len());
}

#[test]
fn only_what_is_selected_is_there_whatever_else_is_written() {
    let Some(pages) = Pages::new() else { return };
    let (inputs, time) = (inputs(), "2026-11-21T02:51:30Z");
    let selection = ["--from", time, "--where", "port 80 or port 443", "--filter", "tcp"];
    let csv = format!("csv:{}", pages.path("flows.csv").display());
    let more = ["--fields", "bytes", "-o", &csv, "--uniflow", "--top", "1"];
    let page = pages.page(&inputs, &[&selection[..], &more].concat());
    compare(&page, &inputs, &selection);
    let only = "--from 2026-11-21 02:51:30.000 UTC, --filter tcp, --where port 80 or port 443";
    assert_eq!(page.fact("only"), only);
    assert!(page.fact("packets").contains(" filtered") && page.fact("flows").contains(" of "));
}

#[test]
fn stored_flows_have_the_page_of_their_capture() {
    let Some(pages) = Pages::new() else { return };
    let (inputs, store) = (inputs(), pages.path("store").display().to_string());
    let sink = format!("parquet:{store}");
    let of_capture = pages.page(&inputs, &["-o", &sink]);
    let of_store = pages.page(std::slice::from_ref(&store), &[]);
    assert_eq!(of_store.content["answers"], of_capture.content["answers"]);
    assert!(of_store.fact("packets").ends_with("in the stored flows that were read"), "{}", of_store.fact("packets"));
    let selected = pages.page(std::slice::from_ref(&store), &["--where", "udp"]);
    compare(&selected, &[store], &["--where", "udp"]);
    // Files of IPFIX do not have all numbers.
    let ipfix = pages.path("flows.ipfix").display().to_string();
    success(
        [&["read", "-q", "-o", &format!("ipfix:{ipfix}")][..], &inputs.iter().map(|of| &**of).collect::<Vec<_>>()]
            .concat(),
    );
    let page = pages.page(std::slice::from_ref(&ipfix), &["--log-level", "error"]);
    let rows = read(&[ipfix], &["--by", "host", "--log-level", "error"]);
    page.compare(&[("by", "host"), ("sort", "bytes"), ("top", "100")], &rows);
}

#[test]
fn an_anonymised_page_has_no_true_address_and_no_name() {
    let Some(pages) = Pages::new() else { return };
    let key = pages.path("key");
    fs::write(&key, (0..32).collect::<Vec<u8>>()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let inputs = [captures().join("dns.pcap.gz").display().to_string()];
    let selection = ["--where", "net 192.0.2.0/24 or host 2001:db8::1", "--filter", "not host 192.0.2.200"];
    let truth = pages.page(&inputs, &selection);
    let names = ["192.0.2.", "2001:db8", ".example"];
    assert!(names.iter().all(|name| truth.html.contains(name)));
    let page = pages.page(&inputs, &[&selection[..], &["--anonymise", key.to_str().unwrap()]].concat());
    assert!(names.iter().all(|name| !page.html.contains(name)), "{}", page.content["about"]);
    let hidden = "--filter (not shown: it has true addresses), --where (not shown: it has true addresses)";
    assert_eq!(page.fact("only"), hidden);
    assert!(page.fact("anonymised").contains("others"));
    let protocols = [("by", "protocol"), ("top", "1000")];
    assert_eq!(page.rows(&protocols), truth.rows(&protocols));
}

#[test]
fn texts_of_traffic_and_names_of_files_do_not_end_the_script() {
    let Some(pages) = Pages::new() else { return };
    let text = "</script><!--<script>\u{2028}&lt;";
    let capture = pages.path(&text.replace('/', "|"));
    fs::copy(captures().join("web.pcap"), &capture).unwrap();
    let page = pages.page(&[capture.display().to_string()], &["--where", &format!("http_host != '{text}'")]);
    assert_eq!((page.html.matches("<script").count(), page.html.matches("</script").count()), (2, 2));
    assert!(!page.html.contains("<!--") && !page.html.contains('\u{2028}'));
    assert!(page.fact("only").contains(text) && page.fact("read").ends_with(&text.replace('/', "|")));
    // Nothing else is loaded or run.
    let policy = page.html.split_once("Content-Security-Policy\" content=\"").unwrap().1.split_once('"').unwrap().0;
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.html.matches(" src=").count() + page.html.matches("<link").count(), 1);
}

#[test]
fn captures_without_flows_have_a_page() {
    let Some(pages) = Pages::new() else { return };
    let empty = Pcap::new().saved();
    let page = pages.page(&[empty.name().into()], &[]);
    assert_eq!(page.rows(&[("by", "protocol"), ("top", "1000")]), Vec::<Value>::new());
    assert_eq!(page.fact("packets"), "0 received = 0 metered; every packet is accounted for");
}

#[test]
fn standard_output_has_the_page_in_place_of_the_table() {
    let Some(pages) = Pages::new() else { return };
    let capture = small().saved();
    let (code, out, err) = pages.run(&arguments!["read", capture, "--html", "-"]);
    assert!(code == 0 && err.contains("12 received") && out.ends_with("</html>\n"), "{err}");
    assert_eq!(Page::of(out).fact("flows"), "3");
    let (code, out, _) = pages.run(&arguments!["read", capture, "-q", "--html", "-", "-o", pages.path("flows.csv")]);
    assert!(code == 0 && out.starts_with("<!doctype html>\n"));
    let compressed = pages.path("page.html.gz");
    assert_eq!(pages.run(&arguments!["read", capture, "-q", "--html", compressed]).0, 0);
    let html = String::from_utf8(testbed::gunzip(&fs::read(compressed).unwrap())).unwrap();
    assert_eq!(Page::of(html).fact("flows"), "3");
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_read() {
    let Some(pages) = Pages::new() else { return };
    let capture = small().saved();
    let first = pages.path("first.html");
    let before = fs::read(&first).unwrap();
    let [first, capture] = [&first, &capture.path].map(|path: &PathBuf| path.to_str().unwrap());
    for (options, reason) in [
        (&["--html", first][..], "--overwrite"),
        (&["--html", capture, "--overwrite"], "is also the input"),
        (&["--html", "/nowhere/page.html"], "No such file"),
        (&["--html", "-", "--stats", "-"], "would be mixed"),
        (&["--html", "-", "-o", "json:-"], "would be mixed"),
        (&["--html", "new.html", "-o", "packets:new"], "leave out --html"),
    ] {
        let given = [&["read", capture, "-q"], options].concat();
        let arguments: Vec<_> = given.iter().map(OsStr::new).collect();
        let (code, out, err) = pages.run(&arguments);
        assert!(code == 1 && out.is_empty() && err.contains(reason), "{options:?}: {code} {err}");
    }
    assert_eq!(fs::read(first).unwrap(), before);
    assert!(!Path::new("new.html").exists());
    let err = failure(1, ["view", capture, "--html", "x"]);
    assert!(err.contains("--html"), "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_has_a_page_that_says_so() {
    let Some(pages) = Pages::new() else { return };
    let path = pages.path("page.html");
    let mut command = command();
    // Enough packets that the run does not end before the signal, however slow the test is.
    command.args(["read", "-i", "synth:mix,flows=100,packets=4G", "-q", "-o", "csv:/dev/null", "--html"]).arg(&path);
    let child = command.env("TMPDIR", pages.temporary()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    testbed::wait_for_handler_of_sigint(&child);
    testbed::signal(&child, libc::SIGINT);
    let (code, _, err) = text_of(&child.wait_with_output().unwrap());
    assert!(code == 2 && err.contains("interrupted"), "{code} {err}");
    assert_eq!(fs::read_dir(pages.temporary()).unwrap().count(), 0);
    let page = Page::of(fs::read_to_string(path).unwrap());
    let answer = page.answer(&[("by", "protocol"), ("top", "1000")]).unwrap();
    assert_eq!(answer["complete"], false);
    assert!(answer["problems"][0].as_str().unwrap().contains("interrupted"), "{answer}");
}
