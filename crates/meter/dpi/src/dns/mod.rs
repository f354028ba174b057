//! DNS over UDP and TCP (RFC 1035), mDNS (RFC 6762) and LLMNR (RFC 4795).
//!
//! All three have the same messages, so the port distinguishes them: 5353 is mDNS, 5355 LLMNR, and
//! all others DNS. A message is *consistent* if its names, counts and lengths agree and end with
//! it. On other ports than those three, and over TCP, only consistent messages with one question
//! and without values that RFC 6895 reserves are DNS. On those three, a good header and question
//! are enough ([`Confidence::Pattern`]). Messages of NetBIOS (port 137) have the same form and are
//! not DNS. Read by hand, and not by a library: the work per message is bounded, nothing is allocated,
//! and messages that are cut are read as far as they are there.

use crate::findings::{EscapedText, RawText};
use crate::learned::Names;
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Datagram, Fact, Findings, Note, Streams, Verdict};
use arrayvec::ArrayVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_OCTETS: usize = 12;
/// A name of one octet, type and class; in a record also time to live and length.
const MIN_QUESTION_OCTETS: usize = 5;
const MIN_RECORD_OCTETS: usize = 11;
/// Questions and records of a message that are read.
const MAX_RECORDS: usize = 128;
/// Messages of a stream that are read.
const MAX_MESSAGES: usize = 16;
/// Octets of a name on the wire (RFC 1035 section 2.3.4).
const MAX_NAME_OCTETS: usize = 255;
/// Pointers of a name that are followed.
const MAX_POINTERS: usize = 16;

/// The class of the Internet.
const IN: u16 = 1;
/// The bits of a class that are one in mDNS, too.
const CLASS: u16 = 0x7fff;

const DNS: u16 = 53;
const NETBIOS: u16 = 137;
const MDNS: u16 = 5353;
const LLMNR: u16 = 5355;

mod record_type {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
}

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let application = if streams.ports.contains(&LLMNR) { Application::Llmnr } else { Application::Dns };
    let first = read_stream(streams.first, application, true, findings);
    require(first != Err(Verdict::No) || findings.application().is_some())?;
    let second = read_stream(streams.second, application, false, findings);
    match (findings.application(), second) {
        (Some(_), _) => Ok(verdict(findings)),
        (None, Err(Verdict::No)) => Err(Verdict::No),
        (None, _) => Err(Verdict::More),
    }
}

pub(crate) fn read_datagram(datagram: &Datagram<'_>, findings: &mut Findings) -> Read<Verdict> {
    let application = match () {
        () if datagram.ports.contains(&MDNS) => Application::Mdns,
        () if datagram.ports.contains(&LLMNR) => Application::Llmnr,
        () => Application::Dns,
    };
    let known_port = application != Application::Dns || datagram.ports.contains(&DNS);
    require(!datagram.ports.contains(&NETBIOS) && has_possible_header(datagram.payload, known_port))?;
    let message = Message::read(datagram.payload)?;
    require(message.is_plausible(application, findings))?;
    let confidence = match message.rest {
        Ok(()) if known_port || message.is_strict() => Confidence::Message,
        Err(_) if known_port && message.question.is_some() => Confidence::Pattern,
        _ => return Err(Verdict::No),
    };
    if datagram.payload.len() < datagram.wire_octets as usize {
        findings.note(Note::Gap);
    }
    findings.recognise(application, confidence);
    message.find(datagram.from_first, Some(datagram.time_ns), findings);
    Ok(verdict(findings))
}

/// Whether a datagram may begin as a message. This refuses most datagrams of other protocols, and is
/// faster than reading them: nothing is written to memory. On another port than those of DNS all of a
/// message must be there.
fn has_possible_header(octets: &[u8], known_port: bool) -> bool {
    let Some((header, rest)) = octets.split_first_chunk::<HEADER_OCTETS>() else { return false };
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let [questions, records] = [word(4), word(6)].map(usize::from);
    let records = records + usize::from(word(8)) + usize::from(word(10));
    let is_response = header[2] & 0x80 != 0;
    let shortest = questions * MIN_QUESTION_OCTETS + records * MIN_RECORD_OCTETS;
    (is_response || questions + records > 0) && (known_port || shortest <= rest.len())
}

/// Many clients ask for two types at once: the second answer teaches addresses, too.
fn verdict(findings: &Findings) -> Verdict {
    let has_second = !findings.has(Fact::DnsSecondQuestion) || findings.has(Fact::DnsSecondAnswer);
    if findings.has(Fact::DnsRcode) && has_second { Verdict::Complete } else { Verdict::Recognised }
}

