//! Every table runs with small loads and has all its cases. No test judges its speed.

use super::TABLES;
use serde_json::Value;
use weir_bench::{Options, json, run};

/// Runs tables with small loads, and returns the report.
fn bench(tables: &[&str]) -> Value {
    let tables = tables.iter().map(|&name| name.to_owned()).collect();
    let options = Options { tables, rounds: 2, quick: true, sinks: Vec::new(), date: "now".into() };
    let report = run(&TABLES, &options, &mut |_| (), &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_str(&json(&report)).unwrap()
}

fn figures(report: &Value) -> Vec<&Value> {
    let tables = report["tables"].as_array().unwrap();
    let figures: Vec<&Value> = tables.iter().flat_map(|table| table["figures"].as_array().unwrap()).collect();
    for figure in &figures {
        let [median, min, max] = ["median", "min", "max"].map(|of| figure["mpps"][of].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{figure}");
        assert!(figure["packets"].as_u64().unwrap() > 0, "{figure}");
    }
    figures
}

/// The figure of a series in the first row that begins with `row`.
fn figure<'a>(figures: &[&'a Value], row: &str, series: &str) -> &'a Value {
    let is = |figure: &&&Value| figure["row"].as_str().unwrap().starts_with(row) && figure["series"] == series;
    figures.iter().find(is).unwrap_or_else(|| panic!("{row}, {series}: {figures:?}"))
}

#[test]
fn handing_on_is_measured_from_memory_and_over_interfaces() {
    let report = bench(&["egress"]);
    let figures = figures(&report);
    let rows: Vec<&str> = figures.iter().map(|figure| figure["row"].as_str().unwrap()).collect();
    let series = |row: &str| figures.iter().filter(|figure| figure["row"] == row).count();
    assert_eq!(series("memory, 300 flows"), 6, "{report}");
    let notes = report["tables"][0]["notes"].as_array().unwrap();
    let is_skipped = |row: &str| notes.iter().any(|note| note.as_str().unwrap().contains(row));
    for row in ["veth, af_packet", "veth, af_xdp"] {
        if is_skipped(row) || is_skipped("over interfaces") {
            eprintln!("SKIPPED: {notes:?}");
            continue;
        }
        assert_eq!(series(row), 7, "{rows:?}");
        for (series, packets) in
            [("plain forwarder", 1000.0), ("weir", 0.0), ("forward all", 1000.0), ("drop all", 0.0)]
        {
            let figure = figures.iter().find(|figure| figure["row"] == row && figure["series"] == series).unwrap();
            assert_eq!(figure["facts"]["forwarded/1000 packets"], packets, "{figure}");
        }
    }
}

#[test]
fn memory_is_measured_by_pointer_chase_and_with_the_pattern_of_the_meter() {
    let report = bench(&["memory"]);
    assert_eq!(report["tables"][0]["item"], "line");
    let figures = figures(&report);
    for series in ["2 MiB pages", "4 KiB pages"] {
        figure(&figures, "latency, 16 KiB", series);
    }
    // Nothing is claimed of a remote node that is not there.
    let has_note = report["tables"][0]["notes"].to_string().contains("no remote memory");
    assert_eq!(figures.iter().any(|figure| figure["series"] == "remote node"), !has_note, "{report}");
    assert!(figure(&figures, "chains", "64 chains")["of"]["1 chain"]["median"].as_f64().unwrap() > 0.0);
    for series in ["read", "write", "copy"] {
        assert!(figure(&figures, "bandwidth", series)["facts"]["GB/s"].as_f64().unwrap() > 0.0);
    }
    let pattern = figure(&figures, "pattern, 300 TCP flows", "64 packets at a time");
    let [mpps, lines] = ["Mpps", "lines/packet"].map(|fact| pattern["facts"][fact].as_f64().unwrap());
    assert!(mpps > 0.0 && lines == 5.0, "{pattern}");
}

#[test]
fn stages_streams_and_threads_have_all_their_cases() {
    let report = bench(&["stages", "streams", "threads"]);
    let figures = figures(&report);
    let stage = figure(&figures, "mix", "+ decode");
    let notes = report["tables"][0]["notes"].to_string();
    // Instructions and energy are those of the machine, or there are none and a note says so.
    for (fact, note) in [("instructions/packet", "no instructions and cycles"), ("nJ/packet", "no energy")] {
        assert!(stage["facts"].get(fact).is_some() || notes.contains(note), "{fact}: {report}");
    }
    for series in ["malloc, headers", "mmap, headers", "mmap, whole", "2 MiB pages, headers"] {
        figure(&figures, "1", series);
    }
    for series in ["null consumer", "decoder + one line", "weir"] {
        assert!(figure(&figures, "2", series)["packets"].as_u64().unwrap() >= 10_000);
    }
}

#[test]
fn every_table_of_the_papers_has_its_cases_and_its_verdicts() {
    let report = bench(&["cesnet", "sweep", "hash", "ablation", "pages"]);
    let figures = figures(&report);
    for (row, series) in [
        ("64 x 128", "weir, parsed"),
        ("1024", "chaining"),
        ("1024", "16 entries"),
        ("1024", "10 entries in a cache line (Weir)"),
        ("1024", "Toeplitz, symmetric key"),
        ("velan, 1024 flows, 1", "no prefetch"),
        ("mix", "no TCP analysis"),
        ("velan, 1000 flows, 2", "shared counter"),
        ("1024", "transparent huge pages"),
    ] {
        figure(&figures, row, series);
    }
    let notes = report["tables"].to_string();
    for part in
        ["recommended: 10 entries", "synth:mix,flows=100000, keyed hash", "over 512 buckets: even", "testdata/captures"]
    {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}
