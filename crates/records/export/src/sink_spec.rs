//! The specification of a sink, as the user writes it: a scheme, then a path or `//HOST[:PORT]`, then
//! settings: `?NAME=VALUE&...`. It is parsed once.

use crate::compression::Compression;
use crate::kafka_options::InvalidKafkaOption;
use crate::kinds::{Destination, SINK_KINDS, SinkFile, SinkKind, SinkSetting, ViewFormat, is_standard_output, split};
use crate::rotation::RotationSettings;
use crate::sink::{Error, ExportOptions, InvalidSink, InvalidSpec, Sink};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use weir_fields::Column;
use weir_text::{most_similar, similarity};

/// The setting with the expression. `&` may be in place of `?`.
const WHERE: &str = "?where=";
/// The setting with a selection of fields.
const FIELDS: &str = "fields";

/// A sink: `json:PATH`, `csv:PATH`, `ipfix:PATH` (`-` is standard output), `ipfix+udp://HOST:PORT` and
/// others ([`SINK_KINDS`]).
#[derive(Clone)]
pub struct SinkSpec {
    /// As the user wrote it, with its scheme.
    text: String,
    /// The length without the setting `where`.
    name_length: usize,
    kind: &'static SinkKind,
    destination: Arc<dyn Destination>,
}

impl SinkSpec {
    /// The specification with its scheme, without the setting `where`.
    pub fn name(&self) -> &str {
        &self.text[..self.name_length]
    }

    /// The text of the setting `where`: which records the sink gets.
    pub fn condition(&self) -> Option<&str> {
        self.text[self.name_length..].get(WHERE.len()..)
    }

