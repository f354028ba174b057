//! Whether an interface can be sent through: it exists, and its packets do not return through a
//! source (a loop).
//!
//! Input: the sources of the run, what the kernel says about interfaces, and what sending has
//! returned. An output is checked at the start, and whenever its interface or that of a source may be
//! another one: when the output returns, and when frames of another interface come. Each pipeline
//! checks for itself, and each change of state is logged once, by the first pipeline that notices it.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use weir_capture::{Links, LiveSpec, SourceSpec};

/// What the log has about the interface of an output; the attachments of all pipelines share it.
#[derive(Default)]
pub(crate) struct Logged {
    /// How often it was removed.
    removals: AtomicU32,
    is_loop: AtomicBool,
    is_down: AtomicBool,
    /// It was removed, or is a loop, and has not come back.
    is_away: AtomicBool,
}

pub(crate) struct Attachment {
    output: String,
    interface: String,
    sources: Vec<LiveSpec>,
    /// Indexes of the interfaces that sources have monitored. One that is renamed is still monitored.
    monitored: Vec<(u32, LiveSpec)>,
    /// `None`: the kernel does not say how interfaces are linked.
    links: Option<Links>,
    /// When it was checked last; `None` while it can be used.
    looked: Option<Instant>,
    is_removed: bool,
    is_down: bool,
    /// How many removals of the interface this pipeline knows.
    removals: u32,
    logged: Arc<Logged>,
    /// Time between two checks of an interface that cannot be used.
    retry: Duration,
}

impl Attachment {
    /// `sources` are those of the run; all pipelines have the same `logged`.
    ///
    /// # Errors
    /// One of them monitors an interface that the packets leave through.
    pub fn new(
        output: &str,
        interface: &str,
        sources: &[SourceSpec],
        logged: &Arc<Logged>,
        retry: Duration,
    ) -> Result<Self, Error> {
        let sources: Vec<LiveSpec> = sources.iter().filter_map(SourceSpec::live).cloned().collect();
        let mut attachment = Self {
            output: output.into(),
            interface: interface.into(),
            links: if sources.is_empty() { None } else { Links::open().ok() },
            sources,
            monitored: Vec::new(),
            looked: None,
            is_removed: false,
            is_down: false,
            removals: 0,
            logged: logged.clone(),
            retry,
        };
        attachment.check_loop().map(|()| attachment)
    }

    fn check_loop(&mut self) -> Result<(), Error> {
        for source in &self.sources {
            for index in source.interface_indexes().into_iter().flatten() {
                if !self.monitored.iter().any(|(known, _)| *known == index) {
                    self.monitored.push((index, source.clone()));
                }
            }
        }
        let interfaces = self.links.as_mut().and_then(|links| links.outgoing_interfaces(&self.interface).ok());
        // If the kernel does not say more, the name of the interface itself is compared.
        let interfaces =
            interfaces.filter(|found| !found.is_empty()).unwrap_or_else(|| vec![(0, self.interface.clone())]);
        for (index, name) in interfaces {
            let by_index = self.monitored.iter().find(|(known, _)| *known == index).map(|(_, source)| source);
            let monitors = |source: &&LiveSpec| source.devices().iter().any(|device| device.name == name);
            if let Some(source) = by_index.or_else(|| self.sources.iter().find(monitors)) {
                let (output, source_name) = (self.output.clone(), source.to_string());
                return Err(Error::Loop { output, interface: name, source_name });
            }
        }
        Ok(())
    }

    /// Whether there is no loop. If there is one, packets are not sent from now on.
    fn has_no_loop(&mut self) -> bool {
        let checked = self.check_loop();
        let was_loop = self.logged.is_loop.swap(checked.is_err(), Relaxed);
        let Err(error) = checked else { return true };
        if !was_loop {
            warn!(output = self.output, "packets of an output are dropped: {error}");
            self.logged.is_away.store(true, Relaxed);
        }
        self.looked = Some(Instant::now());
        false
    }

    /// Whether frames can be sent. If not, checks now and then, and attaches the socket to the
    /// interface with `bind` if that was removed.
    pub fn is_usable(&mut self, bind: impl FnOnce() -> bool) -> bool {
        let Some(last) = self.looked else { return true };
        if last.elapsed() < self.retry {
            return false;
        }
        let is_usable = self.has_no_loop() && (!self.is_removed || bind());
        if is_usable {
            self.is_removed = false;
        }
        if is_usable && self.logged.is_away.swap(false, Relaxed) {
            info!(output = self.output, "the interface of an output is back");
        }
        self.looked = (!is_usable).then(Instant::now);
        is_usable
    }

    /// Frames have come from an interface with this index, after those of the burst were sent.
    pub fn note_source(&mut self, index: u32) {
        if !self.sources.is_empty() && !self.monitored.iter().any(|(known, _)| *known == index) {
            self.has_no_loop();
        }
    }

    /// The kernel has said that the interface does not exist.
    pub fn note_removed(&mut self) {
        // Another pipeline may have noticed it, and may have the next interface already.
        let (known, next) = (self.removals, self.removals + 1);
        match self.logged.removals.compare_exchange(known, next, Relaxed, Relaxed) {
            Ok(_) => {
                warn!(output = self.output, "the interface of an output was removed");
                self.logged.is_away.store(true, Relaxed);
                self.removals = next;
            }
            Err(noticed) => self.removals = noticed,
        }
        (self.is_removed, self.looked) = (true, Some(Instant::now()));
        self.is_down = false;
        self.logged.is_down.store(false, Relaxed);
    }

    /// Whether the kernel refuses frames because the interface is down.
    pub fn note_down(&mut self, is_down: bool) {
        if std::mem::replace(&mut self.is_down, is_down) == is_down
            || self.logged.is_down.swap(is_down, Relaxed) == is_down
        {
            return;
        }
        if is_down {
            warn!(output = self.output, "the interface of an output is down");
        } else {
            info!(output = self.output, "the interface of an output is up again");
        }
    }
}
