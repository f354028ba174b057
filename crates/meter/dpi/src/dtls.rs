//! DTLS 1.0 (RFC 4347), 1.2 (RFC 6347) and 1.3 (RFC 9147).
//!
//! Reads the messages that the reader of TLS reads, datagram by datagram. The fragments of a message
//! may come in any order and over several datagrams. Records without a hello are a pattern
//! ([`Confidence::Pattern`]). Encrypted records of DTLS 1.3 have other headers, and recognise
//! nothing.

use crate::quic::crypto_stream::CryptoStream;
use crate::start::{Read, Start, require};
use crate::tls::hello::{CERTIFICATE, CLIENT_HELLO, Next, SERVER_HELLO, read_client_hello, read_server_message};
use crate::tls::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, MAX_RECORD_OCTETS, Message};
use crate::{Application, Confidence, Datagram, Fact, Findings, Verdict};

/// How often messages in fragments are read in a datagram.
const MAX_READS: u8 = 4;

/// A record (RFC 6347 section 4.1).
struct Record<'a> {
    kind: u8,
    epoch: u16,
    /// Its octets, as far as they were captured.
    content: &'a [u8],
}

/// What the reader keeps of a flow between datagrams: a message in fragments.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The side that sent payload first sent the ServerHello.
    server_is_first: Option<bool>,
    message: Option<Head>,
    pub(crate) octets: CryptoStream,
}

/// The head of a message, which all its fragments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    from_first: bool,
    kind: u8,
    number: u16,
    octets: usize,
}

/// Reads the next datagram of a flow. The state is made for the first message that needs it.
pub fn read(state: &mut Option<Box<State>>, datagram: &Datagram<'_>, findings: &mut Findings) -> Verdict {
    let missing_octets = (datagram.wire_octets as usize).saturating_sub(datagram.payload.len());
    let (mut rest, mut is_finished, mut are_records, mut alert) = (Start(datagram.payload), false, false, None);
    let from_first = datagram.from_first;
    let mut messages =
        Messages { state, findings, from_first, is_message: false, has_fragments: false, reads: MAX_READS };
    while !rest.0.is_empty() {
        let Ok(record) = split_record(&mut rest, missing_octets) else {
            are_records = false;
            break;
        };
        (are_records, alert) = (true, None);
        match record {
            // Peers drop empty records. A hello may follow.
            Record { content: [], .. } => {}
            Record { kind: HANDSHAKE, epoch: 0, content } => is_finished |= messages.read_record(content),
            Record { kind: ALERT, epoch: 0, content: &[level @ 1..=2, description] } => {
                alert = Some(u16::from_be_bytes([level, description]));
                // A hello may follow a warning that does not close.
                is_finished |= level != 1 || description == 0;
            }
            _ => is_finished = true,
        }
    }
    is_finished |= messages.read_fragments();
    let is_message = messages.is_message;
    if let Some(alert) = alert.filter(|_| are_records && findings.has(Fact::TlsClientHello) && !is_message) {
        // The server refuses the ClientHello, or warns.
        findings.set_number(Fact::TlsAlert, alert.into());
    }
    if !is_message && !are_records {
        return Verdict::No;
    }
    if findings.application().is_none() {
        findings.recognise(Application::Dtls, Confidence::Pattern);
    }
    if is_finished { Verdict::Complete } else { Verdict::Recognised }
}

/// Splits off a record. `missing_octets` of the datagram were not captured.
fn split_record<'a>(datagram: &mut Start<'a>, missing_octets: usize) -> Read<Record<'a>> {
    let (kind, version, epoch) = (datagram.u8()?, datagram.u16()?, datagram.u16()?);
    // The sequence number.
    datagram.take(6)?;
    let octets = datagram.u16()?;
    require((CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind) && matches!(version, 0xfeff | 0xfefd))?;
    require(octets <= MAX_RECORD_OCTETS && usize::from(octets) <= datagram.0.len() + missing_octets)?;
    Ok(Record { kind, epoch, content: datagram.take_up_to(octets.into()) })
}

