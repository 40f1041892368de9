//! One walk over markup.
//!
//! Takes markup, gives its text, its hidden texts, and its size and depth. Promise: linear, with a stack of fixed
//! depth, and every letter of the source is in the text or in one of the hidden texts.

use super::DEPTH;
use super::entities::push_decoded;
use super::style::{StyleSheet, TextBackground, TextStyle, colour, look, same};

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct MarkupScan {
    pub(super) text: String,
    pub(super) hidden: String,
    pub(super) comments: String,
    pub(super) attribute_texts: String,
    pub(super) style_texts: String,
    pub(super) tags: usize,
    pub(super) depth: usize,
    /// The longest run of attributes of one tag, in bytes.
    pub(super) attributes: usize,
    /// Scripts, handlers, frames and forms.
    pub(super) active: bool,
}

/// An element that is open.
#[derive(Debug, Clone, Copy)]
struct OpenElement<'a> {
    name: &'a str,
    hidden: bool,
    /// Whether it is hidden only by its colour, so that a wrong guess loses no text.
    faint: bool,
    ink: u32,
    paper: Option<u32>,
    skips: bool,
}

/// Walks markup from start to end.
pub(super) fn walk(source: &str) -> MarkupScan {
    let mut walker =
        MarkupScanner { page: MarkupScan::default(), open: Vec::new(), sheet: StyleSheet::default(), excess: 0 };
    walker.page.text.reserve(source.len() / 2);
    let mut rest = source;
    while let Some(at) = memchr::memchr(b'<', rest.as_bytes()) {
        let (text, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        walker.text(text);
        rest = walker.tag(from);
    }
    walker.text(rest);
    walker.page.style_texts = std::mem::take(&mut walker.sheet.texts);
    walker.page
}

struct MarkupScanner<'a> {
    page: MarkupScan,
    open: Vec<OpenElement<'a>>,
    sheet: StyleSheet,
    /// The number of open elements beyond the stack.
    excess: usize,
}

