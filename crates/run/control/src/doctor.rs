//! What `weir doctor` found about the machine and the NICs of the probe when it started.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Findings about the machine and the interfaces of the probe.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DoctorFindings {
    /// When they were found, seconds since 1970; null if nothing was examined. The sandbox of a running probe forbids to
    /// examine the machine again.
    pub examined: Option<u64>,
    /// The interfaces that were examined.
    pub interfaces: Vec<String>,
    /// How many findings there are of each severity, as weir doctor prints it.
    pub counts: String,
    /// What each severity means, as weir doctor prints it.
    #[schema(value_type = Object)]
    pub severities: Value,
    /// The findings as weir doctor --json writes them, the most severe first, without those that are fine.
    #[schema(value_type = Vec<Object>)]
    pub findings: Value,
    /// What was not examined, and why.
    pub notes: Vec<String>,
}

impl Default for DoctorFindings {
    fn default() -> Self {
        Self {
            examined: None,
            interfaces: Vec::new(),
            counts: String::new(),
            severities: Value::Object(serde_json::Map::new()),
            findings: Value::Array(Vec::new()),
            notes: Vec::new(),
        }
    }
}
