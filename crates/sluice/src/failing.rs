//! Why a write has not happened, in a line for people.
//!
//! Takes what the API says of a write; gives the next attempt and the last error, with the service's own words quoted.

use serde_json::Value;

use crate::client::shown;

/// The next attempt and the last error; nothing where no attempt failed.
pub(crate) fn line(write: &Value) -> Option<String> {
    let retry = write.get("retry").map(|retry| {
        format!("retry {} of {} at {}", shown(retry, "attempt"), shown(retry, "of"), shown(retry, "next_at"))
    });
    let parts: Vec<String> = retry.into_iter().chain(error(write)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why the last attempt failed.
pub(crate) fn error(write: &Value) -> Option<String> {
    let error = write.get("last_error")?;
    let mut text = format!("{} ({})", shown(error, "text"), shown(error, "code"));
    if error.get("service_says").is_some() {
        text.push_str(&format!(", the service says: \"{}\"", shown(error, "service_says")));
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
        let said = line(&write).unwrap();
        assert!(said.starts_with("retry 2 of 5 at soon; no (execute.refused), the service says: \"bad"), "{said}");
        assert!(!said.contains('\u{1b}'), "nothing of a service moves the cursor: {said}");
        assert_eq!(line(&json!({})), None);
    }
}
