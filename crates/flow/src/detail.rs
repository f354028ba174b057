//! Which parts of metering a meter may leave out under overload.

/// What a meter does beyond counting packets in records. Whatever is off, every packet is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// TCP analysis. A record with a TCP packet that was not analysed is
    /// [`crate::Approximate::UNANALYSED`] and has no TCP fields but its control bits.
    pub tcp_analysis: bool,
    /// Records for small new flows. If false, the first 8 packets of a new flow are added to
    /// overflow records by prefix and port ([`crate::Approximate::AGGREGATED`]); flows that have a
    /// record keep it.
    pub small_flows: bool,
}

impl Detail {
    /// Everything.
    pub const ALL: Self = Self { tcp_analysis: true, small_flows: true };
}