/// The addresses in a response to one of the first two questions of a flow, and the name that was
/// asked for.
pub(crate) fn learned<'a>(datagram: &Datagram<'_>, findings: &'a Findings) -> Option<Names<'a>> {
    let asked = question(findings)?;
    let message = Message::read(datagram.payload).ok()?;
    let is_answer = message.answers_first(&asked, findings) || message.answers_second(findings);
    let is_good = message.is_response() && message.rcode == 0 && message.rest.is_ok();
    if !is_answer || !is_good || asked.from_first == datagram.from_first {
        return None;
    }
    // The second question is mostly for another type of the same name.
    let name = findings.text(Fact::DnsName).filter(|_| message.repeats_name(findings))?;
    let (mut owner_at, kind, _) = message.question?;
    let mut names = Names { name, addresses: ArrayVec::new() };
    let mut at = message.answers_at;
    for _ in 0..message.counts[1] {
        let record = message.record(at).ok()?;
        let is_owner = record.class == IN && message.is_same_name(at, owner_at);
        at = record.end;
        if is_owner && record.kind == record_type::CNAME {
            owner_at = record.data_at;
        }
        if !is_owner || record.kind != kind {
            continue;
        }
        let address = match (record.kind, &message.octets[record.data_at..record.end]) {
            (record_type::A, &[a, b, c, d]) => Some(Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()),
            (record_type::AAAA, octets) => octets.try_into().ok(),
            _ => None,
        };
        if let Some(address) = address
            && names.addresses.try_push((address, record.seconds())).is_err()
        {
            break;
        }
    }
    (!names.addresses.is_empty()).then_some(names)
}

/// The name that a response without an error was asked for, escaped as all texts, and the addresses that it has for
/// it, also by way of aliases: at most 128. `None` for all else. It allocates: call it for few messages.
pub fn addresses_of_response(octets: &[u8]) -> Option<(String, Vec<IpAddr>)> {
    let message = Message::read(octets).ok()?;
    let (mut owner_at, kind, _) = message.question?;
    if !message.is_response() || message.rcode != 0 || message.rest.is_err() {
        return None;
    }
    let mut name = RawText::default();
    message.push_name(owner_at, &mut name)?;
    let mut escaped = EscapedText::default();
    escaped.push_with(&name.0, b"");
    let name = str::from_utf8(&escaped.octets).ok()?.to_owned();
    let (mut addresses, mut at) = (Vec::new(), message.answers_at);
    for _ in 0..message.counts[1] {
        let record = message.record(at).ok()?;
        let is_owner = record.class == IN && message.is_same_name(at, owner_at);
        at = record.end;
        if is_owner && record.kind == record_type::CNAME {
            owner_at = record.data_at;
        }
        match (record.kind, &octets[record.data_at..record.end]) {
            (found, &[a, b, c, d]) if is_owner && found == kind && kind == record_type::A => {
                addresses.push(Ipv4Addr::new(a, b, c, d).into());
            }
            (found, data) if is_owner && found == kind && kind == record_type::AAAA => {
                addresses.push(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into());
            }
            _ => {}
        }
    }
    Some((name, addresses))
}

/// Extracts name and type of the first question of a message, which may be cut after it.
pub(crate) fn find_first_question(octets: &[u8], findings: &mut Findings) {
    let Ok(message) = Message::read(octets) else { return };
    if let Some((name_at, kind, _)) = message.question {
        message.find_question(name_at, kind, findings);
    }
}

/// Reads the messages of one side. Each follows its length in 2 octets (RFC 1035 section 4.2.2).
fn read_stream(mut octets: &[u8], application: Application, from_first: bool, findings: &mut Findings) -> Read<()> {
    for _ in 0..MAX_MESSAGES {
        let (length, after) = octets.split_first_chunk().ok_or(Verdict::More)?;
        let length = usize::from(u16::from_be_bytes(*length));
        require(length >= HEADER_OCTETS)?;
        let Some((message, next)) = after.split_at_checked(length) else {
            return match Message::read(after) {
                Ok(message) if message.rest == Err(Verdict::No) || !message.is_strict() => Err(Verdict::No),
                Ok(_) => Err(Verdict::More),
                Err(stop) => Err(stop),
            };
        };
        let message = Message::read(message)?;
        require(message.rest.is_ok() && message.is_strict())?;
        findings.recognise(application, Confidence::Message);
        message.find(from_first, None, findings);
        octets = next;
    }
    Ok(())
}

