//! The specification of anonymisation, as the user writes it: `KEYFILE`, and settings: `?NAME=VALUE&...`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bits of an address.
pub(crate) const IPV4_BITS: u8 = 32;
pub(crate) const IPV6_BITS: u8 = 128;

/// What becomes of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// `names=hash`: a keyed hash, which is the same for the same name.
    #[default]
    Hash,
    /// `names=drop`: no record has names.
    Drop,
}

/// How records are anonymised: the file of the key, and settings. It is parsed once, and does not have the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymisationSpec {
    /// As the user wrote it.
    text: String,
    key_file: PathBuf,
    /// Leading bits of anonymised addresses that stay; the others are 0.
    pub(crate) ipv4_bits: u8,
    pub(crate) ipv6_bits: u8,
    pub(crate) names: NameRule,
}

/// Why a specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// There is nothing before the settings.
    #[error("name the file of the key: KEYFILE, or KEYFILE?ipv4=24&ipv6=48&names=drop")]
    NoKeyFile,
    /// There is no such setting.
    #[error("there is no setting {0:?}; there are ipv4=BITS, ipv6=BITS, names=hash and names=drop, joined by &")]
    Unknown(String),
    /// A setting has two values.
    #[error("{0}= is given twice")]
    Twice(&'static str),
    /// No number of leading bits.
    #[error("{name}={value}: use the number of leading bits that stay, from 0 to {most}")]
    Bits {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Bits of an address.
        most: u8,
    },
    /// Neither `hash` nor `drop`.
    #[error("names={0}: use names=hash or names=drop")]
    Names(String),
}

impl AnonymisationSpec {
    /// The file of the key.
    pub fn key_file(&self) -> &Path {
        &self.key_file
    }

    /// All settings, in plain words and without the key.
    pub fn description(&self) -> String {
        let names = match self.names {
            NameRule::Hash => "names hashed",
            NameRule::Drop => "names left out",
        };
        let (ipv4, ipv6) = (self.ipv4_bits, self.ipv6_bits);
        format!("addresses by Crypto-PAn (IPv4 /{ipv4}, IPv6 /{ipv6}), {names}, key of {}", self.key_file.display())
    }
}

impl FromStr for AnonymisationSpec {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        let (key_file, settings) = text.split_once('?').unwrap_or((text, ""));
        if key_file.is_empty() {
            return Err(InvalidSpec::NoKeyFile);
        }
        let (mut ipv4, mut ipv6, mut names) = (None, None, None);
        // No value has a comma.
        for setting in settings.split(['&', ',']).filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("ipv4", value)) => set("ipv4", &mut ipv4, bits("ipv4", value, IPV4_BITS)?)?,
                Some(("ipv6", value)) => set("ipv6", &mut ipv6, bits("ipv6", value, IPV6_BITS)?)?,
                Some(("names", "hash")) => set("names", &mut names, NameRule::Hash)?,
                Some(("names", "drop")) => set("names", &mut names, NameRule::Drop)?,
                Some(("names", value)) => return Err(InvalidSpec::Names(value.into())),
                _ => return Err(InvalidSpec::Unknown(setting.into())),
            }
        }
        Ok(Self {
            text: text.into(),
            key_file: key_file.into(),
            ipv4_bits: ipv4.unwrap_or(IPV4_BITS),
            ipv6_bits: ipv6.unwrap_or(IPV6_BITS),
            names: names.unwrap_or_default(),
        })
    }
}

fn bits(name: &'static str, value: &str, most: u8) -> Result<u8, InvalidSpec> {
    let bits = value.parse().ok().filter(|bits| *bits <= most);
    bits.ok_or_else(|| InvalidSpec::Bits { name, value: value.into(), most })
}

fn set<T>(name: &'static str, setting: &mut Option<T>, value: T) -> Result<(), InvalidSpec> {
    if setting.replace(value).is_some() { Err(InvalidSpec::Twice(name)) } else { Ok(()) }
}

impl fmt::Display for AnonymisationSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_file_of_the_key() {
        let spec: AnonymisationSpec = "/etc/weir/key".parse().unwrap();
        assert_eq!((spec.ipv4_bits, spec.ipv6_bits, spec.names), (32, 128, NameRule::Hash));
        for text in ["key?ipv4=24&ipv6=48&names=drop", "key?names=drop,ipv6=48,ipv4=24"] {
            let spec: AnonymisationSpec = text.parse().unwrap();
            assert_eq!((spec.ipv4_bits, spec.ipv6_bits, spec.names), (24, 48, NameRule::Drop));
            assert_eq!((spec.key_file(), spec.to_string().as_str()), (Path::new("key"), text));
        }
        let spec: AnonymisationSpec = "key?ipv4=0&ipv6=0&names=hash".parse().unwrap();
        assert_eq!((spec.ipv4_bits, spec.ipv6_bits, spec.names), (0, 0, NameRule::Hash));
    }

    #[test]
    fn an_invalid_specification_says_what_is_valid() {
        for (text, reason) in [
            ("", "name the file of the key"),
            ("?ipv4=24", "name the file of the key"),
            ("key?ipv4=33", "ipv4=33: use the number of leading bits that stay, from 0 to 32"),
            ("key?ipv6=129", "from 0 to 128"),
            ("key?ipv4=", "from 0 to 32"),
            ("key?ipv4=-1", "from 0 to 32"),
            ("key?ipv4=24&ipv4=16", "ipv4= is given twice"),
            ("key?names=keep", "names=hash or names=drop"),
            ("key?macs=drop", "there is no setting \"macs=drop\"; there are ipv4=BITS"),
            ("key?ipv4", "there is no setting \"ipv4\""),
        ] {
            let error = text.parse::<AnonymisationSpec>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
