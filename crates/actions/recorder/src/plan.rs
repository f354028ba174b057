//! What a search reads: the parts of recorded files that their indexes name, and other files whole.

use crate::block::{self, ENHANCED_PACKET};
use crate::flow_key::FlowKey;
use crate::folder::{self, index_path};
use crate::index::{Group, GroupFlows, Index, parts_of_id};
use crate::query::{Classifier, Query, Verdict, Wanted};
use crate::recording::{Content, Opener, Piece, Recording};
use ahash::AHashSet;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_capture::{Error, Source};

/// Longest end of a file that is looked at before the search: above, it is scanned anyway.
const MAX_TAIL_BYTES: u64 = 4 << 20;
/// An index is at most this many times as long as its capture file, and this many octets: a group of one packet
/// takes 1.6 times the octets of the shortest packet.
const MAX_INDEX_SHARE: u64 = 2;
const MAX_INDEX_BYTES: u64 = 64 << 10;
/// Pairs of addresses whose fragments are searched; beyond, all fragments are read.
const MAX_PAIRS: usize = 1 << 20;

/// Something about an index that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexNotice {
    /// It belongs to another file, or is damaged from its beginning.
    #[error("the index does not belong to this file; the file is read whole")]
    Unusable,
    /// It ends before the file does, as after a kill.
    #[error("the index is cut or damaged; the file is scanned from octet {0} on")]
    Torn(u64),
    /// The capture file is shorter than the index says.
    #[error("the file is shorter than its index says; the missing packets are lost")]
    ShortFile,
}

/// A search: what is read for it, and how much that was.
pub struct Search {
    pub(crate) query: Query,
    inputs: Vec<Vec<Piece>>,
    /// Files that are searched.
    pub files: usize,
    /// Those with an index.
    pub indexed_files: usize,
    /// Octets of these files.
    pub octets: u64,
    /// What is wrong with indexes, by capture file.
    pub notices: Vec<(PathBuf, IndexNotice)>,
    /// The time was over before all indexes were read: what they name is not searched.
    pub is_cut: bool,
    octets_read: Arc<AtomicU64>,
    octets_of_indexes: u64,
}

/// Where a group of a file may have packets that are wanted.
struct Candidate {
    input: usize,
    at: usize,
    parts: Vec<Range<u64>>,
    wanted: u32,
    fragments: Vec<(FlowKey, u32)>,
}

impl Search {
    /// Plans a search in folders of recorders, captures, and capture files with an index beside them.
    ///
    /// # Errors
    /// A file or folder cannot be read. A capture that cannot be opened is reported when it is read.
    pub fn plan(paths: &[PathBuf], query: Query) -> Result<Self, Error> {
        Self::plan_until(paths, query, &|| false)
    }

