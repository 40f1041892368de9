//! The results of the stages: findings, the verdict they add up to, and refusals.
//!
//! Promise: nothing in here repeats the content; a finding names stage, rule, carrier, span and score.

use serde::Serialize;

/// The stage that reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentStage {
    Size,
    Encoding,
    Html,
    Injection,
    Schema,
    Output,
}

/// How a text arrived: in plain sight, or inside something that hides or encodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    Plain,
    /// The part of a mail that is not shown because another version of it is.
    Alternative,
    /// Markup that a browser would not show.
    Hidden,
    Comment,
    /// `alt`, `title`, `aria-*`, `meta` and the like.
    Attribute,
    /// Text that only a style sheet adds.
    Style,
    Tags,
    Selectors,
    Bidi,
    ZeroWidth,
    Homoglyph,
    /// Text between control characters.
    Control,
    /// Decoded JSON strings, one by one and joined; or single escapes in a text.
    Json,
    Spaced,
    Leet,
    Reversed,
    Rot13,
    /// Letters shifted by three, or mirrored in the alphabet.
    Cipher,
    /// A few words with letters in the wrong order, or with a missing letter.
    Misspelt,
    Base64,
    Base32,
    Hex,
    Binary,
    /// Bytes as numbers, decimal or octal.
    Numbers,
    Percent,
    Entities,
    Escapes,
    QuotedPrintable,
}

impl Carrier {
    /// Whether somebody hid the text from readers on purpose.
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

/// Byte range of the finding: in the clean text for `plain`, in the decoded text otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TextRange {
    pub start: usize,
    pub end: usize,
}

/// One thing that a stage noticed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub stage: ContentStage,
    /// A stable name such as `override.instructions`; `docs/content.md` lists them.
    pub rule: &'static str,
    pub carrier: Carrier,
    pub span: TextRange,
    /// Points; an item with [`FLAG`] points is flagged. Zero is for information only.
    pub score: f32,
}

impl Finding {
    /// A finding for information only, with no weight.
    #[must_use]
    pub fn note(stage: ContentStage, rule: &'static str, at: usize) -> Self {
        Self { stage, rule, carrier: Carrier::Plain, span: TextRange { start: at, end: at }, score: 0.0 }
    }
}

impl Finding {
    /// For each rule and carrier, the finding with the highest score; the first of equal ones.
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

/// The points from which an item is flagged.
pub const FLAG: f32 = 10.0;
/// The points from which an item is blocked.
pub const BLOCK: f32 = 25.0;

/// What the findings add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentVerdict {
    Pass,
    Flag,
    Block,
}

impl ContentVerdict {
    /// The verdict for this many points.
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

/// The points as a score between 0 and 1; [`FLAG`] is one half.
#[must_use]
pub fn scale(points: f32) -> f32 {
    let points = points.max(0.0);
    ((points / (points + FLAG)) * 1000.0).round() / 1000.0
}

/// Why content was refused completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
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

impl ContentError {
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
    pub fn stage(&self) -> ContentStage {
        match self {
            Self::TooLarge
            | Self::Inflates
            | Self::Packing
            | Self::Binary
            | Self::OtherType
            | Self::Parts
            | Self::Headers
            | Self::Mail => ContentStage::Size,
            Self::Deep | Self::NotJson | Self::DuplicateKey | Self::BadSchema | Self::Schema => ContentStage::Schema,
        }
    }
}