/// A message whose header is good.
struct Message<'a> {
    octets: &'a [u8],
    id: u16,
    flags: u16,
    /// Questions, answers, authorities, additional records.
    counts: [u16; 4],
    /// Where the name of the first question is, and its type and class.
    question: Option<(usize, u16, u16)>,
    /// Where the answers begin.
    answers_at: usize,
    /// The response code with the part that EDNS adds (RFC 6891 section 6.1.3).
    rcode: u16,
    /// All values are assigned ones.
    is_usual: bool,
    /// Whether everything after the header is good, and ends where the octets end.
    rest: Read<()>,
}

/// A resource record.
struct Record {
    kind: u16,
    class: u16,
    ttl: u32,
    data_at: usize,
    end: usize,
}

impl Record {
    /// Its time to live. Times with the highest bit are 0 (RFC 2181 section 8).
    fn seconds(&self) -> u32 {
        if self.ttl >> 31 == 0 { self.ttl } else { 0 }
    }
}

impl<'a> Message<'a> {
    fn read(octets: &'a [u8]) -> Read<Self> {
        let mut header = Start(octets);
        // The flags contradict first, also in the first octets of a stream.
        let (id, flags) = (header.u16()?, header.u16()?);
        let [is_response, opcode] = [flags >> 15, flags >> 11 & 15];
        require(matches!(opcode, 0 | 2 | 4..=6) && (is_response == 1 || flags & 15 == 0))?;
        let counts = [header.u16()?, header.u16()?, header.u16()?, header.u16()?];
        let mut message = Self {
            octets,
            id,
            flags,
            counts,
            question: None,
            answers_at: HEADER_OCTETS,
            rcode: flags & 15,
            is_usual: opcode != 2 && opcode != 6 && flags & 0x40 == 0,
            rest: Ok(()),
        };
        message.rest = message.read_rest();
        Ok(message)
    }

    fn is_response(&self) -> bool {
        self.flags >> 15 == 1
    }

    /// Whether a datagram may be a message of the protocol of its port. It has a question or a
    /// record, or it is the answer to a question of its flow. mDNS and LLMNR have queries only (RFC
    /// 6762 section 18.3), LLMNR with one question each (RFC 4795 section 2.1.1).
    fn is_plausible(&self, application: Application, findings: &Findings) -> bool {
        let is_answer = self.is_response() && question(findings).is_some_and(|asked| asked.id == self.id);
        let has_content = self.counts != [0; 4] || is_answer;
        let opcode = self.flags >> 11 & 15;
        has_content
            && match application {
                Application::Mdns => opcode == 0,
                Application::Llmnr => opcode == 0 && self.counts[0] == 1,
                // Messages of sessions (RFC 8490) are for TCP.
                _ => opcode != 6,
            }
    }

    /// Whether it has the id of the first question of its flow, and repeats it if it has a question.
    fn answers_first(&self, asked: &Question, findings: &Findings) -> bool {
        let repeats = |(_, kind, class): (usize, u16, u16)| {
            [kind, class & CLASS] == [asked.kind, asked.class & CLASS] && self.repeats_name(findings)
        };
        self.id == asked.id && self.question.is_none_or(repeats)
    }

    /// The same for the second question, whose name is not kept.
    fn answers_second(&self, findings: &Findings) -> bool {
        let Some(second) = findings.number(Fact::DnsSecondQuestion) else { return false };
        second >> 32 == u64::from(self.id) && self.question.is_none_or(|_| second == self.number())
    }

    /// Id, type and class of the question as a number.
    fn number(&self) -> u64 {
        let (_, kind, class) = self.question.unwrap_or_default();
        u64::from(self.id) << 32 | u64::from(kind) << 16 | u64::from(class & CLASS)
    }

    /// Whether it has the name that was asked for first.
    fn repeats_name(&self, findings: &Findings) -> bool {
        let mut name = RawText::default();
        let has_name = self.question.and_then(|(name_at, ..)| self.push_name(name_at, &mut name)).is_some();
        let mut escaped = EscapedText::default();
        escaped.push_with(&name.0, b"");
        match findings.text(Fact::DnsName) {
            Some(asked) => has_name && escaped.octets.eq_ignore_ascii_case(asked.as_bytes()),
            None => !has_name,
        }
    }

