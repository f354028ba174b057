//! The recorder: files, indexes, limits, failures, and what a search finds.

use super::common::{self, Frames, capinfos, frames_of, open, record, replay, settings, tshark_reads, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use weir_capture::Frame;
use weir_egress::{InterfaceReport, PacketOutput, ReceivedPackets, WhenFull};
use weir_recorder::{FrameSelector, IndexNotice, Opener, Query, RecorderOutput, Search, SelectedRecords};

/// The capture files of a folder, in their order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).collect();
    files.sort();
    files
}

fn index_of(file: &Path) -> PathBuf {
    format!("{}.idx", file.display()).into()
}

fn opener() -> Opener {
    Arc::new(weir_capture::open)
}

/// What a search finds, with its octets read and notices.
fn find(paths: &[PathBuf], query: &Query) -> (Frames, u64, Vec<IndexNotice>) {
    let search = Search::plan(paths, query.clone()).unwrap();
    let mut source = search.source(&opener());
    let mut selector = FrameSelector::new(query, SelectedRecords::default());
    let mut found = Frames::default();
    loop {
        match source.burst() {
            Ok(Some(burst)) => {
                for frame in burst.iter().filter(|frame| selector.selects(frame)) {
                    found.add(frame);
                }
            }
            Ok(None) => break,
            Err(error) => found.errors.push(error.to_string()),
        }
        assert!(found.errors.len() < 1000, "{:?}", found.errors);
    }
    drop(source);
    (found, search.octets_read(), search.notices.into_iter().map(|(_, notice)| notice).collect())
}

