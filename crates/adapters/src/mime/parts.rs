//! Splits a mail into its parts by one strict reading of our own.
//!
//! Takes bytes, gives the head, every leaf of the tree of parts in document order, and the text that must be added for
//! parts that were opened and never closed. Promise: a boundary is a whole line, one pass over the lines finds all of
//! them, and an unclosed part is read to its end instead of being lost.

use std::borrow::Cow;

use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::charsets::map::charset_decoder;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::parsers::MessageStream;
use mail_parser::{ContentType, HeaderValue};
use sluice_core::mail::head::{self, MailHead, MailHeaderField};

/// Most multiparts inside one another that are opened.
const DEEPEST: usize = 50;
/// Most leaves of one mail that are read.
const MOST_LEAVES: usize = 1_000;

/// A part that holds no other parts.
#[derive(Debug)]
pub struct MimeLeaf<'m> {
    /// The header fields of the part.
    pub head: MailHead<'m>,
    /// The content as it is in the mail, not decoded.
    pub body: &'m [u8],
    /// The part's own description of its content.
    pub kind: MimeLeafKind,
    /// Whether it is part of the body that a reader shows first, and not an attachment.
    pub is_body: bool,
}

/// A leaf's own description of its content.
#[derive(Debug)]
pub struct MimeLeafKind {
    /// The media type in lower case.
    pub media_type: String,
    /// The character set, if it names one.
    pub charset: Option<String>,
    /// The file name, if it has one.
    pub name: Option<String>,
}

impl MimeLeafKind {
    /// Whether it is text of any kind.
    pub fn is_text(&self) -> bool {
        self.media_type == "text" || self.media_type.starts_with("text/")
    }
}

/// A mail split into its parts.
#[derive(Debug)]
pub struct MimeParts<'m> {
    /// The head of the mail itself.
    pub head: MailHead<'m>,
    /// All leaves.
    pub leaves: Vec<MimeLeaf<'m>>,
    /// The missing text and where it belongs: closing lines of parts that were opened and never closed.
    pub missing: Vec<(usize, Vec<u8>)>,
    /// Whether every reader finds these parts: no boundary is named in two ways or missing, and no part's head is odd.
    pub is_certain: bool,
}

/// A multipart whose end was not found yet.
struct OpenMultipart {
    boundary: Vec<u8>,
    is_alternative: bool,
    is_related: bool,
    is_digest: bool,
    met: usize,
}

/// The place of a leaf in its multipart.
#[derive(Clone, Copy)]
struct LeafPosition {
    is_alternative: bool,
    is_related: bool,
    /// The number of the part, counted from 1.
    number: usize,
}

impl OpenMultipart {
    fn place(&self) -> LeafPosition {
        LeafPosition { is_alternative: self.is_alternative, is_related: self.is_related, number: self.met }
    }
}

/// The kind of a part.
enum MimePartKind {
    Leaf(MimeLeafKind),
    Multipart(OpenMultipart),
}

impl<'m> MimeParts<'m> {
    /// Splits a mail.
    pub fn of(bytes: &'m [u8]) -> Self {
        let head = MailHead::of(bytes);
        let body = head.body;
        let mut parts = Self { head: head.clone(), leaves: Vec::new(), missing: Vec::new(), is_certain: true };
        match parts.classify_part(&head, false, 0) {
            MimePartKind::Leaf(kind) => parts.leaf(head, bytes.get(body..).unwrap_or_default(), kind, None),
            MimePartKind::Multipart(open) => parts.walk(bytes, body, open),
        }
        parts
    }

