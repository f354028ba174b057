//! HTTP/2 with prior knowledge (RFC 9113): the first request and its response.
//!
//! The connection preface of the client is certain. A server alone is a pattern: its first frame is
//! SETTINGS. Header blocks that continue in other frames are read as far as the first frame goes.

use crate::hpack::{Decoded, Decoder};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_OCTETS: usize = 9;
/// Frames of a side that are read.
const MAX_FRAMES: usize = 64;
/// Settings of the first frame of a server.
const MAX_SETTINGS: usize = 32;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Reads the start of a connection.
pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let is_start = |octets: &[u8]| octets.iter().zip(PREFACE).all(|(octet, preface)| octet == preface);
    let client_is_first = is_start(streams.first);
    let (client, server) =
        if client_is_first { (streams.first, streams.second) } else { (streams.second, streams.first) };
    if !is_start(client) || (!client_is_first && !is_start_of_settings(server)) {
        return Verdict::No;
    }
    if let Some(frames) = client.strip_prefix(PREFACE) {
        findings.recognise(Application::Http2, Confidence::Message);
        let request = read_headers(frames, |name, value| {
            match name {
                b":authority" | b"host" => findings.set_text(Fact::HttpHost, value),
                b":method" => findings.set_text(Fact::HttpMethod, value),
                b":path" => findings.set_text(Fact::HttpPath, value),
                b"user-agent" => findings.set_text(Fact::HttpUserAgent, value),
                _ => {}
            }
            true
        });
        return if read_response(server, findings) && request { Verdict::Complete } else { Verdict::Recognised };
    }
    let settings_octets = server.first_chunk().map(|&[_, _, length]: &[u8; 3]| usize::from(length));
    match settings_octets {
        Some(octets)
            if client.is_empty() && is_start_of_settings(server) && server.len() >= FRAME_HEADER_OCTETS + octets =>
        {
            findings.recognise(Application::Http2, Confidence::Pattern);
            read_response(server, findings);
            Verdict::Recognised
        }
        _ => Verdict::More,
    }
}

/// Finds the first final response. `true`: it was there.
fn read_response(server: &[u8], findings: &mut Findings) -> bool {
    let mut is_final = false;
    is_start_of_settings(server)
        && read_headers(server, |name, value| {
            match name {
                b":status" => {
                    // Interim responses come before (RFC 9113 section 8.1).
                    is_final = !value.starts_with(b"1");
                    // Three digits (RFC 9113 section 8.3.2).
                    if let ([b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'], true) = (value, is_final) {
                        let status = value.iter().fold(0, |status, digit| status * 10 + u64::from(*digit - b'0'));
                        findings.set_number(Fact::HttpStatus, status);
                    }
                }
                b"content-type" if is_final => findings.set_text(Fact::HttpContentType, value),
                _ => {}
            }
            is_final
        })
}

/// Whether octets are the start of a SETTINGS frame (RFC 9113 section 6.5), without
/// acknowledgement.
fn is_start_of_settings(octets: &[u8]) -> bool {
    let form = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    let length = octets.get(2).copied().map_or(0, usize::from);
    octets.iter().zip(form).enumerate().all(|(at, (&octet, form))| at == 2 || octet == form)
        && length % 6 == 0
        && length / 6 <= MAX_SETTINGS
}

/// Calls a function with the fields of HEADERS frames, up to the frame whose last field gives
/// `true`. `true`: there was such a frame.
fn read_headers(mut octets: &[u8], mut read: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
    let mut decoder = Decoder::default();
    for _ in 0..MAX_FRAMES {
        let Some((&[a, b, c, kind, flags, ..], rest)) = octets.split_first_chunk::<FRAME_HEADER_OCTETS>() else {
            return false;
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((payload, next)) = rest.split_at_checked(length) else { return false };
        octets = next;
        let Some(block) = header_block(payload, flags).filter(|_| kind == HEADERS) else { continue };
        let mut is_last = false;
        decoder.decode(block, |name, value| is_last = read(&name.decode(), &value.decode() as &Decoded));
        if is_last {
            return true;
        }
    }
    false
}

/// The block of a HEADERS frame, without padding and priority (RFC 9113 section 6.2).
fn header_block(mut payload: &[u8], flags: u8) -> Option<&[u8]> {
    if flags & PADDED != 0 {
        let (&padding, rest) = payload.split_first()?;
        payload = rest.get(..rest.len().checked_sub(usize::from(padding))?)?;
    }
    if flags & PRIORITY != 0 { payload.get(5..) } else { Some(payload) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn settings() -> Vec<u8> {
        vec![0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100]
    }

    fn read(first: &[u8], second: &[u8]) -> (Verdict, Findings) {
        let mut findings = Findings::new(true);
        let verdict = read_streams(&Streams { first, second, ..Streams::default() }, &mut findings);
        (verdict, findings)
    }

    #[test]
    fn request_and_response_behind_padding_priority_and_interim_responses() {
        let request = [&[2, 0, 0, 0, 0, 0, 0x82, 0x84, 0x01, 9][..], b"a.example", &[0, 0]].concat();
        let client = [PREFACE, &settings(), &frame(HEADERS, PADDED | PRIORITY | 5, &request)].concat();
        // Status 103, then 404 with a content type, both as literals with the name of the static
        // table.
        let interim = frame(HEADERS, 4, b"\x08\x03103");
        let response = frame(HEADERS, 4, b"\x8d\x0f\x10\x09text/html");
        let server = [settings(), frame(SETTINGS, 1, b""), interim, response].concat();
        let (verdict, findings) = read(&client, &server);
        assert_eq!(verdict, Verdict::Complete);
        assert_eq!(findings.application(), Some((Application::Http2, Confidence::Message)));
        assert_eq!(findings.text(Fact::HttpMethod), Some("GET"));
        assert_eq!(findings.text(Fact::HttpPath), Some("/"));
        assert_eq!(findings.text(Fact::HttpHost), Some("a.example"));
        assert_eq!(findings.number(Fact::HttpStatus), Some(404));
        assert_eq!(findings.text(Fact::HttpContentType), Some("text/html"));
    }

    #[test]
    fn status_has_three_digits() {
        for status in ["99999", "+20", "099", "2"] {
            let block = [&[8, status.len() as u8][..], status.as_bytes()].concat();
            let (_, findings) = read(&[settings(), frame(HEADERS, 4, &block)].concat(), b"");
            assert_eq!(findings.number(Fact::HttpStatus), None, "{status}");
        }
    }

    #[test]
    fn server_alone_is_a_pattern() {
        let (verdict, findings) = read(&settings(), b"");
        assert_eq!(verdict, Verdict::Recognised);
        assert_eq!(findings.application(), Some((Application::Http2, Confidence::Pattern)));
        assert_eq!(read(&settings(), b"PRI * HTTP").0, Verdict::More);
        assert_eq!(read(&settings(), b"GET").0, Verdict::No);
        assert_eq!(read(b"PRI * HTTP/1.1", b"").0, Verdict::No);
        assert_eq!(read(&frame(SETTINGS, 0, b"12345"), b"").0, Verdict::No);
    }
}
