//! What keys do.

use super::answers::{of_probe, refused};
use super::{answer, live, path_of_rows, press, screen, selected, stored, type_text};
use crate::{Action, Key, List, Reply, State, Topic};

fn answered(list: List) -> State {
    let mut state = live(list);
    answer(&mut state, 1_000_000_000, of_probe(0));
    state
}

#[test]
fn digits_choose_the_list_and_what_is_asked() {
    let mut state = live(List::Hosts);
    for (key, expected) in [
        ('2', "/flows?by=src_ip,dst_ip&sort=bytes&top=200"),
        ('3', "/flows?by=server_ip,service_port&sort=bytes&top=200"),
        ('4', "/flows?by=application&sort=bytes&top=200"),
        ('1', "/flows?by=host&sort=bytes&top=200"),
    ] {
        let before = state.questions().generation;
        assert_eq!(state.key(Key::Character(key)), Action::Continue);
        assert_eq!(path_of_rows(&state), expected);
        assert!(state.questions().generation > before && state.questions().repeats);
    }
    state.key(Key::Character('5'));
    assert!(path_of_rows(&state).starts_with("/flows?fields=start_time,"));
    state.key(Key::Character('6'));
    let questions = state.questions();
    let paths: Vec<&str> = questions.all.iter().map(|question| question.path.as_str()).collect();
    assert!(paths[1].starts_with("/flows?where=%28%28flags%20S") && paths[1].contains("tls_alert"), "{paths:?}");
    assert!(paths[2].starts_with("/stored?where=") && paths[2].ends_with("&from=-15m"), "{paths:?}");
    assert!(!paths[2].split("&fields").next().unwrap().contains("tls_alert"), "a store does not have it");
    let stored = stored(List::Hosts);
    let questions = stored.questions();
    assert!(questions.all[0].path.starts_with("/stored?by=host&") && !questions.repeats);
    assert_eq!(questions.all[1].path, "/about", "a store grows");
}

#[test]
fn the_order_goes_from_column_to_column() {
    let mut state = answered(List::Hosts);
    for (key, expected) in [
        ('s', "packets"),
        ('>', "flows"),
        ('<', "packets"),
        ('S', "bytes"),
        ('S', "bytes&top=1000"),
        ('S', "last_time"),
    ] {
        state.key(Key::Character(key));
        let path = path_of_rows(&state);
        assert!(path.contains(&format!("sort={expected}")), "{key}: {path}");
    }
    // By rate, the rows are sorted here.
    let mut state = answered(List::Hosts);
    state.key(Key::Character('S'));
    answer(&mut state, 2_000_000_000, of_probe(0));
    answer(&mut state, 3_000_000_000, of_probe(1000));
    let lines = screen(&mut state, 100, 24);
    assert!(lines[6].contains("≥bit/s▼") && lines[7].starts_with("2001:db8:1111"), "{lines:?}");
    assert!(lines[12].starts_with("others (12)"), "{lines:?}");
}

#[test]
fn a_row_stays_selected_when_its_place_changes() {
    let mut state = answered(List::Hosts);
    assert!(selected(&mut state).unwrap().starts_with("2001:db8:1111"));
    state.key(Key::Down);
    assert!(selected(&mut state).unwrap().starts_with("192.0.2.4"));
    let questions = state.questions();
    let mut body = super::answers::groups(0);
    body["groups"].as_array_mut().unwrap().swap(1, 4);
    state.take(Reply { generation: questions.generation, topic: Topic::Rows, time_ns: 2, result: Ok((200, body)) });
    assert!(selected(&mut state).unwrap().starts_with("192.0.2.4"));
    for (key, expected) in [
        (Key::Home, "2001:"),
        (Key::Up, "2001:"),
        (Key::End, "others"),
        (Key::Down, "others"),
        (Key::PageUp, "2001:"),
        (Key::PageDown, "others"),
    ] {
        state.key(key);
        assert!(selected(&mut state).unwrap().starts_with(expected), "{key:?}");
    }
    // The row of the others has no flows of its own.
    state.key(Key::Enter);
    assert!(selected(&mut state).unwrap().starts_with("others"));
}

