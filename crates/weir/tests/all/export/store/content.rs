//! What is in the files of a store, and what is refused.

use super::super::file_errors::limit_file_size;
use super::{files, json_rows, name_of, rows, rows_of, sink};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testbed::{
    Pcap, START, arguments, assert_usage_errors, capture_files, command, read_ledger, request_and_response, success,
    text_of, weir,
};

#[test]
fn a_store_has_the_records_of_json_before_and_after_its_hours_are_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let captures = capture_files().into_iter().map(|path| vec![path.into_os_string()]);
    let synth = ["synth:apps,flows=300,packets=20k,seed=3", "synth:lossy,flows=100,packets=40k,ipv6=40%,seed=4"];
    let inputs = captures.chain(synth.map(|spec| vec!["-i".into(), spec.into()]));
    for (at, input) in inputs.enumerate() {
        let [store, json, stats] = ["store", "json", "stats"].map(|name| folder.path().join(format!("{at}.{name}")));
        let outputs =
            ["-o".to_owned(), sink(&store, "?fields=all"), "-o".into(), format!("json:{}?fields=all", json.display())];
        let read = arguments!["read", "-q", "--decap", "--layer2", "--mac-addresses", "--stats", stats];
        let (code, _, err) = weir(
            read.into_iter()
                .chain(input.iter().map(|text| text.as_os_str()))
                .chain(outputs.iter().map(|text| text.as_ref())),
        );
        assert!(matches!(code, 0 | 2), "{input:?}: {err}");
        let expected = json_rows(&json);
        assert_eq!(rows(&store), expected, "{input:?}");
        let sink = &read_ledger(&stats)["sinks"][0];
        assert_eq!(sink["exported"]["flows"], expected.len(), "{input:?}");
        success(arguments!["store", "-q", store, "--compact"]);
        assert_eq!(rows(&store), expected, "{input:?}, sorted");
        assert!(files(&store).iter().all(|path| name_of(path).starts_with("hour-")), "{input:?}");
    }
}

#[test]
fn hours_are_folders_and_files_have_row_groups_of_64_ki_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let capture = [0_u32, 3599, 3600, 86_400].iter().fold(Pcap::new(), |capture, &after| {
        request_and_response(after as u16)
            .iter()
            .fold(capture, |capture, frame| capture.frame(START / 3600 * 3600 + after, 0, frame))
    });
    let path = folder.path().join("hours.pcap");
    fs::write(&path, &capture.0).unwrap();
    success(arguments!["read", "-q", path, "-o", sink(&store, "")]);
    let hour = |after: i64| {
        let time = jiff::Timestamp::from_second(i64::from(START) / 3600 * 3600 + after).unwrap();
        time.strftime("date=%Y-%m-%d/hour=%H").to_string()
    };
    let found: Vec<String> = files(&store)
        .iter()
        .map(|path| path.parent().unwrap().strip_prefix(&store).unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, [0, 3600, 86_400].map(hour));
    let listed = success(arguments!["store", store]);
    assert!(listed.lines().any(|line| line.split_whitespace().take(5).eq(["all", "3", "3", "0", "4"])), "{listed}");

    success(arguments![
        "read",
        "-q",
        "-i",
        "synth:velan,flows=70k,order=round,packets=140k",
        "-o",
        sink(&store, "?fields=basic")
    ]);
    let sizes: BTreeSet<i64> = files(&store)
        .iter()
        .flat_map(|path| {
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(sizes, [1, 2, 70_000 - 65_536, 65_536].map(i64::from).into());
    // Files of other columns are read together, and sorted apart.
    success(arguments!["store", "-q", store, "--compact", "--verify"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for path in files(&store) {
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o640, 0o750), "{}", path.display());
    }
    assert_eq!((mode(&store), mode(&store.join(".weir/lock"))), (0o750, 0o640));
}

#[test]
fn one_file_has_the_records_of_json_and_replaces_no_other() {
    const FIELDS: &str = "start_time,src_ip,src_port,packets,bpp";
    let folder = tempfile::tempdir().unwrap();
    let [parquet, json] = ["flows.parquet", "flows.json"].map(|name| folder.path().join(name));
    let json_sink = format!("json:{}?fields={FIELDS}", json.display());
    let parquet_sink = format!("{}?fields={FIELDS}", parquet.display());
    let read = |options: &[&str]| {
        let input = "synth:mix,flows=70k,packets=200k,ramp=1ms";
        let read = ["read", "-q", "-i", input, "-o", &parquet_sink, "-o", &json_sink];
        weir([&read[..], options].concat())
    };
    assert_eq!(read(&[]), (0, String::new(), String::new()));
    let written = rows_of(std::slice::from_ref(&parquet));
    assert!(written.len() > 65_536 && written == json_rows(&json), "{} rows", written.len());
    let (code, _, err) = read(&[]);
    assert!(
        code == 1 && err.contains("not empty; name another file, or replace its content with --overwrite"),
        "{err}"
    );
    assert_eq!(read(&["--overwrite", "--where", "port 1"]), (0, String::new(), String::new()));
    // The expression selects records of sinks of JSON and Parquet alike.
    assert_eq!(rows_of(std::slice::from_ref(&parquet)), json_rows(&json));
    let names = || fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names(), 2, "no file has a temporary name");

    let mut limited = command();
    limited.args(arguments!["read", "-q", "--overwrite", "-i", "synth:mix,packets=20k", "-o", parquet]);
    limit_file_size(&mut limited, 1000);
    let (code, _, err) = text_of(&limited.output().unwrap());
    assert!(code == 2 && err.contains("File too large"), "{code} {err}");
    assert_eq!((names(), rows_of(std::slice::from_ref(&parquet))), (2, json_rows(&json)), "the file is as it was");

    let name = parquet.to_str().unwrap();
    assert_usage_errors(&[
        (&["probe", "-i", "synth:mix,packets=10", "-o", name], "a probe writes a store: use parquet:FOLDER"),
        (&["read", "-i", "synth:mix,packets=10", "-o", "a.parquet.gz"], "Parquet files are compressed inside"),
        (&["read", "-i", "synth:mix,packets=10", "-o", "a.parquet?rotate=1h"], "a Parquet file is not rotated"),
    ]);
}

