//! The thread that asks the HTTP interface, so that keys never wait for an answer.

use crate::error::Error;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};
use weir_control::{Method, RemoteProbe};
use weir_top::{Question, Questions, Reply, add_names, names_paths};

/// Asks what is wanted, again and again.
pub struct Asking {
    shared: Arc<Shared>,
    replies: Receiver<Reply>,
}

#[derive(Default)]
struct Shared {
    wanted: Mutex<Option<Questions>>,
    changed: Condvar,
    /// Ends the request that waits for its answer.
    stop: AtomicBool,
    /// When the first request without an answer was sent.
    unanswered: Mutex<Option<Instant>>,
}

impl Drop for Asking {
    /// The thread ends soon, and with it the connection. Nothing waits for that.
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.changed.notify_all();
    }
}

impl Asking {
    pub fn start(remote: RemoteProbe, interval: Duration) -> Result<Self, Error> {
        let (shared, (sender, replies)) = (Arc::<Shared>::default(), mpsc::channel());
        let of_thread = shared.clone();
        let run = move || of_thread.run(remote, interval, &sender);
        thread::Builder::new().name("weir-questions".into()).spawn(run).map_err(Error::Thread)?;
        Ok(Self { shared, replies })
    }

    /// What the screen wants to know from now on.
    pub fn want(&self, questions: Questions) {
        let mut wanted = self.shared.wanted.lock();
        if wanted.as_ref() != Some(&questions) {
            *wanted = Some(questions);
            self.shared.changed.notify_all();
        }
    }

    /// For how long no request was answered; `None` if none waits.
    pub fn silence(&self) -> Option<Duration> {
        self.shared.unanswered.lock().map(|since| since.elapsed())
    }

    /// What was answered since.
    pub fn replies(&self) -> impl Iterator<Item = Reply> {
        self.replies.try_iter()
    }
}

/// Status and JSON, or why there is no answer. Rows get the names that the question wants.
pub fn ask(remote: &mut RemoteProbe, question: &Question, stop: &AtomicBool) -> Result<(u16, Value), String> {
    let (status, mut body) = answer(remote, &question.path, stop)?;
    let paths = if question.names && status == 200 { names_paths(&body) } else { Vec::new() };
    for path in paths {
        let names = match answer(remote, &path, stop)? {
            (200, names) => Ok(names),
            (status, names) => Err(names["error"].as_str().map_or_else(|| format!("status {status}"), str::to_owned)),
        };
        let is_last = names.is_err();
        add_names(&mut body, names);
        if is_last {
            break;
        }
    }
    Ok((status, body))
}

fn answer(remote: &mut RemoteProbe, path: &str, stop: &AtomicBool) -> Result<(u16, Value), String> {
    match remote.request(Method::GET, path, "", stop) {
        Ok(answer) => Ok((answer.status.as_u16(), answer.body)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err("it does not answer; is it stopped?".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl Shared {
    fn run(&self, mut remote: RemoteProbe, interval: Duration, replies: &Sender<Reply>) {
        let started = Instant::now();
        let mut last: Option<(u64, Instant)> = None;
        while let Some(questions) = self.next(last, interval) {
            last = Some((questions.generation, Instant::now()));
            for question in questions.all {
                self.unanswered.lock().get_or_insert_with(Instant::now);
                let result = ask(&mut remote, &question, &self.stop);
                if result.is_ok() {
                    *self.unanswered.lock() = None;
                }
                let time_ns = started.elapsed().as_nanos() as u64;
                let reply = Reply { generation: questions.generation, topic: question.topic, time_ns, result };
                let is_newer = || self.wanted.lock().as_ref().is_some_and(|new| new.generation != questions.generation);
                if replies.send(reply).is_err() || self.stop.load(Relaxed) || is_newer() {
                    break;
                }
            }
        }
    }

    /// Waits until there are other questions, or until it is time to ask the last ones again. `None` at the end.
    fn next(&self, last: Option<(u64, Instant)>, interval: Duration) -> Option<Questions> {
        let mut wanted = self.wanted.lock();
        loop {
            if self.stop.load(Relaxed) {
                return None;
            }
            let until = match (wanted.as_ref(), last) {
                (Some(questions), None) => return Some(questions.clone()),
                (Some(questions), Some((generation, _))) if questions.generation != generation => {
                    return Some(questions.clone());
                }
                (Some(questions), Some((_, asked))) if questions.repeats => Some(asked + interval),
                _ => None,
            };
            match until {
                Some(until) if until <= Instant::now() => return wanted.clone(),
                Some(until) => drop(self.changed.wait_until(&mut wanted, until)),
                None => self.changed.wait(&mut wanted),
            }
        }
    }
}
