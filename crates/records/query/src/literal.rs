//! Literals: numbers with units, ranges, prefixes, addresses, times, flags and protocols, checked
//! against the field that they are compared with.

use crate::error::Problem;
use crate::ranges::Ranges;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_fields::protocol_name;
use weir_fields::{Field, Kind, Words};
use weir_text::most_similar;
use weir_text::units::time_unit_ns;
use weir_text::zone::Zone;

/// An address with its family: `false` for IPv4. All IPv4 addresses are below all IPv6 addresses.
pub(crate) type AddressKey = (bool, u128);

pub(crate) fn address_key(address: IpAddr) -> AddressKey {
    match address {
        IpAddr::V4(address) => (false, address.to_bits().into()),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

pub(crate) fn address_of_key((is_ipv6, bits): AddressKey) -> IpAddr {
    if is_ipv6 { Ipv6Addr::from_bits(bits).into() } else { Ipv4Addr::from_bits(bits as u32).into() }
}

pub(crate) fn mac_key(octets: [u8; 6]) -> u64 {
    octets.iter().fold(0, |number, &octet| number << 8 | u64::from(octet))
}

/// A range of values that a literal stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Literal {
    Whole(u64, u64),
    Fraction(f64, f64),
    Address(AddressKey, AddressKey),
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Numbers, times, MAC addresses, protocols.
    Whole(Ranges<u64>),
    Fraction(Ranges<f64>),
    Address(Ranges<AddressKey>),
}

impl Values {
    /// Literals of one field, which have one type.
    pub fn new(literals: &[Literal]) -> Self {
        match literals.first() {
            Some(Literal::Fraction(..)) => {
                Self::Fraction(Ranges::new(literals.iter().filter_map(|literal| match *literal {
                    Literal::Fraction(low, high) => Some((low, high)),
                    _ => None,
                })))
            }
            Some(Literal::Address(..)) => {
                Self::Address(Ranges::new(literals.iter().filter_map(|literal| match *literal {
                    Literal::Address(low, high) => Some((low, high)),
                    _ => None,
                })))
            }
            _ => Self::Whole(Ranges::new(literals.iter().filter_map(|literal| match *literal {
                Literal::Whole(low, high) => Some((low, high)),
                _ => None,
            }))),
        }
    }
}

/// Parses a literal of a field: a value, a range `A-B`, or a prefix. Times without a zone are in `zone`.
pub(crate) fn parse(field: &Field, text: &str, zone: &Zone) -> Result<Literal, Problem> {
    match field.kind {
        Kind::Address => address(field, text),
        Kind::Mac => mac(text).map(|mac| Literal::Whole(mac, mac)).ok_or_else(|| not_a_value(field, text)),
        Kind::Time => {
            zone.parse(text).map(|ns| Literal::Whole(ns, ns)).map_err(|error| Problem::NotATime(error.into()))
        }
        Kind::Protocol => protocol(field, text).map(|number| Literal::Whole(number, number)),
        Kind::Flags => flags(text).map(|bits| Literal::Whole(bits.into(), bits.into())),
        Kind::Words(words) => self::words(field, words, text).map(|number| Literal::Whole(number, number)),
        _ => number_range(field, text),
    }
}

fn not_a_value(field: &Field, text: &str) -> Problem {
    Problem::NotAValue { text: text.into(), field: field.name.into(), kind: field.kind }
}

fn number_range(field: &Field, text: &str) -> Result<Literal, Problem> {
    let (low, high) = text.split_once('-').filter(|(low, _)| !low.is_empty()).unwrap_or((text, text));
    match (number(field, low)?, number(field, high)?) {
        (Literal::Whole(low, _), Literal::Whole(_, high)) if low <= high => Ok(Literal::Whole(low, high)),
        (Literal::Fraction(low, _), Literal::Fraction(_, high)) if low <= high => Ok(Literal::Fraction(low, high)),
        _ => Err(Problem::EmptyRange),
    }
}

/// Decimal or binary factors of numbers.
const FACTORS: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
];

