//! What is kept per flow: its state, the start of its streams, and packets that matched no reader.

use super::payload::Payload;
use bytemuck::Zeroable;

/// What the caller keeps per flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(C)]
pub struct FlowInspection {
    /// A [`FlowState`], packed. A fresh flow is 0.
    state: u32,
    /// Per endpoint: the sequence number after its SYN.
    expected: [u32; 2],
    /// 0: not known. Otherwise the endpoint that opened the connection, plus 1; and [`ANSWERED`],
    /// [`SEVERAL_SYNS`].
    client: u8,
    /// Endpoints whose payload is not inspected any more, a bit each; and [`COUNTED`].
    pub(super) silent: u8,
    /// Packets with payload that matched no reader. 0: none, or a session counts them.
    pub(super) unmatched: u16,
}

/// How far the inspection of a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowState {
    /// No payload was inspected, or it matched no reader so far.
    Fresh,
    /// Nothing was found, and nothing will be.
    Done,
    /// The limit of packets was reached, and there was no payload yet.
    Limited,
    /// The number of an entry, which has its session or its findings.
    Entry(u32),
}

impl FlowState {
    const FIRST_ENTRY: u32 = 3;

    #[inline]
    const fn pack(self) -> u32 {
        match self {
            Self::Fresh => 0,
            Self::Done => 1,
            Self::Limited => 2,
            Self::Entry(number) => number + Self::FIRST_ENTRY,
        }
    }

    #[inline]
    const fn unpack(packed: u32) -> Self {
        match packed {
            0 => Self::Fresh,
            1 => Self::Done,
            2 => Self::Limited,
            number => Self::Entry(number - Self::FIRST_ENTRY),
        }
    }
}

/// The SYN of the client was acknowledged.
const ANSWERED: u8 = 4;
/// The client sent SYNs that differ, and none was acknowledged yet.
const SEVERAL_SYNS: u8 = 8;
/// The messages of the flow are counted: payload is read until its end.
const COUNTED: u8 = 0x80;
/// Octets that a SYN carries at most (RFC 7413).
const MAX_SYN_OCTETS: u32 = 0xffff;
/// Both endpoints of a flow.
const BOTH: u8 = 3;
/// Datagrams after which inspection of a flow ends if none of them matched, or is of its protocol.
pub(super) const UNKNOWN_DATAGRAMS: u32 = 2;

impl FlowInspection {
    /// Notes the SYN of an endpoint; `answered`: it acknowledges what the other one has sent up to here.
    #[inline]
    pub fn note_syn(&mut self, endpoint: usize, sequence: u32, answered: Option<u32>) {
        let (endpoint, other) = (endpoint & 1, 1 - (endpoint & 1));
        // 0 stands for no SYN: one connection in 2^32 is taken as if its SYN had not been captured.
        let expected = sequence.wrapping_add(1);
        let known = self.expected(endpoint);
        match answered {
            Some(acknowledgment) => {
                // A SYN may have carried octets, and some programs acknowledge one octet less. Of several
                // SYNs, only the acknowledgment shows which one counts.
                let answers = |expected: u32| match self.client & SEVERAL_SYNS {
                    0 => acknowledgment.wrapping_add(1).wrapping_sub(expected) <= MAX_SYN_OCTETS,
                    _ => acknowledgment == expected,
                };
                if self.expected(other).is_some_and(|expected| !answers(expected)) {
                    self.expected[other] = acknowledgment;
                }
                self.expected[endpoint] = expected;
                self.client = (other as u8 + 1) | ANSWERED;
            }
            // The other end does not accept it in a connection (RFC 9293 section 3.10.7.4).
            None if self.client & ANSWERED != 0 && known.is_some() => {}
            None => {
                self.expected[endpoint] = expected;
                if self.client & ANSWERED == 0 {
                    let is_another = known.is_some_and(|known| known != expected);
                    let several = if is_another { SEVERAL_SYNS } else { self.client & SEVERAL_SYNS };
                    self.client = (endpoint as u8 + 1) | several;
                }
            }
        }
    }

