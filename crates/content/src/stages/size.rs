//! Stage 1: checks the size of content, and whether it has the type that it claims.
//!
//! Takes `RawContent`, gives `BoundedContent`. Promise: no later stage sees more bytes, more mail parts or another kind of data than
//! the limits allow; archives and images are refused here.

mod mail;

use std::borrow::Cow;
use std::io::Read as _;

use crate::finding::{ContentError, ContentStage, Finding};

/// Upper limits; see `docs/content.md`.
#[derive(Debug, Clone)]
pub struct ContentLimits {
    pub raw: usize,
    pub inflated: usize,
    /// Ratio of inflated to packed bytes, checked after one megabyte of output.
    pub ratio: usize,
    pub mime_depth: usize,
    pub mime_parts: usize,
    pub header_bytes: usize,
    pub header_lines: usize,
    pub header_line: usize,
    pub json_depth: usize,
    pub json_members: usize,
}

impl Default for ContentLimits {
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

/// Bytes as they arrived, with what the sender declared about them.
#[derive(Debug, Clone, Copy)]
pub struct RawContent<'a> {
    bytes: &'a [u8],
    content_type: Option<&'a str>,
    content_encoding: Option<&'a str>,
}

impl<'a> RawContent<'a> {
    /// Bytes about which nothing is known.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, content_type: None, content_encoding: None }
    }

    /// Sets the declared media type.
    #[must_use]
    pub fn declared(mut self, content_type: &'a str) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// Sets the declared `Content-Encoding`.
    #[must_use]
    pub fn packed(mut self, content_encoding: &'a str) -> Self {
        self.content_encoding = Some(content_encoding);
        self
    }
}

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentFormat {
    Plain,
    Html,
    Json(JsonStringsKind),
}

/// One run of bytes of one kind. A mail has several.
#[derive(Debug, Clone)]
pub(super) struct ContentPiece<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) kind: ContentFormat,
    pub(super) charset: Option<String>,
    /// Whether an agent sees it; other pieces are only screened.
    pub(super) shown: bool,
}

/// What is known about the strings of JSON before its schema is consulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonStringsKind {
    /// They are data of a service that declares them as JSON.
    Data,
    /// Nobody declared the text as JSON: it only looks like it.
    Unsaid,
    /// They are definitions, whose words must not be changed.
    Definition,
    /// They are the result of a tool, with texts as somebody wrote them.
    ToolResult,
}

/// The media type of a result from a tool of a mounted server. Markup in its texts stays as it was written.
pub const TOOL_RESULT: &str = "application/vnd.sluicegate.tool-result+json";
/// The media type of a tool definition from a server. Markup in it stays as it was written.
pub const TOOL_DEFINITION: &str = "application/vnd.sluicegate.tool-definition+json";

/// Content within its limits.
#[derive(Debug, Clone)]
pub struct BoundedContent<'a> {
    pub(super) pieces: Vec<ContentPiece<'a>>,
    pub(super) findings: Vec<Finding>,
}

/// Runs stage 1.
///
/// # Errors
/// When a limit is exceeded or the bytes are not text.
pub fn bound<'a>(raw: RawContent<'a>, limits: &ContentLimits) -> Result<BoundedContent<'a>, ContentError> {
    if raw.bytes.len() > limits.raw {
        return Err(ContentError::TooLarge);
    }
    let bytes = match raw.content_encoding.map(str::trim) {
        None | Some("" | "identity") => Cow::Borrowed(raw.bytes),
        Some(packing) => Cow::Owned(inflate(raw.bytes, packing, limits)?),
    };
    let media = MediaType::read(raw.content_type.unwrap_or_default());
    if media.name == "message/rfc822" {
        return mail::parts(&bytes, limits);
    }
    sniff(&bytes, &media)?;
    let kind = kind(&bytes, &media);
    let mut findings = Vec::new();
    if media.name == "application/json" && !matches!(kind, ContentFormat::Json(_)) {
        findings.push(Finding::note(ContentStage::Size, "type.mismatch", 0));
    }
    let piece = ContentPiece { bytes, kind, charset: media.charset, shown: true };
    Ok(BoundedContent { pieces: vec![piece], findings })
}

