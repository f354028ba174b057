//! The OpenAPI document of the HTTP interface is valid, and requests that are made from it are answered
//! as it says.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::is_installed;
use testbed::served::{Answer, Overridden, Served, TOKEN, token_file};
use testbed::viewed::Viewed;

/// Statuses that need a probe which is busy or ends, or a limit. Other tests have most of them.
const RARE: [u16; 5] = [202, 422, 429, 503, 504];

/// The folder with the validator. Prints that it is not used if it is not installed.
fn validator() -> Option<PathBuf> {
    // Beside the folder of temporary files of tests, in the target folder.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    let has_packages = ["jsonschema_rs", "openapi_spec_validator"].iter().all(|name| packages.join(name).is_dir());
    if !is_installed("python3") || !has_packages {
        eprintln!(
            "SKIPPED: jsonschema_rs is not in {} (make test installs it); bodies are not compared",
            packages.display()
        );
        return None;
    }
    Some(packages)
}

/// A schema or what it refers to.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    // `#/components/schemas/NAME`
    schema["$ref"].as_str().map_or(schema, |name| document.pointer(&name[1..]).unwrap())
}

/// Values at and beyond the limits of a schema.
fn values(document: &Value, schema: &Value) -> Vec<Value> {
    let schema = resolved(document, schema);
    if let Some(names) = schema["enum"].as_array().or(schema["oneOf"].as_array()) {
        let value =
            |name: &Value| name["const"].as_str().or(name["enum"][0].as_str()).map_or(name.clone(), Value::from);
        return names.iter().map(value).chain([json!("no-such-value"), json!(1)]).collect();
    }
    let of_type = |name: &str| {
        let types = &schema["type"];
        types == name || types.as_array().is_some_and(|types| types.contains(&name.into()))
    };
    let mut values = vec![json!(null), json!([]), json!("x")];
    if of_type("integer") {
        let limits = [&schema["minimum"], &schema["maximum"]].map(Value::as_i64);
        values.extend(limits.iter().flatten().flat_map(|limit| [limit - 1, *limit, limit + 1]).map(Value::from));
    }
    if of_type("object") {
        let examples = schema["examples"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        for example in &examples {
            let object = example.as_object().unwrap();
            for (name, property) in &properties {
                let with = |value: Value| {
                    let mut changed: Map<String, Value> = object.clone();
                    changed.insert(name.clone(), value);
                    Value::from(changed)
                };
                values.extend(self::values(document, property).into_iter().map(with));
                let without = object.iter().filter(|(other, _)| *other != name);
                values.push(without.map(|(name, value)| (name.clone(), value.clone())).collect());
            }
            let mut unknown = object.clone();
            unknown.insert("no_such_key".into(), json!(1));
            values.push(unknown.into());
        }
        values.extend(examples);
    }
    values
}

/// Queries: none, each parameter alone, all, and all but each. With examples and with other values.
fn queries(document: &Value, operation: &Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let escaped = |text: String| text.replace('%', "%25").replace('+', "%2B").replace([' ', '"'], "%20");
    let part = |parameter: &Value, value: &Value| {
        assert_eq!(parameter["in"], "query");
        format!("{}={}", parameter["name"].as_str().unwrap(), escaped(text(value)))
    };
    let example = |parameter: &Value| {
        let example = &parameter["example"];
        (!example.is_null()).then(|| part(parameter, example))
    };
    let with_examples = |keep: &dyn Fn(usize) -> bool| {
        let kept = parameters.iter().enumerate().filter(|(number, _)| keep(*number));
        kept.filter_map(|(_, parameter)| example(parameter)).collect::<Vec<_>>().join("&")
    };
    let mut queries = vec![String::new(), "no_such_parameter=1".into(), with_examples(&|_| true)];
    for (number, parameter) in parameters.iter().enumerate() {
        let values = values(document, &parameter["schema"]);
        queries.extend(values.iter().map(|value| part(parameter, value)));
        queries.extend(example(parameter));
        queries.push(with_examples(&|other| other != number));
    }
    queries
}

/// The answers to requests that are made from a document.
fn ask(
    raw: &dyn Fn(&[u8]) -> String,
    address: SocketAddr,
    document: &Value,
    token: &str,
) -> Vec<(String, String, Answer)> {
    let mut answers = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        // What is added first can be removed.
        for method in ["post", "get", "delete"] {
            let Some(operation) = operations.get(method) else { continue };
            let bodies: Vec<String> = match &operation["requestBody"]["content"]["application/json"]["schema"] {
                Value::Null => vec![String::new()],
                schema => values(document, schema).iter().map(Value::to_string).collect(),
            };
            let too_long = (method == "post").then(|| " ".repeat(20_000));
            for query in queries(document, operation) {
                for body in bodies.iter().chain(&too_long) {
                    let target = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
                    let headers = format!("Content-Length: {}\r\n{token}\r\n{body}", body.len());
                    let octets = format!(
                        "{} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}",
                        method.to_uppercase(),
                        address
                    );
                    answers.push((method.into(), path.clone(), Answer::parse(&raw(octets.as_bytes()))));
                }
            }
        }
    }
    answers
}