/// The messages in a datagram. Functions that read them return whether nothing is left to be read of the flow.
struct Messages<'a> {
    state: &'a mut Option<Box<State>>,
    findings: &'a mut Findings,
    from_first: bool,
    /// There was a hello.
    is_message: bool,
    /// Fragments were added to a message, which was not read since.
    has_fragments: bool,
    /// How often messages in fragments are still read.
    reads: u8,
}

impl Messages<'_> {
    /// Reads the messages in a record.
    fn read_record(&mut self, content: &[u8]) -> bool {
        let mut rest = Start(content);
        while let Ok((head, offset, fragment)) = split_fragment(&mut rest, self.from_first) {
            // Once for all of them, and not for each: a datagram can have a hundred.
            let is_other = self.state.as_ref().is_some_and(|state| state.message != Some(head));
            if is_other && self.read_fragments() {
                return true;
            }
            // Other messages than hellos have nothing that only they have.
            let is_of_server = self.state.as_ref().is_some_and(|state| state.server_is_first == Some(self.from_first));
            let has_facts = matches!(head.kind, CLIENT_HELLO | SERVER_HELLO | CERTIFICATE);
            let is_expected = matches!(head.kind, CLIENT_HELLO | SERVER_HELLO) || self.is_message || is_of_server;
            if !is_expected || (offset > 0 && !has_facts) {
                continue;
            }
            if fragment.len() < head.octets && has_facts {
                self.state.get_or_insert_default().add(head, offset, fragment, self.findings);
                self.has_fragments = true;
                continue;
            }
            let next = read_message(head, fragment, self.findings);
            if self.take(head, next) {
                return true;
            }
        }
        false
    }

    /// Reads the message whose fragments came, as far as it is there.
    fn read_fragments(&mut self) -> bool {
        if !std::mem::take(&mut self.has_fragments) || self.reads == 0 {
            return false;
        }
        self.reads -= 1;
        let Some((head, octets)) = self.state.as_ref().and_then(|state| state.message_so_far()) else { return false };
        let next = read_message(head, octets, self.findings);
        self.take(head, next)
    }

    /// Takes what a message was.
    fn take(&mut self, head: Head, next: Next) -> bool {
        self.is_message |= !matches!(next, Next::Foreign | Next::Undecided);
        match (head.kind, next) {
            (SERVER_HELLO, Next::Message) => {
                self.state.get_or_insert_default().server_is_first = Some(head.from_first);
            }
            (CLIENT_HELLO, _) => {}
            (_, Next::Nothing) => return true,
            _ => {}
        }
        false
    }
}

impl State {
    /// Adds a fragment of a message, which replaces an earlier message.
    fn add(&mut self, head: Head, offset: usize, fragment: &[u8], findings: &mut Findings) {
        if self.message != Some(head) {
            self.message = Some(head);
            self.octets.clear();
        }
        self.octets.insert(offset as u64, fragment, findings);
    }

    /// The message whose fragments came last, as far as it is there.
    fn message_so_far(&self) -> Option<(Head, &[u8])> {
        let (head, octets) = (self.message?, self.octets.contiguous());
        Some((head, &octets[..octets.len().min(head.octets)]))
    }
}

/// Reads a message as far as it is there.
fn read_message(head: Head, body: &[u8], findings: &mut Findings) -> Next {
    let read = if head.kind == CLIENT_HELLO { read_client_hello } else { read_server_message };
    read(Message { kind: head.kind, body, whole: body.len() == head.octets }, Application::Dtls, findings)
}

