//! What the screen shows. `BLESS=1 cargo test -p weir-top` writes the expected screens.

use super::answers::{groups, of_probe, refused};
use super::{answer, live, screen, stored, type_text};
use crate::{Key, List, State, Topic};
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
                        let text: String = "40x12 is the least".chars().take(columns.into()).collect();
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
