//! Certificates (RFC 5280): subject, issuer, validity, and the names they are for.
//!
//! Written by hand: the start of a certificate is enough for its first fields, nothing is
//! allocated, and certificates with faults elsewhere are read. Nothing is verified.

use crate::ber::{SEQUENCE, head};
use crate::findings::{EscapedText, RawText, hexadecimal, is_unprintable};
use crate::start::{Read, Start, require};
use crate::{Fact, Findings, Note};
use arrayvec::ArrayVec;
use std::net::IpAddr;

/// Octets of a length. Longer ones do not occur in certificates.
const MAX_LENGTH_OCTETS: u8 = 3;
/// Relative distinguished names of a name that are read at most.
const MAX_RDNS: usize = 32;

/// The last second whose nanoseconds since 1970 fit into 64 bits, in the year 2554. RFC 5280 has
/// later times: 9999-12-31 for certificates without an end.
const MAX_SECONDS: u64 = u64::MAX / 1_000_000_000;

/// Types of attributes with their names: those of RFC 4514 section 3, then others that certificates
/// often have, by their short names in OpenSSL.
const ATTRIBUTES: [(&[u8], &str); 21] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 1], "jurisdictionL"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 2], "jurisdictionST"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3], "jurisdictionC"),
];
const SUBJECT_ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 17];

/// Reads a certificate, which may be cut.
pub(super) fn read(der: &[u8], findings: &mut Findings) {
    // An error: the certificate ends or is not of its form. What comes before is set.
    let _ = certificate(der, findings);
}

fn certificate(der: &[u8], findings: &mut Findings) -> Read<()> {
    let mut certificate = enter(&mut Start(der), SEQUENCE)?;
    let mut fields = enter(&mut certificate, SEQUENCE)?;
    let (version_or_serial, _) = element(&mut fields)?;
    if version_or_serial == 0xa0 {
        element(&mut fields)?;
    }
    let (_algorithm, issuer) = (element(&mut fields)?, element(&mut fields)?);
    set_name(Fact::CertificateIssuer, issuer.1, findings);
    let mut validity = Start(element(&mut fields)?.1);
    for fact in [Fact::CertificateNotBefore, Fact::CertificateNotAfter] {
        let (kind, time) = element(&mut validity)?;
        if let Some(seconds) = seconds(kind, time) {
            let kept = u64::try_from(seconds).unwrap_or(0).min(MAX_SECONDS);
            if i64::try_from(kept) != Ok(seconds) {
                findings.note(Note::Cut);
            }
            findings.set_number(fact, kept);
        }
    }
    let subject = element(&mut fields)?;
    set_name(Fact::CertificateSubject, subject.1, findings);
    element(&mut fields)?;
    // Unique identifiers [1] and [2] are optional, extensions are [3].
    while fields.0.first().is_some_and(|tag| *tag != 0xa3) {
        element(&mut fields)?;
    }
    let mut extensions = enter(&mut enter(&mut fields, 0xa3)?, SEQUENCE)?;
    loop {
        let mut extension = Start(element(&mut extensions)?.1);
        if element(&mut extension)?.1 == SUBJECT_ALTERNATIVE_NAME {
            // `critical`, a BOOLEAN, is optional before the OCTET STRING.
            let (mut kind, mut value) = element(&mut extension)?;
            if kind == 1 {
                (kind, value) = element(&mut extension)?;
            }
            if kind == 4 {
                set_alternative_names(value, findings);
            }
            return Ok(());
        }
    }
}

/// Reads an element of DER: its tag and its content.
fn element<'a>(octets: &mut Start<'a>) -> Read<(u8, &'a [u8])> {
    let (tag, length) = head(octets, MAX_LENGTH_OCTETS)?;
    Ok((tag, octets.take(length)?))
}

/// Reads the head of an element, and returns its content as far as it is there.
fn enter<'a>(octets: &mut Start<'a>, expected_tag: u8) -> Read<Start<'a>> {
    let (tag, length) = head(octets, MAX_LENGTH_OCTETS)?;
    require(tag == expected_tag)?;
    Ok(Start(octets.take_up_to(length)))
}

fn set_name(fact: Fact, octets: &[u8], findings: &mut Findings) {
    // The start of a certificate is read again when more of it comes.
    if !findings.has(fact) {
        let name = name(octets, findings);
        findings.set_escaped(fact, &name);
    }
}

