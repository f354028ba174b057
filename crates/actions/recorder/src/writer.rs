//! The thread that writes capture files and their indexes.
//!
//! Input: chunks of packet blocks from the outputs. Output: files of whole blocks. Invariants: each
//! packet is counted as written or failed. A file begins with a section header, each interface is
//! described before its first packet, and a group is in the index only after its packets are in the
//! file. If a write fails, what it wrote is cut off again, so that the file stays whole.

use crate::block;
use crate::flow_key::{decode_frame, is_fragment};
use crate::folder::{self, RecordedFile, file_name, index_path};
use crate::index::{self, GroupBuilder};
use crate::settings::FolderSettings;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use weir_capture::Frame;
use weir_egress::{Chunk, Progress, ReceivedPackets, Record};
use weir_ledger::{OutputDropReason, PacketTotals, RecorderCounters};
use weir_packet::Packet;

/// Longest time without a look at the age of the file.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for the description of an interface, which follows the burst of its first packet.
const DESCRIPTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Name of a capture file that has no header yet.
const UNNAMED: &str = ".weir_new";

/// Other users cannot read recorded packets.
const FILE_MODE: u32 = 0o640;

/// What is known about an interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interface {
    pub name: String,
    pub received: Option<ReceivedPackets>,
}

/// What the pipelines tell the thread, and what the thread tells.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub interfaces: Mutex<BTreeMap<u32, Interface>>,
    pub described: Condvar,
    pub counters: Mutex<RecorderCounters>,
}

/// The file that is being written.
struct OpenFile {
    path: PathBuf,
    file: File,
    /// `None` if it could not be written.
    index: Option<File>,
    group: GroupBuilder,
    /// Octets of the capture file and of the index.
    octets: u64,
    index_octets: u64,
    /// By the number in the file: number and link type of the frames.
    interfaces: Vec<(u32, u16)>,
    began: Instant,
    last_ns: u64,
    /// Packets that are written.
    packets: u64,
}

/// Since when nothing is written.
struct Stopped {
    /// The last attempt.
    since: Instant,
    /// The reasons that are in the log.
    reasons: Vec<String>,
    /// Packets that were not written.
    not_written: PacketTotals,
}

pub(crate) struct Writer {
    settings: FolderSettings,
    shared: Arc<Shared>,
    /// The folder. Its lock is held so that no other recorder uses it.
    lock: File,
    /// CPU and operating system.
    section: [String; 2],
    /// The capture filter in the syntax of libpcap.
    filter: Option<String>,
    /// Finished files, the oldest first, with their octets.
    finished: VecDeque<(RecordedFile, u64)>,
    finished_octets: u64,
    next_number: u64,
    current: Option<OpenFile>,
    stopped: Option<Stopped>,
    /// Time of the first packet.
    began_ns: Option<u64>,
    /// Packets that were recorded, by interface.
    recorded: BTreeMap<(u32, u16), u64>,
    packet: Packet,
}

/// Packets of a chunk whose blocks are not written yet.
#[derive(Clone, Copy, Default)]
struct Pending {
    start: usize,
    end: usize,
    packets: PacketTotals,
}

impl Writer {
    pub fn new(settings: FolderSettings, filter: Option<&str>, shared: Arc<Shared>, lock: File) -> io::Result<Self> {
        let files = folder::list(&settings.folder)?;
        let next_number = files.last().map_or(1, |file| file.number + 1);
        if next_number > folder::MAX_NUMBER {
            return Err(io::Error::other(format!("file {} has the last number; move it away", folder::MAX_NUMBER)));
        }
        let with_octets = |file: RecordedFile| {
            let octets = folder::octets(&file.path);
            (file, octets)
        };
        let finished: VecDeque<_> = files.into_iter().map(with_octets).collect();
        Ok(Self {
            finished_octets: finished.iter().map(|(_, octets)| octets).sum(),
            finished,
            section: [hardware(), operating_system()],
            filter: filter.map(Into::into),
            settings,
            shared,
            lock,
            next_number,
            current: None,
            stopped: None,
            began_ns: None,
            recorded: BTreeMap::new(),
            packet: Packet::default(),
        })
    }

