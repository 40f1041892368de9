//! Intake: the one way for content from outside to become text for an agent.
//!
//! Takes bytes, the type they claim and where they are from; gives clean text and what was found in it, or words of
//! ours where the item is withheld. A locked-in worker reads it (`content.clean`); nothing of the gateway does.
//! Secrets of the vault that somebody reflects are taken out before the worker reads it and again from what it gives,
//! where everything is decoded. Promise: what no worker has read, what a worker did not come back with, and what it reported in an unknown shape is
//! not given to anybody; what is withheld is on record first; what is shown is remembered in its session first.

mod reader;
mod reflected;
mod stub;

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_content::leak::LiveSecrets;
use sluice_core::ids::{FindingId, MessageId, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::Met;
use sluice_core::{AgentName, CallId, Entropy, Ids, ServiceName, Timestamp};
use sluice_store::{Finding, Observation, Store, StoreError};

pub use self::reader::{Notes, Reader};
pub(crate) use self::stub::{break_imitations_in, without_imitations};
use crate::config::Content;
use crate::rooms::leak::Scan;
use crate::services::Work;
use crate::vault::Vault;
use crate::workers::{End, Job, Outcome, Workers};

/// The kind of job that reads it.
const KIND: &str = "content.clean";
/// The score from which an item that is shown nevertheless taints its session, in thousandths.
const SUSPECT: u32 = 500;
/// Longest name of a source or an author.
const NAME: usize = 200;
/// What stands between an item and what came beside it, in what is kept for people.
const BESIDE: &str = "--- beside it ---";

/// Something from outside, as it came.
#[derive(Clone)]
pub struct Incoming {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The media type it claims to have.
    pub declared: Option<String>,
    /// The service it came through.
    pub service: ServiceName,
    /// Where it is from, as the gateway knows it: a host and path, a mailbox and message, a tool.
    pub source: String,
    /// Who wrote it, as far as anyone can tell.
    pub author: String,
    /// When it came.
    pub at: Timestamp,
    /// Text that came along and is shown beside it, such as headers: looked at like the rest, not given back.
    pub beside: Option<String>,
    /// Whom it is for. Nobody yet, if it only goes into a copy.
    pub reader: Option<Reader>,
    /// Whether the text is put into an envelope that says so. Without one, the caller says it around the text.
    pub enveloped: bool,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("service", &self.service).field("bytes", &self.bytes.len()).finish()
    }
}

/// Who reads an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    /// A worker that has read nothing before and reads nothing after.
    Fresh,
    /// The worker that read the item before it, of the same service for the same agent and session.
    Kept,
}

/// Content that passed all six stages.
#[derive(Clone, PartialEq)]
pub struct Cleaned {
    /// The text.
    pub text: String,
    /// The JSON value, if it is one.
    pub value: Option<Value>,
    /// From nought to one: how much it looks like an attack on agents.
    pub score: f32,
    /// How much was found in all.
    pub found: u64,
    /// The heaviest of it.
    pub notes: Vec<Note>,
    /// Set where the item is withheld: then the text is ours and says so.
    pub withheld: Option<FindingId>,
}

impl Cleaned {
    /// Whether a session that is shown it is tainted by it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        thousandths(self.score) >= SUSPECT
    }
}

impl std::fmt::Debug for Cleaned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cleaned").field("bytes", &self.text.len()).field("score", &self.score).finish_non_exhaustive()
    }
}

/// What a stage noticed. Never content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Which stage.
    pub stage: String,
    /// Which rule.
    pub rule: String,
    /// How the text came along.
    pub carrier: String,
    /// Where in the text it begins, in bytes.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// How much it weighs, from nought to one.
    pub score: f32,
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// It passed all six stages. It may still be withheld.
    Clean(Cleaned),
    /// A stage did not let it through: binary, too large, packed too well.
    Refused {
        /// The stage's code.
        code: String,
    },
}

/// Reads what comes in.
pub trait Cleaner: Send + Sync {
    /// Reads one item through all six stages.
    fn clean<'a>(&'a self, item: &'a Incoming, seal: [u8; 32]) -> Work<'a, Result<Taken, Refusal>>;
}

