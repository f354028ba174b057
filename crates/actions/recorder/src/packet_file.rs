//! Writes frames to one pcapng or pcap file.

use crate::block;
use std::io::{self, BufWriter, Write};
use weir_capture::{Frame, PcapWriter};

const BUFFER_BYTES: usize = 256 << 10;
const ETHERNET: u16 = 1;
/// Longer than any frame that is read.
const SNAP_BYTES: u32 = 16 << 20;

/// A file of frames.
pub struct PacketFile(Format);

enum Format {
    Pcapng {
        output: BufWriter<Box<dyn Write>>,
        /// Number and link type of the interfaces.
        interfaces: Vec<(u32, u16)>,
        /// How many of them are described in the file.
        described: usize,
        /// They wait until the names of their interfaces are known.
        blocks: Vec<u8>,
    },
    /// Begins with its first frame, whose link type all have.
    NewPcap(Option<Box<dyn Write>>),
    Pcap(PcapWriter<Box<dyn Write>>),
}

impl PacketFile {
    /// Begins a pcapng file, in which each interface is described before its first frame.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn pcapng(output: Box<dyn Write>) -> io::Result<Self> {
        let mut section = Vec::new();
        block::section_header(&mut section, "", "", "", concat!("weir ", env!("CARGO_PKG_VERSION")));
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&section)?;
        Ok(Self(Format::Pcapng { output, interfaces: Vec::new(), described: 0, blocks: Vec::new() }))
    }

    /// Begins a pcap file, in which all frames have the link type of the first one.
    pub fn pcap(output: Box<dyn Write>) -> Self {
        Self(Format::NewPcap(Some(output)))
    }

    /// Adds a frame. [`PacketFile::flush`] writes it.
    ///
    /// # Errors
    /// The file cannot be written; `InvalidInput` for a frame that a pcap file has no place for.
    pub fn add(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        if let Format::NewPcap(output) = &mut self.0 {
            let output = output.take().ok_or(io::ErrorKind::BrokenPipe)?;
            self.0 = Format::Pcap(PcapWriter::new(output, frame.link_type, SNAP_BYTES)?);
        }
        match &mut self.0 {
            Format::Pcapng { interfaces, blocks, .. } => {
                let interface = (frame.interface, frame.link_type);
                let number = interfaces.iter().position(|known| *known == interface).unwrap_or_else(|| {
                    interfaces.push(interface);
                    interfaces.len() - 1
                });
                block::enhanced_packet(blocks, number as u32, frame, 0);
                Ok(())
            }
            Format::Pcap(writer) => writer.write(frame),
            Format::NewPcap(_) => unreachable!("it was begun above"),
        }
    }

    /// Writes the frames that were added. `names` returns the names of interfaces by their numbers, as
    /// far as they are known; it is called if there are new ones.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self, names: impl FnOnce() -> Vec<(u32, String)>) -> io::Result<()> {
        let Format::Pcapng { output, interfaces, described, blocks } = &mut self.0 else { return Ok(()) };
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
        match self.0 {
            Format::Pcapng { mut output, .. } => output.flush(),
            Format::Pcap(writer) => writer.finish()?.flush(),
            Format::NewPcap(Some(output)) => PcapWriter::new(output, ETHERNET, SNAP_BYTES)?.finish()?.flush(),
            Format::NewPcap(None) => Ok(()),
        }
    }
}
