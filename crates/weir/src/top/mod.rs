//! `weir top`: live figures of a probe, or of stored flows, in the terminal.
//!
//! ```text
//! interface, store, capture -> child: weir probe, weir view \
//!                                                  URL ------> questions (a thread) -> state -> screen
//!                                                                   keys ----------/
//! ```
//! What the screen shows and what keys do is in the crate `weir_top`. Here are the child, the requests and the
//! terminal. In every ending, also by a signal or a panic, the terminal is as it was, and the child ends: its
//! standard input is a pipe of this process, and it ends with that (`signals::end_with_parent`).

mod child;
mod questions;
mod screen;

use crate::arguments::{Top, TopList};
use crate::console;
use crate::error::{Error, TopError, live_source};
use crate::health;
use crate::run_status::RunStatus;
use crate::signals;
use child::Child;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use questions::Asking;
use screen::Screen;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_capture::{LIVE_SCHEMES, LiveSpec};
use weir_control::{Method, ProbeUrl, RemoteProbe};
use weir_top::{About, Action, Key, List, Mode, RATE, Reply, Settings, State, Topic};

/// How long the screen waits for a key.
const KEY_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two pictures without a key or an answer: the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time without an answer that is worth a word.
const MIN_SILENCE: Duration = Duration::from_secs(1);
/// Rows of the screen, and of `--once`.
const ROWS: [usize; 2] = [200, 20];

/// What is looked at.
enum Target {
    Url(ProbeUrl),
    /// A source of `weir probe`.
    Source(String),
    /// A path of `weir view`.
    Stored(String),
}

pub fn run(arguments: &Top) -> Result<RunStatus, Error> {
    let target = target(&arguments.target)?;
    let (is_url, timing) = (matches!(target, Target::Url(_)), arguments.times.timing());
    let settings = settings(arguments);
    if matches!(target, Target::Stored(_)) {
        refuse_rate(&settings)?;
    }
    if !is_url && (arguments.token_file.is_some() || arguments.ca.is_some()) {
        return Err(TopError::OfUrls.into());
    }
    if !arguments.once && !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal.into());
    }
    let stop = signals::stop_flag()?;
    let (url, mut child) = match target {
        Target::Url(url) => (url, None),
        Target::Source(source) => started(Child::probe(&source, arguments.names, &stop, timing)?),
        Target::Stored(path) => started(Child::view(&path, arguments.names, &stop, timing)?),
    };
    if url.is_https() != arguments.ca.is_some() {
        return Err(TopError::Certificates.into());
    }
    let [token, certificates] = [&arguments.token_file, &arguments.ca].map(|path| path.as_deref());
    let remote = RemoteProbe::new(url, token, certificates, timing.top_first);
    let mut remote = remote.map_err(|error| TopError::Remote { error })?;
    let about = about(&mut remote, &arguments.target, timing.top_first, &stop);
    // A child that has ended says more than the connection to it.
    let ended =
        |error| child.as_mut().and_then(Child::has_ended).map_or(error, |reason| TopError::Child(reason).into());
    let about = about.map_err(ended)?;
    if stop.load(Relaxed) {
        return Ok(RunStatus::Success);
    }
    remote.set_limit(timing.http_answer);
    if about.mode == Mode::View {
        refuse_rate(&settings)?;
        if !about.has_history {
            return Err(TopError::NoFlows { target: arguments.target.clone() }.into());
        }
    }
    let mut state = State::new(settings, about);
    state.try_filter();
    if arguments.once {
        return once(state, &mut remote, timing.top_once, &stop);
    }
    show(state, remote, child.as_mut(), timing.top_silence, &stop)?;
    let has_failed = child.as_mut().is_some_and(|child| child.has_ended().is_some());
    stop.store(false, Relaxed);
    // A further signal while it ends kills it.
    drop(child);
    Ok(RunStatus::from_problems(has_failed))
}

fn started((url, child): (ProbeUrl, Child)) -> (ProbeUrl, Option<Child>) {
    (url, Some(child))
}

