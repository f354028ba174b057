//! The page of the HTTP interface as clients get it: with and without the files that `make web` builds, its headers,
//! and sessions. `make test-web` opens it in a browser.

use super::http::certificate;
use std::process::Command;
use testbed::namespace::until;
use testbed::running::send_requests;
use testbed::served::{Answer, Served, TOKEN, token_file};
use testbed::{is_installed, number};

const FOR_BROWSER: &str = "Accept: text/html,application/xhtml+xml\r\n";

/// The value of a header.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let value = answer.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("{name} is missing: {}", answer.head))
}

#[test]
fn a_browser_gets_the_page_or_how_to_build_it_and_other_clients_the_list_of_paths() {
    let Some(served) = Served::start(&[]) else { return };
    let list = served.get("/");
    assert!(header(&list, "content-type").starts_with("text/plain") && list.body.contains("GET  /status"));
    let page = served.request("GET", "/", FOR_BROWSER);
    assert_eq!(page.status, 200);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    assert!(header(&page, "content-security-policy").starts_with("default-src 'self';"), "{}", page.head);
    assert_eq!([header(&page, "cache-control"), header(&page, "x-content-type-options")], ["no-store", "nosniff"]);
    assert_eq!(served.request("POST", "/", FOR_BROWSER).status, 403);
    // Neither a page of another site nor another name of this host gets it.
    assert_eq!(served.request("GET", "/", &format!("{FOR_BROWSER}Sec-Fetch-Site: cross-site\r\n")).status, 403);
    let other = served.raw(format!("GET / HTTP/1.0\r\nHost: attacker.example\r\n{FOR_BROWSER}\r\n").as_bytes());
    assert_eq!(Answer::parse(&other).status, 421);
    for path in ["/assets/none.js", "/assets/", "/assets/../index.html", "/assets/index.html"] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    if page.body.contains("make web") {
        eprintln!("SKIPPED: the page is not built (make web); its assets are not compared");
        served.probe.stop(0);
        return;
    }
    assert!(page.body.contains("<noscript>") && !page.body.contains("<style"), "{}", page.body);
    let assets: Vec<&str> = page.body.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert_eq!(assets.len(), 3, "{}", page.body);
    for path in assets {
        let asset = served.request("HEAD", path, "Accept-Encoding: gzip, br\r\n");
        assert_eq!((asset.status, header(&asset, "content-encoding")), (200, "gzip"), "{path}");
        assert!(header(&asset, "cache-control").contains("immutable"), "{}", asset.head);
        assert_eq!(header(&asset, "x-content-type-options"), "nosniff");
        assert_eq!(served.request("HEAD", path, "Accept-Encoding: br\r\n").status, 406, "{path}");
    }
    served.probe.stop(0);
}

#[test]
fn the_history_grows_by_a_sample_a_second_and_ends_with_the_counters_of_the_ledger() {
    let Some(mut served) = Served::start(&[]) else { return };
    send_requests(&mut served.sender, 0..100);
    let history = |after: &str| served.get(&format!("/history{after}")).json();
    let last = |history: &serde_json::Value, name: &str| history[name].as_array().unwrap().last().map_or(0, number);
    until("a sample has all packets", || last(&history(""), "received_packets") == 200);
    let all = history("");
    let ledger = &served.get("/status").json()["ledger"];
    for (name, expected) in [
        ("received_bytes", &ledger["bytes"]["received"]),
        ("created_flows", &ledger["flows"]["created"]),
        ("active_flows", &ledger["flows"]["live"]),
    ] {
        assert_eq!(last(&all, name), number(expected), "{name}");
    }
    let lists = all.as_object().unwrap().values().map(|list| list.as_array().unwrap().len());
    assert!(lists.clone().all(|length| length == lists.clone().next().unwrap()), "{all}");
    let newest = last(&all, "time_ms");
    until("there is a later sample", || last(&history(&format!("?after={newest}")), "time_ms") > newest);
    let later = history(&format!("?after={}", u64::MAX));
    assert_eq!(later["time_ms"][0], all["time_ms"][0], "a time that has not been gives all");
    for query in ["?after=x", "?after=-1", "?before=1"] {
        assert_eq!(served.get(&format!("/history{query}")).status, 400, "{query}");
    }
    served.probe.stop(0);
}

#[test]
fn an_error_of_an_expression_has_its_place() {
    let Some(served) = Served::start(&[]) else { return };
    let place = |expression: &str| served.get(&format!("/flows?where={expression}")).json()["place"].clone();
    assert_eq!(place("port+53+adn+tcp"), serde_json::json!({"text": "port 53 adn tcp", "before": 8, "length": 3}));
    assert_eq!(place("%C3%BC%3Cb%3E")["before"], 0);
    assert!(served.get("/flows?top=x").json().get("place").is_none());
    let fields = served.get("/fields").json();
    let names: Vec<_> = fields["fields"].as_array().unwrap().iter().map(|field| field["name"].clone()).collect();
    assert!(names.contains(&"sni".into()) && names.len() > 100, "{names:?}");
    served.probe.stop(0);
}

