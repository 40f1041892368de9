//! The screen between files and agents: content that the person did not write is outside text.
//!
//! Takes the content of a file that an answer is about to show; says whether it may be shown. What lies below a folder
//! that is not `trusted`, and what an agent wrote below a trusted one, passes the intake: six stages in a worker. Promise:
//! what the intake withholds is shown through no capability of this service; what it does not withhold is shown
//! unchanged, byte for byte; what was shown is remembered in the session that saw it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use sluice_core::ids::FindingId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, Timestamp, hex};
use sluice_store::{Store, StoreError};
use tokio::runtime::Handle;

use super::roots::{Place, Scope};
use crate::intake::{Cleaned, Incoming, Intake, Reader, Taken};

/// Content up to this size is screened whole, whatever part of it is shown: nothing is hidden by reading it in pieces.
pub(crate) const WHOLE_SCREENED: usize = 4 << 20;
/// How much around a shown part of a larger file is screened with it.
pub(crate) const AROUND: usize = 64 << 10;
/// What stands before a text that cannot be read as what it looks like.
const PREFACE: &str = "A file:\n";
/// Contents that are known to be clean.
const KNOWN: usize = 4_096;
/// Names that are looked at one by one after something was found in all of them together.
const NAMES: usize = 256;

/// What screens files of all calls.
#[derive(Debug)]
pub(crate) struct Screening {
    intake: Arc<Intake>,
    store: Arc<Store>,
    clean: Mutex<CleanContents>,
}

/// Hashes of contents in which nothing was found, the oldest first.
#[derive(Debug, Default)]
struct CleanContents {
    order: VecDeque<[u8; 32]>,
    known: HashSet<[u8; 32]>,
}

/// The screen of one call.
#[derive(Debug)]
pub(crate) struct Screen<'a> {
    screening: &'a Screening,
    scope: &'a Scope,
    runtime: Handle,
    reader: Reader,
    service: ServiceName,
    at: Timestamp,
}

/// Whose words a content holds, and whether they may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Screened {
    /// The person's own: not looked at.
    Trusted,
    /// Outside text that may be shown.
    Shown {
        /// Whether it looks like an attack, though not enough to be withheld.
        suspect: bool,
    },
    /// Outside text that is kept from agents.
    Withheld(FindingId),
    /// Outside text that no stage could read, with the code of the stage. It is kept from agents, too.
    Unreadable(String),
}

impl Screening {
    /// With this way in, and this memory of who wrote what.
    pub fn new(intake: Arc<Intake>, store: Arc<Store>) -> Self {
        Self { intake, store, clean: Mutex::default() }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The screen of a call of this service. Called where blocking is allowed.
    pub fn of<'a>(
        &'a self,
        scope: &'a Scope,
        (runtime, reader): (Handle, Reader),
        at: Timestamp,
    ) -> Result<Screen<'a>, Refusal> {
        let service = ServiceName::new("filesystem").map_err(|_| Refusal::new(Code::GatewayInternal))?;
        Ok(Screen { screening: self, scope, runtime, reader, service, at })
    }

    fn is_known(&self, hash: &[u8; 32]) -> bool {
        self.clean.lock().unwrap_or_else(PoisonError::into_inner).known.contains(hash)
    }

    fn learn(&self, hash: [u8; 32]) {
        self.clean.lock().unwrap_or_else(PoisonError::into_inner).learn(hash);
    }
}

impl CleanContents {
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

impl Screen<'_> {
    /// Screens the content of a file of which `shown` is about to be shown.
    pub fn file(&self, place: &Place, content: &[u8], shown: &str) -> Result<Screened, Refusal> {
        let Some(author) = self.author(place, content)? else { return Ok(Screened::Trusted) };
        let source = format!("the file {}", place.path);
        let mut all = Screened::Shown { suspect: false };
        let mut from = 0;
        loop {
            let end = content.len().min(from + WHOLE_SCREENED);
            if let Some(text) = readable(content.get(from..end).unwrap_or_default()) {
                match self.text(&source, &author, (&text, shown))? {
                    hidden @ (Screened::Withheld(_) | Screened::Unreadable(_)) => return Ok(hidden),
                    Screened::Shown { suspect: true } => all = Screened::Shown { suspect: true },
                    Screened::Shown { suspect: false } | Screened::Trusted => {}
                }
            }
            if end == content.len() {
                return Ok(all);
            }
            // What stands across two pieces stands whole in one of them.
            from = end - AROUND;
        }
    }

