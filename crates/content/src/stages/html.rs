//! Stage 3: turns markup into text, and finds what it hid.
//!
//! Takes `TextContent`, gives `DefusedContent`. Promise: one linear walk counts tags and depth and reads the text; the tree builder
//! only sees markup within the limits, and only when HTML was requested.

pub(super) mod entities;
mod markup;
mod scan;
mod style;

use std::borrow::Cow;
use std::sync::LazyLock;

use super::encoding::{DetectorSurface, TextContent};
use super::json::{JsonDocument, MarkupIntent, inside};
use super::output::OutputContext;
use super::size::{ContentFormat, JsonStringsKind};
use crate::finding::{Carrier, ContentStage, Finding};

/// The most bytes of markup that are read.
const MARKUP: usize = 2 << 20;
/// The most tags, and the deepest nesting, from which a tree is built.
const TAGS: usize = 100_000;
const DEPTH: usize = 256;
/// The longest run of attributes of one tag.
const ATTRIBUTES: usize = 64 << 10;
/// The most character references: the tree builder copies its buffer for each of them.
const REFERENCES: usize = 10_000;

/// Content without live markup.
#[derive(Debug, Clone)]
pub struct DefusedContent<'a> {
    pub(super) text: Cow<'a, str>,
    /// Sanitised markup, if HTML was asked for and the tree could be built.
    pub(super) markup: Option<String>,
    /// The intent of its strings, if it is declared as JSON.
    pub(super) json: Option<JsonStringsKind>,
    /// Parsed JSON: the content that is shown, or JSON inside a text that is not declared as JSON.
    pub(super) documents: Vec<JsonDocument>,
    pub(super) surfaces: Vec<DetectorSurface>,
    pub(super) findings: Vec<Finding>,
}

/// Runs stage 3. It never refuses: markup over the limits becomes text only.
#[must_use]
pub fn defuse(text: TextContent<'_>, place: OutputContext) -> DefusedContent<'_> {
    let TextContent { passages, mut surfaces, mut findings } = text;
    let json = passages.first().and_then(|first| match first.kind {
        ContentFormat::Json(strings) => Some(strings),
        ContentFormat::Plain | ContentFormat::Html => None,
    });
    let mut documents = Vec::new();
    let mut markup = None;
    let mut shown: Option<Cow<'_, str>> = None;
    for passage in passages {
        let visible = passage.shown;
        let text = if let Some(mut document) = passage.document {
            defuse_strings(&mut document, &mut surfaces, &mut findings);
            let text = document.render();
            documents.push(document);
            Cow::Owned(text)
        } else if passage.kind == ContentFormat::Html {
            let walk = read(&passage.text, &mut surfaces, &mut findings);
            if place == OutputContext::Html && visible && walk.within_limits {
                markup.get_or_insert_with(String::new).push_str(&POLICY.clean(&passage.text).to_string());
            }
            Cow::Owned(walk.text)
        } else {
            peek(&passage.text, &mut surfaces);
            if let Some(mut document) = inside(&passage.text) {
                super::encoding::settle_strings(&mut document, &mut surfaces, &mut findings);
                documents.push(document);
            }
            passage.text
        };
        if !visible {
            surfaces.push(DetectorSurface::new(Carrier::Alternative, text.into_owned()));
            continue;
        }
        shown = Some(match shown {
            None => text,
            Some(before) => Cow::Owned(before.into_owned() + "\n\n" + &text),
        });
    }
    DefusedContent { text: shown.unwrap_or_default(), markup, json, documents, surfaces, findings }
}

/// Handles markup in strings of JSON: it becomes text, unless it is meant as HTML or as source.
fn defuse_strings(document: &mut JsonDocument, surfaces: &mut Vec<DetectorSurface>, findings: &mut Vec<Finding>) {
    let mut found = Vec::new();
    document.each(&mut |text, intent| {
        if !markup::holds_markup(text) {
            return None;
        }
        let walk = read(text, surfaces, &mut found);
        match intent {
            MarkupIntent::Data => Some(walk.text),
            MarkupIntent::Html if walk.within_limits => {
                let sanitised = POLICY.clean(text).to_string();
                surfaces.push(DetectorSurface::new(Carrier::Json, walk.text));
                Some(super::encoding::settle(sanitised, surfaces, &mut found))
            }
            MarkupIntent::Html => Some(walk.text),
            MarkupIntent::Source => {
                surfaces.push(DetectorSurface::new(Carrier::Json, walk.text));
                None
            }
        }
    });
    findings.extend(Finding::heaviest_of_each(found));
}

/// What ammonia keeps: text, structure and links. No images, because loading one notifies its server.
static POLICY: LazyLock<ammonia::Builder<'static>> = LazyLock::new(|| {
    let mut policy = ammonia::Builder::default();
    policy.rm_tags(["img", "map", "area"]).url_schemes(["http", "https", "mailto", "tel"].into());
    policy.link_rel(Some("noopener noreferrer nofollow"));
    policy
});

struct MarkupText {
    text: String,
    within_limits: bool,
}

fn read(mut source: &str, surfaces: &mut Vec<DetectorSurface>, findings: &mut Vec<Finding>) -> MarkupText {
    let mut whole = true;
    if source.len() > MARKUP {
        let cut = (0..=MARKUP).rev().find(|&at| source.is_char_boundary(at)).unwrap_or(0);
        source = source.get(..cut).unwrap_or_default();
        whole = false;
        findings.push(Finding::note(ContentStage::Html, "markup.cut", cut));
    }
    let page = scan::walk(source);
    let references = source.bytes().filter(|byte| *byte == b'&').count();
    let within_limits =
        whole && page.tags <= TAGS && page.depth <= DEPTH && page.attributes <= ATTRIBUTES && references <= REFERENCES;
    if !within_limits {
        findings.push(Finding::note(ContentStage::Html, "markup.excessive", 0));
    }
    for (rule, seen) in [("hidden.text", !page.hidden.is_empty()), ("active.content", page.active)] {
        if seen {
            findings.push(Finding::note(ContentStage::Html, rule, 0));
        }
    }
    // An entity can encode what stage 2 removed, so decoded text passes through stage 2 again.
    let settle = |text: String, surfaces: &mut Vec<DetectorSurface>, findings: &mut Vec<Finding>| {
        super::encoding::settle(text, surfaces, findings)
    };
    for (carrier, text) in [
        (Carrier::Hidden, page.hidden),
        (Carrier::Comment, page.comments),
        (Carrier::Attribute, page.attribute_texts),
        (Carrier::Style, page.style_texts),
    ] {
        if text.bytes().filter(u8::is_ascii_alphanumeric).count() >= 8 || text.len() > 24 {
            let text = settle(text, surfaces, findings);
            surfaces.push(DetectorSurface::new(carrier, text));
        }
    }
    MarkupText { text: settle(page.text, surfaces, findings), within_limits }
}

/// Comments and hidden elements in declared plain text: shown unchanged, but screened as hidden text.
fn peek(text: &str, surfaces: &mut Vec<DetectorSurface>) {
    if text.len() > MARKUP || !(text.contains("<!--") || (text.contains('<') && text.contains("style"))) {
        return;
    }
    let page = scan::walk(text);
    for (carrier, text) in [(Carrier::Hidden, page.hidden), (Carrier::Comment, page.comments)] {
        if text.len() >= 16 {
            surfaces.push(DetectorSurface::new(carrier, text));
        }
    }
}