/// What an intake works with.
pub struct Ground {
    /// Read what comes.
    pub workers: Arc<Workers>,
    /// Remembers what was withheld and shown.
    pub store: Arc<Store>,
    /// Seals what is withheld.
    pub vault: Arc<Vault>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// From which score on something is withheld.
    pub settings: Content,
    /// Knows the secrets of the vault, none of which may come in.
    pub scan: Arc<dyn Scan>,
}

/// The way in of one gateway.
pub struct Intake {
    ground: Ground,
    instead: OnceLock<Arc<dyn Cleaner>>,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("ground", &self.ground).finish_non_exhaustive()
    }
}

/// The session of an agent's calls that name none: what they were shown must not be forgotten either.
#[must_use]
pub fn nameless(agent: &AgentName) -> SessionId {
    let hash: [u8; 32] =
        Sha256::new_with_prefix(b"sluice nameless session 1\0").chain_update(agent.as_str()).finalize().into();
    hash.first_chunk::<16>().map_or(SessionId::from_bits(0), |first| SessionId::from_bits(u128::from_be_bytes(*first)))
}

impl Intake {
    /// On this ground.
    #[must_use]
    pub fn new(ground: Ground) -> Self {
        Self { ground, instead: OnceLock::new() }
    }

    /// Has something else than workers read what comes in: for programs that have no worker to start.
    pub fn read_by(&self, cleaner: Arc<dyn Cleaner>) {
        let _the_first_one_stays = self.instead.set(cleaner);
    }

    /// The secrets that nothing which comes in may hold.
    #[must_use]
    pub fn secrets(&self) -> Arc<LiveSecrets> {
        self.ground.scan.live()
    }

    /// Takes in one item. One that is withheld comes back as words of ours.
    ///
    /// # Errors
    /// When nobody could read it, or what became of it could not be recorded.
    pub async fn take_in(&self, item: &Incoming) -> Result<Taken, Refusal> {
        self.take_in_by(item, ReadBy::Fresh).await
    }

    /// Takes in one item, read by whom the caller says.
    ///
    /// # Errors
    /// When nobody could read it, or what became of it could not be recorded.
    pub async fn take_in_by(&self, item: &Incoming, by: ReadBy) -> Result<Taken, Refusal> {
        let secrets = self.secrets();
        let item = &*reflected::without_secrets(item, &secrets);
        let mut seal = [0; 32];
        self.ground.entropy.fill(&mut seal);
        let workers = &self.ground.workers;
        let taken = match (self.instead.get(), conversation(item).filter(|_| by == ReadBy::Kept)) {
            (Some(cleaner), _) => cleaner.clean(item, seal).await?,
            (None, None) => workers.clean(item, seal).await?,
            // What a kept one did not come back with is nobody's fault yet: a fresh one says.
            (None, Some(whose)) => match kept(workers, item, seal, &whose).await? {
                Some(taken) => taken,
                None => workers.clean(item, seal).await?,
            },
        };
        let mut cleaned = match taken {
            Taken::Clean(cleaned) => cleaned,
            refused @ Taken::Refused { .. } => return Ok(refused),
        };
        reflected::scrub(&mut cleaned, &secrets);
        stub::break_imitations(&mut cleaned);
        let score = thousandths(cleaned.score);
        let threshold = self.ground.settings.threshold_of(&item.service);
        let session = match &item.reader {
            Some(reader) => Some(self.session_of(reader).await?),
            None => None,
        };
        // A detector that is switched off has no say at all, here or about the session.
        match threshold {
            Some(threshold) if score >= threshold => {
                if let Some(id) = self.kept_from(item, &cleaned, session, threshold).await? {
                    return Ok(Taken::Clean(stub::instead_of(id, item, cleaned)));
                }
            }
            Some(_) if score >= SUSPECT => {
                if let Some(session) = session {
                    let code = "content.suspect".to_owned();
                    self.ground.store.taint_session(session, code).await.map_err(refusal)?;
                }
            }
            Some(_) | None => {}
        }
        if let (Some(session), Some(reader)) = (session, &item.reader) {
            let source = format!("{}: {}", item.service, cut(&item.source));
            self.observe(session, reader, source, &shown(item, &cleaned)).await?;
        }
        Ok(Taken::Clean(cleaned))
    }

