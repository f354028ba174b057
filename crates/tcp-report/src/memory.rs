//! How much memory there is, and how many connections find room in it.

use std::fs::read_to_string;
use std::path::Path;
use weir_tcp_batch::EngineOptions;
use weir_text::units;

/// What a connection takes in the engine, and later in the list: the larger of both, with what lists grow by.
const CONNECTION: u64 = 700;
/// What a direction in trouble takes more, with what is kept of it in the end.
const TROUBLE: u64 = 2000;
/// What a record of a batch takes on its way.
const RECORD: u64 = 320;
/// With less memory than this there is no use in beginning.
const LEAST: u64 = 32 << 20;

/// Who gets how much of the memory: half of it is for connections, an eighth or a quarter for trouble.
#[derive(Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections.
    pub connections: usize,
    /// Directions with anomalies.
    pub in_trouble: usize,
    /// Records of a batch.
    pub batch: usize,
}

/// Why there is not enough memory to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Less is free than any run needs.
    #[error("{} of memory are free, and this takes {} at least", bytes(*.free_bytes), bytes(LEAST))]
    TooLittle {
        /// Free memory.
        free_bytes: u64,
    },
    /// The connections that the user wants may need more than is free.
    #[error(
        "{wanted} connections may take {} of memory, and {} are free",
        bytes(u64::from(*.wanted) * CONNECTION),
        bytes(*.free_bytes)
    )]
    TooManyConnections {
        /// Connections.
        wanted: u32,
        /// Free memory.
        free_bytes: u64,
    },
}

fn bytes(octets: u64) -> String {
    units::quantity(octets, "B")
}

impl Limits {
    /// Of so many octets, if that is known, with as many connections as the user wants.
    pub fn of(free: Option<u64>, wanted: Option<u32>) -> Result<Self, MemoryError> {
        if let Some(free) = free.filter(|&free| free < LEAST) {
            return Err(MemoryError::TooLittle { free_bytes: free });
        }
        let part = |divisor: u64, each: u64| free.map_or(usize::MAX, |free| (free / divisor / each) as usize);
        let connections = match (wanted, free) {
            (Some(wanted), Some(free)) if u64::from(wanted) * CONNECTION > free => {
                return Err(MemoryError::TooManyConnections { wanted, free_bytes: free });
            }
            (Some(wanted), _) => wanted as usize,
            (None, _) => part(2, CONNECTION),
        };
        Ok(Self {
            connections,
            in_trouble: part(8, TROUBLE),
            batch: part(8, RECORD).min(EngineOptions::default().batch_size),
        })
    }
}

/// Octets of memory that this process can still take: what the system has, its group may have, and its address space
/// has room for. `None` if the system does not say.
pub fn free_bytes() -> Option<u64> {
    let system = number_behind("/proc/meminfo", "MemAvailable:").map(|kilobytes| kilobytes * 1024);
    let taken = number_behind("/proc/self/status", "VmSize:").map_or(0, |kilobytes| kilobytes * 1024);
    let addresses = number_behind("/proc/self/limits", "Max address space").map(|limit| limit.saturating_sub(taken));
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let folder = Path::new("/sys/fs/cgroup").join(group.unwrap_or_default());
    let group =
        folder.ancestors().filter_map(|folder| read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok());
    system.into_iter().chain(addresses).chain(group).min()
}

/// The number behind a name at the beginning of a line.
fn number_behind(file: &str, name: &str) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_memory_is_for_connections_and_no_more_than_all() {
        let gigabytes = Some(14_000_000_000);
        assert_eq!(Limits::of(gigabytes, None).ok().map(|shares| shares.connections), Some(10_000_000));
        assert_eq!(Limits::of(gigabytes, Some(20_000_000)).ok().map(|shares| shares.connections), Some(20_000_000));
        let error = Limits::of(gigabytes, Some(20_000_001)).unwrap_err();
        assert_eq!(error.to_string(), "20000001 connections may take 14.0 GB of memory, and 14.0 GB are free");
        let Ok(unknown) = Limits::of(None, None) else { panic!("nobody knows of a bound") };
        assert_eq!((unknown.connections, unknown.batch), (usize::MAX, EngineOptions::default().batch_size));
        assert!(Limits::of(Some(LEAST), None).is_ok_and(|shares| shares.batch > 10_000));
        assert!(Limits::of(Some(LEAST - 1), None).is_err());
    }
}
