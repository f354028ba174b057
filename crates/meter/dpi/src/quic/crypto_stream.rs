//! The start of octets that come in pieces of any order: of a stream of CRYPTO frames (RFC 9000 section
//! 19.6), of a message of DTLS in fragments (RFC 6347 section 4.2.3).

use crate::{Findings, Note};

/// Octets of the stream that are kept: a ClientHello with a key share of ML-KEM-1024 fits.
pub(crate) const OCTETS: usize = 3584;

#[derive(Clone, Debug)]
pub(crate) struct CryptoStream {
    octets: [u8; OCTETS],
    /// One bit for each octet that is there.
    known: [u64; OCTETS / 64],
}

impl Default for CryptoStream {
    fn default() -> Self {
        Self { octets: [0; OCTETS], known: [0; OCTETS / 64] }
    }
}

impl CryptoStream {
    /// Forgets all octets.
    pub(crate) fn clear(&mut self) {
        self.known = [0; OCTETS / 64];
    }

    /// Adds octets at an offset. Those that are there already stay. Notes if some do not fit, or are
    /// others than those that are there.
    pub(crate) fn insert(&mut self, offset: u64, octets: &[u8], findings: &mut Findings) {
        let start = usize::try_from(offset).map_or(OCTETS, |offset| offset.min(OCTETS));
        let end = OCTETS.min(start + octets.len());
        let mut at = start;
        while at < end {
            let (word, next) = (at / 64, end.min((at / 64 + 1) * 64));
            let bits = u64::MAX >> (64 - (next - at)) << (at % 64);
            let new = &octets[at - start..next - start];
            if self.known[word] & bits == 0 {
                self.octets[at..next].copy_from_slice(new);
            } else {
                for (at, octet) in (at..next).zip(new) {
                    if self.known[word] >> (at % 64) & 1 == 0 {
                        self.octets[at] = *octet;
                    } else if self.octets[at] != *octet {
                        findings.note(Note::Conflict);
                    }
                }
            }
            self.known[word] |= bits;
            at = next;
        }
        if octets.len() > OCTETS - start {
            findings.note(Note::Limit);
        }
    }

    /// Whether octets before others are missing.
    pub(crate) fn has_gap(&self) -> bool {
        let known: u32 = self.known.iter().map(|word| word.count_ones()).sum();
        self.contiguous().len() < known as usize
    }

    /// The octets from the start to the first that is missing.
    pub(crate) fn contiguous(&self) -> &[u8] {
        let whole = self.known.iter().take_while(|word| **word == u64::MAX).count();
        let more = self.known.get(whole).map_or(0, |word| word.trailing_ones() as usize);
        &self.octets[..64 * whole + more]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_in_any_order_become_contiguous() {
        let expected: Vec<u8> = (0..OCTETS).map(|at| (at % 251) as u8).collect();
        let (mut stream, mut findings) = (CryptoStream::default(), Findings::default());
        let mut pieces: Vec<usize> = (0..OCTETS).step_by(100).collect();
        pieces.reverse();
        for start in pieces {
            assert_eq!(stream.contiguous(), b"");
            stream.insert(start as u64, &expected[start..OCTETS.min(start + 117)], &mut findings);
            assert_eq!(stream.has_gap(), start > 0);
        }
        assert_eq!(stream.contiguous(), expected);
        stream.insert(OCTETS as u64 - 1, &expected[OCTETS - 1..], &mut findings);
        assert_eq!(findings.notes().0, 0);
        for (offset, octets, note) in [
            (OCTETS as u64, &[1][..], "limit"),
            (u64::MAX, &[1], "limit"),
            (OCTETS as u64 - 1, &[expected[OCTETS - 1], 2], "limit"),
            (OCTETS as u64 - 1, &[!expected[OCTETS - 1]], "conflict"),
            (3, &[3, 4, 5, 7], "conflict"),
        ] {
            let mut findings = Findings::default();
            stream.insert(offset, octets, &mut findings);
            assert_eq!(findings.notes().names().collect::<Vec<_>>(), [note], "{offset}");
        }
        assert_eq!(stream.contiguous(), expected);
        stream.clear();
        assert_eq!((stream.contiguous(), stream.has_gap()), (&b""[..], false));
    }
}
