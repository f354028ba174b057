//! What a terminal gets: colours, and lines that fit.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::Command;
use testbed::{captures, command, small, text_of};

/// A command whose colours no variable of the environment decides.
fn plain_command(arguments: &[&str]) -> Command {
    let mut command = command();
    command.args(arguments).env("TERM", "xterm");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLUMNS"] {
        command.env_remove(name);
    }
    command
}

/// What a command writes to a terminal of this width, and its exit code.
fn on_terminal(command: &mut Command, columns: u16) -> (i32, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 25, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let mut child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
    // Only the child has the other side now, so reading fails when the child has ended.
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut octets = Vec::new();
    let _ = File::from(terminal).read_to_end(&mut octets);
    let text = String::from_utf8(octets).unwrap().replace("\r\n", "\n");
    (child.wait().unwrap().code().unwrap(), text)
}

/// The text without escape sequences for colours.
fn without_styles(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap().to_owned();
    first + &parts.map(|part| part.split_once('m').unwrap().1).collect::<String>()
}

#[test]
fn a_terminal_gets_colours_and_nothing_else_does() {
    let capture = small().saved();
    let lossy = ["tcp", "synth:lossy,packets=3k,flows=50"];
    let full = ["read", "synth:mix,flows=10000,packets=20k", "--flows", "64", "--full", "drop", "--top", "3"];
    for (arguments, code, styled) in [
        (&["read", capture.name()][..], 0, &["\u{1b}[1m2026-11-20 UTC"][..]),
        (&full, 2, &["\u{1b}[31mdropped ", "\u{1b}[31m- dropped, flow cache full", "\u{1b}[1mledger "]),
        (&["read", capture.name(), "--by", "host"], 0, &["\u{1b}[1mhost"]),
        (&lossy, 0, &["\u{1b}[1m  #  ", "\nSYN    ", "\u{1b}[31mno answer\u{1b}[0m", "\u{1b}[31mfailed "]),
        (&["fields"], 0, &["\u{1b}[1mfield "]),
        (&["read", "/nonexistent"], 1, &["\u{1b}[1m\u{1b}[31mweir:\u{1b}[0m /nonexistent"]),
        (
            &["probe", "-q", "-i", "synth:mix,packets=9", "-o", "json:/dev/full"],
            2,
            &["\u{1b}[1m\u{1b}[31merror:\u{1b}[0m"],
        ),
        (&["--frobnicate"], 1, &["\u{1b}[1m\u{1b}[31merror:"]),
        (&[], 0, &["\u{1b}[1m"]),
    ] {
        let terminal = on_terminal(&mut plain_command(arguments), 200);
        assert_eq!(terminal.0, code, "{arguments:?}: {}", terminal.1);
        for part in styled {
            assert!(terminal.1.contains(part), "{arguments:?}: {part:?}: {:?}", terminal.1);
        }
        let not_styled = on_terminal(plain_command(arguments).env("NO_COLOR", "1"), 200);
        assert!(!not_styled.1.contains('\u{1b}'), "{arguments:?}: {:?}", not_styled.1);
        // Words of the log that differ between runs are not compared.
        let layout = |text: &str| text.lines().filter(|line| !line.contains("error:")).collect::<Vec<_>>().join("\n");
        assert_eq!(layout(&without_styles(&terminal.1)), layout(&not_styled.1));
        let (_, out, err) = text_of(&plain_command(arguments).output().unwrap());
        assert!(!(out + &err).contains('\u{1b}'), "{arguments:?}");
        let (_, out, err) = text_of(&plain_command(arguments).env("CLICOLOR_FORCE", "1").output().unwrap());
        assert!((out + &err).contains(styled[0]), "{arguments:?}");
    }
}

