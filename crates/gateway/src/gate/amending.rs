//! Amending: a person changes the action they were asked about.
//!
//! Takes new arguments; gives the changed write, held. Promise: a changed action is a new action. It walks the rooms
//! from the schema on, as if the agent had asked for it; what is blocked stays blocked, and the yes is bound to the
//! digest of what will really be done.

use serde_json::Value;
use sluice_core::Actor;
use sluice_core::refusal::Code;
use sluice_store::{Amended, Amendment};

use super::deciding::{self, Heard, Question};
use crate::rooms::identity::{Known, Mode, Wish};
use crate::rooms::{approval, hold, leak, origin, policy, schema};
use crate::services;
use crate::{Gateway, No};

/// Puts changed arguments in the place of those asked about, approved once.
///
/// # Errors
/// When the question is not about one write, the changed one is refused by a room, or it cannot be recorded.
pub async fn amend(gw: &Gateway, by: Actor, question: &Question, arguments: Value) -> Result<Heard, No> {
    let [old] = question.holds.as_slice() else {
        return Err(No::saying(Code::ApprovalNotOffered, "only a question about one write can be changed"));
    };
    if services::is_elsewhere(&old.action) {
        return Err(No::saying(
            Code::ApprovalNotOffered,
            "the agent carries this out by itself; only it can change it",
        ));
    }
    let session = match old.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    let wish = Wish {
        capability: old.action.capability().clone(),
        arguments,
        account: old.action.account().map(str::to_owned),
        session_id: old.session,
        idempotency_key: None,
        reason: None,
        mode: Mode::Execute,
        wait_ms: None,
        allow_duplicate: true,
        named: false,
    };
    let spawn = old.action.spawn().cloned();
    let known = Known::on_behalf(gw, old.agent().clone(), session, wish).spawned(spawn);
    let checked = schema::check(gw, known).await?;
    let judged = policy::judge(gw, origin::trace(gw, checked).await?).await?;
    let asked = approval::ask(gw, leak::scan(gw, judged)?).await?;
    let mut changed = hold::admission(gw, &asked);
    changed.action = hold::bound(gw, &changed).await?;
    let amendment = Amendment { approval: question.card.approval.id, by, channel: "api".into(), changed };
    match gw.store.amend(amendment).await? {
        Amended::Now { old, new } => {
            let id = question.card.approval.id;
            deciding::announce(gw, id, &[new.id], &[old]).await?;
            let approval = gw.store.approval(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))?.approval;
            Ok(Heard::Decided { approval, allowed: vec![new.id], denied: vec![old] })
        }
        Amended::Already(approval) => Ok(Heard::Late(approval)),
    }
}
