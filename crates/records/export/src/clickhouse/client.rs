//! Statements for a ClickHouse server over HTTP: the request, who makes it, and what an answer means.

use super::connection::{Answer, Connection, ConnectionTimes, Endpoint};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for the answer to a question that needs no time.
const ASK_WAIT: Duration = Duration::from_secs(30);
/// Octets of the server's message that are shown.
const MAX_MESSAGE: usize = 400;
/// Errors of the server with their names (ErrorCodes.cpp) that end by themselves, or that say nothing of what was sent.
/// Errors in neither table are taken for such.
const TEMPORARY: [(u32, &str); 40] = [
    (3, "UNEXPECTED_END_OF_FILE"),
    (49, "LOGICAL_ERROR"),
    (76, "CANNOT_OPEN_FILE"),
    (158, "TOO_MANY_ROWS"),
    (159, "TIMEOUT_EXCEEDED"),
    (160, "TOO_SLOW"),
    (173, "CANNOT_ALLOCATE_MEMORY"),
    (198, "DNS_ERROR"),
    (201, "QUOTA_EXCEEDED"),
    (202, "TOO_MANY_SIMULTANEOUS_QUERIES"),
    (203, "NO_FREE_CONNECTION"),
    (209, "SOCKET_TIMEOUT"),
    (210, "NETWORK_ERROR"),
    (225, "NO_ZOOKEEPER"),
    (236, "ABORTED"),
    (241, "MEMORY_LIMIT_EXCEEDED"),
    (242, "TABLE_IS_READ_ONLY"),
    (243, "NOT_ENOUGH_SPACE"),
    (252, "TOO_MANY_PARTS"),
    (254, "NO_ACTIVE_REPLICAS"),
    (279, "ALL_CONNECTION_TRIES_FAILED"),
    (285, "TOO_FEW_LIVE_REPLICAS"),
    (286, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE"),
    (307, "TOO_MANY_BYTES"),
    (319, "UNKNOWN_STATUS_OF_INSERT"),
    (373, "SESSION_IS_LOCKED"),
    (381, "HTTP_LENGTH_REQUIRED"),
    (394, "QUERY_WAS_CANCELLED"),
    (396, "TOO_MANY_ROWS_OR_BYTES"),
    (412, "NETLINK_ERROR"),
    (425, "SYSTEM_ERROR"),
    (439, "CANNOT_SCHEDULE_TASK"),
    (469, "VIOLATED_CONSTRAINT"),
    (473, "DEADLOCK_AVOIDED"),
    (499, "S3_ERROR"),
    (574, "DISTRIBUTED_TOO_MANY_PENDING_BYTES"),
    (999, "KEEPER_EXCEPTION"),
    (1000, "POCO_EXCEPTION"),
    (1001, "STD_EXCEPTION"),
    (1002, "UNKNOWN_EXCEPTION"),
];
/// Statuses that end by themselves.
const TEMPORARY_STATUSES: [u16; 4] = [408, 425, 429, 503];
/// Errors that stay until someone changes the table, the user or the address.
const PERMANENT: [(u32, &str); 32] = [
    (6, "CANNOT_PARSE_TEXT"),
    (10, "NOT_FOUND_COLUMN_IN_BLOCK"),
    (16, "NO_SUCH_COLUMN_IN_TABLE"),
    (20, "NUMBER_OF_COLUMNS_DOESNT_MATCH"),
    (33, "CANNOT_READ_ALL_DATA"),
    (36, "BAD_ARGUMENTS"),
    (44, "ILLEGAL_COLUMN"),
    (47, "UNKNOWN_IDENTIFIER"),
    (48, "NOT_IMPLEMENTED"),
    (53, "TYPE_MISMATCH"),
    (60, "UNKNOWN_TABLE"),
    (62, "SYNTAX_ERROR"),
    (70, "CANNOT_CONVERT_TYPE"),
    (73, "UNKNOWN_FORMAT"),
    (81, "UNKNOWN_DATABASE"),
    (115, "UNKNOWN_SETTING"),
    (117, "INCORRECT_DATA"),
    (130, "CANNOT_READ_ARRAY_FROM_TEXT"),
    (131, "TOO_LARGE_STRING_SIZE"),
    (164, "READONLY"),
    (192, "UNKNOWN_USER"),
    (193, "WRONG_PASSWORD"),
    (194, "REQUIRED_PASSWORD"),
    (195, "IP_ADDRESS_NOT_ALLOWED"),
    (291, "DATABASE_ACCESS_DENIED"),
    (349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    (354, "ZLIB_INFLATE_FAILED"),
    (392, "QUERY_IS_PROHIBITED"),
    (452, "SETTING_CONSTRAINT_VIOLATION"),
    (497, "ACCESS_DENIED"),
    (516, "AUTHENTICATION_FAILED"),
    (561, "ZSTD_DECODER_FAILED"),
];

/// A user, and the secret that no message has.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub user: Option<HeaderValue>,
    pub key: Option<HeaderValue>,
}

/// A body, and how it is compressed.
pub(crate) struct Body {
    pub octets: Bytes,
    pub encoding: Option<&'static str>,
}

/// Why a statement had no success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no answer.
    Unreachable(io::Error),
    /// The server does not take it now.
    Busy(String),
    /// The server does not take it before someone changes something.
    Refused(String),
}

