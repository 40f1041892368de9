//! Mail as bytes: parsed when it comes in, built when it goes out.
//!
//! Takes untrusted bytes, gives a [`RawMail`] whatever is wrong with them; takes a [`OutgoingMail`] of checked values, gives
//! bytes. Promise: a part of a mail that two readers read differently is given as two readings and not as a fact
//! (`reading`); no value of an outgoing mail can begin or end a header, and a second reading of an address never adds a
//! recipient.

mod authentication;
mod encoded_words;
mod mailboxes;
mod parts;
mod reading;

use std::time::{Duration, SystemTime};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as Attached, Mailbox, Message, MultiPart, SinglePart};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::mail::head::MailHead;
use sluice_core::mail::{Mail, MailAddress};
use sluice_core::{hex, recipients};

use crate::adapter::{AttachedFile, RawItem};
use crate::error::AdapterWriteError;

/// The header that marks mail from us, so that it can be found again.
pub const MARK: &str = "X-Sluice-Operation";
/// Most parts of one mail that are read.
const MOST_PARTS: usize = 200;
/// Longest header value that is kept, in characters.
const LONGEST_VALUE: usize = 2_000;
/// Most people of one header field that are kept.
const MOST_PEOPLE: usize = 500;

/// A parsed mail. Its texts are raw: the worker passes them through all stages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawMail {
    /// Everything except the text of the body.
    pub mail: Mail,
    /// The body as plain text, if there is one.
    pub text: Option<String>,
    /// The body as HTML, if there is one.
    pub html: Option<String>,
    /// Recipients that the others do not see; only in mail that is not sent yet.
    pub bcc: Vec<MailAddress>,
    /// The `Message-ID`s that it refers to, oldest first.
    pub references: Vec<String>,
    /// Our mark, if it has one.
    pub mark: Option<String>,
    /// The contents of its attachments, in the order of `mail.attachments`.
    pub contents: Vec<Vec<u8>>,
}

/// Parses an item. Broken parts are left out.
#[must_use]
pub fn parse_item(item: &RawItem) -> RawMail {
    let mut open = parse(&item.raw);
    open.mail.id.clone_from(&item.id);
    open.mail.thread.clone_from(&item.thread);
    open.mail.labels.clone_from(&item.labels);
    open.mail.received = item.received;
    open.mail.cut = item.cut;
    open.mail.size = item.size.max(item.raw.len() as u64);
    // The record of a server is about the sender that it read: where there are two, it is about neither.
    let domain = open.mail.from.as_ref().and_then(|from| from.address.rsplit_once('@')).map(|(_, domain)| domain);
    if let (Some(domain), Some(server), None) = (domain, item.receiver, &open.mail.ambiguous) {
        open.mail.authentication = authentication::read(&MailHead::of(&item.raw), server, domain);
    }
    open
}

/// Parses bytes.
#[must_use]
pub fn parse(bytes: &[u8]) -> RawMail {
    reading::read(bytes)
}

fn cut(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST_VALUE).map(one_line).collect::<String>().trim().to_owned()
}

/// A mail to build.
#[derive(Debug, Clone, Default)]
pub struct OutgoingMail<'l> {
    /// The id of our hold, written into the mark.
    pub op: &'l str,
    /// The time, in milliseconds.
    pub at: i64,
    /// The account that sends it.
    pub from: String,
    /// The recipients (`To`).
    pub to: Vec<String>,
    /// The recipients of copies (`Cc`).
    pub cc: Vec<String>,
    /// The recipients of blind copies (`Bcc`).
    pub bcc: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The text of the body.
    pub text: String,
    /// The body as HTML, if there is one.
    pub html: Option<String>,
    /// The mails that it replies to: the direct one's `Message-ID` last, earlier ones first.
    pub references: Vec<String>,
    /// The attached files.
    pub files: Vec<AttachedFile>,
}

/// The addresses in an argument, exactly as batch protection and policy counted them.
///
/// # Errors
/// When one of them can be read in two ways, or is not an address.
pub fn checked_addresses(value: Option<&Value>) -> Result<Vec<String>, AdapterWriteError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    recipients::parse_recipients(value)
        .into_iter()
        .map(|recipient| checked(recipient.domain().map(|_| recipient.address)))
        .collect()
}

fn checked(address: Option<String>) -> Result<String, AdapterWriteError> {
    let sound = address.filter(|address| address.parse::<lettre::Address>().is_ok() && address.len() <= 320);
    sound.ok_or_else(|| AdapterWriteError::invalid("a recipient is not a mail address"))
}

