//! Records that wait on disk for a collector (`spool=`).

use super::certificates::{Authority, collect};
use super::file_errors::mount_small_disk;
use super::tcp_export::{
    AGAIN, Collector, OPTIONS, capture, count, decoded, exported, free_address, lines, lost, records, unix_seconds,
    wait_for_file,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::served::{Served, sum};
use testbed::{
    Background, command, failure, is_installed, is_root, ledger_of, number, permit_all_users, read_flows, read_ledger,
    signal, success,
};

fn read(capture: &str, sink: &str) -> (i32, String, Value) {
    ledger_of(["read", capture, "-o", sink])
}

fn flows(ledger: &Value, name: &str) -> u64 {
    number(&ledger["sinks"][0][name]["flows"])
}

/// Delivered, spooled and found records of earlier runs.
fn earlier(ledger: &Value) -> [u64; 3] {
    ["delivered", "spooled", "found"].map(|name| number(&ledger["sinks"][0]["earlier"][name]["flows"]))
}

fn json_of(capture: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.json");
    read(capture, &format!("json:{}", path.display()));
    read_flows(&path)
}

#[test]
fn the_next_run_delivers_what_has_waited() {
    let (first, second) = (capture(700), capture(30));
    let (before, after) = (json_of(first.name()), json_of(second.name()));
    for scheme in ["json+tcp", "ipfix+tcp"] {
        let parent = tempfile::tempdir().unwrap();
        let (address, folder) = (free_address(), parent.path().join("spool"));
        let sink = format!("{scheme}://{address}?spool={}&limit=20MiB", folder.display());
        for run in 0..2 {
            let (code, err, ledger) = read(first.name(), &sink);
            assert_eq!((code, exported(&ledger), flows(&ledger, "spooled")), (0, 0, 700), "{err} {ledger}");
            assert_eq!(earlier(&ledger), [0, 700 * run, 700 * run]);
            assert!(err.contains("records wait in the spool on disk") == (run == 0), "{err}");
        }
        let made = unix_seconds();
        until("a second is over", || unix_seconds() > made);
        let back = unix_seconds();
        let (collector, _) = Collector::tcp(&address);
        let (code, err, ledger) = read(second.name(), &sink);
        assert_eq!((code, exported(&ledger), flows(&ledger, "spooled")), (0, 30, 0), "{err} {ledger}");
        assert_eq!(earlier(&ledger), [1400, 0, 1400], "{err}");
        assert!(err.contains("the spool is empty again"), "{err}");
        let sessions = collector.stop();
        assert_eq!((sessions.len(), count(scheme, &sessions[0])), (1, 1430 * records(scheme)));
        if scheme == "json+tcp" {
            assert_eq!(lines(&sessions[0]), [&before[..], &before, &after].concat());
        } else {
            let messages = decoded(&sessions[0]).1.messages;
            assert!(messages.iter().all(|message| message.seconds >= back), "messages have the time of their sending");
        }
        let rest = fs::read_dir(&folder)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".seg"));
        assert_eq!(rest.count(), 0);
    }
}

#[test]
fn records_of_other_templates_are_sent_with_their_own() {
    let (first, second) = (capture(40), capture(25));
    let parent = tempfile::tempdir().unwrap();
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = |fields: &str| format!("ipfix+tcp://{address}?fields={fields}&spool={},limit=1MiB", folder.display());
    let one = "sourceIPv4Address,destinationIPv4Address,packetDeltaCount";
    let other = "sourceTransportPort,octetDeltaCount,sourceIPv4Address";
    for fields in [one, other, one] {
        assert_eq!(read(first.name(), &sink(fields)).0, 0);
    }
    let (collector, _) = Collector::tcp(&address);
    let (code, err, ledger) = read(second.name(), &sink(other));
    assert_eq!((code, earlier(&ledger), exported(&ledger)), (0, [120, 0, 120], 25), "{err}");
    let sessions = collector.stop();
    assert_eq!(sessions.len(), 1);
    let direct = |capture: &str, fields: &str| {
        let (collector, address) = Collector::tcp("127.0.0.1:0");
        assert_eq!(read(capture, &format!("ipfix+tcp://{address}?fields={fields}")).0, 0);
        decoded(&collector.stop()[0]).0
    };
    let expected = [(&first, one), (&first, other), (&first, one), (&second, other)];
    let expected: Vec<_> = expected.into_iter().flat_map(|(capture, fields)| direct(capture.name(), fields)).collect();
    assert!(decoded(&sessions[0]).0 == expected);
}

