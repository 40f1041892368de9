//! Stage 1: how much there is, and whether it is what it claims to be.
//!
//! Takes `Raw`, gives `Bounded`. Promise: no later stage sees more bytes, more mail parts or another
//! kind of data than the limits allow; archives and pictures never get further.

mod mail;

use std::borrow::Cow;
use std::io::Read as _;

use crate::finding::{Finding, Refused, Stage};

/// Upper limits; see `docs/content.md`.
#[derive(Debug, Clone)]
pub struct Limits {
    pub raw: usize,
    pub inflated: usize,
    /// Inflated to packed bytes, once a megabyte has come out.
    pub ratio: usize,
    pub mime_depth: usize,
    pub mime_parts: usize,
    pub header_bytes: usize,
    pub header_lines: usize,
    pub header_line: usize,
    pub json_depth: usize,
    pub json_members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            raw: 8 << 20,
            inflated: 16 << 20,
            ratio: 100,
            mime_depth: 16,
            mime_parts: 200,
            header_bytes: 64 << 10,
            header_lines: 500,
            header_line: 8 << 10,
            json_depth: 64,
            json_members: 100_000,
        }
    }
}

/// Bytes as they came, and what the other side said about them.
#[derive(Debug, Clone, Copy)]
pub struct Raw<'a> {
    bytes: &'a [u8],
    content_type: Option<&'a str>,
    content_encoding: Option<&'a str>,
}

impl<'a> Raw<'a> {
    /// Bytes of which nothing is known.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, content_type: None, content_encoding: None }
    }

    /// With the media type that was declared.
    #[must_use]
    pub fn declared(mut self, content_type: &'a str) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// With the `Content-Encoding` that was declared.
    #[must_use]
    pub fn packed(mut self, content_encoding: &'a str) -> Self {
        self.content_encoding = Some(content_encoding);
        self
    }
}

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Html,
    Json(Strings),
}

/// One run of bytes of one kind. A mail has several.
#[derive(Debug, Clone)]
pub(super) struct Piece<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) kind: Kind,
    pub(super) charset: Option<String>,
    /// Whether an agent gets to see it; the rest is only screened.
    pub(super) shown: bool,
}

/// What is known about the strings of JSON before its schema is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// They are data of a service that calls them JSON.
    Data,
    /// Nobody said that the text is JSON: it only reads as such.
    Unsaid,
    /// They are definitions, whose words are not to be changed.
    Definition,
    /// They are the result of a tool, with texts as somebody wrote them.
    ToolResult,
}

/// The media type of what a tool of a mounted server gave. Markup in its texts stays as it was written.
pub const TOOL_RESULT: &str = "application/vnd.sluicegate.tool-result+json";
/// The media type of what a server says of a tool. Markup in it stays as it was written.
pub const TOOL_DEFINITION: &str = "application/vnd.sluicegate.tool-definition+json";

/// Content within its limits.
#[derive(Debug, Clone)]
pub struct Bounded<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) findings: Vec<Finding>,
}

/// Stage 1.
///
/// # Errors
/// When a limit is passed or the bytes are not text.
pub fn bound<'a>(raw: Raw<'a>, limits: &Limits) -> Result<Bounded<'a>, Refused> {
    if raw.bytes.len() > limits.raw {
        return Err(Refused::TooLarge);
    }
    let bytes = match raw.content_encoding.map(str::trim) {
        None | Some("" | "identity") => Cow::Borrowed(raw.bytes),
        Some(packing) => Cow::Owned(inflate(raw.bytes, packing, limits)?),
    };
    let media = Media::read(raw.content_type.unwrap_or_default());
    if media.name == "message/rfc822" {
        return mail::parts(&bytes, limits);
    }
    sniff(&bytes, &media)?;
    let kind = kind(&bytes, &media);
    let mut findings = Vec::new();
    if media.name == "application/json" && !matches!(kind, Kind::Json(_)) {
        findings.push(Finding::note(Stage::Size, "type.mismatch", 0));
    }
    let piece = Piece { bytes, kind, charset: media.charset, shown: true };
    Ok(Bounded { pieces: vec![piece], findings })
}

/// A media type, in lower case and without its parameters but the charset.
struct Media {
    name: String,
    charset: Option<String>,
}