#[test]
fn a_recording_has_the_frames_that_were_sent_and_other_programs_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("packets");
    let frames = Frames::synth("apps,flows=300,packets=20k,seed=3");
    let mut output = open(&source, "size=1MiB&total=1GiB");
    let received = Some(ReceivedPackets { received: 30_000, dropped_nic: 7, dropped_system: 9 });
    output.describe(&InterfaceReport { number: 1, name: "eth7".into(), received });
    replay(&frames, &mut output);
    let counters = output.counters();
    assert_eq!((counters.sent, counters.waiting.packets), (frames.totals(), 0));
    assert!(counters.dropped.is_empty());
    drop(output);
    let files = files(&source);
    let begun = counters.recorder.unwrap().files;
    assert!(files.len() > 2 && begun == files.len() as u64, "{begun}");
    assert!(files[0].file_name().unwrap().to_str().unwrap().starts_with("weir_00001_20260101000000"), "{files:?}");
    let mut recorded = Frames::default();
    for file in &files {
        assert!(fs::metadata(file).unwrap().len() < (1 << 20) + 1000);
        recorded.append(&frames_of(file));
        tshark_reads(file);
    }
    assert_eq!(recorded, frames);
    if let Some(text) = capinfos(&files[0]) {
        for part in ["weir 0.1.0", "Name = eth7", "tcp or udp", "nanoseconds (9)", "Number of stat entries = 1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // The statistics at the end: ifrecv, ifdrop, osdrop, usrdeliv.
    let last = fs::read(files.last().unwrap()).unwrap();
    let end = &last[last.len() - 4..];
    let block = &last[last.len() - u32::from_le_bytes(end.try_into().unwrap()) as usize..];
    assert_eq!(block[..4], 5_u32.to_le_bytes());
    for (code, value) in [(4_u16, 30_000_u64), (5, 7), (7, 9), (8, 20_000)] {
        let option = [&code.to_le_bytes()[..], &8_u16.to_le_bytes(), &value.to_le_bytes()].concat();
        assert!(block.windows(12).any(|window| window == option), "option {code}");
    }
}

#[test]
fn a_search_with_an_index_finds_what_one_without_finds() {
    let folder = tempfile::tempdir().unwrap();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures");
    let mut sources: Vec<(String, Frames)> = ["apps,flows=200,packets=20k", "lossy,flows=100,packets=20k,snap=100"]
        .map(|spec| (spec.to_owned(), Frames::synth(spec)))
        .into();
    // Many flows of one packet: the index has a filter instead of a list.
    sources.push(("velan".into(), Frames::synth("velan,flows=8192,packets=30k")));
    sources.push(("fragments".into(), common::fragments()));
    for entry in fs::read_dir(captures).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        if [".pcap", ".pcapng", ".gz", ".zst"].iter().any(|end| name.ends_with(end)) {
            sources.push((name, frames_of(&path)));
        }
    }
    for (number, (name, frames)) in sources.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        record(frames, &path, "size=4MiB&total=1GiB");
        let plain: Vec<PathBuf> = files(&path);
        let copy = folder.path().join(format!("{number}-without-index"));
        fs::create_dir(&copy).unwrap();
        for file in &plain {
            fs::copy(file, copy.join(file.file_name().unwrap())).unwrap();
        }
        let mut queries: Vec<(String, Query)> = common::community_ids(frames)
            .into_iter()
            .step_by(1 + frames.len() / 2000)
            .take(12)
            .map(|id| (id.clone(), Query::flow(&id).unwrap()))
            .collect();
        for text in ["port 53", "udp", "host 192.0.2.1", "not tcp", "ip6 and not port 80", "udp port 0"] {
            queries.push((text.into(), Query::records(text.parse().unwrap())));
        }
        queries.push(("all".into(), Query::everything()));
        for (text, query) in queries {
            let (with, _, notices) = find(std::slice::from_ref(&path), &query);
            assert_eq!(notices, [], "{name}, {text}");
            let (without, ..) = find(std::slice::from_ref(&copy), &query);
            assert_eq!(with, without, "{name}, {text}");
            let is_id = text.starts_with("1:");
            assert!(!is_id || !with.is_empty(), "{name}, {text}");
            if text == "all" {
                assert_eq!(with, *frames, "{name}");
            }
        }
        fs::remove_dir_all(&path).unwrap();
        fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn an_index_is_small_and_a_search_for_one_flow_reads_little() {
    let folder = tempfile::tempdir().unwrap();
    for (number, spec, size) in
        [(0, "mix,flows=2000,packets=250k", 200 << 20), (1, "velan,flows=131072,packets=1M", 90 << 20)]
    {
        let path = folder.path().join(number.to_string());
        let ids = common::record_synth(spec, &path, "size=64MiB&total=10GiB");
        let octets = |index: bool| -> u64 {
            let all = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
            let of_kind = all.filter(|entry| entry.path().extension().is_some_and(|end| end == "idx") == index);
            of_kind.map(|entry| entry.metadata().unwrap().len()).sum()
        };
        let (packets, index) = (octets(false), octets(true));
        assert!(packets > size / 2, "{spec}: {packets}");
        eprintln!("{spec}: {packets} octets, index {index}: {:.2} %", 100.0 * index as f64 / packets as f64);
        assert!(index * 100 < packets * 4, "{spec}: {index} of {packets}");
        for id in ids {
            let (found, read, _) = find(std::slice::from_ref(&path), &Query::flow(&id).unwrap());
            eprintln!("{spec}: {id}: {} packets, {:.2} % read", found.len(), 100.0 * read as f64 / packets as f64);
            assert!(!found.is_empty());
            assert!(found.len() > 25 || read * 20 < packets, "{spec}: {read} of {packets}");
        }
        fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn the_oldest_files_are_removed_and_numbers_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("mine.pcapng"), "x").unwrap();
    let frames = Frames::synth("velan,flows=100,size=1500,packets=6k");
    let limits = "size=1MiB&total=3MiB";
    let (_, status) = record(&frames, &path, limits);
    assert!(status.files >= 8 && status.files_removed >= 5, "{status:?}");
    let used = || -> u64 { fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum() };
    assert!(used() <= (3 << 20) + 1 && used() > 2 << 20, "{}", used());
    let last = files(&path).pop().unwrap();
    record(&frames, &path, limits);
    assert!(used() <= (3 << 20) + 1, "{}", used());
    assert!(path.join("mine.pcapng").exists() && !last.exists());
    let names: Vec<_> =
        files(&path).iter().map(|path| path.file_name().unwrap().to_string_lossy()[..10].to_owned()).collect();
    assert!(names.contains(&"weir_00018".to_owned()) || names.len() > 2, "{names:?}");
    for file in files(&path).iter().filter(|path| !path.ends_with("mine.pcapng")) {
        assert!(index_of(file).exists(), "{file:?}");
        assert!(!frames_of(file).is_empty());
    }
}

#[test]
fn a_file_ends_after_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let frames = Frames::synth("velan,flows=10,packets=100");
    let mut output = open(folder.path(), "time=1s");
    for number in 1..=2 {
        frames.send(&mut output);
        until("the file has ended", || {
            let files = files(folder.path());
            let last = files.last().and_then(|file| fs::metadata(index_of(file)).ok());
            files.len() == number && last.is_some_and(|index| index.len() > 400)
        });
    }
    output.finish();
    assert_eq!(output.counters().recorder.unwrap().files, 2);
}

