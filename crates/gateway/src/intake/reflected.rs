//! Secrets of the vault in what comes in: a service, a server or a mail that reflects one.
//!
//! Takes an item before it is read and what was made of it after; takes out every secret in every spelling. Promise: no
//! secret that is looked for reaches an agent or the database through the intake.

use std::borrow::Cow;

use sluice_content::leak::LiveSecrets;

use super::{Cleaned, Incoming};

/// An item as it came, without secrets.
pub(super) fn without_secrets<'a>(item: &'a Incoming, secrets: &LiveSecrets) -> Cow<'a, Incoming> {
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

/// What was made of it, without secrets: decoding, unpacking and leaving out markup may have put one together.
pub(super) fn scrub(cleaned: &mut Cleaned, secrets: &LiveSecrets) {
    if let Some(text) = secrets.scrub_text(&cleaned.text) {
        cleaned.text = text;
    }
    if let Some(value) = cleaned.value.as_ref().and_then(|value| secrets.scrub_json(value)) {
        cleaned.value = Some(value);
    }
}
