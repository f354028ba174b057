//! HTTP/1.0 and HTTP/1.1 (RFC 9112): requests and responses.
//!
//! A request is certain when its line ends with the version, a response when its status line
//! begins. A long request line of a usual method is a pattern until it ends. The head is read line
//! by line, and not by a library, because its end is often not among the octets that are inspected.

use crate::lines::{after_word, fields};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

/// Octets of a method. The longest registered one has 17 (RFC 9110 section 16.1).
const MAX_METHOD_OCTETS: usize = 24;
/// Octets of a request line after which a usual method and a path are a pattern.
const LONG_LINE_OCTETS: usize = 256;
/// Responses before the final one that are read (RFC 9110 section 15.2).
const MAX_INTERIM_RESPONSES: usize = 8;
const USUAL_METHODS: [&[u8]; 7] = [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH"];

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    // If the capture began in the middle, the server may be first.
    let server_is_first = streams.first.starts_with(b"HTTP/");
    let [read_first, read_second] =
        if server_is_first { [read_response, read_request] } else { [read_request, read_response] };
    let first = read_first(streams.first, findings);
    if first == Verdict::No {
        return Verdict::No;
    }
    // A damaged request is `More`: the response may prove HTTP.
    match (first, read_second(streams.second, findings)) {
        (Verdict::More, Verdict::No) => Verdict::No,
        (Verdict::More, Verdict::More) => Verdict::More,
        (Verdict::Complete, Verdict::Complete) if findings.text(Fact::HttpMethod) == Some("CONNECT") => {
            read_tunnel(streams, findings)
        }
        (Verdict::Complete, Verdict::Complete | Verdict::No) => Verdict::Complete,
        _ => Verdict::Recognised,
    }
}

/// Reads what follows CONNECT and its response (RFC 9110 section 9.3.6).
fn read_tunnel(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let [client, server] = [streams.first, streams.second].map(|octets| {
        let line_end = octets.iter().position(|&octet| octet == b'\n');
        line_end.and_then(|end| fields(&octets[end + 1..], |_, _| {})).unwrap_or_default()
    });
    let is_open = matches!(findings.number(Fact::HttpStatus), Some(200..300));
    if is_open && [client, server].iter().all(|octets| octets.is_empty() || tls::is_start(octets)) {
        tls::read_upgrade(client, server, findings)
    } else {
        Verdict::Complete
    }
}