    /// The bytes with every open part closed.
    pub fn close_open_parts(&self, bytes: &'m [u8]) -> Cow<'m, [u8]> {
        if self.missing.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let (mut whole, mut from) = (Vec::with_capacity(bytes.len() + 256), 0);
        for (at, line) in &self.missing {
            whole.extend_from_slice(bytes.get(from..*at).unwrap_or_default());
            if !whole.ends_with(b"\n") {
                whole.extend_from_slice(b"\r\n");
            }
            whole.extend_from_slice(line);
            from = *at;
        }
        whole.extend_from_slice(bytes.get(from..).unwrap_or_default());
        Cow::Owned(whole)
    }

    fn walk(&mut self, bytes: &'m [u8], start: usize, root: OpenMultipart) {
        let mut stack = vec![root];
        // The leaf whose end was not found yet: its head, its kind, and where its content begins.
        let mut current: Option<(MailHead<'m>, MimeLeafKind, usize)> = None;
        let mut at = start;
        while at < bytes.len() {
            let next = head::next_line(bytes, at);
            let line = head::line(bytes, at, next);
            self.is_certain &= !hides_boundary(line, &stack);
            let Some((level, closes)) = boundary(line, &stack) else {
                at = next;
                continue;
            };
            if let Some((head, kind, from)) = current.take() {
                let place = stack.last().map(OpenMultipart::place);
                self.leaf(head, before_break(bytes, from, at), kind, place);
            }
            for unclosed in stack.drain(level + 1..).rev() {
                self.missing.push((at, closing(&unclosed.boundary)));
            }
            at = next;
            if closes {
                stack.truncate(level);
                if stack.is_empty() {
                    return;
                }
                continue;
            }
            let is_digest = stack.last().is_some_and(|open| open.is_digest);
            if let Some(open) = stack.last_mut() {
                open.met += 1;
            }
            let head = MailHead::until(bytes, at, |line| boundary(line, &stack).is_some());
            self.is_certain &= head.is_certain;
            at = head.body;
            match self.classify_part(&head, is_digest, stack.len()) {
                MimePartKind::Leaf(kind) => current = Some((head, kind, at)),
                MimePartKind::Multipart(open) => {
                    // A line that opens one part and closes another means whatever each reader looks for first.
                    self.is_certain &= !stack.iter().any(|outer| are_confusable(&outer.boundary, &open.boundary));
                    stack.push(open);
                }
            }
        }
        if let Some((head, kind, from)) = current.take() {
            let place = stack.last().map(OpenMultipart::place);
            self.leaf(head, before_break(bytes, from, bytes.len()), kind, place);
        }
        // A part that was announced but never found is no part for some readers and text for others.
        if stack.iter().any(|open| open.met == 0) {
            self.is_certain = false;
            if self.leaves.is_empty() {
                let kind = MimeLeafKind { media_type: "text/plain".into(), charset: None, name: None };
                let head = self.head.clone();
                self.leaf(head, bytes.get(start..).unwrap_or_default(), kind, None);
            }
        }
        for unclosed in stack.into_iter().rev() {
            self.missing.push((bytes.len(), closing(&unclosed.boundary)));
        }
    }

    /// The kind of a part, by its own description.
    fn classify_part(&mut self, head: &MailHead<'m>, in_digest: bool, depth: usize) -> MimePartKind {
        let kind = self.value(head, "content-type");
        let disposition = self.value(head, "content-disposition");
        let media_type = match &kind {
            Some(kind) => match kind.subtype() {
                Some(subtype) => format!("{}/{subtype}", kind.ctype()).to_ascii_lowercase(),
                None => kind.ctype().to_ascii_lowercase(),
            },
            None if in_digest => "message/rfc822".into(),
            None => "text/plain".into(),
        };
        if let (Some(kind), true) = (&kind, media_type.starts_with("multipart/")) {
            let theirs = kind.attribute("boundary").map(str::trim_end).unwrap_or_default();
            let ours = head.named("content-type").next().and_then(|field| own_boundary(&field.unfolded()));
            self.is_certain &= ours.as_deref() == Some(theirs) && !theirs.is_empty() && depth < DEEPEST;
            if let (Some(ours), true) = (ours, depth < DEEPEST) {
                return MimePartKind::Multipart(OpenMultipart {
                    boundary: ours.into_bytes(),
                    is_alternative: media_type == "multipart/alternative",
                    is_related: media_type == "multipart/related",
                    is_digest: media_type == "multipart/digest",
                    met: 0,
                });
            }
        }
        let attribute = |from: &Option<ContentType<'_>>, name: &str| {
            from.as_ref().and_then(|value| value.attribute(name)).map(str::to_owned)
        };
        let name = attribute(&disposition, "filename").or_else(|| attribute(&kind, "name"));
        MimePartKind::Leaf(MimeLeafKind { charset: attribute(&kind, "charset"), name, media_type })
    }

    /// A field whose value has parameters. Where several such fields differ, it is not certain which one counts.
    fn value(&mut self, head: &MailHead<'m>, name: &str) -> Option<ContentType<'static>> {
        let field = match head.single_field(name) {
            Ok(field) => field?,
            Err(first) => {
                self.is_certain = false;
                first
            }
        };
        with_parameters(field)
    }

    fn leaf(&mut self, head: MailHead<'m>, body: &'m [u8], kind: MimeLeafKind, place: Option<LeafPosition>) {
        if self.leaves.len() >= MOST_LEAVES {
            self.is_certain = false;
            return;
        }
        let mut leaf = MimeLeaf { head, body, kind, is_body: false };
        leaf.is_body = leaf.is_shown_first(place);
        self.is_certain &= !leaf.kind.is_text() || leaf.is_decoded_alike();
        self.leaves.push(leaf);
    }
}

impl MimeLeaf<'_> {
    /// Whether it is part of the body that a reader shows first: the rule of JMAP (RFC 8621, section 4.1.4).
    fn is_shown_first(&self, place: Option<LeafPosition>) -> bool {
        if !matches!(self.kind.media_type.as_str(), "text/plain" | "text/html" | "text") {
            return false;
        }
        let disposition = self.head.named("content-disposition").next().and_then(with_parameters);
        let is_attached = disposition.is_some_and(|value| value.is_attachment());
        match place {
            None => !is_attached || self.kind.media_type == "text/plain",
            Some(place) if place.is_alternative => true,
            Some(place) => !is_attached && (place.number <= 1 || (!place.is_related && self.kind.name.is_none())),
        }
    }

    /// Its content, decoded.
    pub fn content(&self) -> Cow<'_, [u8]> {
        let encoding = self.head.named("content-transfer-encoding").next().map(|field| field.unfolded());
        let decoded = match encoding.unwrap_or_default().to_ascii_lowercase().as_str() {
            "base64" => base64_decode(self.body).or_else(|| Some(lenient_base64(self.body))),
            "quoted-printable" => quoted_printable_decode(self.body).or_else(|| Some(lenient_quoted(self.body))),
            _ => None,
        };
        decoded.map_or(Cow::Borrowed(self.body), Cow::Owned)
    }

