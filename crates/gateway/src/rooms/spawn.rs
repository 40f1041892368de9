//! Spawn: replaces `proxy.spawn` by the proxy operation that it names.
//!
//! Takes `IdentifiedCall`, gives it back; a call of `proxy.spawn` becomes one of `proxy.<name>.<task>` with the spawn options
//! attached. Promise: this is all that `proxy.spawn` does. Every later room sees the operation, so that a spawn is
//! judged, counted, scanned, approved, frozen and recorded as the call it names.

use serde_json::{Map, Value};
use sluice_content::stages::SafeSchema;
use sluice_core::policy::reading::closest;
use sluice_core::proxy::spawn::{self, SpawnOptions};
use sluice_core::proxy::tighten;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName};
use sluice_services::CallError;

use super::identity::IdentifiedCall;
use super::schema;
use crate::Gateway;

/// Resolves a spawn. Any other call stays as it is.
///
/// # Errors
/// When the arguments do not have the form of a spawn, or name an unknown proxy or operation, or an unusable schema.
pub(crate) fn resolve(gw: &Gateway, mut known: IdentifiedCall) -> Result<IdentifiedCall, CallError> {
    if known.wish().capability.as_str() != spawn::CAPABILITY {
        return Ok(known);
    }
    let catalogue = gw.catalogue.known();
    let spec = catalogue.get(&known.wish().capability).ok_or_else(|| CallError::new(Code::SchemaUnknownCapability))?;
    let arguments = known.take_arguments();
    // Frozen only to check the form: exactly the arguments that the catalogue lists.
    let asked = Action::new(spec, known.agent().clone(), None, arguments).map_err(|error| schema::refuse(&error))?;
    let text = |name: &str| asked.arguments().get(name).and_then(Value::as_str).unwrap_or_default();
    let (label, task) = (text("label"), text("task"));
    let Some(proxy) = spawn::names(label).find_map(|name| gw.proxies.get(name)) else {
        let all = gw.proxies.all();
        let names: Vec<&str> = all.iter().map(|proxy| proxy.name()).collect();
        return Err(unknown(&format!("there is no proxy `{label}`"), label, &names));
    };
    let declared = proxy.declared();
    if !declared.operations.contains_key(task) {
        let names: Vec<&str> = declared.operations.keys().map(String::as_str).collect();
        return Err(unknown(&format!("the proxy `{}` has no task `{task}`", proxy.name()), task, &names));
    }
    let wrong = |why: &str| CallError::with_text(Code::SchemaWrongType, why);
    let options = SpawnOptions::read(asked.arguments(), declared).map_err(|why| wrong(&why))?;
    if let Some(schema) = &options.output_schema
        && SafeSchema::compile(&tighten(schema, declared.trust)).is_err()
    {
        return Err(wrong("`output_schema` cannot be used: it is not a JSON Schema, or checking it has no time limit"));
    }
    let name = CapabilityName::new(format!("proxy.{}.{task}", proxy.name()));
    let name = name.map_err(|why| CallError::with_text(Code::SchemaBadName, &why.to_string()))?;
    let context = asked.arguments().get("context").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    known.spawn(name, context, options);
    Ok(known)
}

/// The refusal for an unknown name, with the closest known one and the full list.
fn unknown(text: &str, given: &str, names: &[&str]) -> CallError {
    // If there is no proxy at all, the name is not the problem.
    let code = if names.is_empty() { Code::GatewayUnsupported } else { Code::SchemaUnknownCapability };
    let refusal = Refusal::new(code);
    let bare = spawn::names(given).last().unwrap_or(given);
    let list = if names.is_empty() { "there are none".to_owned() } else { format!("there are: {}", names.join(", ")) };
    let hint = match closest(bare, names.iter().copied()) {
        Some(close) => format!("did you mean `{close}`? {list}"),
        None => list,
    };
    refusal.with_text(text).with_hint(&hint).into()
}