#[test]
fn a_folder_has_one_recorder_and_must_be_writable() {
    let folder = tempfile::tempdir().unwrap();
    let settings_of = |path: &Path| settings(path, "");
    let outputs = RecorderOutput::open(&settings_of(folder.path()), 1, &WhenFull::Drop, None).unwrap();
    let error = RecorderOutput::open(&settings_of(folder.path()), 1, &WhenFull::Drop, None).err().unwrap().to_string();
    assert!(error.contains("another program records into this folder"), "{error}");
    drop(outputs);
    for (path, reason) in [("/nonexistent/folder", "No such file"), ("/dev/null", "ot a directory")] {
        let error = RecorderOutput::open(&settings_of(Path::new(path)), 1, &WhenFull::Drop, None)
            .err()
            .expect(path)
            .to_string();
        assert!(error.starts_with(path) && error.contains(reason), "{error}");
    }
}

#[test]
fn a_full_queue_drops_and_the_next_frame_has_the_count() {
    let folder = tempfile::tempdir().unwrap();
    let frames = Frames::synth("velan,flows=10,size=1500,packets=20k");
    // The thread is slower than this loop.
    let mut output = open(folder.path(), "");
    for _ in 0..40 {
        frames.send(&mut output);
    }
    until("the thread has caught up", || {
        output.flush();
        output.counters().waiting.packets == 0
    });
    frames.send(&mut output);
    output.finish();
    let counters = output.counters();
    let dropped = counters.dropped.get("queue_full").map_or(0, |dropped| dropped.packets);
    assert_eq!(counters.total().packets, 41 * 20_000);
    assert_eq!(counters.waiting.packets, 0);
    drop(output);
    let (all, ..) = find(&[folder.path().to_owned()], &Query::everything());
    assert_eq!(all.len() as u64, counters.sent.packets);
    eprintln!("{dropped} dropped");
    let counts: u64 = files(folder.path()).iter().map(|file| common::drop_counts(file)).sum();
    assert!(counts <= dropped && (dropped == 0) == (counts == 0), "{counts} of {dropped}");
}

#[test]
fn bursts_of_one_packet_do_not_use_up_the_queue_of_a_slow_disk() {
    let folder = tempfile::tempdir().unwrap();
    let frames = Frames::synth("velan,flows=10,packets=50k");
    // The thread waits up to a second for the description of the interface.
    let mut output = RecorderOutput::open(&settings(folder.path(), ""), 1, &WhenFull::Drop, None).unwrap().remove(0);
    for at in 0..frames.len() {
        output.send(&[frames.frame(at, 1)]);
    }
    assert!(output.counters().dropped.is_empty(), "8 MiB hold 50 000 packets: {:?}", output.counters());
    output.describe(&InterfaceReport { number: 1, name: "eth7".into(), received: None });
    // What is kept, because the disk was behind, goes when it has caught up.
    until("all packets are written", || {
        output.flush();
        output.counters().waiting.packets == 0
    });
    assert_eq!(output.counters().sent, frames.totals());
    output.finish();
}

#[test]
fn interfaces_may_appear_at_any_place_of_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let frames = Frames::synth("velan,flows=10,size=1500,packets=8k");
    let mut output = open(folder.path(), "");
    for number in 1..200 {
        output.describe(&InterfaceReport { number, name: format!("eth{number}"), received: None });
    }
    // A part has 22 frames, a group 32 parts: the new interfaces come at all places of their parts.
    for at in 0..frames.len() {
        output.send(&[frames.frame(at, 1 + at as u32 / 41)]);
        while output.counters().waiting.octets > 2 << 20 {
            std::thread::yield_now();
        }
    }
    output.finish();
    let counters = output.counters();
    assert_eq!((counters.sent, counters.recorder.unwrap().is_stopped), (frames.totals(), false));
    drop(output);
    let (found, _, notices) = find(&[folder.path().to_owned()], &Query::everything());
    assert!(notices.is_empty() && found.errors.is_empty(), "{notices:?} {:?}", found.errors);
    assert_eq!(found.len(), frames.len());
    let (found, read, notices) = find(&[folder.path().to_owned()], &Query::records("port 1".parse().unwrap()));
    assert!(notices.is_empty() && found.errors.is_empty(), "{notices:?} {:?}", found.errors);
    assert!(read < 2_000_000, "the index is of use: {read} octets read");
}