    /// Whether two names of the message are the same: without the case of ASCII (RFC 4343).
    fn is_same_name(&self, a: usize, b: usize) -> bool {
        // Most owners are a pointer to the name.
        if b < 0x4000 && self.word(a) == Ok(0xc000 | b as u16) {
            return true;
        }
        let mut names = [RawText::default(), RawText::default()];
        let [first, second] = &mut names;
        self.push_name(a, first).is_some()
            && self.push_name(b, second).is_some()
            && first.0.eq_ignore_ascii_case(&second.0)
    }

    /// Whether a message on any port, or the start of one, is DNS: see the documentation of the
    /// module.
    fn is_strict(&self) -> bool {
        let [questions, answers, ..] = self.counts;
        let is_plain_query = !self.is_response() && self.flags >> 11 & 15 == 0;
        self.is_usual && questions == 1 && !(is_plain_query && answers > 0)
    }

    fn read_rest(&mut self) -> Read<()> {
        let mut at = HEADER_OCTETS;
        let records = self.counts[1..].iter().map(|&count| usize::from(count)).sum::<usize>();
        for _ in 0..usize::from(self.counts[0]).min(MAX_RECORDS) {
            let name_at = at;
            at = self.skip_name(at)?;
            let (kind, class) = (self.word(at)?, self.word(at + 2)?);
            at += 4;
            self.check_class(kind, class)?;
            self.question.get_or_insert((name_at, kind, class));
        }
        self.answers_at = at;
        require(records + usize::from(self.counts[0]) <= MAX_RECORDS)?;
        for _ in 0..records {
            let record = self.record(at)?;
            if record.kind == record_type::OPT {
                self.rcode = (self.flags & 15) | ((record.ttl >> 20) as u16 & 0xff0);
            } else {
                self.check_class(record.kind, record.class)?;
            }
            let expected_end = match record.kind {
                // Updates delete records without data (RFC 2136 section 2.5).
                _ if record.data_at == record.end => record.end,
                record_type::A => record.data_at + 4,
                record_type::AAAA => record.data_at + 16,
                record_type::NS | record_type::CNAME | record_type::PTR => self.skip_name(record.data_at)?,
                _ => record.end,
            };
            require(expected_end == record.end)?;
            at = record.end;
        }
        require(at == self.octets.len())
    }

    /// The highest bit of a class has a meaning of its own in mDNS (RFC 6762 sections 5.4, 10.2).
    fn check_class(&mut self, kind: u16, class: u16) -> Read<()> {
        require(matches!(class & CLASS, 1 | 3 | 4 | 254 | 255) && kind != 0)?;
        self.is_usual &= class >> 15 == 0;
        Ok(())
    }

    fn word(&self, at: usize) -> Read<u16> {
        Start(self.octets.get(at..).unwrap_or_default()).u16()
    }

    fn record(&self, at: usize) -> Read<Record> {
        let at = self.skip_name(at)?;
        let mut head = Start(self.octets.get(at..).unwrap_or_default());
        let (kind, class, ttl) = (head.u16()?, head.u16()?, head.u32()?);
        let data_at = at + 10;
        let end = data_at + usize::from(head.u16()?);
        if end > self.octets.len() {
            return Err(Verdict::More);
        }
        Ok(Record { kind, class, ttl, data_at, end })
    }

    /// The offset after a name. Pointers point to an earlier name (RFC 1035 section 4.1.4).
    fn skip_name(&self, start: usize) -> Read<usize> {
        let mut at = start;
        loop {
            match *self.octets.get(at).ok_or(Verdict::More)? {
                0 => return Ok(at + 1),
                length @ 1..=63 => at += 1 + usize::from(length),
                0xc0.. => {
                    let target = usize::from(self.word(at)? & 0x3fff);
                    return require((HEADER_OCTETS..start).contains(&target)).map(|()| at + 2);
                }
                _ => return Err(Verdict::No),
            }
            require(at - start < MAX_NAME_OCTETS)?;
        }
    }

    /// Appends a name as text, without the dot at its end. `None`: it has a loop, or is too long or
    /// not whole.
    fn push_name(&self, mut start: usize, text: &mut RawText) -> Option<()> {
        let before = text.0.len();
        let mut at = start;
        for _ in 0..MAX_POINTERS {
            while let length @ 1..=63 = *self.octets.get(at)? {
                let label = self.octets.get(at + 1..at + 1 + usize::from(length))?;
                if text.0.len() > before {
                    text.push_octets(b".");
                }
                text.push_octets(label);
                at += 1 + label.len();
                if text.0.len() - before > MAX_NAME_OCTETS {
                    return None;
                }
            }
            match self.word(at) {
                Ok(pointer @ 0xc000..) if usize::from(pointer & 0x3fff) < start => {
                    start = usize::from(pointer & 0x3fff)
                }
                _ if self.octets[at] == 0 => {
                    if text.0.len() == before {
                        text.push_octets(b".");
                    }
                    return Some(());
                }
                _ => return None,
            }
            at = start;
        }
        None
    }

