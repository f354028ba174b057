//! Protocols of lines in which the server greets first: SMTP (RFC 5321), FTP (RFC 959), POP3 (RFC
//! 1939) and IMAP (RFC 9051).
//!
//! The greeting and the first command of the client are certain. The greeting alone is a pattern,
//! if it names the protocol; so is `EHLO` alone. TLS that begins after lines (`STARTTLS`) is read.

use crate::lines::{MAX_LINES, after_word, contains, first_word, is_text, lines, position_unquoted};
use crate::start::{Read, Start, require, verdict};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};

/// Octets of a greeting, and of a command.
const MAX_LINE_OCTETS: usize = 512;

/// What distinguishes a protocol of the group.
struct Protocol {
    application: Application,
    /// How greetings begin.
    greetings: &'static [&'static str],
    /// A word that a greeting has if it is enough, and one that it does not have.
    word: &'static str,
    other_word: &'static str,
    /// Commands that a client sends first.
    commands: &'static [&'static str],
    /// Lines of the client begin with a tag.
    has_tags: bool,
}

const SMTP: Protocol = Protocol {
    application: Application::Smtp,
    greetings: &["220 ", "220-"],
    word: "SMTP",
    other_word: "FTP",
    commands: &["EHLO", "HELO", "LHLO"],
    has_tags: false,
};

const FTP: Protocol = Protocol {
    application: Application::Ftp,
    greetings: &["220 ", "220-"],
    word: "FTP",
    other_word: "SMTP",
    commands: &["USER", "AUTH", "FEAT", "SYST", "OPTS", "HOST", "CLNT"],
    has_tags: false,
};

const POP3: Protocol = Protocol {
    application: Application::Pop3,
    greetings: &["+OK ", "+OK\r\n"],
    word: "POP",
    other_word: "SMTP",
    commands: &["USER", "APOP", "CAPA", "AUTH", "STLS", "UTF8"],
    has_tags: false,
};

const IMAP: Protocol = Protocol {
    application: Application::Imap,
    greetings: &["* OK ", "* PREAUTH ", "* BYE "],
    word: "IMAP",
    other_word: "SMTP",
    commands: &["CAPABILITY", "LOGIN", "AUTHENTICATE", "STARTTLS", "ID", "NOOP", "LOGOUT", "SELECT", "NAMESPACE"],
    has_tags: true,
};

/// Reads the start of an SMTP session.
pub(crate) fn read_smtp(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let is_command = streams.first.iter().zip(b"EHLO ").all(|(octet, expected)| octet.eq_ignore_ascii_case(expected));
    if is_command && streams.second.is_empty() {
        return verdict(read_client_of_smtp(streams.first, findings));
    }
    verdict(SMTP.read(streams, findings, |line, findings| {
        let mailbox = after_word(line, "MAIL FROM:")?.strip_prefix(b"<")?;
        let mailbox = &mailbox[..position_unquoted(mailbox, b'>')?];
        // A route before it does not count (RFC 5321 appendix C).
        let route = mailbox.iter().position(|&octet| octet == b':').filter(|_| mailbox.starts_with(b"@"));
        findings.set_text(Fact::User, &mailbox[route.map_or(0, |at| at + 1)..]);
        Some(())
    }))
}

/// The server's side was not captured.
fn read_client_of_smtp(client: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let line = Start(client).until(b'\n', MAX_LINE_OCTETS)?;
    require(is_text(line))?;
    findings.recognise(Application::Smtp, Confidence::Pattern);
    Ok(Verdict::Recognised)
}

/// Reads the start of an FTP control connection.
pub(crate) fn read_ftp(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    verdict(FTP.read(streams, findings, |line, findings| {
        findings.set_text(Fact::User, after_word(line, "USER ")?);
        Some(())
    }))
}

/// Reads the start of a POP3 session.
pub(crate) fn read_pop3(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    verdict(POP3.read(streams, findings, |line, findings| {
        let user = after_word(line, "USER ").or_else(|| after_word(line, "APOP "))?;
        findings.set_text(Fact::User, first_word(user));
        Some(())
    }))
}