#[test]
fn beyond_loopback_a_session_reads_and_changes_nothing() {
    if !is_installed("openssl") || !is_installed("curl") {
        return eprintln!("SKIPPED: openssl and curl are not installed");
    }
    let (folder, token) = token_file(TOKEN, 0o600);
    let [cert, key] = certificate(folder.path());
    let options =
        ["--listen", "192.0.2.1:0", "--token-file", token.to_str().unwrap(), "--tls-cert", &cert, "--tls-key", &key];
    let Some(served) = Served::start(&options) else { return };
    let curl = |method: &str, path: &str, headers: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", "-X", method, "--cacert", &cert]).arg(format!("https://{}{path}", served.address));
        curl.args(headers.iter().flat_map(|header| ["-H", header]));
        Answer::parse(&String::from_utf8_lossy(&curl.output().unwrap().stdout))
    };
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let wrong = "Authorization: Bearer wrong-token-of-probe";
    // The page is there without the token; what it asks is not.
    assert_eq!(curl("GET", "/", &["Accept: text/html"]).status, 200);
    assert_eq!(curl("GET", "/assets/none.js", &[]).status, 404);
    for (method, path, header) in [
        ("GET", "/", "X: 1"),
        ("GET", "/status", "Accept: text/html"),
        ("POST", "/session", "X: 1"),
        ("POST", "/session", wrong),
    ] {
        let answer = curl(method, path, &[header]);
        assert!(answer.status == 401 && !answer.head.contains("set-cookie"), "{method} {path}");
    }
    let begun = curl("POST", "/session", &[&bearer]);
    assert_eq!(begun.status, 200);
    let cookie = header(&begun, "set-cookie");
    let port = served.address.port();
    assert!(
        cookie.starts_with(&format!("weir-{port}=")) && cookie.ends_with("; httponly; samesite=strict; secure"),
        "{cookie}"
    );
    assert!(!cookie.contains(TOKEN));
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let forged = format!("Cookie: weir-{port}={}", "0".repeat(64));
    for (method, path, headers, status) in [
        ("GET", "/status", &[&*cookie][..], 200),
        ("GET", "/flows", &[&cookie, "Sec-Fetch-Site: same-origin"], 200),
        ("GET", "/status", &[&forged], 401),
        // A page of another port of this host has the cookie, too.
        ("GET", "/status", &[&cookie, "Sec-Fetch-Site: same-site"], 401),
        ("GET", "/status", &[&cookie, "Origin: https://192.0.2.1:1"], 401),
        ("POST", "/reload", &[&cookie], 401),
        ("POST", "/session", &[&cookie], 401),
        ("DELETE", "/overrides?community_id=x", &[&cookie], 401),
        ("DELETE", "/session", &[&cookie, "Sec-Fetch-Site: cross-site"], 401),
        ("DELETE", "/session?x=1", &[&cookie], 400),
        ("DELETE", "/session", &["X: 1"], 401),
        ("DELETE", "/session", &[&bearer], 404),
    ] {
        assert_eq!(curl(method, path, headers).status, status, "{method} {path} {headers:?}");
    }
    let has_session = |headers: &[&str]| curl("GET", "/about", headers).json()["session"] == true;
    assert!(has_session(&[&cookie]) && !has_session(&[&bearer]));
    // Another session goes on when one ends.
    let other = curl("POST", "/session", &[&bearer]);
    let other = format!("Cookie: {}", header(&other, "set-cookie").split(';').next().unwrap());
    let ended = curl("DELETE", "/session", &[&cookie]);
    assert_eq!(ended.status, 200);
    assert!(header(&ended, "set-cookie").starts_with(&format!("weir-{port}=; path=/; max-age=0;")), "{}", ended.head);
    assert_eq!([&cookie, &other].map(|cookie| curl("GET", "/status", &[cookie]).status), [401, 200]);
    assert_eq!(curl("DELETE", "/session", &[&cookie]).status, 401);
    assert!(!served.probe.stderr().contains(&cookie[8..]), "no log has the cookie");
    served.probe.stop(0);
}

#[test]
fn a_probe_without_token_has_no_sessions() {
    let Some(served) = Served::start(&[]) else { return };
    assert_eq!(served.request("POST", "/session", "").status, 403);
    assert_eq!(served.request("GET", "/session", "").status, 405);
    served.probe.stop(0);
}