impl<'a> MarkupScanner<'a> {
    /// Adds text to the place where it belongs.
    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let top = self.open.last();
        let (hidden, faint) = top.map_or((false, false), |top| (top.hidden || top.skips, top.faint));
        if hidden || faint {
            if text.bytes().any(|byte| !byte.is_ascii_whitespace()) {
                push_decoded(text, &mut self.page.hidden);
                self.page.hidden.push(' ');
            }
            if hidden {
                return;
            }
        }
        let pre = top.is_some_and(|top| top.name.eq_ignore_ascii_case("pre"));
        if pre {
            push_decoded(text, &mut self.page.text);
            return;
        }
        let out = &mut self.page.text;
        if text.starts_with(|c: char| c.is_ascii_whitespace()) && !out.is_empty() && !out.ends_with(['\n', ' ']) {
            out.push(' ');
        }
        // Most texts have no reference, and are not searched for one word by word.
        let push = if memchr::memchr(b'&', text.as_bytes()).is_some() { push_decoded } else { push_plain };
        let mut words = text.split_ascii_whitespace();
        if let Some(first) = words.next() {
            push(first, out);
        }
        for word in words {
            out.push(' ');
            push(word, out);
        }
        if text.ends_with(|c: char| c.is_ascii_whitespace()) && !out.ends_with(['\n', ' ']) {
            out.push(' ');
        }
    }

    /// Reads one construct that begins with `<` and gives the rest.
    fn tag(&mut self, from: &'a str) -> &'a str {
        if let Some(body) = from.strip_prefix("<!--") {
            let (comment, rest) = body.split_once("-->").unwrap_or((body, ""));
            push_decoded(comment, &mut self.page.comments);
            self.page.comments.push('\n');
            return rest;
        }
        let bytes = from.as_bytes();
        match bytes.get(1) {
            Some(b'!' | b'?') => {
                let end = memchr::memchr(b'>', bytes).unwrap_or(from.len() - 1);
                if let Some(cdata) = from.get(2..end).and_then(|inner| inner.strip_prefix("[CDATA[")) {
                    self.page.comments.push_str(cdata);
                    self.page.comments.push('\n');
                }
                from.get(end + 1..).unwrap_or_default()
            }
            Some(b'/') => {
                let end = memchr::memchr(b'>', bytes).unwrap_or(from.len() - 1);
                let name = name_of(from.get(2..end).unwrap_or_default());
                self.page.tags += 1;
                self.close(name);
                from.get(end + 1..).unwrap_or_default()
            }
            Some(letter) if letter.is_ascii_alphabetic() => self.open(from),
            _ => {
                self.text("<");
                from.get(1..).unwrap_or_default()
            }
        }
    }

    fn open(&mut self, from: &'a str) -> &'a str {
        let body = from.get(1..).unwrap_or_default();
        let name = name_of(body);
        let (attributes, rest) = attributes(body.get(name.len()..).unwrap_or_default());
        self.page.tags += 1;
        self.page.attributes = self.page.attributes.max(attributes.len());
        let parent = self.open.last().copied();
        let mut element = OpenElement {
            name,
            hidden: parent.is_some_and(|parent| parent.hidden),
            faint: false,
            ink: parent.map_or(0, |parent| parent.ink),
            paper: parent.map_or(Some(0xff_ffff), |parent| parent.paper),
            skips: false,
        };
        let mut link = None;
        for (key, value) in pairs(attributes) {
            self.attribute(name, key, value, &mut element);
            if key.eq_ignore_ascii_case("href") && name.eq_ignore_ascii_case("a") {
                link = Some(value);
            }
        }
        element.faint = element.paper.is_some_and(|paper| same(element.ink, paper));
        let lower = ElementKind::of(name);
        match lower {
            ElementKind::Raw => {
                // Nothing in here is markup until its own end tag.
                let (inner, rest) = raw(rest, name);
                if name.eq_ignore_ascii_case("style") {
                    self.sheet.read(inner);
                } else if name.eq_ignore_ascii_case("title") || name.eq_ignore_ascii_case("textarea") {
                    self.text(inner);
                    self.page.text.push('\n');
                } else {
                    self.page.active = true;
                    self.page.comments.push_str(inner);
                    self.page.comments.push('\n');
                }
                return rest;
            }
            ElementKind::Block => self.line(),
            ElementKind::Item => {
                self.line();
                self.page.text.push_str("- ");
            }
            ElementKind::Cell => self.page.text.push(' '),
            ElementKind::Active => self.page.active = true,
            ElementKind::Unseen => element.skips = true,
            ElementKind::Void | ElementKind::Inline => {}
        }
        if lower == ElementKind::Void {
            if name.eq_ignore_ascii_case("br") || name.eq_ignore_ascii_case("hr") {
                self.line();
            }
            return rest;
        }
        if attributes.ends_with('/') {
            return rest;
        }
        if self.open.len() < DEPTH {
            self.open.push(element);
        } else {
            self.excess += 1;
        }
        self.page.depth = self.page.depth.max(self.open.len() + self.excess);
        if let Some(link) = link.filter(|link| !element.hidden && link.len() < 512 && link.starts_with("http")) {
            self.page.attribute_texts.push_str(link);
            self.page.attribute_texts.push('\n');
        }
        rest
    }

    fn attribute(&mut self, name: &str, key: &str, value: &str, element: &mut OpenElement<'_>) {
        let is = |known: &str| key.eq_ignore_ascii_case(known);
        if is("style") {
            let TextStyle { hidden, ink, paper } = look(value);
            element.hidden |= hidden;
            element.ink = ink.unwrap_or(element.ink);
            match paper {
                TextBackground::Inherited => {}
                TextBackground::Colour(colour) => element.paper = Some(colour),
                TextBackground::Unknown => element.paper = None,
            }
        } else if is("hidden") {
            element.hidden = true;
        } else if is("class") || is("id") {
            element.hidden |= self.sheet.hides(value);
        } else if is("color") {
            element.ink = colour(&value.to_ascii_lowercase()).unwrap_or(element.ink);
        } else if is("bgcolor") {
            element.paper = colour(&value.to_ascii_lowercase());
        } else if is("background") {
            element.paper = None;
        } else if is("alt") && name.eq_ignore_ascii_case("img") && value.len() > 1 && !element.hidden {
            self.page.text.push_str("[image: ");
            push_decoded(value, &mut self.page.text);
            self.page.text.push(']');
            // Read separately as well: in brackets, an instruction no longer opens its sentence.
            push_decoded(value, &mut self.page.attribute_texts);
            self.page.attribute_texts.push('\n');
        } else if is("alt")
            || is("title")
            || is("content")
            || is("placeholder")
            || is("value")
            || is("summary")
            || starts(key, "aria-")
            || starts(key, "data-")
        {
            push_decoded(value, &mut self.page.attribute_texts);
            self.page.attribute_texts.push('\n');
        } else if starts(key, "on") || starts(value, "javascript:") {
            self.page.active = true;
        }
    }

    fn close(&mut self, name: &str) {
        // The stack has at most DEPTH entries, so this is bounded however the tags are nested.
        if let Some(at) = self.open.iter().rposition(|open| open.name.eq_ignore_ascii_case(name)) {
            self.open.truncate(at);
            self.excess = 0;
        } else {
            self.excess = self.excess.saturating_sub(1);
        }
        if matches!(ElementKind::of(name), ElementKind::Block | ElementKind::Item) {
            self.line();
        }
    }

    fn line(&mut self) {
        let out = &mut self.page.text;
        let blanks = out.bytes().rev().take_while(|byte| *byte == b' ').count();
        out.truncate(out.len() - blanks);
        if !out.is_empty() && !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
}

/// How an element is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    Block,
    Item,
    Cell,
    Inline,
    Void,
    Raw,
    Active,
    Unseen,
}

impl ElementKind {
    fn of(name: &str) -> Self {
        let mut lower = [0_u8; 12];
        let Some(slot) = lower.get_mut(..name.len()) else { return Self::Inline };
        slot.copy_from_slice(name.as_bytes());
        slot.make_ascii_lowercase();
        match &*slot {
            b"p" | b"div" | b"tr" | b"table" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"ul" | b"ol"
            | b"pre" | b"blockquote" | b"section" | b"article" | b"header" | b"footer" | b"center" | b"body"
            | b"html" | b"dl" | b"dt" | b"dd" | b"main" | b"nav" => Self::Block,
            b"li" => Self::Item,
            b"td" | b"th" => Self::Cell,
            b"br" | b"hr" | b"img" | b"input" | b"meta" | b"link" | b"base" | b"area" | b"col" | b"embed"
            | b"source" | b"track" | b"wbr" | b"param" => Self::Void,
            b"script" | b"style" | b"title" | b"textarea" | b"xmp" | b"noembed" | b"noframes" | b"plaintext" => {
                Self::Raw
            }
            b"form" | b"iframe" | b"object" | b"applet" | b"button" | b"frame" | b"frameset" => Self::Active,
            b"template" | b"noscript" | b"head" | b"datalist" | b"svg" | b"math" => Self::Unseen,
            _ => Self::Inline,
        }
    }
}

fn push_plain(text: &str, out: &mut String) {
    out.push_str(text);
}

fn starts(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

fn name_of(body: &str) -> &str {
    let end =
        body.bytes().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')).unwrap_or(body.len());
    body.get(..end).unwrap_or_default()
}

/// The attributes of a tag and the rest after it. A `>` in quotes does not end it.
fn attributes(body: &str) -> (&str, &str) {
    let bytes = body.as_bytes();
    let (mut at, mut after_equals) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'>' => return (body.get(..at).unwrap_or_default(), body.get(at + 1..).unwrap_or_default()),
            b'"' | b'\'' if after_equals => {
                let inner = bytes.get(at + 1..).unwrap_or_default();
                let Some(length) = memchr::memchr(byte, inner) else { break };
                at += length + 1;
                after_equals = false;
            }
            _ => after_equals = byte == b'=' || (after_equals && byte.is_ascii_whitespace()),
        }
        at += 1;
    }
    (body, "")
}

