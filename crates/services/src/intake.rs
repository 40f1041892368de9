//! Intake: the only way for content from outside to become text for an agent.
//!
//! Takes bytes, the media type they claim and their source; gives clean text with findings, or the gateway's own text
//! if the item is withheld. A locked-in worker reads the item (`content.clean`); the gateway itself never parses it.
//! Vault secrets that a service reflects are removed before the worker reads the item, and again from its decoded
//! result. Promise: an item that no worker has read, that a worker did not finish, or whose report has an unknown form
//! is given to nobody; a withheld item is recorded first; a shown item is remembered in its session first.

mod reader;
mod reflected;
mod stub;

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_content::leak::LiveSecrets;
use sluice_core::ids::{FindingId, MessageId, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::TextValueHashes;
use sluice_core::{AgentName, CallId, Entropy, Ids, ServiceName, UtcMillis};
pub use sluice_protocol::ContentStageNote;
use sluice_protocol::{ContentCleanFacts, ContentCleanReport, ContentCleanTask, ContentProvenance};
use sluice_store::{SessionObservation, Store, StoreError, WithheldFinding};

pub use self::reader::{ContentRecipient, PendingObservations};
pub use self::stub::{break_imitations_in, without_imitations};
use crate::workers::{GatewayWorkers, WorkerEnd, WorkerJob, WorkerJobOutcome};
use sluice_config::Content;
use sluice_core::BoxedFuture;
use sluice_egress::leak::LeakScanner;
use sluice_egress::vault::Vault;

/// The score from which an item that is still shown taints its session, in thousandths.
const SUSPECT: u32 = 500;
/// The longest name of a source or an author.
const NAME: usize = 200;
/// From this length on, the values of a text are found on a thread of their own.
const LONG_TEXT: usize = 16 << 10;
/// The separator between an item and the text that came with it, in what is kept for people.
const BESIDE: &str = "--- beside it ---";

/// An item from outside, as it arrived.
#[derive(Clone)]
pub struct IncomingItem {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The media type it claims.
    pub declared: Option<String>,
    /// The service it came through.
    pub service: ServiceName,
    /// The source, as the gateway knows it: a host and path, a mailbox and message, a tool.
    pub source: String,
    /// The author, as far as known.
    pub author: String,
    /// When it arrived.
    pub at: UtcMillis,
    /// Text that came with the item and is shown next to it, such as headers: checked like the rest, not returned.
    pub beside: Option<String>,
    /// The reader. None if the item only goes into a replica.
    pub reader: Option<ContentRecipient>,
    /// Whether the text is put into an envelope that marks it as outside text. Without one, the caller marks it.
    pub enveloped: bool,
}

impl std::fmt::Debug for IncomingItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("service", &self.service).field("bytes", &self.bytes.len()).finish()
    }
}

/// The worker that reads an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderChoice {
    /// A worker that reads only this item.
    Fresh,
    /// The worker that read the previous item, of the same service for the same agent and session.
    Kept,
}

/// Content that passed all six stages.
#[derive(Clone, PartialEq)]
pub struct CleanedContent {
    /// The clean text.
    pub text: String,
    /// The JSON value, if the item is JSON.
    pub value: Option<Value>,
    /// How much it looks like an attack on agents, from 0 to 1.
    pub score: f32,
    /// The total number of findings.
    pub found: u64,
    /// The findings with the highest scores.
    pub notes: Vec<ContentStageNote>,
    /// The finding, if the item is withheld: then the text is the gateway's own and says so.
    pub withheld: Option<FindingId>,
}

impl CleanedContent {
    /// Whether a session that is shown the item becomes tainted.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        thousandths(self.score) >= SUSPECT
    }
}

impl std::fmt::Debug for CleanedContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cleaned").field("bytes", &self.text.len()).field("score", &self.score).finish_non_exhaustive()
    }
}

/// The result for an item.
#[derive(Debug, Clone, PartialEq)]
pub enum IntakeOutcome {
    /// The item passed all six stages. It may still be withheld.
    Clean(CleanedContent),
    /// A stage refused the item: binary, too large, or compressed too far.
    Refused {
        /// The stage's code.
        code: String,
    },
}

