//! Lists of `--tags`: addresses, prefixes, domain names, JA3 and JA4, one per line.
//!
//! All lists are in one table per kind of entry, whose values are sets of lists. So the number of
//! lists does not change what a lookup costs.

use crate::domain;
use crate::error::{BrokenLines, Error, InvalidEntry, Problem};
use crate::file::InputFile;
use crate::name_table::NameTable;
use crate::prefix::{InvalidPrefix, Prefix};
use crate::prefix_map::{PrefixMap, PrefixMapBuilder};
use crate::tag_set::{MAX_TAG_LISTS, TagSet};
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest line, octets: entries are at most 253.
const MAX_LINE_OCTETS: u64 = 1024;
/// Some editors begin text in UTF-8 with this mark, which is not part of it (RFC 3629 section 6). The
/// libraries that read CSV and TOML leave it out, too.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Longest name of a list, octets.
const MAX_NAME_OCTETS: usize = 32;

/// A list of `--tags NAME=FILE`. Several files may have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagList {
    /// The tag of records that match.
    pub name: String,
    /// The file with its entries.
    pub path: PathBuf,
}

/// Why a text is not `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTagList {
    /// It has no `=`, or nothing behind it.
    #[error("write NAME=FILE, as in botnets=/var/lib/weir/botnets.txt")]
    Form,
    /// The name has other characters, or is empty or too long.
    #[error("{0:?} is not a name of a list: use 1 to 32 letters, digits, - and _")]
    Name(String),
}

impl FromStr for TagList {
    type Err = InvalidTagList;

    fn from_str(text: &str) -> Result<Self, InvalidTagList> {
        let (name, path) = text.split_once('=').filter(|(_, path)| !path.is_empty()).ok_or(InvalidTagList::Form)?;
        let is_part = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
        if !(1..=MAX_NAME_OCTETS).contains(&name.len()) || !name.bytes().all(is_part) {
            return Err(InvalidTagList::Name(name.into()));
        }
        Ok(Self { name: name.into(), path: path.into() })
    }
}

/// All lists in memory.
#[derive(Debug, Default)]
pub(crate) struct TagLists {
    /// In the order of the options, each once.
    names: Vec<(String, ListContent)>,
    addresses: PrefixMap<TagSet>,
    domains: NameTable,
    /// JA3 and JA4, which have different lengths.
    fingerprints: NameTable,
}

/// What lists have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListContent {
    /// Addresses or prefixes: known from the first packet of a flow on.
    pub has_addresses: bool,
    /// Domain names or fingerprints: known when inspection has found them.
    pub has_findings: bool,
}

/// What a file of a list had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListReport {
    pub entries: u64,
    pub broken: BrokenLines,
}

/// An entry of a list.
enum Entry {
    Address(Prefix),
    Domain(String),
    Fingerprint(String),
}

