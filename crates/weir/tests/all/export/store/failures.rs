//! What happens to a store when programs are killed, disks are full, and folders go away.

use super::super::file_errors::{Probe, limit_file_size};
use super::{Row, files, name_of, rows, sink};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use testbed::namespace::until;
use testbed::{
    Pcap, START, arguments, command, is_root, number, permit_all_users, read_ledger, request_and_response, success,
    text_of, weir,
};

/// A capture with a flow in each of some hours.
fn hours(folder: &Path, hours: u32) -> PathBuf {
    let capture = (0..hours).fold(Pcap::new(), |capture, hour| {
        let frames = request_and_response(hour as u16);
        frames.iter().fold(capture, |capture, frame| capture.frame(START + 3600 * hour, 0, frame))
    });
    capture.save(folder, "hours.pcap")
}

/// Runs weir, and kills it after a while. Returns whether it was killed.
fn kill_after(arguments: &[&str], while_it_runs: Duration) -> bool {
    let mut child = command().args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(while_it_runs);
    let _ = child.kill();
    let code = child.wait().unwrap().code();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(matches!(code, None | Some(0)), "{err}");
    code.is_none()
}

/// Kills a command earlier and later, until some runs were killed and some were not.
fn kill_often(mut run: impl FnMut(Duration) -> bool) {
    const RUNS: u32 = 24;
    let (mut time, mut killed) = (Duration::from_millis(20), 0);
    for at in 0..RUNS {
        if run(time * (at % 8) / 4) {
            killed += 1;
            time = time * 5 / 4;
        } else {
            time = time * 3 / 4;
        }
    }
    assert!(killed >= RUNS / 4, "{killed} runs were killed");
}

fn unique(rows: &[Row]) -> BTreeSet<String> {
    let unique: BTreeSet<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    assert_eq!(unique.len(), rows.len(), "a flow is stored twice");
    unique
}

#[test]
fn a_killed_writer_leaves_whole_files_and_no_flow_twice() {
    let folder = tempfile::tempdir().unwrap();
    let capture = hours(folder.path(), 60);
    let all = folder.path().join("all");
    success(arguments!["read", "-q", capture, "-o", sink(&all, "")]);
    let all = unique(&rows(&all));
    assert_eq!(all.len(), 60);
    kill_often(|time| {
        let store = folder.path().join("store");
        let is_killed = kill_after(&["read", "-q", capture.to_str().unwrap(), "-o", &sink(&store, "")], time);
        if store.join(".weir").exists() {
            success(arguments!["store", store, "--verify"]);
            assert!(unique(&rows(&store)).is_subset(&all));
            assert!(files(&store).iter().all(|path| name_of(path).ends_with(".parquet")));
            // The next writer removes what is not finished.
            success(arguments!["read", "-q", "-i", "synth:mix,flows=1,packets=2", "-o", sink(&store, "")]);
            assert_eq!(fs::read_dir(store.join(".weir")).unwrap().count(), 1, "the lock");
            fs::remove_dir_all(&store).unwrap();
        } else {
            let _ = fs::remove_dir(&store);
        }
        is_killed
    });
}

#[test]
fn a_killed_compaction_and_a_killed_expiry_lose_and_repeat_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let capture = hours(folder.path(), 20);
    let store = folder.path().join("store");
    // Twice the same hours, of different flows.
    let write = |store: &Path| {
        success(arguments!["read", "-q", capture, "-o", sink(store, "")]);
        success(arguments!["read", "-q", capture, "-o", sink(store, ""), "--where", "src port > 0"]);
    };
    write(&store);
    let all = rows(&store);
    kill_often(|time| {
        let is_killed = kill_after(&["store", store.to_str().unwrap(), "--compact"], time);
        assert_eq!(rows(&store), all);
        success(arguments!["store", store, "--verify"]);
        if files(&store).iter().all(|path| name_of(path).starts_with("hour-")) {
            fs::remove_dir_all(&store).unwrap();
            write(&store);
        }
        is_killed
    });
    kill_often(|time| {
        let is_killed = kill_after(&["store", store.to_str().unwrap(), "--keep", "2h"], time);
        let left = rows(&store);
        assert!(!left.is_empty() && left.iter().all(|row| all.contains(row)));
        success(arguments!["store", store, "--verify"]);
        if left.len() < all.len() {
            fs::remove_dir_all(&store).unwrap();
            write(&store);
        }
        is_killed
    });
}

fn feed_until_stored(probe: &mut Probe, store: &Path) {
    until("the store has a file", || {
        probe.feed(20);
        !files(store).is_empty()
    });
}

