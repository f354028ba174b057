//! Sixteen 16-bit words compared at once, in the instruction set that the processor has.
//!
//! The other place of this crate with `unsafe`: functions compiled for AVX2 or AVX-512 may be called only where the
//! processor has them. A value of [`Avx2`] or [`Avx512`] is the proof: only [`run`] makes one, after asking.

use crate::Instructions;

/// An instruction set that is there.
pub trait Lanes: Copy {
    /// One bit per word of the first `N` that equals `word`, the first word's bit lowest.
    fn equal<const N: usize>(self, words: &[u16; 16], word: u16) -> u16;
}

/// What every processor of this architecture has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain(());

/// AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// AVX-512 BW and VL.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// One bit per word of the first `N`.
#[inline(always)]
const fn first<const N: usize>() -> u16 {
    ((1_u32 << N) - 1) as u16
}

impl Lanes for Plain {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    #[allow(unsafe_code)]
    fn equal<const N: usize>(self, words: &[u16; 16], word: u16) -> u16 {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
        let [low, high] = bytemuck::must_cast(*words);
        // SAFETY: every processor of this architecture has SSE2.
        unsafe {
            let word = _mm_set1_epi16(word as i16);
            let equal = _mm_packs_epi16(_mm_cmpeq_epi16(low, word), _mm_cmpeq_epi16(high, word));
            _mm_movemask_epi8(equal) as u16 & first::<N>()
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn equal<const N: usize>(self, words: &[u16; 16], word: u16) -> u16 {
        words.iter().enumerate().fold(0, |bits, (at, &other)| bits | u16::from(other == word) << at) & first::<N>()
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn equal<const N: usize>(self, words: &[u16; 16], word: u16) -> u16 {
        use std::arch::x86_64::{_mm256_cmpeq_epi16, _mm256_movemask_epi8, _mm256_set1_epi16, _pext_u32};
        // SAFETY: the processor has AVX2 and BMI2, or there would be no value of this type.
        unsafe {
            let equal = _mm256_cmpeq_epi16(bytemuck::must_cast(*words), _mm256_set1_epi16(word as i16));
            // Two equal bits per word: one of them goes.
            _pext_u32(_mm256_movemask_epi8(equal) as u32, 0x5555_5555 & ((1_u64 << (2 * N)) - 1) as u32) as u16
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn equal<const N: usize>(self, words: &[u16; 16], word: u16) -> u16 {
        use std::arch::x86_64::{_mm256_cmpeq_epi16_mask, _mm256_set1_epi16};
        // SAFETY: the processor has AVX-512 BW and VL, or there would be no value of this type.
        unsafe { _mm256_cmpeq_epi16_mask(bytemuck::must_cast(*words), _mm256_set1_epi16(word as i16)) & first::<N>() }
    }
}

/// Something to do in the best instruction set. `run` must be `#[inline(always)]`, so that all of it is compiled for
/// each of them.
pub(crate) trait Work {
    fn run(self, lanes: impl Lanes);
}

impl Instructions {
    /// The best that this processor has.
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2].into_iter().find(|set| set.is_there()).unwrap_or(Self::Plain)
    }

    /// Whether this processor has it.
    pub fn is_there(self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_there() && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

/// Does it in an instruction set, or in the plain one if the processor has not that.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn run(instructions: Instructions, work: impl Work) {
    match instructions {
        // SAFETY: asked just now (the answer is remembered by the standard library).
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 if instructions.is_there() => unsafe { run_avx512(work) },
        // SAFETY: the same.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 if instructions.is_there() => unsafe { run_avx2(work) },
        _ => work.run(Plain(())),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn run_avx2(work: impl Work) {
    work.run(Avx2(()));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,avx512vl,avx2,bmi1,bmi2")]
fn run_avx512(work: impl Work) {
    work.run(Avx512(()));
}

/// Begins to fetch the line of a value that is read soon. No effect but on time.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this architecture has SSE, and to fetch ahead is allowed anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Compare([u16; 16], u16);

    impl Work for Compare {
        fn run(self, lanes: impl Lanes) {
            let Self(words, word) = self;
            let expected = |n| (0..n).filter(|&at| words[at] == word).fold(0, |bits, at| bits | 1 << at);
            assert_eq!(lanes.equal::<16>(&words, word), expected(16), "{words:x?} {word:x}");
            assert_eq!(lanes.equal::<10>(&words, word), expected(10), "{words:x?} {word:x}");
            assert_eq!(lanes.equal::<1>(&words, word), expected(1), "{words:x?} {word:x}");
        }
    }

    #[test]
    fn all_instruction_sets_compare_alike() {
        let mut tested = 0;
        for set in [Instructions::Plain, Instructions::Avx2, Instructions::Avx512] {
            tested += u32::from(set.is_there());
            for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 257 } else { 1 }) {
                let words = std::array::from_fn(|at| if bits >> at & 1 == 1 { 0x80ff } else { 0xff00 | at as u16 });
                run(set, Compare(words, 0x80ff));
            }
        }
        println!("{tested} instruction sets tested, the best is {:?}", Instructions::best());
    }
}