    /// What the specification begins with.
    pub fn scheme(&self) -> &'static str {
        self.kind.scheme
    }

    /// How the sink writes a view; `None` if it gets records only.
    pub fn view_format(&self) -> Option<ViewFormat> {
        self.kind.view
    }

    /// Whether both write the same to the same place: settings of the way to a collector make no difference. Without
    /// the setting `where`. Names are not resolved.
    pub fn writes_same(&self, other: &Self) -> bool {
        let is_same = self.name() == other.name();
        is_same || (self.kind.scheme == other.kind.scheme && self.is_collector() && self.written() == other.written())
    }

    /// The collector, and the settings of the records that it gets.
    fn written(&self) -> (String, Vec<(&'static str, &str)>) {
        const OF_RECORDS: [&str; 6] = ["fields", "template", "facility", "format", "probe", "name"];
        let mut settings = self.settings_in_effect();
        settings.retain(|(name, _)| OF_RECORDS.contains(name));
        let place = || self.name().split('?').next().unwrap_or_default().into();
        (self.destination.collector().unwrap_or_else(place), settings)
    }

    /// Whether it sends records to another program over a network or a socket.
    pub fn is_collector(&self) -> bool {
        self.kind.is_collector() || self.destination.collector().is_some()
    }

    /// The scheme, and the settings in effect: those that are given, and the defaults of others. Without
    /// `where`, which selects what the sink gets.
    pub fn settings(&self) -> String {
        let settings = self.settings_in_effect().into_iter().map(|(name, value)| format!("{name}={value}"));
        let settings = settings.collect::<Vec<_>>().join(", ");
        format!("{}: {}", self.kind.scheme, if settings.is_empty() { "none" } else { &settings })
    }

    /// Names and values, in the order of the kind.
    fn settings_in_effect(&self) -> Vec<(&'static str, &str)> {
        let given: Vec<_> = given(self.kind, self.name()).collect();
        let values = |of: &str| given.iter().filter(|(name, _)| *name == of).map(|(_, value)| *value).collect();
        let mut settings = Vec::new();
        for SinkSetting { name, default, .. } in self.kind.settings.iter().filter(|setting| !setting.is_of_all()) {
            let mut values: Vec<&str> = values(name);
            // A list of fields is in place of a template.
            let is_replaced = *name == "template" && given.iter().any(|(name, _)| *name == "fields");
            if values.is_empty() && !default.is_empty() && !is_replaced {
                values.push(default);
            }
            settings.extend(values.into_iter().map(|value| (*name, value)));
        }
        settings
    }

    /// The folder in which it makes files as long as it runs; `None` for a file and a collector.
    pub fn folder(&self) -> Option<&Path> {
        self.destination.folder()
    }

    /// The folder in which records wait for the collector; `None` without one.
    pub fn spool(&self) -> Option<&Path> {
        self.destination.spool()
    }

    /// Whether it knows how its collector takes records ([`Sink::intake`]): over a connection.
    pub fn has_intake(&self) -> bool {
        self.destination.has_intake()
    }

    /// The path of the file, or a name of standard output; `None` for a collector and a folder.
    pub fn path(&self) -> Option<&str> {
        self.destination.file().map(|file| file.path.as_str())
    }

    /// Whether the sink writes to standard output.
    pub fn is_standard_output(&self) -> bool {
        self.path().is_some_and(is_standard_output)
    }

    /// The TCP ports to which it connects, also later.
    pub fn tcp_ports(&self) -> Vec<u16> {
        self.destination.tcp_ports()
    }

    /// The compression of the file.
    pub fn compression(&self) -> Option<Compression> {
        self.path().and_then(Compression::of)
    }

    /// Whether it writes one file after another, so that it opens files while it runs.
    pub fn is_rotated(&self) -> bool {
        let is_rotated = |file: &SinkFile| file.rotation != RotationSettings::default();
        self.destination.makes_files() || self.destination.file().is_some_and(is_rotated)
    }

    /// The text of the setting `fields`.
    pub fn fields(&self) -> Option<&str> {
        given(self.kind, self.name()).find(|(name, _)| *name == FIELDS).map(|(_, value)| value)
    }

    /// The same sink with these columns in place of what the setting `fields` selects. Its text stays.
    ///
    /// # Errors
    /// The sink does not take them.
    pub fn with_columns(&self, columns: &[&'static Column]) -> Result<Self, InvalidSpec> {
        let setting = format!("{FIELDS}={}", self.fields().unwrap_or_default());
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let mut name = self.name().to_owned();
        // Settings are at the end, and each is there once.
        if let Some(at) = name.rfind(&setting) {
            name.replace_range(at..at + setting.len(), &format!("{FIELDS}={}", names.join(",")));
        }
        Ok(Self { destination: name.parse::<Self>()?.destination, ..self.clone() })
    }

    /// The columns that it selects for itself.
    pub fn columns(&self) -> Option<&[&'static Column]> {
        self.destination.columns()
    }

    /// What it takes beside its queue, bytes, if a store has these columns by default. `runs_on`: until a signal.
    pub fn memory_bytes(&self, stored_columns: &[&'static Column], runs_on: bool) -> u64 {
        self.destination.memory_bytes(stored_columns, runs_on)
    }

    /// Opens the sink.
    ///
    /// # Errors
    /// The file or socket cannot be opened.
    pub fn open(&self, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        self.destination.open(self.name(), options)
    }

    /// Checks whether [`SinkSpec::open`] with [`FileMode::Append`](crate::FileMode::Append) can open
    /// the file, without changing it; a new file is created and removed again. Resolves the name of a
    /// collector, which may wait for a name server.
    ///
    /// # Errors
    /// The file cannot be opened, or has other content, or the collector has no address.
    pub fn check(&self, options: &ExportOptions) -> Result<(), Error> {
        self.destination.check(self.name(), options)
    }

    /// Checks whether it can make files while it runs, as [`SinkSpec::check`].
    ///
    /// # Errors
    /// A file cannot be made, or the folder is that of something else.
    pub fn check_files(&self, options: &ExportOptions) -> Result<(), Error> {
        self.destination.check_files(self.name(), options)
    }
}

/// The settings in a specification without `where`: names and values.
fn given<'a>(kind: &SinkKind, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let text = if kind.is_collector() { name.split_once('?').unwrap_or((name, "")).1 } else { split(name).1 };
    text.split('&').filter_map(|setting| setting.split_once('='))
}

/// A setting has one value. A file may be rotated by time and by size.
fn refuse_twice(kind: &SinkKind, name: &str) -> Result<(), InvalidSink> {
    let names: Vec<&str> = given(kind, name).map(|(name, _)| name).collect();
    let is_repeated = |(at, name): &(usize, &&str)| **name != "rotate" && names[..*at].contains(*name);
    match names.iter().enumerate().find(is_repeated) {
        Some((_, name)) => Err(InvalidSink::Twice((*name).into())),
        None => Ok(()),
    }
}

impl FromStr for SinkSpec {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        let plain = &text[..start_of_where(text)];
        let failed = |name: &str| {
            let name = name.to_owned();
            move |invalid| InvalidSpec::of(&name, invalid)
        };
        let (kind, has_scheme) = kind_of(plain).map_err(failed(plain))?;
        let text = if has_scheme { text.into() } else { format!("{}:{text}", kind.scheme) };
        let name_length = start_of_where(&text);
        let name = &text[..name_length];
        refuse_twice(kind, name).map_err(failed(name))?;
        let parsed = (kind.parse)(&name[kind.scheme.len() + 1..]);
        let destination = parsed.map_err(|invalid| failed(name)(with_similar(kind, invalid)))?;
        Ok(Self { name_length, kind, destination, text })
    }
}

