//! Messages: an approval request as a channel shows it, and its outcome.
//!
//! Takes an approval request, a place and a secret; gives text and buttons. Promise: the text is rendered from the
//! action, with its id and the time at which no answer becomes a denial; a message that does not fit, or is above the
//! risk that the channel may approve, offers no approval.

use sha2::{Digest as _, Sha256};
use sluice_config::Risk;
use sluice_content::leak::OutboundPart;
use sluice_core::approval::reply_meaning::{CONFIRM, ExpectedReplyForm};
use sluice_core::approval::{ApprovalState, card};
use sluice_core::{ApprovalId, UtcMillis};
use sluice_store::ProposedAnswer;

use crate::Gateway;
use crate::gate::deciding::{ApprovalRequest, describe_approval};
use crate::gate::{rendering, standing};
use crate::rooms::leak;

/// A button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageButton {
    /// The label of the button.
    pub label: String,
    /// What pressing it means, in the words of a reply.
    pub answer: String,
}

/// An approval request on its way to one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalMessage {
    /// The approval that it asks for.
    pub approval: ApprovalId,
    /// The chat or address that it goes to.
    pub place: String,
    /// The title, one line.
    pub title: String,
    /// Everything a person needs to decide.
    pub text: String,
    /// The buttons, row by row.
    pub buttons: Vec<Vec<MessageButton>>,
    /// Proves that an answer comes from the person who got this message.
    pub secret: String,
    /// Why the action is not shown: ids, lengths and hashes of what was found in it.
    pub withheld: Option<String>,
    /// Whether it can be approved by answering this message.
    pub can_approve: bool,
}

impl ApprovalMessage {
    /// Adds a text at the end.
    #[must_use]
    pub fn with_end(mut self, end: &str) -> Self {
        self.text.push_str(end);
        self
    }

    /// Adds the link of the one person that it goes to.
    #[must_use]
    pub fn with_link(mut self, link: Option<&str>) -> Self {
        if let Some(link) = link {
            let words = if self.can_approve { "Or look at it and answer on a page" } else { "Open to review" };
            self.text.push_str(&format!("\n{words}: {link}"));
        }
        self
    }
}

/// The last signed checkpoint as people get it, to compare with the audit log later. Empty before the first checkpoint.
#[must_use]
pub fn checkpoint(gw: &Gateway) -> String {
    gw.recovery.latest_checkpoint().map_or_else(String::new, |note| {
        format!("\n\nThe signed state of the audit log, to keep (sluice audit verify --against this mail):\n\n{note}")
    })
}

/// The prefix of a reply token.
const TOKEN: &str = "sgr_";
/// Characters of the secret in a token.
const SECRET: usize = 22;

/// The secret of a message as it stands in its text, for replies that a forwarding service hands in.
#[must_use]
pub fn reply_token(secret: &str) -> String {
    format!("{TOKEN}{secret}")
}

/// Every secret that a text holds as a reply token, whatever a mail program put around it.
pub fn secrets_in(text: &str) -> impl Iterator<Item = &str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.match_indices(TOKEN).filter_map(move |(at, _)| {
        let rest = text.get(at + TOKEN.len()..)?;
        let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        rest.get(..end).filter(|secret| secret.len() == SECRET)
    })
}

/// The hash under which a secret is stored.
#[must_use]
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Renders an approval request.
#[must_use]
pub fn render_request(
    gw: &Gateway,
    question: &ApprovalRequest,
    place: &str,
    (room, ceiling): (usize, Risk),
    secret: String,
) -> ApprovalMessage {
    let approval = &question.card.approval;
    let inside = rendering::of(gw, question, rendering::in_letter(room));
    let risk = question.risk();
    let allowed = inside.allows() && risk.rank() <= ceiling.rank();
    let title = format!("Approve? {}", inside.title);
    let expires_at = match approval.state {
        ApprovalState::Pending { expires_at } => expires_at,
        _ => gw.now(),
    };
    let mut text = format!(
        "{title}\nagent {} at {} · {} risk\n\n{}\n",
        approval.agent,
        approval.service,
        risk.as_str(),
        inside.text
    );
    text.push_str(&format!("{}\nopen until {}\n\n", approval.id, until(expires_at)));
    if allowed {
        text.push_str("Press a button, or reply to this message:\n");
        text.push_str(&standing::menu(question));
    } else if inside.withheld.is_some() {
        text.push_str("This cannot be approved here. Review and decide with `sluice approvals`, or deny here with 3.");
    } else if inside.whole {
        text.push_str(
            "This cannot be approved here: the risk is above the limit of this channel. \
             Decide with `sluice approvals`, or deny here with 3.",
        );
    } else {
        text.push_str(
            "This cannot be approved here: not all of it fits. Open to review with `sluice approvals show`, or deny here with 3.",
        );
    }
    text.push_str("\nReply `freeze` to stop this agent, `freeze all` to stop everything.");
    let buttons = buttons(question, allowed);
    ApprovalMessage {
        approval: approval.id,
        place: place.to_owned(),
        title,
        text,
        buttons,
        secret,
        withheld: inside.withheld,
        can_approve: allowed,
    }
}

