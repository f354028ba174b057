//! Messages of the TLS handshake (RFC 5246, RFC 8446), as browsers and servers send them.

use crate::expected_application::{Fact, PROTOCOLS_OFFERED, SERVER_NAME};
use crate::random::Random;
use arrayvec::ArrayVec;

pub(super) const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const APPLICATION_DATA: u8 = 23;
/// Octets of the head of a record.
pub(super) const RECORD_HEAD: usize = 5;

/// Groups of RFC 8422 and RFC 8446, and the one with a key of 1216 octets.
const X25519: u16 = 0x001d;
const SECP256R1: u16 = 0x0017;
const X25519MLKEM768: u16 = 0x11ec;
const X25519MLKEM768_OCTETS: usize = 1216;

const TLS13_CIPHERS: [u16; 3] = [0x1301, 0x1302, 0x1303];
const TLS12_CIPHERS: [u16; 8] = [0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0x009c, 0x002f];
const SIGNATURES: [u16; 8] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];

/// A certificate for `*.apps.example`, made by OpenSSL. Its key was deleted.
const CERTIFICATE: &[u8] = include_bytes!("certificate.der");

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Tls12,
    Tls13,
    /// TLS 1.3 in QUIC.
    Quic,
}

pub(super) struct ClientHello<'a> {
    pub(super) version: Version,
    pub(super) server_name: Option<&'a [u8]>,
    pub(super) protocols: &'a [&'a str],
    /// With a key share that makes it longer than a segment.
    pub(super) is_long: bool,
    /// The server name is the last extension, instead of the first.
    pub(super) name_is_last: bool,
}

impl ClientHello<'_> {
    /// Appends the message. Returns its facts, each with the position after its extension.
    pub(super) fn write(&self, random: &mut Random, out: &mut Vec<u8>) -> ArrayVec<(Fact, usize), 2> {
        let Self { version, server_name, protocols, is_long, name_is_last } = *self;
        let (start, mut ends) = (out.len(), ArrayVec::new());
        out.push(1);
        vector(out, 3, |out| {
            out.extend([3, 3]);
            append_random(random, 32, out);
            vector(out, 1, |out| append_random(random, if version == Version::Quic { 0 } else { 32 }, out));
            vector(out, 2, |out| {
                append_numbers(if version == Version::Tls12 { &[] } else { &TLS13_CIPHERS }, out);
                append_numbers(if version == Version::Quic { &[] } else { &TLS12_CIPHERS }, out);
            });
            out.extend([1, 0]);
            vector(out, 2, |out| {
                let name = |out: &mut Vec<u8>, ends: &mut ArrayVec<_, 2>| {
                    let Some(name) = server_name else { return };
                    extension(out, 0, |out| {
                        vector(out, 2, |out| {
                            out.push(0);
                            vector(out, 2, |out| out.extend(name));
                        });
                    });
                    ends.push((SERVER_NAME, out.len() - start));
                };
                if !name_is_last {
                    name(out, &mut ends);
                }
                if version != Version::Quic {
                    extension(out, 23, |_| {});
                    extension(out, 0xff01, |out| out.push(0));
                    extension(out, 11, |out| out.extend([1, 0]));
                    extension(out, 35, |_| {});
                }
                let groups = [X25519MLKEM768, X25519, SECP256R1, 0x0018];
                let groups = if is_long { &groups[..] } else { &groups[1..] };
                extension(out, 10, |out| vector(out, 2, |out| append_numbers(groups, out)));
                if !protocols.is_empty() {
                    extension(out, 16, |out| {
                        vector(out, 2, |out| {
                            for protocol in protocols {
                                vector(out, 1, |out| out.extend(protocol.as_bytes()));
                            }
                        });
                    });
                    ends.push((PROTOCOLS_OFFERED, out.len() - start));
                }
                extension(out, 5, |out| out.extend([1, 0, 0, 0, 0]));
                extension(out, 13, |out| vector(out, 2, |out| append_numbers(&SIGNATURES, out)));
                if version != Version::Tls12 {
                    self.append_tls13(random, out);
                }
                if version == Version::Quic {
                    // max_idle_timeout 30 s, initial_max_data, initial_max_streams_bidi,
                    // initial_source_connection_id without octets
                    let parameters = [1, 4, 0x80, 0, 0x75, 0x30, 4, 4, 0x80, 0x10, 0, 0, 8, 2, 0x40, 0x64, 15, 0];
                    extension(out, 57, |out| out.extend(parameters));
                }
                if name_is_last {
                    name(out, &mut ends);
                }
            });
        });
        ends
    }

    /// Appends the extensions of TLS 1.3: key shares, modes of a session ticket, versions.
    fn append_tls13(&self, random: &mut Random, out: &mut Vec<u8>) {
        extension(out, 51, |out| {
            vector(out, 2, |out| {
                if self.is_long {
                    key_share(X25519MLKEM768, X25519MLKEM768_OCTETS, random, out);
                }
                key_share(X25519, 32, random, out);
            });
        });
        extension(out, 45, |out| out.extend([1, 1]));
        let versions: &[u16] = if self.version == Version::Quic { &[0x0304] } else { &[0x0304, 0x0303] };
        extension(out, 43, |out| vector(out, 1, |out| append_numbers(versions, out)));
    }
}