fn number(field: &Field, text: &str) -> Result<Literal, Problem> {
    // Some numbers have names.
    if let Some(words) = field.properties().words.filter(|_| text.starts_with(|letter: char| letter.is_alphabetic())) {
        return self::words(field, words, text).map(|number| Literal::Whole(number, number));
    }
    if let Some(percent) = text.strip_suffix('%').filter(|_| field.kind == Kind::Fraction) {
        let Literal::Fraction(percent, _) = number(field, percent)? else { unreachable!("its values are fractions") };
        return Ok(Literal::Fraction(percent / 100.0, percent / 100.0));
    }
    let not_a_number = || Problem::NotANumber { text: text.into(), field: field.name.into(), kind: field.kind };
    let most = if let Kind::Number(most) = field.kind { most } else { u64::MAX };
    let too_large = || Problem::TooLarge { field: field.name.into(), most };
    if text.contains('/') || text.parse::<IpAddr>().is_ok() && text.contains([':', '.']) && text.parse::<f64>().is_err()
    {
        return Err(if text.contains('/') {
            Problem::Prefix { field: field.name.into(), kind: field.kind }
        } else {
            not_a_number()
        });
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(digits) = hexadecimal {
        let number = u64::from_str_radix(digits, 16).map_err(|_| not_a_number())?;
        return if number <= most { Ok(whole_or_fraction(field, number)) } else { Err(too_large()) };
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_alphabetic());
    let unit = &text[digits.len()..];
    if digits.is_empty() || !digits.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err(not_a_number());
    }
    let factor = factor(field, digits, unit)?;
    let (value, fraction) = scale(digits, factor).ok_or_else(not_a_number)?;
    if matches!(field.kind, Kind::Fraction | Kind::MeanNanoseconds) {
        let value = digits.parse::<f64>().map_err(|_| not_a_number())? * factor as f64;
        return Ok(Literal::Fraction(value, value));
    }
    if fraction {
        return Err(Problem::Fraction { field: field.name.into() });
    }
    match u64::try_from(value) {
        Ok(number) if number <= most => Ok(Literal::Whole(number, number)),
        _ => Err(too_large()),
    }
}

fn whole_or_fraction(field: &Field, number: u64) -> Literal {
    match field.kind {
        Kind::Fraction | Kind::MeanNanoseconds => Literal::Fraction(number as f64, number as f64),
        _ => Literal::Whole(number, number),
    }
}

/// The factor of a unit behind a number.
fn factor(field: &Field, digits: &str, unit: &str) -> Result<u64, Problem> {
    let lower = unit.to_lowercase();
    let name = || field.name.to_string();
    if field.kind.is_time_span() {
        return match time_unit_ns(&lower) {
            Some(factor) => Ok(factor),
            None if unit.is_empty() && (field.kind != Kind::Duration || digits.bytes().all(|digit| digit == b'0')) => {
                Ok(1)
            }
            None if unit.is_empty() => Err(Problem::MissingUnit { field: name(), number: digits.into() }),
            None => Err(Problem::UnknownUnit { field: name(), unit: unit.into(), units: "ns, us, ms, s, m, h or d" }),
        };
    }
    // 1MB is usual for octets, and only for them.
    let lower = if field.kind == Kind::Octets { lower.strip_suffix('b').unwrap_or(&lower) } else { &lower };
    match FACTORS.iter().find(|(name, _)| *name == lower).map(|&(_, factor)| factor) {
        // Ports, VLANs and so on are numbers without a unit.
        Some(_) if !unit.is_empty() && matches!(field.kind, Kind::Number(most) if most < u64::MAX) => {
            Err(Problem::Unit { field: name(), kind: field.kind, unit: unit.into() })
        }
        Some(factor) => Ok(factor),
        None if time_unit_ns(lower).is_some() => {
            Err(Problem::Unit { field: name(), kind: field.kind, unit: unit.into() })
        }
        None if matches!(field.kind, Kind::Number(most) if most < u64::MAX) => {
            Err(Problem::NotANumber { text: format!("{digits}{unit}"), field: name(), kind: field.kind })
        }
        None => Err(Problem::UnknownUnit {
            field: name(),
            unit: unit.into(),
            units: "k, M, G, T (decimal) or Ki, Mi, Gi, Ti (binary)",
        }),
    }
}

/// A decimal number times a factor, and whether digits below 1 are lost. `None` if it is not a
/// number. Values of 2^64 and more are not exact.
fn scale(digits: &str, factor: u64) -> Option<(u128, bool)> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let one = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().ok()? * u128::from(factor);
    let whole = whole.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(factor.into());
    Some((whole.saturating_add(part / one), part % one != 0))
}

fn address(field: &Field, text: &str) -> Result<Literal, Problem> {
    let parse = |text: &str| {
        text.parse::<IpAddr>().map_err(|_| match text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()) {
            digits if digits.len() < text.len() && digits.parse::<f64>().is_ok() => {
                Problem::Unit { field: field.name.into(), kind: field.kind, unit: text[digits.len()..].into() }
            }
            _ => not_a_value(field, text),
        })
    };
    if let Some((network, bits)) = text.split_once('/') {
        let address = parse(network)?;
        let (family, most) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
        let bits = bits.parse().ok().filter(|&bits: &u8| bits <= most);
        let bits = bits.ok_or(Problem::PrefixLength { family, most })?;
        let masked = mask(address, bits);
        if masked != address {
            return Err(Problem::HostBits { text: text.into(), bits, network: masked.to_string() });
        }
        let ((family, low), host) = (address_key(address), u32::from(most - bits));
        let host_bits = if host == 128 { u128::MAX } else { (1 << host) - 1 };
        return Ok(Literal::Address((family, low), (family, low | host_bits)));
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (address_key(parse(low)?), address_key(parse(high)?));
    match (low.0 == high.0, low <= high) {
        (true, true) => Ok(Literal::Address(low, high)),
        (true, false) => Err(Problem::EmptyRange),
        (false, _) => Err(Problem::MixedFamilies),
    }
}

