//! Refusals: every negative answer an agent can get.
//!
//! Takes a code and, where the general text is not enough, a particular one; gives what the agent
//! sees: code, text, hint and retry advice. Promise: internal errors travel as the source and
//! are never serialised; a code, once published, keeps its meaning. `docs/errors.md` is generated from here.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::clock::Millis;

#[macro_use]
mod table;
mod codes;

pub use codes::Code;

/// The longest text shown to an agent, in characters.
const LONGEST_TEXT: usize = 500;
/// The longest excerpt of a service's own words, in characters.
pub const LONGEST_QUOTE: usize = 300;

/// Whether and when the agent may make the same call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// It would get the same answer.
    Never,
    /// Not this call; a corrected one may be accepted.
    AfterChange,
    /// When this much time has passed.
    After(Millis),
    /// Only after a person has done something.
    AfterPerson,
    /// At once, with the same idempotency key: the call has no second effect.
    SafeToRepeat,
}

/// A refusal as the agent sees it, with details that only the operator sees.
#[derive(Debug)]
pub struct Refusal {
    code: Code,
    text: Cow<'static, str>,
    hint: Option<String>,
    retry: RetryAdvice,
    service_words: Option<Box<str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Refusal {
    /// A refusal with the general text of its code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        let text = Cow::Borrowed(code.meaning());
        Self { code, text, hint: None, retry: code.retry(), service_words: None, source: None }
    }

    /// Sets a particular text. It is shown to the agent: one line, cut to length.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        let shown = text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c });
        Self { text: Cow::Owned(shown.collect()), ..self }
    }

    /// Sets particular advice in place of the general one of its code.
    #[must_use]
    pub fn with_hint(self, hint: &str) -> Self {
        let shown = hint.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c });
        Self { hint: Some(shown.collect()), ..self }
    }

    /// Sets the wait, where it is known.
    #[must_use]
    pub fn retry_after(self, span: Millis) -> Self {
        Self { retry: RetryAdvice::After(span), ..self }
    }

    /// Sets the service's own words, screened. Only people see them: they are not part of what the agent gets.
    #[must_use]
    pub fn with_service_words(self, words: Option<&str>) -> Self {
        let line = |words: &str| {
            let plain = words.chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c });
            let words: String = plain.take(LONGEST_QUOTE).collect();
            words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        };
        let words = words.map(line).filter(|words| !words.is_empty());
        Self { service_words: words.map(String::into_boxed_str), ..self }
    }

    /// The service's own words, for people only.
    #[must_use]
    pub fn service_words(&self) -> Option<&str> {
        self.service_words.as_deref()
    }

    /// Sets the internal error, for the operator's log only.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What happened, in a text that is safe to show.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What to do instead.
    #[must_use]
    pub fn hint(&self) -> &str {
        self.hint.as_deref().unwrap_or_else(|| self.code.hint())
    }

    /// Whether and when to try again.
    #[must_use]
    pub const fn retry(&self) -> RetryAdvice {
        self.retry
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Refusal", 5)?;
        object.serialize_field("code", self.code.as_str())?;
        object.serialize_field("text", &self.text)?;
        object.serialize_field("hint", self.hint())?;
        object.serialize_field("retry", self.retry.as_str())?;
        match self.retry {
            RetryAdvice::After(span) => object.serialize_field("retry_after_ms", &span.as_millis())?,
            RetryAdvice::Never | RetryAdvice::AfterChange | RetryAdvice::AfterPerson | RetryAdvice::SafeToRepeat => {
                object.skip_field("retry_after_ms")?;
            }
        }
        object.end()
    }
}

impl RetryAdvice {
    /// Its name in an answer.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::AfterChange => "after_change",
            Self::After(_) => "after",
            Self::AfterPerson => "after_person",
            Self::SafeToRepeat => "safe_to_repeat",
        }
    }
}