    /// Writes until all outputs are gone.
    pub fn run(mut self, chunks: &Receiver<Chunk>) {
        leave_core_of_pipeline();
        loop {
            match chunks.recv_timeout(CHECK_INTERVAL) {
                Ok(chunk) if chunk.progress.gives_up() => chunk.give_back(),
                Ok(mut chunk) => {
                    self.write_chunk(&mut chunk);
                    chunk.give_back();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.is_too_old() {
                self.close();
            }
        }
        self.close();
    }

    fn is_too_old(&self) -> bool {
        let age = self.current.as_ref().map(|file| file.began.elapsed());
        age.zip(self.settings.time).is_some_and(|(age, limit)| age >= limit)
    }

    fn write_chunk(&mut self, chunk: &mut Chunk) {
        let Chunk { octets: blocks, records, progress, .. } = chunk;
        self.leave_damaged_file();
        let mut pending = Pending::default();
        for record in records.iter() {
            let (start, end) = (pending.end, record.end);
            let Some(number) = self.make_place(blocks, progress, &mut pending, record) else {
                self.fail(progress, &mut pending, PacketTotals { packets: 1, octets: record.captured.into() });
                (pending.start, pending.end) = (end, end);
                continue;
            };
            blocks[start + block::INTERFACE..][..4].copy_from_slice(&number.to_le_bytes());
            let Record { time_ns, captured, wire_bytes, interface, link_type, .. } = *record;
            let bytes = &blocks[start + block::DATA..][..captured as usize];
            let frame = Frame { bytes, time_ns, wire_bytes, link_type, time_assumed: false, interface };
            let key = decode_frame(&frame, &mut self.packet);
            let file = self.current.as_mut().expect("it was opened for the interface");
            let place = file.octets + (start - pending.start) as u64;
            file.group.add(place..place + (end - start) as u64, time_ns, key, is_fragment(&self.packet));
            file.last_ns = file.last_ns.max(time_ns);
            *self.recorded.entry((interface, link_type)).or_default() += 1;
            pending.end = end;
            pending.packets.add(bytes.len());
        }
        self.write_pending(blocks, progress, &mut pending);
    }

    /// Ends the file or the group before a packet that has no room in it, and returns the number of the
    /// packet's interface in the file; `None` if nothing can be written.
    fn make_place(
        &mut self,
        blocks: &[u8],
        progress: &Progress,
        pending: &mut Pending,
        record: &Record,
    ) -> Option<u32> {
        self.began_ns.get_or_insert(record.time_ns);
        if self.stopped.as_ref().is_some_and(|stopped| stopped.since.elapsed() < self.settings.retry) {
            return None;
        }
        let is_full = self.current.as_ref().is_some_and(|file| {
            (file.packets > 0 || pending.end > pending.start)
                && file.octets + (record.end - pending.start) as u64 > self.settings.size
        });
        if is_full || self.is_too_old() {
            self.write_pending(blocks, progress, pending);
            self.close();
        }
        if self.current.as_ref().is_some_and(|file| file.group.is_full()) {
            self.write_pending(blocks, progress, pending);
            self.end_group();
        }
        let number = self.interface_number(blocks, progress, pending, record);
        number.unwrap_or_else(|error| {
            self.stop(&error);
            None
        })
    }

    /// The number of an interface in the file, which is opened if there is none. `None` if the packets before this one
    /// could not be written.
    fn interface_number(
        &mut self,
        blocks: &[u8],
        progress: &Progress,
        pending: &mut Pending,
        record: &Record,
    ) -> io::Result<Option<u32>> {
        if self.current.is_none() {
            self.open(record.time_ns)?;
        }
        let interface = (record.interface, record.link_type);
        let known = |file: &OpenFile| file.interfaces.iter().position(|known| *known == interface);
        if let Some(number) = self.current.as_ref().and_then(known) {
            return Ok(Some(number as u32));
        }
        self.write_pending(blocks, progress, pending);
        if self.current.is_none() {
            // The write failed, which is counted: this packet is not written, either.
            return Ok(None);
        }
        // The description ends a part, and a group has no more of them.
        if self.current.as_ref().is_some_and(|file| file.group.has_all_parts()) {
            self.end_group();
        }
        let name = self.name_of(record.interface);
        let mut description = Vec::new();
        block::interface_description(&mut description, record.link_type, &name, self.filter.as_deref());
        self.append(&description)?;
        let file = self.current.as_mut().expect("it was checked above");
        file.group.add_interface(&description);
        file.interfaces.push(interface);
        Ok(Some(file.interfaces.len() as u32 - 1))
    }

    /// The name of an interface. Its pipeline describes it after the burst that it is in.
    fn name_of(&self, interface: u32) -> String {
        let mut known = self.shared.interfaces.lock();
        let is_missing = |known: &mut BTreeMap<u32, Interface>| !known.contains_key(&interface);
        self.shared.described.wait_while_for(&mut known, is_missing, DESCRIPTION_TIMEOUT);
        known.entry(interface).or_default().name.clone()
    }

    fn open(&mut self, time_ns: u64) -> io::Result<()> {
        let number = self.next_number;
        let path = self.settings.folder.join(file_name(number, time_ns));
        let comment = format!("file {number} of a recording; its first packet is of {time_ns} ns since 1970");
        let mut section = Vec::new();
        let [hardware, system] = &self.section;
        let application = concat!("weir ", env!("CARGO_PKG_VERSION"));
        block::section_header(&mut section, &comment, hardware, system, application);
        self.make_room(section.len() as u64);
        // A file gets its name when it has its header: after a kill, none is empty.
        let unnamed = self.settings.folder.join(UNNAMED);
        let index = index::header(&section);
        let create = |path: &Path, octets: &[u8]| -> io::Result<File> {
            let mut file = File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
            file.write_all(octets)?;
            Ok(file)
        };
        let created = create(&unnamed, &section).and_then(|file| {
            renameat_with(CWD, &unnamed, CWD, &path, RenameFlags::empty())?;
            Ok(file)
        });
        let file = created.inspect_err(|_| {
            let _ = fs::remove_file(&unnamed);
        })?;
        let index_file = create(&index_path(&path), &index).inspect_err(|_| {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(index_path(&path));
        })?;
        self.next_number += 1;
        self.current = Some(OpenFile {
            path,
            file,
            index: Some(index_file),
            group: GroupBuilder::default(),
            octets: section.len() as u64,
            index_octets: index.len() as u64,
            interfaces: Vec::new(),
            began: Instant::now(),
            last_ns: time_ns,
            packets: 0,
        });
        self.count(|counters| counters.files += 1);
        Ok(())
    }

    /// Writes the pending blocks, and counts them.
    fn write_pending(&mut self, blocks: &[u8], progress: &Progress, pending: &mut Pending) {
        let Pending { start, end, packets } = *pending;
        (pending.start, pending.packets) = (end, PacketTotals::default());
        if start == end {
            return;
        }
        match self.append(&blocks[start..end]) {
            Ok(()) => {
                self.current.iter_mut().for_each(|file| file.packets += packets.packets);
                progress.add_sent(packets);
                self.log_recovery();
            }
            Err(error) => {
                self.stop(&error);
                self.fail(progress, pending, packets);
            }
        }
    }

    /// Appends whole blocks to the capture file, or nothing.
    fn append(&mut self, blocks: &[u8]) -> io::Result<()> {
        self.make_room(blocks.len() as u64);
        let file = self.current.as_mut().ok_or(io::ErrorKind::Other)?;
        match (&file.file).write_all(blocks) {
            Ok(()) => {
                file.octets += blocks.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If even this fails, the last block is cut, and readers say so.
                let _ = file.file.set_len(file.octets);
                Err(error)
            }
        }
    }

    /// Removes the oldest files until there is room for more octets in the current one.
    fn make_room(&mut self, more: u64) {
        let current = self.current.as_ref().map_or(0, |file| file.octets + file.index_octets);
        while self.finished_octets + current + more > self.settings.total
            && let Some((file, octets)) = self.finished.pop_front()
        {
            self.finished_octets -= octets;
            let _ = fs::remove_file(index_path(&file.path));
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(file = file.path.display().to_string(), %error, "cannot remove the oldest capture file");
                }
                _ => self.count(|counters| {
                    counters.files_removed += 1;
                    counters.octets_removed += octets;
                }),
            }
        }
    }

