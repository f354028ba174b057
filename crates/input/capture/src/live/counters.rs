//! Losses of an interface by its own counters (rtnetlink).
//!
//! `rx_missed_errors` (no receive buffer) and `rx_fifo_errors` (FIFO overrun) count intact packets
//! that only the NIC saw. Not counted are damaged frames (`rx_crc_errors`, `rx_length_errors`,
//! `rx_frame_errors`), because they are no packets, and `rx_over_errors`, in which drivers repeat
//! one of the first two. `rx_dropped` counts what the kernel dropped between driver and stack, and
//! also packets that no protocol handler takes after AF_PACKET has seen them; so it is a loss only
//! if no packet reaches the stack. (/sys/class/net has the same counters, but for the network
//! namespace in which /sys was mounted.)

use super::netlink::Netlink;
use crate::system::u16_at;
use std::io;
use std::time::{Duration, Instant};
use tracing::warn;

/// Message types and flags of `linux/rtnetlink.h` and `linux/if_link.h`: statistics of an
/// interface, 64 bits.
const GET_STATS: u16 = 94;
const NEW_STATS: u16 = 92;
const LINK_64: u16 = 1;
const REQUEST: u16 = 1;
/// Index of each counter in `struct rtnl_link_stats64`.
const RX_DROPPED: usize = 6;
const RX_FIFO_ERRORS: usize = 14;
const RX_MISSED_ERRORS: usize = 15;
/// Time without queries after one that was not answered: each costs the thread that meters a wait.
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes before the attributes of a reply: message header and interface.
const HEADER_BYTES: usize = 16 + 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceLosses {
    pub nic: u64,
    /// By the kernel (`rx_dropped`).
    pub kernel: u64,
}

/// The loss counters of an interface since this was created.
pub(crate) struct InterfaceCounters {
    netlink: Netlink,
    index: u32,
    last: InterfaceLosses,
    lost: InterfaceLosses,
    frozen: bool,
    /// When a query was not answered.
    unanswered: Option<Instant>,
}

impl InterfaceCounters {
    /// Queries the counters for the first time.
    ///
    /// # Errors
    /// The kernel refuses the query, or does not answer.
    pub fn new(index: u32) -> io::Result<Self> {
        let (last, lost) = (InterfaceLosses::default(), InterfaceLosses::default());
        let mut counters = Self { netlink: Netlink::open()?, index, last, lost, frozen: false, unanswered: None };
        counters.last = counters.query()?;
        Ok(counters)
    }

    /// Returns the packets lost since then; never fewer than at the previous call, even after the
    /// interface was removed.
    pub fn lost(&mut self) -> InterfaceLosses {
        if self.frozen || self.unanswered.is_some_and(|since| since.elapsed() < SILENCE) {
            return self.lost;
        }
        match self.query() {
            Ok(now) => {
                self.lost.nic += increase(self.last.nic, now.nic);
                self.lost.kernel += increase(self.last.kernel, now.kernel);
                self.last = now;
                self.unanswered = None;
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                if self.unanswered.replace(Instant::now()).is_none() {
                    let interface = self.index;
                    warn!(interface, %error, "losses of the interface are counted when the kernel answers again");
                }
            }
            Err(_) => {}
        }
        self.lost
    }

    /// Adds the losses of another interface from now on.
    pub fn follow(&mut self, index: u32) {
        self.index = index;
        self.last = self.query().unwrap_or_default();
    }

    /// Queries the counters for the last time.
    pub fn freeze(&mut self) {
        self.unanswered = None;
        self.lost();
        self.frozen = true;
    }

    fn query(&mut self) -> io::Result<InterfaceLosses> {
        let mut request = [0; HEADER_BYTES];
        request[..4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&GET_STATS.to_ne_bytes());
        request[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        request[20..24].copy_from_slice(&self.index.to_ne_bytes());
        request[24..28].copy_from_slice(&(1_u32 << (LINK_64 - 1)).to_ne_bytes());
        self.netlink.send(&mut request)?;
        let mut reply = [0; 1024];
        parse(self.netlink.receive(&mut reply)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// Returns the increase of a counter. A driver that restarts counts from 0.
fn increase(last: u64, now: u64) -> u64 {
    now.checked_sub(last).unwrap_or(now)
}

/// Returns the counters in a reply; `None` if it is another message.
fn parse(reply: &[u8]) -> Option<InterfaceLosses> {
    let (header, mut attributes) = reply.split_at_checked(HEADER_BYTES)?;
    if u16_at(header, 4)? != NEW_STATS {
        return None;
    }
    while !attributes.is_empty() {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == LINK_64 {
            let counter = |at: usize| value.chunks_exact(8).nth(at)?.try_into().ok().map(u64::from_ne_bytes);
            let nic = counter(RX_FIFO_ERRORS)?.wrapping_add(counter(RX_MISSED_ERRORS)?);
            return Some(InterfaceLosses { nic, kernel: counter(RX_DROPPED)? });
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(counters: &[u64]) -> Vec<u8> {
        let mut reply = vec![0; HEADER_BYTES];
        reply[4..6].copy_from_slice(&NEW_STATS.to_ne_bytes());
        // An attribute of another type comes first.
        for (kind, value) in
            [(7_u16, vec![1, 2, 3]), (LINK_64, counters.iter().flat_map(|n| n.to_ne_bytes()).collect())]
        {
            reply.extend((4 + value.len() as u16).to_ne_bytes());
            reply.extend(kind.to_ne_bytes());
            reply.extend(&value);
            reply.resize(reply.len().next_multiple_of(4), 0);
        }
        reply
    }

    #[test]
    fn cut_reply_gives_no_counters() {
        let counters: Vec<u64> = (0..24).map(|at| 1 << at).collect();
        let whole = reply(&counters);
        assert_eq!(parse(&whole), Some(InterfaceLosses { nic: (1 << 14) + (1 << 15), kernel: 1 << 6 }));
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
        assert_eq!(parse(&reply(&counters[..15])), None);
    }

    #[test]
    fn kernel_gives_counters_of_existing_interfaces_only() {
        let loopback = crate::system::interface_index("lo").expect("every system has one");
        let mut counters = InterfaceCounters::new(loopback).expect("no permission is needed");
        assert_eq!(counters.lost().nic, 0);
        assert!(InterfaceCounters::new(i32::MAX as u32).is_err());
    }

    #[test]
    fn counter_that_restarts_is_added() {
        assert_eq!((increase(5, 7), increase(7, 2)), (2, 2));
    }
}
