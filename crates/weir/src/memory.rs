//! The memory of a run: refuses a flow cache that does not fit, or makes the default one smaller.
//!
//! The system provides memory when it is touched, so a cache that does not fit starts, and a flood
//! that fills it ends the process. What counts here is therefore the memory of full caches.
//! `--lock-memory` touches all of it at the start.

use crate::error::{Error, FlowCacheTooLarge, ProbeError, ReloadError};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tracing::info;
use weir_flow::{Config, Meter};
use weir_host::{MemoryBound, MemoryBoundKind, Sysroot};
use weir_probe::{BackPressure, Exporter};
use weir_text::units;

/// Smallest size that a default flow cache is reduced to.
const MIN_FLOWS: u32 = 1 << 12;
/// Code, stacks, filters, templates and statistics.
const PROCESS_BYTES: usize = 32 << 20;
/// Records that wait for export, empty batches, and queues between threads.
const METER_BYTES: usize = 16 << 20;
/// Buffers of a pipe or of a compressed capture with long records. The memory of live sources is
/// taken when they open, before this check.
const CAPTURE_BYTES: usize = 50 << 20;
/// Packets of a capture that wait between its reading thread and the thread that meters, with long
/// records.
const READING_THREAD_BYTES: usize = 50 << 20;
/// The queues of sinks get one part in this number of the free memory, with [`MIN_QUEUE_BATCHES`]
/// more if needed.
const QUEUE_SHARE: u64 = 4;
/// The groups of views get one part in this number of the free memory, unless the user wants more.
const VIEW_SHARE: u64 = 4;
/// Smallest length that the queue of a sink is reduced to.
const MIN_QUEUE_BATCHES: usize = 32;

/// What takes memory beside the slots of a flow cache.
pub struct MemoryUse {
    /// Flow caches.
    pub meters: usize,
    /// Whether a source is not live.
    pub reads_captures: bool,
    /// Threads that read ahead.
    pub reading_threads: usize,
    pub sinks: usize,
    pub back_pressure: BackPressure,
    pub views: ViewMemory,
    /// What enrichment takes later.
    pub enrichment_bytes: u64,
}

/// The memory of views with all groups that they may have, and of stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct ViewMemory {
    /// Limit of the groups of each view.
    pub groups: usize,
    /// Of all views together.
    pub bytes: u64,
    /// What stores take beside.
    pub store_bytes: u64,
}

/// Groups of a view without `--groups`, of which one takes this memory in all views together: fewer
/// than usual where memory is limited.
pub fn default_groups(group_bytes: u64) -> usize {
    default_groups_in(free_bytes().unwrap_or(u64::MAX), group_bytes)
}

/// Bytes of memory that this process can still take, if any bound is known.
pub fn free_bytes() -> Option<u64> {
    bounds().iter().map(|bound| bound.free_bytes).min()
}

/// What bounds the memory. Where address space is limited, threads that start later take no arenas of it.
fn bounds() -> Vec<MemoryBound> {
    let bounds = weir_host::memory_bounds(&Sysroot::live());
    if bounds.iter().any(|bound| bound.kind == MemoryBoundKind::AddressSpace) {
        weir_flow::share_allocator();
    }
    bounds
}

fn default_groups_in(free_bytes: u64, group_bytes: u64) -> usize {
    const DEFAULT: u64 = 1_000_000;
    const LEAST: u64 = 1000;
    (free_bytes / VIEW_SHARE / group_bytes.max(1)).clamp(LEAST, DEFAULT) as usize
}

/// The memory of the queues of sinks.
#[derive(Clone, Default)]
pub struct SinkMemory {
    /// Batches in the queue of each sink.
    pub queue_batches: usize,
    /// The views of the start.
    pub views: ViewMemory,
    /// What the flow caches and these views leave for queues and more views, bytes, and what limits it.
    room: Option<(u64, String)>,
}

