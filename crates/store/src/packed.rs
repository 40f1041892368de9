//! Audit entries as stored: compressed, with a dictionary of common parts.
//!
//! Takes and gives the exact bytes that the chain covers. Promise: a packed entry comes out exactly as it went in, an
//! entry that an earlier release stored unpacked is read as it is, and anything else does not fit the chain.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, get_frame_content_size};

/// Typical entries, used as the dictionary. It is never changed, only followed by a new one: packed entries cannot be
/// read without it.
const ENTRIES: &[u8] = include_bytes!("packed/entries-1.txt");
/// The first byte of an entry packed with [`ENTRIES`]. An unpacked entry is JSON and begins with a brace.
const WITH_ENTRIES: u8 = 1;
/// The first bytes of every frame. They are not stored.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const LEVEL: i32 = 3;
/// The longest entry that is read: far longer than any real one.
const LONGEST: u64 = 16 << 20;

thread_local! {
    /// Preparing a dictionary costs a hundred times as much as packing an entry.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Packs the body of an entry. A body that would not get shorter stays as it is.
pub(crate) fn pack(body: Vec<u8>) -> Vec<u8> {
    // A body that cannot be packed is stored as it is, which is equally valid.
    match packed(&body) {
        Ok(packed) if packed.len() < body.len() => packed,
        Ok(_) | Err(_) => body,
    }
}

fn packed(body: &[u8]) -> std::io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(compressor()?),
        };
        let mut frame = compressor.compress(body)?;
        let Some(rest) = frame.strip_prefix(&MAGIC).map(<[u8]>::len) else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        // The last byte of the removed prefix is reused as the marker of the dictionary.
        frame.drain(..frame.len() - rest - 1);
        if let Some(first) = frame.first_mut() {
            *first = WITH_ENTRIES;
        }
        Ok(frame)
    })
}

fn compressor() -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::with_dictionary(LEVEL, ENTRIES)?;
    // The chain holds the checksum, and the first byte the dictionary.
    compressor.set_parameter(CParameter::ChecksumFlag(false))?;
    compressor.set_parameter(CParameter::DictIdFlag(false))?;
    Ok(compressor)
}

/// The body of an entry as it was before packing. A body that cannot be unpacked is returned as stored: it does not
/// match the chain, so a verifier of the audit log finds the entry damaged.
pub(crate) fn unpack(kept: Vec<u8>) -> Vec<u8> {
    let unpacked = match kept.split_first() {
        Some((&WITH_ENTRIES, frame)) => unpacked(&[&MAGIC, frame].concat()),
        Some(_) | None => None,
    };
    unpacked.unwrap_or(kept)
}

fn unpacked(frame: &[u8]) -> Option<Vec<u8>> {
    let length = get_frame_content_size(frame).ok()?.filter(|length| *length <= LONGEST)?;
    let length = usize::try_from(length).ok()?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            None => slot.insert(Decompressor::with_dictionary(ENTRIES).ok()?),
        };
        decompressor.decompress(frame, length).ok().filter(|body| body.len() == length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest as _;

    const ENTRY: &[u8] = br#"{"at":1790000000000,"fact":{"actor":"node:a","call":"call_01a1ed8677346ea87824a2f9c67fdde8","detail":{"move":"claim","version":"3"},"digest":"sha256-v1:2b94656bd86367310586927bfe5ef5874d75228fc0a58f25dc23f95b88b2a3a3","from":"ready","hold":"buf_01a1ed8677346ea87824a2f9c67fdde8","kind":"hold.preparing","to":"preparing"},"log":"a","seq":12469,"v":1}"#;

    /// The same entry as it was stored when the dictionary was new.
    const KEPT: &str = "01605d001d040062c61214b0256d902558b25d26ee584a91bd2961f448320c8309080201408c3c3870a0f34f0f5ade178a616fd729dd6b4b95cd33b19798719a564624fda2ba67035923f9772c46e3ceae657004061100796642fecc2068aeca0170c0670880089ee707600b38ce9b95dfc679bd7f660800d06f51eee328b751784861f0f0c1154d0001";

    #[test]
    fn the_dictionary_is_the_one_that_kept_entries_need() {
        let hash = sluice_core::hex::encode(&sha2::Sha256::digest(ENTRIES));
        assert_eq!(hash, "3fdbddadb5b626ee3486e9f4b8aa64a2686c7b587e3d8d1249a80661f863d67c");
        let kept: [u8; 138] = sluice_core::hex::decode(KEPT).unwrap();
        assert_eq!(unpack(kept.to_vec()), ENTRY);
    }

    #[test]
    fn an_ordinary_entry_takes_less_than_half_and_one_of_an_earlier_release_is_read_as_it_is() {
        let kept = pack(ENTRY.to_vec());
        assert!(kept.len() * 2 < ENTRY.len(), "{}", kept.len());
        assert_eq!(unpack(kept), ENTRY);
        assert_eq!(unpack(ENTRY.to_vec()), ENTRY);
    }

    #[test]
    fn what_is_damaged_is_given_as_it_is_and_fits_no_chain() {
        let kept = pack(ENTRY.to_vec());
        for length in 0..kept.len() {
            assert_eq!(unpack(kept[..length].to_vec()), &kept[..length], "cut at {length}");
        }
        let bomb = zstd::bulk::compress(&vec![b'{'; 32 << 20], 1).unwrap();
        let bomb = [&[WITH_ENTRIES], &bomb[4..]].concat();
        assert_eq!(unpack(bomb.clone()), bomb);
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_out_as_it_went_in(text in ".{0,2000}", bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            for body in [format!("{{\"v\":1,\"x\":\"{text}\"}}").into_bytes(), [b"{".as_slice(), &bytes].concat()] {
                prop_assert_eq!(unpack(pack(body.clone())), body);
            }
        }

        #[test]
        fn no_bytes_make_it_panic_or_take_much_memory(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0_usize..1_000, bit in 0_u8..8) {
            let mut damaged = pack(ENTRY.to_vec());
            let at = at % damaged.len();
            damaged[at] ^= 1 << bit;
            for kept in [damaged, [&[WITH_ENTRIES], bytes.as_slice()].concat()] {
                prop_assert!(unpack(kept).len() <= usize::try_from(LONGEST).unwrap());
            }
        }
    }
}
