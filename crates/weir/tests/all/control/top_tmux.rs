//! `weir top` in a real terminal: tmux, whose panes are read back.

use super::top_answers::server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::process::Command;
use tempfile::TempDir;
use testbed::namespace::until;
use testbed::{binary, captures, is_installed};

/// A server of tmux with one window, in which a shell runs `weir top`. It ends on drop.
struct Tmux {
    folder: TempDir,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

impl Tmux {
    /// `None` where tmux is not installed. Before the command and behind it, the shell writes the settings of the
    /// terminal to files.
    fn start(arguments: &str) -> Option<Self> {
        if !is_installed("tmux") {
            return None;
        }
        let tmux = Self { folder: tempfile::tempdir().unwrap() };
        let (folder, weir) = (tmux.folder.path().display(), binary());
        let weir = weir.display();
        let script = format!(
            "cd '{folder}'; echo before the screen; stty -g > before; '{weir}' top {arguments}; echo ended with $?; \
             stty -g > after; exec cat"
        );
        fs::write(tmux.folder.path().join("script"), script).unwrap();
        let shell = format!("sh '{folder}/script'");
        tmux.run(&["-f", "/dev/null", "-u", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        tmux.run(&["set-option", "-g", "status", "off"]);
        tmux.resize(80, 24);
        Some(tmux)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.folder.path().join("socket")).args(arguments);
        tmux.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8");
        let output = tmux.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// The lines of the pane.
    fn pane(&self) -> Vec<String> {
        self.run(&["capture-pane", "-p"]).lines().map(String::from).collect()
    }

    fn wait_for(&self, text: &str) {
        self.wait_until(text, |lines| lines.iter().any(|line| line.contains(text)));
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        let mut last = Vec::new();
        until(what, || {
            last = self.pane();
            holds(&last)
        });
    }

    /// A value of the pane, as tmux names it.
    fn value(&self, name: &str) -> String {
        self.run(&["display-message", "-p", &format!("#{{{name}}}")]).trim().into()
    }

    /// The process that the shell has started.
    fn child(&self) -> Pid {
        let shell = self.value("pane_pid");
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap()).unwrap()
    }

    /// Waits for the end of the command, and asserts that the terminal is as it was.
    fn end(self, code: i32) {
        self.wait_for(&format!("ended with {code}"));
        self.wait_for("before the screen");
        until("the settings are written", || self.file("after").ends_with('\n'));
        assert_eq!(self.file("before"), self.file("after"));
        assert_eq!(["alternate_on", "cursor_flag"].map(|name| self.value(name)), ["0", "1"]);
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

#[test]
fn keys_sizes_and_a_signal_in_a_real_terminal() {
    let web = captures().join("web.pcap");
    let Some(tmux) = Tmux::start(&format!("'{}'", web.display())) else { return };
    tmux.wait_for("[1 hosts]  2 pairs");
    assert_eq!(tmux.value("alternate_on"), "1");
    for (key, text) in [
        ("2", "source → destination"),
        ("3", "server "),
        ("4", "application "),
        ("5", "proto source → destination"),
        ("6", "refused"),
        ("1", "host  "),
    ] {
        tmux.keys(&[key]);
        tmux.wait_for(&format!("[{key} "));
        tmux.wait_for(text);
        tmux.wait_until("keys are in the last line", |lines| {
            lines.last().is_some_and(|line| line.starts_with("1-6 list"))
        });
    }
    tmux.resize(60, 15);
    tmux.wait_until("60x15 is filled", |lines| {
        lines.len() == 15 && lines[14].starts_with("1-6 list") && lines[4].starts_with("[1 hosts]")
    });
    tmux.resize(20, 5);
    tmux.wait_until("20x5 is too small", |lines| {
        lines.len() <= 5 && lines[0] == "needs 40x12" && lines[1..].iter().all(String::is_empty)
    });
    tmux.resize(120, 30);
    tmux.wait_until("120x30 is filled", |lines| lines.len() == 30 && lines[29].starts_with("1-6 list"));
    tmux.keys(&["Down", "Enter"]);
    tmux.wait_for("flows of host ");
    // Both at once, as over a slow connection.
    tmux.keys(&["Escape", "3"]);
    tmux.wait_for("[3 servers]");
    tmux.wait_for("sums of stored flows");
    kill_process(tmux.child(), Signal::INT).unwrap();
    tmux.end(0);
}

#[test]
fn control_c_in_a_real_terminal_leaves_it_as_it_was() {
    let web = captures().join("web.pcap");
    let Some(tmux) = Tmux::start(&format!("'{}' --list failures", web.display())) else { return };
    tmux.wait_for("refused");
    tmux.keys(&["C-c"]);
    tmux.end(0);
}

#[test]
fn wide_characters_stay_in_their_columns() {
    let url = server(|path| {
        let flow = |name: &str, number: u64| {
            json!({"start_time": "2026-11-21T02:51:17.914998000Z", "src_ip": "192.0.2.1", "dst_ip": "192.0.2.2",
                "protocol": "tcp", "bytes": 1000 + number, "packets": number, "application": "tls", "sni": name,
                "duration_ns": 1_000_000_000})
        };
        let body = match path {
            "/about" => json!({"program": "weir", "mode": "view", "history": "store", "inputs": ["x"]}),
            _ => {
                json!({"flows": [flow("例え.テスト", 2), flow("e\u{301}te\u{301}.example", 1), flow("www.example", 3)],
                "matching": 3, "read": 3, "complete": true, "problems": []})
            }
        };
        (200, body.to_string())
    });
    let Some(tmux) = Tmux::start(&format!("{url} --list flows")) else { return };
    tmux.wait_for("www.example");
    tmux.resize(120, 24);
    tmux.wait_until("120x24 is filled", |lines| lines.len() == 24 && lines[23].starts_with("1-6 list"));
    // Cells before a text: a character of these has two, an accent none.
    let cells = |text: &str| -> usize {
        text.chars().map(|letter| if letter == '\u{301}' { 0 } else { 1 + usize::from(letter > '\u{3000}') }).sum()
    };
    tmux.wait_until("durations are below one another", |lines| {
        let rows = lines.iter().filter(|line| line.contains("1.00s"));
        let places: Vec<usize> = rows.map(|line| cells(line.split("1.00s").next().unwrap_or_default())).collect();
        places.len() == 3 && places.iter().all(|place| *place == places[0])
    });
    tmux.keys(&["q"]);
    tmux.end(0);
}
