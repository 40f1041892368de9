//! The catalogue as a page: `docs/capabilities.md`.
//!
//! Takes a catalogue; gives Markdown with each capability, its arguments, their values and their defaults.
//! Promise: the page says what the schemas say that models are given, because both are printed from one list.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Capability, CapabilityParam, Catalogue, ParamKind};

/// The page, whole.
#[must_use]
pub fn as_markdown(catalogue: &Catalogue) -> String {
    let mut page = String::from(
        "# Capabilities\n\n\
         What agents can ask for, and with which arguments. Printed from `crates/core/catalogue/`: change it there, then\n\
         run the tests of `sluice-core` with `UPDATE_DOCS=1`. The same words are in the schemas of `tools/list` (MCP),\n\
         `GET /v1/capabilities` and `agent.capabilities`, which list what the gateway in question really offers: the\n\
         services below that nothing carries out there are known to policy and answer `gateway.unsupported`. Tools of\n\
         mounted servers and proxies bring schemas of their own.\n\n\
         A read is answered at once. A write waits as long as said (`holds.delays` in `sluice.yaml` changes it) and can\n\
         be cancelled until it leaves; what can be rolled back says so. Which calls are allowed, held for a person or\n\
         blocked is up to policy ([policy.md](policy.md)).\n",
    );
    let mut service = String::new();
    for capability in catalogue.iter() {
        let own = capability.service().to_string();
        if own != service {
            // Writing into a String cannot fail.
            let _ = write!(page, "\n## {own}\n");
            service = own;
        }
        one(&mut page, capability);
    }
    page
}

fn one(page: &mut String, capability: &Capability) {
    let kind = match capability.class {
        None => "read".to_owned(),
        Some(class) => {
            let wait = match capability.delay_s {
                0 => "does not wait".to_owned(),
                seconds => format!("waits {seconds} s"),
            };
            let back = if capability.reversible { "can be rolled back" } else { "cannot be rolled back" };
            format!("write ({}), {wait}, {back}", class.as_str())
        }
    };
    let _ = write!(page, "\n### {}\n\n{} *{kind}*\n", capability.name, capability.summary);
    if capability.params.is_empty() {
        return;
    }
    page.push_str("\n| argument | is | unless given | what it means |\n|---|---|---|---|\n");
    for param in &capability.params {
        let default = match (&param.default, param.required) {
            (_, true) => "required".to_owned(),
            (Some(value), false) => code(value),
            (None, false) => String::new(),
        };
        let (shape, about) = (shape(param), about(param));
        let _ = writeln!(page, "| `{}` | {shape} | {default} | {about} |", param.name);
    }
}

fn shape(param: &CapabilityParam) -> String {
    if !param.choices.is_empty() {
        return param.choices.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    let word = match param.kind {
        ParamKind::Text | ParamKind::Content => "text",
        ParamKind::Integer => "whole number",
        ParamKind::Number => "number",
        ParamKind::Boolean => "true or false",
        ParamKind::Path => "path",
        ParamKind::Url => "address",
        ParamKind::Recipients => "mail addresses",
        ParamKind::Objects => "list of ids",
        ParamKind::Texts => "list of texts",
        ParamKind::Object => "object",
        ParamKind::Any => "any JSON",
    };
    match (param.min, param.max) {
        (Some(min), Some(max)) => format!("{word}, {min} to {max}"),
        (Some(min), None) => format!("{word}, at least {min}"),
        (None, Some(max)) => format!("{word}, at most {max}"),
        (None, None) => word.to_owned(),
    }
}

fn about(param: &CapabilityParam) -> String {
    let text = param.about.replace('|', "\\|");
    match param.examples.as_slice() {
        [] => text,
        examples => format!("{text} Such as {}.", examples.iter().map(code).collect::<Vec<_>>().join(" or ")),
    }
}

fn code(value: &Value) -> String {
    format!("`{}`", value.to_string().replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_capabilities_is_what_the_catalogue_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/capabilities.md");
        #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
        let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
        let printed = as_markdown(&Catalogue::builtin().unwrap());
        if update {
            std::fs::write(&path, &printed).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(page == printed, "docs/capabilities.md is stale: run this test with UPDATE_DOCS=1");
    }

    #[test]
    fn each_argument_is_on_the_page_with_its_words() {
        let text = "- {name: a.b, effect: read, summary: S., params: [{name: n, kind: integer, min: 1, default: 5, about: \"A | b.\", examples: [7]}]}";
        let page = as_markdown(&Catalogue::from_yaml(text).unwrap());
        assert!(page.contains("| `n` | whole number, at least 1 | `5` | A \\| b. Such as `7`. |"), "{page}");
    }
}
