//! What a stage has to say about content: findings, the verdict they add up to, and refusals.
//!
//! Promise: nothing in here repeats the content; a finding names stage, rule, carrier, span and score.

use serde::Serialize;

/// The stage that speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Size,
    Encoding,
    Html,
    Injection,
    Schema,
    Output,
}

/// How a text came along: in plain sight, or inside something that hides or encodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    Plain,
    /// The part of a mail that is not shown because another one is.
    Alternative,
    /// Markup that a browser would not show.
    Hidden,
    Comment,
    /// `alt`, `title`, `aria-*`, `meta` and the like.
    Attribute,
    /// Text that only a style sheet puts there.
    Style,
    Tags,
    Selectors,
    Bidi,
    ZeroWidth,
    Homoglyph,
    /// Between control characters.
    Control,
    /// Strings of JSON, decoded: one by one and put together; or an escape or two in a text.
    Json,
    Spaced,
    Leet,
    Reversed,
    Rot13,
    /// Letters moved by three, or counted from the other end.
    Cipher,
    /// Letters of a few words in the wrong order, or one of them missing.
    Misspelt,
    Base64,
    Base32,
    Hex,
    Binary,
    /// Bytes as numbers, in tens or in eights.
    Numbers,
    Percent,
    Entities,
    Escapes,
    QuotedPrintable,
}

impl Carrier {
    /// Whether somebody took the trouble to keep a reader from seeing the text.
    #[must_use]
    pub fn is_covert(self) -> bool {
        match self {
            Self::Plain
            | Self::Alternative
            | Self::Attribute
            | Self::Control
            | Self::Json
            | Self::Entities
            | Self::Percent
            | Self::QuotedPrintable => false,
            Self::Hidden
            | Self::Comment
            | Self::Style
            | Self::Tags
            | Self::Selectors
            | Self::Bidi
            | Self::ZeroWidth
            | Self::Homoglyph
            | Self::Spaced
            | Self::Leet
            | Self::Reversed
            | Self::Rot13
            | Self::Cipher
            | Self::Misspelt
            | Self::Base64
            | Self::Base32
            | Self::Hex
            | Self::Binary
            | Self::Numbers
            | Self::Escapes => true,
        }
    }
}

/// Bytes of the text the finding is about: the clean text for `plain`, the decoded one otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

/// One thing that a stage noticed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub stage: Stage,
    /// A stable name such as `override.instructions`; `docs/content.md` lists them.
    pub rule: &'static str,
    pub carrier: Carrier,
    pub span: Span,
    /// Points; an item with [`FLAG`] of them is flagged. Zero is worth knowing and no more.
    pub score: f32,
}

impl Finding {
    /// Something worth knowing that weighs nothing by itself.
    #[must_use]
    pub fn note(stage: Stage, rule: &'static str, at: usize) -> Self {
        Self { stage, rule, carrier: Carrier::Plain, span: Span { start: at, end: at }, score: 0.0 }
    }
}

impl Finding {
    /// Of findings of the same rule in the same carrier the heaviest; the first of those that weigh the same.
    pub(crate) fn heaviest_of_each(mut findings: Vec<Self>) -> Vec<Self> {
        findings.sort_by(|one, other| other.score.total_cmp(&one.score));
        let mut kept: Vec<Self> = Vec::new();
        for finding in findings {
            if !kept.iter().any(|known| known.rule == finding.rule && known.carrier == finding.carrier) {
                kept.push(finding);
            }
        }
        kept
    }
}

/// Points from which an item is flagged.
pub const FLAG: f32 = 10.0;
/// Points from which it is blocked.
pub const BLOCK: f32 = 25.0;

/// What the findings add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Flag,
    Block,
}

impl Verdict {
    /// The verdict for so many points.
    #[must_use]
    pub fn of(points: f32) -> Self {
        if points >= BLOCK {
            Self::Block
        } else if points >= FLAG {
            Self::Flag
        } else {
            Self::Pass
        }
    }
}

/// Points on a scale from nought to one; [`FLAG`] is one half.
#[must_use]
pub fn scale(points: f32) -> f32 {
    let points = points.max(0.0);
    ((points / (points + FLAG)) * 1000.0).round() / 1000.0
}

/// Why content was not let through at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the content is larger than allowed")]
    TooLarge,
    #[error("the content unpacks to more than allowed")]
    Inflates,
    #[error("the content is packed in a way that is not accepted")]
    Packing,
    #[error("the content is binary")]
    Binary,
    #[error("the content is not of the type it claims")]
    OtherType,
    #[error("the mail has more or deeper parts than allowed")]
    Parts,
    #[error("the mail has more or longer header lines than allowed")]
    Headers,
    #[error("the mail cannot be read")]
    Mail,
    #[error("the JSON is nested deeper or has more members than allowed")]
    Deep,
    #[error("the content is not valid JSON")]
    NotJson,
    #[error("an object of the JSON has the same key twice")]
    DuplicateKey,
    #[error("the schema is not accepted")]
    BadSchema,
    #[error("the content does not follow its schema")]
    Schema,
}

impl Refused {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "size.too_large",
            Self::Inflates => "size.inflates",
            Self::Packing => "size.packing",
            Self::Binary => "size.binary",
            Self::OtherType => "size.other_type",
            Self::Parts => "size.parts",
            Self::Headers => "size.headers",
            Self::Mail => "size.mail",
            Self::Deep => "schema.deep",
            Self::NotJson => "schema.not_json",
            Self::DuplicateKey => "schema.duplicate_key",
            Self::BadSchema => "schema.bad_schema",
            Self::Schema => "schema.mismatch",
        }
    }

    /// The stage that refused.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self {
            Self::TooLarge
            | Self::Inflates
            | Self::Packing
            | Self::Binary
            | Self::OtherType
            | Self::Parts
            | Self::Headers
            | Self::Mail => Stage::Size,
            Self::Deep | Self::NotJson | Self::DuplicateKey | Self::BadSchema | Self::Schema => Stage::Schema,
        }
    }
}
