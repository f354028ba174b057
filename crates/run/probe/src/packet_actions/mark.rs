//! The mark of a flow: 64 bits that the meter keeps for the actions.

/// What the rules have decided about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowState {
    Undecided,
    /// Its packets wait for the application.
    Held,
    /// The number of the decision.
    Decided(u16),
}

/// State of the flow (16 bits), version of the rules that it is of (16 bits), and packets of the flow so
/// far (32 bits). A mark of 0 is that of a new flow.
#[derive(Clone, Copy)]
pub(super) struct Mark(pub u64);

impl Mark {
    const UNDECIDED: u16 = 0;
    const FIRST_DECISION: u16 = 1;
    const HELD: u16 = u16::MAX;
    /// Decisions with higher numbers have no state.
    pub const MAX_DECISION: usize = (Self::HELD - Self::FIRST_DECISION - 1) as usize;

    #[inline]
    pub fn new(state: FlowState, version: u16, packets: u32) -> Self {
        let state = match state {
            FlowState::Undecided => Self::UNDECIDED,
            FlowState::Held => Self::HELD,
            FlowState::Decided(decision) => decision + Self::FIRST_DECISION,
        };
        Self(u64::from(state) | u64::from(version) << 16 | u64::from(packets) << 32)
    }

    #[inline]
    pub fn state(self) -> FlowState {
        match self.0 as u16 {
            Self::UNDECIDED => FlowState::Undecided,
            Self::HELD => FlowState::Held,
            state => FlowState::Decided(state - Self::FIRST_DECISION),
        }
    }

    pub fn version(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub fn packets(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The same with another number of packets.
    pub fn with_packets(self, packets: u32) -> Self {
        Self(self.0 & u64::from(u32::MAX) | u64::from(packets) << 32)
    }

    /// The decision, if it was made by this version of the rules.
    #[inline]
    pub fn decision(self, version: u16) -> Option<u16> {
        match self.state() {
            FlowState::Decided(decision) if self.version() == version => Some(decision),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_what_it_was_made_of() {
        assert_eq!((Mark(0).state(), Mark(0).packets()), (FlowState::Undecided, 0));
        let last = FlowState::Decided(Mark::MAX_DECISION as u16);
        for state in [FlowState::Undecided, FlowState::Held, FlowState::Decided(0), last] {
            let mark = Mark::new(state, 7, 1).with_packets(u32::MAX);
            assert_eq!((mark.state(), mark.version(), mark.packets()), (state, 7, u32::MAX));
            assert_eq!(mark.decision(7).is_some(), matches!(state, FlowState::Decided(_)));
            assert_eq!(mark.decision(8), None);
        }
    }
}
