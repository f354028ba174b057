//! A map from prefixes to values: two sorted arrays per address family, searched by halves.
//!
//! Prefixes either contain each other or have no address in common. So a walk over the sorted
//! prefixes with a stack of those that are open yields disjoint ranges, each with one value. A range
//! is its first address and its value (8 octets for IPv4, 20 for IPv6), and ends where the next one
//! begins. A prefix begins a range, and another one behind it: at most two ranges per prefix.

use crate::prefix::Prefix;
use std::net::IpAddr;

/// A map that does not change. The default of a value stands for none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixMap<T> {
    ipv4: Ranges<u32, T>,
    ipv6: Ranges<u128, T>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges<A, T> {
    /// First addresses, in their order.
    starts: Vec<A>,
    values: Vec<T>,
}

impl<A: Copy + Ord, T: Copy + Default + PartialEq> Ranges<A, T> {
    /// The value of an address.
    fn get(&self, address: A) -> T {
        let after = self.starts.partition_point(|start| *start <= address);
        after.checked_sub(1).map_or_else(T::default, |at| self.values[at])
    }

    /// Begins a range, behind all others or at the start of the last one.
    fn begin(&mut self, start: A, value: T) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last().copied().unwrap_or_default() != value {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.values.shrink_to_fit();
    }

    fn memory_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<A>() + self.values.capacity() * size_of::<T>()
    }
}

impl<T: Copy + Default + PartialEq> PrefixMap<T> {
    /// The value of an address.
    pub fn get(&self, address: IpAddr) -> T {
        match address {
            IpAddr::V4(address) => self.ipv4.get(address.to_bits()),
            IpAddr::V6(address) => self.ipv6.get(address.to_bits()),
        }
    }

    /// Memory of the arrays.
    pub fn memory_bytes(&self) -> usize {
        self.ipv4.memory_bytes() + self.ipv6.memory_bytes()
    }
}

/// Prefixes and values in any order.
#[derive(Debug)]
pub(crate) struct PrefixMapBuilder<T> {
    ipv4: Vec<(u32, u8, T)>,
    ipv6: Vec<(u128, u8, T)>,
}

impl<T> Default for PrefixMapBuilder<T> {
    fn default() -> Self {
        Self { ipv4: Vec::new(), ipv6: Vec::new() }
    }
}

impl<T: Copy + Default + PartialEq> PrefixMapBuilder<T> {
    /// Adds the value of a prefix.
    pub fn add(&mut self, prefix: Prefix, value: T) {
        match prefix.address {
            IpAddr::V4(address) => self.ipv4.push((address.to_bits(), prefix.bits, value)),
            IpAddr::V6(address) => self.ipv6.push((address.to_bits(), prefix.bits, value)),
        }
    }

    /// The map. `combine` has the value of the next shorter prefix, or of the same one, and that of a
    /// prefix, and returns the value of the addresses of the latter.
    pub fn build(self, combine: impl Fn(T, T) -> T) -> PrefixMap<T> {
        let Self { mut ipv4, mut ipv6 } = self;
        let mut map = PrefixMap::default();
        // Stable: the same prefix with several values has them in the order in which they were added.
        ipv4.sort_by_key(|&(start, bits, _)| (start, bits));
        let prefixes = ipv4.into_iter().map(|(start, bits, value)| (start.into(), 32 - bits, value));
        let begin = |start: u128, value| map.ipv4.begin(start as u32, value);
        ranges(prefixes, u32::MAX.into(), &combine, begin);
        ipv6.sort_by_key(|&(start, bits, _)| (start, bits));
        let prefixes = ipv6.into_iter().map(|(start, bits, value)| (start, 128 - bits, value));
        ranges(prefixes, u128::MAX, &combine, |start, value| map.ipv6.begin(start, value));
        map.ipv4.shrink();
        map.ipv6.shrink();
        map
    }
}

/// Passes the ranges of sorted prefixes to `begin`: the first address, and the value from there on.
/// A prefix is its first address, the number of bits behind it, and a value.
fn ranges<T: Copy + Default>(
    prefixes: impl Iterator<Item = (u128, u8, T)>,
    max: u128,
    combine: impl Fn(T, T) -> T,
    mut begin: impl FnMut(u128, T),
) {
    // The prefixes that contain the present address, the longest last: last address and value.
    let mut open: Vec<(u128, T)> = Vec::new();
    for (start, host_bits, of_prefix) in prefixes {
        close_before(Some(start), max, &mut open, &mut begin);
        let value = combine(innermost(&open), of_prefix);
        begin(start, value);
        let hosts = 1_u128.checked_shl(host_bits.into()).map_or(u128::MAX, |hosts| hosts - 1);
        open.push((start | hosts, value));
    }
    close_before(None, max, &mut open, &mut begin);
}

