//! Mail as bytes: taken apart when it comes in, put together when it goes out.
//!
//! Takes bytes of anyone, gives a [`RawMail`] whatever is wrong with them; takes a [`Letter`] of checked
//! values, gives bytes. Promise: what two readers of a mail read differently is given as two readings and not as a
//! fact (`reading`); no value of a letter can begin a header or end one, and nobody is added to its recipients by a
//! second reading of an address.

mod mailboxes;
mod parts;
mod reading;
mod verdict;
mod words;

use std::time::{Duration, SystemTime};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as Attached, Mailbox, Message, MultiPart, SinglePart};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::mail::head::Head;
use sluice_core::mail::{Address, Mail};
use sluice_core::{hex, recipients};

use crate::adapter::{Blob, RawItem};
use crate::trouble::Trouble;

/// The header that marks what we sent, so that it can be found again.
pub const MARK: &str = "X-Sluice-Operation";
/// Parts of one mail that are looked at.
const MOST_PARTS: usize = 200;
/// Longest header value that is kept, in characters.
const LONGEST_VALUE: usize = 2_000;
/// Most people of one header line that are kept.
const MOST_PEOPLE: usize = 500;

/// A mail taken apart. Its texts are raw: the worker passes them through all stages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawMail {
    /// Everything but the text of the body.
    pub mail: Mail,
    /// The body as plain text, if it came as such.
    pub text: Option<String>,
    /// The body as HTML, if it came as such.
    pub html: Option<String>,
    /// Who gets it without the others knowing; only in what is not sent yet.
    pub bcc: Vec<Address>,
    /// `Message-ID`s it refers to, oldest first.
    pub references: Vec<String>,
    /// Our mark, if it carries one.
    pub mark: Option<String>,
    /// Contents of its attachments, in the order of `mail.attachments`.
    pub contents: Vec<Vec<u8>>,
}

/// Takes an item apart. Whatever is broken in it is left out.
#[must_use]
pub fn open(item: &RawItem) -> RawMail {
    let mut open = parse(&item.raw);
    open.mail.id.clone_from(&item.id);
    open.mail.thread.clone_from(&item.thread);
    open.mail.labels.clone_from(&item.labels);
    open.mail.received = item.received;
    open.mail.cut = item.cut;
    open.mail.size = item.size.max(item.raw.len() as u64);
    // What a server recorded is about the sender that it read: where there are two, it is about neither.
    let domain = open.mail.from.as_ref().and_then(|from| from.address.rsplit_once('@')).map(|(_, domain)| domain);
    if let (Some(domain), Some(server), None) = (domain, item.receiver, &open.mail.ambiguous) {
        open.mail.authentication = verdict::read(&Head::of(&item.raw), server, domain);
    }
    open
}

/// Takes bytes apart.
#[must_use]
pub fn parse(bytes: &[u8]) -> RawMail {
    reading::read(bytes)
}

fn cut(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST_VALUE).map(one_line).collect::<String>().trim().to_owned()
}

/// A mail to be put together.
#[derive(Debug, Clone, Default)]
pub struct Letter<'l> {
    /// Our hold, written into the mark.
    pub op: &'l str,
    /// When, in milliseconds.
    pub at: i64,
    /// The account it goes out from.
    pub from: String,
    /// To whom.
    pub to: Vec<String>,
    /// Copies.
    pub cc: Vec<String>,
    /// Copies nobody sees.
    pub bcc: Vec<String>,
    /// About what.
    pub subject: String,
    /// The text.
    pub text: String,
    /// The same as HTML, if there is such a form.
    pub html: Option<String>,
    /// The mail it answers: its `Message-ID` last, those before it first.
    pub references: Vec<String>,
    /// What goes along.
    pub files: Vec<Blob>,
}

/// The addresses an argument names, exactly as batch protection and policy counted them.
///
/// # Errors
/// When one of them can be read in two ways, or is none.
pub fn addressees(value: Option<&Value>) -> Result<Vec<String>, Trouble> {
    let Some(value) = value else { return Ok(Vec::new()) };
    recipients::read(value)
        .into_iter()
        .map(|recipient| checked(recipient.domain().map(|_| recipient.address)))
        .collect()
}

fn checked(address: Option<String>) -> Result<String, Trouble> {
    let sound = address.filter(|address| address.parse::<lettre::Address>().is_ok() && address.len() <= 320);
    sound.ok_or_else(|| Trouble::invalid("a recipient is no mail address"))
}

/// Puts a letter together.
///
/// # Errors
/// When a value cannot be written into a mail.
pub fn write(letter: Letter<'_>) -> Result<Vec<u8>, Trouble> {
    let mailbox = |address: &str| -> Result<Mailbox, Trouble> {
        let address = address.parse().map_err(|_| Trouble::invalid("a recipient is no mail address"))?;
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
    // What another mail called itself is only repeated if it looks like a name of a mail.
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
    made.map(|message| message.formatted()).map_err(|_| Trouble::invalid("the mail cannot be put together"))
}

fn both(text: String, html: String, op: &str) -> MultiPart {
    MultiPart::alternative()
        .boundary(boundary(op, "forms"))
        .singlepart(SinglePart::plain(text))
        .singlepart(SinglePart::html(html))
}

/// The same for each attempt of a write, and not to be guessed by whoever writes its text.
fn boundary(op: &str, what: &str) -> String {
    let hash = Sha256::new().chain_update(b"sluice boundary\0").chain_update(op).chain_update(what).finalize();
    format!("sg-{}", hex::encode(hash.get(..16).unwrap_or_default()))
}

fn attached(file: Blob) -> Result<SinglePart, Trouble> {
    let kind = ContentType::parse(&line(&file.media_type)?)
        .or_else(|_| ContentType::parse("application/octet-stream"))
        .map_err(|_| Trouble::invalid("a file of an impossible kind"))?;
    Ok(Attached::new(line(&file.name)?).body(file.bytes, kind))
}

/// A value of one line. A value of several is refused, not mended.
fn line(text: &str) -> Result<String, Trouble> {
    if text.chars().any(char::is_control) || text.len() > 4 * LONGEST_VALUE {
        return Err(Trouble::invalid("a header value has line breaks or is too long"));
    }
    Ok(text.to_owned())
}

fn is_message_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 500
        && id.contains('@')
        && id.chars().all(|c| c.is_ascii_graphic() && !"<>".contains(c))
}

/// The words of a text as a print that survives rewrapping and re-encoding.
#[must_use]
pub fn print_of(text: &str) -> String {
    let mut hash = Sha256::new();
    for word in text.split_whitespace() {
        hash.update(word.as_bytes());
        hash.update(b" ");
    }
    hex::encode(&hash.finalize())
}

/// A print of whom a mail goes to and of everything it says, whatever its other headers are.
#[must_use]
pub fn print_of_whole(bytes: &[u8]) -> String {
    let raw = parse(bytes);
    let mut hash = Sha256::new();
    for people in [&raw.mail.to, &raw.mail.cc, &raw.bcc] {
        let mut addresses: Vec<String> = people.iter().map(|person| person.address.to_ascii_lowercase()).collect();
        addresses.sort_unstable();
        hash.update(print_of(&addresses.join(" ")));
    }
    for words in [Some(raw.mail.subject.as_str()), raw.text.as_deref(), raw.html.as_deref()] {
        hash.update(print_of(words.unwrap_or_default()));
    }
    for file in &raw.mail.attachments {
        hash.update(&file.sha256);
    }
    hex::encode(&hash.finalize())
}

#[cfg(test)]
mod tests;
