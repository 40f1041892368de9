//! Audit entries as sentences, for people.
//!
//! Takes an entry; gives one line without content: names, numbers and codes only. Promise: an entry of an unknown kind
//! is shown by its kind, never left out.

use sluice_core::approval::card::escape_invisible;
use sluice_core::audit::{AuditEntry, AuditFact};
use sluice_core::refusal::Code;
use sluice_core::{Actor, UtcMillis};

/// Longest value of a detail, in characters.
const LONGEST: usize = 120;

/// One entry as a line of a feed or a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedLine {
    pub(crate) at: UtcMillis,
    pub(crate) text: String,
    /// `wait`, `run`, `good`, `bad` or `over`.
    pub(crate) class: &'static str,
    pub(crate) kind: String,
    /// The page it leads to.
    pub(crate) link: Option<String>,
    /// Further details, for those who look closer.
    pub(crate) details: Vec<(String, String)>,
    pub(crate) place: String,
}

/// Who caused it, as people say it.
pub(crate) fn who(actor: &Actor) -> String {
    match actor {
        Actor::Agent(name) => name.to_string(),
        Actor::Person(name) | Actor::Operator(name) => name.to_string(),
        Actor::Node(_) => "the gateway".to_owned(),
    }
}

/// An entry as a line.
pub(crate) fn line(entry: &AuditEntry) -> FeedLine {
    let fact = &entry.fact;
    let (words, class) = sentence(fact);
    let link = match (fact.call, fact.approval) {
        (Some(call), _) => Some(format!("/ui/calls/{call}")),
        (None, Some(approval)) => Some(format!("/ui/approvals/{approval}")),
        (None, None) => None,
    };
    let cut = |text: &str| escape_invisible(text).chars().take(LONGEST).collect::<String>();
    let mut details: Vec<(String, String)> = vec![("by".into(), fact.actor.to_string())];
    details.extend(fact.detail.iter().map(|(name, value)| (cut(name), cut(value))));
    let further = [
        ("code", fact.code.clone()),
        ("rules", fact.policy.clone()),
        ("write", fact.hold.map(|id| id.to_string())),
        ("approval", fact.approval.map(|id| id.to_string())),
        ("digest", fact.digest.map(|digest| digest.to_string())),
    ];
    details.extend(further.into_iter().filter_map(|(name, value)| Some((name.to_owned(), cut(&value?)))));
    let place = format!("{} #{}", entry.log, entry.seq);
    FeedLine { at: entry.at, text: words, class, kind: cut(&fact.kind), link, details, place }
}

fn sentence(fact: &AuditFact) -> (String, &'static str) {
    let by = who(&fact.actor);
    let detail = |name: &str| fact.detail.get(name).map(|text| escape_invisible(text)).unwrap_or_default();
    let why = fact
        .code
        .as_deref()
        .map(|code| Code::from_code(code).map_or_else(|| code.to_owned(), |code| code.meaning().to_owned()));
    let because = why.map(|why| format!(": {}", escape_invisible(&why))).unwrap_or_default();
    let capability = match detail("capability") {
        name if name.is_empty() => "a call".to_owned(),
        name => name,
    };
    match fact.kind.as_str() {
        "call.answered" => (format!("{by} read with {capability}"), "good"),
        "call.allowed" => (format!("{by} may carry out {capability} itself"), "good"),
        "call.refused" => (format!("{by} was refused {capability}{because}"), "bad"),
        "hold.awaiting_approval" => (format!("A write waits for a person{because}"), "wait"),
        "hold.held" if fact.from.as_deref() == Some("awaiting_approval") => {
            ("The write was approved, and its undo window began".into(), "wait")
        }
        "hold.held" => ("The write was accepted, and its undo window began".into(), "wait"),
        "hold.ready" if fact.from.as_deref() == Some("held") => ("The undo window ended".into(), "run"),
        "hold.ready" => (format!("The write will be tried again{because}"), "wait"),
        "hold.preparing" => ("The write is being prepared".into(), "run"),
        "hold.armed" => ("The write left for its service".into(), "run"),
        "hold.in_doubt" => (format!("The outcome is unclear and is looked up{because}"), "bad"),
        "hold.needs_human" => (format!("A person has to find out what happened{because}"), "bad"),
        "hold.stale" => (format!("The write was set aside{because}"), "bad"),
        "hold.done" => ("The write is done".into(), "good"),
        "hold.cancelled" => (format!("{by} cancelled the write: nothing was sent"), "over"),
        "hold.denied" => (format!("{by} denied the write: nothing was sent"), "over"),
        "hold.expired" => ("Nobody answered in time: nothing was sent".into(), "over"),
        "hold.dead" => (format!("The write failed for good{because}"), "bad"),
        "hold.discarded" => (format!("{by} gave the write up"), "over"),
        "hold.blocked" => (format!("The rules block the write now{because}"), "over"),
        "approval.pending" => (format!("People were asked to decide{because}"), "wait"),
        "approval.approved" => (format!("{by} approved"), "good"),
        "approval.consumed" => ("The approval was used by its write".into(), "good"),
        "approval.denied" => (format!("{by} denied"), "bad"),
        "approval.expired" => ("An approval expired without an answer".into(), "over"),
        "approval.withdrawn" => ("An approval was withdrawn: its write is gone".into(), "over"),
        "approval.superseded" => (format!("{by} changed the action and approved it"), "good"),
        "approval.lapsed" => ("An approval was not used in time".into(), "over"),
        "approval.revoked" => ("An approval no longer counts".into(), "over"),
        "approval.seconded" => (format!("{by} approved; another person has to agree"), "wait"),
        "approval.shown" => (format!("A person was shown the approval{}", over_channel(&detail("channel"))), "over"),
        "freeze.placed" => (format!("{by} froze {}", scope(&detail("scope"), &detail("name"))), "bad"),
        "freeze.lifted" => (format!("{by} lifted the freeze of {}", scope(&detail("scope"), &detail("name"))), "good"),
        "alert.sent" => ("People were sent an alert".into(), "bad"),
        "alert.acknowledged" => (format!("{by} acknowledged an alert"), "over"),
        "session.opened" => (format!("{by} began a session"), "over"),
        "session.ended" => (format!("{by} ended a session"), "over"),
        "session.tainted" => ("A session read text that looks like an attack".into(), "bad"),
        "session.cleared" => (format!("{by} cleared a session"), "good"),
        "content.withheld" => ("Content was withheld from an agent".into(), "bad"),
        "content.released" => (format!("{by} released withheld content"), "good"),
        "dashboard.signed_in" => (format!("{by} signed in to the dashboard"), "over"),
        "dashboard.signed_out" => (format!("{by} ended a session of the dashboard"), "over"),
        "dashboard.code_made" => (format!("{by} made a sign-in code"), "over"),
        "policy.loaded" => (format!("{by} loaded the rules"), "over"),
        "node.started" => ("The gateway started".into(), "over"),
        "key.issued" => (format!("{by} issued a credential for {}", detail("name")), "over"),
        "key.revoked" => (format!("{by} revoked a credential of {}", detail("name")), "bad"),
        kind => (format!("{by}: {}{because}", escape_invisible(kind).replace(['.', '_'], " ")), "over"),
    }
}

fn over_channel(channel: &str) -> String {
    if channel.is_empty() { String::new() } else { format!(" over {channel}") }
}

fn scope(scope: &str, name: &str) -> String {
    match (scope, name) {
        ("" | "all", _) => "everything".to_owned(),
        (scope, "") => scope.to_owned(),
        (scope, name) => format!("{scope} {name}"),
    }
}
