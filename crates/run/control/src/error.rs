//! Why the server, or a client of it, cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Shortest token, octets.
pub(crate) const LEAST_OCTETS: usize = 16;
/// Longest token, octets.
pub(crate) const MOST_OCTETS: usize = 1024;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let it listen, for example because the port is taken.
    #[error("{address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The address is reachable from other machines.
    #[error("{0} is reachable from other machines, which needs TLS and a token")]
    NotLoopback(SocketAddr),
    /// The token would pass a network in clear.
    #[error("{0}: over http the token could be read on the way; write https:// and add --ca FILE")]
    TokenInClear(String),
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Other users may read the token.
    #[error("{}: other users may read this file (mode {mode:03o})", path.display())]
    TokenReadable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another user than root and the one that starts may change the token.
    #[error("{}: this file belongs to another user (uid {owner})", path.display())]
    TokenOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A token is too short, or has characters that a header cannot have.
    #[error(
        "{}: a token has one line of {least} to {most} letters, digits and signs, without spaces",
        path.display(), least = LEAST_OCTETS, most = MOST_OCTETS
    )]
    InvalidToken {
        /// The file.
        path: PathBuf,
    },
    /// A file has no certificate or no key in PEM.
    #[error("{}: {reason}", path.display())]
    Pem {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system does not provide what a client needs.
    #[error("cannot open a connection: {0}")]
    Client(io::Error),
    /// The key does not belong to the certificate, or the like.
    #[error("TLS: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

pub(crate) const TOKEN_FILE: &str = "--token-file";
pub(crate) const TLS_CERT: &str = "--tls-cert";
pub(crate) const TLS_KEY: &str = "--tls-key";
pub(crate) const CA: &str = "--ca";

impl Error {
    /// The option that is to be changed.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Listen { .. } | Self::NotLoopback(_) | Self::Client(_) => "--listen",
            Self::TokenReadable { .. }
            | Self::TokenOwner { .. }
            | Self::InvalidToken { .. }
            | Self::TokenInClear(_) => TOKEN_FILE,
            Self::File { option, .. } | Self::Pem { option, .. } => option,
            Self::Tls(_) => TLS_CERT,
        }
    }
}
