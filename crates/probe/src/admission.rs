//! Which frames are admitted to decoding: sampling, then the packet filter. The counters of what is
//! left out go into the ledger. The self-traffic filter needs decoded headers; the reader applies
//! it.

use crate::sampler::Sampler;
use weir_capture::{Burst, FilterError, Frame, PacketFilter};
use weir_ledger::{Ledger, TrafficCounters};

/// Sampling and packet filter of one reader.
pub(crate) struct Admission {
    /// `None` if every packet is metered.
    sampler: Option<Sampler>,
    filter: Option<PacketFilter>,
}

impl Admission {
    /// Admits all frames that match a filter; `None` is no filter.
    pub fn new(filter: Option<PacketFilter>) -> Self {
        Self { sampler: None, filter }
    }

    /// Samples one packet in `population` from the next burst on; 1 admits all.
    pub fn set_sampling(&mut self, population: u32) {
        self.sampler = (population > 1).then(|| Sampler::new(population));
    }

    pub fn set_filter(&mut self, filter: &Option<PacketFilter>) {
        self.filter.clone_from(filter);
    }

    /// Link types that the filter cannot be applied to; each is returned once.
    pub fn take_filter_errors(&mut self) -> Vec<FilterError> {
        self.filter.as_mut().map_or_else(Vec::new, PacketFilter::take_errors)
    }

    /// Removes the frames of a burst that are not admitted, and counts them.
    #[inline]
    pub fn admit(&mut self, burst: &mut Burst<'_>, ledger: &mut Ledger) {
        if let Some(sampler) = &mut self.sampler {
            remove_unless(burst, ledger, |counters| &mut counters.sampled_out, |_| sampler.choose_next());
        }
        if let Some(filter) = &mut self.filter {
            remove_unless(burst, ledger, |counters| &mut counters.filtered, |frame| filter.matches(frame));
        }
    }
}

/// Removes frames and counts them as received and in `counter`.
#[inline]
fn remove_unless(
    burst: &mut Burst<'_>,
    ledger: &mut Ledger,
    counter: fn(&mut TrafficCounters) -> &mut u64,
    mut keep: impl FnMut(&Frame<'_>) -> bool,
) {
    let (frames, mut removed_bytes) = (burst.len(), 0);
    burst.retain(|frame| {
        let keeps = keep(frame);
        removed_bytes += if keeps { 0 } else { u64::from(frame.wire_bytes) };
        keeps
    });
    let removed_packets = (frames - burst.len()) as u64;
    for (counters, removed) in [(&mut ledger.packets, removed_packets), (&mut ledger.bytes, removed_bytes)] {
        counters.received += removed;
        *counter(counters) += removed;
    }
}
