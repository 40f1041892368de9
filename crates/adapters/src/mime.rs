//! Mail as bytes: taken apart when it comes in, put together when it goes out.
//!
//! Takes bytes of anyone, gives a [`RawMail`] whatever is wrong with them; takes a [`Letter`] of checked
//! values, gives bytes. Promise: no value of a letter can begin a header or end one, and nobody is added to
//! its recipients by a second reading of an address.

use std::time::{Duration, SystemTime};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as Attached, Mailbox, Message, MultiPart, SinglePart};
use mail_parser::{Address as Parsed, HeaderValue as ParsedValue, MessageParser, MimeHeaders as _, PartType};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::mail::{Address, Attachment, Mail};
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
    open
}

/// Takes bytes apart.
#[must_use]
pub fn parse(bytes: &[u8]) -> RawMail {
    let Some(message) = MessageParser::default().parse(bytes) else {
        return RawMail { text: Some(String::from_utf8_lossy(bytes).into_owned()), ..RawMail::default() };
    };
    let mut raw = RawMail::default();
    raw.mail.subject = cut(message.subject().unwrap_or_default());
    raw.mail.from = people(message.from()).into_iter().next();
    raw.mail.to = people(message.to());
    raw.mail.cc = people(message.cc());
    raw.bcc = people(message.bcc());
    raw.mail.message_id = message.message_id().map(cut);
    raw.references = ids(message.references());
    if raw.references.is_empty() {
        raw.references = ids(message.in_reply_to());
    }
    raw.mark = message.header_raw(MARK).map(|mark| cut(mark.trim()));
    let is_text = |part: &&mail_parser::MessagePart<'_>| matches!(part.body, PartType::Text(_));
    let texts: Vec<&str> =
        message.text_bodies().filter(is_text).filter_map(|part| part.text_contents()).take(MOST_PARTS).collect();
    raw.text = (!texts.is_empty()).then(|| texts.join("\n"));
    let is_html = |part: &&mail_parser::MessagePart<'_>| matches!(part.body, PartType::Html(_));
    raw.html = message.html_bodies().filter(is_html).filter_map(|part| part.text_contents()).next().map(str::to_owned);
    for part in message.attachments().take(MOST_PARTS) {
        let content = part.contents();
        let kind = part.content_type().map(|kind| match &kind.c_subtype {
            Some(subtype) => format!("{}/{subtype}", kind.c_type),
            None => kind.c_type.to_string(),
        });
        raw.mail.attachments.push(Attachment {
            name: part.attachment_name().map(cut),
            media_type: cut(&kind.unwrap_or_else(|| "application/octet-stream".into())),
            size: content.len() as u64,
            sha256: hex::encode(&Sha256::digest(content)),
        });
        raw.contents.push(content.to_vec());
    }
    raw
}

fn cut(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST_VALUE).map(one_line).collect::<String>().trim().to_owned()
}

fn people(header: Option<&Parsed<'_>>) -> Vec<Address> {
    let Some(header) = header else { return Vec::new() };
    let named = header.iter().filter_map(|one| {
        let address = one.address.as_deref()?;
        Some(Address { name: one.name.as_deref().map(cut).filter(|name| !name.is_empty()), address: cut(address) })
    });
    named.take(MOST_PEOPLE).collect()
}

fn ids(value: &ParsedValue<'_>) -> Vec<String> {
    value.as_text_list().unwrap_or_default().iter().map(|id| cut(id)).take(100).collect()
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn letter() -> Letter<'static> {
        Letter {
            op: "buf_1",
            at: 1_790_000_000_000,
            from: "me@alder.example".into(),
            to: vec!["li@northpeak.example".into()],
            subject: "Hello".into(),
            text: "Dear Li,\nall well.\n".into(),
            ..Letter::default()
        }
    }

    #[test]
    fn a_letter_comes_out_as_it_went_in() {
        let files = vec![Blob {
            name: "Résumé für Ána.pdf".into(),
            media_type: "application/pdf".into(),
            bytes: vec![0, 255, 10, 13],
        }];
        let whole = Letter {
            subject: "Grüße aus Köln – naïve café".into(),
            html: Some("<p>Dear Li</p>".into()),
            cc: vec!["ana@alder.example".into()],
            bcc: vec!["boss@alder.example".into()],
            references: vec!["a@x.example".into(), "b@x.example".into()],
            files: files.clone(),
            ..letter()
        };
        let raw = parse(&write(whole).unwrap());
        assert_eq!(raw.mail.subject, "Grüße aus Köln – naïve café");
        assert_eq!(raw.mail.to[0].address, "li@northpeak.example");
        assert_eq!(raw.text.as_deref().map(print_of), Some(print_of("Dear Li, all well.")));
        assert_eq!(raw.html.as_deref().map(str::trim_end), Some("<p>Dear Li</p>"));
        assert_eq!(raw.references, ["a@x.example", "b@x.example"]);
        assert_eq!(raw.mark.as_deref(), Some("buf_1"));
        assert_eq!(raw.mail.attachments[0].name.as_deref(), Some("Résumé für Ána.pdf"));
        assert_eq!(raw.contents[0], files[0].bytes);
    }

    #[test]
    fn the_same_letter_is_the_same_bytes() {
        assert_eq!(write(letter()).unwrap(), write(letter()).unwrap());
    }

    #[test]
    fn those_who_get_hidden_copies_stay_in_the_letter_for_the_service() {
        let text = String::from_utf8(write(Letter { bcc: vec!["b@x.example".into()], ..letter() }).unwrap()).unwrap();
        assert!(text.contains("Bcc: b@x.example"), "{text}");
    }

    #[test]
    fn an_address_that_can_be_read_in_two_ways_is_refused() {
        for bad in ["a@b.example x@y.example", "nobody", "a@b@c.example", "a@", "\"x,\" y@z.example@q"] {
            assert!(addressees(Some(&json!(bad))).is_err(), "{bad}");
        }
        assert_eq!(addressees(Some(&json!("Ana <a@b.example>, c@d.example"))).unwrap(), ["a@b.example", "c@d.example"]);
    }

    #[test]
    fn hostile_bytes_are_taken_apart_without_harm() {
        for bytes in [
            &b""[..],
            b"\0\0\0",
            b"Subject",
            b"Content-Type: multipart/mixed; boundary=a\n\n--a\n--a\n--a--",
            &[0xff; 4096],
        ] {
            let _whatever = parse(bytes);
        }
        let deep = "Content-Type: multipart/mixed; boundary=x\n\n--x\n".repeat(5_000);
        let _whatever = parse(deep.as_bytes());
    }

    proptest! {
        #[test]
        fn no_value_begins_a_header(subject in "\\PC{0,80}|.*[\r\n].*", op in "[a-z_0-9]{1,20}", text in ".{0,200}") {
            let letter = Letter { subject: subject.clone(), op: &op, text, ..letter() };
            match write(letter) {
                Err(_) => prop_assert!(subject.chars().any(char::is_control)),
                Ok(bytes) => {
                    let head = String::from_utf8_lossy(&bytes).split("\r\n\r\n").next().unwrap().to_owned();
                    let names: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])).filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
                    let known = ["From", "To", "Date", "Subject", MARK, "MIME-Version", "Content-Type", "Content-Transfer-Encoding"];
                    prop_assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
                    prop_assert!(bytes.is_ascii() || head.is_ascii());
                }
            }
        }
    }
}