#[test]
fn a_probe_delivers_each_record_once_when_the_collector_is_back() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    for scheme in ["ipfix+tcp", "json+tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.json");
        let (collector, address) = Collector::tcp("127.0.0.1:0");
        let sink = format!("{scheme}://{address}?buffer=64KiB&spool={}", folder.path().join("spool").display());
        let json = format!("json:{}", path.display());
        let sinks = ["-o", sink.as_str(), "-o", &json];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
        send_requests(&mut sender, 0..20);
        wait_for_file(&path, 20);
        until("the collector has the first records", || {
            collector.sessions().first().is_some_and(|session| count(scheme, session) >= 20 * records(scheme))
        });
        collector.stop();
        send_requests(&mut sender, 20..1500);
        wait_for_file(&path, 1500);
        until("some are on disk", || flows(&probe.ledger(), "spooled") > 0);
        let (collector, _) = Collector::tcp(&address);
        probe.wait_for(AGAIN);
        send_requests(&mut sender, 1500..1550);
        wait_for_file(&path, 1550);
        probe.wait_for("the spool is empty again");
        let (err, _, ledger) = probe.stop(0);
        assert_eq!((exported(&ledger), flows(&ledger, "spooled")), (1550, 0), "{err} {ledger}");
        let session = collector.stop().concat();
        assert_eq!(count(scheme, &session), 1530 * records(scheme), "{err}");
        if scheme == "json+tcp" {
            assert_eq!(lines(&session), read_flows(&path)[20..]);
        }
    }
}

#[test]
fn each_observation_domain_has_sequence_numbers_of_its_own() {
    let capture = capture(40);
    let parent = tempfile::tempdir().unwrap();
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = format!("ipfix+tcp://{address}?spool={}", folder.display());
    let run = |domain: &str| ledger_of(["read", capture.name(), "-o", &sink, "--domain", domain]);
    for domain in ["7", "9", "7"] {
        assert_eq!(run(domain).0, 0);
    }
    let (collector, _) = Collector::tcp(&address);
    let (code, err, ledger) = run("1");
    assert_eq!((code, earlier(&ledger), exported(&ledger)), (0, [120, 0, 120], 40), "{err}");
    let (records, decoder) = decoded(&collector.stop()[0]);
    let domains: BTreeSet<_> = decoder.messages.iter().map(|message| message.domain).collect();
    assert_eq!((records.len(), domains), (320, BTreeSet::from([1, 7, 9])));
}

/// A listener whose system takes little, and no program reads.
fn deaf() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    listener
}

#[test]
fn what_a_collector_does_not_read_until_the_end_goes_to_the_spool() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    for scheme in ["json+tcp", "syslog+tcp"] {
        let (folder, deaf) = (tempfile::tempdir().unwrap(), deaf());
        let spool = folder.path().join("spool");
        let sink = format!("{scheme}://{}?fields=all&spool={}", deaf.local_addr().unwrap(), spool.display());
        let timing = format!("{},sink_timeout=500ms,sink_dead=1h", OPTIONS[5]);
        let options = [&["-o", sink.as_str()], &OPTIONS[..5], &[timing.as_str()]].concat();
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
        send_requests(&mut sender, 0..3000);
        until("all have ended", || {
            let ledger = probe.ledger();
            exported(&ledger) + number(&ledger["sinks"][0]["waiting"]["flows"]) == 3000
        });
        let (err, _, ledger) = probe.stop(0);
        let kept = flows(&ledger, "spooled");
        assert!(kept > 0 && exported(&ledger) + kept == 3000, "{err} {ledger}");
        assert!(!err.contains("are lost"), "{err}");
    }
}

