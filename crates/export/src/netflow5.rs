//! NetFlow v5: 24 octets of header and up to 30 records of 48, IPv4 only, one-way, counters of 32 bits.
//!
//! A direction with more packets or octets than 32 bits hold is split into records whose sums are exact. All records of a
//! flow are in one datagram, which has records of one sampling rate; only a flow that needs more than one has datagrams of its own, and is lost if one of them is.

use crate::account::{Carried, records};
use crate::element::uptime;
use crate::fields::{Record, one_way, type_and_code};
use crate::sink::{Error, ExportOptions, Sink};
use crate::udp::{Datagrams, Sent};
use crate::uptime::Uptime;
use crate::value::Value;
use std::net::SocketAddr;
use weir_flow::{Direction, FlowRecord};
use weir_ledger::{ExportLossReason, SinkCounters};
use weir_packet::Network;

const HEADER: usize = 24;
const RECORD: usize = 48;
const MOST_RECORDS: usize = 30;
const LARGEST: u64 = u32::MAX as u64;

/// A sink of NetFlow v5.
pub(crate) struct Netflow5 {
    datagrams: Datagrams,
    /// Records in a datagram.
    limit: usize,
    engine: u8,
    /// The header's place, then records.
    octets: Vec<u8>,
    carried: Carried,
    /// Records before this datagram.
    sequence: u32,
    uptime: Uptime,
    /// One packet in so many was metered, of all records in the datagram; 0: all were.
    sampling: u16,
    line: SinkCounters,
}

impl Netflow5 {
    /// `mtu` is the limit of a datagram's payload, octets.
    pub fn new(sink: &str, datagrams: Datagrams, mtu: usize, options: &ExportOptions) -> Self {
        Self {
            datagrams,
            limit: ((mtu - HEADER) / RECORD).min(MOST_RECORDS),
            engine: options.observation_domain as u8,
            octets: vec![0; HEADER],
            carried: Carried::default(),
            sequence: 0,
            uptime: Uptime::default(),
            sampling: 0,
            line: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    fn add(&mut self, flow: &FlowRecord) {
        match flow.network {
            Network::Ipv4 => {}
            Network::Ipv6 => return self.line.add_lost(ExportLossReason::NotIpv4, records(flow)),
            Network::Layer2 => return self.line.add_lost(ExportLossReason::NotIp, records(flow)),
        }
        let count: u64 = one_way(flow).map(|(part, _)| shares(&part.forward)).sum();
        let carried = Carried::one(flow, count);
        // Two bits for the kind, which is 2 for random, and 14 for the number.
        let sampling = flow.sampling.map_or(0, |[_, most]| 2 << 14 | most.min((1 << 14) - 1) as u16);
        if self.held() as u64 + count > self.limit as u64 || !self.uptime.fits(flow) || sampling != self.sampling {
            self.send();
        }
        self.sampling = sampling;
        self.uptime.enter(flow, &mut self.line);
        if count <= self.limit as u64 {
            one_way(flow).for_each(|(part, _)| {
                let shares = shares(&part.forward);
                (0..shares).for_each(|number| self.append(&part, number, shares));
            });
            self.carried.merge(carried);
            return;
        }
        let mut lost = None;
        let mut first = true;
        for (part, _) in one_way(flow) {
            let shares = shares(&part.forward);
            for number in 0..shares {
                self.append(&part, number, shares);
                if self.held() == self.limit {
                    self.send_part(&mut first, &mut lost);
                }
            }
        }
        if self.held() > 0 {
            self.send_part(&mut first, &mut lost);
        }
        match lost {
            None => self.datagrams.complete(carried, &mut self.line),
            Some(reason) => carried.lost(reason, &mut self.line),
        }
    }

    /// Sends one of the datagrams of a flow that needs several. What it tells of the datagram before concerns the flow
    /// from the second on.
    fn send_part(&mut self, first: &mut bool, lost: &mut Option<ExportLossReason>) {
        let sent = self.send();
        if sent.refused_before && !*first {
            *lost = Some(ExportLossReason::CollectorRefused);
        }
        if !sent.taken {
            *lost = lost.or(Some(ExportLossReason::WriteFailed));
        }
        *first = false;
    }

    fn held(&self) -> usize {
        (self.octets.len() - HEADER) / RECORD
    }

    /// Appends record `number` of the `shares` that a one-way flow is split into.
    fn append(&mut self, flow: &FlowRecord, number: u64, shares: u64) {
        let direction = &flow.forward;
        let [.., s0, s1, s2, s3] = flow.source;
        let [.., d0, d1, d2, d3] = flow.destination;
        let (source_port, destination_port) = ports(flow);
        // Next hop, output interface, AS numbers and masks are not known to a probe.
        let out = &mut self.octets;
        out.extend([s0, s1, s2, s3, d0, d1, d2, d3, 0, 0, 0, 0]);
        out.extend(u16::try_from(flow.interface).unwrap_or(0).to_be_bytes());
        out.extend([0, 0]);
        for sum in [direction.packets, direction.bytes] {
            let share = sum / shares + u64::from(number < sum % shares);
            out.extend(u32::try_from(share).expect("there are enough shares").to_be_bytes());
        }
        out.extend(uptime(flow.start_ns(), self.uptime.boot_ms()).to_be_bytes());
        out.extend(uptime(flow.end_ns(), self.uptime.boot_ms()).to_be_bytes());
        out.extend(source_port.to_be_bytes());
        out.extend(destination_port.to_be_bytes());
        let flags = if flow.protocol == 6 { direction.tcp_flags as u8 } else { 0 };
        out.extend([0, flags, flow.protocol, direction.tos]);
        out.extend([0; 8]);
    }

    fn send(&mut self) -> Sent {
        let records = self.held();
        if records == 0 {
            return Sent { taken: true, refused_before: false };
        }
        let (up_ms, seconds) = self.uptime.header();
        let header = &mut self.octets[..HEADER];
        header[0..2].copy_from_slice(&5u16.to_be_bytes());
        header[2..4].copy_from_slice(&(records as u16).to_be_bytes());
        header[4..8].copy_from_slice(&up_ms.to_be_bytes());
        header[8..12].copy_from_slice(&seconds.to_be_bytes());
        header[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        header[21] = self.engine;
        header[22..24].copy_from_slice(&self.sampling.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(records as u32);
        let carried = std::mem::take(&mut self.carried);
        let sent = self.datagrams.send(&self.octets, carried, &mut self.line);
        self.octets.truncate(HEADER);
        sent
    }
}

impl Sink for Netflow5 {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        flows.iter().for_each(|flow| self.add(flow));
        self.send();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.send();
        self.datagrams.finish(&mut self.line);
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.line
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.datagrams.ends()
    }
}

/// Into how many records a direction must be split.
fn shares(direction: &Direction) -> u64 {
    direction.packets.max(direction.bytes).div_ceil(LARGEST).max(1)
}

/// Ports; for ICMP 0 and type * 256 + code.
fn ports(flow: &FlowRecord) -> (u16, u16) {
    if flow.has_ports() {
        return (flow.source_port, flow.destination_port);
    }
    let record = Record::new(flow, false, false);
    match type_and_code(&record) {
        Value::Unsigned(type_and_code) => (0, type_and_code as u16),
        _ => (0, 0),
    }
}
