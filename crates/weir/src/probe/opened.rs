//! The second state of a probe: everything is open, and the process has only the privileges that it
//! needs to meter. Only `--autotune` has read packets so far.

use super::configured::Configured;
use super::control::{self, Bound};
use super::reload::Effective;
use super::service::Watchdog;
use super::start::{self, OpenGroups};
use super::{autotune, check, privileges};
use crate::actions::Actions;
use crate::anonymisation;
use crate::arguments::{ProbeOptions, StatusFormat};
use crate::capabilities;
use crate::console::{log, stderr};
use crate::enrichment::Enricher;
use crate::error::Error;
use crate::memory::{MemoryLock, SinkMemory};
use crate::missing_options;
use crate::outputs::{OpenOutputs, Outputs};
use crate::sandbox::{Restrictions, Sandbox};
use crate::signals::{StopSignal, signal_flag};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tracing::info;
use weir_capture::PacketFilter;
use weir_export::FileMode;
use weir_probe::{Overrides, Settings};

/// A probe that can start.
pub struct Opened {
    pub options: ProbeOptions,
    pub settings: Settings,
    pub outputs: Outputs,
    pub open: OpenOutputs,
    pub groups: OpenGroups,
    pub enricher: Option<Enricher>,
    pub actions: Option<Actions>,
    pub overrides: Option<Overrides>,
    /// The HTTP interface.
    pub bound: Option<Bound>,
    pub effective: Effective,
    pub stop_signal: StopSignal,
    pub signals: Signals,
    pub watchdog: Option<Watchdog>,
    pub memory_lock: Option<MemoryLock>,
}

/// Flags that signals set.
pub struct Signals {
    pub stop: Arc<AtomicBool>,
    /// A second signal to stop has come.
    pub second_stop: Arc<AtomicBool>,
    pub reload: Arc<AtomicBool>,
    pub totals: Arc<AtomicBool>,
}

impl Opened {
    /// Opens sources and outputs, drops privileges, and enters the sandbox.
    ///
    /// # Errors
    /// Something cannot be opened.
    pub fn open(configured: Configured) -> Result<Self, Error> {
        let Configured { arguments, merged, text, options, settings, mut outputs } = configured;
        outputs.anonymiser = anonymisation::load(&options.sinks)?;
        if options.metering.inspects() && !options.inspects() {
            info!("applications are not recognised: only --layout fused inspects payload");
        }
        let enricher = Enricher::load(&options.enrichment)?;
        if options.status == StatusFormat::Json {
            log::use_json_events(!options.reporting.quiet);
        }
        capabilities::raise_permitted();
        let stop_signal = StopSignal::register_without_hangup()?;
        let stop = stop_signal.flag();
        stderr::use_queue(log::lost_lines);
        let reload = signal_flag(signal_hook::consts::SIGHUP)?;
        let totals = signal_flag(signal_hook::consts::SIGUSR1)?;
        let mut effective = Effective {
            arguments,
            started_with: merged,
            text,
            options: options.clone(),
            anonymiser: outputs.anonymiser.clone(),
            sandbox: None,
            sink_memory: SinkMemory::default(),
        };
        let options = match options.autotune_ns {
            Some(_) => autotune::tune(&options, &settings, &stop)?,
            None => options,
        };
        let bound = control::bind(&options)?;
        let mut groups = start::open_worker_groups(&options, &stop)?;
        let mut actions = options.rules.as_deref().map(Actions::load).transpose()?;
        let overrides = actions.as_mut().filter(|_| bound.is_some()).map(Actions::permit_overrides);
        if let (Some(actions), Some(enricher)) = (&actions, &enricher) {
            missing_options::check_tags(&actions.rules, &options.metering, &enricher.current())?;
        }
        if let Some(actions) = &actions {
            actions.prepare_folders(&options.user, outputs.owner)?;
            groups.add_actions(actions, &options)?;
        }
        let mut sinks = outputs.sinks.iter().chain(&outputs.transactions);
        sinks.try_for_each(|sink| check::check_rotated(sink, &options, &outputs))?;
        let open = outputs.open(&options.sinks, settings.meter.key, FileMode::Append, &stop)?;
        let watchdog = Watchdog::from_environment(settings.timing.thread_stuck);
        privileges::raise_priority();
        let memory_lock = options.lock_memory.then(MemoryLock::prepare).transpose()?;
        privileges::drop_to(&options.user)?;
        groups.placement.log();
        let signals = Signals { stop, second_stop: Arc::default(), reload, totals };
        effective.sandbox = (!options.hardening.no_sandbox)
            .then(|| Arc::new(enter_sandbox(&options, &outputs, actions.as_ref(), enricher.as_ref(), bound.is_some())));
        enricher.iter().for_each(Enricher::check_readable);
        Ok(Self {
            options,
            settings,
            outputs,
            open,
            groups,
            enricher,
            actions,
            overrides,
            bound,
            effective,
            stop_signal,
            signals,
            watchdog,
            memory_lock,
        })
    }
}

fn enter_sandbox(
    options: &ProbeOptions,
    outputs: &Outputs,
    actions: Option<&Actions>,
    enricher: Option<&Enricher>,
    serves: bool,
) -> Sandbox {
    if options.config.is_some() {
        // A reload may name the first filter. The sandbox forbids to load libpcap then.
        let _ = PacketFilter::new("ip");
    }
    let pipes: Vec<PathBuf> = actions.into_iter().flat_map(Actions::writable_paths).collect();
    let restrictions = Restrictions::of(&options.inputs, actions.is_some_and(Actions::use_dpdk), serves);
    let tables = enricher.into_iter().flat_map(Enricher::paths);
    let files = options.config.as_deref().into_iter().chain(options.rules.as_deref());
    let read_again: Vec<&Path> = files.chain(tables).collect();
    Sandbox::of_service(&outputs.sink_targets(), &pipes, &read_again, restrictions)
}