#[test]
fn file_that_is_being_recorded_is_searched_up_to_its_last_whole_block() {
    let folder = tempfile::tempdir().unwrap();
    let frames = Frames::synth("velan,flows=100,size=1500,packets=2k");
    let mut output = open(folder.path(), "");
    frames.send(&mut output);
    std::thread::scope(|scope| {
        // It ends by itself, however slow the searches are: some 60 MB.
        let recording = scope.spawn(move || {
            for at in 0..frames.len() {
                output.send(&[frames.frame(at, 1); 20]);
                std::thread::sleep(Duration::from_micros(200));
            }
            output.finish();
        });
        until("the first file appears", || !files(folder.path()).is_empty());
        while !recording.is_finished() {
            let (found, _, notices) = find(&[folder.path().to_owned()], &Query::everything());
            assert!(notices.is_empty() && found.errors.is_empty(), "{notices:?} {:?}", found.errors);
        }
    });
}

#[test]
fn several_pipelines_and_interfaces_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut outputs = RecorderOutput::open(&settings(folder.path(), ""), 2, &WhenFull::Drop, None).unwrap();
    let frames = Frames::synth("apps,flows=50,packets=2k");
    for (output, interface) in outputs.iter_mut().zip([3, 4]) {
        frames.send_as(output, interface);
    }
    // Names follow the first packets. Both pipelines receive from interface 3.
    for (at, number, name, packets) in
        [(0, 3, "left", 1000), (0, 3, "left", 1500), (1, 3, "left", 70), (1, 4, "right", 9)]
    {
        let received = Some(ReceivedPackets { received: packets, ..ReceivedPackets::default() });
        outputs[at].describe(&InterfaceReport { number, name: name.into(), received });
    }
    // A jumbo frame that is longer than a chunk, cut, and of a link type of its own.
    let bytes = vec![0x45; 3 << 20];
    let jumbo =
        Frame { bytes: &bytes, time_ns: 1, wire_bytes: 4 << 20, link_type: 101, time_assumed: false, interface: 3 };
    outputs[0].send(&[jumbo]);
    for output in &mut outputs {
        output.finish();
        assert_eq!(output.counters().waiting.packets, 0);
    }
    drop(outputs);
    let bytes = fs::read(&files(folder.path())[0]).unwrap();
    let received = |packets: u64| [&4_u16.to_le_bytes()[..], &8_u16.to_le_bytes(), &packets.to_le_bytes()].concat();
    for (packets, times) in [(1570, 2), (9, 1)] {
        let found = bytes.windows(12).filter(|window| *window == received(packets)).count();
        // Interface 3 has frames of two link types, so two descriptions and two statistics.
        assert_eq!(found, times, "{packets}");
    }
    let search = Search::plan(&[folder.path().to_owned()], Query::everything()).unwrap();
    let mut source = search.source(&opener());
    let (mut count, mut long) = (0, 0);
    while let Some(burst) = source.burst().unwrap() {
        count += burst.len();
        long += burst.iter().filter(|frame| frame.wire_bytes == 4 << 20 && frame.bytes.len() == 3 << 20).count();
    }
    let mut names: Vec<String> = source.interfaces().into_iter().map(|(_, name)| name).collect();
    names.sort();
    assert_eq!((count, long, names), (4001, 1, vec!["left".into(), "right".into()]));
}

/// Records until it is killed.
#[test]
#[ignore = "a process of another test"]
fn recording_child() {
    let Some(folder) = std::env::var_os("WEIR_RECORDING") else { return };
    let mut output = open(Path::new(&folder), "size=1MiB&total=1GiB");
    let frames = Frames::synth("mix,flows=100,packets=5k");
    loop {
        frames.send(&mut output);
    }
}

#[test]
fn after_a_kill_the_files_are_readable_and_searched() {
    for delay_ms in [150, 300, 450] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::recorder::recording_child", "--ignored"])
            .env("WEIR_RECORDING", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("there is a file", || path.exists() && !files(&path).is_empty());
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let files = files(&path);
        let last = files.last().unwrap();
        let frames = frames_of(last);
        assert!(frames.errors.len() <= 1, "{:?}", frames.errors);
        let (found, _, notices) = find(std::slice::from_ref(&path), &Query::everything());
        let expected: usize = files.iter().map(|file| frames_of(file).len()).sum();
        assert_eq!(found.len(), expected, "{notices:?}");
        if frames.errors.is_empty() {
            tshark_reads(last);
        }
        // The folder is free again.
        drop(open(&path, "size=1MiB&total=1GiB"));
    }
}

