//! A recording of a machine: one text file with all files that were read.
//!
//! ```text
//! # weir machine
//! /sys/devices/system/node/online = 0-1
//! /sys/devices/system/cpu/cpu{0-7}/cpufreq/scaling_governor = performance
//! /sys/class/net/eth0 -> ../../devices/pci0000:16/0000:17:00.0/net/eth0
//! /sys/class/net/eth0/queues/rx-0/
//! /weir/ethtool/eth0/-g:
//!  Ring parameters for eth0:
//!  RX: 1024
//! ```
//! The text of a file follows `=` if it is one line; else it follows the name, indented by a space.
//! `->` is a symbolic link, and a name with a trailing `/` is a folder. `cpu{…}` stands for the
//! same line of several CPUs. Lines that begin with `#` are comments. Entries below `/weir` are not
//! files: the output of ethtool, and whether certain processes run.

use crate::lists;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The first line of a recording.
const TITLE: &str = "# weir machine";

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The text of a file, without trailing white space.
    Text(String),
    /// The target of a symbolic link.
    Link(String),
    /// A folder.
    Folder,
}

/// Entries by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording(pub BTreeMap<String, Entry>);

impl Recording {
    /// Parses a recording; `None` if the text is not one. Lines that cannot be parsed are skipped:
    /// their files count as missing.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().peekable();
        if lines.next()?.trim_end() != TITLE {
            return None;
        }
        let mut recording = Self::default();
        while let Some(line) = lines.next() {
            let line = line.trim_end();
            if !line.starts_with('/') {
                continue;
            }
            if let Some((path, target)) = line.split_once(" -> ") {
                recording.insert(path, &Entry::Link(target.trim().into()));
            } else if let Some((path, text)) = line.split_once(" =") {
                recording.insert(path, &Entry::Text(text.trim().into()));
            } else if let Some(path) = line.strip_suffix('/') {
                recording.insert(path, &Entry::Folder);
            } else if let Some(path) = line.strip_suffix(':') {
                let mut below = Vec::new();
                while let Some(line) = lines.next_if(|line| line.starts_with(' ') || line.is_empty()) {
                    below.push(line.strip_prefix(' ').unwrap_or(line));
                }
                recording.insert(path, &Entry::Text(below.join("\n").trim_end().into()));
            }
        }
        Some(recording)
    }

    /// Inserts an entry. A path with `cpu{…}` stands for several.
    fn insert(&mut self, path: &str, entry: &Entry) {
        let several = || {
            let (before, rest) = path.split_once("/cpu{")?;
            let (ids, after) = rest.split_once('}')?;
            Some((before, lists::parse_list(ids)?, after))
        };
        match several() {
            Some((before, ids, after)) => {
                self.0.extend(ids.iter().map(|id| (format!("{before}/cpu{id}{after}"), entry.clone())));
            }
            None => drop(self.0.insert(path.into(), entry.clone())),
        }
    }

    /// Names in a folder, without those in its subfolders.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let inside = format!("{folder}/");
        let below = self.0.range(inside.clone()..).map_while(|(path, _)| path.strip_prefix(&inside));
        let mut names: Vec<String> = below.filter_map(|rest| Some(rest.split('/').next()?.to_owned())).collect();
        names.dedup();
        names
    }

    /// The recording as text that [`Recording::parse`] accepts.
    pub fn text(&self) -> String {
        // Files of CPUs are mostly the same: such lines are joined.
        let mut lines: Vec<(String, Vec<u32>, &str, &Entry)> = Vec::new();
        let mut known: BTreeMap<(&str, &str, String), usize> = BTreeMap::new();
        for (path, entry) in &self.0 {
            let Some((before, id, after)) = split_cpu(path) else {
                lines.push((path.clone(), vec![], "", entry));
                continue;
            };
            let key = (before, after, format!("{entry:?}"));
            match known.get(&key) {
                Some(&line) => lines[line].1.push(id),
                None => {
                    known.insert(key, lines.len());
                    lines.push((before.into(), vec![id], after, entry));
                }
            }
        }
        let mut text = format!("{TITLE}\n");
        for (path, ids, after, entry) in lines {
            let path = match &ids[..] {
                [] => path,
                [id] => format!("{path}/cpu{id}{after}"),
                ids => format!("{path}/cpu{{{}}}{after}", lists::list(ids)),
            };
            let written = match entry {
                Entry::Folder => writeln!(text, "{path}/"),
                Entry::Link(target) => writeln!(text, "{path} -> {target}"),
                // Other texts could not be parsed: white space around them would be lost, and an
                // arrow would make a link.
                Entry::Text(one) if !one.contains('\n') && one.trim() == one && !one.contains(" -> ") => {
                    writeln!(text, "{path} = {one}")
                }
                Entry::Text(many) => {
                    let lines: String = many.lines().map(|line| format!(" {line}\n")).collect();
                    write!(text, "{path}:\n{lines}")
                }
            };
            written.expect("writing to a string cannot fail");
        }
        text
    }
}

