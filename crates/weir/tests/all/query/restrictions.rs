//! What a query cannot do, and how it ends early.

use super::{has_engine, more, stored_captures};
use std::fs;
use std::process::Stdio;
use testbed::{arguments, command, failure, signal, text_of, wait_for_thread_of_signals, weir};

#[test]
fn only_inputs_are_read_and_nothing_is_written() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = stored_captures(folder.path());
    let secret = folder.path().join("secret.txt");
    fs::write(&secret, "secret").unwrap();
    let target = store.join("x.csv");
    let link = folder.path().join("link.csv");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let (secret, target) = (secret.display(), target.display());
    let refused = [
        format!("select * from read_text('{secret}')"),
        format!("select * from read_csv('{secret}')"),
        format!("select * from glob('{}/*')", folder.path().display()),
        format!("copy (select 1) to '{target}'"),
        format!("explain analyze copy (select 1) to '{target}'"),
        format!("explain (analyze) copy (select 1) to '{target}'"),
        format!("copy flows to '{target}'"),
        format!("attach '{target}' as x"),
        "install httpfs".into(),
        "load httpfs".into(),
        "select * from 'https://192.0.2.1/x.parquet'".into(),
        "set memory_limit = '1TB'".into(),
        "pragma enable_external_access".into(),
        "create table t as select 1".into(),
        "create persistent secret s (type s3)".into(),
        "export database 'x'".into(),
        "call pragma_version()".into(),
        "select 1; select 2".into(),
        "drop view flows".into(),
        "from enable_profiling(format = 'json')".into(),
        "select * from Enable_Logging ( level = 'info' )".into(),
        "from checkpoint()".into(),
        format!("from '{}'", link.display()),
        format!("from read_csv('{}')", link.display()),
    ];
    for sandbox in [&[][..], &["--no-sandbox"]] {
        for sql in &refused {
            let (code, out, err) = weir(arguments!["query", sql, "-i", store].into_iter().chain(more(sandbox)));
            assert!(code == 1 && out.is_empty() && !err.contains("panicked"), "{sql}: {out}{err}");
        }
    }
    let names = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, [".weir", "date=2026-11-21"]);
}

#[test]
fn a_query_that_needs_too_much_memory_says_so() {
    if !has_engine() {
        return;
    }
    let sql = "select length(string_agg(repeat('x', 1000000), '')) from range(1000)";
    let err = failure(1, ["query", sql, "--memory", "64M", "--threads", "1"]);
    let said = "weir: the query needs more memory than it may take; --memory gives it more, and --from, --to and fewer \
         columns need less\n";
    assert_eq!(err, said);
}

#[test]
fn statements_that_are_refused_say_what_is_possible() {
    if !has_engine() {
        return;
    }
    for (sql, said) in [
        (
            "copy (select 1) to 'x.csv'",
            "COPY is not possible: a query only reads; -o FILE.csv, FILE.json or FILE.parquet writes",
        ),
        ("pragma database_list", "PRAGMA is not possible: a query only reads; its settings are --memory and --threads"),
        (
            "Attach 'x.db' as x",
            "ATTACH is not possible: a query only reads; -i names its inputs, and SQL may name files",
        ),
        ("install httpfs", "INSTALL is not possible: a query only reads; it has the functions of DuckDB's library"),
        (
            "create table t as select 1",
            "CREATE is not possible: a query only reads; write a SELECT, in which WITH names",
        ),
        ("select 1; select 2", "the SQL has more than one statement; a query is one: run weir query once for each"),
    ] {
        let err = failure(1, ["query", sql]);
        assert!(err.starts_with(&format!("weir: {said}")) && err.lines().count() == 1, "{sql}: {err}");
    }
    let (code, out, err) = weir(["query", "select ';' as a; -- the end", "--format", "csv"]);
    assert_eq!((code, out.as_str()), (0, "a\n;\n"), "{err}");
    let far = ["query", "select 1 as a", "--to", "9999-12-31"];
    let err = failure(1, far);
    assert!(err.contains("is a time before 1970 or after 2554-07-21, which no flow has; without the limit"), "{err}");
}

#[test]
fn what_does_not_fit_into_memory_is_written_and_removed() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sql = "select count(*) as n from (select row_number() over (order by hash(a.range * b.range)) as r \
         from range(3000) a, range(3000) b) where r % 2 = 0";
    let mut command = command();
    command.args(["query", sql, "--memory", "100M", "--threads", "2", "--format", "csv"]).env("TMPDIR", folder.path());
    let (code, out, err) = text_of(&command.output().unwrap());
    assert!(code == 0 && out == "n\n4500000\n", "{code} {out}{err}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_signal_ends_a_query_and_its_files() {
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.csv");
    let endless = "select count(*) from range(100000000000) a, range(100) b where (a.range * b.range) % 7 = 1";
    let mut command = command();
    command.args(["query", endless, "-o"]).arg(&result).env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_thread_of_signals(&child);
    signal(&child, libc::SIGINT);
    let (code, out, err) = text_of(&child.wait_with_output().unwrap());
    assert!(code == 2 && out.is_empty() && err.contains("interrupted"), "{code} {out}{err}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