#[test]
fn cut_and_changed_files_and_indexes_cause_no_panic_and_lose_no_whole_packet_unseen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    let frames = Frames::synth("apps,flows=20,packets=1500");
    record(&frames, &path, "");
    let file = files(&path).remove(0);
    let index = index_of(&file);
    let (packets, indexes) = (fs::read(&file).unwrap(), fs::read(&index).unwrap());
    let id = common::community_ids(&frames).remove(3);
    let queries = [Query::flow(&id).unwrap(), Query::everything()];
    let whole: Vec<Frames> = queries.iter().map(|query| find(std::slice::from_ref(&path), query).0).collect();
    assert!(!whole[0].is_empty() && whole[1] == frames);
    // Every prefix of the index: the same packets.
    for length in (0..indexes.len()).step_by(1 + indexes.len() / 800) {
        fs::write(&index, &indexes[..length]).unwrap();
        for (query, expected) in queries.iter().zip(&whole) {
            let (found, _, notices) = find(std::slice::from_ref(&path), query);
            assert_eq!(found, *expected, "{length}");
            // After its first group an index is whole, too.
            assert!(notices.len() <= 1, "{length}: {notices:?}");
        }
    }
    // A changed octet of the index is found by its checksum.
    let mut random = 12345_u64;
    let mut next = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    for _ in 0..400 {
        let mut changed = indexes.clone();
        let at = next(changed.len());
        changed[at] ^= 1 << next(8);
        fs::write(&index, &changed).unwrap();
        for (query, expected) in queries.iter().zip(&whole) {
            let (found, _, notices) = find(std::slice::from_ref(&path), query);
            assert_eq!((found, notices.len()), (expected.clone(), 1), "octet {at}: {notices:?}");
        }
    }
    fs::write(&index, &indexes).unwrap();
    // Prefixes of the capture file: packets are missing at the end only, which is reported.
    for length in (1..packets.len()).rev().step_by(1 + packets.len() / 800) {
        fs::write(&file, &packets[..length]).unwrap();
        let search = Search::plan(std::slice::from_ref(&path), Query::everything());
        let (found, _, notices) = match search {
            Ok(_) => find(std::slice::from_ref(&path), &queries[1]),
            Err(_) => continue,
        };
        assert!(frames.starts_with(&found), "{length}");
        assert!(found.len() == frames.len() || !notices.is_empty() || !found.errors.is_empty(), "{length}");
        find(std::slice::from_ref(&path), &queries[0]);
    }
    for _ in 0..400 {
        let mut changed = packets.clone();
        for _ in 0..1 + next(4) {
            let at = next(changed.len());
            changed[at] ^= 1 << next(8);
        }
        fs::write(&file, &changed).unwrap();
        for query in &queries {
            find(std::slice::from_ref(&path), query);
        }
    }
    // Another file in place of the recorded one.
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/captures/web.pcap");
    record(&frames_of(&web), &folder.path().join("other"), "");
    fs::copy(&files(&folder.path().join("other"))[0], &file).unwrap();
    let (found, _, notices) = find(std::slice::from_ref(&path), &queries[1]);
    assert_eq!((found.len(), notices), (120, vec![IndexNotice::Unusable]));
}

#[test]
fn a_file_that_others_remove_or_truncate_is_left_and_the_next_packets_are_in_another_one() {
    let frames = Frames::synth("velan,flows=10,packets=100");
    for is_removed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut output = open(folder.path(), "size=8MiB&total=64MiB");
        let mut sent = 0;
        let mut send = |output: &mut RecorderOutput| {
            frames.send(output);
            sent += frames.totals().packets;
            until("the packets are written", || output.counters().sent.packets == sent);
        };
        send(&mut output);
        let first = files(folder.path()).remove(0);
        if is_removed {
            fs::remove_file(&first).unwrap();
        } else {
            fs::File::options().write(true).open(&first).unwrap().set_len(1000).unwrap();
        }
        send(&mut output);
        let second = files(folder.path()).pop().unwrap();
        assert_ne!(first, second);
        fs::remove_file(&second).unwrap();
        // It is noticed at the end, too.
        output.finish();
        assert_eq!(first.exists(), !is_removed);
        assert!(!second.exists() && !index_of(&second).exists());
        let counters = output.counters();
        assert_eq!((counters.total().packets, counters.sent.packets, counters.waiting.packets), (sent, sent, 0));
        assert_eq!(counters.recorder.unwrap().files, 2);
        if !is_removed {
            let (found, _, notices) = find(&[folder.path().to_owned()], &Query::everything());
            assert!(frames.starts_with(&found) && !found.is_empty(), "{:?}", found.errors);
            assert!(notices.contains(&IndexNotice::ShortFile), "{notices:?}");
        }
    }
}

