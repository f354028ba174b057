//! A pipeline that runs to completion on one thread: capture, decode and meter.
//!
//! ```text
//! source -> frames -> ReadingStage -> packets -> MeteringStage -> flow records -> ExportHandle -> sinks
//! ```
//! This is the hot path of the whole program. Per packet it counts, decodes and updates a flow; it
//! allocates nothing, takes no lock and makes no system call. Records leave it in batches.

use crate::account::Account;
use crate::exporter::export_handle::ExportHandle;
use crate::flow_search::Searches;
use crate::loss_channel::LossHistories;
use crate::loss_history::LossSnapshot;
use crate::metering_stage::MeteringStage;
use crate::packet_actions::PacketActions;
use crate::reading_stage::{BurstPayloads, PacketBurst, ReadingStage};
use crate::settings::Settings;
use std::io;
use weir_capture::{FilterError, Input, LiveSource, MAX_BURST_FRAMES, Source};
use weir_flow::NoFollower;
use weir_packet::Packet;

/// A pipeline for one source, or for several sources one after another.
pub struct Pipeline {
    reader: ReadingStage,
    packets: PacketBurst,
    pub(crate) metering: MeteringStage,
    actions: Option<PacketActions>,
    searches: Option<Searches>,
}

impl Pipeline {
    /// Allocates the memory of the meter. With `actions`, hands packets on by rules.
    ///
    /// # Errors
    /// The system has too little memory.
    pub fn new(mut settings: Settings, handle: ExportHandle, mut actions: Option<PacketActions>) -> io::Result<Self> {
        if let Some(actions) = &mut actions {
            settings.meter.marks = true;
            actions.start(settings.enricher.clone(), settings.decode);
        }
        Ok(Self {
            metering: MeteringStage::new(&settings, handle, LossHistories::same_thread())?,
            packets: Box::new([Packet::default(); MAX_BURST_FRAMES]),
            reader: ReadingStage::new(&settings),
            actions,
            searches: None,
        })
    }

    /// Lets another thread search among the flows.
    #[must_use]
    pub fn with_searches(self, searches: Option<Searches>) -> Self {
        Self { searches, ..self }
    }

    /// Reads and meters one burst. Returns `Ok(false)` at the end of the source.
    ///
    /// # Errors
    /// The source is damaged at this place. The next call continues behind the damage, see
    /// [`weir_capture::Source::fill`].
    pub fn process_burst(&mut self, source: &mut Input<'_>) -> Result<bool, weir_capture::Error> {
        if source.live().is_some() && self.reader.losses.update_is_due() {
            self.update_losses(source);
        }
        let (metering, actions) = (&mut self.metering, &mut self.actions);
        let meter = |packets: &[Packet], payloads: &BurstPayloads<'_>| match actions {
            None => metering.process_with(packets, payloads, &mut NoFollower),
            Some(actions) => {
                actions.inspects = metering.inspects();
                let BurstPayloads { burst, frame_of, self_traffic, .. } = *payloads;
                metering.process_with(packets, payloads, &mut actions.follow(burst, frame_of, self_traffic));
                actions.dispatch(burst, packets, frame_of);
            }
        };
        let Some((_, burst_was_short)) = self.reader.read(source, &mut self.packets, meter)? else {
            self.update_losses(source);
            return Ok(false);
        };
        if self.actions.as_ref().is_some_and(|actions| actions.outputs.interfaces.has_new()) {
            self.describe_interfaces(source);
        }
        if burst_was_short {
            let actions = &mut self.actions;
            self.metering.process_idle(|| {
                let now_ns = source.live().map(|live| live.now_ns());
                if let (Some(actions), Some(now_ns)) = (actions, now_ns) {
                    actions.advance_time(now_ns);
                }
                now_ns
            });
        }
        if self.searches.as_mut().is_some_and(Searches::begin) {
            let packets = self.account().ledger.packets;
            self.searches.iter().for_each(|of| of.note_packets([packets.received, packets.dropped()]));
            self.metering.set_overdue();
        }
        let (reader, actions) = (&mut self.reader, &mut self.actions);
        self.metering.export_when_due(|histories, _, _| {
            if let Some(live) = source.live() {
                histories.add(update_losses_of(live, reader, actions));
            }
        });
        if let Some(searches) = &mut self.searches {
            searches.advance(&mut self.metering);
        }
        Ok(true)
    }

    /// Counts what a live source has lost so far.
    pub fn update_losses(&mut self, source: &mut Input<'_>) {
        if let Some(live) = source.live() {
            self.metering.add_snapshot(update_losses_of(live, &mut self.reader, &mut self.actions));
            self.describe_interfaces(source);
        }
    }

    /// Tells outputs about the interfaces of the packets, and what a live source has lost.
    fn describe_interfaces(&mut self, source: &mut Input<'_>) {
        let Some(actions) = &mut self.actions else { return };
        let received = source.live().map(|_| self.reader.received_packets());
        actions.outputs.describe_interfaces(&source.interfaces(), received);
    }

    /// Applies settings that may change while the pipeline runs: timeouts, also of existing flows,
    /// the packet filter and the self-traffic filter.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.reader.reconfigure(settings);
        self.metering.reconfigure(settings);
        if let (Some(actions), Some(rules)) = (&mut self.actions, &settings.rules) {
            actions.reconfigure(rules);
        }
    }

    /// Link types that the filter cannot be applied to; each is returned once.
    pub fn take_filter_errors(&mut self) -> Vec<FilterError> {
        self.reader.take_filter_errors()
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        let mut account = Account::combined(&self.reader.ledger, self.metering.account());
        account.ledger.actions = self.actions.as_ref().map(PacketActions::account);
        account
    }

    /// Ends every flow, exports the last records and returns the final account.
    pub fn finish(&mut self) -> Account {
        let mut account = Account::combined(&self.reader.ledger, self.metering.finish());
        account.ledger.actions = self.actions.as_mut().map(PacketActions::finish);
        account
    }

    /// The same after a panic.
    pub(crate) fn finish_after_panic(&mut self) -> Account {
        let mut account = Account::combined_after_panic(&self.reader.ledger, self.metering.finish_after_panic());
        account.ledger.actions = self.actions.as_ref().map(PacketActions::account);
        account
    }
}

/// Counts what a live source has lost. Outputs get the present offset of its clock.
fn update_losses_of(
    live: &mut dyn LiveSource,
    reader: &mut ReadingStage,
    actions: &mut Option<PacketActions>,
) -> LossSnapshot {
    let snapshot = reader.update_losses(live, false);
    if let Some(actions) = actions {
        actions.outputs.clock_offset_ns = snapshot.clock.offset_ns;
    }
    snapshot
}
