//! An interface as an output: frames leave unchanged, through an AF_PACKET socket or a transmit queue
//! of DPDK for each pipeline.
//!
//! Cost of AF_PACKET: one system call per 64 frames, in which the kernel copies them. DPDK does not
//! copy frames that it has received. While the interface is down or full, a call per burst fails;
//! while it does not exist, no call is made, and its name is checked once a second.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::output::{InterfaceReport, PacketOutput};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;
use weir_capture::{Frame, FrameSender, MAX_BURST_FRAMES, SendFrames, SendRefusal, SourceSpec};
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals};

const ETHERNET: u16 = 1;

pub(crate) struct InterfaceOutput {
    name: String,
    sender: Box<dyn SendFrames>,
    attachment: Attachment,
    sent: PacketTotals,
    refused: PacketTotals,
    too_long: PacketTotals,
    link_type: PacketTotals,
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
        let none = PacketTotals::default();
        Self { name: name.into(), sender, attachment, sent: none, refused: none, too_long: none, link_type: none }
    }

    fn send_frames(&mut self, mut frames: &[&[u8]]) {
        while !frames.is_empty() {
            match self.sender.send(frames) {
                Ok(sent) => {
                    let (sent, rest) = frames.split_at(sent);
                    add(&mut self.sent, sent);
                    self.attachment.note_down(false);
                    frames = rest;
                }
                Err(refusal @ (SendRefusal::TooLong | SendRefusal::TooShort)) => {
                    let (first, rest) = frames.split_at(1);
                    let is_long = refusal == SendRefusal::TooLong;
                    add(if is_long { &mut self.too_long } else { &mut self.refused }, first);
                    frames = rest;
                }
                Err(refusal) => {
                    match refusal {
                        SendRefusal::Removed => self.attachment.note_removed(),
                        SendRefusal::Down => self.attachment.note_down(true),
                        _ => {}
                    }
                    add(&mut self.refused, frames);
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
                    self.link_type.add(frame.bytes.len());
                }
            }
            if self.attachment.is_usable(|| self.sender.bind()) {
                self.send_frames(&octets);
            } else {
                add(&mut self.refused, &octets);
            }
        }
    }

    fn describe(&mut self, interface: &InterfaceReport) {
        self.attachment.note_source(interface.number);
    }

    fn counters(&self) -> OutputCounters {
        let mut counters = OutputCounters { output: self.name.clone(), sent: self.sent, ..OutputCounters::default() };
        for (reason, dropped) in [
            (OutputDropReason::InterfaceRefused, self.refused),
            (OutputDropReason::TooLong, self.too_long),
            (OutputDropReason::LinkType, self.link_type),
        ] {
            if dropped.packets > 0 {
                counters.add_dropped(reason, dropped);
            }
        }
        counters
    }
}

fn add(totals: &mut PacketTotals, frames: &[&[u8]]) {
    frames.iter().for_each(|frame| totals.add(frame.len()));
}