/// Renders what was understood of a reply, for the person to confirm.
#[must_use]
pub fn render_confirmation(
    gw: &Gateway,
    question: &ApprovalRequest,
    proposal: &ProposedAnswer,
    (room, ceiling): (usize, Risk),
    secret: String,
) -> ApprovalMessage {
    let asked = render_request(gw, question, &proposal.place, (room, ceiling), secret);
    let approval = &question.card.approval;
    let inside = rendering::of(gw, question, rendering::in_letter(room));
    let does = if proposal.code == "5" { "change, then allow once" } else { "allow once, with this text" };
    let lines: String = proposal.words.lines().map(|line| format!("│ {}\n", card::escape_invisible(line))).collect();
    let leaks = leak::preview(gw, &[OutboundPart::new("reply", proposal.words.as_str())]).is_err();
    let title = format!("Confirm? {}", inside.title);
    let head = format!(
        "{title}\n\nNothing is decided yet. Your reply may hold more than was understood: text that looks like a quote, \
         a signature or formatting was left out. This was understood:\n\n{}  ({does})\n",
        proposal.code
    );
    let end = format!("\n{}\n{}\n\n", inside.text, approval.id);
    let fits = card::length(&head) + card::length(&lines) + card::length(&end) + 400 <= room;
    let allowed = asked.can_approve && fits && !leaks;
    let (shown_lines, how) = match (allowed, leaks) {
        (true, _) => (
            lines,
            format!(
                "Reply `{CONFIRM}` to decide exactly this. 3 denies. Or send {} with the whole text again, as plain \
                 text with nothing below it.",
                proposal.code
            ),
        ),
        (false, true) => ("│ (this text must not leave, so it is not shown here)\n".into(), ELSEWHERE.to_owned()),
        (false, false) => ("│ (it does not fit here)\n".into(), ELSEWHERE.to_owned()),
    };
    let text = if allowed { head + &shown_lines + &end + &how } else { head + &shown_lines + &how };
    let button = |label: &str, answer: &str| MessageButton { label: label.into(), answer: answer.into() };
    let deny = button("3 Deny", "3");
    let buttons =
        if allowed { vec![vec![button("Allow exactly this", CONFIRM)], vec![deny]] } else { vec![vec![deny]] };
    ApprovalMessage { title, text, buttons, can_approve: allowed, ..asked }
}

/// The text where an answer cannot be confirmed.
const ELSEWHERE: &str = "This cannot be confirmed here. Decide with `sluice approvals`, or deny here with 3.";

fn until(at: UtcMillis) -> String {
    at.to_string()
}

fn buttons(question: &ApprovalRequest, allowed: bool) -> Vec<Vec<MessageButton>> {
    let button = |label: &str, answer: &str| MessageButton { label: label.into(), answer: answer.into() };
    let deny = || button("3 Deny", "3");
    let stop = vec![button("Freeze this agent", "freeze")];
    if !allowed {
        return vec![vec![deny()], stop];
    }
    match question.form() {
        ExpectedReplyForm::Menu if question.can_stand() => {
            let mut first = vec![button("1 Allow once", "1")];
            if question.offers.iter().any(|offer| offer.has_session) {
                first.push(button("2 Allow session", "2"));
            }
            vec![first, vec![deny(), button("6 Always allow", "6")], stop]
        }
        ExpectedReplyForm::Menu => vec![vec![button("1 Allow once", "1"), deny()], stop],
        ExpectedReplyForm::Choice(options) => {
            let choice = |(letter, option): (char, &String)| {
                let words: String = card::escape_invisible(option).chars().take(40).collect();
                vec![button(&format!("{letter} {words}"), &letter.to_string())]
            };
            ('A'..='Z').zip(options).map(choice).chain([vec![button("3 No answer", "3")], stop]).collect()
        }
        ExpectedReplyForm::Batch { items } => vec![
            vec![button(&format!("Allow all {items}"), &format!("all {items}"))],
            vec![button("Allow the first", "first 1"), deny()],
            stop,
        ],
    }
}

/// The text that replaces a message once the approval is decided.
#[must_use]
pub fn render_outcome(gw: &Gateway, question: &ApprovalRequest) -> String {
    let approval = &question.card.approval;
    let mark = match approval.state {
        ApprovalState::Approved { .. } | ApprovalState::Consumed { .. } | ApprovalState::Superseded { .. } => "Allowed",
        ApprovalState::Denied { .. } => "Denied",
        ApprovalState::Pending { .. } => "Open",
        ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => "Over",
    };
    let note =
        approval.note.as_deref().map(|note| format!("\nnote: {}", card::escape_invisible(note))).unwrap_or_default();
    format!(
        "{mark}: {}\n{}\n{}{note}",
        rendering::of(gw, question, rendering::PAGE).title,
        describe_approval(approval),
        approval.id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_what_mail_programs_make_of_a_letter() {
        let secret = "aB3-_".repeat(4) + "xy";
        let token = reply_token(&secret);
        for text in [
            token.clone(),
            format!("Re: Approve? x [appr_1] [{token}]"),
            format!("1\n\nOn Tue, gate wrote:\n> {token}\n> more"),
            format!("<pre>{token}</pre>"),
            format!("\u{a0}{token}."),
        ] {
            assert_eq!(secrets_in(&text).collect::<Vec<_>>(), [secret.as_str()], "{text}");
        }
        for text in ["", "sgr_", "sgr_short", &format!("{token}z"), &format!("SGR_{secret}"), &secret] {
            assert_eq!(secrets_in(text).count(), 0, "{text}");
        }
    }
}