impl SinkMemory {
    /// Batches in the queues of new sinks, beside sinks that stay open and sinks that still write the
    /// records in their queues. `view_bytes` is the memory of the groups of all views.
    ///
    /// # Errors
    /// [`ReloadError::Sinks`] if not even short queues fit.
    pub fn queue_batches_of_new(
        &self,
        kept: usize,
        closing: usize,
        new: usize,
        view_bytes: u64,
    ) -> Result<usize, Error> {
        let Some((room_bytes, limit)) = self.room.as_ref().filter(|_| new > 0) else { return Ok(self.queue_batches) };
        let more_bytes = view_bytes.saturating_sub(self.views.bytes);
        let needed = |batches| more_bytes + queue_bytes(kept + closing, self.queue_batches) + queue_bytes(new, batches);
        halves(self.queue_batches).find(|&batches| needed(batches) <= *room_bytes).ok_or_else(|| {
            ReloadError::Sinks {
                sinks: kept + closing + new,
                closing,
                needed: units::quantity(needed(MIN_QUEUE_BATCHES.min(self.queue_batches)), "B"),
                views: match more_bytes {
                    0 => String::new(),
                    bytes => format!(" with {} of groups of more views (--groups)", units::quantity(bytes, "B")),
                },
                room: units::quantity(*room_bytes, "B"),
                limit: limit.clone(),
            }
            .into()
        })
    }
}

/// Lengths of a queue to try, longest first.
fn halves(queue_batches: usize) -> impl Iterator<Item = usize> {
    let shorter = |&batches: &usize| (batches >= 2 * MIN_QUEUE_BATCHES).then_some(batches / 2);
    std::iter::successors(Some(queue_batches), shorter)
}

fn queue_bytes(sinks: usize, queue_batches: usize) -> u64 {
    Exporter::memory_bytes_for(sinks, queue_batches) as u64
}

impl MemoryUse {
    /// Everything but flow caches and the queues of sinks; with the groups of views.
    fn reserve_bytes(&self) -> u64 {
        let capture_bytes = usize::from(self.reads_captures) * CAPTURE_BYTES;
        let reading_bytes = self.reading_threads * READING_THREAD_BYTES;
        (PROCESS_BYTES + self.meters * METER_BYTES + capture_bytes + reading_bytes) as u64
            + self.views.bytes
            + self.views.store_bytes
            + self.enrichment_bytes
    }

    fn cache_bytes(&self, config: Config) -> u64 {
        self.meters as u64 * Meter::memory_bytes_for(&config) as u64
    }

    /// Compares the flow caches with the free memory. Call it when the sources are open. If memory is
    /// limited, queues of live sinks are shorter than usual, and a default cache that does not fit
    /// gets half of its slots, repeatedly.
    ///
    /// # Errors
    /// [`FlowCacheTooLarge`] if the requested caches do not fit, or not even small ones.
    pub fn fit(&self, config: &mut Config, is_requested: bool) -> Result<SinkMemory, Error> {
        let queue_batches = Exporter::queue_batches(self.back_pressure);
        let usual = SinkMemory { queue_batches, views: self.views, room: None };
        bounds()
            .into_iter()
            .min_by_key(|bound| bound.free_bytes)
            .map_or(Ok(usual), |bound| self.fit_into(&bound, config, is_requested))
    }