/// A distinguished name as RFC 4514 writes it.
fn name(octets: &[u8], findings: &mut Findings) -> EscapedText {
    let mut text = EscapedText::default();
    let mut sets = Start(octets);
    let mut rdns: ArrayVec<&[u8], MAX_RDNS> =
        std::iter::from_fn(|| element(&mut sets).ok()).map(|(_, set)| set).take(MAX_RDNS).collect();
    if !sets.0.is_empty() {
        findings.note(Note::Cut);
    }
    rdns.reverse();
    for (at, rdn) in rdns.into_iter().enumerate() {
        text.push(if at == 0 { b"" } else { b"," });
        let mut attributes = Start(rdn);
        let mut separator: &[u8] = b"";
        while let Ok((_, attribute)) = element(&mut attributes) {
            let mut attribute = Start(attribute);
            let (Ok((_, kind)), value_octets) = (element(&mut attribute), attribute.0) else { continue };
            let Ok((tag, value)) = element(&mut attribute) else { continue };
            text.push(separator);
            separator = b"+";
            let known = ATTRIBUTES.iter().find(|(number, _)| *number == kind);
            match known {
                Some((_, name)) => text.push(name.as_bytes()),
                None => append_object_identifier(&mut text, kind),
            }
            text.push(b"=");
            if known.is_none() || !append_string(&mut text, tag, value) {
                text.push(b"#");
                value_octets.iter().for_each(|octet| text.push(&hexadecimal::<2>(&[*octet])));
            }
        }
    }
    text
}