    /// Which of these names below a folder may be shown, in their order.
    pub fn names(&self, place: &Place, names: &[String]) -> Result<Vec<bool>, Refusal> {
        let may_all = vec![true; names.len()];
        if names.is_empty() || self.scope.ground(place)?.trusted {
            return Ok(may_all);
        }
        let source = format!("names below {}", place.path);
        let judge = |words: &str| self.text(&source, "somebody else", (words, words));
        let no = match judge(&names.join("\n"))? {
            Screened::Trusted | Screened::Shown { .. } => return Ok(may_all),
            Screened::Withheld(finding) => kept_back("list of names", finding),
            Screened::Unreadable(code) => unread(&code),
        };
        let mut may = vec![false; names.len()];
        if names.len() <= NAMES {
            for (name, may) in names.iter().zip(&mut may) {
                *may = matches!(judge(name)?, Screened::Shown { .. });
            }
        }
        // What was found only in all of them together is in none of them alone.
        if may.iter().all(|may| *may) { Err(no) } else { Ok(may) }
    }

    /// Who may have written a content that is outside text; nothing if it is the person's own.
    fn author(&self, place: &Place, content: &[u8]) -> Result<Option<String>, Refusal> {
        if !self.scope.ground(place)?.trusted {
            return Ok(Some("somebody else".into()));
        }
        let hash = hex::encode(&Sha256::digest(content));
        let origin = self.runtime.block_on(self.screening.store.file_origin(hash)).map_err(unknown)?;
        Ok(origin.map(|origin| format!("agent {}", origin.agent)))
    }

    pub fn text(&self, source: &str, author: &str, (text, shown): (&str, &str)) -> Result<Screened, Refusal> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        if self.screening.is_known(&hash) {
            let given = serde_json::Value::String(shown.to_owned());
            let noted = self.screening.intake.note(&self.reader, source, &given);
            self.runtime.block_on(noted)?;
            return Ok(Screened::Shown { suspect: false });
        }
        let mut item = Incoming {
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
        if let Taken::Refused { .. } = taken {
            // A text that begins like an archive, or has more members than JSON may: once more, as plain words.
            item.bytes = format!("{PREFACE}{text}").into_bytes();
            taken = self.runtime.block_on(self.screening.intake.take_in(&item))?;
        }
        Ok(match taken {
            Taken::Clean(Cleaned { withheld: Some(finding), .. }) => Screened::Withheld(finding),
            Taken::Clean(cleaned) => {
                let suspect = cleaned.is_suspect();
                if !suspect {
                    self.screening.learn(hash);
                }
                Screened::Shown { suspect }
            }
            Taken::Refused { code } => Screened::Unreadable(code),
        })
    }
}

/// The refusal of a content that could not be screened.
pub(crate) fn unread(code: &str) -> Refusal {
    Refusal::new(Code::ContentUnread).with_text(&format!(
        "the content cannot be screened ({code}), so it is not shown; where the folder holds only the person's own \
         files, an operator can set `trusted: true` for it"
    ))
}

/// The refusal that names a finding.
pub(crate) fn kept_back(what: &str, finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "the {what} looks like an attack on agents; it is kept back as {finding} until a person releases it \
         (sluice findings release {finding})"
    ))
}

/// What of a content somebody could read as text; nothing if it is not text at all.
///
/// SECURITY: a stray byte, a NUL or another encoding must not make text invisible here that an agent can read.
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
    Refusal::new(Code::ContentUnread).because(error)
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
        let mut clean = CleanContents::default();
        let hash = |n: usize| <[u8; 32]>::from(Sha256::digest(n.to_be_bytes()));
        (0..=KNOWN).for_each(|n| clean.learn(hash(n)));
        assert!(!clean.known.contains(&hash(0)) && clean.known.contains(&hash(1)) && clean.known.len() == KNOWN);
        (0..3).for_each(|_| clean.learn(hash(KNOWN)));
        assert_eq!(clean.order.len(), KNOWN);
    }
}
