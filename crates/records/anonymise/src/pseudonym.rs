//! Keyed hashes of names and MAC addresses: HMAC-SHA-256 (RFC 2104), cut.
//!
//! A name is `n-` and the first 8 octets of `HMAC(key, "name" 00 NAME)`, hexadecimal: of 2^32 different names, two
//! are expected to have the same. A MAC address is the first 6 octets of `HMAC(key, "mac" 00 ADDRESS)`, with
//! the bit of groups of the address, and as locally administered. The key is all 32 octets of the file.

use crate::key::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a hashed name begins with.
pub(crate) const NAME_PREFIX: &str = "n-";
/// Octets of a hash that a name has.
const NAME_OCTETS: usize = 8;
/// The bit of a MAC address that says that it is one of a group.
const GROUP: u8 = 1;
/// The bit of a MAC address that says that no manufacturer has given it.
const LOCAL: u8 = 2;

/// Makes keyed hashes.
#[derive(Clone)]
pub struct Pseudonyms(Hmac<Sha256>);

impl Pseudonyms {
    /// Those of a key.
    pub fn new(key: &Key) -> Self {
        Self(Hmac::new_from_slice(key.octets()).expect("HMAC takes keys of any length"))
    }

    fn hash(&self, domain: &[u8], value: &[u8]) -> [u8; 32] {
        let mut hash = self.0.clone();
        hash.update(domain);
        hash.update(&[0]);
        hash.update(value);
        hash.finalize().into_bytes().into()
    }

    /// Appends the hash of a name.
    pub fn push_name(&self, name: &str, out: &mut String) {
        out.push_str(NAME_PREFIX);
        for octet in &self.hash(b"name", name.as_bytes())[..NAME_OCTETS] {
            out.extend([octet >> 4, octet & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
        }
    }

    /// The MAC address in place of another one.
    pub fn mac(&self, address: [u8; 6]) -> [u8; 6] {
        let [first, b, c, d, e, f, ..] = self.hash(b"mac", &address);
        [first & !(GROUP | LOCAL) | address[0] & GROUP | LOCAL, b, c, d, e, f]
    }
}