/// Appends a string of ASN.1 with the escapes of RFC 4514; false: it is not a string, or ends within a
/// character of UniversalString or BMPString. Control
/// characters, invisible ones, and octets that are not of UTF-8, are a backslash and two
/// hexadecimal digits.
fn append_string(text: &mut EscapedText, tag: u8, value: &[u8]) -> bool {
    let mut utf8 = RawText::default();
    let mut push = |character: char| utf8.push_octets(character.encode_utf8(&mut [0; 4]).as_bytes());
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String, VisibleString
        12 | 18 | 19 | 22 | 26 => utf8.push_octets(value),
        // TeletexString: ISO 8859-1, as everyone uses it.
        20 => value.iter().for_each(|octet| push(char::from(*octet))),
        // UniversalString, BMPString
        28 if value.len().is_multiple_of(4) => value.as_chunks().0.iter().for_each(|unit| {
            push(char::from_u32(u32::from_be_bytes(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }),
        30 if value.len().is_multiple_of(2) => {
            char::decode_utf16(value.as_chunks().0.iter().map(|unit| u16::from_be_bytes(*unit)))
                .for_each(|character| push(character.unwrap_or(char::REPLACEMENT_CHARACTER)))
        }
        _ => return false,
    }
    let mut rest = utf8.0.len();
    for chunk in utf8.0.utf8_chunks() {
        for character in chunk.valid().chars() {
            let is_first = rest == utf8.0.len();
            rest -= character.len_utf8();
            let mut buffer = [0; 4];
            let octets = character.encode_utf8(&mut buffer).as_bytes();
            match character {
                '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.push(&[b'\\', octets[0]]),
                ' ' if is_first || rest == 0 => text.push(br"\ "),
                '#' if is_first => text.push(br"\#"),
                _ if is_unprintable(character) => append_octets(text, octets),
                _ => text.push(octets),
            }
        }
        append_octets(text, chunk.invalid());
        rest -= chunk.invalid().len();
    }
    true
}

/// Appends octets as RFC 4514 writes those that are no character.
fn append_octets(text: &mut EscapedText, octets: &[u8]) {
    for octet in octets {
        let [high, low] = hexadecimal(&[*octet]);
        text.push(&[b'\\', high, low]);
    }
}

fn append_object_identifier(text: &mut EscapedText, octets: &[u8]) {
    let mut number = 0_u64;
    let mut is_first = true;
    for octet in octets {
        number = number << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 == 0 {
            if is_first {
                let root = (number / 40).min(2);
                text.push(itoa::Buffer::new().format(root).as_bytes());
                number -= 40 * root;
            }
            text.push(b".");
            text.push(itoa::Buffer::new().format(number).as_bytes());
            (number, is_first) = (0, false);
        }
    }
}

/// Sets the DNS names and addresses of a subject alternative name.
fn set_alternative_names(octets: &[u8], findings: &mut Findings) {
    if findings.has(Fact::CertificateNames) {
        return;
    }
    let mut text = EscapedText::default();
    let mut names = element(&mut Start(octets)).map_or(Start(&[]), |(_, names)| Start(names));
    while let Ok((tag, name)) = element(&mut names) {
        match (tag, name) {
            (0x82, name) => text.push_entry(name),
            (0x87, &[a, b, c, d]) => push_address(&mut text, IpAddr::from([a, b, c, d])),
            (0x87, name) => {
                if let Ok(octets) = <[u8; 16]>::try_from(name) {
                    push_address(&mut text, IpAddr::from(octets));
                }
            }
            _ => {}
        }
    }
    if !text.octets.is_empty() || text.cut {
        findings.set_escaped(Fact::CertificateNames, &text);
    }
}

fn push_address(text: &mut EscapedText, address: IpAddr) {
    let mut octets = RawText::default();
    octets.push(format_args!("{address}"));
    text.push_entry(&octets.0);
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime in the form of RFC 5280 section 4.1.2.5.
fn seconds(tag: u8, time: &[u8]) -> Option<i64> {
    let (year_digits, rest) = time.split_at_checked(if tag == 0x17 { 2 } else { 4 })?;
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
    };
    let year = match (tag, number(year_digits)?) {
        (0x17, year @ 50..) => 1900 + year,
        (0x17, year) => 2000 + year,
        (0x18, year) => year,
        _ => return None,
    };
    let [month, day, hour, minute, second] = match rest.as_chunks::<2>() {
        ([month, day, hour, minute, second], b"Z") => [month, day, hour, minute, second],
        _ => return None,
    }
    .map(|digits| number(digits));
    let (month, day) = (month?, day?);
    let is_time = hour? < 24 && minute? < 60 && second? < 60;
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + i64::from(is_leap_year),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_of_month).contains(&day) || !is_time {
        return None;
    }
    // Days since 1970 in the Gregorian calendar; a year begins in March, so that a leap day ends
    // it.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour?) * 60 + minute?) * 60 + second?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, 0x82], &u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(6, kind), der(tag, value)].concat())
    }

    #[test]
    fn names_are_written_as_rfc_4514_says() {
        let rdns = [
            der(0x31, &attribute(&[0x55, 4, 6], 19, b"DE")),
            der(0x31, &attribute(&[0x55, 4, 10], 12, "Größe, GmbH & \"Co\"".as_bytes())),
            der(
                0x31,
                &[attribute(&[0x55, 4, 3], 30, b"\0a\x20\xac"), attribute(&[0x55, 4, 11], 20, b" #\xe9 ")].concat(),
            ),
            der(0x31, &attribute(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 4], 19, b"DE")),
            der(0x31, &attribute(&[0x55, 4, 3], 3, &[0, 1])),
        ];
        let name = |octets: &[u8]| name(octets, &mut Findings::new(false)).octets.to_vec();
        let text = name(&rdns.concat());
        let expected = "CN=#0382000200 01,1.3.6.1.4.1.311.60.2.1.4=#138200024445,CN=a€+OU=\\ #é\\ ,\
            O=Größe\\, GmbH & \\\"Co\\\",C=DE";
        assert_eq!(String::from_utf8_lossy(&text), expected.replace("00 01", "0001"));
        let text = name(&der(0x31, &attribute(&[0x55, 4, 3], 12, b"\\a\n\0\xff\xc3\xa9")));
        assert_eq!(String::from_utf8_lossy(&text), r"CN=\\a\0a\00\ffé");
        for (tag, value, expected) in [(30, &b"\0ab"[..], "CN=#1e8200030061"), (28, b"\0\0a", "CN=#1c8200030000")] {
            let text = name(&der(0x31, &attribute(&[0x55, 4, 3], tag, value)));
            let last = format!("{:02x}", value[value.len() - 1]);
            assert_eq!(String::from_utf8_lossy(&text), format!("{expected}{last}"));
        }
        let text = name(&der(0x31, &attribute(&[0x55, 4, 10], 12, &[b','; 200])));
        assert_eq!(text.len(), 254);
    }

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, time, expected) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x17, "500101000000Z", Some(-631_152_000)),
            (0x18, "20000229120000Z", Some(951_825_600)),
            (0x18, "99991231235959Z", Some(253_402_300_799)),
            (0x18, "20000230120000Z", None),
            (0x18, "19000229120000Z", None),
            (0x17, "230229120000Z", None),
            (0x17, "240229120000Z", Some(1_709_208_000)),
            (0x17, "240431120000Z", None),
            (0x17, "240400120000Z", None),
            (0x18, "20001329120000Z", None),
            (0x17, "700101240000Z", None),
            (0x17, "7001010000Z", None),
            (0x17, "70010100000x", None),
            (0x04, "700101000000Z", None),
        ] {
            assert_eq!(seconds(tag, time.as_bytes()), expected, "{time}");
        }
    }
}
