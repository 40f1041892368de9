//! Search of the audit log, for operators: which agent did what, when and to which object, and what a session had
//! read before each of its writes.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::policy::CapabilityPattern;
use sluice_core::read_trace::{ReadTrace, keyed_hash};
use sluice_core::refusal::Code;
use sluice_core::{Millis, UtcMillis};
use sluice_gateway::rooms::answer;
use sluice_services::CallError;
use sluice_services::intake::default_session_id;
use sluice_store::{AuditEntryFilter, HoldFilter, ListSessionReads, SessionRead};

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// How many entries of each log one search reads.
const SEARCH_BOUND: u64 = 100_000;
/// How many entries of each log are read for the reads of one session.
const SESSION_BOUND: u64 = 200_000;
/// Most writes of a session that are listed.
const SESSION_WRITES: u32 = 200;
/// Most reads that are listed before each write: the latest ones.
const READS_BEFORE: usize = 50;
/// Longest target that can be searched for, in bytes.
const LONGEST_TARGET: usize = 1_000;

/// What the audit log holds of a read: ids and hashes, never content.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReadTraceView {
    /// How many objects the answer held.
    pub count: u64,
    /// The ids of the first objects: messages, files, keys.
    pub ids: Vec<String>,
    /// How many more ids there were.
    pub more: u64,
    /// The keyed hash of the search text, if it was a search. The same text has the same hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_hash: Option<String>,
    /// The keyed hash of the answer.
    pub result_hash: String,
    /// How old the replica was, in seconds, if the answer came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
}

impl From<ReadTrace> for ReadTraceView {
    fn from(read: ReadTrace) -> Self {
        let ReadTrace { count, ids, more, query, result, age_s } = read;
        Self { count, ids, more, query_hash: query, result_hash: result, age_s }
    }
}

/// One page of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordSearchPage {
    /// Entries with their log and hash, the newest first.
    pub data: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
    /// Whether there may be more.
    pub has_more: bool,
    /// Whether everything up to the last entry was searched. If not, the search stopped at its limit.
    pub complete: bool,
}

/// One read of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionReadView {
    /// The id of the call.
    pub call_id: String,
    /// The capability of the call.
    pub capability: String,
    /// When it was answered.
    pub at: String,
    /// What the answer held; absent for entries of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadTraceView>,
}

/// One write of a session, with what the session had read before it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionWriteView {
    /// The id of the call.
    pub call_id: String,
    /// The capability of the write.
    pub capability: String,
    /// The state of the write.
    pub status: String,
    /// When it was admitted.
    pub at: String,
    /// The reads between the previous write and this one, the oldest first.
    pub seen_before: Vec<SessionReadView>,
    /// How many reads the session made before it, in total.
    pub reads_before: u64,
}

/// What a session read and wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionRecordView {
    /// The id of the session.
    pub session_id: String,
    /// The writes of the session, the oldest first.
    pub writes: Vec<SessionWriteView>,
    /// The reads since its last write.
    pub seen_since: Vec<SessionReadView>,
    /// Whether the audit log was searched to its end.
    pub complete: bool,
}

/// `GET /v1/audit/search`.
pub(super) async fn search(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let target = visit.query_param::<String>("target")?;
    if target.as_ref().is_some_and(|target| target.len() > LONGEST_TARGET) {
        return Err(CallError::with_text(Code::DoorParameter, "a target has at most 1000 bytes"));
    }
    let pattern = visit.query_param::<String>("capability")?;
    let capability = pattern.map(|text| CapabilityPattern::new(&text)).transpose();
    let capability = capability.map_err(|why| CallError::with_text(Code::DoorParameter, why))?;
    let gw = &visit.gw;
    let query_hash = target.as_ref().map(|target| keyed_hash(&gw.vault.record_key(), target.as_bytes()));
    let filter = AuditEntryFilter {
        agent: visit.query_param("agent")?,
        capability,
        since: visit.query_param::<i64>("since_ms")?.map(UtcMillis::from_millis),
        until: visit.query_param::<i64>("until_ms")?.map(UtcMillis::from_millis),
        target,
        query_hash,
        before: visit.query_param("cursor")?,
        limit: limit as usize,
        bound: SEARCH_BOUND,
    };
    let found = gw.store.search_record(filter).await?;
    let data = found.entries.iter().map(|(log, sealed)| {
        let entry: Value = serde_json::from_slice(&sealed.body).unwrap_or(Value::Null);
        json!({"log": log, "seq": sealed.seq, "hash": sealed.hash.to_string(), "entry": entry})
    });
    let page = RecordSearchPage {
        data: data.collect(),
        has_more: found.next.is_some(),
        next_cursor: found.next.map(|place| place.to_string()),
        complete: found.is_all,
    };
    Ok(HttpReply::json(200, &page))
}

/// `GET /v1/sessions/{session_id}/record`.
pub(super) async fn of_session(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let id: SessionId = visit.path_param("session_id")?;
    let gw = &visit.gw;
    let session = gw.store.session(id).await?.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    let is_nameless = id == default_session_id(&session.agent);
    let which = ListSessionReads {
        session: id,
        agent: session.agent.clone(),
        is_nameless,
        // The entry that opened the session may be a moment older than its row says.
        since: session.opened_at - Millis::from_mins(2),
        bound: SESSION_BOUND,
    };
    let (reads, complete) = gw.store.session_reads(which).await?;
    let filter = match is_nameless {
        true => HoldFilter { agent: Some(session.agent), ..HoldFilter::default() },
        false => HoldFilter { session: Some(id), ..HoldFilter::default() },
    };
    let mut holds = gw.store.holds_page(filter, None, SESSION_WRITES).await?;
    holds.retain(|hold| hold.session == (!is_nameless).then_some(id));
    Ok(HttpReply::json(200, &session_record_view(id, &reads, &holds, complete)))
}

fn session_record_view(id: SessionId, reads: &[SessionRead], holds: &[Hold], complete: bool) -> SessionRecordView {
    let mut at = 0;
    let mut writes = Vec::new();
    // A read that a person had to allow is also a held call, and is listed among the reads.
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
        read: read.read.clone().map(ReadTraceView::from),
    }
}
