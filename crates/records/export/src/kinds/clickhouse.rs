//! `clickhouse+http://HOST[:PORT]/DATABASE.TABLE[?NAME=VALUE&...]`: a table of ClickHouse.

use super::collector::parse_endpoint;
use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::{BUFFER, CA, NAME};
use super::{Destination, SinkKind, SinkSetting, WHERE};
use crate::clickhouse::{ClickHouseSink, Client, ConnectionTimes, Credentials, Endpoint, TableReport, TableSettings};
use crate::host::host_name;
use crate::private_file::check_private;
use crate::rotation::parse_size;
use crate::sink::{Attempts, Error, ExportOptions, InvalidSink, Sink};
use crate::spooled::SpoolSettings;
use crate::tls;
use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fs::File;
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_clickhouse::RowColumn;
use weir_fields::{Column, select_columns};
use weir_text::units::parse_duration;

const ROWS: SinkSetting = SinkSetting {
    name: "rows",
    value: "N",
    default: "100000",
    effect: "ClickHouse: rows of a batch at most, 1 to 500000",
};
const WAIT: SinkSetting = SinkSetting {
    name: "wait",
    value: "1s",
    default: "1s",
    effect: "ClickHouse: send a batch at the latest after this time; 10ms to 1h",
};
const COMPRESSION: SinkSetting = SinkSetting {
    name: "compression",
    value: "zstd",
    default: "zstd",
    effect: "ClickHouse: of what is sent: zstd or none",
};
const USER: SinkSetting =
    SinkSetting { name: "user", value: "NAME", default: "", effect: "ClickHouse: user; default without it" };
const PASSWORD_FILE: SinkSetting = SinkSetting {
    name: "password-file",
    value: "FILE",
    default: "",
    effect: "ClickHouse: file with the password, which only its owner may read",
};
pub(super) const PROBE: SinkSetting = SinkSetting {
    name: "probe",
    value: "NAME",
    default: "the name of the host",
    effect: "ClickHouse, Kafka: name of this probe, in the column probe, or in the header weir.probe",
};
/// Memory for batches: more than for single records.
const BATCH_BUFFER: SinkSetting =
    SinkSetting { value: "64MiB", default: "64MiB", effect: "ClickHouse: memory for batches that wait", ..BUFFER };

pub(super) const KIND_HTTP: SinkKind = SinkKind {
    scheme: "clickhouse+http",
    place: "://HOST:PORT/DATABASE.TABLE",
    writes: "a table of ClickHouse over HTTP; default port 8123",
    example: "clickhouse+http://192.0.2.1/weir.flows?user=weir&password-file=/etc/weir/clickhouse",
    settings: &[FIELDS, ROWS, WAIT, COMPRESSION, USER, PASSWORD_FILE, PROBE, BATCH_BUFFER, SPOOL, LIMIT, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(ClickHouseTable::parse_behind(text, false)?)),
};

pub(super) const KIND_HTTPS: SinkKind = SinkKind {
    scheme: "clickhouse+https",
    writes: "a table of ClickHouse over HTTPS; default port 8443",
    example: "clickhouse+https://clickhouse.example/weir.flows?user=weir&password-file=/etc/weir/clickhouse",
    settings: &[
        FIELDS,
        ROWS,
        WAIT,
        COMPRESSION,
        USER,
        PASSWORD_FILE,
        PROBE,
        CA,
        NAME,
        BATCH_BUFFER,
        SPOOL,
        LIMIT,
        WHERE,
    ],
    parse: |text| Ok(Arc::new(ClickHouseTable::parse_behind(text, true)?)),
    ..KIND_HTTP
};

/// Octets of the name of a probe at most.
const MAX_PROBE: usize = 255;
/// Octets of a password at most.
const MAX_PASSWORD: u64 = 1024;

