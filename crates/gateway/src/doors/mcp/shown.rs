//! Where to look: a call that waits for a person, shown to whoever sits at the client.
//!
//! Takes a call that has just been accepted; gives the client an address to open, once, where the revision and the client
//! have a way to do so. Promise: the address decides nothing, whoever opens it; what a client answers decides nothing
//! either, only that it asks again; a call that is asked about again is the same call.

use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ErrorCode, InputRequest, InputRequests, InputRequiredResult, JsonObject,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use sluice_core::{AgentName, CallId, CapabilityName};

use super::recent;
use crate::Gateway;
use crate::channels::links::PATH;

/// What the client's answer is filed under.
const ENTRY: &str = "look";
/// Bytes of the print that binds a state to what was asked.
const PRINT: usize = 16;

/// What was asked, as far as a state is bound to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub agent: &'a AgentName,
    pub tool: &'a str,
    pub arguments: &'a Value,
}

/// The address at which a call can be looked at, for a client that can show one.
pub(super) fn offer(
    gw: &Gateway,
    asked: Asked<'_>,
    (call, capability): (CallId, &CapabilityName),
    context: &RequestContext<RoleServer>,
) -> Option<InputRequiredResult> {
    let approvals = &gw.config.approvals;
    let base = approvals.page.as_ref().filter(|_| approvals.elicit)?;
    // The older revisions ask back over a stream that stays open, which this door has none of.
    context.protocol_version().filter(|version| *version >= ProtocolVersion::V_2026_07_28)?;
    context.client_capabilities()?.elicitation?.url?;
    let params = ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message: format!(
            "`{capability}` waits for a person. This page shows how it stands; it is decided where that person was asked."
        ),
        url: format!("{}{PATH}{call}", base.as_str()),
        elicitation_id: call.to_string(),
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    Some(InputRequiredResult::new(Some(InputRequests::from([(ENTRY.to_owned(), request)])), Some(state(call, asked))))
}

/// What the client hands back with its next request. It is no secret: it names a call of the agent's own, and the print
/// only keeps apart what was asked.
fn state(call: CallId, Asked { agent, tool, arguments }: Asked<'_>) -> String {
    let print = recent::print(agent, ENTRY, tool, arguments);
    let hex: String = print.iter().take(PRINT).map(|byte| format!("{byte:02x}")).collect();
    format!("{call}.{hex}")
}

/// The call a client asks about again.
///
/// # Errors
/// When the state is none of ours, or of another question.
pub(super) fn resumed(given: &str, asked: Asked<'_>) -> Result<CallId, ErrorData> {
    let call = given.split_once('.').and_then(|(call, _)| call.parse::<CallId>().ok());
    let fits = call.filter(|call| state(*call, asked) == given);
    fits.ok_or_else(|| ErrorData::new(ErrorCode::INVALID_PARAMS, "the requestState is not of this call", None))
}

/// The arguments as the state is bound to them.
pub(super) fn whole(arguments: &JsonObject) -> Value {
    Value::Object(arguments.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_is_good_for_the_same_question_only() {
        let [clerk, maid] = ["clerk", "maid"].map(|name| AgentName::new(name).unwrap());
        let (one, other) = (json!({"a": 1}), json!({"a": 2}));
        let asked = Asked { agent: &clerk, tool: "t", arguments: &one };
        let call = CallId::from_bits(7);
        let given = state(call, asked);
        assert_eq!(resumed(&given, asked).unwrap(), call);
        let swapped = given.replace(&call.to_string(), &CallId::from_bits(8).to_string());
        assert!(resumed(&swapped, asked).is_ok(), "whose call it is, is looked up: the state is no credential");
        for wrong in [
            resumed(&given, Asked { agent: &maid, ..asked }),
            resumed(&given, Asked { tool: "u", ..asked }),
            resumed(&given, Asked { arguments: &other, ..asked }),
            resumed("", asked),
            resumed("call_x.00", asked),
            resumed(&given[..given.len() - 1], asked),
        ] {
            assert_eq!(wrong.unwrap_err().code, ErrorCode::INVALID_PARAMS);
        }
    }
}
