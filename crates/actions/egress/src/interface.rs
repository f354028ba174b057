//! An interface as an output: frames leave unchanged, through an AF_PACKET socket or a transmit queue
//! of DPDK for each pipeline.
//!
//! Cost of AF_PACKET: one system call per 64 frames, in which the kernel copies them. DPDK does not
//! copy frames that it has received. While the interface is down or full, a call per burst fails;
//! while it does not exist, no call is made, and its name is checked once a second.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::output::{InterfaceReport, PacketOutput, Refused};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;
use weir_capture::{Frame, FrameSender, MAX_BURST_FRAMES, SendFrames, SendRefusal, SourceSpec};
use weir_ledger::OutputDropReason::{self, InterfaceRefused};
use weir_ledger::{OutputCounters, PacketTotals};

const ETHERNET: u16 = 1;

pub(crate) struct InterfaceOutput {
    name: String,
    sender: Box<dyn SendFrames>,
    attachment: Attachment,
    sent: PacketTotals,
    refused: Refused,
}

impl InterfaceOutput {
    pub fn open(
        name: &str,
        interface: &str,
        pipelines: usize,
        sources: &[SourceSpec],
        retry: Duration,
    ) -> Result<Vec<Self>, Error> {
        let logged = Arc::default();
        let output = |_| {
            let sender = Box::new(FrameSender::open(name, interface)?);
            Ok(Self::new(name, sender, Attachment::new(name, interface, sources, &logged, retry)?))
        };
        (0..pipelines).map(output).collect()
    }

    pub fn open_dpdk(name: &str, pipelines: usize, retry: Duration) -> Result<Vec<Self>, Error> {
        let senders = weir_capture::open_dpdk_senders(name, pipelines)?.into_iter();
        // Its device stays the same.
        let attachment = || Attachment::new(name, name, &[], &Arc::default(), retry);
        senders.map(|sender| Ok(Self::new(name, sender, attachment()?))).collect()
    }

    fn new(name: &str, sender: Box<dyn SendFrames>, attachment: Attachment) -> Self {
        Self { name: name.into(), sender, attachment, sent: PacketTotals::default(), refused: Refused::default() }
    }

    fn refuse(&mut self, frames: &[&[u8]], reason: OutputDropReason) {
        frames.iter().for_each(|frame| self.refused.add(reason, frame.len()));
    }

    fn send_frames(&mut self, mut frames: &[&[u8]]) {
        while !frames.is_empty() {
            match self.sender.send(frames) {
                Ok(sent) => {
                    let (sent, rest) = frames.split_at(sent);
                    sent.iter().for_each(|frame| self.sent.add(frame.len()));
                    self.attachment.note_down(false);
                    frames = rest;
                }
                Err(refusal @ (SendRefusal::TooLong | SendRefusal::TooShort)) => {
                    let (first, rest) = frames.split_at(1);
                    let is_long = refusal == SendRefusal::TooLong;
                    self.refuse(first, if is_long { OutputDropReason::TooLong } else { InterfaceRefused });
                    frames = rest;
                }
                Err(refusal) => {
                    match refusal {
                        SendRefusal::Removed => self.attachment.note_removed(),
                        SendRefusal::Down => self.attachment.note_down(true),
                        _ => {}
                    }
                    self.refuse(frames, InterfaceRefused);
                    return;
                }
            }
        }
    }
}

impl PacketOutput for InterfaceOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        for frames in frames.chunks(MAX_BURST_FRAMES) {
            let mut octets = ArrayVec::<&[u8], MAX_BURST_FRAMES>::new();
            for frame in frames {
                if frame.link_type == ETHERNET {
                    octets.push(frame.bytes);
                } else {
                    self.refused.add(OutputDropReason::LinkType, frame.bytes.len());
                }
            }
            if self.attachment.is_usable(|| self.sender.bind()) {
                self.send_frames(&octets);
            } else {
                self.refuse(&octets, InterfaceRefused);
            }
        }
    }

    fn describe(&mut self, interface: &InterfaceReport) {
        self.attachment.note_source(interface.number);
    }

    fn counters(&self) -> OutputCounters {
        let mut counters = OutputCounters { output: self.name.clone(), sent: self.sent, ..OutputCounters::default() };
        self.refused.add_to(&mut counters);
        counters
    }
}
