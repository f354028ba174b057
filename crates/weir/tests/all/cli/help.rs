//! Help texts, usage errors, completions and manual pages.

use std::collections::BTreeSet;
use testbed::{arguments, assert_usage_errors, failure, small, success};

const COMMANDS: [&str; 20] = [
    "read",
    "probe",
    "view",
    "tcp",
    "top",
    "packets",
    "rules",
    "store",
    "query",
    "clickhouse",
    "bypass",
    "health",
    "synth",
    "bench",
    "doctor",
    "plan",
    "fields",
    "completions",
    "man",
    "help",
];

/// Commands below others.
const BELOW: [[&str; 2]; 4] =
    [["rules", "check"], ["bench", "live"], ["clickhouse", "schema"], ["clickhouse", "check"]];

/// The words of every command.
fn all_commands() -> Vec<Vec<&'static str>> {
    let single = COMMANDS.iter().map(|command| vec![*command]);
    [vec![]].into_iter().chain(single).chain(BELOW.iter().map(|words| words.to_vec())).collect()
}

#[test]
fn without_a_command_it_prints_short_help() {
    let out = success::<[&str; 0], _>([]);
    for command in COMMANDS {
        assert!(out.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {out}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for command in COMMANDS.into_iter().filter(|command| !["rules", "clickhouse"].contains(command)) {
        let out = success([command, "--help"]);
        assert!(out.contains("Examples:") && out.contains(&format!("weir {command}")), "{out}");
    }
    for [command, of_command] in BELOW {
        let out = success([command, of_command, "--help"]);
        assert!(out.contains("Examples:") && out.contains(&format!("weir {command} {of_command}")), "{out}");
    }
    let out = success(["--help"]);
    assert!(out.contains("Exit codes:"), "{out}");
}

#[test]
fn help_names_the_default_log_level_and_what_changes_it() {
    for command in COMMANDS {
        let words = success([command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("this severity and above [default: info]"), "{words}");
        assert_eq!(words.contains("the default of --log-level is warn"), words.contains("--quiet"), "{words}");
    }
}

#[test]
fn options_that_commands_share_are_below_their_headings() {
    for command in ["read", "probe"] {
        let help = success([command, "--help"]);
        for (heading, option) in [("Input", "--decap"), ("Metering", "--layer2"), ("Output", "--stats")] {
            // A heading is a line without indentation.
            let after = help.lines().skip_while(|line| *line != format!("{heading}:")).skip(1);
            let mut section = after.take_while(|line| line.is_empty() || line.starts_with(' '));
            assert!(section.any(|line| line.contains(option)), "{command}, {heading}: {option}: {help}");
        }
    }
}

#[test]
fn examples_in_help_texts_are_not_wrapped() {
    for command in COMMANDS {
        let help = success([command, "--help"]);
        let Some((_, examples)) = help.split_once("Examples:") else { continue };
        // clap wraps at 100 columns and does not indent continuation lines.
        let lines: Vec<&str> = examples.lines().collect();
        let wrapped =
            lines.windows(2).find(|pair| pair[0].starts_with(' ') && !pair[1].is_empty() && !pair[1].starts_with(' '));
        assert_eq!(wrapped, None, "{command}");
    }
}

#[test]
fn help_and_reference_list_the_same_settings_of_sources_and_sinks() {
    let page = include_str!("../../../../../docs/reference.md");
    let of_page: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("=` |")).map(|(name, _)| name).collect();
    let is_of_name = |octet: u8| octet.is_ascii_lowercase() || octet == b'-';
    for command in ["read", "probe"] {
        let help = success([command, "--help"]);
        let lines = help.lines().filter_map(|line| line.strip_prefix("    ")?.split_once('='));
        let of_help: BTreeSet<&str> = lines.map(|(name, _)| name).filter(|name| name.bytes().all(is_of_name)).collect();
        assert_eq!(of_help, of_page, "{command}");
    }
    assert!(of_page.len() > 12, "{of_page:?}");
}

#[test]
fn short_help_has_at_most_40_lines_and_names_the_rest() {
    for command in all_commands() {
        for columns in ["80", "100"] {
            let out = testbed::command().args(&command).arg("-h").env("COLUMNS", columns).output().unwrap();
            let help = String::from_utf8(out.stdout).unwrap();
            assert!(out.status.success() && help.lines().count() <= 40, "{command:?}: {help}");
            let name = [&["weir"][..], &command].concat().join(" ");
            assert!(help.contains(&format!("Usage: {name}")), "{help}");
            assert!(help.contains(&format!("'{name} --help' shows all")), "{help}");
            let is_option = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
            let of_options = help.lines().skip_while(|line| *line != "Options:").take_while(|line| !line.is_empty());
            let options = of_options.filter(is_option).count();
            assert!(options <= 8, "{command:?}: {options} options: {help}");
        }
    }
    let help = success(["read", "-h"]);
    let options = ["--input", "--output", "--fields", "--top", "--sort", "--by", "--where", "--filter"];
    assert!(options.iter().all(|option| help.contains(option)), "{help}");
    assert!(help.matches("\n  weir read ").count() >= 5 && !help.contains("--no-sandbox"), "{help}");
}

#[test]
fn long_help_has_the_examples_in_front_of_the_options() {
    for command in all_commands() {
        let help = success([&command[..], &["--help"]].concat());
        let (examples, options) = (help.find("Examples:"), help.find("\nOptions:"));
        assert!(options.is_some(), "{help}");
        assert!(examples.is_none_or(|examples| Some(examples) < options), "{help}");
        assert!(help.contains("--log-level"), "{help}");
    }
    // All options of short help are in it, and more.
    let (short, long) = (success(["probe", "-h"]), success(["probe", "--help"]));
    for option in short.split_whitespace().filter(|word| word.starts_with("--") && !word.contains('\'')) {
        assert!(long.contains(option), "{option}");
    }
    assert!(
        long.contains("--no-sandbox") && long.contains("Signals:") && long.contains("weir help probe-guide"),
        "{long}"
    );
}

#[test]
fn help_of_a_command_is_its_long_help() {
    for command in
        all_commands().into_iter().filter(|words| !matches!(words[..], ["rules" | "store" | "query" | "fields"]))
    {
        assert_eq!(
            success([&["help"][..], &command].concat()),
            success([&command[..], &["--help"]].concat()),
            "{command:?}"
        );
    }
    assert_usage_errors(&[
        (&["help", "expresions"], "there is no such command or topic; did you mean expressions?"),
        (&["help", "read", "write"], "there is no such command or topic"),
        (&["man", "nonsense"], "there is no such command or topic"),
    ]);
}

/// The names in the list of topics.
fn topics() -> Vec<String> {
    let list = success(["help", "topics"]);
    let rows = list.lines().filter_map(|line| line.strip_prefix("    ")?.split_once("  "));
    rows.map(|(name, _)| name.to_owned()).filter(|name| !name.is_empty() && !name.contains(' ')).collect()
}

#[test]
fn topics_are_printed_as_text_that_fits_the_terminal() {
    let names = topics();
    for name in
        ["expressions", "fields", "sinks", "outputs", "sources", "rules", "views", "store", "query", "probe-guide"]
    {
        assert!(names.iter().any(|topic| topic == name), "{name}: {names:?}");
    }
    for name in &names {
        let page = success(["help", name]);
        assert!(page.lines().count() > 20, "{page}");
        // Code stays as it is; paragraphs are wrapped, and links are names of topics.
        let is_prose = |line: &&str| line.starts_with("    ") && !line.starts_with("      ");
        let is_long = |line: &&str| line.chars().count() > 80 && line.split_whitespace().count() > 4;
        assert_eq!(page.lines().filter(is_prose).find(is_long), None, "{name}");
        assert!(!page.contains("](") && !page.contains("|---"), "{page}");
    }
    let page = success(["help", "where"]);
    assert_eq!(page, success(["help", "expressions"]));
    assert!(
        page.starts_with("Expressions\n") && page.contains("starts-with") && !page.contains("HyperLogLog"),
        "{page}"
    );
    assert!(page.contains("    host A, ip A, src host A, dst host A,  with this address"), "{page}");
    assert!(success(["help", "rules"]).contains("(`weir help overload`)"));
}

#[test]
fn topics_have_manual_pages_of_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    success(arguments!["man", "-o", folder.path().join("man1")]);
    for name in topics().iter().filter(|name| !["sinks", "sources", "where"].contains(&name.as_str())) {
        let page = std::fs::read_to_string(folder.path().join(format!("man7/weir-{name}.7"))).unwrap();
        assert!(page.contains(&format!(".TH weir-{name} 7")), "{page}");
        assert_eq!(page, success(["man", name]));
    }
    let page = success(["man", "rules"]);
    assert!(page.contains("\\fBweir\\-overload(7)\\fR") && page.contains("Levels"), "{page}");
    assert!(success(["man", "read"]).contains(".TH weir-read 1"));
}

/// A page of `docs` that a text names.
fn named_page(text: &str) -> Option<&str> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./".contains(letter));
    let is_page = |word: &&str| {
        let name = word.trim_end_matches('.').trim_start_matches("docs/");
        name != "README.md" && name.ends_with(".md") && std::path::Path::new(docs).join(name).exists()
    };
    words.into_iter().find(is_page)
}

