//! Bytes as text inside JSON.
//!
//! Takes bytes, gives standard base64 with padding, and the reverse. Promise: text that is not base64 is an error.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, general_purpose::PAD};
use serde::{Deserialize as _, Deserializer, Serializer};

const ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, PAD);

/// Bytes as text.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

/// Text as bytes; nothing if it is not base64.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    ENGINE.decode(text).ok()
}

/// Writes bytes.
///
/// # Errors
/// When the text cannot be written.
pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(bytes))
}

/// Reads bytes.
///
/// # Errors
/// When the text is not base64.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    ENGINE.decode(text).map_err(serde::de::Error::custom)
}
