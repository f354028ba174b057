//! HPACK (RFC 7541): decodes header blocks of HTTP/2 as far as the first extracted fields need it.
//!
//! A decoder of its own, because the fields borrow the octets of the payload: nothing is allocated.
//! It knows the fields that [`crate::http2`] reads; all others are [`Field::Other`]. Names are compared
//! and not decoded, a value is decoded only if the caller wants it, and the caller limits the number of
//! fields ([`MAX_FIELDS`]).
//! Entries are not evicted by size. That changes nothing, as no encoder refers to evicted entries.

use crate::start::{Read, Start, require};
use crate::{MAX_TEXT_OCTETS, Verdict};
use arrayvec::ArrayVec;

/// Entries of the dynamic table that are kept. The default size of 4096 octets has room for 128.
const MAX_ENTRIES: usize = 128;
/// Octets of a decoded string: more than the longest extracted field, so that the field is cut.
pub(crate) const MAX_STRING_OCTETS: usize = MAX_TEXT_OCTETS + 1;
/// Fields of the blocks of a side that are read. Each takes 3 to 20 ns, and one octet suffices for it.
pub(crate) const MAX_FIELDS: usize = 512;
/// Symbols of the Huffman code: all octets, and the end of string.
const SYMBOLS: usize = 257;
/// Bits of the longest code.
const MAX_BITS: usize = 30;

/// The field of a header, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Field {
    Authority,
    Method,
    Path,
    Status,
    ContentType,
    Host,
    UserAgent,
    Other,
}

/// The fields with their names, and the names in the Huffman code: to compare is faster than to decode.
static NAMES: [(Field, &[u8], &[u8]); 7] = [
    (Field::Authority, b":authority", b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f"),
    (Field::Method, b":method", b"\xb9\x49\x53\x39\xe4"),
    (Field::Path, b":path", b"\xb9\x58\xd3\x3f"),
    (Field::Status, b":status", b"\xb8\x84\x8d\x36\xa3"),
    (Field::ContentType, b"content-type", b"\x21\xea\x49\x6a\x4a\xc9\xf5\x59\x7f"),
    (Field::Host, b"host", b"\x9c\xe8\x4f"),
    (Field::UserAgent, b"user-agent", b"\xb5\x05\xb1\x61\xcc\x5a\x93"),
];

impl Field {
    fn of(name: Text<'_>) -> Self {
        let is_name = |(_, plain, huffman): &&(Field, &[u8], &[u8])| {
            name.octets == if name.is_huffman { *huffman } else { *plain }
        };
        NAMES.iter().find(is_name).map_or(Self::Other, |(field, ..)| *field)
    }
}

/// A string as it is in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    octets: &'a [u8],
    is_huffman: bool,
}

/// A decoded string, cut after [`MAX_STRING_OCTETS`].
pub(crate) type Decoded = ArrayVec<u8, MAX_STRING_OCTETS>;

impl<'a> Text<'a> {
    /// The decoded octets, at most this number.
    pub(crate) fn decode(self, max_octets: usize) -> Decoded {
        let mut decoded = Decoded::new();
        let max_octets = max_octets.min(MAX_STRING_OCTETS);
        if self.is_huffman {
            decode_huffman(self.octets, max_octets, &mut decoded);
        } else {
            decoded.extend(self.octets.iter().copied().take(max_octets));
        }
        decoded
    }
}

/// The state of one direction.
#[derive(Default)]
pub(crate) struct Decoder<'a> {
    /// The dynamic table. When it is full, a new entry takes the place of the oldest one.
    entries: ArrayVec<(Field, Text<'a>), MAX_ENTRIES>,
    oldest: usize,
}

