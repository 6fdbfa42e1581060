//! Memory maps of files.
//!
//! As with every map of a file, another process of the same user that writes to or shortens the file can change or take
//! away the bytes under a slice. Files mapped here are created 0600 in directories checked for their owner, are
//! preallocated, and never shortened by us.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

/// The size of a memory page in bytes.
pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}

/// A file `[header | ring]` mapped shared and writable as `[header | ring | ring again]`: any window of at most `ring`
/// bytes that starts inside the first ring is contiguous.
#[derive(Debug)]
pub(super) struct MirrorMap {
    base: NonNull<u8>,
    header: usize,
    ring: usize,
}

// SAFETY: the map is plain memory that is owned by this value and not bound to the thread that made it.
unsafe impl Send for MirrorMap {}
// SAFETY: the methods only hand out addresses and atomics; `ring.rs` keeps slices of reader and writer apart.
unsafe impl Sync for MirrorMap {}

impl MirrorMap {
    /// Maps `fd`, which must hold at least `header + ring` bytes, both multiples of the page size, `ring` a power of
    /// two.
    pub(super) fn new(fd: BorrowedFd<'_>, header: usize, ring: usize) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidInput, "ring sizes do not fit the page size");
        let page = page_size();
        if ring < page || !ring.is_power_of_two() || header == 0 || !header.is_multiple_of(page) {
            return Err(bad());
        }
        let file = header.checked_add(ring).ok_or_else(bad)?;
        let total = file.checked_add(ring).ok_or_else(bad)?;
        // SAFETY: a fresh reservation at an address the kernel picks; nothing else lives there.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::other("the kernel mapped at address 0"));
        };
        let map = Self { base, header, ring };
        // SAFETY: both targets are inside the reservation above, which `map` owns (and unmaps on an error).
        unsafe {
            fix(base.as_ptr(), fd, file, 0)?;
            fix(base.as_ptr().add(file), fd, ring, header as u64)?;
        }
        Ok(map)
    }

    /// Faults in the header and the first `ring` bytes of the ring, in pieces, so that the first thousands of messages
    /// do not pay for it one by one. A hint: systems without such a call do nothing.
    pub(super) fn prefault(&self, ring: usize) {
        const PIECE: usize = 256 * 1024;
        let total = self.header + ring.min(self.ring);
        for at in (0..total).step_by(PIECE) {
            self.populate(at, PIECE.min(total - at));
        }
    }

    /// Faults in `len` bytes from byte `from` of the map, header included, if they are in it. A hint, as
    /// [`Self::prefault`].
    pub(super) fn populate(&self, from: usize, len: usize) {
        #[cfg(target_os = "linux")]
        if from.checked_add(len).is_some_and(|end| end <= self.header + 2 * self.ring) {
            // SAFETY: inside the map; the advice makes page table entries and changes no byte.
            let _ = unsafe { madvise(self.base.as_ptr().add(from).cast::<c_void>(), len, Advice::LinuxPopulateWrite) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (from, len);
    }

    /// Address of header byte 0.
    pub(super) fn header_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length of the header in bytes.
    pub(super) fn header_len(&self) -> usize {
        self.header
    }

    /// Bytes of ring (a power of two).
    pub(super) fn ring_len(&self) -> usize {
        self.ring
    }

    /// Address of the ring byte at `place`; valid for `ring_len()` bytes from there.
    pub(super) fn ring_ptr(&self, place: usize) -> *mut u8 {
        let index = place & (self.ring - 1);
        // SAFETY: `header + index < header + ring`, inside the map.
        unsafe { self.base.as_ptr().add(self.header + index) }
    }
}

impl Drop for MirrorMap {
    fn drop(&mut self) {
        let total = self.header + 2 * self.ring;
        // SAFETY: exactly the range reserved in `new`; all slices borrow from `self` and are gone.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), total) };
    }
}

/// Maps a piece of a file over a reservation that the caller owns.
///
/// # Safety
/// `at .. at + len` must be a reservation owned by the caller.
unsafe fn fix(at: *mut u8, fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<()> {
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: see the function's contract.
    unsafe { mmap(at.cast::<c_void>(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset)? };
    Ok(())
}

/// A read-only map of a range of a file, for spooled messages: all of it is a slice, and [`FileMap::release`] returns
/// the memory of what was passed, so that resident memory does not grow with the message.
#[derive(Debug)]
pub struct FileMap {
    base: Option<NonNull<u8>>,
    mapped: usize,
    skip: usize,
    len: usize,
}

// SAFETY: read-only memory, not bound to a thread.
unsafe impl Send for FileMap {}
// SAFETY: only shared slices are handed out.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps `len` bytes of `file` from byte `offset` (any alignment). Fails if the file is shorter.
    pub fn new(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let fd = file.as_fd();
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        let end = offset.checked_add(len as u64).filter(|&end| end <= size);
        if end.is_none() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "file is shorter than the range to map"));
        }
        if len == 0 {
            return Ok(Self { base: None, mapped: 0, skip: 0, len: 0 });
        }
        let skip = (offset % page_size() as u64) as usize;
        let mapped = skip + len;
        // SAFETY: a fresh private read-only map at an address the kernel picks.
        let base =
            unsafe { mmap(ptr::null_mut(), mapped, ProtFlags::READ, MapFlags::SHARED, fd, offset - skip as u64)? };
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::other("the kernel mapped at address 0"));
        };
        let map = Self { base: Some(base), mapped, skip, len };
        // SAFETY: the range just mapped; the advice changes read-ahead only.
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), mapped, Advice::Sequential) };
        Ok(map)
    }

    /// Gives the pages that are wholly before byte `upto` of the slice back to the system. They are read again from the
    /// file if they are looked at once more; the bytes stay the same.
    pub fn release(&self, upto: usize) {
        let Some(base) = self.base else { return };
        let page = page_size();
        let bytes = (self.skip + upto.min(self.len)) / page * page;
        if bytes == 0 {
            return;
        }
        // SAFETY: inside the map. On a shared file map DONTNEED drops page table entries only; contents come back from
        // the file.
        #[cfg(target_os = "linux")]
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), bytes, Advice::LinuxDontNeed) };
        #[cfg(not(target_os = "linux"))]
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), bytes, Advice::DontNeed) };
    }
}

