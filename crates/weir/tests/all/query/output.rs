//! Formats, files, and what goes wrong.

use super::{ask, has_engine, more, stored_captures};
use crate::read::fields::python_packages;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testbed::{
    arguments, assert_usage_errors, command, failure, success, text_of, weir, weir_with_closed_output, weir_with_input,
};

const VALUES: &str = "select 'a,\"b\u{202e}' as text, 1.50 as number, 170141183460469231731687303715884105727 as big, \
    'nan'::double as none, true as yes, null as nothing, [1, null] as list, timestamptz '2026-11-24 14:00:00+01' as time";

#[test]
fn each_format_has_the_same_values() {
    if !has_engine() {
        return;
    }
    let out = success(["query", VALUES, "--format", "csv"]);
    let big = "170141183460469231731687303715884105727";
    let csv = format!("\"a,\"\"b\\xe2\\x80\\xae\",1.50,{big},nan,true,,\"[1,null]\",2026-11-24T13:00:00.000000Z\n");
    assert_eq!(out, format!("text,number,big,none,yes,nothing,list,time\n{csv}"));
    let out = success(["query", VALUES, "--format", "json"]);
    let json = format!("\"number\":1.50,\"big\":{big},\"none\":null,\"yes\":true,\"nothing\":null,\"list\":[1,null],");
    assert!(out.contains(&json) && out.ends_with("\"time\":\"2026-11-24T13:00:00.000000Z\"}\n"), "{out}");
    let (code, out, _) = weir(["query", VALUES]);
    assert!(code == 0 && out.lines().count() == 2 && out.starts_with("text") && !out.contains('\u{202e}'), "{out}");
    assert_eq!(success(["query", "select 1 where false"]), "no rows\n");
    // A value has one line in a table, and not all of a very long one.
    let long = "select 1 as n, 'x' || chr(10) || 'y' as t union all select 2, repeat('z', 70000) order by n";
    let out = success(["query", long]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() == 3 && lines[1] == "1 x\\x0ay" && lines[2].ends_with("zzz…"), "{}", &out[..100]);
    assert_eq!(
        success(["query", "select 1 as a, 2 as a, 3 as A", "--format", "json"]),
        "{\"a\":1,\"a_1\":2,\"A_2\":3}\n"
    );
    let (code, err) = weir_with_closed_output(&["query", "select * from range(100000)", "--format", "csv"]);
    assert!(code == 0 && err.is_empty(), "{code} {err}");
    for text in ["'x' in ('a.b', 'x.csv')", "replace('a', 'b', 'x.json') = 'c'", "'x' is distinct from 'y.parquet'"] {
        assert_eq!(success(["query", &format!("select 1 as n where not {text} or true"), "--format", "csv"]), "n\n1\n");
    }
    assert!(success(["query", "explain select 1"]).contains("──"));
    assert_eq!(success(["query", "select 1 as \"a b\"; -- ;\n", "--format", "csv"]), "a b\n1\n");
    assert_eq!(weir_with_input(["query", "-", "--format", "csv"], b"values ('x')").1, "col0\nx\n");
}

#[test]
fn a_result_is_in_a_file_when_it_is_whole() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let names = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    for name in ["r.csv", "r.json", "r.parquet"] {
        let ask = |value: u32, options: &[&str]| {
            let sql = format!("select {value} as value");
            weir(arguments!["query", sql, "-o", path(name)].into_iter().chain(more(options)))
        };
        assert_eq!(ask(1, &[]).0, 0);
        let (code, _, err) = ask(2, &[]);
        assert!(code == 1 && err.contains("--overwrite"), "{err}");
        assert_eq!(ask(3, &["--overwrite"]).0, 0);
        let again = format!("select value from '{}'", path(name).display());
        assert_eq!(success(["query", &again, "--format", "csv"]), "value\n3\n");
    }
    success(arguments!["query", format!("summarize from '{}'", path("r.csv").display()), "-o", path("s.parquet")]);
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("s.parquet"), mode("r.csv"));
    fs::remove_file(path("s.parquet")).unwrap();
    let quoted = format!("select value from \"{}\"", path("r.json").display());
    assert_eq!(success(["query", &quoted, "--format", "csv"]), "value\n3\n");
    // What fails leaves the old file, and nothing else.
    let wrong = "select error('x') from range(3)";
    assert_eq!(weir(arguments!["query", wrong, "-o", path("r.csv"), "--overwrite"]).0, 1);
    assert_eq!(fs::read_to_string(path("r.csv")).unwrap(), "value\n3\n");
    assert_eq!(weir(arguments!["query", wrong, "-o", path("new.parquet")]).0, 1);
    assert_eq!(names(), ["r.csv", "r.json", "r.parquet"]);
    // Nothing is written into what is read.
    let (code, _, err) =
        weir(arguments!["query", "from flows", "-i", path("r.csv"), "-o", path("r.csv"), "--overwrite"]);
    assert!(code == 1 && err.contains("r.csv"), "{err}");
}