fn target(text: &str) -> Result<Target, Error> {
    if text.starts_with("http://") || text.starts_with("https://") {
        let failed = |error| TopError::Url { target: text.into(), error };
        return Ok(Target::Url(text.parse().map_err(failed)?));
    }
    if text == "-" {
        return Err(TopError::Pipe.into());
    }
    let is_live = weir_capture::is_interface(text) || text.parse::<LiveSpec>().is_ok();
    // One with an invalid setting, too: the probe says what is wrong with it.
    if is_live || LIVE_SCHEMES.into_iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(Target::Source(live_source(text)));
    }
    let is_read_once = ["synth:", "packets:"].into_iter().any(|scheme| text.starts_with(scheme));
    if is_read_once || Path::new(text).exists() {
        return Ok(Target::Stored(text.into()));
    }
    Err(TopError::Target { target: text.into() }.into())
}

fn settings(arguments: &Top) -> Settings {
    Settings {
        target: arguments.target.clone(),
        list: match arguments.list {
            TopList::Hosts => List::Hosts,
            TopList::Pairs => List::Pairs,
            TopList::Servers => List::Servers,
            TopList::Applications => List::Applications,
            TopList::Flows => List::Flows,
            TopList::Failures => List::Failures,
        },
        sort: arguments.sort.clone(),
        filter: arguments.filter.clone().unwrap_or_default(),
        top: arguments.top.unwrap_or(ROWS[usize::from(arguments.once)]),
        interval_ns: arguments.interval_ns,
        names: arguments.names,
    }
}

/// Refuses the order by rate, which stored flows do not have.
fn refuse_rate(settings: &Settings) -> Result<(), TopError> {
    match settings.sort.as_deref() {
        Some(RATE) => {
            Err(TopError::NoRate { list: settings.list.name(), names: weir_top::sort_names(settings.list, false) })
        }
        _ => Ok(()),
    }
}

/// What answers, within a time.
fn about(remote: &mut RemoteProbe, target: &str, limit: Duration, stop: &AtomicBool) -> Result<About, Error> {
    let failed = |reason: String| TopError::NoAnswer { target: target.into(), reason };
    let answer = match remote.request(Method::GET, "/about", "", stop) {
        Err(_) if stop.load(Relaxed) => return Ok(About::new(&Default::default())),
        answer => answer.map_err(|error| failed(health::reason(error, limit)))?,
    };
    match (answer.status.as_u16(), answer.body["error"].is_string()) {
        (200, _) if About::is_of_weir(&answer.body) => Ok(About::new(&answer.body)),
        // A probe of an earlier version does not have the path.
        (404, true) => Ok(About::new(&answer.body)),
        (status @ (200 | 404), _) => Err(TopError::NotWeir { target: target.into(), path: "/about", status }.into()),
        (401 | 403, _) => Err(TopError::Token { target: target.into(), reason: answer.error() }.into()),
        _ => Err(failed(answer.error()).into()),
    }
}

/// Asks all questions once, and passes the answers on. False if one is to be asked again.
fn ask(state: &mut State, remote: &mut RemoteProbe, started: Instant, stop: &AtomicBool) -> bool {
    let questions = state.questions();
    let mut is_answered = true;
    for question in questions.all {
        let result = questions::ask(remote, &question, stop);
        let is_busy = matches!(result, Ok((429 | 503, _)));
        is_answered &= !is_busy || question.topic != Topic::Rows;
        let time_ns = started.elapsed().as_nanos() as u64;
        state.take(Reply { generation: questions.generation, topic: question.topic, time_ns, result });
    }
    is_answered
}

