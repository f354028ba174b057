//! Capture files, written: pcap with nanoseconds (draft-ietf-opsawg-pcap), little-endian on every machine.

use crate::source::Frame;
use std::io::{self, BufWriter, Write};

const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const BUFFER_BYTES: usize = 256 << 10;

/// Writes frames as a pcap file, through a buffer of its own. The file is whole after [`PcapWriter::finish`];
/// without it what is in the buffer is written when the writer goes, and nobody hears of an error.
pub struct PcapWriter<W: Write> {
    output: BufWriter<W>,
    link_type: u16,
    snap: u32,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a file for frames of one link type, of each at most `snap` octets.
    ///
    /// # Errors
    /// What the output says.
    pub fn new(output: W, link_type: u16, snap: u32) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&NANOSECONDS.to_le_bytes())?;
        output.write_all(&VERSION.map(u16::to_le_bytes).concat())?;
        output.write_all(&[0; 8])?; // two fields that nobody uses: time zone and accuracy
        output.write_all(&snap.to_le_bytes())?;
        output.write_all(&u32::from(link_type).to_le_bytes())?;
        Ok(Self { output, link_type, snap })
    }

    /// Writes one frame, cut to the snap length.
    ///
    /// # Errors
    /// What the output says; `InvalidInput` for what the file cannot hold: another link type, or a time after 2106.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if frame.link_type != self.link_type {
            return refuse(format!(
                "a frame of link type {} in a pcap file of link type {}",
                frame.link_type, self.link_type
            ));
        }
        let Ok(seconds) = u32::try_from(frame.time_ns / 1_000_000_000) else {
            return refuse(format!("{} ns after 1970 is later than a pcap file can say", frame.time_ns));
        };
        let bytes = &frame.bytes[..frame.bytes.len().min(self.snap as usize)];
        let fraction_ns = (frame.time_ns % 1_000_000_000) as u32;
        let mut header = [0; 16];
        let fields = [seconds, fraction_ns, bytes.len() as u32, frame.wire_bytes];
        for (octets, field) in header.chunks_exact_mut(4).zip(fields) {
            octets.copy_from_slice(&field.to_le_bytes());
        }
        self.output.write_all(&header)?;
        self.output.write_all(bytes)
    }

    /// Writes out what is in the buffer and gives the output back.
    ///
    /// # Errors
    /// What the output says: the file is not complete.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        self.output.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'static> = Frame {
        bytes: &[1, 2, 3, 4, 5],
        time_ns: 1_767_225_600_123_456_789,
        wire_bytes: 60,
        link_type: 1,
        time_clamped: false,
        interface: 0,
    };

    #[test]
    fn a_file_is_what_the_format_says_on_every_machine() {
        let mut writer = PcapWriter::new(Vec::new(), 1, 4).unwrap();
        writer.write(&FRAME).unwrap();
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, //
            0x00, 0xb9, 0x55, 0x69, 0x15, 0xcd, 0x5b, 0x07, 4, 0, 0, 0, 60, 0, 0, 0, 1, 2, 3, 4,
        ];
        assert_eq!(writer.finish().unwrap(), expected);
    }

    #[test]
    fn what_the_file_cannot_hold_is_refused() {
        let mut writer = PcapWriter::new(Vec::new(), 1, 65_535).unwrap();
        for frame in [Frame { link_type: 101, ..FRAME }, Frame { time_ns: (1 << 32) * 1_000_000_000, ..FRAME }] {
            assert_eq!(writer.write(&frame).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_full_disk_is_an_error_at_the_latest_at_the_end() {
        let mut room = [0; 30];
        let mut writer = PcapWriter::new(&mut room[..], 1, 65_535).unwrap();
        writer.write(&FRAME).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
