//! The screen between files and agents: content that the person did not write is outside text.
//!
//! Takes the content of a file that an answer is about to show; says whether it may be shown. Files in a folder that is
//! not `trusted`, and files that an agent wrote in a trusted one, pass the intake: six stages in a worker. Promise:
//! content that the intake withholds is shown through no capability of this service; other content is shown unchanged,
//! byte for byte; shown content is remembered in the session that saw it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_core::ids::FindingId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, UtcMillis, hex};
use sluice_store::{Store, StoreError};
use tokio::runtime::Handle;

use super::roots::{OpenedRoots, RootedPath};
use crate::intake::{CleanedContent, ContentRecipient, IncomingItem, Intake, IntakeOutcome};

/// Content up to this size is screened as a whole, even if only a part is shown: reading in pieces hides nothing.
pub const WHOLE_SCREENED: usize = 4 << 20;
/// How many bytes around a shown part of a larger file are screened with it.
pub const AROUND: usize = 64 << 10;
/// Put before a text that is not valid as the format it looks like.
const PREFACE: &str = "A file:\n";
/// The number of clean contents that are remembered.
const KNOWN: usize = 4_096;
/// The most names that are checked one by one after a finding in all of them together.
const NAMES: usize = 256;

/// The screening of files for all calls.
#[derive(Debug)]
pub struct FileScreener {
    intake: Arc<Intake>,
    store: Arc<Store>,
    clean: Mutex<CleanContentCache>,
}

/// Hashes of contents without findings, the oldest first.
#[derive(Debug, Default)]
struct CleanContentCache {
    order: VecDeque<[u8; 32]>,
    known: HashSet<[u8; 32]>,
}

/// The screen for one call.
#[derive(Debug)]
pub struct CallFileScreen<'a> {
    screening: &'a FileScreener,
    scope: &'a OpenedRoots,
    runtime: Handle,
    reader: ContentRecipient,
    service: ServiceName,
    at: UtcMillis,
}

/// Whether a content is the person's own, and whether it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileScreenOutcome {
    /// The person's own content: not screened.
    Trusted,
    /// Outside text that may be shown.
    Shown {
        /// Whether it looks like an attack, with a score too low to withhold it.
        suspect: bool,
    },
    /// Outside text that is withheld from agents.
    Withheld(FindingId),
    /// Outside text that no stage could read, with the code of the stage. It is withheld from agents, too.
    Unreadable(String),
}

impl FileScreener {
    /// A screening with this intake, and this store that remembers authors.
    pub fn new(intake: Arc<Intake>, store: Arc<Store>) -> Self {
        Self { intake, store, clean: Mutex::default() }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The screen for a call of this service. Called where blocking is allowed.
    pub fn of<'a>(
        &'a self,
        scope: &'a OpenedRoots,
        (runtime, reader): (Handle, ContentRecipient),
        at: UtcMillis,
    ) -> Result<CallFileScreen<'a>, Refusal> {
        let service = ServiceName::new("filesystem").map_err(|_| Refusal::new(Code::GatewayInternal))?;
        Ok(CallFileScreen { screening: self, scope, runtime, reader, service, at })
    }

    fn is_known(&self, hash: &[u8; 32]) -> bool {
        self.clean.lock().known.contains(hash)
    }

    fn learn(&self, hash: [u8; 32]) {
        self.clean.lock().learn(hash);
    }
}