#[test]
fn a_probe_sorts_hours_that_are_over_and_leaves_a_damaged_file_until_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, store) = (hours(folder.path(), 1), folder.path().join("store"));
    success(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    let damaged = files(&store).remove(0);
    let whole = fs::read(&damaged).unwrap();
    fs::write(&damaged, &whole[..whole.len() / 2]).unwrap();
    let log = folder.path().join("log");
    let mut probe = command();
    probe.args(["probe", "-i", "-", "-q", "--log-level", "info", "-o", &sink(&store, "?interval=1s")]);
    probe.args(["--timing", "store_check=20ms,store_settled=1ns,store_retry=20ms"]);
    if is_root() {
        probe.args(["--user", "root"]);
    }
    let mut probe = probe.stdin(Stdio::piped()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut input = probe.stdin.take().unwrap();
    input.write_all(&fs::read(&capture).unwrap()).unwrap();
    // Packets of later days, so that flows end.
    let mut days = 0;
    let mut feed = || {
        days += 1;
        let frame = &request_and_response(1)[0];
        input.write_all(&Pcap(Vec::new()).frame(START + 86_400 * days, 0, frame).0).unwrap();
    };
    let is_sorted = |path: &PathBuf| name_of(path).starts_with("hour-");
    let hour = damaged.parent().unwrap();
    let files_of_hour =
        || -> Vec<PathBuf> { files(&store).into_iter().filter(|path| path.starts_with(hour)).collect() };
    until("the other file is sorted", || {
        feed();
        files_of_hour().iter().any(is_sorted)
    });
    assert!(damaged.exists());
    until("the damaged file is named", || {
        fs::read_to_string(&log).unwrap().contains("a file of the store is damaged, it stays unsorted")
    });
    fs::write(&damaged, &whole).unwrap();
    until("the hour has one file", || matches!(&files_of_hour()[..], [only] if is_sorted(only)));
    drop(input);
    assert!(probe.wait().unwrap().success());
    assert_eq!(rows(&store).len(), days as usize + 2);
}

#[test]
fn a_full_disk_delays_records_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let [store, stats] = ["store", "stats"].map(|name| folder.path().join(name));
    let mut probe = Probe::start(&sink(&store, "?interval=1s"), &stats, 1 << 30);
    feed_until_stored(&mut probe, &store);
    probe.set_file_size_limit(10);
    probe.feed_until("the store cannot be written, trying again");
    let waiting = files(&store).len();
    probe.feed(500);
    assert_eq!(files(&store).len(), waiting);
    probe.set_file_size_limit(1 << 30);
    probe.feed_until("the store can be written again");
    let (flows, code, log) = probe.finish();
    let sink = &read_ledger(&stats)["sinks"][0];
    assert_eq!(
        (code, number(&sink["exported"]["flows"]), sink["lost"].as_object().unwrap().len()),
        (Some(0), flows, 0),
        "{log}"
    );
    assert_eq!(rows(&store).len() as u64, flows);
}

#[test]
fn at_the_end_of_a_run_what_cannot_be_written_is_lost_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, store) = (hours(folder.path(), 7), folder.path().join("store"));
    let mut read = command();
    read.args(arguments!["read", "-q", capture, "--stats", "-", "-o", sink(&store, "")]);
    limit_file_size(&mut read, 10);
    let (code, stats, err) = text_of(&read.output().unwrap());
    let sink = &serde_json::from_str::<Value>(&stats).unwrap()["sinks"][0];
    assert_eq!((code, number(&sink["lost"]["write_failed"]["flows"])), (2, 7), "{err}");
    assert!(err.contains("File too large"), "{err}");
    assert!(files(&store).is_empty());
    assert_eq!(fs::read_dir(store.join(".weir")).unwrap().count(), 1, "nothing is left");
}

#[test]
fn a_folder_that_goes_away_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let [store, stats] = ["store", "stats"].map(|name| folder.path().join(name));
    let mut probe = Probe::start(&sink(&store, "?interval=1s"), &stats, 1 << 30);
    feed_until_stored(&mut probe, &store);
    let stored = rows(&store).len() as u64;
    fs::remove_dir_all(&store).unwrap();
    feed_until_stored(&mut probe, &store);
    let (flows, code, log) = probe.finish();
    let exported = number(&read_ledger(&stats)["sinks"][0]["exported"]["flows"]);
    assert_eq!((code, exported), (Some(0), flows), "{log}");
    assert!(rows(&store).len() as u64 + stored <= flows);
    // The new folder has its lock.
    assert!(store.join(".weir/lock").exists());
}

#[test]
fn a_store_has_one_writer_and_any_number_of_readers() {
    let folder = tempfile::tempdir().unwrap();
    let [store, stats] = ["store", "stats"].map(|name| folder.path().join(name));
    let mut probe = Probe::start(&sink(&store, "?interval=1s"), &stats, 1 << 30);
    feed_until_stored(&mut probe, &store);
    let (code, _, err) = weir(arguments!["read", "-q", "-i", "synth:mix,flows=1,packets=2", "-o", sink(&store, "")]);
    assert!(code == 1 && err.contains("another program writes to this store; give each a folder of its own"), "{err}");
    let (code, _, err) = weir(arguments!["store", store, "--compact"]);
    assert!(code == 1 && err.contains("another program writes to this store"), "{err}");
    assert!(success(arguments!["store", store, "--verify"]).contains("records"));
    let (flows, code, log) = probe.finish();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(rows(&store).len() as u64, flows);
    success(arguments!["store", "-q", store, "--compact"]);
}

