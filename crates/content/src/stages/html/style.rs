//! Styles that hide.
//!
//! Takes the text of a `style` attribute or element, gives whether a reader would see the element. Promise: linear in
//! the text; nothing is fetched, nothing is inherited except what the caller passes.

use std::collections::HashSet;

/// What a list of declarations says about visibility.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct TextStyle {
    pub(super) hidden: bool,
    pub(super) ink: Option<u32>,
    pub(super) paper: TextBackground,
}

/// The background behind the letters.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) enum TextBackground {
    /// The background of the parent.
    #[default]
    Inherited,
    Colour(u32),
    /// An image or a background that is not a plain colour.
    Unknown,
}

/// The declarations that can hide; most others are skipped before anything is copied.
fn known(name: &str) -> Option<&'static str> {
    const KNOWN: [&str; 25] = [
        "display",
        "visibility",
        "opacity",
        "font-size",
        "mso-hide",
        "left",
        "top",
        "right",
        "bottom",
        "text-indent",
        "margin-left",
        "margin-top",
        "width",
        "height",
        "max-height",
        "max-width",
        "overflow",
        "overflow-y",
        "clip",
        "clip-path",
        "transform",
        "color",
        "background",
        "background-color",
        "background-image",
    ];
    KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name))
}

/// Reads `name: value; …`.
pub(super) fn look(declarations: &str) -> TextStyle {
    let mut look = TextStyle::default();
    let mut clipped = false;
    let mut flat = false;
    for declaration in declarations.split(';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let Some(name) = known(name.trim()) else { continue };
        let value = value.trim().to_ascii_lowercase();
        let value = value.trim_end_matches("!important").trim();
        match name {
            "display" => look.hidden |= value == "none",
            "visibility" => look.hidden |= matches!(value, "hidden" | "collapse"),
            "opacity" => look.hidden |= number(value).is_some_and(|n| n < 0.05),
            "font-size" => look.hidden |= number(value).is_some_and(|n| n <= 1.0 && !value.ends_with("em") || n < 0.1),
            "mso-hide" => look.hidden |= value == "all",
            "left" | "top" | "right" | "bottom" | "text-indent" | "margin-left" | "margin-top" => {
                look.hidden |= number(value).is_some_and(|n| n <= -500.0);
            }
            "width" | "height" | "max-height" | "max-width" => flat |= number(value) == Some(0.0) || value == "1px",
            "overflow" | "overflow-y" => clipped |= value == "hidden",
            "clip" => look.hidden |= value.replace(' ', "").starts_with("rect(0") || value.starts_with("rect(1px"),
            "clip-path" => look.hidden |= value.replace(' ', "").starts_with("inset(50%") || value.contains("circle(0"),
            "transform" => look.hidden |= value.replace(' ', "").contains("scale(0)"),
            "color" => {
                look.hidden |= value == "transparent";
                look.ink = colour(value).or(look.ink);
            }
            "background-color" | "background" => {
                look.paper = colour(value.split_whitespace().next().unwrap_or_default())
                    .map_or(TextBackground::Unknown, TextBackground::Colour);
            }
            "background-image" => look.paper = TextBackground::Unknown,
            _ => {}
        }
    }
    look.hidden |= flat && clipped;
    look
}

fn number(value: &str) -> Option<f32> {
    let end = value.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(value.len());
    value.get(..end).and_then(|digits| digits.parse().ok())
}

/// Parses `#fff`, `#ffffff`, `rgb(…)` or one of the names that hide on a common background.
pub(super) fn colour(value: &str) -> Option<u32> {
    let value = value.trim().trim_end_matches("!important").trim();
    if let Some(digits) = value.strip_prefix('#') {
        let code = u32::from_str_radix(digits, 16).ok()?;
        return match digits.len() {
            3 => Some(((code >> 8) & 15) * 0x11_0000 + ((code >> 4) & 15) * 0x1100 + (code & 15) * 0x11),
            6 => Some(code),
            _ => None,
        };
    }
    if let Some(rest) = value.strip_prefix("rgb") {
        let inner = rest.trim_start_matches(['a', '(']).trim_end_matches(')');
        let mut parts =
            inner.split([',', ' ']).filter(|part| !part.is_empty()).map(|part| part.trim().parse::<u32>().ok());
        let mut next = || parts.next().flatten().map(|part| part.min(255));
        return Some((next()? << 16) | (next()? << 8) | next()?);
    }
    match value {
        "white" => Some(0xff_ffff),
        "black" => Some(0),
        "red" => Some(0xff_0000),
        "blue" => Some(0xff),
        "green" => Some(0x8000),
        "yellow" => Some(0xff_ff00),
        "gray" | "grey" => Some(0x80_8080),
        _ => None,
    }
}

/// Whether the letters cannot be distinguished from the background.
pub(super) fn same(ink: u32, paper: u32) -> bool {
    let part = |colour: u32, shift: u32| (colour >> shift) & 0xff;
    [16, 8, 0].iter().all(|&shift| part(ink, shift).abs_diff(part(paper, shift)) <= 12)
}

/// The classes and ids that a style sheet hides, and the texts that it adds to the page.
#[derive(Debug, Default)]
pub(super) struct StyleSheet {
    hidden: HashSet<String>,
    pub(super) texts: String,
}

impl StyleSheet {
    /// Reads one `<style>` element, as far as a mail needs: flat rules of simple selectors.
    pub(super) fn read(&mut self, css: &str) {
        const MOST: usize = 256;
        for rule in css.split('}') {
            let Some((selectors, declarations)) = rule.rsplit_once('{') else { continue };
            if let Some((_, content)) = declarations.split_once("content:") {
                let quoted = content.trim_start().trim_start_matches(['"', '\'']);
                let end = quoted.find(['"', '\'', ';']).unwrap_or(quoted.len());
                self.texts.push_str(quoted.get(..end).unwrap_or_default());
                self.texts.push('\n');
            }
            if self.hidden.len() >= MOST || !look(declarations).hidden {
                continue;
            }
            for selector in selectors.split(',').take(16) {
                let name = selector.trim().rsplit([' ', '>', '\n']).next().unwrap_or_default();
                if let Some(at) = name.rfind(['.', '#']) {
                    self.hidden.extend(
                        name.get(at + 1..).filter(|name| !name.is_empty() && name.len() < 64).map(str::to_owned),
                    );
                }
            }
        }
    }

    /// Whether one of these names is hidden.
    pub(super) fn hides(&self, names: &str) -> bool {
        !self.hidden.is_empty() && names.split_ascii_whitespace().take(16).any(|name| self.hidden.contains(name))
    }
}
