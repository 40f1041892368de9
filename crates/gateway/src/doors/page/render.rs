//! The page as HTML: one column, no script, readable on a phone.
//!
//! Takes what a person may see; gives a document. Promise: every word of others is escaped; nothing on the page is
//! fetched from anywhere; each answer is a form of its own, so that no key pressed in a field sends another one.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use sluice_core::approval::card;
use sluice_core::approval::voice::Form;
use sluice_core::approval::{Answer, ApprovalState};

use crate::channels::shown::Sight;
use crate::doors::http::views::CallView;
use crate::gate::deciding::Question;
use crate::gate::standing;

/// What is on a page.
pub(super) struct View<'a> {
    pub question: &'a Question,
    pub sight: &'a Sight,
    pub person: &'a str,
    /// Whether a yes can be said here.
    pub allowed: bool,
    pub two_people: bool,
    pub proof: String,
    /// How it ended, if it has.
    pub outcome: Option<String>,
    /// What just happened.
    pub notice: Option<String>,
}

const CSS: &str = include_str!("page.css");

/// Nothing but our own style, named by its hash; forms go back to us only.
pub(super) fn csp() -> String {
    static STYLE: LazyLock<String> = LazyLock::new(|| STANDARD.encode(Sha256::digest(CSS)));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        STYLE.as_str()
    )
}

/// Text that means nothing but itself.
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

/// A page that can show nothing but why.
pub(super) fn sorry(words: &str) -> String {
    let inside = format!("<section class=\"card\"><h1>Nothing to see here</h1><p>{}.</p></section>", plain(words));
    document("Sluicegate", &inside)
}

/// How a call stands, and that nothing is decided here.
pub(super) fn standing(view: &CallView) -> String {
    let what = plain(view.capability.as_deref().unwrap_or("A call"));
    let says = match view.status.as_str() {
        "awaiting_approval" => "It waits for a person's yes. Nothing has happened yet.",
        "held" => "It is accepted and waits a moment before it goes.",
        "executing" => "It is being carried out.",
        "retrying" => "An attempt failed; it is tried again by itself.",
        "done" => "It is done.",
        "denied" => "A person said no. Nothing has happened.",
        "expired" => "Nobody answered in time, which is a no. Nothing has happened.",
        "cancelled" => "It was stopped. Nothing has happened.",
        _ => "It has not gone through as asked; its agent knows the details.",
    };
    let until = view.expires_at.as_deref().filter(|_| view.status == "awaiting_approval");
    let until = until.map(|until| format!("<p>It can be answered until {}.</p>", plain(until))).unwrap_or_default();
    let inside = format!(
        "<section class=\"card\"><h1>{what}</h1><p>{says}</p>{until}<p>Nothing can be decided on this page. Whoever decides \
         answers the message they were sent, or runs <code>sluice approvals</code>. Load the page again to see how it \
         stands.</p></section>"
    );
    document("Sluicegate", &inside)
}

/// A question, or how it ended.
pub(super) fn question(view: &View<'_>) -> String {
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
        let _ =
            write!(inside, "<p class=\"until\">Open until {}. No answer is a no.</p>", plain(&expires_at.to_string()));
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

/// The lines of the card: names beside values, words of others behind a bar, as in every channel.
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

/// One answer: a form of its own, with what it asks for before its button.
struct Choice<'a> {
    answer: &'a str,
    label: &'a str,
    class: &'a str,
    field: &'a str,
}

fn choice(view: &View<'_>, choice: &Choice<'_>) -> String {
    let Choice { answer, label, class, field } = choice;
    let form = format!(
        "<form method=\"post\"><input type=\"hidden\" name=\"page\" value=\"{}\">{field}\
         <button class=\"{class}\" name=\"answer\" value=\"{}\">{}</button></form>",
        plain(&view.proof),
        plain(answer),
        plain(label)
    );
    // What takes words is folded away until somebody wants it.
    if field.is_empty() { form } else { format!("<details><summary>{}</summary>{form}</details>", plain(label)) }
}

fn answers(view: &View<'_>) -> String {
    let button = |answer: &str, label: &str, class: &str| choice(view, &Choice { answer, label, class, field: "" });
    let mut html = String::from("<section class=\"answers\" aria-label=\"Your answer\">");
    if view.two_people {
        html.push_str("<p class=\"hint\">Two different people have to say yes to this.</p>");
    }
    if !view.allowed {
        html.push_str(
            "<p class=\"hint\">This cannot be approved here: look and decide with <code>sluice approvals</code>. \
             It can be denied.</p>",
        );
        html.push_str(&button("3", "3  Deny", "no"));
    } else {
        html.push_str(&offered(view));
    }
    html.push_str(&choice(view, &Choice { answer: "freeze", label: "Freeze this agent", class: "stop", field: "" }));
    html.push_str("</section>");
    html
}

fn offered(view: &View<'_>) -> String {
    let question = view.question;
    let area = |label: &str| {
        format!("<label>{label}<textarea name=\"words\" rows=\"3\" maxlength=\"4000\" required></textarea></label>")
    };
    let make =
        |answer: &str, label: &str, class: &str, field: &str| choice(view, &Choice { answer, label, class, field });
    match question.form() {
        Form::Menu => {
            let mut html = make("1", "1  Allow once", "yes", "");
            html.push_str(&standing_approvals(view, Answer::Session));
            html.push_str(&make("3", "3  Deny", "no", ""));
            html.push_str(&make("3", "3  Deny with a reason", "no", &area("Your reason, for the agent")));
            html.push_str(&make("4", "4  Allow once and add a note", "yes", &area("Your note to the agent")));
            if question.filed.is_some() {
                html.push_str(&make("5", "5  Change, then allow once", "yes", &area("What it shall be instead")));
            } else {
                let _ = write!(
                    html,
                    "<p class=\"hint\">5  Change, then allow once: <code>sluice approvals modify {}</code></p>",
                    question.card.approval.id
                );
            }
            html.push_str(&standing_approvals(view, Answer::Always));
            html
        }
        Form::Choice(options) => {
            let mut html = String::new();
            for (letter, option) in ('A'..='Z').zip(options) {
                html.push_str(&make(&letter.to_string(), &format!("{letter}  {}", card::visible(option)), "", ""));
            }
            html.push_str(&make("3", "3  No answer", "no", ""));
            html.push_str(&make("4", "4  An answer of your own", "yes", &area("Your answer")));
            html
        }
        Form::Batch { items } => {
            let count = format!(
                "<label>How many, from the top<input type=\"number\" name=\"words\" min=\"1\" max=\"{items}\" required></label>"
            );
            make(&format!("all {items}"), &format!("Allow all {items}"), "yes", "")
                + &make("first", "Allow the first so many", "yes", &count)
                + &make("3", "3  Deny all", "no", "")
        }
    }
}

/// A button for each bound of a standing approval, the narrowest first; wider ones are folded away.
fn standing_approvals(view: &View<'_>, answer: Answer) -> String {
    let offers = view.question.offers.iter().filter(|offer| answer == Answer::Always || offer.has_session);
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