/// Ends the prefixes that end before an address, or all.
fn close_before<T: Copy + Default>(
    address: Option<u128>,
    max: u128,
    open: &mut Vec<(u128, T)>,
    begin: &mut impl FnMut(u128, T),
) {
    while let Some(&(last, _)) = open.last()
        && address.is_none_or(|address| last < address)
    {
        open.pop();
        if last < max {
            begin(last + 1, innermost(open));
        }
    }
}

fn innermost<T: Copy + Default>(open: &[(u128, T)]) -> T {
    open.last().map_or_else(T::default, |&(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn map(prefixes: &[(&str, u32)], combine: fn(u32, u32) -> u32) -> PrefixMap<u32> {
        let mut builder = PrefixMapBuilder::default();
        prefixes.iter().for_each(|(prefix, value)| builder.add(prefix.parse().unwrap(), *value));
        builder.build(combine)
    }

    fn longest(_: u32, of_prefix: u32) -> u32 {
        of_prefix
    }

    #[test]
    fn the_longest_prefix_wins_and_neighbours_are_untouched() {
        let map = map(
            &[("10.0.0.0/8", 1), ("10.1.2.3", 3), ("10.1.0.0/16", 2), ("255.255.255.255", 4), ("2001:db8::/32", 5)],
            longest,
        );
        for (address, value) in [
            ("9.255.255.255", 0),
            ("10.0.0.0", 1),
            ("10.1.2.2", 2),
            ("10.1.2.3", 3),
            ("10.1.2.4", 2),
            ("10.2.0.0", 1),
            ("11.0.0.0", 0),
            ("255.255.255.254", 0),
            ("255.255.255.255", 4),
            ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", 0),
            ("2001:db8::", 5),
            ("2001:db9::", 0),
            ("::10.0.0.0", 0),
        ] {
            assert_eq!(map.get(address.parse().unwrap()), value, "{address}");
        }
    }

    #[test]
    fn neighbours_with_one_value_are_one_range() {
        let map = map(&[("10.0.0.0/9", 1), ("10.128.0.0/9", 1), ("10.5.0.0/16", 1)], longest);
        assert_eq!(map.ipv4, Ranges { starts: vec![10 << 24, 11 << 24], values: vec![1, 0] });
        assert_eq!(map.memory_bytes(), 16);
    }

    proptest! {
        /// Against a search of all prefixes, for both families, longest prefix and union.
        #[test]
        fn every_address_has_the_value_of_its_prefixes(
            prefixes in prop::collection::vec((0..64_u8, 0..=8_u8, 1..16_u32), 0..24),
            ipv6: bool, union: bool,
        ) {
            // Addresses differ in their first 6 bits, or in their last 2.
            let address = |number: u8, last: u8| -> IpAddr {
                if ipv6 {
                    Ipv6Addr::from_bits(u128::from(number) << 122 | u128::from(last)).into()
                } else {
                    Ipv4Addr::from_bits(u32::from(number) << 26 | u32::from(last)).into()
                }
            };
            let all = if ipv6 { 128 } else { 32 };
            let prefixes: Vec<(Prefix, u32)> = prefixes.iter().map(|&(number, bits, value)| {
                let bits = if bits > 6 { all + bits - 8 } else { bits };
                (Prefix::new(address(number, number & 3), bits), value)
            }).collect();
            let mut builder = PrefixMapBuilder::default();
            prefixes.iter().for_each(|&(prefix, value)| builder.add(prefix, value));
            let map = builder.build(if union { |a, b| a | b } else { longest });
            for number in 0..64 {
                for last in 0..4 {
                    let address = address(number, last);
                    let mut of_address: Vec<_> =
                        prefixes.iter().filter(|(prefix, _)| Prefix::new(address, prefix.bits) == *prefix).collect();
                    of_address.sort_by_key(|(prefix, _)| prefix.bits);
                    let expected = if union {
                        of_address.iter().fold(0, |all, (_, value)| all | value)
                    } else {
                        of_address.last().map_or(0, |(_, value)| *value)
                    };
                    prop_assert_eq!(map.get(address), expected, "{}", address);
                }
            }
        }
    }
}
