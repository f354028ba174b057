//! A source of the pieces of recorded files, one after another.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_capture::{Burst, Error, FIRST_INTERFACE, Frame, MAX_BURST_FRAMES, Progress, Source};

/// Opens a file that is read as a whole.
pub type Opener = Arc<dyn Fn(&Path) -> Result<Box<dyn Source + Send>, Error> + Send + Sync>;

/// A file, or pieces of it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub path: PathBuf,
    /// Section header and interfaces, which precede parts and tails.
    pub prologue: Arc<[u8]>,
    pub content: Content,
}

/// What is read of a file.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Whole,
    /// Parts with packet blocks only.
    Parts(Vec<Range<u64>>),
    /// All of this range, or up to the end of the file.
    Tail(Range<u64>),
}

impl Piece {
    /// Octets of the file that are read for it, as far as they are known.
    fn octets(&self) -> u64 {
        let length = || std::fs::metadata(&self.path).map_or(0, |file| file.len());
        match &self.content {
            Content::Whole => length(),
            Content::Parts(parts) => parts.iter().map(|part| part.end - part.start).sum(),
            Content::Tail(octets) => length().min(octets.end).saturating_sub(octets.start),
        }
    }

    /// Opens the piece as a capture. The name tells where in the file it begins, because damage is
    /// reported with its place in the piece.
    fn open(&self, open_file: &Opener) -> Result<Box<dyn Source + Send>, Error> {
        let Self { path, prologue, content } = self;
        let failed = |error| Error::Io { path: path.clone(), error };
        let name = |start: u64| PathBuf::from(format!("{} (from octet {start} on)", path.display()));
        match content {
            Content::Whole => open_file(path),
            Content::Parts(parts) => {
                let file = File::open(path).map_err(failed)?;
                let mut octets = prologue.to_vec();
                for part in parts {
                    let start = octets.len();
                    octets.resize(start + (part.end - part.start) as usize, 0);
                    file.read_exact_at(&mut octets[start..], part.start).map_err(failed)?;
                }
                weir_capture::from_bytes(&name(parts.first().map_or(0, |part| part.start)), octets)
            }
            Content::Tail(Range { start, end }) => {
                let mut file = File::open(path).map_err(failed)?;
                file.seek(SeekFrom::Start(*start)).map_err(failed)?;
                let octets = io::Cursor::new(prologue.clone()).chain(file.take(end - start));
                weir_capture::from_reader(&name(*start), Box::new(octets))
            }
        }
    }
}

/// The frames of pieces in their order, within a time.
///
/// Interfaces of different files with the same name have the same number. A piece that cannot be
/// opened is reported as an error, and the next one follows.
pub(crate) struct Recording {
    pieces: std::vec::IntoIter<Piece>,
    time_ns: [u64; 2],
    open: Opener,
    /// Octets that were read, of all sources of a search.
    octets_read: Arc<AtomicU64>,
    current: Option<Current>,
    /// Interfaces by their number, less [`FIRST_INTERFACE`]: name, and number in the file if it has none.
    interfaces: Vec<(String, u32)>,
    progress: Progress,
    /// A copy of a burst of the current piece; as in `weir_capture::merge`, a number is the end of the
    /// frame's octets.
    octets: Vec<u8>,
    frames: Vec<(Frame<'static>, usize)>,
}

struct Current {
    source: Box<dyn Source + Send>,
    octets: u64,
    is_whole: bool,
    /// Number of an interface in the source, and of the recording.
    numbers: Vec<(u32, u32)>,
}

impl Recording {
    pub fn new(pieces: Vec<Piece>, time_ns: [u64; 2], open: Opener, octets_read: Arc<AtomicU64>) -> Self {
        let total_bytes = Some(pieces.iter().map(Piece::octets).sum());
        Self {
            pieces: pieces.into_iter(),
            time_ns,
            open,
            octets_read,
            current: None,
            interfaces: Vec::new(),
            progress: Progress { done_bytes: 0, total_bytes },
            octets: Vec::new(),
            frames: Vec::with_capacity(MAX_BURST_FRAMES),
        }
    }

    /// Copies the next frames within the time. Returns false at the end.
    fn fetch(&mut self) -> Result<bool, Error> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(piece) = self.pieces.next() else { return Ok(false) };
                let (source, octets) = (piece.open(&self.open)?, piece.octets());
                let is_whole = matches!(piece.content, Content::Whole);
                self.current = Some(Current { source, octets, is_whole, numbers: Vec::new() });
                continue;
            };
            self.octets.clear();
            self.frames.clear();
            let Some(burst) = current.source.burst()? else {
                self.end_piece();
                continue;
            };
            for frame in burst.iter().filter(|frame| (self.time_ns[0]..=self.time_ns[1]).contains(&frame.time_ns)) {
                self.octets.extend_from_slice(frame.bytes);
                self.frames.push((Frame { bytes: &[], ..*frame }, self.octets.len()));
            }
            drop(burst);
            for (frame, _) in &mut self.frames {
                frame.interface = number(frame.interface, current, &mut self.interfaces);
            }
            if !self.frames.is_empty() {
                return Ok(true);
            }
        }
    }

    fn end_piece(&mut self) {
        if let Some(Current { source, octets, is_whole, .. }) = self.current.take() {
            let octets = if is_whole { source.progress().done_bytes } else { octets };
            self.octets_read.fetch_add(octets, Relaxed);
            self.progress.done_bytes += octets;
        }
    }
}

impl Drop for Recording {
    /// Counts the piece whose end was not read.
    fn drop(&mut self) {
        self.end_piece();
    }
}

/// The number in a recording of an interface of its current piece.
fn number(interface: u32, current: &mut Current, interfaces: &mut Vec<(String, u32)>) -> u32 {
    if let Some((_, number)) = current.numbers.iter().find(|(known, _)| *known == interface) {
        return *number;
    }
    let named = current.source.interfaces().into_iter().find(|(number, _)| *number == interface);
    let key = named.map_or((String::new(), interface), |(_, name)| (name, 0));
    let at = interfaces.iter().position(|known| *known == key).unwrap_or_else(|| {
        interfaces.push(key);
        interfaces.len() - 1
    });
    let number = FIRST_INTERFACE + at as u32;
    current.numbers.push((interface, number));
    number
}

impl Source for Recording {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.fetch()? {
            return Ok(false);
        }
        let mut start = 0;
        for (frame, end) in &self.frames {
            burst.push(Frame { bytes: &self.octets[start..*end], ..*frame });
            start = *end;
        }
        Ok(true)
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        let named = (FIRST_INTERFACE..).zip(&self.interfaces).filter(|(_, (name, _))| !name.is_empty());
        named.map(|(number, (name, _))| (number, name.clone())).collect()
    }

    fn progress(&self) -> Progress {
        let current = self.current.as_ref().map_or(0, |current| match current.is_whole {
            true => current.source.progress().done_bytes,
            false => 0,
        });
        Progress { done_bytes: self.progress.done_bytes + current, ..self.progress }
    }
}