#[test]
fn the_oldest_files_are_removed_beyond_the_size_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let capture = hours(folder.path(), 120);
    let store = folder.path().join("store");
    let octets = || files(&store).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    success(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    assert!(octets() > 1_200_000, "{}", octets());
    let newest = files(&store).pop().unwrap();
    let (code, _, err) = weir(arguments!["read", capture, "-o", sink(&store, "?keep=1M"), "--where", "port 1"]);
    assert!(code == 0 && err.contains("removed old files of the store"), "{err}");
    let one = fs::metadata(&newest).unwrap().len();
    assert!(octets() <= 1_000_000 && octets() + 2 * one > 1_000_000, "{}", octets());
    assert!(newest.exists() && fs::read_dir(&store).unwrap().count() > 2, "no empty folders");
    success(arguments!["store", "-q", store, "--keep", "3h"]);
    // Up to three hours after the end of an hour, and the newest.
    assert_eq!(files(&store).len(), 4);
}

#[test]
fn files_belong_to_the_user_of_the_probe() {
    if !is_root() {
        return eprintln!("SKIPPED: only root changes to another user");
    }
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let store = folder.path().join("store");
    let capture = hours(folder.path(), 3);
    permit_all_users(&capture);
    success(arguments!["probe", "-q", "-i", capture, "--user", "nobody", "-o", sink(&store, "")]);
    let owner = fs::metadata(&store).unwrap().uid();
    assert_ne!(owner, 0);
    let found = files(&store);
    assert_eq!(found.len(), 3);
    for path in found.iter().flat_map(|path| path.ancestors().take(3)).chain([&*store.join(".weir/lock")]) {
        assert_eq!(fs::metadata(path).unwrap().uid(), owner, "{}", path.display());
    }
}

/// Who may write in the folder of the probe must not get files of root.
#[test]
fn no_link_in_a_store_leads_out_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let capture = hours(folder.path(), 2);
    let [store, outside] = ["store", "outside"].map(|name| folder.path().join(name));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("lock"), "secret").unwrap();
    let refuse = |what: &str, store: &Path| {
        let (code, _, err) = weir(arguments!["read", "-q", capture, "-o", sink(store, "")]);
        assert_eq!(code, 1, "{what}: {err}");
        assert_eq!(fs::read(outside.join("lock")).unwrap(), b"secret");
        fs::remove_dir_all(store).unwrap();
    };
    fs::create_dir_all(store.join(".weir")).unwrap();
    symlink(outside.join("lock"), store.join(".weir/lock")).unwrap();
    refuse("lock", &store);
    fs::create_dir(&store).unwrap();
    symlink(&outside, store.join(".weir")).unwrap();
    refuse(".weir", &store);

    // Folders of a day and of an hour.
    success(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    let first = files(&store)[0].clone();
    let (hour, copy) = (first.parent().unwrap(), outside.join("hour"));
    fs::rename(hour, &copy).unwrap();
    symlink(&copy, hour).unwrap();
    let (code, out, err) = weir(arguments!["store", store, "--compact", "--keep", "1h"]);
    assert!(code == 0 && err.contains("this is none of the store") && out.contains(" 1 "), "{out} {err}");
    assert!(copy.join(first.file_name().unwrap()).exists(), "{err}");
    let (code, _, err) = weir(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);
}

/// One hour that cannot be written costs no other.
#[test]
fn root_leaves_the_owner_of_a_store_what_it_makes() {
    if !is_root() {
        return eprintln!("SKIPPED: only root changes to another user");
    }
    let folder = tempfile::tempdir().unwrap();
    permit_all_users(folder.path());
    let (store, capture) = (folder.path().join("store"), hours(folder.path(), 4));
    permit_all_users(&capture);
    let probe = || weir(arguments!["probe", "-q", "-i", capture, "--user", "nobody", "-o", sink(&store, "")]);
    assert_eq!(probe().0, 0);
    let owner = fs::metadata(&store).unwrap().uid();
    success(arguments!["read", "-q", capture, "-o", sink(&store, "")]);
    success(arguments!["store", "-q", store, "--compact"]);
    for path in files(&store).iter().flat_map(|path| path.ancestors().take(3)) {
        assert_eq!(fs::metadata(path).unwrap().uid(), owner, "{}", path.display());
    }
    let first = files(&store)[0].parent().unwrap().to_owned();
    chown(&first, Some(0), Some(0)).unwrap();
    let (code, _, err) = probe();
    assert_eq!(code, 2, "{err}");
    let written = files(&store).iter().filter(|path| name_of(path).starts_with("flows-")).count();
    assert_eq!(written, 3, "{err}");
}