#[test]
fn no_help_and_no_manual_page_names_a_page_that_only_the_source_code_has() {
    assert_eq!(named_page("see (docs/views.md)."), Some("docs/views.md"));
    let commands = all_commands()
        .into_iter()
        .flat_map(|words| [[&words[..], &["--help"]].concat(), [&words[..], &["-h"]].concat()]);
    let other =
        [vec!["fields"], vec!["man"], vec!["man", "read"], vec!["man", "probe"], vec!["probe", "--print-config"]];
    for command in commands.chain(other) {
        assert_eq!(named_page(&success(&command)), None, "{command:?}");
    }
    for topic in topics() {
        assert_eq!(named_page(&success(["help", &topic])), None, "{topic}");
        assert_eq!(named_page(&success(["man", &topic])), None, "{topic}");
    }
}

#[test]
fn the_version_is_one_line() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(success(["--version"]), format!("weir {version}\n"));
    for command in COMMANDS {
        assert_eq!(success([command, "-V"]), format!("weir-{command} {version}\n"));
    }
}

#[test]
fn usage_errors_have_exit_code_1_and_a_reason() {
    assert_usage_errors(&[
        (&["nonsense"], "nonsense"),
        (&["read"], "nothing to read"),
        (&["read", ""], "an input name is empty"),
        (&["read", "-", "-o", ""], "a value is required for '--output"),
        (&["tcp", "-", "--explain", ""], "a value is required for '--explain"),
        (&["read", "-", "-"], "only once"),
        (&["read", "-", "--idle", "5w"], "unit of time"),
        (&["read", "-", "--idle", "0"], "at least 1ns"),
        (&["read", "-", "--idle", "99999999999999999999s"], "too long; at most 5124095h"),
        (&["read", "-", "--flows", "99999999999999999999"], "must be from 1"),
        (&["read", "-", "--active", "soon"], "soon"),
        (&["read", "-", "--flows", "0"], "must be from 1"),
        (&["read", "-", "--flows", "5G"], "must be from 1"),
        (&["read", "-", "--top", "-1"], "-1"),
        (&["read", "-", "--key", "vlan,color"], "color"),
        (&["read", "-", "--full", "panic"], "panic"),
        (&["read", "-", "--domain", "4294967296"], "4294967296"),
        (&["read", "-", "--unknown"], "--unknown"),
        (&["read", "-", "-o", "table:-", "-o", "json:-"], "mixed"),
        (&["read", "-", "-o", "csv:-", "--stats", "-"], "mixed"),
        (&["read", "-i", "synth:nonsense"], "synth:nonsense"),
        (&["read", "-i", "synth:mix,flows=0"], "must be a whole number from 1 to 16777216, with an optional suffix"),
        (&["read", "frames:x"], "no source frames:; use af_packet:, af_xdp:, dpdk: or synth:"),
        (&["read", "af_packet:weir-none"], "there is no interface 'weir-none'; there are: "),
        (&["read", "af_xdp:weir-none"], "there is no interface 'weir-none'"),
        (&["read", "-i", "af_xdp:weir-none,queue=2"], "did you mean queues?"),
        (&["read", "-i", "af_xdp:lo"], "af_packet:lo leaves it there (--force captures nevertheless)"),
        (&["probe", "-i", "af_xdp:lo,queues=0"], "takes all loopback traffic away"),
        (&["read", "-i", "lo"], "lo: there is no such file; to capture from the interface: -i af_packet:lo"),
        (&["read", "-i", "any"], "no interface that stands for all; name the interfaces, joined with +: -i af_packet:"),
        (&["probe", "-i", "any"], "any: there is no such file, and no interface that stands for all"),
        (&["read", "-", "--by", "host", "--groups", "99999G"], "must be from 1 to 4294967295"),
        (&["read", "-", "--by", "host", "--groups", "0"], "must be from 1 to 4294967295"),
        (&["probe", "-i", "lo"], "to capture from the interface: -i af_packet:lo"),
        (&["read", "-", "-o", "ipfix://127.0.0.1:4739"], "there is no sink ipfix://; use ipfix+udp://HOST:PORT"),
        (&["read", "-", "-o", "table://h:99"], "there is no sink table://"),
        (&["read", "-", "-o", "ipfix:127.0.0.1:4739"], "this is an address; use ipfix+udp://HOST:PORT"),
        (&["probe", "-i", "synth:mix", "-o", "netflow://h"], "use netflow9+udp://HOST:PORT or netflow5+udp://"),
        (
            &["read", "-", "-o", "flows.txt"],
            "use a file name that ends with .json, .csv or .ipfix (or with .gz or .zst after",
        ),
        (&["read", "-i", "af_packet:lo,queue=2"], "did you mean queues?"),
        (&["read", "-", "-i", "af_packet:lo"], "af_packet:lo: live traffic is read alone"),
        (&["tcp", "af_packet:lo"], "weir tcp reads captures, not live traffic"),
        (&["tcp", "lo"], "(tcpdump -w), or meter it with weir read -i af_packet:lo"),
        (&["lo"], "tip: to meter this traffic: 'weir read -i af_packet:lo'"),
        (&["synth", "nonsense", "-o", "x.pcap"], "nonsense"),
        (&["synth", "velan"], "--output"),
        (&["bench", "speed"], "flows"),
        (&["bench", "--rounds", "0"], "--rounds"),
        (&["doctor", "nonsense0"], "no interface 'nonsense0'"),
        (&["doctor", "--sysroot", "/nonsense"], "is the name right?"),
        (&["doctor", "--sysroot", "/dev/null"], "neither a directory nor a recording"),
        (&["doctor", "--fix", "--json"], "--fix"),
        (&["plan"], "--link"),
        (&["plan", "--link", "fast"], "has no unit of bit rates"),
        (&["plan", "--link", "100"], "'100' has no unit of bit rates; write for example 100Gbit/s, 100Gbps or 100G"),
        (&["plan", "--link", "100GB/s"], "has no unit of bit rates"),
        (&["plan", "--link", "0G"], "a link has from 1bit/s to 1000Tbit/s; is the unit right?"),
        (&["plan", "--link", "2000T"], "a link has from 1bit/s to 1000Tbit/s; is the unit right?"),
        (&["plan", "--link", "10G", "--packet", "63"], "63"),
        (&["plan", "--link", "10G", "--mpps-per-core", "0"], "0.001"),
        (&["plan", "--link", "10G", "--mpps-per-core", "NaN"], "0.001"),
        (&["plan", "--link", "10G", "--iface", "nonsense0"], "no interface"),
        (&["plan", "--link", "10G", "--bench", "/dev/null"], "not JSON"),
        (&["completions", "dos"], "dos"),
    ]);
}

