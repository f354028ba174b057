//! The memory of a run: refuses a flow cache that does not fit, or makes the default one smaller.
//!
//! The system provides memory when it is touched, so a cache that does not fit starts, and a flood
//! that fills it ends the process. What counts here is therefore the memory of full caches.
//! `--lock-memory` touches all of it at the start.

use crate::error::{Error, FlowCacheTooLarge};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tracing::warn;
use weir_flow::{Config, Meter};
use weir_host::{MemoryBound, MemoryBoundKind, Sysroot};
use weir_probe::{BackPressure, Exporter};
use weir_text::units;

/// Smallest size that a default flow cache is reduced to.
const MIN_FLOWS: u32 = 1 << 12;
/// Code, stacks, filters, templates and statistics.
const PROCESS_BYTES: usize = 32 << 20;
/// Records that wait for export, and queues between threads.
const METER_BYTES: usize = 8 << 20;
/// Buffers of a pipe or of a compressed capture with long records. The memory of live sources is
/// taken when they open, before this check.
const CAPTURE_BYTES: usize = 50 << 20;

/// What takes memory beside the slots of a flow cache.
pub struct MemoryUse {
    /// Flow caches.
    pub meters: usize,
    /// Whether a source is not live.
    pub reads_captures: bool,
    pub sinks: usize,
    pub back_pressure: BackPressure,
}

impl MemoryUse {
    fn reserve_bytes(&self) -> u64 {
        let queues = Exporter::memory_bytes_for(self.sinks, self.back_pressure);
        (PROCESS_BYTES + self.meters * METER_BYTES + usize::from(self.reads_captures) * CAPTURE_BYTES + queues) as u64
    }

    fn cache_bytes(&self, config: Config) -> u64 {
        self.meters as u64 * Meter::memory_bytes_for(&config) as u64
    }

    /// Compares the flow caches with the free memory. Call it when the sources are open. A default
    /// cache that does not fit gets half of its slots, repeatedly.
    ///
    /// # Errors
    /// [`FlowCacheTooLarge`] if the requested caches do not fit, or not even small ones.
    pub fn fit(&self, config: &mut Config, is_requested: bool) -> Result<(), Error> {
        let bounds = weir_host::memory_bounds(&Sysroot::live());
        bounds
            .into_iter()
            .min_by_key(|bound| bound.free_bytes)
            .map_or(Ok(()), |bound| self.fit_into(&bound, config, is_requested))
    }

    fn fit_into(&self, bound: &MemoryBound, config: &mut Config, is_requested: bool) -> Result<(), Error> {
        let room_bytes = bound.free_bytes.saturating_sub(self.reserve_bytes());
        let fits = |flows| self.cache_bytes(Config { flows, ..*config }) <= room_bytes;
        if fits(config.flows) {
            return Ok(());
        }
        let halves = std::iter::successors(Some(config.flows / 2), |flows| Some(flows / 2));
        let smaller = halves.take_while(|&flows| flows >= MIN_FLOWS).find(|&flows| fits(flows));
        match smaller {
            Some(flows) if !is_requested => {
                let (free, limit) = (units::quantity(bound.free_bytes, "B"), bound_text(bound));
                let default = std::mem::replace(&mut config.flows, flows);
                // The trials of --autotune have no sinks, and log nothing.
                if self.sinks > 0 {
                    warn!(
                        flows,
                        default, free, limit, "memory is limited, so the flow cache has fewer slots than by default"
                    );
                }
                Ok(())
            }
            _ => Err(Box::new(FlowCacheTooLarge {
                flows: config.flows,
                caches: if self.meters == 1 {
                    "its flow cache".into()
                } else {
                    format!("its {} flow caches", self.meters)
                },
                needed: units::quantity(self.cache_bytes(*config), "B"),
                reserve: units::quantity(self.reserve_bytes(), "B"),
                free: units::quantity(bound.free_bytes, "B"),
                limit: bound_text(bound),
                advice: smaller.map_or_else(
                    || "raise the limit".into(),
                    |flows| format!("--flows {flows} fits, or raise the limit"),
                ),
            })
            .into()),
        }
    }
}

/// A thread that keeps the privileges with which it started, to lock memory (CAP_IPC_LOCK) when the
/// other threads have dropped theirs. Dropped without [`MemoryLock::lock`], it ends and does nothing.
pub struct MemoryLock {
    request: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), Errno>>,
}

impl MemoryLock {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn prepare() -> Result<Self, Error> {
        let (request, requested) = mpsc::channel();
        let lock = move || requested.recv().map_or(Ok(()), |()| mlockall(MlockAllFlags::CURRENT));
        let thread = std::thread::Builder::new().name("weir-lock".into()).spawn(lock).map_err(Error::Thread)?;
        Ok(Self { request, thread })
    }

    /// Touches and locks all memory that the process has now, and ends the thread.
    ///
    /// # Errors
    /// [`Error::LockMemory`] if it is more than the limit of locked memory.
    pub fn lock(self) -> Result<(), Error> {
        let _ = self.request.send(());
        self.thread.join().expect("the thread makes one system call").map_err(|error| {
            let limit = getrlimit(Resource::Memlock).current;
            let limit = limit.map_or_else(|| "none".into(), |bytes| units::quantity(bytes, "B"));
            Error::LockMemory { limit, error: error.into() }
        })
    }
}

fn bound_text(bound: &MemoryBound) -> String {
    let limit = units::quantity(bound.limit_bytes, "B");
    match &bound.kind {
        MemoryBoundKind::ControlGroup(file) => format!("{file} is {limit}"),
        MemoryBoundKind::AddressSpace => format!("ulimit -v is {limit}"),
        MemoryBoundKind::Machine => format!("the machine has {limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The slots of each of these caches, or the error, with this much free memory.
    fn fitted(meters: usize, flows: u32, is_requested: bool, free_bytes: u64) -> Result<u32, String> {
        let memory = MemoryUse { meters, reads_captures: false, sinks: 1, back_pressure: BackPressure::Drop };
        let kind = MemoryBoundKind::ControlGroup("/x/memory.max".into());
        let bound = MemoryBound { kind, limit_bytes: 2 * free_bytes, free_bytes };
        let mut config = Config { flows, ..Config::default() };
        memory.fit_into(&bound, &mut config, is_requested).map_err(|error| error.to_string())?;
        assert!(memory.cache_bytes(config) + memory.reserve_bytes() <= free_bytes);
        Ok(config.flows)
    }

    #[test]
    fn default_caches_shrink_to_the_free_memory_and_requested_ones_are_refused() {
        assert_eq!(fitted(1, 1 << 20, false, 16 * GIB), Ok(1 << 20));
        assert_eq!(fitted(1, 1 << 20, true, 16 * GIB), Ok(1 << 20));
        let [one, four] = [1, 4].map(|meters| fitted(meters, 1 << 20, false, GIB).unwrap());
        assert!(four < one && one < 1 << 20, "{one} {four}");
        let error = fitted(4, 1 << 20, true, GIB).unwrap_err();
        for part in ["--flows 1048576: its 4 flow caches", "/x/memory.max is 2.15 GB", &format!("--flows {four} fits")]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = fitted(1, 1 << 20, false, GIB / 16).unwrap_err();
        assert!(error.ends_with("; raise the limit"), "{error}");
    }
}
