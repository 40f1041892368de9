//! The backup file: a plain-text header, then chunks that only its key opens.
//!
//! Takes files one after the other; gives them back in the same order. The first line is a JSON header, the second its
//! SHA-256; then follow chunks of XChaCha20-Poly1305, all but the last of one size, each with its number and whether it
//! is the last in its nonce, and the header in its associated data. Promise: a flipped bit, a missing end, an added
//! byte, and a chunk from another place or another backup are all detected, and the error names the place.

use std::io::{self, BufRead, BufReader, Read, Write};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_core::backup::FORM;
use sluice_core::{Entropy, UtcMillis, hex};
use zeroize::Zeroizing;

use super::BackupError;
use super::lock::{BackupKey, BackupLock, BackupLockParams};

/// The bytes of a chunk before it is sealed.
const CHUNK: usize = 64 << 10;
/// The bytes that sealing adds.
const TAG: usize = 16;
/// Random bytes of a nonce; the rest is the number of the chunk and whether it is the last.
const PREFIX: usize = 19;
/// The longest header line, in bytes.
const LONGEST_HEADER: u64 = 16 << 10;
/// The longest head of one file, in bytes.
const LONGEST_HEAD: usize = 64 << 10;

/// The kind of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerKind {
    /// A backup.
    Backup,
    /// The keys that belong to a backup.
    Keys,
}

/// The plain-text header of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerHeader {
    /// The format name of backups.
    pub form: String,
    /// The kind of the container.
    pub kind: ContainerKind,
    /// The id of the backup.
    pub backup: String,
    /// When the backup was started.
    pub created_at: UtcMillis,
    /// The instance id of the gateway.
    pub instance: Option<String>,
    /// How the key of the container is derived.
    pub lock: BackupLockParams,
    /// The data key, sealed under the key from the lock, in hex.
    wrapped: String,
    /// The first part of every nonce, in hex.
    nonce: String,
}

/// The header fields of a new container.
#[derive(Debug, Clone)]
pub(super) struct ContainerLabel<'a> {
    pub kind: ContainerKind,
    pub backup: &'a str,
    pub created_at: UtcMillis,
    pub instance: Option<String>,
}

/// The head of one file in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContainerEntryHeader {
    pub path: String,
    pub size: u64,
    pub mode: u32,
}

/// Seals and opens the chunks of one container.
struct ContainerChunkCipher {
    cipher: XChaCha20Poly1305,
    prefix: [u8; PREFIX],
    /// The hash of the header, which binds each chunk to this container.
    header: [u8; 32],
    next: u32,
}

impl ContainerChunkCipher {
    fn nonce(&mut self, is_last: bool) -> Result<XNonce, BackupError> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| BackupError::Key("the backup is too long".into()))?;
        let mut nonce = [0; 24];
        let parts = self.prefix.iter().copied().chain(number.to_be_bytes()).chain([u8::from(is_last)]);
        nonce.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        Ok(XNonce::from(nonce))
    }
}

/// A container that is being written.
pub(super) struct ContainerWriter<W: Write> {
    out: W,
    sealer: ContainerChunkCipher,
    waiting: Zeroizing<Vec<u8>>,
}

impl<W: Write> ContainerWriter<W> {
    /// Starts a container.
    pub fn begin(
        mut out: W,
        label: &ContainerLabel<'_>,
        lock: &BackupLock,
        entropy: &dyn Entropy,
    ) -> Result<Self, BackupError> {
        let (wrapping, params) = lock.wrap_key(entropy)?;
        let mut data_key = Zeroizing::new([0; 32]);
        let (mut prefix, mut nonce) = ([0; PREFIX], [0; 24]);
        entropy.fill(data_key.as_mut_slice());
        entropy.fill(&mut prefix);
        entropy.fill(&mut nonce);
        let bound = bound(label.kind, label.backup);
        let payload = Payload { msg: data_key.as_slice(), aad: bound.as_bytes() };
        let sealed = cipher(&wrapping).encrypt(&XNonce::from(nonce), payload).map_err(|_| BackupError::WrongKey)?;
        let header = ContainerHeader {
            form: FORM.to_owned(),
            kind: label.kind,
            backup: label.backup.to_owned(),
            created_at: label.created_at,
            instance: label.instance.clone(),
            lock: params,
            wrapped: hex::encode(&[nonce.as_slice(), &sealed].concat()),
            nonce: hex::encode(&prefix),
        };
        let line = serde_json::to_string(&header).map_err(|error| BackupError::Write(error.into()))?;
        let hash: [u8; 32] = Sha256::digest(line.as_bytes()).into();
        write!(out, "{line}\n{}\n", hex::encode(&hash)).map_err(BackupError::Write)?;
        let sealer = ContainerChunkCipher { cipher: cipher(&data_key), prefix, header: hash, next: 0 };
        Ok(Self { out, sealer, waiting: Zeroizing::new(Vec::with_capacity(CHUNK)) })
    }

