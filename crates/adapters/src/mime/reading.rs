//! A mail as two readers read it: our own strict reading, and the library's.
//!
//! Takes bytes, gives a [`RawMail`] made from our own reading. Promise: a sender, a subject or a text is given as
//! certain only where the library gives the same; every other part is named in [`Mail::ambiguous`], and an ambiguous
//! sender or subject is given as readings, never as a fact.

use std::collections::BTreeSet;

use mail_parser::parsers::MessageStream;
use mail_parser::{Address as Parsed, HeaderName, HeaderValue as ParsedValue, Message, MessageParser, MessagePart};
use mail_parser::{MimeHeaders as _, PartType};
use sha2::{Digest as _, Sha256};
use sluice_core::hex;
use sluice_core::mail::authenticity::{HEAD, PARTS, RECIPIENTS, SENDER, SUBJECT};
use sluice_core::mail::head::{MailHead, MailHeaderField};
use sluice_core::mail::{MailAddress, MailAmbiguity, MailAttachment};

use super::parts::{MimeLeaf, MimeParts};
use super::{MARK, MOST_PARTS, MOST_PEOPLE, RawMail, cut, encoded_words, mailboxes};

/// Most readings of one part that are kept.
const MOST_READINGS: usize = 4;

/// Stands for the reading of a reader that is not consulted here.
const ANOTHER: &str = "something else, for another reader";

/// Reads a mail.
pub fn read(bytes: &[u8]) -> RawMail {
    let parts = MimeParts::of(bytes);
    let closed = parts.close_open_parts(bytes);
    let library = MessageParser::default().parse(closed.as_ref());
    let mut doubts = BTreeSet::new();
    let head = &parts.head;
    if !head.is_certain || !is_divided_alike(head, library.as_ref()) {
        doubts.insert(HEAD);
    }
    if !parts.is_certain || library.as_ref().is_some_and(|message| !are_texts_alike(&parts, message)) {
        doubts.insert(PARTS);
    }
    let mut raw = RawMail::default();
    let (mut sender, mut subject) = (sender(head, library.as_ref()), subject(head, library.as_ref()));
    if doubts.contains(HEAD) {
        // If the head itself is ambiguous, a third reader may find a sender that neither of these two does.
        sender = sender.into_ambiguous();
        subject = subject.into_ambiguous();
    }
    raw.mail.from = sender.certain;
    raw.mail.subject = subject.certain.unwrap_or_default();
    for (readings, rule) in [(&sender.readings, SENDER), (&subject.readings, SUBJECT)] {
        if !readings.is_empty() {
            doubts.insert(rule);
        }
    }
    for (name, list) in [("to", &mut raw.mail.to), ("cc", &mut raw.mail.cc), ("bcc", &mut raw.bcc)] {
        match people(head, name, library.as_ref()) {
            Some(people) => *list = people,
            None => {
                doubts.insert(RECIPIENTS);
            }
        }
    }
    if !doubts.is_empty() {
        raw.mail.ambiguous = Some(MailAmbiguity {
            reasons: doubts.into_iter().map(str::to_owned).collect(),
            senders: sender.readings,
            subjects: subject.readings,
        });
    }
    raw.mail.message_id = head.named("message-id").next().and_then(|field| ids(field).into_iter().next());
    raw.references = head.named("references").next().map(ids).unwrap_or_default();
    if raw.references.is_empty() {
        raw.references = head.named("in-reply-to").next().map(ids).unwrap_or_default();
    }
    raw.mark = head.named(MARK).next().map(|field| cut(&field.unfolded()));
    fill(&mut raw, &parts);
    raw
}

/// Adds texts and attachments.
fn fill(raw: &mut RawMail, parts: &MimeParts<'_>) {
    let shown = |media_type: &'static str| {
        let is_shown = move |leaf: &&MimeLeaf<'_>| {
            leaf.is_body && (leaf.kind.media_type == "text/html") == (media_type == "text/html")
        };
        let texts: Vec<String> = parts.leaves.iter().filter(is_shown).take(MOST_PARTS).map(MimeLeaf::text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    };
    raw.text = shown("text/plain");
    raw.html = shown("text/html");
    for leaf in parts.leaves.iter().filter(|leaf| !leaf.is_body).take(MOST_PARTS) {
        let content = if leaf.kind.is_text() { leaf.text().into_bytes() } else { leaf.content().into_owned() };
        raw.mail.attachments.push(MailAttachment {
            name: leaf.kind.name.as_deref().map(cut),
            media_type: cut(&leaf.kind.media_type),
            size: content.len() as u64,
            sha256: hex::encode(&Sha256::digest(&content)),
        });
        raw.contents.push(content);
    }
}

/// Whether the library finds the same fields at the same places, and the same start of the body.
fn is_divided_alike(head: &MailHead<'_>, library: Option<&Message<'_>>) -> bool {
    let Some(root) = library.and_then(|message| message.parts.first()) else { return head.fields.is_empty() };
    let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
    // The library reads the envelope line of a mailbox file as a field, which must not become a sender.
    let theirs =
        root.headers.iter().filter(|field| at(field.offset_field) >= head.start || field.name == HeaderName::From);
    head.fields.iter().map(|field| field.at).eq(theirs.map(|field| at(field.offset_field)))
        && at(root.offset_body) == head.body
}

