//! Forms that arrive after their session has ended: nothing that a person typed is lost.
//!
//! Takes the form; carries it through the sign-in page, and asks once more before it is sent. Promise: only forms of our
//! own pages are carried, they are sent only when the person presses the button again, and with the new session's token.

use askama::Template;
use sluice_services::CallError;

use crate::fields::FormFields;
use crate::pages::layout;

/// Fields that belong to the session, not to the person.
const DROPPED: [&str; 1] = ["csrf"];

/// A form that waits for a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptForm {
    /// Where it was sent.
    pub(crate) action: String,
    /// What was typed and chosen.
    pub(crate) fields: Vec<(String, String)>,
}

#[derive(Template)]
#[template(path = "kept_form.html")]
struct KeptFormTemplate<'a> {
    kept: &'a KeptForm,
    csrf: &'a str,
}

impl KeptForm {
    /// The form as it arrived without a session.
    pub(crate) fn arrived(action: &str, form: FormFields) -> Self {
        let fields = form.0.into_iter().filter(|(name, _)| !DROPPED.contains(&name.as_str())).collect();
        Self { action: action.to_owned(), fields }
    }

    /// The form that a sign-in form carries.
    pub(crate) fn carried(form: &FormFields) -> Option<Self> {
        let action = form.get("kept_action");
        if !is_action(action) {
            return None;
        }
        let names = form.all("kept_name").map(str::to_owned);
        Some(Self { action: action.to_owned(), fields: names.zip(form.all("kept_value").map(str::to_owned)).collect() })
    }

    /// The page that asks whether it should be sent now.
    pub(crate) fn ask_again(&self, csrf: &str, theme: &'static str) -> Result<String, CallError> {
        layout::bare("Send it now?", theme, layout::html(&KeptFormTemplate { kept: self, csrf })?)
    }
}

/// Whether a text is the address of a form of ours. SECURITY: a button never leads elsewhere.
fn is_action(text: &str) -> bool {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-".contains(&b));
    text.starts_with("/ui/") && is_plain && !text.contains("//") && text != "/ui/login"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carried_form_goes_to_our_own_address_only() {
        let form = |action: &str| {
            FormFields(vec![
                ("kept_action".into(), action.into()),
                ("kept_name".into(), "note".into()),
                ("kept_value".into(), "x".into()),
            ])
        };
        let kept = KeptForm::carried(&form("/ui/approvals/appr_1/decide")).unwrap();
        assert_eq!(kept.fields, [("note".to_owned(), "x".to_owned())]);
        for bad in ["", "//evil.example", "https://evil.example", "/ui//evil", "/v1/freezes", "/ui/login", "/ui/../x"] {
            assert_eq!(KeptForm::carried(&form(bad)), None, "{bad}");
        }
    }
}
