//! Stage 3: markup becomes text, and what it hid is found.
//!
//! Takes `Text`, gives `Defused`. Promise: one linear walk counts tags and depth and reads the text; the tree
//! builder only ever sees markup within the limits, and only when HTML is what was asked for.

pub(super) mod entities;
mod markup;
mod scan;
mod style;

use std::borrow::Cow;
use std::sync::LazyLock;

use super::encoding::{Surface, Text};
use super::json::{Document, Intent, inside};
use super::output::Place;
use super::size::{Kind, Strings};
use crate::finding::{Carrier, Finding, Stage};

/// The most markup that is read, in bytes.
const MARKUP: usize = 2 << 20;
/// The most tags, and the deepest nesting, that a tree is built from.
const TAGS: usize = 100_000;
const DEPTH: usize = 256;
/// The longest run of attributes of one tag.
const ATTRIBUTES: usize = 64 << 10;
/// The most character references: the tree builder copies what it has for each of them.
const REFERENCES: usize = 10_000;

/// Content without live markup.
#[derive(Debug, Clone)]
pub struct Defused<'a> {
    pub(super) text: Cow<'a, str>,
    /// Sanitised markup, if HTML was asked for and the tree could be built.
    pub(super) markup: Option<String>,
    /// What was said about it, if it is JSON.
    pub(super) json: Option<Strings>,
    /// JSON taken apart: what is shown, or what stands in a text that does not claim to be JSON.
    pub(super) documents: Vec<Document>,
    pub(super) surfaces: Vec<Surface>,
    pub(super) findings: Vec<Finding>,
}

/// Stage 3. It never refuses: markup that is too much becomes text only.
#[must_use]
pub fn defuse(text: Text<'_>, place: Place) -> Defused<'_> {
    let Text { passages, mut surfaces, mut findings } = text;
    let json = passages.first().and_then(|first| match first.kind {
        Kind::Json(strings) => Some(strings),
        Kind::Plain | Kind::Html => None,
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
        } else if passage.kind == Kind::Html {
            let walk = read(&passage.text, &mut surfaces, &mut findings);
            if place == Place::Html && visible && walk.within_limits {
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
            surfaces.push(Surface::new(Carrier::Alternative, text.into_owned()));
            continue;
        }
        shown = Some(match shown {
            None => text,
            Some(before) => Cow::Owned(before.into_owned() + "\n\n" + &text),
        });
    }
    Defused { text: shown.unwrap_or_default(), markup, json, documents, surfaces, findings }
}

/// Markup in strings of JSON: text, unless it is meant as HTML or as it was written.
fn defuse_strings(document: &mut Document, surfaces: &mut Vec<Surface>, findings: &mut Vec<Finding>) {
    let mut found = Vec::new();
    document.each(&mut |text, intent| {
        if !markup::holds_markup(text) {
            return None;
        }
        let walk = read(text, surfaces, &mut found);
        match intent {
            Intent::Data => Some(walk.text),
            Intent::Html if walk.within_limits => {
                let sanitised = POLICY.clean(text).to_string();
                surfaces.push(Surface::new(Carrier::Json, walk.text));
                Some(super::encoding::settle(sanitised, surfaces, &mut found))
            }
            Intent::Html => Some(walk.text),
            Intent::Source => {
                surfaces.push(Surface::new(Carrier::Json, walk.text));
                None
            }
        }
    });
    findings.extend(Finding::heaviest_of_each(found));
}

/// What ammonia may leave standing: text, structure and links. No pictures, because loading one tells its server.
static POLICY: LazyLock<ammonia::Builder<'static>> = LazyLock::new(|| {
    let mut policy = ammonia::Builder::default();
    policy.rm_tags(["img", "map", "area"]).url_schemes(["http", "https", "mailto", "tel"].into());
    policy.link_rel(Some("noopener noreferrer nofollow"));
    policy
});

struct Walk {
    text: String,
    within_limits: bool,
}

fn read(mut source: &str, surfaces: &mut Vec<Surface>, findings: &mut Vec<Finding>) -> Walk {
    let mut whole = true;
    if source.len() > MARKUP {
        let cut = (0..=MARKUP).rev().find(|&at| source.is_char_boundary(at)).unwrap_or(0);
        source = source.get(..cut).unwrap_or_default();
        whole = false;
        findings.push(Finding::note(Stage::Html, "markup.cut", cut));
    }
    let page = scan::walk(source);
    let references = source.bytes().filter(|byte| *byte == b'&').count();
    let within_limits =
        whole && page.tags <= TAGS && page.depth <= DEPTH && page.attributes <= ATTRIBUTES && references <= REFERENCES;
    if !within_limits {
        findings.push(Finding::note(Stage::Html, "markup.excessive", 0));
    }
    for (rule, seen) in [("hidden.text", !page.hidden.is_empty()), ("active.content", page.active)] {
        if seen {
            findings.push(Finding::note(Stage::Html, rule, 0));
        }
    }
    // An entity can spell what stage 2 took out, so what was decoded is settled again.
    let settle = |text: String, surfaces: &mut Vec<Surface>, findings: &mut Vec<Finding>| {
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
            surfaces.push(Surface::new(carrier, text));
        }
    }
    Walk { text: settle(page.text, surfaces, findings), within_limits }
}

/// Comments and hidden elements in what claims to be plain text: shown as it is, but screened as what it hides.
fn peek(text: &str, surfaces: &mut Vec<Surface>) {
    if text.len() > MARKUP || !(text.contains("<!--") || (text.contains('<') && text.contains("style"))) {
        return;
    }
    let page = scan::walk(text);
    for (carrier, text) in [(Carrier::Hidden, page.hidden), (Carrier::Comment, page.comments)] {
        if text.len() >= 16 {
            surfaces.push(Surface::new(carrier, text));
        }
    }
}