/// A table of a server: what a specification of a sink says.
#[derive(Clone, Debug)]
pub struct ClickHouseTable {
    host: String,
    port: u16,
    is_tls: bool,
    user: Option<String>,
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    name: Option<String>,
    settings: TableSettings,
    columns: Option<Vec<&'static Column>>,
    spool: Option<SpoolSettings>,
}

impl ClickHouseTable {
    /// Parses a whole specification. `None` if it has another scheme.
    ///
    /// # Errors
    /// It has one of these schemes and is wrong.
    pub fn parse(text: &str) -> Option<Result<Self, InvalidSink>> {
        let (scheme, rest) = text.split_once(':')?;
        let kind = [(KIND_HTTP, false), (KIND_HTTPS, true)].into_iter().find(|(kind, _)| kind.scheme == scheme);
        kind.map(|(_, is_tls)| Self::parse_behind(rest, is_tls))
    }

    fn parse_behind(text: &str, is_tls: bool) -> Result<Self, InvalidSink> {
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let behind = place.strip_prefix("//").unwrap_or_default();
        let (endpoint, table) = behind.split_once('/').unwrap_or((behind, ""));
        if endpoint.contains('@') {
            return Err(InvalidSink::Syntax(
                "user and password do not belong into the address, where others see them; use user=NAME and \
                 password-file=FILE",
            ));
        }
        let (host, port, _) =
            parse_endpoint(&place[..place.len().min(2 + endpoint.len())], Some(if is_tls { 8443 } else { 8123 }))?;
        let table = table.parse().map_err(InvalidSink::Syntax)?;
        let mut parsed = Self {
            host: host.into(),
            port,
            is_tls,
            user: None,
            password_file: None,
            ca: None,
            name: None,
            settings: TableSettings {
                table,
                rows: 100_000,
                wait: Duration::from_secs(1),
                buffer_bytes: 64 << 20,
                is_compressed: true,
                probe: Some(host_name()),
            },
            columns: None,
            spool: None,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            parsed.set(name, value)?;
        }
        parsed.check_spool()?;
        if parsed.password_file.is_some() && parsed.user.is_none() {
            parsed.user = Some("default".into());
        }
        Ok(parsed)
    }

    /// A spool that cannot hold some batches would lose each with the next one.
    fn check_spool(&self) -> Result<(), InvalidSink> {
        let Some(spool) = &self.spool else { return Ok(()) };
        spool.check_settings()?;
        if spool.limit < self.settings.buffer_bytes as u64 {
            return Err(InvalidSink::BatchSpoolLimit { limit: spool.limit, buffer: self.settings.buffer_bytes });
        }
        Ok(())
    }

