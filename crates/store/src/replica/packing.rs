//! Bodies, packed: small, and quick to open.
//!
//! Takes a message, gives the bytes that are kept; and back. A dictionary learnt from the mailbox itself makes
//! short mails shrink like long ones. Promise: what comes out is what went in, or an error.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sluice_core::mail::{Address, Ambiguity, Attachment, Authentication, Mail};
use zstd::bulk::{Compressor, Decompressor};

use crate::error::StoreError;

/// How hard it is tried.
const LEVEL: i32 = 3;
/// Largest dictionary, in bytes.
const DICTIONARY: usize = 112_640;
/// Longest body that is opened, in bytes. More was never packed.
const LONGEST: usize = 32 << 20;

/// What is packed beside the text.
#[derive(Debug, Serialize, Deserialize)]
struct Details {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    t: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    c: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    a: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    i: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    w: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<Ambiguity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<Authentication>,
}

/// Bytes as kept.
#[derive(Debug)]
pub struct Packed {
    pub dictionary: i64,
    pub length: i64,
    pub bytes: Vec<u8>,
}

/// A message before it is packed: the length of its details, the details, its text.
pub fn plain(mail: &Mail) -> Result<Vec<u8>, StoreError> {
    let details = Details {
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

/// Puts what was packed back into a message.
pub fn fill(mail: &mut Mail, plain: &[u8]) -> Result<(), StoreError> {
    let (details, text) = split(plain)?;
    let details: Details = serde_json::from_slice(details).map_err(|_| damaged())?;
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

/// Only the text.
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

/// Packs.
pub struct Packer {
    dictionary: i64,
    compressor: Compressor<'static>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("dictionary", &self.dictionary).finish_non_exhaustive()
    }
}

impl Packer {
    /// With a dictionary (by its number), or with none (0).
    pub fn new(dictionary: i64, bytes: &[u8]) -> Result<Self, StoreError> {
        let made = if dictionary == 0 { Compressor::new(LEVEL) } else { Compressor::with_dictionary(LEVEL, bytes) };
        let mut compressor = made.map_err(|error| StoreError::Engine(Box::new(error)))?;
        // Neither sum nor dictionary number: the row knows both, and SQLite has checked the page.
        for parameter in
            [zstd::zstd_safe::CParameter::ChecksumFlag(false), zstd::zstd_safe::CParameter::DictIdFlag(false)]
        {
            compressor.set_parameter(parameter).map_err(|error| StoreError::Engine(Box::new(error)))?;
        }
        Ok(Self { dictionary, compressor })
    }

    /// Packs bytes.
    pub fn pack(&mut self, plain: &[u8]) -> Result<Packed, StoreError> {
        let bytes = self.compressor.compress(plain).map_err(|error| StoreError::Engine(Box::new(error)))?;
        Ok(Packed { dictionary: self.dictionary, length: i64::try_from(plain.len()).unwrap_or(i64::MAX), bytes })
    }
}

/// Opens what was packed, with each dictionary it meets.
#[derive(Default)]
pub struct Unpacker {
    by_dictionary: HashMap<i64, Decompressor<'static>>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").field("dictionaries", &self.by_dictionary.len()).finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Whether a dictionary is known.
    pub fn knows(&self, dictionary: i64) -> bool {
        self.by_dictionary.contains_key(&dictionary)
    }

    /// Learns a dictionary.
    pub fn learn(&mut self, dictionary: i64, bytes: &[u8]) -> Result<(), StoreError> {
        let made = if dictionary == 0 { Decompressor::new() } else { Decompressor::with_dictionary(bytes) };
        self.by_dictionary.insert(dictionary, made.map_err(|error| StoreError::Engine(Box::new(error)))?);
        Ok(())
    }

    /// Opens. What is given is good until the next call.
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

/// Learns a dictionary from samples; nothing when they have too little in common.
pub fn dictionary(samples: &[Vec<u8>]) -> Option<Vec<u8>> {
    zstd::dict::from_samples(samples, DICTIONARY).ok().filter(|bytes| !bytes.is_empty())
}
