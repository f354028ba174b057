//! Checks the dependencies between crates, and between the files of each crate.

use super::documents::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Each crate with the crates that it may depend on: those before it in the flow of data.
const ALLOWED: [(&str, &str); 35] = [
    ("anonymise", "dpi export fields flow ledger packet"),
    ("bench", "capture clickhouse dpi export fields flow ledger packet probe tcp-batch text trafficgen"),
    ("capture", "text"),
    ("clickhouse", "fields flow"),
    ("control", "dpi export fields flow ledger packet probe query text"),
    ("dpi", "ledger"),
    ("egress", "capture ledger packet text"),
    ("enrich", "dpi flow"),
    ("export", "clickhouse dpi fields flow kafka ledger packet spool store tcp text"),
    ("fields", "dpi flow packet tcp text"),
    ("flow", "dpi ledger ndpi packet tcp"),
    ("host", ""),
    ("ipfix-file", "fields flow packet"),
    ("kafka", ""),
    ("ledger", ""),
    ("ndpi", ""),
    ("nfdump-file", "fields flow ipfix-file"),
    ("packet", "ledger"),
    ("plot", "text"),
    ("probe", "capture egress export flow ledger packet rules"),
    ("query", "dpi export fields flow ledger packet tcp text"),
    ("recorder", "capture egress fields flow ledger packet query text"),
    ("rules", "fields flow query text"),
    ("spool", "ledger"),
    ("sql", "fields"),
    ("store", "fields flow ledger text"),
    ("tcp", "packet"),
    ("tcp-batch", "packet tcp"),
    ("tcp-report", "capture export fields flow ledger packet plot store tcp tcp-batch text"),
    ("testbed", "capture packet trafficgen"),
    ("testkit", "capture export flow ledger packet probe tcp trafficgen"),
    ("text", ""),
    ("top", "dpi text"),
    ("trafficgen", "capture"),
    (
        "weir",
        "anonymise bench capture clickhouse control dpi egress enrich export fields flow host ipfix-file ledger nfdump-file packet plot probe query recorder rules sql store tcp tcp-batch tcp-report text top trafficgen",
    ),
];

/// Crates that may hold unsafe code: system calls and mapped memory (capture), the flow
/// cache's memory and prefetch (flow), nDPI (ndpi), DuckDB (sql), librdkafka (kafka), the GPU driver (tcp-batch), namespaces and signals of tests
/// (testbed). All others forbid it.
const MAY_BE_UNSAFE: [&str; 7] = ["capture", "flow", "kafka", "ndpi", "sql", "tcp-batch", "testbed"];

/// Crates whose files import from each other, not through what the root of the crate re-exports: so each import
/// shows the way of the data.
const NO_DETOURS: [&str; 1] = ["capture"];

/// Imports that take the way through the root of a crate.
fn detours(sources: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files(sources, "rs").into_iter().filter(|file| !file.ends_with("src/lib.rs")) {
        for (number, line) in read(&file).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let mut parts = line.match_indices("crate::").map(|(at, found)| &line[at + found.len()..]);
            if parts.any(|rest| rest.starts_with(|first: char| first == '{' || first.is_uppercase())) {
                wrong.push(format!("{}:{}: imports through the root of the crate", file.display(), number + 1));
            }
        }
    }
    wrong
}

/// All violations: dependencies that differ from the list, unsafe code, circles.
pub fn violations(root: &Path) -> Vec<String> {
    let listed: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let found = crates(root);
    let mut wrong: Vec<String> = Vec::new();
    if found.keys().map(String::as_str).collect::<BTreeSet<_>>() != listed {
        wrong.push(format!("xtask/src/tidy/dependencies.rs: the crates are {:?}", found.keys()));
        return wrong;
    }
    if architecture(root) != found.keys().cloned().collect() {
        wrong.push(format!("ARCHITECTURE.md: its tables have {:?}, not all crates", architecture(root)));
    }
    wrong.extend(missing_for_fuzzing(root));
    for (name, allowed) in ALLOWED {
        let folder = &found[name];
        let manifest = manifest(folder);
        let dependencies = dependencies(&manifest).join(" ");
        if dependencies != allowed {
            wrong.push(format!("crate {name}: depends on \"{dependencies}\", not on \"{allowed}\""));
        }
        let sources = folder.join("src");
        let main = ["lib.rs", "main.rs"].map(|file| sources.join(file)).into_iter().find(|file| file.is_file());
        let forbids = read(&main.expect("a crate has a root")).contains("#![forbid(unsafe_code)]");
        if forbids == MAY_BE_UNSAFE.contains(&name) {
            wrong.push(format!("crate {name}: forbid(unsafe_code) is missing, or the list of exceptions is wrong"));
        }
        if NO_DETOURS.contains(&name) {
            wrong.extend(detours(&sources));
        }
        let mut files = BTreeMap::new();
        modules(&sources, "", &mut files);
        let graph = files.iter().map(|(name, text)| (name.clone(), imports(name, text, &files))).collect();
        if let Some(circle) = cycle(&graph) {
            wrong.push(format!("crate {name}: a circle runs through some of these files: {circle:?}"));
        }
    }
    wrong
}

