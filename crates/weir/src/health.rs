//! `weir health`: asks a running probe whether it is alive, or does its work.

use crate::arguments::Health;
use crate::console;
use crate::error::{Error, HealthError, TopError};
use crate::run_status::RunStatus;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_control::{Method, RemoteProbe};
use weir_text::units;

/// Prints a sentence.
///
/// # Errors
/// It is not, or there is no answer.
pub fn run(arguments: &Health) -> Result<RunStatus, Error> {
    let Health { url, ready, timeout_ns, token_file, ca } = arguments;
    if url.is_https() != ca.is_some() {
        return Err(TopError::Certificates.into());
    }
    let limit = Duration::from_nanos(*timeout_ns);
    let remote = RemoteProbe::new(url.clone(), token_file.as_deref(), ca.as_deref(), limit);
    let mut remote = remote.map_err(|error| TopError::Remote { error })?;
    let target = url.to_string();
    let (path, is) = if *ready { ("/ready", "ready") } else { ("/health", "alive") };
    let answer = remote.request(Method::GET, path, "", &AtomicBool::new(false));
    let answer = answer.map_err(|error| TopError::NoAnswer { target: target.clone(), reason: reason(error, limit) })?;
    let reasons = answer.body["reasons"].as_array();
    let is_so = if *ready { answer.body["ready"] == true } else { answer.body["status"] == "alive" };
    let is_of_weir = reasons.is_some() || answer.body["error"].is_string();
    match answer.status.as_u16() {
        200 if is_so => Ok(console::print(format!("{target}: {is}\n").as_bytes())),
        401 | 403 if is_of_weir => Err(TopError::Token { target, reason: answer.error() }.into()),
        400.. if is_of_weir => {
            let reasons: Vec<&str> = reasons.into_iter().flatten().filter_map(|reason| reason.as_str()).collect();
            let reason = if reasons.is_empty() { answer.error() } else { reasons.join("; ") };
            Err(HealthError::Not { target, is, reason }.into())
        }
        status => Err(TopError::NotWeir { target, path, status }.into()),
    }
}

/// Why there is no answer, and what the user can do.
pub fn reason(error: io::Error, limit: Duration) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            let limit = units::span(limit.as_nanos() as u64);
            format!("no answer within {limit}: is the address right, and is the probe stopped or blocked?")
        }
        io::ErrorKind::ConnectionRefused => format!("{error}; nothing listens there (weir probe --listen PORT)"),
        _ => error.to_string(),
    }
}
