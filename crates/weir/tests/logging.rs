//! `--log-format` and `--log-level`.

mod common;
use common::{JsonOutput, SMALL_PACKETS, START, small, weir};
use serde_json::Value;

/// Runs `weir probe` on a truncated capture with an empty frame: the events that it logs as JSON.
fn events(options: &[&str]) -> Vec<Value> {
    let output = JsonOutput::new();
    let mut capture = small().frame(START + 2, 0, &[]);
    capture.0.extend([0; 3]);
    let path = capture.save(output.folder.path(), "cut.pcap");
    let fixed = ["probe", "-i", path.to_str().unwrap(), "-o", &output.sink, "--log-format", "json"];
    let (code, out, err) = weir(fixed.iter().chain(options));
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    err.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn with_log_format_json_each_line_of_standard_error_is_an_object() {
    let events = events(&[]);
    for field in ["timestamp", "level", "message"] {
        assert!(events.iter().all(|event| event[field].is_string()), "{field}: {events:?}");
    }
    let find = |message: &str| events.iter().find(|event| event["message"] == message).expect(message);
    let failure = find("source failed");
    assert_eq!(failure["level"], "ERROR");
    assert!(failure["error"].as_str().unwrap().contains("cut.pcap"), "{failure}");
    let end = find("finished with problems");
    assert_eq!((&end["level"], &end["metered"]), (&"WARN".into(), &SMALL_PACKETS.into()), "{end}");
}

#[test]
fn log_level_error_leaves_out_warnings() {
    let events = events(&["--log-level", "error"]);
    assert!(events.iter().any(|event| event["message"] == "source failed"), "{events:?}");
    assert!(events.iter().all(|event| event["level"] == "ERROR"), "{events:?}");
}

#[test]
fn final_event_agrees_with_the_exit_code() {
    for (damage, message, expected) in [(&[][..], "finished", 0), (&[0; 3], "finished with problems", 2)] {
        let output = JsonOutput::new();
        let mut capture = small();
        capture.0.extend(damage);
        let path = capture.save(output.folder.path(), "small.pcap");
        let arguments = ["read", path.to_str().unwrap(), "-o", &output.sink, "--log-format", "json"];
        let (code, _, err) = weir(arguments);
        let last: Value = serde_json::from_str(err.lines().last().unwrap()).expect(&err);
        assert_eq!((code, &last["message"]), (expected, &message.into()), "{err}");
    }
}