    fn fit_into(&self, bound: &MemoryBound, config: &mut Config, is_requested: bool) -> Result<SinkMemory, Error> {
        let usual = Exporter::queue_batches(self.back_pressure);
        let queue_batches = halves(usual)
            .find(|&batches| queue_bytes(self.sinks, batches) <= bound.free_bytes / QUEUE_SHARE)
            .unwrap_or(usual.min(MIN_QUEUE_BATCHES));
        let queue_bytes = queue_bytes(self.sinks, queue_batches);
        let reserve_bytes = self.reserve_bytes() + queue_bytes;
        let room_bytes = bound.free_bytes.saturating_sub(reserve_bytes);
        let cache_bytes = |flows| self.cache_bytes(Config { flows, ..*config });
        let fits = |&flows: &u32| cache_bytes(flows) <= room_bytes;
        let smaller = || {
            let halves = std::iter::successors(Some(config.flows / 2), |flows| Some(flows / 2));
            halves.take_while(|&flows| flows >= MIN_FLOWS).find(fits)
        };
        let fitting = Some(config.flows).filter(fits).or_else(|| if is_requested { None } else { smaller() });
        let Some(flows) = fitting else {
            let flows = if is_requested { config.flows } else { MIN_FLOWS };
            // The groups that the rest leaves room for.
            let views = self.views;
            let others_bytes = reserve_bytes - views.bytes + cache_bytes(flows);
            let room_bytes_of_views = bound.free_bytes.saturating_sub(others_bytes);
            let groups = u128::from(room_bytes_of_views) * views.groups as u128 / u128::from(views.bytes.max(1));
            let raise = if queue_bytes > bound.free_bytes / 2 {
                "name fewer sinks, or raise the limit".into()
            } else if groups >= 1000 {
                // Two per cent less: the free memory of the next run is not exactly that of this one.
                format!("--groups {} fits, or raise the limit", groups * 98 / 100 / 1000 * 1000)
            } else {
                "raise the limit".into()
            };
            return Err(Box::new(FlowCacheTooLarge {
                size: size_text(flows, is_requested),
                caches: if self.meters == 1 {
                    "the flow cache".into()
                } else {
                    format!("the {} flow caches", self.meters)
                },
                needed: units::quantity(cache_bytes(flows), "B"),
                reserve: units::quantity(reserve_bytes, "B"),
                queues: units::quantity(queue_bytes, "B"),
                views: match views {
                    ViewMemory { bytes: 0, .. } => String::new(),
                    ViewMemory { groups, bytes, .. } => {
                        format!(" and {groups} groups of views {} (--groups)", units::quantity(bytes, "B"))
                    }
                },
                free: units::quantity(bound.free_bytes, "B"),
                limit: bound_text(bound),
                advice: smaller().map_or_else(|| raise.clone(), |flows| format!("--flows {flows} fits, or {raise}")),
            })
            .into());
        };
        let left_bytes = bound.free_bytes.saturating_sub(self.reserve_bytes() + cache_bytes(flows));
        let default = std::mem::replace(&mut config.flows, flows);
        // The trials of --autotune have no sinks, and log nothing.
        if flows < default && self.sinks > 0 {
            let (free, limit) = (units::quantity(bound.free_bytes, "B"), bound_text(bound));
            info!(flows, default, free, limit, "memory is limited, so the flow cache has fewer slots than by default");
        }
        Ok(SinkMemory { queue_batches, views: self.views, room: Some((left_bytes, bound_text(bound))) })
    }
}

