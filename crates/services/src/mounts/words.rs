//! A server's own words about a call that failed.
//!
//! Takes an error of the protocol; gives its message, screened and cut. Promise: no word of a server reaches an agent
//! or a person's list of calls before it has passed the content stages.

use rmcp::service::ServiceError;
use serde_json::Value;
use sluice_core::ids::FindingId;
use sluice_core::refusal::LONGEST_QUOTE;

use super::wire::AMBIGUOUS;
use crate::intake::{CleanedContent, IncomingItem, Intake, IntakeOutcome};

/// Most bytes of a message that are screened.
const SCREENED: usize = 4 << 10;

/// What may be shown of a server's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerWords {
    /// They passed the stages; on one line, cut to length.
    Shown(String),
    /// They look like an attack; the finding under which they are kept.
    Withheld(FindingId),
    /// They could not be read.
    Unreadable,
}

/// The message of an error, if the server gave one. Details that it gave as text are part of it.
pub(super) fn of_error(error: &ServiceError) -> Option<String> {
    let ServiceError::McpError(error) = error else { return None };
    if error.code.0 == AMBIGUOUS {
        return None;
    }
    let mut said = error.message.trim().to_owned();
    let more = match &error.data {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Object(data)) => {
            ["message", "detail", "details", "error"].iter().find_map(|key| data.get(*key)?.as_str())
        }
        _ => None,
    };
    if let Some(more) = more.map(str::trim).filter(|more| !more.is_empty() && !said.contains(more)) {
        said = if said.is_empty() { more.to_owned() } else { format!("{said}: {more}") };
    }
    let mut end = said.len().min(SCREENED);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    said.truncate(end);
    (!said.is_empty()).then_some(said)
}

/// The words after the content stages.
pub(super) async fn screened(intake: &Intake, item: &IncomingItem) -> ServerWords {
    match intake.take_in(item).await {
        Ok(IntakeOutcome::Clean(CleanedContent { withheld: Some(finding), .. })) => ServerWords::Withheld(finding),
        Ok(IntakeOutcome::Clean(CleanedContent { text, .. })) => match quoted(&text) {
            Some(words) => ServerWords::Shown(words),
            None => ServerWords::Unreadable,
        },
        Ok(IntakeOutcome::Refused { .. }) | Err(_) => ServerWords::Unreadable,
    }
}

/// A text as it can stand between quotation marks: one line, cut to length.
fn quoted(text: &str) -> Option<String> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = text.chars().map(|c| if c == '"' { '\'' } else { plain(c) }).collect::<String>();
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = words.chars().take(LONGEST_QUOTE).collect();
    (!cut.is_empty()).then(|| if cut.len() < words.len() { format!("{}…", cut.trim_end()) } else { cut })
}

#[cfg(test)]
mod tests {
    use rmcp::ErrorData;
    use rmcp::model::ErrorCode;
    use serde_json::json;

    use super::*;

    fn said(code: i32, message: &str, data: Option<Value>) -> Option<String> {
        of_error(&ServiceError::McpError(ErrorData::new(ErrorCode(code), message.to_owned(), data)))
    }

    #[test]
    fn a_message_is_taken_with_its_details_and_cut() {
        assert_eq!(said(-32000, " no such page ", None).as_deref(), Some("no such page"));
        assert_eq!(said(-32000, "failed", Some(json!({"detail": "quota"}))).as_deref(), Some("failed: quota"));
        assert_eq!(said(-32000, "", Some(json!("quota"))).as_deref(), Some("quota"));
        assert_eq!(said(-32000, "", None), None);
        assert_eq!(said(AMBIGUOUS, "twice", None), None, "these are our own words");
        assert_eq!(said(-32000, &"ä".repeat(SCREENED), None).map(|text| text.len()), Some(SCREENED));
    }

    #[test]
    fn words_stay_on_one_line_and_inside_their_quotation_marks() {
        assert_eq!(quoted("a\n\"b\"\u{1b}[0m  c").as_deref(), Some("a 'b' [0m c"));
        assert_eq!(quoted(" \n"), None);
        let long = quoted(&"x".repeat(5_000)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST_QUOTE + 1, true));
    }
}
