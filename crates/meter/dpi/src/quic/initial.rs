//! Decryption of Initial packets. Their keys follow from the destination connection id that the
//! client chose, so everyone on the path can decrypt them (RFC 9001 section 5.2, RFC 9369 section
//! 3.3).

use super::packet::{MAX_ID_OCTETS, Packet, TAG_OCTETS};
use super::version::{Version, version};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInOut;
use arrayvec::ArrayVec;
use hkdf::Hkdf;
use sha2::Sha256;
use std::ops::Range;

/// Longer packets are not decrypted.
const MAX_PACKET_OCTETS: usize = 2048;

/// A packet, decrypted in place.
pub(super) type Plaintext = ArrayVec<u8, MAX_PACKET_OCTETS>;

/// The side that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// Keys of the Initial packets of one side.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    key: [u8; 16],
    nonce: [u8; 12],
    header: [u8; 16],
}

/// The secrets of both sides of a connection, from which their keys follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secrets([[u8; 32]; 2]);

impl Secrets {
    /// The secrets of a connection whose client first sent to `id`.
    pub(super) fn new(version: &Version, id: &[u8]) -> Self {
        let initial = Hkdf::new(Some(&version.salt), id);
        Self([&b"client in"[..], b"server in"].map(|label| {
            let mut secret = [0; 32];
            expand(&initial, label, &mut secret);
            secret
        }))
    }
}

impl Keys {
    /// The keys of one side of a connection.
    pub(super) fn new(version: &Version, secrets: &Secrets, sender: Sender) -> Self {
        let secret = Hkdf::from_prk(&secrets.0[sender as usize]).expect("it has the length of a hash");
        let mut keys = Self { key: [0; 16], nonce: [0; 12], header: [0; 16] };
        expand(&secret, version.labels[0], &mut keys.key);
        expand(&secret, version.labels[1], &mut keys.nonce);
        expand(&secret, version.labels[2], &mut keys.header);
        keys
    }

    /// The mask of the first octet and the packet number.
    pub(super) fn mask(&self, sample: &[u8; 16]) -> [u8; 16] {
        let mut block = (*sample).into();
        Aes128::new(&self.header.into()).encrypt_block(&mut block);
        block.into()
    }

    pub(super) fn cipher(&self) -> Aes128Gcm {
        Aes128Gcm::new(&self.key.into())
    }

    /// The nonce of a packet, from the octets of its number.
    pub(super) fn nonce(&self, number: &[u8]) -> [u8; 12] {
        let mut nonce = self.nonce;
        nonce.iter_mut().rev().zip(number.iter().rev()).for_each(|(nonce, number)| *nonce ^= number);
        nonce
    }
}

/// The keys that a connection needed last. To derive them takes longer than to decrypt a packet, and
/// a side sends several packets.
#[derive(Clone, Debug, Default)]
pub(super) struct LastKeys {
    secrets: Option<(u32, ArrayVec<u8, MAX_ID_OCTETS>, Secrets)>,
    /// Keys that follow from these secrets.
    keys: Option<(Sender, Keys)>,
    /// Keys that may still be derived for this datagram.
    derivations_left: u8,
    /// A packet of this datagram needed more.
    is_limited: bool,
}

impl LastKeys {
    /// Permits this number of derivations for the next datagram.
    pub(super) fn begin_datagram(&mut self, derivations: u8) {
        (self.derivations_left, self.is_limited) = (derivations, false);
    }

    /// Whether keys were not derived because of the limit.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// The keys of a connection whose client first sent to `id`. `None`: the version is unknown, the
    /// id too long, or the limit of derivations reached.
    fn of(&mut self, number: u32, id: &[u8], sender: Sender) -> Option<&Keys> {
        let version = version(number)?;
        let known = self.secrets.as_ref().filter(|(of, last_id, _)| *of == number && **last_id == *id);
        if known.is_none() || self.keys.as_ref().is_none_or(|(of, _)| *of != sender) {
            let known = known.map(|(_, _, secrets)| *secrets);
            let Some(left) = self.derivations_left.checked_sub(1) else {
                self.is_limited = true;
                return None;
            };
            self.derivations_left = left;
            let secrets = known.unwrap_or_else(|| Secrets::new(version, id));
            self.secrets = Some((number, id.try_into().ok()?, secrets));
            self.keys = Some((sender, Keys::new(version, &secrets, sender)));
        }
        self.keys.as_ref().map(|(_, keys)| keys)
    }
}

/// Decrypts an Initial packet of a connection whose client first sent to `id`. Returns where its
/// frames are in the plaintext. `None`: it is not one, or is too long.
pub(super) fn decrypt(
    packet: &Packet<'_>,
    (id, sender): (&[u8], Sender),
    keys: &mut LastKeys,
    plaintext: &mut Plaintext,
) -> Option<Range<usize>> {
    plaintext.clear();
    plaintext.try_extend_from_slice(packet.octets).ok()?;
    let number_at = packet.number_at;
    let sample = plaintext.get(number_at + 4..)?.first_chunk()?;
    let keys = keys.of(packet.version, id, sender)?;
    let mask = keys.mask(sample);
    plaintext[0] ^= mask[0] & 0x0f;
    let frames_at = number_at + usize::from(plaintext[0] & 3) + 1;
    let number = &mut plaintext[number_at..frames_at];
    number.iter_mut().zip(&mask[1..]).for_each(|(octet, mask)| *octet ^= mask);
    let nonce = keys.nonce(number);
    let (header, payload) = plaintext.split_at_mut(frames_at);
    let (frames, tag) = payload.split_last_chunk_mut::<TAG_OCTETS>()?;
    keys.cipher().decrypt_inout_detached(&nonce.into(), header, frames.into(), &(*tag).into()).ok()?;
    Some(frames_at..plaintext.len() - TAG_OCTETS)
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) without context.
fn expand(secret: &Hkdf<Sha256>, label: &[u8], output: &mut [u8]) {
    let prefix = b"tls13 ";
    let lengths = [0, output.len() as u8, (prefix.len() + label.len()) as u8];
    secret.expand_multi_info(&[&lengths, prefix, label, &[0]], output).expect("it is short");
}
