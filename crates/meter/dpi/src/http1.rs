//! HTTP/1.0 and HTTP/1.1 (RFC 9112): requests and responses.
//!
//! A request is certain when its line ends with the version, a response when its status line
//! begins. A long request line of a usual method is a pattern until it ends. The head is read line
//! by line, and not by a library, because its end is often not among the octets that are inspected.
//! With more octets, reading goes on where it stopped: at the first line ([`State`] has which) that
//! was not read.

use crate::lines::{Fields, MAX_FIELD_LINES, after_word, fields};
use crate::{Application, Confidence, Fact, Findings, Note, Streams, Verdict, tls};
use memchr::{memchr, memchr3, memmem, memrchr};

/// Octets of a method. The longest registered one has 17 (RFC 9110 section 16.1).
const MAX_METHOD_OCTETS: usize = 24;
/// Octets of a request line after which a usual method and a path are a pattern.
const LONG_LINE_OCTETS: usize = 256;
/// Responses before the final one that are read (RFC 9110 section 15.2).
const MAX_INTERIM_RESPONSES: usize = 8;
const USUAL_METHODS: [&[u8]; 7] = [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH"];

/// How far the reader has read the stream of the first side, and that of the second. It is valid as long as
/// these only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State([Progress; 2]);

/// How far a side was read.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Where reading goes on.
    at: usize,
    part: Part,
}

/// What is read next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The first line of the first message.
    #[default]
    Start,
    /// The fields of the request.
    Request,
    RequestEnd,
    /// The first line of a response after as many interim ones.
    NextResponse(usize),
    /// The fields of that response.
    Response {
        interim_responses: usize,
        is_final: bool,
    },
    ResponseEnd,
}

/// Reads the start of a connection, or goes on where `state` says.
pub(crate) fn read_streams(state: &mut State, streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let State([first_progress, second_progress]) = state;
    // If the capture began in the middle, the server may be first.
    let server_is_first = streams.first.starts_with(b"HTTP/");
    let [read_first, read_second] =
        if server_is_first { [read_response, read_request] } else { [read_request, read_response] };
    let first = read_first(first_progress, streams.first, findings);
    if first == Verdict::No {
        return Verdict::No;
    }
    // A damaged request is `More`: the response may prove HTTP.
    match (first, read_second(second_progress, streams.second, findings)) {
        (Verdict::More, Verdict::No) => Verdict::No,
        (Verdict::More, Verdict::More) => Verdict::More,
        (Verdict::Complete, Verdict::Complete) if findings.text(Fact::HttpMethod) == Some("CONNECT") => {
            let heads_octets = [first_progress.at, second_progress.at];
            read_tunnel(heads_octets, streams, findings)
        }
        (Verdict::Complete, Verdict::Complete | Verdict::No) => Verdict::Complete,
        _ => Verdict::Recognised,
    }
}

/// Reads what follows CONNECT and its response (RFC 9110 section 9.3.6).
fn read_tunnel([first, second]: [usize; 2], streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let [client, server] =
        [(streams.first, first), (streams.second, second)].map(|(octets, at)| octets.get(at..).unwrap_or_default());
    let is_open = matches!(findings.number(Fact::HttpStatus), Some(200..300));
    if is_open && [client, server].iter().all(|octets| octets.is_empty() || tls::is_start(octets)) {
        tls::read_upgrade(client, server, findings)
    } else {
        Verdict::Complete
    }
}

