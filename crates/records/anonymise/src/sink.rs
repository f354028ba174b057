//! A sink that anonymises records before another sink gets them.

use crate::anonymiser::Anonymiser;
use std::net::SocketAddr;
use std::time::Instant;
use weir_export::{Error, MeteringStatus, Sink, Watch};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Passes anonymised records to another sink, which never sees others. It runs on the thread of that sink.
pub struct AnonymisingSink {
    sink: Box<dyn Sink + Send>,
    anonymiser: Anonymiser,
    /// The records of a batch.
    anonymised: Vec<FlowRecord>,
}

impl AnonymisingSink {
    /// In front of this sink.
    pub fn new(sink: Box<dyn Sink + Send>, anonymiser: Anonymiser) -> Self {
        Self { sink, anonymiser, anonymised: Vec::new() }
    }
}

impl Sink for AnonymisingSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        self.anonymised.clear();
        self.anonymised.extend_from_slice(flows);
        self.anonymised.iter_mut().for_each(|record| self.anonymiser.anonymise(record));
        self.sink.write(&self.anonymised)
    }

    fn connect(&mut self) -> bool {
        self.sink.connect()
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        self.sink.set_metering_status(status);
    }

    fn tick(&mut self) {
        self.sink.tick();
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.sink.wakes_at()
    }

    fn reopen(&mut self) {
        self.sink.reopen();
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        self.sink.drain(flows, until);
    }

    fn watch(&mut self, watch: &Watch) {
        self.sink.watch(watch);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.sink.finish()
    }

    fn counters(&self) -> &SinkCounters {
        self.sink.counters()
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.sink.udp_endpoints()
    }
}
