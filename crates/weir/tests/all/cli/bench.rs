//! `weir bench`: tables and reports are complete. No test judges its speed.

use serde_json::Value;
use std::path::Path;
use testbed::weir;

/// Runs tables with small loads, and returns the report.
fn bench(tables: &[&str], folder: &Path) -> Value {
    let json = folder.join("bench.json");
    let options = ["--quick", "--rounds", "2", "--json", json.to_str().unwrap()];
    let (code, out, err) = weir([&["bench"], tables, &options].concat());
    assert_eq!(code, 0, "{err}");
    for words in ["processor", "ns/"].iter().chain(tables) {
        assert!(out.contains(words), "{words}: {out}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["balanced"], true);
    assert_eq!(report["conditions"]["quick"], true);
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
fn json_can_go_to_standard_output() {
    let (code, out, err) = weir(["bench", "flows", "--quick", "--rounds", "1", "--json", "-"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["tables"][0]["name"], "flows");
}