#[test]
fn the_metadata_of_a_file_has_the_sentence_of_each_field() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    success(arguments!["read", "-q", "-i", "synth:mix,flows=10,packets=100", "-o", sink(&store, "")]);
    for compact in [false, true] {
        if compact {
            success(arguments!["store", "-q", store, "--compact"]);
        }
        let [file] = &files(&store)[..] else { panic!("{:?}", files(&store)) };
        let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        let entries = metadata.key_value_metadata().unwrap();
        let value = |key: &str| entries.iter().find(|entry| entry.key == key).unwrap().value.clone().unwrap();
        assert_eq!(value("weir.version"), env!("CARGO_PKG_VERSION"));
        let fields: Vec<Value> = serde_json::from_str(&value("weir.fields")).unwrap();
        let names: Vec<&str> = fields.iter().map(|field| field["name"].as_str().unwrap()).collect();
        let columns = metadata.schema().get_fields();
        let expected = columns.iter().map(|column| column.name()).filter(|name| !name.ends_with("_ns_rest"));
        assert_eq!(names, expected.collect::<Vec<_>>());
        let duration = fields.iter().find(|field| field["name"] == "duration_ns").unwrap();
        assert_eq!(duration["unit"], "ns");
        assert!(duration["description"].as_str().unwrap().contains("`start_time`"));
        assert!(!names.contains(&"community_id"), "it does not compress");
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/letter.txt"), "Dear").unwrap();
    fs::write(path("file"), "x").unwrap();
    let refused = |store: &Path, expected: &str| {
        let (code, _, err) =
            weir(arguments!["read", "-q", "-i", "synth:mix,flows=10,packets=100", "-o", sink(store, "")]);
        assert!(code == 1 && err.contains(expected), "{code} {err}");
        let (code, _, err) = weir(arguments!["probe", "--check", "-i", "af_packet:lo", "-o", sink(store, "")]);
        assert!(code == 1 && err.contains(expected), "{code} {err}");
    };
    refused(&path("other"), "the folder is not empty, and is no store of Weir; name an empty folder");
    refused(&path("file"), "Not a directory");
    refused(&path("missing/store"), "No such file or directory");
    assert_eq!(fs::read_dir(path("other")).unwrap().count(), 1);
    let (code, _, err) = weir(arguments!["store", path("missing"), "--compact"]);
    assert!(code == 1 && err.contains("No such file or directory") && !path("missing").exists(), "{err}");

    let input = ["read", "-i", "synth:mix,packets=10"];
    let with = |sink: &'static str| [&input[..], &["-o", sink]].concat();
    assert_usage_errors(&[
        (&with("parquet:"), "the folder is missing"),
        (&with("parquet:-"), "a store is a folder, not standard output; use csv:- or json:-"),
        (&with("parquet:s?keep=5"), "keep must be a time from 1h, such as 30d"),
        (&with("parquet:s?keep=1d,1d"), "keep must be a time from 1h, such as 30d"),
        (&with("parquet:s?interval=1ms"), "interval must be a time from 1s to 1h"),
        (&with("parquet:s?rotate=1h"), "\"rotate=1h\" is not a setting of a store; use fields=NAME,..., keep=30d,200G"),
        (&with("parquet:s?fields=src_op"), "did you mean src_ip?"),
        (&[&input[..], &["-o", "parquet:s", "-o", "parquet:./s"]].concat(), "parquet:./s"),
    ]);
}

