//! Errors: `weir health`.

/// `weir health`.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    #[error("{target}: not {is}: {reason}")]
    Not { target: String, is: &'static str, reason: String },
}
