//! The messages of one direction of a TCP connection, after its application is known: DNS (RFC 1035
//! section 4.2.2) and HTTP/1 (RFC 9112 section 6).
//!
//! In: the payload of segments in their order. Out: an [`Event`] per message. Nothing is kept but the
//! start of the current line: bodies are skipped by their length. Octets that are missing inside a body
//! are skipped, too. If a head is missing, HTTP goes on with the next segment that begins with a
//! message; [`MessageStream::has_missed`] then says that messages may not be counted.

use crate::lines::after_word;
use arrayvec::ArrayVec;
use memchr::memchr;

/// Octets of a line that are read. The longest that matters is `transfer-encoding: gzip, chunked`.
const LINE_OCTETS: usize = 40;
/// Lines of a segment that are read: 16, and one per 8 octets. A line takes 15 to 30 ns; those of a short
/// request have 14 octets on average, the empty one included.
const MIN_LINES: usize = 16;
const OCTETS_PER_LINE: usize = 8;
/// Octets of the header of a DNS message, and of the length before it.
const DNS_HEADER_OCTETS: usize = 12;
const DNS_LENGTH_OCTETS: usize = 2;
/// A jump beyond this is another connection, or damage.
const MAX_JUMP: u32 = 1 << 30;

/// Octets of a line, or of a message of DNS, that [`Text`] has: with a method, a host and a path of
/// [`crate::MAX_TEXT_OCTETS`] each, a line fits.
pub(crate) const TEXT_OCTETS: usize = 512;
/// Header and first question of a message of DNS: the longest name, type and class.
const DNS_QUESTION_OCTETS: usize = DNS_HEADER_OCTETS + 255 + 4;

/// What a request asks for, as far as the body of its response depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Method {
    /// The response has a body.
    #[default]
    Other,
    /// The response has none.
    Head,
    /// After the response comes something else than HTTP.
    Connect,
}

/// A message of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// DNS: a query with this id.
    Question(u16),
    /// DNS: a response with this id and code.
    Answer(u16, u8),
    /// HTTP: a request line.
    Request(Method),
    /// HTTP: the end of a request.
    RequestEnd,
    /// HTTP: a status line.
    Response(u16),
}

/// The octets of a question, for what records it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    /// DNS: the start of the message of a question, as far as its first question may reach.
    Question(&'a [u8]),
    /// HTTP: the line of the last request, and whether it is whole.
    RequestLine(&'a [u8], bool),
    /// HTTP: a line after it, and whether it is whole; empty at the end of the head.
    FieldLine(&'a [u8], bool),
}

/// What takes the messages of a stream. Any function that takes events is one.
pub(crate) trait Receiver {
    /// Takes a message. Returns the method of the request that a response answers.
    fn enter(&mut self, event: Event) -> Method;

    /// Whether it takes texts, too.
    fn takes_texts(&self) -> bool {
        false
    }

    /// Takes the text of a question that it has.
    fn text(&mut self, _text: Text<'_>) {}
}

impl<F: FnMut(Event) -> Method> Receiver for F {
    fn enter(&mut self, event: Event) -> Method {
        self(event)
    }
}

/// Where the next octet belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// The first line of a message, or the header of DNS.
    #[default]
    Start,
    Head,
    Body(u64),
    Chunk(u64),
    /// The end of the line after a chunk.
    ChunkEnd,
    ChunkSize,
    Trailer,
    /// In the body of a response that ends with the connection, or after the last message.
    Rest,
    /// It is not known.
    Lost,
}

/// What a head said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// 0: a request.
    status: u16,
    /// Of the request, or of the one that the response answers.
    method: Method,
    content_octets: Option<u64>,
    is_chunked: bool,
}

/// One direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageStream {
    /// Sequence number of the next octet.
    next: Option<u32>,
    place: Place,
    head: Head,
    line: ArrayVec<u8, LINE_OCTETS>,
    /// What [`Text`] will have, up to [`TEXT_OCTETS`], if it is in several segments.
    text: Vec<u8>,
    has_missed: bool,
    /// A segment had too many lines.
    is_work_limited: bool,
}

