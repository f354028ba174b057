//! Processor instructions that have no safe function: prefetch, and SIMD comparison of numbers.
//!
//! One of the two files of this crate with `unsafe` code.

/// Prefetches the cache line of a value that is read soon. Affects only speed.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_address(std::ptr::from_ref(value).cast());
}

/// Prefetches the cache line at an address, which may be any. Affects only speed.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has SSE, and a prefetch is valid for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// One bit per 16-bit word that equals `word`, the first word's bit lowest.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn equal_words(words: [u128; 2], word: u16) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
    let [low, high] = bytemuck::must_cast(words);
    // SAFETY: every x86-64 processor has SSE2.
    unsafe {
        let word = _mm_set1_epi16(word as i16);
        _mm_movemask_epi8(_mm_packs_epi16(_mm_cmpeq_epi16(low, word), _mm_cmpeq_epi16(high, word))) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn equal_words(words: [u128; 2], word: u16) -> u32 {
    let words: [u16; 16] = bytemuck::must_cast(words);
    words.iter().enumerate().fold(0, |bits, (at, &other)| bits | u32::from(other == word) << at)
}

/// One bit per number that is at most `limit`, the first number's bit lowest.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn at_most(numbers: &[i32; 32], limit: i32) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
    };
    let vectors: &[[i32; 4]; 8] = bytemuck::must_cast_ref(numbers);
    // SAFETY: every x86-64 processor has SSE2.
    unsafe {
        let limit = _mm_set1_epi32(limit);
        let above = |at: usize| _mm_cmpgt_epi32(bytemuck::must_cast::<_, __m128i>(vectors[at]), limit);
        let sixteen = |at| {
            let eight = |at| _mm_packs_epi32(above(at), above(at + 1));
            _mm_movemask_epi8(_mm_packs_epi16(eight(at), eight(at + 2))) as u32
        };
        !(sixteen(0) | sixteen(4) << 16)
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn at_most(numbers: &[i32; 32], limit: i32) -> u32 {
    numbers.iter().enumerate().fold(0, |bits, (at, &number)| bits | u32::from(number <= limit) << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_at_most_the_limit_sets_its_bit() {
        for at in 0..32 {
            for (number, limit, at_the_place) in
                [(7, 7, true), (8, 7, false), (i32::MIN, -1, true), (i32::MAX, i32::MAX - 1, false)]
            {
                let (mut low, mut high) = ([i32::MIN; 32], [i32::MAX; 32]);
                (low[at], high[at]) = (number, number);
                let bit = u32::from(at_the_place) << at;
                assert_eq!(at_most(&low, limit), !(1 << at) | bit, "{number} {limit}");
                assert_eq!(at_most(&high, limit), bit, "{number} {limit}");
            }
        }
    }

    #[test]
    fn every_equal_word_sets_its_bit() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 257 } else { 1 }) {
            let words: [u16; 16] =
                std::array::from_fn(|at| if bits >> at & 1 == 1 { 0x80ff } else { 0xff00 | at as u16 });
            assert_eq!(equal_words(bytemuck::must_cast(words), 0x80ff), bits.into(), "{words:x?}");
        }
    }
}
