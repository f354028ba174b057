//! SSH (RFC 4253): identification strings and the first key exchange message of both sides.
//!
//! An identification string is certain. HASSH (BSD-3-Clause, <https://github.com/salesforce/hassh>)
//! is the MD5 of the algorithms that a side offers for what it sends: of the key exchange, of
//! ciphers, of MACs and of compression.

use crate::findings::hexadecimal;
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Streams, Verdict};
use md5::{Digest, Md5};

const PREFIX: &[u8] = b"SSH-";
/// Octets of an identification string (RFC 4253 section 4.2).
const MAX_IDENTIFICATION_OCTETS: usize = 255;
/// Octets of the lines that a server sends before its identification string.
const MAX_OCTETS_BEFORE: usize = 1024;
/// Octets of a packet (RFC 4253 section 6.1).
const MAX_PACKET_OCTETS: u32 = 35_000;
const SSH_MSG_KEXINIT: u8 = 20;
const COOKIE_OCTETS: usize = 16;

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Verdict {
    let [first, second] = [streams.first, streams.second].map(read_side);
    // Only a server may send other lines first.
    let has_text = |octets: &[u8]| !octets.iter().zip(PREFIX).all(|(octet, prefix)| octet == prefix);
    let [first_has_text, second_has_text] = [has_text(streams.first), has_text(streams.second)];
    let is_first_refused = streams.first_is_client == Some(true) && first_has_text;
    let is_second_refused = streams.first_is_client != Some(true) && second_has_text && {
        streams.first_is_client == Some(false) || first_has_text
    };
    match (first, second) {
        (Side::Foreign, _) | (Side::Damaged, Side::Damaged) => return Verdict::No,
        _ if is_first_refused => return Verdict::No,
        (Side::Identified(..), _) => {}
        (_, Side::Foreign) => return Verdict::No,
        _ if is_second_refused => return Verdict::No,
        (_, Side::Identified(..)) => {}
        _ => return Verdict::More,
    }
    findings.recognise(Application::Ssh, Confidence::Message);
    // Without a SYN, the lower port is the server's.
    let first_is_client = streams.first_is_client.unwrap_or(streams.ports[0] > streams.ports[1]);
    let without_fingerprints = findings.leaves_out_fingerprint();
    for (side, is_client) in [(first, first_is_client), (second, !first_is_client)] {
        let Side::Identified(identification, rest) = side else { continue };
        let (fact, fingerprint, at) =
            if is_client { (Fact::SshClient, Fact::Hassh, 0) } else { (Fact::SshServer, Fact::HasshServer, 1) };
        findings.set_text(fact, identification);
        if without_fingerprints || findings.has(fingerprint) {
            continue;
        }
        if let Ok([kex, _, ciphers @ .., _, _]) = key_exchange_lists(rest) {
            // Ciphers, MACs and compression, each from client to server and back.
            let lists = [kex, ciphers[at], ciphers[2 + at], ciphers[4 + at]];
            findings.set_text(fingerprint, &hexadecimal::<32>(&Md5::digest(lists.join(&b';'))));
        }
    }
    let facts = [Fact::SshClient, Fact::SshServer, Fact::Hassh, Fact::HasshServer];
    let expected = if without_fingerprints { &facts[..2] } else { &facts };
    if expected.iter().all(|&fact| findings.has(fact)) { Verdict::Complete } else { Verdict::Recognised }
}

/// What a side sent.
#[derive(Clone, Copy)]
enum Side<'a> {
    /// Its identification string, and what follows it.
    Identified(&'a [u8], &'a [u8]),
    /// Perhaps an identification string, or lines before it.
    Undecided,
    /// An identification string that is not of its form. The other side may prove SSH.
    Damaged,
    /// Something else than SSH.
    Foreign,
}

fn read_side(octets: &[u8]) -> Side<'_> {
    let mut rest = octets;
    loop {
        if octets.len() - rest.len() > MAX_OCTETS_BEFORE {
            return Side::Foreign;
        }
        let is_identification = rest.starts_with(PREFIX);
        let refused = if is_identification { Side::Damaged } else { Side::Foreign };
        // The first control character ends the line, or refuses it.
        let is_end = |octet: &u8| octet.is_ascii_control() && !b"\r\t".contains(octet);
        let end = rest.iter().take(MAX_OCTETS_BEFORE).position(is_end);
        if end.is_some_and(|end| rest[end] != b'\n') {
            return refused;
        }
        let line = &rest[..end.unwrap_or(rest.len())];
        let limit = if is_identification { MAX_IDENTIFICATION_OCTETS } else { MAX_OCTETS_BEFORE };
        if line.len() > limit {
            return refused;
        }
        let Some(end) = end else { return Side::Undecided };
        rest = &rest[end + 1..];
        if is_identification {
            let line = line.trim_ascii_end();
            // Version and software, as in SSH-2.0-OpenSSH_9.2.
            let is_versioned = matches!(&line[PREFIX.len()..], [b'1'..=b'2', b'.', b'0'..=b'9', ..]);
            return if is_versioned { Side::Identified(line, rest) } else { Side::Damaged };
        }
    }
}

