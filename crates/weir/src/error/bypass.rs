//! Errors: `weir bypass`.

use super::advice::control_advice;

/// `weir bypass`.
#[derive(Debug, thiserror::Error)]
pub enum BypassError {
    #[error("{}: {error}{}", .error.option(), control_advice(.error))]
    Remote { error: weir_control::Error },
    #[error("--to https:// needs --ca FILE, with the certificates that the probe's one is signed by; http:// does not")]
    Certificates,
    #[error("--more needs --action shunt")]
    More,
    #[error("--signature needs --on alert or --on drop: other events have no signature")]
    Signature,
    #[error("{probe}: {reason}")]
    Refused { probe: String, reason: String },
}
