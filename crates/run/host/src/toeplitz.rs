//! The keys of the Toeplitz hash of receive-side scaling (RSS), as Microsoft defines it: NICs choose
//! a receive queue by this hash.
//!
//! A hash is symmetric if both directions of each flow have the same value, so that both reach the
//! same receive queue. Addresses and ports lie at multiples of 16 bits, and swapping the directions
//! moves each bit of a port by 16. Therefore a key is symmetric if, and only if, it repeats after
//! 16 bits (Woo and Park, 2012).

/// Repeated, these two octets make a symmetric key with the most hash values such a key can have.
pub const SYMMETRIC_PATTERN: [u8; 2] = [0x6d, 0x5a];

/// Octets of the longest input: two IPv6 addresses and two ports.
const INPUT_OCTETS: usize = 36;
/// Bits of a key that the longest input uses: each input bit selects 32 of them.
const KEY_BITS_USED: usize = INPUT_OCTETS * 8 + 32 - 1;

/// Whether both directions of every flow have the same hash: the key repeats after 16 bits.
pub fn is_symmetric(key: &[u8]) -> bool {
    let used = KEY_BITS_USED.min(key.len() * 8);
    used >= 32 && (16..used).all(|at| bit(key, at) == bit(key, at - 16))
}

/// The binary logarithm of the number of different hash values: 0 for a key of zeros, 16 for
/// `SYMMETRIC_PATTERN` repeated.
pub fn values_log2(key: &[u8]) -> u32 {
    let mut basis: Vec<u32> = Vec::new();
    for at in 0..INPUT_OCTETS * 8 {
        let rest = basis.iter().fold(window(key, at), |rest, &one| rest.min(rest ^ one));
        if rest != 0 {
            basis.push(rest);
            basis.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    basis.len() as u32
}

/// The 32 bits of the key from a bit on.
fn window(key: &[u8], at: usize) -> u32 {
    (0..32).fold(0, |window, offset| window << 1 | u32::from(bit(key, at + offset)))
}

/// A bit of the key; 0 beyond its end.
fn bit(key: &[u8], at: usize) -> bool {
    key.get(at / 8).is_some_and(|octet| octet >> (7 - at % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The key of Microsoft's documentation, which many drivers use. It is not symmetric.
    const STANDARD_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Hashes source address, destination address, source port and destination port, each in
    /// network byte order.
    fn hash(key: &[u8], input: &[u8]) -> u32 {
        (0..input.len() * 8).filter(|&at| bit(input, at)).fold(0, |hash, at| hash ^ window(key, at))
    }

    fn input(source: &str, source_port: u16, destination: &str, destination_port: u16) -> (Vec<u8>, Vec<u8>) {
        let octets = |text: &str| match text.parse().unwrap() {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        let addresses = [octets(source), octets(destination)].concat();
        let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
        (addresses.clone(), [addresses, ports].concat())
    }

    /// All examples of "Verifying the RSS hash calculation" (Microsoft), without and with ports.
    #[test]
    fn published_examples_match() {
        for (destination, destination_port, source, source_port, addresses_only, with_ports) in [
            ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61_e985, 0x02d1_feef),
        ] {
            let (addresses, all) = input(source, source_port, destination, destination_port);
            assert_eq!(hash(&STANDARD_KEY, &addresses), addresses_only, "{source}");
            assert_eq!(hash(&STANDARD_KEY, &all), with_ports, "{source}");
        }
        assert!(!is_symmetric(&STANDARD_KEY));
        assert_eq!(values_log2(&STANDARD_KEY), 32);
    }

    #[test]
    fn symmetry_and_number_of_values_of_driver_keys() {
        for length in [40, 52] {
            let repeated: Vec<u8> = SYMMETRIC_PATTERN.into_iter().cycle().take(length).collect();
            assert!(is_symmetric(&repeated));
            assert_eq!(values_log2(&repeated), 16);
            assert!(is_symmetric(&vec![0; length]));
            assert_eq!(values_log2(&vec![0; length]), 0);
            let mut broken = repeated;
            broken[39] ^= 2;
            assert!(!is_symmetric(&broken), "{length}");
        }
        assert!(!is_symmetric(&[]));
        assert!(!is_symmetric(&[0x6d]));
    }

    fn both_directions(key: &[u8], (a, b): (&[u8], &[u8]), (p, q): (u16, u16)) -> (u32, u32) {
        let (p, q) = (p.to_be_bytes(), q.to_be_bytes());
        (hash(key, &[a, b, &p, &q].concat()), hash(key, &[b, a, &q, &p].concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_key_that_repeats_after_16_bits_is_symmetric(
            pattern: [u8; 2], a: [u8; 16], b: [u8; 16], p: u16, q: u16, ipv4: bool
        ) {
            let key: Vec<u8> = pattern.into_iter().cycle().take(40).collect();
            let octets = if ipv4 { 4 } else { 16 };
            let (forward, reverse) = both_directions(&key, (&a[..octets], &b[..octets]), (p, q));
            prop_assert_eq!(forward, reverse);
            prop_assert!(is_symmetric(&key));
        }

        /// NICs with `symmetric-xor` hash the XOR of the addresses, then of the ports, each twice.
        #[test]
        fn xored_input_is_symmetric_under_any_key(key: [u8; 40], a: [u8; 16], b: [u8; 16], p: u16, q: u16) {
            let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<u8>>();
            let input = |a: &[u8], b: &[u8], p: u16, q: u16| {
                let (addresses, ports) = (xor(a, b), xor(&p.to_be_bytes(), &q.to_be_bytes()));
                [&addresses[..], &addresses, &ports, &ports].concat()
            };
            prop_assert_eq!(hash(&key, &input(&a, &b, p, q)), hash(&key, &input(&b, &a, q, p)));
        }

        /// Some bit of a port or of an address changes the hash of one direction only.
        #[test]
        fn a_key_that_does_not_repeat_is_not_symmetric(pattern: [u8; 2], bit in 0_usize..KEY_BITS_USED) {
            let mut key: Vec<u8> = pattern.into_iter().cycle().take(40).collect();
            key[bit / 8] ^= 0x80 >> (bit % 8);
            prop_assert!(!is_symmetric(&key));
            // Each single bit of the source address and of the source port, for IPv4 and IPv6.
            let mut differs = false;
            for octets in [4, 16] {
                for set in 0..octets * 8 + 16 {
                    let (mut a, mut p) = (vec![0; octets], 0);
                    match set.checked_sub(octets * 8) {
                        None => a[set / 8] |= 0x80 >> (set % 8),
                        Some(port_bit) => p = 0x8000 >> port_bit,
                    }
                    let (forward, reverse) = both_directions(&key, (&a, &vec![0; octets]), (p, 0));
                    differs |= forward != reverse;
                }
            }
            prop_assert!(differs, "{key:02x?}");
        }
    }
}