#[test]
fn a_read_ends_beside_a_collector_that_reads_nothing() {
    let capture = capture(5000);
    for scheme in ["json+tcp", "syslog+tcp"] {
        let (folder, deaf) = (tempfile::tempdir().unwrap(), deaf());
        let spool = folder.path().join("spool");
        let sink = format!("{scheme}://{}?fields=all&spool={}", deaf.local_addr().unwrap(), spool.display());
        // More than what is kept in memory, which waits for the collector before, and the rest at the end.
        let sink = format!("{sink}&buffer=64KiB");
        let timing = "sink_timeout=200ms,sink_outage=200ms,sink_dead=1h";
        let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink, "--timing", timing]);
        let kept = flows(&ledger, "spooled");
        assert!(code == 0 && kept > 0 && exported(&ledger) + kept == 5000, "{code} {err} {ledger}");
        assert!(!err.contains("are lost"), "{err}");
    }
}

/// The positions of a spool are lost, and the begin of its first segment is damaged.
#[test]
fn what_a_spool_cannot_know_is_said_and_its_backlog_is_in_the_metrics() {
    let (capture, parent) = (capture(700), tempfile::tempdir().unwrap());
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = format!("json+tcp://{address}?spool={}", folder.display());
    assert_eq!(flows(&read(capture.name(), &sink).2, "spooled"), 700);
    ["acks", "acks.copy"].iter().for_each(|name| fs::remove_file(folder.join(name)).unwrap());
    let segment = folder.join("00000001.seg");
    let mut octets = fs::read(&segment).unwrap();
    octets[..100].fill(0);
    fs::write(&segment, octets).unwrap();
    [parent.path(), &folder].iter().for_each(|path| permit_all_users(path));
    for file in fs::read_dir(&folder).unwrap() {
        permit_all_users(&file.unwrap().path());
    }
    let Some(served) = Served::start(&["-o", &sink]) else { return };
    let metric = |name: &str, label: &str| sum(&served.metrics(), name, label);
    until("earlier ones wait", || metric("weir_records_earlier_spooled", "") > 0);
    let unknown = metric("weir_records_earlier_lost_total", "reason=\"spool_unknown\"");
    let spooled = metric("weir_records_earlier_spooled", "");
    assert!(unknown > 0 && unknown + spooled == 700, "{unknown} {spooled}");
    assert!(metric("weir_spool_bytes", "") > 0);
    let age = served.metrics().into_iter().find(|(series, _)| series.starts_with("weir_spool_oldest_age_seconds"));
    assert!(age.is_some_and(|(_, age)| age > 0.0 && age < 86_400.0));
    let (err, _, ledger) = served.probe.stop(2);
    assert!(err.contains("acks and acks.copy of the spool are damaged or missing"), "{err}");
    assert_eq!(number(&ledger["sinks"][0]["earlier"]["lost"]["spool_unknown"]["flows"]), unknown);
    assert!(number(&ledger["sinks"][0]["spool_octets"]) > 0 && ledger["sinks"][0]["spool_oldest"].is_u64(), "{ledger}");
}

