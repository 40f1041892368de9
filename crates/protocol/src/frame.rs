//! Frames: a length, a kind, JSON and bytes.
//!
//! `u32` length of the rest, `u8` kind, `u8` number of blobs, `u32` length of the head, a `u32` length for each blob,
//! the head, the blobs; numbers are little-endian. Promise: a length is trusted only within the limits and only as far
//! as bytes have arrived; the parts must fill the frame exactly.

use serde::Serialize;

/// Longest frame: an answer of 16 MB and its head.
pub const MAX_FRAME: usize = 24 << 20;
/// Longest head.
pub const MAX_HEAD: usize = 4 << 20;
/// Most blobs in one frame.
pub const MAX_BLOBS: usize = 64;
/// Size of the fields before the lengths of the blobs, without the length of the frame itself.
const FIXED: usize = 6;

/// Why bytes are not a valid frame or message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkerFrameError {
    /// It is longer than allowed.
    #[error("the frame is larger than allowed")]
    TooLarge,
    /// The parts do not fill it exactly.
    #[error("the parts of the frame do not fit")]
    Layout,
    /// There is no such kind in this direction.
    #[error("there is no such kind of frame")]
    Kind,
    /// The head is not strict JSON.
    #[error("the head of the frame is not valid JSON")]
    Json,
    /// The head is JSON with a wrong shape.
    #[error("the head of the frame has a wrong shape")]
    Shape,
    /// It ends before it is complete.
    #[error("the frame ends before it is complete")]
    Half,
    /// It is not allowed at this moment.
    #[error("the frame is not allowed at this point")]
    OutOfTurn,
}

/// One decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFrame {
    /// The kind of message.
    pub kind: u8,
    /// The JSON head.
    pub head: Vec<u8>,
    /// The attached bytes.
    pub blobs: Vec<Vec<u8>>,
}

/// Encodes a frame.
pub(crate) fn encode<T: Serialize>(kind: u8, head: &T, blobs: &[Vec<u8>]) -> Result<Vec<u8>, WorkerFrameError> {
    let head = serde_json::to_vec(head).map_err(|_| WorkerFrameError::Json)?;
    let total = FIXED + 4 * blobs.len() + head.len() + blobs.iter().map(Vec::len).sum::<usize>();
    if total > MAX_FRAME || head.len() > MAX_HEAD || blobs.len() > MAX_BLOBS {
        return Err(WorkerFrameError::TooLarge);
    }
    let number = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(|_| WorkerFrameError::TooLarge);
    let mut bytes = Vec::with_capacity(4 + total);
    bytes.extend(number(total)?);
    bytes.push(kind);
    bytes.push(u8::try_from(blobs.len()).map_err(|_| WorkerFrameError::TooLarge)?);
    bytes.extend(number(head.len())?);
    for blob in blobs {
        bytes.extend(number(blob.len())?);
    }
    bytes.extend(head);
    blobs.iter().for_each(|blob| bytes.extend_from_slice(blob));
    Ok(bytes)
}

/// Takes bytes as they arrive and gives complete frames.
#[derive(Debug, Default)]
pub struct WorkerFrameDecoder {
    bytes: Vec<u8>,
    /// How much of `bytes` was given out already.
    spent: usize,
}

impl WorkerFrameDecoder {
    /// Takes new bytes. Never holds more than one frame of the largest size and what arrived with its end.
    pub fn feed(&mut self, more: &[u8]) {
        self.bytes.drain(..self.spent);
        self.spent = 0;
        self.bytes.extend_from_slice(more);
    }

    /// The next complete frame, if there is one.
    ///
    /// # Errors
    /// When the bytes are not a frame. Nothing after it can be trusted.
    pub fn next_frame(&mut self) -> Result<Option<WorkerFrame>, WorkerFrameError> {
        let rest = self.bytes.get(self.spent..).unwrap_or_default();
        let Some((length, rest)) = take_number(rest) else { return Ok(None) };
        if length > MAX_FRAME {
            return Err(WorkerFrameError::TooLarge);
        }
        if length < FIXED {
            return Err(WorkerFrameError::Layout);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = take_apart(body)?;
        self.spent += 4 + length;
        Ok(Some(frame))
    }

    /// How much memory it holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether a frame is incomplete.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.bytes.len() > self.spent
    }
}

fn take_apart(body: &[u8]) -> Result<WorkerFrame, WorkerFrameError> {
    let ([kind, count], rest) = body.split_first_chunk::<2>().ok_or(WorkerFrameError::Layout)?;
    if usize::from(*count) > MAX_BLOBS {
        return Err(WorkerFrameError::TooLarge);
    }
    let (head_length, mut rest) = take_number(rest).ok_or(WorkerFrameError::Layout)?;
    if head_length > MAX_HEAD {
        return Err(WorkerFrameError::TooLarge);
    }
    let mut lengths = Vec::with_capacity(usize::from(*count));
    for _ in 0..*count {
        let (length, after) = take_number(rest).ok_or(WorkerFrameError::Layout)?;
        lengths.push(length);
        rest = after;
    }
    let mut take = |length: usize| {
        let (part, after) = rest.split_at_checked(length).ok_or(WorkerFrameError::Layout)?;
        rest = after;
        Ok(part.to_vec())
    };
    let head = take(head_length)?;
    let blobs = lengths.into_iter().map(&mut take).collect::<Result<_, _>>()?;
    if rest.is_empty() { Ok(WorkerFrame { kind: *kind, head, blobs }) } else { Err(WorkerFrameError::Layout) }
}

fn take_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}