/// What chose this number of flows, for messages.
pub fn size_text(flows: u32, is_requested: bool) -> String {
    if is_requested {
        format!("--flows {flows}")
    } else if flows == Config::default().flows {
        format!("the default of {flows} flows")
    } else {
        format!("the default, reduced to {flows} flows")
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
    /// [`ProbeError::LockMemory`] if it is more than the limit of locked memory.
    pub fn lock(self) -> Result<(), Error> {
        let _ = self.request.send(());
        self.thread.join().expect("the thread makes one system call").map_err(|error| {
            let limit = getrlimit(Resource::Memlock).current;
            let limit = limit.map_or_else(|| "none".into(), |bytes| units::quantity(bytes, "B"));
            ProbeError::LockMemory { limit, error: error.into() }.into()
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
        fitted_with_sinks(1, meters, flows, is_requested, free_bytes).map(|(flows, _)| flows)
    }

    fn fitted_with_sinks(
        sinks: usize,
        meters: usize,
        flows: u32,
        is_requested: bool,
        free_bytes: u64,
    ) -> Result<(u32, SinkMemory), String> {
        fitted_with_views(ViewMemory::default(), sinks, meters, flows, is_requested, free_bytes)
    }

    fn fitted_with_views(
        views: ViewMemory,
        sinks: usize,
        meters: usize,
        flows: u32,
        is_requested: bool,
        free_bytes: u64,
    ) -> Result<(u32, SinkMemory), String> {
        let back_pressure = BackPressure::Drop;
        let memory = MemoryUse {
            meters,
            reads_captures: false,
            reading_threads: 0,
            sinks,
            back_pressure,
            views,
            enrichment_bytes: 0,
        };
        let kind = MemoryBoundKind::ControlGroup("/x/memory.max".into());
        let bound = MemoryBound { kind, limit_bytes: 2 * free_bytes, free_bytes };
        let mut config = Config { flows, ..Config::default() };
        let sink_memory = memory.fit_into(&bound, &mut config, is_requested).map_err(|error| error.to_string())?;
        let queues = queue_bytes(sinks, sink_memory.queue_batches);
        assert!(memory.cache_bytes(config) + memory.reserve_bytes() + queues <= free_bytes);
        Ok((config.flows, sink_memory))
    }

    #[test]
    fn queues_of_sinks_are_shorter_where_memory_is_limited_and_leave_it_to_flows() {
        let batches = |sinks, free_bytes| {
            fitted_with_sinks(sinks, 1, 1 << 20, false, free_bytes).map(|(flows, memory)| (flows, memory.queue_batches))
        };
        assert_eq!(batches(2, 16 * GIB), Ok((1 << 20, 512)));
        for (sinks, free_bytes, least) in
            [(2, 390_000_000, 1 << 16), (3, 390_000_000, 1 << 16), (2, 190_000_000, 1 << 14)]
        {
            let (flows, batches) = batches(sinks, free_bytes).unwrap();
            assert!(flows >= least && (MIN_QUEUE_BATCHES..512).contains(&batches), "{sinks}: {flows} {batches}");
        }
        let error = batches(300, 390_000_000).unwrap_err();
        for part in ["the default, reduced to 4096 flows: ", "; name fewer sinks, or raise the limit"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn groups_of_views_take_memory_of_the_flow_cache_or_are_refused() {
        let fitted = |groups, free_bytes| {
            let views = ViewMemory { groups, bytes: groups as u64 * 200, store_bytes: 0 };
            fitted_with_views(views, 1, 1, 1 << 20, false, free_bytes).map(|(flows, _)| flows)
        };
        assert_eq!(fitted(1_000_000, 16 * GIB), Ok(1 << 20));
        let [few, many] = [1000, 2_000_000].map(|groups| fitted(groups, GIB).unwrap());
        assert!(many < few, "{many} {few}");
        let error = fitted(100_000_000, GIB).unwrap_err();
        assert!(error.contains(" and 100000000 groups of views 20.0 GB (--groups); these do not fit"), "{error}");
        let advice = error.rsplit("; ").next().unwrap();
        let groups = advice.strip_prefix("--groups ").and_then(|text| text.strip_suffix(" fits, or raise the limit"));
        assert!(fitted(groups.unwrap().parse().unwrap(), GIB).is_ok(), "{error}");
        let defaults = [16 * GIB, GIB, GIB / 16, 0].map(|free_bytes| default_groups_in(free_bytes, 200));
        assert_eq!(defaults, [1_000_000, 1_000_000, 83_886, 1000]);
    }

    #[test]
    fn new_sinks_get_shorter_queues_or_are_refused() {
        let (_, memory) = fitted_with_sinks(1, 1, 1 << 16, true, 390_000_000).unwrap();
        let of_new = |kept, closing, new| memory.queue_batches_of_new(kept, closing, new, 0);
        assert_eq!(of_new(1, 0, 0).ok(), Some(memory.queue_batches));
        assert_eq!(of_new(0, 0, 1).ok(), Some(memory.queue_batches));
        assert!(of_new(0, 0, 4).unwrap() < memory.queue_batches);
        // Another sink in the place of one.
        let [without, with] = [0, 1].map(|closing| of_new(0, closing, 2).unwrap());
        assert!(with < without, "{with} {without}");
        let error = of_new(1, 9, 290).unwrap_err().to_string();
        assert!(error.starts_with("the queues of 300 sinks (9 are being closed) can grow to "), "{error}");
        let unlimited = SinkMemory { queue_batches: 8, ..SinkMemory::default() };
        assert_eq!(unlimited.queue_batches_of_new(0, 0, 1000, u64::MAX).ok(), Some(8));
        // A new view.
        assert_eq!(memory.queue_batches_of_new(1, 0, 1, 1000).ok(), of_new(1, 0, 1).ok());
        let error = memory.queue_batches_of_new(1, 0, 1, GIB).unwrap_err().to_string();
        assert!(error.contains(" with 1.07 GB of groups of more views (--groups), and "), "{error}");
    }

    #[test]
    fn default_caches_shrink_to_the_free_memory_and_requested_ones_are_refused() {
        assert_eq!(fitted(1, 1 << 20, false, 16 * GIB), Ok(1 << 20));
        assert_eq!(fitted(1, 1 << 20, true, 16 * GIB), Ok(1 << 20));
        let [one, four] = [1, 4].map(|meters| fitted(meters, 1 << 20, false, GIB).unwrap());
        assert!(four < one && one < 1 << 20, "{one} {four}");
        let error = fitted(4, 1 << 20, true, GIB).unwrap_err();
        for part in ["--flows 1048576: the 4 flow caches", "/x/memory.max is 2.15 GB", &format!("--flows {four} fits")]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = fitted(1, 1 << 20, false, GIB / 16).unwrap_err();
        assert!(error.ends_with("; raise the limit"), "{error}");
    }
}
