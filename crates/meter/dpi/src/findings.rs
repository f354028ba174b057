//! What inspection found out about a flow.

use crate::{Application, Confidence, MessageCounts};
use arrayvec::ArrayVec;
use std::fmt;
use std::io::Write;

/// Octets that findings hold at most, the names and lengths of extracted fields included.
pub const MAX_FINDINGS_OCTETS: usize = 2048;
/// Octets that the extracted fields of most flows take.
const USUAL_OCTETS: usize = 384;
/// Octets of a text that are kept at most, after escaping.
pub const MAX_TEXT_OCTETS: usize = 255;

/// Defines the extracted fields, and the list of them.
macro_rules! facts {
    ($($(#[$description:meta])+ $fact:ident,)+) => {
        /// An extracted field. Texts are UTF-8 without control characters and without invisible
        /// ones: their octets, and octets that are not UTF-8, are written `\xNN`, and a backslash is
        /// written twice. So are commas in an entry of a list, and quotes in a string of DNS. Names of
        /// certificates have the escapes of RFC 4514 instead.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Fact {
            $($(#[$description])+ $fact,)+
        }

        impl Fact {
            /// All extracted fields in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$fact,)+];
        }
    };
}

facts! {
    /// Text: the server name that the client asks for (TLS SNI, QUIC).
    ServerName,
    /// Text: the protocols that the client offers (ALPN), separated by commas.
    AlpnOffered,
    /// Text: the protocol that the server selected (ALPN); TLS 1.3 encrypts it.
    AlpnSelected,
    /// Number: the TLS version that the server selected, as on the wire (0x0303 is TLS 1.2).
    TlsVersion,
    /// Number: the cipher suite that the server selected.
    TlsCipher,
    /// Octets: the fields of the ClientHello that the fingerprints JA3 and JA4 are made of. None: it was
    /// read without fingerprints.
    TlsClientHello,
    /// Octets: the fields of the ServerHello that the fingerprint JA3S is made of.
    TlsServerHello,
    /// Number, 1: the ClientHello has the extension `encrypted_client_hello` (ECH), so the server
    /// name is that of the outer ClientHello. A client that sends the extension as GREASE looks the
    /// same.
    TlsEch,
    /// Number, level * 256 + description: the first alert of the server before its ServerHello, or
    /// instead of it. By a fatal one it refuses the ClientHello.
    TlsAlert,
    /// Text: subject of the server's certificate (RFC 4514).
    CertificateSubject,
    /// Text: its issuer.
    CertificateIssuer,
    /// Number: begin of its validity, seconds since 1970 UTC. Times before 1970 and after
    /// 2554-07-21 are the nearest of these, with [`Note::Cut`].
    CertificateNotBefore,
    /// Number: end of its validity.
    CertificateNotAfter,
    /// Text: its DNS names and addresses, separated by commas.
    CertificateNames,
    /// Number: the version of QUIC as on the wire.
    QuicVersion,
    /// Text: the name that DNS, mDNS or LLMNR was first asked for.
    DnsName,
    /// Number: the type of that question.
    DnsType,
    /// Number: the response code of the first answer to it.
    DnsRcode,
    /// Text: the records of that answer in the order of the message, separated by commas.
    DnsAnswers,
    /// Number: ns from the first question to the first answer to it.
    DnsResponseNs,
    /// Text: the host of the first request (HTTP `Host`, HTTP/2 `:authority`).
    HttpHost,
    /// Text: the method of the first request.
    HttpMethod,
    /// Text, personal: the path of the first request.
    HttpPath,
    /// Text, personal: its user agent.
    HttpUserAgent,
    /// Number: the status of the first final response.
    HttpStatus,
    /// Text: the content type of that response.
    HttpContentType,
    /// Text: the identification string of the client.
    SshClient,
    /// Text: the identification string of the server.
    SshServer,
    /// Text: HASSH, the fingerprint of the client.
    Hassh,
    /// Text: HASSH, the fingerprint of the server.
    HasshServer,
    /// Text, personal: the account, caller or client that the first message names (SMTP `MAIL
    /// FROM`, SIP `From`, MQTT client identifier, RDP cookie, PostgreSQL `user`).
    User,
    /// Text: the software that the server names in its greeting.
    ServerSoftware,
    /// Text: the protocol in the words of nDPI, with the one that it is within (`TLS.Google`).
    NdpiProtocol,
    /// Text: its category in the words of nDPI.
    NdpiCategory,
    /// Text: how nDPI knows it.
    NdpiConfidence,
    /// Text: the risks that nDPI sees, separated by commas.
    NdpiRisks,
    /// Octets: the first question of DNS, for its reader, which makes [`Self::DnsResponseNs`] of
    /// it.
    DnsQuestion,
    /// Number: id, type and class of a second question of DNS, for its reader.
    DnsSecondQuestion,
    /// Number, 1: it was answered.
    DnsSecondAnswer,
    /// Text: the name that a response of DNS had for the address of the other side, which the
    /// client asked for before.
    LearnedName,
}

impl Fact {
    /// Whether it is personal data. Such fields are extracted on request only.
    pub const fn is_personal(self) -> bool {
        matches!(self, Self::HttpPath | Self::HttpUserAgent | Self::User)
    }
}

/// A limit that findings met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Note {
    /// Octets are missing: lost, not captured, or before the start of the capture.
    Gap = 1,
    /// A retransmission had other octets than the first transmission, which was used.
    Conflict = 2,
    /// A text was longer than [`MAX_TEXT_OCTETS`], or an extracted field did not fit.
    Cut = 4,
    /// The limit of packets, octets or memory was reached before everything was found.
    Limit = 8,
    /// Overload left out a fingerprint: JA3, JA4, JA3S or HASSH.
    Unfingerprinted = 16,
}

impl Note {
    /// All notes with their names, the words of the field `application_notes`.
    pub const NAMES: [(Self, &'static str); 5] = [
        (Self::Gap, "gap"),
        (Self::Conflict, "conflict"),
        (Self::Cut, "cut"),
        (Self::Limit, "limit"),
        (Self::Unfingerprinted, "unfingerprinted"),
    ];
}

/// A set of notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes(pub u8);

impl Notes {
    /// Adds a note.
    pub fn add(&mut self, note: Note) {
        self.0 |= note as u8;
    }

    /// Whether a note is in the set.
    pub fn has(self, note: Note) -> bool {
        self.0 & note as u8 != 0
    }

    /// Names of the notes in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Note::NAMES.into_iter().filter(move |(note, _)| self.has(*note)).map(|(_, name)| name)
    }
}

/// What inspection has found in a flow: the application and extracted fields ([`Fact`]).
///
/// A field keeps its first value: readers may see the same octets again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub(crate) application: Option<(Application, Confidence)>,
    pub(crate) notes: Notes,
    /// Personal fields are extracted.
    personal: bool,
    /// Fingerprints are left out.
    without_fingerprints: bool,
    /// Per extracted field: its number, the length of its value in 2 octets, the value.
    pub(crate) facts: Vec<u8>,
    /// A reader left out a part of the packet that it reads, which would have taken too long.
    is_work_limited: bool,
    /// The messages of the record, if they are counted.
    messages: Option<Box<MessageCounts>>,
}

impl Findings {
    /// Nothing found yet. `personal`: personal fields are extracted, see [`Fact::is_personal`].
    pub fn new(personal: bool) -> Self {
        Self { personal, ..Self::default() }
    }

    /// Forgets everything, and keeps at most this much memory.
    pub(crate) fn clear(&mut self, kept_octets: usize) {
        (self.application, self.notes, self.messages) = (None, Notes::default(), None);
        self.is_work_limited = false;
        self.facts.clear();
        self.facts.shrink_to(kept_octets);
    }

    /// Whether nothing was noted since it was made or cleared.
    pub(crate) fn is_clear(&self) -> bool {
        self.application.is_none() && self.facts.is_empty() && self.notes == Notes::default()
    }

    /// Whether nothing was found, and neither a limit nor missing octets were the reason.
    pub fn is_empty(&self) -> bool {
        let has_reason = self.notes.has(Note::Limit) || self.notes.has(Note::Gap);
        self.application.is_none() && self.facts.is_empty() && !has_reason
    }

    /// The application and how it is known, if it is.
    pub fn application(&self) -> Option<(Application, Confidence)> {
        self.application
    }

    /// The limits that were met.
    pub fn notes(&self) -> Notes {
        self.notes
    }

    /// Names the application. What is known of it for certain stays so.
    pub fn recognise(&mut self, application: Application, confidence: Confidence) {
        let is_certain = |(known, by): (Application, Confidence)| known == application && by <= confidence;
        if !self.application.is_some_and(is_certain) {
            self.application = Some((application, confidence));
        }
    }

    /// Takes over extracted fields and notes that were known before.
    pub(crate) fn restore_facts(&mut self, known: &Self) {
        self.notes = known.notes;
        self.facts.clone_from(&known.facts);
    }

    /// The messages of the record, if they were counted.
    pub fn messages(&self) -> Option<&MessageCounts> {
        self.messages.as_deref()
    }

    /// Counts of the messages of one protocol, in place of those of another one.
    pub fn messages_of(&mut self, is_http: bool) -> &mut MessageCounts {
        let none = MessageCounts { is_http, ..MessageCounts::default() };
        let counts = self.messages.get_or_insert_with(|| Box::new(none));
        if counts.is_http != is_http {
            **counts = none;
        }
        counts
    }

    pub(crate) fn set_messages(&mut self, counts: MessageCounts) {
        self.messages = Some(Box::new(counts));
    }

    /// Adds a note.
    pub fn note(&mut self, note: Note) {
        self.notes.add(note);
    }

    /// Notes that a part of a packet is not read, which would take too long.
    pub(crate) fn limit_work(&mut self) {
        self.note(Note::Limit);
        self.is_work_limited = true;
    }

    /// Whether a part of a packet was not read since the last call.
    pub(crate) fn take_work_limited(&mut self) -> bool {
        std::mem::take(&mut self.is_work_limited)
    }

    /// Whether an extracted field is known.
    pub fn has(&self, fact: Fact) -> bool {
        self.octets(fact).is_some()
    }

    /// The same without extracted fields.
    pub fn without_facts(&self) -> Self {
        Self { facts: Vec::new(), messages: self.messages.clone(), ..*self }
    }

    /// The value of an extracted field that is octets.
    pub fn octets(&self, fact: Fact) -> Option<&[u8]> {
        let mut rest = self.facts.as_slice();
        while let [number, high, low, after @ ..] = rest {
            let (value, next) = after.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
            if *number == fact as u8 {
                return Some(value);
            }
            rest = next;
        }
        None
    }

    /// The value of an extracted field that is a text.
    pub fn text(&self, fact: Fact) -> Option<&str> {
        self.octets(fact).and_then(|octets| std::str::from_utf8(octets).ok())
    }

    /// The value of an extracted field that is a number.
    pub fn number(&self, fact: Fact) -> Option<u64> {
        self.octets(fact)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// Leaves out fingerprints from now on, or no longer.
    pub(crate) fn set_without_fingerprints(&mut self, without_fingerprints: bool) {
        self.without_fingerprints = without_fingerprints;
    }

    /// Whether fingerprints are left out. Notes it if so: call it where one would be computed.
    pub(crate) fn leaves_out_fingerprint(&mut self) -> bool {
        if self.without_fingerprints {
            self.note(Note::Unfingerprinted);
        }
        self.without_fingerprints
    }

    /// Whether an extracted field is kept and not yet known.
    pub(crate) fn takes(&self, fact: Fact) -> bool {
        (self.personal || !fact.is_personal()) && !self.has(fact)
    }

    /// Sets an extracted field that is octets, unless it is known, is not kept, or does not fit.
    pub fn set_octets(&mut self, fact: Fact, value: &[u8]) {
        if !self.takes(fact) {
            return;
        }
        let Some(length) =
            u16::try_from(value.len()).ok().filter(|_| self.facts.len() + 3 + value.len() <= MAX_FINDINGS_OCTETS)
        else {
            return self.note(Note::Cut);
        };
        if self.facts.capacity() == 0 {
            self.facts.reserve(USUAL_OCTETS.max(3 + value.len()));
        }
        self.facts.push(fact as u8);
        self.facts.extend(length.to_be_bytes());
        self.facts.extend(value);
    }

    /// Sets an extracted field that is a number.
    pub fn set_number(&mut self, fact: Fact, value: u64) {
        self.set_octets(fact, &value.to_be_bytes());
    }

    /// Sets an extracted field that is a text, from the octets of the payload.
    pub fn set_text(&mut self, fact: Fact, value: &[u8]) {
        // Readers see the same octets again with each packet.
        if self.takes(fact) {
            let mut text = EscapedText::default();
            text.push_with(value, b"");
            self.set_escaped(fact, &text);
        }
    }

    /// Sets an extracted field that is a list of texts. A comma in one of them is `\x2c`.
    pub fn set_list<'a>(&mut self, fact: Fact, values: impl IntoIterator<Item = &'a [u8]>) {
        if !self.takes(fact) {
            return;
        }
        let mut text = EscapedText::default();
        values.into_iter().for_each(|value| text.push_entry(value));
        self.set_escaped(fact, &text);
    }

    /// Sets an extracted field that is a text, which was escaped before.
    pub(crate) fn set_escaped(&mut self, fact: Fact, text: &EscapedText) {
        if text.cut {
            self.note(Note::Cut);
        }
        self.set_octets(fact, &text.octets);
    }
}

/// A text of bounded length that is built up.
#[derive(Default)]
pub(crate) struct EscapedText {
    pub(crate) octets: ArrayVec<u8, MAX_TEXT_OCTETS>,
    /// Octets were left out.
    pub(crate) cut: bool,
    /// It is a list that has an entry.
    has_entry: bool,
}

impl EscapedText {
    /// Appends octets, all or none. After the first that did not fit, none.
    pub(crate) fn push(&mut self, octets: &[u8]) {
        self.cut = self.cut || self.octets.try_extend_from_slice(octets).is_err();
    }

    /// Begins an entry of a list.
    pub(crate) fn begin_entry(&mut self) {
        if std::mem::replace(&mut self.has_entry, true) {
            self.push(b",");
        }
    }

    /// Appends an entry of a list.
    pub(crate) fn push_entry(&mut self, value: &[u8]) {
        self.begin_entry();
        self.push_with(value, b",");
    }

    /// Appends octets of the payload. `special`: ASCII characters that have a meaning in the text
    /// around them.
    pub(crate) fn push_with(&mut self, mut value: &[u8], special: &[u8]) {
        // What does not fit is not looked at, but for the character that shows it.
        value = &value[..value.len().min(MAX_TEXT_OCTETS + 4)];
        // Most texts are of this kind.
        let is_plain = |octet: u8| matches!(octet, b' '..=b'~') && octet != b'\\' && !special.contains(&octet);
        let plain = value.iter().position(|octet| !is_plain(*octet));
        let (start, rest) = value.split_at(plain.unwrap_or(value.len()).min(self.octets.remaining_capacity()));
        self.push(start);
        value = rest;
        for chunk in value.utf8_chunks() {
            for character in chunk.valid().chars() {
                let mut buffer = [0; 4];
                match character {
                    '\\' => self.push(br"\\"),
                    _ if is_unprintable(character)
                        || u8::try_from(character).is_ok_and(|octet| special.contains(&octet)) =>
                    {
                        character.encode_utf8(&mut buffer).bytes().for_each(|octet| self.push_hexadecimal(octet));
                    }
                    _ => self.push(character.encode_utf8(&mut buffer).as_bytes()),
                }
                if self.cut {
                    return;
                }
            }
            chunk.invalid().iter().for_each(|&octet| self.push_hexadecimal(octet));
        }
    }

    fn push_hexadecimal(&mut self, octet: u8) {
        let [high, low] = hexadecimal(&[octet]);
        self.push(&[b'\\', b'x', high, low]);
    }
}

/// A text before it is escaped. It holds more octets than an extracted field may have, so the field is cut, and
/// that is noted.
#[derive(Default)]
pub(crate) struct RawText(pub(crate) ArrayVec<u8, { MAX_TEXT_OCTETS + 64 }>);

impl RawText {
    /// Appends octets, as far as they fit.
    pub(crate) fn push_octets(&mut self, octets: &[u8]) {
        let length = octets.len().min(self.0.remaining_capacity());
        self.0.extend(octets[..length].iter().copied());
    }

    pub(crate) fn push(&mut self, text: fmt::Arguments<'_>) {
        // An error means that it did not fit.
        let _ = self.0.write_fmt(text);
    }
}

/// Whether a character is a control character, or an invisible one that can change how the text
/// around it looks: those with the property `Default_Ignorable_Code_Point` of Unicode (marks of the
/// direction of writing, characters without width, selectors of variants, fillers, tags), line and
/// paragraph separators, interlinear annotations, and the format characters of shorthand and music.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}')
        || matches!(character, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(character, '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(character, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text of the user's files without what could change how a terminal shows it: control characters
/// and invisible ones are written `\xNN`, an octet each.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unprintable(character) {
            for octet in character.encode_utf8(&mut [0; 4]).bytes() {
                shown.push_str("\\x");
                shown.extend(hexadecimal::<2>(&[octet]).map(char::from));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Octets as two digits each.
pub(crate) fn hexadecimal<const N: usize>(octets: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| b"0123456789abcdef"[usize::from(octets[at / 2] >> (4 * (1 - at % 2)) & 15)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fact_that_is_set_once_stays() {
        let mut findings = Findings::new(false);
        findings.set_text(Fact::ServerName, b"a.example");
        findings.set_text(Fact::ServerName, b"b.example");
        findings.set_number(Fact::TlsVersion, 0x304);
        assert_eq!(findings.text(Fact::ServerName), Some("a.example"));
        assert_eq!(findings.number(Fact::TlsVersion), Some(0x304));
        assert_eq!(findings.number(Fact::TlsCipher), None);
    }

    #[test]
    fn what_is_certain_stays_so() {
        let mut findings = Findings::new(false);
        let pattern = (Application::Dns, Confidence::Pattern);
        let message = (Application::Dns, Confidence::Message);
        for (named, expected) in [
            (pattern, pattern),
            (message, message),
            (pattern, message),
            ((Application::Ssh, Confidence::Pattern), (Application::Ssh, Confidence::Pattern)),
        ] {
            findings.recognise(named.0, named.1);
            assert_eq!(findings.application(), Some(expected));
        }
    }

    #[test]
    fn personal_facts_are_kept_on_request_only() {
        for personal in [false, true] {
            let mut findings = Findings::new(personal);
            findings.set_text(Fact::HttpPath, b"/");
            assert_eq!(findings.has(Fact::HttpPath), personal);
        }
    }

    #[test]
    fn text_is_escaped_and_cut() {
        let mut findings = Findings::new(false);
        findings.set_list(Fact::ServerName, [b"a\\\n\xff\xc3\xa9,\"".as_slice(), "\u{85}".as_bytes()]);
        assert_eq!(findings.text(Fact::ServerName), Some("a\\\\\\x0a\\xff\u{e9}\\x2c\",\\xc2\\x85"));
        findings.set_text(Fact::HttpPath, b"a,b");
        findings.set_text(Fact::User, b"a,b\\");
        assert_eq!(findings.notes(), Notes::default());
        findings.set_text(Fact::HttpHost, &[b'x'; MAX_TEXT_OCTETS]);
        assert_eq!(findings.notes(), Notes::default());
        findings.set_text(Fact::HttpMethod, &[b"x".repeat(MAX_TEXT_OCTETS - 1), "\u{e9}".into()].concat());
        assert_eq!(findings.text(Fact::HttpMethod).map(str::len), Some(MAX_TEXT_OCTETS - 1));
        assert_eq!(findings.notes().names().collect::<Vec<_>>(), ["cut"]);
    }

    #[test]
    fn invisible_characters_are_escaped_and_visible_ones_are_not() {
        for character in
            "\u{34f}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180f}\u{3164}\u{fe00}\u{fe0f}\u{ffa0}\u{fff0}\u{1bca0}\
            \u{1d173}\u{1d17a}\u{e0100}\u{e01ef}\u{e0fff}"
                .chars()
        {
            let escaped: String = character.to_string().bytes().map(|octet| format!("\\x{octet:02x}")).collect();
            let mut text = EscapedText::default();
            text.push_with(character.to_string().as_bytes(), b"");
            assert_eq!(String::from_utf8_lossy(&text.octets), escaped);
            assert_eq!(printable(&format!("a{character}b")), format!("a{escaped}b"));
        }
        let visible =
            "\u{e9}\u{350}\u{115e}\u{1161}\u{17b3}\u{180a}\u{1810}\u{3163}\u{fe10}\u{ffa1}\u{fffc}\u{1bca4}\u{e1000}\\";
        assert_eq!(printable(visible), visible);
    }

    #[test]
    fn findings_are_bounded() {
        let mut findings = Findings::new(true);
        for &fact in Fact::ALL {
            findings.set_octets(fact, &[0; 500]);
        }
        assert!(findings.facts.len() <= MAX_FINDINGS_OCTETS);
        assert!(findings.has(Fact::TlsVersion) && !findings.has(Fact::TlsCipher));
        assert_eq!(findings.notes().names().collect::<Vec<_>>(), ["cut"]);
    }
}
