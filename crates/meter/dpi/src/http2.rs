//! HTTP/2 with prior knowledge (RFC 9113): the first request and its response.
//!
//! The connection preface of the client is certain. A server alone is a pattern: its first frame is
//! SETTINGS. A header block is read as far as it came, also if it continues in CONTINUATION frames.

use crate::hpack::{Decoder, Field, MAX_FIELDS, MAX_STRING_OCTETS, Text};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict};
use arrayvec::ArrayVec;
use std::borrow::Cow;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_OCTETS: usize = 9;
/// Frames of a side that are read.
const MAX_FRAMES: usize = 1024;
/// Header blocks of a side that are read: those of interim responses and of promised requests come
/// before the first final response.
const MAX_BLOCKS: usize = 16;
/// Settings of the first frame of a server.
const MAX_SETTINGS: usize = 32;

/// Digits of a status.
const STATUS_DIGITS: usize = 3;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

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
        let request = read_headers(frames, |field, value| {
            match field {
                Field::Authority | Field::Host => set_text(Fact::HttpHost, value, findings),
                Field::Method => set_text(Fact::HttpMethod, value, findings),
                Field::Path => set_text(Fact::HttpPath, value, findings),
                Field::UserAgent => set_text(Fact::HttpUserAgent, value, findings),
                Field::Status | Field::ContentType | Field::Other => {}
            }
            true
        });
        let request = request.is_finished(findings);
        return if read_response(server, findings) && request { Verdict::Complete } else { Verdict::Recognised };
    }
    let is_whole = server.get(2).is_some_and(|octets| server.len() >= FRAME_HEADER_OCTETS + usize::from(*octets));
    if !client.is_empty() || !is_start_of_settings(server) || !is_whole {
        return Verdict::More;
    }
    findings.recognise(Application::Http2, Confidence::Pattern);
    read_response(server, findings);
    Verdict::Recognised
}

/// Finds the first final response. `true`: it was there.
fn read_response(server: &[u8], findings: &mut Findings) -> bool {
    let mut is_final = false;
    if !is_start_of_settings(server) {
        return false;
    }
    let headers = read_headers(server, |field, value| {
        match field {
            Field::Status => {
                let value = value.decode(STATUS_DIGITS + 1);
                // Interim responses come before (RFC 9113 section 8.1).
                is_final = !value.starts_with(b"1");
                // Three digits (RFC 9113 section 8.3.2).
                if let ([b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'], true) = (&*value, is_final) {
                    let status = value.iter().fold(0, |status, digit| status * 10 + u64::from(*digit - b'0'));
                    findings.set_number(Fact::HttpStatus, status);
                }
            }
            Field::ContentType if is_final => set_text(Fact::HttpContentType, value, findings),
            _ => {}
        }
        is_final
    });
    headers.is_finished(findings)
}

/// Sets an extracted field. The value is decoded only if it is wanted: the same octets come again with each packet.
fn set_text(fact: Fact, value: Text<'_>, findings: &mut Findings) {
    if findings.takes(fact) {
        findings.set_text(fact, &value.decode(MAX_STRING_OCTETS));
    }
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

/// A header block, of one frame or of several.
struct Block<'a> {
    octets: Cow<'a, [u8]>,
    stream: u32,
    /// It is a response or request, and not a promise of one.
    is_message: bool,
    is_whole: bool,
}

/// How far header blocks were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Headers {
    /// The wanted block was whole, or what follows cannot be read.
    Finished,
    Unfinished,
    /// To the limit of fields.
    Limited,
}

impl Headers {
    /// Whether nothing is left to be read.
    fn is_finished(self, findings: &mut Findings) -> bool {
        if self == Self::Limited {
            findings.limit_work();
        }
        self != Self::Unfinished
    }
}

