//! A line on the terminal while a long run goes on: share, rate, time left.

use crate::{say, units};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Runs shorter than this show nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_DRAWS: Duration = Duration::from_millis(100);

/// The line, once there is one.
pub struct Line {
    /// Nobody would see it, or it would disturb.
    hidden: bool,
    started: Instant,
    drawn: Instant,
    bar: Option<ProgressBar>,
}

impl Line {
    /// Shown on a terminal only, unless `hidden`.
    pub fn new(hidden: bool) -> Self {
        let now = Instant::now();
        Self { hidden: hidden || !io::stderr().is_terminal(), started: now, drawn: now, bar: None }
    }

    /// Draws it anew if it is time. `packets` is asked for only then.
    pub fn update(&mut self, progress: weir_capture::Progress, packets: impl FnOnce() -> u64) {
        if self.hidden || self.drawn.elapsed() < BETWEEN_DRAWS {
            return;
        }
        self.drawn = Instant::now();
        let elapsed = self.started.elapsed();
        if elapsed < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| bar(progress.total_bytes));
        let (done, seconds) = (progress.done_bytes, elapsed.as_secs_f64());
        let packets = packets();
        let mut message = format!(
            "{}, {}, {}",
            units::quantity(packets, "packets"),
            units::rate(done as f64 / seconds, "B/s"),
            units::rate(packets as f64 / seconds, "packets/s")
        );
        if let Some(total) = progress.total_bytes {
            let left = (seconds * total.saturating_sub(done) as f64 / done.max(1) as f64) as u64;
            let left = if left < 60 { format!("{left}s") } else { units::span(left.saturating_mul(1_000_000_000)) };
            message =
                format!("{}% of {}, {message}, {left} left", 100 * done / total.max(1), units::quantity(total, "B"));
        }
        bar.set_message(message);
        bar.set_position(done);
    }

    /// Says something without tearing the line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(total_bytes: Option<u64>) -> ProgressBar {
    let template = if total_bytes.is_some() { "[{bar:20}] {wide_msg}" } else { "{spinner} {wide_msg}" };
    let style = ProgressStyle::with_template(template).expect("the templates are constant and right");
    ProgressBar::with_draw_target(total_bytes, ProgressDrawTarget::stderr()).with_style(style)
}