/// Prints one screen.
fn once(mut state: State, remote: &mut RemoteProbe, limit: Duration, stop: &AtomicBool) -> Result<RunStatus, Error> {
    let started = Instant::now();
    // Rates need two answers, and the figures of an interval; failures without those of scans, too.
    let mut missing = if state.is_live() || state.settings().list == List::Failures { 2 } else { 1 };
    let interval = Duration::from_nanos(state.settings().interval_ns);
    while !stop.load(Relaxed) {
        let is_answered = ask(&mut state, remote, started, stop);
        if let Some(reason) = state.failure().filter(|_| is_answered) {
            return Err(TopError::Refused(reason).into());
        }
        missing -= usize::from(is_answered && missing > 0);
        let has_all = missing == 0 && (!state.is_live() || state.has_rates());
        if has_all || started.elapsed() > limit + interval * 2 {
            break;
        }
        wait(interval, stop);
    }
    if let Some(reason) = state.failure() {
        return Err(TopError::Refused(reason).into());
    }
    state.set_clock(now_ns());
    let columns = console::terminal_columns().unwrap_or(80);
    let printed = console::print(state.page(columns).as_bytes());
    Ok(RunStatus::from_problems(!state.is_complete()).and(printed))
}

fn wait(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while !stop.load(Relaxed) && Instant::now() < end {
        thread::sleep(KEY_INTERVAL.min(time));
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Shows the screen until the user or a signal ends it.
fn show(
    mut state: State,
    remote: RemoteProbe,
    mut child: Option<&mut Child>,
    most_silence: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let mut screen = Screen::open().map_err(TopError::Terminal)?;
    let interval = Duration::from_nanos(state.settings().interval_ns);
    let asking = Asking::start(remote, interval)?;
    let usual_silence = (interval * 2).min(most_silence).max(MIN_SILENCE);
    let events = events()?;
    let mut last_drawn: Option<Instant> = None;
    while !stop.load(Relaxed) {
        let mut has_changed = last_drawn.is_none_or(|last| last.elapsed() >= CLOCK_INTERVAL);
        for reply in asking.replies() {
            state.take(reply);
            has_changed = true;
        }
        let silence = asking.silence().filter(|silence| *silence >= usual_silence);
        state.set_silence(silence.map(|silence| silence.as_nanos() as u64));
        if let Some(child) = child.as_mut() {
            state.set_note(&child.note());
        }
        asking.want(state.questions());
        state.set_clock(now_ns());
        if has_changed {
            screen.draw(&mut state).map_err(TopError::Terminal)?;
            last_drawn = Some(Instant::now());
        }
        match events.recv_timeout(KEY_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TopError::Terminal(io::ErrorKind::BrokenPipe.into()).into());
            }
            Ok(event) => match event.map_err(TopError::Terminal)? {
                Event::Key(event) if event.kind != KeyEventKind::Release => {
                    let is_quit = |key: &Option<Key>| key.is_some_and(|key| state.key(key) == Action::Quit);
                    if keys(event.code, event.modifiers).iter().any(is_quit) {
                        break;
                    }
                }
                Event::Resize(..) => {}
                _ => continue,
            },
        }
        last_drawn = None;
    }
    Ok(())
}

/// Reads the keys on a thread of its own. It never ends: where the terminal is gone, the library reads its end again and
/// again, and notices no signal.
fn events() -> Result<Receiver<io::Result<Event>>, Error> {
    let (sender, events) = mpsc::channel();
    let read = move || while sender.send(event::read()).is_ok() {};
    thread::Builder::new().name("weir-keys".into()).spawn(read).map_err(Error::Thread)?;
    Ok(events)
}

/// What a key is for the screen. Terminals send Alt and a key as Escape and the key, and a slow connection joins the two
/// as well.
fn keys(code: KeyCode, modifiers: KeyModifiers) -> [Option<Key>; 2] {
    let escape = modifiers.contains(KeyModifiers::ALT).then_some(Key::Escape);
    [escape, key(code, modifiers)]
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    let is_control = modifiers.contains(KeyModifiers::CONTROL);
    Some(match code {
        KeyCode::Char('c' | 'd') if is_control => Key::Interrupt,
        KeyCode::Char('u') if is_control => Key::ClearLine,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(character) => Key::Character(character),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        _ => return None,
    })
}
