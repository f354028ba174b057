//! Fingerprints of TLS: JA3 and JA3S (Salesforce, <https://github.com/salesforce/ja3>) and JA4, the
//! TLS client alone (FoxIO, technical_details/JA4.md of <https://github.com/FoxIO-LLC/ja4>).
//!
//! A reader keeps the fields of a hello as an extracted field, without GREASE (RFC 8701). The fingerprints are
//! computed from the extracted field, once per record.

use crate::findings::hexadecimal;
use crate::{Application, Fact, Findings};
use arrayvec::ArrayVec;
use md5::Md5;
use sha2::{Digest, Sha256};

/// Values in a list of a ClientHello at most. A hello with more has no fingerprint.
pub(crate) const MAX_LIST: usize = 255;
/// Octets of [`Fact::TlsClientHello`] at most.
const MAX_CLIENT_HELLO_OCTETS: usize = 512;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// The fields of a ClientHello that fingerprints are made of. As an extracted field:
///
/// ```text
/// octets
/// 1       application: 1 TLS, 2 QUIC, 19 DTLS
/// 2       legacy_version
/// 2       newest version of supported_versions; 0: no such extension
/// 2       first and last octet of the first protocol in ALPN; 0: none
/// 1 + 2n  number of cipher suites, cipher suites
/// 1 + 2n  number of extensions, types of extensions
/// 1 + 2n  number of groups, groups
/// 1 + 2n  number of signature algorithms, signature algorithms
/// n       formats of points
/// ```
#[derive(Default)]
pub(crate) struct ClientHello<'a> {
    pub(crate) application: u8,
    pub(crate) version: u16,
    pub(crate) newest_version: u16,
    pub(crate) alpn: [u8; 2],
    /// Cipher suites, types of extensions, groups, signature algorithms: values of 2 octets each.
    pub(crate) lists: [&'a [u8]; 4],
    pub(crate) point_formats: &'a [u8],
    /// A list is longer than could be kept.
    pub(crate) is_cut: bool,
}

impl ClientHello<'_> {
    /// The extracted field, unless it is too long.
    pub(crate) fn encode(&self) -> Option<ArrayVec<u8, MAX_CLIENT_HELLO_OCTETS>> {
        let mut fact = ArrayVec::new();
        fact.push(self.application);
        fact.extend(self.version.to_be_bytes());
        fact.extend(self.newest_version.to_be_bytes());
        fact.extend(self.alpn);
        for list in self.lists {
            let count_at = fact.len();
            fact.try_push(0).ok()?;
            let mut count = 0_u8;
            for value in values(list).filter(|value| !is_grease(*value)) {
                fact.try_extend_from_slice(&value.to_be_bytes()).ok()?;
                count = count.checked_add(1)?;
            }
            fact[count_at] = count;
        }
        fact.try_extend_from_slice(self.point_formats).ok()?;
        (!self.is_cut).then_some(fact)
    }
}

impl<'a> ClientHello<'a> {
    fn decode(fact: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = fact.split_first_chunk::<7>()?;
        let mut hello = Self {
            application: head[0],
            version: u16::from_be_bytes([head[1], head[2]]),
            newest_version: u16::from_be_bytes([head[3], head[4]]),
            alpn: [head[5], head[6]],
            ..Self::default()
        };
        for list in &mut hello.lists {
            let (count, after) = rest.split_first()?;
            (*list, rest) = after.split_at_checked(2 * usize::from(*count))?;
        }
        hello.point_formats = rest;
        Some(hello)
    }
}

/// The fields of a ServerHello that JA3S is made of. As an extracted field: values of 2 octets, the version, the
/// cipher suite, the types of extensions.
#[derive(Default)]
pub(crate) struct ServerHello {
    pub(crate) version: u16,
    pub(crate) cipher: u16,
    pub(crate) extensions: ArrayVec<u16, 64>,
    /// The list of extensions is longer than could be kept.
    pub(crate) is_cut: bool,
}

impl ServerHello {
    /// The extracted field, unless it is too long.
    pub(crate) fn encode(&self) -> Option<ArrayVec<u8, 132>> {
        let values = [self.version, self.cipher].into_iter().chain(self.extensions.iter().copied());
        (!self.is_cut).then(|| values.flat_map(u16::to_be_bytes).collect())
    }
}

/// Whether a value is reserved to exercise the tolerance of peers (GREASE, RFC 8701).
pub(crate) fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// The values of a list of integers of 16 bits.
pub(crate) fn values(list: &[u8]) -> impl Iterator<Item = u16> + Clone {
    list.as_chunks().0.iter().map(|octets| u16::from_be_bytes(*octets))
}

