//! The gateway's own files: no tool of an agent names them.
//!
//! Takes `Checked`. Refuses a call about a tool of the client that names the data folder, the configuration, the policies
//! or a key. It stands before policy, so that no rule, standing approval or observe mode lets such a call through.

use serde_json::Value;
use sluice_core::refusal::{Code, Refusal};

use super::schema::Checked;
use crate::own_files::OwnFiles;
use crate::{Gateway, No};

/// What a refused call is told, and what the record names as the rule.
const WORDS: &str = "the gateway's own files are not for agents: data folder, configuration, policies, keys";
const RULE: &str = "built-in: own files";

/// Refuses what names an own file.
///
/// # Errors
/// When it does.
pub(crate) fn protect(gw: &Gateway, checked: &Checked) -> Result<(), No> {
    let action = checked.action();
    // What the gateway carries out itself stays inside opened folders, which never hold its own files.
    if !action.capability().as_str().starts_with("custom:") {
        return Ok(());
    }
    let folder = action.arguments().get("cwd").and_then(Value::as_str);
    let arguments = Value::Object(action.arguments().clone());
    if OwnFiles::of(&gw.config).named_in(&arguments, folder).is_none() {
        return Ok(());
    }
    let mut no = No::from(Refusal::new(Code::PolicyBlocked).with_text(WORDS));
    no.rule = Some(RULE.to_owned());
    no.call = Some(checked.known().call());
    Err(no)
}
