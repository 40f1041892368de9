//! Settling many unclear writes of one service at once.
//!
//! Promise: only writes are settled that were listed before at the version that is settled; each write has its own
//! entry in the audit log, with the person and the decision; a write that changed meanwhile stays as it is and is
//! named.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, ServiceName};
use sluice_gateway::operating;
use sluice_services::CallError;
use sluice_services::failing::FailureAudience;
use sluice_store::{HoldFilter, HoldSettlement};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{HoldView, listed};

/// States that only proof or a person can end.
const UNCLEAR: [&str; 2] = ["needs_human", "in_doubt"];
/// Most writes settled at once.
const MOST: usize = 1_000;
/// Longest text about how a person knows, in characters.
const LONGEST_EVIDENCE: usize = 500;

/// A person's decision about unclear writes of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleManyBody {
    /// The service of the writes.
    #[schemars(with = "String")]
    pub service: ServiceName,
    /// Only writes of this agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// `done`: they happened. `not_done`: they did not, and are given up. `retry`: they did not, and are tried again.
    #[serde(rename = "as")]
    pub outcome: SettledOutcome,
    /// How the person knows, for `done`.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Only list what would be settled.
    #[serde(default)]
    pub dry_run: bool,
    /// The writes that were listed, each with the version that was seen. Required unless it is a dry run.
    #[serde(default)]
    pub writes: Vec<SeenWriteBody>,
}

/// How unclear writes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettledOutcome {
    /// They happened.
    Done,
    /// They did not happen, and are given up.
    NotDone,
    /// They did not happen, and are tried again.
    Retry,
}

/// A write as it was listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenWriteBody {
    /// The id of the write.
    #[schemars(with = "String")]
    pub buffer_id: HoldId,
    /// The version at which it was seen.
    pub version: u64,
}

/// The writes that were settled, or would be.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SettleManyView {
    /// Whether this was a dry run, so nothing was settled.
    pub dry_run: bool,
    /// The writes, with what is known of each.
    pub data: Vec<HoldView>,
    /// Writes that were left as they are.
    pub left: Vec<SkippedWriteView>,
    /// Whether there are more than could be listed.
    pub has_more: bool,
}

/// A write that was left as it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SkippedWriteView {
    /// The id of the write.
    pub buffer_id: String,
    /// Why it was left, as a stable code.
    pub code: String,
}

/// `POST /v1/holds/settle`.
pub(super) async fn settle_many(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let body: SettleManyBody = visit.parse_body()?;
    if body.evidence.as_ref().is_some_and(|text| text.chars().count() > LONGEST_EVIDENCE) {
        return Err(CallError::with_text(Code::DoorParameter, "how you know has at most 500 characters"));
    }
    match (body.dry_run, body.writes.as_slice()) {
        (true, []) => listed(&visit, &body).await,
        (true, _) => {
            Err(CallError::with_text(Code::DoorParameter, "a dry run lists writes, so `writes` must be empty"))
        }
        (false, []) => {
            let text = "name the `writes` that were listed, each with its version: a dry run lists them";
            Err(CallError::with_text(Code::DoorParameter, text))
        }
        (false, writes) if writes.len() > MOST => {
            Err(CallError::with_text(Code::DoorParameter, "at most 1000 writes are settled at once"))
        }
        (false, writes) => settle_listed(&visit, &body, writes).await,
    }
}

/// The writes that would be settled, with what is known of each.
async fn listed(visit: &RoutedRequest, body: &SettleManyBody) -> Result<HttpReply, CallError> {
    let filter = HoldFilter {
        agent: body.agent.clone(),
        service: Some(body.service.clone()),
        states: UNCLEAR.to_vec(),
        ..HoldFilter::default()
    };
    let limit = u32::try_from(MOST).unwrap_or(u32::MAX);
    let mut found = visit.store.holds_page(filter, None, limit + 1).await?;
    let has_more = found.len() > MOST;
    found.truncate(MOST);
    let data = listed::holds(&visit.store, &found, FailureAudience::Person).await?;
    Ok(HttpReply::json(200, &SettleManyView { dry_run: true, data, left: Vec::new(), has_more }))
}

/// Settles each write as the person decided.
async fn settle_listed(
    visit: &RoutedRequest,
    body: &SettleManyBody,
    writes: &[SeenWriteBody],
) -> Result<HttpReply, CallError> {
    let (gw, by) = (&visit.gw, visit.actor()?);
    let (mut data, mut left) = (Vec::new(), Vec::new());
    for SeenWriteBody { buffer_id, version } in writes {
        let word = match body.outcome {
            SettledOutcome::Done => HoldSettlement::Happened {
                evidence: body.evidence.clone().unwrap_or_else(|| "confirmed by a person".into()),
            },
            SettledOutcome::NotDone => HoldSettlement::GiveUp,
            SettledOutcome::Retry => HoldSettlement::Again,
        };
        let left_alone = |code: Code| SkippedWriteView { buffer_id: buffer_id.to_string(), code: code.as_str().into() };
        let hold = gw.store.hold(*buffer_id).await?.filter(|hold| is_meant(hold, body));
        let Some(hold) = hold else {
            left.push(left_alone(Code::HoldNotFound));
            continue;
        };
        if !UNCLEAR.contains(&hold.state.word()) {
            left.push(left_alone(Code::HoldTooLate));
            continue;
        }
        match operating::settle(gw, &hold, *version, (word, by.clone())).await {
            Ok(hold) => data.push(HoldView::of(&hold)),
            // Another person or a lookup was faster: the others are settled all the same.
            Err(no) if no.refusal.code().status() < 500 => left.push(left_alone(no.refusal.code())),
            Err(no) => return Err(no),
        }
    }
    Ok(HttpReply::json(200, &SettleManyView { dry_run: false, data, left, has_more: false }))
}

fn is_meant(hold: &Hold, body: &SettleManyBody) -> bool {
    hold.service == body.service && body.agent.as_ref().is_none_or(|agent| agent == hold.agent())
}