/// `key="value"` pairs, as far as they can be separated.
fn pairs(attributes: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = attributes;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() {
            return None;
        }
        let end = rest.bytes().position(|byte| byte.is_ascii_whitespace() || byte == b'=').unwrap_or(rest.len());
        let (key, after) = rest.split_at_checked(end.max(1)).unwrap_or((rest, ""));
        let after = after.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let Some(value) = after.strip_prefix('=') else {
            rest = after;
            return Some((key, ""));
        };
        let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, after) = match quote {
            Some(quote) => {
                let inner = value.get(1..).unwrap_or_default();
                inner.split_once(quote).unwrap_or((inner, ""))
            }
            None => {
                let end = value.bytes().position(|byte| byte.is_ascii_whitespace()).unwrap_or(value.len());
                value.split_at_checked(end).unwrap_or((value, ""))
            }
        };
        rest = after;
        Some((key, value))
    })
}

/// The content of a raw text element, and the rest after its end tag.
fn raw<'a>(rest: &'a str, name: &str) -> (&'a str, &'a str) {
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|tail| tail.find("</")) {
        let at = from + at;
        let tail = rest.get(at + 2..).unwrap_or_default();
        if starts(tail, name) {
            let end = tail.find('>').map_or(rest.len(), |end| at + 2 + end + 1);
            return (rest.get(..at).unwrap_or_default(), rest.get(end..).unwrap_or_default());
        }
        from = at + 2;
    }
    (rest, "")
}
