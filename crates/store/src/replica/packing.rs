//! Compressed message bodies: small, and quick to unpack.
//!
//! Takes a message; gives the bytes that are stored, and back. A dictionary trained on the mailbox itself makes short
//! mails compress as well as long ones. Promise: unpacking returns exactly what was packed, or an error.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sluice_core::mail::{Mail, MailAddress, MailAmbiguity, MailAttachment, SenderAuthentication};
use zstd::bulk::{Compressor, Decompressor};

use crate::error::StoreError;

/// The compression level.
const LEVEL: i32 = 3;
/// Largest dictionary, in bytes.
const DICTIONARY: usize = 112_640;
/// Longest body that is unpacked, in bytes. Longer ones were never packed.
const LONGEST: usize = 32 << 20;

/// The data that is packed besides the text.
#[derive(Debug, Serialize, Deserialize)]
struct PackedDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<MailAddress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    t: Vec<MailAddress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    c: Vec<MailAddress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    a: Vec<MailAttachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    i: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    w: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<MailAmbiguity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<SenderAuthentication>,
}

/// Packed bytes.
#[derive(Debug)]
pub struct PackedBody {
    pub dictionary: i64,
    pub length: i64,
    pub bytes: Vec<u8>,
}

/// A message before packing: the length of its details, the details, its text.
pub fn plain(mail: &Mail) -> Result<Vec<u8>, StoreError> {
    let details = PackedDetails {
        f: mail.from.clone(),
        t: mail.to.clone(),
        c: mail.cc.clone(),
        a: mail.attachments.clone(),
        i: mail.message_id.clone(),
        w: mail.withheld.clone(),
        s: (mail.score > 0).then_some(mail.score),
        d: mail.ambiguous.clone(),
        v: mail.authentication,
    };
    let head = serde_json::to_vec(&details).map_err(|error| StoreError::Engine(Box::new(error)))?;
    let length = u32::try_from(head.len()).map_err(|_| damaged())?;
    let mut bytes = Vec::with_capacity(4 + head.len() + mail.text.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(mail.text.as_bytes());
    Ok(bytes)
}

/// Fills a message with unpacked details and text.
pub fn fill(mail: &mut Mail, plain: &[u8]) -> Result<(), StoreError> {
    let (details, text) = split(plain)?;
    let details: PackedDetails = serde_json::from_slice(details).map_err(|_| damaged())?;
    mail.from = details.f;
    mail.to = details.t;
    mail.cc = details.c;
    mail.attachments = details.a;
    mail.message_id = details.i;
    mail.withheld = details.w;
    mail.score = details.s.unwrap_or_default();
    mail.ambiguous = details.d;
    mail.authentication = details.v;
    mail.text = text.to_owned();
    Ok(())
}

/// Only the text of an unpacked body.
pub fn text(plain: &[u8]) -> Result<&str, StoreError> {
    split(plain).map(|(_, text)| text)
}

fn split(plain: &[u8]) -> Result<(&[u8], &str), StoreError> {
    let (length, rest) = plain.split_first_chunk::<4>().ok_or_else(damaged)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| damaged())?;
    let (details, text) = rest.split_at_checked(length).ok_or_else(damaged)?;
    Ok((details, std::str::from_utf8(text).map_err(|_| damaged())?))
}

fn damaged() -> StoreError {
    StoreError::Impossible { table: "bodies", detail: "a body that cannot be opened" }
}

/// Packs bodies.
pub struct BodyPacker {
    dictionary: i64,
    compressor: Compressor<'static>,
}

impl std::fmt::Debug for BodyPacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("dictionary", &self.dictionary).finish_non_exhaustive()
    }
}

impl BodyPacker {
    /// Creates a packer with a dictionary (by its number), or without one (0).
    pub fn new(dictionary: i64, bytes: &[u8]) -> Result<Self, StoreError> {
        let made = if dictionary == 0 { Compressor::new(LEVEL) } else { Compressor::with_dictionary(LEVEL, bytes) };
        let mut compressor = made.map_err(|error| StoreError::Engine(Box::new(error)))?;
        // Neither checksum nor dictionary number is stored: the row knows both, and SQLite has checked the page.
        for parameter in
            [zstd::zstd_safe::CParameter::ChecksumFlag(false), zstd::zstd_safe::CParameter::DictIdFlag(false)]
        {
            compressor.set_parameter(parameter).map_err(|error| StoreError::Engine(Box::new(error)))?;
        }
        Ok(Self { dictionary, compressor })
    }

    /// Packs bytes.
    pub fn pack(&mut self, plain: &[u8]) -> Result<PackedBody, StoreError> {
        let bytes = self.compressor.compress(plain).map_err(|error| StoreError::Engine(Box::new(error)))?;
        Ok(PackedBody { dictionary: self.dictionary, length: i64::try_from(plain.len()).unwrap_or(i64::MAX), bytes })
    }
}

/// Unpacks bodies, with the dictionaries it knows.
#[derive(Default)]
pub struct BodyUnpacker {
    by_dictionary: HashMap<i64, Decompressor<'static>>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for BodyUnpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").field("dictionaries", &self.by_dictionary.len()).finish_non_exhaustive()
    }
}

impl BodyUnpacker {
    /// Whether a dictionary is known.
    pub fn knows(&self, dictionary: i64) -> bool {
        self.by_dictionary.contains_key(&dictionary)
    }

    /// Adds a dictionary.
    pub fn learn(&mut self, dictionary: i64, bytes: &[u8]) -> Result<(), StoreError> {
        let made = if dictionary == 0 { Decompressor::new() } else { Decompressor::with_dictionary(bytes) };
        self.by_dictionary.insert(dictionary, made.map_err(|error| StoreError::Engine(Box::new(error)))?);
        Ok(())
    }

    /// Unpacks. The result is valid until the next call.
    pub fn open(&mut self, dictionary: i64, length: i64, bytes: &[u8]) -> Result<&[u8], StoreError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST).ok_or_else(damaged)?;
        let decompressor = self.by_dictionary.get_mut(&dictionary).ok_or_else(damaged)?;
        self.buffer.clear();
        self.buffer.reserve(length);
        decompressor.decompress_to_buffer(bytes, &mut self.buffer).map_err(|_| damaged())?;
        if self.buffer.len() != length {
            return Err(damaged());
        }
        Ok(&self.buffer)
    }
}

/// Trains a dictionary from samples; `None` when they have too little in common.
pub fn dictionary(samples: &[Vec<u8>]) -> Option<Vec<u8>> {
    zstd::dict::from_samples(samples, DICTIONARY).ok().filter(|bytes| !bytes.is_empty())
}
