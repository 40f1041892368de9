//! Questions about the record, for operators: which agent did what, when and to which object, and what a session had
//! read before each of its writes.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::policy::Pattern;
use sluice_core::read_trace::{ReadTrace, keyed_hash};
use sluice_core::refusal::Code;
use sluice_core::{Span, Timestamp};
use sluice_store::{HoldFilter, RecordFilter, SessionRead, SessionReads};

use super::reply::Reply;
use super::route::Visit;
use crate::No;
use crate::intake::nameless;
use crate::rooms::answer;

/// How many entries of each log one search looks at.
const SEARCH_BOUND: u64 = 100_000;
/// How many entries of each log are looked at for the reads of one session.
const SESSION_BOUND: u64 = 200_000;
/// Most writes of a session that are told.
const SESSION_WRITES: u32 = 200;
/// Most reads that are told before each write; the latest are.
const READS_BEFORE: usize = 50;
/// Longest text of a target that is searched for.
const LONGEST_TARGET: usize = 1_000;

/// What the record keeps of a read: ids and hashes, never content.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReadView {
    /// How many objects the answer held.
    pub count: u64,
    /// The ids of the first of them: messages, files, keys.
    pub ids: Vec<String>,
    /// How many more ids there were.
    pub more: u64,
    /// The keyed hash of what was looked for, if it was a search. The same text has the same hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_hash: Option<String>,
    /// The keyed hash of the answer.
    pub result_hash: String,
    /// How old the local copy was, in seconds, if the answer came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
}

impl From<ReadTrace> for ReadView {
    fn from(read: ReadTrace) -> Self {
        let ReadTrace { count, ids, more, query, result, age_s } = read;
        Self { count, ids, more, query_hash: query, result_hash: result, age_s }
    }
}

/// One page of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FoundPage {
    /// Entries with their log and hash, the newest first.
    pub data: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
    /// Whether there may be more.
    pub has_more: bool,
    /// Whether everything up to the last entry was looked at. If not, the search stopped at its bound.
    pub complete: bool,
}

/// One read of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionReadView {
    /// The call that asked.
    pub call_id: String,
    /// What was asked.
    pub capability: String,
    /// When it was answered.
    pub at: String,
    /// What the answer held; nothing for entries of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadView>,
}

/// One write of a session, with what the session had read before it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionWriteView {
    /// The call that made it.
    pub call_id: String,
    /// What it does.
    pub capability: String,
    /// How it stands.
    pub status: String,
    /// When it was admitted.
    pub at: String,
    /// Reads between the write before and this one, the oldest first.
    pub seen_before: Vec<SessionReadView>,
    /// How many reads there were in the session before it, all told.
    pub reads_before: u64,
}

/// What a session read and did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionRecordView {
    /// The session.
    pub session_id: String,
    /// Its writes, the oldest first.
    pub writes: Vec<SessionWriteView>,
    /// Reads since its last write.
    pub seen_since: Vec<SessionReadView>,
    /// Whether the record was looked through to its end.
    pub complete: bool,
}

/// `GET /v1/audit/search`.
pub(super) async fn search(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let target = visit.asked::<String>("target")?;
    if target.as_ref().is_some_and(|target| target.len() > LONGEST_TARGET) {
        return Err(No::saying(Code::DoorParameter, "a target has at most 1000 bytes"));
    }
    let pattern = visit.asked::<String>("capability")?;
    let capability = pattern.map(|text| Pattern::new(&text)).transpose();
    let capability = capability.map_err(|why| No::saying(Code::DoorParameter, why))?;
    let gw = &visit.gw;
    let query_hash = target.as_ref().map(|target| keyed_hash(&gw.vault.record_key(), target.as_bytes()));
    let filter = RecordFilter {
        agent: visit.asked("agent")?,
        capability,
        since: visit.asked::<i64>("since_ms")?.map(Timestamp::from_millis),
        until: visit.asked::<i64>("until_ms")?.map(Timestamp::from_millis),
        target,
        query_hash,
        before: visit.asked("cursor")?,
        limit: limit as usize,
        bound: SEARCH_BOUND,
    };
    let found = gw.store.search_record(filter).await?;
    let data = found.entries.iter().map(|(log, sealed)| {
        let entry: Value = serde_json::from_slice(&sealed.body).unwrap_or(Value::Null);
        json!({"log": log, "seq": sealed.seq, "hash": sealed.hash.to_string(), "entry": entry})
    });
    let page = FoundPage {
        data: data.collect(),
        has_more: found.next.is_some(),
        next_cursor: found.next.map(|place| place.to_string()),
        complete: found.is_all,
    };
    Ok(Reply::json(200, &page))
}

/// `GET /v1/sessions/{session_id}/record`.
pub(super) async fn of_session(visit: Visit) -> Result<Reply, No> {
    let id: SessionId = visit.part("session_id")?;
    let gw = &visit.gw;
    let session = gw.store.session(id).await?.ok_or_else(|| No::new(Code::IdentitySession))?;
    let is_nameless = id == nameless(&session.agent);
    let which = SessionReads {
        session: id,
        agent: session.agent.clone(),
        is_nameless,
        // The entry that opened it may be a moment older than its row says.
        since: session.opened_at - Span::from_mins(2),
        bound: SESSION_BOUND,
    };
    let (reads, complete) = gw.store.session_reads(which).await?;
    let filter = match is_nameless {
        true => HoldFilter { agent: Some(session.agent), ..HoldFilter::default() },
        false => HoldFilter { session: Some(id), ..HoldFilter::default() },
    };
    let mut holds = gw.store.holds_page(filter, None, SESSION_WRITES).await?;
    holds.retain(|hold| hold.session == (!is_nameless).then_some(id));
    Ok(Reply::json(200, &told(id, &reads, &holds, complete)))
}

fn told(id: SessionId, reads: &[SessionRead], holds: &[Hold], complete: bool) -> SessionRecordView {
    let mut at = 0;
    let mut writes = Vec::new();
    // A read that a person had to allow is a held call too, and stands among the reads.
    let is_read = |hold: &&Hold| reads.iter().any(|read| read.call == hold.call);
    for hold in holds.iter().filter(|hold| !is_read(hold)) {
        let end = reads.partition_point(|read| read.at <= hold.admitted_at).max(at);
        let before = reads.get(at.max(end.saturating_sub(READS_BEFORE))..end).unwrap_or_default();
        writes.push(SessionWriteView {
            call_id: hold.call.to_string(),
            capability: hold.action.capability().to_string(),
            status: answer::status(hold).into(),
            at: hold.admitted_at.to_string(),
            seen_before: before.iter().map(read_view).collect(),
            reads_before: end as u64,
        });
        at = end;
    }
    let since = reads.get(at.max(reads.len().saturating_sub(READS_BEFORE))..).unwrap_or_default();
    let seen_since = since.iter().map(read_view).collect();
    SessionRecordView { session_id: id.to_string(), writes, seen_since, complete }
}

fn read_view(read: &SessionRead) -> SessionReadView {
    SessionReadView {
        call_id: read.call.to_string(),
        capability: read.capability.clone(),
        at: read.at.to_string(),
        read: read.read.clone().map(ReadView::from),
    }
}