/// Reads the first request (RFC 9112 section 3).
fn read_request(progress: &mut Progress, octets: &[u8], findings: &mut Findings) -> Verdict {
    if !matches!(progress.part, Part::Start | Part::Request | Part::RequestEnd) {
        *progress = Progress::default();
    }
    if progress.part == Part::Start {
        // Servers ignore empty lines before it, and may take a line feed alone for their end (RFC 9112
        // section 2.2).
        let mut line = octets.get(progress.at..).unwrap_or_default();
        while let [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] = line {
            line = rest;
        }
        progress.at = octets.len() - line.len();
        match read_request_line(line, findings) {
            Ok(line_octets) => *progress = Progress { at: progress.at + line_octets, part: Part::Request },
            Err(verdict) => return verdict,
        }
    }
    if progress.part == Part::Request {
        let read = fields(octets, progress.at, &mut { MAX_FIELD_LINES }, |name, value| {
            if name.eq_ignore_ascii_case(b"host") {
                findings.set_text(Fact::HttpHost, without_user(value));
            } else if name.eq_ignore_ascii_case(b"user-agent") {
                findings.set_text(Fact::HttpUserAgent, value);
            }
        });
        if let Fields::Partial(at) = read {
            progress.at = at;
            return Verdict::Recognised;
        }
        progress.end(read, octets, Part::RequestEnd, findings);
    }
    Verdict::Complete
}

impl Progress {
    /// Ends to read a head after its end, or if it has too many lines.
    fn end(&mut self, read: Fields, octets: &[u8], part: Part, findings: &mut Findings) {
        let at = match read {
            Fields::Whole(at) | Fields::Partial(at) => at,
            Fields::Limited => {
                findings.limit_work();
                octets.len()
            }
        };
        *self = Self { at, part };
    }
}

/// Reads the line of a request. Returns its length, or a verdict if it is not known to be one.
fn read_request_line(octets: &[u8], findings: &mut Findings) -> Result<usize, Verdict> {
    let is_method = |&octet: &u8| octet.is_ascii_uppercase() || octet == b'-' || octet == b'_';
    let method_octets = octets.iter().take(MAX_METHOD_OCTETS).take_while(|octet| is_method(octet)).count();
    let (method, rest) = octets.split_at(method_octets);
    let rest = match rest {
        [] if octets.len() < MAX_METHOD_OCTETS => return Err(Verdict::More),
        [b'\r'] if octets.len() == 1 => return Err(Verdict::More),
        [b' ', rest @ ..] if !method.is_empty() => rest,
        _ => return Err(Verdict::No),
    };
    let line_end = memchr(b'\n', rest);
    let line = &rest[..line_end.unwrap_or(rest.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // All octets at once: a long line comes again with each segment.
    let is_damaged = line.iter().fold(false, |is_damaged, octet| is_damaged | octet.is_ascii_control());
    let Some(line_end) = line_end else {
        let is_path = line.starts_with(b"/") || after_scheme(line).is_some();
        let is_usual = is_path && USUAL_METHODS.contains(&method);
        if is_damaged {
            return Err(if is_usual && line.len() < LONG_LINE_OCTETS { Verdict::More } else { Verdict::No });
        }
        if line.len() < LONG_LINE_OCTETS || !is_usual {
            return Err(Verdict::More);
        }
        findings.recognise(Application::Http, Confidence::Pattern);
        return Err(Verdict::Recognised);
    };
    // Some clients do not escape spaces in paths.
    let at = memrchr(b' ', line).ok_or(Verdict::No)?;
    // Other white space around the target does not count (RFC 9112 section 3).
    let (target, version) = (line[..at].trim_ascii(), &line[at + 1..]);
    let is_version = matches!(version, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9']);
    if !is_version || is_damaged || target.is_empty() {
        return Err(if version.starts_with(b"HTTP/1.") { Verdict::More } else { Verdict::No });
    }
    // A word before any text is no request. The response may prove that it is one.
    let has_form = || target.starts_with(b"/") || target == b"*" || memmem::find(target, b"://").is_some();
    if method != b"CONNECT" && !USUAL_METHODS.contains(&method) && !has_form() {
        return Err(Verdict::More);
    }
    findings.recognise(Application::Http, Confidence::Message);
    find_target(method, target, findings);
    Ok(method_octets + 1 + line_end + 1)
}

/// Extracts method, host and path of a request line.
fn find_target(method: &[u8], target: &[u8], findings: &mut Findings) {
    findings.set_text(Fact::HttpMethod, method);
    // The host of the target counts more than the header (RFC 9112 section 3.2.2).
    if method == b"CONNECT" {
        findings.set_text(Fact::HttpHost, without_user(target));
    } else if let Some((host, path)) = absolute_target(target) {
        findings.set_text(Fact::HttpHost, host);
        findings.set_text(Fact::HttpPath, if path.is_empty() { b"/" } else { path });
    } else {
        findings.set_text(Fact::HttpPath, target);
    }
}

/// Extracts method, host and path of a line that is known to be that of a request. The end of a long line is
/// missing: a host whose end is missing is left out, because a password may be in front of it.
pub(crate) fn find_request(line: &[u8], is_whole: bool, findings: &mut Findings) {
    let (method, rest) = line.split_at(memchr(b' ', line).unwrap_or(line.len()));
    let end = memrchr(b' ', rest).filter(|&at| is_whole && rest[at + 1..].starts_with(b"HTTP/"));
    let target = rest[..end.unwrap_or(rest.len())].trim_ascii();
    if is_whole {
        return find_target(method, target, findings);
    }
    findings.note(Note::Cut);
    let has_host = after_scheme(target).is_some();
    if method == b"CONNECT" || has_host && absolute_target(target).is_none_or(|(_, path)| path.is_empty()) {
        findings.set_text(Fact::HttpMethod, method);
    } else {
        find_target(method, target, findings);
    }
}

/// The host that a line of a head names, if it is the field `Host`.
pub(crate) fn host_of(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at(memchr(b':', line)?);
    name.trim_ascii().eq_ignore_ascii_case(b"host").then(|| without_user(value[1..].trim_ascii()))
}

/// What follows the scheme of a target that has one.
fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    after_word(target, "http://").or_else(|| after_word(target, "https://"))
}

/// Host and path of a target that has both, as proxies get it (RFC 9112 section 3.2.2).
fn absolute_target(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = after_scheme(target)?;
    let end = memchr3(b'/', b'?', b'#', after).unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    Some((without_user(authority), path))
}

/// Host and port without the user information before them, which may have a password.
fn without_user(authority: &[u8]) -> &[u8] {
    memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..])
}

