//! Files as memory, and fetching memory ahead: with `unsafe`, as DPDK's driver has it.
//!
//! A mapped file is walked without a copy and without a system call per packet. What is given up for that: the
//! file belongs to others as well.
//! * If somebody *shortens* the file while it is read, touching what is gone raises `SIGBUS`, which ends the
//!   process. Captures are written once and grow at the end; a file that is rotated by truncation has to be
//!   read through a pipe (`weir read - < file`), which reports the cut like any other.
//! * If somebody *appends*, the map ends where the file ended when it was opened.
//! * If somebody *overwrites* octets, frames may hold old or new ones. Every length is loaded once, compared
//!   with the size of the map, and then used, so a frame never reaches beyond the map.

use std::fs::File;
use std::io;

/// A regular file mapped for reading.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the whole file as it is now.
    ///
    /// # Errors
    /// Whatever the operating system says, above all that this is no file that can be mapped.
    #[allow(unsafe_code)]
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is private to this process and read-only, and lives as long as every slice of it. What the
        // call cannot prove is that no other process changes the file: the module's doc says what happens
        // then. No value read from the map is used as a proof about another read of it: parsers copy header fields
        // out, check the copies, and take slices within the map's fixed length.
        let map = unsafe { memmap2::Mmap::map(file)? };
        // Read-ahead is a matter of speed alone: a kernel that refuses the advice maps just as well.
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

/// Begins to fetch the line of an octet that is read soon. No effect but on time.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch(octet: &u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this architecture has SSE, and to fetch ahead is allowed anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(octet).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = octet;
}
