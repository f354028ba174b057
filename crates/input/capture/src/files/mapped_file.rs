//! A capture file that is mapped into memory, while other processes may change the file.
//!
//! A mapped file is read without a copy and without a system call per packet. What happens to the
//! file meanwhile:
//! * *Truncated*: reading a page that the file has no more raises `SIGBUS`. The handler puts zero
//!   pages in place of the lost ones and notes where they begin. The reader looks at that note after
//!   every burst, drops the frames from there on, and reports the truncation
//!   (docs/decisions/0022-truncated-files.md).
//! * *Extended*: the map ends where the file ended when it was opened.
//! * *Replaced* (renamed): the old file stays readable.
//! * *Overwritten*: frames may hold old or new bytes. Every length is loaded once, compared with the
//!   size of the map, and then used, so a frame never exceeds the map.
#![allow(unsafe_code)]

use crate::error::Damage;
use crate::source::Loss;
use libc::{c_int, c_void, siginfo_t};
use memmap2::{Advice, Mmap, UncheckedAdvice};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A mapped file.
pub(crate) struct MappedFile {
    path: PathBuf,
    map: Mmap,
    file: File,
    region: &'static Region,
}

/// Memory of a mapped file, for the handler. Regions are used again and never freed.
struct Region {
    is_taken: AtomicBool,
    /// Address of the first byte.
    start: AtomicUsize,
    /// 0 if nothing is mapped.
    bytes: AtomicUsize,
    /// Where zero pages begin that were put in place of lost ones; `usize::MAX` if there are none.
    lost_from: AtomicUsize,
    next: AtomicPtr<Region>,
}

/// The list of all regions.
static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
/// What handled the signal before: the handler of Rust's runtime, which reports stack overflows.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

impl MappedFile {
    /// Maps a file as it is now.
    ///
    /// # Errors
    /// The operating system cannot map the file, or refuses the handler.
    pub fn new(path: &Path, file: File) -> Result<Self, (io::Error, File)> {
        // SAFETY: the map is private to this process and read-only, and lives as long as every slice
        // of it. The call cannot prove that no other process changes the file; see the module. No
        // value read from the map is used as a proof about another read of it: parsers copy header
        // fields, check the copies, and take slices within the map's fixed length.
        let mapped = install_handler().and_then(|()| unsafe { Mmap::map(&file) });
        let map = match mapped {
            Ok(map) => map,
            Err(error) => return Err((error, file)),
        };
        // The advice only affects speed, so a refusal is ignored.
        let _ = map.advise(Advice::Sequential);
        let region = Region::take();
        region.lost_from.store(usize::MAX, Ordering::Relaxed);
        region.start.store(map.as_ptr().addr(), Ordering::Relaxed);
        region.bytes.store(map.len(), Ordering::Release);
        Ok(Self { path: path.into(), map, file, region })
    }

    pub fn map(&self) -> &Mmap {
        &self.map
    }

    /// Removes pages from the memory of the process. If they are read again, the system maps them
    /// again.
    pub fn release(&self, start: usize, bytes: usize) {
        // SAFETY: this discards nothing: the pages of the file stay as they are, and pages that were
        // put in place of lost ones are zero again. A refusal has no effect.
        let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes) };
    }

    /// Whether pages were lost when they were read.
    #[inline]
    pub fn has_lost_pages(&self) -> bool {
        self.region.lost_from.load(Ordering::Relaxed) != usize::MAX
    }

    /// Bytes of the map that are lost: the file was truncated, or the device cannot read it. A system
    /// call.
    #[cold]
    pub fn loss(&self) -> Option<Loss> {
        let mapped = self.map.len();
        let length = self.file.metadata().map_or(mapped, |file| file.len() as usize).min(mapped);
        let lost_from = self.region.lost_from.load(Ordering::Relaxed);
        // The page in which the file ends is still there.
        let (intact_bytes, is_truncated) = (length.min(lost_from), length <= lost_from);
        let cause = if is_truncated { Damage::Truncated(mapped, intact_bytes) } else { Damage::LostPages };
        (intact_bytes < mapped).then(|| Loss { path: self.path.clone(), intact_bytes, cause })
    }
}

impl Drop for MappedFile {
    /// Before the map is unmapped.
    fn drop(&mut self) {
        self.region.bytes.store(0, Ordering::Release);
        self.region.is_taken.store(false, Ordering::Release);
    }
}

