//! `sluice_find_tools`: finds tools that a client's list does not have.
//!
//! Takes words; gives the tools that fit best, with their full descriptions and arguments, and adds them to the list of
//! the conversation. Promise: only tools that the agent's rules allow are found; what is found may do no more than
//! before.

use std::collections::BTreeMap;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use sluice_core::capability::Capability;

use super::handler::McpHandler;
use super::names::FIND_TOOLS;
use super::tools;
use super::{McpCaller, results};
use sluice_services::CallError;

/// Most tools that one search gives.
const MOST: u64 = 20;
/// How many it gives by default.
const USUAL: u64 = 8;
/// Longest description that it gives, in characters.
const LONGEST: usize = 1_500;
/// Largest schema that it gives whole, in bytes; of a larger one, the names of the arguments.
const SCHEMA: usize = 4 << 10;

/// The definition of the tool.
pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "query": {"type": "string", "description": "Words about what the tool should do; empty for an overview."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
        },
    });
    let about = "Finds tools that are not in your list, for example for files, mail, state or a mounted server. What it \
                 finds is added to your list and can be called by its name.";
    Tool::new(FIND_TOOLS, about, std::sync::Arc::new(tools::object(schema)))
        .with_annotations(ToolAnnotations::default().read_only(true).open_world(false))
}

/// Answers a search.
pub(super) async fn answer(
    handler: &McpHandler,
    guest: &McpCaller,
    client: Option<&str>,
    arguments: &JsonObject,
) -> Result<CallToolResult, CallError> {
    let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
    let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(USUAL).clamp(1, MOST);
    let names = handler.names.now();
    let viewer = guest.viewer(client, &handler.lists);
    let known = handler.gw.catalogue.known();
    let allowed = tools::allowed(&handler.gw, &known, &names, &viewer);
    let words = words(query);
    if words.is_empty() {
        return Ok(overview(allowed.iter().map(|one| one.spec)));
    }
    let mut fitting: Vec<(u32, &tools::AllowedTool<'_>)> =
        allowed.iter().map(|one| (score(one.name, one.spec, &words), one)).filter(|(score, _)| *score > 0).collect();
    fitting.sort_by(|(one, first), (other, second)| other.cmp(one).then(first.name.cmp(second.name)));
    let total = fitting.len();
    let shown: Vec<&tools::AllowedTool<'_>> =
        fitting.into_iter().take(usize::try_from(limit).unwrap_or(usize::MAX)).map(|(_, one)| one).collect();
    let grew = handler.lists.add_found(&guest.list_owner(client), shown.iter().map(|one| one.spec.name.clone()));
    if grew {
        handler.gw.changes.notify_found();
    }
    let found: Vec<Value> = shown.iter().map(|one| described(one.name, one.spec)).collect();
    let words = match (found.len(), total) {
        (0, _) => "No tool fits these words. An empty query gives an overview.".to_owned(),
        (count, total) if count < total => {
            format!("{count} of {total} tools that fit; they are in your list now. Use more words to narrow it down.")
        }
        (count, _) => format!("{count} tools; they are in your list now."),
    };
    let value = json!({"status": "done", "tools": found, "more": total - shown.len()});
    Ok(results::result(value.clone(), vec![words, value.to_string()], false))
}

/// How many tools each service has.
fn overview<'s>(specs: impl Iterator<Item = &'s Capability>) -> CallToolResult {
    let mut services: BTreeMap<String, u32> = BTreeMap::new();
    for spec in specs {
        *services.entry(spec.service().to_string()).or_default() += 1;
    }
    let list: Vec<String> = services.iter().map(|(service, count)| format!("{service} ({count})")).collect();
    let words = format!("Tools by service: {}. Search with words, such as the name of a service.", list.join(", "));
    results::result(json!({"status": "done", "services": services}), vec![words], false)
}

fn described(name: &str, spec: &Capability) -> Value {
    let schema = tools::input(spec);
    let size = serde_json::to_vec(&schema).map_or(usize::MAX, |text| text.len());
    let arguments = if size <= SCHEMA {
        Value::Object(schema)
    } else {
        spec.params.iter().map(|param| json!({"name": param.name, "required": param.required})).collect()
    };
    let about: String = tools::visible(&spec.summary).chars().take(LONGEST).collect();
    json!({"name": name, "description": about, "arguments": arguments})
}

/// The words of a query, in lower case.
fn words(query: &str) -> Vec<String> {
    let parts = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    parts.take(32).map(|word| word.chars().take(64).collect::<String>().to_lowercase()).collect()
}

/// How well a tool fits: parts of its name count more than its description.
fn score(name: &str, spec: &Capability, words: &[String]) -> u32 {
    let lower = name.to_lowercase();
    let parts: Vec<&str> = lower.split(['_', '-']).collect();
    let about = spec.summary.to_lowercase();
    let of_word = |word: &String| {
        if parts.contains(&word.as_str()) {
            8
        } else if word.len() > 2 && lower.contains(word.as_str()) {
            4
        } else if word.len() > 2 && about.contains(word.as_str()) {
            2
        } else {
            u32::from(spec.params.iter().any(|param| param.name.eq_ignore_ascii_case(word)))
        }
    };
    words.iter().map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::CapabilityName;
    use sluice_core::capability::Catalogue;

    #[test]
    fn names_count_more_than_descriptions_and_what_does_not_fit_is_not_found() {
        let catalogue = Catalogue::builtin().unwrap();
        let of = |tool: &str, capability: &str, query: &str| {
            score(tool, catalogue.get(&CapabilityName::new(capability).unwrap()).unwrap(), &words(query))
        };
        let best = of("email_send", "email.send", "send an email");
        assert!(best > of("filesystem_read", "filesystem.read", "send an email"));
        assert!(of("filesystem_read", "filesystem.read", "path") > 0, "the name of an argument fits");
        assert_eq!(of("email_send", "email.send", "zzz"), 0);
        assert!(words("  ,;! ").is_empty());
        assert!(words(&"a ".repeat(1_000)).len() <= 32);
    }
}
