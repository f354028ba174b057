//! Compressed output files: members of gzip (RFC 1952) or frames of Zstandard (RFC 8878), by the
//! ending of the file name. Both are called frames here.
//!
//! Every write is a frame of its own with whole records. So a file is readable up to its last whole
//! frame, wherever a run ended, and other frames can follow.

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

/// Longest content of a frame in a file that is continued, octets. Weir's own are much shorter.
const MAX_CONTENT: u64 = 1 << 26;
/// An incomplete last frame is at most this long, octets. Otherwise the file is damaged.
const MAX_INCOMPLETE: u64 = 1 << 18;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Ending `.gz`.
    Gzip,
    /// Ending `.zst`.
    Zstandard,
}

impl Compression {
    /// The compression of a file, by its name.
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "gz" => Some(Self::Gzip),
            "zst" => Some(Self::Zstandard),
            _ => None,
        }
    }

    /// The first octets of each frame.
    fn magic(self) -> &'static [u8] {
        match self {
            Self::Gzip => b"\x1f\x8b",
            Self::Zstandard => b"\x28\xb5\x2f\xfd",
        }
    }

    /// Compresses octets into one frame.
    pub fn compress(self, octets: &[u8]) -> Vec<u8> {
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
                let compressed = encoder.write_all(octets).and_then(|()| encoder.finish());
                compressed.expect("memory can be written")
            }
            Self::Zstandard => compress_to_vec(octets, CompressionLevel::Fastest),
        }
    }

    /// The content of one frame.
    ///
    /// # Errors
    /// It is damaged.
    pub fn decompress(self, frame: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        match self {
            Self::Gzip => GzDecoder::new(frame).read_to_end(&mut content)?,
            Self::Zstandard => StreamingDecoder::new(frame).map_err(io::Error::other)?.read_to_end(&mut content)?,
        };
        Ok(content)
    }
}

/// The content of the whole frames at the beginning of a file. Its end is the end of the file, or
/// what is no whole frame.
pub(crate) struct WholeFrames<'a> {
    compression: Compression,
    file: BufReader<Counted<&'a File>>,
    frame: io::Cursor<Vec<u8>>,
    /// Octets of the file in whole frames, and of their content.
    whole: u64,
    content: u64,
    has_other_content: bool,
}

/// A reader that counts what was read.
struct Counted<R> {
    reader: R,
    octets: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let octets = self.reader.read(buffer)?;
        self.octets += octets as u64;
        Ok(octets)
    }
}

impl<'a> WholeFrames<'a> {
    pub fn new(compression: Compression, file: &'a File) -> Self {
        let file = BufReader::new(Counted { reader: file, octets: 0 });
        Self { compression, file, frame: io::Cursor::default(), whole: 0, content: 0, has_other_content: false }
    }

    /// After the content was read: the length of the whole frames in a file of this length, octets.
    /// `None` if no frames can be appended.
    pub fn length(&self, file_octets: u64) -> Option<u64> {
        let incomplete = file_octets.saturating_sub(self.whole);
        (!self.has_other_content && incomplete <= MAX_INCOMPLETE).then_some(self.whole)
    }

    /// Octets of the content that was read.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Reads the next frame. Returns false if there is none, or no whole one.
    fn read_frame(&mut self) -> io::Result<bool> {
        let begin = self.file.fill_buf()?;
        let magic = self.compression.magic();
        if begin.is_empty() {
            return Ok(false);
        }
        self.has_other_content |= !begin.starts_with(&magic[..magic.len().min(begin.len())]);
        let mut content = std::mem::take(&mut self.frame).into_inner();
        content.clear();
        let read = match self.compression {
            Compression::Gzip => GzDecoder::new(&mut self.file).take(MAX_CONTENT).read_to_end(&mut content),
            Compression::Zstandard => StreamingDecoder::new(&mut self.file)
                .map_err(io::Error::other)
                .and_then(|decoder| decoder.take(MAX_CONTENT).read_to_end(&mut content)),
        };
        if self.has_other_content || read.is_err() || content.len() as u64 == MAX_CONTENT {
            return Ok(false);
        }
        self.whole = self.file.get_ref().octets - self.file.buffer().len() as u64;
        self.content += content.len() as u64;
        self.frame = io::Cursor::new(content);
        Ok(true)
    }
}

impl Read for WholeFrames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.frame.read(buffer)? {
                0 if !buffer.is_empty() && self.read_frame()? => {}
                octets => return Ok(octets),
            }
        }
    }
}

/// As `whole_lines`, for a compressed file.
pub(crate) fn whole_lines_in_frames(
    compression: Compression,
    file: &File,
    length: u64,
    start: &[u8],
) -> io::Result<Option<u64>> {
    let mut frames = WholeFrames::new(compression, file);
    let mut part = Vec::new();
    frames.by_ref().take(start.len() as u64).read_to_end(&mut part)?;
    if !start.starts_with(&part) {
        return Ok(None);
    }
    while let Some(&last) = part.last() {
        part.clear();
        if frames.by_ref().take(1 << 16).read_to_end(&mut part)? == 0 && last != b'\n' {
            return Ok(None);
        }
    }
    Ok(frames.length(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(compression: Compression, octets: &[u8], start: &[u8]) -> Option<u64> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(octets).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        whole_lines_in_frames(compression, &file, octets.len() as u64, start).unwrap()
    }

    #[test]
    fn a_file_cut_anywhere_is_continued_after_its_last_whole_frame() {
        for compression in [Compression::Gzip, Compression::Zstandard] {
            let [first, second] = [&b"start,end\n1,2\n"[..], b"3,4\n"].map(|lines| compression.compress(lines));
            let file = [&first[..], &second].concat();
            for length in 0..=file.len() {
                let expected = match length {
                    _ if length == file.len() => file.len(),
                    _ if length >= first.len() => first.len(),
                    _ => 0,
                };
                assert_eq!(whole(compression, &file[..length], b"start,end\n"), Some(expected as u64), "{length}");
            }
            assert_eq!(whole(compression, &file, b"other,columns\n"), None);
            assert_eq!(whole(compression, b"start,end\n1,2\n", b"start,end\n"), None, "it is not compressed");
            assert_eq!(whole(compression, &[&file[..], b"more"].concat(), b"start,end\n"), None);
            assert_eq!(whole(compression, &compression.compress(b"start,end\n1,"), b"start,end\n"), None);
            // Damage is not cut off with all that follows.
            let damaged = [&first[..5], &vec![0; 1 << 19]].concat();
            assert_eq!(whole(compression, &damaged, b"start,end\n"), None);
        }
    }
}
