//! The load shedder (docs/overload.md): each level is logged and counted, and full detail returns.

use serde_json::Value;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};
use testbed::namespace::{BOUND, until, until_within};
use testbed::running::{Running, send_requests, wire};
use testbed::{assert_usage_errors, metered, number, packets, success};

/// Whether the field `approximate` of a flow record has a word.
fn has(flow: &Value, word: &str) -> bool {
    flow["approximate"].as_str().is_some_and(|words| words.split(' ').any(|it| it == word))
}

/// Runs `weir probe` on a synthetic source to its end: ledger and flow records.
fn run(source: &str, options: &[&str]) -> (Value, Vec<Value>) {
    let (code, err, flows, ledger) = metered(&[&["probe", "-i", source, "-q"], options].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{options:?}");
    assert_eq!(flows.iter().map(packets).sum::<u64>(), number(&ledger["packets"]["metered"]));
    (ledger, flows)
}

#[test]
fn sampling_meters_one_packet_in_n_and_marks_every_record() {
    for layout in ["fused", "split"] {
        let (ledger, flows) = run("synth:velan,flows=20,packets=80k,seed=3", &["--sample", "8", "--layout", layout]);
        let line = &ledger["packets"];
        assert_eq!([&line["received"], &line["sampled_out"], &line["metered"]], [80_000, 70_000, 10_000], "{ledger}");
        assert_eq!(number(&ledger["overload"]["sampled_flows"]), flows.len() as u64);
        assert!(
            flows.iter().all(|flow| flow["sampling_min"] == 8 && flow["sampling_max"] == 8 && has(flow, "sampled"))
        );
        // Each flow has 4000 packets; 500 of them are expected, with a standard deviation of 21.
        assert_eq!(flows.len(), 20);
        for flow in &flows {
            assert!((8 * packets(flow)).abs_diff(4000) < 8 * 150, "{flow}");
        }
    }
}

#[test]
fn sampled_connections_have_no_tcp_analysis() {
    let (ledger, flows) = run("synth:mix,flows=200,packets=20k", &["--sample", "2"]);
    let of_tcp: Vec<_> = flows.iter().filter(|flow| flow["protocol"] == "tcp").collect();
    assert!(of_tcp.len() > 50);
    assert!(of_tcp.iter().all(|flow| has(flow, "unanalysed") && flow["fwd_tcp_missing_bytes"].is_null()));
    assert_eq!(number(&ledger["overload"]["unanalysed_flows"]), of_tcp.len() as u64);
}

#[test]
fn a_fixed_level_accounts_for_every_packet() {
    let source = "synth:mix,flows=3000,packets=60k";
    for (level, population) in [(0_u64, 1), (1, 1), (2, 1), (3, 1), (4, 2), (7, 16), (13, 1024)] {
        let (ledger, flows) = run(source, &["--overload", &level.to_string()]);
        let line = &ledger["packets"];
        let metered = number(&line["metered"]);
        // The last group may be incomplete.
        assert!(metered == 60_000 / population || metered == 60_000 / population + 1, "{ledger}");
        assert_eq!(number(&ledger["overload"]["level"]), level);
        let is_tcp = |flow: &&Value| flow["protocol"] == "tcp" && !has(flow, "overflow");
        assert!(flows.iter().filter(is_tcp).all(|flow| has(flow, "unanalysed") == (level > 1)), "level {level}");
        assert!(flows.iter().all(|flow| has(flow, "sampled") == (level > 3)), "level {level}");
        let sums = flows.iter().filter(|flow| has(flow, "overflow")).collect::<Vec<_>>();
        assert_eq!(sums.is_empty(), level < 3, "level {level}");
        assert!(sums.iter().all(|flow| has(flow, "aggregated")));
        let in_sums: u64 = sums.iter().map(|flow| packets(flow)).sum();
        assert_eq!(number(&ledger["anomalies"]["aggregated"]), in_sums, "{ledger}");
    }
}

#[test]
fn without_inspection_records_have_no_application_and_say_so() {
    for (options, inspects) in [
        (&["--overload", "0"][..], true),
        (&["--overload", "1"], false),
        (&["--overload", "2"], false),
        (&["--sample", "2"], false),
        (&["--overload", "1", "--dpi", "off"], true),
    ] {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../meter/dpi/testdata/http-get.pcap");
        let all = [options, &["--fields", "all"]].concat();
        let (ledger, flows) = run(source, &all);
        let uninspected = flows.iter().filter(|flow| has(flow, "uninspected")).count();
        let recognised = flows.iter().any(|flow| !flow["application"].is_null());
        assert_eq!(uninspected == 0, inspects, "{options:?}");
        assert_eq!(recognised, inspects && !options.contains(&"off"), "{options:?}");
        assert_eq!(number(&ledger["overload"]["uninspected_flows"]), uninspected as u64, "{options:?}");
    }
}

#[test]
fn shed_names_what_the_first_levels_leave_out() {
    for (order, level, [is_inspected, has_fingerprints, is_analysed]) in [
        ("dpi,tcp", 1, [false, false, true]),
        ("dpi,tcp", 2, [false, false, false]),
        ("tcp,dpi", 1, [true, true, false]),
        ("tcp,dpi", 2, [false, false, false]),
        ("fingerprints,dpi,tcp", 0, [true, true, true]),
        ("fingerprints,dpi,tcp", 1, [true, false, true]),
        ("fingerprints,dpi,tcp", 2, [false, false, true]),
        ("fingerprints,dpi,tcp", 3, [false, false, false]),
        ("tcp,fingerprints,dpi", 2, [true, false, false]),
    ] {
        let options = ["--shed", order, "--overload", &level.to_string(), "--fields", "all"];
        let (ledger, flows) = run("synth:apps,flows=200,packets=10k", &options);
        let count = |is: &dyn Fn(&Value) -> bool| flows.iter().filter(|flow| is(flow)).count();
        let is_noted =
            |flow: &Value| flow["application_notes"].as_str().is_some_and(|it| it.contains("unfingerprinted"));
        let case = format!("{order}, level {level}");
        assert_eq!(count(&|flow| !flow["application"].is_null()) > 150, is_inspected, "{case}");
        assert_eq!(count(&|flow| !flow["sni"].is_null()) > 50, is_inspected, "{case}");
        for field in ["ja3", "ja4", "ja3s", "hassh", "hassh_server"] {
            assert_eq!(count(&|flow| !flow[field].is_null()) > 0, has_fingerprints, "{case}: {field}");
        }
        let of_tcp = count(&|flow| flow["protocol"] == "tcp");
        let unanalysed = count(&|flow| has(flow, "unanalysed"));
        assert_eq!(unanalysed, if is_analysed { 0 } else { of_tcp }, "{case}");
        let uninspected = count(&|flow| has(flow, "uninspected"));
        assert_eq!(uninspected > 150, !is_inspected, "{case}");
        let unfingerprinted = count(&is_noted);
        assert_eq!(unfingerprinted > 50, is_inspected && !has_fingerprints, "{case}");
        assert!(count(&|flow| is_noted(flow) && !(flow["ja3"].is_null() && flow["hassh"].is_null())) == 0, "{case}");
        let of_ledger = ["uninspected_flows", "unfingerprinted_flows", "unanalysed_flows"];
        let counted = of_ledger.map(|name| number(&ledger["overload"][name]));
        assert_eq!(counted, [uninspected, unfingerprinted, unanalysed].map(|flows| flows as u64), "{case}");
    }
}

#[test]
fn with_fingerprints_later_levels_move_up_by_one() {
    let options = ["--shed", "fingerprints,dpi,tcp", "--overload"];
    for (level, population) in [(4, 1), (5, 2), (13, 512)] {
        let (_, flows) = run("synth:mix,flows=300,packets=20k", &[&options[..], &[&level.to_string()]].concat());
        assert!(flows.iter().all(|flow| flow["sampling_max"] == population), "level {level}");
    }
}

#[test]
fn netflow_5_headers_carry_the_sampling_rate() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(BOUND)).unwrap();
    let sink = format!("netflow5+udp://{}", collector.local_addr().unwrap());
    success(["probe", "-i", "synth:velan,flows=20,packets=8k", "--sample", "100", "-o", &sink, "-q"]);
    let mut buffer = [0; 2000];
    let octets = collector.recv(&mut buffer).unwrap();
    assert!(octets > 24);
    assert_eq!(u16::from_be_bytes([buffer[22], buffer[23]]), 2 << 14 | 100);
}