#[test]
fn packets_for_a_removed_folder_are_counted_as_dropped_and_one_in_its_place_is_recorded_into() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("packets");
    let frames = Frames::synth("velan,flows=10,packets=100");
    let mut output = open(&folder, "");
    frames.send(&mut output);
    until("the packets are written", || output.counters().sent.packets == 100);
    fs::remove_dir_all(&folder).unwrap();
    frames.send(&mut output);
    let failed = |output: &RecorderOutput| output.counters().dropped.get("write_failed").map_or(0, |of| of.packets);
    until("the packets are dropped", || failed(&output) == 100);
    assert!(output.counters().recorder.unwrap().is_stopped);
    // Without a sandbox, the folder that takes its place serves.
    fs::create_dir(&folder).unwrap();
    until("packets are recorded again", || {
        frames.send(&mut output);
        !output.counters().recorder.unwrap().is_stopped
    });
    output.finish();
    let sent = output.counters().sent.packets;
    drop(output);
    assert_eq!(files(&folder).iter().map(|file| frames_of(file).len() as u64).sum::<u64>(), sent - 100);
}

#[test]
fn a_full_disk_stops_recording_and_it_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(folder.path()).output();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=4m", "weir-test"]).is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("SKIPPED: this test mounts a tmpfs and needs root");
        return;
    }
    let result = std::panic::catch_unwind(|| fill_disk(folder.path()));
    assert!(Command::new("umount").arg("--lazy").arg(folder.path()).status().unwrap().success());
    result.unwrap();
}

fn fill_disk(folder: &Path) {
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let frames = Frames::synth("velan,flows=10,size=1500,packets=200");
    let mut output = open(folder, "size=8MiB&total=64MiB");
    let is_stopped = |output: &RecorderOutput| output.counters().recorder.unwrap().is_stopped;
    let failed =
        |output: &RecorderOutput| output.counters().dropped.get("write_failed").map_or(0, |failed| failed.packets);
    until("the disk is full", || {
        frames.send(&mut output);
        failed(&output) > 0 && is_stopped(&output)
    });
    let stopped = files(folder);
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    tshark_reads(&stopped[0]);
    fs::remove_file(ballast).unwrap();
    until("packets are recorded again", || {
        frames.send(&mut output);
        !is_stopped(&output)
    });
    output.finish();
    let counters = output.counters();
    assert_eq!(counters.waiting.packets, 0);
    drop(output);
    let recorded: usize = files(folder).iter().map(|file| frames_of(file).len()).sum();
    assert_eq!(recorded as u64, counters.sent.packets);
    assert_eq!(counters.total().packets % 200, 0);
    for file in files(folder) {
        assert_eq!(frames_of(&file).errors, Vec::<String>::new(), "{file:?}");
    }
}

#[test]
fn a_search_whose_time_is_over_has_what_was_planned_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = folder.path().join("packets");
    record(&Frames::synth("apps,flows=300,packets=20k,seed=3"), &recorded, "size=1MiB&total=1GiB");
    let (number, query) = (files(&recorded).len(), Query::everything());
    let all = Search::plan(std::slice::from_ref(&recorded), query.clone()).unwrap();
    assert!(!all.is_cut && all.files == number && number > 2);
    // The time is over at this look at it: before the folder, a file, or a group of its index.
    let looks = std::cell::Cell::new(0);
    let mut least_octets = 0;
    for end in 0.. {
        looks.set(0);
        let is_over = || looks.replace(looks.get() + 1) >= end;
        let cut = Search::plan_until(std::slice::from_ref(&recorded), query.clone(), &is_over).unwrap();
        let mut source = cut.source(&opener());
        let mut octets = 0;
        while let Some(burst) = source.burst().unwrap() {
            octets += burst.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        }
        assert!(octets >= least_octets, "{end}");
        least_octets = octets;
        if !cut.is_cut {
            assert!(end > number as u64 && octets > 0);
            break;
        }
        assert!(end > 0 || octets == 0);
    }
}
