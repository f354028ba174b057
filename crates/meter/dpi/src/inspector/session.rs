//! A flow for which readers are left: the octets so far, and what the readers have found.

use super::flow::{FlowInspection, UNKNOWN_DATAGRAMS};
use super::payload::Payload;
use crate::readers::{Candidates, DATAGRAM_READERS, DatagramState, STREAM_READERS, StreamState};
use crate::reassembly::Stream;
use crate::transactions::Transactions;
use crate::{Findings, Note, Streams, Verdict};
use weir_ledger::InspectionCounters;

/// A flow for which readers are left.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The entry of the flow.
    pub entry: u32,
    pub is_tcp: bool,
    pub ports: [u16; 2],
    /// Packets with payload that were shown to the readers.
    pub packets: u32,
    is_recognised: bool,
    /// Datagrams of a recognised flow that are not of its protocol.
    strays: u32,
    /// The endpoint that sent payload first.
    pub first: usize,
    /// Readers that have not refused the flow, one bit each.
    pub candidates: u32,
    pub streams: [Stream; 2],
    pub findings: Findings,
    /// The messages of the flow, if they are counted.
    pub transactions: Option<Box<Transactions>>,
    datagram_state: DatagramState,
    stream_state: StreamState,
}

/// What a side of a connection sent, as [`Streams`] has it of both.
#[derive(Clone, Copy)]
struct Side<'a> {
    octets: &'a [u8],
    ended: bool,
    limited: bool,
}

impl<'a> Side<'a> {
    fn of(stream: &'a Stream, limit: u32) -> Self {
        Self { octets: stream.contiguous(), ended: stream.has_ended(limit), limited: stream.is_limited(limit) }
    }
}

impl Session {
    pub fn new(personal: bool) -> Self {
        Self { findings: Findings::new(personal), ..Self::default() }
    }

    /// Begins with the first payload of a flow, of which `unmatched` packets matched no reader.
    pub fn begin(&mut self, flow: &FlowInspection, payload: &Payload<'_>, candidates: u32, unmatched: u16) {
        (self.is_tcp, self.ports, self.first) = (payload.tcp.is_some(), payload.ports, payload.endpoint & 1);
        (self.candidates, self.packets) = (candidates, unmatched.into());
        self.stream_state = StreamState::default();
        if flow.is_silent(1 - self.first) {
            self.streams[1 - self.first].end();
        }
    }

    /// Memory of its lists.
    pub fn octets(&self) -> u64 {
        let streams: usize = self.streams.iter().map(Stream::capacity).sum();
        (streams + self.findings.facts.capacity() + self.datagram_state.octets()) as u64
    }

    /// Forgets the flow, and keeps at most this much memory in each list.
    pub fn close(&mut self, kept_octets: usize) {
        (self.is_recognised, self.packets, self.strays) = (false, 0, 0);
        self.streams.iter_mut().for_each(|stream| stream.clear(kept_octets));
        self.findings.clear(kept_octets);
        self.datagram_state.clear(kept_octets > 0);
    }

    /// Takes an endpoint for the one that sent payload first. Readers begin again.
    pub fn set_first(&mut self, endpoint: usize) {
        (self.first, self.stream_state) = (endpoint & 1, StreamState::default());
    }

    /// Reads no more octets of an endpoint.
    pub fn end_stream(&mut self, endpoint: usize) {
        self.streams[endpoint].end();
        self.stream_state = StreamState::default();
    }

    /// Counts a packet that was shown to the readers, and the flow if it was the one that decided.
    pub fn count_packet(&mut self, payload: &Payload<'_>, counters: &mut InspectionCounters) {
        self.packets += u32::from(!payload.octets.is_empty());
        if !self.is_recognised && self.findings.application().is_some() {
            self.is_recognised = true;
            let last = counters.recognised_by_packet.len() - 1;
            counters.recognised_by_packet[last.min(self.packets.saturating_sub(1) as usize)] += 1;
        }
    }

    /// Whether a part of the packet was not read, because that takes too long.
    pub fn take_work_limited(&mut self) -> bool {
        let is_limited = self.transactions.as_mut().is_some_and(|transactions| transactions.take_work_limited());
        self.findings.take_work_limited() | is_limited
    }

