//! Memory is fetched before it is needed, where the instruction set has a word for that.

/// Asks for the cache line where something begins.
#[inline(always)]
pub(crate) fn fetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it is a hint about an address, and reads nothing; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch((&raw const *what).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
