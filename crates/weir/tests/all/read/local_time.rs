//! `--local-time`: what people read and write is in local time, also when the clocks change; all else
//! stays in UTC.

use std::fs;
use testbed::{Pcap, SavedCapture, captures, command, text_of, udp};

/// 2026-10-25 01:00 UTC: the clocks of Berlin are set from 3:00 back to 2:00.
const SET_BACK: u32 = 1_792_890_000;
/// 2026-03-29 01:00 UTC: the clocks of Berlin are set from 2:00 to 3:00.
const SET_FORWARD: u32 = 1_774_746_000;

/// A capture with a flow of one packet at each of these minutes after a time.
fn capture(start: u32, minutes: &[i32]) -> SavedCapture {
    let add = |pcap: Pcap, (port, minute): (u16, &i32)| {
        let frame = udp(([192, 0, 2, 1], port), ([192, 0, 2, 2], 53), 100);
        pcap.frame(start.checked_add_signed(60 * minute).unwrap(), 0, &frame)
    };
    (4000..).zip(minutes).fold(Pcap::new(), add).saved()
}

/// Runs the binary in a zone: exit code, standard output and standard error.
fn weir(zone: &str, arguments: &[&str]) -> (i32, String, String) {
    text_of(&command().args(arguments).env("TZ", zone).output().unwrap())
}

