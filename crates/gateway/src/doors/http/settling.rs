//! Settling many unclear writes of one service at once.
//!
//! Promise: nothing is settled that was not listed before at the version that is settled; each write has its own entry in
//! the record, with who said it and what; one that moved meanwhile is left as it is and named.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, ServiceName};
use sluice_store::{HoldFilter, Word};

use super::holds::settled;
use super::reply::Reply;
use super::route::Visit;
use super::views::HoldView;
use super::views::failing::{self, Audience};
use crate::No;

/// States in which only proof or a person ends a write.
const UNCLEAR: [&str; 2] = ["needs_human", "in_doubt"];
/// Most writes settled at once.
const MOST: usize = 1_000;
/// Longest word on how somebody knows.
const LONGEST_EVIDENCE: usize = 500;

/// What a person says about unclear writes of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleMany {
    /// The service they left for.
    #[schemars(with = "String")]
    pub service: ServiceName,
    /// Only those of this agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// `done`: they happened. `not_done`: they did not, and are given up. `retry`: they did not, and are tried again.
    #[serde(rename = "as")]
    pub outcome: SettledAs,
    /// How the person knows, for `done`.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Only list what would be settled.
    #[serde(default)]
    pub dry_run: bool,
    /// The writes that were listed, each with the version that was seen. Needed unless it is a dry run.
    #[serde(default)]
    pub writes: Vec<SeenWrite>,
}

/// How unclear writes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettledAs {
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
pub struct SeenWrite {
    /// Which.
    #[schemars(with = "String")]
    pub buffer_id: HoldId,
    /// At which version it was seen.
    pub version: u64,
}

/// What was settled, or would be.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SettledMany {
    /// Whether nothing was settled yet.
    pub dry_run: bool,
    /// The writes, with what is known of each.
    pub data: Vec<HoldView>,
    /// Writes that were left as they are.
    pub left: Vec<LeftWrite>,
    /// Whether there are more than could be listed.
    pub has_more: bool,
}

/// A write that was left as it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LeftWrite {
    /// Which.
    pub buffer_id: String,
    /// Why, as a stable code.
    pub code: String,
}

/// `POST /v1/holds/settle`.
pub(super) async fn settle_many(mut visit: Visit) -> Result<Reply, No> {
    let body: SettleMany = visit.take()?;
    if body.evidence.as_ref().is_some_and(|text| text.chars().count() > LONGEST_EVIDENCE) {
        return Err(No::saying(Code::DoorParameter, "how you know has at most 500 characters"));
    }
    match (body.dry_run, body.writes.as_slice()) {
        (true, []) => listed(&visit, &body).await,
        (true, _) => Err(No::saying(Code::DoorParameter, "a dry run lists writes, and takes none")),
        (false, []) => {
            let text = "name the `writes` that were listed, each with its version: a dry run lists them";
            Err(No::saying(Code::DoorParameter, text))
        }
        (false, writes) if writes.len() > MOST => {
            Err(No::saying(Code::DoorParameter, "at most 1000 writes are settled at once"))
        }
        (false, writes) => said(&visit, &body, writes).await,
    }
}

/// What would be settled, with what is known of each.
async fn listed(visit: &Visit, body: &SettleMany) -> Result<Reply, No> {
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
    let data = failing::listed(&visit.store, &found, Audience::Person).await?;
    Ok(Reply::json(200, &SettledMany { dry_run: true, data, left: Vec::new(), has_more }))
}

/// Takes the person's word on each of them.
async fn said(visit: &Visit, body: &SettleMany, writes: &[SeenWrite]) -> Result<Reply, No> {
    let (gw, by) = (&visit.gw, visit.actor()?);
    let (mut data, mut left) = (Vec::new(), Vec::new());
    for SeenWrite { buffer_id, version } in writes {
        let word = match body.outcome {
            SettledAs::Done => {
                Word::Happened { evidence: body.evidence.clone().unwrap_or_else(|| "a person said so".into()) }
            }
            SettledAs::NotDone => Word::GiveUp,
            SettledAs::Retry => Word::Again,
        };
        let left_alone = |code: Code| LeftWrite { buffer_id: buffer_id.to_string(), code: code.as_str().into() };
        let hold = gw.store.hold(*buffer_id).await?.filter(|hold| is_meant(hold, body));
        let Some(hold) = hold else {
            left.push(left_alone(Code::HoldNotFound));
            continue;
        };
        if !UNCLEAR.contains(&hold.state.word()) {
            left.push(left_alone(Code::HoldTooLate));
            continue;
        }
        match settled(gw, &hold, *version, (word, by.clone())).await {
            Ok(hold) => data.push(HoldView::of(&hold)),
            // Somebody or a lookup was faster: the rest are still meant.
            Err(no) if no.refusal.code().status() < 500 => left.push(left_alone(no.refusal.code())),
            Err(no) => return Err(no),
        }
    }
    Ok(Reply::json(200, &SettledMany { dry_run: false, data, left, has_more: false }))
}

fn is_meant(hold: &Hold, body: &SettleMany) -> bool {
    hold.service == body.service && body.agent.as_ref().is_none_or(|agent| agent == hold.agent())
}
