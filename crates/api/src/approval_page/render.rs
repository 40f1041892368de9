//! The page as HTML: one column, no script, readable on a phone.
//!
//! Takes what a person may see; gives a document. Promise: every third-party text is escaped; the page loads
//! nothing from anywhere; each answer is a form of its own, so that a key pressed in a field never sends another
//! answer.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use sluice_core::approval::reply_meaning::ExpectedReplyForm;
use sluice_core::approval::{ApprovalAnswer, ApprovalState, card};
use sluice_gateway::gate::deciding::ApprovalRequest;
use sluice_gateway::gate::rendering::RenderedApproval;
use sluice_gateway::gate::standing;

use crate::http::views::CallView;

/// The contents of a page.
pub(super) struct ApprovalPageView<'a> {
    pub question: &'a ApprovalRequest,
    pub sight: &'a RenderedApproval,
    pub person: &'a str,
    /// Whether the person can approve here.
    pub allowed: bool,
    pub two_people: bool,
    pub proof: String,
    /// The outcome, if it is decided.
    pub outcome: Option<String>,
    /// A notice about what just happened.
    pub notice: Option<String>,
}

const CSS: &str = include_str!("page.css");

/// Allows only our own style, named by its hash, and forms that go back to us.
pub(super) fn csp() -> String {
    static STYLE: LazyLock<String> = LazyLock::new(|| STANDARD.encode(Sha256::digest(CSS)));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        STYLE.as_str()
    )
}

/// Escaped text.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

fn document(title: &str, inside: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"robots\" content=\"noindex\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}</title><style>{CSS}</style></head><body><main>{inside}</main></body></html>\n",
        plain(title)
    )
}

/// A page that only shows an error.
pub(super) fn sorry(words: &str) -> String {
    let inside =
        format!("<section class=\"card\"><h1>This page cannot be shown</h1><p>{}.</p></section>", plain(words));
    document("Sluicegate", &inside)
}

/// A page with the state of a call, on which nothing can be decided.
pub(super) fn standing(view: &CallView) -> String {
    let what = plain(view.capability.as_deref().unwrap_or("A call"));
    let says = match view.status.as_str() {
        "awaiting_approval" => "It waits for a person's approval. Nothing has happened yet.",
        "held" => "It is accepted and waits a moment before it is sent.",
        "executing" => "It is being carried out.",
        "retrying" => "An attempt failed; it is retried automatically.",
        "done" => "It is done.",
        "denied" => "A person denied it. Nothing has happened.",
        "expired" => "Nobody answered in time, so it was denied. Nothing has happened.",
        "cancelled" => "It was cancelled. Nothing has happened.",
        _ => "It was not carried out as requested; its agent knows the details.",
    };
    let until = view.expires_at.as_deref().filter(|_| view.status == "awaiting_approval");
    let until = until.map(|until| format!("<p>It can be answered until {}.</p>", plain(until))).unwrap_or_default();
    let inside = format!(
        "<section class=\"card\"><h1>{what}</h1><p>{says}</p>{until}<p>Nothing can be decided on this page. The \
         person who decides answers the message they were sent, or runs <code>sluice approvals</code>. Load the \
         page again to see its current state.</p></section>"
    );
    document("Sluicegate", &inside)
}

/// A page with an approval, or its outcome.
pub(super) fn question(view: &ApprovalPageView<'_>) -> String {
    let approval = &view.question.card.approval;
    let risk = view.question.risk().as_str();
    let mut inside = format!("<p class=\"top\"><b>Sluicegate</b> asks {}</p>", plain(view.person));
    if let Some(notice) = &view.notice {
        let _ = write!(inside, "<p class=\"notice\" role=\"status\">{}</p>", plain(notice));
    }
    if let Some(outcome) = &view.outcome {
        let (class, word) = verdict(&approval.state);
        let _ = write!(
            inside,
            "<section class=\"outcome {class}\"><h2>{word}</h2><p>{}</p></section>",
            plain(&capital(outcome))
        );
    }
    let _ = write!(
        inside,
        "<section class=\"card\"><p class=\"risk {risk}\">{risk} risk</p><h1>{}</h1>\
         <p class=\"who\">agent <b>{}</b> at <b>{}</b></p>{}",
        plain(&view.sight.title),
        plain(approval.agent.as_str()),
        plain(approval.service.as_str()),
        body(&view.sight.text, &view.sight.title),
    );
    if let (ApprovalState::Pending { expires_at }, None) = (&approval.state, &view.outcome) {
        let _ = write!(
            inside,
            "<p class=\"until\">Open until {}. Without an answer it is denied.</p>",
            plain(&expires_at.to_string())
        );
    }
    inside.push_str("</section>");
    if view.outcome.is_none() {
        inside.push_str(&answers(view));
    }
    let _ = write!(inside, "<p class=\"id\">{}</p>", approval.id);
    document(&format!("{} · Sluicegate", view.sight.title), &inside)
}