impl MessageStream {
    /// Notes the sequence number of the first octet, which the SYN has.
    pub fn begin(&mut self, sequence: Option<u32>) {
        self.next = sequence;
    }

    /// Whether octets before a segment are missing so far.
    pub fn is_before(&self, sequence: u32) -> bool {
        self.next.is_some_and(|next| sequence != next && sequence.wrapping_sub(next) < u32::MAX / 2)
    }

    /// Whether messages may be missing.
    pub fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Whether lines of a segment were not read since the last call.
    pub fn take_work_limited(&mut self) -> bool {
        std::mem::take(&mut self.is_work_limited)
    }

    /// Whether the octets after the last message are of another protocol.
    pub fn has_switched(&self) -> bool {
        self.place == Place::Rest && self.head.is_tunnel()
    }

    /// Reads no more messages.
    pub fn end(&mut self) {
        self.place = Place::Rest;
    }

    /// Reads the payload of a segment.
    pub fn read(&mut self, is_dns: bool, sequence: u32, octets: &[u8], wire_octets: u32, mut receiver: impl Receiver) {
        let next = *self.next.get_or_insert(sequence);
        let end = sequence.wrapping_add(wire_octets);
        let is_new = end.wrapping_sub(next);
        if is_new == 0 || is_new > u32::MAX / 2 {
            return;
        }
        self.next = Some(end);
        let ahead = sequence.wrapping_sub(next);
        let known = if ahead > u32::MAX / 2 { ahead.wrapping_neg() } else { 0 };
        if known == 0 && ahead > 0 {
            self.skip(ahead);
        }
        let rest = octets.get(known as usize..).unwrap_or_default();
        if is_dns {
            self.read_dns(rest, &mut receiver)
        } else {
            self.read_http(rest, &mut receiver)
        }
        let captured = known.max(octets.len() as u32);
        if captured < wire_octets {
            self.skip(wire_octets - captured);
        }
    }

    /// Skips octets that are missing.
    fn skip(&mut self, octets: u32) {
        self.text = Vec::new();
        match &mut self.place {
            Place::Body(left) | Place::Chunk(left) if *left >= octets.into() && octets < MAX_JUMP => {
                *left -= u64::from(octets);
                self.leave_empty_body();
            }
            Place::Rest => {}
            _ => self.lose(),
        }
    }

    fn lose(&mut self) {
        (self.place, self.has_missed) = (Place::Lost, true);
        self.line.clear();
        self.text = Vec::new();
    }

    fn leave_empty_body(&mut self) {
        match self.place {
            Place::Body(0) => self.place = Place::Start,
            Place::Chunk(0) => self.place = Place::ChunkEnd,
            _ => {}
        }
    }