/// Splits off a fragment of a message (RFC 6347 section 4.2.2): where it is in the message, and its octets as
/// far as they were captured.
fn split_fragment<'a>(rest: &mut Start<'a>, from_first: bool) -> Read<(Head, usize, &'a [u8])> {
    let (kind, octets, number) = (rest.u8()?, rest.u24()?, rest.u16()?);
    let (offset, fragment_octets) = (rest.u24()?, rest.u24()?);
    require(offset + fragment_octets <= octets)?;
    Ok((Head { from_first, kind, number, octets }, offset, rest.take_up_to(fragment_octets)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ja4;

    /// A ClientHello of DTLS 1.3 for `a.example`, without the header of its message.
    fn client_hello() -> Vec<u8> {
        let name = b"\0\0\0\x0e\0\x0c\0\0\x09a.example";
        let versions = b"\0\x2b\0\x05\x04\xfe\xfc\xfe\xfd";
        let extensions = [&[0, (name.len() + versions.len()) as u8], &name[..], versions].concat();
        [&[0xfe, 0xfd][..], &[7; 32], &[0, 0, 0, 2, 0x13, 1, 1, 0], &extensions].concat()
    }

    fn fragment(range: std::ops::Range<usize>) -> Vec<u8> {
        let hello = client_hello();
        let header = [1, 0, 0, hello.len() as u8, 0, 0, 0, 0, range.start as u8, 0, 0, range.len() as u8];
        record(22, 0, &[&header, &hello[range]].concat())
    }

    fn record(kind: u8, epoch: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 0, 0, content.len() as u8][..], content].concat()
    }

    fn read(payload: &[u8], wire_octets: usize) -> (Verdict, Findings) {
        let mut findings = Findings::new(false);
        let wire_octets = wire_octets as u32;
        let datagram = Datagram { payload, wire_octets, from_first: true, ..Datagram::default() };
        (super::read(&mut None, &datagram, &mut findings), findings)
    }

    #[test]
    fn versions_count_down() {
        let hello = fragment(0..client_hello().len());
        let (verdict, findings) = read(&hello, hello.len());
        assert_eq!((verdict, findings.text(Fact::ServerName)), (Verdict::Recognised, Some("a.example")));
        assert_eq!(&ja4(&findings).unwrap()[..10], b"dd3d010200");
    }

    #[test]
    fn fragments_of_a_hello_in_any_order_and_in_several_datagrams_are_put_together() {
        let octets = client_hello().len();
        let [first, second, third] = [0..40, 40..octets - 5, octets - 5..octets].map(fragment);
        let (verdict, findings) = read(&[&first[..], &second].concat(), first.len() + second.len());
        assert_eq!((verdict, findings.text(Fact::ServerName)), (Verdict::Recognised, Some("a.example")));
        assert_eq!(ja4(&findings), None);
        let whole = fragment(0..octets);
        let expected = ja4(&read(&whole, whole.len()).1);
        for order in [[&first, &second, &third], [&first, &third, &second]] {
            let (mut state, mut findings) = (None, Findings::new(false));
            for payload in order {
                let wire_octets = payload.len() as u32;
                let datagram = Datagram { payload, wire_octets, from_first: true, ..Datagram::default() };
                super::read(&mut state, &datagram, &mut findings);
            }
            assert_eq!((findings.text(Fact::ServerName), ja4(&findings)), (Some("a.example"), expected));
            assert!(expected.is_some());
        }
    }

    #[test]
    fn empty_records_and_warnings_hide_no_hello() {
        let hello = fragment(0..client_hello().len());
        for before in [record(22, 0, &[]), record(20, 0, &[]), record(23, 0, &[]), record(21, 0, &[1, 90])] {
            let (verdict, findings) = read(&[&before[..], &before, &hello].concat(), 2 * before.len() + hello.len());
            assert_eq!((verdict, findings.text(Fact::ServerName)), (Verdict::Recognised, Some("a.example")));
            assert_eq!(read(&before, before.len()).0, Verdict::Recognised);
        }
        let closing = record(21, 0, &[1, 0]);
        assert_eq!(read(&closing, closing.len()).0, Verdict::Complete);
    }

    #[test]
    fn records_that_fill_the_datagram_are_a_pattern() {
        let records = [record(23, 1, &[5; 30]), record(20, 0, &[1])].concat();
        let pattern = Some((Application::Dtls, Confidence::Pattern));
        for (payload, wire_octets, expected) in [
            (&records[..], records.len(), pattern),
            (&records[..20], records.len(), pattern),
            (&records[..20], 20, None),
            (&records[1..], records.len() - 1, None),
            (&[&records[..], &[0]].concat(), records.len() + 1, None),
        ] {
            let (verdict, findings) = read(payload, wire_octets);
            assert_eq!(findings.application(), expected);
            assert_eq!(verdict, if expected.is_some() { Verdict::Complete } else { Verdict::No });
        }
    }
}