impl<'a> Decoder<'a> {
    /// Calls a function with each field of a block (RFC 7541 section 6). An error: the block is not HPACK, or
    /// cut, or `fields_left`, the number of fields that may be read, is 0.
    pub(crate) fn decode(
        &mut self,
        block: &'a [u8],
        fields_left: &mut usize,
        mut read: impl FnMut(Field, Text<'a>),
    ) -> Read<()> {
        let mut block = Start(block);
        while let [octet, ..] = *block.0 {
            *fields_left = fields_left.checked_sub(1).ok_or(Verdict::No)?;
            let (name, value) = match octet {
                0x80.. => self.field(integer(&mut block, 7)?)?,
                0x40.. => {
                    let field = self.literal(&mut block, 6)?;
                    if self.entries.try_push(field).is_err() {
                        self.entries[self.oldest] = field;
                        self.oldest = (self.oldest + 1) % MAX_ENTRIES;
                    }
                    field
                }
                0x20.. => {
                    integer(&mut block, 5)?;
                    continue;
                }
                _ => self.literal(&mut block, 4)?,
            };
            read(name, value);
        }
        Ok(())
    }

    fn literal(&self, block: &mut Start<'a>, prefix_bits: u32) -> Read<(Field, Text<'a>)> {
        let name = match integer(block, prefix_bits)? {
            0 => Field::of(string(block)?),
            index => self.field(index)?.0,
        };
        Ok((name, string(block)?))
    }

    fn field(&self, index: usize) -> Read<(Field, Text<'a>)> {
        if let Some(at) = index.checked_sub(62) {
            require(at < self.entries.len())?;
            let newest = self.oldest + self.entries.len();
            return Ok(self.entries[(newest - 1 - at) % self.entries.len()]);
        }
        // RFC 7541 appendix A.
        let (field, value): (Field, &[u8]) = match index {
            0 => return Err(Verdict::No),
            1 => (Field::Authority, b""),
            2 => (Field::Method, b"GET"),
            3 => (Field::Method, b"POST"),
            4 => (Field::Path, b"/"),
            5 => (Field::Path, b"/index.html"),
            8 => (Field::Status, b"200"),
            9 => (Field::Status, b"204"),
            10 => (Field::Status, b"206"),
            11 => (Field::Status, b"304"),
            12 => (Field::Status, b"400"),
            13 => (Field::Status, b"404"),
            14 => (Field::Status, b"500"),
            31 => (Field::ContentType, b""),
            38 => (Field::Host, b""),
            58 => (Field::UserAgent, b""),
            _ => (Field::Other, b""),
        };
        Ok((field, Text { octets: value, is_huffman: false }))
    }
}

/// Reads an integer (RFC 7541 section 5.1) of at most 28 bits.
fn integer(block: &mut Start<'_>, prefix_bits: u32) -> Read<usize> {
    let mask = (1 << prefix_bits) - 1;
    let value = block.u8()? & mask;
    Ok(usize::from(value) + if value == mask { block.integer7()? } else { 0 })
}

/// Reads a string (RFC 7541 section 5.2).
fn string<'a>(block: &mut Start<'a>) -> Read<Text<'a>> {
    let is_huffman = block.0.first().is_some_and(|octet| *octet >= 0x80);
    let length = integer(block, 7)?;
    Ok(Text { octets: block.take(length)?, is_huffman })
}

/// Bits of the code of each symbol (RFC 7541 appendix B). The code is canonical, so that the lengths define it.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

/// The code in the order of its values.
struct Code {
    /// The first value of each length, and its place in `symbols`.
    first: [(u32, usize); MAX_BITS + 2],
    symbols: [u16; SYMBOLS],
}

