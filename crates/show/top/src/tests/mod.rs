//! Every list on small and large screens, as files of text; keys; answers that are wrong.

mod answers;
mod keys;
mod screens;

use crate::{About, Action, Key, List, Questions, Reply, Settings, State, Topic};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use serde_json::{Value, json};

/// A state of a probe with a history.
fn live(list: List) -> State {
    state(list, &json!({"mode": "probe", "inputs": ["af_packet:eth0"], "stores": [], "history": "memory"}))
}

/// A state of stored flows.
fn stored(list: List) -> State {
    let range = json!({"mode": "view", "inputs": ["web.pcap"], "stores": [], "history": "store",
        "from_ns": 1_795_229_477_845_601_000_u64, "to_ns": 1_795_229_478_289_639_000_u64});
    state(list, &range)
}

fn state(list: List, about: &Value) -> State {
    let settings = Settings {
        target: "http://127.0.0.1:9477".into(),
        list,
        sort: None,
        filter: String::new(),
        top: 200,
        interval_ns: 1_000_000_000,
        names: false,
    };
    State::new(settings, About::new(about))
}

/// Answers all questions that it knows an answer for.
fn answer(state: &mut State, time_ns: u64, of: impl Fn(Topic, &str) -> Option<(u16, Value)>) -> Questions {
    let questions = state.questions();
    for question in &questions.all {
        if let Some(result) = of(question.topic, &question.path) {
            state.take(Reply { generation: questions.generation, topic: question.topic, time_ns, result: Ok(result) });
        }
    }
    questions
}

/// What the screen shows, a line each.
fn screen(state: &mut State, columns: u16, rows: u16) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    state.draw(&mut buffer);
    let line = |row: u16| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
}

/// The line that is selected.
fn selected(state: &mut State) -> Option<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    state.draw(&mut buffer);
    let is_reversed = |row: u16| {
        let style = buffer[(0, row)].style();
        style.add_modifier.contains(ratatui_core::style::Modifier::REVERSED)
    };
    let row = (0..24).find(|&row| is_reversed(row))?;
    Some((0..80).map(|column| buffer[(column, row)].symbol()).collect::<String>().trim_end().to_owned())
}

/// The path of the question about rows.
fn path_of_rows(state: &State) -> String {
    let questions = state.questions();
    questions.all.iter().find(|question| question.topic == Topic::Rows).unwrap().path.clone()
}

fn press(state: &mut State, keys: impl IntoIterator<Item = Key>) {
    for key in keys {
        assert_eq!(state.key(key), Action::Continue);
    }
}

fn type_text(state: &mut State, text: &str) {
    press(state, text.chars().map(Key::Character));
}
