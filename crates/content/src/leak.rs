//! Leak scan: what must not leave (stage 6b).
//!
//! Takes the named parts of something that is about to go out; gives findings: the id of what matched, where,
//! how long it is and a hash of the part it stands in. Promise: no finding holds content, any blocking finding
//! blocks the whole, nothing is cut out, and the work is bounded by the length of the text.

mod bytes;
mod context;
mod doubt;
mod fold;
mod formats;
mod json;
mod live;
mod login;
mod marks;
mod own;
mod personal;
mod pieces;
mod scrub;
mod spoken;
mod sums;
mod views;

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub use json::parts_of;
pub use live::{LiveSecrets, SHORT, TOO_SHORT, TooMany};
pub use own::{BadPattern, check_pattern};
pub use scrub::REMOVED;

use bytes::cut;
use marks::{Marks, Place};
use own::Own;
use personal::Personal;
use pieces::Trail;

/// How many decoders may lie on top of each other.
const DEPTH: usize = 3;
/// All views of one part together: at least this much, and at most four times the part.
const ROOM: usize = 64 << 10;
/// What is joined across parts, at most.
const JOINED: usize = 256 << 10;
/// A text this short is read together with the key it stands under.
const LABELLED: usize = 256;
/// How a part is named that is the name of a key.
const KEY: &str = "(key ";
/// More findings than this say nothing new.
const ENOUGH: usize = 32;

/// What the operator adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Identifiers of the owner: names, addresses, numbers. Block everywhere.
    pub own: Vec<String>,
    /// Terms and paths that belong inside. Block everywhere.
    pub terms: Vec<String>,
    /// Patterns by id, in linear-time regex. Block everywhere.
    pub patterns: Vec<(String, String)>,
    /// How many distinct people in one message are many.
    pub people: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { own: Vec::new(), terms: Vec::new(), patterns: Vec::new(), people: 20 }
    }
}

/// Where the text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// To a service that is not trusted: any personal data blocks, as written in the seed.
    Proxy,
    /// To connected mail or chat: personal data of many people asks a person, that of few passes.
    #[default]
    Service,
}

/// What a finding does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Seen, and nothing more.
    Note,
    /// A person is asked.
    Flag,
    /// Nothing leaves.
    Block,
}

impl Weight {
    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Flag => "flag",
            Self::Block => "block",
        }
    }
}

/// One named part of what goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    name: Cow<'a, str>,
    text: Cow<'a, str>,
    /// The key it stands under, where that says what it is.
    key: Option<&'a str>,
}

impl<'a> Part<'a> {
    /// A part by its name.
    pub fn new(name: impl Into<Cow<'a, str>>, text: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into(), text: text.into(), key: None }
    }

    /// A part that stands under a key.
    #[must_use]
    pub fn under(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Whether it has this name and is this text and nothing else.
    #[must_use]
    pub fn is(&self, name: &str, text: &str) -> bool {
        self.name == name && self.text == text
    }

    /// Whether it names those a message goes to, who are no personal data in it.
    fn names_addressees(&self) -> bool {
        let top = self.name.split(['.', '[']).next().unwrap_or_default();
        ["to", "cc", "bcc", "from", "recipients", "attendees", "reply_to", "participants"].contains(&top)
    }
}

/// Something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Id of what matched.
    pub pattern: String,
    /// The part it stands in.
    pub field: String,
    /// How it was dressed: `plain`, or the decoders in order.
    pub view: String,
    /// Length of the match in bytes.
    pub length: usize,
    /// First twelve digits of the SHA-256 of the whole part.
    pub hash: String,
    /// What it does.
    pub weight: Weight,
}

/// What a scan came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What was found, the weightiest first.
    pub findings: Vec<Finding>,
    /// How many distinct people are in it.
    pub people: usize,
}

impl Report {
    /// The weight of the whole: that of its weightiest finding.
    #[must_use]
    pub fn weight(&self) -> Option<Weight> {
        self.findings.iter().map(|finding| finding.weight).max()
    }

    /// Whether nothing may leave.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.weight() == Some(Weight::Block)
    }

    /// Whether a person is to be asked.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.weight() == Some(Weight::Flag)
    }
}

/// Knows what must not leave. Made once.
#[derive(Debug)]
pub struct Scanner {
    marks: Marks,
    own: Own,
    people: usize,
}

/// Why there is no scanner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoScanner {
    /// A pattern of the operator cannot be used.
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    /// A mistake of ours.
    #[error("the table of formats is broken")]
    Formats,
}

