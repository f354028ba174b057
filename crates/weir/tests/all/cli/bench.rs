//! `weir bench`: tables, reports and plots are complete. No test judges its speed.

use serde_json::Value;
use std::path::Path;
use testbed::weir;

/// Runs tables with small loads, and returns the report.
fn bench(tables: &[&str], folder: &Path) -> Value {
    let (json, plots) = (folder.join("bench.json"), folder.join("plots"));
    let options = ["--quick", "--rounds", "2", "--json", json.to_str().unwrap(), "--svg", plots.to_str().unwrap()];
    let (code, out, err) = weir([&["bench"], tables, &options].concat());
    assert_eq!(code, 0, "{err}");
    for words in ["processor", "ns/"].iter().chain(tables) {
        assert!(out.contains(words), "{words}: {out}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["balanced"], true);
    assert_eq!(report["conditions"]["quick"], true);
    let mut plotted = 0;
    for entry in std::fs::read_dir(plots).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let plot = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(plot.root_element().tag_name().name(), "svg");
        assert!(plot.descendants().any(|node| node.has_tag_name("polyline") || node.has_tag_name("rect")));
        plotted += 1;
    }
    assert!(plotted >= tables.len());
    report
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

#[test]
fn flows_and_flood_are_measured_with_their_upper_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["flows", "flood"], folder.path());
    let figures = figures(&report);
    let of = |series: &str| figures.iter().filter(|figure| figure["series"] == series).count();
    assert!(of("weir") == 7 && of("roofline") == 7 && of("null consumer") == 7, "{report}");
    for figure in figures.iter().filter(|figure| figure["series"] == "weir") {
        assert!(figure["of"]["roofline"]["median"].as_f64().unwrap() > 0.0, "{figure}");
    }
    let new = |row: &str, series: &str| {
        let is = |figure: &&&Value| figure["series"] == series && figure["row"] == row;
        figures.iter().find(is).unwrap()["facts"]["new records/s of capture"].as_f64().unwrap()
    };
    assert!(new("128", "weir") < 1.0, "{report}");
    let churned = new("16384", "weir, 1M new/s");
    assert!((800_000.0..1_500_000.0).contains(&churned), "{churned}");
}

#[test]
fn every_table_runs_and_loses_no_packet() {
    let (_, out, _) = weir(["bench", "--list"]);
    let tables: Vec<&str> = out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(tables.len() >= 5, "{out}");
    let folder = tempfile::tempdir().unwrap();
    figures(&bench(&tables, folder.path()));
}

#[test]
fn handing_on_is_measured_from_memory_and_over_interfaces() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["egress"], folder.path());
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
            assert_eq!(figure["facts"]["handed on/1000 packets"], packets, "{figure}");
        }
    }
}

#[test]
fn json_can_go_to_standard_output() {
    let (code, out, err) = weir(["bench", "flows", "--quick", "--rounds", "1", "--json", "-"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["tables"][0]["name"], "flows");
}

/// The figure of a series in the first row that begins with `row`.
fn figure<'a>(figures: &[&'a Value], row: &str, series: &str) -> &'a Value {
    let is = |figure: &&&Value| figure["row"].as_str().unwrap().starts_with(row) && figure["series"] == series;
    figures.iter().find(is).unwrap_or_else(|| panic!("{row}, {series}: {figures:?}"))
}

#[test]
fn memory_is_measured_by_pointer_chase_and_with_the_pattern_of_the_meter() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["memory"], folder.path());
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
fn encoding_is_measured_beside_a_copy_of_the_same_octets() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["encode"], folder.path());
    assert_eq!(report["tables"][0]["item"], "record");
    let figures = figures(&report);
    let octets = |row: &str| {
        for series in ["memcpy", "memcpy and system calls"] {
            figure(&figures, row, series);
        }
        figure(&figures, row, "weir")["facts"]["octets/record"].as_f64().unwrap()
    };
    // Two records of 48 octets per connection, and headers.
    assert!((96.0..100.0).contains(&octets("NetFlow v5")));
    assert!(octets("IPFIX, basic, UDP") < octets("IPFIX, full, UDP"));
    assert!(octets("JSON, basic") < octets("JSON, all fields"));
    octets("NetFlow v9");
    octets("CSV");
}

#[test]
fn stages_streams_and_threads_have_all_their_cases() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["stages", "streams", "threads"], folder.path());
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
