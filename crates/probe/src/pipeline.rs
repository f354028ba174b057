//! One pipeline on one thread, run to completion: capture, decode and meter; records leave for the exporter's.
//!
//! ```text
//! source -> burst of frames -> Reader -> burst of packets -> Metering -> batches of records -> exporter
//! ```
//! This is the hot path of the whole program. Per packet it counts, decodes and enters; it allocates
//! nothing, takes no lock and makes no system call. Records leave it in batches.

use crate::account::Account;
use crate::exporter::ExportHandle;
use crate::looks::Histories;
use crate::metering::Metering;
use crate::reader::{Packets, Reader};
use crate::settings::Settings;
use std::io;
use weir_capture::{BURST, FilterError, Input};
use weir_packet::Packet;

/// One pipeline. Feed it a source (or sources one after another), then finish it.
pub struct Pipeline {
    reader: Reader,
    packets: Packets,
    metering: Metering,
}

impl Pipeline {
    /// Takes the meter's memory.
    ///
    /// # Errors
    /// The system has not that much.
    pub fn new(settings: Settings, handle: ExportHandle) -> io::Result<Self> {
        Ok(Self {
            metering: Metering::new(&settings, handle, Histories::here())?,
            packets: Box::new([Packet::default(); BURST]),
            reader: Reader::new(&settings),
        })
    }

    /// Takes one burst from the source through the house. `Ok(false)` at the end of the source.
    ///
    /// # Errors
    /// The source is damaged at this place (call again to go on behind it), see [`weir_capture::Source::fill`].
    pub fn process_burst(&mut self, source: &mut Input<'_>) -> Result<bool, weir_capture::Error> {
        if let Some(live) = source.live()
            && self.reader.is_time_to_look()
        {
            self.metering.note(self.reader.look(live, false));
        }
        let Some((packets, waits)) = self.reader.read(source, &mut self.packets)? else {
            self.record_losses(source);
            return Ok(false);
        };
        self.metering.absorb(&self.packets[..packets]);
        if waits {
            self.metering.wait(|| source.live().map(|live| live.now_ns()));
        }
        let reader = &mut self.reader;
        self.metering.export_when_due(|histories, _, _| {
            source.live().into_iter().for_each(|live| histories.note(reader.look(live, false)))
        });
        Ok(true)
    }

    /// Asks a live source what it lost.
    pub fn record_losses(&mut self, source: &mut Input<'_>) {
        if let Some(live) = source.live() {
            self.metering.note(self.reader.look(live, false));
        }
    }

    /// Takes over what can change while it runs: timeouts, also of flows that there are; the filter; what is our own.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.reader.change(settings);
        self.metering.change(settings);
    }

    /// Link types for which the filter means nothing, each told once.
    pub fn take_filter_errors(&mut self) -> Vec<FilterError> {
        self.reader.filter_errors()
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        Account::of(&self.reader.ledger, self.metering.account())
    }

    /// Ends every flow, hands over the last records, and gives the final account.
    pub fn finish(self) -> Account {
        Account::of(&self.reader.ledger, self.metering.finish())
    }
}