    /// An agent asks for an item of a copy in which it is withheld. Gives the finding under which it is kept; nothing
    /// if a person has released it, or its service's items are not withheld any more.
    ///
    /// # Errors
    /// When what became of it could not be recorded.
    pub async fn asked_for(&self, item: &Incoming, copied: &Cleaned) -> Result<Option<FindingId>, Refusal> {
        let Some(threshold) = self.ground.settings.threshold_of(&item.service) else { return Ok(None) };
        let session = match &item.reader {
            Some(reader) => Some(self.session_of(reader).await?),
            None => None,
        };
        self.kept_from(item, copied, session, threshold).await
    }

    /// Whether a person has released an item, or its service's items are not withheld any more.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub async fn is_released(&self, item: &Incoming) -> Result<bool, Refusal> {
        if self.ground.settings.threshold_of(&item.service).is_none() {
            return Ok(true);
        }
        let (service, hash) = (item.service.clone(), hash_of(item));
        Ok(self.ground.store.released_like(service, hash, item.at).await.map_err(refusal)?.is_some())
    }

    /// Whether a service's item of this score, in thousandths, is withheld.
    #[must_use]
    pub fn withholds(&self, service: &ServiceName, score: u32) -> bool {
        self.ground.settings.threshold_of(service).is_some_and(|threshold| score >= threshold)
    }

    /// Keeps an item from its reader unless a person has released it. Asking for it again finds the same finding.
    async fn kept_from(
        &self,
        item: &Incoming,
        cleaned: &Cleaned,
        session: Option<SessionId>,
        threshold: u32,
    ) -> Result<Option<FindingId>, Refusal> {
        let (store, hash) = (&self.ground.store, hash_of(item));
        if store.released_like(item.service.clone(), hash, item.at).await.map_err(refusal)?.is_some() {
            return Ok(None);
        }
        if let Some(session) = session {
            let open = store.withheld_like(item.service.clone(), hash, session, item.at).await.map_err(refusal)?;
            if let Some(finding) = open {
                return Ok(Some(finding.id));
            }
        }
        let (id, score) = (FindingId::mint(self.ground.ids.as_ref()), thousandths(cleaned.score));
        self.keep(item, cleaned, Kept { id, session, threshold, score, hash }).await?;
        Ok(Some(id))
    }

    /// Notes what an agent is about to be given by a service that has cleaned it already: a copy of a mailbox, a proxy.
    ///
    /// # Errors
    /// When it cannot be recorded: then it must not be given.
    pub async fn note(&self, reader: &Reader, source: &str, given: &Value) -> Result<(), Refusal> {
        let mut text = String::new();
        leaves(given, &mut text);
        if text.is_empty() {
            return Ok(());
        }
        let session = self.session_of(reader).await?;
        self.observe(session, reader, cut(source), &text).await
    }

    async fn observe(&self, session: SessionId, reader: &Reader, source: String, text: &str) -> Result<(), Refusal> {
        let met = Met::of(text, session.bits());
        let id = CallId::mint(self.ground.ids.as_ref());
        let observation = Observation { session, id, call: Some(reader.call), source, met };
        match &reader.notes {
            Some(notes) => {
                notes.put(observation);
                Ok(())
            }
            None => self.ground.store.observe(observation).await.map_err(refusal),
        }
    }

    /// The session that is about to see an item, made where its calls name none.
    async fn session_of(&self, reader: &Reader) -> Result<SessionId, Refusal> {
        if let Some(session) = reader.session {
            return Ok(session);
        }
        let (id, store) = (nameless(&reader.agent), &self.ground.store);
        if store.session(id).await.map_err(refusal)?.is_none() {
            let opened = store.open_session(id, reader.agent.clone(), None, None).await;
            // Another call of the same agent may have been faster.
            if opened.is_err() && store.session(id).await.map_err(refusal)?.is_none() {
                return Err(Refusal::new(Code::ContentUnread));
            }
        }
        Ok(id)
    }

    async fn keep(&self, item: &Incoming, cleaned: &Cleaned, kept: Kept) -> Result<(), Refusal> {
        let Kept { id, session, threshold, score, hash } = kept;
        // All of it: what stood beside the item may be what was found.
        let text = match item.beside.as_deref().filter(|beside| !beside.is_empty()) {
            Some(beside) => format!("{}\n\n{BESIDE}\n{beside}", cleaned.text),
            None => cleaned.text.clone(),
        };
        let content = self.ground.vault.lock_away(id, text.as_bytes()).map_err(|error| error.refusal())?;
        let finding = Finding {
            id,
            found_at: item.at,
            service: item.service.clone(),
            source: cut(&item.source),
            author: cut(&item.author),
            agent: item.reader.as_ref().map(|reader| reader.agent.clone()),
            session,
            call: item.reader.as_ref().map(|reader| reader.call),
            score,
            threshold,
            notes: serde_json::to_string(&cleaned.notes).unwrap_or_else(|_| "[]".into()),
            bytes: item.bytes.len() as u64,
            hash,
            content,
            released: None,
            until: item.at + self.ground.settings.keep,
        };
        let message = MessageId::mint(self.ground.ids.as_ref());
        self.ground.store.withhold(finding, message).await.map_err(refusal)
    }
}

