//! A terminal with a program on it: what it writes, what the screen shows then, keys, sizes, and how it ends.

use crate::binary::Background;
use crate::namespace::{BOUND, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program on a terminal.
pub struct Terminal {
    pub process: Background,
    /// All that was written.
    pub written: Arc<Mutex<Vec<u8>>>,
    master: OwnedFd,
    /// The other side, so that its settings can be read when the program has ended.
    slave: File,
    before: Termios,
    reading: Arc<Reading>,
    reader: Option<JoinHandle<()>>,
    size: (u16, u16),
}

#[derive(Default)]
struct Reading {
    /// The rest is not read.
    stops: AtomicBool,
    /// It ends with what is there.
    is_last: AtomicBool,
}

impl Terminal {
    /// Starts a command on a terminal of this size: columns, rows.
    pub fn start(command: &mut Command, size: (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        resize(&master, size);
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let slave = open();
        let before = tcgetattr(&slave).unwrap();
        command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open());
        let process = Background(command.spawn().unwrap());
        let (written, reading) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<Reading>::default());
        let (all, until, file) = (written.clone(), reading.clone(), File::from(master.try_clone().unwrap()));
        let reader = Some(thread::spawn(move || read(file, &all, &until)));
        Self { process, written, master, slave, before, reading, reader, size }
    }

    pub fn resize(&mut self, size: (u16, u16)) {
        resize(&self.master, size);
        self.size = size;
    }

    /// Types.
    pub fn keys(&self, keys: &str) {
        File::from(self.master.try_clone().unwrap()).write_all(keys.as_bytes()).unwrap();
    }

    /// What was written.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// What the terminal shows, and what has left it at the top.
    pub fn screen(&self) -> Screen {
        Screen::after(&self.text(), self.size)
    }

    /// The lines that the terminal shows.
    pub fn lines(&self) -> Vec<String> {
        self.screen().lines()
    }

    /// Waits until a line of the screen has a text.
    pub fn wait_for(&self, text: &str) {
        let started = Instant::now();
        while !self.lines().iter().any(|line| line.contains(text)) {
            assert!(started.elapsed() < BOUND, "no {text:?}: {:#?}", self.lines());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processes that the program has started.
    pub fn children(&self) -> Vec<u32> {
        let id = self.process.0.id();
        let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let all: Vec<String> = threads.map(of_thread).collect();
        all.join(" ").split_whitespace().map(|child| child.parse().unwrap()).collect()
    }

    /// Whether the program has not ended.
    pub fn runs(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        !(status.is_empty() || status.contains("State:\tZ"))
    }

    /// Removes the terminal, as the end of a connection does, and returns the exit code.
    pub fn hang_up(mut self) -> Option<i32> {
        self.reading.stops.store(true, Relaxed);
        self.reader.take().unwrap().join().unwrap();
        drop(self.master);
        self.process.0.wait().unwrap().code()
    }

    /// Waits for the end, and returns the screen with everything that was written.
    pub fn end(mut self, code: Option<i32>) -> Screen {
        assert_eq!(self.process.0.wait().unwrap().code(), code, "{:#?}", self.lines());
        self.reading.is_last.store(true, Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.screen()
    }

    /// The same of a program with a screen of its own. Asserts that the terminal is as it was before.
    pub fn end_restored(mut self, code: Option<i32>) {
        assert_eq!(self.process.0.wait().unwrap().code(), code, "{:#?}", self.lines());
        let after = tcgetattr(&self.slave).unwrap();
        let modes =
            |termios: &Termios| format!("{:?}", (termios.input_modes, termios.output_modes, termios.local_modes));
        assert_eq!(modes(&self.before), modes(&after));
        let is_restored = || {
            let text = self.text();
            let [enter, leave, show] = ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h"].map(|code| text.rfind(code));
            leave.is_some() && enter < leave && show.is_some() && !text.contains("panicked")
        };
        until("the screen from before is back", is_restored);
    }
}

fn resize(master: &OwnedFd, (columns, rows): (u16, u16)) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Reads what is written to a terminal.
fn read(mut file: File, all: &Mutex<Vec<u8>>, reading: &Reading) {
    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut octets = [0; 4096];
    while !reading.stops.load(Relaxed) {
        let is_last = reading.is_last.load(Relaxed);
        if let Ok(0) = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&wait)) {
            if is_last {
                return;
            }
            continue;
        }
        let Ok(length @ 1..) = file.read(&mut octets) else { return };
        all.lock().unwrap().extend(&octets[..length]);
    }
}

/// A screen that understands what Weir writes.
#[derive(Default)]
pub struct Screen {
    cells: Vec<Vec<char>>,
    /// Lines that have left it at the top.
    pub above: Vec<String>,
    /// How often it was cleared.
    pub cleared: usize,
    row: usize,
    column: usize,
}

impl Screen {
    /// What a screen of this size shows after a text.
    pub fn after(written: &str, (columns, rows): (u16, u16)) -> Self {
        let mut screen = Self { cells: vec![vec![' '; columns.into()]; rows.into()], ..Self::default() };
        let mut rest = written.chars();
        while let Some(letter) = rest.next() {
            match letter {
                '\r' => screen.column = 0,
                '\n' => screen.feed(),
                '\u{1b}' => {
                    // What is written last may not be whole yet.
                    let Some(bracket) = rest.next() else { break };
                    assert_eq!(bracket, '[');
                    let mut parameters = String::new();
                    let end = rest.by_ref().find(|letter| {
                        parameters.extend((!letter.is_ascii_alphabetic()).then_some(*letter));
                        letter.is_ascii_alphabetic()
                    });
                    screen.act(end, &parameters);
                }
                letter => {
                    if let Some(cell) = screen.cells.get_mut(screen.row).and_then(|line| line.get_mut(screen.column)) {
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

    fn act(&mut self, end: Option<char>, parameters: &str) {
        let number = parameters.parse().unwrap_or_default();
        match end {
            Some('A') => self.row = self.row.saturating_sub(usize::max(number, 1)),
            Some('H') => {
                let (row, column) = parameters.split_once(';').unwrap_or(("1", "1"));
                (self.row, self.column) = (row.parse::<usize>().unwrap() - 1, column.parse::<usize>().unwrap() - 1);
            }
            Some('K') => self.clear_line(),
            Some('J') if number == 0 => {
                self.clear_line();
                self.cells.iter_mut().skip(self.row + 1).for_each(|line| line.fill(' '));
            }
            Some('J') => {
                self.cleared += 1;
                self.cells.iter_mut().for_each(|line| line.fill(' '));
            }
            // Styles, and whether long lines are wrapped, which none is.
            _ => {}
        }
    }

    /// From the cursor on.
    fn clear_line(&mut self) {
        if let Some(line) = self.cells.get_mut(self.row) {
            line.iter_mut().skip(self.column).for_each(|cell| *cell = ' ');
        }
    }

    /// The lines on the screen.
    pub fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| text_of(line)).collect()
    }

    /// Also those above.
    pub fn all(&self) -> Vec<String> {
        self.above.iter().cloned().chain(self.lines()).collect()
    }
}

fn text_of(line: &[char]) -> String {
    String::from_iter(line).trim_end().to_owned()
}
