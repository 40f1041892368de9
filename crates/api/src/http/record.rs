//! The audit log, for operators: logs with their keys, raw entries, checkpoints and proofs. Together they are
//! everything that an export consists of.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::audit::SealedAuditEntry;
use sluice_core::refusal::Code;
use sluice_core::{Millis, NodeName};
use sluice_services::CallError;
use sluice_services::value::at;
use sluice_store::ListRefusedCalls;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::status::{self, AuditLogView};
use super::views::ListPage;

/// Most bytes of entries on one page of raw entries.
const PAGE_BYTES: usize = 8 << 20;

/// How many entries of each log are searched for refused calls.
const REFUSALS_BOUND: u64 = 100_000;

/// A signed checkpoint of a log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckpointView {
    /// How many entries it covers.
    pub size: u64,
    /// The note as it was signed.
    pub note: String,
}

/// The proof that an entry was signed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProofView {
    /// The log of the entry.
    pub log: String,
    /// The number of the entry.
    pub seq: u64,
    /// The proof: a text that can be verified without the gateway.
    pub proof: String,
}

/// A call that was refused at once.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusalView {
    /// The id of the call.
    pub call_id: String,
    /// `blocked` by the rules, or `refused` for another reason.
    pub status: String,
    /// The agent that made the call.
    pub agent: String,
    /// The capability of the call.
    pub capability: String,
    /// Why it was refused, as a code.
    pub code: String,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The session it was made in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When it was refused.
    pub at: String,
}

/// `GET /v1/refusals`: calls that were refused at once, the latest first.
pub(super) async fn refusals(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let span =
        Millis::from_secs(visit.query_param::<u64>("seconds")?.unwrap_or(7 * 24 * 3600).min(10 * 365 * 24 * 3600));
    let which = ListRefusedCalls {
        since: visit.gw.now() - span,
        agent: visit.query_param("agent")?,
        service: visit.query_param("service")?,
        session: visit.query_param("session_id")?,
        before: visit.query_param("cursor")?,
        limit: limit as usize + 1,
        bound: REFUSALS_BOUND,
    };
    let found = visit.gw.store.refusals(which).await?;
    let data = found.calls.into_iter().map(|call| RefusalView {
        call_id: call.call.to_string(),
        status: if call.code == Code::PolicyBlocked.as_str() { "blocked".into() } else { "refused".into() },
        agent: call.agent.to_string(),
        capability: call.capability,
        code: call.code,
        rule: call.rule,
        session_id: call.session.map(|id| id.to_string()),
        at: call.at.to_string(),
    });
    Ok(HttpReply::json(200, &ListPage::of(data.collect(), limit, |last: &RefusalView| last.call_id.clone())))
}

/// The requested log: by default that of this node.
fn log_of(visit: &RoutedRequest) -> Result<NodeName, CallError> {
    Ok(visit.query_param("log")?.unwrap_or_else(|| visit.gw.store.node().clone()))
}

/// `GET /v1/audit/logs`.
pub(super) async fn logs(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data = status::logs(&visit.gw, &visit.gw.store).await?;
    Ok(HttpReply::json(200, &ListPage::<AuditLogView> { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/audit/checkpoints`: the signed checkpoints of a log, the oldest first.
pub(super) async fn checkpoints(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let after = visit.query_param::<u64>("cursor")?.unwrap_or(0);
    let found = visit.gw.store.checkpoints_after(log_of(&visit)?, after, limit + 1).await?;
    let data = found.into_iter().map(|signed| CheckpointView { size: signed.size, note: signed.note.to_string() });
    Ok(HttpReply::json(200, &ListPage::of(data.collect(), limit, |last: &CheckpointView| last.size.to_string())))
}

/// `GET /v1/audit/proof`: proves that one entry was signed.
pub(super) async fn proof(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let log = log_of(&visit)?;
    let missing = || CallError::with_text(Code::DoorParameter, "`seq` is missing: name the number of the entry");
    let seq = visit.query_param::<u64>("seq")?.ok_or_else(missing)?;
    let proof = visit.gw.store.prove(log.clone(), seq).await?.ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    Ok(HttpReply::json(200, &ProofView { log: log.to_string(), seq, proof: proof.to_string() }))
}

/// `GET /v1/audit/entries`.
pub(super) async fn entries(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let gw = &visit.gw;
    let log = log_of(&visit)?;
    let from = match visit.query_param::<u64>("cursor")? {
        Some(from) => from,
        None => match visit.query_param::<bool>("last")?.unwrap_or(false) {
            true => {
                let head = gw.store.logs().await?.into_iter().find(|(name, _)| *name == log).map(|(_, head)| head);
                head.map_or(0, |head| head.size.saturating_sub(u64::from(limit)))
            }
            false => 0,
        },
    };
    let found = gw.store.entries(log, from, limit + 1).await?;
    if visit.query_param::<bool>("raw")?.unwrap_or(false) {
        return Ok(HttpReply::json(200, &as_they_stand(&found, limit)));
    }
    let data: Vec<Value> = found
        .iter()
        .map(|sealed| {
            let entry: Value = serde_json::from_slice(&sealed.body).unwrap_or(Value::Null);
            json!({"seq": sealed.seq, "hash": sealed.hash.to_string(), "entry": entry})
        })
        .collect();
    let cursor = |entry: &Value| (at(entry, "/seq").as_u64().unwrap_or(0) + 1).to_string();
    Ok(HttpReply::json(200, &ListPage::of(data, limit, cursor)))
}

/// Raw entries, byte for byte, as an export holds them: fewer than requested if they are large.
fn as_they_stand(found: &[SealedAuditEntry], limit: u32) -> ListPage<Value> {
    let mut bytes = 0;
    let fits = found.iter().take_while(|sealed| {
        let fits = bytes < PAGE_BYTES;
        bytes += sealed.body.len();
        fits
    });
    let data: Vec<Value> = fits
        .take(limit as usize)
        .map(|sealed| {
            let body = String::from_utf8_lossy(&sealed.body);
            json!({"seq": sealed.seq, "hash": sealed.hash.to_string(), "body": body})
        })
        .collect();
    let has_more = data.len() < found.len();
    let next = data.last().map(|last| (at(last, "/seq").as_u64().unwrap_or(0) + 1).to_string());
    ListPage { data, next_cursor: next.filter(|_| has_more), has_more }
}

/// `GET /v1/audit/checkpoint`: the newest signed checkpoint of a log.
pub(super) async fn checkpoint(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let log = log_of(&visit)?;
    let signed = visit.gw.store.last_checkpoint(log).await?.ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    Ok(HttpReply::bytes(200, "text/plain; charset=utf-8", signed.note.to_string().into_bytes()))
}
