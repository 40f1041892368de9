//! One open file: encrypted on write, decrypted on read.
//!
//! Takes the calls SQLite makes on a file, and passes them to the file below. Promise: reads and writes go through the
//! cipher, and there is no other way to the content: memory maps are not offered.
#![expect(unsafe_code, reason = "SQLite's files are tables of C functions")]

use std::ffi::{c_int, c_void};
use std::slice;

use rusqlite::ffi;

use crate::blocks::{self, RawFile};
use crate::xts::XtsCipher;

/// The memory that SQLite keeps for us; the file below lies right behind it.
#[repr(C)]
struct SealedFile {
    /// The first field, as SQLite requires it.
    file: ffi::sqlite3_file,
    state: *mut SealedFileState,
}

/// The state of an open file.
struct SealedFileState {
    cipher: XtsCipher,
    /// The buffer in which a write is encrypted before it leaves.
    room: Vec<u8>,
}

/// Our bytes before the file below. A multiple of the alignment that any file of SQLite needs.
pub const SIZE: c_int = {
    assert!(size_of::<SealedFile>() == 16 && align_of::<SealedFile>() == 8);
    16
};

/// The file below.
///
/// # Safety
/// `file` has room for [`SIZE`] bytes and the file below.
pub unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: by the promise of the caller this stays within the room SQLite allocated.
    unsafe { file.cast::<SealedFile>().add(1).cast() }
}

/// Marks a file as open.
///
/// # Safety
/// As [`inner`], and the file below is open.
pub unsafe fn begin(file: *mut ffi::sqlite3_file, cipher: XtsCipher) {
    let state = Box::into_raw(Box::new(SealedFileState { cipher, room: Vec::new() }));
    // SAFETY: the room is ours to write; it is not initialised before.
    unsafe {
        file.cast::<SealedFile>().write(SealedFile { file: ffi::sqlite3_file { pMethods: &raw const METHODS }, state })
    };
}

/// SQLite checks the version of the table: version 2 has shared memory and no memory maps.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// The file below, as a source and sink of blocks.
struct UnderlyingFile {
    file: *mut ffi::sqlite3_file,
    methods: &'static ffi::sqlite3_io_methods,
}

impl RawFile for UnderlyingFile {
    type No = c_int;

    fn read(&mut self, into: &mut [u8], at: u64) -> Result<bool, c_int> {
        let (Some(read), Ok(length), Ok(at)) = (self.methods.xRead, c_int::try_from(into.len()), i64::try_from(at))
        else {
            return Err(ffi::SQLITE_IOERR_READ);
        };
        // SAFETY: the file is open, and there is room for as many bytes as are asked for.
        match unsafe { read(self.file, into.as_mut_ptr().cast(), length, at) } {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            other => Err(other),
        }
    }

    fn write(&mut self, from: &[u8], at: u64) -> Result<(), c_int> {
        let (Some(write), Ok(length), Ok(at)) = (self.methods.xWrite, c_int::try_from(from.len()), i64::try_from(at))
        else {
            return Err(ffi::SQLITE_IOERR_WRITE);
        };
        // SAFETY: the file is open, and so many bytes are there.
        match unsafe { write(self.file, from.as_ptr().cast(), length, at) } {
            ffi::SQLITE_OK => Ok(()),
            other => Err(other),
        }
    }

    fn size(&mut self) -> Result<u64, c_int> {
        let Some(size) = self.methods.xFileSize else { return Err(ffi::SQLITE_IOERR_FSTAT) };
        let mut bytes = 0;
        // SAFETY: the file is open, and there is room for the answer.
        match unsafe { size(self.file, &raw mut bytes) } {
            ffi::SQLITE_OK => u64::try_from(bytes).map_err(|_| ffi::SQLITE_IOERR_FSTAT),
            other => Err(other),
        }
    }
}

