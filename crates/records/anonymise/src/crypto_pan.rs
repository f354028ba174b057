//! Crypto-PAn: addresses become others, and the common prefix of two stays as long as it is.
//!
//! Each bit is inverted or not, as a pseudorandom function of the bits before it says. The function is the
//! first bit of AES-128 of these bits, filled up with a pad. 32 blocks for an IPv4 address, 128 for an
//! IPv6 address: no block needs the result of another, so the processor works on several at a time.
//!
//! Source: Xu, Fan, Ammar, Moon 2002, and their program (`Crypto-PAn 1.0`), whose results it gives. IPv6 by the
//! same rule with 128 bits.

use crate::key::Key;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of a block, and of an IPv6 address.
const BLOCK_BITS: usize = 128;

/// The permutation of addresses that belongs to a key. Its `Debug` does not have the key.
#[derive(Clone)]
pub struct CryptoPan {
    cipher: Aes128,
    pad: u128,
}

impl CryptoPan {
    /// The first 16 octets of the key are that of AES. The last 16, encrypted, are the pad.
    pub fn new(key: &Key) -> Self {
        let [key, pad] = key.halves();
        let cipher = Aes128::new(&key.into());
        let mut block = pad.into();
        cipher.encrypt_block(&mut block);
        Self { cipher, pad: u128::from_be_bytes(block.into()) }
    }

    /// The address in place of another one.
    pub fn anonymise(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => Ipv4Addr::from(self.ipv4(address.into())).into(),
            IpAddr::V6(address) => Ipv6Addr::from(self.ipv6(address.into())).into(),
        }
    }

    pub(crate) fn ipv4(&self, address: u32) -> u32 {
        const SHIFT: usize = BLOCK_BITS - 32;
        (self.bits::<32>(u128::from(address) << SHIFT) >> SHIFT) as u32
    }

    pub(crate) fn ipv6(&self, address: u128) -> u128 {
        self.bits::<BLOCK_BITS>(address)
    }

    /// Replaces the first `N` bits.
    fn bits<const N: usize>(&self, address: u128) -> u128 {
        let mut blocks = std::array::from_fn::<_, N, _>(|at| {
            let before = u128::MAX.checked_shl((BLOCK_BITS - at) as u32).unwrap_or(0);
            (address & before | self.pad & !before).to_be_bytes().into()
        });
        self.cipher.encrypt_blocks(&mut blocks);
        let flip =
            |flips, (at, block): (usize, &aes::Block)| flips | u128::from(block[0] >> 7) << (BLOCK_BITS - 1 - at);
        address ^ blocks.iter().enumerate().fold(0, flip)
    }
}

impl fmt::Debug for CryptoPan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CryptoPan")
    }
}