impl std::ops::Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.base {
            // SAFETY: `skip + len` bytes are mapped readable for as long as `self` lives.
            Some(base) => unsafe { std::slice::from_raw_parts(base.as_ptr().add(self.skip), self.len) },
            None => &[],
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            // SAFETY: exactly the range mapped in `new`; slices borrow from `self`.
            let _ = unsafe { munmap(base.as_ptr().cast::<c_void>(), self.mapped) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn file_map_shows_a_range_before_and_after_release() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = FileMap::new(&file, 4_999, 90_000).unwrap();
        assert_eq!(&map[..], &bytes[4_999..94_999]);
        map.release(50_000);
        map.release(usize::MAX);
        assert_eq!(&map[..], &bytes[4_999..94_999]);
    }

    #[test]
    fn file_map_refuses_a_range_beyond_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        assert!(FileMap::new(&file, 1, 3).is_err());
        assert!(FileMap::new(&file, u64::MAX, 2).is_err());
        assert!(FileMap::new(&file, 3, 0).unwrap().is_empty());
    }

    #[test]
    fn mirror_map_refuses_sizes_that_are_not_pages() {
        let file = tempfile::tempfile().unwrap();
        assert!(MirrorMap::new(file.as_fd(), page_size(), 3 * page_size()).is_err());
        assert!(MirrorMap::new(file.as_fd(), 100, page_size()).is_err());
        assert!(MirrorMap::new(file.as_fd(), page_size(), usize::MAX / 2 + 1).is_err());
    }
}
