//! The one thing of this crate that safe Rust has no words for: to fetch memory ahead.

/// Begins to fetch the cache line of a value that is used soon. Nothing but time depends on it.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing that the program could see and never faults, whatever the address
        // (here that of a value that is borrowed); SSE, which it belongs to, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