/// Crates that modules of `weir` name which the fuzz target `config` includes, and that are no dependency of the
/// fuzz targets: these are a workspace of their own, which a build of Weir does not compile.
fn missing_for_fuzzing(root: &Path) -> Vec<String> {
    let weir = root.join("crates/weir/src");
    let mut included: Vec<PathBuf> =
        ["arguments", "error"].iter().flat_map(|name| files(&weir.join(name), "rs")).collect();
    included.push(weir.join("probe/config.rs"));
    let has = dependencies(&manifest(&root.join("fuzz")));
    let mut wrong = BTreeSet::new();
    for file in included {
        let text = read(&file);
        for (at, _) in text.match_indices("weir_") {
            let name: String =
                text[at + 5..].chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '_').collect();
            let is_path = text[at + 5 + name.len()..].starts_with("::");
            if is_path && !has.contains(&name.replace('_', "-")) {
                wrong.insert(format!("fuzz/Cargo.toml: {} needs weir-{}", file.display(), name.replace('_', "-")));
            }
        }
    }
    wrong.into_iter().collect()
}

/// The crates below `crates`, which stand in folders that follow the way of the data: their folders by their names.
fn crates(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).expect("the directory can be listed") {
            let path = entry.expect("it is readable").path();
            if path.join("Cargo.toml").is_file() {
                let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
                found.insert(name.to_owned(), path);
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Crates in the tables of ARCHITECTURE.md.
fn architecture(root: &Path) -> BTreeSet<String> {
    let text = read(&root.join("ARCHITECTURE.md"));
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(String::from).collect()
}

fn read(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifest(folder: &Path) -> toml::Table {
    read(&folder.join("Cargo.toml")).parse().expect("a manifest is TOML")
}

/// Crates of the workspace that a manifest depends on, including those of single platforms.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let manifests = platforms.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let tables = manifests.chain([manifest]).filter_map(|manifest| manifest.get("dependencies")?.as_table());
    // `name = { package = "weir-..." }` gives a crate another name.
    let package = |(name, value): (&'_ String, &'_ toml::Value)| {
        value.get("package").and_then(toml::Value::as_str).unwrap_or(name).strip_prefix("weir-").map(String::from)
    };
    let names: BTreeSet<String> = tables.flatten().filter_map(package).collect();
    names.into_iter().collect()
}

/// Modules of a directory by path (`a::b`; the root is empty), without tests.
fn modules(directory: &Path, path: &str, modules: &mut BTreeMap<String, String>) {
    for entry in read_dir(directory).expect("the directory can be listed") {
        let file = entry.expect("it is readable").path();
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("names are UTF-8");
        let join = |name: &str| if path.is_empty() { name.into() } else { format!("{path}::{name}") };
        match stem {
            "tests" => {}
            _ if file.is_dir() => self::modules(&file, &join(stem), modules),
            "lib" | "main" | "mod" => drop(modules.insert(path.into(), read(&file))),
            _ if file.extension().is_some_and(|extension| extension == "rs") => {
                modules.insert(join(stem), read(&file));
            }
            _ => {}
        }
    }
}

/// Expands a `use` tree to paths.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, body)) = tree.split_once('{') else { return paths.push(format!("{prefix}{tree}")) };
    let (mut depth, mut start) = (0, 0);
    let body = format!("{},", body.strip_suffix('}').unwrap_or(body));
    for (at, letter) in body.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{head}"), &body[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The code of a file without its unit tests, comments and strings.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    code.split('"').step_by(2).collect()
}

/// Paths that code names: `use` declarations, expanded, and all others that begin with `crate` or
/// `super`; true for re-exports.
fn paths(code: &str) -> Vec<(String, bool)> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = ["use ", "crate::", "super::"].iter().filter_map(|start| rest.find(start)).min() {
        let before = rest[..at].chars().next_back();
        let is_word = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_' && letter != ':');
        let is_public = rest[..at].trim_end().rsplit([';', '}', '\n']).next().unwrap_or_default().contains("pub");
        rest = &rest[at..];
        let end = if let Some(declaration) = rest.strip_prefix("use ").filter(|_| is_word) {
            let tree = declaration.split(';').next().unwrap_or_default();
            let tree: String = tree.split(" as ").next().unwrap_or_default().split_whitespace().collect();
            let mut trees = Vec::new();
            expand("", &tree, &mut trees);
            paths.extend(trees.into_iter().map(|path| (path, is_public)));
            declaration.find(';').map_or(rest.len(), |end| end + 4)
        } else {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
            let end = end.unwrap_or(rest.len()).max(4);
            if is_word {
                paths.push((rest[..end].trim_end_matches(':').into(), false));
            }
            end
        };
        rest = &rest[end..];
    }
    paths
}