#[test]
fn unknown_options_get_no_advice_about_other_things() {
    for (arguments, tips) in [
        (&["read", "x", "-s", "bytes"][..], &["--by FIELD sums up flows, --sort NAME sorts"][..]),
        (&["read", "x", "-A", "srcip"], &["--by FIELD sums up flows"]),
        (&["read", "x", "--agg", "host"], &["--by FIELD sums up flows"]),
        (&["read", "x", "-n", "10"], &["--top N lists the N largest"]),
        (&["read", "-r", "x"], &["name the file without an option: 'weir read FILE'"]),
        (&["probe", "-r", "x"], &["-i SOURCE names a file or an interface"]),
        (&["read", "x", "-w", "y"], &["'weir packets FILE -o out.pcapng' writes packets, -o flows.csv flow records"]),
        (&["read", "x", "--csv", "y"], &["-o flows.csv writes flow records"]),
        (&["tcp", "x", "-o", "csv:-"], &["--csv FILE, --json FILE, --html FILE write the report"]),
        (&["tcp", "-i", "x"], &["name the file without an option: 'weir tcp FILE'"]),
        (&["tcp", "x", "-s", "rtt"], &["--by FIELD sums up flows, --sort NAME sorts"]),
        (&["tcp", "x", "-A", "host"], &["--by FIELD sums up flows"]),
        (
            &["synth", "x", "--where", "port 80"],
            &["weir read, weir probe, weir view, weir tcp, weir top and weir packets have --where"],
        ),
        (&["synth", "x", "--by", "host"], &["weir read, weir probe and weir tcp have --by"]),
        (
            &["--where", "port 80"],
            &["weir read, weir probe, weir view, weir tcp, weir top and weir packets have --where"],
        ),
        (&["read", "x", "--duration", "5"], &["weir probe has --duration"]),
        (&["read", "x", "--filed", "basic"], &["a similar argument exists: '--fields'"]),
        (&["read", "x", "--out", "y"], &["a similar argument exists: '--output'"]),
        (&["read", "x", "--colour", "on"], &[]),
        (&["read", "x", "-z"], &[]),
    ] {
        let err = failure(1, arguments);
        let found: Vec<&str> = err.lines().filter_map(|line| line.trim_start().strip_prefix("tip: ")).collect();
        assert_eq!(found, tips, "{arguments:?}: {err}");
        let command = arguments[0].trim_start_matches("--where");
        assert!(err.contains(&format!("Usage: weir {command}").trim_end().to_owned()), "{arguments:?}: {err}");
    }
}

