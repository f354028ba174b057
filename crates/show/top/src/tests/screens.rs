//! What the screen shows. `BLESS=1 cargo test -p weir-top` writes the expected screens.

use super::answers::{groups, of_probe, refused};
use super::{answer, live, screen, stored, type_text};
use crate::line::width;
use crate::{Key, List, Settings, State, Topic};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Modifier;
use serde_json::json;
use std::path::PathBuf;

fn assert_screen(name: &str, lines: &[String]) {
    let text = lines.join("\n") + "\n";
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata")).join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        return std::fs::write(path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: {text}");
}

/// After two answers, a second apart.
fn answered(mut state: State) -> State {
    state.set_clock(1_795_229_477_845_601_000);
    answer(&mut state, 5_000_000_000, of_probe(0));
    answer(&mut state, 6_000_000_000, of_probe(250_000));
    state
}

#[test]
fn every_list_has_its_screen() {
    for list in List::ALL {
        for (columns, rows) in [(80, 24), (200, 60)] {
            let name = |mode: &str| format!("{mode}-{}-{columns}x{rows}", list.name());
            assert_screen(&name("live"), &screen(&mut answered(live(list)), columns, rows));
            assert_screen(&name("stored"), &screen(&mut answered(stored(list)), columns, rows));
        }
    }
}

#[test]
fn help_detail_and_a_wrong_filter_have_their_screens() {
    let mut state = answered(live(List::Flows));
    state.key(Key::Enter);
    answer(&mut state, 7_000_000_000, of_probe(0));
    assert_screen("detail-80x24", &screen(&mut state, 80, 24));
    assert_screen("detail-200x60", &screen(&mut state, 200, 60));
    state.key(Key::Character('?'));
    assert_screen("help-80x24", &screen(&mut state, 80, 24));
    let mut state = answered(live(List::Hosts));
    state.key(Key::Character('/'));
    type_text(&mut state, "port 80 and byts > 1");
    state.key(Key::Enter);
    answer(&mut state, 7_000_000_000, |topic, _| {
        (topic == Topic::Rows).then(|| refused("port 80 and byts > 1", 12, 4))
    });
    assert_screen("filter-80x24", &screen(&mut state, 80, 24));
}

