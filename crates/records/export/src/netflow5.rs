//! NetFlow v5: a header of 24 octets and up to 30 records of 48 octets; IPv4 only, unidirectional,
//! 32-bit counters.
//!
//! A direction with more packets or octets than 32 bits hold is split into records whose sums are
//! exact. All records of a flow are in one datagram, and all records of a datagram have the same
//! sampling rate. Only a flow that needs more than one datagram has datagrams of its own, and is
//! lost if one of them is lost.

use crate::pending_records::{PendingRecords, totals};
use crate::sink::{Error, ExportOptions, Sink};
use crate::template::write_header;
use crate::udp::{SendOutcome, UdpOutput};
use crate::unidirectional::{directions, unidirectional};
use crate::uptime::{SysUptime, uptime_ms};
use std::net::SocketAddr;
use std::time::Instant;
use weir_fields::{DirectionView, FieldValue, type_and_code};
use weir_flow::{Direction, FlowRecord};
use weir_ledger::{ExportLossReason, SinkCounters};
use weir_packet::Network;

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 48;
const MAX_RECORDS: usize = 30;
/// Smallest limit of a datagram, octets: it holds one record.
pub(crate) const MIN_DATAGRAM_BYTES: usize = HEADER_BYTES + RECORD_BYTES;
const MAX_COUNTER: u64 = u32::MAX as u64;

pub(crate) struct Netflow5Sink {
    udp: UdpOutput,
    engine: u8,
    /// Space for the header, then records.
    octets: Vec<u8>,
    pending: PendingRecords,
    /// Number of records before this datagram.
    sequence: u32,
    uptime: SysUptime,
    /// Sampling mode and interval of all records in the datagram; 0 without sampling.
    sampling: u16,
    counters: SinkCounters,
}

