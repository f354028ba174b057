//! Batches that wait on disk for ClickHouse (`spool=`).

use super::{ENGINE, OF_PROBE, QUICK, Reply, Script, Server, capture, decode, exported, lost, table};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use testbed::namespace::{LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{SavedCapture, command, failure, ledger_of, number};

/// A server that is away, and its sink with a spool.
fn away(folder: &Path, settings: &str) -> (String, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sink = format!("clickhouse+http://{address}/weir.flows?spool={}{settings}", folder.join("spool").display());
    (address, sink)
}

fn server_at(address: &str, fields: &str) -> Server {
    let script = Script { columns: table(fields), engine: ENGINE, ..Script::default() };
    Server::at(address, Arc::new(Mutex::new(script)))
}

fn read_to(capture: &SavedCapture, sink: &str) -> (i32, String, Value) {
    ledger_of([&["read", capture.name(), "-o", sink], &QUICK[..]].concat())
}

fn spooled(ledger: &Value) -> u64 {
    number(&ledger["sinks"][0]["spooled"]["flows"])
}

/// Delivered, spooled and found records of earlier runs.
fn earlier(ledger: &Value) -> [u64; 3] {
    ["delivered", "spooled", "found"].map(|name| number(&ledger["sinks"][0]["earlier"][name]["flows"]))
}

#[test]
fn the_next_run_inserts_what_has_waited_in_the_spool() {
    let (source, folder) = (capture(500), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "&rows=100");
    for run in 0..2 {
        let (code, err, ledger) = read_to(&source, &sink);
        assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 0, 500), "{err}{ledger}");
        assert_eq!(earlier(&ledger), [0, 500 * run, 500 * run]);
    }
    let server = server_at(&address, "store");
    let (code, err, ledger) = read_to(&source, &sink);
    assert_eq!((code, exported(&ledger), spooled(&ledger)), (0, 500, 0), "{err}{ledger}");
    assert_eq!(earlier(&ledger), [1000, 0, 1000], "{err}");
    assert!(err.contains("the spool is empty again"), "{err}");
    let inserts = server.inserts();
    assert_eq!((inserts.len(), server.rows().len()), (15, 1500));
    // The batches of a run are numbered; those of the first run come first.
    let parts = |at: usize| inserts[at].token().rsplit_once('/').unwrap();
    assert!((0..15).all(|at| parts(at).1 == (at % 5).to_string()), "in order");
    assert!(parts(0).0 == parts(4).0 && parts(0).0 != parts(5).0 && parts(5).0 != parts(10).0);
    let of_run = |run: usize| inserts[5 * run..][..5].iter().flat_map(|insert| insert.rows.clone()).collect::<Vec<_>>();
    assert!(of_run(0) == of_run(1) && of_run(1) == of_run(2));
}

#[test]
fn a_batch_whose_answer_is_lost_has_the_same_token_in_the_next_run() {
    let (source, folder) = (capture(300), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "&rows=100");
    assert_eq!(spooled(&read_to(&source, &sink).2), 300);
    let server = server_at(&address, "store");
    // It inserts the first batch, and its answer is lost: the run ends with it in the spool.
    server.set(|script| script.replies = vec![Reply::Lost; 2]);
    let nothing = capture(0);
    let (code, err, ledger) = read_to(&nothing, &sink);
    assert_eq!((code, earlier(&ledger)), (0, [0, 300, 300]), "{err}");
    server.set(|script| script.replies.clear());
    let (code, err, ledger) = read_to(&nothing, &sink);
    assert_eq!((code, earlier(&ledger)), (0, [300, 0, 300]), "{err}");
    let inserts = server.inserts();
    assert!(inserts.len() > 3 && inserts[0].token() == inserts[inserts.len() - 3].token());
    assert_eq!(server.rows().len(), 300);
}