/// Reads responses up to the first final one (RFC 9112 section 4).
fn read_response(progress: &mut Progress, octets: &[u8], findings: &mut Findings) -> Verdict {
    if matches!(progress.part, Part::Start | Part::Request | Part::RequestEnd) {
        *progress = Progress { at: 0, part: Part::NextResponse(0) };
    }
    let mut lines_left = MAX_FIELD_LINES;
    loop {
        match progress.part {
            Part::NextResponse(interim_responses) => {
                let verdict = if interim_responses == 0 { Verdict::More } else { Verdict::Recognised };
                let line = octets.get(progress.at..).unwrap_or_default();
                if interim_responses == MAX_INTERIM_RESPONSES || line.len() < STATUS_FORM.len() && is_status(line) {
                    return verdict;
                }
                let Some(is_final) = read_status(line, findings) else {
                    return if interim_responses == 0 { Verdict::No } else { verdict };
                };
                let Some(line_end) = memchr(b'\n', line) else { return Verdict::Recognised };
                let part = Part::Response { interim_responses, is_final };
                *progress = Progress { at: progress.at + line_end + 1, part };
            }
            Part::Response { interim_responses, is_final } => {
                let read = fields(octets, progress.at, &mut lines_left, |name, value| {
                    if is_final && name.eq_ignore_ascii_case(b"content-type") {
                        findings.set_text(Fact::HttpContentType, value);
                    }
                });
                match read {
                    Fields::Partial(at) => {
                        progress.at = at;
                        return Verdict::Recognised;
                    }
                    Fields::Whole(at) if !is_final => {
                        *progress = Progress { at, part: Part::NextResponse(interim_responses + 1) };
                    }
                    read => progress.end(read, octets, Part::ResponseEnd, findings),
                }
            }
            _ => return Verdict::Complete,
        }
    }
}