static CODE: Code = {
    let mut code = Code { first: [(0, 0); MAX_BITS + 2], symbols: [0; SYMBOLS] };
    let (mut value, mut place, mut bits) = (0, 0, 0);
    while bits < MAX_BITS + 2 {
        value <<= 1;
        code.first[bits] = (value, place);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == bits {
                code.symbols[place] = symbol as u16;
                value += 1;
                place += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    code
};

/// Decodes until the end, an invalid code, or this number of octets.
fn decode_huffman(octets: &[u8], max_octets: usize, decoded: &mut Decoded) {
    let (mut value, mut bits) = (0, 0);
    for octet in octets {
        for bit in (0..8).rev() {
            value = value << 1 | u32::from(octet >> bit & 1);
            bits += 1;
            if bits > MAX_BITS {
                return;
            }
            let (first, place) = CODE.first[bits];
            let count = CODE.first[bits + 1].1 - place;
            let Some(offset) = value.checked_sub(first).map(|offset| offset as usize).filter(|&offset| offset < count)
            else {
                continue;
            };
            let Ok(symbol) = u8::try_from(CODE.symbols[place + offset]) else { return };
            if decoded.len() == max_octets {
                return;
            }
            decoded.push(symbol);
            (value, bits) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hexadecimal: &str) -> Vec<u8> {
        let digits: Vec<u8> = hexadecimal.bytes().filter(|digit| *digit != b' ').collect();
        digits
            .as_chunks()
            .0
            .iter()
            .map(|[a, b]| u8::from_str_radix(&format!("{}{}", *a as char, *b as char), 16).unwrap())
            .collect()
    }

    fn decode<'a>(decoder: &mut Decoder<'a>, block: &'a [u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let text = |text: Text<'_>| String::from_utf8(text.decode(MAX_STRING_OCTETS).to_vec()).unwrap();
        decoder.decode(block, &mut 100, |field, value| fields.push(format!("{field:?}={}", text(value)))).unwrap();
        fields
    }

    #[test]
    fn examples_of_the_rfc_are_decoded() {
        // RFC 7541 appendix C.4: three requests on one connection.
        let blocks = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ]
        .map(octets);
        let mut decoder = Decoder::default();
        let [first, second, third] = blocks.each_ref().map(|block| decode(&mut decoder, block));
        assert_eq!(first, ["Method=GET", "Other=", "Path=/", "Authority=www.example.com"]);
        assert_eq!(second, ["Method=GET", "Other=", "Path=/", "Authority=www.example.com", "Other=no-cache"]);
        assert_eq!(
            third,
            ["Method=GET", "Other=", "Path=/index.html", "Authority=www.example.com", "Other=custom-value"]
        );
    }

    /// A string literal by the code.
    fn huffman(text: &str) -> Vec<u8> {
        let mut bits = String::new();
        for symbol in text.bytes() {
            let length = usize::from(LENGTHS[usize::from(symbol)]);
            let place = CODE.symbols.iter().position(|other| *other == symbol.into()).unwrap();
            let value = CODE.first[length].0 as usize + place - CODE.first[length].1;
            bits += &format!("{value:0length$b}");
        }
        bits += &"1".repeat(bits.len().next_multiple_of(8) - bits.len());
        let octets = bits.as_bytes().chunks(8).map(|bits| std::str::from_utf8(bits).unwrap());
        let octets: Vec<u8> = octets.map(|bits| u8::from_str_radix(bits, 2).unwrap()).collect();
        [&[0x80 | octets.len() as u8], &octets[..]].concat()
    }

    #[test]
    fn names_are_known_as_plain_text_and_by_the_code() {
        for (name, expected) in [
            (":authority", Field::Authority),
            (":method", Field::Method),
            (":path", Field::Path),
            (":status", Field::Status),
            ("content-type", Field::ContentType),
            ("host", Field::Host),
            ("user-agent", Field::UserAgent),
            ("user-agents", Field::Other),
            ("content-types", Field::Other),
            ("", Field::Other),
        ] {
            let plain = [&[name.len() as u8], name.as_bytes()].concat();
            for name in [plain, huffman(name)] {
                let mut fields = Vec::new();
                let block = [&[0x40][..], &name, &[1, b'x'], &[0xbe, 0xbe]].concat();
                // The limit of fields is reached before the last one.
                let mut fields_left = 2;
                let read = Decoder::default().decode(&block, &mut fields_left, |field, _| fields.push(field));
                assert_eq!((read, fields_left), (Err(Verdict::No), 0));
                assert_eq!(fields, [expected; 2], "{name:02x?}");
            }
        }
    }

    #[test]
    fn cut_blocks_and_unknown_entries_are_refused() {
        for block in ["be", "80", "41 8c f1", "ff ff ff ff ff ff", "40"].map(octets) {
            assert!(Decoder::default().decode(&block, &mut 100, |_, _| ()).is_err(), "{block:02x?}");
        }
    }

    #[test]
    fn old_entries_make_room() {
        for entries in [1, 2, MAX_ENTRIES - 1, MAX_ENTRIES, MAX_ENTRIES + 1, 200, 2 * MAX_ENTRIES, 300] {
            let block: Vec<u8> = (0..entries).flat_map(|at| [0x40, 1, b'a', 2, (at >> 8) as u8, at as u8]).collect();
            let mut decoder = Decoder::default();
            decoder.decode(&block, &mut 300, |_, _| ()).unwrap();
            for at in 0..entries.min(MAX_ENTRIES) {
                let expected = ((entries - 1 - at) as u16).to_be_bytes();
                assert_eq!(decoder.field(62 + at).unwrap().1.octets, expected, "{entries} {at}");
            }
            assert!(decoder.field(62 + entries.min(MAX_ENTRIES)).is_err());
        }
    }
}
