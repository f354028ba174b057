//! Protocols of lines in which the server greets first: SMTP (RFC 5321), FTP (RFC 959), POP3 (RFC
//! 1939) and IMAP (RFC 9051).
//!
//! The greeting and a command of the client are certain. The greeting alone is a pattern, if it names
//! the protocol; so is `EHLO` alone. The capture may have the commands before the greeting. TLS that
//! begins after lines (`STARTTLS`) is read.

use crate::lines::{MAX_LINES, after_word, contains, first_word, is_text, lines, position_unquoted};
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict, tls};
use memchr::memchr;

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
    /// Commands that a client sends first, and that no other protocol with these greetings has.
    commands: &'static [&'static str],
    /// Commands that may come before them.
    common_commands: &'static [&'static str],
    /// Lines of the client begin with a tag.
    has_tags: bool,
}

const SMTP: Protocol = Protocol {
    application: Application::Smtp,
    greetings: &["220 ", "220-"],
    word: "SMTP",
    other_word: "FTP",
    commands: &["EHLO", "HELO", "LHLO"],
    common_commands: &["NOOP", "HELP", "RSET", "VRFY", "EXPN", "QUIT"],
    has_tags: false,
};

const FTP: Protocol = Protocol {
    application: Application::Ftp,
    greetings: &["220 ", "220-"],
    word: "FTP",
    other_word: "SMTP",
    commands: &["USER", "AUTH", "FEAT", "SYST", "OPTS", "HOST", "CLNT"],
    common_commands: &["NOOP", "HELP", "STAT", "QUIT"],
    has_tags: false,
};

const POP3: Protocol = Protocol {
    application: Application::Pop3,
    greetings: &["+OK ", "+OK\r\n"],
    word: "POP",
    other_word: "SMTP",
    commands: &["USER", "APOP", "CAPA", "AUTH", "STLS", "UTF8"],
    common_commands: &["NOOP", "QUIT"],
    has_tags: false,
};

const IMAP: Protocol = Protocol {
    application: Application::Imap,
    greetings: &["* OK ", "* PREAUTH ", "* BYE "],
    word: "IMAP",
    other_word: "SMTP",
    commands: &["CAPABILITY", "LOGIN", "AUTHENTICATE", "STARTTLS", "ID", "NOOP", "LOGOUT", "SELECT", "NAMESPACE"],
    common_commands: &[],
    has_tags: true,
};

pub(crate) fn read_smtp(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let read = SMTP.read(streams, findings, |line, findings| {
        let mailbox = after_word(line, "MAIL FROM:")?.strip_prefix(b"<")?;
        let mailbox = &mailbox[..position_unquoted(mailbox, b'>')?];
        // A route before it does not count (RFC 5321 appendix C).
        let route = mailbox.iter().position(|&octet| octet == b':').filter(|_| mailbox.starts_with(b"@"));
        findings.set_text(Fact::User, &mailbox[route.map_or(0, |at| at + 1)..]);
        Some(())
    });
    let has_ehlo = |octets: &[u8]| {
        let line = Start(octets).until(b'\n', MAX_LINE_OCTETS);
        line.is_ok_and(|line| is_text(line) && after_word(line, "EHLO ").is_some())
    };
    if read == Err(Verdict::More) && [streams.first, streams.second].into_iter().any(has_ehlo) {
        // The greeting may not have been captured.
        findings.recognise(Application::Smtp, Confidence::Pattern);
        return Ok(Verdict::Recognised);
    }
    read
}

pub(crate) fn read_ftp(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    FTP.read(streams, findings, |line, findings| {
        findings.set_text(Fact::User, after_word(line, "USER ")?);
        Some(())
    })
}

pub(crate) fn read_pop3(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    POP3.read(streams, findings, |line, findings| {
        let user = after_word(line, "USER ").or_else(|| after_word(line, "APOP "))?;
        findings.set_text(Fact::User, first_word(user));
        Some(())
    })
}