fn verdict(state: &ApprovalState) -> (&'static str, &'static str) {
    match state {
        ApprovalState::Approved { .. } | ApprovalState::Consumed { .. } | ApprovalState::Superseded { .. } => {
            ("yes", "Allowed")
        }
        ApprovalState::Denied { .. } => ("no", "Denied"),
        ApprovalState::Pending { .. }
        | ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => ("over", "Over"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The lines of the card: names with values, third-party text marked with a bar, as in every channel.
fn body(text: &str, title: &str) -> String {
    let mut html = String::new();
    let (mut quotes, mut pairs) = (false, false);
    for line in text.lines().skip_while(|line| *line == title) {
        let quoted = line.strip_prefix("| ");
        if quotes && quoted.is_none() {
            html.push_str("</blockquote>");
            quotes = false;
        }
        let pair = line.split_once(": ").filter(|_| quoted.is_none() && !line.starts_with("  - "));
        if pairs && pair.is_none() {
            html.push_str("</dl>");
            pairs = false;
        }
        match (quoted, pair) {
            (Some(words), _) => {
                html.push_str(if quotes { "\n" } else { "<blockquote>" });
                quotes = true;
                html.push_str(&plain(words));
            }
            (None, Some((name, value))) => {
                if !pairs {
                    html.push_str("<dl>");
                }
                pairs = true;
                let doubt = name.starts_with("origin of ") && (value.starts_with("SEEN") || value.starts_with("NEW"));
                let class = if doubt { " class=\"doubt\"" } else { "" };
                let _ = write!(html, "<div{class}><dt>{}</dt><dd>{}</dd></div>", plain(name), plain(value));
            }
            (None, None) => {
                let class = if line.ends_with(':') { "label" } else { "line" };
                let _ = write!(html, "<p class=\"{class}\">{}</p>", plain(line));
            }
        }
    }
    if quotes {
        html.push_str("</blockquote>");
    }
    if pairs {
        html.push_str("</dl>");
    }
    html
}

/// One answer: a form of its own, with its input field before its button.
struct ApprovalAnswerForm<'a> {
    answer: &'a str,
    label: &'a str,
    class: &'a str,
    field: &'a str,
}

fn choice(view: &ApprovalPageView<'_>, choice: &ApprovalAnswerForm<'_>) -> String {
    let ApprovalAnswerForm { answer, label, class, field } = choice;
    let form = format!(
        "<form method=\"post\"><input type=\"hidden\" name=\"page\" value=\"{}\">{field}\
         <button class=\"{class}\" name=\"answer\" value=\"{}\">{}</button></form>",
        plain(&view.proof),
        plain(answer),
        plain(label)
    );
    // A form with an input field is folded until the person opens it.
    if field.is_empty() { form } else { format!("<details><summary>{}</summary>{form}</details>", plain(label)) }
}

fn answers(view: &ApprovalPageView<'_>) -> String {
    let button =
        |answer: &str, label: &str, class: &str| choice(view, &ApprovalAnswerForm { answer, label, class, field: "" });
    let mut html = String::from("<section class=\"answers\" aria-label=\"Your answer\">");
    if view.two_people {
        html.push_str("<p class=\"hint\">Two different people have to approve this.</p>");
    }
    if !view.allowed {
        html.push_str(
            "<p class=\"hint\">This cannot be approved here: review and decide with <code>sluice approvals</code>. \
             It can be denied.</p>",
        );
        html.push_str(&button("3", "3  Deny", "no"));
    } else {
        html.push_str(&offered(view));
    }
    html.push_str(&choice(
        view,
        &ApprovalAnswerForm { answer: "freeze", label: "Freeze this agent", class: "stop", field: "" },
    ));
    html.push_str("</section>");
    html
}

fn offered(view: &ApprovalPageView<'_>) -> String {
    let question = view.question;
    let area = |label: &str| {
        format!("<label>{label}<textarea name=\"words\" rows=\"3\" maxlength=\"4000\" required></textarea></label>")
    };
    let make = |answer: &str, label: &str, class: &str, field: &str| {
        choice(view, &ApprovalAnswerForm { answer, label, class, field })
    };
    match question.form() {
        ExpectedReplyForm::Menu => {
            let mut html = make("1", "1  Allow once", "yes", "");
            html.push_str(&standing_approvals(view, ApprovalAnswer::Session));
            html.push_str(&make("3", "3  Deny", "no", ""));
            html.push_str(&make("3", "3  Deny with a reason", "no", &area("Your reason, for the agent")));
            html.push_str(&make("4", "4  Allow once and add a note", "yes", &area("Your note to the agent")));
            if question.filed.is_some() {
                html.push_str(&make("5", "5  Change, then allow once", "yes", &area("The text to use instead")));
            } else {
                let _ = write!(
                    html,
                    "<p class=\"hint\">5  Change, then allow once: <code>sluice approvals modify {}</code></p>",
                    question.card.approval.id
                );
            }
            html.push_str(&standing_approvals(view, ApprovalAnswer::Always));
            html
        }
        ExpectedReplyForm::Choice(options) => {
            let mut html = String::new();
            for (letter, option) in ('A'..='Z').zip(options) {
                html.push_str(&make(
                    &letter.to_string(),
                    &format!("{letter}  {}", card::escape_invisible(option)),
                    "",
                    "",
                ));
            }
            html.push_str(&make("3", "3  No answer", "no", ""));
            html.push_str(&make("4", "4  An answer of your own", "yes", &area("Your answer")));
            html
        }
        ExpectedReplyForm::Batch { items } => {
            let count = format!(
                "<label>How many, from the top<input type=\"number\" name=\"words\" min=\"1\" max=\"{items}\" required></label>"
            );
            make(&format!("all {items}"), &format!("Allow all {items}"), "yes", "")
                + &make("first", "Allow the first ones", "yes", &count)
                + &make("3", "3  Deny all", "no", "")
        }
    }
}

/// A button for each bound of a standing approval, the narrowest first; wider ones are folded.
fn standing_approvals(view: &ApprovalPageView<'_>, answer: ApprovalAnswer) -> String {
    let offers = view.question.offers.iter().filter(|offer| answer == ApprovalAnswer::Always || offer.has_session);
    let mut html = String::new();
    for (n, offer) in offers.enumerate() {
        let label = standing::labelled(offer, answer);
        let form = format!(
            "<form method=\"post\"><input type=\"hidden\" name=\"page\" value=\"{}\">\
             <input type=\"hidden\" name=\"bound\" value=\"{}\">\
             <button class=\"\" name=\"answer\" value=\"{}\">{}</button></form>",
            plain(&view.proof),
            n + 1,
            answer.code(),
            plain(&label)
        );
        match n {
            0 => html.push_str(&form),
            _ => {
                let _ = write!(html, "<details><summary>{}  Wider</summary>{form}</details>", answer.code());
            }
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_stay_words() {
        let html = body("to: <b>x</b>\nbody:\n| 1 < 2\n| \"quoted\"\norigin of to a: NEW, met nowhere before\n", "t");
        let expected = "<dl><div><dt>to</dt><dd>&lt;b&gt;x&lt;/b&gt;</dd></div></dl><p class=\"label\">body:</p>\
                        <blockquote>1 &lt; 2\n&quot;quoted&quot;</blockquote><dl><div class=\"doubt\">\
                        <dt>origin of to a</dt><dd>NEW, met nowhere before</dd></div></dl>";
        assert_eq!(html, expected);
        assert!(sorry("<script>").contains("&lt;script&gt;"));
    }

    #[test]
    fn the_style_is_named_by_its_hash_and_nothing_else_is_let_in() {
        let policy = csp();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
        assert!(!CSS.contains("url(") && !CSS.contains('<'));
    }
}
