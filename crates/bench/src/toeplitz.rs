//! The hash by which network cards spread packets over queues (Toeplitz, as Microsoft defines it for receive-side
//! scaling), in software with a table per octet. What it costs here a card does for nothing; its collisions stay.

/// The key that Microsoft's documentation verifies with, and many drivers set.
pub const STANDARD_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// A key that repeats after 16 bits gives both directions of a flow one hash (Woo and Park, 2012).
pub const SYMMETRIC_KEY: [u8; 40] = {
    let mut key = [0x6d; 40];
    let mut at = 1;
    while at < 40 {
        key[at] = 0x5a;
        at += 2;
    }
    key
};

/// The longest input: two IPv6 addresses and two ports.
const INPUT: usize = 36;

/// The hash under a key.
pub struct Toeplitz(Box<[[u32; 256]; INPUT]>);

impl Toeplitz {
    pub fn new(key: &[u8; 40]) -> Self {
        // The 32 bits of the key that begin at a bit.
        let window = |bit: usize| (0..32).fold(0, |window, at| window << 1 | bit_of(key, bit + at));
        let mut tables = Box::new([[0; 256]; INPUT]);
        for (at, table) in tables.iter_mut().enumerate() {
            for (octet, value) in table.iter_mut().enumerate() {
                let set = (0..8).filter(|bit| octet >> (7 - bit) & 1 == 1);
                *value = set.fold(0, |value, bit| value ^ window(8 * at + bit));
            }
        }
        Self(tables)
    }

    /// The hash of up to 36 octets.
    #[inline(always)]
    pub fn of(&self, input: &[u8]) -> u32 {
        input.iter().zip(self.0.iter()).fold(0, |hash, (&octet, table)| hash ^ table[usize::from(octet)])
    }
}

fn bit_of(key: &[u8; 40], bit: usize) -> u32 {
    u32::from(key[bit / 8] >> (7 - bit % 8) & 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Microsoft's documentation, "Verifying the RSS hash calculation".
    #[test]
    fn the_published_examples_come_out() {
        let toeplitz = Toeplitz::new(&STANDARD_KEY);
        let ipv4 = |source: [u8; 4], source_port: u16, destination: [u8; 4], destination_port: u16| {
            let ports = [source_port, destination_port].map(u16::to_be_bytes).concat();
            toeplitz.of(&[&source[..], &destination[..], &ports[..]].concat())
        };
        assert_eq!(ipv4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766), 0x51cc_c178);
        assert_eq!(ipv4([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739), 0xc626_b0ea);
        assert_eq!(ipv4([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024), 0x5c2b_394a);
        let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        let (source, destination) = (address("3ffe:2501:200:1fff::7"), address("3ffe:2501:200:3::1"));
        let ports = [2794_u16, 1766].map(u16::to_be_bytes).concat();
        assert_eq!(toeplitz.of(&[&source[..], &destination[..], &ports[..]].concat()), 0x4020_7d3d);
    }

    #[test]
    fn the_symmetric_key_is_symmetric() {
        let toeplitz = Toeplitz::new(&SYMMETRIC_KEY);
        let [there, back] = [[1, 2, 3, 4, 9, 8, 7, 6, 0, 80, 200, 10], [9, 8, 7, 6, 1, 2, 3, 4, 200, 10, 0, 80]];
        assert_eq!(toeplitz.of(&there), toeplitz.of(&back));
    }
}