/// The start of a status line: `0` is a digit, `1` a digit but 0, the last octet the end of the status
/// (RFC 9112 section 4; some servers send no reason).
const STATUS_FORM: &[u8; 13] = b"HTTP/1.0 100 ";

/// Whether octets are a status line, as far as they are there.
fn is_status(octets: &[u8]) -> bool {
    octets.iter().zip(STATUS_FORM).enumerate().all(|(at, (octet, form))| match form {
        b'0' => octet.is_ascii_digit(),
        b'1' if at > 8 => (b'1'..=b'9').contains(octet),
        b' ' if at > 8 => b" \r\n".contains(octet),
        _ => octet == form,
    })
}

/// Reads the status of a whole status line. Returns whether it is final. `None`: it is no status line.
fn read_status(line: &[u8], findings: &mut Findings) -> Option<bool> {
    let [.., a, b, c, _] = line.first_chunk::<{ STATUS_FORM.len() }>().filter(|line| is_status(*line))?;
    findings.recognise(Application::Http, Confidence::Message);
    let status = [a, b, c].iter().fold(0, |status, digit| status * 10 + u64::from(**digit - b'0'));
    let is_final = !(100..200).contains(&status) || status == 101;
    if is_final {
        findings.set_number(Fact::HttpStatus, status);
    }
    Some(is_final)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Note;

    fn read(first: &[u8], second: &[u8]) -> (Verdict, Findings) {
        let mut findings = Findings::new(true);
        let streams = Streams { first, second, ..Streams::default() };
        let verdict = read_streams(&mut State::default(), &streams, &mut findings);
        (verdict, findings)
    }

    #[test]
    fn request_and_final_response_are_complete() {
        let (verdict, findings) = read(
            b"PROPFIND /a?b HTTP/1.1\r\nHost:  a.example:80 \r\nuser-agent: x/1\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nContent-Type: no\r\n\r\nHTTP/1.1 404 Not\r\ncontent-type: text/html\r\n\r\n",
        );
        assert_eq!(verdict, Verdict::Complete);
        assert_eq!(findings.application(), Some((Application::Http, Confidence::Message)));
        assert_eq!(findings.text(Fact::HttpMethod), Some("PROPFIND"));
        assert_eq!(findings.text(Fact::HttpHost), Some("a.example:80"));
        assert_eq!(findings.text(Fact::HttpPath), Some("/a?b"));
        assert_eq!(findings.text(Fact::HttpUserAgent), Some("x/1"));
        assert_eq!(findings.number(Fact::HttpStatus), Some(404));
        assert_eq!(findings.text(Fact::HttpContentType), Some("text/html"));
    }

    #[test]
    fn host_of_an_absolute_target_counts_more_than_the_header() {
        let host = |line: &str| {
            let (_, findings) = read(format!("{line} HTTP/1.1\r\nHost: b.example\r\n\r\n").as_bytes(), b"");
            [Fact::HttpHost, Fact::HttpPath].map(|fact| findings.text(fact).map(String::from))
        };
        assert_eq!(host("GET http://u@a.example:8080/x"), [Some("a.example:8080".into()), Some("/x".into())]);
        assert_eq!(host("GET http://a.example"), [Some("a.example".into()), Some("/".into())]);
        assert_eq!(host("GET HTTP://a.example/"), [Some("a.example".into()), Some("/".into())]);
        assert_eq!(host("GET HttpS://a.example/"), [Some("a.example".into()), Some("/".into())]);
        assert_eq!(host("CONNECT a.example:443"), [Some("a.example:443".into()), None]);
        assert_eq!(host("OPTIONS *"), [Some("b.example".into()), Some("*".into())]);
    }

    #[test]
    fn user_information_is_no_part_of_the_host() {
        for first in [
            "GET / HTTP/1.1\r\nHost: bob:secret@a.example:80\r\n\r\n",
            "CONNECT bob:secret@a.example:80 HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(first.as_bytes(), b"").1.text(Fact::HttpHost), Some("a.example:80"), "{first:?}");
        }
    }

    #[test]
    fn number_of_lines_does_not_count() {
        let request = format!("\r\n\n\r\nGET / HTTP/1.1\r\n{}Host: a.example\r\n\r\n", "A: b\r\n".repeat(200));
        let response = format!("HTTP/1.1 200 OK\r\n{}Content-Type: a/b\r\n\r\n", "A: b\r\n".repeat(200));
        let (verdict, findings) = read(request.as_bytes(), response.as_bytes());
        assert_eq!(verdict, Verdict::Complete);
        assert_eq!(findings.text(Fact::HttpHost), Some("a.example"));
        assert_eq!(findings.text(Fact::HttpContentType), Some("a/b"));
    }

    #[test]
    fn unknown_word_before_a_text_is_no_method() {
        for (first, expected) in [
            ("I like HTTP/1.1\r\n\r\n", Verdict::More),
            ("PURGE /x HTTP/1.1\r\n\r\n", Verdict::Recognised),
            ("OPTIONS * HTTP/1.1\r\n\r\n", Verdict::Recognised),
            ("REPORT https://a.example HTTP/1.1\r\n\r\n", Verdict::Recognised),
            ("GET index.html HTTP/1.0\r\n\r\n", Verdict::Recognised),
        ] {
            assert_eq!(read(first.as_bytes(), b"").0, expected, "{first:?}");
        }
    }

    #[test]
    fn response_alone_is_enough() {
        let (verdict, findings) = read(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nx", b"");
        assert_eq!(verdict, Verdict::Recognised);
        assert_eq!(findings.number(Fact::HttpStatus), Some(200));
    }

    #[test]
    fn long_line_without_end_is_a_pattern() {
        let line = [b"GET /".to_vec(), vec![b'x'; LONG_LINE_OCTETS]].concat();
        assert_eq!(read(&line, b"").1.application(), Some((Application::Http, Confidence::Pattern)));
        assert_eq!(read(&line[..100], b"").0, Verdict::More);
    }

    #[test]
    fn response_proves_http_after_a_damaged_request() {
        for first in ["GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "GET / HTTP/1.x\r\n\r\n"] {
            assert_eq!(read(first.as_bytes(), b"").0, Verdict::More, "{first:?}");
            assert_eq!(read(first.as_bytes(), b"220 a.example\r\n").0, Verdict::No);
            let (verdict, findings) = read(first.as_bytes(), b"HTTP/1.1 400 Bad Request\r\n\r\n");
            assert_eq!((verdict, findings.number(Fact::HttpStatus)), (Verdict::Recognised, Some(400)));
            assert!(!findings.has(Fact::HttpMethod) && !findings.has(Fact::HttpPath) && !findings.has(Fact::HttpHost));
        }
    }

    #[test]
    fn white_space_around_the_target_does_not_count() {
        let path = |first: &str| read(first.as_bytes(), b"").1.text(Fact::HttpPath).map(String::from);
        assert_eq!(path("GET  / HTTP/1.1\r\n\r\n").as_deref(), Some("/"));
        assert_eq!(path("GET /a  HTTP/1.1\r\n\r\n").as_deref(), Some("/a"));
        assert_eq!(path("GET /a b HTTP/1.1\r\n\r\n").as_deref(), Some("/a b"));
        assert_eq!(path("GET   HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn status_has_three_digits() {
        for (line, status) in [
            ("HTTP/1.1 999 x\r\n\r\n", Some(999)),
            ("HTTP/1.1 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 200\n\n", Some(200)),
            ("HTTP/1.1 99999 x\r\n\r\n", None),
            ("HTTP/1.1 099 x\r\n\r\n", None),
            ("HTTP/1.1 200", None),
        ] {
            let (_, findings) = read(line.as_bytes(), b"");
            assert_eq!(
                (findings.number(Fact::HttpStatus), findings.application().is_some()),
                (status, status.is_some())
            );
        }
    }

    #[test]
    fn protocols_of_the_same_form_are_refused() {
        for first in [
            "OPTIONS rtsp://a.example/ RTSP/1.0\r\n",
            "INVITE sip:a@b.example SIP/2.0\r\n",
            "PRI * HTTP/2.0\r\n",
            "EHLO a.example\r\n",
            "get / HTTP/1.1\r\n",
            "GET \x01 HTTP/2.0\r\n",
            "GET /\r\n",
            "GET \0",
            "RTSP/1.0 200 OK\r\n",
            "HTTP/2 200\r\n",
        ] {
            let (verdict, findings) = read(first.as_bytes(), b"HTTP/1.1 400 Bad Request\r\n\r\n");
            assert_eq!((verdict, findings.application()), (Verdict::No, None), "{first:?}");
        }
    }

    #[test]
    fn reading_goes_on_where_it_stopped() {
        let request =
            b"\r\nGET /a HTTP/1.1\r\nA: b\r\nHost: a.example\r\n c\r\nUser-Agent: x\r\nHost: b.example\r\n\r\nbody";
        let response = b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nContent-Type: a/b\r\n\r\nbody";
        for step in 1..request.len() {
            for swapped in [false, true] {
                let (mut state, mut findings) = (State::default(), Findings::new(true));
                let mut octets = 0;
                while octets < request.len() + response.len() {
                    octets += step;
                    let client = &request[..octets.min(request.len())];
                    let server = &response[..octets.saturating_sub(client.len()).min(response.len())];
                    let (first, second) = if swapped { (server, client) } else { (client, server) };
                    let streams = Streams { first, second, ..Streams::default() };
                    let verdict = read_streams(&mut state, &streams, &mut findings);
                    let (expected, whole) = read(first, second);
                    assert_eq!(verdict, expected, "{step} {swapped} {octets}");
                    for fact in Fact::ALL {
                        assert_eq!(findings.octets(*fact), whole.octets(*fact), "{step} {swapped} {octets} {fact:?}");
                    }
                }
            }
        }
        // What was read is not read again.
        let mut state = State::default();
        let streams = Streams { first: &request[..40], second: b"", ..Streams::default() };
        read_streams(&mut state, &streams, &mut Findings::new(true));
        assert_eq!((state.0[0].at, state.0[0].part), (25, Part::Request));
    }

    #[test]
    fn lines_of_a_segment_are_limited() {
        let head = |lines: usize| format!("GET / HTTP/1.1\r\n{}Host: a.example\r\n\r\n", "A:\n".repeat(lines));
        for (lines, host, is_limited) in
            [(MAX_FIELD_LINES - 1, Some("a.example"), false), (MAX_FIELD_LINES, None, true)]
        {
            let (verdict, mut findings) = read(head(lines).as_bytes(), b"HTTP/1.1 200 OK\r\n\r\n");
            assert_eq!((verdict, findings.text(Fact::HttpHost)), (Verdict::Complete, host), "{lines}");
            assert_eq!((findings.notes().has(Note::Limit), findings.take_work_limited()), (is_limited, is_limited));
        }
        // In several segments there may be more.
        let (head, mut findings) = (head(2 * MAX_FIELD_LINES), Findings::new(true));
        let mut state = State::default();
        for octets in [head.len() / 3, 2 * head.len() / 3, head.len()] {
            let streams = Streams { first: &head.as_bytes()[..octets], ..Streams::default() };
            read_streams(&mut state, &streams, &mut findings);
        }
        assert!(!findings.take_work_limited());
        assert_eq!(findings.text(Fact::HttpHost), Some("a.example"));
    }
}
