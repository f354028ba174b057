//! An interface as an output through AF_XDP: a queue of the interface for each pipeline.
//!
//! Cost: a copy into the memory of the socket, and a system call per 32 frames, in which the kernel
//! copies them again (copy mode). While the interface is down, frames wait in that memory; while it
//! does not exist, no call is made, and its name is checked once a second.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::output::{InterfaceReport, PacketOutput, Refused};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::{Frame, FrameTotals, MAX_BURST_FRAMES, SendRefusal, SourceSpec, XdpSender};
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals};

/// Longest time that the end of a run waits for the NIC.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
const ETHERNET: u16 = 1;

pub(crate) struct XdpOutput {
    name: String,
    sender: XdpSender,
    attachment: Attachment,
    pushed: PacketTotals,
    refused: Refused,
}

impl XdpOutput {
    pub fn open(
        name: &str,
        interface: &str,
        pipelines: usize,
        sources: &[SourceSpec],
        retry: Duration,
    ) -> Result<Vec<Self>, Error> {
        let senders = XdpSender::open(name, interface, pipelines)?.into_iter();
        let logged = Arc::default();
        let output = |sender| {
            let attachment = Attachment::new(name, interface, sources, &logged, retry)?;
            let (pushed, refused) = (PacketTotals::default(), Refused::default());
            Ok(Self { name: name.into(), sender, attachment, pushed, refused })
        };
        senders.map(output).collect()
    }

    fn push(&mut self, frame: &Frame<'_>) {
        let octets = frame.bytes.len();
        if frame.link_type != ETHERNET {
            return self.refused.add(OutputDropReason::LinkType, octets);
        }
        match self.sender.push(frame.bytes) {
            Ok(()) => self.pushed.add(octets),
            Err(SendRefusal::TooLong) => self.refused.add(OutputDropReason::TooLong, octets),
            Err(_) => self.refused.add(OutputDropReason::InterfaceRefused, octets),
        }
    }

    fn flush(&mut self) {
        match self.sender.flush() {
            Err(SendRefusal::Removed) => {
                self.attachment.note_removed();
                self.sender.abandon();
            }
            flushed => self.attachment.note_down(flushed == Err(SendRefusal::Down)),
        }
    }

    /// Sent, lost and waiting packets.
    fn progress(&self) -> [PacketTotals; 3] {
        let totals = |FrameTotals { frames, octets }| PacketTotals { packets: frames, octets };
        let [sent, lost] = self.sender.finished().map(totals);
        let packets = self.pushed.packets - sent.packets - lost.packets;
        let octets = self.pushed.octets - sent.octets - lost.octets;
        [sent, lost, PacketTotals { packets, octets }]
    }
}

impl PacketOutput for XdpOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        for frames in frames.chunks(MAX_BURST_FRAMES) {
            if self.attachment.is_usable(|| self.sender.bind()) {
                frames.iter().for_each(|frame| self.push(frame));
                self.flush();
            } else {
                let refuse =
                    |frame: &Frame<'_>| self.refused.add(OutputDropReason::InterfaceRefused, frame.bytes.len());
                frames.iter().for_each(refuse);
            }
        }
    }

    fn describe(&mut self, interface: &InterfaceReport) {
        self.attachment.note_source(interface.number);
    }

    fn counters(&self) -> OutputCounters {
        let [sent, lost, waiting] = self.progress();
        let mut counters = OutputCounters { output: self.name.clone(), sent, waiting, ..OutputCounters::default() };
        self.refused.add_to(&mut counters);
        if lost.packets > 0 {
            counters.add_dropped(OutputDropReason::InterfaceRefused, lost);
        }
        counters
    }

    fn finish(&mut self) {
        let started = Instant::now();
        while self.progress()[2].packets > 0 && started.elapsed() < FINISH_TIMEOUT {
            self.flush();
            thread::sleep(Duration::from_millis(1));
        }
        self.sender.abandon();
    }
}