    /// Appends the data of a record, or its type if that has no text, or the data are not of its
    /// form.
    fn push_record(&self, record: &Record, text: &mut RawText) {
        let before = text.0.len();
        if self.push_data(record, text).is_none() {
            text.0.truncate(before);
            text.push(format_args!("TYPE{}", record.kind));
        }
    }

    fn push_data(&self, record: &Record, text: &mut RawText) -> Option<()> {
        let data = &self.octets[record.data_at..record.end];
        match (record.kind, data) {
            (record_type::A, data) => text.push(format_args!("{}", Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?))),
            (record_type::AAAA, data) => {
                text.push(format_args!("{}", Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)))
            }
            (record_type::NS | record_type::CNAME | record_type::PTR | record_type::DNAME, [_, ..]) => {
                self.push_name(record.data_at, text)?;
            }
            (record_type::MX, [high, low, _, ..]) => {
                text.push(format_args!("{} ", u16::from_be_bytes([*high, *low])));
                self.push_name(record.data_at + 2, text)?;
            }
            (record_type::SRV, [a, b, c, d, e, f, _, ..]) => {
                let [priority, weight, port] = [[*a, *b], [*c, *d], [*e, *f]].map(u16::from_be_bytes);
                text.push(format_args!("{priority} {weight} {port} "));
                self.push_name(record.data_at + 6, text)?;
            }
            (record_type::SOA, [_, ..]) => self.push_start_of_authority(record, text)?,
            (record_type::SVCB | record_type::HTTPS, [_, _, _, ..]) => self.push_service(record, text)?,
            _ => return None,
        }
        Some(())
    }

    /// `MNAME RNAME SERIAL REFRESH RETRY EXPIRE MINIMUM` (RFC 1035 section 3.3.13).
    fn push_start_of_authority(&self, record: &Record, text: &mut RawText) -> Option<()> {
        self.push_name(record.data_at, text)?;
        let at = self.skip_name(record.data_at).ok()?;
        text.push_octets(b" ");
        self.push_name(at, text)?;
        let at = self.skip_name(at).ok()?;
        let (numbers, rest) = self.octets.get(at..record.end)?.as_chunks();
        for number in numbers {
            text.push(format_args!(" {}", u32::from_be_bytes(*number)));
        }
        (numbers.len() == 5 && rest.is_empty()).then_some(())
    }

    /// `PRIORITY TARGET` and the parameters in presentation format (RFC 9460 section 2.1).
    fn push_service(&self, record: &Record, text: &mut RawText) -> Option<()> {
        let priority = self.word(record.data_at).ok()?;
        text.push(format_args!("{priority} "));
        self.push_name(record.data_at + 2, text)?;
        let mut at = self.skip_name(record.data_at + 2).ok()?;
        while at < record.end {
            let (key, length) = (self.word(at).ok()?, self.word(at + 2).ok()?);
            let end = at + 4 + usize::from(length);
            let value = self.octets.get(at + 4..end).filter(|_| end <= record.end)?;
            match (key, value) {
                (1, mut ids) => {
                    let mut separator: &[u8] = b" alpn=";
                    while let [length, rest @ ..] = ids {
                        let (id, next) = rest.split_at(usize::from(*length).min(rest.len()));
                        text.push_octets(separator);
                        // A comma of an id has a backslash (RFC 9460 appendix A.1).
                        for octet in id {
                            text.push_octets(if b",\\".contains(octet) { b"\\" } else { b"" });
                            text.push_octets(&[*octet]);
                        }
                        (separator, ids) = (b",", next);
                    }
                }
                (3, [high, low]) => text.push(format_args!(" port={}", u16::from_be_bytes([*high, *low]))),
                (4, hints) => push_hints(" ipv4hint=", hints.as_chunks().0, |hint: &[u8; 4]| (*hint).into(), text),
                (5, _) => text.push_octets(b" ech"),
                (6, hints) => push_hints(" ipv6hint=", hints.as_chunks().0, |hint: &[u8; 16]| (*hint).into(), text),
                (key, _) => text.push(format_args!(" key{key}")),
            }
            at = end;
        }
        Some(())
    }

    /// Extracts the fields of a message.
    fn find(&self, from_first: bool, time_ns: Option<u64>, findings: &mut Findings) {
        let asked = question(findings);
        if !self.is_response() {
            if let Some((name_at, kind, class)) = self.question.filter(|_| asked.is_none()) {
                self.find_question(name_at, kind, findings);
                let mut question = ArrayVec::<u8, 15>::from_iter(self.id.to_be_bytes());
                question.push(from_first.into());
                question.extend(time_ns.unwrap_or_default().to_be_bytes());
                question.extend([kind, class].map(u16::to_be_bytes).into_iter().flatten());
                findings.set_octets(Fact::DnsQuestion, &question);
            } else if asked.is_some_and(|asked| !self.answers_first(&asked, findings)) {
                findings.set_number(Fact::DnsSecondQuestion, self.number());
            }
            return;
        }
        let answers_first = asked.as_ref().is_some_and(|asked| self.answers_first(asked, findings));
        if !answers_first && self.answers_second(findings) {
            findings.set_number(Fact::DnsSecondAnswer, 1);
            return;
        }
        if findings.has(Fact::DnsRcode) {
            return;
        }
        match asked {
            Some(asked) => {
                if !answers_first || asked.from_first == from_first {
                    return;
                }
                if let Some(response_ns) = time_ns.and_then(|time_ns| time_ns.checked_sub(asked.time_ns)) {
                    findings.set_number(Fact::DnsResponseNs, response_ns);
                }
            }
            // The question was not captured, or no one asked (mDNS); the answer may repeat it.
            None => {
                if let Some((name_at, kind, _)) = self.question {
                    self.find_question(name_at, kind, findings);
                }
            }
        }
        findings.set_number(Fact::DnsRcode, u64::from(self.rcode));
        self.find_answers(findings);
    }

    fn find_question(&self, name_at: usize, kind: u16, findings: &mut Findings) {
        let mut name = RawText::default();
        if self.push_name(name_at, &mut name).is_some() {
            findings.set_text(Fact::DnsName, &name.0);
        }
        findings.set_number(Fact::DnsType, u64::from(kind));
    }

    fn find_answers(&self, findings: &mut Findings) {
        let mut list = EscapedText::default();
        let mut at = self.answers_at;
        for _ in 0..self.counts[1] {
            let Ok(record) = self.record(at) else { break };
            list.begin_entry();
            let data = &self.octets[record.data_at..record.end];
            if record.kind != record_type::TXT || push_strings(data, &mut list).is_none() {
                let mut text = RawText::default();
                self.push_record(&record, &mut text);
                list.push_with(&text.0, b",");
            }
            at = record.end;
            if list.cut {
                break;
            }
        }
        if !list.octets.is_empty() {
            findings.set_escaped(Fact::DnsAnswers, &list);
        }
    }
}