/// The file below and its methods.
///
/// # Safety
/// `file` was opened by [`begin`].
unsafe fn below(file: *mut ffi::sqlite3_file) -> UnderlyingFile {
    // SAFETY: an open file has methods, and tables of methods are static.
    unsafe {
        let file = inner(file);
        UnderlyingFile { file, methods: &*(*file).pMethods }
    }
}

/// The state of a file.
///
/// # Safety
/// `file` was opened by [`begin`]; SQLite uses a file from one thread at a time, so nothing else uses it meanwhile.
unsafe fn state<'a>(file: *mut ffi::sqlite3_file) -> &'a mut SealedFileState {
    // SAFETY: made by `begin`, freed by `close`, and nothing is called after that.
    unsafe { &mut *(*file.cast::<SealedFile>()).state }
}

/// Passes a call through; a method that the file below lacks is an error of this kind.
macro_rules! pass {
    ($file:expr, $method:ident, $missing:expr $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls with a file that is open; arguments go on as they came.
        unsafe {
            let below = below($file);
            below.methods.$method.map_or($missing, |method| method(below.file $(, $argument)*))
        }
    }};
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let said = pass!(file, xClose, ffi::SQLITE_OK);
    // SAFETY: made by `begin`; SQLite closes a file once, and the pointer is removed permanently.
    unsafe {
        let wrapped = file.cast::<SealedFile>();
        drop(Box::from_raw((*wrapped).state));
        (*wrapped).state = std::ptr::null_mut();
        (*file).pMethods = std::ptr::null();
    }
    said
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, length: c_int, at: i64) -> c_int {
    let (Ok(length), Ok(at)) = (usize::try_from(length), u64::try_from(at)) else { return ffi::SQLITE_IOERR_READ };
    // SAFETY: the file is open; SQLite gives room for `length` bytes that nothing else uses during the call. They may
    // be uninitialised, so they are set before they are a slice.
    let (mut below, state, into) = unsafe {
        into.cast::<u8>().write_bytes(0, length);
        (below(file), state(file), slice::from_raw_parts_mut(into.cast::<u8>(), length))
    };
    match blocks::read(&mut below, &state.cipher, into, at) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(code) => code,
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, length: c_int, at: i64) -> c_int {
    let (Ok(length), Ok(at)) = (usize::try_from(length), u64::try_from(at)) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: the file is open; SQLite gives `length` bytes that do not change during the call.
    let (mut below, state, from) =
        unsafe { (below(file), state(file), slice::from_raw_parts(from.cast::<u8>(), length)) };
    match blocks::write(&mut below, &state.cipher, (from, at), &mut state.room) {
        Ok(()) => ffi::SQLITE_OK,
        Err(code) => code,
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let size = u64::try_from(size).map(blocks::rounded).ok().and_then(|size| i64::try_from(size).ok());
    let Some(size) = size else { return ffi::SQLITE_IOERR_TRUNCATE };
    pass!(file, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, size)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    pass!(file, xSync, ffi::SQLITE_IOERR_FSYNC, flags)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    pass!(file, xFileSize, ffi::SQLITE_IOERR_FSTAT, size)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    pass!(file, xLock, ffi::SQLITE_IOERR_LOCK, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    pass!(file, xUnlock, ffi::SQLITE_IOERR_UNLOCK, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    pass!(file, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, out)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    pass!(file, xFileControl, ffi::SQLITE_NOTFOUND, op, argument)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    pass!(file, xSectorSize, 4096)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // Of the properties that the disk reports, one still holds when written bytes are widened to blocks of 16: bytes
    // beside them survive a power failure, because no disk writes less than a whole block at once.
    pass!(file, xDeviceCharacteristics, 0) & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    pass!(file, xShmMap, ffi::SQLITE_IOERR_SHMMAP, page, size, extend, out)
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    pass!(file, xShmLock, ffi::SQLITE_IOERR_SHMLOCK, offset, n, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    let () = pass!(file, xShmBarrier, ());
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    pass!(file, xShmUnmap, ffi::SQLITE_OK, delete)
}