impl Failure {
    /// As an error of a sink.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Unreachable(error) => error,
            Self::Busy(message) | Self::Refused(message) => io::Error::other(message),
        }
    }

    /// Whether it stays until someone changes something.
    pub fn is_permanent(&self) -> bool {
        match self {
            // A wrong certificate, or the wrong protocol.
            Self::Unreachable(error) => error.kind() == io::ErrorKind::InvalidData,
            Self::Busy(_) => false,
            Self::Refused(_) => true,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(error) => error.fmt(formatter),
            Self::Busy(message) | Self::Refused(message) => formatter.write_str(message),
        }
    }
}

/// A server that is asked one statement after the other.
pub(crate) struct Client {
    endpoint: Endpoint,
    credentials: Credentials,
    times: ConnectionTimes,
    connection: Option<Connection>,
    /// The address is that of a server: what does not speak its protocol later is in its place for some time.
    has_answered: Arc<AtomicBool>,
}

impl Client {
    pub fn new(endpoint: Endpoint, credentials: Credentials, times: ConnectionTimes) -> Self {
        Self { endpoint, credentials, times, connection: None, has_answered: Arc::default() }
    }

    /// Another client of the same server.
    pub fn another(&self) -> Self {
        let client = Self::new(self.endpoint.clone(), self.credentials.clone(), self.times);
        Self { has_answered: self.has_answered.clone(), ..client }
    }

    /// Runs a statement with these settings. Returns what it answers.
    pub fn run(
        &mut self,
        statement: &str,
        settings: &[(&str, &str)],
        body: &Body,
        stop: &AtomicBool,
    ) -> Result<String, Failure> {
        let (path, dead) = (path(statement, settings), self.times.dead);
        let answer = self.request(&path, body, dead, stop).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData if self.has_answered.load(Ordering::Relaxed) => Failure::Busy(error.to_string()),
            _ => Failure::Unreachable(error),
        })?;
        outcome(&answer)
    }

    /// Asks something that needs no time: a server that does not answer soon is not waited for. Returns the lines.
    pub fn ask(&mut self, question: &str, stop: &AtomicBool) -> Result<String, Failure> {
        let body = Body { octets: Bytes::new(), encoding: None };
        let (path, dead) = (path(&format!("{question} FORMAT TSVRaw"), &[]), self.times.dead.min(ASK_WAIT));
        let answer = self.request(&path, &body, dead, stop).map_err(Failure::Unreachable)?;
        outcome(&answer)
    }

    fn request(&mut self, path: &str, body: &Body, dead: Duration, stop: &AtomicBool) -> io::Result<Answer> {
        // The server closes a connection after some time, perhaps just now: once more over a new one. What a
        // statement inserts has a token, so that it is not inserted twice.
        if let Some(mut open) = self.connection.take()
            && open.is_open()
        {
            match open.request(self.build(path, body)?, dead, stop) {
                Ok(answer) => return Ok(self.keep(open, answer)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut || is_interrupted(&error) => return Err(error),
                Err(_) => {}
            }
        }
        let mut new = Connection::open(&self.endpoint, self.times, stop)?;
        let answer = new.request(self.build(path, body)?, dead, stop)?;
        Ok(self.keep(new, answer))
    }

    fn keep(&mut self, mut connection: Connection, answer: Answer) -> Answer {
        self.has_answered.store(true, Ordering::Relaxed);
        self.connection = connection.is_open().then_some(connection);
        answer
    }

    fn build(&self, path: &str, body: &Body) -> io::Result<Request<Full<Bytes>>> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        // hyper leaves out the length of an empty body, and ClickHouse refuses a POST without one (error 381).
        let length = HeaderValue::from(body.octets.len());
        let mut request = Request::post(path).header(HOST, format!("{host}:{port}")).header(CONTENT_LENGTH, length);
        if let Some(encoding) = body.encoding {
            request = request.header(CONTENT_ENCODING, encoding);
        }
        let Credentials { user, key } = &self.credentials;
        for (name, value) in [("X-ClickHouse-User", user), ("X-ClickHouse-Key", key)] {
            if let Some(value) = value {
                request = request.header(name, value.clone());
            }
        }
        request.body(Full::new(body.octets.clone())).map_err(io::Error::other)
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// The path of a request.
fn path(statement: &str, settings: &[(&str, &str)]) -> String {
    let mut path = format!("/?query={}", encoded(statement));
    for (name, value) in settings {
        path += &format!("&{name}={}", encoded(value));
    }
    path
}

/// Percent-encodes what is not unreserved (RFC 3986 section 2.3).
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for octet in text.bytes() {
        match octet {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(octet.into()),
            _ => encoded += &format!("%{octet:02X}"),
        }
    }
    encoded
}

