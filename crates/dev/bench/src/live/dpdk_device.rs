//! DPDK virtual devices that generate packets: `net_pcap`, which replays frames from memory.

use crate::error::Error;
use crate::live::traffic::Traffic;
use std::fs::File;
use std::os::fd::AsRawFd;
use weir_capture::{Frame, PcapWriter};

/// Number of replayed frames; each takes an mbuf.
const FRAMES: usize = 8192;

/// Generates names of virtual devices; DPDK opens each name once.
pub struct DpdkDevice {
    /// The frames as a capture in anonymous memory. `None`: a device that receives nothing.
    capture: Option<File>,
    number: u32,
}

impl DpdkDevice {
    /// Creates a device that replays the first frames of `traffic`.
    pub fn replaying(traffic: &Traffic) -> Result<Self, Error> {
        let failed = Error::io("dpdk: cannot store the frames in memory");
        let memory = rustix::fs::memfd_create("weir-bench", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = File::from(memory.map_err(|error| failed(error.into()))?);
        let mut capture = PcapWriter::new(&memory, 1, 65535).map_err(&failed)?;
        for bytes in traffic.first(FRAMES) {
            let wire_bytes = bytes.len() as u32;
            let frame = Frame { bytes, time_ns: 0, wire_bytes, link_type: 1, time_assumed: false, interface: 0 };
            capture.write(&frame).map_err(&failed)?;
        }
        capture.finish().map_err(failed)?;
        Ok(Self { capture: Some(memory), number: 0 })
    }

    /// Creates a device that receives nothing.
    pub fn silent() -> Self {
        Self { capture: None, number: 0 }
    }

    /// Returns the name of the next device.
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