    /// Takes octets of a body. Returns the others.
    fn take_body<'a>(&mut self, octets: &'a [u8], left: u64) -> &'a [u8] {
        let taken = left.min(octets.len() as u64);
        match &mut self.place {
            Place::Body(left) | Place::Chunk(left) => *left -= taken,
            _ => {}
        }
        self.leave_empty_body();
        &octets[taken as usize..]
    }

    fn read_dns(&mut self, mut octets: &[u8], receiver: &mut impl Receiver) {
        const OCTETS: usize = DNS_LENGTH_OCTETS + DNS_HEADER_OCTETS;
        while !octets.is_empty() {
            match self.place {
                Place::Body(left) => {
                    let rest = self.take_body(octets, left);
                    if !self.text.is_empty() {
                        self.take_question(&octets[..octets.len() - rest.len()], receiver);
                    }
                    octets = rest;
                }
                Place::Start => {
                    let taken = (OCTETS - self.line.len()).min(octets.len());
                    self.line.extend(octets[..taken].iter().copied());
                    octets = &octets[taken..];
                    if self.line.len() < OCTETS {
                        return;
                    }
                    let length = usize::from(u16::from_be_bytes([self.line[0], self.line[1]]));
                    let line = std::mem::take(&mut self.line);
                    let header = &line[DNS_LENGTH_OCTETS..];
                    let (Some(event), Some(rest)) = (dns_event(header), length.checked_sub(DNS_HEADER_OCTETS)) else {
                        return self.lose();
                    };
                    receiver.enter(event);
                    self.place = Place::Body(rest as u64);
                    self.leave_empty_body();
                    if receiver.takes_texts() && matches!(event, Event::Question(_)) {
                        self.take_question(header, receiver);
                    }
                }
                _ => return,
            }
        }
    }

    /// Takes octets of a message of DNS until it ends, or has the whole of its first question.
    fn take_question(&mut self, octets: &[u8], receiver: &mut impl Receiver) {
        let taken = octets.len().min(DNS_QUESTION_OCTETS - self.text.len());
        self.text.extend(&octets[..taken]);
        if self.text.len() == DNS_QUESTION_OCTETS || self.place == Place::Start {
            receiver.text(Text::Question(&std::mem::take(&mut self.text)));
        }
    }

    fn read_http(&mut self, mut octets: &[u8], receiver: &mut impl Receiver) {
        if self.place == Place::Lost && begins_message(octets) {
            self.place = Place::Start;
        }
        let mut lines_left = MIN_LINES + octets.len() / OCTETS_PER_LINE;
        while !octets.is_empty() {
            match self.place {
                Place::Rest | Place::Lost => return,
                Place::Body(left) | Place::Chunk(left) => {
                    octets = self.take_body(octets, left);
                    if self.place == Place::Start && self.head.status == 0 {
                        receiver.enter(Event::RequestEnd);
                    }
                }
                _ => {
                    let end = memchr(b'\n', octets);
                    let (part, rest) = octets.split_at(end.map_or(octets.len(), |end| end + 1));
                    let kept = part.len().min(self.line.remaining_capacity());
                    self.line.extend(part[..kept].iter().copied());
                    octets = rest;
                    if end.is_some() {
                        lines_left -= 1;
                        if lines_left == 0 {
                            self.is_work_limited = true;
                            return self.lose();
                        }
                        let line = std::mem::take(&mut self.line);
                        let place = self.place;
                        self.read_line(line.trim_ascii_end(), receiver);
                        if receiver.takes_texts() {
                            self.end_text(place, part, receiver);
                        }
                    } else if receiver.takes_texts() {
                        let kept = part.len().min(TEXT_OCTETS - self.text.len());
                        self.text.extend(&part[..kept]);
                    }
                }
            }
        }
    }

    /// Passes on the text of a line that was read, and that began at a place: its last part, after those that are
    /// kept.
    fn end_text(&mut self, began: Place, part: &[u8], receiver: &mut impl Receiver) {
        let mut text = std::mem::take(&mut self.text);
        let is_first = match (began, self.place) {
            (Place::Start, Place::Head) if self.head.status == 0 => true,
            (Place::Head, _) if self.head.status == 0 => false,
            _ => return,
        };
        let length = text.len() + part.len();
        let part = &part[..part.len().min(TEXT_OCTETS - text.len())];
        // Most lines are in one segment.
        let line = if text.is_empty() {
            part
        } else {
            text.extend(part);
            &text
        };
        let (line, is_whole) = (line.trim_ascii_end(), length <= TEXT_OCTETS);
        receiver.text(if is_first { Text::RequestLine(line, is_whole) } else { Text::FieldLine(line, is_whole) });
    }

    fn read_line(&mut self, line: &[u8], receiver: &mut impl Receiver) {
        match self.place {
            // Empty lines before a request are ignored (RFC 9112 section 2.2).
            Place::Start if line.is_empty() => {}
            Place::Start => match (status(line), method(line)) {
                (Some(status), _) => {
                    self.head = Head { status, method: receiver.enter(Event::Response(status)), ..Head::default() };
                    self.place = Place::Head;
                }
                (None, Some(method)) => {
                    receiver.enter(Event::Request(method));
                    self.head = Head { method, ..Head::default() };
                    self.place = Place::Head;
                }
                (None, None) => self.lose(),
            },
            Place::Head if line.is_empty() => {
                self.place = self.head.place_after();
                if self.place == Place::Start && self.head.status == 0 {
                    receiver.enter(Event::RequestEnd);
                }
            }
            Place::Head => self.head.read_field(line),
            Place::ChunkEnd => self.place = Place::ChunkSize,
            Place::ChunkSize => {
                let digits = line.split(|octet| *octet == b';').next().unwrap_or_default().trim_ascii();
                let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
                match size {
                    Some(0) => self.place = Place::Trailer,
                    Some(size) => self.place = Place::Chunk(size),
                    None => self.lose(),
                }
            }
            Place::Trailer if line.is_empty() => {
                self.place = Place::Start;
                if self.head.status == 0 {
                    receiver.enter(Event::RequestEnd);
                }
            }
            _ => {}
        }
    }
}