/// Builds a mail.
///
/// # Errors
/// When a value cannot be written into a mail.
pub fn write(letter: OutgoingMail<'_>) -> Result<Vec<u8>, AdapterWriteError> {
    let mailbox = |address: &str| -> Result<Mailbox, AdapterWriteError> {
        let address = address.parse().map_err(|_| AdapterWriteError::invalid("a recipient is not a mail address"))?;
        Ok(Mailbox::new(None, address))
    };
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(letter.at).unwrap_or(0));
    let mut builder =
        Message::builder().from(mailbox(&letter.from)?).keep_bcc().date(at).subject(line(&letter.subject)?);
    for address in &letter.to {
        builder = builder.to(mailbox(address)?);
    }
    for address in &letter.cc {
        builder = builder.cc(mailbox(address)?);
    }
    for address in &letter.bcc {
        builder = builder.bcc(mailbox(address)?);
    }
    // The `Message-ID` of another mail is only repeated if it looks like a valid one.
    let references: Vec<String> =
        letter.references.iter().filter(|id| is_message_id(id)).map(|id| format!("<{id}>")).collect();
    if let Some(last) = references.last() {
        builder = builder.in_reply_to(last.clone()).references(references.join(" "));
    }
    builder = builder.raw_header(HeaderValue::new(HeaderName::new_from_ascii_str(MARK), line(letter.op)?));
    let made = match (letter.html, letter.files.is_empty()) {
        (None, true) => builder.singlepart(SinglePart::plain(letter.text)),
        (Some(html), true) => builder.multipart(both(letter.text, html, letter.op)),
        (html, false) => {
            let mixed = MultiPart::mixed().boundary(boundary(letter.op, "files"));
            let mixed = match html {
                None => mixed.singlepart(SinglePart::plain(letter.text)),
                Some(html) => mixed.multipart(both(letter.text, html, letter.op)),
            };
            let mut mixed = mixed;
            for file in letter.files {
                mixed = mixed.singlepart(attached(file)?);
            }
            builder.multipart(mixed)
        }
    };
    made.map(|message| message.formatted()).map_err(|_| AdapterWriteError::invalid("the mail cannot be put together"))
}

fn both(text: String, html: String, op: &str) -> MultiPart {
    MultiPart::alternative()
        .boundary(boundary(op, "forms"))
        .singlepart(SinglePart::plain(text))
        .singlepart(SinglePart::html(html))
}

/// The same for each attempt of a write, and not predictable for the author of its text.
fn boundary(op: &str, what: &str) -> String {
    let hash = Sha256::new().chain_update(b"sluice boundary\0").chain_update(op).chain_update(what).finalize();
    format!("sg-{}", hex::encode(hash.get(..16).unwrap_or_default()))
}

fn attached(file: AttachedFile) -> Result<SinglePart, AdapterWriteError> {
    let kind = ContentType::parse(&line(&file.media_type)?)
        .or_else(|_| ContentType::parse("application/octet-stream"))
        .map_err(|_| AdapterWriteError::invalid("a file has an invalid media type"))?;
    Ok(Attached::new(line(&file.name)?).body(file.bytes, kind))
}

/// A value of one line. A value with several lines is refused, not repaired.
fn line(text: &str) -> Result<String, AdapterWriteError> {
    if text.chars().any(char::is_control) || text.len() > 4 * LONGEST_VALUE {
        return Err(AdapterWriteError::invalid("a header value has line breaks or is too long"));
    }
    Ok(text.to_owned())
}

fn is_message_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 500
        && id.contains('@')
        && id.chars().all(|c| c.is_ascii_graphic() && !"<>".contains(c))
}

/// A fingerprint of the words of a text that survives rewrapping and re-encoding.
#[must_use]
pub fn text_fingerprint(text: &str) -> String {
    let mut hash = Sha256::new();
    for word in text.split_whitespace() {
        hash.update(word.as_bytes());
        hash.update(b" ");
    }
    hex::encode(&hash.finalize())
}

/// A fingerprint of a mail's recipients and all its content, whatever its other headers are.
#[must_use]
pub fn mail_fingerprint(bytes: &[u8]) -> String {
    let raw = parse(bytes);
    let mut hash = Sha256::new();
    for people in [&raw.mail.to, &raw.mail.cc, &raw.bcc] {
        let mut addresses: Vec<String> = people.iter().map(|person| person.address.to_ascii_lowercase()).collect();
        addresses.sort_unstable();
        hash.update(text_fingerprint(&addresses.join(" ")));
    }
    for words in [Some(raw.mail.subject.as_str()), raw.text.as_deref(), raw.html.as_deref()] {
        hash.update(text_fingerprint(words.unwrap_or_default()));
    }
    for file in &raw.mail.attachments {
        hash.update(&file.sha256);
    }
    hex::encode(&hash.finalize())
}

#[cfg(test)]
mod tests;
