//! Crypto-PAn: the results of the authors' program, and the property that it is made for.

use super::{SAMPLE_KEY, sample_key};
use proptest::prelude::*;
use std::net::IpAddr;
use weir_anonymise::CryptoPan;

/// Addresses of the sample of the authors' program with its results.
#[rustfmt::skip]
const IPV4: &[(&str, &str)] = &[
    ("128.11.68.132", "135.242.180.132"), ("129.118.74.4", "134.136.186.123"), ("130.132.252.244", "133.68.164.234"),
    ("141.223.7.43", "141.167.8.160"), ("141.233.145.108", "141.129.237.235"), ("152.163.225.39", "151.140.114.167"),
    ("156.29.3.236", "147.225.12.42"), ("165.247.96.84", "162.9.99.234"), ("166.107.77.190", "160.132.178.185"),
    ("192.102.249.13", "252.138.62.131"), ("192.215.32.125", "252.43.47.189"), ("192.233.80.103", "252.25.108.8"),
    ("192.41.57.43", "252.222.221.184"), ("193.150.244.223", "253.169.52.216"), ("195.205.63.100", "255.186.223.5"),
    ("198.200.171.101", "249.199.68.213"), ("198.26.132.101", "249.36.123.202"), ("198.36.213.5", "249.7.21.132"),
    ("198.51.77.238", "249.18.186.254"), ("199.217.79.101", "248.38.184.213"), ("202.49.198.20", "245.206.7.234"),
    ("204.184.162.189", "243.192.77.90"), ("204.202.136.230", "243.178.4.198"), ("204.29.20.4", "243.33.20.123"),
    ("205.178.38.67", "242.108.198.51"), ("205.188.147.153", "242.96.16.101"), ("205.188.248.25", "242.96.88.27"),
    ("205.245.121.43", "242.21.121.163"), ("207.105.49.5", "241.118.205.138"), ("207.135.65.238", "241.202.129.222"),
    ("207.155.9.214", "241.220.250.22"), ("207.188.7.45", "241.255.249.220"), ("207.25.71.27", "241.33.119.156"),
    ("207.33.151.131", "241.1.233.131"), ("208.147.89.59", "227.237.98.191"), ("208.234.120.210", "227.154.67.17"),
    ("208.28.185.184", "227.39.94.90"), ("208.52.56.122", "227.8.63.165"), ("209.12.231.7", "226.243.167.8"),
    ("209.238.72.3", "226.6.119.243"), ("209.246.74.109", "226.22.124.76"), ("209.68.60.238", "226.184.220.233"),
    ("209.85.249.6", "226.170.70.6"), ("212.120.124.31", "228.135.163.231"), ("212.146.8.236", "228.19.4.234"),
    ("212.186.227.154", "228.59.98.98"), ("212.204.172.118", "228.71.195.169"), ("212.206.130.201", "228.69.242.193"),
    ("216.148.237.145", "235.84.194.111"), ("216.157.30.252", "235.89.31.26"), ("216.184.159.48", "235.96.225.78"),
    ("216.227.10.221", "235.28.253.36"), ("216.254.18.172", "235.7.16.162"), ("216.32.132.250", "235.192.139.38"),
    ("216.35.217.178", "235.195.157.81"), ("24.0.250.221", "100.15.198.226"), ("24.13.62.231", "100.2.192.247"),
    ("24.14.213.138", "100.1.42.141"), ("24.5.0.80", "100.9.15.210"), ("24.7.198.88", "100.10.6.25"),
    ("24.94.26.44", "100.88.228.35"), ("38.15.67.68", "64.3.66.187"), ("4.3.88.225", "124.60.155.63"),
    ("63.14.55.111", "95.9.215.7"), ("63.195.241.44", "95.179.238.44"), ("63.97.7.140", "95.97.9.123"),
    ("64.14.118.196", "0.255.183.58"), ("64.34.154.117", "0.221.154.117"), ("64.39.15.238", "0.219.7.41"),
];

/// The same key with IPv6, as other programs have it.
#[rustfmt::skip]
const IPV6: &[(&str, &str)] = &[
    ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
    ("::2", "78ff:f001:9fc0:20df:8380:b1f1:704:ef"),
    ("::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"),
    ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
    ("2001:db8::2", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"),
];

#[test]
fn the_results_are_those_of_the_published_samples() {
    let crypto_pan = CryptoPan::new(&sample_key());
    let mut wrong = Vec::new();
    for (from, expected) in IPV4.iter().chain(IPV6) {
        let result = crypto_pan.anonymise(from.parse().unwrap()).to_string();
        if result != *expected {
            wrong.push((from, expected, result));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The number of common leading bits.
fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        _ => panic!("{one} and {other} are of two families"),
    }
}

/// Addresses with all lengths of common prefixes.
fn sample_addresses() -> [Vec<IpAddr>; 2] {
    let ipv4 = |n: u32| IpAddr::V4(n.into());
    let ipv6 = |n: u128| IpAddr::V6(n.into());
    let mut four: Vec<IpAddr> = IPV4.iter().map(|(from, _)| from.parse().unwrap()).collect();
    four.extend((0..32).map(|bit| ipv4(0xc000_0201 ^ 1 << bit)).chain([0, u32::MAX, 0xc000_0201].map(ipv4)));
    let start = 0x2001_0db8_0001_0002_0003_0004_0005_0006;
    let mut six: Vec<IpAddr> = (0..128).map(|bit| ipv6(start ^ 1 << bit)).collect();
    six.extend([0, u128::MAX, start].map(ipv6));
    [four, six]
}

#[test]
fn all_pairs_have_as_many_common_leading_bits_as_before() {
    let crypto_pan = CryptoPan::new(&sample_key());
    for addresses in sample_addresses() {
        let anonymised: Vec<IpAddr> = addresses.iter().map(|&address| crypto_pan.anonymise(address)).collect();
        for (one, to_one) in addresses.iter().zip(&anonymised) {
            for (other, to_other) in addresses.iter().zip(&anonymised) {
                assert_eq!(common_bits(*one, *other), common_bits(*to_one, *to_other), "{one} {other}");
            }
        }
    }
}

#[test]
fn each_half_of_the_key_decides() {
    let results = |octets: [u8; 32]| {
        let crypto_pan = CryptoPan::new(&octets.into());
        sample_addresses().map(|addresses| addresses.iter().map(|&at| crypto_pan.anonymise(at)).collect::<Vec<_>>())
    };
    let expected = results(SAMPLE_KEY);
    assert_eq!(results(SAMPLE_KEY), expected);
    for octet in [0, 15, 16, 31] {
        let mut key = SAMPLE_KEY;
        key[octet] ^= 1;
        for (other, expected) in results(key).iter().zip(&expected) {
            assert!(other.iter().zip(expected).filter(|(one, other)| one == other).count() < 2, "octet {octet}");
        }
    }
}

proptest! {
    #[test]
    fn prefixes_are_preserved_under_any_key(key: [u8; 32], one: u128, other: u128, common in 0_u32..=128) {
        let crypto_pan = CryptoPan::new(&key.into());
        let rest = u128::MAX.checked_shr(common).unwrap_or(0);
        let other = one & !rest | other & rest;
        for [one, other] in [
            [one, other].map(|n| IpAddr::V6(n.into())),
            [one, other].map(|n| IpAddr::V4(((n >> 96) as u32).into())),
        ] {
            let anonymised = [one, other].map(|address| crypto_pan.anonymise(address));
            prop_assert_eq!(common_bits(one, other), common_bits(anonymised[0], anonymised[1]));
        }
    }
}
