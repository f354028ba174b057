//! The table of live traffic: refreshed in place on a terminal, and as ever without one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use testbed::namespace::{BOUND, RIGHT, is_captured, until};
use testbed::running::{send_requests, wire};
use testbed::{Background, command, signal};

/// `weir read` on a terminal.
struct Terminal {
    process: Background,
    master: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    size: (u16, u16),
}

impl Terminal {
    fn start(arguments: &[&str], size: (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        resize(&master, size);
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let mut read = command();
        read.args(["read", "-i", "af_packet:right"]).args(arguments).env("TERM", "xterm").env("NO_COLOR", "1");
        let process = Background(read.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap());
        let (written, is_over) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicBool>::default());
        let (all, stop, file) = (written.clone(), is_over.clone(), File::from(master.try_clone().unwrap()));
        let reader = Some(thread::spawn(move || read_all(file, &all, &stop)));
        until("weir receives", || is_captured(RIGHT));
        Self { process, master, written, is_over, reader, size }
    }

    fn resize(&mut self, size: (u16, u16)) {
        resize(&self.master, size);
        self.size = size;
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// What the terminal shows, and what has left it at the top.
    fn screen(&self) -> Screen {
        Screen::after(&self.text(), self.size)
    }

    fn wait_for(&self, text: &str) {
        let started = Instant::now();
        while !self.screen().lines().iter().any(|line| line.contains(text)) {
            assert!(started.elapsed() < BOUND, "no {text:?}: {:#?}", self.screen().lines());
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Ends it, and returns everything that was written.
    fn end(mut self) -> Screen {
        signal(&self.process.0, libc::SIGINT);
        assert_eq!(self.process.0.wait().unwrap().code(), Some(0), "{:#?}", self.screen().lines());
        self.is_over.store(true, Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.screen()
    }
}

fn resize(master: &OwnedFd, (columns, rows): (u16, u16)) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Reads until the terminal has nothing more when all is over.
fn read_all(mut file: File, all: &Mutex<Vec<u8>>, is_over: &AtomicBool) {
    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut octets = [0; 4096];
    loop {
        let over = is_over.load(Relaxed);
        if let Ok(0) = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&wait)) {
            if over {
                return;
            }
            continue;
        }
        let Ok(length @ 1..) = file.read(&mut octets) else { return };
        all.lock().unwrap().extend(&octets[..length]);
    }
}

/// A terminal that understands what the table needs.
#[derive(Default)]
struct Screen {
    cells: Vec<Vec<char>>,
    above: Vec<String>,
    row: usize,
    column: usize,
}

impl Screen {
    fn after(written: &str, (columns, rows): (u16, u16)) -> Self {
        let mut screen = Self { cells: vec![vec![' '; columns.into()]; rows.into()], ..Self::default() };
        let mut rest = written.chars();
        while let Some(letter) = rest.next() {
            match letter {
                '\r' => screen.column = 0,
                '\n' => screen.feed(),
                '\u{1b}' => {
                    assert_eq!(rest.next().unwrap_or('['), '[');
                    let mut parameter = String::new();
                    let end = rest.by_ref().find(|letter| {
                        parameter.extend((!letter.is_ascii_alphabetic()).then_some(*letter));
                        letter.is_ascii_alphabetic()
                    });
                    screen.act(end, parameter.parse().unwrap_or_default());
                }
                letter => {
                    if let Some(cell) = screen.cells[screen.row].get_mut(screen.column) {
                        *cell = letter;
                    }
                    screen.column += 1;
                }
            }
        }
        screen
    }

    fn feed(&mut self) {
        self.row += 1;
        if self.row == self.cells.len() {
            self.row -= 1;
            let first = self.cells.remove(0);
            self.cells.push(vec![' '; first.len()]);
            self.above.push(text_of(&first));
        }
    }

    fn act(&mut self, end: Option<char>, number: usize) {
        let column = self.column.min(self.cells[0].len());
        match end {
            Some('A') => self.row = self.row.saturating_sub(number.max(1)),
            Some('K') => self.cells[self.row][column..].fill(' '),
            Some('J') => {
                assert_eq!(number, 0, "the screen is not cleared");
                self.cells[self.row][column..].fill(' ');
                self.cells[self.row + 1..].iter_mut().for_each(|line| line.fill(' '));
            }
            // Whether long lines are wrapped, which none is.
            Some('h' | 'l') | None => {}
            other => panic!("{other:?}"),
        }
    }

    /// The lines on the terminal.
    fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| text_of(line)).collect()
    }

    /// Also those above.
    fn all(&self) -> Vec<String> {
        self.above.iter().cloned().chain(self.lines()).collect()
    }
}

fn text_of(line: &[char]) -> String {
    String::from_iter(line).trim_end().to_owned()
}

#[test]
fn the_table_of_live_traffic_is_refreshed_in_place_and_ends_as_the_last_table() {
    let Some(mut sender) = wire() else { return };
    let mut terminal = Terminal::start(&["--by", "host"], (120, 24));
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
    let screen = terminal.end();
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
    let terminal = Terminal::start(&selected, (160, 24));
    terminal.wait_for("Ctrl-C ends");
    send_requests(&mut sender, 0..60);
    terminal.wait_for("10.0.0.6:1030 ");
    terminal.wait_for("0 ended flows and 1 current");
    let lines = terminal.screen().lines();
    assert_eq!(lines.iter().filter(|line| line.contains(" udp ")).count(), 1, "{lines:#?}");
    let all = terminal.end().all();
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
        let terminal = Terminal::start(arguments, (160, 24));
        terminal.wait_for("Ctrl-C ends");
        send_requests(&mut sender, 0..30);
        terminal.wait_for("60 packets");
        until("a line has these", || terminal.screen().lines().iter().any(|line| has_in_order(line, expected)));
        terminal.end();
    }
}

#[test]
fn a_line_of_the_log_is_above_the_table() {
    let Some(mut sender) = wire() else { return };
    let terminal = Terminal::start(&["--by", "host"], (120, 24));
    terminal.wait_for("Ctrl-C ends");
    send_requests(&mut sender, 0..3);
    terminal.wait_for("6 packets");
    testbed::namespace::ip("link delete right");
    let started = Instant::now();
    while terminal.process_runs() {
        assert!(started.elapsed() < BOUND, "{:#?}", terminal.screen().lines());
        thread::sleep(std::time::Duration::from_millis(10));
    }
    until("all is written", || terminal.screen().lines().iter().any(|line| line.starts_with("packets ")));
    let lines = terminal.screen().lines();
    let position =
        |text: &str| lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(position("the interface was removed") < position("host "), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("host ")).count(), 1, "{lines:#?}");
}

impl Terminal {
    fn process_runs(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        !(status.is_empty() || status.contains("State:\tZ"))
    }
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
    let terminal = Terminal::start(&["--by", "host", "-q"], (120, 24));
    send_requests(&mut sender, 0..30);
    let written = terminal.written.clone();
    terminal.end();
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(!text.contains('\u{1b}') && text.matches("host ").count() == 1, "{text}");
}