impl Netflow5Sink {
    pub fn new(sink: &str, udp: UdpOutput, options: &ExportOptions) -> Self {
        Self {
            udp,
            engine: options.observation_domain as u8,
            octets: vec![0; HEADER_BYTES],
            pending: PendingRecords::default(),
            sequence: 0,
            uptime: SysUptime::default(),
            sampling: 0,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    fn write_flow(&mut self, flow: &FlowRecord) {
        match flow.network {
            Network::Ipv4 => {}
            Network::Ipv6 => return self.counters.add_lost(ExportLossReason::NotIpv4, totals(flow)),
            Network::Layer2 => return self.counters.add_lost(ExportLossReason::NotIp, totals(flow)),
        }
        let count: u64 = directions(flow).map(|(direction, _)| split_count(direction)).sum();
        let pending = PendingRecords::of_flow(flow, count);
        // 2 bits sampling mode (2: random) and 14 bits interval.
        let sampling = flow.sampling.map_or(0, |[_, max]| 2 << 14 | max.min((1 << 14) - 1) as u16);
        if self.record_count() as u64 + count > self.max_records() as u64
            || !self.uptime.fits(flow)
            || sampling != self.sampling
        {
            self.send();
        }
        self.sampling = sampling;
        self.uptime.include(flow, &mut self.counters);
        let needs_several = count > self.max_records() as u64;
        let mut lost = None;
        let mut first = true;
        for (part, _) in unidirectional(flow) {
            let split_count = split_count(&part.forward);
            for number in 0..split_count {
                self.append(&part, number, split_count);
                if needs_several && self.record_count() == self.max_records() {
                    self.send_one_of_several(&mut first, &mut lost);
                }
            }
        }
        if !needs_several {
            self.pending.merge(pending);
            return;
        }
        if self.record_count() > 0 {
            self.send_one_of_several(&mut first, &mut lost);
        }
        match lost {
            None => self.udp.complete(pending, &mut self.counters),
            Some(reason) => pending.count_lost(reason, &mut self.counters),
        }
    }

    /// Sends one of the datagrams of a flow that needs several. From the second datagram on, a
    /// reported loss concerns the previous datagram of the same flow.
    fn send_one_of_several(&mut self, first: &mut bool, lost: &mut Option<ExportLossReason>) {
        let sent = self.send();
        if !*first {
            *lost = sent.lost_before.or(*lost);
        }
        if !sent.accepted {
            *lost = lost.or(Some(ExportLossReason::WriteFailed));
        }
        *first = false;
    }

    /// Number of records that fit into a datagram at present.
    fn max_records(&self) -> usize {
        ((self.udp.max_payload() - HEADER_BYTES) / RECORD_BYTES).min(MAX_RECORDS)
    }

    fn record_count(&self) -> usize {
        (self.octets.len() - HEADER_BYTES) / RECORD_BYTES
    }

    /// Appends record `number` of the `split_count` records of a unidirectional flow.
    fn append(&mut self, flow: &FlowRecord, number: u64, split_count: u64) {
        let direction = &flow.forward;
        let [.., s0, s1, s2, s3] = flow.source;
        let [.., d0, d1, d2, d3] = flow.destination;
        let (source_port, destination_port) = ports(flow);
        // Next hop, output interface, AS numbers and prefix lengths are unknown to a probe: 0.
        let out = &mut self.octets;
        out.extend([s0, s1, s2, s3, d0, d1, d2, d3, 0, 0, 0, 0]);
        out.extend(u16::try_from(flow.interface).unwrap_or(0).to_be_bytes());
        out.extend([0, 0]);
        for sum in [direction.packets, direction.bytes] {
            let share = sum / split_count + u64::from(number < sum % split_count);
            out.extend(u32::try_from(share).expect("a share fits into 32 bits").to_be_bytes());
        }
        out.extend(uptime_ms(flow.start_ns(), self.uptime.boot_ms()).to_be_bytes());
        out.extend(uptime_ms(flow.end_ns(), self.uptime.boot_ms()).to_be_bytes());
        out.extend(source_port.to_be_bytes());
        out.extend(destination_port.to_be_bytes());
        let flags = if flow.protocol == 6 { direction.tcp_flags as u8 } else { 0 };
        out.extend([0, flags, flow.protocol, direction.tos]);
        out.extend([0; 8]);
    }

    fn send(&mut self) -> SendOutcome {
        let records = self.record_count();
        if records == 0 {
            return SendOutcome { accepted: true, lost_before: None, path_mtu_fell: false };
        }
        let (up_ms, seconds) = self.uptime.header();
        // The 0 is the nanoseconds of the time. The last word begins with the engine type, 0.
        let engine_and_sampling = u32::from(self.engine) << 16 | u32::from(self.sampling);
        let words = [up_ms, seconds, 0, self.sequence, engine_and_sampling];
        write_header(5, records as u16, &words, &mut self.octets);
        self.sequence = self.sequence.wrapping_add(records as u32);
        let pending = std::mem::take(&mut self.pending);
        let sent = self.udp.send(&self.octets, pending, &mut self.counters);
        self.octets.truncate(HEADER_BYTES);
        sent
    }
}

impl Sink for Netflow5Sink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        flows.iter().for_each(|flow| self.write_flow(flow));
        self.send();
        Ok(())
    }

    fn connect(&mut self) -> bool {
        self.udp.connect()
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        self.udp.drain(flows, until);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.send();
        self.udp.finish(&mut self.counters);
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.udp.endpoints()
    }
}

/// The number of records that a direction is split into.
fn split_count(direction: &Direction) -> u64 {
    direction.packets.max(direction.bytes).div_ceil(MAX_COUNTER).max(1)
}

/// Both ports; for ICMP 0 and type * 256 + code.
fn ports(flow: &FlowRecord) -> (u16, u16) {
    if flow.has_ports() {
        return (flow.source_port, flow.destination_port);
    }
    let record = DirectionView::new(flow, false, false);
    match type_and_code(&record) {
        FieldValue::Unsigned(type_and_code) => (0, type_and_code as u16),
        _ => (0, 0),
    }
}
