//! Writes frames to one pcapng or pcap file.

use crate::block;
use std::io::{self, BufWriter, Write};
use weir_capture::{Frame, PcapWriter};

const BUFFER_BYTES: usize = 256 << 10;
const ETHERNET: u16 = 1;
/// Longer than any frame that is read.
const SNAP_BYTES: u32 = 16 << 20;

/// A file of frames.
pub enum PacketFile<W: Write> {
    /// pcapng: each interface is described before its first frame.
    Pcapng(PcapngOutput<W>),
    /// pcap: all frames have the link type of the first one.
    Pcap(PcapOutput<W>),
}

/// A pcapng file, with the blocks that wait until the names of their interfaces are known.
pub struct PcapngOutput<W: Write> {
    output: BufWriter<W>,
    /// Number and link type of the interfaces.
    interfaces: Vec<(u32, u16)>,
    /// How many of them are described in the file.
    described: usize,
    blocks: Vec<u8>,
}

/// A pcap file, which begins with its first frame.
pub enum PcapOutput<W: Write> {
    /// No frame so far.
    Empty(Option<W>),
    /// The file.
    Open(PcapWriter<W>),
}

impl<W: Write> PacketFile<W> {
    /// Begins a pcapng file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn pcapng(output: W) -> io::Result<Self> {
        let mut section = Vec::new();
        block::section_header(&mut section, "", "", "", concat!("weir ", env!("CARGO_PKG_VERSION")));
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&section)?;
        Ok(Self::Pcapng(PcapngOutput { output, interfaces: Vec::new(), described: 0, blocks: Vec::new() }))
    }

    /// Begins a pcap file.
    pub fn pcap(output: W) -> Self {
        Self::Pcap(PcapOutput::Empty(Some(output)))
    }

    /// Adds a frame. [`PacketFile::flush`] writes it.
    ///
    /// # Errors
    /// The file cannot be written; `InvalidInput` for a frame that a pcap file has no place for.
    pub fn add(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        match self {
            Self::Pcapng(PcapngOutput { interfaces, blocks, .. }) => {
                let interface = (frame.interface, frame.link_type);
                let number = interfaces.iter().position(|known| *known == interface).unwrap_or_else(|| {
                    interfaces.push(interface);
                    interfaces.len() - 1
                });
                block::enhanced_packet(blocks, number as u32, frame, 0);
                Ok(())
            }
            Self::Pcap(pcap) => {
                if let PcapOutput::Empty(output) = pcap {
                    let output = output.take().ok_or(io::ErrorKind::BrokenPipe)?;
                    *pcap = PcapOutput::Open(PcapWriter::new(output, frame.link_type, SNAP_BYTES)?);
                }
                match pcap {
                    PcapOutput::Open(writer) => writer.write(frame),
                    PcapOutput::Empty(_) => unreachable!("it was opened above"),
                }
            }
        }
    }

    /// Writes the frames that were added. `names` returns the names of interfaces by their numbers, as
    /// far as they are known; it is called if there are new ones.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self, names: impl FnOnce() -> Vec<(u32, String)>) -> io::Result<()> {
        let Self::Pcapng(PcapngOutput { output, interfaces, described, blocks }) = self else { return Ok(()) };
        if *described < interfaces.len() {
            let (names, mut descriptions) = (names(), Vec::new());
            for (interface, link_type) in &interfaces[*described..] {
                let name = names.iter().find(|(number, _)| number == interface).map_or("", |(_, name)| name);
                block::interface_description(&mut descriptions, *link_type, name, None);
            }
            *described = interfaces.len();
            output.write_all(&descriptions)?;
        }
        output.write_all(blocks)?;
        blocks.clear();
        Ok(())
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The file cannot be written: it is incomplete.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Pcapng(PcapngOutput { mut output, .. }) => output.flush(),
            Self::Pcap(PcapOutput::Open(writer)) => writer.finish()?.flush(),
            Self::Pcap(PcapOutput::Empty(Some(output))) => {
                PcapWriter::new(output, ETHERNET, SNAP_BYTES)?.finish()?.flush()
            }
            Self::Pcap(PcapOutput::Empty(None)) => Ok(()),
        }
    }
}