/// Reads incoming items.
pub trait ContentCleaner: Send + Sync {
    /// Reads one item through all six stages.
    fn clean<'a>(&'a self, item: &'a IncomingItem, seal: [u8; 32]) -> BoxedFuture<'a, Result<IntakeOutcome, Refusal>>;
}

/// The parts that an intake works with.
pub struct IntakeDeps {
    /// The workers that read items.
    pub workers: Arc<GatewayWorkers>,
    /// The store, which remembers what was withheld and shown.
    pub store: Arc<Store>,
    /// The vault, which seals withheld items.
    pub vault: Arc<Vault>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The settings, with the scores from which items are withheld.
    pub settings: Content,
    /// The leak scan, which knows the secrets that must not come in.
    pub scan: Arc<dyn LeakScanner>,
}

/// The intake of one gateway.
pub struct Intake {
    deps: IntakeDeps,
    instead: OnceLock<Arc<dyn ContentCleaner>>,
}

impl std::fmt::Debug for IntakeDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("ground", &self.deps).finish_non_exhaustive()
    }
}

/// The session for an agent's calls that name none: what these calls were shown must be remembered too.
#[must_use]
pub fn default_session_id(agent: &AgentName) -> SessionId {
    let hash: [u8; 32] =
        Sha256::new_with_prefix(b"sluice nameless session 1\0").chain_update(agent.as_str()).finalize().into();
    hash.first_chunk::<16>().map_or(SessionId::from_bits(0), |first| SessionId::from_bits(u128::from_be_bytes(*first)))
}

impl Intake {
    /// An intake with these parts.
    #[must_use]
    pub fn new(deps: IntakeDeps) -> Self {
        Self { deps, instead: OnceLock::new() }
    }

    /// Sets another reader than workers: for programs that have no worker to start.
    pub fn set_cleaner(&self, cleaner: Arc<dyn ContentCleaner>) {
        let _the_first_one_stays = self.instead.set(cleaner);
    }

    /// The secrets that no incoming item may hold.
    #[must_use]
    pub fn secrets(&self) -> Arc<LiveSecrets> {
        self.deps.scan.live_secrets()
    }

    /// Takes in one item. A withheld item is replaced by the gateway's own text.
    ///
    /// # Errors
    /// When no worker could read it, or the result could not be recorded.
    pub async fn take_in(&self, item: &IncomingItem) -> Result<IntakeOutcome, Refusal> {
        self.take_in_by(item, ReaderChoice::Fresh).await
    }

    /// Takes in one item, read by the given kind of worker.
    ///
    /// # Errors
    /// When no worker could read it, or the result could not be recorded.
    pub async fn take_in_by(&self, item: &IncomingItem, by: ReaderChoice) -> Result<IntakeOutcome, Refusal> {
        let secrets = self.secrets();
        let item = &*reflected::without_secrets(item, &secrets);
        let mut seal = [0; 32];
        self.deps.entropy.fill(&mut seal);
        let workers = &self.deps.workers;
        let taken = match (self.instead.get(), conversation(item).filter(|_| by == ReaderChoice::Kept)) {
            (Some(cleaner), _) => cleaner.clean(item, seal).await?,
            (None, None) => workers.clean(item, seal).await?,
            // If a kept worker did not finish, the item may not be the cause: a fresh worker reads it again.
            (None, Some(whose)) => match kept(workers, item, seal, &whose).await? {
                Some(taken) => taken,
                None => workers.clean(item, seal).await?,
            },
        };
        let mut cleaned = match taken {
            IntakeOutcome::Clean(cleaned) => cleaned,
            refused @ IntakeOutcome::Refused { .. } => return Ok(refused),
        };
        reflected::scrub(&mut cleaned, &secrets);
        stub::break_imitations(&mut cleaned);
        let score = thousandths(cleaned.score);
        let threshold = self.deps.settings.threshold_of(&item.service);
        let session = match &item.reader {
            Some(reader) => Some(self.session_of(reader).await?),
            None => None,
        };
        // A disabled detector affects neither the item nor the session.
        match threshold {
            Some(threshold) if score >= threshold => {
                if let Some(id) = self.kept_from(item, &cleaned, session, threshold).await? {
                    return Ok(IntakeOutcome::Clean(stub::instead_of(id, item, cleaned)));
                }
            }
            Some(_) if score >= SUSPECT => {
                if let Some(session) = session {
                    let code = "content.suspect".to_owned();
                    self.deps.store.taint_session(session, code).await.map_err(refusal)?;
                }
            }
            Some(_) | None => {}
        }
        if let (Some(session), Some(reader)) = (session, &item.reader) {
            let source = format!("{}: {}", item.service, cut(&item.source));
            self.observe(session, reader, source, shown(item, &cleaned)).await?;
        }
        Ok(IntakeOutcome::Clean(cleaned))
    }

