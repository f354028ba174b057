//! Prefixes of addresses: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address prefix. Bits behind it are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prefix {
    pub address: IpAddr,
    pub bits: u8,
}

/// Why a text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrefix {
    /// The part before `/` is not an address.
    #[error("not an address or prefix")]
    Address,
    /// The part after `/` is not a length.
    #[error("the prefix length is not a number from 0 to {0}")]
    Length(u8),
    /// The address has bits behind the prefix.
    #[error("the address has bits behind the prefix; did you mean {0}?")]
    HostBits(String),
}

impl Prefix {
    /// The first bits of an address.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Self { address, bits }
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidPrefix::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        // `parse` would accept a sign, and zeros before the number.
        let is_number =
            |text: &&str| text.bytes().all(|octet| octet.is_ascii_digit()) && (*text == "0" || !text.starts_with('0'));
        let length = |text: &str| Some(text).filter(is_number).and_then(|text| text.parse().ok());
        let bits = bits.map_or(Some(most), length).filter(|&bits| bits <= most).ok_or(InvalidPrefix::Length(most))?;
        let prefix = Self::new(address, bits);
        if prefix.address == address { Ok(prefix) } else { Err(InvalidPrefix::HostBits(prefix.to_string())) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_families_and_addresses_are_read() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("::/0", "::/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        let error = |text: &str| text.parse::<Prefix>().unwrap_err();
        for text in ["", "10.0.0", "10.0.0.256", "10.0.0.01", "example.com", "/8", " 10.0.0.0/8"] {
            assert_eq!(error(text), InvalidPrefix::Address, "{text}");
        }
        for text in [
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "0.0.0.0/00",
            "10.0.0.0/8/8",
            "10.0.0.0/255.0.0.0",
        ] {
            assert_eq!(error(text), InvalidPrefix::Length(32), "{text}");
        }
        assert_eq!(error("::/129"), InvalidPrefix::Length(128));
        assert_eq!(error("10.0.0.1/8"), InvalidPrefix::HostBits("10.0.0.0/8".into()));
        assert_eq!(error("::1/0"), InvalidPrefix::HostBits("::/0".into()));
    }
}
