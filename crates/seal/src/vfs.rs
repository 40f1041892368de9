//! An SQLite file system with a key, on top of SQLite's own.
//!
//! Takes a key; gives a name under which databases are opened. SQLite's own file system opens the files, and they are
//! wrapped; names, locks, time and deletion pass through. Promise: once the seal is dropped, its key opens nothing.
#![expect(unsafe_code, reason = "SQLite's file systems are tables of C functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::ffi;

use crate::file;
use crate::key::SealKey;
use crate::xts::XtsCipher;

/// Why a seal was not made.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// SQLite has no file system to build on.
    #[error("SQLite offers no file system")]
    NoGround,
    /// SQLite refused the file system.
    #[error("SQLite refused the sealed file system ({0})")]
    Refused(c_int),
}

/// A key in use: databases opened through [`Seal::vfs`] are sealed with it.
#[derive(Debug)]
pub struct Seal {
    name: String,
    shim: &'static VfsShim,
}

/// The data that SQLite holds a pointer to. It is never freed: a connection may outlive the seal, and a few hundred
/// bytes for each connected service and start are cheaper than a dangling pointer. The key is dropped with the seal.
struct VfsShim {
    vfs: ffi::sqlite3_vfs,
    ground: *mut ffi::sqlite3_vfs,
    key: Mutex<Option<SealKey>>,
}

// SAFETY: `vfs` and `ground` are written before anything else sees them, except for `vfs.pNext`, which only SQLite
// touches and under its own lock; the key has a lock of its own.
unsafe impl Sync for VfsShim {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for VfsShim {}

impl std::fmt::Debug for VfsShim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shim")
    }
}

static SEALS: AtomicU64 = AtomicU64::new(1);

impl Seal {
    /// Registers a file system for a key.
    ///
    /// # Errors
    /// When SQLite refuses another file system.
    pub fn new(key: SealKey) -> Result<Self, SealError> {
        let name = format!("sluice-seal-{}", SEALS.fetch_add(1, Ordering::Relaxed));
        let c_name = CString::new(name.clone()).map_err(|_| SealError::NoGround)?.into_raw();
        // SAFETY: a null name asks for the file system SQLite uses by itself; the call initialises SQLite if need be.
        let ground = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        // SAFETY: SQLite's own file system is static; the pointer is valid or null.
        let Some(below) = (unsafe { ground.as_ref() }) else { return Err(SealError::NoGround) };
        let vfs = ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: file::SIZE + below.szOsFile,
            mxPathname: below.mxPathname,
            pNext: ptr::null_mut(),
            zName: c_name,
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: Some(no_extension),
            xDlError: Some(no_extension_text),
            xDlSym: Some(no_extension_symbol),
            xDlClose: Some(no_extension_close),
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(get_last_error),
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        let shim: *mut VfsShim = Box::into_raw(Box::new(VfsShim { vfs, ground, key: Mutex::new(Some(key)) }));
        // SAFETY: `shim` was just made and nothing else knows it. The pointer SQLite gets back in each call is
        // therefore one to the whole shim, which is never freed.
        let refused = unsafe {
            (*shim).vfs.pAppData = shim.cast();
            ffi::sqlite3_vfs_register(&raw mut (*shim).vfs, 0)
        };
        // SAFETY: never freed; from here on only shared references to it are made, and `pNext` is never read here.
        let shim: &'static VfsShim = unsafe { &*shim };
        if refused != ffi::SQLITE_OK {
            return Err(SealError::Refused(refused));
        }
        Ok(Self { name, shim })
    }

    /// The name under which databases are opened.
    #[must_use]
    pub fn vfs(&self) -> &str {
        &self.name
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        // SAFETY: the shim is registered and lives on; connections that are open keep working with the ciphers their
        // files already have.
        unsafe { ffi::sqlite3_vfs_unregister((&raw const self.shim.vfs).cast_mut()) };
        *self.shim.key.lock() = None;
    }
}

