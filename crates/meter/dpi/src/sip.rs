//! SIP (RFC 3261) over UDP and TCP: the first request or response.

use crate::learned::Media;
use crate::lines::{Fields, MAX_FIELD_LINES, fields, is_text, lines, position_unquoted};
use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Fact, Findings, Verdict};
use memchr::memmem;
use std::net::IpAddr;

/// Octets of the first line.
const MAX_LINE_OCTETS: usize = 1024;
/// Octets of a method.
const MAX_METHOD_OCTETS: usize = 16;
const VERSION: &[u8] = b"SIP/2.0";

/// Reads the start of a connection, or a datagram.
pub(crate) fn read(octets: &[u8], findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(octets);
    let version = rest.expect(VERSION);
    if !octets.is_empty() && version != Err(Verdict::No) {
        // A status line: version, code, reason. `SUBSCRIBE` begins with the same letter.
        version?;
        rest.expect(b" ")?;
        require(matches!(rest.array()?, [b'1'..=b'6', b'0'..=b'9', b'0'..=b'9']))?;
        rest.expect(b" ")?;
        require(is_text(rest.until(b'\n', MAX_LINE_OCTETS)?))?;
    } else {
        let mut rest_of_line = Start(octets);
        let method =
            rest_of_line.0.iter().take(MAX_METHOD_OCTETS).take_while(|octet| octet.is_ascii_uppercase()).count();
        rest_of_line.take(method)?;
        rest_of_line.expect(b" ")?;
        require(method > 0)?;
        // The scheme is tested first, so that HTTP is refused early.
        let after_scheme = [&b"sip:"[..], b"sips:", b"tel:"].map(|scheme| rest_of_line.expect(scheme));
        require(after_scheme.iter().any(|scheme| *scheme != Err(Verdict::No)))?;
        let line = rest.until(b'\n', MAX_LINE_OCTETS)?.trim_ascii_end();
        require(is_text(line) && line.ends_with(b" SIP/2.0"))?;
    }
    findings.recognise(Application::Sip, Confidence::Message);
    let read = fields(rest.0, 0, &mut { MAX_FIELD_LINES }, |name, value| {
        if (name.eq_ignore_ascii_case(b"from") || name.eq_ignore_ascii_case(b"f")) && findings.takes(Fact::User) {
            address(value).iter().for_each(|address| findings.set_text(Fact::User, address));
        }
    });
    Ok(match read {
        Fields::Whole(_) => Verdict::Complete,
        Fields::Partial(_) => Verdict::Recognised,
        Fields::Limited => {
            findings.limit_work();
            Verdict::Complete
        }
    })
}

/// Where a message says that media are expected (SDP, RFC 8866): each `m=` line of RTP with the
/// address of the `c=` line that counts for it.
pub(crate) fn media(octets: &[u8]) -> Media {
    let mut media = Media::new();
    let Some(body) = memmem::find(octets, b"\r\n\r\n") else { return media };
    let (mut of_session, mut is_in_media) = (None, false);
    for line in lines(&octets[body + 4..]) {
        let words = || line.split(|&octet| octet == b' ').filter_map(|word| std::str::from_utf8(word).ok());
        if line.starts_with(b"c=IN ") {
            // A TTL may follow a multicast address.
            let address = words().nth(2).and_then(|word| word.split('/').next()?.parse::<IpAddr>().ok());
            let address = address.map(|address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            });
            match (media.last_mut(), address) {
                (Some((of_media, _)), Some(address)) if is_in_media => *of_media = address,
                _ => of_session = address,
            }
        } else if line.starts_with(b"m=") {
            let is_rtp = words().nth(2).is_some_and(|protocol| protocol.contains("RTP/"));
            let port = words().nth(1).and_then(|port| port.split('/').next()?.parse().ok()).filter(|port| *port > 0);
            let place = port.filter(|_| is_rtp).map(|port| (of_session.unwrap_or_default(), port));
            is_in_media = place.is_some_and(|place| media.try_push(place).is_ok());
        }
    }
    media
}

/// The address in `"Name" <address>;parameters` or `address;parameters` (RFC 3261 section 20.10).
/// without its parameters and its password. `None`: it has another form.
fn address(value: &[u8]) -> Option<Vec<u8>> {
    let address = match position_unquoted(value, b'<') {
        Some(at) => value[at + 1..].split_at(value[at + 1..].iter().position(|&octet| octet == b'>')?).0,
        None => value.split(|&octet| octet == b';').next()?.trim_ascii_end(),
    };
    if address.iter().any(|octet| b"<>\" ".contains(octet)) {
        return None;
    }
    // User names may have what begins parameters elsewhere (RFC 3261 section 25.1).
    let at = address.iter().position(|&octet| octet == b'@');
    let (user, host) = address.split_at(at.unwrap_or_default());
    let mut words = user.splitn(3, |&octet| octet == b':');
    let user = [words.next()?, words.next().unwrap_or_default()].join(&b':');
    let host = host.split(|octet| b";?".contains(octet)).next()?;
    Some(if at.is_some() { [&user, host].concat() } else { host.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_exact_or_left_out() {
        for (value, expected) in [
            (&b"<sip:a@b>;tag=1"[..], Some("sip:a@b")),
            (b"sip:a@b;tag=1", Some("sip:a@b")),
            (b"Bob <sip:a@b;transport=tcp>", Some("sip:a@b")),
            (b"<tel:+1;phone-context=b>", Some("tel:+1")),
            (b"<sip:+1;phone-context=c@b;user=phone>", Some("sip:+1;phone-context=c@b")),
            (b"\"Secret <sip:fake@x>\" <sip:real@y>", Some("sip:real@y")),
            (b"\"a \\\" <sip:fake@x>\" <sip:real@y>", Some("sip:real@y")),
            (b"<sip:u:secret@a>", Some("sip:u@a")),
            (b"sips:u:secret@a:5061;tag=1", Some("sips:u@a:5061")),
            (b"<sip:a:5060>", Some("sip:a:5060")),
            (b"\"Bob <sip:a@b>", None),
            (b"<sip:a@b", None),
        ] {
            let address = address(value);
            assert_eq!(address.as_deref(), expected.map(str::as_bytes), "{}", value.escape_ascii());
        }
    }
}
