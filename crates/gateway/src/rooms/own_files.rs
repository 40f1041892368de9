//! The gateway's own files: no tool of an agent may name them.
//!
//! Takes `CheckedCall`. Refuses a call about a tool of the client that names the data folder, the configuration, the
//! policies or a key, or that reads, copies or changes everything below a folder around them. It runs before policy, so
//! that no rule, standing approval or observe mode allows such a call.

use serde_json::Value;
use sluice_core::refusal::{Code, Refusal};
use sluice_services::CallError;
use sluice_services::gateway_files::GatewayOwnFiles;

use super::schema::CheckedCall;
use crate::Gateway;

/// The texts of the refusals, and the rule that the audit log names.
const WORDS: &str = "the gateway's own files are not for agents: data folder, configuration, policies, keys";
const AROUND: &str =
    "this folder contains the gateway's own files, which are not for agents: name a folder beside them";
const RULE: &str = "built-in: own files";

/// Refuses a call that names an own file.
///
/// # Errors
/// When it names one.
pub(crate) fn protect(gw: &Gateway, checked: &CheckedCall) -> Result<(), CallError> {
    let action = checked.action();
    // Capabilities of the gateway stay inside opened folders, which never hold its own files.
    if !action.capability().as_str().starts_with("custom:") {
        return Ok(());
    }
    let folder = action.arguments().get("cwd").and_then(Value::as_str);
    let arguments = Value::Object(action.arguments().clone());
    let own = GatewayOwnFiles::of(&gw.config);
    let words = if own.named_in(&arguments, folder).is_some() {
        WORDS
    } else if own.walked_in(action.capability().as_str(), &arguments, folder).is_some() {
        AROUND
    } else {
        return Ok(());
    };
    let mut no = CallError::from(Refusal::new(Code::PolicyBlocked).with_text(words));
    no.rule = Some(RULE.to_owned());
    no.call = Some(checked.known().call());
    Err(no)
}