/// As [`weir`]; it succeeds and logs nothing.
fn success(zone: &str, arguments: &[&str]) -> String {
    let (code, out, err) = weir(zone, arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// As [`weir`]; it fails and prints nothing else.
fn failure(zone: &str, arguments: &[&str]) -> String {
    let (code, out, err) = weir(zone, arguments);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    err
}

#[test]
fn tables_and_summaries_have_the_times_and_the_name_of_the_zone() {
    let pcap = capture(SET_FORWARD, &[-30, 30]);
    let read = |zone, options: &[&str]| success(zone, &[&["read", pcap.name(), "--local-time"], options].concat());
    let out = read("Europe/Berlin", &[]);
    assert!(out.starts_with("2026-03-29 Europe/Berlin duration "), "{out}");
    assert!(out.contains("\n            01:30:00.000 ") && out.contains("\n            03:30:00.000 "), "{out}");
    assert!(out.contains("2026-03-29 01:30:00.000 to 03:30:00.000 Europe/Berlin (1h00m)"), "{out}");
    let out = read("Asia/Kathmandu", &["--by", "host"]);
    assert!(out.contains(" first (Asia/Kathmandu) ") && out.contains(" 2026-03-29 06:15:00.000 07:15:00.000"), "{out}");
    // A zone without a name in the database of zones, and UTC.
    assert!(read("XYZ-3:20", &["--top", "1"]).starts_with("2026-03-29 XYZ-3:20 "), "{out}");
    assert!(read("", &[]).starts_with("2026-03-29 UTC duration"), "{out}");
    let fields = read("Europe/Berlin", &["--fields", "start_time"]);
    assert!(fields.contains("2026-03-29T03:30:00.000000000+02:00"), "{fields}");
    // Without the option, the variable has no effect.
    assert!(success("Asia/Kathmandu", &["read", pcap.name()]).starts_with("2026-03-29 UTC duration"));
}

#[test]
fn intervals_are_hours_and_days_of_the_clock() {
    let starts = |zone: &str, pcap: &SavedCapture, every: &str| {
        let out = success(zone, &["read", pcap.name(), "--local-time", "--every", every, "-q"]);
        let rows = out.lines().skip(1).take_while(|line| !line.contains("total"));
        let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = |words: Vec<&str>| {
            let flows = words.iter().position(|word| word.parse::<u64>().is_ok()).unwrap();
            format!("{} {}", words[..flows].join(" "), words[flows]).replace(":00.000", "")
        };
        words.map(row).collect::<Vec<_>>().join(", ")
    };
    let autumn = capture(SET_BACK, &[-150, -30, 30, 90, 24 * 60]);
    let hours = "2026-10-25 00:00 1, 2026-10-25 01:00 0, 2026-10-25 02:00+02:00 1, 2026-10-25 02:00+01:00 1, \
                 2026-10-25 03:00 1, 2026-10-25 04:00 0, ";
    let found = starts("Europe/Berlin", &autumn, "1h");
    assert!(found.starts_with(hours) && found.ends_with(", 2026-10-26 01:00 0, 2026-10-26 02:00 1"), "{found}");
    assert_eq!(starts("Europe/Berlin", &autumn, "1d"), "2026-10-25 00:00 4, 2026-10-26 00:00 1");
    // Intervals begin at a quarter past the hours of UTC; those of the day, at 18:15 UTC.
    assert_eq!(starts("Asia/Kathmandu", &capture(SET_BACK, &[14, 15]), "1h"), "06:00 1, 07:00 1");
    assert_eq!(
        starts("Asia/Kathmandu", &capture(SET_BACK, &[17 * 60 + 14, 17 * 60 + 15]), "1d"),
        "2026-10-25 00:00 1, 2026-10-26 00:00 1"
    );
    let spring = capture(SET_FORWARD, &[-1, 1]);
    assert_eq!(starts("Europe/Berlin", &spring, "1h"), "01:00 1, 03:00 1");
    // The day has 23 hours: 256 octets of IP packets in 82800 s.
    let day = success("Europe/Berlin", &["read", spring.name(), "--local-time", "--every", "1d", "-q"]);
    assert!(day.contains(" *0.02 bit/s "), "{day}");
    // More intervals without traffic than are listed.
    let gap = success("Europe/Berlin", &["read", autumn.name(), "--local-time", "--every", "10m", "-q"]);
    assert!(gap.contains("134 without traffic"), "{gap}");
    // A letter of a bar stands for one interval.
    let by =
        success("Europe/Berlin", &["read", autumn.name(), "--local-time", "--every", "1h", "--by", "dst_ip", "-q"]);
    assert!(by.contains("2026-10-25 00:00:00.000 to 2026-10-26 03:00:00.000 Europe/Berlin"), "{by}");
    assert!(by.contains(&format!("█ ███{}█", " ".repeat(22))), "{by}");
}

#[test]
fn times_without_a_zone_are_local_and_ambiguous_ones_are_refused() {
    let pcap = capture(SET_BACK, &[-30, 30, 90]);
    let records = |zone: &str, options: &[&str]| {
        let out = success(zone, &[&["read", pcap.name(), "--local-time", "-o", "json:-", "-q"], options].concat());
        assert!(out.lines().all(|line| line.contains(":30:00.000000000Z\"")), "JSON is in UTC: {out}");
        out.lines().count()
    };
    for (zone, options, found) in [
        ("Europe/Berlin", &["--from", "2026-10-25T03:00"][..], 1),
        ("Europe/Berlin", &["--from", "2026-10-25T02:30+01:00"], 2),
        ("Europe/Berlin", &["--to", "2026-10-25T00:30:00Z"], 1),
        ("Europe/Berlin", &["--from", "2026-10-25", "--to", "2026-10-26"], 3),
        ("Asia/Kathmandu", &["--from", "2026-10-25T07:15"], 2),
        ("Asia/Kathmandu", &["--where", "start_time >= 2026-10-25T07:15"], 2),
        ("Asia/Kathmandu", &["--where", "start_time >= 2026-10-25T02:30:00Z"], 1),
    ] {
        assert_eq!(records(zone, options), found, "{zone} {options:?}");
    }
    let sink = "json:-?where=start_time < 2026-10-25T07:15";
    assert_eq!(success("Asia/Kathmandu", &["read", pcap.name(), "--local-time", "-o", sink, "-q"]).lines().count(), 1);
    let found = pcap.beside("found.pcap");
    let found = found.to_str().unwrap();
    success("Asia/Kathmandu", &["packets", pcap.name(), "--from", "2026-10-25T07:15", "--local-time", "-qo", found]);
    assert_eq!(success("UTC", &["read", found, "-o", "json:-", "-q"]).lines().count(), 2);
    for (options, reason) in [
        (
            ["--from", "2026-10-25T02:30"],
            "is two times in Europe/Berlin, where the clocks are set back; write +02:00 or +01:00",
        ),
        (["--where", "start_time < 2026-10-25T02:00"], "is two times in Europe/Berlin"),
        (["--to", "2026-03-29T02:30"], "is no time in Europe/Berlin, where the clocks are set forward"),
        (
            ["--where", "start_time < soon"],
            "is not a time; write for example 2026-11-20T12:00:00Z (without a zone: Europe/Berlin)",
        ),
    ] {
        let err = failure("Europe/Berlin", &[&["read", pcap.name(), "--local-time"], &options[..]].concat());
        assert!(err.contains(reason), "{options:?}: {err}");
    }
}

#[test]
fn an_unknown_zone_is_an_error() {
    let pcap = capture(SET_BACK, &[0]);
    let output = pcap.beside("out.pcap");
    let (name, output) = (pcap.name(), output.to_str().unwrap());
    let config = pcap.beside("weir.toml");
    fs::write(&config, format!("input = [\"{name}\"]\nlocal-time = true\n")).unwrap();
    let config = config.to_str().unwrap();
    for arguments in [
        &["read", name, "--local-time"][..],
        &["tcp", name, "--local-time"],
        &["packets", name, "--from", "-1h", "-o", output, "--local-time"],
        &["probe", "-i", name, "--local-time"],
        &["probe", "-i", name, "--local-time", "--check"],
        &["probe", "--config", config],
    ] {
        let err = failure("Europe/Berlim", arguments);
        assert!(err.contains("--local-time: TZ=\"Europe/Berlim\" is no time zone of this machine"), "{err}");
    }
    assert!(success("Europe/Berlim", &["read", name]).starts_with("2026-10-25 UTC"));
}

#[test]
fn a_probe_and_the_tcp_report_have_local_times() {
    let pcap = capture(SET_BACK, &[-30, 90]);
    let config = pcap.beside("weir.toml");
    let text = "local-time = true\nwhere = \"start_time > 2026-10-25T03:00\"\noutput = [\"table:-\"]\n";
    fs::write(&config, format!("input = [\"{}\"]\n{text}", pcap.name())).unwrap();
    let (code, out, err) = weir("Europe/Berlin", &["probe", "--config", config.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("2026-10-25 Europe/Berlin ") && out.contains(" 03:30:00.000 "), "{out}\n{err}");
    assert!(out.contains("\n1 flow, "), "{out}");
    let web = captures().join("web.pcap");
    let tcp = |options: &[&str]| {
        success("Asia/Kathmandu", &[&["tcp", web.to_str().unwrap(), "--local-time"], options].concat())
    };
    let out = tcp(&[]);
    assert!(out.contains("2026-11-21 08:36:17.914 to ") && out.contains(" Asia/Kathmandu ("), "{out}");
    assert!(out.contains("start: time of the first packet, 2026-11-21 Asia/Kathmandu"), "{out}");
    let out = tcp(&["--explain", "#1"]);
    assert!(out.contains("from 2026-11-21 08:36:17.") && out.contains(" Asia/Kathmandu"), "{out}");
}