pub(crate) fn read_imap(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    IMAP.read(streams, findings, |line, findings| {
        user_of_imap(after_word(line, "LOGIN ")?).iter().for_each(|user| findings.set_text(Fact::User, user));
        Some(())
    })
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
        let Some(end) = memchr(b'\n', octets) else { break };
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
        let (greeting, server, client) = self.sides(streams)?;
        let line = match Start(server).until(b'\n', MAX_LINE_OCTETS) {
            Ok(line) if is_text(line) => line,
            Err(Verdict::More) => return Err(Verdict::More),
            // A damaged greeting does not match: the client may.
            _ => b"",
        };
        let text = line.get(greeting.len()..).unwrap_or_default().trim_ascii();
        let confidence = match self.read_commands(client) {
            Ok(()) => Confidence::Message,
            Err(_) if contains(text, self.word) && !contains(text, self.other_word) => Confidence::Pattern,
            Err(verdict) => return Err(verdict),
        };
        findings.recognise(self.application, confidence);
        if !line.is_empty() {
            findings.set_text(Fact::ServerSoftware, text);
        }
        let mut commands = lines(client).take_while(|line| is_text(line) && !line.eq_ignore_ascii_case(b"DATA"));
        if commands.any(|line| user(self.without_tag(line), findings).is_some()) {
            return Ok(Verdict::Complete);
        }
        match [client, server].map(tls_after_lines) {
            [[], []] => Ok(Verdict::Recognised),
            [client_tls, server_tls] => Ok(tls::read_upgrade(client_tls, server_tls, findings)),
        }
    }

    /// How the greeting begins, what the server sent, and what the client sent.
    fn sides<'a>(&self, streams: &Streams<'a>) -> Read<(&'static str, &'a [u8], &'a [u8])> {
        let (first, second) = (streams.first, streams.second);
        if let Some(greeting) = self.greeting(first) {
            return Ok((greeting, first, second));
        }
        if self.read_commands(first) == Err(Verdict::No) {
            return Err(Verdict::No);
        }
        // The capture has the client before the server.
        match self.greeting(second) {
            Some(_) if second.is_empty() => Err(Verdict::More),
            Some(greeting) => Ok((greeting, second, first)),
            None => Err(Verdict::No),
        }
    }

    /// How octets begin, if they are the start of a greeting.
    fn greeting(&self, octets: &[u8]) -> Option<&'static str> {
        let is_start =
            |greeting: &&&str| octets.iter().zip(greeting.bytes()).all(|(octet, expected)| *octet == expected);
        self.greetings.iter().find(is_start).copied()
    }

    /// Reads the lines of a client up to the first of [`Protocol::commands`].
    fn read_commands(&self, client: &[u8]) -> Read<()> {
        let is_one_of = |commands: &[&str], word: &[u8]| {
            commands.iter().any(|command| word.eq_ignore_ascii_case(command.as_bytes()))
        };
        let mut rest = Start(client);
        for _ in 0..MAX_LINES {
            let line = match rest.until(b'\n', MAX_LINE_OCTETS) {
                Err(Verdict::More) => {
                    require(self.is_start_of_command(rest.0))?;
                    return Err(Verdict::More);
                }
                line => line?,
            };
            let word = first_word(self.without_tag(line)).trim_ascii_end();
            require(is_text(line))?;
            if is_one_of(self.commands, word) {
                return Ok(());
            }
            require(is_one_of(self.common_commands, word))?;
        }
        Err(Verdict::No)
    }

    fn without_tag<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match line.iter().position(|&octet| octet == b' ') {
            Some(at) if self.has_tags => &line[at + 1..],
            _ => line,
        }
    }

    /// Whether a line that is not whole may become a command.
    fn is_start_of_command(&self, line: &[u8]) -> bool {
        let (tag, command) = match line.iter().position(|&octet| octet == b' ') {
            Some(at) if self.has_tags => (&line[..at], &line[at + 1..]),
            None if self.has_tags => (line, &b""[..]),
            _ => (&b""[..], line),
        };
        // RFC 9051 section 9.
        let is_in_tag = |octet: &u8| octet.is_ascii_graphic() && !b"(){%*\"\\+".contains(octet);
        let word = first_word(command).trim_ascii_end();
        let is_start =
            |command: &&str| command.as_bytes().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        is_text(line) && tag.iter().all(is_in_tag) && self.commands.iter().chain(self.common_commands).any(is_start)
    }
}