#[test]
fn commands_of_other_programs_have_their_tip() {
    for (command, tip) in [
        ("talkers", "'weir read FILE --by host' sums up flows, 'weir top' shows them live"),
        ("flows", "'weir read FILE' lists flows"),
    ] {
        let err = failure(1, [command]);
        assert!(err.contains(tip) && err.matches("tip:").count() == 1, "{err}");
    }
    assert_usage_errors(&[
        (&["read", "x", "--top", "ten"], "not a number; write for example 65536 or 4M"),
        (&["read", "x", "--top", "10x"], "'x' is not a suffix; use k, M or G (decimal)"),
    ]);
}

#[test]
fn a_value_with_a_hyphen_is_refused_as_a_value() {
    assert_usage_errors(&[
        (&["read", "x", "--top", "-1"], "invalid value '-1' for '--top <N>'"),
        (&["read", "x", "--domain", "-1"], "invalid value '-1' for '--domain <N>'"),
        (&["read", "x", "--idle", "-1s"], "invalid value '-1s' for '--idle <TIME>'"),
        (&["tcp", "x", "--top", "-1"], "invalid value '-1' for '--top <N>'"),
        (&["read", "x", "--by", "host", "--sort", "-bytes", "--top", "-1"], "invalid value '-1' for '--top <N>'"),
        (&["read", "x", "--by", "host", "--sort", "-bytes"], "\"-bytes\"; did you mean bytes?"),
        (&["read", "x", "--sort", "-bytes"], "there is no field \"-bytes\"; did you mean bytes"),
        (&["read", "x", "-o", "-.csv"], "csv:-.csv: this is not standard output: use - for it"),
        // An option that exists is not a value.
        (&["read", "x", "--sort", "--by", "host"], "a value is required for '--sort <NAME>'"),
        (&["read", "x", "--", "--top"], "--top: No such file"),
    ]);
}