/// What an item is kept as.
struct Kept {
    id: FindingId,
    session: Option<SessionId>,
    threshold: u32,
    score: u32,
    hash: [u8; 32],
}

/// Everything an agent is about to be shown.
fn shown(item: &Incoming, cleaned: &Cleaned) -> String {
    let value = cleaned.value.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("{}\n{}\n{value}", cleaned.text, item.beside.as_deref().unwrap_or_default())
}

/// Every text in a value, on a line of its own.
fn leaves(value: &Value, text: &mut String) {
    match value {
        Value::String(words) => {
            text.push_str(words);
            text.push('\n');
        }
        Value::Number(number) => {
            text.push_str(&number.to_string());
            text.push('\n');
        }
        Value::Array(list) => list.iter().for_each(|item| leaves(item, text)),
        Value::Object(map) => map.values().for_each(|item| leaves(item, text)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn cut(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME).collect()
}

/// A score in thousandths. Rounded up: what touches the threshold has reached it.
fn thousandths(score: f32) -> u32 {
    // Between 0 and 1000.
    (score.clamp(0.0, 1.0) * 1000.0).ceil() as u32
}

/// Of the item as it came, so that the same item is known again.
fn hash_of(item: &Incoming) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"sluice item 1\0");
    hash.update((item.bytes.len() as u64).to_be_bytes());
    hash.update(&item.bytes);
    for line in item.beside.as_deref().unwrap_or_default().lines().filter(|line| !is_fleeting(line)) {
        hash.update(line);
        hash.update(b"\n");
    }
    hash.finalize().into()
}

/// Headers that differ each time, and by which an item is not another one; but only where they hold nothing but a time, a number
/// or an id, so that no released item lends its name to words.
fn is_fleeting(line: &str) -> bool {
    const TIMES: [&str; 4] = ["date", "age", "expires", "last-modified"];
    const IDS: [&str; 7] =
        ["etag", "x-request-id", "request-id", "x-amzn-requestid", "x-trace-id", "x-correlation-id", "cf-ray"];
    let Some((name, value)) = line.split_once(": ") else { return false };
    let name = name.to_ascii_lowercase();
    let time = || {
        let letters = value.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        value.len() <= 32
            && value.is_ascii()
            && letters.clone().count() <= 3
            && letters.clone().all(|word| word.len() <= 3)
    };
    let id = || {
        value.len() <= 72
            && value.trim_start_matches("W/").bytes().all(|b| b.is_ascii_hexdigit() || b"\"-".contains(&b))
    };
    (TIMES.contains(&name.as_str()) && time()) || (IDS.contains(&name.as_str()) && id())
}

fn refusal(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::ContentUnread)).because(error)
}

/// What a worker reports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    score: f32,
    found: u64,
    findings: Vec<Note>,
    json: bool,
}

/// Whose an item is: what of another conversation must not meet it. Nothing if it is for nobody.
fn conversation(item: &Incoming) -> Option<String> {
    let Reader { agent, session, .. } = item.reader.as_ref()?;
    let session = session.map(|session| session.to_string()).unwrap_or_default();
    Some(format!("{} {agent} {session}", item.service))
}

