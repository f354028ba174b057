//! When flows and records expire (`docs/metering.md` section 5).

use crate::clock::Clock;
use crate::slot::{FlowKeyState, SlotFlags};

/// A closed TCP connection stays this long for its last acknowledgments and retransmissions.
const CLOSING_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub idle_ns: u64,
    pub active_ns: u64,
}

impl Timeouts {
    /// Whether a flow is over: no packet came for its idle timeout.
    pub fn is_idle(self, state: &FlowKeyState, clock: &Clock) -> bool {
        clock.since(state.idle_since_ns) >= self.idle_timeout_ns(state.flags())
    }

    /// Whether a record has reached the active timeout, and reached it before the idle timeout.
    pub fn active_timeout_reached(self, state: &FlowKeyState, clock: &Clock) -> bool {
        let idle_after_ns = state.idle_since_ns.saturating_sub(state.record_began_ns).saturating_add(self.idle_ns);
        state.flags().has_unfinished_record()
            && clock.since(state.record_began_ns) >= self.active_ns
            && self.active_ns < idle_after_ns
    }

    /// Clock time before which neither the flow nor its record expires.
    pub fn deadline_ns(self, state: &FlowKeyState) -> u64 {
        let idle_deadline_ns = state.idle_since_ns.saturating_add(self.idle_timeout_ns(state.flags()));
        if state.flags().has_unfinished_record() {
            idle_deadline_ns.min(state.record_began_ns.saturating_add(self.active_ns))
        } else {
            idle_deadline_ns
        }
    }

    fn idle_timeout_ns(self, flags: SlotFlags) -> u64 {
        if flags.has(SlotFlags::CLOSING) { self.idle_ns.min(CLOSING_NS) } else { self.idle_ns }
    }
}