#[test]
fn after_another_signal_what_waits_goes_to_the_spool() {
    let (few, many) = (capture(20_000), capture(60_000));
    // Of many flows most are in the queue of the sink, or in the flow cache.
    for (command, capture, more) in
        [("probe", few, &["--drain-timeout", "1h"][..]), ("read", many, &["--flows", "65536", "--idle", "1h"])]
    {
        let (folder, deaf) = (tempfile::tempdir().unwrap(), deaf());
        let [log, stats, spool] = ["log", "ledger", "spool"].map(|name| folder.path().join(name));
        let sink = format!("json+tcp://{}?fields=all&spool={}", deaf.local_addr().unwrap(), spool.display());
        let mut weir = testbed::command();
        weir.args([command, "-i", capture.name(), "-o", &sink]).args(more);
        weir.args(["--timing", "sink_timeout=1h,sink_dead=1h,same_signal=50ms"]);
        weir.arg("--stats").arg(&stats).stderr(fs::File::create(&log).unwrap());
        let mut weir = Background(weir.spawn().unwrap());
        let is_logged = |text: &str| until(text, || fs::read_to_string(&log).unwrap().contains(text));
        if command == "probe" {
            is_logged("waiting for the sinks");
        } else {
            until("records are sent", || spool.exists());
        }
        signal(&weir.0, libc::SIGTERM);
        is_logged("another signal");
        signal(&weir.0, libc::SIGTERM);
        let (code, ledger) = (weir.0.wait().unwrap().code(), read_ledger(&stats));
        let (kept, created) = (flows(&ledger, "spooled"), number(&ledger["flows"]["created"]));
        assert!(kept > 0 && exported(&ledger) + kept == created, "{command} {code:?} {ledger}");
        assert!(command == "read" || created == 20_000, "{ledger}");
    }
}

#[test]
fn a_full_spool_loses_the_oldest_and_counts_them() {
    let capture = capture(20_000);
    let parent = tempfile::tempdir().unwrap();
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = format!("json+tcp://{address}?buffer=64KiB&spool={},limit=2MiB", folder.display());
    let (code, err, ledger) = read(capture.name(), &sink);
    let (spooled, full) = (flows(&ledger, "spooled"), lost(&ledger, "spool_full"));
    assert_eq!((code, spooled + full), (2, 20_000), "{err} {ledger}");
    assert!(spooled > 500 && full > 500 && err.matches("the spool is full").count() == 1, "{err}");
    let octets: u64 = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(octets <= (2 << 20) + 8192);
    let (collector, _) = Collector::tcp(&address);
    let (code, err, ledger) = read(capture.name(), &sink);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 20_000, [spooled, 0, spooled]), "{err}");
    let all = json_of(capture.name());
    assert!(lines(&collector.stop()[0]) == [&all[full as usize..], &all].concat());
}

#[test]
fn folders_and_limits_are_checked() {
    let capture = capture(3);
    let parent = tempfile::tempdir().unwrap();
    let (folder, address) = (parent.path().join("spool"), free_address());
    let sink = format!("json+tcp://{address}?spool={}", folder.display());
    let (other, small) = (format!("ipfix+tcp://{address}?spool={}", folder.display()), format!("{sink},limit=64KiB"));
    let err = failure(1, ["read", capture.name(), "-o", &small]);
    assert!(err.contains("limit must be a size from 1MiB"), "{err}");
    let err = failure(1, ["read", capture.name(), "-o", &sink, "-o", &other]);
    assert!(err.contains(&other) && err.contains(&sink), "{err}");
    assert!(!folder.exists());
    assert_eq!(read(capture.name(), &sink).0, 0);
    for arguments in [vec!["read", capture.name()], vec!["probe", "--check", "-i", capture.name()]] {
        let output = command().args(arguments).args(["-o", &other]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(&format!("the spool belongs to the sink json+tcp://{address}, not to ipfix")), "{err}");
    }
    let foreign = format!("json+tcp://{address}?spool={}", Path::new(capture.name()).parent().unwrap().display());
    let err = failure(1, ["read", capture.name(), "-o", &foreign]);
    assert!(err.contains("is not part of a spool; name an empty folder"), "{err}");
}

