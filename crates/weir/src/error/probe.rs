//! Errors: `weir probe`.

use std::io;

/// `weir probe`.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{0} is named twice: each of its packets would be counted twice; name it once")]
    DuplicateSource(String),
    #[error("--meters needs --layout spread: the other layouts have one metering thread per queue")]
    MetersWithoutSpread,
    #[error("--dpi light and full need --layout fused: with the other layouts, threads that meter get no payload")]
    InspectionNeedsFused,
    #[error("--rules needs --layout fused: with the other layouts, threads that meter have no frames")]
    RulesNeedFused,
    #[error(
        "{option}: core {core} is not available to this program, which may use {available} cores (see nproc, lscpu -e)"
    )]
    CoreNotAvailable { option: &'static str, core: usize, available: usize },
    #[error(
        "--lock-memory: {error}; the limit of locked memory is {limit} (ulimit -l): raise it, or give the probe the \
         capability CAP_IPC_LOCK (under systemd: LimitMEMLOCK=infinity, or AmbientCapabilities=CAP_IPC_LOCK)"
    )]
    LockMemory { limit: String, error: io::Error },
    #[error("--user {0}: no such user; name another one, or root to keep all privileges (not recommended)")]
    UnknownUser(String),
    #[error("--user {0}: only root can become another user; leave out --user")]
    NotRoot(String),
    #[error("--user {user}: cannot {action}: {error}")]
    Privileges { user: String, action: &'static str, error: io::Error },
    #[error(
        "--wait: {0} cannot attach to an interface again; af_packet: can, with one queue, without fanout and \
         timestamps=hardware, and af_xdp: with one queue (queues=0), if it may lock enough memory (ulimit -l)"
    )]
    CannotWait(String),
    #[error(
        "{sink}: the probe runs as {user} (--user), who cannot create files in this folder: {error}; give that user the \
         folder (chown {user}), or name another one"
    )]
    RotatedFiles { sink: String, user: String, error: io::Error },
    #[error("--autotune: {0} can be read only once; use a file or a live interface")]
    AutotuneOfPipe(String),
    #[error("autotune: {candidate}: {error}")]
    AutotuneTrial { candidate: String, error: Box<dyn std::error::Error + Send + Sync> },
    #[error("stopped during --autotune: nothing was metered")]
    AutotuneStopped,
}
