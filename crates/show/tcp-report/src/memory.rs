//! How many connections fit into the free memory.

use weir_tcp_batch::EngineOptions;
use weir_text::units;

/// Bytes per connection: the larger of its size in the engine and in the report, with the spare
/// capacity of lists.
const CONNECTION_BYTES: u64 = 1200;
/// Additional bytes per direction with anomalies, in the engine and in the report.
const ANOMALY_BYTES: u64 = 2100;
/// Bytes per record of a batch, with its copies.
const BATCH_RECORD_BYTES: u64 = 320;
/// Least free memory for a run.
const LEAST_BYTES: u64 = 32 << 20;

/// How the free memory is divided: half for connections, an eighth for anomalies (up to a quarter
/// while their pool grows), an eighth for batches.
#[derive(Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections.
    pub connections: usize,
    /// Directions with anomalies.
    pub anomalies: usize,
    /// Records of a batch.
    pub batch_size: usize,
}

/// Why there is too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Less is free than any run needs.
    #[error("{} of memory are free, and at least {} are needed", bytes(*.free_bytes), bytes(LEAST_BYTES))]
    TooLittle {
        /// Free memory.
        free_bytes: u64,
    },
    /// The wanted connections need more than is free.
    #[error(
        "{wanted} connections may need {} of memory, and {} are free",
        bytes(u64::from(*.wanted) * CONNECTION_BYTES),
        bytes(*.free_bytes)
    )]
    TooManyConnections {
        /// Wanted connections.
        wanted: u32,
        /// Free memory.
        free_bytes: u64,
    },
}

fn bytes(bytes: u64) -> String {
    units::quantity(bytes, "B")
}

impl Limits {
    /// Divides free memory, if its size is known. `wanted` connections replace the share of
    /// connections.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new(free_bytes: Option<u64>, wanted: Option<u32>) -> Result<Self, MemoryError> {
        if let Some(free_bytes) = free_bytes.filter(|&free| free < LEAST_BYTES) {
            return Err(MemoryError::TooLittle { free_bytes });
        }
        let share = |divisor, size| free_bytes.map_or(usize::MAX, |free| (free / divisor / size) as usize);
        let connections = match (wanted, free_bytes) {
            (Some(wanted), Some(free_bytes)) if u64::from(wanted) * CONNECTION_BYTES > free_bytes => {
                return Err(MemoryError::TooManyConnections { wanted, free_bytes });
            }
            (Some(wanted), _) => wanted as usize,
            (None, _) => share(2, CONNECTION_BYTES),
        };
        let batch_size = share(8, BATCH_RECORD_BYTES).min(EngineOptions::default().batch_size);
        Ok(Self { connections, anomalies: share(8, ANOMALY_BYTES), batch_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_half_of_the_memory_or_up_to_all_on_request() {
        let free = Some(24_000_000_000);
        let connections = |wanted| Limits::new(free, wanted).map(|limits| limits.connections);
        assert_eq!(connections(None), Ok(10_000_000));
        assert_eq!(connections(Some(20_000_000)), Ok(20_000_000));
        let error = connections(Some(20_000_001)).unwrap_err();
        assert_eq!(error.to_string(), "20000001 connections may need 24.0 GB of memory, and 24.0 GB are free");
    }

    #[test]
    fn unknown_memory_is_no_limit() {
        let limits = Limits::new(None, None).unwrap();
        assert_eq!((limits.connections, limits.batch_size), (usize::MAX, EngineOptions::default().batch_size));
    }

    #[test]
    fn too_little_memory_is_refused() {
        assert!(Limits::new(Some(LEAST_BYTES), None).is_ok_and(|limits| limits.batch_size > 10_000));
        assert!(Limits::new(Some(LEAST_BYTES - 1), None).is_err());
    }
}