/// JA3 of the client, if a whole ClientHello was seen. `None` also if its lists are longer than
/// anything but a test sends.
pub fn ja3(findings: &Findings) -> Option<[u8; 32]> {
    let hello = ClientHello::decode(findings.octets(Fact::TlsClientHello)?)?;
    let [ciphers, extensions, groups, _] = hello.lists;
    let mut md5 = Md5::new();
    decimals(&mut md5, [hello.version].into_iter());
    for list in [ciphers, extensions, groups] {
        md5.update(",");
        decimals(&mut md5, values(list));
    }
    md5.update(",");
    decimals(&mut md5, hello.point_formats.iter().map(|format| u16::from(*format)));
    Some(hexadecimal(&md5.finalize()))
}

/// JA3S of the server, if a whole ServerHello was seen (a HelloRetryRequest does not count).
pub fn ja3s(findings: &Findings) -> Option<[u8; 32]> {
    let (head, extensions) = findings.octets(Fact::TlsServerHello)?.split_first_chunk::<4>()?;
    let mut md5 = Md5::new();
    decimals(&mut md5, values(&head[..2]));
    md5.update(",");
    decimals(&mut md5, values(&head[2..]));
    md5.update(",");
    decimals(&mut md5, values(extensions));
    Some(hexadecimal(&md5.finalize()))
}

/// JA4 of the client, if a whole ClientHello was seen. `None` also if its lists are longer than
/// anything but a test sends.
pub fn ja4(findings: &Findings) -> Option<[u8; 36]> {
    let hello = ClientHello::decode(findings.octets(Fact::TlsClientHello)?)?;
    let [ciphers, extensions, _, signature_algorithms] = hello.lists;
    let mut ja4 = ArrayVec::<u8, 36>::new();
    ja4.push(match hello.application {
        number if number == Application::Quic as u8 => b'q',
        number if number == Application::Dtls as u8 => b'd',
        _ => b't',
    });
    ja4.extend(*match if hello.newest_version == 0 { hello.version } else { hello.newest_version } {
        0x0304 => b"13",
        0x0303 => b"12",
        0x0302 => b"11",
        0x0301 => b"10",
        0x0300 => b"s3",
        0x0002 => b"s2",
        0xfeff => b"d1",
        0xfefd => b"d2",
        0xfefc => b"d3",
        _ => b"00",
    });
    ja4.push(if values(extensions).any(|number| number == SERVER_NAME) { b'd' } else { b'i' });
    for list in [ciphers, extensions] {
        let count = (list.len() / 2).min(99) as u8;
        ja4.extend([b'0' + count / 10, b'0' + count % 10]);
    }
    ja4.extend(match hello.alpn {
        [0, 0] => *b"00",
        [first, last] if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => [first, last],
        ends => {
            let [high, _, _, low] = hexadecimal(&ends);
            [high, low]
        }
    });
    ja4.push(b'_');
    ja4.extend(truncated_sha256(sorted(values(ciphers)), &[]));
    ja4.push(b'_');
    let hashed = values(extensions).filter(|number| ![SERVER_NAME, ALPN].contains(number));
    ja4.extend(truncated_sha256(sorted(hashed), signature_algorithms));
    ja4.into_inner().ok()
}

fn sorted(values: impl Iterator<Item = u16>) -> ArrayVec<u16, MAX_LIST> {
    let mut sorted: ArrayVec<u16, MAX_LIST> = values.take(MAX_LIST).collect();
    sorted.sort_unstable();
    sorted
}

/// The start of the SHA-256 of both lists as JA4 writes them; zeros if the first has no value.
fn truncated_sha256(list: ArrayVec<u16, MAX_LIST>, appendix: &[u8]) -> [u8; 12] {
    if list.is_empty() {
        return [b'0'; 12];
    }
    let mut sha256 = Sha256::new();
    hexadecimals(&mut sha256, list.into_iter());
    if !appendix.is_empty() {
        sha256.update("_");
        hexadecimals(&mut sha256, values(appendix));
    }
    *hexadecimal::<64>(&sha256.finalize()).first_chunk().expect("12 of 64")
}

fn hexadecimals(digest: &mut impl Digest, values: impl Iterator<Item = u16>) {
    for (at, value) in values.enumerate() {
        if at > 0 {
            digest.update(",");
        }
        digest.update(hexadecimal::<4>(&value.to_be_bytes()));
    }
}

fn decimals(digest: &mut impl Digest, values: impl Iterator<Item = u16>) {
    for (at, value) in values.enumerate() {
        if at > 0 {
            digest.update("-");
        }
        digest.update(itoa::Buffer::new().format(value));
    }
}
