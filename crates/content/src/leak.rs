//! Leak scan: what must not leave (stage 6b).
//!
//! Takes the named parts of an outgoing message; gives findings: the id of the match, its place, its length and a hash
//! of its part. Promise: no finding holds content, any blocking finding blocks the whole, nothing is cut out, and the
//! work is bounded by the length of the text.

mod bytes;
mod checksums;
mod context;
mod decoded;
mod fold;
mod formats;
mod json;
mod live_secrets;
mod login;
mod marks;
mod operator_lists;
mod personal;
mod pieces;
mod plausibility;
mod scrub;
mod spoken_passwords;

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub use json::parts_of;
pub use live_secrets::{LiveSecrets, SHORT, TOO_SHORT, TooManySecretsError};
pub use operator_lists::{LeakPatternError, check_pattern};
pub use scrub::REMOVED;

use bytes::cut;
use marks::{FormatMarks, LeakMatch};
use operator_lists::OperatorLists;
use personal::PersonalData;
use pieces::SeenPieces;

/// How many decoders may be applied on top of each other.
const DEPTH: usize = 3;
/// The size of all views of one part together: at least this much, and at most four times the part.
const ROOM: usize = 64 << 10;
/// The most bytes that are joined across parts.
const JOINED: usize = 256 << 10;
/// A text this short is read together with its key.
const LABELLED: usize = 256;
/// The start of the name of a part that is a key.
const KEY: &str = "(key ";
/// More findings than this add nothing.
const ENOUGH: usize = 32;

/// The settings of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakConfig {
    /// Identifiers of the owner: names, addresses, numbers. They block everywhere.
    pub own: Vec<String>,
    /// Internal terms and paths. They block everywhere.
    pub terms: Vec<String>,
    /// Patterns by id, as linear-time regular expressions. They block everywhere.
    pub patterns: Vec<(String, String)>,
    /// From how many distinct people a message counts as having many.
    pub people: usize,
}

impl Default for LeakConfig {
    fn default() -> Self {
        Self { own: Vec::new(), terms: Vec::new(), patterns: Vec::new(), people: 20 }
    }
}

/// The destination of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeakScope {
    /// An untrusted service: any personal data blocks.
    Proxy,
    /// Connected mail or chat: personal data of many people needs approval, that of a few passes.
    #[default]
    Service,
}

/// The effect of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeakWeight {
    /// It is only noted.
    Note,
    /// It needs approval.
    Flag,
    /// It blocks everything.
    Block,
}

impl LeakWeight {
    /// The word for the weight in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Flag => "flag",
            Self::Block => "block",
        }
    }
}

/// One named part of an outgoing message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundPart<'a> {
    name: Cow<'a, str>,
    text: Cow<'a, str>,
    /// The key of the text, if the key tells what the text is.
    key: Option<&'a str>,
}

impl<'a> OutboundPart<'a> {
    /// A part with this name.
    pub fn new(name: impl Into<Cow<'a, str>>, text: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into(), text: text.into(), key: None }
    }

    /// A part with a key.
    #[must_use]
    pub fn under(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Whether it has this name and exactly this text.
    #[must_use]
    pub fn is(&self, name: &str, text: &str) -> bool {
        self.name == name && self.text == text
    }

    /// Whether it names the recipients of a message, who do not count as personal data in it.
    fn names_addressees(&self) -> bool {
        let top = self.name.split(['.', '[']).next().unwrap_or_default();
        ["to", "cc", "bcc", "from", "recipients", "attendees", "reply_to", "participants"].contains(&top)
    }
}

/// One finding of the scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakFinding {
    /// The id of the matched pattern.
    pub pattern: String,
    /// The name of the part.
    pub field: String,
    /// How it was encoded: `plain`, or the decoders in order.
    pub view: String,
    /// Length of the match in bytes.
    pub length: usize,
    /// First twelve digits of the SHA-256 of the whole part.
    pub hash: String,
    /// The effect of the finding.
    pub weight: LeakWeight,
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeakReport {
    /// The findings, highest weight first.
    pub findings: Vec<LeakFinding>,
    /// The number of distinct people in it.
    pub people: usize,
}

impl LeakReport {
    /// The weight of the whole: the highest weight of its findings.
    #[must_use]
    pub fn weight(&self) -> Option<LeakWeight> {
        self.findings.iter().map(|finding| finding.weight).max()
    }

