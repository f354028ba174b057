//! `--log-format` and `--log-level`.

use serde_json::Value;
use testbed::{JsonOutput, SMALL_PACKETS, START, small, weir};

/// Runs `weir` with a JSON log, without standard output: exit code and events.
fn events(arguments: &[&str]) -> (i32, Vec<Value>) {
    let (code, out, err) = weir(arguments.iter().chain(&["--log-format", "json"]));
    assert_eq!(out, "", "{err}");
    (code, err.lines().map(|line| serde_json::from_str(line).expect(line)).collect())
}

/// The events of `weir probe` on a truncated capture with an empty frame.
fn events_of_damaged_capture(options: &[&str]) -> Vec<Value> {
    let output = JsonOutput::new();
    let mut capture = small().frame(START + 2, 0, &[]);
    capture.0.extend([0; 3]);
    let path = capture.save(output.folder.path(), "cut.pcap");
    let (code, events) = events(&[&["probe", "-i", path.to_str().unwrap(), "-o", &output.sink], options].concat());
    assert_eq!(code, 2, "{events:?}");
    events
}

fn find<'a>(events: &'a [Value], message: &str) -> &'a Value {
    events.iter().find(|event| event["message"] == message).unwrap_or_else(|| panic!("{message}: {events:?}"))
}

#[test]
fn with_log_format_json_each_line_of_standard_error_is_an_object() {
    let events = events_of_damaged_capture(&[]);
    for field in ["timestamp", "level", "message"] {
        assert!(events.iter().all(|event| event[field].is_string()), "{field}: {events:?}");
    }
    let failure = find(&events, "source failed");
    assert_eq!(failure["level"], "ERROR");
    assert!(failure["error"].as_str().unwrap().contains("cut.pcap"), "{failure}");
    let end = find(&events, "finished with problems");
    assert_eq!((&end["level"], &end["metered"]), (&"WARN".into(), &SMALL_PACKETS.into()), "{end}");
    assert_eq!(end["ledger"]["packets"]["metered"], SMALL_PACKETS, "{end}");
}

#[test]
fn log_level_error_leaves_out_warnings() {
    let events = events_of_damaged_capture(&["--log-level", "error"]);
    find(&events, "source failed");
    assert!(events.iter().all(|event| event["level"] == "ERROR"), "{events:?}");
}

#[test]
fn final_event_agrees_with_the_exit_code() {
    for (damage, message, expected) in [(&[][..], "finished", 0), (&[0; 3], "finished with problems", 2)] {
        let output = JsonOutput::new();
        let mut capture = small();
        capture.0.extend(damage);
        let path = capture.save(output.folder.path(), "small.pcap");
        let (code, events) = events(&["read", path.to_str().unwrap(), "-o", &output.sink]);
        assert_eq!((code, &events.last().unwrap()["message"]), (expected, &message.into()), "{events:?}");
    }
}

#[test]
fn failure_to_start_is_an_event() {
    for (arguments, reason) in [
        (&["read", "/nonexistent.pcap"][..], "/nonexistent.pcap: No such file"),
        (&["read", "--nonsense"], "unexpected argument '--nonsense'"),
        (&["probe", "-i", "synth:mix", "--config", "/nonexistent"], "/nonexistent: No such file"),
        (&["probe"], "nothing to read"),
    ] {
        let (code, events) = events(arguments);
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!((code, &event["level"], &event["message"]), (1, &"ERROR".into(), &"command failed".into()));
        assert!(event["error"].as_str().unwrap().starts_with(reason), "{event}");
    }
}

#[test]
fn figures_of_status_and_autotune_are_numbers_and_states_are_words() {
    let sources = ["probe", "-i", "synth:mix,packets=2M", "-i", "synth:velan,packets=10", "-o", "json:/dev/null"];
    let (code, events) = events(&[&sources[..], &["--interval", "50ms", "--autotune=30ms"]].concat());
    assert_eq!(code, 0, "{events:?}");
    let measured = find(&events, "autotune: measured");
    for figure in ["packets_per_second", "capacity_packets_per_second", "lost_percent", "cpu_ns_per_packet"] {
        assert!(measured[figure].is_number(), "{figure}: {measured}");
    }
    let statuses: Vec<_> = events.iter().filter(|event| event["message"] == "status").collect();
    assert!(statuses.len() >= 3, "{events:?}");
    for status in statuses {
        assert!(status["sink_load_percent"][0].is_number(), "{status}");
        for pipeline in status["pipelines"].as_array().unwrap() {
            assert!(["running", "ended", "no_response"].contains(&pipeline["state"].as_str().unwrap()), "{status}");
            assert!(pipeline["packets_per_second"].is_number(), "{status}");
        }
    }
}

#[test]
fn the_last_event_comes_after_a_failure_of_stats() {
    let capture = small().saved();
    let report = capture.beside("report.json");
    let flows = JsonOutput::new();
    for command in [
        &["read", capture.name(), "-o", &flows.sink][..],
        &["probe", "-i", capture.name(), "-o", &flows.sink],
        &["tcp", capture.name(), "--json", report.to_str().unwrap(), "--quiet", "--log-level", "info"],
    ] {
        let (code, events) = events(&[command, &["--stats", "/dev/full"]].concat());
        assert_eq!((code, &events.last().unwrap()["message"]), (2, &"finished with problems".into()), "{events:?}");
        assert_eq!(find(&events, "cannot write the ledger")["level"], "ERROR");
    }
}

#[test]
fn log_level_debug_names_what_was_opened_and_closed() {
    let (capture, flows) = (small().saved(), JsonOutput::new());
    for command in [&["read"][..], &["probe", "-i"]] {
        let arguments = [command, &[capture.name(), "-o", &flows.sink, "--log-level", "debug"]].concat();
        let (code, events) = events(&arguments);
        assert_eq!(code, 0, "{events:?}");
        assert_eq!(find(&events, "source opened")["source"], capture.name());
        assert_eq!(find(&events, "sink opened")["sink"], *flows.sink);
        let closed = find(&events, "sink closed");
        assert_eq!((&closed["level"], &closed["exported"], &closed["lost"]), (&"DEBUG".into(), &3.into(), &0.into()));
        assert!(find(&events, "flow cache of each meter")["max_memory"].is_string(), "{events:?}");
    }
}

#[test]
fn an_invalid_configuration_file_is_reported_in_its_own_log_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.toml");
    let path = file.to_str().unwrap();
    for text in ["log-format = \"json\"\nidle = \"5w\"\n", "idle =\nlog-format = \"json\"\n"] {
        std::fs::write(&file, text).unwrap();
        let (code, _, err) = weir(["probe", "--config", path]);
        let event: Value = serde_json::from_str(&err).expect(&err);
        assert_eq!((code, &event["message"]), (1, &"command failed".into()));
        let (_, _, err) = weir(["probe", "--config", path, "--log-format", "text"]);
        assert!(err.starts_with("weir: "), "{err}");
    }
}

#[test]
fn json_lines_are_json_with_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let capture = small().save(folder.path(), "a\u{202e}\u{200b}\u{e0001}\nb\".pcap");
    let output = format!("csv:{}", folder.path().join("c\u{202e}.csv").display());
    let (code, _, err) =
        weir(["read", capture.to_str().unwrap(), "-o", &output, "--log-format", "json", "--log-level", "debug"]);
    assert_eq!(code, 0, "{err}");
    let lines: Vec<Value> = err.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().any(|line| line.to_string().contains("c\u{202e}.csv")), "{err}");
    assert!(!err.contains(['\u{202e}', '\u{200b}', '\u{e0001}']));
}