/// Calls a function with the fields of header blocks, the first of each name in a block, up to the
/// block whose last one gives `true`.
fn read_headers(octets: &[u8], mut read: impl FnMut(Field, Text<'_>) -> bool) -> Headers {
    let blocks = header_blocks(octets);
    let mut decoder = Decoder::default();
    let mut fields_left = MAX_FIELDS;
    for block in &blocks {
        let (mut is_last, mut seen) = (false, 0_u8);
        let is_valid = decoder.decode(&block.octets, &mut fields_left, |field, value| {
            // Promises change the table of the decoder.
            if block.is_message && seen & 1 << field as u8 == 0 {
                seen |= 1 << field as u8;
                is_last = read(field, value);
            }
        });
        if is_valid.is_err() && fields_left == 0 {
            return Headers::Limited;
        }
        if block.is_whole && (is_last || is_valid.is_err()) {
            return Headers::Finished;
        }
    }
    Headers::Unfinished
}

/// The first header blocks of a side. Only the last one may be incomplete.
fn header_blocks(mut octets: &[u8]) -> ArrayVec<Block<'_>, MAX_BLOCKS> {
    let mut blocks = ArrayVec::<Block<'_>, MAX_BLOCKS>::new();
    for _ in 0..MAX_FRAMES {
        let Some((&[a, b, c, kind, flags, stream @ ..], rest)) = octets.split_first_chunk::<FRAME_HEADER_OCTETS>()
        else {
            break;
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let (payload, next) = rest.split_at(length.min(rest.len()));
        octets = next;
        let is_whole = flags & END_HEADERS != 0 && payload.len() == length;
        let stream = u32::from_be_bytes(stream);
        let has_room = !blocks.is_full();
        match (kind, blocks.last_mut().filter(|block| !block.is_whole)) {
            // Nothing else may come in between (RFC 9113 section 6.10).
            (CONTINUATION, Some(block)) if block.stream == stream => {
                block.octets.to_mut().extend(payload);
                block.is_whole = is_whole;
            }
            (HEADERS | PUSH_PROMISE, None) if has_room => {
                let Some(octets) = header_block(payload, length, kind, flags) else { break };
                blocks.push(Block { octets: octets.into(), stream, is_message: kind == HEADERS, is_whole });
            }
            (CONTINUATION | HEADERS | PUSH_PROMISE, _) | (_, Some(_)) => break,
            _ => {}
        }
    }
    blocks
}

/// The header block in a frame of this length, as far as it came: without padding, priority and the
/// number of the promised stream (RFC 9113 sections 6.2 and 6.6).
fn header_block(mut payload: &[u8], mut length: usize, kind: u8, flags: u8) -> Option<&[u8]> {
    if flags & PADDED != 0 {
        let (&padding, rest) = payload.split_first()?;
        length = length.checked_sub(1 + usize::from(padding))?;
        payload = &rest[..rest.len().min(length)];
    }
    match kind {
        PUSH_PROMISE => payload.get(4..),
        _ if flags & PRIORITY != 0 => payload.get(5..),
        _ => Some(payload),
    }
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
    fn header_blocks_continue_in_other_frames() {
        let host = [b'a'; 200];
        let request = [&[0x82, 0x84, 0x01, 0x7f, 73][..], &host].concat();
        let response = b"\x8d\x0f\x10\x09text/html";
        let window_update = frame(8, 0, &[0, 0, 1, 0]);
        for cut in 0..=request.len() {
            let (start, rest) = request.split_at(cut);
            let start = [&[3, 0, 0, 0, 0, 7][..], start, &[0; 3]].concat();
            let headers = frame(HEADERS, PADDED | PRIORITY | 1, &start);
            let frames = [frame(CONTINUATION, 0, &rest[..rest.len() / 2]), frame(CONTINUATION, 0, b"")].concat();
            let end = frame(CONTINUATION, END_HEADERS, &rest[rest.len() / 2..]);
            let client = [PREFACE, &settings(), &window_update, &headers, &frames, &end].concat();
            let promise = [&[0, 0, 0, 2][..], b"\x82\x40\x01x\x01"].concat();
            let cut = cut % response.len();
            let server = [
                settings(),
                frame(PUSH_PROMISE, 0, &promise),
                frame(CONTINUATION, END_HEADERS, b"y"),
                frame(HEADERS, 0, &response[..cut]),
                frame(CONTINUATION, END_HEADERS, &response[cut..]),
            ]
            .concat();
            let (verdict, findings) = read(&client, &server);
            assert_eq!(verdict, Verdict::Complete);
            assert_eq!(findings.text(Fact::HttpHost).map(str::as_bytes), Some(&host[..]));
            assert_eq!(findings.text(Fact::HttpPath), Some("/"));
            assert_eq!(findings.number(Fact::HttpStatus), Some(404));
            assert_eq!(findings.text(Fact::HttpContentType), Some("text/html"));
            // The received part of a block is read; the rest needs more data.
            let (verdict, findings) = read(&client[..client.len() - end.len()], &server);
            assert_eq!(verdict, Verdict::Recognised);
            assert_eq!(findings.text(Fact::HttpMethod), Some("GET"));
            assert_eq!(findings.number(Fact::HttpStatus), Some(404));
        }
    }

    #[test]
    fn header_block_that_other_frames_interrupt_is_not_continued() {
        for between in [frame(SETTINGS, 1, b""), frame(HEADERS, END_HEADERS, b"\x82"), {
            let mut other_stream = frame(CONTINUATION, 0, b"\x01\x01b");
            other_stream[FRAME_HEADER_OCTETS - 1] = 3;
            other_stream
        }] {
            let end = frame(CONTINUATION, END_HEADERS, b"\x01\x01a");
            let (verdict, findings) =
                read(&[PREFACE, &settings(), &frame(HEADERS, 0, b"\x84"), &between, &end].concat(), b"");
            assert_eq!((verdict, findings.has(Fact::HttpHost)), (Verdict::Recognised, false));
            assert_eq!(findings.text(Fact::HttpPath), Some("/"));
        }
        let frames = frame(CONTINUATION, 0, b"").repeat(10 * MAX_FRAMES);
        let (verdict, _) = read(&[PREFACE, &settings(), &frame(HEADERS, 0, b"\x84"), &frames].concat(), b"");
        assert_eq!(verdict, Verdict::Recognised);
    }

    #[test]
    fn fields_that_refer_to_earlier_ones_are_not_read_again() {
        // A long value by the longest codes, and thousands of references to it.
        let value = [0xff; 900];
        let literal = [&[0x41, 0xff, 0x85, 0x06][..], &value].concat();
        let block = [literal, vec![0xbe; 6000]].concat();
        let octets = (block.len() as u32).to_be_bytes();
        let frame = [&octets[1..], &[HEADERS, 0, 0, 0, 0, 1], &block].concat();
        let mut fields = Vec::new();
        let headers = read_headers(&frame, |field, value| {
            fields.push((field, value.decode(MAX_STRING_OCTETS).len()));
            true
        });
        assert_eq!((headers, fields.len()), (Headers::Limited, 1), "{fields:?}");
        assert_eq!(fields[0].0, Field::Authority);
    }

    #[test]
    fn fields_of_a_side_are_limited() {
        for (count, host) in [(MAX_FIELDS - 1, Some("a")), (MAX_FIELDS, None)] {
            // References to an entry, in two frames, then the host.
            let literal = b"\x40\x01x\x01y";
            let parts = [count / 2, count - count / 2 - 1].map(|fields| [0xbe].repeat(fields));
            let block = [&literal[..], &parts[0]].concat();
            let rest = [&parts[1][..], b"\x01\x01a"].concat();
            let long_frame = |kind: u8, flags: u8, payload: &[u8]| {
                let length = (payload.len() as u32).to_be_bytes();
                [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
            };
            let frames = [long_frame(HEADERS, 0, &block), long_frame(CONTINUATION, END_HEADERS, &rest)].concat();
            let (verdict, mut findings) =
                read(&[PREFACE, &settings(), &frames].concat(), &[settings(), frame(HEADERS, 4, b"\x88")].concat());
            assert_eq!((verdict, findings.text(Fact::HttpHost)), (Verdict::Complete, host), "{count}");
            assert_eq!(findings.take_work_limited(), host.is_none(), "{count}");
        }
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