    /// The table, as spools name it.
    fn collector(&self) -> String {
        let scheme = if self.is_tls { KIND_HTTPS.scheme } else { KIND_HTTP.scheme };
        format!("{scheme}://{}:{}/{}", self.host, self.port, self.settings.table)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidSink> {
        let file = || -> Result<Option<PathBuf>, InvalidSink> {
            if value.is_empty() {
                Err(InvalidSink::Syntax("the name of a file is missing"))
            } else {
                Ok(Some(value.into()))
            }
        };
        let settings = &mut self.settings;
        match name {
            "fields" => self.columns = Some(select_columns(value)?),
            "rows" => {
                let rows = value.parse().ok().filter(|rows| (1..=500_000).contains(rows));
                settings.rows = rows.ok_or_else(|| InvalidSink::Rows(value.into()))?;
            }
            "wait" => {
                let wait = parse_duration(value).ok().map(Duration::from_nanos);
                let wait = wait.filter(|wait| (Duration::from_millis(10)..=Duration::from_secs(3600)).contains(wait));
                settings.wait = wait.ok_or_else(|| InvalidSink::BatchWait(value.into()))?;
            }
            "compression" => {
                settings.is_compressed = match value {
                    "zstd" => true,
                    "none" => false,
                    _ => return Err(InvalidSink::BatchCompression(value.into())),
                };
            }
            "buffer" => {
                let bytes = parse_size(value).and_then(|bytes| bytes.try_into().ok());
                settings.buffer_bytes = bytes.ok_or_else(|| InvalidSink::Buffer(value.into()))?;
            }
            "probe" => settings.probe = parse_probe(value)?,
            "spool" | "limit" => SpoolSettings::set(&mut self.spool, name, value)?,
            "user" if header(value).is_some() && !value.is_empty() => self.user = Some(value.into()),
            "user" => return Err(InvalidSink::Syntax("the name of the user must be of printable ASCII letters")),
            "password-file" | "token-file" => self.password_file = file()?,
            "ca" if self.is_tls => self.ca = file()?,
            "name" if self.is_tls => self.name = Some(value.into()),
            "ca" | "name" => return Err(InvalidSink::Syntax("ca= and name= are settings of clickhouse+https://")),
            "password" | "token" | "key" => {
                return Err(InvalidSink::Syntax(
                    "a password does not belong here, where others see it; use password-file=FILE",
                ));
            }
            _ => return Err(InvalidSink::ClickHouseSetting(name.into())),
        }
        Ok(())
    }

    /// The name of the table.
    pub fn table(&self) -> &weir_clickhouse::TableName {
        &self.settings.table
    }

    /// The columns that the specification selects.
    pub fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }

    /// Whether rows name the probe.
    pub fn has_probe(&self) -> bool {
        self.settings.probe.is_some()
    }

    /// Asks the server for the table.
    ///
    /// # Errors
    /// A file cannot be used, the server cannot be asked, or there is no such table.
    pub fn report(&self, columns: &[RowColumn], attempts: Attempts) -> io::Result<TableReport> {
        let report = TableReport::of(&mut self.client(attempts)?, self.table(), columns, &AtomicBool::new(false));
        report.map_err(|failure| failure.into_io())
    }

    fn client(&self, attempts: Attempts) -> io::Result<Client> {
        let tls = if self.is_tls { Some((self.client_config()?, self.server_name()?)) } else { None };
        let endpoint = Endpoint { host: self.host.clone(), port: self.port, tls };
        let credentials = Credentials {
            user: self.user.as_deref().and_then(header),
            key: self.password_file.as_deref().map(read_password).transpose()?,
        };
        let times = ConnectionTimes { connect: attempts.connect, dead: attempts.dead };
        Ok(Client::new(endpoint, credentials, times))
    }

    fn server_name(&self) -> io::Result<ServerName<'static>> {
        let name = self.name.as_ref().unwrap_or(&self.host);
        let failed =
            |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is no name in a certificate: {error}"));
        ServerName::try_from(name.clone()).map_err(failed)
    }

    fn client_config(&self) -> io::Result<Arc<ClientConfig>> {
        let roots = tls::roots(self.ca.as_deref())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(Arc::new(config))
    }
}

/// The name of a probe; nothing stands for none.
pub(super) fn parse_probe(text: &str) -> Result<Option<String>, InvalidSink> {
    if text.len() > MAX_PROBE || text.chars().any(char::is_control) {
        return Err(InvalidSink::Syntax("the name of the probe must have up to 255 octets, and no control characters"));
    }
    Ok((!text.is_empty()).then(|| text.into()))
}

