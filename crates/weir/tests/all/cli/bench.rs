//! `weir bench`: tables and reports are complete. No test judges its speed.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use testbed::weir;

/// Runs tables with small loads, and returns the report.
fn bench(tables: &[&str], folder: &Path) -> Value {
    let json = folder.join("bench.json");
    let options = ["--quick", "--rounds", "2", "--json", json.to_str().unwrap()];
    let (code, out, err) = weir([&["bench"], tables, &options].concat());
    assert_eq!(code, 0, "{err}");
    for words in ["processor", "ns/"].iter().chain(tables.iter().filter(|word| !word.starts_with("--"))) {
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
    assert!(tables.len() >= 6, "{out}");
    let folder = tempfile::tempdir().unwrap();
    figures(&bench(&tables, folder.path()));
}

#[test]
fn every_sink_is_measured_beside_a_copy_of_the_same_octets() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&["encode"], folder.path());
    assert_eq!(report["tables"][0]["item"], "record");
    let figures = figures(&report);
    let figure = |row: &str, series: &str| {
        let is = |figure: &&&Value| figure["row"].as_str().unwrap().starts_with(row) && figure["series"] == series;
        *figures.iter().find(is).unwrap_or_else(|| panic!("{row}, {series}: {figures:?}"))
    };
    let octets = |row: &str| {
        for series in ["memcpy", "memcpy and system calls"] {
            figure(row, series);
        }
        figure(row, "weir")["facts"]["octets/record"].as_f64().unwrap()
    };
    // Two records of 48 octets per connection, and headers.
    assert!((96.0..100.0).contains(&octets("NetFlow v5")));
    assert!(octets("NetFlow v9, basic") < octets("NetFlow v9, full"));
    assert!(octets("JSON, basic, file") < octets("JSON, all fields"));
    // The same messages over each transport.
    for transport in ["TCP", "TLS", "Unix"] {
        assert_eq!(octets(&format!("JSON, basic, {transport}")), octets("JSON, basic, file"));
    }
    for row in
        ["IPFIX, basic", "syslog, basic, TCP", "CSV", "Arrow", "Parquet, basic", "ClickHouse, profile store, zstd"]
    {
        octets(row);
    }
    assert!(
        octets("ClickHouse, profile store, zstd")
            < figure("ClickHouse, profile store", "weir")["facts"]["octets/record"].as_f64().unwrap() + 1.0
    );
    for row in ["IPFIX, full, TLS", "syslog, basic, TCP", "ClickHouse, basic, zstd"] {
        figure(row, "end to end (wall)");
    }
}

/// The sinks of the command line, and nothing else: each record arrives.
#[test]
fn records_go_to_the_sinks_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = format!("json+tcp://{}?fields=src_port", listener.local_addr().unwrap());
    let receiver = thread::spawn(move || {
        // The one that shows the octets, then warm-up and two rounds of both series.
        let connections = listener.incoming().flatten().take(1 + 2 * 3);
        connections.map(|stream| BufReader::new(stream).lines().count()).collect::<Vec<_>>()
    });
    let report = bench(&["--to", &sink], folder.path());
    assert_eq!(receiver.join().unwrap(), [512; 7]);
    let rows: Vec<&Value> = figures(&report).iter().map(|figure| &figure["row"]).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| *row == &sink), "{rows:?}");
    let (code, _, err) = weir(["bench", "flows", "--to", &sink]);
    assert_eq!(code, 1);
    assert!(err.contains("--to is for the table encode"), "{err}");
    // What is there stays.
    let file = folder.path().join("flows.csv");
    std::fs::write(&file, "mine").unwrap();
    let (code, _, err) = weir(["bench", "--quick", "--to", file.to_str().unwrap()]);
    assert_eq!((code, std::fs::read_to_string(&file).unwrap().as_str()), (1, "mine"));
    assert!(err.contains("not empty"), "{err}");
}

#[test]
fn json_can_go_to_standard_output() {
    let (code, out, err) = weir(["bench", "flows", "--quick", "--rounds", "1", "--json", "-"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["tables"][0]["name"], "flows");
}
