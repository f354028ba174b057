//! Devices of DPDK that make packets themselves: `net_pcap`, which plays frames from memory again and again.

use crate::Error;
use crate::live::traffic::Traffic;
use std::fs::File;
use std::os::fd::AsRawFd;
use weir_capture::{Frame, PcapWriter};

/// Frames that are played; each of them takes a buffer.
const FRAMES: usize = 8192;

/// A device, or rather one after another: each is opened once.
pub struct Device {
    /// The frames as a capture in memory, which nobody has to remove.
    capture: Option<File>,
    number: u32,
}

impl Device {
    /// One that plays the first frames.
    pub fn that_plays(traffic: &Traffic) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Live(format!("dpdk: no capture in memory to play: {error}"));
        let memory = rustix::fs::memfd_create("weir-bench", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = File::from(memory.map_err(|error| failed(error.into()))?);
        let mut capture = PcapWriter::new(&memory, 1, 65535).map_err(failed)?;
        for bytes in traffic.first(FRAMES) {
            let wire_bytes = bytes.len() as u32;
            let frame = Frame { bytes, time_ns: 0, wire_bytes, link_type: 1, time_clamped: false, interface: 0 };
            capture.write(&frame).map_err(failed)?;
        }
        capture.finish().map_err(failed)?;
        Ok(Self { capture: Some(memory), number: 0 })
    }

    /// One on which nothing comes.
    pub fn that_is_silent() -> Self {
        Self { capture: None, number: 0 }
    }

    /// The name of the next one.
    pub fn next(&mut self) -> String {
        self.number += 1;
        let number = self.number;
        match &self.capture {
            Some(capture) => format!(
                "dpdk:net_pcap_bench{number};rx_pcap=/proc/self/fd/{};infinite_rx=1,descriptors=1024,mbufs={}",
                capture.as_raw_fd(),
                FRAMES + 4096,
            ),
            None => format!("dpdk:net_ring_bench{number}"),
        }
    }
}