impl fmt::Display for SinkSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for SinkSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, formatter)
    }
}

impl PartialEq for SinkSpec {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SinkSpec {}

/// In place of a secret.
const SECRET: &str = "***";

impl InvalidSpec {
    /// That of a text, without the passwords in it.
    pub fn of(spec: &str, mut invalid: InvalidSink) -> Self {
        let spec = match invalid {
            // The message does not repeat it.
            InvalidSink::KafkaOption(InvalidKafkaOption::Secret(_)) => spec.split('?').next().unwrap_or(spec),
            _ => spec,
        };
        if let Some(setting) = invalid.unknown_setting() {
            *setting = setting_without_secret(setting);
        }
        Self { spec: without_secrets(spec), invalid }
    }
}

/// A specification without the user and the password of an address, and without the value of a setting that may be a
/// password: Weir has none of these, but users of other programs write them.
pub fn without_secrets(spec: &str) -> String {
    let (place, settings) = spec.split_once('?').map_or((spec, None), |(place, settings)| (place, Some(settings)));
    let mut text = place.to_owned();
    // A password may have a slash.
    if let Some(start) = text.find("://").map(|at| at + 3)
        && let Some(at) = text[start..].rfind('@')
    {
        text.replace_range(start..start + at, SECRET);
    }
    if let Some(settings) = settings {
        let settings: Vec<String> = settings.split('&').map(setting_without_secret).collect();
        text.extend(["?", &settings.join("&")]);
    }
    text
}

fn setting_without_secret(setting: &str) -> String {
    let Some((name, _)) = setting.split_once('=') else { return setting.into() };
    let lower = name.to_lowercase();
    let is_secret = ["passw", "pwd", "secret", "token", "apikey", "api-key", "api_key", "jaas"]
        .iter()
        .any(|word| lower.contains(word));
    let is_secret = is_secret || matches!(&*lower, "pw" | "pass" | "psk");
    if is_secret && !lower.ends_with("-file") { format!("{name}={SECRET}") } else { setting.into() }
}

/// An unknown setting, with the most similar one of this kind of sink.
fn with_similar(kind: &SinkKind, mut invalid: InvalidSink) -> InvalidSink {
    let written = invalid.unknown_setting().map(|setting| setting.split('=').next().unwrap_or(setting));
    match written.and_then(|name| most_similar(name, kind.settings.iter().map(|setting| setting.name))) {
        Some(similar) => InvalidSink::Similar { invalid: Box::new(invalid), similar },
        None => invalid,
    }
}

/// Where the setting `where` begins, which is the last one: `?where=` or, behind other settings,
/// `&where=`. The expression is all that follows, as it is written.
fn start_of_where(sink: &str) -> usize {
    let first = sink.find(WHERE);
    let behind = sink.find('?').and_then(|settings| Some(settings + sink[settings..].find("&where=")?));
    [first, behind].into_iter().flatten().min().unwrap_or(sink.len())
}

/// The kind of a sink, and whether the text has its scheme. A file name without one has the kind of its
/// ending.
fn kind_of(spec: &str) -> Result<(&'static SinkKind, bool), InvalidSink> {
    let is_scheme = |text: &str| !text.is_empty() && !text.contains(['/', '.']);
    let Some((scheme, rest)) = spec.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return kind_of_ending(spec).map(|kind| (kind, false)).ok_or(InvalidSink::Scheme);
    };
    let is_collector = rest.starts_with("//");
    // A collector without // is refused for that.
    let mut known = SINK_KINDS.iter().filter(|kind| kind.is_collector() || !is_collector);
    if let Some(kind) = known.find(|kind| kind.scheme == scheme) {
        return Ok((kind, true));
    }
    let separator = if is_collector { "://" } else { ":" };
    let file = kind_of_ending(spec).filter(|_| !is_collector).map(|_| format!("./{spec}"));
    let nearest = nearest(scheme, is_collector);
    Err(InvalidSink::UnknownScheme { scheme: format!("{scheme}{separator}"), nearest, file })
}