impl Scanner {
    /// Prepares a scanner.
    ///
    /// # Errors
    /// When a pattern of the operator cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, NoScanner> {
        let own = Own::new(settings)?;
        let marks = Marks::new().ok_or(NoScanner::Formats)?;
        Ok(Self { marks, own, people: settings.people })
    }

    /// Scans everything that would leave together.
    #[must_use]
    pub fn scan(&self, parts: &[Part<'_>], scope: Scope, live: &LiveSecrets) -> Report {
        let mut walk = Walk {
            scanner: self,
            scope,
            live,
            personal: Personal::default(),
            report: Report::default(),
            trail: live.trail(),
            told: Vec::new(),
        };
        for part in parts {
            walk.part(part);
        }
        walk.joined(parts);
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
        spoken::PASSCODE => "passcode of a meeting",
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

/// How many formats there are, and how many vendors are known by name only.
#[must_use]
pub fn known() -> (usize, usize) {
    (formats::all().count(), formats::VENDORS.len())
}

/// One scan on its way.
struct Walk<'a> {
    scanner: &'a Scanner,
    scope: Scope,
    live: &'a LiveSecrets,
    personal: Personal,
    report: Report,
    /// Pieces of secrets that were seen.
    trail: Trail,
    /// Secrets that were found already.
    told: Vec<&'a str>,
}

/// Where something was found already, in order, each with the farthest end so far.
struct Taken(Vec<(usize, usize)>);

impl Taken {
    fn of(places: &[Place<'_>]) -> Self {
        let mut spans: Vec<(usize, usize)> = places.iter().map(|place| (place.start, place.end)).collect();
        spans.sort_unstable();
        let mut farthest = 0;
        for (_, end) in &mut spans {
            farthest = farthest.max(*end);
            *end = farthest;
        }
        Self(spans)
    }

    /// Whether one of them shares a byte with this.
    fn touches(&self, start: usize, end: usize) -> bool {
        let before = self.0.partition_point(|(from, _)| *from < end);
        before.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|(_, until)| start < *until)
    }
}

/// What a text is a view of.
struct Source<'a> {
    name: &'a str,
    view: String,
    hash: Option<String>,
    addressees: bool,
}

impl<'a> Walk<'a> {
    fn part(&mut self, part: &Part<'_>) {
        let text = part.text.as_bytes();
        let mut source =
            Source { name: &part.name, view: "plain".into(), hash: None, addressees: part.names_addressees() };
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
        self.views(text, text, &mut source, (DEPTH, &mut room));
    }