    /// Writes the group to the index. Without an index, packets are still recorded.
    fn end_group(&mut self) {
        let Some(record) = self.current.as_mut().and_then(|file| file.group.take_record()) else { return };
        self.make_room(record.len() as u64);
        let Some(file) = &mut self.current else { return };
        let Some(index) = &file.index else { return };
        if let Err(error) = (&*index).write_all(&record) {
            let path = index_path(&file.path).display().to_string();
            warn!(file = path, %error, "cannot write the index; a search reads the rest of this capture file whole");
            file.index = None;
        } else {
            file.index_octets += record.len() as u64;
        }
    }

    /// Ends the current file with the statistics of its interfaces.
    fn close(&mut self) {
        self.leave_damaged_file();
        self.end_group();
        let mut blocks = Vec::new();
        if let Some(file) = &self.current {
            let known = self.shared.interfaces.lock();
            let times = [self.began_ns.unwrap_or(file.last_ns), file.last_ns];
            for (number, interface) in file.interfaces.iter().enumerate() {
                let received = known.get(&interface.0).and_then(|known| known.received);
                let recorded = self.recorded.get(interface).copied().unwrap_or(0);
                block::interface_statistics(&mut blocks, number as u32, times, received, recorded);
            }
        }
        // Nothing is lost if there is no room for them.
        let _ = self.append(&blocks);
        self.leave_file();
    }

