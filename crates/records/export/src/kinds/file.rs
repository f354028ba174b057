//! `PATH?NAME=VALUE&...`: a file and its settings.

use super::SinkSetting;
use super::collector::is_host_name;
use crate::compression::Compression;
use crate::rotation::RotationSettings;
use crate::sink::InvalidSink;
use std::net::IpAddr;

pub(super) const FIELDS: SinkSetting =
    SinkSetting { name: "fields", value: "LIST", default: "", effect: "fields: basic, tcp, all, names, patterns" };
pub(super) const ROTATE: SinkSetting = SinkSetting {
    name: "rotate",
    value: "5m",
    default: "",
    effect: "begin another file after a time, or after a size (1GiB); the name has the time: flows-%Y%m%d-%H%M.csv; not for tables",
};

/// The file of a sink.
#[derive(Clone, Debug)]
pub(crate) struct SinkFile {
    /// The path, or a name of standard output.
    pub path: String,
    pub rotation: RotationSettings,
}

impl SinkFile {
    /// Parses the text behind the scheme. Returns the file and the value of `fields=`.
    pub fn parse<'a>(scheme: &str, text: &'a str) -> Result<(Self, Option<&'a str>), InvalidSink> {
        let (path, settings) = split(text);
        check_file_name(scheme, path)?;
        let (mut fields, mut rotation) = (None, RotationSettings::default());
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("fields", selection)) => fields = Some(selection),
                Some(("rotate", value)) => rotation.add(value)?,
                _ => return Err(InvalidSink::FileSetting(setting.into())),
            }
        }
        Ok((Self { path: path.into(), rotation }, fields))
    }

    /// As [`SinkFile::parse`], but there must be a path.
    pub fn parse_named<'a>(scheme: &str, text: &'a str) -> Result<(Self, Option<&'a str>), InvalidSink> {
        match split(text) {
            ("", _) => Err(InvalidSink::Syntax("the file name is missing; use - for standard output")),
            _ => Self::parse(scheme, text),
        }
    }
}

/// Splits the path of a file from its settings, which are the text behind the last `?` if it begins
/// with `NAME=`. Any other question mark is part of the path.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'-');
    match text.rsplit_once('?') {
        Some((path, settings)) if settings.split_once('=').is_some_and(|(name, _)| is_name(name)) => (path, settings),
        _ => (text, ""),
    }
}

/// Whether a path is standard output, which may be compressed: `-`, `-.gz` and `-.zst`.
pub fn is_standard_output(path: &str) -> bool {
    matches!(path, "-" | "-.gz" | "-.zst")
}

/// Endings of compressed files, most of which are not written.
const COMPRESSIONS: [&str; 13] =
    ["gz", "gzip", "tgz", "zst", "zstd", "bz2", "xz", "lzma", "lz4", "br", "z", "zip", "7z"];

/// Checks that a path is not what was meant for a collector, for standard output, or for another
/// compression.
fn check_file_name(scheme: &str, path: &str) -> Result<(), InvalidSink> {
    if is_address(path) {
        return Err(InvalidSink::Address(format!("{scheme}:./{path}")));
    }
    if path.starts_with("-.") && !is_standard_output(path) {
        return Err(InvalidSink::Syntax("this is not standard output: use - for it, and -.gz or -.zst compressed"));
    }
    if ["/dev/stdout.", "/dev/stderr.", "/dev/fd/1.", "/dev/fd/2."].iter().any(|device| path.starts_with(device)) {
        return Err(InvalidSink::Syntax("there is no such device; standard output is -, and compressed -.gz or -.zst"));
    }
    let ending = |name: &str| {
        let (stem, ending) = name.rsplit_once('.')?;
        COMPRESSIONS.contains(&ending.to_ascii_lowercase().as_str()).then(|| (stem.to_owned(), ending.to_owned()))
    };
    match ending(path) {
        Some((_, ending)) if Compression::of(path).is_none() => Err(InvalidSink::Compression(ending)),
        Some((stem, _)) if ending(&stem).is_some() => {
            Err(InvalidSink::Syntax("a file is compressed once: end its name with one of .gz and .zst"))
        }
        _ => Ok(()),
    }
}

/// Whether what should be a path is an address, or `HOST:PORT`, whose port may have a typing error.
fn is_address(path: &str) -> bool {
    let is_ip = |text: &str| {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        inner.parse::<IpAddr>().is_ok()
    };
    let (host, port) = path.rsplit_once(':').unwrap_or_default();
    let is_port = port.len() <= 5
        && port.contains(|letter: char| letter.is_ascii_digit())
        && port.bytes().all(|octet| octet.is_ascii_alphanumeric());
    is_ip(path) || (is_ip(host) && !port.contains('.')) || (is_host_name(host) && is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_last_question_mark() {
        assert_eq!(split("a.csv?fields=src_ip"), ("a.csv", "fields=src_ip"));
        assert_eq!(split("-?fields=a&x=y"), ("-", "fields=a&x=y"));
        assert_eq!(split("why?.csv"), ("why?.csv", ""));
        assert_eq!(split("why?.csv?fields=*"), ("why?.csv", "fields=*"));
        assert_eq!(split("a?=b"), ("a?=b", ""));
    }
}
