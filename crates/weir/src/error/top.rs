//! Errors: `weir top`.

use super::advice::control_advice;
use std::io;

/// `weir top`.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    #[error("{target}: no interface, no file and no folder has this name; for a running probe write http://HOST:PORT")]
    Target { target: String },
    #[error("{target} has no flows; records of transactions are shown by weir read")]
    NoFlows { target: String },
    #[error("{target}: {error}")]
    Url { target: String, error: weir_control::InvalidUrl },
    #[error("standard input has the keys: name a file, or read the pipe with 'weir read -'")]
    Pipe,
    #[error(
        "an https:// URL needs --ca FILE, with the certificates that the probe's one is signed by; http:// takes none"
    )]
    Certificates,
    #[error("--token-file and --ca are for a URL")]
    OfUrls,
    #[error("standard output is no terminal: --once prints one screen as text")]
    NoTerminal,
    #[error("the terminal cannot be used: {0}")]
    Terminal(io::Error),
    #[error("{}: {error}{}", .error.option(), control_advice(.error))]
    Remote { error: weir_control::Error },
    #[error("cannot start weir itself: {0}")]
    Start(io::Error),
    /// What a probe or a view of our own said before it ended.
    #[error("{0}")]
    Child(String),
    #[error("{target}: {reason}")]
    NoAnswer { target: String, reason: String },
    #[error("{target}: {reason}; --token-file FILE has the token of the probe")]
    Token { target: String, reason: String },
    #[error(
        "{target} answers GET {path} with status {status}, and is no HTTP interface of weir; name the address of \
         --listen, or the one that weir view prints"
    )]
    NotWeir { target: String, path: &'static str, status: u16 },
    #[error("--sort rate: stored flows have totals, and no rates; sort {list} by {}", .names.join(", "))]
    NoRate { list: &'static str, names: Vec<&'static str> },
    #[error("{0}")]
    Refused(String),
}
