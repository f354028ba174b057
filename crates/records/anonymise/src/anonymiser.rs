//! Anonymises flow records.

use crate::cache::{Cache, Function};
use crate::crypto_pan::CryptoPan;
use crate::fact_rules::{FactRule, rules_of_catalogue};
use crate::key::Key;
use crate::pseudonym::Pseudonyms;
use crate::spec::{AnonymisationSpec, IPV4_BITS, IPV6_BITS, NameRule};
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use weir_dpi::{Fact, Findings, MAX_TEXT_OCTETS, Note};
use weir_flow::{Approximate, Direction, FlowRecord, overflow_prefix};
use weir_packet::{Network, address_octets};

/// Anonymises records by a key. A clone has the same key, and a cache of its own.
pub struct Anonymiser {
    crypto_pan: CryptoPan,
    pseudonyms: Pseudonyms,
    /// Extracted fields of which something stays.
    facts: Arc<[(Fact, FactRule)]>,
    ipv4_bits: u8,
    ipv6_bits: u8,
    names: NameRule,
    cache: Cache,
}

impl Clone for Anonymiser {
    fn clone(&self) -> Self {
        let Self { crypto_pan, pseudonyms, facts, .. } = self;
        let (crypto_pan, pseudonyms, facts) = (crypto_pan.clone(), pseudonyms.clone(), facts.clone());
        Self { crypto_pan, pseudonyms, facts, cache: Cache::new(), ..*self }
    }
}

/// Without the key.
impl fmt::Debug for Anonymiser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Anonymiser")
    }
}

impl Anonymiser {
    /// One with this key and these settings.
    pub fn new(key: &Key, spec: &AnonymisationSpec) -> Self {
        Self {
            crypto_pan: CryptoPan::new(key),
            pseudonyms: Pseudonyms::new(key),
            facts: rules_of_catalogue().into(),
            ipv4_bits: spec.ipv4_bits,
            ipv6_bits: spec.ipv6_bits,
            names: spec.names,
            cache: Cache::new(),
        }
    }

    /// Replaces all that the catalogue of fields names. Costs 32 blocks of AES for an IPv4 address that is not in the
    /// cache, 128 for an IPv6 address, and a hash for each name.
    pub fn anonymise(&mut self, record: &mut FlowRecord) {
        let (network, is_sum) = (record.network, record.approximate.has(Approximate::OVERFLOW));
        record.source = self.endpoint(network, record.source, is_sum);
        record.destination = self.endpoint(network, record.destination, is_sum);
        for direction in [&mut record.forward, &mut record.reverse] {
            self.direction(direction);
        }
        if let Some(findings) = &mut record.findings {
            *findings = Arc::new(self.findings(findings));
        }
    }

    /// An address in the layout of a record. `is_sum`: it is the prefix of several, and stays one.
    fn endpoint(&mut self, network: Network, address: [u8; 16], is_sum: bool) -> [u8; 16] {
        let [.., a, b, c, d, e, f] = address;
        let anonymised = match network {
            // The sum of all.
            _ if is_sum && (address == [0; 16] || network == Network::Ipv4 && [c, d, e, f] == [0; 4]) => address,
            Network::Ipv4 => address_octets(self.ip(Ipv4Addr::new(c, d, e, f).into())),
            Network::Ipv6 => address_octets(self.ip(Ipv6Addr::from(address).into())),
            Network::Layer2 => {
                let (mut octets, mac) = ([0; 16], self.mac([a, b, c, d, e, f]));
                octets[10..].copy_from_slice(&mac);
                octets
            }
        };
        if is_sum { overflow_prefix(network, anonymised) } else { anonymised }
    }

    fn direction(&mut self, direction: &mut Direction) {
        if let Some((source, destination)) = direction.outer_ips() {
            direction.outer_source = address_octets(self.ip(source));
            direction.outer_destination = address_octets(self.ip(destination));
        }
        direction.source_mac = self.mac(direction.source_mac);
        direction.destination_mac = self.mac(direction.destination_mac);
    }