    /// Whether every reader decodes it to the same content: it names one encoding plainly, and does not end inside a
    /// character.
    fn is_decoded_alike(&self) -> bool {
        let Ok(field) = self.head.single_field("content-transfer-encoding") else { return false };
        let Some(field) = field else { return true };
        let value = field.unfolded().to_ascii_lowercase();
        let ends_in_blank = field.value.trim_ascii_end().len() < field.value.len();
        match value.as_str() {
            "base64" => {
                let is_sign = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
                !ends_in_blank && self.body.iter().filter(is_sign).count() % 4 != 1
            }
            "quoted-printable" => {
                let end = self.body.trim_ascii_end();
                !ends_in_blank && !matches!(end, [.., b'=', digit] if digit.is_ascii_hexdigit())
            }
            _ => true,
        }
    }

    /// Its content as text. Bytes that are invalid in its character set are replaced.
    pub fn text(&self) -> String {
        let content = self.content();
        let decoder = self.kind.charset.as_deref().and_then(|charset| charset_decoder(charset.as_bytes()));
        match decoder {
            Some(decode) => decode(&content),
            None => String::from_utf8_lossy(&content).into_owned(),
        }
    }
}

/// Parses a value with parameters.
fn with_parameters(field: &MailHeaderField<'_>) -> Option<ContentType<'static>> {
    let mut value = field.value.to_vec();
    value.push(b'\n');
    match MessageStream::new(&value).parse_content_type().into_owned() {
        HeaderValue::ContentType(value) => Some(value),
        _ => None,
    }
}

/// The boundary in a value, by a reading without any choice; `None` if it is not plain.
fn own_boundary(value: &str) -> Option<String> {
    let mut rest = value.get(value.find(';')? + 1..)?;
    if value.contains('(') && !value.contains('"') {
        return None;
    }
    let mut found = None;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            return found;
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let after = after.trim_start();
        let (read, next) = if let Some(quoted) = after.strip_prefix('"') {
            let end = quoted.find('"')?;
            let text = quoted.get(..end)?;
            let next = quoted.get(end + 1..)?.trim_start();
            if text.contains('\\') || !(next.is_empty() || next.starts_with(';')) {
                return None;
            }
            (text, next)
        } else {
            let end = after.find(';').unwrap_or(after.len());
            (after.get(..end)?.trim_end(), after.get(end..)?)
        };
        if name.starts_with("boundary") {
            let plain = |c: char| (c.is_ascii_graphic() && !"\"\\;,<>@()[]".contains(c)) || c == ' ';
            let sound = name == "boundary" && found.is_none() && !read.trim().is_empty() && read.len() <= 200;
            let unquoted_blank = read.contains(' ') && !after.starts_with('"');
            let odd = !read.chars().all(|c| plain(c) || (after.starts_with('"') && c.is_ascii_graphic()));
            if !sound || unquoted_blank || odd {
                return None;
            }
            found = Some(read.trim_end().to_owned());
        }
        rest = next;
    }
}

/// The open multipart that a line belongs to, innermost first, and whether the line closes it.
fn boundary(line: &[u8], stack: &[OpenMultipart]) -> Option<(usize, bool)> {
    let rest = line.strip_prefix(b"--")?.trim_ascii_end();
    let at = |(level, open): (usize, &OpenMultipart)| match rest.strip_prefix(open.boundary.as_slice())? {
        b"" => Some((level, false)),
        b"--" => Some((level, true)),
        _ => None,
    };
    stack.iter().enumerate().rev().find_map(at)
}