    /// Whether the message is blocked.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.weight() == Some(LeakWeight::Block)
    }

    /// Whether the message needs approval.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.weight() == Some(LeakWeight::Flag)
    }
}

/// The scanner. It is built once.
#[derive(Debug)]
pub struct Scanner {
    marks: FormatMarks,
    own: OperatorLists,
    people: usize,
}

/// Why a scanner cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScannerError {
    /// A pattern of the operator is not valid.
    #[error(transparent)]
    Pattern(#[from] LeakPatternError),
    /// A mistake in the gateway's own table.
    #[error("the table of formats is broken")]
    Formats,
}

impl Scanner {
    /// Builds a scanner.
    ///
    /// # Errors
    /// When a pattern of the operator is not valid.
    pub fn new(settings: &LeakConfig) -> Result<Self, ScannerError> {
        let own = OperatorLists::new(settings)?;
        let marks = FormatMarks::new().ok_or(ScannerError::Formats)?;
        Ok(Self { marks, own, people: settings.people })
    }

    /// Scans all parts that would leave together.
    #[must_use]
    pub fn scan(&self, parts: &[OutboundPart<'_>], scope: LeakScope, live: &LiveSecrets) -> LeakReport {
        let mut walk = LeakScan {
            scanner: self,
            scope,
            live,
            personal: PersonalData::default(),
            report: LeakReport::default(),
            trail: live.trail(),
            told: Vec::new(),
        };
        for part in parts {
            walk.part(part);
        }
        walk.scan_joined_parts(parts);
        walk.finish()
    }
}

/// The name of a format for people, by its id.
#[must_use]
pub fn describe(id: &str) -> &'static str {
    let own = match id {
        "generic.assigned" => "random value behind the name of a secret",
        "generic.vendor" => "random value beside the name of a vendor",
        "generic.password" => "password",
        spoken_passwords::PASSCODE => "passcode of a meeting",
        "url.login" => "login in an address",
        "aws.secret" => "AWS secret access key",
        "vault.live" => "secret of the vault",
        "own.identifier" => "identifier of the owner",
        "own.term" => "internal term",
        "pii.email" => "e-mail address",
        "pii.phone" => "telephone number",
        "pii.card" => "payment card",
        "pii.iban" => "account number",
        "pii.ssn" => "social security number",
        "pii.snowflake" => "snowflake id",
        "pii.bulk" => "personal data of many people",
        _ => "",
    };
    if own.is_empty() {
        formats::all().find(|format| format.id == id).map_or("pattern of the operator", |format| format.name)
    } else {
        own
    }
}

/// The number of formats, and the number of vendors that are known only by name.
#[must_use]
pub fn known_formats_and_vendors() -> (usize, usize) {
    (formats::all().count(), formats::VENDORS.len())
}

/// One scan in progress.
struct LeakScan<'a> {
    scanner: &'a Scanner,
    scope: LeakScope,
    live: &'a LiveSecrets,
    personal: PersonalData,
    report: LeakReport,
    /// The pieces of secrets that were found.
    trail: SeenPieces,
    /// The secrets that were reported already.
    told: Vec<&'a str>,
}

/// The ranges in which something was found already, in order, each with the farthest end so far.
struct MatchedRanges(Vec<(usize, usize)>);

impl MatchedRanges {
    fn of(places: &[LeakMatch<'_>]) -> Self {
        let mut spans: Vec<(usize, usize)> = places.iter().map(|place| (place.start, place.end)).collect();
        spans.sort_unstable();
        let mut farthest = 0;
        for (_, end) in &mut spans {
            farthest = farthest.max(*end);
            *end = farthest;
        }
        Self(spans)
    }

    /// Whether one of the ranges shares a byte with this one.
    fn touches(&self, start: usize, end: usize) -> bool {
        let before = self.0.partition_point(|(from, _)| *from < end);
        before.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|(_, until)| start < *until)
    }
}

/// The origin of a text that is scanned.
struct ViewSource<'a> {
    name: &'a str,
    view: String,
    hash: Option<String>,
    addressees: bool,
}

