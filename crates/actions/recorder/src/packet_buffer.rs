//! A pcapng file in memory, up to a number of octets.

use crate::block;
use weir_capture::Frame;

/// Frames that fit into a number of octets.
pub struct PacketBuffer {
    /// Octets of the packet blocks, at most.
    most: usize,
    /// Number and link type of the interfaces.
    interfaces: Vec<(u32, u16)>,
    blocks: Vec<u8>,
    /// Frames in the buffer.
    pub packets: u64,
    /// Their captured octets.
    pub octets: u64,
}

impl PacketBuffer {
    /// An empty buffer for this number of octets. It takes no memory before there are frames.
    pub fn new(most: usize) -> Self {
        Self { most, interfaces: Vec::new(), blocks: Vec::new(), packets: 0, octets: 0 }
    }

    /// Adds a frame, and returns whether it fits. After one that does not, add no more: there would be a gap.
    pub fn add(&mut self, frame: &Frame<'_>) -> bool {
        if self.blocks.len() + frame.bytes.len() + block::PACKET_OVERHEAD > self.most {
            return false;
        }
        let interface = (frame.interface, frame.link_type);
        let number = self.interfaces.iter().position(|known| *known == interface).unwrap_or_else(|| {
            self.interfaces.push(interface);
            self.interfaces.len() - 1
        });
        block::enhanced_packet(&mut self.blocks, number as u32, frame, 0);
        self.packets += 1;
        self.octets += frame.bytes.len() as u64;
        true
    }

    /// The file, with a comment if there is one. `names` are those of interfaces by their numbers.
    pub fn into_file(self, comment: &str, names: &[(u32, String)]) -> Vec<u8> {
        let mut file = Vec::with_capacity(self.blocks.len() + 512);
        block::section_header(&mut file, comment, "", "", concat!("weir ", env!("CARGO_PKG_VERSION")));
        for (interface, link_type) in &self.interfaces {
            let name = names.iter().find(|(number, _)| number == interface).map_or("", |(_, name)| name);
            block::interface_description(&mut file, *link_type, name, None);
        }
        file.extend(self.blocks);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8], interface: u32, link_type: u16) -> Frame<'_> {
        Frame { bytes, wire_bytes: 90, time_ns: 1_000_000_007, interface, link_type, time_assumed: false }
    }

    #[test]
    fn a_buffer_is_a_capture_of_the_frames_that_fit() {
        let mut buffer = PacketBuffer::new(260);
        let octets = [7; 60];
        assert!(buffer.add(&frame(&octets, 3, 1)) && buffer.add(&frame(&octets, 4, 101)));
        assert!(!buffer.add(&frame(&octets, 3, 1)), "there is no room");
        assert_eq!((buffer.packets, buffer.octets), (2, 120));
        let file = buffer.into_file("incomplete", &[(4, "eth4".into())]);
        assert!(file.windows(10).any(|part| part == b"incomplete"));
        let mut source = weir_capture::from_bytes("memory".as_ref(), file).unwrap();
        let mut read = Vec::new();
        while let Some(burst) = source.burst().unwrap() {
            read.extend(
                burst.iter().map(|frame| (frame.bytes.len(), frame.wire_bytes, frame.time_ns, frame.link_type)),
            );
        }
        assert_eq!(read, [(60, 90, 1_000_000_007, 1), (60, 90, 1_000_000_007, 101)]);
        assert!(source.interfaces().iter().any(|(_, name)| name == "eth4"));
    }
}
