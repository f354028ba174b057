//! Packets of QUIC version 1 with a long header (RFC 9000 section 17.2). Initial packets are
//! encrypted (RFC 9001 section 5), as their keys follow from the connection id that the client chose.

use super::tls::append_random;
use crate::random::Random;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInOut;
use hkdf::Hkdf;
use sha2::Sha256;

/// Payload of a datagram with an Initial packet of a client (RFC 9000 section 14.1).
const DATAGRAM: usize = 1200;
/// Octets of the handshake in an Initial packet at most.
pub(super) const MAX_CRYPTO: usize = 1100;
const TAG: usize = 16;
const SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f,
    0x0a,
];

/// Connection ids: the one that the client first sends to, and that of the server. The client has an
/// id without octets.
#[derive(Clone, Copy, Default)]
pub(super) struct Ids {
    pub(super) first: [u8; 8],
    pub(super) server: [u8; 8],
}

/// Writes a datagram with one Initial packet, padded. `frames` are its frames, which are replaced by
/// the datagram.
pub(super) fn initial(ids: &Ids, side: u8, number: u8, frames: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.clear();
    header(0xc0, if side == 0 { &ids.first } else { &[] }, if side == 0 { &[] } else { &ids.server }, out);
    out.push(0);
    // PADDING. A server fills the datagram with another packet.
    let frames_octets = if side == 0 { DATAGRAM - out.len() - 2 - 1 - TAG } else { frames.len().max(4) };
    frames.resize(frames_octets, 0);
    out.extend((0x4000 | (1 + frames_octets + TAG) as u16).to_be_bytes());
    let number_at = out.len();
    out.push(number);
    let keys = Keys::new(&ids.first, side);
    let tag = keys.encrypt(number, out, frames);
    out.extend(&*frames);
    out.extend(tag);
    let sample = out[number_at + 4..].first_chunk().expect("the frames are longer");
    let mask = keys.mask(sample);
    out[0] ^= mask[0] & 0x0f;
    out[number_at] ^= mask[1];
}

/// Appends a Handshake packet, whose content is random: it fills the datagram, or has these octets.
pub(super) fn handshake(ids: &Ids, side: u8, octets: Option<usize>, random: &mut Random, out: &mut Vec<u8>) {
    let first = 0xe0 | random.below(16) as u8;
    header(first, if side == 0 { &ids.server } else { &[] }, if side == 0 { &[] } else { &ids.server }, out);
    let octets = octets.unwrap_or(DATAGRAM.saturating_sub(out.len() + 2)).max(TAG + 5);
    out.extend((0x4000 | octets as u16).to_be_bytes());
    append_random(random, octets, out);
}

/// Appends a CRYPTO frame.
pub(super) fn crypto(offset: usize, octets: &[u8], out: &mut Vec<u8>) {
    out.push(6);
    out.extend((0x4000 | offset as u16).to_be_bytes());
    out.extend((0x4000 | octets.len() as u16).to_be_bytes());
    out.extend(octets);
}

fn header(first: u8, destination: &[u8], source: &[u8], out: &mut Vec<u8>) {
    out.extend([first, 0, 0, 0, 1, destination.len() as u8]);
    out.extend(destination);
    out.push(source.len() as u8);
    out.extend(source);
}

struct Keys {
    key: [u8; 16],
    nonce: [u8; 12],
    header: [u8; 16],
}

impl Keys {
    fn new(id: &[u8], side: u8) -> Self {
        let mut secret = [0; 32];
        expand(&Hkdf::new(Some(&SALT), id), if side == 0 { b"client in" } else { b"server in" }, &mut secret);
        let secret = Hkdf::from_prk(&secret).expect("it has the length of a hash");
        let mut keys = Self { key: [0; 16], nonce: [0; 12], header: [0; 16] };
        expand(&secret, b"quic key", &mut keys.key);
        expand(&secret, b"quic iv", &mut keys.nonce);
        expand(&secret, b"quic hp", &mut keys.header);
        keys
    }

    fn encrypt(&self, number: u8, header: &[u8], frames: &mut [u8]) -> [u8; TAG] {
        let mut nonce = self.nonce;
        nonce[11] ^= number;
        let cipher = Aes128Gcm::new(&self.key.into());
        let tag = cipher.encrypt_inout_detached(&nonce.into(), header, frames.into());
        tag.expect("it is shorter than the limit of the cipher").into()
    }

    fn mask(&self, sample: &[u8; 16]) -> [u8; 16] {
        let mut block = (*sample).into();
        Aes128::new(&self.header.into()).encrypt_block(&mut block);
        block.into()
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) without context.
fn expand(secret: &Hkdf<Sha256>, label: &[u8], output: &mut [u8]) {
    let info: [&[u8]; 4] = [&[0, output.len() as u8, 6 + label.len() as u8], b"tls13 ", label, &[0]];
    secret.expand_multi_info(&info, output).expect("it is short");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001 appendix A.1.
    #[test]
    fn keys_are_those_of_the_rfc() {
        let keys = Keys::new(&0x8394_c8f0_3e51_5708_u64.to_be_bytes(), 0);
        assert_eq!(u128::from_be_bytes(keys.key), 0x1f36_9613_dd76_d546_7730_efcb_e3b1_a22d);
        assert_eq!(u128::from_be_bytes(keys.header), 0x9f50_449e_04a0_e810_283a_1e99_33ad_edd2);
        let keys = Keys::new(&0x8394_c8f0_3e51_5708_u64.to_be_bytes(), 1);
        assert_eq!(u128::from_be_bytes(keys.key), 0xcf3a_5331_653c_364c_88f0_f379_b606_7e37);
    }
}