/// Reads the first request (RFC 9112 section 3).
fn read_request(octets: &[u8], findings: &mut Findings) -> Verdict {
    // Servers ignore empty lines before it, and may take a line feed alone for their end (RFC 9112
    // section 2.2).
    let mut octets = octets;
    while let [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] = octets {
        octets = rest;
    }
    let is_method = |&octet: &u8| octet.is_ascii_uppercase() || octet == b'-' || octet == b'_';
    let method_octets = octets.iter().take(MAX_METHOD_OCTETS).take_while(|octet| is_method(octet)).count();
    let (method, rest) = octets.split_at(method_octets);
    let rest = match rest {
        [] if octets.len() < MAX_METHOD_OCTETS => return Verdict::More,
        [b'\r'] if octets.len() == 1 => return Verdict::More,
        [b' ', rest @ ..] if !method.is_empty() => rest,
        _ => return Verdict::No,
    };
    let (line, head) = match rest.iter().position(|&octet| octet == b'\n') {
        Some(end) => (&rest[..end], Some(&rest[end + 1..])),
        None => (rest, None),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_damaged = line.iter().any(u8::is_ascii_control);
    let Some(head) = head else {
        let is_path = line.starts_with(b"/") || absolute_target(line).is_some();
        let is_usual = is_path && USUAL_METHODS.contains(&method);
        if is_damaged {
            return if is_usual && line.len() < LONG_LINE_OCTETS { Verdict::More } else { Verdict::No };
        }
        if line.len() < LONG_LINE_OCTETS || !is_usual {
            return Verdict::More;
        }
        findings.recognise(Application::Http, Confidence::Pattern);
        return Verdict::Recognised;
    };
    // Some clients do not escape spaces in paths.
    let Some(at) = line.iter().rposition(|&octet| octet == b' ') else { return Verdict::No };
    // Other white space around the target does not count (RFC 9112 section 3).
    let (target, version) = (line[..at].trim_ascii(), &line[at + 1..]);
    let is_version = matches!(version, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9']);
    if !is_version || is_damaged || target.is_empty() {
        return if version.starts_with(b"HTTP/1.") { Verdict::More } else { Verdict::No };
    }
    // A word before any text is no request. The response may prove that it is one.
    let has_form = target.starts_with(b"/") || target == b"*" || target.windows(3).any(|window| window == b"://");
    if !has_form && method != b"CONNECT" && !USUAL_METHODS.contains(&method) {
        return Verdict::More;
    }
    findings.recognise(Application::Http, Confidence::Message);
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
    let is_whole = fields(head, |name, value| {
        if name.eq_ignore_ascii_case(b"host") {
            findings.set_text(Fact::HttpHost, without_user(value));
        } else if name.eq_ignore_ascii_case(b"user-agent") {
            findings.set_text(Fact::HttpUserAgent, value);
        }
    });
    if is_whole.is_some() { Verdict::Complete } else { Verdict::Recognised }
}

/// Host and path of a target that has both, as proxies get it (RFC 9112 section 3.2.2).
fn absolute_target(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = after_word(target, "http://").or_else(|| after_word(target, "https://"))?;
    let end = after.iter().position(|octet| b"/?#".contains(octet)).unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    Some((without_user(authority), path))
}

/// Host and port without the user information before them, which may have a password.
fn without_user(authority: &[u8]) -> &[u8] {
    authority.rsplit(|&octet| octet == b'@').next().unwrap_or_default()
}

/// Reads responses up to the first final one (RFC 9112 section 4).
fn read_response(mut octets: &[u8], findings: &mut Findings) -> Verdict {
    let mut verdict = Verdict::More;
    for _ in 0..MAX_INTERIM_RESPONSES {
        // A digit, a digit but 0, and the end of the status (RFC 9112 section 4; some servers send
        // no reason).
        const FORM: &[u8; 13] = b"HTTP/1.0 100 ";
        let is_response = octets.iter().zip(FORM).enumerate().all(|(at, (octet, form))| match form {
            b'0' => octet.is_ascii_digit(),
            b'1' if at > 8 => (b'1'..=b'9').contains(octet),
            b' ' if at > 8 => b" \r\n".contains(octet),
            _ => octet == form,
        });
        if !is_response {
            return if verdict == Verdict::More { Verdict::No } else { verdict };
        }
        let Some([.., a, b, c, _]) = octets.first_chunk::<13>() else { return verdict };
        verdict = Verdict::Recognised;
        findings.recognise(Application::Http, Confidence::Message);
        let status = [a, b, c].iter().fold(0, |status, digit| status * 10 + u64::from(*digit - b'0'));
        let is_final = !(100..200).contains(&status) || status == 101;
        if is_final {
            findings.set_number(Fact::HttpStatus, status);
        }
        let Some(line_end) = octets.iter().position(|&octet| octet == b'\n') else { return verdict };
        let is_whole = fields(&octets[line_end + 1..], |name, value| {
            if is_final && name.eq_ignore_ascii_case(b"content-type") {
                findings.set_text(Fact::HttpContentType, value);
            }
        });
        match is_whole {
            Some(_) if is_final => return Verdict::Complete,
            Some(rest) => octets = rest,
            None => return verdict,
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: &[u8], second: &[u8]) -> (Verdict, Findings) {
        let mut findings = Findings::new(true);
        let verdict = read_streams(&Streams { first, second, ..Streams::default() }, &mut findings);
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
}
