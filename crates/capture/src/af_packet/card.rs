//! What the card and its driver lost, by the interface's own counters (rtnetlink).
//!
//! Counted are packets that were whole on the wire and that the kernel's tap never saw: `rx_missed_errors` (the card had no
//! buffers) and `rx_fifo_errors` (its own memory ran over). Not counted are frames that arrived broken (`rx_crc_errors`,
//! `rx_length_errors`, `rx_frame_errors`): they are no packets; `rx_over_errors`, in which drivers repeat one of the
//! first two; and `rx_dropped`, in which the kernel counts what nobody wanted *behind* the tap.
//! (The files in /sys/class/net have the same figures, but those of the network namespace in which /sys was mounted.)

use super::socket;
use std::fs::File;
use std::io::{self, Read, Write};

/// Numbers of `linux/rtnetlink.h` and `linux/if_link.h`: ask for, and have, an interface's statistics, of 64 bits.
const GET_STATS: u16 = 94;
const NEW_STATS: u16 = 92;
const LINK_64: u16 = 1;
const REQUEST: u16 = 1;
/// Where they stand among the 64-bit counters of an interface.
const RX_FIFO_ERRORS: usize = 14;
const RX_MISSED_ERRORS: usize = 15;
/// Octets before the attributes of an answer: the message's header, the interface.
const HEADER: usize = 16 + 12;

/// The counters of an interface since they were looked at first.
pub(super) struct Card {
    kernel: File,
    index: i32,
    /// What they were at first.
    before: u64,
    /// What they were last.
    last: u64,
}

impl Card {
    /// Looks at the counters for the first time.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(index: i32) -> io::Result<Self> {
        let mut card = Self { kernel: socket::route_netlink()?, index, before: 0, last: 0 };
        card.before = card.ask()?;
        card.last = card.before;
        Ok(card)
    }

    /// Packets lost since then. Those that an interface lost before it was removed stay known.
    pub fn lost(&mut self) -> u64 {
        self.last = self.ask().unwrap_or(self.last);
        // A driver that is started anew counts from 0.
        self.before = self.before.min(self.last);
        self.last - self.before
    }

    fn ask(&mut self) -> io::Result<u64> {
        let mut question = [0; HEADER];
        question[..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        question[4..6].copy_from_slice(&GET_STATS.to_ne_bytes());
        question[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        question[20..24].copy_from_slice(&self.index.to_ne_bytes());
        question[24..28].copy_from_slice(&(1_u32 << (LINK_64 - 1)).to_ne_bytes());
        self.kernel.write_all(&question)?;
        let mut answer = [0; 1024];
        let octets = self.kernel.read(&mut answer)?;
        lost(&answer[..octets]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// The counters in an answer; `None` if it is another.
fn lost(answer: &[u8]) -> Option<u64> {
    let (header, mut attributes) = answer.split_at_checked(HEADER)?;
    if u16::from_ne_bytes([header[4], header[5]]) != NEW_STATS {
        return None;
    }
    while let Some((head, rest)) = attributes.split_first_chunk::<4>() {
        let [a, b, c, d] = *head;
        let octets = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(..octets.checked_sub(4)?)?;
        if u16::from_ne_bytes([c, d]) == LINK_64 {
            let counter = |at: usize| value.chunks_exact(8).nth(at)?.try_into().ok().map(u64::from_ne_bytes);
            return Some(counter(RX_FIFO_ERRORS)? + counter(RX_MISSED_ERRORS)?);
        }
        attributes = attributes.get(octets.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(counters: &[u64]) -> Vec<u8> {
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&NEW_STATS.to_ne_bytes());
        // An attribute of another kind comes first.
        for (kind, value) in
            [(7_u16, vec![1, 2, 3]), (LINK_64, counters.iter().flat_map(|n| n.to_ne_bytes()).collect())]
        {
            answer.extend((4 + value.len() as u16).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(&value);
            answer.resize(answer.len().next_multiple_of(4), 0);
        }
        answer
    }

    #[test]
    fn losses_are_what_the_card_missed_and_what_ran_over() {
        let counters: Vec<u64> = (0..24).map(|at| 1 << at).collect();
        assert_eq!(lost(&answer(&counters)), Some((1 << 14) + (1 << 15)));
        let whole = answer(&counters);
        for cut in 0..whole.len() {
            assert!(lost(&whole[..cut]).is_none(), "cut at {cut}");
        }
        assert_eq!(lost(&answer(&counters[..15])), None);
    }

    #[test]
    fn the_kernel_answers_for_an_interface_and_not_for_none() {
        let loopback = socket::interface_index("lo").expect("every system has one");
        assert_eq!(Card::new(loopback).expect("anybody may ask").lost(), 0);
        assert!(Card::new(i32::MAX).is_err());
    }
}