#[test]
fn what_is_on_a_full_disk_is_delivered() {
    let (disk, capture, one) = (tempfile::tempdir().unwrap(), capture(3000), capture(1));
    if !mount_small_disk(disk.path(), 512) {
        return;
    }
    let address = free_address();
    let sink = format!("json+tcp://{address}?buffer=64KiB&spool={}", disk.path().join("spool").display());
    let (_, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink, "--timing", "sink_outage=100ms"]);
    let kept = flows(&ledger, "spooled");
    assert!(kept > 0 && kept < 3000 && err.contains("No space left"), "{err} {ledger}");
    let mut filler = fs::File::create(disk.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    let (collector, _) = Collector::tcp(&address);
    let (code, err, ledger) = read(one.name(), &sink);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 1, [kept, 0, kept]), "{err}");
    assert_eq!(lines(&collector.stop()[0]).len() as u64, kept + 1);
}

#[test]
fn a_folder_that_is_removed_is_noticed() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let (mut sender, parent) = (Sender::new(LEFT), tempfile::tempdir().unwrap());
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = format!("json+tcp://{address}?buffer=64KiB&spool={}", folder.display());
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&["-o", sink.as_str()][..], &OPTIONS].concat());
    send_requests(&mut sender, 0..1500);
    until("some are on disk", || flows(&probe.ledger(), "spooled") > 0);
    fs::remove_dir_all(&folder).unwrap();
    send_requests(&mut sender, 1500..1600);
    probe.wait_for("the spool cannot be used");
    let (collector, _) = Collector::tcp(&address);
    probe.wait_for(AGAIN);
    let (err, _, ledger) = probe.stop(2);
    let (sent, damaged) = (exported(&ledger), lost(&ledger, "spool_damaged"));
    assert!(sent > 0 && damaged > 0 && sent + damaged + lost(&ledger, "buffer_full") == 1600, "{err} {ledger}");
    assert_eq!(lines(&collector.stop().concat()).len() as u64, sent);
}

#[test]
fn a_run_that_anonymises_does_not_send_what_another_has_left() {
    let (capture, parent) = (capture(3), tempfile::tempdir().unwrap());
    let [folder, key] = ["spool", "key"].map(|name| parent.path().join(name));
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let sink = format!("json+tcp://{}?spool={}", free_address(), folder.display());
    assert_eq!(read(capture.name(), &sink).0, 0);
    let err = failure(1, ["read", capture.name(), "-o", &sink, "--anonymise", key.to_str().unwrap()]);
    assert!(err.contains("the spool belongs to the sink") && err.contains("with --anonymise"), "{err}");
}

#[test]
fn what_is_in_the_spool_survives_kills() {
    let capture = capture(5000);
    let all = json_of(capture.name());
    let parent = tempfile::tempdir().unwrap();
    let (address, folder) = (free_address(), parent.path().join("spool"));
    let sink = format!("json+tcp://{address}?buffer=64KiB&spool={}", folder.display());
    let segments = || {
        let sizes = fs::read_dir(&folder).into_iter().flatten().flatten();
        let sizes = sizes.filter(|entry| entry.file_name().to_string_lossy().ends_with(".seg"));
        sizes.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum::<u64>()
    };
    let kills = std::env::var("SPOOL_KILLS").map_or(10, |kills| kills.parse().unwrap());
    for kill in 0..kills {
        let before = segments();
        let mut process = command();
        process.args(["read", capture.name(), "-o", &sink]).stderr(Stdio::null());
        let mut process = process.spawn().unwrap();
        // Each time a little later.
        until("it writes, or has ended", || segments() > before || process.try_wait().unwrap().is_some());
        std::thread::sleep(Duration::from_micros(kill % 20 * 700));
        let _ = process.kill();
        process.wait().unwrap();
    }
    let (collector, _) = Collector::tcp(&address);
    let (code, err, ledger) = read(capture.name(), &sink);
    let [delivered, spooled, found] = earlier(&ledger);
    // A batch whose octets were on their way to the file is counted as damaged: one for each kill.
    let damaged = number(&ledger["sinks"][0]["earlier"]["lost"]["spool_damaged"]["flows"]);
    let most = kills * (64 << 10) / 100;
    assert!(spooled == 0 && delivered + damaged == found && delivered > 0 && damaged <= most, "{code} {err}");
    let received = lines(&collector.stop()[0]);
    assert_eq!(received.len() as u64, delivered + 5000);
    // The records of each run are its first ones, in order.
    let mut expected = 0;
    for record in &received {
        if *record != all[expected % 5000] {
            expected = 0;
        }
        assert!(*record == all[expected % 5000]);
        expected += 1;
    }
}