#[test]
fn strange_files_stay_and_damaged_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    success(arguments!["read", "-q", "-i", "synth:mix,flows=100,packets=2k", "-o", sink(&store, "")]);
    success(arguments!["read", "-q", "-i", "synth:mix,flows=100,packets=2k", "-o", sink(&store, "")]);
    let [first, second] = &files(&store)[..] else { panic!("{:?}", files(&store)) };
    let hour = first.parent().unwrap();
    let parquet_files = |hour: &Path| -> Vec<PathBuf> {
        files(hour.ancestors().nth(2).unwrap()).into_iter().filter(|path| name_of(path).ends_with(".parquet")).collect()
    };
    let strange =
        [store.join("notes"), store.join("date=2026-13-01"), hour.join("flows.csv"), hour.join("flows-1.parquet.part")];
    for path in &strange {
        fs::write(path, "x").unwrap();
    }
    let (code, listed, err) = weir(arguments!["store", store]);
    assert_eq!(code, 0, "{listed} {err}");
    assert!(strange.iter().all(|path| err.contains(&*path.to_string_lossy())), "{err}");

    let whole = fs::read(second).unwrap();
    let with = |range: std::ops::Range<usize>, octet| {
        let mut octets = whole.clone();
        octets[range].fill(octet);
        octets
    };
    let (middle, end) = (whole.len() / 3, whole.len() - 8);
    let broken = [whole[..100].to_vec(), Vec::new(), with(middle..middle + 3000, 0xa5), with(end..end + 4, 0xff)];
    for octets in broken {
        fs::write(second, &octets).unwrap();
        for option in ["--verify", "--compact"] {
            let (code, _, err) = weir(arguments!["store", store, option]);
            assert_eq!(code, 2, "{option} {err}");
            assert!(err.contains(&*second.to_string_lossy()), "{err}");
            assert!(second.exists() && strange.iter().all(|path| path.exists()), "{option}");
        }
        // The other file is sorted, once.
        let [damaged, sorted] = &parquet_files(hour)[..] else { panic!("{:?}", files(&store)) };
        assert!(name_of(sorted).starts_with("hour-") && damaged == second);
    }
    fs::write(second, &whole).unwrap();
    let before = {
        strange.iter().for_each(|path| fs::remove_file(path).unwrap());
        rows(&store)
    };
    fs::write(hour.join("flows.csv"), "x").unwrap();
    let (code, _, err) = weir(arguments!["store", store, "--compact", "--verify"]);
    assert!(code == 0 && err.contains("flows.csv"), "{err}");
    assert!(hour.join("flows.csv").exists());
    fs::remove_file(hour.join("flows.csv")).unwrap();
    assert_eq!(rows(&store), before);
}

#[test]
fn files_of_another_program_are_named_and_a_folder_of_them_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (folder.path().join("store"), folder.path().join("other"));
    let input = ["-i", "synth:mix,flows=100,packets=2k"];
    success(arguments!["read", "-q", input[0], input[1], "-o", sink(&store, "")]);
    let own = files(&store).remove(0);
    let hour = own.parent().unwrap().strip_prefix(&store).unwrap();
    fs::create_dir_all(other.join(hour)).unwrap();
    let foreign = other.join(hour).join("part-0.parquet");
    fs::copy(&own, &foreign).unwrap();
    fs::copy(&own, other.join(hour).join("part-1.parquet")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let commands = [
        vec!["read".to_owned(), text(&other)],
        vec!["store".into(), text(&other)],
        vec!["view".into(), text(&other)],
        vec!["store".into(), text(&other), "--compact".into()],
        vec!["query".into(), "select count(*) from flows".into(), "-i".into(), text(&other)],
    ];
    for arguments in &commands {
        let (code, out, err) = weir(arguments);
        assert!(code == 1 && out.is_empty(), "{arguments:?} {code} {out}{err}");
        let is_named = err.contains("no store of Weir: all 2 Parquet files") && err.contains(&text(&foreign));
        assert!(is_named, "{arguments:?} {err}");
    }
    let (code, _, err) = weir(arguments!["read", "-q", input[0], input[1], "-o", sink(&other, "")]);
    assert!(code == 1 && err.contains("no store of Weir; name an empty folder"), "{err}");
    assert!(!other.join(".weir").exists());

    // Beside files of the store they are named and counted, and what is read says that it is not all.
    let beside = own.with_file_name("part-0.parquet");
    fs::rename(&foreign, &beside).unwrap();
    fs::create_dir(store.join(hour).with_file_name("hour=7")).unwrap();
    for (command, options) in [("read", &["--by", "protocol"][..]), ("read", &[]), ("store", &[]), ("store", &["-q"])] {
        let (code, _, err) = weir([command, store.to_str().unwrap()].iter().chain(options));
        assert!(code == 2 && err.contains(&text(&beside)), "{command} {options:?} {code} {err}");
        assert!(command == "store" || err.contains("this and 1 more are none of the store"), "{err}");
    }
    assert_eq!(rows_of(&[own]), rows_of(&[beside]), "they stay as they are");
}