impl TagLists {
    /// Reads lists, at most [`MAX_TAG_LISTS`] names.
    ///
    /// # Errors
    /// Files cannot be read or have no entry: all of those. The other lists are useless without them.
    pub fn load(lists: &[TagList]) -> Result<(Self, Vec<ListReport>), Vec<Error>> {
        let mut all = Self::default();
        let mut addresses = PrefixMapBuilder::default();
        let (mut reports, mut errors) = (Vec::new(), Vec::new());
        for list in lists {
            let failed = |problem| Error::new(format!("--tags {}", list.name), &list.path, problem);
            let known = all.names.iter().position(|(name, _)| *name == list.name);
            let number = known.unwrap_or(all.names.len());
            if number == MAX_TAG_LISTS {
                errors.push(failed(Problem::TooManyLists));
                break;
            }
            if known.is_none() {
                all.names.push((list.name.clone(), ListContent::default()));
            }
            let report = InputFile::open(&list.path)
                .and_then(|file| {
                    let report = all.read(BufReader::new(&file.file), number, &mut addresses)?;
                    file.check_unchanged()?;
                    Ok(report)
                })
                .map_err(failed);
            match report {
                Ok(report) => reports.push(report),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        all.addresses = addresses.build(|containing, own| containing | own);
        all.domains.shrink();
        all.fingerprints.shrink();
        Ok((all, reports))
    }

    /// Adds the entries of a list.
    ///
    /// # Errors
    /// It cannot be read, or has lines, but no entry.
    fn read(
        &mut self,
        mut list: impl BufRead,
        list_number: usize,
        addresses: &mut PrefixMapBuilder<TagSet>,
    ) -> Result<ListReport, Problem> {
        let (tags, content) = (TagSet::of_list(list_number), &mut self.names[list_number].1);
        let (mut report, mut line, mut number) = (ListReport::default(), Vec::new(), 0);
        loop {
            line.clear();
            if list.by_ref().take(MAX_LINE_OCTETS).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            number += 1;
            let is_cut = line.len() as u64 == MAX_LINE_OCTETS && line.last() != Some(&b'\n');
            if is_cut {
                list.skip_until(b'\n')?;
            }
            let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line);
            let (text, is_text) = match str::from_utf8(line) {
                Ok(text) => (text.into(), true),
                Err(_) => (String::from_utf8_lossy(line), false),
            };
            let entry = match without_comment(&text) {
                "" => continue,
                _ if is_cut => Err(InvalidEntry::TooLong),
                _ if !is_text => Err(InvalidEntry::NotText),
                word if word.contains(char::is_whitespace) => Err(InvalidEntry::Words),
                word => entry(word),
            };
            match &entry {
                Ok(Entry::Address(_)) => content.has_addresses = true,
                Ok(Entry::Domain(_) | Entry::Fingerprint(_)) => content.has_findings = true,
                Err(_) => {}
            }
            let added = match entry {
                Ok(Entry::Address(prefix)) => {
                    addresses.add(prefix, tags);
                    Ok(())
                }
                Ok(Entry::Domain(name)) => self.domains.add(&name, tags),
                Ok(Entry::Fingerprint(fingerprint)) => self.fingerprints.add(&fingerprint, tags),
                Err(reason) => {
                    report.broken.add(number, text.trim(), reason);
                    continue;
                }
            };
            added.map_err(|_| Problem::TooManyNames)?;
            report.entries += 1;
        }
        if report.entries == 0 && report.broken.count > 0 { Err(Problem::NoEntry(report.broken)) } else { Ok(report) }
    }

    /// The lists that have an address.
    pub fn of_address(&self, address: IpAddr) -> TagSet {
        self.addresses.get(address)
    }

    /// The lists that have a domain name, or a domain that it is in.
    pub fn of_name(&self, name: &str) -> TagSet {
        domain::normal(name).map_or(TagSet::default(), |name| self.domains.get_suffixes(&name))
    }

    /// The lists that have a JA3 or a JA4.
    pub fn of_fingerprint(&self, fingerprint: &str) -> TagSet {
        self.fingerprints.get(fingerprint)
    }

    /// Whether a list has a fingerprint.
    pub fn have_fingerprints(&self) -> bool {
        !self.fingerprints.is_empty()
    }

    /// What these lists have together, selected by name.
    pub fn content(&self, is_wanted: impl Fn(&str) -> bool) -> ListContent {
        let wanted = self.names.iter().filter(|(name, _)| is_wanted(name)).map(|&(_, content)| content);
        wanted.fold(ListContent::default(), |all, of| ListContent {
            has_addresses: all.has_addresses || of.has_addresses,
            has_findings: all.has_findings || of.has_findings,
        })
    }

    /// The names of the lists of a set, separated by spaces; `None` for an empty set.
    pub fn text(&self, tags: TagSet) -> Option<Box<str>> {
        let mut names = self.names.iter().enumerate().filter(|(number, _)| tags.has(*number));
        let first = names.next()?.1.0.clone();
        Some(names.fold(first, |text, (_, (name, _))| text + " " + name).into())
    }

    pub fn memory_bytes(&self) -> usize {
        self.addresses.memory_bytes() + self.domains.memory_bytes() + self.fingerprints.memory_bytes()
    }
}

/// A line without its comment, and without white space around the rest.
fn without_comment(line: &str) -> &str {
    line.split(['#', ';']).next().unwrap_or_default().trim()
}

fn entry(word: &str) -> Result<Entry, InvalidEntry> {
    match word.parse() {
        Ok(prefix) => return Ok(Entry::Address(prefix)),
        Err(InvalidPrefix::Address) => {}
        Err(error) => return Err(error.into()),
    }
    if word.len() == 32 && word.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return Ok(Entry::Fingerprint(word.to_ascii_lowercase()));
    }
    if is_ja4(word) {
        return Ok(Entry::Fingerprint(word.into()));
    }
    domain::suffix(word).map(Entry::Domain).ok_or(InvalidEntry::Unknown)
}

