//! The status of `weir probe`: one line or object per interval, and the totals on SIGUSR1.

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use testbed::namespace::until;
use testbed::running::{Running, events, send_requests, statuses, sum, wire};
use testbed::{JsonOutput, Pcap, command, number, request_and_response, signal, small};

/// Starts `weir probe` on standard input. Its standard error is in the second file.
fn probe_of_pipe(output: &JsonOutput, options: &[&str]) -> (Child, PathBuf) {
    let stderr = output.folder.path().join("stderr");
    let mut probe = command();
    probe.args(["probe", "-i", "-", "--interval", "100ms", "-o", &output.sink]).args(options);
    (probe.stdin(Stdio::piped()).stderr(File::create(&stderr).unwrap()).spawn().unwrap(), stderr)
}

#[test]
fn the_figures_of_all_intervals_add_up_to_the_ledger() {
    let Some(mut sender) = wire() else { return };
    for layout in ["fused", "split", "spread"] {
        let probe = Running::probe("af_packet:right", &["--status", "json", "--idle", "300ms", "--layout", layout]);
        for part in 1..=3 {
            send_requests(&mut sender, 0..500);
            until("all packets are counted", || sum(&statuses(&probe.stderr()), "received_packets") == 1000 * part);
        }
        until("all flows have ended", || {
            let statuses = statuses(&probe.stderr());
            let ended = sum(&statuses, "ended_flows");
            ended >= 500 && statuses.last().unwrap()["active_flows"] == 0
        });
        probe.signal(libc::SIGUSR1);
        until("the totals are printed", || !events(&probe.stderr(), "ledger").is_empty());
        let ended = sum(&statuses(&probe.stderr()), "ended_flows");
        let (err, flows, ledger) = probe.stop(0);
        assert_eq!(ended, flows.len() as u64);

        let statuses = statuses(&err);
        assert_eq!(sum(&statuses, "received_bytes"), number(&ledger["bytes"]["received"]));
        for status in &statuses {
            let figure = |name: &str| status[name].as_f64().unwrap_or_else(|| panic!("{name} in {status}"));
            for (rate, count) in [
                ("packets_per_second", figure("received_packets")),
                ("bits_per_second", 8.0 * figure("received_bytes")),
                ("ended_flows_per_second", figure("ended_flows")),
            ] {
                let expected = count / figure("interval_seconds");
                assert!((figure(rate) - expected).abs() <= 1e-6 * expected, "{rate}: {status}");
            }
            assert_eq!([figure("lost_records"), figure("dropped_packets")], [0.0; 2], "{status}");
            let pipeline = &status["pipelines"][0];
            assert_eq!(pipeline["received_packets"], status["received_packets"]);
            assert_eq!(pipeline["state"], "running");
        }
        let totals = &events(&err, "ledger")[0];
        assert_eq!(totals["pipelines_without_response"], json!([]), "{totals}");
        let of_totals = &totals["ledger"];
        assert_eq!([&of_totals["packets"], &of_totals["balanced"]], [&ledger["packets"], &true.into()]);
        assert_eq!(events(&err, "finished")[0]["ledger"], ledger);
        assert!(!err.contains("3000 received"), "no text for people: {err}");
    }
}

#[test]
fn a_status_line_has_80_columns_and_the_losses_of_its_interval() {
    let Some(mut sender) = wire() else { return };
    let probe = Running::probe("af_packet:right,block=4k,blocks=2", &["--overload", "lose"]);
    probe.signal(libc::SIGSTOP);
    send_requests(&mut sender, 0..1000);
    probe.signal(libc::SIGCONT);
    let drops = || {
        let drop = |line: &str| line.split_once(" drop=")?.1.split(' ').next()?.parse::<u64>().ok();
        probe.stderr().lines().filter_map(drop).collect::<Vec<_>>()
    };
    until("an interval without losses follows", || {
        let drops = drops();
        drops.iter().sum::<u64>() > 0 && drops.last() == Some(&0)
    });
    probe.signal(libc::SIGUSR1);
    probe.wait_for("the ledger balances");
    let before = drops().len();
    until("the status goes on", || drops().len() > before + 1);
    let dropped = drops().iter().sum::<u64>();
    let (err, _, ledger) = probe.stop(2);
    assert_eq!(dropped, number(&ledger["packets"]["dropped_kernel"]), "{err}");
    let lines: Vec<_> = err.lines().filter(|line| line.contains(" active=")).collect();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(line.chars().count() <= 80 && words[0].len() == 8 && words[2].ends_with("packets/s"), "{line}");
        let names: Vec<_> = words[5..9].iter().map(|word| word.split('=').next().unwrap()).collect();
        assert!(words[4].ends_with("bit/s") && names == ["active", "ended", "lost", "drop"], "{line}");
        assert!(words[6].ends_with("/s"), "{line}");
    }
    let totals = err.split_once("UTC: totals since the start\n").unwrap().1;
    let pipeline: Vec<_> = totals.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(pipeline[..4], ["af_packet:right@0", "2000", "0", &dropped.to_string()], "{totals}");
    let received = totals.lines().find(|line| line.starts_with("received ")).unwrap();
    assert_eq!(received.split_whitespace().nth(1), Some("2000"), "{totals}");
}

