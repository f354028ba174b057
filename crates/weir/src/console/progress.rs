//! The progress line of long runs on the terminal: share, rates, remaining time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_text::units;

/// Shorter runs show no progress.
const SHOW_AFTER: Duration = Duration::from_secs(1);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The line on the terminal, if one is shown.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `write` while no progress line is on the terminal.
pub fn suspend(write: impl FnOnce()) {
    match &*SHOWN.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

pub struct Progress {
    /// Standard error is no terminal, or the line is not wanted.
    hidden: bool,
    started: Instant,
    drawn: Instant,
}

impl Progress {
    /// Shows progress if standard error is a terminal and `hidden` is false.
    pub fn new(hidden: bool) -> Self {
        let now = Instant::now();
        Self { hidden: hidden || !io::stderr().is_terminal(), started: now, drawn: now }
    }

    /// Redraws the line if it is due; calls `packets` only then.
    pub fn update(&mut self, progress: weir_capture::Progress, packets: impl FnOnce() -> u64) {
        if self.hidden || self.drawn.elapsed() < REDRAW_INTERVAL {
            return;
        }
        self.drawn = Instant::now();
        let elapsed = self.started.elapsed();
        if elapsed < SHOW_AFTER {
            return;
        }
        let message = message(&progress, packets(), elapsed.as_secs_f64());
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| new_bar(progress.total_bytes));
        bar.set_message(message);
        bar.set_position(progress.done_bytes);
    }

    /// The same for what has only a share, in percent.
    pub fn update_share(&mut self, percent: f64) {
        if self.hidden || self.drawn.elapsed() < REDRAW_INTERVAL || self.started.elapsed() < SHOW_AFTER {
            return;
        }
        self.drawn = Instant::now();
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| new_bar(Some(100)));
        bar.set_message(format!("{percent:.0}%"));
        bar.set_position(percent as u64);
    }

    pub fn clear(&mut self) {
        if let Some(bar) = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

/// The line, what matters most first: a narrow terminal cuts its end.
fn message(progress: &weir_capture::Progress, packets: u64, seconds: f64) -> String {
    let done = progress.done_bytes;
    let rates = format!(
        "{}, {}, {}",
        units::quantity(packets, "packets"),
        units::rate(packets as f64 / seconds, "packets/s"),
        units::rate(done as f64 / seconds, "B/s")
    );
    let Some(total) = progress.total_bytes else { return rates };
    let left = (seconds * total.saturating_sub(done) as f64 / done.max(1) as f64) as u64;
    let left = if left < 60 { format!("{left}s") } else { units::span(left.saturating_mul(1_000_000_000)) };
    format!("{}% of {}, {left} left, {rates}", 100 * done / total.max(1), units::quantity(total, "B"))
}

fn new_bar(total_bytes: Option<u64>) -> ProgressBar {
    let template = if total_bytes.is_some() { "[{bar:10}] {wide_msg}" } else { "{spinner} {wide_msg}" };
    let style = ProgressStyle::with_template(template).expect("the templates are constant and valid");
    ProgressBar::with_draw_target(total_bytes, ProgressDrawTarget::stderr()).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_the_time_left_and_fits_80_columns() {
        let progress = weir_capture::Progress { done_bytes: 512_345_678, total_bytes: Some(1_530_000_000) };
        let line = message(&progress, 12_345_678, 8.3);
        assert_eq!(line, "33% of 1.53 GB, 16s left, 12.3 Mpackets, 1.49 Mpackets/s, 61.7 MB/s");
        assert!("[..........] ".len() + line.len() <= 80);
    }
}