/// Whether the library finds the same texts in the same order.
fn are_texts_alike(parts: &MimeParts<'_>, library: &Message<'_>) -> bool {
    // The library gives a file with a broken encoding as text, which it is not.
    let is_broken_file = |part: &&MessagePart<'_>| {
        part.is_encoding_problem && part.content_type().is_some_and(|kind| !kind.ctype().eq_ignore_ascii_case("text"))
    };
    let is_text =
        |part: &&MessagePart<'_>| matches!(part.body, PartType::Text(_) | PartType::Html(_)) && !is_broken_file(part);
    let mut theirs = library.parts.iter().filter(is_text);
    for leaf in parts.leaves.iter().filter(|leaf| leaf.kind.is_text()) {
        let Some(part) = theirs.next() else { return false };
        let theirs = part.text_contents().unwrap_or_default();
        // The library gives undecodable content as it is in the mail.
        let is_same = same_words(&leaf.text(), theirs)
            || (part.is_encoding_problem && same_words(&String::from_utf8_lossy(leaf.body), theirs));
        if !is_same {
            return false;
        }
    }
    theirs.next().is_none()
}

fn same_words(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// The result of reading: one value that both readers give, or each of the readings.
struct FieldReading<T> {
    certain: Option<T>,
    readings: Vec<String>,
}

impl<T: ToString> FieldReading<T> {
    /// The same, but no longer certain.
    fn into_ambiguous(self) -> Self {
        match self.certain {
            Some(one) => Self { certain: None, readings: vec![cut(&one.to_string()), ANOTHER.to_owned()] },
            None if self.readings.is_empty() => {
                Self { certain: None, readings: vec![String::new(), ANOTHER.to_owned()] }
            }
            None => self,
        }
    }
}

fn ambiguous_readings<T>(all: impl Iterator<Item = String>) -> FieldReading<T> {
    let mut readings: Vec<String> = Vec::new();
    for one in all.map(|one| cut(&one)) {
        if !readings.contains(&one) && readings.len() < MOST_READINGS {
            readings.push(one);
        }
    }
    if readings.is_empty() {
        readings.push(String::new());
    }
    FieldReading { certain: None, readings }
}

fn sender(head: &MailHead<'_>, library: Option<&Message<'_>>) -> FieldReading<MailAddress> {
    let theirs = library.and_then(Message::from).map(listed).unwrap_or_default();
    let ours = match head.single_field("from") {
        Ok(None) => Some(Vec::new()),
        Ok(Some(field)) => mailboxes::read(&field.unfolded()),
        Err(_) => None,
    };
    let same = ours.is_some_and(|ours| are_same(&ours, &theirs));
    match theirs.as_slice() {
        [] if same => FieldReading { certain: None, readings: Vec::new() },
        [one] if same => FieldReading { certain: Some(one.clone()), readings: Vec::new() },
        // Several senders: each reader chooses which one is meant.
        _ => ambiguous_readings(
            head.named("from").map(MailHeaderField::unfolded).chain(theirs.iter().map(ToString::to_string)),
        ),
    }
}

fn subject(head: &MailHead<'_>, library: Option<&Message<'_>>) -> FieldReading<String> {
    let theirs = library.and_then(Message::subject).unwrap_or_default();
    let ours = match head.single_field("subject") {
        Ok(None) => Some(String::new()),
        Ok(Some(field)) => encoded_words::decode(&field.unfolded()),
        Err(_) => None,
    };
    match ours {
        Some(ours) if same_words(&ours, theirs) && !ours.contains(|c: char| c.is_control() && c != '\t') => {
            FieldReading { certain: Some(cut(theirs)), readings: Vec::new() }
        }
        _ => ambiguous_readings(
            head.named("subject").map(MailHeaderField::unfolded).chain(std::iter::once(theirs.to_owned())),
        ),
    }
}

/// Everyone in a field; `None` if the readers differ.
fn people(head: &MailHead<'_>, name: &str, library: Option<&Message<'_>>) -> Option<Vec<MailAddress>> {
    let theirs = library.and_then(|message| match name {
        "to" => message.to(),
        "cc" => message.cc(),
        _ => message.bcc(),
    });
    let theirs = theirs.map(listed).unwrap_or_default();
    let ours = match head.single_field(name) {
        Ok(None) => Vec::new(),
        // A line in which neither reader finds anybody is not ambiguous.
        Ok(Some(field)) => mailboxes::read(&field.unfolded()).or_else(|| theirs.is_empty().then(Vec::new))?,
        Err(_) => return None,
    };
    are_same(&ours, &theirs).then_some(theirs)
}

/// Whether both give the same addresses in the same order. Quotes around a name are syntax, not part of it.
fn are_same(ours: &[String], theirs: &[MailAddress]) -> bool {
    let bare = |address: &str| address.replace('"', "");
    let ours = ours.iter().take(MOST_PEOPLE).map(|address| bare(&cut(address)));
    ours.eq(theirs.iter().map(|one| bare(&one.address)))
}

/// Every address that mail could be sent to.
fn listed(header: &Parsed<'_>) -> Vec<MailAddress> {
    let named = header.iter().filter_map(|one| {
        let address = one.address.as_deref().filter(|address| address.contains('@'))?;
        Some(MailAddress { name: one.name.as_deref().map(cut).filter(|name| !name.is_empty()), address: cut(address) })
    });
    named.take(MOST_PEOPLE).collect()
}

fn ids(field: &MailHeaderField<'_>) -> Vec<String> {
    let mut value = field.value.to_vec();
    value.push(b'\n');
    match MessageStream::new(&value).parse_id() {
        ParsedValue::Text(id) => vec![cut(&id)],
        ParsedValue::TextList(ids) => ids.iter().map(|id| cut(id)).take(100).collect(),
        _ => Vec::new(),
    }
}
