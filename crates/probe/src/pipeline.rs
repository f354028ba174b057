//! One pipeline: capture, decode, meter, export, run to completion on one thread.

use weir_capture::Source;
use weir_export::Sink;
use weir_ledger::Ledger;

/// What one pipeline is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The meter's part.
    pub meter: weir_flow::Config,
    /// The decoder's part.
    pub decode: weir_packet::Options,
    /// Meter frames without IP as flows of MAC addresses.
    pub layer2: bool,
}

/// One pipeline. Feed it sources one after another, then finish it.
pub struct Pipeline {
    ledger: Ledger,
}

impl Pipeline {
    /// Takes the meter's memory.
    pub fn new(_settings: Settings, _sinks: Vec<Box<dyn Sink>>) -> Self {
        Self { ledger: Ledger::default() }
    }

    /// Takes one burst from the source through the house. `Ok(false)` at the end of the source.
    ///
    /// # Errors
    /// The source is damaged at this place (call again to go on behind it), see [`weir_capture::Source::burst`].
    pub fn step(&mut self, _source: &mut dyn Source) -> Result<bool, weir_capture::Error> {
        Ok(false)
    }

    /// Whether every sink has ended early, so that going on makes no sense (a closed pipe).
    pub fn abandoned(&self) -> bool {
        false
    }

    /// Errors with which sinks ended, each told once.
    pub fn sink_errors(&mut self) -> Vec<weir_export::Error> {
        Vec::new()
    }

    /// The account so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// Ends every flow, finishes every sink and gives the final account.
    pub fn finish(self) -> (Ledger, Vec<weir_export::Error>) {
        (self.ledger, Vec::new())
    }
}