    /// Handles an agent's request for an item that is withheld in a replica. Returns the finding under which it is
    /// kept; nothing if a person has released it, or items of its service are no longer withheld.
    ///
    /// # Errors
    /// When the result could not be recorded.
    pub async fn asked_for(&self, item: &IncomingItem, copied: &CleanedContent) -> Result<Option<FindingId>, Refusal> {
        let Some(threshold) = self.deps.settings.threshold_of(&item.service) else { return Ok(None) };
        let session = match &item.reader {
            Some(reader) => Some(self.session_of(reader).await?),
            None => None,
        };
        self.kept_from(item, copied, session, threshold).await
    }

    /// Whether a person has released an item, or items of its service are no longer withheld.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub async fn is_released(&self, item: &IncomingItem) -> Result<bool, Refusal> {
        if self.deps.settings.threshold_of(&item.service).is_none() {
            return Ok(true);
        }
        let (service, hash) = (item.service.clone(), hash_of(item));
        Ok(self.deps.store.released_like(service, hash, item.at).await.map_err(refusal)?.is_some())
    }

    /// Whether an item of this service with this score, in thousandths, is withheld.
    #[must_use]
    pub fn withholds(&self, service: &ServiceName, score: u32) -> bool {
        self.deps.settings.threshold_of(service).is_some_and(|threshold| score >= threshold)
    }

    /// Withholds an item from its reader unless a person has released it. A repeated request returns the same finding.
    async fn kept_from(
        &self,
        item: &IncomingItem,
        cleaned: &CleanedContent,
        session: Option<SessionId>,
        threshold: u32,
    ) -> Result<Option<FindingId>, Refusal> {
        let (store, hash) = (&self.deps.store, hash_of(item));
        if store.released_like(item.service.clone(), hash, item.at).await.map_err(refusal)?.is_some() {
            return Ok(None);
        }
        if let Some(session) = session {
            let open = store.withheld_like(item.service.clone(), hash, session, item.at).await.map_err(refusal)?;
            if let Some(finding) = open {
                return Ok(Some(finding.id));
            }
        }
        let (id, score) = (FindingId::mint(self.deps.ids.as_ref()), thousandths(cleaned.score));
        self.keep(item, cleaned, WithheldItemRecord { id, session, threshold, score, hash }).await?;
        Ok(Some(id))
    }

    /// Records what an agent is about to be given by a source that has already cleaned it: a replica, a proxy.
    ///
    /// # Errors
    /// When it cannot be recorded: in that case it must not be given.
    pub async fn note(&self, reader: &ContentRecipient, source: &str, given: &Value) -> Result<(), Refusal> {
        let mut text = String::new();
        leaves(given, &mut text);
        if text.is_empty() {
            return Ok(());
        }
        let session = self.session_of(reader).await?;
        self.observe(session, reader, cut(source), text).await
    }

    async fn observe(
        &self,
        session: SessionId,
        reader: &ContentRecipient,
        source: String,
        text: String,
    ) -> Result<(), Refusal> {
        let key = session.bits();
        // A long text would hold up the other calls of its thread.
        let met = if text.len() < LONG_TEXT {
            TextValueHashes::of(&text, key)
        } else {
            let hashed = tokio::task::spawn_blocking(move || TextValueHashes::of(&text, key)).await;
            hashed.map_err(|_| Refusal::new(Code::ContentUnread))?
        };
        let id = CallId::mint(self.deps.ids.as_ref());
        let observation = SessionObservation { session, id, call: Some(reader.call), source, met };
        match &reader.notes {
            Some(notes) => {
                notes.put(observation);
                Ok(())
            }
            None => self.deps.store.observe(observation).await.map_err(refusal),
        }
    }

    /// The session that is about to see an item, created if the calls name none.
    async fn session_of(&self, reader: &ContentRecipient) -> Result<SessionId, Refusal> {
        if let Some(session) = reader.session {
            return Ok(session);
        }
        let (id, store) = (default_session_id(&reader.agent), &self.deps.store);
        if store.session(id).await.map_err(refusal)?.is_none() {
            let opened = store.open_session(id, reader.agent.clone(), None, None).await;
            // Another call of the same agent may have been faster.
            if opened.is_err() && store.session(id).await.map_err(refusal)?.is_none() {
                return Err(Refusal::new(Code::ContentUnread));
            }
        }
        Ok(id)
    }

    async fn keep(
        &self,
        item: &IncomingItem,
        cleaned: &CleanedContent,
        kept: WithheldItemRecord,
    ) -> Result<(), Refusal> {
        let WithheldItemRecord { id, session, threshold, score, hash } = kept;
        // The whole item: the finding may be in the text that came with it.
        let text = match item.beside.as_deref().filter(|beside| !beside.is_empty()) {
            Some(beside) => format!("{}\n\n{BESIDE}\n{beside}", cleaned.text),
            None => cleaned.text.clone(),
        };
        let content = self.deps.vault.seal_withheld(id, text.as_bytes()).map_err(|error| error.refusal())?;
        let finding = WithheldFinding {
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
            until: item.at + self.deps.settings.keep,
        };
        let message = MessageId::mint(self.deps.ids.as_ref());
        self.deps.store.withhold(finding, message).await.map_err(refusal)
    }
}