    /// The address in place of another one, with the leading bits that stay.
    pub fn ip(&mut self, address: IpAddr) -> IpAddr {
        let (cache, crypto_pan) = (&mut self.cache, &self.crypto_pan);
        match address {
            IpAddr::V4(address) => {
                let from = u32::from(address);
                let to = cache.get(Function::Ipv4, from.into(), || crypto_pan.ipv4(from).into()) as u32;
                let rest = u32::MAX.checked_shr(self.ipv4_bits.into()).unwrap_or(0);
                debug_assert!(self.ipv4_bits <= IPV4_BITS);
                Ipv4Addr::from(to & !rest).into()
            }
            IpAddr::V6(address) => {
                let from = u128::from(address);
                let to = cache.get(Function::Ipv6, from, || crypto_pan.ipv6(from));
                let rest = u128::MAX.checked_shr(self.ipv6_bits.into()).unwrap_or(0);
                debug_assert!(self.ipv6_bits <= IPV6_BITS);
                Ipv6Addr::from(to & !rest).into()
            }
        }
    }

    /// The MAC address in place of another one. 0 is none.
    fn mac(&mut self, address: [u8; 6]) -> [u8; 6] {
        if address == [0; 6] {
            return address;
        }
        let (cache, pseudonyms) = (&mut self.cache, &self.pseudonyms);
        let number = |[a, b, c, d, e, f]: [u8; 6]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]).into();
        let to = cache.get(Function::Mac, number(address), || number(pseudonyms.mac(address))) as u64;
        let [_, _, octets @ ..] = to.to_be_bytes();
        octets
    }

    fn findings(&mut self, known: &Findings) -> Findings {
        let mut findings = known.without_facts();
        for &(fact, rule) in self.facts.clone().iter() {
            let Some(octets) = known.octets(fact) else { continue };
            if rule == FactRule::Keep {
                findings.set_octets(fact, octets);
            } else if let Ok(text) = str::from_utf8(octets)
                && let Some((name, is_cut)) = self.text(rule, text)
            {
                findings.set_octets(fact, name.as_bytes());
                if is_cut {
                    findings.note(Note::Cut);
                }
            }
        }
        findings
    }

    /// The text in place of another one, and whether some of its entries did not fit; `None` for no text.
    fn text(&mut self, rule: FactRule, text: &str) -> Option<(String, bool)> {
        let FactRule::Name { words, is_list, is_caseless, is_host } = rule else { return None };
        let mut entry = |entry: &str, out: &mut String| match self.names {
            _ if words.contains(&entry) => out.push_str(entry),
            NameRule::Drop => {}
            NameRule::Hash if is_list => self.push_entry(entry, is_caseless, out),
            NameRule::Hash if is_host => self.push_host(entry, out),
            NameRule::Hash => self.push_name(entry, is_caseless, out),
        };
        let (mut out, mut is_cut) = (String::new(), false);
        if is_list {
            for part in text.split(',') {
                let mut name = String::new();
                entry(part, &mut name);
                is_cut |= out.len() + 1 + name.len() > MAX_TEXT_OCTETS;
                if !is_cut && !name.is_empty() {
                    out.push_str(if out.is_empty() { "" } else { "," });
                    out.push_str(&name);
                }
            }
        } else {
            entry(text, &mut out);
        }
        (!out.is_empty()).then_some((out, is_cut))
    }

    /// An entry of a list. Records of DNS have numbers before a name, or their type only.
    fn push_entry(&mut self, entry: &str, is_caseless: bool, out: &mut String) {
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|octet| octet.is_ascii_digit());
        if entry.strip_prefix("TYPE").is_some_and(is_number) {
            return out.push_str(entry);
        }
        let (numbers, name) = entry.rsplit_once(' ').unwrap_or(("", entry));
        if !numbers.is_empty() && numbers.split(' ').all(is_number) {
            out.push_str(numbers);
            out.push(' ');
            self.push_name(name, is_caseless, out);
        } else {
            self.push_name(entry, is_caseless, out);
        }
    }

    /// A host and perhaps a port, which stays.
    fn push_host(&mut self, text: &str, out: &mut String) {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if u16::from_str(port).is_ok() && Ipv6Addr::from_str(text).is_err() => {
                (host, Some(port))
            }
            _ => (text, None),
        };
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if Ipv6Addr::from_str(inner).is_ok() => {
                out.push('[');
                self.push_name(inner, true, out);
                out.push(']');
            }
            _ => self.push_name(host, true, out),
        }
        if let Some(port) = port {
            let _ = write!(out, ":{port}");
        }
    }

    /// A name, or an address.
    fn push_name(&mut self, name: &str, is_caseless: bool, out: &mut String) {
        if let Ok(address) = IpAddr::from_str(name) {
            let _ = write!(out, "{}", self.ip(address));
        } else if is_caseless {
            // The root of names may be written, or not.
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            self.pseudonyms.push_name(&name, out);
        } else {
            self.pseudonyms.push_name(name, out);
        }
    }
}