/// Appends a list of addresses after the name of its parameter.
fn push_hints<T>(name: &str, hints: &[T], address: impl Fn(&T) -> IpAddr, text: &mut RawText) {
    for (at, hint) in hints.iter().enumerate() {
        let separator = if at == 0 { name } else { "," };
        text.push(format_args!("{separator}{}", address(hint)));
    }
}

/// The first question of a flow. Its name is [`Fact::DnsName`].
struct Question {
    id: u16,
    /// Whether the first side asked.
    from_first: bool,
    time_ns: u64,
    kind: u16,
    class: u16,
}

fn question(findings: &Findings) -> Option<Question> {
    let [a, b, from_first, time_ns @ .., c, d, e, f] = *findings.octets(Fact::DnsQuestion)?.first_chunk::<15>()?;
    let [id, kind, class] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
    Some(Question { id, from_first: from_first == 1, time_ns: u64::from_be_bytes(time_ns), kind, class })
}

/// Appends character strings in quotes (RFC 1035 section 3.3.14). `None`: the lengths do not agree.
fn push_strings(data: &[u8], text: &mut EscapedText) -> Option<()> {
    let mut rest = Start((!data.is_empty()).then_some(data)?);
    while !rest.0.is_empty() {
        rest.vector8().ok()?;
    }
    let mut separator: &[u8] = b"\"";
    rest = Start(data);
    while let Ok(string) = rest.vector8() {
        text.push(separator);
        text.push_with(string, b",\"");
        text.push(b"\"");
        separator = b" \"";
    }
    Some(())
}

#[cfg(test)]
mod tests;