    /// Closes the current file, and removes it if nothing of its packets could be written.
    fn leave_file(&mut self) {
        let Some(OpenFile { path, octets, index_octets, packets, .. }) = self.current.take() else { return };
        let octets = octets + index_octets;
        if packets == 0 {
            let _ = fs::remove_file(index_path(&path));
            let _ = fs::remove_file(&path);
        } else {
            self.finished.push_back((RecordedFile { number: self.next_number - 1, path }, octets));
            self.finished_octets += octets;
        }
    }

    /// Leaves a file that others have removed or cut: what is written behind the cut would be found by no reader. Its
    /// packets were counted as written.
    fn leave_damaged_file(&mut self) {
        let Some(file) = &mut self.current else { return };
        let Ok(metadata) = file.file.metadata() else { return };
        let is_removed = metadata.nlink() == 0;
        if !is_removed && metadata.len() >= file.octets {
            return;
        }
        let (path, packets) = (file.path.display().to_string(), file.packets);
        let what = if is_removed { "removed" } else { "truncated" };
        warn!(
            file = path,
            packets,
            "another program has {what} this file while packets were recorded into it; those of its packets that are missing are lost, and another file begins"
        );
        if is_removed {
            let _ = fs::remove_file(index_path(&file.path));
            self.current = None;
        } else {
            // A search sees by the index that packets are missing, even if the file is cut between two blocks.
            file.octets = metadata.len();
            self.end_group();
            self.leave_file();
        }
    }

    /// Ends the file after a failed write: a part of its last group may not be in it.
    fn stop(&mut self, error: &io::Error) {
        self.leave_file();
        let mut reason = error.to_string();
        if self.folder_is_another() {
            reason += " (the folder is not the one of the start: restart the probe to record into it)";
        }
        let none = || Stopped { since: Instant::now(), reasons: Vec::new(), not_written: PacketTotals::default() };
        let stopped = self.stopped.get_or_insert_with(none);
        stopped.since = Instant::now();
        if !stopped.reasons.contains(&reason) {
            let folder = self.settings.folder.display().to_string();
            let retry = self.settings.retry.as_secs_f64();
            error!(
                folder,
                error = reason,
                "recording stopped, packets are counted as write_failed; another attempt every {retry} s"
            );
            stopped.reasons.push(reason);
        }
        self.count(|counters| counters.is_stopped = true);
    }

    /// Whether another folder has taken the place of the one that was opened. The sandbox permits no files in it.
    fn folder_is_another(&self) -> bool {
        let id = |folder: fs::Metadata| (folder.dev(), folder.ino());
        let present = fs::metadata(&self.settings.folder).map(id).ok();
        self.lock.metadata().map(id).ok().zip(present).is_some_and(|(opened, present)| opened != present)
    }

    /// Counts packets that are not written.
    fn fail(&mut self, progress: &Progress, pending: &mut Pending, packets: PacketTotals) {
        let mut failed = std::mem::take(&mut pending.packets);
        failed.merge(packets);
        progress.add_dropped(OutputDropReason::WriteFailed, failed);
        if let Some(stopped) = &mut self.stopped {
            stopped.not_written.merge(failed);
        }
    }

    fn log_recovery(&mut self) {
        let Some(stopped) = self.stopped.take_if(|_| self.current.is_some()) else { return };
        let PacketTotals { packets, octets } = stopped.not_written;
        let folder = self.settings.folder.display().to_string();
        info!(folder, packets, octets, "recording again; these packets were not written");
        self.count(|counters| counters.is_stopped = false);
    }

    fn count(&self, change: impl FnOnce(&mut RecorderCounters)) {
        change(&mut self.shared.counters.lock());
    }
}

/// Takes this thread off the core of the pipeline that has started it, and below its priority.
/// Ignores what the system does not permit.
fn leave_core_of_pipeline() {
    const NICE: i32 = 5;
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    let _ = sched_setaffinity(None, &all);
    let _ = setpriority_process(Some(gettid()), NICE);
}

/// The model of the CPU.
fn hardware() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.into(), |(_, model)| model.trim().into())
}

fn operating_system() -> String {
    let name = rustix::system::uname();
    let [system, release] = [name.sysname(), name.release()].map(|text| text.to_string_lossy());
    format!("{system} {release}")
}