/// Reads the start of an IMAP session.
pub(crate) fn read_imap(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    verdict(IMAP.read(streams, findings, |line, findings| {
        user_of_imap(after_word(line, "LOGIN ")?).iter().for_each(|user| findings.set_text(Fact::User, user));
        Some(())
    }))
}

/// The first argument of LOGIN (RFC 9051 section 9: `astring`). `None`: it is a literal, whose octets
/// are not in the line, or has another form.
fn user_of_imap(arguments: &[u8]) -> Option<Vec<u8>> {
    let Some(quoted) = arguments.strip_prefix(b"\"") else {
        let atom = first_word(arguments);
        return (!atom.iter().any(|octet| b"(){%*\"\\".contains(octet))).then(|| atom.to_vec());
    };
    let (mut user, mut octets) = (Vec::new(), quoted.iter());
    loop {
        match octets.next()? {
            b'"' => return octets.next().is_none_or(|octet| *octet == b' ').then_some(user),
            b'\\' => user.push(*octets.next()?),
            octet => user.push(*octet),
        }
    }
}

/// What follows lines of text, if it is the start of TLS. Empty if there is none.
fn tls_after_lines(mut octets: &[u8]) -> &[u8] {
    for _ in 0..MAX_LINES {
        if tls::is_start(octets) {
            return octets;
        }
        let Some(end) = octets.iter().position(|&octet| octet == b'\n') else { break };
        octets = &octets[end + 1..];
    }
    &[]
}

impl Protocol {
    /// Reads the greeting and the commands. `user` sets the user if a command names one.
    fn read(
        &self,
        streams: &Streams<'_>,
        findings: &mut Findings,
        user: impl Fn(&[u8], &mut Findings) -> Option<()>,
    ) -> Read<Verdict> {
        let (server, client) = (streams.first, streams.second);
        let is_greeting =
            |greeting: &&&str| server.iter().zip(greeting.bytes()).all(|(octet, expected)| *octet == expected);
        let greeting = self.greetings.iter().find(is_greeting).ok_or(Verdict::No)?;
        let mut server = Start(server);
        let line = match server.until(b'\n', MAX_LINE_OCTETS) {
            Ok(line) if is_text(line) => line,
            Err(Verdict::More) => return Err(Verdict::More),
            // A damaged greeting tells nothing: the client may.
            _ => b"",
        };
        let text = line.get(greeting.len()..).unwrap_or_default().trim_ascii();
        let confidence = match Start(client).until(b'\n', MAX_LINE_OCTETS) {
            Ok(line) if self.is_command(line) => Confidence::Message,
            _ if contains(text, self.word) && !contains(text, self.other_word) => Confidence::Pattern,
            Err(Verdict::More) if self.is_start_of_command(client) => return Err(Verdict::More),
            _ => return Err(Verdict::No),
        };
        findings.recognise(self.application, confidence);
        if !line.is_empty() {
            findings.set_text(Fact::ServerSoftware, text);
        }
        let [client_tls, server_tls] = [client, streams.first].map(tls_after_lines);
        if !client_tls.is_empty() || !server_tls.is_empty() {
            return Ok(tls::read_upgrade(client_tls, server_tls, findings));
        }
        let commands = lines(client).take_while(|line| is_text(line) && !line.eq_ignore_ascii_case(b"DATA"));
        let is_complete = commands.map(|line| self.without_tag(line)).any(|line| user(line, findings).is_some());
        Ok(if is_complete { Verdict::Complete } else { Verdict::Recognised })
    }

    fn without_tag<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match line.iter().position(|&octet| octet == b' ') {
            Some(at) if self.has_tags => &line[at + 1..],
            _ => line,
        }
    }

    fn is_command(&self, line: &[u8]) -> bool {
        let word = first_word(self.without_tag(line)).trim_ascii_end();
        is_text(line) && self.commands.iter().any(|command| word.eq_ignore_ascii_case(command.as_bytes()))
    }

    /// Whether a line that is not whole may become a command.
    fn is_start_of_command(&self, line: &[u8]) -> bool {
        let word = first_word(line).trim_ascii_end();
        let is_start =
            |command: &&str| command.as_bytes().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        is_text(line) && (self.has_tags || self.commands.iter().any(is_start))
    }
}