impl Head {
    fn read_field(&mut self, line: &[u8]) {
        if let Some(value) = after_word(line, "content-length:") {
            let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            self.content_octets = number.or(self.content_octets);
        } else if let Some(value) = after_word(line, "transfer-encoding:") {
            self.is_chunked |= value.to_ascii_lowercase().ends_with(b"chunked");
        }
    }

    /// Whether it is a response after which another protocol follows.
    fn is_tunnel(&self) -> bool {
        self.status == 101 || self.method == Method::Connect && matches!(self.status, 200..300)
    }

    /// What follows it (RFC 9112 section 6.3).
    fn place_after(&self) -> Place {
        let has_body = !(matches!(self.status, 100..200 | 204 | 304) || self.status > 0 && self.method == Method::Head);
        match self.content_octets {
            _ if self.is_tunnel() => Place::Rest,
            _ if !has_body => Place::Start,
            _ if self.is_chunked => Place::ChunkSize,
            Some(0) => Place::Start,
            Some(octets) => Place::Body(octets),
            None if self.status > 0 => Place::Rest,
            None => Place::Start,
        }
    }
}

/// The message of DNS with this header; `None` if it is none.
pub(crate) fn dns_event(header: &[u8]) -> Option<Event> {
    let &[high, low, flags, codes, ..] = header.first_chunk::<DNS_HEADER_OCTETS>()?;
    let id = u16::from_be_bytes([high, low]);
    // Operation codes that are assigned.
    if !matches!(flags >> 3 & 15, 0 | 2 | 4..=6) {
        return None;
    }
    Some(if flags & 0x80 == 0 { Event::Question(id) } else { Event::Answer(id, codes & 15) })
}

/// The status of a status line.
fn status(line: &[u8]) -> Option<u16> {
    let digits = line.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    digits
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')))
}

/// The method of a request line, whose end may be missing.
fn method(line: &[u8]) -> Option<Method> {
    let at = memchr(b' ', line)?;
    let is_method = at > 0 && line[..at].iter().all(|octet| octet.is_ascii_uppercase() || b"-_".contains(octet));
    is_method.then_some(match &line[..at] {
        b"HEAD" => Method::Head,
        b"CONNECT" => Method::Connect,
        _ => Method::Other,
    })
}