impl fmt::Display for RetryAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(span) => write!(f, "after {span}"),
            Self::Never | Self::AfterChange | Self::AfterPerson | Self::SafeToRepeat => f.write_str(self.as_str()),
        }
    }
}

/// The page `docs/errors.md`, whole.
#[must_use]
pub fn as_markdown() -> String {
    let mut page = String::from(
        "# Refusals\n\n\
         Every no an agent can meet. The code is stable; the text may say more in a particular case. This page is\n\
         printed from `crates/core/src/refusal/codes.rs`: change it there, then run the tests of `sluice-core` with\n\
         `UPDATE_DOCS=1`.\n\n\
         | retry | means |\n|---|---|\n\
         | `never` | the same call gets the same answer |\n\
         | `after_change` | not this call; a corrected one may pass |\n\
         | `after` | when `retry_after_ms` has passed |\n\
         | `after_person` | a person has to do something first; the agent cannot |\n\
         | `safe_to_repeat` | at once with the same idempotency key; it will not happen twice |\n",
    );
    let mut room = "";
    for code in Code::ALL {
        if code.room() != room {
            room = code.room();
            // Writing into a String cannot fail.
            let _ = write!(
                page,
                "\n## {room}\n\n| code | HTTP | retry | what happened | what to do |\n|---|---|---|---|---|\n"
            );
        }
        let (status, retry) = (code.status(), code.retry());
        let _ = writeln!(page, "| `{code}` | {status} | {retry} | {} | {} |", code.meaning(), code.hint());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, ActionError};
    use crate::approval::reply;
    use crate::json;
    use std::collections::BTreeSet;

    #[test]
    fn an_agent_sees_code_text_hint_and_advice_and_nothing_of_the_inside() {
        let refusal = Refusal::new(Code::StoreUnavailable)
            .with_source("sqlite: disk I/O error at /var/lib/sluice/data.db")
            .retry_after(Millis::from_secs(3));
        insta::assert_snapshot!(serde_json::to_string_pretty(&refusal).unwrap(), @r#"
        {
          "code": "store.unavailable",
          "text": "the database does not answer; nothing was done",
          "hint": "wait as long as advised and send the same call with the same idempotency key",
          "retry": "after",
          "retry_after_ms": 3000
        }
        "#);
        assert_eq!(refusal.source().unwrap().to_string(), "sqlite: disk I/O error at /var/lib/sluice/data.db");
        assert!(!refusal.to_string().contains("sqlite"));
    }

    #[test]
    fn a_denial_reads_as_an_answer_and_not_as_a_fault() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&Refusal::new(Code::ApprovalDenied)).unwrap(), @r#"
        {
          "code": "approval.denied",
          "text": "a person denied the call",
          "hint": "this is an answer, not a fault: do not ask again or reach the same effect another way; ask your user how to go on",
          "retry": "never"
        }
        "#);
    }

    #[test]
    fn particular_words_stay_on_one_line_and_are_cut() {
        let refusal = Refusal::new(Code::PolicyBlocked).with_text(&format!("rule\n`a`{}", "x".repeat(1000)));
        assert!(refusal.text().starts_with("rule `a`x"));
        assert_eq!(refusal.text().chars().count(), LONGEST_TEXT);
    }

    #[test]
    fn what_a_service_said_is_short_on_one_line_and_never_part_of_what_an_agent_gets() {
        let refusal = Refusal::new(Code::ExecuteRefused)
            .with_service_words(Some(&format!("no\n\tsuch  label {}", "x".repeat(999))));
        let words = refusal.service_words().unwrap();
        assert!(words.starts_with("no such label xxx") && words.chars().count() <= LONGEST_QUOTE, "{words}");
        assert!(!serde_json::to_string(&refusal).unwrap().contains("such label"));
        assert!(!refusal.to_string().contains("such label"));
        assert_eq!(Refusal::new(Code::ExecuteRefused).with_service_words(Some(" \n ")).service_words(), None);
    }

    #[test]
    fn codes_are_unique_and_have_a_room_and_a_word() {
        let mut seen = BTreeSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            let (room, what) = text.split_once('.').unwrap();
            let snake = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(snake(room) && snake(what), "{text}");
            assert_eq!(Code::from_code(text), Some(code));
        }
        assert_eq!(Code::from_code("policy.Blocked"), None);
    }

    #[test]
    fn every_code_says_what_happened_and_what_to_do() {
        for code in Code::ALL {
            for words in [code.meaning(), code.hint()] {
                assert!(words.len() > 10 && !words.contains(['\n', '|']) && !words.ends_with('.'), "{code}: {words}");
                assert!(!words.starts_with(char::is_uppercase), "{code}: {words}");
            }
            assert!((400..600).contains(&code.status()), "{code}");
        }
    }

    #[test]
    fn codes_of_one_room_stand_together() {
        let mut rooms: Vec<&str> = Code::ALL.iter().map(|code| code.room()).collect();
        rooms.dedup();
        let distinct: BTreeSet<&str> = rooms.iter().copied().collect();
        assert_eq!(rooms.len(), distinct.len(), "{rooms:?}");
    }

    #[test]
    fn what_a_person_decided_is_never_advised_to_be_repeated() {
        for code in Code::ALL.into_iter().filter(|code| ["approval", "freeze", "policy"].contains(&code.room())) {
            assert_ne!(code.retry(), RetryAdvice::SafeToRepeat, "{code}");
        }
        for code in
            [Code::ApprovalDenied, Code::ApprovalExpired, Code::PolicyBlocked, Code::FreezeActive, Code::LeakFound]
        {
            assert!(code.hint().contains("do not"), "{code} must warn against working around it");
        }
    }

    #[test]
    fn an_unclear_outcome_is_never_advised_to_be_repeated_blindly() {
        assert_eq!(Code::ExecuteInDoubt.retry(), RetryAdvice::Never);
        assert_eq!(Code::ExecuteNeedsHuman.retry(), RetryAdvice::AfterPerson);
    }

    /// Every code literal behind a `=>` in the files that give codes to agents.
    fn codes_in(source: &str) -> Vec<String> {
        let pattern = regex::Regex::new(r#"=> "([a-z]+\.[a-z_]+)""#).unwrap();
        pattern.captures_iter(source).map(|found| found[1].to_owned()).collect()
    }

    #[test]
    fn every_code_of_the_other_files_has_an_entry() {
        for (name, source, at_least) in [
            ("action.rs", include_str!("action.rs"), 5),
            ("json.rs", include_str!("json.rs"), 6),
            ("rollback.rs", include_str!("rollback.rs"), 3),
            ("approval/reply.rs", include_str!("approval/reply.rs"), 1),
        ] {
            let found = codes_in(source);
            assert!(found.len() >= at_least, "{name}: {found:?}");
            for code in found {
                assert!(Code::from_code(&code).is_some(), "{name}: {code} has no entry");
            }
        }
        let capability = crate::CapabilityName::new("a.b").unwrap();
        let agent = crate::AgentName::new("clerk").unwrap();
        let error = Action::custom(capability, agent, serde_json::json!([])).unwrap_err();
        assert_eq!(Code::from_code(error.code()), Some(Code::SchemaNotAnObject));
        let error = ActionError::from(json::parse(b"{", &json::REQUEST).unwrap_err());
        assert_eq!(Code::from_code(error.code()), Some(Code::JsonSyntax));
        assert_eq!(Code::from_code(reply::ReplyParseError::Empty.code()), Some(Code::ApprovalUnclearReply));
    }

    #[test]
    fn the_page_about_refusals_is_what_the_code_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
        #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
        let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
        if update {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, as_markdown()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(page, as_markdown(), "docs/errors.md is stale: run this test with UPDATE_DOCS=1");
    }
}