#[test]
fn batches_in_the_spool_survive_kills_and_are_inserted_once() {
    let (source, folder) = (capture(2000), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "&rows=50");
    assert_eq!(spooled(&read_to(&source, &sink).2), 2000);
    let server = server_at(&address, "store");
    let nothing = capture(0);
    // Each time a little later.
    for kill in 1..6 {
        server.set(|script| script.replies = [vec![Reply::Done; 5], vec![Reply::Never]].concat());
        let mut child = command().args(["read", nothing.name(), "-q", "-o", &sink]).spawn().unwrap();
        until("the server has some, and does not answer", || server.inserts().len() == 6 * kill);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    server.set(|script| script.replies.clear());
    let (code, err, ledger) = read_to(&nothing, &sink);
    let [delivered, spooled, found] = earlier(&ledger);
    assert_eq!((code, spooled, delivered), (0, 0, found), "{err}");
    // Those that were inserted and not released have come twice, with the same tokens and rows.
    assert!(server.inserts().len() > 40);
    assert_eq!(server.rows().len(), 2000);
}

#[test]
fn batches_of_other_columns_are_inserted_with_their_own() {
    let (source, folder) = (capture(100), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "");
    for settings in ["&fields=start_time,src_ip", "&fields=dst_port,fwd_bytes&compression=none"] {
        assert_eq!(spooled(&read_to(&source, &format!("{sink}{settings}")).2), 100);
    }
    let of_now = format!("{sink}&fields=src_ip,dst_ip");
    // The table has no column of the second run any more: its batches wait, and with them the later ones.
    let server = server_at(&address, "start_time,src_ip,dst_ip,fwd_bytes");
    let (code, err, ledger) = read_to(&source, &of_now);
    assert_eq!((code, exported(&ledger), spooled(&ledger), earlier(&ledger)), (2, 0, 100, [100, 100, 200]), "{err}");
    assert!(err.contains("it has no column dst_port"), "{err}");
    server.set(|script| script.columns = table("start_time,src_ip,dst_ip,dst_port,fwd_bytes"));
    let (code, err, ledger) = read_to(&source, &of_now);
    assert_eq!((code, exported(&ledger), earlier(&ledger)), (0, 100, [200, 0, 200]), "{err}");
    let columns: Vec<_> = server
        .inserts()
        .iter()
        .map(|insert| insert.settings["query"].split(['(', ')']).nth(1).unwrap().to_owned())
        .collect();
    let expected = ["start_time, src_ip", "dst_port, fwd_bytes", "src_ip, dst_ip", "src_ip, dst_ip"];
    assert_eq!(columns, expected.map(|fields| format!("{fields}, probe")));
    let all = server.script.lock().unwrap().columns.clone();
    for insert in server.inserts() {
        let names: Vec<_> = insert.settings["query"].split(['(', ')']).nth(1).unwrap().split(", ").collect();
        let columns: Vec<_> =
            names.iter().map(|name| all.iter().find(|(column, _)| column == name).unwrap().clone()).collect();
        assert_eq!(decode(&insert.rows, &columns).len(), 100);
    }
}

#[test]
fn a_full_spool_loses_the_oldest_batches_and_counts_them() {
    let (source, folder) = (capture(20_000), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "&limit=1MiB&buffer=256KiB&compression=none");
    let (code, err, ledger) = read_to(&source, &sink);
    let (waiting, full) = (spooled(&ledger), lost(&ledger, "spool_full"));
    assert_eq!((code, waiting + full), (2, 20_000), "{err}{ledger}");
    assert!(waiting > 0 && full > 0 && err.matches("the spool is full").count() == 1, "{err}");
    let files = fs::read_dir(folder.path().join("spool")).unwrap();
    assert!(files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>() <= (1 << 20) + 8192);
    let server = server_at(&address, "store");
    let (code, err, ledger) = read_to(&capture(0), &sink);
    assert_eq!((code, earlier(&ledger)), (0, [waiting, 0, waiting]), "{err}");
    assert_eq!(server.rows().len() as u64, waiting);
}

#[test]
fn the_spool_of_another_sink_is_refused() {
    let (source, folder) = (capture(3), tempfile::tempdir().unwrap());
    let (address, sink) = away(folder.path(), "");
    assert_eq!(spooled(&read_to(&source, &sink).2), 3);
    for other in [sink.replace("weir.flows", "weir.others"), sink.replace("clickhouse+http:", "clickhouse+https:")] {
        for arguments in [vec!["read", source.name()], vec!["probe", "--check", "-i", source.name()]] {
            let output = command().args(arguments).args(["-o", &other]).output().unwrap();
            assert_eq!(output.status.code(), Some(1));
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                err.contains(&format!("belongs to the sink clickhouse+http://{address}/weir.flows, not to")),
                "{err}"
            );
        }
    }
    let err = failure(1, ["read", source.name(), "-o", &format!("{sink}&limit=1MiB")]);
    assert!(err.split_whitespace().collect::<Vec<_>>().join(" ").contains("limit= must be at least buffer="), "{err}");
}

#[test]
fn a_probe_without_privileges_spools_and_inserts_each_record_once() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (address, sink) = away(folder.path(), "&wait=20ms&buffer=64KiB&compression=none");
    let options = [&["-o", sink.as_str(), "--user", "nobody"][..], &OF_PROBE, &QUICK].concat();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &options);
    send_requests(&mut sender, 0..1000);
    until("some are on disk", || spooled(&probe.ledger()) > 0);
    let server = server_at(&address, "store");
    probe.wait_for("the spool is empty again");
    send_requests(&mut sender, 1000..1050);
    until("the server has all", || server.rows().len() == 1050);
    let (err, _, ledger) = probe.stop(0);
    assert_eq!((exported(&ledger), spooled(&ledger)), (1050, 0), "{err}");
}