/// A text as the value of a header, which debug output does not show.
fn header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads a file of one line that only its owner may read.
fn read_password(path: &Path) -> io::Result<HeaderValue> {
    let failed = |problem: String| io::Error::other(format!("{}: {problem}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    check_private(&file, "password file").map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    file.take(MAX_PASSWORD + 2).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let is_valid = !line.is_empty() && line.len() as u64 <= MAX_PASSWORD && !line.contains('\n');
    let value = header(line).filter(|_| is_valid);
    value.ok_or_else(|| failed("a password file has one line of up to 1024 printable letters".into()))
}

impl Destination for ClickHouseTable {
    fn collector(&self) -> Option<String> {
        Some(format!("{}:{}/{}", self.host.to_ascii_lowercase(), self.port, self.settings.table))
    }

    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let client = self.client(options.attempts).map_err(|error| Error::Io { sink: name.into(), error })?;
        let columns = self.columns.clone().unwrap_or_else(|| options.stored_columns.clone());
        let spool = self.spool.as_ref().map(|spool| spool.open(name, &self.collector(), options)).transpose()?;
        Ok(Box::new(ClickHouseSink::open(name, client, self.settings.clone(), columns, spool, options)?))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.check_files(name, options)?;
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().map(drop);
        let usable = addresses.and_then(|()| self.client(options.attempts).map(drop));
        usable.map_err(|error| Error::Io { sink: name.into(), error })
    }

    fn check_files(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.spool.iter().try_for_each(|spool| spool.check(name, &self.collector(), options))
    }

    fn has_intake(&self) -> bool {
        true
    }

    fn tcp_ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn spool(&self) -> Option<&Path> {
        self.spool.as_ref().map(|spool| spool.folder.as_path())
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        // And the batch that is being filled, with the memory of its compression; with a spool, the copy that is written.
        let quarters = if self.spool.is_some() { 7 } else { 5 };
        self.settings.buffer_bytes as u64 * quarters / 4 + (8 << 20)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use crate::sink_spec::SinkSpec;

    #[test]
    fn invalid_tables_are_rejected_and_passwords_are_not_repeated() {
        for (spec, expected) in [
            ("clickhouse+http://h", "the table must be DATABASE.TABLE"),
            ("clickhouse+http://h/flows", "the table must be DATABASE.TABLE"),
            ("clickhouse+http://h:0/a.b", "the port must be a number from 1 to 65535"),
            ("clickhouse+http:h/a.b", "//HOST:PORT must follow"),
            ("clickhouse+http://h/a.b?rows=0", "rows must be a number from 1 to 500000, not \"0\""),
            ("clickhouse+http://h/a.b?rows=500001", "rows must be a number from 1 to 500000"),
            ("clickhouse+http://h/a.b?wait=1ms", "wait must be a time from 10ms to 1h, not \"1ms\""),
            ("clickhouse+http://h/a.b?compression=lz4", "compression must be zstd or none, not \"lz4\""),
            ("clickhouse+http://h/a.b?probe=a\u{7}", "the name of the probe must have up to 255 octets"),
            ("clickhouse+http://h/a.b?buffer=1", "buffer must be a size from 64KiB"),
            ("clickhouse+http://h/a.b?limit=1GiB", "limit= is the size of a spool; add spool=FOLDER"),
            (
                "clickhouse+http://h/a.b?spool=s&limit=32MiB",
                "limit= must be at least buffer=, 67108864 octets, not 33554432: a batch is a quarter of buffer=",
            ),
            ("clickhouse+http://h/a.b?ca=x", "ca= and name= are settings of clickhouse+https://"),
            ("clickhouse+https://h/a.b?password-file=", "the name of a file is missing"),
            ("clickhouse+https://h/a.b?mtu=1", "mtu= is not a setting of ClickHouse; use fields=NAME,..., rows="),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
        for spec in [
            "clickhouse+http://me:SECRET@h/a.b",
            "clickhouse+https://SECRET@h:1/a.b?rows=1",
            "clickhouse+http://h/a.b?user=me&password=SECRET&rows=1",
            "clickhouse+http://h/a.b?token=SECRET",
            "clikhouse+http://me:SECRET@h/a.b",
            "clickhouse+http://h/a.b?Password=SECRET",
            "json+tcp://h:1?passwd=SECRET",
            "syslog+tcp://me:SEC/SECRET@h",
            "ipfix+tcp://me:SECRET@h",
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(!error.contains("SECRET") && error.contains("***"), "{error}");
        }
    }
}