#[test]
fn files_and_json_have_no_colours_on_a_terminal() {
    let capture = small().saved();
    let table = capture.beside("flows.txt").display().to_string();
    let to_file = format!("table:{table}");
    for arguments in [
        &["read", "-q", capture.name(), "-o", "json:-"][..],
        &["read", "-q", capture.name(), "-o", "csv:-"],
        &["read", "-q", capture.name(), "-o", &to_file],
        &["read", "-q", capture.name(), "--stats", "-"],
        &["tcp", capture.name(), "--json", "-"],
        &["probe", "-i", capture.name(), "-o", "json:/dev/null", "--status", "json"],
        &["probe", "-i", capture.name(), "-o", "json:/dev/null", "--log-format", "json"],
    ] {
        let (code, text) = on_terminal(plain_command(arguments).env("CLICOLOR_FORCE", "1"), 200);
        assert!(code == 0 && !text.contains('\u{1b}'), "{arguments:?}: {code}: {text:?}");
    }
    assert!(!std::fs::read_to_string(&table).unwrap().contains('\u{1b}'));
}

#[test]
fn lines_fit_a_terminal_and_columns() {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../run/host/fixtures/four-nodes.txt");
    for arguments in [
        &["fields"][..],
        &["fields", "basic"],
        &["plan", "--link", "100Gbit/s", "-v", "--sysroot", machine],
        &["doctor", "-v", "--sysroot", machine],
    ] {
        for columns in [80, 60] {
            let (_, terminal) = on_terminal(plain_command(arguments).env("NO_COLOR", "1"), columns);
            let is_command = |line: &str| line.starts_with("      # ");
            let is_long = |line: &&str| line.chars().count() > columns.into() && !is_command(line);
            let long: Vec<_> = terminal.lines().filter(is_long).collect();
            assert!(long.is_empty() && terminal.lines().count() > 5, "{arguments:?}: {:?}", long.first());
            // A terminal has its own width.
            let (_, other) = on_terminal(plain_command(arguments).env("NO_COLOR", "1").env("COLUMNS", "50"), columns);
            assert_eq!(other, terminal);
            let piped = plain_command(arguments).env("COLUMNS", columns.to_string()).output().unwrap();
            assert_eq!(text_of(&piped).1, terminal);
        }
    }
    let fields = |columns: &str| text_of(&plain_command(&["fields"]).env("COLUMNS", columns).output().unwrap()).1;
    assert!(fields("80").contains("\nduration_ns") && fields("80").contains("\n    Time from `start_time` to"));
    assert!(fields("60").contains("left out to fit the terminal: profiles\n"), "{}", fields("60"));
    assert!(fields("").lines().all(|line| !line.starts_with(' ')) && fields("") == fields("0"));
    let capture = small().saved();
    let read = plain_command(&["read", capture.name(), "-q"]).env("COLUMNS", "80").output().unwrap();
    let (_, out, _) = text_of(&read);
    assert!(
        out.lines().all(|line| line.chars().count() <= 80) && out.contains("left out to fit the terminal"),
        "{out}"
    );
}

fn capture(name: &str) -> String {
    captures().join(name).to_str().unwrap().into()
}

#[test]
fn every_line_fits_80_columns() {
    let [web, snapped, loss, gre] = ["web.pcap", "snapped-36.pcap", "loss.pcapng", "gretap-key.pcap"].map(capture);
    let lossy = "synth:lossy,packets=3k,flows=50";
    let saved = small().saved();
    let long_sink = format!("csv:{}?where=port 1", saved.beside("a-file-of-a-long-name.csv").display());
    for arguments in [
        &["read", &web, "-v"][..],
        &["read", &web, "-v", "-o", &long_sink],
        &["read", &snapped, "-v"],
        &["read", &loss, "-v"],
        &["read", &gre, "-v"],
        &["read", &web, "--every", "100ms"],
        &["read", &web, "--fields", "all", "--sort", "rtt"],
        &["tcp", &web, "-v"],
        &["tcp", lossy, "--compare"],
        &["tcp", lossy, "--sort", "throughput"],
        &["tcp", lossy, "--explain", "#16"],
        &["read", &web, "--by", "protocol", "--sort", "foo"],
        &["read", &web, "--sort", "foo"],
        &["tcp", &web, "--sort", "foo"],
        &["tcp", "lo"],
        &["lo"],
    ] {
        let (_, text) = on_terminal(plain_command(arguments).env("NO_COLOR", "1"), 80);
        let long: Vec<_> =
            text.lines().filter(|line| line.chars().count() > 80 && !line.contains(&long_sink)).collect();
        assert!(long.is_empty(), "{arguments:?}: {long:#?}");
        assert!(text.lines().count() > 1, "{arguments:?}: {text}");
    }
}