    /// Adds a file of a known size.
    pub fn file(&mut self, head: &ContainerEntryHeader, mut content: impl Read) -> Result<String, BackupError> {
        let text = serde_json::to_vec(head).map_err(|error| BackupError::Write(error.into()))?;
        let length = u32::try_from(text.len()).map_err(|error| BackupError::Write(io::Error::other(error)))?;
        self.put(&length.to_be_bytes())?;
        self.put(&text)?;
        let (mut hash, mut left) = (Sha256::new(), head.size);
        let mut buffer = Zeroizing::new(vec![0; CHUNK]);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let part = buffer.get_mut(..wanted).unwrap_or_default();
            content.read_exact(part).map_err(|error| BackupError::Read { path: head.path.clone(), error })?;
            hash.update(&*part);
            self.put(part)?;
            left -= wanted as u64;
        }
        Ok(hex::encode(&hash.finalize()))
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), BackupError> {
        while !bytes.is_empty() {
            // A full chunk waits until more data comes: only then is it known not to be the last.
            if self.waiting.len() == CHUNK {
                self.seal(false)?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    fn seal(&mut self, is_last: bool) -> Result<(), BackupError> {
        let nonce = self.sealer.nonce(is_last)?;
        let payload = Payload { msg: &self.waiting, aad: &self.sealer.header };
        let sealed = self.sealer.cipher.encrypt(&nonce, payload).map_err(|_| BackupError::WrongKey)?;
        self.out.write_all(&sealed).map_err(BackupError::Write)?;
        self.waiting.clear();
        Ok(())
    }

    /// Finishes the container. Before this, it cannot be opened to its end.
    pub fn finish(mut self) -> Result<W, BackupError> {
        self.seal(true)?;
        self.out.flush().map_err(BackupError::Write)?;
        Ok(self.out)
    }
}

/// A container that is being read.
pub(super) struct ContainerReader<R: Read> {
    from: BufReader<R>,
    sealer: ContainerChunkCipher,
    /// The decrypted bytes of the current chunk, and how many of them were taken.
    plain: Zeroizing<Vec<u8>>,
    taken: usize,
    is_over: bool,
    /// The position of the next chunk in the file.
    at: u64,
    /// What is being read, for error texts.
    reading: String,
}

/// Reads the plain-text header of a container.
///
/// # Errors
/// When the file is not a container, or its header is damaged.
pub fn header(from: &mut impl BufRead) -> Result<ContainerHeader, BackupError> {
    read_header(from).map(|(header, _, _)| header)
}

fn read_header(from: &mut impl BufRead) -> Result<(ContainerHeader, [u8; 32], u64), BackupError> {
    let mut line = Vec::new();
    let mut next = |what: &str| -> Result<Vec<u8>, BackupError> {
        line.clear();
        let read = from.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut line);
        read.map_err(|error| BackupError::Read { path: "the backup".into(), error })?;
        let whole = line.strip_suffix(b"\n").map(<[u8]>::to_vec);
        whole.ok_or_else(|| BackupError::damaged("its header", what))
    };
    let text = next("it is not a backup, or its first line is cut off")?;
    let digits = next("its second line is cut off")?;
    let length = (text.len() + digits.len() + 2) as u64;
    let hash: [u8; 32] = Sha256::digest(&text).into();
    let header = serde_json::from_slice::<ContainerHeader>(&text);
    match header {
        Ok(header) if header.form != FORM && digits == hex::encode(&hash).as_bytes() => {
            Err(BackupError::damaged("its header", "it has a format that this release does not know"))
        }
        Ok(header) if digits == hex::encode(&hash).as_bytes() => Ok((header, hash, length)),
        _ => Err(BackupError::damaged("its header", "it is not a backup, or its header was changed")),
    }
}

impl<R: Read> ContainerReader<R> {
    /// Opens a container of one kind.
    pub fn open(from: R, kind: ContainerKind, key: &BackupKey) -> Result<(Self, ContainerHeader), BackupError> {
        let mut from = BufReader::with_capacity(CHUNK + TAG, from);
        let (header, hash, at) = read_header(&mut from)?;
        if header.kind != kind {
            let what = match header.kind {
                ContainerKind::Backup => "it is a backup, not an envelope of keys",
                ContainerKind::Keys => "it is an envelope of keys, not a backup",
            };
            return Err(BackupError::damaged("its header", what));
        }
        let form = || BackupError::damaged("its header", "its keys have an invalid format");
        let wrapped = hex::decode::<72>(&header.wrapped).ok_or_else(form)?;
        let (nonce, sealed) = wrapped.split_first_chunk::<24>().ok_or_else(form)?;
        let prefix = hex::decode::<PREFIX>(&header.nonce).ok_or_else(form)?;
        let wrapping = key.unwrap_key(&header.lock)?;
        let bound = bound(header.kind, &header.backup);
        let payload = Payload { msg: sealed, aad: bound.as_bytes() };
        let data_key = cipher(&wrapping).decrypt(&XNonce::from(*nonce), payload).map_err(|_| BackupError::WrongKey)?;
        let data_key = Zeroizing::new(data_key);
        let data_key = <[u8; 32]>::try_from(data_key.as_slice()).map(Zeroizing::new).map_err(|_| form())?;
        let sealer = ContainerChunkCipher { cipher: cipher(&data_key), prefix, header: hash, next: 0 };
        let plain = Zeroizing::new(Vec::new());
        let reading = "its beginning".to_owned();
        Ok((Self { from, sealer, plain, taken: 0, is_over: false, at, reading }, header))
    }

    /// The next file, or nothing at the end.
    pub fn next(&mut self) -> Result<Option<ContainerEntryHeader>, BackupError> {
        if self.taken == self.plain.len() && (self.is_over || !self.more()?) {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST_HEAD {
            return Err(self.damaged("the head of a file is too long"));
        }
        let mut text = vec![0; length];
        self.fill(&mut text)?;
        let head: ContainerEntryHeader =
            serde_json::from_slice(&text).map_err(|_| self.damaged("the head of a file has an invalid format"))?;
        self.reading = format!("`{}`", head.path);
        Ok(Some(head))
    }

    /// Passes the content of the current file on. Returns its hash.
    pub fn content(&mut self, head: &ContainerEntryHeader, mut sink: impl Write) -> Result<String, BackupError> {
        let (mut hash, mut left) = (Sha256::new(), head.size);
        while left > 0 {
            if self.taken == self.plain.len() && !self.more()? {
                return Err(self.damaged("it ends too early"));
            }
            let there = self.plain.get(self.taken..).unwrap_or_default();
            let part = there.get(..usize::try_from(left).unwrap_or(usize::MAX).min(there.len())).unwrap_or_default();
            hash.update(part);
            sink.write_all(part).map_err(BackupError::Write)?;
            self.taken += part.len();
            left -= part.len() as u64;
        }
        let hash = hex::encode(&hash.finalize());
        self.reading = format!("what follows `{}`", head.path);
        Ok(hash)
    }

    fn fill(&mut self, mut to: &mut [u8]) -> Result<(), BackupError> {
        while !to.is_empty() {
            if self.taken == self.plain.len() && !self.more()? {
                return Err(self.damaged("it ends within a file's head"));
            }
            let there = self.plain.get(self.taken..).unwrap_or_default();
            let count = there.len().min(to.len());
            let (now, rest) = to.split_at_mut(count);
            now.copy_from_slice(there.get(..count).unwrap_or_default());
            self.taken += count;
            to = rest;
        }
        Ok(())
    }

    /// Opens the next chunk. Returns false after the last one.
    fn more(&mut self) -> Result<bool, BackupError> {
        if self.is_over {
            return Ok(false);
        }
        let mut sealed = Vec::with_capacity(CHUNK + TAG);
        let read = self.from.by_ref().take((CHUNK + TAG) as u64).read_to_end(&mut sealed);
        read.map_err(|error| BackupError::Read { path: "the backup".into(), error })?;
        let is_last = self.from.fill_buf().map_or(true, <[u8]>::is_empty);
        let length = sealed.len() as u64;
        if sealed.len() < TAG {
            return Err(self.damaged("it is cut off, or was never finished"));
        }
        let nonce = self.sealer.nonce(is_last)?;
        let payload = Payload { msg: &sealed, aad: &self.sealer.header };
        let Ok(plain) = self.sealer.cipher.decrypt(&nonce, payload) else {
            let why = format!("bytes {} to {} were changed, or the end is missing", self.at, self.at + length);
            return Err(self.damaged(&why));
        };
        self.at += length;
        (self.plain, self.taken, self.is_over) = (Zeroizing::new(plain), 0, is_last);
        Ok(!self.plain.is_empty())
    }

    fn damaged(&self, why: &str) -> BackupError {
        BackupError::damaged(&self.reading, why)
    }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key))
}

