//! Versions of QUIC, and the constants of their Initial packets: RFC 9001 section 5.2, RFC 9369
//! section 3.3.1, and section 5.2 of draft-ietf-quic-tls.

/// Constants of a version.
pub(super) struct Version {
    /// From it and a connection id the keys follow.
    pub(super) salt: [u8; 20],
    /// Labels of the key, the initialization vector, and the key of header protection.
    pub(super) labels: [&'static [u8]; 3],
    /// The type of an Initial packet. The others follow: 0-RTT, Handshake, Retry, modulo 4.
    pub(super) initial_type: u8,
}

/// Version 1 and its drafts differ in the salt alone.
const fn like_version_1(salt: [u8; 20]) -> Version {
    Version { salt, labels: [b"quic key", b"quic iv", b"quic hp"], initial_type: 0 }
}

static VERSION_1: Version =
    like_version_1(*b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a");
static VERSION_2: Version = Version {
    salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
    labels: [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
    initial_type: 1,
};
static DRAFT_29: Version =
    like_version_1(*b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99");
static DRAFT_23: Version =
    like_version_1(*b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02");
static DRAFT_22: Version =
    like_version_1(*b"\x7f\xbc\xdb\x0e\x7c\x66\xbb\xe9\x19\x3a\x96\xcd\x21\x51\x9e\xbd\x7a\x02\x64\x4a");

/// The constants of a version. Drafts are in captures until 2021; 0xfaceb00N are Facebook's numbers
/// of drafts 22 and 27.
pub(super) fn version(number: u32) -> Option<&'static Version> {
    Some(match number {
        1 | 0xff00_0021..=0xff00_0022 => &VERSION_1,
        0x6b33_43cf => &VERSION_2,
        0xff00_001d..=0xff00_0020 => &DRAFT_29,
        0xff00_0017..=0xff00_001c | 0xface_b002 => &DRAFT_23,
        0xff00_0016 | 0xface_b001 => &DRAFT_22,
        _ => return None,
    })
}

/// Whether a version is reserved: it forces a negotiation of versions (RFC 9000 section 15).
pub(super) fn is_reserved(number: u32) -> bool {
    number & 0x0f0f_0f0f == 0x0a0a_0a0a
}