#[test]
fn requests_that_are_made_from_the_document_are_answered_as_it_says() {
    let with_token = format!("Authorization: Bearer {TOKEN}\r\n");
    let mut answers = Vec::new();
    let Some(probe) = Overridden::start("") else { return };
    let document = probe.served.get("/openapi.json").json();
    for token in ["", &with_token] {
        answers.extend(ask(&|octets| probe.served.raw(octets), probe.served.address, &document, token));
    }
    // Only a request that has the cookie of a session ends it.
    let begun = probe.served.request("POST", "/session", &with_token);
    let cookie = begun.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    answers.push(("delete".into(), "/session".into(), probe.served.request("DELETE", "/session", &cookie)));
    probe.served.probe.stop(0);
    let (folder, token) = token_file(TOKEN, 0o600);
    testbed::permit_all_users(folder.path());
    let store = format!("parquet:{}", folder.path().join("flows").display());
    let with_file = ["--token-file", token.to_str().unwrap(), "--listen-records", "0"];
    for (options, token) in [(&with_file[..], &*with_token), (&["-o", &store], "")] {
        let Some(served) = Served::start(options) else { return };
        answers.extend(ask(&|octets| served.raw(octets), served.address, &document, token));
        served.probe.stop(0);
    }
    let capture = testbed::captures().join("web.pcap");
    let view = Viewed::start(&[capture.to_str().unwrap(), "--names", "--token-file", token.to_str().unwrap()]);
    answers.extend(ask(&|octets| view.raw(octets), view.address, &document, &with_token));
    let mut seen: BTreeMap<(String, String), BTreeSet<u16>> = BTreeMap::new();
    let mut told = Vec::new();
    for (method, path, Answer { status, head, body }) in answers {
        let described = &document["paths"][&path][&method]["responses"][status.to_string()];
        let content = described["content"].as_object();
        let content = content.unwrap_or_else(|| panic!("{method} {path}: {status} is not in the document: {body}"));
        let media = content.keys().next().unwrap().clone();
        assert!(head.contains(&format!("content-type: {media}")), "{method} {path}: {head}");
        let body = if media == "application/json" { serde_json::from_str(&body).unwrap() } else { Value::from(body) };
        seen.entry((method.clone(), path.clone())).or_default().insert(status);
        told.push(json!({"method": method, "path": path, "status": status, "media": media, "body": body}));
    }
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let documented = operation["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap());
            let documented: BTreeSet<u16> = documented.filter(|status| !RARE.contains(status)).collect();
            let mut seen = seen[&(method.clone(), path.clone())].clone();
            seen.retain(|status| !RARE.contains(status));
            assert_eq!(documented, seen, "{method} {path}");
        }
    }
    let Some(packages) = validator() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/control/openapi/validate.py");
    let problems = |given: &Value| {
        let mut python = Command::new("python3");
        python.arg(&script).env("PYTHONPATH", &packages).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        python.stdin.take().unwrap().write_all(given.to_string().as_bytes()).unwrap();
        let result = python.wait_with_output().unwrap();
        assert!(result.status.success());
        String::from_utf8(result.stdout).unwrap()
    };
    println!("{} answers", told.len());
    assert_eq!(problems(&json!({"document": document, "answers": told})), "");
    // The validator finds what is planted.
    let mut wrong = document.clone();
    wrong["paths"]["/health"]["get"]["responses"]["200"]["description"] = Value::Null;
    let health = json!({"method": "get", "path": "/health", "status": 200, "media": "application/json", "body": {}});
    let found = problems(&json!({"document": wrong, "answers": [health]}));
    assert!(found.contains("document") && found.contains("get /health 200"), "{found}");
}