/// `t13d1516h2_8daaf6152771_b186095e22b6`: 10 letters and digits, and two truncated hashes.
fn is_ja4(word: &str) -> bool {
    let is_hash = |part: &str| part.len() == 12 && part.bytes().all(|octet| matches!(octet, b'0'..=b'9' | b'a'..=b'f'));
    let parts: Vec<&str> = word.split('_').collect();
    matches!(parts[..], [start, ciphers, extensions]
        if start.len() == 10
            && start.starts_with(['t', 'q', 'd'])
            && start.bytes().all(|octet| octet.is_ascii_alphanumeric())
            && is_hash(ciphers)
            && is_hash(extensions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn list(name: &str, path: &Path) -> TagList {
        TagList { name: name.into(), path: path.into() }
    }

    fn text(errors: &[Error]) -> String {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Lists from texts, by their names.
    fn load(texts: &[(&str, &str)]) -> Result<(TagLists, Vec<ListReport>), String> {
        let directory = tempfile::tempdir().unwrap();
        let files = texts.iter().enumerate().map(|(number, (name, text))| {
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, text).unwrap();
            list(name, &path)
        });
        TagLists::load(&files.collect::<Vec<_>>())
            .map_err(|errors| text(&errors).replace(&directory.path().display().to_string(), "DIR"))
    }

    const JA3: &str = "E7D705A3286E19EA42F587B344EE6865";
    const JA4: &str = "t13d1516h2_8daaf6152771_b186095e22b6";

    #[test]
    fn each_kind_of_entry_is_found() {
        let text = format!(
            "# addresses\n10.0.0.0/8 # office\n192.0.2.1\r\n2001:db8::/32;x\n\n{JA3}\n {JA4} \nEvil.example\n.zip"
        );
        let (lists, reports) =
            load(&[("a", &text), ("b", "10.1.0.0/16\nwww.evil.example\n"), ("a", "192.0.2.2")]).unwrap();
        assert_eq!(reports.iter().map(|report| report.entries).collect::<Vec<_>>(), [7, 2, 1]);
        assert!(reports.iter().all(|report| report.broken.count == 0));
        let address = |address: &str| lists.text(lists.of_address(address.parse().unwrap()));
        for (text, expected) in [
            ("10.0.0.1", Some("a")),
            ("10.1.0.1", Some("a b")),
            ("192.0.2.1", Some("a")),
            ("192.0.2.2", Some("a")),
            ("192.0.2.3", None),
            ("2001:db8::1", Some("a")),
        ] {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
        let name = |name: &str| lists.text(lists.of_name(name));
        for (text, expected) in [
            ("evil.example", Some("a")),
            ("WWW.evil.example.", Some("a b")),
            ("notevil.example", None),
            ("x.zip", Some("a")),
            ("zip", Some("a")),
            ("not a name", None),
        ] {
            assert_eq!(name(text).as_deref(), expected, "{text}");
        }
        let fingerprint = |text: &str| lists.text(lists.of_fingerprint(text));
        assert!(lists.have_fingerprints());
        assert_eq!(fingerprint(&JA3.to_ascii_lowercase()).as_deref(), Some("a"));
        assert_eq!(fingerprint(JA4).as_deref(), Some("a"));
        assert_eq!(fingerprint("t13d1516h2_8daaf6152771_b186095e22b7"), None);
    }

    #[test]
    fn broken_lines_are_named_and_the_rest_is_loaded() {
        let long = "a.".repeat(2000);
        let text = format!(
            "hello\n10.0.0.0/33\n10.0.0.1/8\n0.0.0.0 ads.example\n{long}\n10.0.0.300\n\"x\"\n192.0.2.1\na.example,b.example"
        );
        let (lists, reports) = load(&[("a", &text)]).unwrap();
        assert_eq!(lists.text(lists.of_address([192, 0, 2, 1].into())).as_deref(), Some("a"));
        let ListReport { entries, broken } = &reports[0];
        assert_eq!((*entries, broken.count, broken.more()), (1, 8, 0));
        let lines: Vec<String> = broken.first.iter().map(ToString::to_string).collect();
        for (line, expected) in lines.iter().zip([
            "line 1: \"hello\": not an address, a prefix, a domain name, a JA3 or a JA4",
            "line 2: \"10.0.0.0/33\": the prefix length is not a number from 0 to 32",
            "line 3: \"10.0.0.1/8\": the address has bits behind the prefix; did you mean 10.0.0.0/8?",
            "line 4: \"0.0.0.0 ads.example\": more than one word",
            "line 5: \"a.a.a",
            "line 6: \"10.0.0.300\": not an address",
            "line 7: \"\\\"x\\\"\": not an address",
            "line 9: \"a.example,b.example\": not an address",
        ]) {
            assert!(line.starts_with(expected), "{line}");
        }
        assert!(lines[4].ends_with("\u{2026}\": longer than an entry can be"), "{}", lines[4]);
    }

    #[test]
    fn many_broken_lines_are_counted() {
        let (_, reports) = load(&[("a", &("x\n".repeat(100_000) + "192.0.2.1\n"))]).unwrap();
        assert_eq!((reports[0].broken.first.len(), reports[0].broken.more()), (10, 99_990));
        assert!(reports[0].broken.to_string().ends_with("; and 99990 more lines"));
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let error = load(&[("a", "192.0.2.1"), ("b", "<html>\n</html>\n")]).unwrap_err();
        assert!(error.starts_with("--tags b DIR/1: no line is an address, a prefix,"), "{error}");
        assert!(error.contains("line 1: \"<html>\": not an address"), "{error}");
        assert_eq!(
            load(&[("a", ""), ("b", "192.0.2.1"), ("c", "")]).unwrap_err(),
            "--tags a DIR/0: the file is empty\n--tags c DIR/2: the file is empty"
        );
        // A list without entries is a list.
        assert_eq!(load(&[("a", "# nothing today\n")]).unwrap().1[0].entries, 0);
        let binary = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(binary.path(), [0xff, 0, b'\n', 0xfe]).unwrap();
        let error = text(&TagLists::load(&[list("a", binary.path())]).unwrap_err());
        assert!(error.contains("line 1: \"\u{fffd}\\0\": not UTF-8 text"), "{error}");
    }

    #[test]
    fn options_name_the_tag_and_the_file() {
        let parse = |text: &str| text.parse::<TagList>();
        assert_eq!(parse("a-B_1=x=y").unwrap(), list("a-B_1", Path::new("x=y")));
        for text in ["a", "a=", ""] {
            assert_eq!(parse(text), Err(InvalidTagList::Form), "{text}");
        }
        for text in ["=x", "a b=x", "\u{fc}=x", "/etc/list.txt=x"] {
            assert!(matches!(parse(text), Err(InvalidTagList::Name(_))), "{text}");
        }
    }
}