/// Modules that a module names. A name that the crate root re-exports counts for the module that
/// defines it; the re-exports of a parent do not count.
fn imports(name: &str, text: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let resolve = |of: &str, path: &str| -> Option<String> {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base: Vec<&str> = of.split("::").filter(|part| !part.is_empty()).collect();
        match parts[0] {
            "crate" => base.clear(),
            "super" => {
                while parts.get(1) == Some(&"super") {
                    parts.remove(0);
                    base.pop();
                }
                base.pop();
            }
            first if modules.contains_key(&[&base[..], &[first]].concat().join("::")) => parts.insert(0, "self"),
            _ => return None,
        }
        base.extend(&parts[1..]);
        (0..=base.len()).rev().map(|length| base[..length].join("::")).find(|path| modules.contains_key(path))
    };
    let root = paths(&code(&modules[""]));
    let definer = |item: &str| {
        let (path, _) = root.iter().find(|(path, _)| path.rsplit("::").next() == Some(item))?;
        resolve("", path)
    };
    let target = |(path, is_re_export): (String, bool)| {
        assert!(path != "crate::*", "{name}: {path} hides what the file needs");
        let mut target = resolve(name, &path)?;
        if target.is_empty() && !name.is_empty() {
            target = definer(path.rsplit("::").next().unwrap_or_default()).unwrap_or(target);
        }
        let is_child = name.is_empty() || target.starts_with(&format!("{name}::"));
        (target != name && !(is_child && is_re_export)).then_some(target)
    };
    paths(&code(text)).into_iter().filter_map(target).collect()
}

/// A cycle among the imports, if there is one.
fn cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut left = imports.clone();
    while let Some(leaf) = left.iter().find(|(_, targets)| targets.iter().all(|target| !left.contains_key(target))) {
        let leaf = leaf.0.clone();
        left.remove(&leaf);
    }
    (!left.is_empty()).then(|| left.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found() {
        let files = [("", "mod a;\nmod b;\npub use a::A;"), ("a", "use crate::b::{B, C};\n"), ("b", "")];
        let back = [
            "use std::fmt;\nuse super::a::A;\n",
            "pub use crate::a::A;",
            "pub(crate) use crate::a::A;",
            "fn f() { use crate::a::A; }",
            "fn f(_: &crate::a::A) {}",
            "use crate::A;",
        ];
        for text in back {
            let mut files: BTreeMap<String, String> = files.map(|(name, text)| (name.into(), text.into())).into();
            files.insert("b".into(), text.into());
            let graph: BTreeMap<_, _> =
                files.iter().map(|(name, text)| (name.clone(), imports(name, text, &files))).collect();
            assert_eq!(cycle(&graph), Some(vec!["a".into(), "b".into()]), "{text}");
            assert!(graph[""].is_empty());
        }
    }
}