/// The data that a withheld item is kept with.
struct WithheldItemRecord {
    id: FindingId,
    session: Option<SessionId>,
    threshold: u32,
    score: u32,
    hash: [u8; 32],
}

/// All text that an agent is about to be shown.
fn shown(item: &IncomingItem, cleaned: &CleanedContent) -> String {
    let value = cleaned.value.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("{}\n{}\n{value}", cleaned.text, item.beside.as_deref().unwrap_or_default())
}

/// Every text of a value, each on its own line.
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

/// A score in thousandths. Rounded up, so that a score at the threshold counts as reached.
fn thousandths(score: f32) -> u32 {
    // Between 0 and 1000.
    (score.clamp(0.0, 1.0) * 1000.0).ceil() as u32
}

/// The hash of the item as it arrived, so that the same item is recognized.
fn hash_of(item: &IncomingItem) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"sluice item 1\0");
    hash.update((item.bytes.len() as u64).to_be_bytes());
    hash.update(&item.bytes);
    for line in item.beside.as_deref().unwrap_or_default().lines().filter(|line| !is_fleeting(line)) {
        hash.update(line);
        hash.update(b"\n");
    }
    hash.finalize().into()
}

/// Headers that differ each time and do not make an item a different one; but only if they hold nothing but a time, a
/// number or an id, so that a released item cannot be reused for other words.
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
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::ContentUnread)).with_source(error)
}

/// The conversation of an item, which must not mix with another. Nothing if it has no reader.
fn conversation(item: &IncomingItem) -> Option<String> {
    let ContentRecipient { agent, session, .. } = item.reader.as_ref()?;
    let session = session.map(|session| session.to_string()).unwrap_or_default();
    Some(format!("{} {agent} {session}", item.service))
}