/// Splits the path of a CPU into the text before, its number and the text after.
fn split_cpu(path: &str) -> Option<(&str, u32, &str)> {
    let (before, rest) = path.split_once("/cpu/cpu")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let id = rest[..digits].parse().ok()?;
    Some((&path[..before.len() + "/cpu".len()], id, &rest[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_written_recording_is_parsed_unchanged() {
        let mut recording = Recording::default();
        for id in 0..4 {
            let cpu = format!("/sys/devices/system/cpu/cpu{id}");
            recording.0.insert(format!("{cpu}/cpufreq/scaling_governor"), Entry::Text("performance".into()));
            recording.0.insert(format!("{cpu}/topology/core_cpus_list"), Entry::Text((id / 2).to_string()));
        }
        for (path, entry) in [
            ("/weir/ethtool/eth0/-g", Entry::Text("Ring:\n\n\tRX: 1\n /not/a/path = 3".into())),
            ("/sys/empty", Entry::Text(String::new())),
            ("/sys/one", Entry::Text(" leading".into())),
            ("/sys/class/net/eth0", Entry::Link("../../devices/x/net/eth0".into())),
            ("/sys/class/net/eth0/queues/rx-0", Entry::Folder),
        ] {
            recording.0.insert(path.into(), entry);
        }
        let text = recording.text();
        assert_eq!(Recording::parse(&text), Some(recording), "{text}");
        assert!(text.contains("/sys/devices/system/cpu/cpu{0-3}/cpufreq/scaling_governor = performance\n"), "{text}");
        assert!(text.contains("/cpu{0-1}/topology/core_cpus_list = 0\n"), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_is_preserved(texts in proptest::collection::vec("[ -~\n\t]{0,30}", 1..20), ids in proptest::collection::vec(0_u32..9, 20)) {
            let mut recording = Recording::default();
            for (text, id) in texts.iter().zip(ids) {
                let path = format!("/sys/devices/system/cpu/cpu{id}/file{}", text.len() % 3);
                recording.0.insert(path, Entry::Text(text.trim_end().into()));
            }
            prop_assert_eq!(Recording::parse(&recording.text()), Some(recording));
        }

        #[test]
        fn any_file_can_be_parsed(text in "(.|\n){0,200}") {
            let recording = Recording::parse(&format!("{TITLE}\n{text}")).unwrap();
            prop_assert!(recording.text().starts_with(TITLE));
        }
    }

    #[test]
    fn names_are_of_one_level() {
        let text = "# weir machine\n/a/b/c = 1\n/a/b/d = 2\n/a/e/\n/ab/f = 3\n";
        let recording = Recording::parse(text).unwrap();
        assert_eq!(recording.names("/a"), ["b", "e"]);
        assert_eq!(recording.names("/a/b"), ["c", "d"]);
        assert_eq!(recording.names("/nowhere"), [""; 0]);
    }

    #[test]
    fn other_texts_are_not_recordings() {
        for text in ["", "\n", "garbage", "#!/bin/sh", "\0\0\0"] {
            assert_eq!(Recording::parse(text), None, "{text:?}");
        }
        let odd = "# weir machine\nodd\n/cpu{9-1}/x = 1\n/a\n/b:\n/c:\n one\n\n three\n /d = 4\n";
        let recording = Recording::parse(odd).unwrap();
        assert_eq!(recording.0["/c"], Entry::Text("one\n\nthree\n/d = 4".into()));
        assert_eq!(recording.0["/b"], Entry::Text(String::new()));
    }
}