    /// Looks at one text. `whole` is what the hash is taken of.
    fn look(&mut self, text: &[u8], whole: &[u8], source: &mut Source<'_>) {
        let kept = source.view.clone();
        for seen in self.live.look(text, &mut self.trail) {
            self.told.push(seen.secret);
            source.view = format!("{}/{}", seen.secret, seen.form);
            let place = Place { id: "vault.live", start: seen.start, end: seen.end };
            self.found(place, Weight::Block, whole, source);
        }
        source.view = kept;
        for place in self.scanner.own.look(text) {
            self.found(place, Weight::Block, whole, source);
        }
        let mut places = Vec::new();
        let mut judged = Vec::new();
        self.scanner.marks.tokens(text, &mut places, |start, end| judged.extend(context::judge(text, start, end)));
        let (logins, addresses) = self.scanner.marks.words(text, &mut places);
        places.extend(logins.into_iter().filter_map(|end| login::password(text, end)));
        places.extend(addresses.into_iter().filter_map(|at| login::address(text, at)));
        // A value that a format knows needs no guess from its context.
        let taken = Taken::of(&places);
        judged.retain(|guess: &Place<'_>| !taken.touches(guess.start, guess.end));
        places.append(&mut judged);
        for place in places {
            let weight = match (self.scope, place.id) {
                // What an invitation or a link to a file is made of: whom it is meant for, a person knows.
                (Scope::Service, spoken::PASSCODE | "aws.presigned") => Weight::Flag,
                _ => Weight::Block,
            };
            self.found(place, weight, whole, source);
        }
        let from = self.personal.places.len();
        let mut personal = std::mem::take(&mut self.personal);
        // Those it goes to are counted apart and forgotten. Set aside, not copied: there may be as many of them as people.
        let before = source.addressees.then(|| std::mem::take(&mut personal.people));
        personal::look(text, &mut personal);
        if let Some(before) = before {
            personal.people = before;
        }
        for place in personal.places.split_off(from.min(personal.places.len())) {
            let (id, weight) = match (self.scope, place.id) {
                (Scope::Proxy, id) => (id, Weight::Block),
                // What people send each other all day, and what opens their accounts.
                (Scope::Service, id @ ("pii.card" | "pii.ssn")) => (id, Weight::Flag),
                (Scope::Service, id) => (id, Weight::Note),
            };
            self.found(Place { id, ..place }, weight, whole, source);
        }
        self.personal = personal;
    }

    /// Looks at what decoders make of a text, and of that, to a fixed depth.
    fn views(&mut self, text: &[u8], whole: &[u8], source: &mut Source<'_>, (depth, room): (usize, &mut usize)) {
        if depth == 0 {
            return;
        }
        let mut views = views::of_text(text);
        let mut wrapped_until = 0;
        for (start, end) in bytes::Runs::new(text, 24) {
            if start < wrapped_until {
                continue;
            }
            if let Some((until, joined)) = views::wrapped(text, start, end) {
                wrapped_until = until;
                views.extend(views::of_token(&joined));
            } else {
                views.extend(views::of_token(cut(text, start, end)));
            }
        }
        for (name, view) in views {
            // What does not fit any more is not looked at: the bound is the promise, and said in the manual.
            let Some(left) = room.checked_sub(view.len()) else { continue };
            *room = left;
            let kept = source.view.clone();
            source.view = if kept == "plain" { name.to_owned() } else { format!("{kept}+{name}") };
            self.look(&view, whole, source);
            self.views(&view, whole, source, (depth - 1, room));
            source.view = kept;
        }
    }

    /// Looks for what was split: all parts as one text, without anything between them.
    fn joined(&mut self, parts: &[Part<'_>]) {
        let (mut text, mut seams) = (Vec::new(), Vec::new());
        for part in parts.iter().filter(|part| !part.text.is_empty() && !part.name.starts_with(KEY)) {
            let piece = part.text.as_bytes();
            if text.len() + piece.len().min(2 * LABELLED) > JOINED {
                break;
            }
            // Of a long part only its ends can belong to something that was split.
            if piece.len() > 4 * LABELLED {
                text.extend_from_slice(cut(piece, 0, 2 * LABELLED));
                text.push(b'\n');
                text.extend_from_slice(cut(piece, piece.len() - 2 * LABELLED, piece.len()));
            } else {
                text.extend_from_slice(piece);
            }
            seams.push(text.len());
        }
        // Seams are in order, so that the first one behind a start decides.
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
        let mut source = Source { name, view: "joined".into(), hash: None, addressees: false };
        for place in places {
            self.found(place, Weight::Block, whole, &mut source);
        }
        // The vault's secrets are also looked for in pieces, wherever those stand.
        let trail = std::mem::take(&mut self.trail);
        let (live, told) = (self.live, std::mem::take(&mut self.told));
        let met = live.look(&text, &mut Trail::default()).into_iter().map(|seen| ("joined", seen));
        let pieced = live.pieced(&trail).map(|seen| ("pieces", seen));
        for (how, seen) in met.chain(pieced).filter(|(_, seen)| !told.contains(&seen.secret)) {
            source.view = format!("{how}/{}/{}", seen.secret, seen.form);
            let place = Place { id: "vault.live", start: seen.start, end: seen.end };
            self.found(place, Weight::Block, whole, &mut source);
        }
    }

    fn found(&mut self, place: Place<'_>, weight: Weight, whole: &[u8], source: &mut Source<'_>) {
        let length = place.end - place.start;
        let known = |finding: &&mut Finding| {
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
                // Writing into a String cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
        });
        self.report.findings.push(Finding {
            pattern: place.id.to_owned(),
            field: source.name.to_owned(),
            view: source.view.clone(),
            length,
            hash: hash.clone(),
            weight,
        });
    }

    fn finish(mut self) -> Report {
        let people = self.personal.people.len();
        self.report.people = people;
        if self.scope == Scope::Service && people >= self.scanner.people && self.scanner.people > 0 {
            let finding = Finding {
                pattern: "pii.bulk".into(),
                field: "(joined)".into(),
                view: "plain".into(),
                length: people,
                hash: String::new(),
                weight: Weight::Flag,
            };
            self.report.findings.push(finding);
        }
        // A key that must not be told stands in the paths of what lies below it.
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