    /// How far its inspection is.
    #[inline]
    pub(super) fn state(&self) -> FlowState {
        FlowState::unpack(self.state)
    }

    pub(super) fn set_state(&mut self, state: FlowState) {
        self.state = state.pack();
    }

    /// The endpoint that opened the connection, if that is known.
    pub(super) fn client(&self) -> Option<usize> {
        usize::from(self.client & !(ANSWERED | SEVERAL_SYNS)).checked_sub(1)
    }

    /// Whether nothing of the flow was inspected.
    pub fn is_fresh(&self) -> bool {
        self.state() == FlowState::Fresh
    }

    /// Whether the messages of the flow are counted, so that all payload is of use.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.silent & COUNTED != 0
    }

    pub(super) fn set_counted(&mut self) {
        self.silent |= COUNTED;
    }

    pub(super) fn expected(&self, endpoint: usize) -> Option<u32> {
        Some(self.expected[endpoint & 1]).filter(|expected| *expected != 0)
    }

    pub(super) fn is_silent(&self, endpoint: usize) -> bool {
        self.silent & 1 << (endpoint & 1) != 0
    }

    /// Notes that this number of packets with payload did not match, this one included.
    /// `both`: both sides of a connection sent some. Returns whether later packets may match.
    pub(super) fn note_no_match(&mut self, packets: u32, payload: &Payload<'_>, both: bool) -> bool {
        self.unmatched = packets.clamp(1, u16::MAX.into()) as u16;
        self.silent |= match payload.tcp {
            Some(_) if both => BOTH,
            Some(_) => 1 << (payload.endpoint & 1),
            None if packets >= UNKNOWN_DATAGRAMS => BOTH,
            None => 0,
        };
        self.needs_more(payload)
    }

    /// Whether packets after this one may match, of a flow whose packets so far did not match.
    pub(super) fn needs_more(&mut self, payload: &Payload<'_>) -> bool {
        let is_over = payload.is_last || self.silent & BOTH == BOTH;
        if is_over {
            self.unmatched = 0;
        }
        if !matches!(self.state(), FlowState::Entry(_)) {
            self.set_state(if is_over { FlowState::Done } else { FlowState::Fresh });
        }
        !is_over
    }
}

impl Payload<'_> {
    /// Whether it begins with the first octet of its side of a TCP connection, as far as that is known.
    pub(super) fn is_in_order(&self, flow: &FlowInspection) -> bool {
        let expected = flow.expected(self.endpoint);
        self.tcp.is_some_and(|(sequence, _)| expected.is_none_or(|expected| expected == sequence))
    }

    /// Whether the readers can read it in the packet if it is the first payload of its side.
    pub(super) fn begins_stream(&self, flow: &FlowInspection) -> bool {
        self.is_in_order(flow) && !self.is_empty(flow)
    }

    /// Whether it is not yet a payload of the flow.
    pub(super) fn is_empty(&self, flow: &FlowInspection) -> bool {
        self.octets.is_empty() || self.is_keep_alive(flow)
    }

    /// Whether octets of it were not captured. Nor are there any behind the limit of packets.
    pub(super) fn is_cut(&self, flow: &FlowInspection) -> bool {
        let is_beyond_limit = self.is_last && self.octets.is_empty();
        self.octets.len() < self.wire_octets as usize && !is_beyond_limit && !self.is_keep_alive(flow)
    }

    /// An octet before the first one is probably a keep-alive: the capture began later than the
    /// connection, and the octet before the next one came again.
    pub(super) fn is_keep_alive(&self, flow: &FlowInspection) -> bool {
        self.wire_octets == 1 && self.tcp.is_some() && flow.expected(self.endpoint).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_packed_and_unpacked() {
        let states = [FlowState::Fresh, FlowState::Done, FlowState::Limited, FlowState::Entry(0), FlowState::Entry(9)];
        assert!(states.iter().all(|&state| FlowState::unpack(state.pack()) == state));
        assert_eq!(FlowInspection::default().state(), FlowState::Fresh);
    }
}
