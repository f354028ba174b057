//! Opens a spool: what earlier runs have left, up to where it is whole.

use crate::acks::{Ack, Acks};
use crate::count::{Count, Split};
use crate::entry::{Found, find};
use crate::error::Error;
use crate::folder::{Content, Folder, segment_name};
use crate::identity::{Identity, random};
use crate::state::{BATCH_BITS, Open, Place, Segment, Settings, Spool};
use std::collections::VecDeque;

/// What earlier runs have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Batches that wait. What is damaged among them is known when it is read.
    pub waiting: Count,
    /// Octets without a whole entry that were cut from the end, or deleted.
    pub octets_cut: u64,
    /// Nothing says for certain which batches are delivered and how many there were: some may come twice, some count as
    /// [`Status::unknown`](crate::Status::unknown), and those that the end of the last segment has lost do not count.
    pub positions_lost: bool,
}

/// Whether the folder is empty, missing or a spool of this sink that no other process has open. Changes nothing.
pub fn check(settings: &Settings) -> Result<(), Error> {
    match Folder::of(&settings.folder, None) {
        Ok(folder) => {
            check_content(&folder, &settings.sink)?;
            folder.check_lock()
        }
        Err(Error::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn check_content(folder: &Folder, sink: &str) -> Result<(Content, Identity), Error> {
    let content = folder.content()?;
    if let Some(name) = content.foreign {
        return Err(Error::Foreign { folder: folder.path().into(), name });
    }
    if !content.has_identity {
        if content.has_acks || !content.segments.is_empty() {
            return Err(Error::NoIdentity(folder.path().into()));
        }
        return Ok((content, Identity { sink: sink.into(), runs: 0, number: random(), gone: Count::default() }));
    }
    let identity = Identity::read(folder)?;
    if identity.sink != sink {
        let (found, wanted) = (identity.sink, sink.to_owned());
        return Err(Error::OtherSink { folder: folder.path().into(), found, wanted });
    }
    Ok((content, identity))
}

impl Spool {
    /// Opens a spool, or starts one in an empty folder. Nothing is written to the folder of another program.
    pub fn open(settings: Settings) -> Result<(Self, Recovered), Error> {
        let folder = Folder::open(&settings.folder, settings.owner)?;
        check_content(&folder, &settings.sink)?;
        let lock = folder.lock()?;
        let (content, mut identity) = check_content(&folder, &settings.sink)?;
        let mut recovered = Recovered::default();
        let (mut segments, end, last_id) = scan(&folder, &content, &mut recovered)?;
        let next_number = sort(&folder, &content, &mut segments)?;
        if !content.has_identity {
            // Without it, the other files would belong to no sink.
            identity.write(&folder)?;
        }
        let acks = Acks::open(&folder, &content, Ack { id: 0, position: identity.gone })?;
        recovered.positions_lost = acks.is_damaged && identity.runs > 0;
        let last_id = [Some(acks.last), acks.on_disk].into_iter().flatten().map(|ack| ack.id).fold(last_id, u64::max);
        identity.runs = identity.runs.max((last_id >> BATCH_BITS) as u32) + 1;
        identity.gone = acks.last.position;
        match identity.write(&folder) {
            // The next run finds the number of this one in its batches, if there are any.
            Err(error) if !error.is_full_disk() => return Err(error),
            _ => {}
        }
        let read = acks.last.position;
        let known = [Some(acks.last), acks.on_disk].into_iter().flatten().map(|ack| ack.position);
        let appended =
            known.fold(end, |appended, known| if known.batches > appended.batches { known } else { appended });
        recovered.waiting = appended.saturating_sub(read);
        let mut spool = Self {
            limit: settings.limit,
            segment_bytes: Self::segment_limit(settings.limit, settings.segment_bytes),
            runs: identity.runs,
            number: identity.number,
            own_batches: 0,
            octets: segments.iter().map(|segment| segment.octets).sum(),
            active: None,
            next_number,
            place: Place { segment: segments.front().map_or(0, |segment| segment.number), offset: 0 },
            segments,
            context: Vec::new().into(),
            border: appended,
            appended,
            read,
            found: recovered.waiting,
            last_gone: acks.last.id,
            in_flight: VecDeque::new(),
            rewound: VecDeque::new(),
            open: Open::default(),
            released: Split::default(),
            dropped: Split::default(),
            damaged: Split::default(),
            unknown: Split::default(),
            synced_at: None,
            folder,
            acks,
            _lock: lock,
        };
        if recovered.positions_lost {
            spool.count_unknown();
            recovered.waiting = spool.appended.saturating_sub(spool.read);
        }
        spool.leave_gone_segments();
        spool.sync()?;
        Ok((spool, recovered))
    }

    /// What is before the first segment may be gone or lost: nothing says which.
    fn count_unknown(&mut self) {
        if let Some(first) = self.segments.front()
            && first.start.batches > self.read.batches
        {
            self.unknown.merge(Split::between(self.read, first.start, self.border));
            self.read = first.start;
        }
    }

    /// The first segment that is read is the first of which not everything is gone.
    fn leave_gone_segments(&mut self) {
        let gone = self.segments.iter().skip(1).take_while(|next| next.start.batches <= self.read.batches).count();
        if let Some(segment) = self.segments.get(gone) {
            self.place = Place { segment: segment.number, offset: 0 };
        }
    }
}

/// The segments with whole entries, by the number of batches before them; all batches that they count; the last
/// identifier. Cuts what is behind the last whole entry.
fn scan(
    folder: &Folder,
    content: &Content,
    recovered: &mut Recovered,
) -> Result<(VecDeque<Segment>, Count, u64), Error> {
    let (mut segments, mut end, mut last_id) = (Vec::new(), Count::default(), 0);
    for &number in &content.segments {
        let name = segment_name(number);
        let failed = |error| folder.error(&name, error);
        let file = folder.read(&name).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let octets = metadata.len();
        let first = find(&file, 0, octets).map_err(failed)?;
        let (Found::Entry(_, header, _) | Found::Damaged(_, header)) = first else {
            recovered.octets_cut += octets;
            folder.delete(&name).map_err(failed)?;
            continue;
        };
        last_id = last_id.max(header.id);
        // Not every file system knows when a file was made.
        let begun = metadata.created().or_else(|_| metadata.modified()).map_err(failed)?;
        segments.push(Segment { number, octets, start: header.before, begun });
    }
    segments.sort_by_key(|segment| segment.start.batches);
    // Only a copy of the last one begins where it does.
    let start = segments.last().map_or(0, |last| last.start.batches);
    for last in segments.iter_mut().filter(|segment| segment.start.batches == start) {
        let (end_of_last, last_id_of_last) = cut(folder, last, recovered)?;
        if end_of_last.batches >= end.batches {
            end = end_of_last;
        }
        last_id = last_id.max(last_id_of_last);
    }
    Ok((segments.into(), end, last_id))
}

/// Cuts what is behind the last whole entry of a segment. All batches up to its end, and the last identifier.
fn cut(folder: &Folder, segment: &mut Segment, recovered: &mut Recovered) -> Result<(Count, u64), Error> {
    let name = segment_name(segment.number);
    let failed = |error| folder.error(&name, error);
    let file = folder.read_write(&name).map_err(failed)?;
    let (mut offset, mut whole, mut end, mut last_id) = (0, 0, segment.start, 0);
    loop {
        let (at, header, is_whole) = match find(&file, offset, segment.octets).map_err(failed)? {
            Found::Entry(at, header, _) => (at, header, true),
            Found::Damaged(at, header) => (at, header, at + header.octets() <= segment.octets),
            Found::End => break,
        };
        if header.after().batches >= end.batches {
            end = header.after();
        }
        last_id = last_id.max(header.id);
        offset = at + header.octets();
        if is_whole {
            whole = offset;
        }
    }
    if whole < segment.octets {
        file.set_len(whole).and_then(|()| file.sync_data()).map_err(failed)?;
        recovered.octets_cut += segment.octets - whole;
        segment.octets = whole;
    }
    Ok((end, last_id))
}

/// Renames segments whose names are not in the order of their batches, because files were exchanged. Returns the number
/// of the next one.
fn sort(folder: &Folder, content: &Content, segments: &mut VecDeque<Segment>) -> Result<u32, Error> {
    let mut next = content.segments.last().map_or(1, |last| last.saturating_add(1));
    if !segments.iter().is_sorted_by_key(|segment| segment.number) {
        for segment in segments {
            let name = segment_name(segment.number);
            folder.rename(&name, &segment_name(next)).map_err(|error| folder.error(&name, error))?;
            segment.number = next;
            next = next.saturating_add(1);
        }
        folder.sync().map_err(|error| folder.error("", error))?;
    }
    Ok(next)
}
