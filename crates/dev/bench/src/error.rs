//! Errors of the benchmarks.

use std::io;
use weir_ledger::Ledger;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No table, or no live source, of that name.
    #[error("{0}")]
    UnknownName(String),
    /// Sinks without the table that measures them.
    #[error("--to is for the table encode: weir bench encode --to SINK")]
    SinksWithoutTable,
    /// Invalid specification of generated traffic.
    #[error(transparent)]
    Traffic(#[from] weir_capture::SettingsError),
    /// A capture or live source cannot be read.
    #[error(transparent)]
    Capture(#[from] weir_capture::Error),
    /// The capture filter cannot be compiled.
    #[error(transparent)]
    Filter(#[from] weir_capture::FilterError),
    /// A sink cannot be opened.
    #[error(transparent)]
    Sink(#[from] weir_export::Error),
    /// Not enough memory.
    #[error("cannot allocate {0} bytes: {1}")]
    Memory(usize, io::Error),
    /// Packets or octets that went in did not come out: the figures are invalid.
    #[error("{case}: the counters do not add up: {what}")]
    LostCount {
        /// Table, row and series.
        case: String,
        /// The equation that does not hold.
        what: String,
    },
    /// None of the live sources opens on this machine.
    #[error("no live source can be opened on this machine")]
    NoLiveSource,
    /// The source has several receive queues; the benchmark uses one.
    #[error("{0}: expected one receive queue")]
    SeveralQueues(String),
    /// The frames to send contain no usable one.
    #[error("{0}: no Ethernet frame of 14 to {1} bytes to send")]
    NoFrames(String, usize),
    /// The network namespace for the veth pair cannot be created.
    #[error("cannot create a network namespace: {0}{advice}", advice = namespace_advice(.0))]
    Namespace(io::Error),
    /// A command of iproute2 failed: its arguments, and its output or why it did not run.
    #[error("ip {0}: {1}")]
    Ip(String, String),
    /// The veth pair did not come up in time.
    #[error("the veth pair does not come up")]
    LinkDown,
    /// A call of the operating system failed.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
    /// The consumer of a live source failed or does not answer.
    #[error("{0}")]
    Consumer(String),
    /// No loss-free rate was found, so there is no rate for a soak run.
    #[error("{0}: no soak run, because no loss-free rate was found")]
    NoLossFreeRate(&'static str),
    /// Interrupted by the caller.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Returns a function that adds what failed to an error of the operating system.
    pub fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io(what, error)
    }
}

/// Packets or octets that went into a case and did not come out: the equation that does not hold.
#[derive(Debug)]
pub struct CountMismatch(pub String);

impl CountMismatch {
    /// Checks the equations of a ledger.
    pub fn check(ledger: &Ledger) -> Result<(), Self> {
        match ledger.check().first() {
            Some(wrong) => Err(Self(format!("{}: {} is not {}", wrong.equation, wrong.left, wrong.right))),
            None => Ok(()),
        }
    }

    /// Adds the case in which it occurred.
    pub fn in_case(self, case: impl Into<String>) -> Error {
        Error::LostCount { case: case.into(), what: self.0 }
    }
}

fn namespace_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root (needs CAP_SYS_ADMIN, CAP_NET_RAW, CAP_NET_ADMIN, and CAP_BPF for af_xdp), or, for \
             af_packet only, under `unshare --user --map-root-user`"
        }
        _ => "",
    }
}
