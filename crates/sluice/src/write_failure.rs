//! Why a write has not been carried out, in one line for people.
//!
//! Takes a write from the API; gives the next attempt and the last error, with the service's own message quoted.

use serde_json::Value;

use crate::client::display_field;

/// The next attempt and the last error; `None` if no attempt failed.
pub(crate) fn describe_retry_and_error(write: &Value) -> Option<String> {
    let retry = write.get("retry").map(|retry| {
        format!(
            "retry {} of {} at {}",
            display_field(retry, "attempt"),
            display_field(retry, "of"),
            display_field(retry, "next_at")
        )
    });
    let parts: Vec<String> = retry.into_iter().chain(describe_last_error(write)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why the last attempt failed.
pub(crate) fn describe_last_error(write: &Value) -> Option<String> {
    let error = write.get("last_error")?;
    let mut text = format!("{} ({})", display_field(error, "text"), display_field(error, "code"));
    if error.get("service_says").is_some() {
        text.push_str(&format!(", service message: \"{}\"", display_field(error, "service_says")));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_that_is_tried_again_says_when_and_why() {
        let error = json!({"code": "execute.refused", "text": "no", "service_says": "bad\u{1b}[31m label", "at": "t"});
        let write = json!({"retry": {"attempt": 2, "of": 5, "next_at": "soon"}, "last_error": error});
        let said = describe_retry_and_error(&write).unwrap();
        assert!(said.starts_with("retry 2 of 5 at soon; no (execute.refused), service message: \"bad"), "{said}");
        assert!(!said.contains('\u{1b}'), "nothing of a service moves the cursor: {said}");
        assert_eq!(describe_retry_and_error(&json!({})), None);
    }
}