#[test]
fn control_characters_of_arguments_are_not_printed() {
    for arguments in [&["--x\nweir: error: forged"][..], &["read", "-", "--idle", "5\u{1b}[2J\nweir: forged"]] {
        let err = failure(1, arguments);
        assert!(!err.lines().any(|line| line.starts_with("weir: ")) && !err.contains('\u{1b}'), "{err:?}");
        assert!(err.contains(" weir: "), "{err:?}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let out = success(["completions", shell]);
        assert!(out.contains("decap"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let out = success(["man"]);
    assert!(out.contains(".TH weir 1"), "{out}");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    success(arguments!["man", "-o", pages]);
    for page in ["", "-read", "-tcp", "-synth", "-bench", "-bench-live", "-doctor", "-plan", "-fields", "-man"] {
        let page = format!("weir{page}");
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains("Examples:"), "{page}");
    }
}

#[test]
fn the_fields_are_listed_with_their_names() {
    let out = success(["fields"]);
    for field in ["src_ip", "rev_packets", "community_id", "iat_mean_ns"] {
        assert!(out.contains(field), "{field}: {out}");
    }
    // Every word of expressions is a column, or one of the last lines.
    for word in ["rtt", "response", "server_ip", "client_ip", "service_port", "retransmitted", "bps", "host", "as"] {
        assert_eq!(out.lines().filter(|line| line.split_whitespace().next() == Some(word)).count(), 1, "{word}: {out}");
    }
}

#[test]
fn the_fields_are_listed_for_programs() {
    let json: serde_json::Value = serde_json::from_str(&success(["fields", "--format", "json"])).unwrap();
    let field = |name: &str| json.as_array().unwrap().iter().find(|field| field["name"] == name).unwrap();
    let rtt = field("rtt");
    assert_eq!((&rtt["type"], &rtt["unit"], &rtt["column"]), (&"integer".into(), &"ns".into(), &true.into()), "{rtt}");
    assert_eq!(field("src_port")["elements"][0]["number"], 7);
    assert_eq!(field("src_port")["elements"][0]["name"], "sourceTransportPort");
    assert!(field("src_port")["profiles"].as_array().unwrap().contains(&"basic".into()), "{json}");
    assert_eq!(field("host")["column"], false);

    let csv = success(["fields", "--format", "csv"]);
    assert!(csv.starts_with("name,type,unit,profiles,elements,column,meaning\n"), "{csv}");
    assert_eq!(csv.lines().count() - 1, json.as_array().unwrap().len());
    assert!(csv.contains("\nrtt,integer,ns,tcp,") && csv.contains("sourceTransportPort (7)"), "{csv}");

    let sql = success(["fields", "basic", "--format", "sql"]);
    let columns: Vec<&str> = sql.lines().filter_map(|line| line.strip_prefix("    ")?.split(' ').next()).collect();
    let capture = small().saved();
    let header = success(["read", capture.name(), "-q", "-o", "csv:-"]);
    assert_eq!(columns, header.lines().next().unwrap().split(',').collect::<Vec<_>>());
    assert!(sql.starts_with("CREATE TABLE flows (\n    start_time TIMESTAMPTZ, -- "), "{sql}");
}

#[test]
fn bash_completes_fields_profiles_sinks_and_topics() {
    let script = success(["completions", "bash"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.bash");
    std::fs::write(&file, &script).unwrap();
    let completed = |words: &[&str]| {
        let (word, before) = (words[words.len() - 1], words[words.len() - 2]);
        let line = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _weir weir {word} {before}; echo ${{COMPREPLY[@]}}",
            file.display(),
            words.join(" "),
            words.len() - 1
        );
        let out = std::process::Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["weir", "read", "--by", "src_po"]), ["src_port"]);
    assert_eq!(
        completed(&["weir", "read", "--fields", "appl"]),
        ["applications", "application", "application_by", "application_notes"]
    );
    assert_eq!(completed(&["weir", "read", "--sort", "retransmitted_s"]), ["retransmitted_share"]);
    assert_eq!(completed(&["weir", "probe", "-o", "parq"]), ["parquet:"]);
    assert!(completed(&["weir", "probe", "-i", "af_packet"]).contains(&"af_packet:lo".into()));
    assert!(completed(&["weir", "top", "af_packet"]).contains(&"af_packet:lo".into()));
    assert_eq!(completed(&["weir", "top", "eth0", "--list", "fail"]), ["failures"]);
    assert_eq!(completed(&["weir", "help", "expr"]), ["expressions"]);
    assert_eq!(completed(&["weir", "fields", "--format", "s"]), ["sql"]);
    let zsh = success(["completions", "zsh"]);
    assert!(zsh.contains("src_port") && zsh.contains("parquet"), "{zsh}");
}

#[test]
fn files_of_the_wrong_kind_are_named_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"\xff\xfe\0").unwrap();
    let name = file.to_str().unwrap();
    let capture = small().saved();
    assert_usage_errors(&[
        (&["man", "-o", name], "; name a directory, not a file"),
        (&["tcp", capture.name(), "--svg", name], "; name a directory, not a file"),
        (&["probe", "--config", name], "not a text file"),
    ]);
}