/// Whether a line hides a boundary after a lone carriage return, which ends a line for some readers.
fn hides_boundary(line: &[u8], stack: &[OpenMultipart]) -> bool {
    if !line.contains(&b'\r') {
        return false;
    }
    let mut pieces = line.split(|&byte| byte == b'\r');
    let first = pieces.next().unwrap_or_default();
    boundary(first, stack).is_some() || pieces.any(|piece| boundary(piece, stack).is_some())
}

/// Whether a line of one boundary can be mistaken for a line of the other.
fn are_confusable(one: &[u8], other: &[u8]) -> bool {
    let closes = |long: &[u8], short: &[u8]| long.strip_prefix(short).is_some_and(|rest| matches!(rest, b"" | b"--"));
    closes(one, other) || closes(other, one)
}

fn closing(boundary: &[u8]) -> Vec<u8> {
    [b"--", boundary, b"--\r\n"].concat()
}

/// The bytes of a part up to its boundary line; the line break before it belongs to the boundary.
fn before_break(bytes: &[u8], from: usize, at: usize) -> &[u8] {
    let part = bytes.get(from..at).unwrap_or_default();
    match part.strip_suffix(b"\n") {
        Some(part) => part.strip_suffix(b"\r").unwrap_or(part),
        None => part,
    }
}

/// Decodes as much as possible: invalid characters are skipped.
fn lenient_base64(bytes: &[u8]) -> Vec<u8> {
    let known = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let end = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
    let signs: Vec<u8> = bytes.get(..end).unwrap_or_default().iter().filter(known).copied().collect();
    let whole = signs.len() - usize::from(signs.len() % 4 == 1);
    base64_decode(signs.get(..whole).unwrap_or_default()).unwrap_or_default()
}

/// Decodes as much as possible: an equals sign without a meaning stays.
fn lenient_quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let digit =
        |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'=' {
            out.push(byte);
            continue;
        }
        let blank = tail.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        if let (Some(high), Some(low)) = (digit(tail.first()), digit(tail.get(1))) {
            out.push(high << 4 | low);
            rest = tail.get(2..).unwrap_or_default();
        } else if tail.get(blank) == Some(&b'\n') {
            rest = tail.get(blank + 1..).unwrap_or_default();
        } else {
            out.push(b'=');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_named_plainly_or_not_at_all() {
        for (value, expected) in [
            ("multipart/mixed; boundary=b", Some("b")),
            ("multipart/mixed; boundary=\"a b\"; charset=utf-8", Some("a b")),
            ("multipart/mixed;boundary=----=_Part_1;", Some("----=_Part_1")),
            ("multipart/mixed; type=\"text/html; x\"; boundary=b", Some("b")),
            ("multipart/mixed; boundary=a; boundary=b", None),
            ("multipart/mixed; boundary*0=a; boundary*1=b", None),
            ("multipart/mixed; boundary=a b", None),
            ("multipart/mixed; boundary=\"a\"b", None),
            ("multipart/mixed; boundary=a(b)", None),
            ("multipart/mixed; boundary=", None),
            ("multipart/mixed", None),
        ] {
            assert_eq!(own_boundary(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn what_was_not_closed_is_read_to_its_end() {
        let raw =
            b"Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/alternative; boundary=i\n\n\
            --i\nContent-Type: text/plain\n\nwords\n--o\nContent-Type: text/html\n\n<p>more</p>\n";
        let parts = MimeParts::of(raw);
        assert!(parts.is_certain);
        assert_eq!(parts.leaves.iter().map(MimeLeaf::text).collect::<Vec<_>>(), ["words", "<p>more</p>"]);
        let closed = String::from_utf8(parts.close_open_parts(raw).into_owned()).unwrap();
        assert!(closed.contains("words\n--i--\r\n--o\n") && closed.ends_with("--o--\r\n"), "{closed}");
    }

    #[test]
    fn what_readers_decode_or_close_differently_is_not_certain() {
        for odd in [
            "Content-Transfer-Encoding: base64\n\naGVsbG8gd\n",
            "Content-Transfer-Encoding: quoted-printable\n\nnext=2",
            "Content-Transfer-Encoding: quoted-printable  \n\nnext\n",
            "Content-Transfer-Encoding: base64\nContent-Transfer-Encoding: 7bit\n\naGVsbG8=\n",
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=b--\n\n--b--\n\nx\n",
        ] {
            assert!(!MimeParts::of(odd.as_bytes()).is_certain, "{odd}");
        }
    }

    #[test]
    fn what_is_broken_in_an_encoding_stays_and_the_rest_is_decoded() {
        assert_eq!(lenient_quoted(b"a=3Db=zz =\r\nc="), b"a=b=zz c=");
        assert_eq!(lenient_base64(b"aGVs\r\n*bG8=\r\n--\r\nfooter"), b"hello");
    }
}