/// The job description for an item.
fn task(item: &IncomingItem, seal: [u8; 32]) -> ContentCleanTask {
    let envelope = item.enveloped.then(|| ContentProvenance {
        source: item.source.clone(),
        author: item.author.clone(),
        time: item.at.to_string(),
        seal: sluice_core::hex::encode(&seal),
    });
    ContentCleanTask { declared: item.declared.clone(), beside: item.beside.clone(), envelope }
}

fn unread(why: &str) -> Refusal {
    Refusal::new(Code::ContentUnread).with_text(why)
}

/// The result of the worker kept for a conversation; nothing if that worker broke.
async fn kept(
    workers: &GatewayWorkers,
    item: &IncomingItem,
    seal: [u8; 32],
    whose: &str,
) -> Result<Option<IntakeOutcome>, Refusal> {
    let read = workers.read_kept(whose, task(item, seal), item.bytes.clone()).await;
    let read = read.map_err(|error| unread("no worker could read the item in time").with_source(error))?;
    let Some((said, attachments)) = read else { return Ok(None) };
    parse_report(said, attachments).map(Some).ok_or_else(|| unread("the worker reported nonsense"))
}

impl ContentCleaner for GatewayWorkers {
    fn clean<'a>(&'a self, item: &'a IncomingItem, seal: [u8; 32]) -> BoxedFuture<'a, Result<IntakeOutcome, Refusal>> {
        Box::pin(async move {
            let job = WorkerJob::of(&task(item, seal), vec![item.bytes.clone()]);
            match self.read(job).await {
                Err(error) => Err(unread("no worker could be started to read the item").with_source(error)),
                Ok(WorkerEnd::CutOff { .. }) => Err(unread("the item took too long to read")),
                Ok(WorkerEnd::Crashed(_)) => Err(unread("the worker that read the item broke")),
                Ok(WorkerEnd::Clean(done)) => match done.report.outcome {
                    WorkerJobOutcome::Done(said) => parse_report(said, done.report.attachments)
                        .ok_or_else(|| unread("the worker reported nonsense")),
                    WorkerJobOutcome::Failed { .. } => Err(unread("the worker could not read the item")),
                },
            }
        })
    }
}

/// Parses a report; nothing if it does not have the right form.
fn parse_report(said: Value, attachments: Vec<Vec<u8>>) -> Option<IntakeOutcome> {
    let said: ContentCleanFacts = match serde_json::from_value(said).ok()? {
        ContentCleanReport::Refused(refusal) => {
            return Some(IntakeOutcome::Refused { code: refusal.refused.chars().take(64).collect() });
        }
        ContentCleanReport::Clean(facts) => facts,
    };
    let mut attachments = attachments.into_iter();
    let text = String::from_utf8(attachments.next()?).ok()?;
    let value = match (said.json, attachments.next()) {
        (true, Some(bytes)) => Some(serde_json::from_slice(&bytes).ok()?),
        (false, None) => None,
        (true, None) | (false, Some(_)) => return None,
    };
    // A value that is not a number must not count as a low score.
    let score = if (0.0..=1.0).contains(&said.score) { said.score } else { return None };
    Some(IntakeOutcome::Clean(CleanedContent {
        text,
        value,
        score,
        found: said.found,
        notes: said.findings,
        withheld: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(score: f64) -> Value {
        let note = json!({"stage": "injection", "rule": "r", "carrier": "plain", "start": 1, "end": 2, "score": 0.5});
        json!({"score": score, "found": 1, "findings": [note], "json": false})
    }

    #[test]
    fn a_report_of_another_shape_gives_nothing() {
        assert!(parse_report(said(0.4), vec![b"text".to_vec()]).is_some());
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
            assert_eq!(parse_report(said.clone(), attachments), None, "{said}");
        }
    }

    #[test]
    fn a_score_that_touches_the_threshold_has_reached_it() {
        assert_eq!([0.0, 0.4999, 0.5, 0.50001, 1.0, 7.0].map(thousandths), [0, 500, 500, 501, 1000, 1000]);
    }
}