/// The kind of a file name, by its ending.
fn kind_of_ending(spec: &str) -> Option<&'static SinkKind> {
    let (path, _) = split(spec);
    let plain = path.strip_suffix(".gz").or(path.strip_suffix(".zst")).unwrap_or(path);
    let (_, ending) = plain.rsplit_once('.')?;
    SINK_KINDS.iter().find(|kind| kind.endings.contains(&ending))
}

/// The sinks whose schemes are most similar to what the user wrote; all if none is similar.
fn nearest(scheme: &str, is_collector: bool) -> Vec<String> {
    let kinds = || SINK_KINDS.iter().filter(|kind| kind.is_collector() == is_collector);
    let similarity = |kind: &&SinkKind| similarity(scheme, kind.scheme);
    let highest = kinds().map(|kind| similarity(&kind)).max().unwrap_or(0);
    kinds()
        .filter(|kind| similarity(kind) + 30 > highest)
        .map(|kind| format!("{}{}", kind.scheme, kind.place))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sinks_are_rejected() {
        for (spec, expected) in [
            ("", "not a sink"),
            ("json", "not a sink"),
            ("json:", "the file name is missing"),
            (
                "xml:file",
                "there is no sink xml:; use table:PATH, json:PATH, csv:PATH, ipfix:PATH, parquet:FOLDER, arrow:PATH or json+unix:PATH",
            ),
            ("flows.txt", "not a sink"),
            ("-", "not a sink"),
            ("cvs:flows", "there is no sink cvs:; use csv:PATH"),
            (
                "ipfix://127.0.0.1:4739",
                "there is no sink ipfix://; use ipfix+udp://HOST:PORT, ipfix+tcp://HOST:PORT or ipfix+tls",
            ),
            ("netflow://host", "there is no sink netflow://; use netflow9+udp://HOST:PORT or netflow5+udp://HOST:PORT"),
            (
                "clickhouse://h/a.b",
                "there is no sink clickhouse://; use clickhouse+http://HOST:PORT/DATABASE.TABLE or clickhouse+https",
            ),
            ("json://host", "there is no sink json://; use json+tcp://HOST:PORT"),
            ("table://host", "there is no sink table://; use ipfix+udp://HOST:PORT, ipfix+tcp"),
            ("ipfix:flows.ipfix?template=basic", "\"template=basic\" is not a setting of a file; use fields=NAME,..."),
            ("csv:f-%H.csv?rotate=0", "rotate must be a time"),
            ("csv:f.csv?rotate=5m", "all files would have this name"),
            ("json:f-%H.json", "%H in the name is the time of a rotated file"),
            ("csv:flows.csv?fields=src_op", "there is no field \"src_op\" (did you mean src_ip?)"),
            ("json:-?fields=x*", "no field matches \"x*\""),
            ("ipfix+udp:host", "//HOST:PORT must follow"),
            (
                "ipfix:127.0.0.1:4739",
                "this is an address; use ipfix+udp://HOST:PORT for a collector, or ipfix:./127.0.0.1:4739 for a file",
            ),
            ("json:[::1]:4739", "this is an address"),
            ("csv:collector.example:2055", "this is an address"),
            ("csv:127.0.0.1:8O80", "this is an address"),
            ("csv:127.0.0.1:99999", "this is an address"),
            ("csv:127.0.0.1:", "this is an address"),
            ("csv:192.0.2.1", "this is an address"),
            ("csv:2001:db8::1", "this is an address"),
            ("csv:host:8o8o", "this is an address"),
            (
                "a:b.csv",
                "there is no sink a:; use table:PATH, json:PATH, csv:PATH, ipfix:PATH, parquet:FOLDER, arrow:PATH or json+unix:PATH, or ./a:b.csv for a file of this name",
            ),
            (
                "ab:c.json.gz",
                "there is no sink ab:; use table:PATH, json:PATH, csv:PATH, ipfix:PATH, parquet:FOLDER, arrow:PATH or json+unix:PATH, or ./ab:c.json.gz",
            ),
            ("CSV:flows", "there is no sink CSV:; use csv:PATH"),
            ("csv:-.bz2", "this is not standard output: use - for it, and -.gz or -.zst compressed"),
            ("csv:-.GZ", "this is not standard output"),
            ("csv:-.gz.zst", "this is not standard output"),
            ("csv:-.csv", "this is not standard output"),
            ("csv:/dev/stdout.gz", "there is no such device; standard output is -"),
            ("csv:flows.csv.bz2", "files are compressed with gzip (.gz) or Zstandard (.zst), not .bz2"),
            ("json:flows.GZ", "files are compressed with gzip (.gz) or Zstandard (.zst), not .GZ"),
            ("flows.csv.gz.zst", "not a sink"),
            ("csv:flows.csv.gz.zst", "a file is compressed once"),
            ("ipfix+sctp://host:4739", "there is no sink ipfix+sctp://; use ipfix+"),
            ("netflow7+udp://host", "there is no sink netflow7+udp://; use netflow9+udp://HOST:PORT or netflow5"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err("the sink is invalid").to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }

    #[test]
    fn settings_that_are_given_twice_are_rejected() {
        for (spec, expected) in [
            ("clickhouse+http://h/a.b?rows=1&user=a&rows=2", "rows= is given twice"),
            ("kafka://h/t?linger.ms=1&linger.ms=2", "linger.ms= is given twice"),
            ("csv:f-%H.csv?rotate=1h&fields=tcp&fields=all", "fields= is given twice"),
            ("ipfix+udp://h?mtu=1400&mtu=1400", "mtu= is given twice"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err("the sink is invalid").to_string();
            assert_eq!(error, format!("{spec}: {expected}"));
        }
        assert!("csv:f-%Y%m%d-%H.csv?rotate=1h&rotate=1GiB".parse::<SinkSpec>().is_ok());
    }

    #[test]
    fn an_unknown_setting_names_a_similar_one() {
        for (spec, similar) in [
            ("clickhouse+http://h/a.b?compresion=zstd", "compression"),
            ("ipfix+udp://h?tempalte=full", "template"),
            ("ipfix+tcp://h?bufer=1MiB", "buffer"),
            ("json+tls://h:1?spol=a", "spool"),
            ("syslog+udp://h?facilty=daemon", "facility"),
            ("kafka://h/t?fromat=json", "format"),
            ("csv:a?feilds=tcp", "fields"),
            ("parquet:a?kepe=1d", "keep"),
            ("json:a?were=tcp", "where"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err("the setting is unknown").to_string();
            assert!(error.ends_with(&format!(" (did you mean {similar}=?)")), "{error}");
        }
        for spec in ["ipfix+tcp://h?colour=red", "ipfix+tcp://h?cert=a", "csv:a?mtu=9"] {
            let error = spec.parse::<SinkSpec>().expect_err("the setting is unknown").to_string();
            assert!(!error.contains("did you mean"), "{error}");
        }
    }

    #[test]
    fn sinks_that_write_the_same_are_found() {
        for (one, other, is_same) in [
            ("ipfix+tcp://h", "ipfix+tcp://H:4739?template=basic&buffer=1MiB", true),
            ("ipfix+udp://h?mtu=1400", "ipfix+udp://h?rate=0&refresh=5&where=tcp", true),
            ("clickhouse+http://h/a.b", "clickhouse+http://h:8123/a.b?user=c&rows=5", true),
            ("kafka://h/t", "kafka://h/t?linger.ms=1&buffer=1MiB", true),
            ("json+unix:/a/b", "json+unix:/a/./b", true),
            ("json:a", "json:a", true),
            ("json:a", "csv:a", false),
            ("json:a", "json:a?fields=tcp", false),
            ("ipfix+tcp://h", "ipfix+udp://h", false),
            ("ipfix+tcp://h", "ipfix+tcp://h:4740", false),
            ("ipfix+tcp://h", "ipfix+tcp://h?template=full", false),
            ("json+tcp://h:1", "json+tcp://h:1?fields=tcp", false),
            ("json+tls://h:1?name=a", "json+tls://h:1?name=b", false),
            ("clickhouse+http://h/a.b", "clickhouse+http://h/a.c", false),
        ] {
            let [a, b] = [one, other].map(|spec| spec.parse::<SinkSpec>().unwrap());
            assert_eq!([a.writes_same(&b), b.writes_same(&a)], [is_same; 2], "{one} {other}");
        }
    }

    #[test]
    fn file_names_get_the_scheme_of_their_ending() {
        for (spec, name) in [
            ("flows.csv", "csv:flows.csv"),
            ("/tmp/a:b/flows.json", "json:/tmp/a:b/flows.json"),
            ("./a:b.ipfix", "ipfix:./a:b.ipfix"),
            ("flows.2026.jsonl", "json:flows.2026.jsonl"),
            ("flows.csv.gz", "csv:flows.csv.gz"),
            ("flows.ipfix.zst", "ipfix:flows.ipfix.zst"),
            ("flows.csv.gz?fields=tcp", "csv:flows.csv.gz?fields=tcp"),
            ("json:flows.csv", "json:flows.csv"),
        ] {
            assert_eq!(spec.parse::<SinkSpec>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn the_expression_of_a_sink_is_all_behind_where() {
        for (sink, rest, expression) in [
            ("csv:flows.csv", "csv:flows.csv", None),
            ("csv:flows.csv?where=port 80 && bytes > 1k", "csv:flows.csv", Some("port 80 && bytes > 1k")),
            ("ipfix+udp://h:1?mtu=1400&where=tcp", "ipfix+udp://h:1?mtu=1400", Some("tcp")),
            ("csv:a?b&where=tcp", "csv:a?b", Some("tcp")),
            ("csv:a&where=tcp", "csv:a&where=tcp", None),
            ("csv:-?where=", "csv:-", Some("")),
        ] {
            let spec: SinkSpec = sink.parse().unwrap();
            assert_eq!((spec.name(), spec.condition(), spec.to_string().as_str()), (rest, expression, sink));
        }
    }
}