    /// The same, as far as it comes before the time is over. That is looked at before each file, and before each group of
    /// an index.
    ///
    /// # Errors
    /// As [`Search::plan`].
    pub fn plan_until(paths: &[PathBuf], query: Query, is_over: &dyn Fn() -> bool) -> Result<Self, Error> {
        let mut search = Self {
            inputs: vec![Vec::new(); paths.len()],
            files: 0,
            indexed_files: 0,
            octets: 0,
            notices: Vec::new(),
            is_cut: false,
            octets_read: Arc::default(),
            octets_of_indexes: 0,
            query,
        };
        let mut planner = Planner {
            classifier: Classifier::new(&search.query),
            candidates: Vec::new(),
            pairs: Some(AHashSet::new()),
            is_over,
        };
        // Another one may have files already.
        let (mut empty, mut has_files) = (None, false);
        for (input, path) in paths.iter().enumerate() {
            let failed = |error| Error::Io { path: path.clone(), error };
            if search.is_cut(&planner) {
                break;
            }
            if path.is_dir() {
                let files = folder::list(path).map_err(failed)?;
                if files.is_empty() {
                    empty = empty.or(Some(path));
                    continue;
                }
                has_files = true;
                for file in files {
                    if search.is_cut(&planner) {
                        break;
                    }
                    match search.add_file(input, &file.path, &mut planner) {
                        // The recorder has removed it since.
                        Err(Error::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                        added => added?,
                    }
                }
            } else {
                has_files = true;
                search.add_file(input, path, &mut planner)?;
            }
        }
        if let Some(path) = empty.filter(|_| !has_files) {
            let error = io::Error::new(io::ErrorKind::NotFound, "no capture files of a recorder in this folder");
            return Err(Error::Io { path: path.clone(), error });
        }
        search.choose_parts(planner);
        Ok(search)
    }

    /// Whether the time is over.
    fn is_cut(&mut self, planner: &Planner<'_>) -> bool {
        self.is_cut = self.is_cut || (planner.is_over)();
        self.is_cut
    }

    fn add_file(&mut self, input: usize, path: &Path, planner: &mut Planner<'_>) -> Result<(), Error> {
        let failed = |error| Error::Io { path: path.into(), error };
        // The index first: what it names is in the file by then.
        let found = index_path(path).is_file().then(|| self.read_index(path)).transpose().map_err(failed)?;
        let length = if path == Path::new("-") { 0 } else { fs::metadata(path).map_err(failed)?.len() };
        self.files += 1;
        self.octets += length;
        let Some((file, index)) = found.and_then(|read| read) else {
            if self.query.wanted != Wanted::Everything {
                planner.pairs = None;
            }
            self.inputs[input].push(Piece { path: path.into(), prologue: Arc::default(), content: Content::Whole });
            return Ok(());
        };
        self.indexed_files += 1;
        let prologue: Arc<[u8]> = index.prologue().into();
        let piece = |content| Piece { path: path.into(), prologue: prologue.clone(), content };
        let mut end = index.end();
        if index.is_torn {
            self.notices.push((path.into(), IndexNotice::Torn(end)));
        }
        if end > length {
            self.notices.push((path.into(), IndexNotice::ShortFile));
        }
        for group in index.groups {
            if self.is_cut(planner) {
                return Ok(());
            }
            if group.parts.last().is_none_or(|part| part.end > length) {
                // Behind this one there is nothing that the index knows.
                end = group.parts.first().map_or(end, |part| part.start).min(length);
                break;
            }
            if planner.add_group(group, &self.query, (input, self.inputs[input].len())) {
                self.inputs[input].push(piece(Content::Parts(Vec::new())));
            }
        }
        if end < length
            && let Some(end_of_tail) = self.tail_with_packets(&file, path, end).map_err(failed)?
        {
            planner.pairs = None;
            self.inputs[input].push(piece(Content::Tail(end..end_of_tail)));
        }
        Ok(())
    }

    /// Reads the index of a file. `None` if it cannot be used.
    fn read_index(&mut self, path: &Path) -> io::Result<Option<(File, Index)>> {
        let (Some(file), Some(index)) = (open_regular(path)?, open_regular(&index_path(path))?) else {
            return Ok(None);
        };
        // The recorder writes packets first. It may write both meanwhile.
        let most = MAX_INDEX_SHARE * file.metadata()?.len() + MAX_INDEX_BYTES;
        let mut octets = Vec::new();
        index.take(most + 1).read_to_end(&mut octets)?;
        self.octets_of_indexes += octets.len() as u64;
        if octets.len() as u64 > most {
            self.notices.push((path.into(), IndexNotice::Unusable));
            return Ok(None);
        }
        let is_of = |index: &Index| {
            let mut start = vec![0; index.section_header.len()];
            file.read_exact_at(&mut start, 0).is_ok() && start == index.section_header
        };
        let index = Index::parse(&octets).filter(is_of);
        if index.is_none() {
            self.notices.push((path.into(), IndexNotice::Unusable));
        }
        Ok(index.map(|index| (file, index)))
    }

    /// Where the tail of a file ends that begins here: `None` if it has no packets, but the statistics of
    /// interfaces, which are there anyway; `u64::MAX` if all that there is shall be read. A file that is
    /// still being recorded is read up to its last whole block.
    fn tail_with_packets(&mut self, file: &File, path: &Path, start: u64) -> io::Result<Option<u64>> {
        let length = file.metadata()?.len().saturating_sub(start);
        if length > MAX_TAIL_BYTES {
            let end = if is_recorded(path) { end_of_whole_blocks(file, start, start + length)? } else { u64::MAX };
            return Ok(Some(end));
        }
        let mut octets = vec![0; length as usize];
        file.read_exact_at(&mut octets, start)?;
        let (mut rest, mut has_packets) = (&octets[..], false);
        while let Some((kind, _, next)) = block::split_block(rest) {
            has_packets |= kind == ENHANCED_PACKET;
            rest = next;
        }
        // A block that is damaged is reported, and so is one that is cut, unless it is being written.
        let is_cut = rest.len() < 12 || block::word(rest, 4).is_some_and(|octets| octets as usize > rest.len());
        let is_whole = rest.is_empty() || (is_cut && is_recorded(path));
        if !is_whole {
            return Ok(Some(u64::MAX));
        }
        self.octets_of_indexes += if has_packets { 0 } else { length };
        Ok(has_packets.then_some(start + length - rest.len() as u64))
    }

    fn choose_parts(&mut self, planner: Planner<'_>) {
        for Candidate { input, at, parts, wanted, fragments } in planner.candidates {
            let is_wanted = |key: &FlowKey| planner.pairs.as_ref().is_none_or(|pairs| pairs.contains(key));
            let of_fragments = fragments.iter().filter(|(key, _)| is_wanted(key)).map(|(_, parts)| parts);
            let wanted = of_fragments.fold(wanted, |wanted, parts| wanted | parts);
            let chosen = parts.into_iter().enumerate().filter(|(part, _)| wanted >> part & 1 != 0);
            self.inputs[input][at].content = Content::Parts(chosen.map(|(_, part)| part).collect());
        }
        for pieces in &mut self.inputs {
            pieces.retain(|piece| !matches!(&piece.content, Content::Parts(parts) if parts.is_empty()));
        }
    }

    /// The frames that have to be read, in order of time if there are several inputs. `open` opens whole captures.
    pub fn source(&self, open: &Opener) -> Box<dyn Source + Send> {
        let recording = |pieces: &Vec<Piece>| -> Box<dyn Source + Send> {
            Box::new(Recording::new(pieces.clone(), self.query.time_ns, open.clone(), self.octets_read.clone()))
        };
        weir_capture::merge(self.inputs.iter().map(recording).collect())
    }

    /// How many folders and files are searched.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Whether an input can be read only once.
    pub fn pipe(&self) -> Option<&Path> {
        let is_read_once = |piece: &&Piece| matches!(piece.content, Content::Whole) && is_pipe(&piece.path);
        self.inputs.iter().flatten().find(is_read_once).map(|piece| piece.path.as_path())
    }

    /// Octets of the capture files that were read so far, with those of their indexes.
    pub fn octets_read(&self) -> u64 {
        self.octets_read.load(Relaxed) + self.octets_of_indexes
    }
}

/// Where the last whole block before `end` ends, by the lengths in the blocks; `u64::MAX` if one is damaged, which
/// the search then reports.
fn end_of_whole_blocks(file: &File, mut at: u64, end: u64) -> io::Result<u64> {
    let mut header = [0; 8];
    while at + 12 <= end {
        file.read_exact_at(&mut header, at)?;
        let octets = u64::from(block::word(&header, 4).expect("the header has two words"));
        if octets < 12 || octets % 4 != 0 {
            return Ok(u64::MAX);
        }
        if octets > end - at {
            break;
        }
        at += octets;
    }
    Ok(at)
}

/// Whether a recorder writes this file: it has the lock of the folder, and the file is the newest one.
fn is_recorded(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let newest = folder::list(folder).ok().and_then(|files| files.last()?.path.file_name().map(OsStr::to_owned));
    let locked = File::open(folder).map(|folder| flock(&folder, FlockOperation::NonBlockingLockShared));
    newest.as_deref() == path.file_name() && locked.is_ok_and(|locked| locked == Err(rustix::io::Errno::WOULDBLOCK))
}

/// Opens a file for reading, without waiting for the writer of a pipe. `None` if it is not regular.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    Ok(if file.metadata()?.is_file() { Some(file) } else { None })
}

