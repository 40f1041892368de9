//! Approval: whether a person has to be asked, or has answered in advance.
//!
//! Takes `Cleared`, gives `Asked`. The question itself is put by the store, in the transaction that admits
//! the write, because the batch window may raise one too. Promise: a standing yes answers policy's question
//! only, never an escalation.

use sluice_core::approval::allowance::{self, Asked as About, Asker, Session};
use sluice_core::capability::Effect;
use sluice_core::ids::AllowanceId;
use sluice_core::target::Traced;
use sluice_core::{Tier, recipients};
use sluice_store::Rate;

use super::leak::Cleared;
use super::policy::Judged;
use super::schema::Checked;
use crate::{Gateway, No};

/// A call about which it is known whether a person is needed.
#[derive(Debug)]
pub struct Asked {
    judged: Judged,
    allowance: Option<AllowanceId>,
}

/// Looks for a standing yes where one could help.
///
/// # Errors
/// When the standing yeses cannot be read.
pub(crate) async fn ask(gw: &Gateway, cleared: Cleared) -> Result<Asked, No> {
    let judged = cleared.into_judged();
    if judged.tier() != Tier::ApprovalRequired {
        return Ok(Asked { judged, allowance: None });
    }
    let checked = judged.checked();
    let asker = Asker::Agent(checked.known().agent().clone());
    let given = gw.store.allowances_of(asker.clone()).await?;
    let session = checked.known().session().map(|session| Session::Issued(session.id));
    let arguments = checked.action().arguments();
    let reached: Vec<_> =
        ["to", "cc", "bcc"].iter().filter_map(|name| arguments.get(*name)).flat_map(recipients::read).collect();
    let question = allowance::Question {
        asker: &asker,
        session: session.as_ref(),
        asked: About::Capability(checked.action().capability()),
        recipients: &reached,
        why: judged.why(),
        at: gw.now(),
    };
    let allowance = allowance::answering(&given, &question).map(|found| found.id);
    Ok(Asked { judged, allowance })
}

impl Asked {
    pub fn checked(&self) -> &Checked {
        self.judged.checked()
    }
    pub fn effect(&self) -> Effect {
        self.checked().effect()
    }
    pub fn only_checks(&self) -> bool {
        self.checked().only_checks()
    }
    /// Whether somebody still has to say yes, as far as can be told before the batch window is asked.
    pub fn needs_person(&self) -> bool {
        self.judged.tier() == Tier::ApprovalRequired
    }
    pub fn allowance(&self) -> Option<AllowanceId> {
        self.allowance
    }
    pub fn tier(&self) -> Tier {
        self.judged.tier()
    }
    pub fn targets(&self) -> &[Traced] {
        self.judged.targets()
    }
    pub fn policy(&self) -> &str {
        self.judged.policy()
    }
    pub fn rule(&self) -> Option<&str> {
        self.judged.rule()
    }
    pub fn rates(&self) -> &[Rate] {
        self.judged.rates()
    }
    /// What the rules said to a call that observe mode lets through.
    pub fn would(&self) -> Option<Tier> {
        self.judged.would()
    }
    pub fn into_checked(self) -> Checked {
        self.judged.into_checked()
    }
}