impl Region {
    fn take() -> &'static Self {
        if let Some(free) = regions().find(|region| !region.is_taken.swap(true, Ordering::Acquire)) {
            return free;
        }
        let region: &'static Self = Box::leak(Box::new(Self {
            is_taken: AtomicBool::new(true),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            lost_from: AtomicUsize::new(usize::MAX),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        let link = |head| {
            region.next.store(head, Ordering::Relaxed);
            Some(ptr::from_ref(region).cast_mut())
        };
        let _ = REGIONS.fetch_update(Ordering::AcqRel, Ordering::Acquire, link);
        region
    }
}

fn regions() -> impl Iterator<Item = &'static Region> {
    // SAFETY: regions are leaked, and changed through atomics only.
    let at = |region: *mut Region| unsafe { region.as_ref() };
    std::iter::successors(at(REGIONS.load(Ordering::Acquire)), move |region| at(region.next.load(Ordering::Acquire)))
}

/// Installs the handler, once per process.
fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), c_int>> = OnceLock::new();
    let install = || {
        // SAFETY: the call reads a number.
        if let Ok(bytes) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) {
            PAGE_BYTES.store(bytes, Ordering::Relaxed);
        }
        // SAFETY: a structure of numbers, for which zero is valid: no flags, an empty mask.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_lost_page as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the first call reads into `previous`; the second one installs a function of the
        // right type, which makes only calls that are safe in a signal handler.
        let installed = unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
            }
            let _ = PREVIOUS.set(previous);
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut())
        };
        if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    };
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

/// Handles `SIGBUS`: a page of a mapped file that cannot be read becomes a zero page, and so do all
/// pages behind it. The instruction is then repeated.
extern "C" fn on_lost_page(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid structure; a fault has an address.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    let is_here = |region: &&Region| {
        let bytes = region.bytes.load(Ordering::Acquire);
        address.wrapping_sub(region.start.load(Ordering::Relaxed)) < bytes
    };
    if code == libc::BUS_ADRERR
        && let Some(region) = regions().find(is_here)
        && replace_pages(region, address)
    {
        return;
    }
    if code <= 0 {
        // SAFETY: both calls are safe in a signal handler. Another process sent the signal, which comes
        // again when this handler ends, and ends the process as usual.
        unsafe {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
            libc::raise(libc::SIGBUS);
        }
    } else if let Some(previous) = PREVIOUS.get() {
        // SAFETY: it was the action of this signal before. The fault occurs again and is handled there.
        unsafe { libc::sigaction(libc::SIGBUS, previous, ptr::null_mut()) };
    }
}

/// Puts zero pages in place of those from this address to the end of the region.
fn replace_pages(region: &Region, address: usize) -> bool {
    let start = region.start.load(Ordering::Relaxed);
    let from = address & !(PAGE_BYTES.load(Ordering::Relaxed) - 1);
    region.lost_from.fetch_min(from - start, Ordering::Relaxed);
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the pages belong to a map that is borrowed by the code that the signal interrupted.
    // Only their content changes, as it does when another process writes to the file. The number of
    // the last error is restored.
    unsafe {
        let error = *libc::__errno_location();
        let bytes = start + region.bytes.load(Ordering::Relaxed) - from;
        let map = libc::mmap(ptr::without_provenance_mut(from), bytes, protection, flags, -1, 0);
        *libc::__errno_location() = error;
        map != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_pages_read_as_zeros_and_are_reported() {
        let pages = |count: usize| count * PAGE_BYTES.load(Ordering::Relaxed);
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; pages(8) + 10]).unwrap();
        let maps = [(); 2].map(|()| MappedFile::new(Path::new("file"), file.try_clone().unwrap()).unwrap());
        let lost = |map: &MappedFile| {
            (map.loss().map(|loss| (loss.intact_bytes, loss.cause.to_string())), map.has_lost_pages())
        };
        for map in &maps {
            assert_eq!(lost(map), (None, false));
        }
        let left = pages(3) + 100;
        file.set_len(left as u64).unwrap();
        let cause = format!("the file was truncated while it was read, from {} to {left} bytes", pages(8) + 10);
        for map in &maps {
            assert_eq!(lost(map), (Some((left, cause.clone())), false));
            for (place, expected) in [(pages(3) + 99, 7), (pages(6), 0), (pages(5), 0), (pages(8) + 9, 0), (0, 7)] {
                assert_eq!(map.map()[place], expected, "{place}");
            }
            assert_eq!(lost(map), (Some((left, cause.clone())), true));
        }
    }
}
