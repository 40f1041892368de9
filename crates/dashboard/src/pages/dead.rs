//! Dead letters: writes that ended without their effect, grouped by cause, and writes that a person has to look at.

use std::collections::BTreeMap;

use askama::Template;
use sluice_core::HoldId;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_gateway::operating;
use sluice_services::failing::FailureAudience;
use sluice_services::{CallError, failing};
use sluice_store::{HoldFilter, HoldSettlement, OperatorRole};

use super::PageContent;
use super::approval::picked;
use super::layout::{StampView, region};
use super::write_row::WriteRow;
use crate::context::PageContext;
use crate::fields::FormFields;

/// Most writes that the page shows.
const MOST: u32 = 200;

/// Dead letters with one cause.
struct DeadLetterGroup {
    title: String,
    why: String,
    says: String,
    rows: Vec<WriteRow>,
    last: StampView,
}

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadTemplate<'a> {
    groups: Vec<DeadLetterGroup>,
    others: Vec<WriteRow>,
    csrf: &'a str,
    can_act: bool,
    more: bool,
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let store = &context.gw.store;
    let page =
        |states: &[&'static str]| HoldFilter { states: states.to_vec(), newest_first: true, ..HoldFilter::default() };
    let dead = store.holds_page(page(&["dead"]), None, MOST).await?;
    let others = store.holds_page(page(&["needs_human", "stale"]), None, MOST).await?;
    let mut causes: BTreeMap<(String, String), Vec<&Hold>> = BTreeMap::new();
    for hold in &dead {
        let code = match &hold.state {
            HoldState::Dead { code, .. } => code.clone(),
            _ => String::new(),
        };
        causes.entry((hold.action.capability().to_string(), code)).or_default().push(hold);
    }
    let mut groups = Vec::new();
    for ((capability, code), holds) in causes {
        let Some(newest) = holds.first() else { continue };
        let failing = failing::failing(store, newest, FailureAudience::Person).await?;
        let at = match newest.state {
            HoldState::Dead { at, .. } => at,
            _ => newest.admitted_at,
        };
        groups.push(DeadLetterGroup {
            why: Code::from_code(&code).map_or_else(|| code.clone(), |code| code.meaning().to_owned()),
            title: capability,
            says: failing.last_error.and_then(|error| error.service_says).unwrap_or_default(),
            rows: holds.iter().map(|hold| WriteRow::of(hold)).collect(),
            last: at.into(),
        });
    }
    let table = DeadTemplate {
        groups,
        others: others.iter().map(WriteRow::of).collect(),
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
        more: dead.len() >= MOST as usize,
    };
    Ok(PageContent {
        title: "Failed writes".into(),
        regions: vec![region("dead", &table)?],
        command: "sluice dead list".into(),
        api: "GET /v1/dead-letters".into(),
        reloads: true,
    })
}

/// Tries the named dead letters again, or gives them up.
pub(super) async fn settle(
    context: &PageContext<'_>,
    form: &FormFields,
    verb: &str,
) -> Result<(&'static str, usize), CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let (gw, by) = (context.gw, &context.visitor.by);
    let (settlement, word) = match verb {
        "retry" => (HoldSettlement::Again, "retried"),
        _ => (HoldSettlement::GiveUp, "discarded"),
    };
    let ids: Vec<HoldId> = picked(form, "pick")?;
    let mut count = 0;
    for id in ids {
        let hold = gw.store.hold(id).await?.ok_or_else(|| CallError::new(Code::HoldNotFound))?;
        if !matches!(hold.state, HoldState::Dead { .. }) {
            continue;
        }
        match operating::settle(gw, &hold, hold.version, (settlement.clone(), by.clone())).await {
            Ok(_) => count += 1,
            Err(no) if no.refusal.code() == Code::StoreConflict => {}
            Err(no) => return Err(no),
        }
    }
    if count == 0 {
        return Err(CallError::with_text(Code::StoreNotFound, "none of these writes is a dead letter any more"));
    }
    Ok((word, count))
}