/// What a command prints into a pipe for a terminal of 80 columns.
fn printed(arguments: &[&str]) -> String {
    let output = plain_command(arguments).env("COLUMNS", "80").output().unwrap();
    let (code, out, err) = text_of(&output);
    assert_eq!(code, 0, "{arguments:?}: {err}");
    out
}

#[test]
fn selected_fields_lose_columns_and_not_lines() {
    let web = capture("web.pcap");
    let out = printed(&["read", &web, "--fields", "basic", "--top", "3", "-q"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("duration_ns src_ip ") && lines[3].contains("2001:db8::2 "), "{out}");
    assert!(lines[4].starts_with("3 of 8 flows"), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("left out to fit the terminal: 20 columns: end_time, start_time, application,"), "{out}");
    assert!(words.ends_with(" and 12 more (| less -S shows all)"), "{out}");
    let all = text_of(&plain_command(&["read", &web, "--fields", "basic", "-q"]).output().unwrap()).1;
    assert_eq!(all.lines().next().unwrap().split_whitespace().count(), 27, "{all}");
    // What the table is sorted by stays, in its place.
    for name in ["bytes", "start_time", "rev_l2_bytes"] {
        let out = printed(&["read", &web, "--fields", "basic", "--sort", name, "-q"]);
        let headings: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
        assert!(headings.contains(&name) && headings.contains(&"src_ip"), "{name}: {out}");
    }
    // A narrow column stays although a wide one before it is left out.
    let out = printed(&["read", &capture("loss.pcapng"), "-q"]);
    let headings = out.lines().next().unwrap();
    assert!(headings.ends_with(" app  end") && !headings.contains("flags") && !headings.contains("UTC"), "{out}");
    assert!(out.contains("left out to fit the terminal: ") && out.contains("start"), "{out}");
}

#[test]
fn fields_fit_40_columns_and_60_keep_the_delay_of_connections() {
    let printed = |arguments: &[&str], columns: &str| {
        let output = plain_command(arguments).env("COLUMNS", columns).output().unwrap();
        text_of(&output).1
    };
    let fields = printed(&["fields"], "40");
    assert!(fields.lines().all(|line| line.chars().count() <= 40) && fields.contains("left out"), "{fields}");
    let report = printed(&["tcp", &capture("web.pcap")], "60");
    assert!(report.lines().all(|line| line.chars().count() <= 60), "{report}");
    let heads: Vec<&str> = report.lines().filter(|line| line.trim_start().starts_with("# ")).collect();
    assert!(heads.len() == 2 && heads[1].ends_with(" delay"), "{report}");
}

#[test]
fn connections_keep_the_column_that_they_are_sorted_by() {
    let web = capture("web.pcap");
    for (order, headings) in [
        ("response", &["←resp"][..]),
        ("client-response", &["resp→"]),
        ("rtt", &["rtt→", "←rtt"]),
        ("bytes", &["payload→", "←payload"]),
        ("←payload", &["←payload"]),
        ("throughput", &["bit/s→", "←bit/s"]),
        ("client-delay", &["cli %"]),
        ("start", &["start"]),
        ("retransmitted-bytes", &["retransmitted-bytes"]),
        ("fwd_tcp_mss", &["fwd_tcp_mss"]),
        ("response:asc", &["←resp"]),
    ] {
        let out = printed(&["tcp", &web, "--sort", order]);
        let heads: Vec<&str> = out.lines().filter(|line| line.trim_start().starts_with("# ")).collect();
        let has_all = headings.iter().all(|heading| heads[1].contains(heading));
        assert!(heads.len() == 2 && has_all, "{order}: {out}");
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{order}: {out}");
    }
}
