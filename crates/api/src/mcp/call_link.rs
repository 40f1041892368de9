//! Where to look: shows a call that waits for a person to the person at the client.
//!
//! Takes a call that was just accepted; gives the client an address to open, once, if the revision and the client
//! support that. Promise: the address decides nothing, whoever opens it; the client's answer decides nothing
//! either, it only makes the client ask again; a call that is asked about again is the same call.

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ErrorCode, InputRequest, InputRequests, InputRequiredResult, JsonObject,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use sluice_core::{AgentName, CallId, CapabilityName};
use sluice_gateway::Gateway;
use sluice_gateway::channels::links::PATH;

use super::recent;

/// The key of the client's answer.
const ENTRY: &str = "look";
/// Bytes of the fingerprint that binds a state to a request.
const PRINT: usize = 16;

/// The request, as far as a state is bound to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolCallIdentity<'a> {
    pub agent: &'a AgentName,
    pub tool: &'a str,
    pub arguments: &'a Value,
}

/// The address at which the state of a call can be read, for a client that can show one.
pub(super) fn offer(
    gw: &Gateway,
    asked: ToolCallIdentity<'_>,
    (call, capability): (CallId, &CapabilityName),
    context: &RequestContext<RoleServer>,
) -> Option<InputRequiredResult> {
    let approvals = &gw.config.approvals;
    let base = approvals.page.as_ref().filter(|_| approvals.elicit)?;
    // The older revisions ask back over a stream that stays open, and this door has no such stream.
    context.protocol_version().filter(|version| *version >= ProtocolVersion::V_2026_07_28)?;
    context.client_capabilities()?.elicitation?.url?;
    let params = ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message: format!(
            "`{capability}` waits for a person. This page shows its state; the person decides where they were asked."
        ),
        url: format!("{}{PATH}{call}", base.as_str()),
        elicitation_id: call.to_string(),
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    Some(InputRequiredResult::new(Some(InputRequests::from([(ENTRY.to_owned(), request)])), Some(state(call, asked))))
}

/// The state that the client returns with its next request. It is not secret: it names a call of the agent's own, and
/// the fingerprint only tells requests apart.
fn state(call: CallId, ToolCallIdentity { agent, tool, arguments }: ToolCallIdentity<'_>) -> String {
    let print = recent::fingerprint(agent, ENTRY, tool, arguments);
    let hex: String = print.iter().take(PRINT).map(|byte| format!("{byte:02x}")).collect();
    format!("{call}.{hex}")
}

/// The call a client asks about again.
///
/// # Errors
/// When the state was not issued by us, or belongs to another request.
pub(super) fn resume_call(given: &str, asked: ToolCallIdentity<'_>) -> Result<CallId, ErrorData> {
    let call = given.split_once('.').and_then(|(call, _)| call.parse::<CallId>().ok());
    let fits = call.filter(|call| state(*call, asked) == given);
    fits.ok_or_else(|| ErrorData::new(ErrorCode::INVALID_PARAMS, "the requestState does not belong to this call", None))
}

/// The arguments in the form in which the state is bound to them.
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
        let asked = ToolCallIdentity { agent: &clerk, tool: "t", arguments: &one };
        let call = CallId::from_bits(7);
        let given = state(call, asked);
        assert_eq!(resume_call(&given, asked).unwrap(), call);
        let swapped = given.replace(&call.to_string(), &CallId::from_bits(8).to_string());
        assert!(resume_call(&swapped, asked).is_ok(), "whose call it is, is looked up: the state is no credential");
        for wrong in [
            resume_call(&given, ToolCallIdentity { agent: &maid, ..asked }),
            resume_call(&given, ToolCallIdentity { tool: "u", ..asked }),
            resume_call(&given, ToolCallIdentity { arguments: &other, ..asked }),
            resume_call("", asked),
            resume_call("call_x.00", asked),
            resume_call(&given[..given.len() - 1], asked),
        ] {
            assert_eq!(wrong.unwrap_err().code, ErrorCode::INVALID_PARAMS);
        }
    }
}