/// What an answer means. An error that comes late, after the status was sent, is in the body.
fn outcome(answer: &Answer) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(&answer.body);
    let of_header = answer.headers.get("x-clickhouse-exception-code");
    let of_header = of_header.and_then(|code| code.to_str().ok()?.parse::<u32>().ok());
    let of_body = text.find("DB::Exception").map(|at| &text[..at]).and_then(|before| {
        let (_, code) = before.rsplit_once("Code: ")?;
        code.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    let code = of_header.or(of_body);
    if answer.status == 200 && code.is_none() {
        return Ok(text.into_owned());
    }
    let start = text.find("Code: ").unwrap_or(0);
    let message = match text[start..].trim() {
        "" => format!("the server answers with the {}", meaning(code, answer.status)),
        message if message.starts_with("Code: ") => format!("the server says: {}", shortened(message)),
        message => format!("the server says, with the {}: {}", meaning(code, answer.status), shortened(message)),
    };
    let message = match (code, answer.status) {
        (None, 401 | 403) => format!("{message}; user=NAME and password-file=FILE name who may write"),
        _ => message,
    };
    let is_permanent = match code {
        Some(code) => PERMANENT.iter().any(|(permanent, _)| *permanent == code),
        None => (300..500).contains(&answer.status) && !TEMPORARY_STATUSES.contains(&answer.status),
    };
    Err(if is_permanent { Failure::Refused(message) } else { Failure::Busy(message) })
}

/// The number and the name of an error of ClickHouse, else of a status of HTTP.
fn meaning(code: Option<u32>, status: u16) -> String {
    let (what, number, name) = match code {
        Some(code) => {
            let named = TEMPORARY.iter().chain(&PERMANENT).find(|(named, _)| *named == code);
            ("error", code, named.map(|(_, name)| *name))
        }
        None => ("status", status.into(), StatusCode::from_u16(status).ok().and_then(|of| of.canonical_reason())),
    };
    let name = name.map_or(String::new(), |name| format!(" ({name})"));
    format!("{what} {number}{name}")
}

/// One line, not too long, without control characters.
pub(super) fn shortened(message: &str) -> String {
    let line: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|letter| !letter.is_control()).collect();
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;

    fn outcome_of(status: u16, code: Option<&'static str>, body: &str) -> (&'static str, String) {
        let mut headers = HeaderMap::new();
        code.map(|code| headers.insert("x-clickhouse-exception-code", HeaderValue::from_static(code)));
        match outcome(&Answer { status, headers, body: body.into() }) {
            Ok(text) => ("ok", text),
            Err(Failure::Busy(text)) => ("busy", text),
            Err(Failure::Refused(text)) => ("refused", text),
            Err(Failure::Unreachable(error)) => ("unreachable", error.to_string()),
        }
    }

    #[test]
    fn answers_are_successes_or_errors_that_end_or_stay() {
        for (status, code, body, expected) in [
            (200, None, "1\n", "ok"),
            (200, None, "x\nCode: 241. DB::Exception: Memory limit exceeded", "busy"),
            (200, Some("60"), "", "refused"),
            (500, Some("252"), "Code: 252. DB::Exception: Too many parts", "busy"),
            (500, None, "Code: 16. DB::Exception: No such column x", "refused"),
            (403, Some("516"), "", "refused"),
            (500, Some("1234567"), "", "busy"),
            (500, None, "", "busy"),
            (502, None, "<html>", "busy"),
            (404, None, "not here", "refused"),
            (429, None, "", "busy"),
            (301, None, "", "refused"),
        ] {
            assert_eq!(outcome_of(status, code, body).0, expected, "{status} {code:?} {body}");
        }
        for (status, code, body, expected) in [
            (500, None, "", "the server answers with the status 500 (Internal Server Error)"),
            (599, None, "", "the server answers with the status 599"),
            (502, None, "<html>", "the server says, with the status 502 (Bad Gateway): <html>"),
            (500, Some("241"), "", "the server answers with the error 241 (MEMORY_LIMIT_EXCEEDED)"),
            (404, Some("60"), "no", "the server says, with the error 60 (UNKNOWN_TABLE): no"),
            (500, Some("1234567"), "", "the server answers with the error 1234567"),
        ] {
            assert_eq!(outcome_of(status, code, body).1, expected);
        }
        let long = format!("Code: 60.\nDB::Exception: \x1b{}", "é".repeat(1000));
        let (_, message) = outcome_of(404, None, &long);
        assert!(message.starts_with("the server says: Code: 60. DB::Exception: éé") && message.chars().count() < 430);
    }

    #[test]
    fn statements_and_settings_are_encoded() {
        assert_eq!(path("SELECT 'a'", &[("token", "a/b c&d")]), "/?query=SELECT%20%27a%27&token=a%2Fb%20c%26d");
    }
}
