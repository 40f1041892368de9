//! Messages that are withheld from agents: which ones, under which finding, and when they are released.
//!
//! Takes what workers found in a message and the threshold that the owner set; gives the finding that an agent gets
//! instead of the message. Promise: a message reaches an agent only below its service's threshold or after a person
//! released exactly this text; a request for a withheld message is recorded first, and its session is tainted.

use sluice_core::ids::FindingId;
use sluice_core::mail::{Mail, UNOPENED};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, UtcMillis};
use sluice_store::replica::{Replica, ReplicaChange, ReplicaReader as Eyes};

use super::mail::unavailable;
use super::{ConnectionHandle, ServiceConnections, apart};
use crate::CallError;
use crate::ServiceRead;
use crate::intake::{CleanedContent, ContentRecipient, ContentStageNote, IncomingItem};

/// The rule for a message that matched no rule, where everything is withheld.
const EVERYTHING: &str = "content.threshold";

impl ServiceConnections {
    /// Decides on each message before it is stored in the replica.
    pub(super) fn judged(
        &self,
        line: &ConnectionHandle,
        changes: Vec<ReplicaChange>,
    ) -> Result<Vec<ReplicaChange>, CallError> {
        let context = self.context()?;
        let (intake, name) = (&context.intake, line.row().name);
        let ours = |change: &ReplicaChange| matches!(change, ReplicaChange::Put(mail) if apart::is_own_letter(&context.config, mail));
        let judged = changes.into_iter().filter(|change| !ours(change)).map(|change| match change {
            ReplicaChange::Put(mut mail) => {
                if is_unopened(&mail) {
                    // Its content is unknown: there is nothing to show.
                } else if !intake.withholds(&name, mail.score) {
                    mail.withheld.clear();
                } else if mail.withheld.is_empty() {
                    mail.withheld.push(EVERYTHING.to_owned());
                }
                ReplicaChange::Put(mail)
            }
            other => other,
        });
        Ok(judged.collect())
    }

    /// Shows a message to agents from now on if a person has released it. Returns whether it is shown.
    pub(super) async fn let_through(
        &self,
        copy: &Replica,
        (service, id): (&ServiceName, &str),
        now: UtcMillis,
    ) -> Result<bool, Refusal> {
        let Some(mail) = copy.get(id, Eyes::Person).map_err(unavailable)? else { return Ok(false) };
        if mail.withheld.is_empty() || is_unopened(&mail) {
            return Ok(mail.withheld.is_empty());
        }
        let context = self.context().map_err(|no| *no.refusal)?;
        let released = context.intake.is_released(&incoming(service, &mail, now)).await?;
        if released {
            copy.release(id).map_err(unavailable)?;
        }
        Ok(released)
    }

    /// The refusal for an agent that asks for a withheld message: it names the finding that a person can review.
    pub(super) async fn withheld(&self, copy: &Replica, service: &ServiceName, ask: &ServiceRead, id: &str) -> Refusal {
        match self.finding(copy, service, ask, id).await {
            Ok(Some((finding, false))) => kept_back("message", finding),
            Ok(Some((finding, true))) => read_in_two_ways(finding),
            Ok(None) => Refusal::new(Code::ContentWithheld),
            Err(refusal) => refusal,
        }
    }

    async fn finding(
        &self,
        copy: &Replica,
        service: &ServiceName,
        ask: &ServiceRead,
        id: &str,
    ) -> Result<Option<(FindingId, bool)>, Refusal> {
        let Some(mail) = copy.get(id, Eyes::Person).map_err(unavailable)? else { return Ok(None) };
        if is_unopened(&mail) {
            return Ok(None);
        }
        let mut item = incoming(service, &mail, ask.now);
        item.reader = Some(ContentRecipient::of(ask));
        let context = self.context().map_err(|no| *no.refusal)?;
        let finding = context.intake.asked_for(&item, &copied(&mail)).await?;
        Ok(finding.map(|finding| (finding, mail.ambiguous.is_some())))
    }
}

/// The refusal that names a finding.
pub(super) fn kept_back(what: &str, finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "the {what} looks like an attack on agents; it is kept back as {finding} until a person \
         releases it (sluice findings release {finding})"
    ))
}

/// The refusal that names a finding about a message with two readings.
fn read_in_two_ways(finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "two readers read the message differently, so its sender or its content is uncertain; it is kept back as \
         {finding} until a person has seen both readings and releases it (sluice findings release {finding})"
    ))
}

/// Whether the replica holds only the id of a message: each worker that opened it crashed.
fn is_unopened(mail: &Mail) -> bool {
    mail.withheld.iter().any(|rule| rule == UNOPENED)
}

/// A message as an incoming item. The same message gives the same bytes, whatever its labels.
fn incoming(service: &ServiceName, mail: &Mail, at: UtcMillis) -> IncomingItem {
    let author = mail.sender_line();
    IncomingItem {
        bytes: words(mail).into_bytes(),
        declared: None,
        service: service.clone(),
        source: format!("message {}", mail.id),
        author,
        at,
        beside: None,
        reader: None,
        enveloped: false,
    }
}

/// The text of a message as a person sees it.
fn words(mail: &Mail) -> String {
    let people = |people: &[sluice_core::mail::MailAddress]| {
        let all: Vec<String> = people.iter().map(ToString::to_string).collect();
        all.join(", ")
    };
    let (from, subject) = (mail.sender_line(), mail.subject_line());
    let files: Vec<&str> = mail.attachments.iter().filter_map(|file| file.name.as_deref()).collect();
    format!(
        "From: {from}\nTo: {}\nCc: {}\nSubject: {}\nFiles: {}\n\n{}",
        people(&mail.to),
        people(&mail.cc),
        subject,
        files.join(", "),
        mail.text,
    )
}

/// What the worker that synced a message reported about it.
fn copied(mail: &Mail) -> CleanedContent {
    let weight = f64::from(mail.score) / 1000.0;
    // The value is between 0 and 1.
    let score = weight as f32;
    let note = |rule: &String| ContentStageNote {
        stage: "injection".into(),
        rule: rule.clone(),
        carrier: "mail".into(),
        start: 0,
        end: 0,
        score,
    };
    let notes: Vec<ContentStageNote> = mail.withheld.iter().map(note).collect();
    CleanedContent { text: words(mail), value: None, score, found: notes.len() as u64, notes, withheld: None }
}