/// Whether a segment begins with the first line of a message, all of it.
fn begins_message(octets: &[u8]) -> bool {
    let Some(end) = memchr(b'\n', octets) else { return false };
    let line = octets[..end].trim_ascii_end();
    let ends_with_version = || line.len() > 9 && line[line.len() - 9..].starts_with(b" HTTP/1.");
    status(line).is_some() || method(line).is_some() && ends_with_version()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads octets in segments of this length.
    fn events(is_dns: bool, octets: &[u8], length: usize, methods: &[Method]) -> (Vec<Event>, bool) {
        let (mut stream, mut events, mut methods) = (MessageStream::default(), Vec::new(), methods.iter().copied());
        for (at, part) in octets.chunks(length).enumerate() {
            stream.read(is_dns, (at * length).wrapping_sub(9) as u32, part, part.len() as u32, |event| {
                events.push(event);
                if matches!(event, Event::Response(100..200)) {
                    Method::Other
                } else {
                    methods.next().unwrap_or_default()
                }
            });
        }
        (events, stream.has_missed())
    }

    #[test]
    fn requests_with_bodies_are_counted_in_segments_of_any_length() {
        let octets = b"\r\nPOST /a HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\n\
            PUT /c HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5;x=y\r\nGET /\r\n0a\r\n0123456789\r\n0\r\nA: b\r\n\r\nGET /d HTTP/1.1\r\n\r\n";
        for length in 1..octets.len() {
            let (events, has_missed) = events(false, octets, length, &[]);
            let methods = [Method::Other, Method::Head, Method::Other, Method::Other];
            let expected: Vec<_> =
                methods.into_iter().flat_map(|method| [Event::Request(method), Event::RequestEnd]).collect();
            assert_eq!((events, has_missed), (expected, false), "{length}");
        }
    }

    #[test]
    fn responses_have_the_body_that_their_request_and_status_give_them() {
        let octets = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\nHTTP/1.1 999 No\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nHTTP/1.1 304 Same\r\nContent-Length: 99\r\n\r\nHTTP/1.1 204 x\r\n\r\n\
            HTTP/1.0 500 No\r\n\r\nHTTP/1.1 404 in the body\r\n\r\n";
        let methods = [Method::Other, Method::Head];
        for length in 1..octets.len() {
            let expected = [100, 200, 200, 304, 204, 500].map(Event::Response);
            assert_eq!(events(false, octets, length, &methods), (expected.to_vec(), false), "{length}");
        }
        let tunnel = b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 404 No\r\n\r\n";
        assert_eq!(events(false, tunnel, 7, &[Method::Connect]).0, [Event::Response(200)]);
    }

    #[test]
    fn missing_octets_of_a_body_lose_nothing_and_those_of_a_head_are_told() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
        let second = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
        let (mut stream, mut count) = (MessageStream::default(), 0);
        let mut read = |sequence: u32, octets: &[u8], wire_octets: u32| {
            stream.read(false, sequence, octets, wire_octets, |_| {
                count += 1;
                Method::Other
            });
            (count, stream.has_missed())
        };
        let body_at = response.len() as u32;
        assert_eq!(read(0, response, body_at), (1, false));
        // The first half was not captured, the second one is truncated.
        assert_eq!(read(body_at + 500, b"HTTP/1.1 500 No", 500), (1, false));
        let next = body_at + 1000;
        assert_eq!(read(next, second, second.len() as u32), (2, false));
        assert_eq!(read(next, second, second.len() as u32), (2, false), "a retransmission");
        let next = next + second.len() as u32 + 7;
        assert_eq!(read(next, b"x: y\r\n\r\n", 8), (2, true));
        assert_eq!(read(next + 8, second, second.len() as u32), (3, true));
    }

    #[test]
    fn a_segment_of_many_short_lines_is_not_read_to_its_end() {
        let (mut stream, mut count, mut sequence) = (MessageStream::default(), 0, 0);
        let mut read = |octets: &[u8]| {
            stream.read(false, sequence, octets, octets.len() as u32, |event| {
                count += usize::from(matches!(event, Event::Request(_)));
                Method::Other
            });
            sequence += octets.len() as u32;
            (count, stream.has_missed())
        };
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nAccept: text/html\r\n\r\n";
        assert_eq!(read(&request.repeat(100)), (100, false));
        assert_eq!(read(&[&b"\n".repeat(1000)[..], request].concat()), (100, true));
        assert_eq!(read(request), (101, true));
    }

    #[test]
    fn dns_messages_are_counted_by_their_lengths() {
        let message = |id: u16, flags: u16, octets: usize| {
            let mut message = ((12 + octets) as u16).to_be_bytes().to_vec();
            message.extend(id.to_be_bytes());
            message.extend(flags.to_be_bytes());
            message.extend(vec![0xff; 8 + octets]);
            message
        };
        let octets = [message(7, 0x0100, 30), message(8, 0x8183, 0), message(9, 0x8002, 1)].concat();
        for length in 1..octets.len() {
            let expected = vec![Event::Question(7), Event::Answer(8, 3), Event::Answer(9, 2)];
            assert_eq!(events(true, &octets, length, &[]), (expected, false), "{length}");
        }
        assert_eq!(events(true, &message(7, 0x7900, 0), 99, &[]), (vec![], true));
    }
}