#[test]
fn long_lists_scroll() {
    let mut state = live(List::Hosts);
    let rows: Vec<_> =
        (0..100).map(|n| serde_json::json!({"host": format!("h{n}"), "other_groups": 0, "bytes": 1})).collect();
    answer(&mut state, 1, |topic, _| {
        (topic == Topic::Rows).then(|| (200, serde_json::json!({"groups": rows, "complete": true, "matching": 100})))
    });
    let first = |state: &mut State| screen(state, 80, 24)[7].split(' ').next().unwrap().to_owned();
    assert_eq!(first(&mut state), "h0");
    for (key, selected_row, first_row) in
        [(Key::PageDown, "h15", "h1"), (Key::End, "h99", "h85"), (Key::PageUp, "h84", "h84"), (Key::Home, "h0", "h0")]
    {
        state.key(key);
        assert!(selected(&mut state).unwrap().starts_with(&format!("{selected_row} ")), "{key:?}");
        assert_eq!(first(&mut state), first_row, "{key:?}");
    }
}

#[test]
fn enter_opens_a_group_and_a_flow_and_escape_goes_back() {
    for (list, condition) in [
        (List::Hosts, "host%20%3D%20192.0.2.3"),
        (List::Pairs, "src_ip%20%3D%20192.0.2.3%20and%20dst_ip%20%3D%202001:db8::1"),
        (List::Servers, "server_ip%20%3D%20192.0.2.3%20and%20not%20service_port"),
        (List::Applications, "application%20%3D%20app3"),
    ] {
        let mut state = answered(list);
        press(&mut state, [Key::Down, Key::Down, Key::Enter]);
        let path = path_of_rows(&state);
        assert!(path.starts_with(&format!("/flows?where=%28{condition}%29&fields=")), "{path}");
        answer(&mut state, 2_000_000_000, of_probe(0));
        assert!(screen(&mut state, 80, 24)[5].starts_with("flows of "));
        state.key(Key::Enter);
        let questions = state.questions();
        let detail = questions.all.iter().find(|question| question.topic == Topic::Detail).unwrap();
        assert_eq!(detail.path, "/flows?community_id=1:0000000000000000000000000003&fields=all&top=1");
        answer(&mut state, 3_000_000_000, of_probe(0));
        assert!(screen(&mut state, 80, 24).iter().any(|line| line.starts_with("ja4 ") && line.contains("t13d1516h2")));
        // Escape leads back step by step.
        state.key(Key::Escape);
        assert!(path_of_rows(&state).contains("where="));
        state.key(Key::Escape);
        assert!(!path_of_rows(&state).contains("where="));
    }
    let mut state = answered(List::Applications);
    press(&mut state, [Key::Down, Key::Enter]);
    assert!(path_of_rows(&state).contains("where=%28not%20application%29"));
}

#[test]
fn flows_that_have_ended_are_found_in_the_history() {
    let mut state = answered(List::Failures);
    state.key(Key::Enter);
    let questions = state.questions();
    let detail = questions.all.iter().find(|question| question.topic == Topic::Detail).unwrap();
    assert!(
        detail.path.starts_with("/stored?from=2026-11-21T02:51:45.914998000Z&to=2026-11-21T02:51:45.914998000Z&where="),
        "{}",
        detail.path
    );
}