/// What a worker is told about an item.
fn task(item: &Incoming, seal: [u8; 32]) -> Value {
    let envelope = item.enveloped.then(|| {
        json!({
            "source": item.source, "author": item.author, "time": item.at.to_string(),
            "seal": sluice_core::hex::encode(&seal),
        })
    });
    json!({"declared": item.declared, "beside": item.beside, "envelope": envelope})
}

fn unread(why: &str) -> Refusal {
    Refusal::new(Code::ContentUnread).with_text(why)
}

/// What the reader of a conversation makes of an item; nothing if it broke.
async fn kept(workers: &Workers, item: &Incoming, seal: [u8; 32], whose: &str) -> Result<Option<Taken>, Refusal> {
    let read = workers.read_kept(whose, task(item, seal), item.bytes.clone()).await;
    let read = read.map_err(|error| unread("no worker could read the item in time").because(error))?;
    let Some((said, attachments)) = read else { return Ok(None) };
    heard(said, attachments).map(Some).ok_or_else(|| unread("the worker reported nonsense"))
}

impl Cleaner for Workers {
    fn clean<'a>(&'a self, item: &'a Incoming, seal: [u8; 32]) -> Work<'a, Result<Taken, Refusal>> {
        Box::pin(async move {
            let job = Job { kind: KIND.into(), payload: task(item, seal), attachments: vec![item.bytes.clone()] };
            match self.read(job).await {
                Err(error) => Err(unread("no worker could be started to read the item").because(error)),
                Ok(End::CutOff { .. }) => Err(unread("the item took too long to read")),
                Ok(End::Crashed(_)) => Err(unread("the worker that read the item broke")),
                Ok(End::Clean(done)) => match done.report.outcome {
                    Outcome::Done(said) => {
                        heard(said, done.report.attachments).ok_or_else(|| unread("the worker reported nonsense"))
                    }
                    Outcome::Failed { .. } => Err(unread("the worker could not read the item")),
                },
            }
        })
    }
}

/// A report as what it says, or nothing if it has not the shape of one.
fn heard(said: Value, attachments: Vec<Vec<u8>>) -> Option<Taken> {
    if let Some(code) = said.get("refused") {
        return Some(Taken::Refused { code: code.as_str()?.chars().take(64).collect() });
    }
    let said: Said = serde_json::from_value(said).ok()?;
    let mut attachments = attachments.into_iter();
    let text = String::from_utf8(attachments.next()?).ok()?;
    let value = match (said.json, attachments.next()) {
        (true, Some(bytes)) => Some(serde_json::from_slice(&bytes).ok()?),
        (false, None) => None,
        (true, None) | (false, Some(_)) => return None,
    };
    // What is no number at all must not pass for a small one.
    let score = if (0.0..=1.0).contains(&said.score) { said.score } else { return None };
    Some(Taken::Clean(Cleaned { text, value, score, found: said.found, notes: said.findings, withheld: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(score: f64) -> Value {
        let note = json!({"stage": "injection", "rule": "r", "carrier": "plain", "start": 1, "end": 2, "score": 0.5});
        json!({"score": score, "found": 1, "findings": [note], "json": false})
    }

    #[test]
    fn a_report_of_another_shape_gives_nothing() {
        assert!(heard(said(0.4), vec![b"text".to_vec()]).is_some());
        for (said, attachments) in [
            (said(0.4), vec![]),
            (said(0.4), vec![vec![0xff]]),
            (said(0.4), vec![b"a".to_vec(), b"{}".to_vec()]),
            (said(1.5), vec![b"a".to_vec()]),
            (said(-0.1), vec![b"a".to_vec()]),
            (json!({"score": null}), vec![b"a".to_vec()]),
            (json!({"refused": 5}), vec![]),
            (Value::Null, vec![b"a".to_vec()]),
        ] {
            assert_eq!(heard(said.clone(), attachments), None, "{said}");
        }
    }

    #[test]
    fn a_score_that_touches_the_threshold_has_reached_it() {
        assert_eq!([0.0, 0.4999, 0.5, 0.50001, 1.0, 7.0].map(thousandths), [0, 500, 500, 501, 1000, 1000]);
    }
}
