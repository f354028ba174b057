//! The keyed hash of a flow key.
//!
//! Two products of 64 by 64 bits folded to 64 (one per endpoint), and a third over both and the rest: about 25
//! instructions. The secret is new in every run, so keys that collide cannot be computed beforehand.
//! Always true: a key has one hash, whichever direction the packet came from.

use crate::KeyOptions;
use crate::key::Key;
use weir_packet::Packet;

/// A hash with its secret.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash([u64; 6]);

impl KeyHash {
    /// With a secret made from a number, or from the operating system's randomness.
    pub fn new(secret: Option<u64>) -> Self {
        let random = match secret {
            Some(secret) => {
                ahash::RandomState::with_seeds(secret, !secret, secret.rotate_left(32), 0x9e37_79b9_7f4a_7c15)
            }
            None => ahash::RandomState::new(),
        };
        Self(std::array::from_fn(|at| random.hash_one(at)))
    }

    /// A hash for other tables, of the same secret.
    pub(crate) fn random(&self) -> ahash::RandomState {
        let Self([a, b, c, d, ..]) = *self;
        ahash::RandomState::with_seeds(a, b, c, d)
    }

    /// The hash of a packet's key.
    #[inline]
    pub fn of(&self, packet: &Packet, options: KeyOptions) -> u64 {
        self.key(&Key::of(packet, options).0)
    }

    #[inline(always)]
    pub(crate) fn key(&self, key: &Key) -> u64 {
        let [a, b, c, d] = key.addresses;
        let Self([k0, k1, k2, k3, k4, k5]) = *self;
        let low = folded(a ^ k0, b ^ k1);
        let high = folded(c ^ k2, d ^ k3);
        let rest = key.rest ^ key.extra.hashed([k1 ^ k2, k0 ^ k3], folded);
        folded(low ^ rest ^ k4, high ^ k5)
    }
}

/// Both halves of the product.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