#[test]
fn every_size_is_filled_and_no_line_is_too_long() {
    for list in List::ALL {
        for state in [live(list), stored(list)] {
            let mut state = answered(state);
            for columns in (1..=200).chain([1000]) {
                for rows in [1, 5, 12, 13, 24, 60] {
                    let lines = screen(&mut state, columns, rows);
                    if columns < 40 || rows < 12 {
                        let text: String = "needs 40x12".chars().take(columns.into()).collect();
                        assert!(lines[0] == text.trim_end() && lines[1..].iter().all(String::is_empty), "{lines:?}");
                    } else {
                        assert!(lines.last().unwrap().starts_with("1-6 list"), "{columns}x{rows}: {lines:?}");
                        assert!(lines[6].contains('▼') && !lines[7].is_empty(), "{columns}x{rows}: {lines:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn columns_are_left_out_in_their_order_and_the_sorted_one_stays() {
    let mut state = answered(live(List::Hosts));
    let headings = |state: &mut State, columns: u16| {
        let line = screen(state, columns, 24)[6].clone();
        line.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ")
    };
    for (columns, expected) in [
        (140, "host ≥bit/s bytes▼ packets flows sent received retr% rtt response first UTC last UTC"),
        (110, "host ≥bit/s bytes▼ packets flows sent received retr% rtt response"),
        (80, "host ≥bit/s bytes▼ packets flows sent"),
        (60, "host ≥bit/s bytes▼ packets flows"),
        (40, "host ≥bit/s bytes▼ flows"),
    ] {
        assert_eq!(headings(&mut state, columns), expected, "{columns}");
    }
    while !headings(&mut state, 40).contains("rtt") {
        state.key(Key::Character('s'));
        answer(&mut state, 7_000_000_000, of_probe(0));
    }
    assert_eq!(headings(&mut state, 40), "host bytes rtt▼");
}

#[test]
fn rates_are_differences_of_counters_and_unknown_where_they_shrink() {
    let mut state = live(List::Hosts);
    answer(&mut state, 1_000_000_000, of_probe(0));
    let of_first = |state: &mut State| screen(state, 120, 24)[7].split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(of_first(&mut state), "-");
    answer(&mut state, 3_000_000_000, of_probe(200_000));
    // 5 flows with 200 kB each, in 2 s.
    assert_eq!(of_first(&mut state), "4.00M");
    answer(&mut state, 4_000_000_000, of_probe(100_000));
    assert_eq!(of_first(&mut state), "-");
}

#[test]
fn an_order_of_the_command_line_may_name_a_heading_and_a_direction() {
    for (list, sort, path, heading) in [
        (List::Hosts, "rtt", "sort=rtt_mean_ns&", " rtt▼ "),
        (List::Hosts, "bytes:asc", "sort=bytes:asc&", " bytes▲ "),
        (List::Flows, "duration", "sort=duration_ns&", " duration▼ "),
        (List::Flows, "rtt:desc", "sort=rtt:desc&", " rtt▼ "),
        (List::Flows, "src_port", "sort=src_port&", " bytes "),
    ] {
        let mut state =
            State::new(Settings { sort: Some(sort.into()), ..live(list).settings().clone() }, live(list).about);
        assert!(super::path_of_rows(&state).contains(path), "{}", super::path_of_rows(&state));
        answer(&mut state, 1, of_probe(0));
        let lines = screen(&mut state, 200, 24);
        assert!(lines[6].contains(heading), "{lines:?}");
    }
}

/// Hosts with a first and a last time.
fn with_times(times: &[[&str; 2]]) -> serde_json::Value {
    let row = |(number, [first, last]): (usize, &[&str; 2])| json!({"host": format!("192.0.2.{number}"), "bytes": 1, "other_groups": 0, "first_time": first, "last_time": last});
    json!({"groups": times.iter().enumerate().map(row).collect::<Vec<_>>(), "complete": true, "matching": 1, "read": 2})
}

#[test]
fn times_have_dates_when_they_are_more_than_a_day_apart_or_ago() {
    let [day, next, hour_later] =
        ["2026-11-21T02:51:17.914998000Z", "2026-11-22T02:51:18.000000000Z", "2026-11-21T03:51:18.040263000Z"];
    for (times, clock_ns, expected) in [
        (&[[day, hour_later]][..], 1_795_229_477_845_601_000, "02:51:17.914 03:51:18.040"),
        (&[[day, day], [day, next]], 1_795_229_477_845_601_000, "2026-11-21 02:51:17.914 2026-11-21 02:51:17.914"),
        (&[[day, hour_later]], 1_800_000_000_000_000_000, "2026-11-21 02:51:17.914 2026-11-21 03:51:18.040"),
    ] {
        let mut state = stored(List::Hosts);
        state.set_clock(clock_ns);
        let body = with_times(times);
        answer(&mut state, 1, |topic, _| (topic == Topic::Rows).then(|| (200, body.clone())));
        let lines = screen(&mut state, 120, 24);
        assert!(lines[7].ends_with(&format!(" {expected}")), "{expected}: {lines:?}");
        assert!(state.page(120).contains(expected));
    }
}

#[test]
fn a_damaged_file_and_one_that_takes_too_long_are_told_apart() {
    let answer_with = |complete: bool, problems: &[&str]| {
        let mut body = groups(0);
        (body["complete"], body["problems"]) = (json!(complete), json!(problems));
        let mut state = stored(List::Hosts);
        answer(&mut state, 1, |topic, _| (topic == Topic::Rows).then(|| (200, body.clone())));
        (screen(&mut state, 120, 24), state.is_complete())
    };
    let (lines, is_complete) = answer_with(false, &["cut.pcap: it ends inside a packet", "b: x"]);
    assert!(lines[5].contains("damaged: this is what could be read") && !lines[5].contains("in time"), "{lines:?}");
    assert!(lines[22] == "cut.pcap: it ends inside a packet; 1 more is damaged" && !is_complete, "{lines:?}");
    let (lines, is_complete) = answer_with(false, &[]);
    assert!(lines[5].contains("not all were read in time") && !is_complete, "{lines:?}");
    assert!(answer_with(true, &[]).1);
}

#[test]
fn sinks_that_wait_are_counted_in_words() {
    let line = |waiting: &[u64]| {
        let sinks: Vec<_> = waiting.iter().map(|flows| json!({"sink": "s", "waiting": {"flows": flows}})).collect();
        let mut state = live(List::Hosts);
        answer(&mut state, 1, |topic, _| (topic == Topic::Status).then(|| (200, json!({"ledger": {"sinks": sinks}}))));
        screen(&mut state, 80, 24)[3].clone()
    };
    assert_eq!(line(&[0]), "no record waits for 1 sink");
    assert_eq!(line(&[7]), "1 sink waits:  s 7");
    assert_eq!(line(&[7, 0]), "1 of 2 sinks waits:  s 7");
    assert_eq!(line(&[0, 8, 7]), "2 of 3 sinks wait:  s 8  s 7");
}

#[test]
fn failures_are_counted_whether_they_are_current_or_have_ended() {
    let mut state = answered(live(List::Failures));
    assert_eq!(screen(&mut state, 80, 24)[5], "failed: 6 current; of the last 15 min: 5 stored");
    let mut state = answered(stored(List::Failures));
    assert_eq!(screen(&mut state, 80, 24)[5], "failed: 6 stored");
}

#[test]
fn a_scan_is_a_row_in_place_of_its_flows() {
    for (mut state, what) in [
        (live(List::Failures), "failed: 6 current; of the last 15 min: 5 stored, 6442 in 2 scans"),
        (stored(List::Failures), "failed: 6 stored, 6442 in 2 scans"),
    ] {
        for _ in 0..2 {
            answer(&mut state, 1, |topic, path| match topic {
                Topic::Scans => Some((200, super::answers::sources())),
                _ => of_probe(0)(topic, path),
            });
        }
        let lines = screen(&mut state, 160, 24);
        assert_eq!(lines[5], what);
        assert!(lines[7].contains("192.0.2.99 → ~1023 hosts, 22 ports"), "{lines:?}");
        assert!(lines[7].contains("scan: 6400 no answer, 2 refused"), "{lines:?}");
        assert!(lines[8].contains("192.0.2.98 → 1 host, 20 ports") && !lines[9].contains("scan"), "{lines:?}");
        let questions = state.questions();
        let left_out = "not%20%28src_ip%20in%20%7B192.0.2.99,%20192.0.2.98%7D%20and%20tcp_failure%20in%20";
        for question in questions.all.iter().filter(|question| matches!(question.topic, Topic::Rows | Topic::Ended)) {
            assert!(question.path.contains(left_out), "{}", question.path);
        }
        // Its flows, and back.
        state.key(Key::Enter);
        answer(&mut state, 2, of_probe(0));
        let path = super::path_of_rows(&state);
        assert!(
            path.contains("%28src_ip%20%3D%20192.0.2.99%20and%20tcp_failure") && !path.contains("not%20%28src_ip%20in"),
            "{path}"
        );
        assert!(screen(&mut state, 120, 24)[5].starts_with("scan 192.0.2.99 → ~1023 hosts, 22 ports: 6 "));
        state.key(Key::Escape);
        assert!(super::path_of_rows(&state).contains(left_out));
    }
}

/// A store collects records until a file is complete, also while all is well.
#[test]
fn records_that_a_store_collects_do_not_wait() {
    let line = |sinks: serde_json::Value| {
        let mut state = live(List::Hosts);
        answer(&mut state, 1, |topic, _| (topic == Topic::Status).then(|| (200, json!({"ledger": {"sinks": sinks}}))));
        screen(&mut state, 80, 24)[3].clone()
    };
    let store = json!({"sink": "parquet:/var/lib/weir", "waiting": {"flows": 322}});
    assert_eq!(line(json!([store])), "no record waits for 1 sink  322 collected for files");
    let away = json!({"sink": "json+tcp://192.0.2.1:1", "waiting": {"flows": 7}});
    assert_eq!(line(json!([store, away])), "1 of 2 sinks waits:  json+tcp://192.0.2.1:1 7  322 collected for files");
}

#[test]
fn a_probe_that_is_not_ready_says_why() {
    let mut state = live(List::Hosts);
    let reason = "interface eth0 is down, or has no link";
    answer(&mut state, 1, |topic, path| match topic {
        Topic::Status => Some((200, json!({"ledger": {"sinks": []}, "not_ready": [reason]}))),
        _ => of_probe(0)(topic, path),
    });
    assert_eq!(screen(&mut state, 80, 24)[22], format!("not ready: {reason}"));
    assert!(state.page(80).ends_with(&format!("not ready: {reason}\n")));
}

/// Names of two columns a character.
#[test]
fn wide_characters_leave_columns_in_place() {
    let mut body = super::answers::flows(0);
    body["flows"][0]["sni"] = json!("例え.テスト");
    body["flows"][1]["sni"] = json!("www.example");
    let mut state = live(List::Flows);
    answer(&mut state, 1, |topic, _| (topic == Topic::Rows).then(|| (200, body.clone())));
    for columns in [84_usize, 140, 200] {
        let page = state.page(columns);
        let place = |name: &str| {
            let row = page.lines().find(|row| row.contains(name)).unwrap_or_else(|| panic!("{name}: {page}"));
            width(row.split(name).next().unwrap())
        };
        assert_eq!(place("例え.テスト"), place("www.example"), "{page}");
        // Behind the names are durations, at the right of their column.
        let ends: Vec<usize> = page.lines().filter_map(|row| row.split_once("ms")).map(|(row, _)| width(row)).collect();
        assert!(columns < 140 || ends.len() == 3 && ends.iter().all(|end| *end == ends[0]), "{page}");
        assert!(page.lines().all(|row| width(row) <= columns), "{page}");
    }
    state.key(Key::Character('/'));
    type_text(&mut state, "例 byts");
    state.key(Key::Enter);
    answer(&mut state, 2, |topic, _| (topic == Topic::Rows).then(|| refused("例 byts", 2, 4)));
    assert_eq!(screen(&mut state, 80, 24)[22], "          ^^^^");
    state.key(Key::End);
    assert_eq!(selected_column(&mut state), 7 + 3 + 4);
}

/// The column of the cursor.
fn selected_column(state: &mut State) -> u16 {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    state.draw(&mut buffer);
    let is_cursor = |column: &u16| buffer[(*column, 22)].style().add_modifier.contains(Modifier::REVERSED);
    (0..80).find(is_cursor).unwrap()
}

#[test]
fn no_text_of_an_answer_acts_on_the_terminal() {
    let evil = "\u{1b}]0;x\u{7}\u{1b}[2J\u{202e}\r\nevil";
    let mut state = live(List::Hosts);
    let mut body = groups(0);
    body["groups"][0]["host"] = json!(evil);
    body["problems"] = json!([evil]);
    answer(&mut state, 1, |topic, _| match topic {
        Topic::Rows => Some((200, body.clone())),
        Topic::Status => {
            Some((200, json!({"interval": null, "ledger": {"sinks": [{"sink": evil, "waiting": {"flows": 1}}]}})))
        }
        _ => None,
    });
    state.set_note(evil);
    let text = screen(&mut state, 200, 24).join("\n") + &state.page(200);
    assert!(text.contains("\\x1b]0;x\\x07") && !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\r']), "{text:?}");
    let mut state = live(List::Flows);
    answer(&mut state, 1, |topic, _| {
        (topic == Topic::Rows).then(|| {
            (
                200,
                json!({"flows": [{"src_ip": evil, "sni": evil, evil: evil, "start_time": evil, "community_id": evil}]}),
            )
        })
    });
    state.key(Key::Enter);
    answer(&mut state, 1, |_, _| Some((500, json!({"error": evil}))));
    let text = screen(&mut state, 200, 24).join("\n");
    assert!(text.contains("evil") && !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\r']), "{text:?}");
}

#[test]
fn answers_of_another_form_are_no_panic() {
    let numbers = json!({"bytes": u64::MAX, "other_groups": -1, "host": 7, "start_time": "é", "first_time": {"a": []},
        "service_port": 1.5, "fwd_tcp_flags": [], "retransmitted_share": "x", "community_id": null});
    let bodies = [
        json!(null),
        json!([]),
        json!({"groups": 7, "flows": [1, "x", null], "problems": {}, "matching": -1}),
        json!({"groups": [numbers, {}], "complete": "no"}),
        json!({"flows": [numbers, {}], "interval": [], "ledger": {"sinks": {"a": 1}}, "place": {"before": u64::MAX}}),
        json!({"error": {"a": 1}, "place": {"text": 1, "before": 9_999_999, "length": u64::MAX}}),
    ];
    for list in List::ALL {
        for body in &bodies {
            for status in [200, 400, 409, 500] {
                let mut state = live(list);
                for key in [Key::Enter, Key::Character('/'), Key::Enter, Key::Down, Key::End, Key::Enter, Key::PageUp] {
                    answer(&mut state, 1, |_, _| Some((status, body.clone())));
                    screen(&mut state, 80, 24);
                    state.page(80);
                    state.key(key);
                }
            }
        }
    }
}