    /// Shows a packet to the readers. Returns whether more packets are of use. `limit` is the number
    /// of octets of a stream that are kept.
    pub fn inspect(&mut self, payload: &Payload<'_>, flow: &FlowInspection, limit: u32) -> bool {
        let endpoint = payload.endpoint & 1;
        match payload.tcp {
            Some(_) if flow.is_silent(endpoint) => {}
            Some(_) if self.streams[endpoint].is_new() && payload.begins_stream(flow) => {
                self.read_in_place(payload, flow, limit);
                if self.candidates != 0 {
                    self.streams[endpoint].add(&payload.segment(), flow.expected(endpoint), limit, &mut self.findings);
                }
            }
            Some((_, fin)) => {
                let stream = &mut self.streams[endpoint];
                let (known, start) = (stream.contiguous().len(), stream.start());
                stream.add(&payload.segment(), flow.expected(endpoint), limit, &mut self.findings);
                if stream.start() != start {
                    // Octets came before the first one.
                    self.stream_state = StreamState::default();
                }
                if stream.contiguous().len() > known || fin {
                    // Readers borrow the octets and change the findings.
                    let taken = std::mem::take(&mut self.streams);
                    let [first, second] = taken.each_ref().map(|stream| Side::of(stream, limit));
                    self.read_streams(if self.first == 0 { [first, second] } else { [second, first] }, payload, flow);
                    self.streams = taken;
                }
            }
            None if payload.octets.is_empty() => {
                if payload.is_cut(flow) {
                    self.findings.note(Note::Gap);
                }
            }
            None => {
                let datagram = payload.datagram(self.first);
                // Readers change the findings meanwhile.
                let mut state = std::mem::take(&mut self.datagram_state);
                let (is_recognised, mut is_stray) = (self.findings.application().is_some(), false);
                self.read(|reader, findings| {
                    let verdict = DATAGRAM_READERS[reader].read(&mut state, &datagram, findings);
                    is_stray = is_recognised && verdict == Verdict::No;
                    if is_stray { Verdict::More } else { verdict }
                });
                self.datagram_state = state;
                self.strays += u32::from(is_stray);
                if self.strays >= UNKNOWN_DATAGRAMS {
                    self.candidates = 0;
                }
                if payload.is_cut(flow) {
                    self.findings.note(Note::Gap);
                }
            }
        }
        self.needs_more(payload)
    }

    /// Shows the first payload of a side to the readers that are left. They read it in the packet: it is
    /// copied only if more octets are needed.
    fn read_in_place(&mut self, payload: &Payload<'_>, flow: &FlowInspection, limit: u32) {
        let octets = &payload.octets[..payload.octets.len().min(limit as usize)];
        let is_cut = payload.is_cut(flow);
        if is_cut {
            self.findings.note(Note::Gap);
        }
        let fin = payload.tcp.is_some_and(|(_, fin)| fin);
        let limited = octets.len() == limit as usize;
        let here = Side { octets, ended: fin || is_cut || limited, limited };
        let other = std::mem::take(&mut self.streams[1 - (payload.endpoint & 1)]);
        let there = Side::of(&other, limit);
        let is_first = payload.endpoint & 1 == self.first;
        self.read_streams(if is_first { [here, there] } else { [there, here] }, payload, flow);
        self.streams[1 - (payload.endpoint & 1)] = other;
        if !is_first && self.candidates != 0 && self.findings.application().is_none() {
            self.read_alone(here, payload, flow);
        }
    }

    /// Asks the readers about the first payload of the second side alone. If it proves a protocol, that
    /// side is the first one from now on.
    fn read_alone(&mut self, side: Side<'_>, payload: &Payload<'_>, flow: &FlowInspection) {
        let known = (self.candidates, self.first, self.stream_state);
        self.set_first(payload.endpoint);
        self.candidates = side.octets.first().map_or(0, |first| Candidates::get().of_stream(*first));
        self.read_streams([side, Side { octets: &[], ended: true, limited: false }], payload, flow);
        if self.findings.application().is_none() {
            (self.candidates, self.first, self.stream_state) = known;
        }
    }

    /// Whether octets are missing before others.
    pub fn has_gap(&self) -> bool {
        self.streams.iter().any(Stream::has_gap) || self.datagram_state.has_gap()
    }

    /// Whether packets after this one are of use.
    fn needs_more(&mut self, payload: &Payload<'_>) -> bool {
        if payload.is_last && self.candidates != 0 {
            self.findings.note(Note::Limit);
            if self.has_gap() {
                self.findings.note(Note::Gap);
            }
            return false;
        }
        self.candidates != 0
    }

    /// Asks the readers of TCP that are left, with ports and client.
    fn read_streams(&mut self, [first, second]: [Side<'_>; 2], payload: &Payload<'_>, flow: &FlowInspection) {
        let [source, destination] = payload.ports;
        let streams = Streams {
            first: first.octets,
            second: second.octets,
            ended: [first.ended, second.ended],
            limited: [first.limited, second.limited],
            ports: if payload.endpoint & 1 == self.first { [source, destination] } else { [destination, source] },
            first_is_client: flow.client().map(|client| client == self.first),
        };
        let mut state = self.stream_state;
        self.read(|reader, findings| STREAM_READERS[reader].read_on(&mut state, &streams, findings));
        self.stream_state = state;
        if streams.ended == [true; 2] && self.candidates != 0 {
            self.candidates = 0;
            if streams.limited.contains(&true) {
                self.findings.note(Note::Limit);
            }
        }
    }

    /// Asks each reader that is left.
    fn read(&mut self, mut read: impl FnMut(usize, &mut Findings) -> Verdict) {
        let mut left = self.candidates;
        while left != 0 {
            let reader = left.trailing_zeros();
            left &= left - 1;
            match read(reader as usize, &mut self.findings) {
                Verdict::No => self.candidates &= !(1 << reader),
                Verdict::More => {}
                Verdict::Recognised => {
                    self.candidates = 1 << reader;
                    return;
                }
                Verdict::Complete => {
                    self.candidates = 0;
                    return;
                }
            }
        }
    }
}