#[test]
fn a_wrong_filter_shows_its_place_and_the_last_one_stays() {
    let mut state = answered(List::Hosts);
    state.key(Key::Character('/'));
    type_text(&mut state, "port 80");
    assert!(screen(&mut state, 80, 24)[22].starts_with("where: port 80"));
    state.key(Key::Enter);
    assert_eq!(path_of_rows(&state), "/flows?where=port%2080&by=host&sort=bytes&top=200");
    answer(&mut state, 2, of_probe(0));
    assert!(screen(&mut state, 80, 24)[5].starts_with("where port 80  sums of current flows"));
    state.key(Key::Character('/'));
    type_text(&mut state, " and byts > 1");
    state.key(Key::Enter);
    answer(&mut state, 3, |topic, _| (topic == Topic::Rows).then(|| refused("port 80 and byts > 1", 12, 4)));
    let lines = screen(&mut state, 80, 24);
    assert_eq!(lines[21], "where: port 80 and byts > 1");
    assert_eq!(lines[22], "                   ^^^^");
    assert!(lines[23].contains("did you mean bytes?") && state.failure().unwrap().ends_with("\n              ^^^^"));
    assert_eq!(path_of_rows(&state), "/flows?where=port%2080&by=host&sort=bytes&top=200");
    // The cursor is at the place.
    press(&mut state, [Key::Delete; 4]);
    type_text(&mut state, "bytes");
    state.key(Key::Enter);
    assert!(path_of_rows(&state).contains("port%2080%20and%20bytes%20%3E%201"));
    // Behind a parenthesis, where there is a further condition.
    let mut state = answered(List::Failures);
    state.key(Key::Character('/'));
    type_text(&mut state, "byts > 1");
    state.key(Key::Enter);
    answer(&mut state, 3, |topic, _| (topic == Topic::Rows).then(|| refused("(byts > 1) and (…)", 1, 4)));
    assert_eq!(screen(&mut state, 80, 24)[22], "       ^^^^");
    state.key(Key::Escape);
    assert!(!path_of_rows(&state).contains("byts"));
}

#[test]
fn pause_stops_the_questions_but_for_new_ones() {
    let mut state = answered(List::Hosts);
    let before = state.questions();
    state.key(Key::Character('p'));
    assert!(!state.questions().repeats && state.questions().generation == before.generation);
    assert!(screen(&mut state, 80, 24)[0].starts_with("weir top  PAUSED"));
    state.key(Key::Character('2'));
    assert!(state.questions().generation > before.generation);
    state.key(Key::Character(' '));
    assert!(state.questions().repeats);
}

#[test]
fn a_probe_that_is_away_leaves_its_last_figures() {
    let mut state = answered(List::Hosts);
    state.set_clock(1_795_229_477_845_601_000);
    let rows = screen(&mut state, 80, 24)[7].clone();
    let away = |state: &mut State| {
        let generation = state.questions().generation;
        state.take(Reply { generation, topic: Topic::Status, time_ns: 3, result: Err("connection refused".into()) });
    };
    // Its last answers may be without flows.
    let none = serde_json::json!({"matching": 0, "searched": 0, "complete": true, "groups": []});
    (0..2).for_each(|_| {
        answer(&mut state, 2, |topic, _| (topic == Topic::Rows).then(|| (200, none.clone())));
    });
    assert_eq!(screen(&mut state, 80, 24)[7], "");
    away(&mut state);
    state.set_silence(Some(22_900_000_000));
    let lines = screen(&mut state, 80, 24);
    assert_eq!(lines[22], "no answer for 22 s, trying again: connection refused");
    assert!(lines[0].starts_with("weir top  OLD  http://127.0.0.1:9477"), "{}", lines[0]);
    assert_eq!(lines[7], rows);
    // What comes back may be another probe.
    let asks_who = |state: &State| state.questions().all.iter().any(|question| question.topic == Topic::About);
    assert!(state.questions().repeats && asks_who(&state));
    answer(&mut state, 4_000_000_000, |topic, path| match topic {
        Topic::About => Some((200, serde_json::json!({"program": "weir", "mode": "probe", "history": "none"}))),
        _ => of_probe(0)(topic, path),
    });
    let lines = screen(&mut state, 80, 24);
    assert!(!lines[22].contains("no answer") && !lines[0].contains("OLD") && !asks_who(&state), "{lines:?}");
    state.key(Key::Character('6'));
    assert!(screen(&mut state, 80, 24)[5].starts_with("failed flows"), "without a history");
}

