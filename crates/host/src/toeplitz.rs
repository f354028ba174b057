//! The hash by which NICs choose a queue (Toeplitz, as Microsoft defines it for receive-side scaling), bit by bit: a model to
//! reason with, not to be fast.
//!
//! Both directions of a flow reach one queue if swapping addresses and ports does not change the hash. All of them lie at
//! multiples of 16 bits, so a key that repeats after 16 bits does it (Woo and Park, 2012), and no other does for all
//! flows: swapping moves each bit of a port by 16, and what it moves to must count the same.

/// Two octets that, repeated, make a key that tells as many flows apart as such a key can.
pub const SYMMETRIC_PATTERN: [u8; 2] = [0x6d, 0x5a];

/// The longest input of IPv6 (two addresses, two ports) and the 32 bits behind it: as much of a key as matters.
const BITS_USED: usize = 36 * 8 + 32 - 1;

/// The hash under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toeplitz(Vec<u8>);

impl Toeplitz {
    /// Under a key of any length; NICs have 40 octets, or 52.
    pub fn new(key: &[u8]) -> Self {
        Self(key.to_vec())
    }

    /// The hash of source address, destination address, source port and destination port, each in network order.
    pub fn hash(&self, input: &[u8]) -> u32 {
        let bits = (0..input.len() * 8).filter(|&bit| input[bit / 8] >> (7 - bit % 8) & 1 == 1);
        bits.fold(0, |hash, bit| hash ^ self.window(bit))
    }

    /// Whether both directions of every flow have one hash: the key repeats after 16 bits.
    pub fn is_symmetric(&self) -> bool {
        let used = BITS_USED.min(self.0.len() * 8);
        used >= 32 && (16..used).all(|bit| self.bit(bit) == self.bit(bit - 16))
    }

    /// Hash values that there are: two to the power of this many. A key of zeros has one, 6d5a repeated 65 536.
    pub fn values_log2(&self) -> u32 {
        let mut basis: Vec<u32> = Vec::new();
        for bit in 0..36 * 8 {
            let rest = basis.iter().fold(self.window(bit), |rest, &one| rest.min(rest ^ one));
            if rest != 0 {
                basis.push(rest);
                basis.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
        basis.len() as u32
    }

    /// The 32 bits of the key that begin at a bit.
    fn window(&self, bit: usize) -> u32 {
        (0..32).fold(0, |window, at| window << 1 | u32::from(self.bit(bit + at)))
    }

    /// A bit of the key; behind its end all are 0.
    fn bit(&self, bit: usize) -> bool {
        self.0.get(bit / 8).is_some_and(|octet| octet >> (7 - bit % 8) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The key of Microsoft's documentation.
    const STANDARD: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    fn input(source: &str, source_port: u16, destination: &str, destination_port: u16) -> (Vec<u8>, Vec<u8>) {
        let octets = |text: &str| match text.parse().unwrap() {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        let addresses = [octets(source), octets(destination)].concat();
        let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
        (addresses.clone(), [addresses, ports].concat())
    }

    /// "Verifying the RSS hash calculation" (Microsoft): all of it, of addresses only and with ports.
    #[test]
    fn the_published_examples_come_out() {
        let toeplitz = Toeplitz::new(&STANDARD);
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
            assert_eq!(toeplitz.hash(&addresses), addresses_only, "{source}");
            assert_eq!(toeplitz.hash(&all), with_ports, "{source}");
        }
        assert!(!toeplitz.is_symmetric());
        assert_eq!(toeplitz.values_log2(), 32);
    }

    #[test]
    fn keys_of_drivers_are_judged() {
        for length in [40, 52] {
            let repeated: Vec<u8> = SYMMETRIC_PATTERN.into_iter().cycle().take(length).collect();
            assert!(Toeplitz::new(&repeated).is_symmetric());
            assert_eq!(Toeplitz::new(&repeated).values_log2(), 16);
            assert!(Toeplitz::new(&vec![0; length]).is_symmetric());
            assert_eq!(Toeplitz::new(&vec![0; length]).values_log2(), 0);
            let mut broken = repeated;
            broken[39] ^= 2;
            assert!(!Toeplitz::new(&broken).is_symmetric(), "{length}");
        }
        assert!(!Toeplitz::new(&[]).is_symmetric());
        assert!(!Toeplitz::new(&[0x6d]).is_symmetric());
    }

    fn both_ways(key: &[u8], (a, b): (&[u8], &[u8]), (p, q): (u16, u16)) -> (u32, u32) {
        let (p, q) = (p.to_be_bytes(), q.to_be_bytes());
        let toeplitz = Toeplitz::new(key);
        (toeplitz.hash(&[a, b, &p, &q].concat()), toeplitz.hash(&[b, a, &q, &p].concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_key_that_repeats_after_16_bits_is_symmetric(
            pattern: [u8; 2], a: [u8; 16], b: [u8; 16], p: u16, q: u16, ipv4: bool
        ) {
            let key: Vec<u8> = pattern.into_iter().cycle().take(40).collect();
            let octets = if ipv4 { 4 } else { 16 };
            let (there, back) = both_ways(&key, (&a[..octets], &b[..octets]), (p, q));
            prop_assert_eq!(there, back);
            prop_assert!(Toeplitz::new(&key).is_symmetric());
        }

        /// What NICs do that know `symmetric-xor`: both addresses and both ports are joined, and hashed twice.
        #[test]
        fn joined_input_is_symmetric_under_any_key(key: [u8; 40], a: [u8; 16], b: [u8; 16], p: u16, q: u16) {
            let join = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<u8>>();
            let input = |a: &[u8], b: &[u8], p: u16, q: u16| {
                let (addresses, ports) = (join(a, b), join(&p.to_be_bytes(), &q.to_be_bytes()));
                [&addresses[..], &addresses, &ports, &ports].concat()
            };
            let toeplitz = Toeplitz::new(&key);
            prop_assert_eq!(toeplitz.hash(&input(&a, &b, p, q)), toeplitz.hash(&input(&b, &a, q, p)));
        }

        /// No other key is: where it does not repeat, one bit in a port or an address tells.
        #[test]
        fn a_key_that_does_not_repeat_tells_directions_apart(pattern: [u8; 2], bit in 0_usize..BITS_USED) {
            let mut key: Vec<u8> = pattern.into_iter().cycle().take(40).collect();
            key[bit / 8] ^= 0x80 >> (bit % 8);
            prop_assert!(!Toeplitz::new(&key).is_symmetric());
            // All single bits of both IPv6 addresses and of both ports, and of IPv4.
            let mut differs = false;
            for octets in [4, 16] {
                for set in 0..octets * 8 + 16 {
                    let (mut a, mut p) = (vec![0; octets], 0);
                    match set.checked_sub(octets * 8) {
                        None => a[set / 8] |= 0x80 >> (set % 8),
                        Some(port_bit) => p = 0x8000 >> port_bit,
                    }
                    let (there, back) = both_ways(&key, (&a, &vec![0; octets]), (p, 0));
                    differs |= there != back;
                }
            }
            prop_assert!(differs, "{key:02x?}");
        }
    }
}
