//! Writes pcap files (draft-ietf-opsawg-pcap) with nanosecond times, little-endian on every
//! machine.

use crate::source::Frame;
use std::io::{self, BufWriter, Write};

const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const BUFFER_BYTES: usize = 256 << 10;

/// The header of a pcap file.
pub fn pcap_file_header(link_type: u16, snap_bytes: u32) -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&NANOSECONDS.to_le_bytes());
    header[4..6].copy_from_slice(&VERSION[0].to_le_bytes());
    header[6..8].copy_from_slice(&VERSION[1].to_le_bytes());
    // The time zone and the accuracy are unused.
    header[16..20].copy_from_slice(&snap_bytes.to_le_bytes());
    header[20..].copy_from_slice(&u32::from(link_type).to_le_bytes());
    header
}

/// What precedes a whole frame in a pcap file. A time after 2106 becomes the latest that the format has.
pub fn pcap_record_header(frame: &Frame<'_>) -> [u8; 16] {
    let seconds = u32::try_from(frame.time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    record_header(seconds, frame, frame.bytes.len() as u32)
}

fn record_header(seconds: u32, frame: &Frame<'_>, captured: u32) -> [u8; 16] {
    let mut header = [0; 16];
    let fields = [seconds, (frame.time_ns % 1_000_000_000) as u32, captured, frame.wire_bytes];
    for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
    header
}

/// Writes frames to a pcap file through a buffer.
///
/// Call [`PcapWriter::finish`] at the end: dropping the writer writes the buffer, too, but ignores
/// errors.
pub struct PcapWriter<W: Write> {
    output: BufWriter<W>,
    link_type: u16,
    snap_bytes: u32,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a file for frames of one link type. Frames are cut to `snap_bytes`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(output: W, link_type: u16, snap_bytes: u32) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&pcap_file_header(link_type, snap_bytes))?;
        Ok(Self { output, link_type, snap_bytes })
    }

    /// Writes one frame, cut to the snap length.
    ///
    /// # Errors
    /// The output cannot be written; `InvalidInput` for a frame of another link type or a time
    /// after 2106.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let refuse = |error: String| Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        let (of_frame, of_file) = (frame.link_type, self.link_type);
        if of_frame != of_file {
            return refuse(format!("a frame of link type {of_frame} in a pcap file of link type {of_file}"));
        }
        let Ok(seconds) = u32::try_from(frame.time_ns / 1_000_000_000) else {
            return refuse(format!("{} ns since 1970 is later than the latest time of a pcap file", frame.time_ns));
        };
        let bytes = &frame.bytes[..frame.bytes.len().min(self.snap_bytes as usize)];
        self.output.write_all(&record_header(seconds, frame, bytes.len() as u32))?;
        self.output.write_all(bytes)
    }

    /// Writes the buffer and returns the output.
    ///
    /// # Errors
    /// The output cannot be written: the file is incomplete.
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
        time_assumed: false,
        interface: 0,
    };

    #[test]
    fn file_has_the_documented_bytes() {
        let mut writer = PcapWriter::new(Vec::new(), 1, 4).unwrap();
        writer.write(&FRAME).unwrap();
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, //
            0x00, 0xb9, 0x55, 0x69, 0x15, 0xcd, 0x5b, 0x07, 4, 0, 0, 0, 60, 0, 0, 0, 1, 2, 3, 4,
        ];
        assert_eq!(writer.finish().unwrap(), expected);
    }

    #[test]
    fn other_link_type_and_late_time_are_refused() {
        let mut writer = PcapWriter::new(Vec::new(), 1, 65_535).unwrap();
        for frame in [Frame { link_type: 101, ..FRAME }, Frame { time_ns: (1 << 32) * 1_000_000_000, ..FRAME }] {
            assert_eq!(writer.write(&frame).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn full_output_is_an_error_at_the_latest_in_finish() {
        let mut output = [0; 30];
        let mut writer = PcapWriter::new(&mut output[..], 1, 65_535).unwrap();
        writer.write(&FRAME).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
