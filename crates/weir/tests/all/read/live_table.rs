//! The table of live traffic: refreshed in place on a terminal, and as ever without one.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Instant;
use testbed::namespace::{BOUND, RIGHT, is_captured, until};
use testbed::running::{send_requests, wire};
use testbed::terminal::{Screen, Terminal};
use testbed::{Background, command, signal};

/// `weir read` of live traffic on a terminal.
fn start(arguments: &[&str], size: (u16, u16)) -> Terminal {
    let mut read = command();
    read.args(["read", "-i", "af_packet:right"]).args(arguments).env("NO_COLOR", "1");
    let terminal = Terminal::start(&mut read, size);
    until("weir receives", || is_captured(RIGHT));
    terminal
}

/// Ends it, and returns everything that was written.
fn end(terminal: Terminal) -> Screen {
    signal(&terminal.process.0, libc::SIGINT);
    let screen = terminal.end(Some(0));
    assert_eq!(screen.cleared, 0, "the screen is not cleared");
    screen
}

#[test]
fn the_table_of_live_traffic_is_refreshed_in_place_and_ends_as_the_last_table() {
    let Some(mut sender) = wire() else { return };
    let mut terminal = start(&["--by", "host"], (120, 24));
    terminal.wait_for("0 packets, 0 dropped; 0 ended flows and 0 current; Ctrl-C ends");
    send_requests(&mut sender, 0..10);
    terminal.wait_for("20 packets, 0 dropped; 0 ended flows and 10 current; Ctrl-C ends");
    terminal.wait_for("10.1.0.1  ");
    send_requests(&mut sender, 5..60);
    terminal.wait_for(" and 60 current");
    terminal.wait_for("others (");
    // What is written may be a part of a frame.
    until("a frame fits", || {
        let screen = terminal.screen();
        let heads = screen.lines().iter().filter(|line| line.starts_with("host ")).count();
        screen.above.is_empty() && screen.lines()[23].is_empty() && heads == 1
    });
    // As many rows as the terminal has.
    terminal.resize((120, 12));
    let few = || {
        let lines = terminal.text();
        let last = lines.rfind("\u{1b}[?7l").map(|at| &lines[at..]).unwrap_or_default();
        last.contains("Ctrl-C ends") && last.lines().count() <= 12
    };
    until("a frame is short", few);
    terminal.resize((120, 60));
    let screen = end(terminal);
    let all = screen.all();
    let last = all.iter().rposition(|line| line.starts_with("host ")).unwrap();
    let rest = &all[last..];
    assert_eq!(rest.iter().filter(|line| line.starts_with("10.")).count(), 20, "{rest:#?}");
    assert!(rest.iter().any(|line| line.starts_with("20 of 61 groups")), "{rest:#?}");
    assert!(!rest.iter().any(|line| line.contains("Ctrl-C ends")), "the frame is gone: {rest:#?}");
    assert!(rest.iter().any(|line| line.starts_with("packets ") && line.contains("130")), "{rest:#?}");
}

#[test]
fn current_flows_are_selected_and_sorted_as_records_are() {
    let Some(mut sender) = wire() else { return };
    let selected = ["--where", "port 1030", "--sort", "packets", "--top", "5"];
    let terminal = start(&selected, (160, 24));
    terminal.wait_for("Ctrl-C ends");
    send_requests(&mut sender, 0..60);
    terminal.wait_for("10.0.0.6:1030 ");
    terminal.wait_for("0 ended flows and 1 current");
    let lines = terminal.lines();
    assert_eq!(lines.iter().filter(|line| line.contains(" udp ")).count(), 1, "{lines:#?}");
    let all = end(terminal).all();
    assert!(all.iter().any(|line| line.starts_with("1 flow, by packets")), "{all:#?}");
}

/// Whether a line has texts one behind the other.
fn has_in_order(line: &str, texts: &[&str]) -> bool {
    let rest = texts.iter().try_fold(line, |rest, text| rest.split_once(text).map(|(_, rest)| rest));
    rest.is_some()
}

#[test]
fn intervals_and_counts_have_current_flows_and_none_are_among_ends() {
    let Some(mut sender) = wire() else { return };
    for (arguments, expected) in [
        (&["--every", "1h"][..], &[" and 30 current"][..]),
        // Of flows, and of hosts.
        (&["--by", "dst_ip", "--count", "hosts"], &["10.1.0.1 ", "30", "30"]),
        (&["--by", "end_reason"], &["0 ended flows, without current ones"]),
    ] {
        let terminal = start(arguments, (160, 24));
        terminal.wait_for("Ctrl-C ends");
        send_requests(&mut sender, 0..30);
        terminal.wait_for("60 packets");
        until("a line has these", || terminal.lines().iter().any(|line| has_in_order(line, expected)));
        end(terminal);
    }
}

#[test]
fn a_line_of_the_log_is_above_the_table() {
    let Some(mut sender) = wire() else { return };
    let terminal = start(&["--by", "host"], (120, 24));
    terminal.wait_for("Ctrl-C ends");
    send_requests(&mut sender, 0..3);
    terminal.wait_for("6 packets");
    testbed::namespace::ip("link delete right");
    let started = Instant::now();
    while terminal.runs() {
        assert!(started.elapsed() < BOUND, "{:#?}", terminal.lines());
        thread::sleep(std::time::Duration::from_millis(10));
    }
    until("all is written", || terminal.lines().iter().any(|line| line.starts_with("packets ")));
    let lines = terminal.lines();
    let position =
        |text: &str| lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(position("the interface was removed") < position("host "), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("host ")).count(), 1, "{lines:#?}");
}

#[test]
fn without_a_terminal_and_with_quiet_there_is_one_table_at_the_end() {
    let Some(mut sender) = wire() else { return };
    let mut read = command();
    read.args(["read", "-i", "af_packet:right", "--by", "host"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let read = Background(read.spawn().unwrap());
    until("weir receives", || is_captured(RIGHT));
    send_requests(&mut sender, 0..30);
    signal(&read.0, libc::SIGINT);
    let mut read = read;
    let mut out = String::new();
    read.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(read.0.wait().unwrap().code(), Some(0));
    assert!(!out.contains('\u{1b}') && out.matches("host ").count() == 1, "{out}");
    until("the interface is free", || !is_captured(RIGHT));
    let terminal = start(&["--by", "host", "-q"], (120, 24));
    send_requests(&mut sender, 0..30);
    let written = terminal.written.clone();
    end(terminal);
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(!text.contains('\u{1b}') && text.matches("host ").count() == 1, "{text}");
}