impl<'a> LeakScan<'a> {
    fn part(&mut self, part: &OutboundPart<'_>) {
        let text = part.text.as_bytes();
        let mut source =
            ViewSource { name: &part.name, view: "plain".into(), hash: None, addressees: part.names_addressees() };
        // Letters, digits and little else: `{"password": "…"}` is a login only if the key is read too.
        let labelled = part.key.filter(|_| text.len() <= LABELLED && !text.is_empty());
        match labelled {
            Some(key) => {
                let quoted = format!("\"{key}\": \"{}\"", part.text);
                self.look(quoted.as_bytes(), text, &mut source);
            }
            None => self.look(text, text, &mut source),
        }
        self.live.edges(text, &mut self.trail);
        let mut room = ROOM.max(text.len().saturating_mul(4));
        self.scan_decoded(text, text, &mut source, (DEPTH, &mut room));
    }

    /// Scans one text. The hash is taken of `whole`.
    fn look(&mut self, text: &[u8], whole: &[u8], source: &mut ViewSource<'_>) {
        let kept = source.view.clone();
        for seen in self.live.look(text, &mut self.trail) {
            self.told.push(seen.secret);
            source.view = format!("{}/{}", seen.secret, seen.form);
            let place = LeakMatch { id: "vault.live", start: seen.start, end: seen.end };
            self.record_match(place, LeakWeight::Block, whole, source);
        }
        source.view = kept;
        for place in self.scanner.own.look(text) {
            self.record_match(place, LeakWeight::Block, whole, source);
        }
        let mut places = Vec::new();
        let mut judged = Vec::new();
        self.scanner.marks.tokens(text, &mut places, |start, end| judged.extend(context::judge(text, start, end)));
        let (logins, addresses) = self.scanner.marks.words(text, &mut places);
        places.extend(logins.into_iter().filter_map(|end| login::password(text, end)));
        places.extend(addresses.into_iter().filter_map(|at| login::address(text, at)));
        // A value that matches a format needs no guess from its context.
        let taken = MatchedRanges::of(&places);
        judged.retain(|guess: &LeakMatch<'_>| !taken.touches(guess.start, guess.end));
        places.append(&mut judged);
        for place in places {
            let weight = match (self.scope, place.id) {
                // The parts of an invitation or of a link to a file: a person knows for whom they are meant.
                (LeakScope::Service, spoken_passwords::PASSCODE | "aws.presigned") => LeakWeight::Flag,
                _ => LeakWeight::Block,
            };
            self.record_match(place, weight, whole, source);
        }
        let from = self.personal.places.len();
        let mut personal = std::mem::take(&mut self.personal);
        // Recipients are counted separately and then dropped. They are set aside, not copied: there may be as many
        // recipients as people.
        let before = source.addressees.then(|| std::mem::take(&mut personal.people));
        personal::look(text, &mut personal);
        if let Some(before) = before {
            personal.people = before;
        }
        for place in personal.places.split_off(from.min(personal.places.len())) {
            let (id, weight) = match (self.scope, place.id) {
                (LeakScope::Proxy, id) => (id, LeakWeight::Block),
                // Data that people send each other every day, but that also opens their accounts.
                (LeakScope::Service, id @ ("pii.card" | "pii.ssn")) => (id, LeakWeight::Flag),
                (LeakScope::Service, id) => (id, LeakWeight::Note),
            };
            self.record_match(LeakMatch { id, ..place }, weight, whole, source);
        }
        self.personal = personal;
    }

    /// Scans what the decoders make of a text, recursively to a fixed depth.
    fn scan_decoded(
        &mut self,
        text: &[u8],
        whole: &[u8],
        source: &mut ViewSource<'_>,
        (depth, room): (usize, &mut usize),
    ) {
        if depth == 0 {
            return;
        }
        let mut views = decoded::of_text(text);
        let mut wrapped_until = 0;
        for (start, end) in bytes::TokenRuns::new(text, 24) {
            if start < wrapped_until {
                continue;
            }
            if let Some((until, joined)) = decoded::wrapped(text, start, end) {
                wrapped_until = until;
                views.extend(decoded::of_token(&joined));
            } else {
                views.extend(decoded::of_token(cut(text, start, end)));
            }
        }
        for (name, view) in views {
            // A view that no longer fits is not scanned: the bound is promised, and documented.
            let Some(left) = room.checked_sub(view.len()) else { continue };
            *room = left;
            let kept = source.view.clone();
            source.view = if kept == "plain" { name.to_owned() } else { format!("{kept}+{name}") };
            self.look(&view, whole, source);
            self.scan_decoded(&view, whole, source, (depth - 1, room));
            source.view = kept;
        }
    }

    /// Searches for split secrets: all parts as one text, with nothing between them.
    fn scan_joined_parts(&mut self, parts: &[OutboundPart<'_>]) {
        let (mut text, mut seams) = (Vec::new(), Vec::new());
        for part in parts.iter().filter(|part| !part.text.is_empty() && !part.name.starts_with(KEY)) {
            let piece = part.text.as_bytes();
            if text.len() + piece.len().min(2 * LABELLED) > JOINED {
                break;
            }
            // Only the ends of a long part can belong to something that was split.
            if piece.len() > 4 * LABELLED {
                text.extend_from_slice(cut(piece, 0, 2 * LABELLED));
                text.push(b'\n');
                text.extend_from_slice(cut(piece, piece.len() - 2 * LABELLED, piece.len()));
            } else {
                text.extend_from_slice(piece);
            }
            seams.push(text.len());
        }
        // Seams are in order, so the first one after a start decides.
        let crosses = |start: usize, end: usize| {
            seams.get(seams.partition_point(|seam| *seam <= start)).is_some_and(|seam| *seam < end)
        };
        let mut places = Vec::new();
        self.scanner.marks.tokens(&text, &mut places, |_, _| {});
        places.retain(|place| crosses(place.start, place.end));
        let (name, whole) = match parts {
            [only] => (&*only.name, only.text.as_bytes()),
            _ => ("(joined)", text.as_slice()),
        };
        let mut source = ViewSource { name, view: "joined".into(), hash: None, addressees: false };
        for place in places {
            self.record_match(place, LeakWeight::Block, whole, &mut source);
        }
        // The vault's secrets are also searched for in pieces, wherever the pieces are.
        let trail = std::mem::take(&mut self.trail);
        let (live, told) = (self.live, std::mem::take(&mut self.told));
        let met = live.look(&text, &mut SeenPieces::default()).into_iter().map(|seen| ("joined", seen));
        let pieced = live.secrets_from_pieces(&trail).map(|seen| ("pieces", seen));
        for (how, seen) in met.chain(pieced).filter(|(_, seen)| !told.contains(&seen.secret)) {
            source.view = format!("{how}/{}/{}", seen.secret, seen.form);
            let place = LeakMatch { id: "vault.live", start: seen.start, end: seen.end };
            self.record_match(place, LeakWeight::Block, whole, &mut source);
        }
    }

    fn record_match(&mut self, place: LeakMatch<'_>, weight: LeakWeight, whole: &[u8], source: &mut ViewSource<'_>) {
        let length = place.end - place.start;
        let known = |finding: &&mut LeakFinding| {
            finding.pattern == place.id && finding.field == source.name && finding.length == length
        };
        if let Some(known) = self.report.findings.iter_mut().find(known) {
            known.weight = known.weight.max(weight);
            return;
        }
        let full = self.report.findings.iter().filter(|finding| finding.weight >= weight).count() >= ENOUGH;
        if full {
            return;
        }
        let hash = source.hash.get_or_insert_with(|| {
            let digest = Sha256::digest(whole);
            digest.iter().take(6).fold(String::new(), |mut text, byte| {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
        });
        self.report.findings.push(LeakFinding {
            pattern: place.id.to_owned(),
            field: source.name.to_owned(),
            view: source.view.clone(),
            length,
            hash: hash.clone(),
            weight,
        });
    }

    fn finish(mut self) -> LeakReport {
        let people = self.personal.people.len();
        self.report.people = people;
        if self.scope == LeakScope::Service && people >= self.scanner.people && self.scanner.people > 0 {
            let finding = LeakFinding {
                pattern: "pii.bulk".into(),
                field: "(joined)".into(),
                view: "plain".into(),
                length: people,
                hash: String::new(),
                weight: LeakWeight::Flag,
            };
            self.report.findings.push(finding);
        }
        // A secret key name appears in the paths of everything below it.
        if self.report.findings.iter().any(|finding| finding.field.starts_with(KEY)) {
            for finding in self.report.findings.iter_mut().filter(|finding| !finding.field.starts_with('(')) {
                "(value)".clone_into(&mut finding.field);
            }
        }
        self.report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        self.report
    }
}

#[cfg(test)]
mod tests;