#[test]
fn a_probe_that_hangs_is_named_and_files_may_take_their_time() {
    let mut state = answered(List::Hosts);
    state.set_silence(Some(3_100_000_000));
    let lines = screen(&mut state, 80, 24);
    assert_eq!(lines[22], "no answer for 3 s: all figures are older");
    assert!(lines[0].starts_with("weir top  OLD  ") && lines[7].starts_with("2001:db8:1111"), "{lines:?}");
    state.set_silence(Some(300_000_000_000));
    assert_eq!(screen(&mut state, 80, 24)[22], "no answer for 5m00s: all figures are older");
    answer(&mut state, 4_000_000_000, of_probe(0));
    assert!(!screen(&mut state, 80, 24)[0].contains("OLD"));
    let mut state = stored(List::Hosts);
    state.set_silence(Some(3_100_000_000));
    let lines = screen(&mut state, 80, 24);
    assert!(lines[22] == "reading for 3 s" && !lines[0].contains("OLD"), "{lines:?}");
}

#[test]
fn what_comes_back_as_a_view_has_the_lists_of_a_view() {
    let mut state = answered(List::Hosts);
    state.key(Key::Character('S'));
    assert!(path_of_rows(&state).contains("top=1000"), "by rate");
    let generation = state.questions().generation;
    state.take(Reply { generation, topic: Topic::Status, time_ns: 3, result: Err("connection refused".into()) });
    answer(&mut state, 4, |topic, _| {
        (topic == Topic::About)
            .then(|| (200, serde_json::json!({"program": "weir", "mode": "view", "history": "store"})))
    });
    assert!(path_of_rows(&state).starts_with("/stored?by=host&sort=bytes&top=200"), "{}", path_of_rows(&state));
}

#[test]
fn a_busy_probe_and_the_log_of_a_child_have_a_line() {
    let mut state = answered(List::Hosts);
    state.set_note("packets are lost");
    assert_eq!(screen(&mut state, 80, 24)[22], "packets are lost");
    let busy = serde_json::json!({"error": "another search is running"});
    answer(&mut state, 3, |topic, _| (topic == Topic::Rows).then(|| (429, busy.clone())));
    let lines = screen(&mut state, 80, 24);
    assert_eq!(lines[22], "no new answer: another search is running");
    assert!(lines[7].starts_with("2001:db8:1111"));
}

#[test]
fn an_answer_without_a_reason_names_the_target_and_what_to_do() {
    let mut state = answered(List::Hosts);
    answer(&mut state, 3, |topic, _| (topic == Topic::Rows).then_some((404, serde_json::Value::Null)));
    let expected = "http://127.0.0.1:9477 answers with status 404 and no reason: is it the --listen address of weir?";
    assert_eq!(screen(&mut state, 120, 24)[22], expected);
}

#[test]
fn answers_to_earlier_questions_are_ignored() {
    let mut state = answered(List::Hosts);
    let before = state.questions();
    state.key(Key::Character('5'));
    let result = Ok((200, super::answers::groups(0)));
    state.take(Reply { generation: before.generation, topic: Topic::Rows, time_ns: 5, result });
    assert!(selected(&mut state).is_none());
}

#[test]
fn q_and_control_c_end_and_other_keys_do_not() {
    let mut state = answered(List::Hosts);
    for key in [Key::Character('x'), Key::Escape, Key::Backspace, Key::Delete, Key::ClearLine] {
        assert_eq!(state.key(key), Action::Continue);
    }
    state.key(Key::Character('?'));
    assert!(screen(&mut state, 80, 24)[6].starts_with("Keys and figures"));
    assert_eq!(state.key(Key::Character('q')), Action::Continue, "any key closes the help");
    // In the filter, q is a letter.
    state.key(Key::Character('/'));
    assert_eq!(state.key(Key::Character('q')), Action::Continue);
    assert_eq!(state.key(Key::Interrupt), Action::Quit);
    state.key(Key::Escape);
    assert_eq!(state.key(Key::Character('q')), Action::Quit);
}