/// The first bits of an address; the others are 0.
pub(crate) fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn mac(text: &str) -> Option<u64> {
    let octets = text.split([':', '-']).map(|octet| u8::from_str_radix(octet, 16).ok().filter(|_| octet.len() == 2));
    let octets: Vec<u8> = octets.collect::<Option<_>>()?;
    octets.try_into().ok().map(mac_key)
}

/// The number of a protocol. The names are those that Weir prints, and `icmpv6`.
pub fn protocol_number(name: &str) -> Option<u8> {
    let name = name.to_ascii_lowercase();
    if name == "icmpv6" || name == "ipv6-icmp" {
        return Some(58);
    }
    (0..=u8::MAX).find(|&number| protocol_name(number) == Some(&name))
}

fn protocol(field: &Field, text: &str) -> Result<u64, Problem> {
    if let Some(number) = protocol_number(text) {
        return Ok(number.into());
    }
    if text.bytes().all(|octet| octet.is_ascii_digit()) {
        return text
            .parse::<u8>()
            .map(u64::from)
            .map_err(|_| Problem::TooLarge { field: field.name.into(), most: 255 });
    }
    Err(Problem::UnknownProtocol {
        name: text.into(),
        near: most_similar(text, (0..=u8::MAX).filter_map(protocol_name)),
    })
}

/// The number of a word, or the bits of several words of a set, in any order.
fn words(field: &Field, words: Words, text: &str) -> Result<u64, Problem> {
    let all = words.all();
    let number = |word: &str| {
        let found = all.iter().find(|(_, name)| name.eq_ignore_ascii_case(word));
        found.map(|&(number, _)| number).ok_or_else(|| unknown_word(field, words, word))
    };
    if !words.are_a_set() || text.trim().is_empty() {
        return number(text);
    }
    text.split_whitespace().try_fold(0, |bits, word| Ok(bits | number(word)?))
}

/// The problem of a word that a field cannot have.
pub(crate) fn unknown_word(field: &Field, words: Words, word: &str) -> Problem {
    if word.is_empty() {
        return Problem::EmptyWord { field: field.name };
    }
    let near = most_similar(word, words.all().into_iter().map(|(_, name)| name));
    Problem::UnknownWord { field: field.name, word: word.into(), near, words }
}

/// What to write instead of a text with stars, if it looks like a pattern.
pub(crate) fn advice_on_star(field: &str, text: &str) -> Option<String> {
    let (starts, ends, middle) = (text.starts_with('*'), text.ends_with('*'), text.trim_matches('*'));
    Some(match (starts, ends) {
        _ if !text.contains('*') => return None,
        _ if middle.is_empty() => format!("for flows with any value write {field}"),
        (true, false) if !middle.contains('*') => format!("write {field} ends-with {middle}"),
        (false, true) if !middle.contains('*') => format!("write {field} starts-with {middle}"),
        (true, true) if !middle.contains('*') => format!("write {field} contains {middle}"),
        _ => format!("write {field} starts-with, ends-with or contains a part; a value with a star stands in quotes"),
    })
}

/// The letters of names of TCP flags: `SYN`, `SYN-ACK`, `tcp-syn`. The letters of some names are those
/// of other flags.
fn letters_of_flag_names(text: &str) -> Option<String> {
    const NAMES: [&str; 8] = ["SYN", "ACK", "PSH", "FIN", "RST", "URG", "ECE", "CWR"];
    let upper = text.to_ascii_uppercase();
    let mut rest = upper.as_str();
    let mut letters = String::new();
    while !rest.is_empty() {
        rest = rest.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        rest = rest.strip_prefix("TCP-").unwrap_or(rest);
        let name = NAMES.iter().find(|&&name| rest.starts_with(name))?;
        letters += &name[..1];
        rest = &rest[name.len()..];
    }
    Some(letters).filter(|letters| !letters.is_empty())
}

/// Letters of TCP flags as bits.
pub(crate) fn flags(text: &str) -> Result<u16, Problem> {
    if let Some(letters) = letters_of_flag_names(text) {
        return Err(Problem::FlagName { name: text.into(), letters });
    }
    let bit = |letter: char| {
        Ok(match letter.to_ascii_uppercase() {
            'F' => 0x01,
            'S' => 0x02,
            'R' => 0x04,
            'P' => 0x08,
            'A' => 0x10,
            'U' => 0x20,
            'E' => 0x40,
            'C' => 0x80,
            'N' => 0x100,
            'X' => 0x200,
            'Y' => 0x400,
            'Z' => 0x800,
            _ => return Err(Problem::UnknownFlag(letter)),
        })
    };
    text.chars().try_fold(0, |bits, letter| Ok(bits | bit(letter)?))
}
