//! Options of [`crate::live()`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Which live sources to measure, and how.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Names out of [`crate::LIVE`], measured in this order. If empty, every source that opens.
    pub sources: Vec<String>,
    /// Number of measured rounds.
    pub rounds: usize,
    /// Duration of a trial, s.
    pub seconds: f64,
    /// Frames to send: a capture file or `synth:...`.
    pub frames: Option<String>,
    /// Duration of the soak run, if there is one.
    pub soak: Option<Duration>,
    /// Rate of the soak run as a share of the loss-free rate.
    pub soak_rate_share: f64,
    /// Interval of the soak run's status lines.
    pub interval: Duration,
    /// Date of the run, for the report.
    pub date: String,
    /// Set by the caller to interrupt the run.
    pub stop: Arc<AtomicBool>,
}