impl Media {
    fn read(declared: &str) -> Self {
        let declared: String = declared.chars().take(256).collect::<String>().to_ascii_lowercase();
        let mut parts = declared.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_owned();
        let charset = parts.find_map(|part| part.strip_prefix("charset=")).map(|set| set.trim_matches('"').to_owned());
        Self { name, charset }
    }

    fn is_text(&self) -> bool {
        self.name.is_empty()
            || self.name.starts_with("text/")
            || ["json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "graphql"]
                .iter()
                .any(|word| self.name.ends_with(word))
    }
}

/// One layer, read in steps so that a bomb is left while it is still small.
fn inflate(packed: &[u8], packing: &str, limits: &Limits) -> Result<Vec<u8>, Refused> {
    match packing.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => drain(flate2::read::MultiGzDecoder::new(packed), packed.len(), limits),
        "deflate" => drain(flate2::read::ZlibDecoder::new(packed), packed.len(), limits)
            .or_else(|_| drain(flate2::read::DeflateDecoder::new(packed), packed.len(), limits)),
        // Several layers, or a packing that nobody asked for.
        _ => Err(Refused::Packing),
    }
}

fn drain(mut from: impl std::io::Read, packed: usize, limits: &Limits) -> Result<Vec<u8>, Refused> {
    const STEP: u64 = 64 << 10;
    const FREE: usize = 1 << 20;
    let mut out = Vec::new();
    loop {
        let read = from.by_ref().take(STEP).read_to_end(&mut out).map_err(|_| Refused::Packing)?;
        let too_good = out.len() > FREE && out.len() / limits.ratio.max(1) > packed;
        if out.len() > limits.inflated || too_good {
            return Err(Refused::Inflates);
        }
        if read == 0 {
            return Ok(out);
        }
    }
}

/// Magic numbers against the declared type. Letters alone prove nothing: a sentence may begin with `BM` or `MZ`.
fn sniff(bytes: &[u8], media: &Media) -> Result<(), Refused> {
    let head = bytes.get(..4096).unwrap_or(bytes);
    let wide = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) || looks_wide(head);
    let odd = head.iter().filter(|&&byte| byte < 9 || (14..27).contains(&byte) || byte == 0x7f).count();
    let texty =
        odd == 0 && std::str::from_utf8(head).map_or_else(|error| error.valid_up_to() + 4 > head.len(), |_| true);
    let magic = infer::get(head).filter(|found| {
        let by_letters = found.mime_type() == "application/pdf";
        !matches!(found.matcher_type(), infer::MatcherType::Text) && (by_letters || (!texty && !wide))
    });
    if magic.is_some() {
        return Err(if media.is_text() && !media.name.is_empty() { Refused::OtherType } else { Refused::Binary });
    }
    // A stray control character is stage 2's business; one in ten bytes is no text.
    if !wide && odd * 10 > head.len() {
        return Err(Refused::Binary);
    }
    if !media.is_text() && !texty && !wide {
        return Err(Refused::Binary);
    }
    Ok(())
}

/// UTF-16 without a mark: every other byte is nought.
pub(super) fn looks_wide(head: &[u8]) -> bool {
    let pairs = head.chunks_exact(2);
    let count = pairs.len();
    let zeros = |at: usize| head.chunks_exact(2).filter(|pair| pair.get(at) == Some(&0)).count();
    count >= 8 && (zeros(0) * 10 > count * 7) != (zeros(1) * 10 > count * 7)
}

fn kind(bytes: &[u8], media: &Media) -> Kind {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    let head = bytes.get(start..).unwrap_or_default();
    let head = head.get(..512).unwrap_or(head);
    match media.name.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Html,
        TOOL_RESULT => Kind::Json(Strings::ToolResult),
        TOOL_DEFINITION => Kind::Json(Strings::Definition),
        name if name.ends_with("json") => Kind::Json(Strings::Data),
        "" if matches!(head.first(), Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() =>
        {
            Kind::Json(Strings::Unsaid)
        }
        "" | "text/plain" if is_html(head) => Kind::Html,
        _ => Kind::Plain,
    }
}

/// A document that opens like a page. A tag in the middle of a text makes no page of it.
fn is_html(head: &[u8]) -> bool {
    let head = head.to_ascii_lowercase();
    [b"<!doctype html".as_slice(), b"<html", b"<head", b"<body"].iter().any(|opening| head.starts_with(opening))
}