/// The ten lists of names of SSH_MSG_KEXINIT (RFC 4253 section 7.1).
fn key_exchange_lists(packet: &[u8]) -> Read<[&[u8]; 10]> {
    let mut rest = Start(packet);
    let length = rest.u32()?;
    require(length <= MAX_PACKET_OCTETS)?;
    rest = Start(rest.take(length as usize)?);
    let _padding = rest.u8()?;
    rest.expect(&[SSH_MSG_KEXINIT])?;
    rest.take(COOKIE_OCTETS)?;
    let mut lists = [&[][..]; 10];
    for list in &mut lists {
        let length = rest.u32()?;
        *list = rest.take(length as usize)?;
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(streams: Streams<'_>) -> (Verdict, Findings) {
        let mut findings = Findings::new(false);
        (read_streams(&streams, &mut findings), findings)
    }

    /// SSH_MSG_KEXINIT with these lists.
    fn packet(lists: [&str; 10]) -> Vec<u8> {
        let mut payload = vec![4, SSH_MSG_KEXINIT];
        payload.extend([7; COOKIE_OCTETS]);
        for list in lists {
            payload.extend((list.len() as u32).to_be_bytes());
            payload.extend(list.as_bytes());
        }
        payload.extend([0; 9]);
        [&(payload.len() as u32).to_be_bytes(), &payload[..]].concat()
    }

    #[test]
    fn text_before_the_identification_of_a_server_is_skipped() {
        let lists = packet(["k", "h", "c1", "c2", "m1", "m2", "z1", "z2", "", ""]);
        let server = [b"Welcome\r\nto this host\nSSH-2.0-a_1 b\r\n", &lists[..]].concat();
        let client = [b"SSH-2.0-c\n", &lists[..]].concat();
        let streams = Streams { first: &server, second: &client, first_is_client: Some(false), ..Streams::default() };
        let (verdict, findings) = read(streams);
        assert_eq!(verdict, Verdict::Complete);
        assert_eq!(findings.text(Fact::SshServer), Some("SSH-2.0-a_1 b"));
        assert_eq!(findings.text(Fact::SshClient), Some("SSH-2.0-c"));
        // echo -n 'k;c1;m1;z1' | md5sum
        assert_eq!(findings.text(Fact::Hassh), Some("dd40933168f18f8a21ff43d3399175d8"));
        assert_eq!(findings.text(Fact::HasshServer), Some("ef2009dcd463afbe99c5888867b06e53"));
    }

    #[test]
    fn lower_port_is_the_servers_if_the_syn_is_missing() {
        let (_, findings) = read(Streams { first: b"SSH-2.0-a\r\n", ports: [22, 40000], ..Streams::default() });
        assert_eq!(findings.text(Fact::SshServer), Some("SSH-2.0-a"));
        let (_, findings) = read(Streams { first: b"SSH-2.0-a\r\n", ports: [40000, 22], ..Streams::default() });
        assert_eq!(findings.text(Fact::SshClient), Some("SSH-2.0-a"));
    }

    #[test]
    fn text_of_other_protocols_is_refused_as_soon_as_the_client_sends() {
        let greeting = b"220 a.example ESMTP\r\n";
        assert_eq!(read(Streams { first: greeting, ..Streams::default() }).0, Verdict::More);
        let both = Streams { first: greeting, second: b"EHLO b.example\r\n", ..Streams::default() };
        assert_eq!(read(both).0, Verdict::No);
        let client = Streams { first: b"G", first_is_client: Some(true), ..Streams::default() };
        assert_eq!(read(client).0, Verdict::No);
        for first in [&b"a\0"[..], &[b'a'; MAX_OCTETS_BEFORE + 1]] {
            assert_eq!(read(Streams { first, ..Streams::default() }).0, Verdict::No);
        }
    }

    #[test]
    fn damaged_identification_does_not_undo_that_of_the_other_side() {
        let long = [b"SSH-2.0-".as_slice(), &[b'a'; MAX_IDENTIFICATION_OCTETS]].concat();
        for damaged in [&b"SSH-2.0-x\x1b\r\n"[..], b"SSH-x\r\n", b"SSH-3.0-a\r\n", &long] {
            let streams = |first, second| Streams { first, second, ports: [40000, 22], ..Streams::default() };
            assert_eq!(read(streams(damaged, b"")).0, Verdict::More);
            assert_eq!(read(streams(damaged, damaged)).0, Verdict::No);
            assert_eq!(read(streams(damaged, b"\x16\x03")).0, Verdict::No);
            for (first, second, fact) in
                [(damaged, &b"SSH-2.0-s\r\n"[..], Fact::SshServer), (b"SSH-2.0-s\r\n", damaged, Fact::SshClient)]
            {
                let (verdict, findings) = read(streams(first, second));
                assert_eq!((verdict, findings.text(fact)), (Verdict::Recognised, Some("SSH-2.0-s")));
                assert_eq!([Fact::SshClient, Fact::SshServer].iter().filter(|fact| findings.has(**fact)).count(), 1);
            }
        }
    }

    #[test]
    fn side_that_refutes_ssh_is_not_outvoted_by_the_other() {
        let second = b"SSH-2.0-a\r\n";
        for first_is_client in [None, Some(true), Some(false)] {
            let (verdict, findings) = read(Streams { first: b"a\0", second, first_is_client, ..Streams::default() });
            assert_eq!((verdict, findings.application()), (Verdict::No, None));
        }
        let client_with_text =
            Streams { first: b"a\nSSH-2.0-a\r\n", first_is_client: Some(true), ..Streams::default() };
        assert_eq!(read(client_with_text).0, Verdict::No);
    }
}