/// The text that binds a wrapped data key to its container.
fn bound(kind: ContainerKind, backup: &str) -> String {
    let kind = match kind {
        ContainerKind::Backup => "backup",
        ContainerKind::Keys => "keys",
    };
    format!("sluice backup 1\n{kind}\n{backup}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_testkit::ids::SeededEntropy;

    fn lock() -> BackupLock {
        BackupLock::recipient(&super::super::lock::new_identity(&SeededEntropy::new(9)).1)
            .unwrap_or_else(|e| panic!("{e}"))
    }

    fn key() -> BackupKey {
        BackupKey::identity(&super::super::lock::new_identity(&SeededEntropy::new(9)).0)
            .unwrap_or_else(|e| panic!("{e}"))
    }

    fn written(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let label = ContainerLabel {
            kind: ContainerKind::Backup,
            backup: "b",
            created_at: UtcMillis::default(),
            instance: None,
        };
        let mut writer = ContainerWriter::begin(Vec::new(), &label, &lock(), &SeededEntropy::new(1)).unwrap();
        for (path, content) in files {
            let head = ContainerEntryHeader { path: (*path).to_owned(), size: content.len() as u64, mode: 0o600 };
            writer.file(&head, content.as_slice()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, BackupError> {
        let (mut reader, _) = ContainerReader::open(bytes, ContainerKind::Backup, &key())?;
        let mut all = Vec::new();
        while let Some(head) = reader.next()? {
            let mut content = Vec::new();
            reader.content(&head, &mut content)?;
            all.push((head.path, content));
        }
        Ok(all)
    }

    #[test]
    fn files_come_back_whatever_their_sizes() {
        let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK];
        let files: Vec<_> = sizes.iter().map(|size| ("data/x", vec![7; *size])).collect();
        let back = read(&written(&files)).unwrap();
        assert_eq!(back.iter().map(|(_, content)| content.len()).collect::<Vec<_>>(), sizes);
        assert_eq!(read(&written(&[])).unwrap(), []);
    }

    #[test]
    fn every_cut_and_every_added_byte_is_noticed() {
        let whole = written(&[("data/a", vec![1; 300]), ("data/b", vec![2; CHUNK + 10])]);
        for length in (0..whole.len()).step_by(997).chain(whole.len() - 20..whole.len()) {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert!(read(&[whole.as_slice(), b"x"].concat()).is_err());
    }

    #[test]
    fn a_flipped_bit_is_named_by_the_file_it_lies_in() {
        let whole = written(&[("data/first", vec![1; 3 * CHUNK]), ("data/second", vec![2; 3 * CHUNK])]);
        let at = |from_end: usize| {
            let mut bytes = whole.clone();
            let place = bytes.len() - from_end;
            bytes[place] ^= 4;
            read(&bytes).unwrap_err().to_string()
        };
        assert!(at(CHUNK).contains("`data/second`"), "{}", at(CHUNK));
        assert!(at(5 * CHUNK).contains("`data/first`"), "{}", at(5 * CHUNK));
        assert!(at(whole.len() - 5).contains("header"), "{}", at(whole.len() - 5));
    }

    #[test]
    fn a_chunk_of_another_backup_does_not_fit() {
        let (one, two) = (written(&[("data/a", vec![1; 50])]), written(&[("data/b", vec![1; 50])]));
        let body = one.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0;
        assert_eq!(one.len(), two.len());
        // The same key and the same header: only the content differs, and it opens as what it is.
        assert!(read(&[&one[..body], &two[body..]].concat()).is_ok());
        let label = ContainerLabel {
            kind: ContainerKind::Backup,
            backup: "c",
            created_at: UtcMillis::default(),
            instance: None,
        };
        let other =
            ContainerWriter::begin(Vec::new(), &label, &lock(), &SeededEntropy::new(1)).unwrap().finish().unwrap();
        let header = other.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0;
        assert!(read(&[&other[..header], &one[body..]].concat()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_flipped_bit_anywhere_is_noticed(place in 0_usize..70_000, bit in 0_u8..8) {
            let mut whole = written(&[("data/a", vec![1; 300]), ("data/b", vec![2; CHUNK])]);
            let place = place % whole.len();
            whole[place] ^= 1 << bit;
            prop_assert!(read(&whole).is_err(), "{place}");
        }
    }
}