#[test]
fn the_printed_sql_is_that_which_runs() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let printed = success(arguments!["query", "top-ports", "-i", store, "--print-sql", "--top", "3"]);
    assert!(printed.contains("create or replace view \"flows\" as select * from read_parquet(["), "{printed}");
    let sql = printed[printed.find("\nselect").unwrap()..].trim();
    let [ready, written] =
        ["top-ports", sql].map(|query| success(arguments!["query", query, "-i", store, "--top", "3"]));
    assert_eq!(ready, written);
    let macros = success(["query", "--macros"]);
    assert!(macros.contains("macro in_net(ip, net)") && macros.contains("when 443 then 'https'"));
}

/// Python's package has a later version of DuckDB.
const IN_PYTHON: &str = "
import duckdb, pathlib, sys
macros, question = (pathlib.Path(name).read_text() for name in sys.argv[1:])
connection = duckdb.connect()
connection.execute(macros)
# Python has no time zones of its own for the rows.
start = min(at for at in map(question.find, ('\\nselect', '\\nwith')) if at > 0)
connection.execute(question[:start] + 'create table result as ' + question[start:])
print(connection.execute('select count(*) from result').fetchone()[0])
";

#[test]
fn duckdb_itself_runs_the_printed_sql() {
    let Some(packages) = python_packages().filter(|_| has_engine()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let [macros, question] = ["macros.sql", "question.sql"].map(|name| folder.path().join(name));
    fs::write(&macros, success(["query", "--macros"])).unwrap();
    let questions = success(["query"]);
    for name in questions.lines().skip(1).map(|line| line.split(' ').next().unwrap()) {
        let all = [name].into_iter().chain((name == "host").then_some("192.0.2.1"));
        let all: Vec<&str> = all.chain(["--top", "5"]).collect();
        let rows = ask(&all, &store).len();
        fs::write(&question, success(arguments!["query", "-i", store, "--print-sql"].into_iter().chain(more(&all))))
            .unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", IN_PYTHON]).args([&macros, &question]).env("PYTHONPATH", &packages);
        let (code, out, err) = text_of(&python.output().unwrap());
        assert!(code == 0 && out.trim() == rows.to_string(), "{name}: {rows} rows, {out}{err}");
    }
}

#[test]
fn errors_show_the_place_and_what_to_do() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let err = failure(1, arguments!["query", "select src_ip, no_field from flows", "-i", store]);
    assert!(err.contains("weir: LINE 1: select src_ip, no_field from flows\n"), "{err}");
    let marks: Vec<usize> = err.lines().filter_map(|line| line.find("no_field").or_else(|| line.find('^'))).collect();
    assert!(marks.len() >= 2 && marks[marks.len() - 2] == marks[marks.len() - 1], "{err}");
    let footer = folder.path().join("broken.parquet");
    fs::write(&footer, b"PAR1 and no footer").unwrap();
    assert!(failure(1, arguments!["query", "from flows", "-i", footer]).contains("broken.parquet"));
    for name in ["missing.pcap", "missing.csv", "missing.parquet"] {
        let missing = folder.path().join(name);
        let err = failure(1, arguments!["query", format!("from '{}'", missing.display())]);
        assert!(err.contains(name) && err.contains("is the name right?"), "{err}");
    }
    let pipe = folder.path().join("pipe.csv");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    assert!(failure(1, arguments!["query", "from flows", "-i", pipe]).contains("neither a regular file nor a folder"));
    assert!(failure(1, arguments!["query", "from flow", "-i", store]).contains("is called flows"));
    assert!(failure(1, arguments!["query", "from flows", "-i", folder.path()]).contains("is no store"));
    fs::write(store.join("strange"), b"").unwrap();
    let (code, _, err) = weir(arguments!["query", "select count(*) from flows", "-i", store]);
    assert!(code == 0 && err.matches("none of it").count() == 1 && err.contains("strange"), "{err}");
}

#[test]
fn usage_errors_need_no_library() {
    assert_usage_errors(&[
        (&["query", "top-talker"], "do you mean top-talkers?"),
        (&["query", "host"], "needs an address"),
        (&["query", "host", "x"], "no address"),
        (&["query", "top-ports", "x"], "is not part of the question"),
        (&["query", " "], "empty"),
        (&["query", "select 1", "-o", "x.txt"], "--format"),
        (&["query", "select 1", "--format", "parquet"], "-o FILE.parquet"),
        (&["query", "select 1", "--from", "12:00", "--to", "11:00"], "later than"),
        (&["query", "select 1", "--memory", "1K"], "64M"),
        (&["query", "timeline", "--every", "1ns"], "1us"),
        (&["query", "from flows", "-i", "/nowhere/flows"], "No such file"),
        (&["query", "select 1", "--engine", "/nowhere/libduckdb.so"], "--engine: /nowhere/libduckdb.so"),
    ]);
    let mut command = command();
    command.args(["query", "from flows"]).env("WEIR_STORE", "/nowhere/store");
    let (code, _, err) = text_of(&command.output().unwrap());
    assert!(code == 1 && err.contains("/nowhere/store: there are no flows"), "{err}");
}