#[test]
fn totals_name_a_pipeline_that_does_not_respond() {
    let output = JsonOutput::new();
    for (options, shown) in [
        (&["--quiet"][..], "no response from -: its counters are older"),
        (&["--status", "json"], r#""pipelines_without_response":["-"]"#),
        (&["--log-format", "json", "--log-level", "error"], r#""pipelines_without_response":["-"]"#),
    ] {
        let (mut child, stderr) = probe_of_pipe(&output, options);
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&small().0).unwrap();
        // The handler is there when the first records are.
        until("the output is open", || output.path.exists());
        until("the totals are printed", || {
            signal(&child, libc::SIGUSR1);
            fs::read_to_string(&stderr).unwrap().contains(shown)
        });
        drop(pipe);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{options:?}");
        let err = fs::read_to_string(&stderr).unwrap();
        assert!(!err.contains("NOT BALANCE"), "{err}");
        fs::remove_file(&output.path).unwrap();
    }
}

#[test]
fn a_rate_after_silence_is_that_of_the_time_since_the_last_report() {
    let output = JsonOutput::new();
    let (mut child, stderr) = probe_of_pipe(&output, &["--status", "json"]);
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&Pcap::of(&[]).0).unwrap();
    let statuses = || statuses(&fs::read_to_string(&stderr).unwrap());
    until("five intervals are silent", || {
        let silent = |status: &&Value| status["pipelines"][0]["state"] == "no_response";
        statuses().iter().filter(silent).count() >= 5
    });
    let frames: Vec<_> = (0..500).flat_map(request_and_response).collect();
    pipe.write_all(&Pcap::of(&frames).0[24..]).unwrap();
    let figures = |status: &Value| {
        let pipeline = &status["pipelines"][0];
        ["packets_per_second", "interval_seconds", "received_packets"].map(|name| pipeline[name].as_f64().unwrap())
    };
    let first = || statuses().iter().map(figures).find(|figures| figures[2] > 0.0);
    until("packets are reported", || {
        // A pipeline publishes its counts between two reads of a pipe.
        pipe.write_all(&Pcap::of(&frames[..1]).0[24..]).unwrap();
        first().is_some()
    });
    // The first report may come after a part of the packets: the pipe is read in pieces.
    let [rate, seconds, packets] = first().unwrap();
    assert!(
        seconds > 0.5 && (rate - packets / seconds).abs() < 1e-6 * rate,
        "{packets} packets, {rate} packets/s, {seconds} s"
    );
    drop(pipe);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn totals_requested_during_the_drain_are_printed_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let [pipe, stderr] = ["pipe", "stderr"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut probe = command();
    // More records than the pipe has space for, and no more than the queue of the sink.
    probe.args(["probe", "-i", "synth:mix,flows=500,packets=3k", "-o", &format!("json:{}", pipe.display())]);
    let mut child = probe.stderr(File::create(&stderr).unwrap()).spawn().unwrap();
    let mut reader = File::open(&pipe).unwrap();
    let err = || fs::read_to_string(&stderr).unwrap();
    until("the probe waits for the sink", || err().contains("waiting for the sinks"));
    assert!(!err().contains("the ledger balances"), "{}", err());
    signal(&child, libc::SIGUSR1);
    reader.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", err());
    assert!(err().contains("the ledger balances"), "{}", err());
}