/// The shim of a call.
///
/// # Safety
/// `vfs` is one that [`Seal::new`] registered.
unsafe fn shim<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a VfsShim {
    // SAFETY: `pAppData` was set to the shim before it was registered, and is never changed.
    unsafe { &*(*vfs).pAppData.cast::<VfsShim>() }
}

/// The cipher of a file; `None` if the seal is dropped or there is no randomness.
fn cipher(shim: &VfsShim, name: Option<&CStr>) -> Option<XtsCipher> {
    let key = shim.key.lock();
    let key = key.as_ref()?;
    match name {
        Some(name) => {
            // Only the last part of the path: a folder that was moved can still be opened.
            let name = name.to_bytes().rsplit(|byte| *byte == b'/').next()?;
            Some(key.cipher(name))
        }
        // A temporary file: it is never opened a second time.
        None => {
            let mut random = [0_u8; 32];
            getrandom::fill(&mut random).ok()?;
            Some(key.cipher(&random))
        }
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with the file system it found by name, and with room for `szOsFile` bytes at `file`. A name
    // is null or ends with a zero and outlives the file. Without methods SQLite does not close a file that failed.
    unsafe {
        (*file).pMethods = ptr::null();
        let shim = shim(vfs);
        let named = (!name.is_null()).then(|| CStr::from_ptr(name));
        let Some(cipher) = cipher(shim, named) else { return ffi::SQLITE_CANTOPEN };
        let inner = file::inner(file);
        (*inner).pMethods = ptr::null();
        let Some(open) = (*shim.ground).xOpen else { return ffi::SQLITE_CANTOPEN };
        let said = open(shim.ground, name, inner, flags, out_flags);
        if said == ffi::SQLITE_OK {
            file::begin(file, cipher);
        } else if let Some(close) = (*inner).pMethods.as_ref().and_then(|methods| methods.xClose) {
            // A rule of SQLite: a file with methods is closed, even when opening it failed.
            close(inner);
        }
        said
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: passed through as SQLite gave it, with the file system below in place of this one.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |delete| delete(ground, name, sync))
    }
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xAccess.map_or(ffi::SQLITE_IOERR_ACCESS, |access| access(ground, name, flags, out))
    }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xFullPathname.map_or(ffi::SQLITE_CANTOPEN, |full| full(ground, name, length, out))
    }
}

unsafe extern "C" fn no_extension(_: *mut ffi::sqlite3_vfs, _: *const c_char) -> *mut c_void {
    // Extensions are not loaded through a sealed database.
    ptr::null_mut()
}

unsafe extern "C" fn no_extension_text(_: *mut ffi::sqlite3_vfs, length: c_int, out: *mut c_char) {
    if length > 0 {
        // SAFETY: SQLite gives room for `length` bytes; an empty text is one zero.
        unsafe { *out = 0 };
    }
}

/// The type of a symbol of a loaded extension.
type DynamicSymbol = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn no_extension_symbol(
    _: *mut ffi::sqlite3_vfs,
    _: *mut c_void,
    _: *const c_char,
) -> Option<DynamicSymbol> {
    None
}

unsafe extern "C" fn no_extension_close(_: *mut ffi::sqlite3_vfs, _: *mut c_void) {}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xRandomness.map_or(0, |randomness| randomness(ground, length, out))
    }
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xSleep.map_or(0, |sleep| sleep(ground, microseconds))
    }
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xCurrentTime.map_or(ffi::SQLITE_ERROR, |time| time(ground, out))
    }
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xCurrentTimeInt64.map_or(ffi::SQLITE_ERROR, |time| time(ground, out))
    }
}

unsafe extern "C" fn get_last_error(vfs: *mut ffi::sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    // SAFETY: as `delete`.
    unsafe {
        let ground = shim(vfs).ground;
        (*ground).xGetLastError.map_or(0, |error| error(ground, length, out))
    }
}