#[test]
fn a_restricted_probe_writes_its_spool_and_connects_again_over_tls() {
    if !is_installed("openssl") || !network() {
        return eprintln!("SKIPPED: openssl is not installed, or there is no network namespace");
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.sign("server", "IP:127.0.0.1");
    permit_all_users(folder.path());
    let path = |name: &str| folder.path().join(name);
    let (collector, address, _) = collect("127.0.0.1:0", authority.server("server", None));
    let ca = authority.path("ca.pem");
    let sink = format!("json+tls://{address}?ca={ca}&buffer=64KiB&spool={}", path("spool").display());
    let write = |files: &[&str]| {
        let files: String = files.iter().map(|file| format!(", 'json:{}'", path(file).display())).collect();
        fs::write(path("probe.toml"), format!("output = ['{sink}'{files}]\nidle = '100ms'\n")).unwrap();
        permit_all_users(&path("probe.toml"));
    };
    write(&["flows.json"]);
    let configuration = path("probe.toml").display().to_string();
    let start = || {
        let source = format!("af_packet:{RIGHT}");
        Running::probe(&source, &[&["--config", &configuration][..], &OPTIONS[2..]].concat())
    };
    let probe = start();
    let received =
        |collector: &Collector| collector.sessions().iter().map(|session| lines(session).len()).sum::<usize>();
    send_requests(&mut sender, 0..20);
    until("the collector has the first records", || received(&collector) == 20);
    assert_eq!([probe.status("NoNewPrivs:"), probe.status("Seccomp:")], ["1", "2"], "it is restricted");
    collector.stop();
    send_requests(&mut sender, 20..1500);
    until("some are on disk", || flows(&probe.ledger(), "spooled") > 0);
    // A reload that keeps the sink keeps its spool.
    write(&["flows.json", "others.json"]);
    probe.signal(libc::SIGHUP);
    probe.wait_for("configuration reloaded");
    let (collector, _, _) = collect(&address, authority.server("server", None));
    probe.wait_for("the spool is empty again");
    until("all are there", || received(&collector) == 1480);
    collector.stop();
    send_requests(&mut sender, 1500..1600);
    until("they have ended", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) + 1500 == 1600);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((exported(&ledger), flows(&ledger, "spooled")), (1500, 100), "{err} {ledger}");
    // The next run delivers what this one has left.
    let probe = start();
    let (collector, _, _) = collect(&address, authority.server("server", None));
    until("the rest is there", || received(&collector) == 100);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(earlier(&ledger), [100, 0, 100], "{err}");
}

#[test]
fn files_that_only_root_may_read_are_read_before_the_probe_becomes_another_user() {
    if !is_installed("openssl") || !is_root() {
        return eprintln!("SKIPPED: not root, or openssl is not installed");
    }
    let (authority, parent, capture) = (Authority::new(), tempfile::tempdir().unwrap(), capture(20));
    authority.sign("client", "DNS:weir.example");
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| authority.path(name));
    let [password, folder] = ["password", "spool"].map(|name| parent.path().join(name));
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    permit_all_users(parent.path());
    let address = free_address();
    let tls = format!("json+tls://{address}?ca={ca}&cert={certificate}&key={key}&spool={}", folder.display());
    let table = format!("clickhouse+http://{address}/a.b?user=u&password-file={}", password.display());
    let table = format!("{table}&spool={}", parent.path().join("other").display());
    for sink in [&tls, &table] {
        success(["probe", "-i", capture.name(), "-o", sink, "--check"]);
    }
    let (code, err, ledger) = ledger_of(["probe", "-i", capture.name(), "-o", &tls]);
    assert_eq!((code, flows(&ledger, "spooled")), (0, 20), "{err}");
}