fn is_pipe(path: &Path) -> bool {
    path == Path::new("-") || fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

struct Planner<'a> {
    classifier: Classifier,
    candidates: Vec<Candidate>,
    /// The pairs of addresses of flows that may be wanted, as far as indexes list all flows.
    pairs: Option<AHashSet<FlowKey>>,
    is_over: &'a dyn Fn() -> bool,
}

impl Planner<'_> {
    /// Adds a group, unless it has nothing that is wanted. `place` is that of its piece.
    fn add_group(&mut self, group: Group, query: &Query, (input, at): (usize, usize)) -> bool {
        let [from_ns, to_ns] = query.time_ns;
        if group.last_ns < from_ns || group.first_ns > to_ns {
            return false;
        }
        let all = u32::MAX >> (32 - group.parts.len());
        let (mut wanted, mut fragments) = (0, Vec::new());
        match (&group.flows, &query.wanted) {
            (_, Wanted::Everything) => wanted = all,
            (GroupFlows::List(flows), _) => {
                for &(key, parts) in flows {
                    match (self.classifier.verdict(&key), key.is_of_fragments) {
                        (Verdict::None, _) => {}
                        (_, true) => fragments.push((key, parts)),
                        (_, false) => {
                            wanted |= parts;
                            self.add_pair(key);
                        }
                    }
                }
            }
            (GroupFlows::Filter(filter), Wanted::Flow(id)) => {
                wanted = parts_of_id(filter, group.parts.len(), id) | group.fragments;
                self.pairs = None;
            }
            (GroupFlows::Filter(_), Wanted::Records(_)) => {
                wanted = all;
                self.pairs = None;
            }
        }
        let wanted = wanted & all;
        if wanted == 0 && fragments.is_empty() {
            return false;
        }
        self.candidates.push(Candidate { input, at, parts: group.parts, wanted, fragments });
        true
    }

    fn add_pair(&mut self, key: FlowKey) {
        if let Some(pairs) = &mut self.pairs {
            pairs.insert(key.of_fragments());
            if pairs.len() > MAX_PAIRS {
                self.pairs = None;
            }
        }
    }
}
