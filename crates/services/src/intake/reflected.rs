//! Reflected secrets: removes vault secrets from incoming items.
//!
//! Takes an item before it is read and its result afterwards; removes every secret in every spelling. Promise: no known
//! secret reaches an agent or the database through the intake.

use std::borrow::Cow;

use sluice_content::leak::LiveSecrets;

use super::{CleanedContent, IncomingItem};

/// An item as it arrived, without secrets.
pub(super) fn without_secrets<'a>(item: &'a IncomingItem, secrets: &LiveSecrets) -> Cow<'a, IncomingItem> {
    let bytes = secrets.scrub(&item.bytes);
    let beside = item.beside.as_deref().and_then(|beside| secrets.scrub_text(beside));
    let (source, author) = (secrets.scrub_text(&item.source), secrets.scrub_text(&item.author));
    if bytes.is_none() && beside.is_none() && source.is_none() && author.is_none() {
        return Cow::Borrowed(item);
    }
    let mut item = item.clone();
    item.bytes = bytes.unwrap_or(item.bytes);
    item.beside = beside.or(item.beside);
    item.source = source.unwrap_or(item.source);
    item.author = author.unwrap_or(item.author);
    Cow::Owned(item)
}

/// Removes secrets from the result: decoding, unpacking and removing markup may have put one together.
pub(super) fn scrub(cleaned: &mut CleanedContent, secrets: &LiveSecrets) {
    if let Some(text) = secrets.scrub_text(&cleaned.text) {
        cleaned.text = text;
    }
    if let Some(value) = cleaned.value.as_ref().and_then(|value| secrets.scrub_json(value)) {
        cleaned.value = Some(value);
    }
}
