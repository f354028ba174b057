//! What an interface lost, by its own counters (rtnetlink).
//!
//! `rx_missed_errors` (the card had no buffers) and `rx_fifo_errors` (its own memory ran over) are packets that were whole on the wire
//! and that only the card saw. Not counted are frames that arrived broken (`rx_crc_errors`, `rx_length_errors`,
//! `rx_frame_errors`): they are no packets; nor `rx_over_errors`, in which drivers repeat one of the first two.
//! In `rx_dropped` the kernel counts what it dropped between driver and stack, and what nobody wanted *behind* the tap of
//! AF_PACKET, so it is a loss only where nothing goes that far.
//! (The files in /sys/class/net have the same figures, but those of the network namespace in which /sys was mounted.)

use crate::system;
use std::fs::File;
use std::io::{self, Read, Write};

/// Numbers of `linux/rtnetlink.h` and `linux/if_link.h`: ask for, and have, an interface's statistics, of 64 bits.
const GET_STATS: u16 = 94;
const NEW_STATS: u16 = 92;
const LINK_64: u16 = 1;
const REQUEST: u16 = 1;
/// Where they stand among the 64-bit counters of an interface.
const RX_DROPPED: usize = 6;
const RX_FIFO_ERRORS: usize = 14;
const RX_MISSED_ERRORS: usize = 15;
/// Octets before the attributes of an answer: the message's header, the interface.
const HEADER: usize = 16 + 12;

/// Packets of an interface that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// By the card.
    pub card: u64,
    /// By the kernel, if they are losses at all.
    pub kernel: u64,
}

/// The counters of an interface since they were looked at first.
pub(crate) struct Counters {
    kernel: File,
    index: u32,
    /// What they were last, from which the next look counts on.
    last: Lost,
    lost: Lost,
    frozen: bool,
}

impl Counters {
    /// Looks at the counters for the first time.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(index: u32) -> io::Result<Self> {
        let (last, lost) = (Lost::default(), Lost::default());
        let mut counters = Self { kernel: system::route_netlink()?, index, last, lost, frozen: false };
        counters.last = counters.ask()?;
        Ok(counters)
    }

    /// Packets lost since then; never fewer than at the call before. What was lost before an interface was removed stays known.
    pub fn lost(&mut self) -> Lost {
        if !self.frozen
            && let Ok(now) = self.ask()
        {
            self.lost.card += since(self.last.card, now.card);
            self.lost.kernel += since(self.last.kernel, now.kernel);
            self.last = now;
        }
        self.lost
    }

    /// Looks for the last time.
    pub fn freeze(&mut self) {
        self.lost();
        self.frozen = true;
    }

    fn ask(&mut self) -> io::Result<Lost> {
        let mut question = [0; HEADER];
        question[..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        question[4..6].copy_from_slice(&GET_STATS.to_ne_bytes());
        question[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        question[20..24].copy_from_slice(&self.index.to_ne_bytes());
        question[24..28].copy_from_slice(&(1_u32 << (LINK_64 - 1)).to_ne_bytes());
        self.kernel.write_all(&question)?;
        let mut answer = [0; 1024];
        let octets = self.kernel.read(&mut answer)?;
        read(&answer[..octets]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// How far a counter has come. A driver that is started anew counts from 0.
fn since(last: u64, now: u64) -> u64 {
    now.checked_sub(last).unwrap_or(now)
}

/// The counters in an answer; `None` if it is another.
fn read(answer: &[u8]) -> Option<Lost> {
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
            let card = counter(RX_FIFO_ERRORS)?.wrapping_add(counter(RX_MISSED_ERRORS)?);
            return Some(Lost { card, kernel: counter(RX_DROPPED)? });
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
    fn an_answer_is_read_whole_or_not_at_all() {
        let counters: Vec<u64> = (0..24).map(|at| 1 << at).collect();
        let whole = answer(&counters);
        assert_eq!(read(&whole), Some(Lost { card: (1 << 14) + (1 << 15), kernel: 1 << 6 }));
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_none(), "cut at {cut}");
        }
        assert_eq!(read(&answer(&counters[..15])), None);
    }

    #[test]
    fn the_kernel_answers_for_an_interface_and_not_for_none() {
        let loopback = system::interface_index("lo").expect("every system has one");
        let mut counters = Counters::new(loopback).expect("anybody may ask");
        assert_eq!(counters.lost().card, 0);
        assert!(Counters::new(i32::MAX as u32).is_err());
    }

    #[test]
    fn a_counter_that_begins_anew_counts_on() {
        assert_eq!((since(5, 7), since(7, 2)), (2, 2));
    }
}