/// Appends a ServerHello, and for TLS 1.2 with the selected protocol, which is the last extension.
pub(super) fn server_hello(version: Version, protocol: Option<&str>, random: &mut Random, out: &mut Vec<u8>) {
    out.push(2);
    vector(out, 3, |out| {
        out.extend([3, 3]);
        append_random(random, 32, out);
        vector(out, 1, |out| append_random(random, if version == Version::Quic { 0 } else { 32 }, out));
        let cipher = if version == Version::Tls12 { TLS12_CIPHERS[0] } else { TLS13_CIPHERS[0] };
        append_numbers(&[cipher], out);
        out.push(0);
        vector(out, 2, |out| {
            if version == Version::Tls12 {
                extension(out, 0xff01, |out| out.push(0));
                extension(out, 23, |_| {});
                if let Some(protocol) = protocol {
                    extension(out, 16, |out| {
                        vector(out, 2, |out| vector(out, 1, |out| out.extend(protocol.as_bytes())));
                    });
                }
            } else {
                extension(out, 43, |out| append_numbers(&[0x0304], out));
                extension(out, 51, |out| key_share(X25519, 32, random, out));
            }
        });
    });
}

/// Appends the certificate message of TLS 1.2.
pub(super) fn certificate(out: &mut Vec<u8>) {
    out.push(11);
    vector(out, 3, |out| vector(out, 3, |out| vector(out, 3, |out| out.extend(CERTIFICATE))));
}

/// Appends ServerKeyExchange and ServerHelloDone of TLS 1.2. The signature is random.
pub(super) fn server_key_exchange(random: &mut Random, out: &mut Vec<u8>) {
    out.push(12);
    vector(out, 3, |out| {
        out.extend([3, 0, X25519 as u8]);
        vector(out, 1, |out| append_random(random, 32, out));
        append_numbers(&[0x0403], out);
        vector(out, 2, |out| append_random(random, 71, out));
    });
    out.extend([14, 0, 0, 0]);
}

/// Appends ClientKeyExchange of TLS 1.2.
pub(super) fn client_key_exchange(random: &mut Random, out: &mut Vec<u8>) {
    out.push(16);
    vector(out, 3, |out| vector(out, 1, |out| append_random(random, 32, out)));
}

/// Appends ChangeCipherSpec, and an encrypted record of this type.
pub(super) fn encrypted(kind: u8, octets: usize, random: &mut Random, out: &mut Vec<u8>) {
    record(out, CHANGE_CIPHER_SPEC, |out| out.push(1));
    record(out, kind, |out| append_random(random, octets, out));
}

/// Appends a record with what `content` writes.
pub(super) fn record(out: &mut Vec<u8>, kind: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.extend([kind, 3, 3]);
    vector(out, 2, content);
}

fn key_share(group: u16, octets: usize, random: &mut Random, out: &mut Vec<u8>) {
    append_numbers(&[group], out);
    vector(out, 2, |out| append_random(random, octets, out));
}

fn extension(out: &mut Vec<u8>, number: u16, content: impl FnOnce(&mut Vec<u8>)) {
    append_numbers(&[number], out);
    vector(out, 2, content);
}

fn append_numbers(numbers: &[u16], out: &mut Vec<u8>) {
    out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
}

/// Appends what `content` writes, after its length in this number of octets.
pub(super) fn vector(out: &mut Vec<u8>, length_octets: usize, content: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend(&[0; 4][..length_octets]);
    content(out);
    let length = (out.len() - at - length_octets) as u32;
    out[at..at + length_octets].copy_from_slice(&length.to_be_bytes()[4 - length_octets..]);
}

/// Appends random octets.
pub(super) fn append_random(random: &mut Random, octets: usize, out: &mut Vec<u8>) {
    let end = out.len() + octets;
    while out.len() < end {
        out.extend(random.next_u64().to_be_bytes());
    }
    out.truncate(end);
}