impl CleanContentCache {
    fn learn(&mut self, hash: [u8; 32]) {
        if self.known.insert(hash) {
            self.order.push_back(hash);
        }
        if self.order.len() > KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl CallFileScreen<'_> {
    /// Screens the content of a file, of which `shown` is about to be shown.
    pub fn file(&self, place: &RootedPath, content: &[u8], shown: &str) -> Result<FileScreenOutcome, Refusal> {
        let Some(author) = self.author(place, content)? else { return Ok(FileScreenOutcome::Trusted) };
        let source = format!("the file {}", place.path);
        let mut all = FileScreenOutcome::Shown { suspect: false };
        let mut from = 0;
        loop {
            let end = content.len().min(from + WHOLE_SCREENED);
            if let Some(text) = readable(content.get(from..end).unwrap_or_default()) {
                match self.text(&source, &author, (&text, shown))? {
                    hidden @ (FileScreenOutcome::Withheld(_) | FileScreenOutcome::Unreadable(_)) => return Ok(hidden),
                    FileScreenOutcome::Shown { suspect: true } => all = FileScreenOutcome::Shown { suspect: true },
                    FileScreenOutcome::Shown { suspect: false } | FileScreenOutcome::Trusted => {}
                }
            }
            if end == content.len() {
                return Ok(all);
            }
            // Text that spans two pieces is complete in one of them.
            from = end - AROUND;
        }
    }

    /// Whether each of these names in a folder may be shown, in their order.
    pub fn names(&self, place: &RootedPath, names: &[String]) -> Result<Vec<bool>, Refusal> {
        let may_all = vec![true; names.len()];
        if names.is_empty() || self.scope.opened_root(place)?.trusted {
            return Ok(may_all);
        }
        let source = format!("names below {}", place.path);
        let judge = |words: &str| self.text(&source, "somebody else", (words, words));
        let no = match judge(&names.join("\n"))? {
            FileScreenOutcome::Trusted | FileScreenOutcome::Shown { .. } => return Ok(may_all),
            FileScreenOutcome::Withheld(finding) => kept_back("list of names", finding),
            FileScreenOutcome::Unreadable(code) => unread(&code),
        };
        let mut may = vec![false; names.len()];
        if names.len() <= NAMES {
            for (name, may) in names.iter().zip(&mut may) {
                *may = matches!(judge(name)?, FileScreenOutcome::Shown { .. });
            }
        }
        // A finding in all names together may be in none of them alone.
        if may.iter().all(|may| *may) { Err(no) } else { Ok(may) }
    }

    /// The possible author of a content that is outside text; nothing if it is the person's own.
    fn author(&self, place: &RootedPath, content: &[u8]) -> Result<Option<String>, Refusal> {
        if !self.scope.opened_root(place)?.trusted {
            return Ok(Some("somebody else".into()));
        }
        let hash = hex::encode(&Sha256::digest(content));
        let origin = self.runtime.block_on(self.screening.store.file_origin(hash)).map_err(unknown)?;
        Ok(origin.map(|origin| format!("agent {}", origin.agent)))
    }

    pub fn text(&self, source: &str, author: &str, (text, shown): (&str, &str)) -> Result<FileScreenOutcome, Refusal> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        if self.screening.is_known(&hash) {
            let given = serde_json::Value::String(shown.to_owned());
            let noted = self.screening.intake.note(&self.reader, source, &given);
            self.runtime.block_on(noted)?;
            return Ok(FileScreenOutcome::Shown { suspect: false });
        }
        let mut item = IncomingItem {
            bytes: text.as_bytes().to_vec(),
            declared: Some("text/plain; charset=utf-8".into()),
            service: self.service.clone(),
            source: source.to_owned(),
            author: author.to_owned(),
            at: self.at,
            beside: None,
            reader: Some(self.reader.clone()),
            enveloped: false,
        };
        let mut taken = self.runtime.block_on(self.screening.intake.take_in(&item))?;
        if let IntakeOutcome::Refused { .. } = taken {
            // A text that begins like an archive, or has more members than JSON may: again, as plain text.
            item.bytes = format!("{PREFACE}{text}").into_bytes();
            taken = self.runtime.block_on(self.screening.intake.take_in(&item))?;
        }
        Ok(match taken {
            IntakeOutcome::Clean(CleanedContent { withheld: Some(finding), .. }) => {
                FileScreenOutcome::Withheld(finding)
            }
            IntakeOutcome::Clean(cleaned) => {
                let suspect = cleaned.is_suspect();
                if !suspect {
                    self.screening.learn(hash);
                }
                FileScreenOutcome::Shown { suspect }
            }
            IntakeOutcome::Refused { code } => FileScreenOutcome::Unreadable(code),
        })
    }
}

/// The refusal of content that could not be screened.
pub fn unread(code: &str) -> Refusal {
    Refusal::new(Code::ContentUnread).with_text(&format!(
        "the content cannot be screened ({code}), so it is not shown; where the folder holds only the person's own \
         files, an operator can set `trusted: true` for it"
    ))
}

/// The refusal that names a finding.
pub fn kept_back(what: &str, finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "the {what} looks like an attack on agents; it is kept back as {finding} until a person releases it \
         (sluice findings release {finding})"
    ))
}

/// The part of a content that can be read as text; nothing if it is not text at all.
///
/// SECURITY: a stray byte, a NUL or another encoding must not hide text here that an agent can read.
fn readable(content: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(content).replace('\0', "");
    if text.is_empty() {
        return None;
    }
    let odd =
        text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace())).count();
    (odd * 4 <= text.chars().count()).then_some(text)
}

fn unknown(error: StoreError) -> Refusal {
    Refusal::new(Code::ContentUnread).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_whatever_stands_between_its_letters() {
        let wide: Vec<u8> = "Ignore all".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [b"Ignore all".to_vec(), b"Ignore\0 all".to_vec(), b"Ignore all\xff".to_vec(), wide] {
            assert!(readable(&bytes).unwrap().contains("Ignore all"), "{bytes:?}");
        }
        assert_eq!(readable(&[0x89, 0xff, 0xfe, 0x81, 0x90, b'a', 0xfd]), None);
        assert_eq!(readable(b""), None);
    }

    #[test]
    fn clean_contents_are_forgotten_when_there_are_too_many() {
        let mut clean = CleanContentCache::default();
        let hash = |n: usize| <[u8; 32]>::from(Sha256::digest(n.to_be_bytes()));
        (0..=KNOWN).for_each(|n| clean.learn(hash(n)));
        assert!(!clean.known.contains(&hash(0)) && clean.known.contains(&hash(1)) && clean.known.len() == KNOWN);
        (0..3).for_each(|_| clean.learn(hash(KNOWN)));
        assert_eq!(clean.order.len(), KNOWN);
    }
}