/// A media type in lower case, without its parameters except the charset.
struct MediaType {
    name: String,
    charset: Option<String>,
}

impl MediaType {
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

/// Unpacks one layer in steps, so that a bomb is rejected while it is still small.
fn inflate(packed: &[u8], packing: &str, limits: &ContentLimits) -> Result<Vec<u8>, ContentError> {
    match packing.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => drain(flate2::read::MultiGzDecoder::new(packed), packed.len(), limits),
        "deflate" => drain(flate2::read::ZlibDecoder::new(packed), packed.len(), limits)
            .or_else(|_| drain(flate2::read::DeflateDecoder::new(packed), packed.len(), limits)),
        // Several layers, or a packing that was not requested.
        _ => Err(ContentError::Packing),
    }
}

fn drain(mut from: impl std::io::Read, packed: usize, limits: &ContentLimits) -> Result<Vec<u8>, ContentError> {
    const STEP: u64 = 64 << 10;
    const FREE: usize = 1 << 20;
    let mut out = Vec::new();
    loop {
        let read = from.by_ref().take(STEP).read_to_end(&mut out).map_err(|_| ContentError::Packing)?;
        let too_good = out.len() > FREE && out.len() / limits.ratio.max(1) > packed;
        if out.len() > limits.inflated || too_good {
            return Err(ContentError::Inflates);
        }
        if read == 0 {
            return Ok(out);
        }
    }
}

/// Compares magic numbers with the declared type. Letters alone prove nothing: a sentence may begin with `BM` or `MZ`.
fn sniff(bytes: &[u8], media: &MediaType) -> Result<(), ContentError> {
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
        return Err(if media.is_text() && !media.name.is_empty() {
            ContentError::OtherType
        } else {
            ContentError::Binary
        });
    }
    // Stage 2 handles a stray control character; with one in ten bytes, it is not text.
    if !wide && odd * 10 > head.len() {
        return Err(ContentError::Binary);
    }
    if !media.is_text() && !texty && !wide {
        return Err(ContentError::Binary);
    }
    Ok(())
}

/// UTF-16 without a byte order mark: every other byte is zero.
pub(super) fn looks_wide(head: &[u8]) -> bool {
    let pairs = head.chunks_exact(2);
    let count = pairs.len();
    let zeros = |at: usize| head.chunks_exact(2).filter(|pair| pair.get(at) == Some(&0)).count();
    count >= 8 && (zeros(0) * 10 > count * 7) != (zeros(1) * 10 > count * 7)
}

fn kind(bytes: &[u8], media: &MediaType) -> ContentFormat {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    let head = bytes.get(start..).unwrap_or_default();
    let head = head.get(..512).unwrap_or(head);
    match media.name.as_str() {
        "text/html" | "application/xhtml+xml" => ContentFormat::Html,
        TOOL_RESULT => ContentFormat::Json(JsonStringsKind::ToolResult),
        TOOL_DEFINITION => ContentFormat::Json(JsonStringsKind::Definition),
        name if name.ends_with("json") => ContentFormat::Json(JsonStringsKind::Data),
        "" if matches!(head.first(), Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() =>
        {
            ContentFormat::Json(JsonStringsKind::Unsaid)
        }
        "" | "text/plain" if is_html(head) => ContentFormat::Html,
        _ => ContentFormat::Plain,
    }
}

/// A document that begins like a page. A tag in the middle of a text does not make it a page.
fn is_html(head: &[u8]) -> bool {
    let head = head.to_ascii_lowercase();
    [b"<!doctype html".as_slice(), b"<html", b"<head", b"<body"].iter().any(|opening| head.starts_with(opening))
}