#[test]
fn invalid_levels_and_rates_are_refused() {
    assert_usage_errors(&[
        (&["probe", "-i", "synth:mix", "--overload", "14"], "use shed, lose, or an overload level from 0 to 13"),
        (&["probe", "-i", "synth:mix", "--overload", "more"], "use shed, lose"),
        (&["probe", "-i", "synth:mix", "--shed", "dpi,udp"], "there is no 'udp'; there are: fingerprints, dpi, tcp"),
        (&["probe", "-i", "synth:mix", "--shed", "tcp"], "name dpi and tcp once each, as in tcp,dpi"),
        (
            &["probe", "-i", "synth:mix", "--shed", "dpi,fingerprints,tcp"],
            "fingerprints is optional, once and before dpi",
        ),
        (&["probe", "-i", "synth:mix", "--sample", "0"], "from 1 (all packets) to 16383"),
        (&["probe", "-i", "synth:mix", "--sample", "16384"], "from 1 (all packets) to 16383"),
    ]);
}

#[test]
fn packet_loss_raises_the_level_step_by_step_and_flows_after_recovery_are_exact() {
    let Some(mut sender) = wire() else { return };
    let probe = Running::probe("af_packet:right,block=64k,blocks=2", &[]);
    let mut sent = 0;
    send_requests(&mut sender, 1..2);
    let lines_with = |text: &str| probe.stderr().lines().filter(|line| line.contains(text)).count();
    for (level, effect) in [
        (1, "no inspection of payload"),
        (2, "no TCP analysis"),
        (3, "small new flows are aggregated"),
        (4, "one packet in 2 is metered"),
    ] {
        let change = format!("overload level raised pipeline=af_packet:right@0 level={level} ");
        // A stopped probe loses most packets. Each loss raises the level by one; on a busy machine, it may have been
        // lowered meanwhile.
        while lines_with(&change) == 0 {
            let raised = lines_with("overload level raised");
            probe.signal(libc::SIGSTOP);
            send_requests(&mut sender, 1000..1500);
            probe.signal(libc::SIGCONT);
            sent += 1000;
            assert!(sent < 100_000, "the level is raised: {}", probe.stderr());
            // A loss that is seen together with the one before raises nothing: the next one does.
            let end = Instant::now() + Duration::from_secs(5);
            while lines_with("overload level raised") == raised && Instant::now() < end {
                thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(probe.stderr().lines().any(|line| line.contains(&change) && line.contains(effect)), "{effect}");
    }
    until("the status line shows the level", || {
        probe.stderr().lines().any(|line| line.contains("packets/s") && line.contains(" level=4"))
    });
    // Packets of a known flow, slowly enough that none is lost.
    for part in 0..100 {
        (0..10).for_each(|_| send_requests(&mut sender, 1..2));
        thread::sleep(Duration::from_millis(if part % 5 == 0 { 20 } else { 1 }));
    }
    // Each level is lowered after five seconds without loss; a new loss raises it again.
    until_within(10 * BOUND, "the level is 0 again", || {
        probe.stderr().lines().any(|line| {
            line.contains("overload level lowered") && line.contains("level=0") && line.contains("full detail")
        })
    });
    send_requests(&mut sender, 2..3);
    let (err, flows, ledger) = probe.stop(2);
    let line = &ledger["packets"];
    assert_eq!(number(&line["received"]), 2 + sent + 2000 + 2, "{ledger}");
    assert!(number(&line["dropped_kernel"]) > 1000, "{ledger}");
    assert!(number(&line["sampled_out"]) >= 900, "at least half of 2000, less chance: {ledger}");
    let overload = &ledger["overload"];
    let highest = number(&overload["highest"]);
    assert!(highest >= 4 && overload["level"] == 0 && number(&overload["level_changes"]) >= 2 * highest, "{err}");

    let of_host = |host: u64| flows.iter().find(|flow| flow["src_ip"] == format!("10.0.0.{host}")).unwrap();
    let sampled = of_host(1);
    assert!(has(sampled, "sampled"), "{sampled}");
    let sampling = ["sampling_min", "sampling_max"].map(|name| number(&sampled[name]));
    // A busy machine loses some of the slow packets, too, which raises the level after the last packet that is seen.
    assert!(sampling[0] == 1 && (2..=1 << (highest - 3)).contains(&sampling[1]), "{sampled}");
    let (least, most) = (packets(sampled), packets(sampled) * sampling[1] + number(&sampled["queue_lost"]));
    assert!(least <= 2002, "{least}");
    assert!(highest > 4 || 2002 <= most + 100, "2002 packets are not between {least} and {most}");
    let after = of_host(2);
    assert_eq!(packets(after), 2);
    assert_eq!((&after["approximate"], &after["sampling_max"]), (&Value::Null, &1.into()), "{after}");
    assert_eq!(after["queue_lost"], 0);
}

#[test]
fn overload_mode_lose_never_samples() {
    let Some(mut sender) = wire() else { return };
    let probe = Running::probe("af_packet:right,block=4k,blocks=2", &["--overload", "lose"]);
    for _ in 0..3 {
        let dropped = || probe.stderr().lines().filter(|line| !line.contains(" drop=0")).count();
        let before = dropped();
        probe.signal(libc::SIGSTOP);
        send_requests(&mut sender, 0..1000);
        probe.signal(libc::SIGCONT);
        until("the loss is reported", || dropped() > before);
    }
    let (err, _, ledger) = probe.stop(2);
    assert_eq!([&ledger["packets"]["received"], &ledger["packets"]["sampled_out"]], [6000, 0], "{ledger}");
    assert_eq!([&ledger["overload"]["level_changes"], &ledger["overload"]["level"]], [0, 0], "{ledger}");
    assert!(!err.contains("level"), "{err}");
}
