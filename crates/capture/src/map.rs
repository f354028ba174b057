//! Memory-mapped files, and prefetching.
//!
//! A mapped file is read without a copy and without a system call per packet. In return, other
//! processes can change the file while it is read:
//! * *Truncated*: reading the missing part raises `SIGBUS`, which ends the process. Captures are
//!   written once and grow at the end; read a file that is rotated by truncation through a pipe
//!   (`cat file | weir read -`), which reports the cut like any other.
//! * *Extended*: the map ends where the file ended when it was opened.
//! * *Overwritten*: frames may hold old or new bytes. Every length is loaded once, compared with
//!   the size of the map, and then used, so a frame never exceeds the map.

use std::fs::File;
use std::io;

/// A regular file mapped for reading.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the whole file as it is now.
    ///
    /// # Errors
    /// The operating system cannot map the file.
    #[allow(unsafe_code)]
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is private to this process and read-only, and lives as long as every
        // slice of it. The call cannot prove that no other process changes the file; the module
        // documentation describes that case. No value read from the map is used as a proof about
        // another read of it: parsers copy header fields, check the copies, and take slices within
        // the map's fixed length.
        let map = unsafe { memmap2::Mmap::map(file)? };
        // The advice only affects speed, so a refusal is ignored.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Sequential);
        Ok(Self(map))
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Prefetches the cache line of a byte that is read soon.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has SSE, and prefetching is allowed at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}
